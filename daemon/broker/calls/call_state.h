/*
 * call_state.h: what a call, a graph and a session's tables are, for the files of this room.
 */
#ifndef KILN_DAEMON_CALL_STATE_H
#define KILN_DAEMON_CALL_STATE_H

#include "buffer_state.h"
#include "call.h"

#define CALL_VARIANTS 6 /* alignments 1, 2, 4, 8, 16 and one more */

/* A variant of a call, in a lane. */
struct call_bound {
	uint64_t id, generation; /* its name there, and the device process that knows it */
	bool early;              /* the exact kernel was not planned yet */
};

struct call {
	uint64_t id;
	int holders;
	int given; /* tensors that the client named, and operands that it submits */
	struct kernel_ref *variants[CALL_VARIANTS]; /* [0] as prepared */
	int variant_count;
	/* variants[0] is the generic kernel alone: the exact one is being planned, or waits for that in
	 * owned->unplanned (call_exact.c). */
	bool first, waits;
	struct call *previous, *next;           /* there */
	struct call_bound bound[CALL_VARIANTS]; /* of the variants */
	struct graph *graph; /* of a call without operands or variants: what it launches */
	uint64_t device;     /* kind of the one that it is planned for: device_entry.kind */
	/* The last member, for nobody reads the part that a problem does not use. */
	struct kernel_problem problem;
};

/* One launch of a graph, and its operands' places: buffers by id, for they may be freed. */
struct graph_part {
	struct kernel_ref *variant;
	struct work_operand operands[KERNEL_MAX_OPERANDS]; /* valid after graph_resolve() */
	uint64_t buffers[KERNEL_MAX_OPERANDS];
	uint64_t module; /* set while the graph is sent to the device process */
};

struct graph {
	uint64_t id; /* in the device process and the lane, too */
	struct session *session;
	uint64_t generation; /* of the device process that knows it */
	uint64_t lane_tail;  /* lane entries before this one may name a graph that the client freed */
	int count;
	struct graph_part parts[];
};

/* A session owns one of these. */
struct owned {
	struct map buffers, calls; /* by id */
	struct call *unplanned, *last_unplanned;
	bool plans; /* a worker thread has one of its calls */
	uint64_t held_bytes;
	uint64_t graph_launches;
};

struct call *call_hold(struct call *call);
/* The call waits no longer for a thread that plans its exact kernel, if it did. */
void call_leave_queue(struct session *session, struct call *call);
/* Returns the session's calls one by one, then NULL; *cursor begins as 0. */
struct call *call_next(const struct session *session, size_t *cursor);
/* Puts the call into the session's table, which takes over a hold of it; false without memory. */
bool call_keep(struct session *session, struct call *call);
/* EDEVICE, with a sentence: the device is of another kind now. */
int device_check(const struct session *session, uint64_t kind, const char *what, const char *remedy,
				 char error[KERNEL_ERROR_MAX]);

/* For call_drop(): tells the device process to forget it, then frees it. */
void graph_free(struct graph *graph);
/* The session ends; the device process forgets its graphs with it. */
void graph_orphan(struct call *call);
/* Finds all buffers, or ENOENT with a sentence. */
int graph_resolve(struct graph *graph, char error[KERNEL_ERROR_MAX]);

#endif
