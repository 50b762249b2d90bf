/*
 * lookup.h: shared by job.c, lookup.c, lookup_end.c and lookup_answer.c.
 *
 * A lookup finds or makes the kernel of one key.  A wait is one call of job_resolve(): it joins the
 * lookup of its key, or else it is answered with what the cache has in memory, or opens a lookup.
 *
 *   wait:   LATER -----> COMPILERS ---+-----------> LOOKUP --> answered and freed
 *            the loop    until the    |               ^
 *            turns once  compilers    +---> KEY ------+
 *                        are known          a worker thread hashes the sources
 *
 *           COMPILERS, KEY --memory has the kernel--> answered and freed
 *           LATER, COMPILERS, LOOKUP --job_leave--> freed
 *           KEY --job_leave--> LEFT --the thread is done--> freed
 *
 *   lookup: CACHE --miss--> REMOTE --miss--> MISSED ---> COMPILING ---+
 *             |               |                |                      |
 *             +---------------+----------------+----------------------+--> ANSWERING --> freed
 *
 *           CACHE --the last wait leaves--> CACHE: its answer finds nobody
 *           REMOTE, COMPILING --the last wait leaves--> stopped and freed
 *           ANSWERING --the kernel is new--> the store writes its row --> freed
 *           CACHE --miss, for a JOB_RECOMPILE--> MISSED; its answer follows the row
 *           CACHE --for a JOB_VERIFY--> MISSED; its row is not written
 *
 * Invariants: broker->waits lists all waits that are not LEFT.  broker->lookups lists all lookups
 * before ANSWERING, and lookups_by_key finds them, but for those of JOB_RECOMPILE and JOB_VERIFY,
 * which have one wait each.  A wait has a lookup if, and only if, it is in
 * state LOOKUP.  A lookup has `looking` only in CACHE, `fetch` only in REMOTE, and `job` or
 * `alt` only in COMPILING.  A lookup owns its row, failure and key_text until it is freed.
 */
#ifndef KILN_DAEMON_LOOKUP_H
#define KILN_DAEMON_LOOKUP_H

#include "job.h"

enum wait_state { WAIT_LATER, WAIT_COMPILERS, WAIT_KEY, WAIT_LOOKUP, WAIT_LEFT };

enum lookup_state {
	LOOKUP_CACHE,
	LOOKUP_REMOTE,
	LOOKUP_MISSED, /* waits that may have nothing compiled are answered */
	LOOKUP_COMPILING,
	LOOKUP_ANSWERING,
};

struct job_wait {
	struct broker *broker;
	enum wait_state state;
	struct kernel_ref *ref; /* held */
	struct lookup *lookup;
	uv_timer_t *timer; /* LATER */
	struct job_terms terms;
	bool first;              /* of the waits of its lookup that are counted: it owns the compile */
	struct turn_place place; /* its turn at what the lookup waits for */
	job_done done;
	void *arg;
	uint64_t asked_us;
	struct job_wait *previous, *next;         /* in its lookup */
	struct job_wait *all_previous, *all_next; /* in broker->waits */
	/* KEY, LEFT: the worker thread reads ref's sources and writes the key. */
	char compiler[96];
	struct compile_key key;
};

struct lookup {
	struct broker *broker;
	enum lookup_state state;
	struct kernel_ref *ref; /* held */
	struct store_item *looking;
	struct remote_fetch *fetch;
	struct pool_job *job;     /* compiled by the pool */
	struct alt_compiler *alt; /* compiled by the one that its wait has taken */
	enum job_purpose purpose; /* JOB_CALL for all but those beside the calls */
	struct job_wait *waits, *last_wait;
	enum job_origin origin;        /* since ANSWERING */
	uint64_t began_us, step_us;    /* step_us: when its step began, for traces */
	uint64_t remote_us, missed_us; /* when the second tier was asked, and a compile begun; 0: not */
	uint64_t put_us[2];            /* when the write of its row began and ended */
	struct lookup *previous, *next;
	/* Copies of ref's: the store's thread reads them, and ref may get another key meanwhile. */
	char key[KERNEL_KEY_HEX];
	char *key_text;
	char compiler[96]; /* that the key names */
	/* The cache's answer; row is also what a fetch or a compile gives. */
	struct cache_row row;
	struct cache_failure failure; /* that the cache remembers instead of a row */
	int cache_status;
	char error[KERNEL_ERROR_MAX];
};

/* Says whether the lookup fills or checks the cache beside the calls. */
static inline bool is_beside(enum job_purpose purpose)
{
	return purpose == JOB_RECOMPILE || purpose == JOB_VERIFY;
}

/* Says whether the wait counts as a request, whatever its answer. */
bool wait_is_counted(const struct job_wait *wait);
void lookup_assert_valid(const struct lookup *lookup);

/* ---- lookup.c ---- */

/* Opens the lookup of a wait's key, without the wait; it asks the cache when the asker has its
 * turn.  NULL without memory. */
struct lookup *lookup_open(const struct job_wait *wait);

/* Takes a kernel that the cache has in memory; false: it is to be looked for. */
bool lookup_take(struct broker *broker, const char *key, struct cache_row *row);
/* Answers and frees a wait for it, without a lookup, and frees the row. */
void lookup_answer_kept(struct job_wait *wait, struct cache_row *row);

/* Adds a step that ends now to the trace, and begins the next. */
void lookup_trace(struct lookup *lookup, const char *name);

/* The key that a compile job makes; "": no lookup has it compiled. */
const char *lookup_key_of(const struct broker *broker, const struct compile_job *job);

/* ---- lookup_end.c ---- */

/* The wait takes its turn in the queue that its lookup waits in. */
void lookup_join(struct job_wait *wait);
void lookup_unlink(struct lookup *lookup);
void lookup_free(struct lookup *lookup);
/* No cache has the kernel: the pool compiles it for the waits that may have it compiled. */
void lookup_compile(struct lookup *lookup);
/* Writes the row of a new kernel to the cache, answers a JOB_RECOMPILE, and frees the lookup. */
void lookup_keep_row(struct lookup *lookup);
/* Stops the fetch or the compile, and frees the lookup. */
void lookup_drop(struct lookup *lookup);
void lookup_cancel_if_unwanted(struct lookup *lookup);

/* ---- lookup_answer.c.  A callback that it calls may resolve more, or leave. ---- */

void wait_link(struct job_wait *wait, struct lookup *lookup);
void wait_unlink(struct job_wait *wait);
/* Takes the wait off broker->waits. */
void wait_forget(struct job_wait *wait);
void wait_free(struct job_wait *wait);
/* These answer and free a wait that is in no lookup's list. */
void wait_answer(struct job_wait *wait, struct job_answer *answer);
void wait_fail(struct job_wait *wait, int status, const char *error);
void wait_refuse(struct job_wait *wait);
/* Answers all waits of a lookup that is unlinked, so that they may ask for the key once more. */
void lookup_finish(struct lookup *lookup, int status, enum job_origin origin, const char *error,
				   const char *log);
/* Answer the waits that only look, and those that may have nothing compiled. */
void lookup_answer_lookers(struct lookup *lookup);
void lookup_refuse_frozen(struct lookup *lookup);
/* The oldest wait that is counted owns the compile. */
void lookup_choose_owner(struct lookup *lookup);

#endif
