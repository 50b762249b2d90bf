/*
 * call: a prepared call: a problem, its planned kernels for different alignments, or a graph.
 * Counted: the session's table holds a call until it is released, and so does every work that
 * launches it.
 */
#ifndef KILN_DAEMON_CALL_H
#define KILN_DAEMON_CALL_H

#include "daemon/broker/kernels/job.h"
#include "daemon/broker/requests/session.h"

#define CALL_VARIANTS 6 /* alignments 1, 2, 4, 8, 16 and one more */

struct graph;

/* A variant of a call, in a lane. */
struct call_bound {
	uint64_t id, generation; /* its name there, and the device process that knows it */
};

struct call {
	uint64_t id;
	int holders;
	struct kernel_problem problem;
	int given; /* tensors that the client named, and operands that it submits */
	struct kernel_ref *variants[CALL_VARIANTS]; /* [0] as prepared */
	int variant_count;
	struct call_bound bound[CALL_VARIANTS]; /* of the variants */
	struct graph *graph; /* of a call without operands or variants: what it launches */
	uint64_t device;     /* kind of the one that it is planned for: device_entry.kind */
};

/* EDEVICE, with a sentence: the device is of another kind now than what it was made for. */
int call_check_device(const struct session *session, uint64_t kind, const char *what,
					  const char *remedy, char error[KERNEL_ERROR_MAX]);
struct call *call_hold(struct call *call);
void call_drop(struct call *call);

/* ---- The session's table ---- */

struct call *call_find(const struct session *session, uint64_t id);
/* Returns the session's calls one by one, then NULL; *cursor begins as 0. */
struct call *call_next(const struct session *session, size_t *cursor);
/* Puts the call into the table, which takes over a hold of it; false without memory. */
bool call_keep(struct session *session, struct call *call);
/* Takes it out and drops that hold; nothing happens where it is not there. */
void call_forget(struct session *session, uint64_t id);

/* ---- What a session owns ---- */

/* Figures of it, for limits and for people. */
struct owned_counts {
	size_t buffers, calls;
	uint64_t held_bytes;     /* of memory that the daemon made for it */
	uint64_t graph_launches; /* of all its graphs */
};
struct owned_counts owned_count(const struct session *session);
/* False without memory. */
bool owned_open(struct session *session);
/* Frees all buffers and calls, here and in the device processes.  No work is under way. */
void owned_free(struct session *session);

#endif
