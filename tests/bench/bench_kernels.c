/*
 * bench_kernels: the kernel of every case that is to be timed, beside a copy of the same bytes in
 * the same run.
 *
 *   bench_kernels [--direct]            launches by itself, through the driver
 *   bench_kernels --daemon --socket P   through a running kilnd; also how long a queued call takes
 *   bench_kernels --list                the cases as JSON, for torch_times.py
 *   bench_kernels --plan                what the planner does with them
 *   bench_kernels --compile DIRECTORY   their cubins, for a run elsewhere; needs no GPU
 *
 * With --choices the same for all candidates of each case, best first: how heuristics are tuned.
 * With --generic for the planner's own candidate and the generic kernel, and how many times as long
 * that one takes.
 *
 *   --ops LIST  --only PART  --dtype NAME  which cases: operators ("softmax,layer_norm"), part of
 *                                          the name, type of the first operand; --quick: small
 *                                          ones; --all: also those not for timing; --every N: one
 *                                          in N
 *   --objects DIRECTORY  cubins made before; what is missing there is compiled first, and kept
 *   --seconds N          stops in time, and says what was not reached
 *   --target sm_90       for --plan and --compile
 *   --pool BYTES         of inputs, and of outputs (4 GiB): buffers take turns in them
 *   --device cuda:0  --json FILE  --torch FILE (of torch_times.py)  --jobs N  --no-check
 *
 * Results are judged before they are timed, by a sample of each case.  "copy" is the better of the
 * driver's and of a kernel that moves 16 bytes a thread.  Exit status: 0 fine, 1 something is wrong
 * (a target that is missed is not), 2 usage, 77 no GPU or no compiler.
 */
#include "bench.h"

#include "daemon/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL (4ull << 30)

static bool take_flag(struct bench_options *options, const char *name)
{
	const struct {
		const char *name;
		bool *flag;
	} flags[] = {{"--choices", &options->choices},
				 {"--generic", &options->generic},
				 {"--quick", &options->quick},
				 {"--all", &options->all}};
	const struct {
		const char *name;
		enum bench_mode mode;
	} modes[] = {{"--direct", BENCH_DIRECT},
				 {"--daemon", BENCH_DAEMON},
				 {"--list", BENCH_LIST},
				 {"--plan", BENCH_PLAN}};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (strcmp(name, modes[i].name) == 0) {
			options->mode = modes[i].mode;
			return true;
		}
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		if (strcmp(name, flags[i].name) == 0)
			return *flags[i].flag = true;
	if (strcmp(name, "--no-check") != 0)
		return false;
	options->check = false;
	return true;
}

static bool take_number(const char *text, double least, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return end != text && !*end && *out >= least;
}

static bool take_value(struct bench_options *options, const char *name, const char *value)
{
	double number;
	const struct {
		const char *name;
		const char **text;
	} texts[] = {{"--ops", &options->ops},         {"--only", &options->only},
				 {"--dtype", &options->dtype},     {"--target", &options->target},
				 {"--objects", &options->objects}, {"--socket", &options->socket},
				 {"--device", &options->device},   {"--json", &options->json},
				 {"--torch", &options->torch}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (strcmp(name, texts[i].name) == 0) {
			*texts[i].text = value;
			return true;
		}
	if (strcmp(name, "--compile") == 0) {
		options->mode = BENCH_COMPILE;
		options->objects = value;
		return true;
	}
	if (strcmp(name, "--pool") == 0)
		return util_parse_bytes(value, &options->pool) && options->pool >= 65536;
	if (!take_number(value, 1, &number))
		return false;
	if (strcmp(name, "--seconds") == 0)
		options->seconds = number;
	else if (strcmp(name, "--every") == 0)
		options->every = (int)number;
	else if (strcmp(name, "--jobs") == 0)
		options->runner.threads = number < 64 ? (int)number : 64;
	else
		return false;
	return true;
}

static bool read_options(int argc, char **argv, struct bench_options *options)
{
	*options = (struct bench_options){.check = true,
									  .target = "sm_90",
									  .device = "cuda:0",
									  .seconds = 3600,
									  .pool = POOL,
									  .every = 1};
	options->runner.threads = util_cpu_count() < 64 ? util_cpu_count() : 64;
	for (int i = 1; i < argc; i++) {
		if (take_flag(options, argv[i]))
			continue;
		if (i + 1 < argc && take_value(options, argv[i], argv[i + 1])) {
			i++;
			continue;
		}
		fprintf(stderr,
				"bench_kernels: option \"%s\" is unknown, or its value is missing or wrong\n",
				argv[i]);
		return false;
	}
	if (options->mode == BENCH_DAEMON && !options->socket) {
		fprintf(stderr, "bench_kernels: --daemon needs --socket PATH of a running kilnd\n");
		return false;
	}
	return true;
}

/* ---- Limits to plan for ---- */

static int find_limits(const struct bench_options *options, struct kernel_limits *limits)
{
	const char *target = options->target;
	char error[KERNEL_ERROR_MAX], why[400];

	if (options->mode == BENCH_DIRECT) {
		if (bench_direct_limits(options->device, limits, why))
			return 0;
		fprintf(stderr, "bench_kernels: %s\n", why);
		return BENCH_SKIPPED;
	}
	/* The daemon plans by itself; what is wanted here is the candidates' names and sizes. */
	if (options->mode == BENCH_DAEMON && strcmp(options->device, "cpu") == 0)
		target = "cpu";
	if (plan_limits_for(target, limits, error) == KILN_OK)
		return 0;
	fprintf(stderr, "bench_kernels: %s\n", error);
	return 2;
}

/* ---- What all but the daemon need ---- */

static int make_objects(const struct bench_options *options, struct bench_objects *objects,
						struct bench_case *groups, int count, double deadline_us)
{
	char copy[KERNEL_KEY_HEX];

	if (!bench_objects_want(objects, BENCH_COPY_SOURCE, "", BENCH_COPY_KERNEL, copy))
		return 1;
	for (int g = 0; g < count; g++)
		for (int i = 0; i < groups[g].count; i++) {
			struct bench_item *item = &groups[g].items[i];
			if (item->plan.kind == KERNEL_LAUNCH &&
				!bench_objects_want(objects, item->plan.source, item->plan.generated,
									item->plan.instantiation, item->object))
				return 1;
		}
	return bench_objects_make(objects, options->runner.threads, deadline_us);
}

static int run(const struct bench_options *options, const struct kernel_limits *limits,
			   struct bench_case *groups, int count)
{
	double deadline = runner_now_us() + options->seconds * 1e6;
	struct bench_objects *objects = NULL;
	int made, status = 1;

	if (options->mode == BENCH_DAEMON)
		return bench_run(options, &bench_daemon, NULL, groups, count, deadline);
	if (bench_objects_open(options->objects, limits->target, &objects)) {
		made = make_objects(options, objects, groups, count, deadline);
		status = made;
		if (options->mode == BENCH_DIRECT && made != BENCH_SKIPPED) {
			status = bench_run(options, &bench_direct, objects, groups, count, deadline);
			status = status ? status : made;
		}
	}
	bench_objects_close(objects);
	return status;
}

int main(int argc, char **argv)
{
	struct bench_options options;
	struct kernel_limits limits;
	struct bench_case *groups;
	int count, status;

	if (!read_options(argc, argv, &options))
		return 2;
	if (options.mode == BENCH_LIST) {
		bench_list(&options);
		return 0;
	}
	status = find_limits(&options, &limits);
	if (status)
		return status;
	bool planned = bench_cases(&options, &limits, &groups, &count);
	if (options.mode == BENCH_PLAN)
		bench_list_plans(groups, count);
	else
		status = run(&options, &limits, groups, count);
	for (int g = 0; g < count; g++)
		free(groups[g].items);
	free(groups);
	return status ? status : !planned;
}
