/*
 * lane.c: opens the lane and submits calls through it: memory that the client shares with the
 * device process (client/wire/lane_memory.h).  The answer to a call's first launch brings the lane
 * and the call's name there; later launches take no system call while both sides are awake.
 * lane_wait.c waits for their ends.
 *
 * A launch still goes by message while another launch by message is under way, which keeps the
 * order; for buffers that the device process may not know; while the ring is full; and if it is
 * going to be refused, since the broker has the better sentence.
 */
#include "lane.h"
#include "buffer.h"
#include "call.h"
#include "client.h"
#include "clock.h"
#include "cuda_order.h"
#include "lane_state.h"
#include "link.h"
#include "order.h"
#include "ticket.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

struct lane *lane_new(void)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	cpu_set_t set;
	if (lane) {
		const char *wish = secure_getenv("KILN_LANE");
		lane->device_wake_fd = lane->client_wake_fd = lane->events_fd = lane->early_fd = -1;
		lane->state = wish && strcmp(wish, "off") == 0 ? LANE_OFF : LANE_UNOPENED;
		lane->alone = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
	}
	return lane;
}

static void client_lane_assert_valid(const struct lane *lane)
{
	(void)lane;
	assert((lane->state == LANE_OPEN || lane->state == LANE_DRAINING) == (lane->memory != NULL));
	assert(!lane->memory || lane->device_wake_fd >= 0);
	assert(lane->oldest <= lane->next && lane->next - lane->oldest <= LANE_ENTRIES);
	assert(lane->others_until <= lane->next);
	assert(lane->memory || !lane->order);
}

static void shut(struct lane *lane)
{
	int *descriptors[] = {&lane->device_wake_fd, &lane->client_wake_fd};
	if (lane->memory)
		munmap(lane->memory, sizeof(*lane->memory));
	lane->memory = NULL;
	if (lane->state == LANE_OPEN)
		lane->state = LANE_UNOPENED;
	else if (lane->state == LANE_DRAINING)
		lane->state = LANE_OFF;
	order_drop(lane->order);
	lane->order = NULL;
	lane->unwatched = false;
	/* The pipe is open in other processes, too, so closing it here would not end the watch. */
	if (lane->client_wake_fd >= 0 && lane_is_watched(lane))
		(void)epoll_ctl(lane->events_fd, EPOLL_CTL_DEL, lane->client_wake_fd, NULL);
	for (int i = 0; i < 2; i++) {
		if (*descriptors[i] >= 0)
			close(*descriptors[i]);
		*descriptors[i] = -1;
	}
}

static void lane_reset(struct lane *lane)
{
	lane->oldest = lane->next = lane->others_until = 0;
	lane->desk_asked = 0;
	lane->desk_shut = lane->desk_late = false;
	memset(lane->held_until, 0, sizeof(lane->held_until));
	memset(lane->slots, 0, sizeof(lane->slots));
}

void lane_close(struct lane *lane)
{
	shut(lane);
	lane_reset(lane);
	lane->generation = 0;
}

void lane_free(struct lane *lane)
{
	if (lane) {
		/* A child of fork() has the parent's epoll, so it must take nothing out of that. */
		if (lane->early_fd >= 0)
			close(lane->early_fd);
		if (lane->events_fd >= 0)
			close(lane->events_fd);
		lane->events_fd = -1;
		shut(lane);
		free(lane);
	}
}

/* ---- Opening, and what calls and buffers know ---- */

static bool map_lane(struct kiln_client *client, struct answer *answer)
{
	struct lane *lane = client->lane;
	int memory = frame_take_fd(&answer->frame, 0);
	struct epoll_event event = {.events = EPOLLIN};
	shut(lane);
	lane->device_wake_fd = frame_take_fd(&answer->frame, 1);
	lane->client_wake_fd = frame_take_fd(&answer->frame, 2);
	if (memory < 0 || lane->device_wake_fd < 0 || lane->client_wake_fd < 0 ||
		!frame_fd_is_safe(memory, sizeof(*lane->memory)) ||
		(lane_is_watched(lane) &&
		 epoll_ctl(lane->events_fd, EPOLL_CTL_ADD, lane->client_wake_fd, &event) != 0)) {
		shut(lane);
	} else {
		void *map =
			mmap(NULL, sizeof(*lane->memory), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		lane->memory = map == MAP_FAILED ? NULL : map;
	}
	if (memory >= 0)
		close(memory);
	if (lane->memory &&
		(lane->memory->header.magic != LANE_MAGIC || lane->memory->header.version != LANE_VERSION ||
		 lane->memory->header.entries != LANE_ENTRIES))
		shut(lane);
	lane_reset(lane);
	if (lane->memory)
		atomic_store(&lane->memory->header.waiting, lane_is_watched(lane));
	return lane->memory != NULL;
}

/* Finds the way for these requirements, or makes one; a fifth takes the place of the first. */
static struct call_way *way_for(struct kiln_call *call, const int64_t *alignments, int count)
{
	for (int i = 0; i < call->way_count; i++) {
		struct call_way *way = &call->ways[i];
		bool same = way->operand_count == count;
		for (int k = 0; k < count && same; k++)
			same = way->alignments[k] == alignments[k];
		if (same)
			return way;
	}
	return &call->ways[call->way_count < CALL_WAYS ? call->way_count++ : 0];
}

static void learn(struct kiln_client *client, struct kiln_call *call, const msgpack_object *root)
{
	struct lane *lane = client->lane;
	int64_t alignments[KILN_MAX_OPERANDS], extents[KILN_MAX_OPERANDS];
	/* A daemon of an earlier version knows none of these. */
	int64_t overs[KILN_MAX_OPERANDS] = {0}, periods[KILN_MAX_OPERANDS] = {0};
	int64_t widths[KILN_MAX_OPERANDS] = {0};
	int count = wire_get_ints(root, "alignments", alignments, KILN_MAX_OPERANDS);
	if (count < 0 || wire_get_ints(root, "extents", extents, KILN_MAX_OPERANDS) != count)
		return;
	(void)wire_get_ints(root, "overs", overs, KILN_MAX_OPERANDS);
	(void)wire_get_ints(root, "periods", periods, KILN_MAX_OPERANDS);
	(void)wire_get_ints(root, "widths", widths, KILN_MAX_OPERANDS);
	struct call_way *way = way_for(call, alignments, count);
	way->bound = wire_get_uint(root, "bound", 0);
	way->generation = lane->generation;
	way->reports = wire_get_bool(root, "reports", false);
	way->operand_count = count;
	for (int i = 0; i < count; i++) {
		way->alignments[i] = alignments[i] > 0 ? alignments[i] : 1;
		way->ranges[i] = (struct byte_range){0, extents[i] > 0 ? (uint64_t)extents[i] : 0,
											 periods[i] > 0 ? (uint64_t)periods[i] : 0,
											 widths[i] > 0 ? (uint64_t)widths[i] : 0};
		way->overs[i] = overs[i];
	}
}

/* Finds a free place.  A launch that could not be sent has no ticket, so its place is free, too. */
static struct lane_question *free_question(const struct kiln_client *client)
{
	for (int i = 0; i < LANE_QUESTIONS; i++) {
		struct lane_question *question = &client->lane->questions[i];
		if (ticket_find(&client->tickets, question->id) == NULL)
			return question;
	}
	return NULL;
}

static void learn_answer(struct kiln_client *client, struct kiln_call *call,
						 struct kiln_buffer *const *buffers, int buffer_count,
						 struct answer *answer)
{
	struct lane *lane = client->lane;
	const msgpack_object *root = &answer->in.root;
	uint64_t generation = wire_get_uint(root, "generation", 0);
	if (wire_get_uint(root, "bound", 0) == 0)
		return;
	if (answer->frame.fd_count == LANE_DESCRIPTORS) {
		if (lane->state == LANE_UNOPENED || lane->state == LANE_OPEN)
			lane->state = map_lane(client, answer) ? LANE_OPEN : LANE_OFF;
		lane->generation = generation;
	}
	client_lane_assert_valid(lane);
	if (!lane->memory || lane->generation != generation)
		return;
	learn(client, call, root);
	/* The launch has used the buffers there, so the device process knows them. */
	for (int i = 0; i < buffer_count; i++)
		if (buffers[i])
			buffers[i]->generation = generation;
}

void lane_answer(struct kiln_client *client, uint64_t id, struct answer *answer)
{
	struct lane *lane = client->lane;
	struct lane_question *question = lane->questions;
	while (question < lane->questions + LANE_QUESTIONS && question->id != id)
		question++;
	if (question == lane->questions + LANE_QUESTIONS)
		return;
	question->id = 0;
	if (question->call)
		learn_answer(client, question->call, question->buffers, question->buffer_count, answer);
}

void lane_ask_new(struct kiln_client *client, struct request *request)
{
	if (client->lane->state == LANE_OPEN)
		wire_put_bool(&request->out, "lane", true);
}

void lane_answer_new(struct kiln_call *call, const kiln_tensor *tensors, int count,
					 struct answer *answer)
{
	struct kiln_buffer *buffers[KILN_MAX_OPERANDS];
	for (int i = 0; i < count; i++)
		buffers[i] = tensors[i].dtype == KILN_DTYPE_NONE ? NULL : tensors[i].buffer;
	learn_answer(call->client, call, buffers, count, answer);
}

void lane_ask(struct kiln_call *call, struct request *request, const kiln_operand *operands,
			  int count)
{
	struct lane *lane = call->client->lane;
	struct lane_question *question = free_question(call->client);
	if (lane->state == LANE_OFF || lane->state == LANE_DRAINING || !question)
		return;
	wire_put_bool(&request->out, "lane", true);
	question->id = request->id;
	question->call = call;
	question->buffer_count = count;
	for (int i = 0; i < count; i++)
		question->buffers[i] = operands[i].buffer;
}

void lane_forget_call(struct kiln_client *client, const struct kiln_call *call)
{
	for (int i = 0; i < LANE_QUESTIONS; i++) {
		struct lane_question *question = &client->lane->questions[i];
		if (question->call == call)
			question->call = NULL;
	}
}

void lane_forget_buffer(struct kiln_client *client, const struct kiln_buffer *buffer)
{
	for (int i = 0; i < LANE_QUESTIONS; i++) {
		struct lane_question *question = &client->lane->questions[i];
		for (int k = 0; k < question->buffer_count; k++)
			if (question->buffers[k] == buffer)
				question->buffers[k] = NULL;
	}
}

void lane_put_tail(struct kiln_client *client, struct wire_out *out)
{
	if (client->lane->memory && client->lane->next > 0)
		wire_put_uint(out, "tail", client->lane->next);
}

/* ---- Submitting ---- */

/* Whether two operands in one buffer share bytes.  The broker decides whether they may. */
static bool share_bytes(const struct call_way *way, const kiln_operand *operands, int i, int k)
{
	struct byte_range one = way->ranges[i], other = way->ranges[k];
	one.at = operands[i].offset;
	other.at = operands[k].offset;
	if ((way->overs[i] == k + 1 || way->overs[k] == i + 1) && byte_range_is(&one, &other))
		return false;
	return byte_range_meets(&one, &other);
}

/* Whether the operands fit the way.  Otherwise the launch goes by message: the broker refuses it
 * with a sentence, or the planner finds a variant that fits. */
static bool lane_fits(const struct call_way *way, const kiln_operand *operands, int count)
{
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		uint64_t offset = operands[i].offset;
		if (!buffer)
			continue;
		if (buffer->generation != way->generation || offset > buffer->bytes ||
			way->ranges[i].bytes > buffer->bytes - offset ||
			(buffer->phase + offset) % (uint64_t)way->alignments[i] != 0)
			return false;
		for (int k = 0; k < i; k++)
			if (operands[k].buffer == buffer && share_bytes(way, operands, i, k))
				return false;
	}
	return true;
}

static const struct call_way *find_way(const struct kiln_call *call, const kiln_operand *operands,
									   int count)
{
	const struct lane *lane = call->client->lane;
	for (int i = 0; i < call->way_count; i++) {
		const struct call_way *way = &call->ways[i];
		if (way->generation == lane->generation && way->operand_count >= count &&
			lane_fits(way, operands, count))
			return way;
	}
	return NULL;
}

void lane_wake_device(struct lane *lane)
{
	static const uint64_t one = 1;
	const struct lane_header *header = &lane->memory->header;
	/* The prefetches end before the next launch needs them. */
	__builtin_prefetch(&lane->memory->cells[lane->next % LANE_ENTRIES]);
	__builtin_prefetch(&lane->memory->entries[lane->next % LANE_ENTRIES], 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&header->sleeping, memory_order_relaxed) &&
		write(lane->device_wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full, which wakes as well */
}

static void write_entry(struct lane *lane, const struct call_way *way, const kiln_work *work,
						const struct lane_entry *how)
{
	struct lane_entry *entry = &lane->memory->entries[lane->next % LANE_ENTRIES];
	entry->call = way->bound;
	entry->after = how->after;
	entry->operand_count = (uint32_t)way->operand_count;
	entry->flags = how->flags;
	entry->stream = how->stream;
	for (int i = 0; i < way->operand_count; i++) {
		const kiln_operand *operand = i < work->operand_count ? &work->operands[i] : NULL;
		bool there = operand && operand->buffer;
		entry->operands[i].buffer = there ? operand->buffer->id : 0;
		entry->operands[i].offset = there ? operand->offset : 0;
	}
	lane_publish(lane->memory, lane->next++);
}

/* Whether the device process may still hold the entry back when a later message arrives. */
static bool is_held(const struct lane *lane, const struct submission *what)
{
	uint64_t follows = what->follows;
	if (what->cuda || lane->held_until[what->stream] > lane->oldest)
		return true;
	if (follows <= lane->oldest)
		return false;
	const struct lane_slot *earlier = &lane->slots[(follows - 1) % LANE_ENTRIES];
	return earlier->reports || earlier->stream != what->stream;
}

static void write_entries(struct lane *lane, const struct submission *what,
						  const struct call_way *const *ways, uint64_t id, bool times)
{
	bool held = is_held(lane, what), gated = what->cuda && !lane->order->idle;
	uint64_t follows = what->follows;
	for (int i = 0; i < what->count; i++) {
		uint64_t number = lane->next;
		const struct lane_entry how = {
			.after = follows,
			.stream = what->stream,
			.flags = (times ? LANE_TIMED : 0) | (gated && i == 0 ? LANE_READY : 0) |
					 (what->cuda && i == what->count - 1 ? LANE_DONE : 0),
		};
		write_entry(lane, ways[i], &what->works[i], &how);
		lane->slots[number % LANE_ENTRIES] =
			(struct lane_slot){id, i, what->stream, ways[i]->reports, times};
		if (held)
			lane->held_until[what->stream] = number + 1;
		if (what->stream != 0)
			lane->others_until = number + 1;
		held = held || ways[i]->reports;
		follows = number + 1;
	}
}

bool lane_has_room(const struct lane *lane, int count)
{
	uint64_t until = lane->next + (uint64_t)count;
	if (until - lane->oldest > LANE_ENTRIES)
		return false;
	for (uint64_t number = lane->next; number < until; number++)
		if (number >= LANE_ENTRIES && !lane_is_told(lane, number - LANE_ENTRIES))
			return false;
	return true;
}

/* Waits until `count` places are free.  The ring has been filled once, so the place of entry next -
 * LANE_ENTRIES is the oldest. */
static int wait_for_room(struct kiln_client *client, int count, int64_t deadline)
{
	uint64_t next = client->lane->next, until = next + (uint64_t)count;
	uint64_t first = next > LANE_ENTRIES ? next - LANE_ENTRIES : 0;
	return lane_wait_told(client, first, until - LANE_ENTRIES - 1, deadline);
}

static bool make_room(struct kiln_client *client, const struct submission *what)
{
	struct lane *lane = client->lane;
	int64_t deadline = client_deadline(client);
	while (lane->state == LANE_OPEN) {
		if (lane->next - lane->oldest + (uint64_t)what->count > LANE_ENTRIES)
			lane_collect(client);
		if (lane_has_room(lane, what->count))
			return true;
		/* A call in order with a CUDA stream has no other way, so it waits. */
		if (!what->cuda || time_left(deadline) == 0 ||
			wait_for_room(client, what->count, deadline) != KILN_OK)
			return false;
	}
	return false;
}

int lane_submit(struct kiln_client *client, const struct submission *what, uint64_t id)
{
	struct lane *lane = client->lane;
	const struct call_way *ways[KILN_MAX_BATCH];
	client_lane_assert_valid(lane);
	/* A call that was given up is under way until its answer comes. */
	if (client->link == LINK_DEAD || client->tickets.messages > 0 || client->late_count > 0 ||
		!make_room(client, what))
		return LANE_NOT;
	for (int i = 0; i < what->count; i++) {
		const kiln_work *work = &what->works[i];
		ways[i] = find_way(work->call, work->operands, work->operand_count);
		if (!ways[i])
			return LANE_NOT;
	}
	uint64_t first = lane->next, last = first + (uint64_t)what->count - 1;
	if ((what->cuda && !order_open(client, what->cuda_stream, first, last)) ||
		ticket_add_lane(&client->tickets, id, first, what->count) != KILN_OK)
		return LANE_NOT;
	if (lane_is_watched(lane))
		atomic_store(&lane->memory->header.waiting, 1);
	write_entries(lane, what, ways, id, client->times);
	lane_wake_device(lane);
	return what->cuda ? order_follow(client, what->cuda_stream, first, last) : KILN_OK;
}
