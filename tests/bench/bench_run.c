/*
 * bench_run.c: case after case, each kernel checked and timed, in a child process.  A kernel that
 * faults or does not end takes that process with it, and nothing else: its fault is noted, and
 * another process goes on behind it.
 */
#include "bench.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOST 3 /* exit status: the device is of no more use to the process */
/* Without a sign of life; a daemon may have to compile first. */
#define PATIENCE_US 20e6
#define PATIENCE_DAEMON_US 60e6
#define MOST_LOST 32
#define WALL_US 50000 /* of measuring whole calls */
#define WALL_LAUNCHES 64

/* The two processes share this. */
struct watch {
	_Atomic int group, item, unreached;
	_Atomic int64_t seen_us; /* the last sign of life */
	int lost_count;
	struct lost {
		int group, item;
		char why[200];
	} lost[MOST_LOST];
};

struct run {
	const struct bench_options *options;
	const struct bench_way *way;
	struct bench_objects *objects;
	const struct bench_case *groups;
	int count;
	double deadline_us;
	uint64_t pools[2], scratch;
	struct watch *watch;
};

static void live(struct run *run, int group, int item)
{
	atomic_store(&run->watch->group, group);
	atomic_store(&run->watch->item, item);
	atomic_store(&run->watch->seen_us, (int64_t)runner_now_us());
}

/* ---- One kernel ---- */

static const char *lost_why(const struct run *run, int group, int item)
{
	for (int i = 0; i < run->watch->lost_count; i++)
		if (run->watch->lost[i].group == group && run->watch->lost[i].item == item)
			return run->watch->lost[i].why;
	return NULL;
}

static void note_object(const struct run *run, struct bench_result *result)
{
	struct bench_object object;

	result->registers = result->spills = -1;
	if (run->objects && bench_objects_read(run->objects, result->item->object, &object)) {
		result->registers = object.registers;
		result->spills = object.spill_bytes;
		result->compile_s = (double)object.micros / 1e6;
		bench_object_free(&object);
	}
}

/* Leaves the process when the device is of no more use. */
static void fail(struct run *run, struct bench_result *result)
{
	if (run->way->alive && !run->way->alive()) {
		struct lost *lost = &run->watch->lost[run->watch->lost_count];
		snprintf(lost->why, sizeof(lost->why), "%.190s", run->way->why());
		fflush(stdout);
		_exit(LOST);
	}
	snprintf(result->wrong, sizeof(result->wrong), "%.390s", run->way->why());
}

static void measure(struct run *run, struct bench_ready *ready, struct bench_sample *sample,
					struct bench_result *result)
{
	double wall;

	if (sample && !bench_check(run->way, ready, sample, result->wrong)) {
		if (run->way->alive && !run->way->alive())
			fail(run, result);
		return;
	}
	result->micros = bench_time(run->way, ready, run->options->drawn && run->options->choices);
	if (result->micros < 0)
		fail(run, result);
	else if (result->micros == 0)
		snprintf(result->wrong, sizeof(result->wrong), "the device reported no time");
	else if (run->way->wall) {
		int launches = (int)(WALL_US / result->micros) + 2;
		launches = launches < WALL_LAUNCHES ? launches : WALL_LAUNCHES;
		if (run->way->wall(ready, launches, &wall))
			result->wall = wall / launches;
	}
}

static void run_item(struct run *run, int group, int item, struct bench_data *data,
					 struct bench_sample *sample, struct bench_result *result)
{
	const char *why = lost_why(run, group, item);
	struct bench_ready *ready;

	result->group = &run->groups[group];
	result->item = &run->groups[group].items[item];
	data->work.item = result->item;
	note_object(run, result);
	live(run, group, item);
	if (why) {
		snprintf(result->wrong, sizeof(result->wrong), "%s", why);
		return;
	}
	if (!run->way->prepare(&data->work, &ready)) {
		fail(run, result);
		return;
	}
	measure(run, ready, sample, result);
	run->way->release(ready);
}

/* ---- One case ---- */

static void run_group(struct run *run, int group)
{
	const struct bench_options *options = run->options;
	const struct bench_case *g = &run->groups[group];
	struct bench_result *results = calloc((size_t)g->count, sizeof(*results));
	struct bench_copies copies = {-1, -1};
	struct bench_sample *sample = NULL;
	struct bench_data data;
	uint64_t bytes = bench_bytes(g->c, &g->items[0].plan);

	live(run, group, 0);
	if (!results || g->items[0].plan.kind == KERNEL_NOTHING || bytes < 32) {
		free(results);
		return;
	}
	bool good = bench_data_open(run->way, options, g->c, &data) &&
				bench_time_copies(run->way, bytes, run->pools, !(g->c->flags & CASES_BIG), &copies);
	live(run, group, 0);
	if (good && options->check)
		good = (sample = bench_sample_open(options, &data)) != NULL;
	for (int i = 0; i < g->count; i++) {
		struct bench_result *result = &results[i];
		if (good)
			run_item(run, group, i, &data, sample, result);
		else
			snprintf(result->wrong, sizeof(result->wrong), "its data: %.380s", run->way->why());
		result->group = g;
		result->item = &g->items[i];
		result->copies = copies;
		if (!options->choices && !options->generic)
			bench_report(options, result);
	}
	if (options->generic)
		bench_report_generic(options, results);
	else if (options->choices)
		bench_report_choices(options, results, g->count);
	if (sample)
		bench_sample_close(sample);
	bench_data_close(&data);
	free(results);
}

static int child(struct run *run, int first)
{
	char why[400] = "";

	live(run, first, 0);
	if (!run->way->open(run->options, run->objects, run->pools, run->scratch, why)) {
		fprintf(stderr, "bench: %s\n", why);
		return BENCH_SKIPPED;
	}
	for (int group = first; group < run->count; group++) {
		if (runner_now_us() > run->deadline_us) {
			atomic_store(&run->watch->unreached, run->count - group);
			break;
		}
		run_group(run, group);
	}
	run->way->close();
	fflush(stdout);
	return 0;
}

/* ---- All ---- */

/* The exit status of a child, LOST for one that was killed or had to be. */
static int supervise(struct run *run, pid_t pid)
{
	struct watch *watch = run->watch;
	struct lost *lost = &watch->lost[watch->lost_count];
	double patience = run->way == &bench_daemon ? PATIENCE_DAEMON_US : PATIENCE_US;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (runner_now_us() - (double)atomic_load(&watch->seen_us) > patience) {
			snprintf(lost->why, sizeof(lost->why), "it did not end within %.0f s", patience / 1e6);
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return LOST;
		}
		usleep(20000);
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	snprintf(lost->why, sizeof(lost->why), "the process was killed by signal %d", WTERMSIG(status));
	return LOST;
}

static int run_all(struct run *run)
{
	struct watch *watch = run->watch;

	for (;;) {
		int first = atomic_load(&watch->group), status;
		fflush(stdout);
		live(run, first, 0);
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			status = child(run, first);
			fflush(stdout);
			_exit(status);
		}
		status = pid < 0 ? 1 : supervise(run, pid);
		if (status != LOST || watch->lost_count == MOST_LOST - 1)
			return status;
		watch->lost[watch->lost_count].group = atomic_load(&watch->group);
		watch->lost[watch->lost_count].item = atomic_load(&watch->item);
		watch->lost_count++;
	}
}

/* Makes the pools as large as the largest case and the largest copy. */
static void size_pools(struct run *run)
{
	run->pools[0] = run->pools[1] = run->options->pool;
	for (int g = 0; g < run->count; g++) {
		const struct bench_case *group = &run->groups[g];
		uint64_t bytes[2], copy = bench_bytes(group->c, &group->items[0].plan) / 2 + 1024;
		bench_data_size(group->c, bytes);
		for (int p = 0; p < 2; p++) {
			run->pools[p] = bytes[p] > run->pools[p] ? bytes[p] : run->pools[p];
			run->pools[p] = copy > run->pools[p] ? copy : run->pools[p];
		}
		for (int i = 0; i < group->count; i++)
			if (group->items[i].plan.scratch.bytes > run->scratch)
				run->scratch = group->items[i].plan.scratch.bytes;
	}
}

int bench_run(const struct bench_options *options, const struct bench_way *way,
			  struct bench_objects *objects, const struct bench_case *groups, int count,
			  double deadline_us)
{
	struct run run = {options, way, objects, groups, count, deadline_us, {0, 0}, 0, NULL};

	run.watch =
		mmap(NULL, sizeof(*run.watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run.watch == MAP_FAILED || !bench_report_open(options))
		return 1;
	size_pools(&run);
	bench_report_head(options);
	int status = run_all(&run);
	if (status == 0 || status == LOST)
		status = bench_report_end(options, atomic_load(&run.watch->unreached)) ? 0 : 1;
	munmap(run.watch, sizeof(*run.watch));
	return status;
}
