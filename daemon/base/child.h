/*
 * child: one process that the broker started, with a frame socket to it.  Starts the process,
 * queues messages to it, hands over its messages, and reports its end exactly once, after all of
 * them.  Knows nothing of what children do.  Everything here runs on the loop's thread.
 *
 * Ownership: the child frees itself when its process has ended and its handles are closed.  Its
 * owner may use it until gone() returns, or until child_abandon() or child_dismiss().
 */
#ifndef KILN_DAEMON_CHILD_H
#define KILN_DAEMON_CHILD_H

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <stdbool.h>
#include <uv.h>

#include "output.h"

#define CHILD_QUEUE_LIMIT ((size_t)1 << 30)

struct child;

struct child_events {
	/* The child frees message and frame when this returns, and closes the descriptors that the
	 * owner has not taken out of the frame. */
	void (*message)(void *owner, struct wire_in *message, struct frame *frame);
	/* why: "ended with status 3", "was killed by signal 9 (Killed)", or the reason of
	 * child_condemn(). */
	void (*gone)(void *owner, int exit_status, int signal, const char *why);
};

struct child_program {
	const char *const *arguments; /* after the program name, ended by NULL; "--fd=3" is added */
	const char *wrapper;          /* a program that starts it, and its arguments, blanks between */
	const char *const *environment; /* further "NAME=value", ended by NULL; may be NULL */
	/* Users' code is compiled or runs there: of the broker's environment, which may hold secrets,
	 * the child gets only the variables that find compilers and libraries. */
	bool spare_environment;
	int trail;           /* descriptor of the memory for its trail (exec/trail.h); -1: none */
	size_t message_most; /* bytes of a message; a child that sends a larger one is killed */
};

/* Starts kilnd in a role.  program and events are copied.  NULL with a sentence. */
struct child *child_start(uv_loop_t *loop, const struct child_program *program,
						  const struct child_events *events, void *owner, char *error,
						  size_t error_size);
/* Queues a copy of a finished message and of its descriptors.  KILN_OK, or the status of the
 * failure; a child whose socket is broken is killed. */
int child_send(struct child *child, const struct wire_out *message, const int *fds, int fd_count);
/* Sends SIGKILL to the child and the programs that it started; gone() follows, at the latest after
 * DEADLINE_CHILD_END_MS, even where the system holds the process. */
void child_kill(struct child *child);
/* Kills a child that sent what it must not: gone() gets this reason, "answered ...". */
void child_condemn(struct child *child, const char *why);
/* Kills the child and reports nothing more. */
void child_abandon(struct child *child);
/* Reports nothing more, and ends the socket of a child that has nothing to do: it cleans up after
 * itself, and is killed if that takes longer than patience_ms. */
void child_dismiss(struct child *child, uint64_t patience_ms);
/* Kills a child that has said that it is ending if that takes longer than patience_ms. */
void child_expect_end(struct child *child, uint64_t patience_ms);
int child_pid(const struct child *child);
/* Copies the end of what it wrote to its standard output and error; complete in gone(). */
void child_tail(const struct child *child, char tail[OUTPUT_TAIL]);

/* Returns how many children exist, abandoned ones too, without those that the system holds: the
 * loop of a draining broker ends at 0. */
int child_count(void);
#ifdef KILN_TEST_HOOKS
/* Lets child_kill() spare the next count children, as if the system held them; the daemon waits
 * deadline_ms for each. */
void child_spare(int count, uint64_t deadline_ms);
#endif

/* For child.c alone: starts the process with sock, and with said as its standard output and error.
 * journal is a variable for its environment, or "".  Returns a status of libuv. */
int child_spawn(uv_loop_t *loop, uv_process_t *process, const struct child_program *program,
				int sock, int said, char *journal);

#endif
