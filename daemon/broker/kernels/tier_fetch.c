/*
 * tier_fetch.c: exact kernels in the background.  Looks for them in the cache, has them compiled
 * when that pays, loads them when the device is quiet, and lets them take over.  No client waits
 * for it.
 */
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

#define EXECUTORS_MOST 64 /* that load one kernel */
#define IDLE_SHARE 0.25   /* of its time that a compile costs when workers are idle */
#define NVRTC_US 60e3     /* assumed until the first compile is measured */
#define HOST_US 1500e3

struct loading {
	struct broker *broker;
	struct tier_kernel *kernel;
	struct device_handle *executor;
};

/* ---- What a compile costs ---- */

double tier_compile_cost(struct broker *broker, const char *target)
{
	double micros = job_compile_us(broker, target, !strcmp(target, "cpu") ? HOST_US : NVRTC_US);
	struct pool_stats pool;
	pool_stats(broker, &pool);
	return pool.idle > 1 && !pool.queued ? micros * IDLE_SHARE : micros;
}

/* ---- Loading and taking over ---- */

static void resume(struct broker *broker, const struct tier_kernel *kernel,
				   const struct device_handle *executor);

static void take_over_in(struct broker *broker, struct tier_kernel *kernel,
						 struct device_handle *executor)
{
	struct tier *tier = kernel->tiers;
	/* The compiler may have changed while the load waited: then the kernel has a new key, under
	 * which nothing is loaded yet. */
	if (!tier_module(broker, executor, kernel)) {
		if (kernel->stage == TIER_READY)
			resume(broker, kernel, executor);
		return;
	}
	while (tier) {
		struct tier *next = tier->next;
		struct session *session = session_find(broker, tier->session);
		if (session && session->executor == executor)
			tier_take_over(session, tier);
		tier = next;
	}
}

static void on_tier_fetch_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct loading *loading = arg;
	struct tier_kernel *kernel = loading->kernel;
	(void)reply;
	kernel->loads--;
	if (status == KILN_OK) {
		take_over_in(loading->broker, kernel, loading->executor);
	} else if (status != KILN_EDEVICE) {
		kernel->stage = TIER_FAILED;
		util_log(UTIL_WARN, "%s: %.12s cannot be loaded, and its calls stay generic: %s",
				 kernel->op, kernel->key, error);
	}
	free(loading);
}

static void load_in(struct broker *broker, struct tier_kernel *kernel,
					struct device_handle *executor, const struct cache_row *row,
					const struct kernel_plan *plan)
{
	struct loading *loading = calloc(1, sizeof(*loading));
	if (!loading)
		return;
	*loading = (struct loading){broker, kernel, executor};
	kernel->loads++;
	if (handle_load_lazily(executor, row->key, row, plan, on_tier_fetch_loaded, loading) == KILN_OK)
		return;
	kernel->loads--;
	free(loading);
}

/* Loads it in each device process that has a call for it. */
static void tier_fetch_load(struct broker *broker, struct tier_kernel *kernel,
							const struct cache_row *row, const struct kernel_plan *plan)
{
	struct device_handle *found[EXECUTORS_MOST];
	int count = 0;
	for (const struct tier *tier = kernel->tiers; tier; tier = tier->next) {
		const struct session *session = session_find(broker, tier->session);
		int i = 0;
		while (session && i < count && found[i] != session->executor)
			i++;
		if (session && i == count && count < EXECUTORS_MOST && handle_is_ready(session->executor))
			found[count++] = session->executor;
	}
	/* A load that ends at once takes tiers off the list: so they were collected first. */
	for (int i = 0; i < count; i++)
		load_in(broker, kernel, found[i], row, plan);
}

/* ---- Looking and compiling ---- */

static void pump(struct broker *broker);

/* The lost time has bought a compile, or the compile failed: the next one has to pay anew. */
static void count_anew(struct tier_kernel *kernel)
{
	kernel->uses = 0;
	kernel->lost_us = 0;
}

static void note_end(struct broker *broker, struct tier_kernel *kernel,
					 const struct job_answer *answer)
{
	if (answer->status == KILN_OK) {
		tier_know(broker, kernel->fetching, (int64_t)answer->row->object_bytes);
		tier_fetch_load(broker, kernel, answer->row, &kernel->fetching->plan);
	} else if (answer->status == KILN_ENOENT && kernel->purpose == JOB_LOOK) {
		kernel->stage = TIER_MISSING;
	} else if (answer->status == KILN_EIO || answer->status == KILN_ENOMEM) {
		kernel->stage = TIER_MISSING; /* the error may pass */
		count_anew(kernel);
	} else if (answer->status != KILN_ECANCELED) {
		kernel->stage = TIER_FAILED;
	}
	if (kernel->purpose == JOB_LOOK)
		return;
	count_anew(kernel);
	if (answer->status != KILN_OK)
		util_log(UTIL_INFO, "%s: no exact kernel, and its calls stay generic: %s", kernel->op,
				 answer->error);
	*(answer->status == KILN_OK ? &broker->counters.specialized
								: &broker->counters.specialize_failed) += 1;
}

/* Returns the ref that was fetched, whose hold is the caller's. */
static struct kernel_ref *end_fetch(struct tier_kernel *kernel)
{
	struct kernel_ref *ref = kernel->fetching;
	kernel->fetch = TIER_FETCH_NONE;
	kernel->fetching = NULL;
	kernel->wait = NULL;
	tier_kernel_assert_valid(kernel);
	return ref;
}

static void on_fetched(void *arg, const struct job_answer *answer)
{
	struct tier_kernel *kernel = arg;
	struct broker *broker = kernel->broker;
	struct session *session = session_find(broker, kernel->asker);
	broker->tiers->fetches--;
	note_end(broker, kernel, answer);
	if (kernel->purpose == JOB_CALL && session && answer->status == KILN_OK)
		shapes_note_compile(session, kernel->op, answer->row->compile_micros);
	struct kernel_ref *ref = end_fetch(kernel);
	/* Launches went on while it was looked for. */
	if (session)
		tier_consider(session, ref);
	kernel_drop(ref);
	pump(broker);
}

static void tier_fetch_start(struct broker *broker, struct tier_kernel *kernel)
{
	const struct job_terms terms = {.priority = POOL_BACKGROUND, .purpose = kernel->purpose};
	if (kernel->purpose == JOB_CALL)
		util_debug(
			"%s: the exact kernel is compiled: %llu launches lost %.1f ms by the generic one",
			kernel->op, (unsigned long long)kernel->uses, kernel->lost_us / 1e3);
	kernel->wait = job_resolve(broker, kernel->fetching, &terms, on_fetched, kernel);
	if (!kernel->wait) {
		kernel_drop(end_fetch(kernel));
		return;
	}
	kernel->fetch = TIER_FETCH_UNDER_WAY;
	broker->tiers->fetches++;
	tier_kernel_assert_valid(kernel);
}

static void pump(struct broker *broker)
{
	struct tiers *tiers = broker->tiers;
	while (turns_next(&tiers->turns) && tiers->fetches < TIER_FETCHES && !tiers->stopped)
		tier_fetch_start(broker, (struct tier_kernel *)turns_take(&tiers->turns));
}

static void on_tier_fetch_timer(uv_timer_t *timer)
{
	pump(timer->data);
}

void tier_enqueue(struct session *session, struct kernel_ref *ref, enum job_purpose purpose)
{
	struct broker *broker = session->broker;
	struct tier_kernel *kernel = ref->tier->exact;
	struct tiers *tiers = broker->tiers;
	if (kernel->fetch != TIER_FETCH_NONE || tiers->stopped)
		return;
	/* Without memory the next call of its shape queues it. */
	if (turns_join(&tiers->turns, &kernel->waiting, &kernel->place, session_turn(session)) < 0)
		return;
	/* The kernel is fetched even if the call goes: the next call of its shape gets it. */
	kernel->fetch = TIER_FETCH_QUEUED;
	kernel->fetching = kernel_hold(ref);
	kernel->asker = session->id;
	kernel->purpose = purpose;
	tier_kernel_assert_valid(kernel);
	if (!uv_is_active((uv_handle_t *)&tiers->timer))
		uv_timer_start(&tiers->timer, on_tier_fetch_timer, PAUSE_TIER_LOOK_MS, 0);
}

static void resume(struct broker *broker, const struct tier_kernel *kernel,
				   const struct device_handle *executor)
{
	for (const struct tier *tier = kernel->tiers; tier; tier = tier->next) {
		struct session *session = session_find(broker, tier->session);
		if (session && session->executor == executor) {
			tier_enqueue(session, tier->ref, JOB_LOOK);
			return;
		}
	}
}

void tier_resume(struct broker *broker, const struct device_handle *executor)
{
	struct tier_kernel *kernel;
	size_t cursor = 0;
	while (handle_is_ready(executor) && (kernel = map_next(&broker->tiers->kernels, &cursor)))
		if (kernel->stage == TIER_READY)
			resume(broker, kernel, executor);
}

/* ---- Life ---- */

void tiers_open(struct broker *broker)
{
	broker->tiers = util_alloc(sizeof(*broker->tiers));
	broker->tiers->timer.data = broker;
	uv_timer_init(&broker->loop, &broker->tiers->timer);
}

void tiers_stop(struct broker *broker)
{
	struct tiers *tiers = broker->tiers;
	struct tier_kernel *kernel;
	size_t cursor = 0;
	tiers->stopped = true;
	uv_timer_stop(&tiers->timer);
	while ((kernel = map_next(&tiers->kernels, &cursor)))
		if (kernel->fetch != TIER_FETCH_NONE) {
			if (kernel->wait)
				job_leave(broker, kernel->wait);
			turns_leave_all(&kernel->waiting);
			kernel_drop(end_fetch(kernel));
		}
	tier_warm_stop(broker);
}

void tiers_close(struct broker *broker)
{
	uv_close((uv_handle_t *)&broker->tiers->timer, NULL);
}

void tiers_free(struct broker *broker)
{
	struct tiers *tiers = broker->tiers;
	struct tier_kernel *kernel;
	while ((kernel = map_take(&tiers->kernels))) {
		tier_object_drop(tiers, kernel);
		free(kernel);
	}
	map_free(&tiers->kernels);
	turns_free(&tiers->turns);
	tier_warm_free(broker);
	free(tiers);
	broker->tiers = NULL;
}
