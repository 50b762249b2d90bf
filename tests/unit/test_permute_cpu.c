/*
 * test_permute_cpu: every permute on the list of cases, and random ones, planned, compiled for the
 * host, run by the cpu device, and compared with plain loops bit for bit.  What y does not cover
 * must stay as it was.
 *
 * Two processes share the work.  Cases of one instantiation are compiled once.
 */
#include "cases_problem.h"
#include "daemon/compile/compile.h"
#include "daemon/exec/device.h"
#include "daemon/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANDOM_SEED 20261120
#define RANDOM_CASES 60
#define PROCESSES 2
#define SLACK 64 /* bytes around y that must not change */
#define DEADLINE_MS 60000
#define SKIPPED 77

struct item {
	struct cases_case c;
	struct kernel_plan plan;
};

struct bench {
	const struct compile_file *files[COMPILE_MAX_HEADERS];
	int file_count;
	struct compile_sources *sources;
	struct device *device;
	uint64_t ticket;
};

static int fail(const struct item *item, const char *what, const char *detail)
{
	printf("FAILED %s: %s: %s\n  %s %s\n", item->c.name, what, detail, item->plan.variant,
		   item->plan.instantiation);
	return 1;
}

static int by_instantiation(const void *a, const void *b)
{
	const struct item *left = a, *right = b;

	return strcmp(left->plan.instantiation, right->plan.instantiation);
}

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

static int move(struct bench *bench, struct device_memory *memory, void *host, uint64_t bytes,
				bool to_device, char error[KERNEL_ERROR_MAX])
{
	int status = device_cpu.copy(bench->device, 1, ++bench->ticket, memory, 0, host, bytes,
								 to_device, error);

	return status ? status : finish(bench, error);
}

static int launch(struct bench *bench, const struct item *item, struct device_module *module,
				  struct device_memory *memory[2], char error[KERNEL_ERROR_MAX])
{
	const struct kernel_plan *plan = &item->plan;
	struct device_operand operands[2] = {{memory[0], item->c.x_offset},
										 {memory[1], SLACK + item->c.y_offset}};
	struct device_launch request = {
		.module = module,
		.shared_bytes = plan->shared_bytes,
		.args = plan->args,
		.arg_count = plan->arg_count,
		.operands = operands,
		.operand_count = 2,
		.copy_bytes = plan->copy_bytes,
		.ticket = ++bench->ticket,
		.stream = 1,
	};
	int status;

	memcpy(request.grid, plan->grid, sizeof(request.grid));
	memcpy(request.block, plan->block, sizeof(request.block));
	status = device_cpu.launch(bench->device, &request, error);
	return status ? status : finish(bench, error);
}

/* Runs one case between poisoned edges and compares. */
static int run(struct bench *bench, const struct item *item, struct device_module *module)
{
	const struct cases_case *c = &item->c;
	uint64_t x_bytes = c->x_offset + cases_x_bytes(c);
	uint64_t y_bytes = SLACK + c->y_offset + cases_y_bytes(c) + SLACK;
	unsigned char *x = malloc(x_bytes), *y = malloc(y_bytes), *wanted = malloc(y_bytes);
	struct device_memory *memory[2] = {NULL, NULL};
	char error[KERNEL_ERROR_MAX] = "";
	int bad = 0;

	if (!x || !y || !wanted || device_cpu.alloc(bench->device, x_bytes, &memory[0], error) ||
		device_cpu.alloc(bench->device, y_bytes, &memory[1], error)) {
		bad = fail(item, "no memory", error);
		goto out;
	}
	cases_fill(x, 0, x_bytes, 7);
	memset(y, 0xa5, y_bytes);
	memset(wanted, 0xa5, y_bytes);
	cases_reference(c, x + c->x_offset, wanted + SLACK + c->y_offset, 0, cases_elements(c));
	if (move(bench, memory[0], x, x_bytes, true, error) ||
		move(bench, memory[1], y, y_bytes, true, error) ||
		launch(bench, item, module, memory, error) ||
		move(bench, memory[1], y, y_bytes, false, error))
		bad = fail(item, "launch", error);
	for (uint64_t i = 0; i < y_bytes && !bad; i++) {
		if (y[i] != wanted[i]) {
			snprintf(error, sizeof(error), "byte %lld of y is %02x, not %02x",
					 (long long)i - SLACK - c->y_offset, y[i], wanted[i]);
			bad = fail(item, "result", error);
		}
	}
out:
	if (memory[0])
		device_cpu.free(bench->device, memory[0]);
	if (memory[1])
		device_cpu.free(bench->device, memory[1]);
	free(x);
	free(y);
	free(wanted);
	return bad;
}

/* Compiles what the items share and runs them. */
static int run_group(struct bench *bench, const struct item *items, int count)
{
	struct compile_file files[COMPILE_MAX_HEADERS];
	struct compile_job job = {.source = "ops/permute.cuh",
							  .instantiation = items->plan.instantiation,
							  .files = files,
							  .file_count = bench->file_count};
	struct compile_result result = {0};
	struct device_module *module = NULL;
	char error[KERNEL_ERROR_MAX];
	int bad = 0;

	if (items->plan.kind == KERNEL_LAUNCH) {
		memcpy(job.target, "cpu", sizeof("cpu"));
		for (int i = 0; i < bench->file_count; i++)
			files[i] = *bench->files[i];
		hostcc_compile(&job, &result);
		if (result.status) {
			bad = fail(items, "compile", result.log ? result.log : result.error);
			goto out;
		}
		if (device_cpu.load(bench->device, result.object, result.object_bytes, result.entry,
							items->plan.shared_bytes, &module, error)) {
			bad = fail(items, "load", error);
			goto out;
		}
	}
	for (int i = 0; i < count; i++)
		if (items[i].plan.kind != KERNEL_NOTHING)
			bad += run(bench, &items[i], module);
out:
	if (module)
		device_cpu.unload(bench->device, module);
	compile_result_free(&result);
	return bad;
}

/* One process: every PROCESSES-th group. */
static int run_share(struct bench *bench, const struct item *items, int count, int share)
{
	struct compile_toolchain toolchain = {0};
	struct device_info info;
	char error[KERNEL_ERROR_MAX];
	int bad = 0, group = 0;

	/* The compiler's directory is a process's own: it is opened here, not before the fork. */
	if (hostcc_open(&toolchain) || !toolchain.id[0]) {
		printf("skipped: no host compiler: %s\n", toolchain.reason);
		return SKIPPED;
	}
	if (device_cpu.open(0, &bench->device, &info, error)) {
		printf("FAILED to open the device: %s\n", error);
		return 1;
	}
	for (int first = 0, next; first < count; first = next) {
		for (next = first + 1; next < count; next++)
			if (strcmp(items[first].plan.instantiation, items[next].plan.instantiation) != 0)
				break;
		if (group++ % PROCESSES == share)
			bad += run_group(bench, &items[first], next - first);
	}
	device_cpu.close(bench->device);
	return bad != 0;
}

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

static int plan_one(const struct kernel_limits *limits, struct item *item)
{
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX];

	cases_problem(&item->c, &problem);
	if (plan_problem(&problem, limits, &item->plan, error)) {
		printf("FAILED to plan %s: %s\n", item->c.name, error);
		return -1;
	}
	return 0;
}

/* Cases on the list, then random ones; one in eleven on the narrow device as well. */
static int plan_all(const struct kernel_limits *limits, struct item *items, bool quick)
{
	int listed, count = 0;
	const struct cases_case *list = cases_all(&listed);

	for (int i = 0; i < listed + RANDOM_CASES; i++) {
		struct item *item = &items[count];
		if (i < listed)
			item->c = list[i];
		else
			cases_random(RANDOM_SEED, (uint64_t)(i - listed), &item->c);
		if ((item->c.flags & (CASES_BIG | CASES_HUGE)) || (quick && i % 5))
			continue;
		if (plan_one(limits, item))
			return -1;
		count++;
		if (i % 11 == 0) {
			items[count].c = item->c;
			if (plan_one(&narrow, &items[count]))
				return -1;
			count++;
		}
	}
	qsort(items, (size_t)count, sizeof(items[0]), by_instantiation);
	return count;
}

static int run_all(struct bench *bench, const struct item *items, int count)
{
	pid_t children[PROCESSES];
	int bad = 0;

	fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i] == 0)
			exit(run_share(bench, items, count, i));
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

/* With --quick, one case in five. */
int main(int argc, char **argv)
{
	static struct bench bench;
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];
	struct item *items;
	int listed, count, bad = 1;

	cases_all(&listed);
	items = calloc(2 * ((size_t)listed + RANDOM_CASES), sizeof(*items));
	if (!items || plan_limits_for("cpu", &limits, error) ||
		compile_sources_open(NULL, &bench.sources, error) ||
		compile_sources_closure(bench.sources, "ops/permute.cuh", "cpu", bench.files,
								&bench.file_count, error)) {
		printf("FAILED: %s\n", error);
		free(items);
		return 1;
	}
	count = plan_all(&limits, items, argc > 1 && strcmp(argv[1], "--quick") == 0);
	if (count > 0)
		bad = run_all(&bench, items, count);
	printf("%d cases: %s\n", count, bad == SKIPPED ? "skipped" : bad ? "FAILED" : "all right");
	compile_sources_close(bench.sources);
	free(items);
	return bad;
}
