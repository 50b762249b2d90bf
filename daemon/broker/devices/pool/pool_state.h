/* pool_state.h: what the files of the pool share; no other room includes it. */
#ifndef KILN_DAEMON_POOL_STATE_H
#define KILN_DAEMON_POOL_STATE_H

#include "pool.h"
#include "worker.h"

/*
 *                      its turn comes         a worker and memory are there
 *   pool_submit --> QUEUED ------------> CHOSEN ----------------------------> COMPILING --> done
 *                     ^                   |  ^                                   |
 *                     +-------------------+  +-----------------------------------+
 *                      a stricter priority    the worker died, or is worn: once more
 *
 * A QUEUED job has places in the turns of one priority or of both, a CHOSEN one is in the list of
 * one priority.  Both are in the pool's list of jobs without a worker; a COMPILING one is in its
 * slot.  pool_cancel() frees a job in each state.  The pool frees an answered job when its callback
 * returns; the callback does not cancel it.
 */
enum pool_job_state { POOL_JOB_QUEUED, POOL_JOB_CHOSEN, POOL_JOB_COMPILING };

struct pool_job {
	struct turn_item item; /* the first member: what turns_take() gives */
	const struct compile_job *job;
	enum pool_priority priority; /* the strictest of its owners */
	enum pool_job_state state;
	pool_done done;
	void *arg;
	int deaths;
	bool fresh; /* it failed in a worn worker, and needs one that has compiled nothing */
	/* A death may be a kill from outside: no failure of the kernel is remembered for it. */
	bool maybe_external;
	char compiler[96];                        /* that its key names */
	uint64_t since_us;                        /* when it was submitted, or a worker got it */
	struct pool_queue *chosen;                /* CHOSEN: the queue of its priority; else NULL */
	struct pool_job *previous, *next;         /* in that queue */
	struct pool_job *all_previous, *all_next; /* in pool->queued */
};

/* A place for a worker; outlives the processes that fill it. */
struct slot {
	struct broker *broker;
	struct worker worker;
	struct pool_job *job;
	uint64_t change;   /* pool->changes when its process came up */
	uint64_t base;     /* bytes of its process at that time */
	uint64_t resident; /* bytes of its process when it was last idle */
	uint64_t reserved; /* BUSY: the most bytes that its job is believed to add */
	uint32_t backoff_ms;
};

/* A pool_when_known() that has no answer yet. */
struct known_waiter {
	pool_known known;
	void *arg;
	uint64_t since_us;
	struct known_waiter *next;
};

/* The jobs of one priority. */
struct pool_queue {
	struct turns turns;
	struct pool_job *head, *tail; /* CHOSEN ones: few, for turns are taken as late as can be */
};

struct pool_memory {
	uint64_t estimates[2][2]; /* as in pool_stats */
	uint64_t waits;           /* times that a job had to wait for memory */
	bool holds;               /* a job waits for it now */
	uv_timer_t timer;
};

struct pool {
	struct slot *slots;
	int count;
	struct pool_queue queues[POOL_PRIORITIES];
	struct pool_job *queued; /* without a worker, the newest first */
	int queued_count[POOL_PRIORITIES];
	struct compile_toolchains toolchains;
	bool known;
	uint64_t changes; /* times that the compilers were replaced */
	bool closing;
	struct known_waiter *waiters;
	uint64_t started, killed, recycled;
	struct pool_memory memory;
	int failed_starts; /* in a row */
	char start_error[KERNEL_ERROR_MAX];
};

/* ---- pool.c ---- */

/* Brings up a worker in an empty slot, after its backoff. */
void slot_start(struct slot *slot);
/* Ends the worker, which has no job, and brings up another. */
void slot_renew(struct slot *slot);
/* Sends a job to an idle worker. */
void slot_send(struct slot *slot, struct pool_job *job);
/* Kills the worker, whose job nobody wants any more, and brings up another. */
void slot_abort(struct slot *slot);

/* ---- pool_memory.c ---- */

void memory_open(struct broker *broker);
void memory_close(struct broker *broker);
/* Returns whether there is memory for one job more; there is when nothing runs.  If not, a timer
 * calls queue_assign() again before long. */
bool memory_admits(struct broker *broker, const struct compile_job *job);
/* Returns the bytes that the job is believed to add to this worker. */
uint64_t memory_estimate(const struct pool *pool, const struct slot *slot,
						 const struct compile_job *job);
/* Learns from the peak of a job that has ended. */
void memory_note(struct pool *pool, const struct slot *slot, const struct compile_job *job,
				 int64_t peak_bytes);

/* ---- pool_queue.c ---- */

/* Makes a job whose worker died the next one. */
void queue_put_back(struct pool *pool, struct pool_job *job);
/* Takes a job whose key names a compiler that is not here any more; NULL: none. */
struct pool_job *queue_pop_stale(struct pool *pool);
/* Takes the next job; NULL: none. */
struct pool_job *queue_pop(struct pool *pool);
/* Returns the slot whose worker has the job; NULL: none has. */
struct slot *queue_slot_of(const struct pool *pool, const struct pool_job *job);
/* Gives jobs to idle workers. */
void queue_assign(struct broker *broker);

#endif
