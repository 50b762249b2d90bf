/*
 * command_graph.c: graph makes a list of calls, and where they lie, one call that launches them
 * all.
 */
#include "command.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/operands.h"
#include "daemon/broker/calls/work.h"
#include "planned.h"

/* A part counts the map, its two names, the call, the list of operands, and three for each of
 * them. */
_Static_assert(KILN_MAX_GRAPH *(5 + 3 * KERNEL_MAX_OPERANDS) + 16 <= WIRE_MAX_ASKED,
			   "the largest graph is a request that is taken");

/* Says whether the call can be part of a graph. */
static int check_call(const struct call *call, uint64_t number, char error[KERNEL_ERROR_MAX])
{
	if (!call)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "this session has no prepared call %llu", (unsigned long long)number);
	if (call_kind(call) == CALL_GRAPH)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "it is a graph itself: name the calls that it is made of");
	if (call_kind(call) == CALL_RAW)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "it is a user's kernel, which runs in a device process of its own");
	return KILN_OK;
}

/* Reads launch i of the graph. */
static int read_part(struct session *session, const msgpack_object *item, struct call *graph, int i,
					 char error[KERNEL_ERROR_MAX])
{
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_ref *variant = NULL;
	uint64_t number = wire_get_uint(item, "call", 0);
	struct call *call = call_find(session, number);
	int status = check_call(call, number, error);
	if (status == KILN_OK)
		status =
			operands_place(session, wire_get(item, "operands"), call, operands, &variant, error);
	if (status == KILN_OK && variant->plan.report.indices)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						   "%s counts indices that are out of range, for the end of each launch, "
						   "and a graph has one end for all: submit that call by itself, or "
						   "prepare it with bounds other than check",
						   call_problem(call)->op);
	if (status == KILN_OK)
		graph_set(graph, i, variant, operands);
	kernel_drop(variant);
	return status;
}

static int read_graph(struct session *session, const msgpack_object *list, struct call **out,
					  char error[KERNEL_ERROR_MAX])
{
	uint32_t count = wire_count(list);
	uint64_t most = session->broker->options.max_graph_calls;
	if (count < 1 || count > KILN_MAX_GRAPH)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a graph has 1 to %d calls; %u were given", KILN_MAX_GRAPH, count);
	if (owned_count(session).graph_launches + count > most)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "a graph of %u calls and those that this session has already, of %llu "
						 "calls in all, are more than the %llu that it may have",
						 count, (unsigned long long)owned_count(session).graph_launches,
						 (unsigned long long)most);
	struct call *call = graph_new(session, (int)count);
	if (!call)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a graph");
	for (uint32_t i = 0; i < count; i++) {
		int status = read_part(session, wire_at(list, i), call, (int)i, error);
		if (status != KILN_OK) {
			device_graph_blame((int)i, (int)count, error);
			call_drop(call);
			return status;
		}
	}
	*out = call;
	return KILN_OK;
}

void serve_graph(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	struct call *call = NULL;
	char error[KERNEL_ERROR_MAX];
	if (!planned_may_be_kept(session, id))
		return;
	int status = read_graph(session, wire_get(&message->root, "works"), &call, error);
	if (status == KILN_OK && (status = work_graph(session, id, call, error)) != KILN_OK)
		call_drop(call);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
}
