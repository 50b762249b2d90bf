/*
 * test_ops_cpu: the list of cases, and random ones, planned, compiled for the host, run by the cpu
 * device, and judged.  Every operand lies between poisoned edges, and nothing but the outputs may
 * change.  Each case runs twice, with different bytes in its outputs before: what is not written,
 * or not the same again, differs.
 *
 *   test_ops_cpu [--generic] [--kinds | --quick] [--check] FAMILY...
 *
 * FAMILY: "softmax", for the cases of tests/ops/softmax.c
 * --generic: the operators' generic kernels; with --quick or --check, one kernel in eight.
 * --kinds: every other dtype of each variant of an operator; the first case of each, and a twelfth
 * of the others; with --generic every third dtype, and all cases of it.  KILN_TEST_ALL set:
 * everything.
 * --quick: one case in five.
 * --check: one in thirty, compiled to be checked: none may touch memory that is not its own, nor
 * may its results depend on the order of threads.  With --quick one in 150.
 *
 * Compiling takes most of the time: cases of one instantiation are compiled once, and two processes
 * share the instantiations.  Of the cases that are marked slow, one in six runs.  --check runs no
 * launch with tens of thousands of threads, and no case of thousands of elements on the narrow
 * device.
 */
#include "ops_case.h"

#include "daemon/compile/compile.h"
#include "tests/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANDOM_SEED 20261120
#define RANDOM_CASES 60 /* of each family */
#define PROCESSES 2
#define SLOW_SHARE 6
#define CHECKED_THREADS (1u << 16) /* of a launch: each is a fiber whose accesses are looked up */
#define CHECKED_NARROW (1u << 12)  /* elements that the few threads of the narrow device visit */
#define SKIPPED 77

/* The command line. */
static struct {
	int share;  /* one in so many cases */
	int kernel; /* one in so many kernels, of those that many cases share */
	bool kinds;
	bool check, generic;
} wanted = {1, 1, false, false};

struct bench {
	struct compile_toolchain toolchain;
	struct compile_sources *sources;
	struct ops_device on;
	int groups, refused;
	double compiling, running; /* seconds */
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
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
	kept_compile(&job, bench->toolchain.id, hostcc_compile, true, result);
	bench->compiling += now() - start;
	bench->groups++;
	if (result->status == KILN_OK)
		return 0;
	/* The next logs mostly say the same. */
	if (result->log && bench->refused++ == 0)
		printf("%s", result->log);
	return fail(item, "compile", result->error);
}

static int run_group(struct bench *bench, struct item *items, int count)
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
		if (!bad && device_cpu.load(bench->on.device, result.object, result.object_bytes,
									result.entry, shared, &module, error))
			bad = fail(items, "load", error);
	}
	double start = now();
	for (int i = 0; i < count && (module || items->plan.kind != KERNEL_LAUNCH); i++)
		bad += run_case(&bench->on, &items[i], module, check_right);
	bench->running += now() - start;
	if (module)
		device_cpu.unload(bench->on.device, module);
	compile_result_free(&result);
	return bad;
}

/* ---- All of them ---- */

/* One process: every PROCESSES-th group. */
static int run_share(struct item *items, int count, int share)
{
	struct bench bench = {.on.checked = wanted.check};
	struct device_info info;
	char error[KERNEL_ERROR_MAX];
	int bad = 0, group = 0;

	/* The compiler's directory is a process's own: it is opened here, not before the fork. */
	if (hostcc_open(&bench.toolchain) || !bench.toolchain.id[0]) {
		printf("skipped: no host compiler: %s\n", bench.toolchain.reason);
		return SKIPPED;
	}
	if (compile_sources_open(NULL, &bench.sources, error) ||
		device_cpu.open(NULL, &bench.on.device, &info, error) ||
		(wanted.check && device_cpu.check(bench.on.device, DEVICE_SHUFFLED, error))) {
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
	device_cpu.close(bench.on.device);
	compile_sources_close(bench.sources);
	printf("process %d: %d kernels, %.1f s of compiling, %.1f s of running\n", share, bench.groups,
		   bench.compiling, bench.running);
	return bad != 0;
}

static int run_all(struct item *items, int count)
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

static bool has_many_threads(const struct kernel_plan *plan)
{
	uint64_t threads = 1;

	for (int i = 0; i < 3 && plan->kind == KERNEL_LAUNCH; i++)
		threads *= (uint64_t)plan->grid[i] * plan->block[i];
	return threads > CHECKED_THREADS;
}

static bool is_same_variant(const struct item *a, const struct item *b)
{
	return strcmp(a->plan.op, b->plan.op) == 0 && strcmp(a->plan.variant, b->plan.variant) == 0;
}

static bool is_same_dtype(const struct item *a, const struct item *b)
{
	return a->c.operand[0].dtype == b->c.operand[0].dtype;
}

/* Keeps every other dtype of a variant (of generic kernels every third), the next variant other
 * ones.  How many cases are left, which come first. */
static int drop_alike(struct item *items, int count)
{
	const int every = wanted.generic ? 3 : 2;
	int kept = 0, variant = 0;

	qsort(items, (size_t)count, sizeof(items[0]), by_kind);
	for (int first = 0, end; first < count; first = end, variant++) {
		for (end = first + 1; end < count && is_same_variant(&items[first], &items[end]); end++) {
		}
		bool alone = is_same_dtype(&items[first], &items[end - 1]);
		for (int i = first, turn = variant; i < end; i++) {
			bool next = i > first && !is_same_dtype(&items[i - 1], &items[i]);
			turn += next;
			/* Generic kernels serve many cases, which cost little. */
			if ((alone || turn % every == 0) &&
				(wanted.generic || next || i == first || cases_in_sample(items[i].c.name)))
				items[kept++] = items[i];
		}
	}
	return kept;
}

/* Cases on the list, then random ones; one in eleven on the narrow device as well. */
static int plan_all(struct item *items, char **families)
{
	int listed, count = 0, seen = 0, slow = 0;
	const struct cases_case *list = cases_all(&listed);
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];

	if (plan_limits_for("cpu", &limits, error))
		return -1;
	for (int i = 0; i < listed + RANDOM_CASES * cases_families(); i++) {
		struct item *item = &items[count];
		if (i < listed)
			item->c = list[i];
		else
			cases_random(RANDOM_SEED, (uint64_t)(i - listed), &item->c);
		if (!is_wanted(&item->c, families, &slow) || seen++ % wanted.share)
			continue;
		if (!plan_one(&limits, wanted.generic, item))
			return -1;
		if (wanted.check && has_many_threads(&item->plan))
			continue;
		count++;
		bool is_long =
			cases_bytes(&item->c.operand[0]) / cases_element(&item->c.operand[0]) > CHECKED_NARROW;
		if (seen % 11 == 1 && !(wanted.check && is_long)) {
			items[count].c = item->c;
			if (!plan_one(&narrow, wanted.generic, &items[count]))
				return -1;
			count++;
		}
	}
	if (wanted.kinds)
		count = drop_alike(items, count);
	qsort(items, (size_t)count, sizeof(items[0]), by_instantiation);
	return count;
}

int main(int argc, char **argv)
{
	int listed, count, bad = 1;
	bool quick = false, all = getenv("KILN_TEST_ALL") != NULL;
	struct item *items;

	for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
		wanted.generic = wanted.generic || strcmp(argv[1], "--generic") == 0;
		wanted.check = wanted.check || strcmp(argv[1], "--check") == 0;
		quick = quick || strcmp(argv[1], "--quick") == 0;
		wanted.kinds = wanted.kinds || strcmp(argv[1], "--kinds") == 0;
	}
	wanted.kinds = wanted.kinds && !all;
	wanted.share = (quick ? 5 : 1) * (!wanted.check ? 1 : all ? 20 : 30);
	cases_all(&listed);
	items = calloc(2 * ((size_t)listed + RANDOM_CASES * cases_families()), sizeof(*items));
	if (!items)
		return 1;
	if (wanted.generic && wanted.share > 1) {
		wanted.kernel = all ? 5 : 8;
		wanted.share = wanted.check ? 4 : 1;
	}
	count = plan_all(items, argv + 1);
	if (count > 0)
		bad = run_all(items, count);
	printf("%d cases: %s\n", count, bad == SKIPPED ? "skipped" : bad ? "FAILED" : "all right");
	free(items);
	return bad;
}
