/*
 * executor_quiet: tasks that wait until nothing is in flight.  The main thread owns them, and has
 * stopped all launchers while it does them.
 */
#ifndef KILN_DAEMON_EXECUTOR_QUIET_H
#define KILN_DAEMON_EXECUTOR_QUIET_H

#include "daemon/exec/device.h"

struct exec;
struct launcher;
struct exec_flight;

/* LOAD: a client waits to launch; FREE: a client waits for the answer; LAZY: nobody waits. */
enum exec_task_kind { EXEC_TASK_LOAD, EXEC_TASK_FREE, EXEC_TASK_LAZY };

/* Lies within the buffer, module or lane that it is about, which sets kind, perform and what. */
struct exec_task {
	struct exec_task *next;
	enum exec_task_kind kind;
	uint64_t added_us, due_us;
	void (*perform)(struct exec *executor, void *what); /* which may free the task */
	void *what;
	const struct device_memory *memory; /* while the main thread has not seen it: what it frees */
};

enum exec_quiet_state { QUIET_NONE, QUIET_WAITS, QUIET_HOLDS };

struct exec_quiet {
	enum exec_quiet_state state;
	uint64_t patience_us;    /* 0: tasks are done at once */
	struct exec_task *first; /* in the order in which they are due */
	uint64_t since_us;       /* HOLDS: its begin */
	uint64_t limit_us;       /* the longest that this or the next hold takes */
	uint64_t rest_us;        /* no hold begins before */
	/* left counts the flights that were in flight when the first task came: those of earlier
	 * epochs.  The launcher of the last one notes in drained_us when it ended; drain_us is how long
	 * after that task (0: it has not ended). */
	uint32_t epoch;
	_Atomic int left;
	_Atomic uint64_t drained_us;
	uint64_t came_us, drain_us;
};

/* Tells whether lanes have entries that wait to be taken. */
typedef bool exec_waiting(const struct launcher *launcher);

void exec_quiet_open(struct exec *executor, uint32_t patience_ms);
/* Does all tasks.  The caller has nothing in flight. */
void exec_quiet_close(struct exec *executor);
/* Tells whether a task that frees this memory (NULL: that loads, unloads or unshares words) has to
 * wait until nothing is in flight. */
bool exec_quiet_waits(const struct exec *executor, const struct device_memory *memory);
/* The main thread's.  Performs the task: at once, or later if exec_quiet_waits(). */
void exec_quiet_do(struct exec *executor, struct exec_task *task,
				   const struct device_memory *memory);
/* The same for any launcher: one that is not the main thread's gives the task to that thread. */
void exec_quiet_hand_over(struct launcher *launcher, struct exec_task *task,
						  const struct device_memory *memory);
/* Performs, at once or later, what launchers have handed over. */
void exec_quiet_take_handed(struct exec *executor);
/* Call when a flight of the launcher has ended. */
void exec_quiet_ended(struct launcher *launcher, const struct exec_flight *flight);
/* Does the tasks that can be done; begins and ends holds. */
void exec_quiet_serve(struct exec *executor, exec_waiting *lanes_wait);
/* Returns for how many ms the device may be waited for: patience at most (-1: without limit). */
int exec_quiet_patience(const struct exec *executor, int patience);

#endif
