/*
 * permute.c: every kernel that the list of cases needs, compiled by the NVRTC of this machine: all
 * of them for sm_90, and for the other targets one of each kind.  A kernel that does not compile,
 * or that spills registers, is a failure.  No GPU is needed.
 *
 * Two processes share the work: NVRTC compiles one thing at a time.
 */
#include "cases_problem.h"
#include "daemon/compile/compile.h"
#include "daemon/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 2
#define SKIPPED 77

static const char *const targets[] = {"sm_90", "sm_75", "sm_80", "sm_100", "sm_120"};
#define TARGETS (int)(sizeof(targets) / sizeof(targets[0]))

struct unit {
	char instantiation[KERNEL_INSTANTIATION_MAX];
	char name[128]; /* of the first case that needs it */
	uint32_t threads;
	bool representative;
};

struct list {
	struct unit *units;
	int count;
};

struct tally {
	int compiled, most_registers;
	int64_t micros;
};

static int by_instantiation(const void *a, const void *b)
{
	return strcmp(((const struct unit *)a)->instantiation, ((const struct unit *)b)->instantiation);
}

/* The kind of an instantiation: what comes before its sizes and strides. */
static size_t kind_length(const char *instantiation)
{
	int commas = strncmp(instantiation, "permute_tile", 12) == 0 ? 6 : 4;
	const char *at = instantiation;

	while (*at && commas)
		commas -= *at++ == ',';
	return (size_t)(at - instantiation);
}

static void drop_repeats(struct list *list)
{
	int kept = 0;
	size_t kind = 0;

	qsort(list->units, (size_t)list->count, sizeof(list->units[0]), by_instantiation);
	for (int i = 0; i < list->count; i++) {
		struct unit *unit = &list->units[i], *last = kept ? &list->units[kept - 1] : NULL;
		if (last && strcmp(unit->instantiation, last->instantiation) == 0)
			continue;
		kind = kind_length(unit->instantiation);
		unit->representative =
			!last || strncmp(unit->instantiation, last->instantiation, kind) != 0;
		if (&list->units[kept] != unit)
			list->units[kept] = *unit;
		kept++;
	}
	list->count = kept;
}

/* Distinct kernels for a target; false after a message. */
static bool plan_list(const char *target, struct list *list)
{
	struct kernel_limits limits;
	struct kernel_problem problem;
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	int count;
	const struct cases_case *all = cases_all(&count);

	list->count = 0;
	list->units = calloc((size_t)count, sizeof(list->units[0]));
	if (!list->units || plan_limits_for(target, &limits, error))
		return false;
	for (int i = 0; i < count; i++) {
		struct unit *unit = &list->units[list->count];
		cases_problem(&all[i], &problem);
		if (plan_problem(&problem, &limits, &plan, error)) {
			printf("FAILED to plan %s for %s: %s\n", all[i].name, target, error);
			return false;
		}
		if (plan.kind != KERNEL_LAUNCH)
			continue;
		memcpy(unit->instantiation, plan.instantiation, sizeof(unit->instantiation));
		memcpy(unit->name, all[i].name, sizeof(unit->name));
		unit->threads = plan.block[0];
		list->count++;
	}
	drop_repeats(list);
	return true;
}

static bool compile_one(const char *target, const struct unit *unit,
						const struct compile_file *files, int file_count, struct tally *tally)
{
	struct compile_job job = {.source = "ops/permute.cuh",
							  .instantiation = unit->instantiation,
							  .files = files,
							  .file_count = file_count};
	struct compile_result result = {0};
	bool good = false;

	memcpy(job.target, target, strlen(target) + 1);
	nvrtc_compile(&job, &result);
	if (result.status)
		printf("FAILED %s %s (%s): %s\n%s\n", target, unit->instantiation, unit->name, result.error,
			   result.log ? result.log : "");
	else if (result.spill_bytes != 0 || result.local_bytes > 0)
		printf("FAILED %s %s (%s): %lld bytes spilled, %lld local\n", target, unit->instantiation,
			   unit->name, (long long)result.spill_bytes, (long long)result.local_bytes);
	else if (result.registers <= 0 || result.registers * unit->threads > 65536 ||
			 result.object_bytes < 64)
		printf("FAILED %s %s (%s): %lld registers, %zu bytes\n", target, unit->instantiation,
			   unit->name, (long long)result.registers, result.object_bytes);
	else
		good = true;
	tally->compiled++;
	tally->micros += result.micros;
	if (result.registers > tally->most_registers)
		tally->most_registers = (int)result.registers;
	compile_result_free(&result);
	return good;
}

/* One process: every PROCESSES-th kernel of all targets. */
static int run_share(int share, const struct compile_toolchain *toolchain,
					 const struct compile_file *files, int file_count)
{
	int bad = 0;

	nvrtc_warm();
	for (int t = 0; t < TARGETS; t++) {
		struct tally tally = {0};
		struct list list;
		if (!strstr(toolchain->targets, targets[t])) {
			if (share == 0)
				printf("%-7s skipped: this NVRTC does not know it\n", targets[t]);
			continue;
		}
		if (!plan_list(targets[t], &list))
			return 1;
		for (int i = share; i < list.count; i += PROCESSES)
			if (t == 0 || list.units[i].representative)
				bad += !compile_one(targets[t], &list.units[i], files, file_count, &tally);
		printf("%-7s process %d: %d of %d kernels, %.1f ms each, at most %d registers\n",
			   targets[t], share, tally.compiled, list.count,
			   tally.compiled ? (double)tally.micros / 1000 / tally.compiled : 0,
			   tally.most_registers);
		fflush(stdout);
		free(list.units);
	}
	return bad != 0;
}

/* NVRTC is opened in the children: it does not like to be forked. */
static int child(int share)
{
	struct compile_toolchain toolchain = {0};
	struct compile_sources *sources;
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS];
	char error[KERNEL_ERROR_MAX];
	int count, bad;

	if (nvrtc_open(&toolchain) || !toolchain.id[0]) {
		if (share == 0)
			printf("skipped: no NVRTC here: %s\n", toolchain.reason);
		return SKIPPED;
	}
	if (compile_sources_open(NULL, &sources, error) ||
		compile_sources_closure(sources, "ops/permute.cuh", targets[0], found, &count, error)) {
		printf("FAILED: %s\n", error);
		return 1;
	}
	for (int i = 0; i < count; i++)
		files[i] = *found[i];
	bad = run_share(share, &toolchain, files, count);
	compile_sources_close(sources);
	return bad;
}

int main(void)
{
	pid_t children[PROCESSES];
	int result = 0;

	for (int i = 0; i < PROCESSES; i++) {
		fflush(stdout);
		children[i] = fork();
		if (children[i] == 0)
			exit(child(i));
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = 1;
		if (children[i] > 0)
			waitpid(children[i], &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
			result = result ? result : SKIPPED;
		else if (status != 0)
			result = 1;
	}
	return result;
}
