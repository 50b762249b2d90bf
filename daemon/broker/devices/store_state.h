/* store_state.h: what the files of the store share; no other file includes it. */
#ifndef KILN_DAEMON_STORE_STATE_H
#define KILN_DAEMON_STORE_STATE_H

#include "store.h"

enum item_state { ITEM_QUEUED, ITEM_RUNNING, ITEM_TOLD };

struct store_item {
	struct turn_item waiting; /* the first member: turns_take() returns its address */
	struct turn_place place;  /* of the owner; a call of the daemon's own has none */
	enum item_state state;
	uv_work_t request;
	struct broker *broker;
	struct store_line *line;
	store_work work;
	store_done done; /* NULL: the result interests nobody */
	store_late late; /* NULL: it has no deadline */
	void *arg;
	uint64_t since_us; /* QUEUED: when it was asked for; later: when it began */
	uint64_t due_us;   /* with late: its deadline */
	struct cache_stats stats;
	struct store_item *previous, *next; /* in the line */
	struct store_item *own_next;        /* in the daemon's own that are QUEUED */
};

struct store_line {
	struct store_item *running;        /* NULL: the line is empty */
	struct store_item *first, *last;   /* all, in the order of asking */
	struct store_item *own, **own_end; /* the daemon's own that are QUEUED */
	struct turns turns;                /* those of sessions that are QUEUED */
	int count;
};

enum store_timer { TIMER_TEND, TIMER_LOOK, TIMER_PATIENCE, STORE_TIMERS };

struct store {
	struct cache *cache; /* NULL: closed.  The thread's, while a call is in flight */
	struct store_line calls, aside;
	struct cache_stats stats; /* as of the last call that ended */
	uv_timer_t timers[STORE_TIMERS];
	bool ending;
	bool stuck; /* the log says that the disk does not answer */
};

/* Has the cache do what it put off, once nobody waits, and reports damage that was not in the
 * figures `before`. */
void store_tend(struct broker *broker, const struct cache_stats *before);

#endif
