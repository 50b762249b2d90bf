/*
 * executor_entry: launches an entry of a lane, and tells its client how it ended.  executor_lane.h
 * draws the states of an entry; executor_park.c decides when one starts.
 *
 * This file reads the process's copy of an entry, because the client may write to the ring at any
 * time.  An entry can name only buffers, calls and graphs that its session owns.
 */
#include "client/wire/byte_range.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_graph.h"
#include "executor_lane.h"
#include "executor_module.h"

#include <inttypes.h>
#include <string.h>

#define GATE_TURNS 4096 /* of the ring */
#define SHARE_AFTER 32  /* launches: registering memory is too dear for a client with a few */

/* ---- Ends ---- */

/* Marks the parked entries that follow the failed one: when they start, its slot may hold another
 * entry. */
static void doom_parked(struct exec_lane *lane, uint64_t failed)
{
	for (int i = 0; i < KILN_STREAMS; i++)
		for (struct exec_slot *slot = lane->streams[i].parked; slot; slot = slot->next)
			slot->doomed = slot->doomed || slot->entry.after == failed + 1;
}

void exec_lane_wake_client(struct exec_lane *lane)
{
	_Atomic uint32_t *waiting = &lane->memory->header.waiting;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(waiting, memory_order_relaxed) && atomic_exchange(waiting, 0))
		waker_wake(lane->waker, lane->client_wake_fd);
}

static void count_end(struct exec_lane *lane, int status)
{
	exec_lane_count(status == KILN_OK ? &lane->counts->launched : &lane->counts->failed);
}

void exec_lane_tell(struct exec_lane *lane, uint64_t number, int status, const char *error,
					uint64_t micros)
{
	struct lane_cell *cell = &lane->memory->cells[exec_lane_place(number)];
	struct lane_gate *gate = &lane->memory->gates[exec_lane_place(number)];
	struct exec_slot *slot = exec_lane_slot(lane, number);
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
	/* The cell tells the end.  The word is written now and then as well: a word that stays for too
	 * many turns of the ring would have the value of a later entry. */
	if ((slot->entry.flags & LANE_DONE) || number / LANE_ENTRIES % GATE_TURNS == 0)
		atomic_store_explicit(&gate->done, lane_gate_value(number), memory_order_release);
	exec_lane_wake_client(lane);
}

/* If the device has written the done word, the client knows of the end, and the cell only tells
 * that the place is free. */
static void tell_good(struct exec_lane *lane, struct exec_slot *slot, uint64_t micros)
{
	uint32_t place = exec_lane_place(slot->number);
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
	exec_lane_wake_client(lane);
}

/* Tells the broker that launches of lanes end.  The broker sees nothing of these launches, and
 * would take requests that wait behind them for stuck. */
static void say_progress(struct launcher *launcher)
{
	struct wire_out message;
	uint64_t now = launcher->lane_active_us;
	_Atomic uint64_t *told_us = &launcher->executor->lane_told_us;
	/* Another launcher may have looked later. */
	if ((int64_t)(now - atomic_load_explicit(told_us, memory_order_relaxed)) < PAUSE_PROGRESS_US)
		return;
	atomic_store_explicit(told_us, now, memory_order_relaxed);
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "progress");
	exec_send(launcher->executor, &message, -1);
}

/* Puts the operator of the call before the sentence. */
static void tell_of(struct exec_lane *lane, uint64_t number, int status, const char *op,
					const char *error, uint64_t micros)
{
	char sentence[LANE_ERROR_MAX];
	util_append(sentence, sizeof(sentence), 0, "%s%s%s", op, *op ? ": " : "", error);
	exec_lane_tell(lane, number, status, sentence, micros);
}

const struct exec_flight *exec_lane_flight(const struct launcher *launcher, uint64_t ticket)
{
	uint64_t index = (ticket & ~EXEC_LANE_TICKET) / LANE_ENTRIES;
	return &exec_lane_slot(launcher->lane_table[index], ticket)->flight;
}

static void tell_progress(const struct launcher *launcher, struct exec_lane *lane)
{
	atomic_store_explicit(&lane->counts->progress_us, launcher->now_us, memory_order_relaxed);
}

void exec_entry_finish(struct launcher *launcher, struct exec_lane *lane,
					   const struct device_done *done)
{
	struct exec_slot *slot = exec_lane_slot(lane, done->ticket);
	struct exec_lane_stream *stream = &lane->streams[exec_slot_stream(slot)];
	int status = exec_misdeed(launcher, "told", 0) ? INT32_MIN : done->status;
	exec_quiet_ended(launcher, &slot->flight);
	exec_trail_end(launcher, slot->flight.trail, done->status);
	exec_account_end(launcher, lane->account);
	launcher_count(launcher, -1);
	lane->flights--;
	stream->flights--;
	exec_let_go(launcher, &slot->flight);
	stream->progress_us = launcher->lane_active_us = launcher->now_us;
	tell_progress(launcher, lane);
	exec_pace_ended(launcher, slot->flight.stream);
	if (status == KILN_OK)
		tell_good(lane, slot, done->micros);
	else
		tell_of(lane, slot->number, status, slot->op, done->error, done->micros);
	say_progress(launcher);
}

/* ---- Entries ---- */

/* Two different buffers may be parts of the same allocation of another process. */
static bool share_a_byte(const struct exec_template *bound, const struct exec_place *places,
						 int output, int other)
{
	const struct exec_operand *x = &bound->operands[output], *y = &bound->operands[other];
	const struct exec_buffer *a = places[output].found, *b = places[other].found;
	struct byte_range one = {places[output].offset, x->bytes, x->period, x->width};
	struct byte_range two = {places[other].offset, y->bytes, y->period, y->width};

	if (a == b && x->over == (uint32_t)other + 1 && byte_range_is(&one, &two))
		return false; /* each element in its own place */
	if (a == b && y->over == (uint32_t)output + 1 && byte_range_is(&one, &two))
		return false;
	if (a != b) {
		if (!a->origin || a->origin != b->origin)
			return false;
		one.at += a->at;
		two.at += b->at;
	}
	return byte_range_meets(&one, &two);
}

static int check_overlap(const struct exec_template *bound, const struct exec_place *places,
						 char error[KERNEL_ERROR_MAX])
{
	const struct exec_operand *operands = bound->operands;
	for (int i = 0; i < bound->operand_count; i++) {
		if (!operands[i].written || !places[i].found)
			continue;
		for (int k = 0; k < bound->operand_count; k++)
			if (i != k && places[k].found && share_a_byte(bound, places, i, k))
				return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
								 "%s and %s overlap; an output may share no byte with another "
								 "operand",
								 operands[i < k ? i : k].name, operands[i < k ? k : i].name);
	}
	return KILN_OK;
}

bool exec_lane_failed(const struct exec_lane *lane, uint64_t number)
{
	const struct exec_slot *slot = &lane->slots[exec_lane_place(number)];
	return slot->number == number && slot->failed;
}

/* Tells the broker of every `notice` launches of a call, because the broker does not see lanes. */
static void note_use(struct launcher *launcher, const struct exec_lane *lane,
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
	exec_send(launcher->executor, &message, -1);
}

/* Has the device itself write the entry's done word, where it can: the client sees that word sooner
 * than the cell, which this process fills in when it has heard of the end. */
static void announce(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot)
{
	const struct device_ops *ops = launcher->ops;
	struct lane_cell *cell = &lane->memory->cells[exec_lane_place(slot->number)];
	bool needed = slot->entry.flags & LANE_DONE;
	lane->started += lane->started < SHARE_AFTER;
	if (!lane->gates_asked && (needed || lane->started == SHARE_AFTER)) {
		lane->gates_asked = true;
		lane->gates_shared =
			ops->share_words &&
			ops->share_words(launcher->executor->device, lane->memory->gates, LANE_GATES_BYTES);
	}
	if (!lane->gates_shared || (slot->reports && !needed))
		return;
	/* A client that sees the end by the done word alone takes it for a good one: the cell must say
	 * so already. */
	if (!slot->cell_is_good) {
		cell->status = KILN_OK;
		cell->micros = 0;
		cell->error[0] = 0;
		slot->cell_is_good = true;
	}
	slot->flight.done_word = &lane->memory->gates[exec_lane_place(slot->number)].done;
	slot->flight.done_value = lane_gate_value(slot->number);
	slot->flight.done_last = !needed;
}

/* Prepares the flight of an entry.  The counts of its buffers stay as they are. */
static void begin_flight(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot)
{
	struct exec_flight *flight = &slot->flight;
	flight->id =
		EXEC_LANE_TICKET | (uint64_t)lane->index * LANE_ENTRIES | exec_lane_place(slot->number);
	flight->stream = exec_stream(lane->id, slot->entry.stream);
	flight->module = NULL;
	flight->made = NULL;
	flight->buffer_count = 0;
	flight->epoch = launcher->executor->quiet.epoch;
	flight->owner = lane->id;
	flight->done_word = NULL;
	flight->untimed = !(slot->entry.flags & LANE_TIMED);
	flight->trail = exec_trail_begin(launcher, slot->entry.call, lane->id, flight->stream);
	announce(launcher, lane, slot);
}

/* Gives the entry to the device: a launch of the call that it names, at the entry's places; or a
 * graph, which names its operands itself. */
static int run_entry(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot,
					 struct exec_template *found, char error[KERNEL_ERROR_MAX])
{
	const struct lane_entry *entry = &slot->entry;
	struct exec_place places[KERNEL_MAX_OPERANDS];
	/* The client may have written another number meanwhile. */
	struct exec_template *bound =
		found && found->id == entry->call ? found : map_get_id(&lane->calls, entry->call);
	struct exec_graph *graph = NULL;
	int status = KILN_OK;
	if (entry->stream >= KILN_STREAMS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "an entry of a lane names stream %u; they are 0 to %d", entry->stream,
						 KILN_STREAMS - 1);
	if (slot->doomed || (entry->after && exec_lane_failed(lane, entry->after - 1)))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED,
						 "the call that this one follows did not succeed");
	if (bound && entry->operand_count == (uint32_t)bound->operand_count) {
		note_use(launcher, lane, bound);
		slot->reports = bound->report.indices > 0;
		memcpy(slot->op, bound->op, sizeof(slot->op));
		for (int i = 0; i < bound->operand_count; i++)
			places[i] =
				(struct exec_place){entry->operands[i].buffer, entry->operands[i].offset, NULL};
		exec_find_buffers(launcher, places, bound->operand_count);
		status = check_overlap(bound, places, error);
		if (status != KILN_OK)
			return status;
	} else {
		graph = exec_graph_find(launcher, lane->id, entry->call);
		if (!graph || entry->operand_count != 0)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "an entry of a lane names call %" PRIu64 " with %u operands, which is "
							 "not bound to it",
							 entry->call, entry->operand_count);
		util_append(slot->op, sizeof(slot->op), 0, "graph");
	}
	begin_flight(launcher, lane, slot);
	status = graph ? exec_start_graph(launcher, &slot->flight, graph, error)
				   : exec_start_launch(launcher, &slot->flight, bound, places, error);
	if (status != KILN_OK) {
		exec_trail_end(launcher, slot->flight.trail, status);
		exec_let_go(launcher, &slot->flight);
	}
	return status;
}

void exec_entry_start(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot,
					  struct exec_template *found)
{
	char error[KERNEL_ERROR_MAX] = "";
	struct exec_lane_stream *stream = &lane->streams[exec_slot_stream(slot)];
	slot->state = SLOT_FLYING;
	launcher->lane_active_us = launcher->now_us;
	launcher_count(launcher, 1);
	if (stream->flights++ == 0)
		stream->progress_us = launcher->lane_active_us;
	if (lane->flights++ == 0) {
		lane->progress_us = launcher->lane_active_us;
		tell_progress(launcher, lane);
	}
	int status = run_entry(launcher, lane, slot, found, error);
	if (status == KILN_OK) {
		exec_account_begin(launcher, lane->account);
	} else {
		launcher_count(launcher, -1);
		lane->flights--;
		stream->flights--;
		tell_of(lane, slot->number, status, slot->op, error, 0);
	}
}
