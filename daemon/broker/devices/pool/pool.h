/*
 * pool: the compiler workers.  The pool starts workers, gives each one job at a time, interactive
 * jobs first, kills workers that overrun, and replaces those that died or are old.  A user's source
 * gets a process that has compiled nothing before.  Users and their sessions take turns
 * (base/turns.h).  Knows nothing of keys or caches.
 */
#ifndef KILN_DAEMON_POOL_H
#define KILN_DAEMON_POOL_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct pool_job; /* submitted, and not answered yet */

/*
 * A client waits for an interactive job; a background job will be of use later.  Interactive jobs
 * go first.  A background job leaves one worker idle for them, unless there is only one.
 */
enum pool_priority { POOL_INTERACTIVE, POOL_BACKGROUND, POOL_PRIORITIES };

/* The pool frees the result afterwards; a callback takes members by zeroing them. */
typedef void (*pool_done)(void *arg, struct compile_result *result);

int pool_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Kills every worker; no callback follows. */
void pool_close(struct broker *broker);
void pool_free(struct broker *broker); /* after the loop has ended */

/*
 * Makes a job that has no turn yet; `job` and all that it points to live until the answer.  After
 * the first pool_join(), exactly one call of done follows, never from inside pool_join(), unless
 * pool_cancel() comes first.  NULL without memory.
 */
struct pool_job *pool_submit(struct broker *broker, const struct compile_job *job, pool_done done,
							 void *arg);
/* Has an owner wait for the job, until turns_leave(place).  The first turn of its owners begins
 * it. */
void pool_join(struct broker *broker, struct pool_job *job, enum pool_priority priority,
			   struct turn_owner owner, struct turn_place *place);
/* Frees a job.  Kills the worker that has it, for a compiler cannot be interrupted. */
void pool_cancel(struct broker *broker, struct pool_job *job);
/* Returns whether a worker has the job. */
bool pool_running(const struct broker *broker, const struct pool_job *job);

/*
 * Calls back once the compilers of this host are known: at once if they are, else when the first
 * worker is ready, or with an error when none starts.  pool_forget() drops what was asked with arg.
 */
typedef void (*pool_known)(void *arg, const struct compile_toolchains *toolchains,
						   const char *error);
void pool_when_known(struct broker *broker, pool_known known, void *arg);
void pool_forget(struct broker *broker, void *arg);

struct pool_stats {
	int workers, starting, idle, busy;
	int queued, queued_background; /* queued: all jobs without a worker */
	uint64_t started, killed, recycled;
	uint64_t resident_bytes;  /* of all workers, each when it was last idle */
	uint64_t estimates[2][2]; /* bytes of a job: [NVRTC, host][our template, user's source] */
	uint64_t memory_waits;    /* times that a job had to wait for memory */
	int held;                 /* jobs that wait for memory now */
};
void pool_stats(const struct broker *broker, struct pool_stats *out);
const struct compile_toolchains *pool_toolchains(const struct broker *broker);
typedef void (*pool_visit)(void *arg, int pid, const char *state, uint64_t jobs);
void pool_each(const struct broker *broker, pool_visit visit, void *arg);
/* Visits notes of jobs, and of workers that start. */
void pool_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Fills in what a job waits for. */
void pool_note(const struct broker *broker, const struct pool_job *job, struct wait_note *note);
/* Sends SIGKILL to a worker: pid, or 0 for a busy one, else any.  Returns the pid, or 0 without
 * one. */
int pool_kill(struct broker *broker, int pid);

#endif
