/*
 * bench_direct.c: launching by this program itself, through the driver: no daemon, no socket, one
 * event before and one behind each launch.
 */
#include "bench.h"

#include "gpu/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLACK 4096        /* behind each pool */
#define MOST_LAUNCHES 128 /* of a batch */
#define MOST_BLOCKERS 64
#define BLOCKER (512ull << 20)
#define BLOCKER_MARK 0 /* its marks; launch i has marks 2 + 2i and 3 + 2i */

struct bench_ready {
	struct bench_work work;
	struct gpu_kernel kernel;
};

static struct {
	const struct bench_objects *objects;
	char copy[KERNEL_KEY_HEX]; /* object of the copying kernel */
	uint64_t pool[2], scratch, report;
	uint64_t blocker, blocker_bytes; /* two halves */
	int blockers;                    /* copies from one to the other before a batch */
	char why[400];
} direct;

static bool fail(const char *what, const char *sentence)
{
	snprintf(direct.why, sizeof(direct.why), "%s: %s", what, sentence);
	return false;
}

/* ---- The GPU ---- */

static int ordinal_of(const char *device)
{
	return strncmp(device, "cuda:", 5) == 0 ? (int)strtol(device + 5, NULL, 10) : 0;
}

static bool read_limits(const char *device, struct kernel_limits *limits, char why[400])
{
	struct gpu_description gpu;

	*limits = (struct kernel_limits){0};
	if (!gpu_open(ordinal_of(device), why))
		return false;
	if (!gpu_describe(&gpu)) {
		snprintf(why, 400, "%s", gpu_error());
		return false;
	}
	snprintf(limits->target, sizeof(limits->target), "sm_%d%d", gpu.major % 1000, gpu.minor % 10);
	limits->max_threads = gpu.max_threads;
	limits->shared_default = gpu.shared_default;
	limits->shared_optin = gpu.shared_optin;
	limits->grid_x = gpu.grid_x;
	limits->grid_y = gpu.grid_y;
	limits->grid_z = gpu.grid_z;
	limits->multiprocessors = gpu.multiprocessors;
	limits->warp = gpu.warp;
	return true;
}

/* The child hands this back. */
struct answer {
	bool good;
	struct kernel_limits limits;
	char why[400];
};

bool bench_direct_limits(const char *device, struct kernel_limits *limits, char why[400])
{
	struct answer answer = {.why = "the process that asks for the GPU died"};
	int ends[2], status;

	if (pipe(ends) != 0)
		return false;
	pid_t pid = fork();
	if (pid == 0) {
		struct answer own = {.good = false};
		own.good = read_limits(device, &own.limits, own.why);
		_exit(write(ends[1], &own, sizeof(own)) != (ssize_t)sizeof(own));
	}
	close(ends[1]);
	if (pid < 0 || read(ends[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
		answer.good = false;
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	*limits = answer.limits;
	snprintf(why, 400, "%s", answer.why);
	return answer.good;
}

static const char *direct_why(void)
{
	return direct.why;
}

static bool direct_open(const struct bench_options *options, struct bench_objects *objects,
						const uint64_t pool_bytes[2], uint64_t scratch_bytes, char why[400])
{
	char reason[200];

	memset(&direct, 0, sizeof(direct));
	direct.objects = objects;
	direct.blockers = 2;
	if (!gpu_open(ordinal_of(options->device), reason)) {
		snprintf(why, 400, "%s", reason);
		return false;
	}
	if (!bench_objects_name(objects, BENCH_COPY_SOURCE, "", BENCH_COPY_KERNEL, direct.copy))
		return false;
	for (int p = 0; p < 2; p++)
		direct.pool[p] = gpu_alloc(pool_bytes[p] + SLACK, GPU_MALLOC);
	direct.blocker_bytes = pool_bytes[0] / 2 < BLOCKER ? pool_bytes[0] / 2 : BLOCKER;
	direct.blocker = gpu_alloc(2 * direct.blocker_bytes, GPU_MALLOC);
	direct.scratch = scratch_bytes ? gpu_alloc(scratch_bytes, GPU_MALLOC) : 0;
	direct.report = gpu_alloc(8, GPU_MALLOC);
	if (direct.pool[0] && direct.pool[1] && direct.blocker && direct.report &&
		(direct.scratch || !scratch_bytes))
		return gpu_set(direct.report, 0, 8);
	snprintf(why, 400, "no memory for pools of %llu and %llu bytes: %s; --pool sets their size",
			 (unsigned long long)pool_bytes[0], (unsigned long long)pool_bytes[1], gpu_error());
	return false;
}

static void direct_close(void)
{
	gpu_free(direct.pool[0]);
	gpu_free(direct.pool[1]);
	gpu_free(direct.blocker);
	gpu_free(direct.scratch);
	gpu_free(direct.report);
}

/* ---- Data ---- */

static bool direct_put(enum bench_pool pool, uint64_t at, const void *host, uint64_t bytes)
{
	return (gpu_finish() && gpu_put(direct.pool[pool] + at, host, bytes)) ||
		   fail("writing", gpu_error());
}

static bool direct_get(void *host, enum bench_pool pool, uint64_t at, uint64_t bytes)
{
	return (gpu_finish() && gpu_get(host, direct.pool[pool] + at, bytes)) ||
		   fail("reading", gpu_error());
}

static bool direct_copy(enum bench_pool pool, uint64_t to, uint64_t from, uint64_t bytes)
{
	return gpu_copy(direct.pool[pool] + to, direct.pool[pool] + from, bytes) ||
		   fail("copying", gpu_error());
}

/* ---- Launching ---- */

static bool load(struct bench_ready *ready, const char *name, uint32_t shared_bytes)
{
	struct bench_object object;

	if (!bench_objects_read(direct.objects, name, &object))
		return fail("its cubin", "it is not there: it did not compile, or there was no time");
	bool loaded = gpu_load(object.cubin, object.entry, shared_bytes, &ready->kernel) ||
				  fail("loading", gpu_error());
	bench_object_free(&object);
	return loaded;
}

static bool direct_prepare(const struct bench_work *work, struct bench_ready **out)
{
	struct bench_ready *ready = calloc(1, sizeof(*ready));
	const struct kernel_plan *plan = work->item ? &work->item->plan : NULL;
	bool good = true;

	if (!ready)
		return fail("preparing", "no memory");
	ready->work = *work;
	if (work->kind == BENCH_VECTORS)
		good = load(ready, direct.copy, 0);
	else if (work->kind == BENCH_KERNEL && plan->kind == KERNEL_LAUNCH)
		good = load(ready, work->item->object, plan->shared_bytes);
	/* Counters are zero at first; a kernel leaves its own so, and overwrites others'. */
	if (good && plan && plan->scratch.counters)
		good = gpu_set(direct.scratch, 0, plan->scratch.counters) || fail("scratch", gpu_error());
	if (!good) {
		free(ready);
		return false;
	}
	*out = ready;
	return true;
}

static void direct_release(struct bench_ready *ready)
{
	gpu_finish();
	gpu_unload(&ready->kernel);
	free(ready);
}

static uint64_t address(const struct bench_work *work, int operand, int set)
{
	const struct bench_place *place = &work->places[operand];

	return place->absent
			   ? 0
			   : direct.pool[place->pool] + place->at + (uint64_t)set * work->step[place->pool];
}

static bool launch_plan(const struct bench_ready *ready, int set)
{
	const struct kernel_plan *plan = &ready->work.item->plan;
	uint64_t values[KERNEL_MAX_ARGS];
	void *arguments[KERNEL_MAX_ARGS];

	for (int i = 0; i < plan->arg_count; i++) {
		const struct kernel_arg *arg = &plan->args[i];
		values[i] = arg->kind == KERNEL_ARG_POINTER   ? address(&ready->work, arg->operand, set)
					: arg->kind == KERNEL_ARG_SCRATCH ? direct.scratch
					: arg->kind == KERNEL_ARG_REPORT  ? direct.report
													  : arg->value;
		arguments[i] = &values[i];
	}
	return gpu_launch(&ready->kernel, plan->grid, plan->block, plan->shared_bytes, arguments);
}

static bool launch_vectors(const struct bench_ready *ready, int set)
{
	uint64_t from = address(&ready->work, 0, set), to = address(&ready->work, 1, set);
	uint32_t count = (uint32_t)(ready->work.bytes / 16);
	void *arguments[] = {&from, &to, &count};
	const uint32_t grid[3] = {count / BENCH_COPY_THREADS + 1, 1, 1};
	const uint32_t block[3] = {BENCH_COPY_THREADS, 1, 1};

	return gpu_launch(&ready->kernel, grid, block, 0, arguments);
}

static bool launch(const struct bench_ready *ready, int set)
{
	const struct bench_work *work = &ready->work;
	const struct kernel_plan *plan = work->item ? &work->item->plan : NULL;

	if (work->kind == BENCH_VECTORS)
		return launch_vectors(ready, set);
	if (work->kind == BENCH_KERNEL && plan->kind == KERNEL_LAUNCH)
		return launch_plan(ready, set);
	return gpu_copy(address(work, 1, set), address(work, 0, set),
					work->kind == BENCH_KERNEL ? plan->copy_bytes : work->bytes);
}

/* Keeps the device busy, with memory that nothing else uses. */
static bool block_device(void)
{
	for (int i = 0; i < direct.blockers; i++)
		if (!gpu_copy(direct.blocker, direct.blocker + direct.blocker_bytes, direct.blocker_bytes))
			return false;
	return true;
}

static bool queue_batch(const struct bench_ready *ready, int count, double *host_us)
{
	double began;

	if (!gpu_mark(BLOCKER_MARK) || !block_device() || !gpu_mark(BLOCKER_MARK + 1))
		return false;
	began = runner_now_us();
	for (int i = 0; i < count; i++)
		if (!gpu_mark(2 + 2 * i) || !launch(ready, i % ready->work.sets) || !gpu_mark(3 + 2 * i))
			return false;
	*host_us = runner_now_us() - began;
	return gpu_finish();
}

static bool direct_batch(struct bench_ready *ready, int count, double *micros)
{
	double host_us, busy_us;

	count = count < MOST_LAUNCHES ? count : MOST_LAUNCHES;
	for (;;) {
		if (!queue_batch(ready, count, &host_us) ||
			!gpu_between(BLOCKER_MARK, BLOCKER_MARK + 1, &busy_us))
			return fail("launching", gpu_error());
		/* The device must not have waited for this program. */
		if (host_us < busy_us || direct.blockers >= MOST_BLOCKERS)
			break;
		direct.blockers *= 2;
	}
	for (int i = 0; i < count; i++)
		if (!gpu_between(2 + 2 * i, 3 + 2 * i, &micros[i]))
			return fail("timing", gpu_error());
	return true;
}

/* After a fault nothing of this process's can be launched any more. */
static bool direct_alive(void)
{
	return gpu_finish();
}

const struct bench_way bench_direct = {
	.name = "direct",
	.open = direct_open,
	.close = direct_close,
	.put = direct_put,
	.get = direct_get,
	.copy = direct_copy,
	.prepare = direct_prepare,
	.release = direct_release,
	.batch = direct_batch,
	.why = direct_why,
	.alive = direct_alive,
};
