/*
 * executor_park: takes entries from lanes, parks those that may not start yet, and starts them when
 * they may.  executor_lane.h draws the states of an entry.
 *
 * An entry is parked until its ready word is written; until the entry that it follows has ended,
 * where the order of one stream does not ensure that; or behind a parked entry of its own stream.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_lane.h"

#include <inttypes.h>
#include <string.h>

/* True: the entry must wait for its ready word or for the entry that it follows.  Callers look
 * after parked entries before it on its stream. */
static bool must_wait(const struct exec_lane *lane, const struct exec_slot *slot)
{
	const struct lane_entry *entry = &slot->entry;
	if ((entry->flags & LANE_READY) &&
		!lane_gate_open(&lane->memory->gates[exec_lane_place(slot->number)].ready, slot->number))
		return true;
	if (!entry->after)
		return false;
	const struct exec_slot *earlier = &lane->slots[exec_lane_place(entry->after - 1)];
	if (earlier == slot || earlier->number != entry->after - 1)
		return false;
	return earlier->state == SLOT_PARKED ||
		   (earlier->state == SLOT_FLYING &&
			(earlier->reports || earlier->entry.stream != entry->stream));
}

/* Writes what `kiln waits` shows of the lane. */
static void tell_parked(struct exec_lane *lane)
{
	struct lane_counts *counts = lane->counts;
	uint64_t first = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->streams[i].parked && lane->streams[i].parked->parked_us < first)
			first = lane->streams[i].parked->parked_us;
	atomic_store_explicit(&counts->parked_us, first, memory_order_relaxed);
	atomic_store_explicit(&counts->gated, (uint64_t)lane->gated, memory_order_relaxed);
	atomic_store_explicit(&counts->parked, (uint64_t)lane->parked, memory_order_relaxed);
}

static void park(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot)
{
	struct exec_lane_stream *stream = &lane->streams[exec_slot_stream(slot)];
	slot->state = SLOT_PARKED;
	slot->doomed = slot->entry.after && exec_lane_failed(lane, slot->entry.after - 1);
	slot->next = NULL;
	slot->parked_us = launcher->now_us;
	if (stream->parked)
		stream->last_parked->next = slot;
	else
		stream->parked = slot;
	stream->last_parked = slot;
	lane->parked++;
	lane->gated += (slot->entry.flags & LANE_READY) != 0;
	tell_parked(lane);
}

static void unpark(struct exec_lane *lane, struct exec_slot *slot)
{
	struct exec_lane_stream *stream = &lane->streams[exec_slot_stream(slot)];
	struct exec_slot *before = NULL, **link = &stream->parked;
	for (; *link != slot; link = &before->next)
		before = *link;
	*link = slot->next;
	if (stream->last_parked == slot)
		stream->last_parked = before;
	lane->parked--;
	lane->gated -= (slot->entry.flags & LANE_READY) != 0;
	tell_parked(lane);
}

uint64_t exec_lane_first_parked(const struct exec_lane *lane)
{
	uint64_t first = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->streams[i].parked && lane->streams[i].parked->number < first)
			first = lane->streams[i].parked->number;
	return first;
}

bool exec_lane_may_unpark(const struct launcher *launcher, const struct exec_lane *lane)
{
	for (int i = 0; i < KILN_STREAMS && exec_lanes_have_room(launcher); i++)
		if (lane->streams[i].parked && !must_wait(lane, lane->streams[i].parked))
			return true;
	return false;
}

static void end_parked(struct exec_lane *lane, struct exec_slot *slot, int status, const char *why)
{
	unpark(lane, slot);
	exec_lane_tell(lane, slot->number, status, why, 0);
}

/* True: the first parked entry of a stream has waited for its ready word for too long.  Its time
 * counts from when it was parked, or from the last end on its stream if that came later: before
 * that end it waited for other entries. */
static bool is_overdue(const struct launcher *launcher, const struct exec_lane *lane,
					   const struct exec_slot *slot)
{
	uint64_t since = lane->streams[exec_slot_stream(slot)].progress_us;
	since = since > slot->parked_us ? since : slot->parked_us;
	return lane->ready_us && (slot->entry.flags & LANE_READY) &&
		   launcher->now_us > since + lane->ready_us &&
		   !lane_gate_open(&lane->memory->gates[exec_lane_place(slot->number)].ready, slot->number);
}

static void end_overdue(struct launcher *launcher, struct exec_lane *lane)
{
	char why[KERNEL_ERROR_MAX];
	util_fail(why, sizeof(why), 0, "its CUDA stream did not come by for %" PRIu64 " ms",
			  lane->ready_us / 1000);
	for (int i = 0; i < KILN_STREAMS; i++)
		while (lane->streams[i].parked && is_overdue(launcher, lane, lane->streams[i].parked))
			end_parked(lane, lane->streams[i].parked, KILN_ETIMEDOUT, why);
}

void exec_lane_unpark(struct launcher *launcher, struct exec_lane *lane)
{
	if (lane->gated > 0)
		end_overdue(launcher, lane);
	for (int i = 0; i < KILN_STREAMS; i++) {
		struct exec_slot *slot;
		while ((slot = lane->streams[i].parked) && exec_lanes_may_launch(launcher) &&
			   !must_wait(lane, slot)) {
			unpark(lane, slot);
			exec_entry_start(launcher, lane, slot, NULL);
		}
	}
}

/* Marks the flying entries that follow `first` on its stream, directly or through each other: the
 * device must not run them either. */
static void find_doomed(struct exec_lane *lane, const struct exec_slot *first,
						bool doomed[LANE_ENTRIES])
{
	doomed[exec_lane_place(first->number)] = true;
	for (uint64_t number = first->number + 1; number < lane->head; number++) {
		const struct exec_slot *slot = exec_lane_slot(lane, number);
		uint64_t after = slot->entry.after;
		if (slot->number == number && slot->state == SLOT_FLYING && after > first->number &&
			after <= number && slot->entry.stream == first->entry.stream)
			doomed[exec_lane_place(number)] = doomed[exec_lane_place(after - 1)];
	}
}

static void cancel_flying(struct launcher *launcher, struct exec_lane *lane,
						  const struct exec_slot *first)
{
	bool doomed[LANE_ENTRIES] = {false};
	uint64_t tickets[LANE_ENTRIES] = {first->flight.id};
	int count = 1;
	find_doomed(lane, first, doomed);
	for (uint32_t place = 0; place < LANE_ENTRIES; place++)
		if (doomed[place] && &lane->slots[place] != first)
			tickets[count++] = lane->slots[place].flight.id;
	if (!launcher->ops->cancel(launcher->device, tickets, count))
		return;
	/* Entries that follow these later fail too. */
	for (uint32_t place = 0; place < LANE_ENTRIES; place++)
		lane->slots[place].failed = lane->slots[place].failed || doomed[place];
}

static void cancel_entry(struct launcher *launcher, struct exec_lane *lane, uint64_t number)
{
	struct exec_slot *slot = exec_lane_slot(lane, number);
	if (slot->number != number)
		return;
	if (slot->state == SLOT_PARKED)
		end_parked(lane, slot, KILN_ECANCELED, "the call was canceled before it started");
	else if (slot->state == SLOT_FLYING)
		cancel_flying(launcher, lane, slot);
}

int exec_lane_cancel(struct launcher *launcher, struct exec_request *request)
{
	struct exec_lane *lane = exec_lane_find(launcher, request->stream);
	uint64_t number = wire_get_uint(request->root, "number", 0);
	uint64_t count = wire_get_uint(request->root, "count", 1);
	for (uint64_t i = 0; lane && i < count && i < LANE_ENTRIES; i++)
		cancel_entry(launcher, lane, number + i);
	return KILN_OK;
}

void exec_lane_drop_parked(struct exec_lane *lane)
{
	for (int i = 0; i < KILN_STREAMS; i++)
		while (lane->streams[i].parked)
			end_parked(lane, lane->streams[i].parked, KILN_ECANCELED,
					   "the call had not started when its lane was closed");
}

bool exec_lane_has_place(const struct exec_lane *lane)
{
	enum exec_slot_state state = lane->slots[exec_lane_place(lane->head)].state;
	return state == SLOT_FREE || state == SLOT_ENDED;
}

bool exec_lane_has_room(const struct launcher *launcher, const struct exec_lane *lane)
{
	return exec_lane_has_place(lane) && exec_lanes_may_launch(launcher);
}

/* ---- Taking ---- */

#define CACHE_LINE 64

/* The client may write to the ring at any time: the count that says how much to copy is the copy's.
 */
static void copy_entry(struct lane_entry *to, const struct lane_entry *from)
{
	memcpy(to, from, offsetof(struct lane_entry, operands));
	uint32_t count = to->operand_count < KILN_MAX_OPERANDS ? to->operand_count : KILN_MAX_OPERANDS;
	memcpy(to->operands, from->operands, count * sizeof(*to->operands));
}

/* Fetches the next entry and its slot, and the cell and gate that are written at the end of this
 * one: they come while the driver launches. */
static void fetch_ahead(const struct exec_lane *lane, uint64_t number)
{
	const char *slot = (const char *)&lane->slots[exec_lane_place(number + 1)];
	for (size_t i = 0; i < sizeof(struct exec_slot); i += CACHE_LINE)
		__builtin_prefetch(slot + i, 1);
	__builtin_prefetch(&lane->memory->entries[exec_lane_place(number + 1)]);
	__builtin_prefetch(&lane->memory->cells[exec_lane_place(number)], 1);
	__builtin_prefetch(&lane->memory->gates[exec_lane_place(number)], 1);
}

void exec_lane_take(struct launcher *launcher, struct exec_lane *lane, struct exec_template *found)
{
	uint64_t number = lane->head++;
	struct exec_slot *slot = exec_lane_slot(lane, number);
	copy_entry(&slot->entry, &lane->memory->entries[exec_lane_place(number)]);
	fetch_ahead(lane, number);
	atomic_store_explicit(&lane->memory->header.head, lane->head, memory_order_relaxed);
	exec_lane_count(&lane->counts->taken);
	slot->number = number;
	slot->failed = slot->doomed = slot->reports = false;
	slot->op[0] = 0;
	exec_misdeed(launcher, "entry", 0);
	launcher->lane_active_us = lane->taken_us = launcher->now_us;
	if (lane->streams[exec_slot_stream(slot)].parked || must_wait(lane, slot))
		park(launcher, lane, slot);
	else
		exec_entry_start(launcher, lane, slot, found);
}
