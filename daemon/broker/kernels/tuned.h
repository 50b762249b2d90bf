/*
 * tuned: the winners that `kiln tune` found: the best candidate for a class of problems on a model
 * of device.
 *
 * The kernel that the planner chooses by itself names the class.  Its instantiation leaves out
 * sizes that are known at run time only, so that one winner serves all row counts.  The table is in
 * memory, for planning happens on the loop; the cache keeps it on disk.  A winner cannot make a
 * kernel wrong: the planner is asked for it by name, and may refuse.  Winners come from other hosts
 * by packs and by the second tier; of two for a class the newer one counts.
 */
#ifndef KILN_DAEMON_TUNED_H
#define KILN_DAEMON_TUNED_H

#include "daemon/broker/broker.h"

/* The table says this about one plan. */
struct tuned_note {
	/* Model, target and signature find the row.  An empty signature: the table is not asked, for
	 * the problem has no kernel, or names its choice.  An empty choice: the table has no row. */
	struct cache_tuned row;
	char refused[KERNEL_ERROR_MAX]; /* why the row is not used; "": it is */
};

/* Fills the table from the cache.  It blocks: call it before the loop runs. */
void tuned_open(struct broker *broker, struct cache *cache);
/* False: tuned_open() could not read the cache; tuned_read() reads it on the store's thread. */
bool tuned_is_read(const struct broker *broker);
void tuned_read(struct broker *broker);
void tuned_close(struct broker *broker);

/* Replaces the planner's own plan of a problem by that of the winner for this model of device ("":
 * there are no winners). */
void tuned_plan(struct broker *broker, const struct kernel_problem *problem,
				const struct kernel_limits *limits, const char *model, struct kernel_plan *plan,
				struct tuned_note *note);
/* Plans a problem with this choice, which it names in the problem. */
int tuned_name(struct kernel_problem *problem, const struct kernel_limits *limits,
			   const char *choice, struct kernel_plan *plan, char error[KERNEL_ERROR_MAX]);
/* Looks, in the background and not too often, whether another host has found a winner for the class
 * that model, target and signature of `place` name, or a newer one than the table has.  If the
 * planner knows it for this problem, it goes into the table, and to the disk (tuned_look.c). */
void tuned_look(struct broker *broker, const struct kernel_problem *problem,
				const struct kernel_limits *limits, const struct cache_tuned *place);
/* Writes the note as a line of plan_explain(), or "". */
void tuned_explain(const struct tuned_note *note, char *text, size_t size);

/* Finds the row with the model, target and signature of `row`; NULL: none. */
const struct cache_tuned *tuned_find(const struct broker *broker, const struct cache_tuned *row);
/* Says whether the row, or one more, can be kept. */
bool tuned_has_room(const struct broker *broker, const struct cache_tuned *row);
/* Puts a copy into the table.  Fails with KILN_ELIMIT and KILN_ENOMEM. */
int tuned_put(struct broker *broker, const struct cache_tuned *row);
/* The same for a row that was tuned elsewhere, unless the table has one that is as new. */
int tuned_take(struct broker *broker, const struct cache_tuned *row);
/* Removes a row, or all for NULL; returns how many. */
int64_t tuned_remove(struct broker *broker, const struct cache_tuned *row);
/* Lists all rows in the order of cache_tuned_list(); the caller frees the list, not the rows.  NULL
 * without rows or memory. */
const struct cache_tuned **tuned_list(const struct broker *broker, size_t *count);

#endif
