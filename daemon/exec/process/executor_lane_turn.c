/*
 * executor_lane_turn: decides when the process looks at lanes.  Each turn takes their entries, and
 * between turns the process looks again, naps or sleeps.  Also finds entries that are overdue.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_lane.h"

#include <time.h>

#define ENTRIES_PER_TURN 32 /* of a lane, so that no lane keeps the others waiting */

/* How much of the next entry its client has written: NONE, all of it (HERE), none while it asks at
 * the desk (DESK), or nonsense (WRONG). */
enum next { NEXT_NONE, NEXT_HERE, NEXT_DESK, NEXT_WRONG };

static enum next look_at_entry(const struct exec_lane *lane)
{
	const struct lane_entry *entry = &lane->memory->entries[lane->head % LANE_ENTRIES];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
	uint32_t before = lane->head < LANE_ENTRIES ? 0 : (uint32_t)(lane->head + 1 - LANE_ENTRIES);
	if (sequence == (uint32_t)(lane->head + 1))
		return NEXT_HERE;
	if (lane->desk && sequence == lane_desk_value(lane->head))
		return exec_desk_asked(lane) ? NEXT_DESK : NEXT_NONE;
	return sequence == before ? NEXT_NONE : NEXT_WRONG;
}

/* Whether the next entry names a call that is not bound yet; *found is the call, if it is bound.
 * The broker answers a client when it has sent what binds a call, and not when that has arrived
 * here.  A main thread that waits for the
 * device reads no messages meanwhile, so time alone tells nothing: the socket must have been found
 * empty, too. */
static bool awaits_call(struct launcher *launcher, struct exec_lane *lane,
						struct exec_template **found)
{
	struct exec *executor = launcher->executor;
	const uint64_t call = lane->memory->entries[lane->head % LANE_ENTRIES].call;
	*found = map_get_id(&lane->calls, call);
	if (*found || exec_graph_find(launcher, lane->id, call)) {
		lane->unknown_us = 0;
		return false;
	}
	const uint32_t empty = atomic_load_explicit(&executor->empty, memory_order_relaxed);
	if (!lane->unknown_us) {
		lane->unknown_us = launcher->now_us;
		lane->unknown_empty = empty;
	}
	if (!atomic_load_explicit(&executor->looks, memory_order_relaxed)) {
		atomic_store(&executor->looks, true);
		if (!launcher_is_main(launcher))
			launcher_tell(launcher);
	}
	return launcher->now_us - lane->unknown_us < DEADLINE_BIND_US ||
		   empty - lane->unknown_empty < 2;
}

/* Closes the lane and tells the broker, which ends the session. */
static void refuse_lane(struct launcher *launcher, struct exec_lane *lane)
{
	const struct lane_entry *entry = &lane->memory->entries[lane->head % LANE_ENTRIES];
	struct wire_out message;
	char why[160];
	snprintf(why, sizeof(why), "the memory of its lane has entry %u where entry %u is to come",
			 atomic_load(&entry->sequence), (uint32_t)(lane->head + 1));
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "lane");
	wire_put_uint(&message, "stream", lane->id);
	wire_put_str(&message, "err", why);
	exec_send(launcher->executor, &message, -1);
	exec_lane_close(launcher, lane->id, 0);
}

/* The lane that launches last in a turn has the least time for its launches to end, and may miss
 * the next turn.  So each lane is the first and the last in turn. */
static void rotate(struct launcher *launcher, struct exec_lane *last)
{
	struct exec_lane *first = launcher->lanes;
	if (!last || last->next || last == first)
		return;
	launcher->lanes = first->next;
	first->next = NULL;
	last->next = first;
}

void exec_lanes_serve(struct launcher *launcher)
{
	struct exec_lane *next, *last = NULL;
	struct exec_template *found;
	for (struct exec_lane *lane = launcher->lanes; lane && !launcher_wanted(launcher);
		 lane = next) {
		next = lane->next;
		last = lane;
		if (lane->state != EXEC_LANE_OPEN)
			continue;
		if (lane->parked > 0)
			exec_lane_unpark(launcher, lane);
		if (lane->leaving)
			exec_lane_drop_leaving(launcher, lane);
		int taken = 0;
		enum next there = look_at_entry(lane);
		while (there == NEXT_HERE && taken < ENTRIES_PER_TURN &&
			   exec_lane_has_room(launcher, lane) && !awaits_call(launcher, lane, &found)) {
			exec_lane_take(launcher, lane, found);
			taken++;
			there = look_at_entry(lane);
		}
		if (there == NEXT_WRONG) {
			refuse_lane(launcher, lane);
			last = NULL;
			continue;
		}
		if (taken > 0 && launcher->ops->flush)
			launcher->ops->flush(launcher->device);
		if (there == NEXT_DESK)
			exec_desk_serve(launcher, lane);
	}
	rotate(launcher, last);
}

int exec_lane_catch_up(struct launcher *launcher, struct exec_request *request)
{
	uint64_t until = wire_get_uint(request->root, "tail", 0);
	uint64_t follows = wire_get_uint(request->root, "follows", 0);
	uint64_t stream = wire_get_uint(request->root, "lane", 0);
	/* A request that is about no session, as of a buffer, may come behind entries of one. */
	launcher = launchers_of(launcher->executor, stream, false);
	struct exec_lane *lane = exec_lane_find(launcher, stream);
	if (!lane)
		return KILN_OK;
	/* A client cannot have written more entries than that; if it writes more meanwhile, they
	 * wait. */
	for (uint32_t i = 0; i < LANE_ENTRIES && lane->head < until &&
						 look_at_entry(lane) == NEXT_HERE && exec_lane_has_place(lane);
		 i++)
		exec_lane_take(launcher, lane, NULL);
	if (follows && exec_lane_failed(lane, follows - 1))
		return exec_refuse(request, KILN_ECANCELED,
						   "the call that this one follows did not succeed");
	return KILN_OK;
}

/* ---- Waiting ---- */

bool exec_lanes_waiting(const struct launcher *launcher)
{
	for (const struct exec_lane *lane = launcher->lanes; lane; lane = lane->next)
		if (lane->state == EXEC_LANE_OPEN &&
			((look_at_entry(lane) != NEXT_NONE && exec_lane_has_place(lane)) ||
			 (lane->parked > 0 && exec_lane_may_unpark(launcher, lane))))
			return true;
	return false;
}

/* True: entries wait for ready words.  No event tells when one is written. */
static bool any_gated(const struct launcher *launcher)
{
	for (const struct exec_lane *lane = launcher->lanes; lane; lane = lane->next)
		if (lane->gated > 0)
			return true;
	return false;
}

int exec_lanes_patience(struct launcher *launcher)
{
	int patience = -1;
	if (!launcher->lanes)
		return -1;
	uint64_t now = launcher->now_us;
	if (!launcher->executor->alone && now - launcher->lane_active_us < launcher->spin_us)
		return 0;
	for (const struct exec_lane *lane = launcher->lanes; lane; lane = lane->next) {
		if (!lane->flights || !lane->deadline_us)
			continue;
		uint64_t until = lane->progress_us + lane->deadline_us;
		uint64_t left = until > now ? (until - now) / 1000 + 1 : 1;
		if (patience < 0 || left < (uint64_t)patience)
			patience = left < 1000 ? (int)left : 1000;
	}
	return any_gated(launcher) ? 0 : patience;
}

static void set_sleeping(struct launcher *launcher, uint32_t value)
{
	for (struct exec_lane *lane = launcher->lanes; lane; lane = lane->next)
		atomic_store_explicit(&lane->memory->header.sleeping, value, memory_order_relaxed);
}

bool exec_lanes_sleep(struct launcher *launcher)
{
	if (!launcher->lanes)
		return true;
	set_sleeping(launcher, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!exec_lanes_may_launch(launcher) || !exec_lanes_waiting(launcher))
		return true;
	set_sleeping(launcher, 0);
	return false;
}

void exec_lanes_wake(struct launcher *launcher)
{
	set_sleeping(launcher, 0);
}

void exec_lanes_nap(struct launcher *launcher)
{
	uint64_t idle = launcher->now_us - launcher->lane_active_us;
	if ((!launcher->executor->alone && idle < launcher->spin_us) || !any_gated(launcher) ||
		!exec_lanes_sleep(launcher))
		return;
	/* The longer ready words do not come, the less often the process looks: an entry starts late by
	 * at most an eighth of the time that it waited. */
	uint64_t most = idle < PAUSE_NAP_PATIENT_US ? PAUSE_NAP_MOST_US : PAUSE_NAP_LONG_US;
	uint64_t nap = idle / 8 < most ? idle / 8 : most;
	nap = nap > PAUSE_NAP_LEAST_US ? nap : PAUSE_NAP_LEAST_US;
	struct timespec time = {0, (long)nap * 1000};
	launcher_rest(launcher, &time);
	exec_lanes_wake(launcher);
}

/* ---- Deadlines ---- */

/* Returns the last progress of the stream on which nothing has ended for longest. */
static uint64_t least_progress(const struct exec_lane *lane)
{
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->streams[i].flights && lane->streams[i].progress_us < least)
			least = lane->streams[i].progress_us;
	return least;
}

/* Returns the oldest FLYING entry of that stream. */
static const struct exec_slot *oldest(const struct exec_lane *lane)
{
	const struct exec_slot *found = NULL;
	for (uint32_t place = 0; place < LANE_ENTRIES; place++) {
		const struct exec_slot *slot = &lane->slots[place];
		if (slot->state == SLOT_FLYING && (!found || slot->number < found->number) &&
			lane->streams[exec_slot_stream(slot)].progress_us == lane->progress_us)
			found = slot;
	}
	return found;
}

bool exec_lanes_overrun(struct launcher *launcher, struct device_done *culprit)
{
	uint64_t now = launcher->turn_us;
	if (now < launcher->overrun_us)
		return false;
	launcher->overrun_us = now + PAUSE_OVERRUN_US;
	exec_lanes_share_spin(launcher);
	for (struct exec_lane *lane = launcher->lanes; lane; lane = lane->next) {
		if (!lane->flights || !lane->deadline_us || now < lane->progress_us + lane->deadline_us)
			continue;
		lane->progress_us = least_progress(lane);
		if (now < lane->progress_us + lane->deadline_us)
			continue;
		const struct exec_slot *slot = oldest(lane);
		uint64_t since = slot ? exec_pace_since(launcher, slot->flight.id, lane->progress_us) : 0;
		if (now < since + lane->deadline_us) {
			lane->streams[exec_slot_stream(slot)].progress_us = since;
			lane->progress_us = least_progress(lane);
			continue;
		}
		*culprit = (struct device_done){.status = KILN_ETIMEDOUT};
		exec_pace_sentence(launcher, lane->deadline_us, culprit->error);
		if (slot) {
			/* Tells the client at once; the daemon names the post-mortem only later. */
			char error[LANE_ERROR_MAX];
			culprit->ticket = slot->flight.id;
			util_append(error, sizeof(error), 0, "%s; report: kiln faults ls", culprit->error);
			exec_lane_tell(lane, slot->number, KILN_ETIMEDOUT, error, 0);
		}
		return true;
	}
	return false;
}
