/* graph: launches that a device process makes one piece of work. */
#ifndef KILN_DAEMON_GRAPH_H
#define KILN_DAEMON_GRAPH_H

#include "buffer.h"
#include "call.h"

/* One launch of a graph, and where it lies; buffers by number, for they may be freed. */
struct graph_part {
	struct kernel_ref *variant;
	struct work_operand operands[KERNEL_MAX_OPERANDS]; /* valid after graph_resolve() */
	uint64_t buffers[KERNEL_MAX_OPERANDS];
	uint64_t module; /* in the device process; while it is sent there */
};

struct graph {
	uint64_t id; /* also the device process's and the lane's */
	struct session *session;
	uint64_t generation; /* of the device process that was told of it */
	uint64_t lane_tail;  /* entries of the lane that may name it, once the client has freed it */
	int count;
	struct graph_part parts[];
};

/* A call with room for so many launches, which the session counts.  NULL without memory. */
struct call *graph_new(struct session *session, int count);
/* For call_drop(): tells the device process as well. */
void graph_free(struct graph *graph);
/* The session ends, and with it all that is its in the device process. */
void graph_orphan(struct call *call);
/* Finds all buffers, or ENOENT with a sentence. */
int graph_resolve(struct graph *graph, char error[KERNEL_ERROR_MAX]);

#endif
