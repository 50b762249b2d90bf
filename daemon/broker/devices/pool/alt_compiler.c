/* alt_compiler.c: one worker process, started when it is needed. */
#include "alt_compiler.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/child.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/pulse.h"
#include "daemon/base/util.h"

enum second_state { SECOND_NONE, SECOND_STARTING, SECOND_IDLE, SECOND_BUSY };

struct second {
	struct broker *broker;
	char path[PATH_MAX];
	bool is_nvrtc;
	enum second_state state;
	struct child *child;
	struct compile_toolchain toolchain;
	char toolchain_stamp[256]; /* a later process is told who it is, as the pool's are */
	uv_timer_t timer;          /* STARTING, BUSY: deadline; NONE: an answer that may not come now */
	struct pulse pulse;
	int open_handles; /* while it is being closed */
	bool overran, lifeless, taken;
	char why[KERNEL_ERROR_MAX]; /* it could not be started */
	uint64_t job_id, jobs_done; /* jobs_done: of the process */
	const struct compile_job *job;
	second_known known;
	pool_done done;
	void *arg;
};

/* ---- Answers: what is asked is forgotten before, so that the next may be asked ---- */

static void tell_known(struct second *second, const char *error)
{
	second_known known = second->known;
	void *arg = second->arg;
	second->known = NULL;
	if (known)
		known(arg, &second->toolchain, error);
}

static void tell_done(struct second *second, struct compile_result *result)
{
	pool_done done = second->done;
	void *arg = second->arg;
	second->done = NULL;
	second->job = NULL;
	if (done)
		done(arg, result);
}

static void tell_failed(struct second *second, int status, const char *error)
{
	struct compile_result result = {.status = status,
									.registers = -1,
									.shared_bytes = -1,
									.spill_bytes = -1,
									.local_bytes = -1};
	snprintf(result.error, sizeof(result.error), "%s", error);
	tell_done(second, &result);
	compile_result_free(&result);
}

/* ---- The process ---- */

static void stop_timer(struct second *second)
{
	uv_timer_stop(&second->timer);
	pulse_end(&second->pulse);
}

static void dismiss(struct second *second)
{
	stop_timer(second);
	if (second->child && second->state == SECOND_IDLE)
		child_dismiss(second->child, DEADLINE_WORKER_DISMISS_MS);
	else if (second->child)
		child_abandon(second->child);
	second->child = NULL;
	second->state = SECOND_NONE;
}

static void on_ready(struct second *second, struct wire_in *message)
{
	struct compile_toolchains all = {0};
	char error[KERNEL_ERROR_MAX];
	if (second->state != SECOND_STARTING || compile_ready_read(message, &all) != KILN_OK) {
		child_kill(second->child);
		return;
	}
	stop_timer(second);
	second->state = SECOND_IDLE;
	second->toolchain = second->is_nvrtc ? all.nvrtc : all.host;
	if (second->toolchain.id[0]) {
		snprintf(second->toolchain_stamp, sizeof(second->toolchain_stamp), "%s=%s:%s",
				 second->is_nvrtc ? COMPILE_NVRTC_ID : COMPILE_CXX_ID, second->toolchain.stamp,
				 second->toolchain.id);
		tell_known(second, NULL);
		return;
	}
	util_fail(error, sizeof(error), 0, "%.80s cannot be used as a compiler: %.200s", second->path,
			  second->toolchain.reason);
	dismiss(second);
	tell_known(second, error);
}

static void on_result(struct second *second, struct wire_in *message)
{
	struct compile_result result = {.status = KILN_OK};
	uint64_t id;
	bool again;
	if (compile_result_read(message, &id, &result) != KILN_OK || second->state != SECOND_BUSY ||
		id != second->job_id) {
		compile_result_free(&result);
		child_kill(second->child);
		return;
	}
	stop_timer(second);
	second->state = SECOND_IDLE;
	/* As in the pool: whatever a user's source or lost memory left behind goes with the process. */
	again = !second->job->user_files && result.status != KILN_ENOMEM &&
			++second->jobs_done < second->broker->options.worker_jobs;
	if (!again)
		dismiss(second);
	tell_done(second, &result);
	compile_result_free(&result);
}

static void on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct second *second = owner;
	(void)frame;
	pulse_beat(&second->pulse);
	if (!strcmp(wire_type(message), "ready"))
		on_ready(owner, message);
	else if (strcmp(wire_type(message), "alive") != 0)
		on_result(owner, message);
}

/* Of one that had a job. */
static void report(struct second *second, int exit_status, int signal, const char *why)
{
	char text[KERNEL_ERROR_MAX + 96], output[OUTPUT_TAIL];
	util_fail(text, KERNEL_ERROR_MAX, 0, "the compiler %.160s %s%s", second->path, why,
			  second->overran ? " (it had passed its deadline)" : "");
	child_tail(second->child, output);
	const struct fault fault = {.kind = FAULT_COMPILER,
								.sentence = text,
								.job = second->job,
								.output = output,
								.pid = child_pid(second->child),
								.exit_status = exit_status,
								.signal = signal,
								.uid = getuid()};
	fault_report(second->broker, &fault, text, sizeof(text));
	util_log(UTIL_WARN, "%s", text);
}

static void on_gone(void *owner, int exit_status, int signal, const char *why)
{
	struct second *second = owner;
	enum second_state was = second->state;
	char error[KERNEL_ERROR_MAX];
	if (second->lifeless)
		why = "gave no sign of life (--liveness-timeout)";
	if (was == SECOND_BUSY)
		report(second, exit_status, signal, why);
	stop_timer(second);
	second->child = NULL;
	second->state = SECOND_NONE;
	if (was == SECOND_BUSY && second->overran) {
		util_fail(error, sizeof(error), 0,
				  "compiling %.100s for %s by %.60s took longer than %d ms (--compile-timeout)",
				  second->job->instantiation, second->job->target, second->path,
				  (int)second->broker->options.compile_timeout_ms);
		tell_failed(second, KILN_ETIMEDOUT, error);
	} else if (was == SECOND_BUSY) {
		util_fail(error, sizeof(error), 0, "the compiler %.60s %s on %.100s for %s", second->path,
				  why, second->job->instantiation, second->job->target);
		tell_failed(second, KILN_ECOMPILE, error);
	} else if (was == SECOND_STARTING) {
		util_fail(error, sizeof(error), 0,
				  "a worker for the compiler %.100s could not be started: "
				  "it %s",
				  second->path, second->overran ? "took too long" : why);
		tell_known(second, error);
	} else {
		/* Who has asked, or asks next, is told. */
		util_fail(second->why, sizeof(second->why), 0,
				  "the worker for the compiler %.100s %s while it had nothing to do; ask again",
				  second->path, why);
		tell_known(second, second->why);
	}
}

static void on_timer(uv_timer_t *timer)
{
	struct second *second = timer->data;
	if (second->state == SECOND_NONE && second->done) {
		tell_failed(second, KILN_EIO, second->why);
	} else if (second->state == SECOND_NONE) {
		tell_known(second, second->why);
	} else if (second->state == SECOND_IDLE) {
		tell_known(second, NULL);
	} else {
		second->overran = true;
		child_kill(second->child);
	}
}

static void on_lost(void *owner)
{
	struct second *second = owner;
	second->lifeless = true;
	child_kill(second->child);
}

static void start(struct second *second)
{
	static const struct child_events events = {on_message, on_gone};
	struct broker *broker = second->broker;
	const struct compile_toolchains *pool = pool_toolchains(broker);
	char memory[48], alive[48], compiler[PATH_MAX + 16], other[256];
	const char *const arguments[] = {"--role=compiler", memory, alive,
									 options_sandbox(broker->options.sandbox), NULL};
	/* The other kind of compiler is the pool's, whose identity need not be worked out again. */
	const char *const environment[] = {
		compiler, other, second->toolchain_stamp[0] ? second->toolchain_stamp : NULL, NULL};
	const struct child_program program = {.arguments = arguments,
										  .environment = environment,
										  .spare_environment = true,
										  .trail = -1,
										  .message_most = COMPILE_MESSAGE_MAX};
	snprintf(memory, sizeof(memory), "--worker-memory=%llu",
			 (unsigned long long)broker->options.worker_memory);
	options_liveness(&broker->options, alive);
	snprintf(compiler, sizeof(compiler), "%s=%s", second->is_nvrtc ? "KILN_NVRTC" : "KILN_CXX",
			 second->path);
	if (second->is_nvrtc)
		snprintf(other, sizeof(other), COMPILE_CXX_ID "=%s:%s", pool->host.stamp, pool->host.id);
	else
		snprintf(other, sizeof(other), COMPILE_NVRTC_ID "=%s:%s", pool->nvrtc.stamp,
				 pool->nvrtc.id);
	second->overran = second->lifeless = false;
	second->jobs_done = 0;
	second->child =
		child_start(&broker->loop, &program, &events, second, second->why, sizeof(second->why));
	second->state = second->child ? SECOND_STARTING : SECOND_NONE;
	uv_timer_start(&second->timer, on_timer, second->child ? DEADLINE_WORKER_START_MS : 0, 0);
}

/* ---- What is asked of it ---- */

void second_ask(struct second *second, second_known known, void *arg)
{
	second->known = known;
	second->arg = arg;
	if (second->state == SECOND_IDLE)
		uv_timer_start(&second->timer, on_timer, 0, 0);
	else
		start(second);
}

void second_submit(struct second *second, const struct compile_job *job, pool_done done, void *arg)
{
	struct wire_out message;
	second->job = job;
	second->done = done;
	second->arg = arg;
	/* It ended since it said who it is. */
	if (!second->child) {
		uv_timer_start(&second->timer, on_timer, 0, 0);
		return;
	}
	second->state = SECOND_BUSY;
	compile_job_write(&message, ++second->job_id, job);
	/* A failed send kills the child, and its end is the answer. */
	if (wire_end(&message) != KILN_OK || child_send(second->child, &message, NULL, 0) != KILN_OK)
		child_kill(second->child);
	wire_out_free(&message);
	uv_timer_start(&second->timer, on_timer, (uint64_t)second->broker->options.compile_timeout_ms,
				   0);
	pulse_begin(&second->pulse, second->broker->options.liveness_timeout_ms);
}

void second_cancel(struct second *second)
{
	second->known = NULL;
	second->done = NULL;
	if (second->state == SECOND_BUSY || second->state == SECOND_STARTING)
		dismiss(second);
	stop_timer(second);
	second->job = NULL;
}

bool second_note(const struct second *second, struct wait_note *note)
{
	bool busy = second->state == SECOND_BUSY;
	if (!second->known && !second->done)
		return false;
	*note = (struct wait_note){.owner = second->arg,
							   .what = busy ? "compiling" : "start",
							   .of = "compiler",
							   .pid = second->child ? child_pid(second->child) : 0,
							   .left_ms = waits_timer_left(&second->timer)};
	waits_say(note, busy ? "its compile by another compiler" : "the start of another compiler");
	return true;
}

const char *second_path(const struct second *second)
{
	return second->path;
}

bool second_take(struct second *second)
{
	bool had = second->taken;
	second->taken = true;
	return !had;
}

void second_give(struct second *second)
{
	second->taken = false;
}

bool second_taken(const struct second *second)
{
	return second->taken;
}

bool second_serves(const struct second *second, const char *target)
{
	return second->is_nvrtc == (strcmp(target, "cpu") != 0);
}

/* ---- Opening and closing ---- */

/* A directory, or a library by its name. */
static bool names_nvrtc(const char *path, const struct stat *status)
{
	const char *slash = strrchr(path, '/');
	return S_ISDIR(status->st_mode) || strstr(slash ? slash : path, ".so") != NULL;
}

int second_open(struct broker *broker, const char *path, struct second **out,
				char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	if (path[0] != '/' || strlen(path) >= PATH_MAX || stat(path, &status) != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.200s\" is no compiler: the absolute path of a libnvrtc, of its "
						 "directory, or of a C++ compiler",
						 path);
	if (broker->seconds >= (int)broker->options.workers)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%d connections use a second compiler, as many as kilnd has --workers",
						 broker->seconds);
	struct second *second = calloc(1, sizeof(*second));
	if (!second)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a compiler");
	second->broker = broker;
	snprintf(second->path, sizeof(second->path), "%s", path);
	second->is_nvrtc = names_nvrtc(path, &status);
	second->timer.data = second;
	uv_timer_init(&broker->loop, &second->timer);
	pulse_open(&second->pulse, &broker->loop, on_lost, second);
	broker->seconds++;
	*out = second;
	return KILN_OK;
}

static void on_closed(uv_handle_t *handle)
{
	struct second *second = handle->data;
	if (--second->open_handles == 0)
		free(second);
}

void second_close(struct second *second)
{
	if (!second)
		return;
	second_cancel(second);
	dismiss(second);
	second->broker->seconds--;
	second->open_handles = 2;
	second->pulse.timer.data = second;
	uv_close((uv_handle_t *)&second->timer, on_closed);
	pulse_close(&second->pulse, on_closed);
}
