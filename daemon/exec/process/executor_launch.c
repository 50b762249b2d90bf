/*
 * executor_launch: launches and copies.  This file checks again everything that the broker says of
 * one, then gives it to the device.  A flight holds what it uses until it has ended.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_module.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Flights ---- */

/* Gives the device what the request asks for.  The flight holds what that uses. */
typedef int starter(struct launcher *launcher, struct exec_request *request,
					struct exec_flight *flight);

void exec_let_go(struct launcher *launcher, struct exec_flight *flight)
{
	for (int i = 0; i < flight->buffer_count; i++)
		exec_release_buffer(launcher, flight->buffers[i]);
	if (flight->module)
		exec_release_module(launcher, flight->module);
	if (flight->made)
		exec_made_release(launcher, flight->made);
	exec_unmap(launcher, flight->mapping);
}

static void flight_free(struct launcher *launcher, struct exec_flight *flight)
{
	exec_let_go(launcher, flight);
	free(flight);
}

static void count_messages(struct launcher *launcher)
{
	atomic_store_explicit(&launcher->messages, launcher->flights.count, memory_order_relaxed);
}

/* Registers a flight before the device gets it: if that fails, the device has nothing of it. */
static int fly(struct launcher *launcher, struct exec_request *request, starter *start)
{
	const msgpack_object *root = request->root;
	if (request->id == 0 || map_get_id(&launcher->flights, request->id))
		return exec_refuse(request, KILN_EPROTO, "the request's id %" PRIu64 " is 0 or in flight",
						   request->id);
	struct exec_flight *flight = calloc(1, sizeof(*flight));
	if (!flight || map_put_id(&launcher->flights, request->id, flight) < 0) {
		free(flight);
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a call's record");
	}
	count_messages(launcher);
	flight->id = request->id;
	flight->stream = exec_stream(request->stream, wire_get_uint(root, "sub", 0));
	flight->epoch = launcher->executor->quiet.epoch;
	flight->trail = exec_trail_begin(launcher, request->id, 0, flight->stream);
	flight->account = exec_account_read(root);
#ifdef KILN_TEST_HOOKS
	uint64_t delay = wire_get_uint(root, "delay", 0);
	flight->delay_ms = delay < DEADLINE_TEST_DELAY_MS ? (uint32_t)delay : DEADLINE_TEST_DELAY_MS;
#endif
	int status = start(launcher, request, flight);
	if (status == KILN_OK) {
		exec_account_begin(launcher, flight->account);
		exec_pace_enter(launcher, flight, wire_get_uint(root, "deadline", 0) * 1000);
		return KILN_OK;
	}
	exec_trail_end(launcher, flight->trail, status);
	map_remove_id(&launcher->flights, request->id);
	count_messages(launcher);
	flight_free(launcher, flight);
	return status;
}

void exec_finish(struct launcher *launcher, const struct device_done *done)
{
	struct exec_flight *flight = map_remove_id(&launcher->flights, done->ticket);
	if (!flight) {
		util_log(UTIL_WARN, "the device ended work %" PRIu64 ", which it was not given",
				 done->ticket);
		return;
	}
	count_messages(launcher);
	exec_quiet_ended(launcher, flight);
	exec_pace_leave(launcher, flight);
	exec_account_end(launcher, flight->account);
	exec_trail_end(launcher, flight->trail, done->status);
	if (exec_misdeed(launcher, "answer", done->ticket)) {
		flight_free(launcher, flight);
		return;
	}
	struct wire_out message;
	exec_say_printed(launcher->executor);
	wire_begin(&message, "reply", done->ticket);
	wire_put_int(&message, "st", done->status);
	if (done->status != KILN_OK)
		wire_put_str(&message, "err", done->error);
	wire_put_uint(&message, "us", done->micros);
	if (done->accesses) {
		wire_put_uint(&message, "blocks", done->blocks);
		wire_put_uint(&message, "accesses", done->accesses);
	}
	if (done->status == KILN_EINDEX)
		wire_put_uint(&message, "reported", done->reported);
	exec_send(launcher->executor, &message, -1);
	flight_free(launcher, flight);
}

/* ---- Launches ---- */

/* Copies from the flight how the launch is to run and what the device tells of its end. */
static void put_way(struct device_launch *launch, const struct exec_flight *flight)
{
#ifdef KILN_TEST_HOOKS
	launch->delay_ms = flight->delay_ms;
#endif
	launch->ticket = flight->id;
	launch->stream = flight->stream;
	launch->untimed = flight->untimed;
	launch->done_word = flight->done_word;
	launch->done_value = flight->done_value;
	launch->done_last = flight->done_last;
}

int exec_start_launch(struct launcher *launcher, struct exec_flight *flight,
					  const struct exec_template *what, const struct exec_place *places,
					  char error[KERNEL_ERROR_MAX])
{
	struct device_operand operands[KERNEL_MAX_OPERANDS];
	struct device_launch launch;
	const struct exec_held held = {flight->buffers, &flight->buffer_count};
	int status = exec_bind(what, places, flight->owner, held, operands, &launch, error);
	if (status != KILN_OK)
		return status;
	if (!what->copies) {
		flight->module = what->module;
		exec_hold_module(flight->module);
	}
	put_way(&launch, flight);
	return launcher->ops->launch(launcher->device, &launch, error);
}

int exec_start_graph(struct launcher *launcher, struct exec_flight *flight,
					 struct exec_graph *graph, char error[KERNEL_ERROR_MAX])
{
	struct device_launch how = {0};
	put_way(&how, flight);
	return exec_graph_start(launcher, graph, &how, &flight->made, error);
}

static int start_launch(struct launcher *launcher, struct exec_request *request,
						struct exec_flight *flight)
{
	struct exec_template what;
	struct exec_place places[KERNEL_MAX_OPERANDS];
	if (!request->what) {
		int status = exec_template_read(launcher, request, request->root, &what, places);
		if (status != KILN_OK)
			return status;
		request->what = &what;
		request->places = places;
	}
	exec_find_buffers(launcher, request->places, request->what->operand_count);
	return exec_start_launch(launcher, flight, request->what, request->places, request->error);
}

int exec_launch(struct launcher *launcher, struct exec_request *request)
{
	return fly(launcher, request, start_launch);
}

static int start_graph(struct launcher *launcher, struct exec_request *request,
					   struct exec_flight *flight)
{
	uint64_t id = wire_get_uint(request->root, "graph", 0);
	struct exec_graph *graph = exec_graph_find(launcher, request->stream, id);
	if (!graph)
		return exec_refuse(request, KILN_ENOENT, "there is no graph %" PRIu64, id);
	return exec_start_graph(launcher, flight, graph, request->error);
}

int exec_launch_graph(struct launcher *launcher, struct exec_request *request)
{
	return fly(launcher, request, start_graph);
}

/* ---- Copies between a buffer and a client's memory ---- */

static int start_copy(struct launcher *launcher, struct exec_request *request,
					  struct exec_flight *flight)
{
	const msgpack_object *root = request->root;
	uint64_t id = wire_get_uint(root, "buf", 0), offset = wire_get_uint(root, "offset", 0);
	uint64_t bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	bool to_device = wire_get_bool(root, "to", false);
	struct exec_buffer *buffer = map_get_id(&launcher->executor->buffers, id);
	if (!wire_get(root, "to") || request->frame->fd_count != 1)
		return exec_refuse(request, KILN_EPROTO, "a copy needs its direction and one descriptor");
	if (!buffer)
		return exec_refuse(request, KILN_ENOENT, "there is no buffer %" PRIu64, id);
	if (offset > buffer->bytes || bytes > buffer->bytes - offset)
		return exec_refuse(request, KILN_EINVAL,
						   "%" PRIu64 " bytes at %" PRIu64 " are not within a buffer of %" PRIu64
						   " bytes",
						   bytes, offset, buffer->bytes);
	exec_hold_buffer((struct exec_held){flight->buffers, &flight->buffer_count}, buffer);
	void *host;
	int status = exec_map(launcher, request->frame->fds[0], bytes, !to_device, &flight->mapping,
						  &host, request->error);
	if (status != KILN_OK)
		return status;
	return launcher->ops->copy(launcher->device, flight->stream, flight->id, buffer->memory, offset,
							   host, bytes, to_device, request->error);
}

int exec_copy(struct launcher *launcher, struct exec_request *request)
{
	return fly(launcher, request, start_copy);
}
