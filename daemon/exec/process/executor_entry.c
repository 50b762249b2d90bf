/*
 * executor_entry: what becomes of an entry of a lane: taken, perhaps parked, launched, told of.
 *
 * An entry is copied before it is looked at, for its client may write there at any time; it can
 * name only what its session owns.
 *
 * It is parked while it may not start: until its ready word is written; until the entry that it
 * follows has ended, where order in one stream does not say so; or behind a parked one of its own
 * stream.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"

#include <inttypes.h>
#include <string.h>

#define GATE_TURNS 4096 /* of the ring */
#define SHARE_AFTER 32  /* launches: registering memory is too dear for a client with a few */

static uint32_t place_of(uint64_t number)
{
	return (uint32_t)(number % LANE_ENTRIES);
}

static struct exec_slot *slot_of(struct exec_lane *lane, uint64_t number)
{
	return &lane->slots[place_of(number)];
}

static uint32_t stream_of(const struct exec_slot *slot)
{
	return slot->entry.stream % KILN_STREAMS; /* a wrong one is refused when it is run */
}

uint32_t exec_lane_stream(const struct exec_lane *lane, uint64_t number)
{
	return stream_of(&lane->slots[place_of(number)]);
}

/* ---- Ends ---- */

/* The place of what failed may be another's before those that follow it are launched. */
static void doom_parked(struct exec_lane *lane, uint64_t failed)
{
	for (int i = 0; i < KILN_STREAMS; i++)
		for (struct exec_slot *slot = lane->parking[i].first; slot; slot = slot->next)
			slot->doomed = slot->doomed || slot->entry.after == failed + 1;
}

static void wake_client(struct exec_lane *lane)
{
	_Atomic uint32_t *waiting = &lane->memory->header.waiting;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(waiting, memory_order_relaxed) && atomic_exchange(waiting, 0))
		waker_wake(lane->waker, lane->told);
}

/* Nobody else writes there. */
static void count(_Atomic uint64_t *counter)
{
	uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, before + 1, memory_order_release);
}

static void count_end(struct exec_lane *lane, int status)
{
	count(status == KILN_OK ? &lane->counts->launched : &lane->counts->failed);
}

void exec_lane_tell(struct exec_lane *lane, uint64_t number, int status, const char *error,
					uint64_t micros)
{
	struct lane_cell *cell = &lane->memory->cells[place_of(number)];
	struct lane_gate *gate = &lane->memory->gates[place_of(number)];
	struct exec_slot *slot = slot_of(lane, number);
	slot->state = SLOT_ENDED;
	cell->status = status;
	cell->micros = micros;
	cell->error[0] = 0;
	slot->cell_is_good = status == KILN_OK && micros == 0;
	if (status != KILN_OK) {
		util_append(cell->error, sizeof(cell->error), 0, "%s", error);
		slot->failed = true;
		doom_parked(lane, number);
	}
	count_end(lane, status);
	atomic_store_explicit(&cell->done, number + 1, memory_order_release);
	/* The cell says it.  But no word may stay until its value is that of a later entry. */
	if ((slot->entry.flags & LANE_DONE) || number / LANE_ENTRIES % GATE_TURNS == 0)
		atomic_store_explicit(&gate->done, lane_gate_value(number), memory_order_release);
	wake_client(lane);
}

/* Where the device has said it already, the cell only says that the place is free. */
static void tell_good(struct exec_lane *lane, struct exec_slot *slot, uint64_t micros)
{
	uint32_t place = place_of(slot->number);
	if (!slot->flight.done_word ||
		atomic_load_explicit(&lane->memory->gates[place].done, memory_order_relaxed) !=
			lane_gate_value(slot->number)) {
		exec_lane_tell(lane, slot->number, KILN_OK, "", micros);
		return;
	}
	slot->state = SLOT_ENDED;
	count_end(lane, KILN_OK);
	lane->memory->cells[place].micros = micros;
	slot->cell_is_good = micros == 0;
	atomic_store_explicit(&lane->memory->cells[place].done, slot->number + 1, memory_order_release);
	wake_client(lane);
}

/* The broker sees nothing of lanes: requests that wait behind them would seem to be stuck. */
static void say_progress(struct exec *executor)
{
	struct wire_out message;
	uint64_t now = executor->lane_active_us;
	if (now - executor->lane_told_us < PAUSE_PROGRESS_US)
		return;
	executor->lane_told_us = now;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "progress");
	exec_send(executor, &message, -1);
}

/* Sentences of a call begin with its operator. */
static void tell_of(struct exec_lane *lane, uint64_t number, int status, const char *op,
					const char *error, uint64_t micros)
{
	char sentence[LANE_ERROR_MAX];
	util_append(sentence, sizeof(sentence), 0, "%s%s%s", op, *op ? ": " : "", error);
	exec_lane_tell(lane, number, status, sentence, micros);
}

const struct exec_flight *exec_lane_flight(const struct exec *executor, uint64_t ticket)
{
	uint64_t index = (ticket & ~EXEC_LANE_TICKET) / LANE_ENTRIES;
	return &slot_of(executor->lane_table[index], ticket)->flight;
}

static void tell_progress(const struct exec *executor, struct exec_lane *lane)
{
	atomic_store_explicit(&lane->counts->progress_us, executor->now_us, memory_order_relaxed);
}

void exec_lane_finish(struct exec *executor, const struct device_done *done)
{
	uint64_t index = (done->ticket & ~EXEC_LANE_TICKET) / LANE_ENTRIES;
	struct exec_lane *lane = executor->lane_table[index];
	struct exec_slot *slot = slot_of(lane, done->ticket);
	struct exec_pace *pace = &lane->paces[stream_of(slot)];
	int status = exec_misdeed(executor, "told", 0) ? INT32_MIN : done->status;
	exec_quiet_ended(executor, &slot->flight);
	exec_trail_end(executor, slot->flight.trail, done->status);
	exec_let_go(executor, &slot->flight);
	executor->lane_flights--;
	lane->flights--;
	pace->flights--;
	pace->progress_us = executor->lane_active_us = executor->now_us;
	tell_progress(executor, lane);
	exec_pace_ended(executor, exec_stream(lane->id, stream_of(slot)));
	if (status == KILN_OK)
		tell_good(lane, slot, done->micros);
	else
		tell_of(lane, slot->number, status, slot->op, done->error, done->micros);
	say_progress(executor);
	exec_lane_settle(executor, lane);
}

/* ---- Entries ---- */

/* Through different buffers two operands may still be the same memory. */
static bool share_a_byte(const struct exec_buffer *a, uint64_t a_at, uint64_t a_bytes,
						 const struct exec_buffer *b, uint64_t b_at, uint64_t b_bytes)
{
	if (a != b) {
		if (!a->origin || a->origin != b->origin)
			return false;
		a_at += a->at;
		b_at += b->at;
	}
	return a_bytes && b_bytes && a_at < b_at + b_bytes && b_at < a_at + a_bytes;
}

static int check_overlap(const struct exec_template *bound, const struct exec_place *places,
						 char error[KERNEL_ERROR_MAX])
{
	const struct exec_operand *operands = bound->operands;
	for (int i = 0; i < bound->operand_count; i++) {
		if (!operands[i].written || !places[i].found)
			continue;
		for (int k = 0; k < bound->operand_count; k++)
			if (i != k && places[k].found &&
				share_a_byte(places[i].found, places[i].offset, operands[i].bytes, places[k].found,
							 places[k].offset, operands[k].bytes))
				return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
								 "%s and %s overlap; an output may share no byte with another "
								 "operand",
								 operands[i < k ? i : k].name, operands[i < k ? k : i].name);
	}
	return KILN_OK;
}

bool exec_lane_failed(const struct exec_lane *lane, uint64_t number)
{
	const struct exec_slot *slot = &lane->slots[place_of(number)];
	return slot->number == number && slot->failed;
}

/* The broker sees nothing of lanes, and has a use for how often some of its calls are launched. */
static void note_use(struct exec *executor, const struct exec_lane *lane,
					 struct exec_template *bound)
{
	struct wire_out message;
	if (!bound->notice || --bound->left)
		return;
	bound->left = bound->notice;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "used");
	wire_put_uint(&message, "stream", lane->id);
	wire_put_uint(&message, "call", bound->id);
	wire_put_uint(&message, "of", bound->of);
	wire_put_uint(&message, "launches", bound->notice);
	exec_send(executor, &message, -1);
}

/* A graph has its operands. */
static int run_graph(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot,
					 char error[KERNEL_ERROR_MAX])
{
	const struct lane_entry *entry = &slot->entry;
	const struct exec_start start = {.graph = exec_graph_find(executor, lane->id, entry->call)};
	if (!start.graph || entry->operand_count != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "an entry of a lane names call %" PRIu64 " with %u operands, which is not "
						 "bound to it",
						 entry->call, entry->operand_count);
	util_append(slot->op, sizeof(slot->op), 0, "graph");
	return exec_launch_lane(executor, lane, slot, &start, error);
}

static int run(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot,
			   char error[KERNEL_ERROR_MAX])
{
	const struct lane_entry *entry = &slot->entry;
	struct exec_place places[KERNEL_MAX_OPERANDS];
	struct exec_template *bound = map_get_id(&lane->calls, entry->call);
	if (entry->stream >= KILN_STREAMS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "an entry of a lane names stream %u; they are 0 to %d", entry->stream,
						 KILN_STREAMS - 1);
	if (slot->doomed || (entry->after && exec_lane_failed(lane, entry->after - 1)))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED,
						 "the call that this one follows did not succeed");
	if (!bound || entry->operand_count != (uint32_t)bound->operand_count)
		return run_graph(executor, lane, slot, error);
	note_use(executor, lane, bound);
	slot->reports = bound->report.indices > 0;
	memcpy(slot->op, bound->op, sizeof(slot->op));
	for (int i = 0; i < bound->operand_count; i++)
		places[i] = (struct exec_place){entry->operands[i].buffer, entry->operands[i].offset, NULL};
	exec_find_buffers(executor, places, bound->operand_count);
	int status = check_overlap(bound, places, error);
	const struct exec_start start = {.what = bound, .places = places};
	return status == KILN_OK ? exec_launch_lane(executor, lane, slot, &start, error) : status;
}

static void share_gates(struct exec *executor, struct exec_lane *lane)
{
	lane->gates_asked = true;
	lane->gates_shared =
		executor->ops->share_words &&
		executor->ops->share_words(executor->device, lane->memory->gates, LANE_GATES_BYTES);
}

void exec_lane_announce(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot,
						struct exec_flight *flight)
{
	struct lane_cell *cell = &lane->memory->cells[place_of(slot->number)];
	bool needed = slot->entry.flags & LANE_DONE;
	lane->started += lane->started < SHARE_AFTER;
	if (!lane->gates_asked && (needed || lane->started == SHARE_AFTER))
		share_gates(executor, lane);
	if (!lane->gates_shared || (slot->reports && !needed))
		return;
	/* Nothing will be said of an end that the client sees there but that it was a good one. */
	if (!slot->cell_is_good) {
		cell->status = KILN_OK;
		cell->micros = 0;
		cell->error[0] = 0;
		slot->cell_is_good = true;
	}
	flight->done_word = &lane->memory->gates[place_of(slot->number)].done;
	flight->done_value = lane_gate_value(slot->number);
	flight->done_last = !needed;
}

static void start(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot)
{
	char error[KERNEL_ERROR_MAX] = "";
	struct exec_pace *pace = &lane->paces[stream_of(slot)];
	slot->state = SLOT_FLYING;
	executor->lane_active_us = executor->now_us;
	executor->lane_flights++;
	if (pace->flights++ == 0)
		pace->progress_us = executor->lane_active_us;
	if (lane->flights++ == 0) {
		lane->progress_us = executor->lane_active_us;
		tell_progress(executor, lane);
	}
	int status = run(executor, lane, slot, error);
	if (status != KILN_OK) {
		executor->lane_flights--;
		lane->flights--;
		pace->flights--;
		tell_of(lane, slot->number, status, slot->op, error, 0);
	}
}

/* ---- Parked entries ---- */

/* Not yet, for a reason of its own. */
static bool must_wait(const struct exec_lane *lane, const struct exec_slot *slot)
{
	const struct lane_entry *entry = &slot->entry;
	if ((entry->flags & LANE_READY) &&
		!lane_gate_open(&lane->memory->gates[place_of(slot->number)].ready, slot->number))
		return true;
	if (!entry->after)
		return false;
	const struct exec_slot *earlier = &lane->slots[place_of(entry->after - 1)];
	if (earlier == slot || earlier->number != entry->after - 1)
		return false;
	return earlier->state == SLOT_PARKED ||
		   (earlier->state == SLOT_FLYING &&
			(earlier->reports || earlier->entry.stream != entry->stream));
}

/* For who asks the broker who waits. */
static void tell_parked(struct exec_lane *lane)
{
	struct lane_counts *counts = lane->counts;
	uint64_t first = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->parking[i].first && lane->parking[i].first->parked_us < first)
			first = lane->parking[i].first->parked_us;
	atomic_store_explicit(&counts->parked_us, first, memory_order_relaxed);
	atomic_store_explicit(&counts->gated, (uint64_t)lane->gated, memory_order_relaxed);
	atomic_store_explicit(&counts->parked, (uint64_t)lane->parked, memory_order_relaxed);
}

static void park(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot)
{
	struct exec_parked *parked = &lane->parking[stream_of(slot)];
	slot->state = SLOT_PARKED;
	slot->doomed = slot->entry.after && exec_lane_failed(lane, slot->entry.after - 1);
	slot->next = NULL;
	slot->parked_us = executor->now_us;
	if (parked->last)
		parked->last->next = slot;
	else
		parked->first = slot;
	parked->last = slot;
	lane->parked++;
	lane->gated += (slot->entry.flags & LANE_READY) != 0;
	tell_parked(lane);
}

static void unpark(struct exec_lane *lane, struct exec_slot *slot)
{
	struct exec_parked *parked = &lane->parking[stream_of(slot)];
	struct exec_slot *before = NULL;
	if (parked->first != slot)
		for (before = parked->first; before->next != slot;)
			before = before->next;
	if (before)
		before->next = slot->next;
	else
		parked->first = slot->next;
	if (parked->last == slot)
		parked->last = before;
	lane->parked--;
	lane->gated -= (slot->entry.flags & LANE_READY) != 0;
	tell_parked(lane);
}

uint64_t exec_lane_first_parked(const struct exec_lane *lane)
{
	uint64_t first = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->parking[i].first && lane->parking[i].first->number < first)
			first = lane->parking[i].first->number;
	return first;
}

bool exec_lane_may_unpark(const struct exec *executor, const struct exec_lane *lane)
{
	for (int i = 0; i < KILN_STREAMS && executor->lane_flights < EXEC_MAX_LANE_FLIGHTS; i++)
		if (lane->parking[i].first && !must_wait(lane, lane->parking[i].first))
			return true;
	return false;
}

static void end_parked(struct exec_lane *lane, struct exec_slot *slot, int status, const char *why)
{
	unpark(lane, slot);
	exec_lane_tell(lane, slot->number, status, why, 0);
}

/* The first of a stream waits for a ready word that does not come: since it was parked, or since
 * the last end there, for before that it had others to wait for. */
static bool is_overdue(const struct exec *executor, const struct exec_lane *lane,
					   const struct exec_slot *slot)
{
	uint64_t since = lane->paces[stream_of(slot)].progress_us;
	since = since > slot->parked_us ? since : slot->parked_us;
	return lane->ready_us && (slot->entry.flags & LANE_READY) &&
		   executor->now_us > since + lane->ready_us &&
		   !lane_gate_open(&lane->memory->gates[place_of(slot->number)].ready, slot->number);
}

static void end_overdue(struct exec *executor, struct exec_lane *lane)
{
	char why[KERNEL_ERROR_MAX];
	util_fail(why, sizeof(why), 0,
			  "its CUDA stream did not come by for %" PRIu64 " ms (--ready-timeout)",
			  lane->ready_us / 1000);
	for (int i = 0; i < KILN_STREAMS; i++)
		while (lane->parking[i].first && is_overdue(executor, lane, lane->parking[i].first))
			end_parked(lane, lane->parking[i].first, KILN_ETIMEDOUT, why);
}

void exec_lane_unpark(struct exec *executor, struct exec_lane *lane)
{
	if (lane->gated > 0)
		end_overdue(executor, lane);
	for (int i = 0; i < KILN_STREAMS; i++) {
		struct exec_slot *slot;
		while ((slot = lane->parking[i].first) && exec_lanes_may_launch(executor) &&
			   !must_wait(lane, slot)) {
			unpark(lane, slot);
			start(executor, lane, slot);
		}
	}
}

/* Those behind it on its stream that follow it, or each other: the device has them already, and
 * must not run them, either. */
static void find_doomed(struct exec_lane *lane, const struct exec_slot *first,
						bool doomed[LANE_ENTRIES])
{
	doomed[place_of(first->number)] = true;
	for (uint64_t number = first->number + 1; number < lane->head; number++) {
		const struct exec_slot *slot = slot_of(lane, number);
		uint64_t after = slot->entry.after;
		if (slot->number == number && slot->state == SLOT_FLYING && after > first->number &&
			after <= number && slot->entry.stream == first->entry.stream)
			doomed[place_of(number)] = doomed[place_of(after - 1)];
	}
}

static void cancel_flying(struct exec *executor, struct exec_lane *lane,
						  const struct exec_slot *first)
{
	bool doomed[LANE_ENTRIES] = {false};
	uint64_t tickets[LANE_ENTRIES] = {first->flight.id};
	int count = 1;
	find_doomed(lane, first, doomed);
	for (uint32_t place = 0; place < LANE_ENTRIES; place++)
		if (doomed[place] && &lane->slots[place] != first)
			tickets[count++] = lane->slots[place].flight.id;
	if (!executor->ops->cancel(executor->device, tickets, count))
		return;
	/* Nor does what will follow them. */
	for (uint32_t place = 0; place < LANE_ENTRIES; place++)
		lane->slots[place].failed = lane->slots[place].failed || doomed[place];
}

void exec_lane_cancel_entry(struct exec *executor, struct exec_lane *lane, uint64_t number)
{
	struct exec_slot *slot = slot_of(lane, number);
	if (slot->number != number)
		return;
	if (slot->state == SLOT_PARKED)
		end_parked(lane, slot, KILN_ECANCELED, "the call was canceled before it started");
	else if (slot->state == SLOT_FLYING)
		cancel_flying(executor, lane, slot);
}

void exec_lane_drop_parked(struct exec_lane *lane)
{
	for (int i = 0; i < KILN_STREAMS; i++)
		while (lane->parking[i].first)
			end_parked(lane, lane->parking[i].first, KILN_ECANCELED,
					   "the call had not started when its lane was closed");
}

/* ---- Taking ---- */

bool exec_lane_has_place(const struct exec_lane *lane)
{
	enum exec_slot_state state = lane->slots[place_of(lane->head)].state;
	return state == SLOT_FREE || state == SLOT_ENDED;
}

bool exec_lane_has_room(const struct exec *executor, const struct exec_lane *lane)
{
	return exec_lane_has_place(lane) && exec_lanes_may_launch(executor);
}

static void copy_entry(struct lane_entry *to, const struct lane_entry *from)
{
	memcpy(to, from, offsetof(struct lane_entry, operands));
	uint32_t count = to->operand_count < KILN_MAX_OPERANDS ? to->operand_count : KILN_MAX_OPERANDS;
	memcpy(to->operands, from->operands, count * sizeof(*to->operands));
}

/* What the client's CPU has of what is looked at next, and written when this has ended: it comes
 * while the driver launches. */
static void fetch_ahead(const struct exec_lane *lane, uint64_t number)
{
	__builtin_prefetch(&lane->memory->entries[place_of(number + 1)]);
	__builtin_prefetch(&lane->memory->cells[place_of(number)], 1);
	__builtin_prefetch(&lane->memory->gates[place_of(number)], 1);
}

void exec_lane_take(struct exec *executor, struct exec_lane *lane)
{
	uint64_t number = lane->head++;
	struct exec_slot *slot = slot_of(lane, number);
	copy_entry(&slot->entry, &lane->memory->entries[place_of(number)]);
	fetch_ahead(lane, number);
	atomic_store_explicit(&lane->memory->header.head, lane->head, memory_order_relaxed);
	count(&lane->counts->taken);
	slot->number = number;
	slot->failed = slot->doomed = slot->reports = false;
	slot->op[0] = 0;
	exec_misdeed(executor, "entry", 0);
	executor->lane_active_us = executor->now_us;
	if (lane->parking[stream_of(slot)].first || must_wait(lane, slot))
		park(executor, lane, slot);
	else
		start(executor, lane, slot);
}
