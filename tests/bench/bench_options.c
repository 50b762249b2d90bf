/*
 * bench_options.c: the options that bench_kernels and bench_random share.
 */
#include "bench.h"

#include "daemon/base/util.h"

#include <stdlib.h>
#include <string.h>

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
				 {"--torch", &options->torch},     {"--csv", &options->csv}};

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

void bench_options_init(struct bench_options *options)
{
	*options = (struct bench_options){.check = true,
									  .target = "sm_90",
									  .device = "cuda:0",
									  .seconds = 3600,
									  .pool = POOL,
									  .every = 1};
	options->runner.threads = util_cpu_count() < 64 ? util_cpu_count() : 64;
}

int bench_option(struct bench_options *options, const char *name, const char *value)
{
	if (take_flag(options, name))
		return 1;
	return value && take_value(options, name, value) ? 2 : 0;
}
