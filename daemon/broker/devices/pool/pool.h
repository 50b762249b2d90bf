/*
 * pool: the compiler workers.  Starts and warms them, gives each one job at a time, what somebody
 * waits for first, kills what overruns, replaces what died, recycles what is old.  Users' sources
 * are compiled by a process that has compiled nothing before.  Users and their sessions take turns
 * (util/turns.h).  Knows nothing of keys or caches.
 */
#ifndef KILN_DAEMON_POOL_H
#define KILN_DAEMON_POOL_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct pool_job; /* asked for and not answered yet */

/*
 * Interactive: somebody waits for it.  Background: it will be of use later.  Interactive jobs come
 * first; a background job leaves one worker idle for them, unless there is only one.
 */
enum pool_priority { POOL_INTERACTIVE, POOL_BACKGROUND, POOL_PRIORITIES };

/* result is the pool's and gone afterwards; take its members by zeroing them. */
typedef void (*pool_done)(void *arg, struct compile_result *result);

int pool_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Kills every worker; jobs are not answered any more. */
void pool_close(struct broker *broker);
void pool_free(struct broker *broker); /* after the loop has ended */

/*
 * A job that nobody waits for yet; what job points to must live until the answer.  Once somebody
 * has joined, exactly one call of done follows, never from inside pool_join, unless pool_cancel
 * came first.  NULL without memory.
 */
struct pool_job *pool_submit(struct broker *broker, const struct compile_job *job, pool_done done,
							 void *arg);
/* Somebody waits for the job.  It is next when the first of those who do has its turn; turns_leave
 * ends that. */
void pool_join(struct broker *broker, struct pool_job *job, enum pool_priority priority,
			   struct turn_owner owner, struct turn_place *place);
/* Forgets a job; the worker that runs it is killed, for a compiler cannot be interrupted. */
void pool_cancel(struct broker *broker, struct pool_job *job);
/* A worker has it. */
bool pool_running(const struct broker *broker, const struct pool_job *job);

/*
 * Calls back once the compilers of this host are known: at once if they are, else when the first
 * worker is ready or could not be started (error then says why).  pool_forget drops what was asked
 * with arg.
 */
typedef void (*pool_known)(void *arg, const struct compile_toolchains *toolchains,
						   const char *error);
void pool_when_known(struct broker *broker, pool_known known, void *arg);
void pool_forget(struct broker *broker, void *arg);

struct pool_stats {
	int workers, starting, idle, busy;
	int queued, queued_background; /* of those queued */
	uint64_t started, killed, recycled;
	uint64_t resident_bytes;  /* of all workers, each when it was last idle */
	uint64_t estimates[2][2]; /* bytes that a job takes: NVRTC, host; template of ours, user's */
	uint64_t memory_waits;    /* times that a job had to wait for memory */
	int held;                 /* jobs that wait now because there is too little */
};
void pool_stats(const struct broker *broker, struct pool_stats *out);
const struct compile_toolchains *pool_toolchains(const struct broker *broker);
typedef void (*pool_visit)(void *arg, int pid, const char *state, uint64_t jobs);
void pool_each(const struct broker *broker, pool_visit visit, void *arg);
/* Of jobs, and of workers that are started. */
void pool_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Fills in what is known of this one. */
void pool_note(const struct broker *broker, const struct pool_job *job, struct wait_note *note);
/* SIGKILL to a worker: pid, or 0 for a busy one, else any.  The pid, or 0 if there is none. */
int pool_kill(struct broker *broker, int pid);

#endif
