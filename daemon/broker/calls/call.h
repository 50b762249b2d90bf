/*
 * call: a prepared call: a problem, its planned kernels for different alignments, or a graph.
 * Counted: the session's table holds a call until it is released, and so does every work that
 * launches it.
 */
#ifndef KILN_DAEMON_CALL_H
#define KILN_DAEMON_CALL_H

#include "buffer.h"
#include "daemon/broker/kernels/job.h"

struct call;

/* A problem that the planner knows, a kernel of the user's own, or launches that a device process
 * makes one piece of work. */
enum call_kind { CALL_PLANNED, CALL_RAW, CALL_GRAPH };

/* A new call in the session's table, which holds it; id: its number there, which is free; 0: a new
 * one.  given: the tensors that the client named.  Takes a hold of ref.  NULL without memory. */
struct call *call_new(struct session *session, uint64_t id, const struct kernel_problem *problem,
					  int given, uint64_t device, struct kernel_ref *ref);
/* Makes a call with a graph of so many launches, which the session counts; the caller holds it.
 * NULL without memory. */
struct call *graph_new(struct session *session, int count);
/* Makes this launch of the graph; operands: of the variant, of which it takes a hold. */
void graph_set(struct call *call, int i, struct kernel_ref *variant,
			   const struct work_operand operands[KERNEL_MAX_OPERANDS]);
void call_drop(struct call *call);

/* ---- call_exact.c ---- */

/* The call has only its generic kernel (tier_first), and is about to be launched by it. */
void call_begin_first(struct call *call);
/* A worker thread plans the exact kernel of that call, behind those of the session's others. */
void call_plan_exact(struct session *session, struct call *call);
/* The call is used again: if its exact kernel is not planned yet, the loop plans it now. */
void call_settle(struct session *session, struct call *call);

enum call_kind call_kind(const struct call *call);
uint64_t call_id(const struct call *call);
const struct kernel_problem *call_problem(const struct call *call);
int call_given(const struct call *call);
/* The kernel of a call of kind CALL_RAW; the caller holds it. */
struct kernel_ref *call_raw(const struct call *call);
/* EDEVICE, with a sentence: the device is of another kind now than what the call was made for. */
int call_check_device(const struct session *session, const struct call *call, const char *what,
					  const char *remedy, char error[KERNEL_ERROR_MAX]);

/* ---- The session's table ---- */

struct call *call_find(const struct session *session, uint64_t id);
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
