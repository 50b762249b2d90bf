/* pool.c: the worker processes, each in its slot: started, watched, ended, replaced. */
#include "pool_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

#define POOL_TRIES 2         /* how often a job may cost a worker its life */
#define POOL_FIRST_STARTS 3  /* in a row: nobody is kept waiting to know the compilers */
#define POOL_FAILED_STARTS 8 /* in a row: jobs are not kept waiting for a worker any longer */

static const char *const slot_names[] = {"stopped", "starting", "idle", "busy"};

static void launch(struct slot *slot);

static void stop_timer(struct slot *slot)
{
	uv_timer_stop(&slot->timer);
	pulse_end(&slot->pulse);
}

static void answer(struct pool_job *job, struct compile_result *result)
{
	job->done(job->arg, result);
	compile_result_free(result);
	free(job);
}

static void answer_error(struct pool_job *job, int status, const char *error)
{
	struct compile_result result = {.status = status,
									.passing = job->passing,
									.registers = -1,
									.shared_bytes = -1,
									.spill_bytes = -1,
									.local_bytes = -1};
	snprintf(result.error, sizeof(result.error), "%s", error);
	result.log = strdup(error);
	answer(job, &result);
}

static void tell_known(struct pool *pool, const char *error)
{
	struct known_waiter *waiter;
	while ((waiter = pool->waiters)) {
		pool->waiters = waiter->next;
		waiter->known(waiter->arg, &pool->toolchains, error);
		free(waiter);
	}
}

/* A compiler that was replaced on disk shows when a worker comes up: from now on keys are made with
 * its identity, and none but such workers may compile for them. */
static void compilers_changed(struct broker *broker)
{
	struct pool *pool = broker->pool;
	struct pool_job *job;
	char error[KERNEL_ERROR_MAX];
	util_log(UTIL_WARN, "the compiler changed: %s, %s", pool->toolchains.nvrtc.id,
			 pool->toolchains.host.id);
	pool->changes++;
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].state == SLOT_IDLE)
			slot_renew(&pool->slots[i]);
	while ((job = queue_pop_stale(pool))) {
		util_fail(error, sizeof(error), 0,
				  "the compiler for %s was replaced while %.120s waited for it: ask again",
				  job->job->target, job->job->instantiation);
		job->passing = true;
		answer_error(job, KILN_EIO, error);
	}
}

static void on_started(struct slot *slot, struct wire_in *message)
{
	struct pool *pool = slot->broker->pool;
	struct compile_toolchains toolchains = {0};
	if (slot->state != SLOT_STARTING || compile_ready_read(message, &toolchains) != KILN_OK) {
		child_condemn(slot->child, "said in a wrong way, or at a wrong time, that it is ready");
		return;
	}
	bool changed = pool->known && (strcmp(pool->toolchains.nvrtc.id, toolchains.nvrtc.id) ||
								   strcmp(pool->toolchains.host.id, toolchains.host.id));
	pool->toolchains = toolchains;
	if (changed)
		compilers_changed(slot->broker);
	slot->state = SLOT_IDLE;
	slot->change = pool->changes;
	slot->base = slot->resident = util_resident_bytes(child_pid(slot->child));
	slot->backoff_ms = 0;
	pool->failed_starts = 0;
	stop_timer(slot);
	if (!pool->known) {
		pool->known = true;
		/* The others are spared the hashing of the compiler: they are told its identity. */
		for (int i = 0; i < pool->count; i++)
			if (pool->slots[i].state == SLOT_EMPTY)
				slot_start(&pool->slots[i]);
		tell_known(pool, NULL);
	}
	queue_assign(slot->broker);
}

/* It had no memory or no files: what jobs before it have left there may be why. */
static bool is_worn(const struct compile_result *result)
{
	return result->status == KILN_ENOMEM || result->status == KILN_EIO;
}

static void on_result(struct slot *slot, struct wire_in *message)
{
	struct compile_result result;
	uint64_t id;
	memset(&result, 0, sizeof(result));
	int status = compile_result_read(message, &id, &result);
	if (status != KILN_OK || slot->state != SLOT_BUSY || id != slot->job_id) {
		compile_result_free(&result);
		child_condemn(slot->child, status != KILN_OK ? "answered with what is no result"
													 : "answered what it was not asked");
		return;
	}
	struct pool_job *job = slot->job;
	util_debug("worker %d ends its compile after %.1f ms: %s", child_pid(slot->child),
			   (double)(util_now_us() - job->since_us) / 1e3,
			   result.status == KILN_OK ? "done" : util_status_name(result.status));
	bool again = is_worn(&result) && slot->jobs_done > 0 && !job->fresh;
	slot->job = NULL;
	slot->jobs_done++;
	stop_timer(slot);
	slot->state = SLOT_IDLE;
	memory_note(slot->broker->pool, slot, job->job, result.grew);
	slot->resident = util_resident_bytes(child_pid(slot->child));
	/* Memory that a compiler leaks goes with its process, and so does whatever a user's source may
	 * have done to it. */
	if (slot->jobs_done >= (uint64_t)slot->broker->options.worker_jobs || job->job->user_files ||
		is_worn(&result) || slot->change != slot->broker->pool->changes)
		slot_renew(slot);
	if (again) {
		job->fresh = true;
		queue_put_back(slot->broker->pool, job);
		compile_result_free(&result);
	} else {
		answer(job, &result);
	}
	queue_assign(slot->broker);
}

static void on_message(void *owner, struct wire_in *message, struct frame *frame)
{
	struct slot *slot = owner;
	(void)frame;
	pulse_beat(&slot->pulse);
	if (!strcmp(wire_type(message), "ready"))
		on_started(owner, message);
	else if (strcmp(wire_type(message), "alive") != 0)
		on_result(owner, message);
}

/* What people call the compiler for a target: its id without the hash, which for NVRTC comes last
 * and for the host's compiler first. */
static void name_compiler(const struct pool *pool, const char *target, char name[96])
{
	bool host = !strcmp(target, "cpu");
	const char *id = host ? pool->toolchains.host.id : pool->toolchains.nvrtc.id;
	const char *first = strchr(id, ' '), *last = strrchr(id, ' ');
	const char *second = first ? strchr(first + 1, ' ') : NULL;
	if (host && second)
		snprintf(name, 96, "%s", second + 1);
	else
		snprintf(name, 96, "%.*s", last ? (int)(last - id) : 0, id);
}

/* Where there is room for all of it. */
static void add_report(char error[KERNEL_ERROR_MAX], const char *report)
{
	if (strlen(error) + strlen(report) < KERNEL_ERROR_MAX)
		util_append(error, KERNEL_ERROR_MAX, strlen(error), "%s", report);
}

/* What becomes of the job whose worker is gone. */
static void settle_job(struct slot *slot, int signal, const char *why, const char *report)
{
	struct pool_job *job = slot->job;
	struct options *options = &slot->broker->options;
	char error[KERNEL_ERROR_MAX], name[96];
	if (!job)
		return;
	slot->job = NULL;
	/* The system kills when memory runs out; a compiler's own faults end in another signal. */
	job->passing = job->passing || !signal || signal == SIGKILL || signal == SIGTERM;
	if (slot->overran) {
		util_fail(error, sizeof(error), 0,
				  "compiling %.120s for %s took longer than %d ms (--compile-timeout); the "
				  "compiler was ended",
				  job->job->instantiation, job->job->target, (int)options->compile_timeout_ms);
		add_report(error, report);
		answer_error(job, KILN_ETIMEDOUT, error);
	} else if (++job->deaths >= POOL_TRIES) {
		name_compiler(slot->broker->pool, job->job->target, name);
		util_fail(error, sizeof(error), 0, "the compiler %s %s on %.90s%s for %s, twice", name, why,
				  job->job->instantiation, strlen(job->job->instantiation) > 90 ? "..." : "",
				  job->job->target);
		add_report(error, report);
		answer_error(job, KILN_ECOMPILE, error);
	} else {
		queue_put_back(slot->broker->pool, job);
	}
}

/* A worker did not come up.  The first of all may have been killed for reasons of its own, so who
 * waits for the compilers to be known is told only when that happens again and again. */
static void start_failed(struct pool *pool, const char *error)
{
	pool->failed_starts++;
	snprintf(pool->start_error, sizeof(pool->start_error), "%s", error);
	if (!pool->known && pool->failed_starts >= POOL_FIRST_STARTS)
		tell_known(pool, error);
}

/* Jobs that wait for a worker wait in vain when none comes up. */
static void give_up_waiting(struct pool *pool)
{
	struct pool_job *job;
	if (pool->failed_starts < POOL_FAILED_STARTS)
		return;
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].state == SLOT_IDLE || pool->slots[i].state == SLOT_BUSY)
			return;
	while ((job = queue_pop(pool)))
		answer_error(job, KILN_EIO, pool->start_error);
}

/* What was said of it, to the log and to reports; what stands behind used says which report. */
static size_t report_end(struct slot *slot, int exit_status, int signal, const char *why,
						 char *text, size_t size)
{
	char output[OUTPUT_TAIL];
	size_t used =
		util_append(text, KERNEL_ERROR_MAX, 0, "compiler worker %d %s%s", child_pid(slot->child),
					why, slot->overran ? " (it had passed its deadline)" : "");
	child_tail(slot->child, output);
	const struct fault fault = {.kind = FAULT_COMPILER,
								.sentence = text,
								.job = slot->job ? slot->job->job : NULL,
								.output = output,
								.pid = child_pid(slot->child),
								.exit_status = exit_status,
								.signal = signal,
								.uid = getuid()};
	if (!slot->broker->pool->closing)
		fault_report(slot->broker, &fault, text, size);
	return used;
}

static void on_gone(void *owner, int exit_status, int signal, const char *why)
{
	char text[KERNEL_ERROR_MAX + 96];
	struct slot *slot = owner;
	struct broker *broker = slot->broker;
	struct pool *pool = broker->pool;
	bool was_starting = slot->state == SLOT_STARTING;
	char lifeless[96];
	broker->counters.worker_faults++;
	if (slot->lifeless) {
		snprintf(lifeless, sizeof(lifeless),
				 "gave no sign of life for %llu ms (--liveness-timeout)",
				 (unsigned long long)broker->options.liveness_timeout_ms);
		why = lifeless;
	}
	size_t used = report_end(slot, exit_status, signal, why, text, sizeof(text));
	util_log(UTIL_WARN, "%s", text);
	stop_timer(slot);
	slot->child = NULL;
	slot->state = SLOT_EMPTY;
	settle_job(slot, signal, why, text + used);
	slot->overran = slot->lifeless = false;
	if (pool->closing)
		return;
	if (was_starting) {
		slot->backoff_ms = slot->backoff_ms ? slot->backoff_ms * 2 : PAUSE_WORKER_START_FIRST_MS;
		uint64_t longest =
			broker_deadline(broker->test.restart_pause_ms, PAUSE_WORKER_START_LAST_MS);
		if (slot->backoff_ms > longest)
			slot->backoff_ms = (uint32_t)longest;
		char error[KERNEL_ERROR_MAX];
		util_fail(error, sizeof(error), 0, "no compiler worker could be started: it %s", why);
		start_failed(pool, error);
	}
	slot_start(slot);
	queue_assign(broker);
	give_up_waiting(pool);
}

static void on_timer(uv_timer_t *timer)
{
	struct slot *slot = timer->data;
	if (slot->state == SLOT_EMPTY) {
		launch(slot);
		/* Who asked while the last start was being made up for waits for how this one ends. */
		if (slot->state == SLOT_EMPTY)
			give_up_waiting(slot->broker->pool);
		return;
	}
	slot->overran = true;
	slot->broker->pool->killed++;
	child_kill(slot->child);
}

/* It has a job, and is stopped, or in a state that the system does not let it out of. */
static void on_lost(void *owner)
{
	struct slot *slot = owner;
	if (slot->overran)
		return;
	slot->lifeless = true;
	slot->broker->pool->killed++;
	child_kill(slot->child);
}

static void launch(struct slot *slot)
{
	static const struct child_events events = {on_message, on_gone};
	struct broker *broker = slot->broker;
	struct pool *pool = broker->pool;
	const struct compile_toolchains *known = &pool->toolchains;
	char memory[48], alive[48], misdeed[40], nvrtc[256], host[256], error[KERNEL_ERROR_MAX];
	const char *const arguments[] = {"--role=compiler",
									 memory,
									 alive,
									 options_sandbox(broker->options.sandbox),
									 broker->events->start_misdeed(broker, true, misdeed),
									 NULL};
	const char *const environment[] = {nvrtc, host, NULL};
	const struct child_program program = {.arguments = arguments,
										  .environment = pool->known ? environment : NULL,
										  .spare_environment = true,
										  .trail = -1,
										  .message_most = COMPILE_MESSAGE_MAX};
	snprintf(memory, sizeof(memory), "--worker-memory=%llu",
			 (unsigned long long)broker->options.worker_memory);
	options_liveness(&broker->options, alive);
	snprintf(nvrtc, sizeof(nvrtc), COMPILE_NVRTC_ID "=%s:%s", known->nvrtc.stamp, known->nvrtc.id);
	snprintf(host, sizeof(host), COMPILE_CXX_ID "=%s:%s", known->host.stamp, known->host.id);
	slot->jobs_done = 0;
	slot->overran = slot->lifeless = false;
	slot->launched_us = util_now_us();
	slot->child = child_start(&broker->loop, &program, &events, slot, error, sizeof(error));
	if (slot->child) {
		pool->started++;
		slot->state = SLOT_STARTING;
		uv_timer_start(&slot->timer, on_timer,
					   broker_deadline(broker->test.start_deadline_ms, DEADLINE_WORKER_START_MS),
					   0);
		return;
	}
	util_log(UTIL_ERROR, "%s", error);
	start_failed(pool, error);
	if (!pool->known)
		tell_known(pool, error); /* there is nothing to be started */
	uv_timer_start(&slot->timer, on_timer, PAUSE_WORKER_START_LAST_MS, 0);
}

void slot_start(struct slot *slot)
{
	if (slot->backoff_ms)
		uv_timer_start(&slot->timer, on_timer, slot->backoff_ms, 0);
	else
		launch(slot);
}

void slot_renew(struct slot *slot)
{
	slot->broker->pool->recycled++;
	child_dismiss(slot->child, DEADLINE_WORKER_DISMISS_MS);
	slot->child = NULL;
	slot->state = SLOT_EMPTY;
	slot_start(slot);
}

void slot_abort(struct slot *slot)
{
	slot->job = NULL;
	stop_timer(slot);
	slot->broker->pool->killed++;
	child_abandon(slot->child);
	slot->child = NULL;
	slot->state = SLOT_EMPTY;
	slot_start(slot);
}

void slot_send(struct slot *slot, struct pool_job *job)
{
	struct broker *broker = slot->broker;
	struct wire_out message;
	job->as_sent = *job->job;
	job->as_sent.delay_ms = broker->test.delay_compile_ms;
	if (broker->test.misdeeds_left > 0 && broker->test.misdeeds_left--)
		job->as_sent.test_misdeed = broker->test.compile_misdeed;
	slot->job = job;
	job->since_us = util_now_us();
	slot->job_id = ++broker->pool->next_job;
	slot->state = SLOT_BUSY;
	slot->reserved = memory_estimate(broker->pool, slot, job->job);
	util_debug("worker %d compiles %s for %s", child_pid(slot->child),
			   job->job->user_files ? "a kernel of a program's own" : job->job->instantiation,
			   job->job->target);
	compile_job_write(&message, slot->job_id, &job->as_sent);
	/* A failed send kills the child, and its end brings the job back. */
	if (wire_end(&message) != KILN_OK || child_send(slot->child, &message, NULL, 0) != KILN_OK)
		child_kill(slot->child);
	wire_out_free(&message);
	uv_timer_start(&slot->timer, on_timer, (uint64_t)broker->options.compile_timeout_ms, 0);
	pulse_begin(&slot->pulse, broker->options.liveness_timeout_ms);
}

/* ---- What the broker asks ---- */

void pool_when_known(struct broker *broker, pool_known known, void *arg)
{
	struct pool *pool = broker->pool;
	if (pool->known) {
		known(arg, &pool->toolchains, NULL);
		return;
	}
	struct known_waiter *waiter = calloc(1, sizeof(*waiter));
	if (!waiter) {
		known(arg, &pool->toolchains, "out of memory");
		return;
	}
	*waiter = (struct known_waiter){known, arg, util_now_us(), pool->waiters};
	pool->waiters = waiter;
}

void pool_forget(struct broker *broker, void *arg)
{
	struct known_waiter **link = &broker->pool->waiters;
	while (*link) {
		struct known_waiter *waiter = *link;
		if (waiter->arg == arg) {
			*link = waiter->next;
			free(waiter);
		} else {
			link = &waiter->next;
		}
	}
}

int pool_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	struct pool *pool = util_alloc(sizeof(*pool));
	pool->count = (int)broker->options.workers;
	pool->slots = calloc((size_t)pool->count, sizeof(*pool->slots));
	if (!pool->slots) {
		free(pool);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for %d workers",
						 (int)broker->options.workers);
	}
	broker->pool = pool;
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		slot->broker = broker;
		slot->timer.data = slot;
		uv_timer_init(&broker->loop, &slot->timer);
		pulse_open(&slot->pulse, &broker->loop, on_lost, slot);
	}
	memory_open(broker);
	slot_start(&pool->slots[0]);
	return KILN_OK;
}

void pool_close(struct broker *broker)
{
	struct pool *pool = broker->pool;
	struct pool_job *job;
	if (!pool || pool->closing)
		return;
	pool->closing = true;
	memory_close(broker);
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		stop_timer(slot);
		uv_close((uv_handle_t *)&slot->timer, NULL);
		pulse_close(&slot->pulse, NULL);
		if (slot->child && slot->state != SLOT_BUSY)
			child_dismiss(slot->child, DEADLINE_WORKER_DISMISS_MS);
		else if (slot->child)
			child_abandon(slot->child);
		slot->child = NULL;
		free(slot->job);
		slot->job = NULL;
		slot->state = SLOT_EMPTY;
	}
	while ((job = queue_pop(pool)))
		free(job);
	while (pool->waiters) {
		struct known_waiter *next = pool->waiters->next;
		free(pool->waiters);
		pool->waiters = next;
	}
}

void pool_free(struct broker *broker)
{
	if (!broker->pool)
		return;
	for (int i = 0; i < POOL_PRIORITIES; i++)
		turns_free(&broker->pool->queues[i].turns);
	free(broker->pool->slots);
	free(broker->pool);
	broker->pool = NULL;
}

void pool_stats(const struct broker *broker, struct pool_stats *out)
{
	const struct pool *pool = broker->pool;
	memset(out, 0, sizeof(*out));
	out->workers = pool->count;
	out->started = pool->started;
	out->killed = pool->killed;
	out->recycled = pool->recycled;
	for (int i = 0; i < pool->count; i++) {
		out->starting += pool->slots[i].state == SLOT_STARTING;
		out->idle += pool->slots[i].state == SLOT_IDLE;
		out->busy += pool->slots[i].state == SLOT_BUSY;
		out->resident_bytes += pool->slots[i].child ? pool->slots[i].resident : 0;
	}
	memcpy(out->estimates, pool->memory.estimates, sizeof(out->estimates));
	out->memory_waits = pool->memory.waits;
	out->queued_background = pool->queued_count[POOL_BACKGROUND];
	out->queued = pool->queued_count[POOL_INTERACTIVE] + out->queued_background;
	out->held = pool->memory.holds ? out->queued : 0;
}

const struct compile_toolchains *pool_toolchains(const struct broker *broker)
{
	return &broker->pool->toolchains;
}

void pool_each(const struct broker *broker, pool_visit visit, void *arg)
{
	const struct pool *pool = broker->pool;
	for (int i = 0; i < pool->count; i++) {
		const struct slot *slot = &pool->slots[i];
		visit(arg, slot->child ? child_pid(slot->child) : 0, slot_names[slot->state],
			  slot->jobs_done);
	}
}

int pool_kill(struct broker *broker, int pid)
{
	struct pool *pool = broker->pool;
	struct slot *chosen = NULL;
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		if (!slot->child || (pid && child_pid(slot->child) != pid))
			continue;
		if (!chosen || slot->state == SLOT_BUSY)
			chosen = slot;
	}
	if (!chosen)
		return 0;
	child_kill(chosen->child);
	return child_pid(chosen->child);
}
