/*
 * executor_quiet: tasks that wait until nothing is in flight.
 */
#ifndef KILN_DAEMON_EXECUTOR_QUIET_H
#define KILN_DAEMON_EXECUTOR_QUIET_H

#include "daemon/exec/device.h"

struct exec;
struct exec_flight;

/* By who waits: LOAD: a client, to launch; FREE: a client; LAZY: nobody. */
enum exec_task_kind { EXEC_TASK_LOAD, EXEC_TASK_FREE, EXEC_TASK_LAZY };

/* Lies within the buffer, module or lane that it is about, which sets kind, perform and what. */
struct exec_task {
	struct exec_task *next;
	enum exec_task_kind kind;
	uint64_t added_us, due_us;
	void (*perform)(struct exec *executor, void *what); /* which may free the task */
	void *what;
};

enum exec_quiet_state { QUIET_NONE, QUIET_WAITS, QUIET_HOLDS };

struct exec_quiet {
	enum exec_quiet_state state;
	uint64_t patience_us;    /* 0: nothing waits */
	struct exec_task *first; /* in the order in which they are due */
	uint64_t since_us;       /* HOLDS */
	uint64_t limit_us;       /* how long the next hold, or this one, takes at most */
	uint64_t rest_us;        /* no hold begins before */
	/* left counts the flights of earlier epochs, those that were in flight when the first task
	 * came.  When the last of them had ended, that had taken drain_us (0: not yet). */
	uint32_t epoch;
	int left;
	uint64_t came_us, drain_us;
};

/* Whether lanes have entries that wait to be taken. */
typedef bool exec_waiting(const struct exec *executor);

void exec_quiet_open(struct exec *executor, uint32_t patience_ms);
/* Does all tasks.  Nothing is in flight. */
void exec_quiet_close(struct exec *executor);
/* Whether what frees this memory (NULL: what loads, unloads or unshares words) has to wait until
 * nothing is in flight. */
bool exec_quiet_waits(const struct exec *executor, const struct device_memory *memory);
/* Performs the task: at once, or later if exec_quiet_waits(). */
void exec_quiet_do(struct exec *executor, struct exec_task *task,
				   const struct device_memory *memory);
/* The flight is in flight no more. */
void exec_quiet_ended(struct exec *executor, const struct exec_flight *flight);
/* Does the tasks that can be done; begins and ends holds. */
void exec_quiet_serve(struct exec *executor, exec_waiting *lanes_wait);
/* How long the device may be waited for: patience at most (-1: no limit). */
int exec_quiet_patience(const struct exec *executor, int patience);

#endif
