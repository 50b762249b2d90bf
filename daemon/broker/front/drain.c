/* drain.c: the end of the daemon, one step after another. */
#include "drain.h"

#include <assert.h>
#include <malloc.h>
#include <stdlib.h>

#include "accept.h"
#include "daemon/base/child.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/kernels/tier.h"
#include "listen.h"
#include "session_life.h"

enum drain_state { DRAIN_RUNNING, DRAIN_DRAINING, DRAIN_CLOSING, DRAIN_CLOSED };

struct drain {
	enum drain_state state;
	void (*closed)(struct broker *broker);
	uv_timer_t look;        /* while DRAINING and CLOSING */
	uv_timer_t idle, alone; /* while RUNNING without sessions */
	uint64_t began_us, until_us;
	uint64_t disk_until_us; /* 0: all other things are not done yet */
	bool left_disk;
};

static void drain_assert_valid(const struct broker *broker)
{
	(void)broker;
	assert(!broker->draining || broker->drain->state != DRAIN_RUNNING);
	assert(broker->drain->state < DRAIN_CLOSING || !broker->sessions);
}

bool drain_is_done(const struct broker *broker)
{
	return broker->drain->state == DRAIN_CLOSED;
}

bool drain_has_left_disk(const struct broker *broker)
{
	return broker->drain->left_disk;
}

static bool work_left(const struct broker *broker)
{
	for (const struct session *session = broker->sessions; session; session = session->next)
		if (session->work_count || session->request_count || lane_busy(session))
			return true;
	return job_busy(broker);
}

static void close_all(struct broker *broker)
{
	broker->drain->state = DRAIN_CLOSING;
	while (broker->sessions)
		session_close(broker->sessions);
	tiers_stop(broker);
	job_close(broker);
	pool_close(broker);
	devices_close(broker);
	drain_assert_valid(broker);
}

/* Returns true when the cache is closed, or left: the daemon does not wait for a disk that does not
 * answer, and the database survives whatever the disk was doing. */
static bool end_store(struct broker *broker)
{
	struct drain *drain = broker->drain;
	uint64_t wanted_us = (uint64_t)broker->test.store_deadline_ms * 1000;
	if (store_end(broker))
		return true;
	if (!drain->disk_until_us)
		drain->disk_until_us = util_now_us() + (wanted_us ? wanted_us : DEADLINE_STORE_END_US);
	if (util_now_us() < drain->disk_until_us)
		return false;
	util_log(UTIL_WARN, "the disk of the cache %s does not answer; it is left as it is",
			 broker->options.cache_dir);
	drain->left_disk = true;
	uv_stop(&broker->loop);
	return true;
}

void drain_look(struct broker *broker)
{
	struct drain *drain = broker->drain;
	if (drain->state == DRAIN_DRAINING && util_now_us() > drain->until_us) {
		util_log(UTIL_WARN, "work was still under way after %llu ms; it is dropped",
				 (unsigned long long)broker->options.drain_timeout_ms);
		close_all(broker);
	}
	if (drain->state == DRAIN_DRAINING && !work_left(broker))
		close_all(broker);
	/* Lookups under way find no session any more; no child may be left behind. */
	if (drain->state == DRAIN_CLOSING && !child_count() && remote_finished(broker) &&
		end_store(broker)) {
		drain->state = DRAIN_CLOSED;
		remote_close(broker);
		uv_close((uv_handle_t *)&drain->look, NULL);
		uv_close((uv_handle_t *)&drain->idle, NULL);
		uv_close((uv_handle_t *)&drain->alone, NULL);
		drain->closed(broker);
	}
}

static void on_drain_look(uv_timer_t *timer)
{
	drain_look(timer->data);
}

/* Looks from the loop, and again after a while: the caller is in the middle of a session, a job or
 * a child, and work ends in many places. */
static void look_soon(struct drain *drain)
{
	uv_timer_start(&drain->look, on_drain_look, 0, PAUSE_DRAIN_LOOK_MS);
}

void drain_progress(struct broker *broker)
{
	struct drain *drain = broker->drain;
	if (drain->state == DRAIN_DRAINING || drain->state == DRAIN_CLOSING)
		look_soon(drain);
}

void drain_begin(struct broker *broker, const char *why)
{
	struct drain *drain = broker->drain;
	if (drain->state != DRAIN_RUNNING)
		return;
	util_log(UTIL_INFO, "stopping: %s", why);
	listen_notify("STOPPING=1");
	broker->draining = true;
	drain->state = DRAIN_DRAINING;
	drain->began_us = util_now_us();
	drain->until_us = drain->began_us + broker->options.drain_timeout_ms * 1000;
	accept_stop(broker);
	/* No session waits for exact kernels. */
	tiers_stop(broker);
	lanes_end(broker);
	look_soon(drain);
	drain_assert_valid(broker);
}

void drain_now(struct broker *broker)
{
	close_all(broker);
	look_soon(broker->drain);
}

void drain_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct drain *drain = broker->drain;
	struct wait_note note = {.what = "drain", .of = "", .since_us = drain->began_us};
	if (drain->state != DRAIN_DRAINING)
		return;
	note.left_ms = waits_left(drain->until_us, util_now_us());
	waits_say(&note, "what is under way to end, for kilnd stops");
	visit(arg, &note);
}

/* ---- No sessions ---- */

static void on_idle(uv_timer_t *timer)
{
	drain_begin(timer->data, "no client for the time of --idle-exit");
}

/* Memory that many sessions took goes back to the system while no client waits. */
static void on_alone(uv_timer_t *timer)
{
	(void)timer;
	malloc_trim(0);
}

void drain_note_sessions(struct broker *broker)
{
	struct drain *drain = broker->drain;
	uint64_t seconds = broker->options.idle_exit_seconds;
	if (drain->state != DRAIN_RUNNING)
		return;
	if (broker->session_count)
		uv_timer_stop(&drain->alone);
	else
		uv_timer_start(&drain->alone, on_alone, PAUSE_SERVER_ALONE_MS, 0);
	if (!seconds)
		return;
	if (broker->session_count)
		uv_timer_stop(&drain->idle);
	else
		uv_timer_start(&drain->idle, on_idle, seconds * 1000, 0);
}

void drain_open(struct broker *broker, void (*closed)(struct broker *broker))
{
	struct drain *drain = util_alloc(sizeof(*drain));
	broker->drain = drain;
	drain->closed = closed;
	drain->look.data = drain->idle.data = drain->alone.data = broker;
	uv_timer_init(&broker->loop, &drain->look);
	uv_timer_init(&broker->loop, &drain->idle);
	uv_timer_init(&broker->loop, &drain->alone);
}

void drain_free(struct broker *broker)
{
	free(broker->drain);
	broker->drain = NULL;
}
