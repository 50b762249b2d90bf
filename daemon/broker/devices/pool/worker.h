/*
 * worker: starts one compiler process, gives it one job at a time, watches and ends it.  Its owner,
 * the pool or an alt_compiler, decides what becomes of a job whose worker died.
 *
 *             worker_start            ready               worker_send
 *      EMPTY --------------> STARTING ------> IDLE ----------------------> BUSY
 *        ^                      |              | ^                          |
 *        |                      |              | +--------- result ---------+
 *        |                      |              |                            |
 *        +----------------------+--------------+----------------------------+
 *           gone: the process ended, overran a deadline or gave no sign of life; or worker_end()
 *
 * A worker has a child in every state but EMPTY, and a job in BUSY alone.  Its timer is the
 * deadline of STARTING and BUSY; in EMPTY and IDLE the timer is a pause that the owner asked for.
 */
#ifndef KILN_DAEMON_POOL_WORKER_H
#define KILN_DAEMON_POOL_WORKER_H

#include "daemon/base/child.h"
#include "daemon/base/pulse.h"
#include "daemon/broker/broker.h"

enum worker_state { WORKER_EMPTY, WORKER_STARTING, WORKER_IDLE, WORKER_BUSY };

/* How a process ended without worker_end(). */
struct worker_end {
	enum worker_state was;
	bool overran, lifeless; /* the broker killed it */
	int signal;
	const char *why;
	const char *report; /* "; report: kiln faults show ..."; "": there is none */
};

struct worker_events {
	/* IDLE: the process says which compilers it has. */
	void (*ready)(void *owner, const struct compile_toolchains *found);
	/* IDLE: the owner frees the result. */
	void (*result)(void *owner, struct compile_result *result);
	/* EMPTY. */
	void (*gone)(void *owner, const struct worker_end *end);
	/* The pause is over. */
	void (*due)(void *owner);
};

struct worker {
	struct broker *broker;
	const struct worker_events *events;
	void *owner;
	const char *name; /* NULL: "compiler worker PID" */
	enum worker_state state;
	struct child *child;
	uv_timer_t timer;
	struct pulse pulse;
	bool overran, lifeless;
	uint64_t job_id, jobs_done; /* jobs_done: by this process */
	uint64_t launched_us;       /* when a process was last started */
	const struct compile_job *job;
	void (*closed)(void *owner);
	int open_handles; /* while it is being closed */
};

void worker_open(struct worker *worker, struct broker *broker, const struct worker_events *events,
				 void *owner);
/* Ends the process; closed, which may be NULL, comes when the loop has let go of the worker. */
void worker_close(struct worker *worker, void (*closed)(void *owner));
/* EMPTY: starts a process with these variables (NULL at their end).  False, with a sentence: it did
 * not start, and the worker stays EMPTY. */
bool worker_start(struct worker *worker, const char *const *environment, const char *misdeed,
				  char error[KERNEL_ERROR_MAX]);
/* EMPTY or IDLE: calls events->due after so long. */
void worker_pause(struct worker *worker, uint64_t milliseconds);
/* IDLE: sends as_sent, which is the job with what a test adds. */
void worker_send(struct worker *worker, const struct compile_job *job,
				 const struct compile_job *as_sent);
/* Ends the process, if there is one, and forgets its job; no event follows.  Kills a process that
 * compiles, for a compiler cannot be interrupted. */
void worker_end(struct worker *worker);
int worker_pid(const struct worker *worker); /* 0: there is none */

#endif
