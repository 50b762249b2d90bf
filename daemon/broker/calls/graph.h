/* graph: launches that a device process makes one piece of work. */
#ifndef KILN_DAEMON_GRAPH_H
#define KILN_DAEMON_GRAPH_H

#include "buffer.h"
#include "call.h"

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

/* Makes a call with a graph of so many launches, which the session counts.  NULL without memory. */
struct call *graph_new(struct session *session, int count);
/* For call_drop(): tells the device process to forget it, then frees it. */
void graph_free(struct graph *graph);
/* The session ends; the device process forgets its graphs with it. */
void graph_orphan(struct call *call);
/* Finds all buffers, or ENOENT with a sentence. */
int graph_resolve(struct graph *graph, char error[KERNEL_ERROR_MAX]);

#endif
