/* handle_calls.c: requests to a device process, their answers and deadlines, and what it has
 * loaded. */
#include "handle_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

#define MODULES_MOST 4096 /* of one process; below what it takes itself */

static void unlink_call(struct executor *executor, struct executor_call *call)
{
	if (call->previous)
		call->previous->next = call->next;
	else
		executor->first = call->next;
	if (call->next)
		call->next->previous = call->previous;
	else
		executor->last = call->previous;
	map_remove_id(&executor->calls, call->id);
	executor->call_count--;
}

uint64_t executor_call_deadline_ms(const struct executor *executor,
								   const struct executor_call *call)
{
	return broker_deadline(executor->device->broker->test.call_deadline_ms, call->deadline_ms) *
		   executor_patience(executor);
}

/* Only the oldest call with a deadline can be what keeps the device: the others wait behind it, but
 * for those before it that wait until nothing runs. */
static struct executor_call *find_overrun(struct executor *executor)
{
	uint64_t now = util_now_us();
	for (struct executor_call *call = executor->first; call; call = call->next) {
		uint64_t since =
			call->sent_us > executor->progress_us ? call->sent_us : executor->progress_us;
		if (!call->deadline_ms)
			continue;
		if (now >= since + executor_call_deadline_ms(executor, call) * 1000)
			return call;
		if (!call->waits)
			return NULL;
	}
	return NULL;
}

/* What was posted, such as an unload, may be answered when a lane lets go of it, long after. */
static bool is_awaited(const struct executor_call *call)
{
	return call->deadline_ms || call->done;
}

static bool owes_an_answer(const struct executor *executor)
{
	const struct executor_call *call = executor->first;
	while (call && !is_awaited(call))
		call = call->next;
	return call != NULL;
}

static void on_clock(uv_timer_t *timer)
{
	struct executor *executor = timer->data;
	if (!owes_an_answer(executor))
		uv_timer_stop(timer);
	struct executor_call *call = executor->fault[0] ? NULL : find_overrun(executor);
	if (!call)
		return;
	uint64_t deadline_ms = executor_call_deadline_ms(executor, call);
	executor->overran = call->id;
	util_fail(executor->fault, sizeof(executor->fault), 0,
			  "nothing completed on %s for %llu ms, the deadline of the call that ran; its device "
			  "process was ended",
			  executor->device->info.name, (unsigned long long)deadline_ms);
	child_kill(executor->child);
}

static uint64_t liveness_ms(const struct executor *executor)
{
	return executor->device->broker->options.liveness_timeout_ms * executor_patience(executor);
}

static void rest(struct executor *executor)
{
	if (!executor->busy && !owes_an_answer(executor))
		pulse_end(&executor->pulse);
}

/* While it works, and what goes through lanes is seen by nobody else. */
static void note_alive(struct executor *executor, const msgpack_object *event)
{
	executor->busy = wire_get_bool(event, "busy", false);
	if (executor->busy)
		pulse_begin(&executor->pulse, liveness_ms(executor));
	else
		rest(executor);
}

uint64_t executor_begin(struct executor *executor, struct wire_out *message, const char *type)
{
	uint64_t id = ++executor->next_call;
	executor->begun = type;
	wire_begin(message, type, id);
	return id;
}

int executor_send(struct executor *executor, struct wire_out *message, uint64_t id, const int *fds,
				  int fd_count, uint32_t deadline_ms, executor_done done, void *arg)
{
	struct executor_call *call = NULL;
	int status = wire_end(message);
	if (status == KILN_OK && executor->phase != EXECUTOR_READY)
		status = KILN_EDEVICE;
	if (status == KILN_OK &&
		(!(call = calloc(1, sizeof(*call))) || map_put_id(&executor->calls, id, call) < 0))
		status = KILN_ENOMEM;
	if (status == KILN_OK)
		status = child_send(executor->child, message, fds, fd_count);
	/* A process that is gone before the loop has heard of it. */
	if (status == KILN_ECONN)
		status = KILN_EDEVICE;
	wire_out_free(message);
	if (status != KILN_OK) {
		map_remove_id(&executor->calls, id);
		free(call);
		return status;
	}
	*call = (struct executor_call){.id = id,
								   .deadline_ms = deadline_ms,
								   .sent_us = util_now_us(),
								   .type = executor->begun,
								   .done = done,
								   .arg = arg,
								   .previous = executor->last};
	if (executor->last)
		executor->last->next = call;
	else
		executor->first = call;
	executor->last = call;
	executor->call_count++;
	executor->device->broker->counters.device_requests++;
	if (!is_awaited(call))
		return KILN_OK;
	pulse_begin(&executor->pulse, liveness_ms(executor));
	if (!uv_is_active((uv_handle_t *)&executor->clock))
		uv_timer_start(&executor->clock, on_clock, PAUSE_EXECUTOR_CLOCK_MS,
					   PAUSE_EXECUTOR_CLOCK_MS);
	return KILN_OK;
}

int executor_send_waiting(struct executor *executor, struct wire_out *message, uint64_t id,
						  executor_done done, void *arg)
{
	int status = executor_send(executor, message, id, NULL, 0, DEADLINE_QUIET_MS, done, arg);
	if (status == KILN_OK)
		executor->last->waits = true;
	return status;
}

void executor_post(struct executor *executor, struct wire_out *message, uint64_t id)
{
	executor_send(executor, message, id, NULL, 0, 0, NULL, NULL);
}

void executor_disown(struct executor *executor, void *arg)
{
	for (struct executor_call *call = executor->first; call; call = call->next)
		if (call->arg == arg)
			call->done = NULL;
	size_t cursor = 0;
	struct executor_module *module;
	while ((module = map_next(&executor->modules, &cursor)))
		for (struct module_wait *waiter = module->waiters; waiter; waiter = waiter->next)
			if (waiter->arg == arg)
				waiter->done = NULL;
}

int executor_take_fd(struct executor *executor)
{
	return executor->frame ? frame_take_fd(executor->frame, 0) : -1;
}

static void on_reply(struct executor *executor, struct wire_in *message, struct frame *frame)
{
	struct executor_call *call = map_get_id(&executor->calls, wire_id(message));
	int64_t status = wire_get_int(&message->root, "st", 1);
	if (!call || !kernel_status_is(status)) {
		child_condemn(executor->child, call ? "answered with a status that there is not"
											: "answered what it was not asked");
		return;
	}
	const char *error = wire_get_str(message, &message->root, "err");
	executor->progress_us = util_now_us();
	executor->device->broker->counters.device_answers++;
	unlink_call(executor, call);
	rest(executor);
	executor->frame = frame;
	if (call->done)
		call->done(call->arg, (int)status, error ? error : "the device process gave no reason",
				   message);
	executor->frame = NULL;
	free(call);
}

static void note_quiet(struct executor *executor, const msgpack_object *event)
{
	struct counters *counters = &executor->device->broker->counters;
	uint64_t done = wire_get_uint(event, "done", 0), held_us = wire_get_uint(event, "held", 0);
	executor->holds = wire_get_bool(event, "begun", false);
	counters->holds += executor->holds;
	*(held_us ? &counters->quiet_held : &counters->quiet_idle) += done;
	if (held_us > counters->worst_hold_us)
		counters->worst_hold_us = held_us;
}

static void note_fault(struct executor *executor, const msgpack_object *event, const char *error)
{
	snprintf(executor->fault, sizeof(executor->fault), "%s", error);
	if (wire_get_int(event, "st", KILN_EDEVICE) == KILN_ETIMEDOUT)
		executor->overran = wire_get_uint(event, "ticket", 0);
	child_expect_end(
		executor->child,
		broker_deadline(executor->device->broker->test.call_deadline_ms, DEADLINE_FAULT_END_MS) *
			executor_patience(executor));
}

static void on_event(struct executor *executor, struct wire_in *message)
{
	const char *what = wire_get_str(message, &message->root, "what");
	const char *error = wire_get_str(message, &message->root, "err");
	if (what && !strcmp(what, "fault") && error)
		note_fault(executor, &message->root, error);
	else if (what && !strcmp(what, "progress"))
		executor->progress_us = util_now_us();
	else if (what && !strcmp(what, "alive"))
		note_alive(executor, &message->root);
	else if (what && !strcmp(what, "quiet"))
		note_quiet(executor, &message->root);
	else if (what && !strcmp(what, "scratch"))
		executor->scratch_bytes = wire_get_uint(&message->root, "bytes", 0);
	else if (what && !strcmp(what, "used"))
		executor->device->broker->events->lane_used(
			executor->device->broker, executor, wire_get_uint(&message->root, "stream", 0),
			wire_get_uint(&message->root, "of", 0), wire_get_uint(&message->root, "call", 0),
			wire_get_uint(&message->root, "launches", 0));
	else if (what && !strcmp(what, "lane") && error)
		executor->device->broker->events->lane_broke(
			executor->device->broker, executor, wire_get_uint(&message->root, "stream", 0), error);
}

void executor_on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct executor *executor = owner;
	const char *type = wire_type(message);
	pulse_beat(&executor->pulse);
	if (!strcmp(type, "ready"))
		executor_on_started(executor, message);
	else if (!strcmp(type, "reply"))
		on_reply(executor, message, frame);
	else if (!strcmp(type, "event"))
		on_event(executor, message);
	else
		child_condemn(executor->child, "sent a message of a kind that there is not");
}

void executor_fail_calls(struct executor *executor, const char *why)
{
	uint64_t overran = executor->overran;
	struct executor_call *call;
	executor->overran = 0;
	executor->busy = false;
	uv_timer_stop(&executor->clock);
	pulse_end(&executor->pulse);
	while ((call = executor->first)) {
		int status = call->id == overran ? KILN_ETIMEDOUT : KILN_EDEVICE;
		executor->device->broker->counters.device_lost++;
		unlink_call(executor, call);
		if (call->done)
			call->done(call->arg, status, why, NULL);
		free(call);
	}
	map_free(&executor->calls);
}

/* ---- Modules ---- */

static void free_module(struct executor_module *module)
{
	while (module->waiters) {
		struct module_wait *next = module->waiters->next;
		free(module->waiters);
		module->waiters = next;
	}
	free(module->params);
	free(module);
}

static void keep_params(struct executor_module *module, const struct wire_in *reply)
{
	int64_t params[KERNEL_MAX_ARGS];
	int count = wire_get_ints(&reply->root, "params", params, KERNEL_MAX_ARGS);
	if (count < 0 || count > KERNEL_MAX_ARGS ||
		!(module->params = calloc((size_t)count + 1, sizeof(*params))))
		return;
	memcpy(module->params, params, (size_t)count * sizeof(*params));
	module->param_count = count;
}

void executor_put_params(struct executor *executor, const char *key, struct wire_out *out)
{
	const struct executor_module *module = map_get(&executor->modules, key, KERNEL_KEY_HEX - 1);
	if (module && module->params)
		wire_put_ints(out, "params", module->params, module->param_count);
}

static void on_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct executor_module *module = arg;
	struct module_wait *waiter;
	module->ready = status == KILN_OK;
	/* A load may have waited for long: for its waiters it is the newest, and none of them makes
	 * another load drop it. */
	module->used = ++module->executor->next_use;
	if (status == KILN_ECOMPILE)
		module->executor->device->broker->events->object_refused(module->executor->device->broker,
																 module->key, error);
	if (reply)
		keep_params(module, reply);
	while ((waiter = module->waiters)) {
		module->waiters = waiter->next;
		if (waiter->done)
			waiter->done(waiter->arg, status, error, reply);
		free(waiter);
	}
	if (status != KILN_OK) {
		map_remove(&module->executor->modules, module->key, KERNEL_KEY_HEX - 1);
		free_module(module);
	}
}

/* Of a process that is gone; those that were being loaded have ended with their calls. */
void executor_drop_modules(struct executor *executor)
{
	size_t cursor = 0;
	struct executor_module *module;
	while ((module = map_next(&executor->modules, &cursor)))
		free_module(module);
	map_free(&executor->modules);
}

uint64_t executor_module(struct executor *executor, const char *key)
{
	struct executor_module *module = map_get(&executor->modules, key, KERNEL_KEY_HEX - 1);
	if (!module || !module->ready)
		return 0;
	module->used = ++executor->next_use;
	return module->id;
}

/* The process keeps it until the launches that were sent before have ended. */
static void unload_oldest(struct executor *executor)
{
	struct executor_module *module, *oldest = NULL;
	struct wire_out message;
	size_t cursor = 0;
	while ((module = map_next(&executor->modules, &cursor)))
		if (module->ready && !module->kept && (!oldest || module->used < oldest->used))
			oldest = module;
	if (!oldest)
		return;
	uint64_t id = executor_begin(executor, &message, "unload");
	wire_put_uint(&message, "mod", oldest->id);
	executor_post(executor, &message, id);
	map_remove(&executor->modules, oldest->key, KERNEL_KEY_HEX - 1);
	free_module(oldest);
}

static int send_load(struct executor *executor, struct executor_module *module,
					 const struct cache_row *row, uint32_t shared_bytes, bool lazy)
{
	struct wire_out message;
	uint64_t id = executor_begin(executor, &message, "load");
	wire_put_uint(&message, "mod", module->id);
	wire_put_str(&message, "entry", row->entry);
	wire_put_uint(&message, "shared", shared_bytes);
	wire_put_bool(&message, "lazy", lazy);
	wire_put_bin(&message, "object", row->object, row->object_bytes);
	return executor_send_waiting(executor, &message, id, on_loaded, module);
}

static int load(struct executor *executor, const char *key, const struct cache_row *row,
				uint32_t shared_bytes, bool lazy, executor_done done, void *arg)
{
	struct executor_module *module = map_get(&executor->modules, key, KERNEL_KEY_HEX - 1);
	struct module_wait *waiter;
	if (executor->phase != EXECUTOR_READY)
		return KILN_EDEVICE;
	if (module && module->ready) {
		done(arg, KILN_OK, NULL, NULL);
		return KILN_OK;
	}
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return KILN_ENOMEM;
	*waiter = (struct module_wait){done, arg, util_now_us(), module ? module->waiters : NULL};
	if (module) {
		module->waiters = waiter;
		return KILN_OK;
	}
	if (executor->modules.count >= MODULES_MOST)
		unload_oldest(executor);
	module = calloc(1, sizeof(*module));
	if (!module || map_put(&executor->modules, key, KERNEL_KEY_HEX - 1, module) < 0) {
		free(module);
		free(waiter);
		return KILN_ENOMEM;
	}
	memcpy(module->key, key, KERNEL_KEY_HEX);
	module->id = broker_id(executor->device->broker);
	module->used = ++executor->next_use;
	module->executor = executor;
	module->waiters = waiter;
	int status = send_load(executor, module, row, shared_bytes, lazy);
	if (status != KILN_OK) {
		map_remove(&executor->modules, key, KERNEL_KEY_HEX - 1);
		free(waiter);
		free(module);
	}
	return status;
}

int executor_load(struct executor *executor, const char *key, const struct cache_row *row,
				  uint32_t shared_bytes, executor_done done, void *arg)
{
	return load(executor, key, row, shared_bytes, false, done, arg);
}

int executor_load_lazily(struct executor *executor, const char *key, const struct cache_row *row,
						 uint32_t shared_bytes, executor_done done, void *arg)
{
	return load(executor, key, row, shared_bytes, true, done, arg);
}

void executor_keep(struct executor *executor, const char *key)
{
	struct executor_module *module = map_get(&executor->modules, key, KERNEL_KEY_HEX - 1);
	if (module)
		module->kept = true;
}
