/* worker.c: the states of a compiler process; worker.h draws them. */
#include "worker.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

static void worker_assert_valid(const struct worker *worker)
{
	assert((worker->state == WORKER_EMPTY) == !worker->child);
	assert((worker->state == WORKER_BUSY) == (worker->job != NULL));
	assert(worker->state == WORKER_BUSY || !pulse_is_due(&worker->pulse));
	(void)worker;
}

static void worker_enter(struct worker *worker, enum worker_state state)
{
	uv_timer_stop(&worker->timer);
	pulse_end(&worker->pulse);
	worker->state = state;
	if (state != WORKER_BUSY)
		worker->job = NULL;
	if (state == WORKER_EMPTY)
		worker->child = NULL;
}

static void on_started(struct worker *worker, struct wire_in *message)
{
	struct compile_toolchains found = {0};
	if (worker->state != WORKER_STARTING || compile_ready_read(message, &found) != KILN_OK) {
		child_condemn(worker->child, "said in a wrong way, or at a wrong time, that it is ready");
		return;
	}
	worker_enter(worker, WORKER_IDLE);
	worker_assert_valid(worker);
	worker->events->ready(worker->owner, &found);
}

static void on_result(struct worker *worker, struct wire_in *message)
{
	struct compile_result result;
	uint64_t id;
	memset(&result, 0, sizeof(result));
	int status = compile_result_read(message, &id, &result);
	if (status != KILN_OK || worker->state != WORKER_BUSY || id != worker->job_id) {
		compile_result_free(&result);
		child_condemn(worker->child, status != KILN_OK ? "answered with what is no result"
													   : "answered what it was not asked");
		return;
	}
	worker_enter(worker, WORKER_IDLE);
	worker->jobs_done++;
	worker_assert_valid(worker);
	worker->events->result(worker->owner, &result);
}

static void on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct worker *worker = owner;
	(void)frame;
	pulse_beat(&worker->pulse);
	if (!strcmp(wire_type(message), "ready"))
		on_started(worker, message);
	else if (strcmp(wire_type(message), "alive") != 0)
		on_result(worker, message);
}

/* Logs and reports the end; returns where in the text the report is named. */
static size_t worker_report(const struct worker *worker, int exit_status, int signal,
							const char *why, char *text, size_t size)
{
	char output[OUTPUT_TAIL], name[40];
	snprintf(name, sizeof(name), "compiler worker %d", child_pid(worker->child));
	size_t used =
		util_append(text, KERNEL_ERROR_MAX, 0, "%.200s %s%s", worker->name ? worker->name : name,
					why, worker->overran ? " (it had passed its deadline)" : "");
	child_tail(worker->child, output);
	const struct fault fault = {.kind = FAULT_COMPILER,
								.sentence = text,
								.job = worker->job,
								.output = output,
								.pid = child_pid(worker->child),
								.exit_status = exit_status,
								.signal = signal,
								.uid = getuid()};
	worker->broker->events->fault(worker->broker, &fault, text, size);
	util_log(UTIL_WARN, "%s", text);
	return used;
}

static void on_worker_gone(void *owner, int exit_status, int signal, const char *why)
{
	struct worker *worker = owner;
	char text[KERNEL_ERROR_MAX + 96], silent[96];
	if (worker->lifeless) {
		snprintf(silent, sizeof(silent), "gave no sign of life for %llu ms",
				 (unsigned long long)worker->pulse.deadline_ms);
		why = silent;
	}
	size_t used = worker_report(worker, exit_status, signal, why, text, sizeof(text));
	const struct worker_end end = {.was = worker->state,
								   .overran = worker->overran,
								   .lifeless = worker->lifeless,
								   .signal = signal,
								   .why = why,
								   .report = text + used};
	worker_enter(worker, WORKER_EMPTY);
	worker_assert_valid(worker);
	worker->events->gone(worker->owner, &end);
}

static void on_worker_timer(uv_timer_t *timer)
{
	struct worker *worker = timer->data;
	if (worker->state == WORKER_EMPTY || worker->state == WORKER_IDLE) {
		worker->events->due(worker->owner);
		return;
	}
	worker->overran = true;
	child_kill(worker->child);
}

/* The process has a job and gives no sign of life: it is stopped, or the system holds it. */
static void on_worker_lost(void *owner)
{
	struct worker *worker = owner;
	if (worker->overran)
		return;
	worker->lifeless = true;
	child_kill(worker->child);
}

bool worker_start(struct worker *worker, const char *const *environment, const char *misdeed,
				  char error[KERNEL_ERROR_MAX])
{
	static const struct child_events events = {on_message, on_worker_gone};
	struct broker *broker = worker->broker;
	char memory[48], alive[48];
	const char *const arguments[] = {
		"--role=compiler", memory, alive, options_sandbox(broker->options.sandbox), misdeed, NULL};
	const struct child_program program = {.arguments = arguments,
										  .environment = environment,
										  .spare_environment = true,
										  .trail = -1,
										  .message_most = COMPILE_MESSAGE_MAX};
	snprintf(memory, sizeof(memory), "--worker-memory=%llu",
			 (unsigned long long)broker->options.worker_memory);
	options_liveness(&broker->options, alive);
	worker->jobs_done = 0;
	worker->overran = worker->lifeless = false;
	worker->launched_us = util_now_us();
	worker->child = child_start(&broker->loop, &program, &events, worker, error, KERNEL_ERROR_MAX);
	if (!worker->child)
		return false;
	worker_enter(worker, WORKER_STARTING);
	uv_timer_start(&worker->timer, on_worker_timer,
				   broker_deadline(broker->test.start_deadline_ms, DEADLINE_WORKER_START_MS), 0);
	worker_assert_valid(worker);
	return true;
}

void worker_pause(struct worker *worker, uint64_t milliseconds)
{
	assert(worker->state == WORKER_EMPTY || worker->state == WORKER_IDLE);
	uv_timer_start(&worker->timer, on_worker_timer, milliseconds, 0);
}

void worker_send(struct worker *worker, const struct compile_job *job,
				 const struct compile_job *as_sent)
{
	const struct options *options = &worker->broker->options;
	struct wire_out message;
	worker_enter(worker, WORKER_BUSY);
	worker->job = job;
	worker_assert_valid(worker);
	compile_job_write(&message, ++worker->job_id, as_sent);
	int texts = as_sent->texts_fd > 0;
	/* A failed send kills the child, and its end is the answer. */
	if (wire_end(&message) != KILN_OK ||
		child_send(worker->child, &message, &as_sent->texts_fd, texts) != KILN_OK)
		child_kill(worker->child);
	wire_out_free(&message);
	uv_timer_start(&worker->timer, on_worker_timer, (uint64_t)options->compile_timeout_ms, 0);
	pulse_begin(&worker->pulse, options->liveness_timeout_ms);
}

void worker_end(struct worker *worker)
{
	if (worker->child && worker->state != WORKER_BUSY)
		child_dismiss(worker->child, DEADLINE_WORKER_DISMISS_MS);
	else if (worker->child)
		child_abandon(worker->child);
	worker_enter(worker, WORKER_EMPTY);
}

int worker_pid(const struct worker *worker)
{
	return worker->child ? child_pid(worker->child) : 0;
}

void worker_open(struct worker *worker, struct broker *broker, const struct worker_events *events,
				 void *owner)
{
	worker->broker = broker;
	worker->events = events;
	worker->owner = owner;
	worker->timer.data = worker;
	uv_timer_init(&broker->loop, &worker->timer);
	pulse_open(&worker->pulse, &broker->loop, on_worker_lost, worker);
}

static void on_worker_closed(uv_handle_t *handle)
{
	struct worker *worker = handle->data;
	if (--worker->open_handles == 0 && worker->closed)
		worker->closed(worker->owner);
}

void worker_close(struct worker *worker, void (*closed)(void *owner))
{
	worker_end(worker);
	worker->closed = closed;
	worker->open_handles = 2;
	worker->pulse.timer.data = worker;
	uv_close((uv_handle_t *)&worker->timer, on_worker_closed);
	pulse_close(&worker->pulse, on_worker_closed);
}
