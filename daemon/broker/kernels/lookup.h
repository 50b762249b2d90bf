/*
 * lookup.h: what job.c (who asks, and keys), lookup.c, lookup_end.c and lookup_answer.c
 * share: one lookup for each key that somebody wants and that is not there yet.
 */
#ifndef KILN_DAEMON_LOOKUP_H
#define KILN_DAEMON_LOOKUP_H

#include "job.h"

enum lookup_phase { LOOKUP_CACHE, LOOKUP_REMOTE, LOOKUP_COMPILE };

struct job_wait {
	struct broker *broker;
	struct kernel_ref *ref;
	struct lookup *lookup;  /* NULL until the compilers are known */
	uv_timer_t *later;      /* an answer that is ready before it may be given */
	struct job_terms terms; /* without an asker it is not counted */
	struct keying *keying;  /* its key is being made on the store's thread */
	bool first;
	struct turn_place place; /* its turn at what the lookup waits for */
	job_done done;
	void *arg;
	uint64_t asked_us;
	struct job_wait *previous, *next;         /* in its lookup */
	struct job_wait *all_previous, *all_next; /* in the broker's list of all */
};

struct lookup {
	struct broker *broker;
	struct kernel_ref *ref;
	enum lookup_phase phase;
	struct store_item *looking; /* while the cache is asked */
	struct remote_fetch *fetch; /* while another tier is asked */
	struct pool_job *job;
	struct job_wait *waits, *last_wait;
	bool finished; /* its waiters are being answered */
	uint64_t began_us;
	struct lookup *previous, *next;
	/* Its own, for the store's thread reads them and the plan's may be made anew meanwhile. */
	char key[KERNEL_KEY_HEX];
	char *key_text;
	char compiler[96]; /* that it names */
	/* the cache's answer */
	struct cache_row row;
	struct cache_failure failure; /* what is remembered instead of a row */
	int cache_status;
	char error[KERNEL_ERROR_MAX];
};

/* ---- lookup.c ---- */

/* Begins to look for the ref's key, when the owner has its turn.  NULL without memory. */
struct lookup *lookup_open(struct broker *broker, struct kernel_ref *ref, struct turn_owner owner);

/* ---- lookup_end.c ---- */

/* The wait takes turns for what its lookup waits for. */
void lookup_join(struct job_wait *wait);
void lookup_unlink(struct lookup *lookup);
void lookup_free(struct lookup *lookup);
/* It is nowhere: whoever may have it compiled waits on. */
void lookup_compile(struct lookup *lookup);
/* Its waiters were answered: the row goes to where the next will find it. */
void lookup_keep_row(struct lookup *lookup);
/* Stops what is under way for it and forgets it; no lookup. */
void lookup_drop(struct lookup *lookup);
void lookup_cancel_if_unwanted(struct lookup *lookup);
/* The key that this job makes; "": no lookup has it compiled. */
const char *lookup_key_of(const struct broker *broker, const struct compile_job *job);

/* ---- lookup_answer.c.  What they call may ask for more, and leave. ---- */

/* Among those that its lookup answers, and no longer. */
void wait_link(struct job_wait *wait, struct lookup *lookup);
void wait_unlink(struct job_wait *wait);
/* Out of the broker's list, and freed. */
void wait_free(struct job_wait *wait);
/* Answers and frees a wait that is in no lookup's list. */
void wait_answer(struct job_wait *wait, struct job_answer *answer);
void wait_fail(struct job_wait *wait, int status, const char *error);
/* It may have nothing compiled. */
void wait_refuse(struct job_wait *wait);
/* Answers all waiters; the lookup is out of the list before, so that they may ask again. */
void lookup_finish(struct lookup *lookup, int status, enum job_origin origin, const char *error,
				   const char *log);
/* Of a lookup that has missed: those who only look, and those who may have nothing compiled. */
void lookup_answer_lookers(struct lookup *lookup);
void lookup_refuse_frozen(struct lookup *lookup);
/* The owner of a compile is who came first of those that are counted and still wait. */
void lookup_choose_owner(struct lookup *lookup);

#endif
