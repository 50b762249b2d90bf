/*
 * launch_one.c: one program: what a launch costs it in each way, one at a time and queued, and how
 * the times spread.  The ways take turns, so that what drifts meets them all.
 */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_WAYS 12

/* How often: rounds, in each so many launches one at a time, and so many times a queue of them. */
struct amount {
	int rounds, singles, queues;
};

struct measured {
	struct way way;
	double *singles, *queues; /* us; of all rounds */
};

static struct amount amount_of(const struct bench *bench)
{
	return bench->options.quick ? (struct amount){5, 200, 5} : (struct amount){20, 1000, 20};
}

static bool measure_round(struct measured *measured, const struct amount *amount, int round)
{
	struct way *way = &measured->way;
	double *singles = measured->singles + (size_t)round * (size_t)amount->singles;
	double *queues = measured->queues + (size_t)round * (size_t)amount->queues;
	if (!way->kind->many(way))
		return false;
	for (int i = 0; way->kind->one && i < amount->singles; i++) {
		double begin = runner_now_us();
		if (!way->kind->one(way))
			return false;
		singles[i] = runner_now_us() - begin;
	}
	for (int i = 0; i < amount->queues; i++) {
		double begin = runner_now_us();
		if (!way->kind->many(way))
			return false;
		queues[i] = (runner_now_us() - begin) / LAUNCH_DEPTH;
	}
	return true;
}

/* Opens the ways that there are here.  How many; those that fail are left out. */
static int open_ways(struct bench *bench, const struct way_kind *const *kinds, struct measured *all,
					 const struct amount *amount)
{
	int count = 0;
	for (; *kinds && count < MOST_WAYS; kinds++) {
		struct measured *measured = &all[count];
		*measured = (struct measured){.way.kind = *kinds};
		if ((*kinds)->own && bench->ordinal < 0) {
			table_left_out((*kinds)->name, "it needs a GPU");
			continue;
		}
		if (!(*kinds)->open(bench, &measured->way)) {
			runner_fail((*kinds)->name, "%s", way_why(&measured->way));
			way_close(&measured->way);
			continue;
		}
		measured->singles =
			calloc((size_t)amount->rounds * (size_t)amount->singles, sizeof(double));
		measured->queues = calloc((size_t)amount->rounds * (size_t)amount->queues, sizeof(double));
		count++;
	}
	return count;
}

static void close_ways(struct measured *all, int count)
{
	for (int i = 0; i < count; i++) {
		way_close(&all[i].way);
		free(all[i].singles);
		free(all[i].queues);
	}
}

static bool measure(struct bench *bench, struct measured *all, int count,
					const struct amount *amount)
{
	for (int round = 0; round < amount->rounds; round++)
		for (int i = 0; i < count; i++)
			if (!all[i].singles || !all[i].queues || !measure_round(&all[i], amount, round)) {
				runner_fail(all[i].way.kind->name, "%s", way_why(&all[i].way));
				return false;
			}
	for (int i = 0; i < count; i++)
		if (way_right(bench, &all[i].way))
			runner_pass();
		else
			runner_fail(all[i].way.kind->name, "the results are wrong");
	return true;
}

/* ---- (a) ---- */

static void compare(struct figure *figure, const struct measured *first, double base, double most)
{
	if (base <= 0 || first->way.kind != &way_direct)
		return;
	figure->ratio = figure->value / base;
	figure->of = "direct";
	figure->aim = most > 0 ? AIM_AT_MOST : AIM_NONE;
	figure->target = most;
}

static void show(const struct bench *bench, struct measured *all, int count,
				 const struct amount *amount)
{
	double base = 0;
	char name[64];
	for (int queued = 0; queued < 2; queued++)
		for (int i = 0; i < count; i++) {
			const struct way_kind *kind = all[i].way.kind;
			if (!queued && !kind->one)
				continue;
			snprintf(name, sizeof(name), queued ? "%s, %d queued, each" : "%s, launch and wait",
					 kind->name, LAUNCH_DEPTH);
			double *times = queued ? all[i].queues : all[i].singles;
			int number = amount->rounds * (queued ? amount->queues : amount->singles);
			struct figure figure = {
				.name = name, .value = runner_percentile(times, number, 0.5), .unit = "us"};
			if (i == 0)
				base = figure.value;
			compare(&figure, &all[0], base, queued ? kind->many_most : kind->one_most);
			table_row(bench, &figure);
		}
}

/* Beside the times of the host: what the device is busy for. */
static void show_device_times(const struct bench *bench, struct way *ring)
{
	struct service *service = &ring->service;
	kiln_ticket ticket;
	double micros = 0, sum = 0, least = 0;
	int known = 0;
	for (int i = 0; i < 101; i++)
		if (!kiln_submit(service->call, service->operands, 2, 0, &ticket) &&
			!kiln_wait_time(service->client, ticket, LAUNCH_DEADLINE_MS, &micros) && i) {
			sum += micros;
			known++;
		}
	if (known)
		table_row(bench, &(struct figure){"on the device, through Kiln, mean", sum / known, "us", 0,
										  NULL, AIM_NONE, 0});
	for (int i = 0; i < 20; i++)
		if (gpu_mark(0) && direct_launch() && gpu_mark(1) && gpu_finish() &&
			gpu_between(0, 1, &micros))
			least = i == 0 || micros < least ? micros : least;
	table_row(bench,
			  &(struct figure){"on the device, direct, least", least, "us", 0, NULL, AIM_NONE, 0});
}

void launch_one(struct bench *bench)
{
	struct measured all[MOST_WAYS];
	struct amount amount = amount_of(bench);
	table_section("one program, 64 Ki floats");
	int count = open_ways(bench, way_kinds, all, &amount);
	if (count > 0 && measure(bench, all, count, &amount)) {
		show(bench, all, count, &amount);
		for (int i = 0; i < count && bench->ordinal >= 0; i++)
			if (all[i].way.kind == &way_ring)
				show_device_times(bench, &all[i].way);
	}
	close_ways(all, count);
}

/* ---- (d) ---- */

static void show_histogram(const char *name, const double *sorted, int count)
{
	enum { LINES = 16, WIDTH = 50 };
	/* Steps of a tenth of the median, the last line for all beyond. */
	double step = sorted[count / 2] / 10, from = sorted[0];
	int at = 0;
	printf("  %s, us\n", name);
	for (int line = 0; line < LINES && at < count; line++) {
		int begin = at;
		double until = line == LINES - 1 ? 1e18 : from + step * (line + 1);
		while (at < count && sorted[at] < until)
			at++;
		int bar = (int)((int64_t)(at - begin) * WIDTH / count);
		printf("    %9.2f %s %8d %.*s\n", from + step * line, line == LINES - 1 ? "on" : "- ",
			   at - begin, bar, "##################################################");
	}
}

static void show_spread(const struct bench *bench, struct measured *measured, int count)
{
	static const struct {
		const char *name;
		double part;
	} parts[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};
	const char *way = measured->way.kind->name;
	double base = 0;
	for (int i = 0; i < 3; i++) {
		char name[64];
		snprintf(name, sizeof(name), "%s, launch and wait, %s", way, parts[i].name);
		struct figure figure = {.name = name,
								.value = runner_percentile(measured->singles, count, parts[i].part),
								.unit = "us"};
		base = i == 0 ? figure.value : base;
		figure.ratio = base > 0 ? figure.value / base : 0;
		figure.of = i ? "its p50" : NULL;
		if (i == 1 && measured->way.kind == &way_ring) {
			figure.aim = AIM_AT_MOST;
			figure.target = 2;
		}
		table_row(bench, &figure);
	}
	show_histogram(way, measured->singles, count);
}

void launch_spread(struct bench *bench)
{
	static const struct way_kind *const kinds[] = {&way_direct, &way_ring, NULL};
	struct measured all[MOST_WAYS];
	struct amount amount = amount_of(bench);
	table_section("how launches spread");
	amount.singles *= 2;
	int count = open_ways(bench, kinds, all, &amount);
	if (count > 0 && measure(bench, all, count, &amount))
		for (int i = 0; i < count; i++)
			show_spread(bench, &all[i], amount.rounds * amount.singles);
	close_ways(all, count);
}
