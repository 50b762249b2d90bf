/*
 * bench_time.c: from launches to a time.  A time is the median over groups of ten launches of the
 * group's mean.
 */
#include "bench.h"

#include <stdlib.h>

#define GROUP 10
#define MOST_GROUPS 8
#define ENOUGH_US 25000.0 /* of measuring one kernel */
#define MANY_US 8000.0    /* of one of many candidates */
#define SLOW_US 20000.0   /* a kernel that nobody wants: not launched again */

static double median(double *micros, int groups)
{
	double means[MOST_GROUPS];

	for (int g = 0; g < groups; g++) {
		means[g] = 0;
		for (int i = 0; i < GROUP; i++)
			means[g] += micros[g * GROUP + i] / GROUP;
	}
	runner_percentile(means, groups, 0.5); /* sorts */
	return (means[(groups - 1) / 2] + means[groups / 2]) / 2;
}

double bench_time(const struct bench_way *way, struct bench_ready *ready, bool many)
{
	double micros[GROUP * MOST_GROUPS], about;
	int groups;

	/* The first ones warm up: the module, the clocks, the pages. */
	if (!way->batch(ready, 5, micros))
		return -1;
	about = runner_percentile(micros, 5, 0.5);
	if (about > SLOW_US)
		return about;
	groups = about > 0 ? (int)((many ? MANY_US : ENOUGH_US) / about / GROUP) : MOST_GROUPS;
	groups = groups < 2 ? 2 : groups > MOST_GROUPS ? MOST_GROUPS : groups;
	if (!way->batch(ready, groups * GROUP, micros))
		return -1;
	return median(micros, groups);
}

static double time_copy(const struct bench_way *way, struct bench_work *work)
{
	struct bench_ready *ready;

	if (!way->prepare(work, &ready))
		return -1;
	double micros = bench_time(way, ready, false);
	way->release(ready);
	return micros;
}

bool bench_time_copies(const struct bench_way *way, uint64_t bytes, const uint64_t pool_bytes[2],
					   bool one_set, struct bench_copies *out)
{
	struct bench_work work = {.bytes = bytes / 2, .place_count = 2, .sets = one_set ? 1 : 32};

	work.places[0].pool = BENCH_IN;
	work.places[1].pool = BENCH_OUT;
	for (int p = 0; p < 2; p++) {
		/* Beyond the copied bytes: the daemon's copy of vectors leaves a gap. */
		work.step[p] = (work.bytes + 512) / 256 * 256;
		if (pool_bytes[p] / work.step[p] < (uint64_t)work.sets)
			work.sets = (int)(pool_bytes[p] / work.step[p]);
	}
	work.sets = work.sets < 1 ? 1 : work.sets;
	work.kind = BENCH_MEMCPY;
	out->memcpy_us = time_copy(way, &work);
	work.kind = BENCH_VECTORS;
	out->vectors_us = out->memcpy_us < 0 ? -1 : time_copy(way, &work);
	return out->memcpy_us >= 0 && out->vectors_us >= 0;
}
