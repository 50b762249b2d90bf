/*
 * worker.h: one compiler process: started, given one job at a time, watched, ended.  Its owner, the
 * pool or an alt_compiler, decides what becomes of a job whose worker died.
 *
 *             worker_start            ready               worker_send
 *      EMPTY --------------> STARTING ------> IDLE ----------------------> BUSY
 *        ^                      |              | ^                          |
 *        |                      |              | +--------- result ---------+
 *        |                      |              |                            |
 *        +----------------------+--------------+----------------------------+
 *           gone: it ended, overran a deadline or gave no sign of life; or worker_end()
 *
 * There is a child in every state but EMPTY, and a job in BUSY alone.  The timer is the deadline of
 * STARTING and BUSY; in EMPTY and IDLE it is a pause that the owner asked for.
 */
#ifndef KILN_DAEMON_POOL_WORKER_H
#define KILN_DAEMON_POOL_WORKER_H

#include "daemon/base/child.h"
#include "daemon/base/pulse.h"
#include "daemon/broker/broker.h"

enum worker_state { WORKER_EMPTY, WORKER_STARTING, WORKER_IDLE, WORKER_BUSY };

/* How a process ended that was not asked to. */
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
	uint64_t job_id, jobs_done; /* jobs_done: of this process */
	uint64_t launched_us;       /* the last try to start a process */
	const struct compile_job *job;
	void (*closed)(void *owner);
	int open_handles; /* while it is being closed */
};

void worker_open(struct worker *worker, struct broker *broker, const struct worker_events *events,
				 void *owner);
/* Ends the process; closed, which may be NULL, comes when the loop has let go of the worker. */
void worker_close(struct worker *worker, void (*closed)(void *owner));
/* EMPTY: starts a process with these variables (NULL at their end).  False, with a sentence: there
 * is none, and the worker stays EMPTY. */
bool worker_start(struct worker *worker, const char *const *environment, const char *misdeed,
				  char error[KERNEL_ERROR_MAX]);
/* EMPTY or IDLE: events->due comes after so long. */
void worker_pause(struct worker *worker, uint64_t milliseconds);
/* IDLE: sends the job; as_sent is the same, but for what a test adds. */
void worker_send(struct worker *worker, const struct compile_job *job,
				 const struct compile_job *as_sent);
/* Ends the process, if there is one, and forgets its job: no event follows.  A compiler cannot be
 * interrupted, so one that works is killed. */
void worker_end(struct worker *worker);
int worker_pid(const struct worker *worker); /* 0: there is none */

#endif
