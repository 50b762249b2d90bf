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
 * A QUEUED job stands in the turns of one priority or of both, a CHOSEN one in the list of one
 * priority.  Both are in the pool's list of those without a worker; a COMPILING one is in its slot.
 * pool_cancel() frees a job in each state; whoever is called back has no job any more.
 */
enum pool_job_state { POOL_JOB_QUEUED, POOL_JOB_CHOSEN, POOL_JOB_COMPILING };

struct pool_job {
	struct turn_item item; /* the first member: what turns_take() gives */
	const struct compile_job *job;
	enum pool_priority priority; /* the first of those of all who have joined */
	enum pool_job_state state;
	pool_done done;
	void *arg;
	int deaths;
	bool fresh; /* it failed in a worker that may be worn: in another that is not */
	/* A death may be a kill from outside: no failure of the kernel is remembered for it. */
	bool maybe_external;
	char compiler[96];                        /* that its key names */
	uint64_t since_us;                        /* asked for; once a worker has it, that */
	struct pool_queue *chosen;                /* CHOSEN: the queue of its priority; else NULL */
	struct pool_job *previous, *next;         /* in that queue */
	struct pool_job *all_previous, *all_next; /* of all without a worker */
};

/* A place for a worker; outlives the processes that fill it. */
struct slot {
	struct broker *broker;
	struct worker worker;
	struct pool_job *job;
	uint64_t change;   /* after which its process came up */
	uint64_t base;     /* bytes of its process when that came up */
	uint64_t resident; /* and when it was last idle */
	uint64_t reserved; /* BUSY: bytes that its job is believed to add at most */
	uint32_t backoff_ms;
};

struct known_waiter {
	pool_known known;
	void *arg;
	uint64_t since_us;
	struct known_waiter *next;
};

/* Of a priority. */
struct pool_queue {
	struct turns turns;
	struct pool_job *head, *tail; /* those that are chosen: a few more than there are workers */
};

/* What jobs take: by NVRTC and by the host's compiler, of templates of ours and of users'
 * sources. */
struct pool_memory {
	uint64_t estimates[2][2];
	uint64_t waits; /* times that a job had to wait for memory */
	bool holds;     /* one does */
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
	uint64_t changes; /* of the compilers */
	bool closing;
	struct known_waiter *waiters;
	uint64_t started, killed, recycled;
	struct pool_memory memory;
	int failed_starts; /* since a worker was last ready */
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

/* ---- memory.c ---- */

void memory_open(struct broker *broker);
void memory_close(struct broker *broker);
/* Whether there is memory for one job more; where nothing runs, there is.  If not, queue_assign()
 * is called again before long. */
bool memory_admits(struct broker *broker, const struct compile_job *job);
/* Bytes that the job is believed to take in this worker beyond those that it has. */
uint64_t memory_estimate(const struct pool *pool, const struct slot *slot,
						 const struct compile_job *job);
/* What it took. */
void memory_note(struct pool *pool, const struct slot *slot, const struct compile_job *job,
				 int64_t peak_bytes);

/* ---- queue.c ---- */

/* A job whose worker died is the next one again. */
void queue_put_back(struct pool *pool, struct pool_job *job);
/* A job whose key names another compiler than is here now, out of its queue; NULL: none. */
struct pool_job *queue_pop_stale(struct pool *pool);
/* The next job, out of its queue; NULL: there is none. */
struct pool_job *queue_pop(struct pool *pool);
/* Gives jobs to idle workers. */
void queue_assign(struct broker *broker);

#endif
