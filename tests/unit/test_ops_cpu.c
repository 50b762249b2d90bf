/*
 * test_ops_cpu: the list of cases, and random ones, planned, compiled for the host, run by the cpu
 * device, and judged.  Every operand lies between poisoned edges, and nothing but the outputs may
 * change.  Each case runs twice, with different bytes in its outputs before: what is not written,
 * or not the same again, differs.
 *
 *   test_ops_cpu [--generic] [--half | --quick] [--check] FAMILY...
 *
 * FAMILY: "softmax", for the cases of cases_softmax.c
 * --generic: the operators' generic kernels; with --quick or --check, one kernel in five.
 * --half: the first case of each kind (operator, variant, dtype of the first operand), and half of
 * the others, unless KILN_TEST_ALL is set.
 * --quick: one case in five.
 * --check: one in twenty, compiled to be checked: none may touch memory that is not its own, nor
 * may its results depend on the order of threads.  With --quick one in a hundred.
 *
 * Compiling takes most of the time: cases of one instantiation are compiled once, and two processes
 * share the instantiations.  Of the cases that are marked slow, one in six runs.
 */
#include "cases_problem.h"
#include "daemon/compile/compile.h"
#include "daemon/exec/device.h"
#include "daemon/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANDOM_SEED 20261120
#define RANDOM_CASES 60 /* of each family */
#define PROCESSES 2
#define SLACK 64 /* bytes around an operand that must not change */
#define SLOW_SHARE 6
#define DEADLINE_MS 60000
#define SKIPPED 77

struct item {
	struct cases_case c;
	struct kernel_plan plan;
};

/* What is asked for. */
static struct {
	int share;  /* one in so many cases */
	int kernel; /* one in so many kernels, of those that many cases share */
	bool half;
	bool check, generic;
} wanted = {1, 1, false, false};

struct bench {
	struct compile_sources *sources;
	struct device *device;
	uint64_t ticket;
	int groups, refused;
	double compiling, running; /* seconds */
};

/* An operand's memory: slack, the case's offset, the operand, slack. */
struct place {
	struct device_memory *memory;
	uint64_t begin, bytes; /* of the first element; of all */
	unsigned char *before, *after, *again;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int fail(const struct item *item, const char *what, const char *detail)
{
	printf("FAILED %s: %s: %s\n  %s %s\n", item->c.name, what, detail, item->plan.variant,
		   item->plan.instantiation);
	return 1;
}

/* ---- One case ---- */

static int finish(struct bench *bench, char error[KERNEL_ERROR_MAX])
{
	struct device_done done;
	bool broken = false;

	if (device_cpu.poll(bench->device, -1, DEADLINE_MS, &done, 1, &broken) != 1 ||
		done.ticket != bench->ticket) {
		snprintf(error, KERNEL_ERROR_MAX, "the device did not answer");
		return KILN_ETIMEDOUT;
	}
	memcpy(error, done.error, KERNEL_ERROR_MAX);
	return done.status;
}

static int move(struct bench *bench, const struct place *place, unsigned char *host, bool to_device,
				char error[KERNEL_ERROR_MAX])
{
	int status = device_cpu.copy(bench->device, 1, ++bench->ticket, place->memory, 0, host,
								 place->bytes, to_device, error);

	return status ? status : finish(bench, error);
}

static int launch(struct bench *bench, const struct item *item, struct device_module *module,
				  const struct place *places, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_plan *plan = &item->plan;
	struct device_operand operands[KERNEL_MAX_OPERANDS] = {0};
	struct device_launch request = {
		.copies = plan->kind == KERNEL_COPY,
		.module = module,
		.shared_bytes = plan->shared_bytes,
		.args = plan->args,
		.arg_count = plan->arg_count,
		.operands = operands,
		.operand_count = plan->operand_count,
		.scratch = plan->scratch,
		.report = plan->report,
		.copy_bytes = plan->copy_bytes,
		.granule = wanted.check ? 16 : 0,
		.ticket = ++bench->ticket,
		.stream = 1,
	};
	int status;

	if (plan->kind == KERNEL_NOTHING)
		return KILN_OK;
	for (int i = 0; i < item->c.operand_count; i++)
		if (places[i].memory)
			operands[i] = (struct device_operand){.memory = places[i].memory,
												  .offset = places[i].begin,
												  .bytes = plan->extents[i].bytes};
	memcpy(request.grid, plan->grid, sizeof(request.grid));
	memcpy(request.block, plan->block, sizeof(request.block));
	status = device_cpu.launch(bench->device, &request, error);
	return status ? status : finish(bench, error);
}

/* Memory of the host and of the device; what inputs hold is decided. */
static bool place_open(struct bench *bench, const struct cases_operand *o, uint64_t seed,
					   struct place *place)
{
	char error[KERNEL_ERROR_MAX];

	place->begin = SLACK + o->offset;
	place->bytes = place->begin + cases_bytes(o) + SLACK;
	place->before = malloc(place->bytes);
	place->after = malloc(place->bytes);
	place->again = malloc(place->bytes);
	if (!place->before || !place->after || !place->again ||
		device_cpu.alloc(bench->device, place->bytes, &place->memory, error))
		return false;
	memset(place->before, 0xff, place->bytes); /* no number, in any of the floats */
	if (!o->output)
		cases_fill_operand(o, place->before + place->begin, seed);
	return true;
}

static void place_close(struct bench *bench, struct place *place)
{
	if (place->memory)
		device_cpu.free(bench->device, place->memory);
	free(place->before);
	free(place->after);
	free(place->again);
}

/* Where an index is out of range, that is what the call must end in. */
static bool ends_well(const struct item *item, int status, char error[KERNEL_ERROR_MAX])
{
	bool strays = item->c.flags & CASES_STRAYS;

	if (strays && status == KILN_OK)
		snprintf(error, KERNEL_ERROR_MAX, "no index was found to be out of range");
	return status == (strays ? KILN_EINDEX : KILN_OK);
}

/* Runs the case once: what the operands hold afterwards comes to after, or again. */
static int run_once(struct bench *bench, const struct item *item, struct device_module *module,
					struct place *places, bool again)
{
	char error[KERNEL_ERROR_MAX] = "";
	int count = item->c.operand_count, bad = 0;

	for (int i = 0; i < count && !bad; i++) {
		struct place *place = &places[i];
		if (!place->memory)
			continue;
		if (again && item->c.operand[i].output)
			memset(place->before, 0xa5, place->bytes);
		bad = move(bench, place, place->before, true, error);
	}
	if (bad || !ends_well(item, launch(bench, item, module, places, error), error))
		return fail(item, "launch", error);
	for (int i = 0; i < count && !bad; i++)
		if (places[i].memory)
			bad = move(bench, &places[i], again ? places[i].again : places[i].after, false, error);
	return bad ? fail(item, "reading back", error) : 0;
}

/* Bytes outside the results that are not as before. */
static int check_untouched(const struct item *item, const struct place *places, bool again)
{
	char text[96];

	for (int i = 0; i < item->c.operand_count; i++) {
		const struct place *place = &places[i];
		const struct cases_operand *o = &item->c.operand[i];
		const unsigned char *seen = again ? place->again : place->after;
		uint64_t end = place->begin + cases_bytes(o);
		for (uint64_t at = 0; at < place->bytes; at++) {
			if (o->output && at == place->begin)
				at = end;
			if (seen[at] == place->before[at])
				continue;
			snprintf(text, sizeof(text), "byte %lld of operand %d, which has %llu, was written",
					 (long long)at - (long long)place->begin, i,
					 (unsigned long long)(end - place->begin));
			return fail(item, o->output ? "edges" : "inputs", text);
		}
	}
	return 0;
}

static int check_results(const struct item *item, const struct place *places)
{
	const struct cases_case *c = &item->c;
	const void *memory[CASES_MAX_OPERANDS] = {NULL};
	struct cases_verdict verdict = {0};
	char text[160];

	for (int i = 0; i < c->operand_count; i++)
		if (places[i].memory)
			memory[i] = places[i].after + places[i].begin;
	c->op->judge(c, memory, 0, c->op->units(c), &verdict);
	if (verdict.wrong) {
		snprintf(text, sizeof(text), "element %lld of operand %d is %.9g, not %.9g (+- %.3g)",
				 (long long)verdict.element, verdict.operand, verdict.got, verdict.expected,
				 verdict.allowed);
		return fail(item, "result", text);
	}
	for (int i = 0; i < c->operand_count; i++) {
		uint64_t bytes = cases_bytes(&c->operand[i]), begin = places[i].begin;
		for (uint64_t at = begin; c->operand[i].output && at < begin + bytes; at++) {
			if (places[i].after[at] == places[i].again[at])
				continue;
			snprintf(text, sizeof(text), "element %llu of operand %d is not the same again",
					 (unsigned long long)((at - begin) / cases_element(&c->operand[i])), i);
			return fail(item, "repetition", text);
		}
	}
	return 0;
}

static int run_case(struct bench *bench, const struct item *item, struct device_module *module)
{
	struct place places[CASES_MAX_OPERANDS] = {0};
	int bad = 0;

	for (int i = 0; i < item->c.operand_count && !bad; i++)
		if (item->c.operand[i].dtype != KILN_DTYPE_NONE &&
			!place_open(bench, &item->c.operand[i], 7 + (uint64_t)i, &places[i]))
			bad = fail(item, "memory", "there is none");
	if (!bad)
		bad = run_once(bench, item, module, places, false) || check_untouched(item, places, false);
	if (!bad)
		bad = run_once(bench, item, module, places, true) || check_untouched(item, places, true);
	if (!bad)
		bad = check_results(item, places);
	for (int i = 0; i < item->c.operand_count; i++)
		place_close(bench, &places[i]);
	return bad;
}

/* ---- Cases of one instantiation ---- */

static int compile(struct bench *bench, const struct item *item, struct compile_result *result)
{
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job job = {.target = "cpu",
							  .source = item->plan.source,
							  .instantiation = item->plan.instantiation,
							  .files = files,
							  .check = wanted.check};
	char error[KERNEL_ERROR_MAX];
	double start = now();

	if (compile_sources_of_plan(bench->sources, &item->plan, "cpu", files, &job.file_count, error))
		return fail(item, "source", error);
	hostcc_compile(&job, result);
	bench->compiling += now() - start;
	bench->groups++;
	/* What one log says the next ones mostly say too. */
	return result->status ? fail(item, "compile",
								 result->log && bench->refused++ == 0 ? result->log : result->error)
						  : 0;
}

static int run_group(struct bench *bench, const struct item *items, int count)
{
	struct compile_result result = {0};
	struct device_module *module = NULL;
	uint32_t shared = 0;
	char error[KERNEL_ERROR_MAX];
	int bad = 0;

	if (items->plan.kind == KERNEL_LAUNCH) {
		bad = compile(bench, items, &result);
		for (int i = 0; i < count; i++)
			if (items[i].plan.shared_bytes > shared)
				shared = items[i].plan.shared_bytes;
		if (!bad && device_cpu.load(bench->device, result.object, result.object_bytes, result.entry,
									shared, &module, error))
			bad = fail(items, "load", error);
	}
	double start = now();
	for (int i = 0; i < count && (module || items->plan.kind != KERNEL_LAUNCH); i++)
		bad += run_case(bench, &items[i], module);
	bench->running += now() - start;
	if (module)
		device_cpu.unload(bench->device, module);
	compile_result_free(&result);
	return bad;
}

/* ---- All of them ---- */

static int by_instantiation(const void *a, const void *b)
{
	const struct kernel_plan *left = &((const struct item *)a)->plan;
	const struct kernel_plan *right = &((const struct item *)b)->plan;
	int order = (int)left->kind - (int)right->kind;

	if (!order)
		order = strcmp(left->source, right->source);
	return order ? order : strcmp(left->instantiation, right->instantiation);
}

/* One process: every PROCESSES-th group. */
static int run_share(const struct item *items, int count, int share)
{
	struct bench bench = {0};
	struct compile_toolchain toolchain = {0};
	struct device_info info;
	char error[KERNEL_ERROR_MAX];
	int bad = 0, group = 0;

	/* The compiler's directory is a process's own: it is opened here, not before the fork. */
	if (hostcc_open(&toolchain) || !toolchain.id[0]) {
		printf("skipped: no host compiler: %s\n", toolchain.reason);
		return SKIPPED;
	}
	if (compile_sources_open(NULL, &bench.sources, error) ||
		device_cpu.open(0, &bench.device, &info, error) ||
		(wanted.check && device_cpu.check(bench.device, DEVICE_SHUFFLED, error))) {
		printf("FAILED to open the device: %s\n", error);
		return 1;
	}
	for (int first = 0, next; first < count; first = next) {
		for (next = first + 1; next < count; next++)
			if (by_instantiation(&items[first], &items[next]) != 0)
				break;
		if (group % wanted.kernel == 0 && group / wanted.kernel % PROCESSES == share)
			bad += run_group(&bench, &items[first], next - first);
		group++;
	}
	device_cpu.close(bench.device);
	compile_sources_close(bench.sources);
	printf("process %d: %d kernels, %.1f s of compiling, %.1f s of running\n", share, bench.groups,
		   bench.compiling, bench.running);
	return bad != 0;
}

static int run_all(const struct item *items, int count)
{
	pid_t children[PROCESSES];
	int bad = 0;

	fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i] == 0)
			exit(run_share(items, count, i));
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = 1;
		if (children[i] > 0)
			waitpid(children[i], &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
			bad = SKIPPED;
		else if (status != 0)
			bad = 1;
	}
	return bad;
}

/* ---- Which ---- */

/* A device so small that grids have to loop and tiles to shrink. */
static const struct kernel_limits narrow = {.target = "cpu",
											.max_threads = 64,
											.shared_default = 2048,
											.shared_optin = 2048,
											.grid_x = 3,
											.grid_y = 1,
											.grid_z = 1,
											.multiprocessors = 1,
											.warp = 32};

static bool plan_one(const struct kernel_limits *limits, struct item *item)
{
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX];

	cases_problem(&item->c, &problem);
	if (wanted.generic)
		cases_problem_choose(&problem, PLAN_GENERIC);
	if (plan_problem(&problem, limits, &item->plan, error) == KILN_OK)
		return true;
	printf("FAILED to plan %s: %s\n", item->c.name, error);
	return false;
}

static bool is_wanted(const struct cases_case *c, char **families, int *slow)
{
	bool named = false;

	for (char **family = families; *family; family++)
		named = named || strcmp(*family, c->family) == 0;
	if (!named || (c->flags & (CASES_BIG | CASES_HUGE)))
		return false;
	/* Each statement of map is a kernel of its own: one in four. */
	if (wanted.generic && !plan_find(c->op->name)->generics)
		return strcmp(c->op->name, "map") == 0 && (*slow)++ % 4 == 0;
	return !(c->flags & CASES_SLOW) || (*slow)++ % SLOW_SHARE == 0;
}

static void name_kind(const struct item *item, char kind[96])
{
	snprintf(kind, 96, "%s %s %d", item->plan.op, item->plan.variant,
			 (int)item->c.operand[0].dtype);
}

static int by_kind(const void *a, const void *b)
{
	const struct item *left = a, *right = b;
	char kinds[2][96];
	name_kind(left, kinds[0]);
	name_kind(right, kinds[1]);
	int order = strcmp(kinds[0], kinds[1]);
	return order ? order : strcmp(left->c.name, right->c.name);
}

/* How many are left, which come first. */
static int drop_half(struct item *items, int count)
{
	char kind[96], last[96] = "";
	int kept = 0;

	qsort(items, (size_t)count, sizeof(items[0]), by_kind);
	for (int i = 0; i < count; i++) {
		name_kind(&items[i], kind);
		if (strcmp(kind, last) != 0 || cases_in_half(items[i].c.name))
			items[kept++] = items[i];
		snprintf(last, sizeof(last), "%s", kind);
	}
	return kept;
}

/* Cases on the list, then random ones; one in eleven on the narrow device as well. */
static int plan_all(struct item *items, char **families)
{
	int listed, count = 0, slow = 0;
	const struct cases_case *list = cases_all(&listed);
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];

	if (plan_limits_for("cpu", &limits, error))
		return -1;
	for (int i = 0; i < listed + RANDOM_CASES * CASES_FAMILIES; i++) {
		struct item *item = &items[count];
		if (i < listed)
			item->c = list[i];
		else
			cases_random(RANDOM_SEED, (uint64_t)(i - listed), &item->c);
		if (!is_wanted(&item->c, families, &slow) || i % wanted.share)
			continue;
		if (!plan_one(&limits, item))
			return -1;
		count++;
		if (i % 11 == 0) {
			items[count].c = item->c;
			if (!plan_one(&narrow, &items[count]))
				return -1;
			count++;
		}
	}
	if (wanted.half)
		count = drop_half(items, count);
	qsort(items, (size_t)count, sizeof(items[0]), by_instantiation);
	return count;
}

int main(int argc, char **argv)
{
	int listed, count, bad = 1;
	bool quick = false;
	struct item *items;

	for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
		wanted.generic = wanted.generic || strcmp(argv[1], "--generic") == 0;
		wanted.check = wanted.check || strcmp(argv[1], "--check") == 0;
		quick = quick || strcmp(argv[1], "--quick") == 0;
		wanted.half = wanted.half || strcmp(argv[1], "--half") == 0;
	}
	wanted.half = wanted.half && !getenv("KILN_TEST_ALL");
	wanted.share = (quick ? 5 : 1) * (wanted.check ? 20 : 1);
	cases_all(&listed);
	items = calloc(2 * ((size_t)listed + RANDOM_CASES * CASES_FAMILIES), sizeof(*items));
	if (!items)
		return 1;
	if (wanted.generic && wanted.share > 1) {
		wanted.kernel = 5;
		wanted.share = wanted.check ? 4 : 1;
	}
	count = plan_all(items, argv + 1);
	if (count > 0)
		bad = run_all(items, count);
	printf("%d cases: %s\n", count, bad == SKIPPED ? "skipped" : bad ? "FAILED" : "all right");
	free(items);
	return bad;
}
