/*
 * executor_request: the requests of the broker, by name, and the short ones of them.  exec.h says
 * what each has and means.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_lane.h"
#include "executor_module.h"

#include <string.h>

static int on_end(struct launcher *launcher, struct exec_request *request)
{
	exec_lane_close(launcher, request->stream, 0);
	exec_graphs_drop(launcher, request->stream);
	for (uint64_t i = 0; i < KILN_STREAMS; i++)
		launcher->ops->stream_end(launcher->device, exec_stream(request->stream, i));
	exec_unmap_kept(launcher);
	launchers_forget(launcher->executor, request->stream);
	return KILN_OK;
}

/* Parked entries may still name the graph: then it leaves behind them. */
static int on_graph_free(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = wire_get_uint(request->root, "graph", 0);
	struct exec_graph *graph = exec_graph_find(launcher, request->stream, id);
	if (graph)
		exec_graph_leave(launcher, graph, exec_lane_leave(launcher, request->stream));
	return KILN_OK;
}

static int on_lane_close(struct launcher *launcher, struct exec_request *request)
{
	exec_lane_close(launcher, request->stream, request->id);
	return KILN_OK;
}

static int on_shape(struct launcher *launcher, struct exec_request *request)
{
	const uint64_t shape = wire_get_uint(request->root, "shape", 0);
	*plan_hash_place(launcher->executor->shapes, shape) = shape;
	return KILN_OK;
}

static int on_cancel(struct launcher *launcher, struct exec_request *request)
{
	struct exec *executor = launcher->executor;
	uint64_t ticket = wire_get_uint(request->root, "ticket", 0);
	for (int i = 0; i < executor->launcher_count; i++)
		if (map_get_id(&executor->launchers[i].flights, ticket))
			launcher->ops->cancel(executor->launchers[i].device, &ticket, 1);
	return KILN_OK;
}

static int on_ping(struct launcher *launcher, struct exec_request *request)
{
	struct wire_out reply;
	wire_begin(&reply, "reply", request->id);
	wire_put_int(&reply, "st", KILN_OK);
	wire_put_uint(&reply, "inflight", exec_in_flight(launcher->executor));
	exec_send(launcher->executor, &reply, -1);
	return KILN_OK;
}

/* later: the handler, or the end of what it began, answers a success.  begins: it begins what the
 * session's launcher does.  alone: it touches nothing of other launchers. */
static const struct request_row {
	const char *name;
	exec_handler *handler;
	bool later, begins, alone;
} requests[] = {
	{"launch", exec_launch, true, true, true},
	{"copy", exec_copy, true, true},
	{"graph", exec_graph_new, false, true},
	{"graph.launch", exec_launch_graph, true, true},
	{"graph.free", on_graph_free, false},
	{"alloc", exec_alloc, false},
	{"import", exec_import, false},
	{"free", exec_free, true},
	{"load", exec_load, true},
	{"unload", exec_unload, true},
	{"end", on_end, false},
	{"shape", on_shape, false},
	{"ping", on_ping, true},
#ifdef KILN_TEST_HOOKS
	{"misdeed", exec_misdeed_arm, false},
#endif
	{"cancel", on_cancel, false},
	{"share", exec_share, true},
	{"lane.open", exec_lane_open, false, true},
	{"lane.close", on_lane_close, true},
	{"lane.bind", exec_lane_bind, true, true, true},
	{"lane.rebind", exec_lane_rebind, false, false, true},
	{"lane.unbind", exec_lane_unbind, false, false, true},
	{"lane.cancel", exec_lane_cancel, false, false, true},
};

/* The launchers that have to be, are stopped. */
static void serve_row(struct exec *executor, const struct request_row *row,
					  struct exec_request *request)
{
	if (exec_misdeed(&executor->launchers[0], row->name, request->id))
		return;
	struct launcher *launcher = launchers_of(executor, request->stream, row->begins);
	int status = launcher ? exec_lane_catch_up(launcher, request)
						  : exec_refuse(request, KILN_ENOMEM, "out of memory for a session");
	if (status == KILN_OK)
		status = row->handler(launcher, request);
	if (status != KILN_OK || !row->later)
		exec_reply(executor, request->id, status, request->error);
}

static void stop_and_serve(struct exec *executor, const struct request_row *row,
						   struct exec_request *request)
{
	struct launcher *home = launchers_home(executor, request->stream);
	if (row->alone && home &&
		wire_get_uint(request->root, "lane", request->stream) == request->stream) {
		launcher_stop_alone(home);
		serve_row(executor, row, request);
		launcher_go_alone(home);
	} else {
		launchers_stop(executor);
		serve_row(executor, row, request);
		launchers_go(executor);
	}
}

void exec_request_serve(struct exec *executor, struct wire_in *message, struct frame *frame)
{
	const char *type = wire_type(message);
	struct exec_request request = {.message = message,
								   .root = &message->root,
								   .id = wire_id(message),
								   .stream = wire_get_uint(&message->root, "stream", 0),
								   .frame = frame};
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		if (strcmp(type, requests[i].name) != 0)
			continue;
		stop_and_serve(executor, &requests[i], &request);
		return;
	}
	exec_refuse(&request, KILN_EPROTO, "an executor does not know the request \"%.40s\"", type);
	exec_reply(executor, request.id, KILN_EPROTO, request.error);
}
