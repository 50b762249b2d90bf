/*
 * tuned: which candidate is the best of a class of problems on a device, as `kiln tune` found it.
 *
 * A class is named by the kernel that the planner makes for it by itself: the instantiation leaves
 * out what is known at run time only, so that one winner serves all row counts.  The table is in
 * memory, for planning happens on the loop; the cache keeps it on disk.  A winner is never a matter
 * of correctness: the planner is asked for it by name, and what it refuses is not used.
 */
#ifndef KILN_DAEMON_TUNED_H
#define KILN_DAEMON_TUNED_H

#include "daemon/broker/broker.h"

/* What the table had to say about a plan. */
struct tuned_note {
	/* Model, target and signature say how the problem is looked up; an empty signature: it is not,
	 * for it has no kernel or names its choice.  An empty choice: there is no row. */
	struct cache_tuned row;
	char refused[KERNEL_ERROR_MAX]; /* why the row is not used; "": it is */
};

/* Fills the table from the cache (blocking: before the loop runs). */
void tuned_open(struct broker *broker, struct cache *cache);
/* False: the cache could not be read then.  To be read again, off the loop. */
bool tuned_is_read(const struct broker *broker);
void tuned_read(struct broker *broker);
void tuned_close(struct broker *broker);

/* As plan_problem, with the winner that is known for this model of device ("": none). */
int tuned_plan(struct broker *broker, const struct kernel_problem *problem,
			   const struct kernel_limits *limits, const char *model, struct kernel_plan *out,
			   struct tuned_note *note, char error[KERNEL_ERROR_MAX]);
/* The note as a line of plan_explain's; "" where there is nothing to say. */
void tuned_explain(const struct tuned_note *note, char *text, size_t size);

/* The row of the problems that this one is looked up for; NULL. */
const struct cache_tuned *tuned_find(const struct broker *broker, const struct cache_tuned *row);
/* Puts a copy in.  KILN_ELIMIT, KILN_ENOMEM. */
int tuned_put(struct broker *broker, const struct cache_tuned *row);
/* NULL: all of them.  How many went. */
int64_t tuned_remove(struct broker *broker, const struct cache_tuned *row);
/* All rows, in the order of cache_tuned_list; free() the list.  NULL without rows or memory. */
const struct cache_tuned **tuned_list(const struct broker *broker, size_t *count);

#endif
