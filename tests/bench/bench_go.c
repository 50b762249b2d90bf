/*
 * bench_go.c: from options to an exit status: limits, plans, cubins, the run.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Limits to plan for ---- */

static int find_limits(const struct bench_options *options, struct kernel_limits *limits)
{
	const char *target = options->target;
	char error[KERNEL_ERROR_MAX], why[400];

	if (options->mode == BENCH_DIRECT) {
		if (bench_direct_limits(options->device, limits, why))
			return 0;
		fprintf(stderr, "bench: %s\n", why);
		return BENCH_SKIPPED;
	}
	/* The daemon plans by itself; what is wanted here is the candidates' names and sizes. */
	if (options->mode == BENCH_DAEMON && strcmp(options->device, "cpu") == 0)
		target = "cpu";
	if (plan_limits_for(target, limits, error) == KILN_OK)
		return 0;
	fprintf(stderr, "bench: %s\n", error);
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

int bench_go(const struct bench_options *options)
{
	struct kernel_limits limits;
	struct bench_case *groups;
	int count, status;

	if (options->mode == BENCH_LIST) {
		bench_list(options);
		return 0;
	}
	status = find_limits(options, &limits);
	if (status)
		return status;
	bool planned = bench_cases(options, &limits, &groups, &count);
	if (options->mode == BENCH_PLAN)
		bench_list_plans(options, groups, count);
	else
		status = run(options, &limits, groups, count);
	for (int g = 0; g < count; g++)
		free(groups[g].items);
	free(groups);
	return status ? status : !planned;
}
