/*
 * executor_lane_call: the calls that are bound to a lane, which its entries name.  The lane owns
 * each call's template; a template holds its kernel.
 *
 *   BOUND --(lane.unbind)--> freed, or LEAVING while parked entries may name it --> freed
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_lane.h"
#include "executor_module.h"

#include <inttypes.h>
#include <stdlib.h>

void exec_lane_drop_call(struct launcher *launcher, struct exec_template *bound)
{
	if (bound->module)
		exec_release_module(launcher, bound->module);
	free(bound);
}

/* Reads the launch that a lane keeps of a call.  It has all its arguments; none is the value of one
 * entry. */
static int read_bound(struct launcher *launcher, struct exec_request *request,
					  struct exec_template *bound, struct exec_place places[KERNEL_MAX_OPERANDS])
{
	int status = exec_template_read(launcher, request, request->root, bound, places);
	for (int i = 0; status == KILN_OK && i < bound->arg_count; i++)
		if (bound->args[i].kind == KERNEL_ARG_BYTES)
			status = exec_refuse(request, KILN_EPROTO,
								 "argument %d of a bound call is a value of its own", i);
	bound->id = wire_get_uint(request->root, "call", 0);
	bound->of = wire_get_uint(request->root, "of", 0);
	bound->notice = bound->left = wire_get_uint(request->root, "notice", 0);
	return status;
}

static int bind_call(struct launcher *launcher, struct exec_request *request,
					 struct exec_place places[KERNEL_MAX_OPERANDS])
{
	struct exec_lane *lane = exec_lane_find(launcher, request->stream);
	uint64_t call = wire_get_uint(request->root, "call", 0);
	if (!lane || !call || map_get_id(&lane->calls, call))
		return exec_refuse(request, KILN_EPROTO,
						   "call %" PRIu64 " cannot be bound: there is no such lane, or it has the "
						   "call",
						   call);
	if (lane->calls.count >= LANE_CALLS)
		return exec_refuse(request, KILN_ELIMIT,
						   "its lane knows %d calls, the most there may be: release some",
						   LANE_CALLS);
	struct exec_template *bound = calloc(1, sizeof(*bound));
	if (!bound)
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a bound call");
	int status = read_bound(launcher, request, bound, places);
	if (status == KILN_OK && map_put_id(&lane->calls, call, bound) < 0)
		status = exec_refuse(request, KILN_ENOMEM, "out of memory for a bound call");
	if (status != KILN_OK) {
		free(bound);
		return status;
	}
	if (bound->module)
		exec_hold_module(bound->module);
	request->what = bound;
	request->places = places;
	return KILN_OK;
}

/* The launch that comes along goes on without the lane. */
static void tell_unbound(struct launcher *launcher, const struct exec_request *request)
{
	struct wire_out message;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "unbound");
	wire_put_uint(&message, "stream", request->stream);
	wire_put_str(&message, "err", request->error);
	exec_send(launcher->executor, &message, -1);
}

int exec_lane_bind(struct launcher *launcher, struct exec_request *request)
{
	struct exec_place places[KERNEL_MAX_OPERANDS];
	const bool runs = wire_get_bool(request->root, "run", false);
	int status = bind_call(launcher, request, places);
	if (status != KILN_OK && runs)
		tell_unbound(launcher, request);
	if (runs)
		return exec_launch(launcher, request);
	if (status == KILN_OK)
		exec_reply(launcher->executor, request->id, KILN_OK, "");
	return status;
}

/* Gives the call another kernel.  Entries that are parked, or taken from now on, use it; flying
 * ones keep theirs.  A call that was unbound meanwhile needs none. */
int exec_lane_rebind(struct launcher *launcher, struct exec_request *request)
{
	struct exec_lane *lane = exec_lane_find(launcher, request->stream);
	uint64_t call = wire_get_uint(request->root, "call", 0);
	struct exec_template *bound = lane ? map_get_id(&lane->calls, call) : NULL, other;
	struct exec_place places[KERNEL_MAX_OPERANDS];
	if (!bound)
		return KILN_OK;
	int status = read_bound(launcher, request, &other, places);
	if (status == KILN_OK && other.operand_count != bound->operand_count)
		status =
			exec_refuse(request, KILN_EPROTO, "call %" PRIu64 " has %d operands and cannot have %d",
						call, bound->operand_count, other.operand_count);
	if (status != KILN_OK)
		return status;
	if (other.module)
		exec_hold_module(other.module);
	if (bound->module)
		exec_release_module(launcher, bound->module);
	other.leaving = bound->leaving;
	*bound = other;
	return KILN_OK;
}

int exec_lane_unbind(struct launcher *launcher, struct exec_request *request)
{
	struct exec_lane *lane = exec_lane_find(launcher, request->stream);
	uint64_t call = wire_get_uint(request->root, "call", 0);
	struct exec_template *bound = lane ? map_get_id(&lane->calls, call) : NULL;
	if (bound && (bound->leaving = exec_lane_leave(launcher, lane->id)) == 0)
		exec_lane_drop_call(launcher, map_remove_id(&lane->calls, call));
	return KILN_OK;
}

uint64_t exec_lane_leave(struct launcher *launcher, uint64_t stream)
{
	struct exec_lane *lane = exec_lane_find(launcher, stream);
	if (!lane || lane->parked == 0)
		return 0;
	lane->leaving = lane->leaving ? lane->leaving : lane->head;
	return lane->head;
}

void exec_lane_drop_leaving(struct launcher *launcher, struct exec_lane *lane)
{
	struct exec_template *bound;
	uint64_t parked = exec_lane_first_parked(lane), least = 0;
	size_t cursor = 0;
	if (parked < lane->leaving)
		return;
	while ((bound = map_next(&lane->calls, &cursor)))
		if (bound->leaving && bound->leaving <= parked)
			exec_lane_drop_call(launcher, map_remove_id(&lane->calls, bound->id));
		else if (bound->leaving && (!least || bound->leaving < least))
			least = bound->leaving;
	lane->leaving = least;
	least = exec_graphs_settle(launcher, lane->id, parked);
	if (least && (!lane->leaving || least < lane->leaving))
		lane->leaving = least;
}
