/*
 * handle.c: the life of a device process: start, ready, end, next start.  A process that ends is
 * started again at once the first time, and later the later the oftener it happens.
 */
#include "daemon/broker/devices/events.h"
#include "daemon/exec/exec.h"
#include "handle_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

#define START_TRIES 5

#define MESSAGE_MOST ((size_t)4 << 20) /* answers and sentences; what is read goes by memfd */

static void start(struct executor *executor);
static void end_process(struct executor *executor, const char *why);
static bool is_wrapped(const struct executor *executor)
{
	return executor->device->broker->options.executor_wrapper[0] != 0;
}

uint32_t executor_patience(const struct executor *executor)
{
	bool watched = is_wrapped(executor) || executor->device->broker->options.memcheck;
	return watched ? DEADLINE_WATCHED_TIMES : 1;
}

static void tell_waiters(struct executor *executor, int status, const char *error)
{
	struct executor_wait *waiter;
	while ((waiter = executor->waiters)) {
		executor->waiters = waiter->next;
		waiter->ready(waiter->arg, status, error);
		free(waiter);
	}
}

static void on_timer(uv_timer_t *timer);

/* Nobody is kept waiting for a device that may never come back: what is asked of it ends in this
 * sentence, until it is found when it is looked for again. */
static void say_lost(const struct executor *executor, char error[KERNEL_ERROR_MAX])
{
	const struct device_info *info = &executor->device->info;
	char when[64] = "it is being looked for";
	if (uv_is_active((const uv_handle_t *)&executor->timer) && executor->phase != EXECUTOR_STARTING)
		snprintf(when, sizeof(when), "it is looked for again in %llu ms",
				 (unsigned long long)uv_timer_get_due_in(&executor->timer));
	util_fail(error, KERNEL_ERROR_MAX, 0, "%s (%s%s%s) is lost, and %s: %s", info->name,
			  info->model, info->uuid[0] ? ", " : "", info->uuid, when, executor->reason);
}

/* A process that still has a context there keeps the driver from resetting the device. */
static void end_own(const struct executor *home)
{
	struct device_entry *device = home->device;
	for (struct executor *executor = device->executors; executor; executor = executor->next) {
		if (!executor->session || executor->uid != home->uid || executor->phase != EXECUTOR_READY)
			continue;
		util_fail(executor->fault, sizeof(executor->fault), 0, "%s is lost: %s", device->info.name,
				  home->reason);
		child_kill(executor->child);
	}
}

static void lose(struct executor *executor)
{
	char error[KERNEL_ERROR_MAX];
	uint32_t wait = executor->lost_ms ? executor->lost_ms * 2 : PAUSE_DEVICE_LOST_FIRST_MS;
	if (!executor->lost && !executor->session)
		end_own(executor);
	executor->lost = true;
	executor->lost_ms = wait < PAUSE_DEVICE_LOST_LAST_MS ? wait : PAUSE_DEVICE_LOST_LAST_MS;
	uv_timer_start(&executor->timer, on_timer, executor->lost_ms, 0);
	device_is_away(executor->device, DEVICE_LOST, executor->reason);
	say_lost(executor, error);
	tell_waiters(executor, KILN_EDEVICE, error);
}

static void give_up(struct executor *executor, int status, const char *reason)
{
	executor->phase = EXECUTOR_STOPPED;
	executor->ended_us = util_now_us();
	snprintf(executor->reason, sizeof(executor->reason), "%s", reason);
	if (executor->generation || executor->device->state == DEVICE_LOST) {
		lose(executor);
		return;
	}
	if (executor->device->state != DEVICE_PRESENT)
		device_is_away(executor->device, DEVICE_ABSENT, reason);
	tell_waiters(executor, status, reason);
}

/* The device is there, or another one is: those that wait for it look at once, and those that have
 * contexts on one that is no more, or is another's now, are ended. */
static void tell_others(struct executor *found, bool another)
{
	struct device_entry *device = found->device;
	for (struct executor *executor = device->executors; executor; executor = executor->next) {
		if (executor->lost && executor->phase == EXECUTOR_STOPPED)
			uv_timer_start(&executor->timer, on_timer, 0, 0);
		if (!another || executor == found || executor->phase != EXECUTOR_READY)
			continue;
		util_fail(executor->fault, sizeof(executor->fault), 0,
				  "%s is another one than before: it was %s; its device process was ended",
				  device->info.name, device->was);
		child_kill(executor->child);
	}
}

void executor_on_started(struct executor *executor, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	int64_t status = wire_get_int(root, "st", KILN_EPROTO);
	struct device_info info = {0};
	int64_t grid[3] = {0};
	/* What a process says of its device counts before it has run anything of anybody's. */
	if (executor->phase != EXECUTOR_STARTING)
		return;
	if (status != KILN_OK) {
		const char *error = wire_get_str(message, root, "err");
		snprintf(executor->fault, sizeof(executor->fault), "%s",
				 error ? error : "the device process could not open it");
		executor->failed_starts = START_TRIES; /* the device said no: asking again is of no use */
		return;
	}
	const char *model = wire_get_str(message, root, "model");
	const char *uuid = wire_get_str(message, root, "uuid");
	const char *target = wire_get_str(message, root, "target");
	const char *sandbox = wire_get_str(message, root, "sandbox");
	struct kernel_limits *limits = &info.limits;
	memcpy(info.name, executor->device->info.name, sizeof(info.name));
	snprintf(info.model, sizeof(info.model), "%s", model ? model : "");
	snprintf(info.uuid, sizeof(info.uuid), "%s", uuid ? uuid : "");
	snprintf(limits->target, sizeof(limits->target), "%s", target ? target : "");
	info.memory_bytes = wire_get_uint(root, "memory", 0);
	info.device_count = (int)wire_get_int(root, "devices", 1);
	limits->max_threads = (uint32_t)wire_get_uint(root, "max_threads", 1024);
	limits->shared_default = (uint32_t)wire_get_uint(root, "shared_default", 49152);
	limits->shared_optin = (uint32_t)wire_get_uint(root, "shared_optin", 49152);
	limits->multiprocessors = (uint32_t)wire_get_uint(root, "mps", 1);
	limits->warp = (uint32_t)wire_get_uint(root, "warp", 32);
	wire_get_ints(root, "grid", grid, 3);
	limits->grid_x = (uint32_t)grid[0];
	limits->grid_y = (uint32_t)grid[1];
	limits->grid_z = (uint32_t)grid[2];

	snprintf(executor->sandbox, sizeof(executor->sandbox), "%s", sandbox ? sandbox : "");
	uv_timer_stop(&executor->timer);
	executor->phase = EXECUTOR_READY;
	executor->generation++;
	executor->failed_starts = 0;
	executor->fault[0] = 0;
	executor->overran = 0;
	executor->ready_us = util_now_us();
	executor->lost = false;
	executor->lost_ms = 0;
	/* A lost device is there again when those that hold memory there are: the others follow. */
	bool follows = executor->session && executor->device->state == DEVICE_LOST;
	tell_others(executor, !follows && device_is_present(executor->device, &info));
	tell_waiters(executor, KILN_OK, NULL);
	executor->device->broker->events->device_changed(executor->device->broker, executor);
}

static unsigned start_deadline_ms(const struct executor *executor)
{
	return (unsigned)broker_deadline(executor->device->broker->test.start_deadline_ms,
									 DEADLINE_EXECUTOR_START_MS) *
		   executor_patience(executor);
}

static void on_alive(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct executor *executor = arg;
	(void)status, (void)error, (void)reply;
	executor->asked = false;
}

/* Calls have deadlines of their own; what goes through lanes has the device process's, which passes
 * only where that gets on. */
static void look(struct executor *executor)
{
	struct broker *broker = executor->device->broker;
	bool under_way;
	if (!broker->events->device_lanes(broker, executor, &under_way)) {
		uv_timer_stop(&executor->timer);
	} else if (under_way && !executor->asked) {
		struct wire_out message;
		uint64_t id = executor_begin(executor, &message, "ping");
		executor->asked = executor_send(executor, &message, id, NULL, 0,
										(uint32_t)broker->options.launch_timeout_ms, on_alive,
										executor) == KILN_OK;
	}
}

void executor_look_after(struct executor *executor)
{
	uint64_t pause_ms = executor->device->broker->options.launch_timeout_ms / 4 + 1;
	if (pause_ms > PAUSE_EXECUTOR_LOOK_MS)
		pause_ms = PAUSE_EXECUTOR_LOOK_MS;
	if (executor->phase == EXECUTOR_READY && !uv_is_active((uv_handle_t *)&executor->timer))
		uv_timer_start(&executor->timer, on_timer, pause_ms, pause_ms);
}

/* As if it had never been started. */
static void on_idle(uv_timer_t *timer)
{
	struct executor *executor = timer->data;
	const struct broker *broker = executor->device->broker;
	if (executor->phase != EXECUTOR_READY || broker->events->device_used(broker, executor) ||
		executor->waiters)
		return;
	util_log(UTIL_INFO, "%s: the device process of uid %u is ended: nobody uses it",
			 executor->device->info.name, (unsigned)executor->uid);
	uv_timer_stop(&executor->timer);
	end_process(executor, "nobody uses it");
	executor->ended_us = 0;
	executor->failed_starts = 0;
}

void executor_left(struct executor *executor)
{
	const struct broker *broker = executor->device->broker;
	if (!executor->session && executor->uid != getuid() &&
		!broker->events->device_used(broker, executor))
		uv_timer_start(&executor->idle, on_idle,
					   broker_deadline(broker->test.idle_executor_ms, DEADLINE_EXECUTOR_IDLE_MS),
					   0);
}

static void on_timer(uv_timer_t *timer)
{
	struct executor *executor = timer->data;
	if (executor->phase == EXECUTOR_READY) {
		look(executor);
	} else if (executor->phase == EXECUTOR_WAITING) {
		start(executor);
	} else if (executor->phase == EXECUTOR_STOPPED) {
		if (executor->session && executor->device->state == DEVICE_LOST)
			return; /* until it is found: tell_others() */
		executor->failed_starts = 0;
		executor->restarts++;
		start(executor);
	} else if (executor->child) {
		util_fail(executor->fault, sizeof(executor->fault), 0,
				  "the device process of %s was not ready after %u ms", executor->device->info.name,
				  start_deadline_ms(executor));
		child_kill(executor->child);
	}
}

static void start_again(struct executor *executor)
{
	uint32_t longest = executor->device->broker->test.restart_pause_ms;
	uint64_t now = util_now_us();
	if (!longest)
		longest = PAUSE_EXECUTOR_START_LAST_MS;
	if (executor->ready_us && now - executor->ready_us > PAUSE_EXECUTOR_FORGIVEN_US)
		executor->backoff_ms = 0;
	executor->restarts++;
	executor->phase = EXECUTOR_WAITING;
	executor->phase_us = now;
	/* Its owner has only itself to wait for. */
	if (executor->session && !executor->failed_starts)
		executor->backoff_ms = 0;
	uv_timer_start(&executor->timer, on_timer, executor->backoff_ms, 0);
	executor->backoff_ms =
		executor->backoff_ms ? executor->backoff_ms * 2 : PAUSE_EXECUTOR_START_FIRST_MS;
	if (executor->backoff_ms > longest)
		executor->backoff_ms = longest;
}

/* A device that is not there, or is there no more, is none; nor is the end of a process that never
 * was ready, unless it is an odd one. */
static bool is_fault(const struct executor *executor, int exit_status, int signal)
{
	return executor->phase == EXECUTOR_READY || signal || exit_status != EXEC_EXIT_NO_DEVICE ||
		   executor->device->state == DEVICE_PRESENT;
}

static void report(struct executor *executor, int exit_status, int signal, char *sentence,
				   size_t size)
{
	char output[OUTPUT_TAIL];
	executor_output(executor, output);
	const struct fault fault = {.kind = FAULT_DEVICE,
								.sentence = sentence,
								.executor = executor,
								.output = output,
								.pid = child_pid(executor->child),
								.exit_status = exit_status,
								.signal = signal,
								.uid = executor->uid,
								.session = executor->session};
	if (is_fault(executor, exit_status, signal))
		fault_report(executor->device->broker, &fault, sentence, size);
}

static void on_gone(void *owner, int exit_status, int signal, const char *why)
{
	struct executor *executor = owner;
	struct broker *broker = executor->device->broker;
	const char *name = executor->device->info.name;
	char sentence[KERNEL_ERROR_MAX + 96];
	bool was_ready = executor->phase == EXECUTOR_READY;
	uv_timer_stop(&executor->timer);
	if (executor->fault[0])
		snprintf(sentence, sizeof(sentence), "%s", executor->fault);
	else
		util_fail(sentence, KERNEL_ERROR_MAX, 0, "the device process of %s %s", name, why);
	report(executor, exit_status, signal, sentence, sizeof(sentence));
	executor->child = NULL;
	executor->holds = false;
	executor->scratch_bytes = 0;
	/* The next one is not to be in such a hurry. */
	broker->test.call_deadline_ms = 0;
	if (was_ready)
		broker->counters.executor_faults++;
	else
		executor->failed_starts++;
	/* A device that is given up is logged as such, below. */
	if (was_ready || executor->failed_starts < START_TRIES)
		util_log(UTIL_WARN, "%s: %s", name, sentence);

	/* Restart first: those told of the end may ask for more at once. */
	if (executor->failed_starts >= START_TRIES)
		give_up(executor, KILN_ENOTSUP, sentence);
	else
		start_again(executor);
	broker->events->device_lost(broker, executor, sentence);
	executor_fail_calls(executor, sentence);
	executor_drop_modules(executor);
	executor->fault[0] = 0;
	/* What could not be sent because the process was ending already waits for the next, too. */
	broker->events->device_changed(broker, executor);
	broker_progress(broker);
}

static void start(struct executor *executor)
{
	static const struct child_events events = {executor_on_message, on_gone};
	static const char *const orders[] = {"--thread-order=natural", "--thread-order=reversed",
										 "--thread-order=shuffled"};
	char device[40], patience[40], alive[48], misdeed[40], error[KERNEL_ERROR_MAX];
	struct broker *broker = executor->device->broker;
	const struct options *options = &broker->options;
	const char *arguments[11] = {"--role=executor", device, patience, alive,
								 options_sandbox(options->sandbox)};
	/* A vendor's driver and tools read variables that nobody can list. */
	struct child_program program = {.arguments = arguments,
									.wrapper = options->executor_wrapper,
									.spare_environment =
										device_is_cpu(executor->device) && !is_wrapped(executor),
									.message_most = MESSAGE_MOST};
	int count = 5;
	options_liveness(options, alive);
	snprintf(device, sizeof(device), "--device-name=%s", executor->device->info.name);
	snprintf(patience, sizeof(patience), "--quiet-patience=%llu",
			 (unsigned long long)options->quiet_patience_ms);
	if (is_wrapped(executor))
		arguments[count++] = "--wrapped";
	if (broker->events->start_misdeed(broker, false, misdeed))
		arguments[count++] = misdeed;
	if (executor->session)
		arguments[count++] = "--own";
	if (options->memcheck) {
		arguments[count++] = "--memcheck";
		arguments[count++] = orders[options->thread_order];
	}
	program.trail = executor_trail_open(executor);
	executor->child = child_start(&broker->loop, &program, &events, executor, error, sizeof(error));
	if (program.trail >= 0)
		close(program.trail);
	if (executor->child) {
		executor->phase = EXECUTOR_STARTING;
		executor->phase_us = util_now_us();
		uv_timer_start(&executor->timer, on_timer, start_deadline_ms(executor), 0);
	} else if (++executor->failed_starts >= START_TRIES) {
		give_up(executor, KILN_EIO, error);
	} else {
		start_again(executor);
	}
}

/* It works, and is stopped, or in a state that the system does not let it out of. */
static void on_lost(void *owner)
{
	struct executor *executor = owner;
	/* Why it is ending already says more. */
	if (executor->fault[0])
		return;
	util_fail(executor->fault, sizeof(executor->fault), 0,
			  "the device process of %s gave no sign of life for %llu ms (--liveness-timeout) and "
			  "was ended",
			  executor->device->info.name, (unsigned long long)executor->pulse.deadline_ms);
	if (executor->child)
		child_kill(executor->child);
}

static struct executor *executor_new(struct device_entry *device, uint32_t uid, uint64_t session)
{
	struct executor **link = &device->executors;
	struct executor *executor = calloc(1, sizeof(*executor));
	if (!executor)
		return NULL;
	executor->device = device;
	executor->uid = uid;
	executor->session = session;
	executor->timer.data = executor;
	executor->clock.data = executor;
	uv_timer_init(&device->broker->loop, &executor->timer);
	uv_timer_init(&device->broker->loop, &executor->clock);
	uv_timer_init(&device->broker->loop, &executor->idle);
	executor->idle.data = executor;
	pulse_open(&executor->pulse, &device->broker->loop, on_lost, executor);
	while (*link)
		link = &(*link)->next;
	*link = executor;
	start(executor);
	return executor;
}

struct executor *executor_for(struct device_entry *device, uint32_t uid)
{
	for (struct executor *executor = device->executors; executor; executor = executor->next)
		if (executor->uid == uid && !executor->session)
			return executor;
	return executor_new(device, uid, 0);
}

struct executor *executor_own(struct device_entry *device, uint32_t uid, uint64_t session)
{
	return executor_new(device, uid, session);
}

int executor_own_count(const struct broker *broker, uint32_t uid)
{
	int count = 0;
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct executor *executor = device->executors; executor; executor = executor->next)
			count += executor->session && executor->uid == uid;
	return count;
}

void executor_when_ready(struct executor *executor, executor_ready ready, void *arg)
{
	if (executor->phase == EXECUTOR_READY) {
		ready(arg, KILN_OK, NULL);
		return;
	}
	if (executor->lost) {
		char error[KERNEL_ERROR_MAX];
		say_lost(executor, error);
		ready(arg, KILN_EDEVICE, error);
		return;
	}
	/* A device that was not there is looked for again, but not for every request. */
	if (executor->phase == EXECUTOR_STOPPED) {
		if (util_now_us() - executor->ended_us < PAUSE_DEVICE_ABSENT_US) {
			ready(arg, KILN_ENOTSUP, executor->reason);
			return;
		}
		executor->failed_starts = 0;
		start(executor);
	}
	struct executor_wait *waiter = calloc(1, sizeof(*waiter));
	if (!waiter) {
		ready(arg, KILN_ENOMEM, "out of memory");
		return;
	}
	*waiter = (struct executor_wait){ready, arg, util_now_us(), NULL};
	struct executor_wait **link = &executor->waiters;
	while (*link)
		link = &(*link)->next;
	*link = waiter;
}

void executor_forget(struct executor *executor, void *arg)
{
	struct executor_wait **link = &executor->waiters;
	while (*link) {
		struct executor_wait *waiter = *link;
		if (waiter->arg == arg) {
			*link = waiter->next;
			free(waiter);
		} else {
			link = &waiter->next;
		}
	}
}

bool executor_is_ready(const struct executor *executor)
{
	return executor->phase == EXECUTOR_READY;
}

uint64_t executor_generation(const struct executor *executor)
{
	return executor->generation;
}

bool executor_is_own(const struct executor *executor)
{
	return executor->session != 0;
}

void executor_output(const struct executor *executor, char tail[OUTPUT_TAIL])
{
	tail[0] = 0;
	if (executor->child)
		child_tail(executor->child, tail);
}

struct device_entry *executor_device(const struct executor *executor)
{
	return executor->device;
}

/* It is not told of as one that died. */
static void end_process(struct executor *executor, const char *why)
{
	/* What watches it has something to write at its end. */
	if (executor->child && is_wrapped(executor))
		child_dismiss(executor->child, DEADLINE_WRAPPED_END_MS);
	else if (executor->child)
		child_abandon(executor->child);
	executor->child = NULL;
	executor->holds = false;
	executor->scratch_bytes = 0;
	executor->phase = EXECUTOR_STOPPED;
	executor_fail_calls(executor, why);
	executor_drop_modules(executor);
	executor_trail_close(executor);
}

static void stop(struct executor *executor, uv_close_cb closed, const char *why)
{
	uv_timer_stop(&executor->timer);
	uv_timer_stop(&executor->clock);
	uv_close((uv_handle_t *)&executor->timer, closed);
	uv_close((uv_handle_t *)&executor->clock, closed);
	uv_close((uv_handle_t *)&executor->idle, closed);
	executor->pulse.timer.data = executor;
	pulse_close(&executor->pulse, closed);
	end_process(executor, why);
}

void executor_stop(struct executor *executor)
{
	stop(executor, NULL, "kilnd is stopping");
}

static void on_closed(uv_handle_t *handle)
{
	struct executor *executor = handle->data;
	if (--executor->open_handles == 0)
		executor_free(executor);
}

void executor_end(struct executor *executor)
{
	struct executor **link = &executor->device->executors;
	while (*link != executor)
		link = &(*link)->next;
	*link = executor->next;
	executor->open_handles = 4;
	stop(executor, on_closed, "its session has ended");
	executor->device->broker->events->device_closed(executor->device->broker, executor);
}

void executor_free(struct executor *executor)
{
	while (executor->waiters) {
		struct executor_wait *next = executor->waiters->next;
		free(executor->waiters);
		executor->waiters = next;
	}
	free(executor);
}
