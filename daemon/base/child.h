/*
 * child: one process that the broker started, with a frame socket to it.  Starts it, queues
 * messages, hands over what it says, and reports its end exactly once, after everything it had
 * said.  Knows nothing of what children do.
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
	/* message and frame live until it returns; descriptors not taken are closed. */
	void (*message)(void *owner, struct wire_in *message, struct frame *frame);
	/* why: "ended with status 3", "was killed by signal 9 (Killed)", or what it was condemned for.
	 * The child frees itself afterwards. */
	void (*gone)(void *owner, int exit_status, int signal, const char *why);
};

struct child_program {
	const char *const *arguments; /* after the program name, ended by NULL; "--fd=3" is added */
	const char *wrapper;          /* a program that starts it, and its arguments, blanks between */
	const char *const *environment; /* further "NAME=value", ended by NULL; may be NULL */
	/* What users wrote is compiled or runs there: of the broker's environment it gets only what
	 * finds compilers and libraries, for the rest may hold secrets. */
	bool spare_environment;
	int trail;           /* memory that it is to leave a trail in (exec/trail.h); -1: none */
	size_t message_most; /* bytes of one that it may send; a larger one ends it */
};

/* Starts kilnd in a role.  NULL on failure, with a sentence. */
struct child *child_start(uv_loop_t *loop, const struct child_program *program,
						  const struct child_events *events, void *owner, char *error,
						  size_t error_size);
/* Queues a finished message.  KILN_OK, or the status of the failure (the child is then on its way
 * out). */
int child_send(struct child *child, const struct wire_out *message, const int *fds, int fd_count);
/* SIGKILL to the child and what it started; gone() follows, of one that the system does not let end
 * after DEADLINE_CHILD_END_MS. */
void child_kill(struct child *child);
/* The same of one that said what it must not: gone() gets this reason, "answered ...". */
void child_condemn(struct child *child, const char *why);
/* From now on nothing is reported; the child is killed and frees itself. */
void child_abandon(struct child *child);
/* The same for a child that has nothing to do: it sees the end of its socket, cleans up after
 * itself, and is killed only if that takes longer than patience_ms. */
void child_dismiss(struct child *child, uint64_t patience_ms);
/* It has said that it is ending: it is killed if that takes longer than patience_ms. */
void child_expect_end(struct child *child, uint64_t patience_ms);
int child_pid(const struct child *child);
/* The end of what it said on its standard output and error; complete in gone(). */
void child_tail(const struct child *child, char tail[OUTPUT_TAIL]);

/* How many children exist, abandoned ones included, but for those that the system does not let
 * end: the loop of a draining broker ends at 0. */
int child_count(void);
#ifdef KILN_TEST_HOOKS
/* The next count children that should be killed are not, as if the system held them; the daemon
 * waits deadline_ms for each. */
void child_spare(int count, uint64_t deadline_ms);
#endif

#endif
