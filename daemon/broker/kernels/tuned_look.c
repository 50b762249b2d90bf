/*
 * tuned_look.c: takes winners of tuning that other hosts found, from the second tier.  Nobody waits
 * for one: the plan that looks is made with what the table has, and later plans have the winner.
 */
#include "tuned.h"

#include <stdlib.h>

#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

/* The planner is asked about the winner by the problem that looked. */
struct search {
	struct kernel_problem problem;
	struct kernel_limits limits;
};

/* The disk may not take the winner; this daemon has it all the same. */
static void keep_work(struct cache *cache, void *arg)
{
	char error[KERNEL_ERROR_MAX];
	bool taken;
	(void)cache_tuned_take(cache, arg, &taken, error);
}

static void keep_done(struct broker *broker, void *arg)
{
	(void)broker;
	free(arg);
}

static void keep(struct broker *broker, const struct cache_tuned *row)
{
	struct cache_tuned *copy = malloc(sizeof(*copy));
	if (copy)
		*copy = *row;
	if (copy && store_run(broker, keep_work, keep_done, copy) != KILN_OK)
		free(copy);
}

static void refuse_choice(struct broker *broker, const struct cache_tuned *row, const char *why)
{
	broker->counters.winner_refused++;
	util_log(UTIL_WARN, "from %s: %s of kiln %s for %s is not used: %s",
			 broker->options.remote.shown, row->choice, row->version, row->op, why);
}

static void consider(struct broker *broker, struct search *search, const struct cache_tuned *row)
{
	const struct cache_tuned *here = tuned_find(broker, row);
	struct kernel_plan plan;
	char why[KERNEL_ERROR_MAX];
	if (here && here->when >= row->when) {
		broker->counters.winner_misses++;
		return;
	}
	if (tuned_name(&search->problem, &search->limits, row->choice, &plan, why) != KILN_OK) {
		refuse_choice(broker, row, why);
		return;
	}
	if (tuned_put(broker, row) != KILN_OK) {
		refuse_choice(broker, row, "there is no room for it");
		return;
	}
	keep(broker, row);
	broker->counters.winner_hits++;
	util_log(UTIL_INFO, "from %s: %s for %s on %s, %.1f us against %.1f: %.200s",
			 broker->options.remote.shown, row->choice, row->op, row->model, row->micros,
			 row->own_micros, row->signature);
}

static void on_found(struct broker *broker, void *arg, const struct cache_tuned *row)
{
	if (row)
		consider(broker, arg, row);
	free(arg);
}

void tuned_look(struct broker *broker, const struct kernel_problem *problem,
				const struct kernel_limits *limits, const struct cache_tuned *place)
{
	/* A daemon that compiles nothing would lack the winner's kernel. */
	if (broker->options.on_miss >= OPTIONS_MISS_FALLBACK || !remote_winner_due(broker, place))
		return;
	struct search *search = malloc(sizeof(*search));
	if (!search)
		return;
	kernel_problem_copy(&search->problem, problem);
	search->limits = *limits;
	if (!remote_winner_look(broker, place, on_found, search))
		free(search);
}
