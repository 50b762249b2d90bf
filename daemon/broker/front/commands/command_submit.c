/*
 * command_submit.c: submit, release and cancel of a prepared call.
 */
#include "command.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/operands.h"
#include "daemon/broker/calls/work.h"

/* Submits a call of one launch. */
static int submit_call(struct session *session, const msgpack_object *root, uint64_t id,
					   struct call *call, const struct work_order *order,
					   char error[KERNEL_ERROR_MAX])
{
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_ref *variant = NULL;
	int status =
		operands_place(session, wire_get(root, "operands"), call, operands, &variant, error);
	if (status == KILN_OK)
		status = work_launch(session, id, call, variant, operands, order, error);
	kernel_drop(variant);
	return status;
}

static int submit_graph(struct session *session, const msgpack_object *root, uint64_t id,
						struct call *call, const struct work_order *order,
						char error[KERNEL_ERROR_MAX])
{
	uint32_t given = wire_count(wire_get(root, "operands"));
	if (given)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "call %llu is a graph, whose operands were given when it was made; %u "
						 "more were given",
						 (unsigned long long)call_id(call), given);
	return work_launch_graph(session, id, call, order, error);
}

void serve_submit(struct session *session, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	uint64_t id = wire_id(message), number = wire_get_uint(root, "call", 0);
	uint64_t after = wire_get_uint(root, "after", 0), stream = wire_get_uint(root, "stream", 0);
	const struct work_order order = {(uint32_t)stream, after, wire_get_bool(root, "lane", false)};
	char error[KERNEL_ERROR_MAX];
	struct call *call = call_find(session, number);
	int status;
	if (after == id)
		status = util_fail(error, sizeof(error), KILN_EINVAL,
						   "call %llu follows itself; after names an earlier ticket",
						   (unsigned long long)id);
	else if (stream >= KILN_STREAMS)
		status = util_fail(error, sizeof(error), KILN_EINVAL,
						   "stream is %llu; the streams of a client are 0 to %d",
						   (unsigned long long)stream, KILN_STREAMS - 1);
	else if (!call)
		status = util_fail(error, sizeof(error), KILN_ENOENT,
						   "this session has no prepared call %llu", (unsigned long long)number);
	else if (call_kind(call) == CALL_GRAPH)
		status = submit_graph(session, root, id, call, &order, error);
	else if (call_kind(call) == CALL_RAW)
		status = util_fail(error, sizeof(error), KILN_EINVAL,
						   "call %llu is a user's kernel; it is submitted with raw.submit",
						   (unsigned long long)number);
	else
		status = submit_call(session, root, id, call, &order, error);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
}

void serve_release(struct session *session, struct wire_in *message)
{
	uint64_t number = wire_get_uint(&message->root, "call", 0);
	struct call *call = call_find(session, number);
	if (!call) {
		lane_unbind_number(session, number);
		reply_error(session, wire_id(message), KILN_ENOENT,
					"this session has no prepared call %llu", (unsigned long long)number);
		return;
	}
	lane_unbind(session, call);
	call_forget(session, number);
	reply_ok(session, wire_id(message));
}

void serve_cancel(struct session *session, struct wire_in *message)
{
	uint64_t ticket = wire_get_uint(&message->root, "ticket", 0);
	uint64_t entry = wire_get_uint(&message->root, "entry", 0); /* of the lane, from 1 */
	if (entry) {
		if (lane_cancel(session, entry - 1, wire_get_uint(&message->root, "count", 1)))
			reply_ok(session, wire_id(message));
		else
			reply_error(session, wire_id(message), KILN_ELIMIT,
						"%d cancels of this session are on their way to its device process, the "
						"most there may be (--max-inflight); cancel again later",
						session->cancel_count);
		return;
	}
	if (!ticket) {
		reply_error(session, wire_id(message), KILN_EINVAL, "cancel names no ticket");
		return;
	}
	work_cancel(session, ticket);
	reply_ok(session, wire_id(message));
}
