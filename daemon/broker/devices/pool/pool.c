/* pool.c: starts, watches, ends and replaces the worker processes, each in its slot. */
#include "pool_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

#define POOL_TRIES 2         /* workers that may die of one job */
#define POOL_FIRST_STARTS 3  /* failures in a row that end pool_when_known() */
#define POOL_FAILED_STARTS 8 /* failures in a row that end the jobs without a worker */

static const char *const state_names[] = {"stopped", "starting", "idle", "busy"};

static void pool_launch(struct slot *slot);

static void pool_answer(struct pool_job *job, struct compile_result *result)
{
	job->done(job->arg, result);
	compile_result_free(result);
	free(job);
}

static void answer_error(struct pool_job *job, int status, const char *error)
{
	struct compile_result result;
	compile_result_begin(&result);
	result.status = status;
	result.maybe_external = job->maybe_external;
	snprintf(result.error, sizeof(result.error), "%s", error);
	result.log = strdup(error);
	pool_answer(job, &result);
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

/* A worker that comes up shows that a compiler was replaced on disk.  From now on keys name the new
 * one, and only workers that have it may compile for them. */
static void compilers_changed(struct broker *broker)
{
	struct pool *pool = broker->pool;
	struct pool_job *job;
	char error[KERNEL_ERROR_MAX];
	util_log(UTIL_WARN, "the compiler changed: %s, %s", pool->toolchains.nvrtc.id,
			 pool->toolchains.host.id);
	pool->changes++;
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].worker.state == WORKER_IDLE && pool->slots[i].change != pool->changes)
			slot_renew(&pool->slots[i]);
	while ((job = queue_pop_stale(pool))) {
		util_fail(error, sizeof(error), 0,
				  "the compiler for %s was replaced while %.120s waited for it: ask again",
				  job->job->target, job->job->instantiation);
		job->maybe_external = true;
		answer_error(job, KILN_EIO, error);
	}
}

static void on_pool_ready(void *owner, const struct compile_toolchains *found)
{
	struct slot *slot = owner;
	struct pool *pool = slot->broker->pool;
	bool changed = pool->known && (strcmp(pool->toolchains.nvrtc.id, found->nvrtc.id) ||
								   strcmp(pool->toolchains.host.id, found->host.id));
	pool->toolchains = *found;
	slot->change = pool->changes + changed;
	if (changed)
		compilers_changed(slot->broker);
	slot->base = slot->resident = util_resident_bytes(worker_pid(&slot->worker));
	slot->backoff_ms = 0;
	pool->failed_starts = 0;
	if (!pool->known) {
		pool->known = true;
		/* The other workers are told the compiler's identity, and need not hash it. */
		for (int i = 0; i < pool->count; i++)
			if (pool->slots[i].worker.state == WORKER_EMPTY)
				slot_start(&pool->slots[i]);
		tell_known(pool, NULL);
	}
	queue_assign(slot->broker);
}

/* The process lacked memory or files, maybe because of what jobs before have left there. */
static bool is_worn(const struct compile_result *result)
{
	return result->status == KILN_ENOMEM || result->status == KILN_EIO;
}

/* Adds the compile, and the phases that its worker tells of, which are cut to the compile. */
static void trace_compile(const struct slot *slot, const struct pool_job *job,
						  const struct compile_result *result, const char *key)
{
	struct trace *trace = slot->broker->trace;
	const uint64_t all = trace_track(trace, 0, TRACK_COMPILERS, "compilers");
	const uint64_t now_us = util_now_us();
	char name[32];
	snprintf(name, sizeof(name), "compiler (pid %d)", worker_pid(&slot->worker));
	const uint64_t track = trace_track(trace, all, (uint64_t)worker_pid(&slot->worker), name);
	const bool own = job->job->user_files, host = !strcmp(job->job->target, "cpu");
	trace_add(trace, track,
			  &(struct trace_span){.name = own ? "a kernel of its own" : job->job->instantiation,
								   .begin_ns = job->since_us * 1000,
								   .end_ns = now_us * 1000,
								   .flow = trace_flow(key),
								   .about = job->job->target});
	uint64_t from = job->since_us, shown_ns = 0;
	for (int i = 0; i < COMPILE_PHASES; i++) {
		const struct compile_span *span = &result->spans[i];
		if (span->begin_us < from || span->end_us < span->begin_us || span->end_us > now_us)
			continue;
		from = span->end_us;
		/* A phase of no microsecond is shown a little longer, and the next one behind it. */
		uint64_t begin_ns = span->begin_us * 1000, end_ns = span->end_us * 1000;
		begin_ns = begin_ns > shown_ns ? begin_ns : shown_ns;
		end_ns = end_ns > begin_ns + TRACE_SHORTEST_NS ? end_ns : begin_ns + TRACE_SHORTEST_NS;
		shown_ns = end_ns;
		const bool is_nvrtc = i == COMPILE_COMPILER && !host;
		trace_add(
			trace, track,
			&(struct trace_span){.name = is_nvrtc ? "nvrtcCompileProgram" : compile_phase_names[i],
								 .begin_ns = begin_ns,
								 .end_ns = end_ns,
								 .depth = 1});
	}
}

static void on_result(void *owner, struct compile_result *result)
{
	struct slot *slot = owner;
	struct worker *worker = &slot->worker;
	struct pool *pool = slot->broker->pool;
	struct pool_job *job = slot->job;
	util_debug("worker %d ends its compile after %.1f ms: %s", worker_pid(worker),
			   (double)(util_now_us() - job->since_us) / 1e3,
			   result->status == KILN_OK ? "done" : util_status_name(result->status));
	if (slot->broker->trace) {
		const char *key = slot->broker->events->key_of(slot->broker, job->job);
		if (trace_shows_key(slot->broker->trace, key))
			trace_compile(slot, job, result, key);
	}
	bool again = is_worn(result) && worker->jobs_done > 1 && !job->fresh;
	slot->job = NULL;
	memory_note(pool, slot, job->job, result->peak_bytes);
	slot->resident = util_resident_bytes(worker_pid(worker));
	/* A process ends with the memory that a compiler leaks, and with all that a user's source may
	 * have done to it. */
	if (worker->jobs_done >= (uint64_t)slot->broker->options.worker_jobs || job->job->user_files ||
		is_worn(result) || slot->change != pool->changes)
		slot_renew(slot);
	if (again) {
		job->fresh = true;
		queue_put_back(pool, job);
		compile_result_free(result);
	} else {
		pool_answer(job, result);
	}
	queue_assign(slot->broker);
}

/* Names the compiler for people: its id without the hash, which comes last for NVRTC and first for
 * the host's compiler. */
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

/* Appends the report's name, if there is room for all of it. */
static void add_report(char error[KERNEL_ERROR_MAX], const char *report)
{
	if (strlen(error) + strlen(report) < KERNEL_ERROR_MAX)
		util_append(error, KERNEL_ERROR_MAX, strlen(error), "%s", report);
}

/* Answers the job whose worker is gone, or has it tried once more. */
static void settle_job(struct slot *slot, const struct worker_end *end)
{
	struct pool_job *job = slot->job;
	struct options *options = &slot->broker->options;
	char error[KERNEL_ERROR_MAX], name[96];
	if (!job)
		return;
	slot->job = NULL;
	/* The system kills when memory runs out; a compiler's own faults end in another signal. */
	job->maybe_external =
		job->maybe_external || !end->signal || end->signal == SIGKILL || end->signal == SIGTERM;
	if (end->overran) {
		util_fail(error, sizeof(error), 0,
				  "compiling %.120s for %s took longer than %d ms (--compile-timeout); the "
				  "compiler was ended",
				  job->job->instantiation, job->job->target, (int)options->compile_timeout_ms);
		add_report(error, end->report);
		answer_error(job, KILN_ETIMEDOUT, error);
	} else if (++job->deaths >= POOL_TRIES) {
		name_compiler(slot->broker->pool, job->job->target, name);
		util_fail(error, sizeof(error), 0, "the compiler %s %s on %.90s%s for %s, twice", name,
				  end->why, job->job->instantiation,
				  strlen(job->job->instantiation) > 90 ? "..." : "", job->job->target);
		add_report(error, end->report);
		answer_error(job, KILN_ECOMPILE, error);
	} else {
		queue_put_back(slot->broker->pool, job);
	}
}

/* A worker did not come up.  Something from outside may have killed it, so pool_when_known() fails
 * only when that happens again and again. */
static void start_failed(struct pool *pool, const char *error)
{
	pool->failed_starts++;
	snprintf(pool->start_error, sizeof(pool->start_error), "%s", error);
	if (!pool->known && pool->failed_starts >= POOL_FIRST_STARTS)
		tell_known(pool, error);
}

/* Ends the jobs that wait in vain, when no worker comes up. */
static void give_up_waiting(struct pool *pool)
{
	struct pool_job *job;
	if (pool->failed_starts < POOL_FAILED_STARTS)
		return;
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].worker.state == WORKER_IDLE ||
			pool->slots[i].worker.state == WORKER_BUSY)
			return;
	while ((job = queue_pop(pool)))
		answer_error(job, KILN_EIO, pool->start_error);
}

static void on_pool_gone(void *owner, const struct worker_end *end)
{
	struct slot *slot = owner;
	struct broker *broker = slot->broker;
	struct pool *pool = broker->pool;
	broker->counters.worker_faults++;
	pool->killed += end->overran || end->lifeless;
	settle_job(slot, end);
	if (end->was == WORKER_STARTING) {
		slot->backoff_ms = slot->backoff_ms ? slot->backoff_ms * 2 : PAUSE_WORKER_START_FIRST_MS;
		uint64_t longest =
			broker_deadline(broker->test.restart_pause_ms, PAUSE_WORKER_START_LAST_MS);
		if (slot->backoff_ms > longest)
			slot->backoff_ms = (uint32_t)longest;
		char error[KERNEL_ERROR_MAX];
		util_fail(error, sizeof(error), 0, "no compiler worker could be started: it %s", end->why);
		start_failed(pool, error);
	}
	slot_start(slot);
	queue_assign(broker);
	give_up_waiting(pool);
}

static void pool_launch(struct slot *slot)
{
	struct broker *broker = slot->broker;
	struct pool *pool = broker->pool;
	const struct compile_toolchains *known = &pool->toolchains;
	char misdeed[40], nvrtc[256], host[256], error[KERNEL_ERROR_MAX];
	const char *const environment[] = {nvrtc, host, NULL};
	snprintf(nvrtc, sizeof(nvrtc), COMPILE_NVRTC_ID "=%s:%s", known->nvrtc.stamp, known->nvrtc.id);
	snprintf(host, sizeof(host), COMPILE_CXX_ID "=%s:%s", known->host.stamp, known->host.id);
	if (worker_start(&slot->worker, pool->known ? environment : NULL,
					 broker->events->start_misdeed(broker, true, misdeed), error)) {
		pool->started++;
		return;
	}
	util_log(UTIL_ERROR, "%s", error);
	start_failed(pool, error);
	if (!pool->known)
		tell_known(pool, error); /* the program itself cannot be started */
	worker_pause(&slot->worker, PAUSE_WORKER_START_LAST_MS);
}

/* Jobs that came during the pause wait for the end of this start. */
static void on_due(void *owner)
{
	struct slot *slot = owner;
	pool_launch(slot);
	if (slot->worker.state == WORKER_EMPTY)
		give_up_waiting(slot->broker->pool);
}

void slot_start(struct slot *slot)
{
	if (slot->backoff_ms)
		worker_pause(&slot->worker, slot->backoff_ms);
	else
		pool_launch(slot);
}

void slot_renew(struct slot *slot)
{
	slot->broker->pool->recycled++;
	worker_end(&slot->worker);
	slot_start(slot);
}

void slot_abort(struct slot *slot)
{
	slot->job = NULL;
	slot->broker->pool->killed++;
	worker_end(&slot->worker);
	slot_start(slot);
}

void slot_send(struct slot *slot, struct pool_job *job)
{
	struct broker *broker = slot->broker;
	struct compile_job as_sent = *job->job;
	as_sent.delay_ms = broker->test.delay_compile_ms;
	if (broker->test.misdeeds_left > 0 && broker->test.misdeeds_left--)
		as_sent.test_misdeed = broker->test.compile_misdeed;
	slot->job = job;
	job->since_us = util_now_us();
	slot->reserved = memory_estimate(broker->pool, slot, job->job);
	util_debug("worker %d compiles %s for %s", worker_pid(&slot->worker),
			   job->job->user_files ? "a kernel of a program's own" : job->job->instantiation,
			   job->job->target);
	worker_send(&slot->worker, job->job, &as_sent);
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
	static const struct worker_events events = {on_pool_ready, on_result, on_pool_gone, on_due};
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
		worker_open(&slot->worker, broker, &events, slot);
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
		worker_close(&slot->worker, NULL);
		free(slot->job);
		slot->job = NULL;
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
		out->starting += pool->slots[i].worker.state == WORKER_STARTING;
		out->idle += pool->slots[i].worker.state == WORKER_IDLE;
		out->busy += pool->slots[i].worker.state == WORKER_BUSY;
		out->resident_bytes += pool->slots[i].worker.child ? pool->slots[i].resident : 0;
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
		visit(arg, worker_pid(&slot->worker), state_names[slot->worker.state],
			  slot->worker.jobs_done);
	}
}

int pool_kill(struct broker *broker, int pid)
{
	struct pool *pool = broker->pool;
	struct slot *chosen = NULL;
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		if (!slot->worker.child || (pid && worker_pid(&slot->worker) != pid))
			continue;
		if (!chosen || slot->worker.state == WORKER_BUSY)
			chosen = slot;
	}
	if (!chosen)
		return 0;
	child_kill(chosen->worker.child);
	return worker_pid(&chosen->worker);
}
