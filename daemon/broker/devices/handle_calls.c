/* handle_calls.c: requests to a device process, their answers and deadlines, and what it says by
 * itself. */
#include "handle_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/list.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

/* A posted request, such as an unload, has no deadline: a lane may keep its answer back. */
static bool is_awaited(const struct handle_call *call)
{
	return call->deadline_ms || call->done;
}

static void unlink_call(struct device_handle *handle, struct handle_call *call)
{
	handle->awaited_count -= is_awaited(call);
	QUEUE_REMOVE(handle->first, handle->last, call);
	map_remove_id(&handle->calls, call->id);
	handle->call_count--;
}

uint64_t handle_call_deadline_ms(const struct device_handle *handle, const struct handle_call *call)
{
	return broker_deadline(handle->device->broker->test.call_deadline_ms, call->deadline_ms) *
		   handle_patience(handle);
}

/* A device runs calls in order, so only the oldest one with a deadline can be overdue.  Calls that
 * wait until nothing runs are no obstacle: the search goes on behind them. */
static struct handle_call *find_overrun(struct device_handle *handle)
{
	uint64_t now = util_now_us();
	for (struct handle_call *call = handle->first; call; call = call->next) {
		uint64_t since = call->sent_us > handle->progress_us ? call->sent_us : handle->progress_us;
		if (!call->deadline_ms)
			continue;
		if (now >= since + handle_call_deadline_ms(handle, call) * 1000)
			return call;
		if (!call->waits)
			return NULL;
	}
	return NULL;
}

static void on_clock(uv_timer_t *timer)
{
	struct device_handle *handle = timer->data;
	if (!handle->awaited_count)
		uv_timer_stop(timer);
	struct handle_call *call = handle->fault[0] ? NULL : find_overrun(handle);
	if (!call)
		return;
	uint64_t deadline_ms = handle_call_deadline_ms(handle, call);
	handle->overran = call->id;
	util_fail(handle->fault, sizeof(handle->fault), 0,
			  "nothing completed on %s for %llu ms, the deadline of the call that ran; its device "
			  "process was ended",
			  handle->device->info.name, (unsigned long long)deadline_ms);
	child_kill(handle->child);
}

static uint64_t liveness_ms(const struct device_handle *handle)
{
	return handle->device->broker->options.liveness_timeout_ms * handle_patience(handle);
}

/* Stops to expect signs of life from a process that has nothing to do. */
static void rest(struct device_handle *handle)
{
	if (!handle->busy && !handle->awaited_count)
		pulse_end(&handle->pulse);
}

/* The process says whether lanes, which the broker does not see, keep it busy. */
static void note_alive(struct device_handle *handle, bool busy)
{
	handle->busy = busy;
	if (busy)
		pulse_begin(&handle->pulse, liveness_ms(handle));
	else
		rest(handle);
}

uint64_t handle_begin(struct device_handle *handle, struct wire_out *message, const char *type)
{
	uint64_t id = ++handle->next_call;
	handle->begun = type;
	wire_begin(message, type, id);
	return id;
}

int handle_send(struct device_handle *handle, struct wire_out *message, uint64_t id, const int *fds,
				int fd_count, uint32_t deadline_ms, handle_done done, void *arg)
{
	struct handle_call *call = NULL;
	int status = wire_end(message);
	if (status == KILN_OK && handle->state != HANDLE_READY)
		status = KILN_EDEVICE;
	if (status == KILN_OK &&
		(!(call = calloc(1, sizeof(*call))) || map_put_id(&handle->calls, id, call) < 0))
		status = KILN_ENOMEM;
	if (status == KILN_OK)
		status = child_send(handle->child, message, fds, fd_count);
	/* The process is gone, and the loop has not heard of it yet. */
	if (status == KILN_ECONN)
		status = KILN_EDEVICE;
	wire_out_free(message);
	if (status != KILN_OK) {
		map_remove_id(&handle->calls, id);
		free(call);
		return status;
	}
	*call = (struct handle_call){.id = id,
								 .deadline_ms = deadline_ms,
								 .sent_us = util_now_us(),
								 .type = handle->begun,
								 .done = done,
								 .arg = arg};
	QUEUE_APPEND(handle->first, handle->last, call);
	handle->call_count++;
	handle->device->broker->counters.device_requests++;
	if (!is_awaited(call))
		return KILN_OK;
	handle->awaited_count++;
	pulse_begin(&handle->pulse, liveness_ms(handle));
	if (!uv_is_active((uv_handle_t *)&handle->clock))
		uv_timer_start(&handle->clock, on_clock, PAUSE_EXECUTOR_CLOCK_MS, PAUSE_EXECUTOR_CLOCK_MS);
	return KILN_OK;
}

int handle_send_waiting(struct device_handle *handle, struct wire_out *message, uint64_t id,
						handle_done done, void *arg)
{
	int status = handle_send(handle, message, id, NULL, 0, DEADLINE_QUIET_MS, done, arg);
	if (status == KILN_OK)
		handle->last->waits = true;
	return status;
}

void handle_post(struct device_handle *handle, struct wire_out *message, uint64_t id)
{
	handle_send(handle, message, id, NULL, 0, 0, NULL, NULL);
}

void handle_disown(struct device_handle *handle, void *arg)
{
	for (struct handle_call *call = handle->first; call; call = call->next)
		if (call->arg == arg && call->done) {
			call->done = NULL;
			handle->awaited_count -= !is_awaited(call);
		}
	size_t cursor = 0;
	struct handle_module *module;
	while ((module = map_next(&handle->modules, &cursor)))
		for (struct module_wait *waiter = module->waiters; waiter; waiter = waiter->next)
			if (waiter->arg == arg)
				waiter->done = NULL;
}

int handle_take_fd(struct device_handle *handle)
{
	return handle->frame ? frame_take_fd(handle->frame, 0) : -1;
}

static void on_reply(struct device_handle *handle, struct wire_in *message, struct frame *frame)
{
	struct handle_call *call = map_get_id(&handle->calls, wire_id(message));
	int64_t status = wire_get_int(&message->root, "st", 1);
	if (!call || !kernel_status_is(status)) {
		child_condemn(handle->child, call ? "answered with a status that there is not"
										  : "answered what it was not asked");
		return;
	}
	const char *error = wire_get_str(message, &message->root, "err");
	handle->progress_us = util_now_us();
	handle->device->broker->counters.device_answers++;
	unlink_call(handle, call);
	rest(handle);
	handle->frame = frame;
	if (call->done)
		call->done(call->arg, (int)status, error ? error : "the device process gave no reason",
				   message);
	handle->frame = NULL;
	free(call);
}

static void note_quiet(struct device_handle *handle, const msgpack_object *event)
{
	struct counters *counters = &handle->device->broker->counters;
	uint64_t done = wire_get_uint(event, "done", 0), held_us = wire_get_uint(event, "held", 0);
	handle->holds = wire_get_bool(event, "begun", false);
	counters->holds += handle->holds;
	*(held_us ? &counters->quiet_held : &counters->quiet_idle) += done;
	if (held_us > counters->worst_hold_us)
		counters->worst_hold_us = held_us;
}

static void note_fault(struct device_handle *handle, const msgpack_object *event, const char *error)
{
	snprintf(handle->fault, sizeof(handle->fault), "%s", error);
	if (wire_get_int(event, "st", KILN_EDEVICE) == KILN_ETIMEDOUT)
		handle->overran = wire_get_uint(event, "ticket", 0);
	child_expect_end(handle->child, broker_deadline(handle->device->broker->test.call_deadline_ms,
													DEADLINE_FAULT_END_MS) *
										handle_patience(handle));
}

static void note_printed(struct device_handle *handle, const msgpack_object *event)
{
	struct broker *broker = handle->device->broker;
	const msgpack_object *text = wire_get(event, "text");
	if (text && text->type == MSGPACK_OBJECT_BIN)
		broker->events->printed(broker, handle, text->via.bin.ptr, text->via.bin.size,
								wire_get_uint(event, "cut", 0));
}

static void on_event(struct device_handle *handle, struct wire_in *message)
{
	const char *what = wire_get_str(message, &message->root, "what");
	const char *error = wire_get_str(message, &message->root, "err");
	if (what && !strcmp(what, "fault") && error)
		note_fault(handle, &message->root, error);
	else if (what && !strcmp(what, "progress"))
		handle->progress_us = util_now_us();
	else if (what && !strcmp(what, "alive"))
		note_alive(handle, wire_get_bool(&message->root, "busy", false));
	else if (what && !strcmp(what, "quiet"))
		note_quiet(handle, &message->root);
	else if (what && !strcmp(what, "scratch"))
		handle->scratch_bytes = wire_get_uint(&message->root, "bytes", 0);
	else if (what && !strcmp(what, "used"))
		handle->device->broker->events->lane_used(
			handle->device->broker, handle, wire_get_uint(&message->root, "stream", 0),
			wire_get_uint(&message->root, "of", 0), wire_get_uint(&message->root, "call", 0),
			wire_get_uint(&message->root, "launches", 0));
	else if (what && !strcmp(what, "unbound") && error)
		handle->device->broker->events->lane_unbound(
			handle->device->broker, handle, wire_get_uint(&message->root, "stream", 0), error);
	else if (what && !strcmp(what, "printed"))
		note_printed(handle, &message->root);
	else if (what && !strcmp(what, "lane") && error)
		handle->device->broker->events->lane_broke(
			handle->device->broker, handle, wire_get_uint(&message->root, "stream", 0), error);
}

void handle_on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct device_handle *handle = owner;
	const char *type = wire_type(message);
	pulse_beat(&handle->pulse);
	if (!strcmp(type, "ready"))
		handle_on_started(handle, message);
	else if (!strcmp(type, "reply"))
		on_reply(handle, message, frame);
	else if (!strcmp(type, "event"))
		on_event(handle, message);
	else
		child_condemn(handle->child, "sent a message of a kind that there is not");
}

void handle_fail_calls(struct device_handle *handle, const char *why)
{
	uint64_t overran = handle->overran;
	struct handle_call *call;
	handle->overran = 0;
	handle->busy = false;
	uv_timer_stop(&handle->clock);
	pulse_end(&handle->pulse);
	while ((call = handle->first)) {
		int status = call->id == overran ? KILN_ETIMEDOUT : KILN_EDEVICE;
		handle->device->broker->counters.device_lost++;
		unlink_call(handle, call);
		if (call->done)
			call->done(call->arg, status, why, NULL);
		free(call);
	}
	map_free(&handle->calls);
}
