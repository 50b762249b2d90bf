/*
 * handle_process.c: the device process of a handle, in the states of handle_state.h: it is started,
 * says that it is ready, is looked after, and ends.  One that ends by itself is started again, at
 * once the first time, and after a longer pause each further time.  Devices that are lost are the
 * matter of handle_lost.c.
 */
#include "daemon/broker/devices/events.h"
#include "daemon/exec/exec.h"
#include "handle_state.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

#define START_TRIES 5

#define MESSAGE_MOST ((size_t)4 << 20) /* answers and sentences; what is read goes by memfd */

static void handle_assert_valid(const struct device_handle *handle)
{
	bool has_child = handle->state == HANDLE_STARTING || handle->state == HANDLE_READY;
	assert(has_child == (handle->child != NULL));
	assert(handle->state == HANDLE_READY || !handle->call_count);
	(void)handle, (void)has_child;
}

static bool is_wrapped(const struct device_handle *handle)
{
	return handle->device->broker->options.executor_wrapper[0] != 0;
}

uint32_t handle_patience(const struct device_handle *handle)
{
	bool watched = is_wrapped(handle) || handle->device->broker->options.memcheck;
	return watched ? DEADLINE_WATCHED_TIMES : 1;
}

/* ---- It ends ---- */

static void handle_give_up(struct device_handle *handle, int status, const char *reason)
{
	handle->state = HANDLE_STOPPED;
	handle->ended_us = util_now_us();
	snprintf(handle->reason, sizeof(handle->reason), "%.*s", KERNEL_ERROR_MAX - 1, reason);
	if (handle->generation || handle->device->state == DEVICE_LOST) {
		char error[KERNEL_ERROR_MAX];
		handle_lose(handle);
		handle_say_lost(handle, error);
		handle_tell_waiters(handle, KILN_EDEVICE, error);
		return;
	}
	if (handle->device->state != DEVICE_PRESENT)
		device_is_away(handle->device, DEVICE_ABSENT, reason);
	handle_tell_waiters(handle, status, reason);
}

static void start_again(struct device_handle *handle)
{
	uint32_t longest = handle->device->broker->test.restart_pause_ms;
	uint64_t now = util_now_us();
	if (!longest)
		longest = PAUSE_EXECUTOR_START_LAST_MS;
	if (handle->ready_us && now - handle->ready_us > PAUSE_EXECUTOR_FORGIVEN_US)
		handle->backoff_ms = 0;
	handle->state = HANDLE_WAITING;
	handle->state_us = now;
	/* The process of one session alone makes no other session wait. */
	if (handle->session && !handle->failed_starts)
		handle->backoff_ms = 0;
	uv_timer_start(&handle->timer, handle_on_timer, handle->backoff_ms, 0);
	handle->backoff_ms =
		handle->backoff_ms ? handle->backoff_ms * 2 : PAUSE_EXECUTOR_START_FIRST_MS;
	if (handle->backoff_ms > longest)
		handle->backoff_ms = longest;
}

static void handle_report(struct device_handle *handle, int exit_status, int signal, char *sentence,
						  size_t size)
{
	char output[OUTPUT_TAIL];
	/* A process that finds no device, where none was, is no fault; nor is one that finds another
	 * entry's. */
	if (handle->state != HANDLE_READY && handle->failed_starts >= START_TRIES &&
		handle->device->state != DEVICE_PRESENT)
		return;
	child_tail(handle->child, output);
	const struct fault fault = {.kind = FAULT_DEVICE,
								.sentence = sentence,
								.handle = handle,
								.output = output,
								.pid = child_pid(handle->child),
								.exit_status = exit_status,
								.signal = signal,
								.uid = handle->uid,
								.session = handle->session};
	handle->device->broker->events->fault(handle->device->broker, &fault, sentence, size);
}

static void on_handle_gone(void *owner, int exit_status, int signal, const char *why)
{
	struct device_handle *handle = owner;
	struct broker *broker = handle->device->broker;
	const char *name = handle->device->info.name;
	char sentence[KERNEL_ERROR_MAX + 96];
	bool was_ready = handle->state == HANDLE_READY;
	uv_timer_stop(&handle->timer);
	if (handle->fault[0])
		snprintf(sentence, sizeof(sentence), "%s", handle->fault);
	else
		util_fail(sentence, KERNEL_ERROR_MAX, 0, "the device process of %s %s", name, why);
	handle_report(handle, exit_status, signal, sentence, sizeof(sentence));
	handle->child = NULL;
	handle->holds = false;
	handle->scratch_bytes = 0;
	/* A test's deadline is for the process that has ended. */
	broker->test.call_deadline_ms = 0;
	if (was_ready)
		broker->counters.executor_faults++;
	else
		handle->failed_starts++;
	/* handle_give_up() logs the last failed start. */
	if (was_ready || handle->failed_starts < START_TRIES)
		util_log(UTIL_WARN, "%s: %s", name, sentence);

	/* Restarts first, for callbacks may ask for more at once. */
	if (handle->failed_starts >= START_TRIES) {
		handle_give_up(handle, KILN_ENOTSUP, sentence);
	} else {
		handle->restarts++;
		start_again(handle);
	}
	broker->events->device_lost(broker, handle, sentence);
	handle_fail_calls(handle, sentence);
	handle_drop_modules(handle);
	handle->fault[0] = 0;
	handle_assert_valid(handle);
	/* Work that could not be sent to the ending process waits for the next one, too. */
	broker->events->device_changed(broker, handle);
	broker_progress(broker);
}

void handle_end_process(struct device_handle *handle, const char *why)
{
	/* A wrapper, such as a profiler, writes its results at the end. */
	if (handle->child && is_wrapped(handle))
		child_dismiss(handle->child, DEADLINE_WRAPPED_END_MS);
	else if (handle->child)
		child_abandon(handle->child);
	handle->child = NULL;
	handle->holds = false;
	handle->scratch_bytes = 0;
	handle->state = HANDLE_STOPPED;
	handle_fail_calls(handle, why);
	handle_drop_modules(handle);
	handle_trail_close(handle);
}

/* ---- It starts ---- */

static unsigned start_deadline_ms(const struct device_handle *handle)
{
	return (unsigned)broker_deadline(handle->device->broker->test.start_deadline_ms,
									 DEADLINE_EXECUTOR_START_MS) *
		   handle_patience(handle);
}

void handle_start(struct device_handle *handle)
{
	static const struct child_events events = {handle_on_message, on_handle_gone};
	static const char *const orders[] = {"--memcheck=natural", "--memcheck=reversed",
										 "--memcheck=shuffled"};
	char device[16 + 2 * DEVICE_UUID_TEXT], patience[40], launchers[40], alive[48], misdeed[40],
		error[KERNEL_ERROR_MAX];
	struct broker *broker = handle->device->broker;
	const struct options *options = &broker->options;
	const struct device_info *info = &handle->device->info;
	const char *arguments[12] = {"--role=executor", device, patience,
								 launchers,         alive,  options_sandbox(options->sandbox)};
	/* A vendor's driver and tools read variables that nobody can list. */
	struct child_program program = {.arguments = arguments,
									.wrapper = options->executor_wrapper,
									.spare_environment =
										device_is_cpu(handle->device) && !is_wrapped(handle),
									.message_most = MESSAGE_MOST};
	int count = 6;
	options_liveness(options, alive);
	/* A GPU keeps its name also when another one goes away, and the driver counts anew. */
	snprintf(device, sizeof(device), "--device-name=%s%s%s", info->name, info->uuid[0] ? "/" : "",
			 info->uuid);
	snprintf(patience, sizeof(patience), "--quiet-patience=%llu",
			 (unsigned long long)options->quiet_patience_ms);
	snprintf(launchers, sizeof(launchers), "--launchers=%llu",
			 (unsigned long long)options->launchers);
	if (is_wrapped(handle))
		arguments[count++] = "--wrapped";
	if (broker->events->start_misdeed(broker, false, misdeed))
		arguments[count++] = misdeed;
	if (handle->session)
		arguments[count++] = "--own";
	if (options->memcheck)
		arguments[count++] = orders[options->thread_order];
	program.trail = handle_trail_open(handle);
	handle->child = child_start(&broker->loop, &program, &events, handle, error, sizeof(error));
	if (program.trail >= 0)
		close(program.trail);
	if (handle->child) {
		handle->state = HANDLE_STARTING;
		handle->state_us = util_now_us();
		uv_timer_start(&handle->timer, handle_on_timer, start_deadline_ms(handle), 0);
	} else if (++handle->failed_starts >= START_TRIES) {
		handle_give_up(handle, KILN_EIO, error);
	} else {
		start_again(handle); /* no process has begun: it is no restart of one */
	}
	handle_assert_valid(handle);
}

void handle_on_started(struct device_handle *handle, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	int64_t status = wire_get_int(root, "st", KILN_EPROTO);
	struct device_info info;
	/* The broker believes what the process says of its device: it has run no kernel yet. */
	if (handle->state != HANDLE_STARTING)
		return;
	if (status != KILN_OK) {
		const char *error = wire_get_str(message, root, "err");
		snprintf(handle->fault, sizeof(handle->fault), "%s",
				 error ? error : "the device process could not open it");
		handle->failed_starts = START_TRIES; /* the device said no: asking again is of no use */
		return;
	}
	const char *sandbox = wire_get_str(message, root, "sandbox");
	device_read_info(message, root, &info);
	if (!device_may_be(handle->device, &info, handle->fault, sizeof(handle->fault))) {
		handle->failed_starts = START_TRIES;
		child_kill(handle->child);
		return;
	}
	snprintf(handle->sandbox, sizeof(handle->sandbox), "%s", sandbox ? sandbox : "");
	handle->launchers = (int)wire_get_int(root, "launchers", 1);
	uv_timer_stop(&handle->timer);
	handle->state = HANDLE_READY;
	handle->generation++;
	handle_assert_valid(handle);
	handle->failed_starts = 0;
	handle->fault[0] = 0;
	handle->overran = 0;
	handle->ready_us = util_now_us();
	handle->lost = false;
	handle->lost_ms = 0;
	/* The processes that sessions share find a lost device; a session's own follows them. */
	bool follows = handle->session && handle->device->state == DEVICE_LOST;
	handle_tell_others(handle, !follows && device_is_present(handle->device, &info));
	devices_seen(handle->device->broker, message);
	handle_tell_waiters(handle, KILN_OK, NULL);
	handle->device->broker->events->device_changed(handle->device->broker, handle);
}

/* ---- It is looked after ---- */

static void on_alive(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct device_handle *handle = arg;
	(void)status, (void)error, (void)reply;
	handle->asked = false;
}

/* Launches in lanes have their deadlines in the device process.  The ping has one here, for a
 * process that stands still misses its own. */
static void handle_look(struct device_handle *handle)
{
	struct broker *broker = handle->device->broker;
	bool under_way;
	if (!broker->events->device_lanes(broker, handle, &under_way)) {
		uv_timer_stop(&handle->timer);
	} else if (under_way && !handle->asked) {
		struct wire_out message;
		uint64_t id = handle_begin(handle, &message, "ping");
		handle->asked =
			handle_send(handle, &message, id, NULL, 0, (uint32_t)broker->options.launch_timeout_ms,
						on_alive, handle) == KILN_OK;
	}
}

void handle_look_after(struct device_handle *handle)
{
	uint64_t pause_ms = handle->device->broker->options.launch_timeout_ms / 4 + 1;
	if (pause_ms > PAUSE_EXECUTOR_LOOK_MS)
		pause_ms = PAUSE_EXECUTOR_LOOK_MS;
	if (handle->state == HANDLE_READY && !uv_is_active((uv_handle_t *)&handle->timer))
		uv_timer_start(&handle->timer, handle_on_timer, pause_ms, pause_ms);
}

void handle_on_lifeless(void *owner)
{
	struct device_handle *handle = owner;
	/* A fault that was told before says more. */
	if (handle->fault[0])
		return;
	util_fail(handle->fault, sizeof(handle->fault), 0,
			  "the device process of %s gave no sign of life for %llu ms and "
			  "was ended",
			  handle->device->info.name, (unsigned long long)handle->pulse.deadline_ms);
	if (handle->child)
		child_kill(handle->child);
}

void handle_on_timer(uv_timer_t *timer)
{
	struct device_handle *handle = timer->data;
	if (handle->state == HANDLE_READY) {
		handle_look(handle);
	} else if (handle->state == HANDLE_WAITING) {
		handle_start(handle);
	} else if (handle->state == HANDLE_STOPPED) {
		if (handle->session && handle->device->state == DEVICE_LOST)
			return; /* handle_tell_others() starts it once the device is found */
		handle->failed_starts = 0;
		handle->restarts++;
		handle_start(handle);
	} else if (handle->child) {
		util_fail(handle->fault, sizeof(handle->fault), 0,
				  "the device process of %s was not ready after %u ms", handle->device->info.name,
				  start_deadline_ms(handle));
		child_kill(handle->child);
	}
}
