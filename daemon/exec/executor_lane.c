/*
 * executor_lane: launches that come through memory shared with a client (client/lane_memory.h),
 * without a message.  The client may write anything there at any time: an entry is copied before it
 * is looked at, it can name only what its session owns, and what makes no sense ends that lane
 * alone.
 */
#include "daemon/util/util.h"
#include "executor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTRIES_PER_TURN 32 /* of a lane, so that no lane keeps the others waiting */
#define BOUND_MOST 4096     /* calls of a lane */
#define PROGRESS_US 200000

static uint32_t place_of(uint64_t number)
{
	return (uint32_t)(number % LANE_ENTRIES);
}

static struct exec_lane *find_lane(const struct exec *executor, uint64_t id)
{
	struct exec_lane *lane = executor->lanes;
	while (lane && (lane->id != id || lane->closing))
		lane = lane->next;
	return lane;
}

/* ---- Opening and closing ---- */

static void drop_template(struct exec *executor, struct exec_template *bound)
{
	if (bound->module)
		exec_release_module(executor, bound->module);
	free(bound);
}

static void free_lane(struct exec *executor, struct exec_lane *lane)
{
	struct exec_template *bound;
	struct exec_lane **link = &executor->lanes;
	while (*link && *link != lane)
		link = &(*link)->next;
	if (*link)
		*link = lane->next;
	while ((bound = map_take(&lane->calls)))
		drop_template(executor, bound);
	map_free(&lane->calls);
	munmap(lane->memory, sizeof(*lane->memory));
	/* Others have it open, too: closing alone would not end the watch. */
	epoll_ctl(executor->epoll, EPOLL_CTL_DEL, lane->wake, NULL);
	close(lane->wake);
	close(lane->told);
	if (lane->close_id)
		exec_reply(executor, lane->close_id, KILN_OK, NULL);
	free(lane);
}

void exec_lane_close(struct exec *executor, uint64_t stream, uint64_t request)
{
	struct exec_lane *lane = find_lane(executor, stream);
	if (!lane) {
		if (request)
			exec_reply(executor, request, KILN_OK, NULL);
		return;
	}
	lane->closing = true;
	lane->close_id = request;
	if (lane->flights == 0)
		free_lane(executor, lane);
}

static int map_lane(struct exec *executor, struct exec_lane *lane, struct frame *frame,
					char error[KERNEL_ERROR_MAX])
{
	const struct lane_header *header;
	if (frame->fd_count != 3 || !frame_fd_is_safe(frame->fds[0], sizeof(*lane->memory)))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "a lane is opened with a sealed memfd of %zu bytes and two eventfds",
						 sizeof(*lane->memory));
	void *address =
		mmap(NULL, sizeof(*lane->memory), PROT_READ | PROT_WRITE, MAP_SHARED, frame->fds[0], 0);
	if (address == MAP_FAILED)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "a lane cannot be mapped: %s",
						 strerror(errno));
	lane->memory = address;
	header = &lane->memory->header;
	if (header->magic != LANE_MAGIC || header->version != LANE_VERSION ||
		header->entries != LANE_ENTRIES) {
		munmap(address, sizeof(*lane->memory));
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "a lane of version %u with %u entries; this process knows version %u with "
						 "%u",
						 header->version, header->entries, LANE_VERSION, LANE_ENTRIES);
	}
	/* All lanes of a daemon say the same; the client has it not yet. */
	executor->spin_us = header->spin_us < LANE_SPIN_MOST_US ? header->spin_us : LANE_SPIN_MOST_US;
	return KILN_OK;
}

static int watch_lane(struct exec *executor, struct exec_lane *lane, struct frame *frame,
					  char error[KERNEL_ERROR_MAX])
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = lane};
	lane->wake = frame_take_fd(frame, 1);
	lane->told = frame_take_fd(frame, 2);
	if (epoll_ctl(executor->epoll, EPOLL_CTL_ADD, lane->wake, &event) == 0)
		return KILN_OK;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "a lane cannot be watched: %s",
					 strerror(errno));
}

int exec_lane_open(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX])
{
	uint64_t id = wire_get_uint(&message->root, "stream", 0);
	if (!id || find_lane(executor, id))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "the stream %" PRIu64 " has a lane already, or is none", id);
	struct exec_lane *lane = calloc(1, sizeof(*lane));
	if (!lane)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a lane's record");
	lane->id = id;
	lane->deadline_us = wire_get_uint(&message->root, "deadline", 0) * 1000;
	int status = map_lane(executor, lane, frame, error);
	if (status != KILN_OK) {
		free(lane);
		return status;
	}
	lane->next = executor->lanes;
	executor->lanes = lane;
	status = watch_lane(executor, lane, frame, error);
	if (status != KILN_OK)
		free_lane(executor, lane);
	return status;
}

/* ---- Calls that a lane may launch ---- */

int exec_lane_bind(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t call = wire_get_uint(&message->root, "call", 0);
	struct exec_place places[KERNEL_MAX_OPERANDS];
	(void)frame;
	if (!lane || !call || map_get_id(&lane->calls, call) || lane->calls.count >= BOUND_MOST)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "call %" PRIu64 " cannot be bound: there is no such lane, or it has the "
						 "call, or %d others",
						 call, BOUND_MOST);
	struct exec_template *bound = calloc(1, sizeof(*bound));
	if (!bound)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a bound call");
	int status = exec_template_read(executor, message, bound, places, error);
	for (int i = 0; status == KILN_OK && i < bound->arg_count; i++)
		if (bound->args[i].kind == KERNEL_ARG_BYTES)
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
							   "argument %d of a bound call is a value of its own", i);
	if (status == KILN_OK && map_put_id(&lane->calls, call, bound) < 0)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a bound call");
	if (status != KILN_OK) {
		free(bound);
		return status;
	}
	if (bound->module)
		bound->module->uses++;
	return KILN_OK;
}

int exec_lane_unbind(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t call = wire_get_uint(&message->root, "call", 0);
	struct exec_template *bound = lane ? map_remove_id(&lane->calls, call) : NULL;
	(void)frame, (void)error;
	if (bound)
		drop_template(executor, bound);
	return KILN_OK;
}

/* ---- Ends ---- */

/* Fills in the cell, and wakes the client if it sleeps. */
static void tell(struct exec_lane *lane, uint64_t number, int status, const char *error,
				 uint64_t micros)
{
	struct lane_header *header = &lane->memory->header;
	struct lane_cell *cell = &lane->memory->cells[place_of(number)];
	static const uint64_t one = 1;
	cell->status = status;
	cell->micros = micros;
	cell->error[0] = 0;
	if (status != KILN_OK) {
		util_append(cell->error, sizeof(cell->error), 0, "%s", error);
		lane->failed[place_of(number)] = number + 1;
	}
	atomic_fetch_add_explicit(status == KILN_OK ? &header->launched : &header->failed, 1,
							  memory_order_relaxed);
	atomic_store_explicit(&cell->done, number + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	/* A full counter is as good as one more. */
	if (atomic_load_explicit(&header->waiting, memory_order_relaxed) &&
		atomic_exchange(&header->waiting, 0) && write(lane->told, &one, sizeof(one)) < 0 &&
		errno != EAGAIN)
		util_log(UTIL_WARN, "the client of a lane cannot be woken: %s", strerror(errno));
}

/* The broker sees nothing of lanes: requests that wait behind them would seem to be stuck. */
static void say_progress(struct exec *executor)
{
	struct wire_out message;
	uint64_t now = executor->lane_active_us;
	if (now - executor->lane_told_us < PROGRESS_US)
		return;
	executor->lane_told_us = now;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "progress");
	exec_send(executor, &message, -1);
}

void exec_lane_finish(struct exec *executor, struct exec_flight *flight,
					  const struct device_done *done)
{
	struct exec_lane *lane = flight->lane;
	lane->flights--;
	lane->progress_us = executor->lane_active_us = util_now_us();
	tell(lane, flight->number, done->status, done->error, done->micros);
	say_progress(executor);
	if (lane->closing && lane->flights == 0)
		free_lane(executor, lane);
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

static int check_overlap(const struct exec *executor, const struct exec_template *bound,
						 const struct exec_place *places, char error[KERNEL_ERROR_MAX])
{
	const struct exec_operand *operands = bound->operands;
	const struct exec_buffer *buffers[KERNEL_MAX_OPERANDS];
	for (int i = 0; i < bound->operand_count; i++)
		buffers[i] = map_get_id(&executor->buffers, places[i].buffer);
	for (int i = 0; i < bound->operand_count; i++)
		for (int k = 0; k < bound->operand_count; k++)
			if (i != k && operands[k].written && buffers[i] && buffers[k] &&
				share_a_byte(buffers[i], places[i].offset, operands[i].bytes, buffers[k],
							 places[k].offset, operands[k].bytes))
				return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
								 "%s and %s overlap; an output may share no byte with another "
								 "operand",
								 operands[i].name, operands[k].name);
	return KILN_OK;
}

static bool has_failed(const struct exec_lane *lane, uint64_t number)
{
	return lane->failed[place_of(number)] == number + 1;
}

static int run(struct exec *executor, struct exec_lane *lane, uint64_t number,
			   const struct lane_entry *entry, char error[KERNEL_ERROR_MAX])
{
	struct exec_place places[KERNEL_MAX_OPERANDS];
	const struct exec_template *bound = map_get_id(&lane->calls, entry->call);
	if (!bound || entry->operand_count != (uint32_t)bound->operand_count)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "an entry of a lane names call %" PRIu64 " with %u operands, which is not "
						 "bound to it",
						 entry->call, entry->operand_count);
	if (entry->after && has_failed(lane, entry->after - 1))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED,
						 "the call that this one follows did not succeed");
	for (int i = 0; i < bound->operand_count; i++)
		places[i] = (struct exec_place){entry->operands[i].buffer, entry->operands[i].offset};
	int status = check_overlap(executor, bound, places, error);
	return status == KILN_OK ? exec_launch_lane(executor, lane, number, entry->flags & LANE_TIMED,
												bound, places, error)
							 : status;
}

static void take_one(struct exec *executor, struct exec_lane *lane)
{
	struct lane_entry entry;
	char error[KERNEL_ERROR_MAX] = "";
	uint64_t number = lane->head++;
	memcpy(&entry, &lane->memory->entries[place_of(number)], sizeof(entry));
	atomic_store_explicit(&lane->memory->header.head, lane->head, memory_order_release);
	executor->lane_active_us = util_now_us();
	if (lane->flights++ == 0)
		lane->progress_us = executor->lane_active_us;
	int status = run(executor, lane, number, &entry, error);
	if (status != KILN_OK) {
		lane->flights--;
		tell(lane, number, status, error, 0);
	}
}

/* The broker ends its session; until then nothing more is taken. */
static void give_up(struct exec *executor, struct exec_lane *lane, uint64_t tail)
{
	struct wire_out message;
	char why[160];
	snprintf(why, sizeof(why),
			 "the memory of its lane says that there are %" PRIu64 " entries; there may be %u",
			 tail - lane->head, LANE_ENTRIES);
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "lane");
	wire_put_uint(&message, "stream", lane->id);
	wire_put_str(&message, "err", why);
	exec_send(executor, &message, -1);
	exec_lane_close(executor, lane->id, 0);
}

/* How many entries wait; below 0 if that cannot be. */
static int64_t count_waiting(const struct exec_lane *lane, uint64_t *tail)
{
	*tail = atomic_load_explicit(&lane->memory->header.tail, memory_order_acquire);
	uint64_t waiting = *tail - lane->head;
	return waiting > LANE_ENTRIES ? -1 : (int64_t)waiting;
}

static bool has_room(const struct exec *executor, const struct exec_lane *lane)
{
	return lane->flights < (int)LANE_ENTRIES && executor->flights.count < EXEC_MAX_FLIGHTS;
}

void exec_lanes_serve(struct exec *executor)
{
	struct exec_lane *next;
	for (struct exec_lane *lane = executor->lanes; lane; lane = next) {
		uint64_t tail;
		next = lane->next;
		int64_t waiting = lane->closing ? 0 : count_waiting(lane, &tail);
		if (waiting < 0) {
			give_up(executor, lane, tail);
			continue;
		}
		for (int i = 0; i < ENTRIES_PER_TURN && i < waiting && has_room(executor, lane); i++)
			take_one(executor, lane);
	}
}

int exec_lane_catch_up(struct exec *executor, const struct wire_in *message,
					   char error[KERNEL_ERROR_MAX])
{
	uint64_t until = wire_get_uint(&message->root, "tail", 0);
	uint64_t follows = wire_get_uint(&message->root, "follows", 0), tail;
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "lane", 0));
	if (!lane)
		return KILN_OK;
	while (lane->head < until && count_waiting(lane, &tail) > 0)
		take_one(executor, lane);
	if (follows && has_failed(lane, follows - 1))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED,
						 "the call that this one follows did not succeed");
	return KILN_OK;
}

int exec_lane_cancel(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	uint64_t stream = wire_get_uint(&message->root, "stream", 0);
	uint64_t number = wire_get_uint(&message->root, "number", UINT64_MAX);
	struct exec_flight *flight;
	size_t cursor = 0;
	(void)frame, (void)error;
	while ((flight = map_next(&executor->flights, &cursor)))
		if (flight->lane && flight->lane->id == stream && flight->number == number) {
			executor->ops->cancel(executor->device, flight->id);
			break;
		}
	return KILN_OK;
}

/* ---- Waiting ---- */

static bool any_waiting(const struct exec *executor)
{
	uint64_t tail;
	for (const struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		if (!lane->closing && count_waiting(lane, &tail) != 0 && has_room(executor, lane))
			return true;
	return false;
}

int exec_lanes_patience(struct exec *executor)
{
	int patience = -1;
	if (!executor->lanes)
		return -1;
	uint64_t now = util_now_us();
	if (!executor->alone && now - executor->lane_active_us < executor->spin_us)
		return 0;
	for (const struct exec_lane *lane = executor->lanes; lane; lane = lane->next) {
		if (!lane->flights || !lane->deadline_us)
			continue;
		uint64_t until = lane->progress_us + lane->deadline_us;
		uint64_t left = until > now ? (until - now) / 1000 + 1 : 1;
		if (patience < 0 || left < (uint64_t)patience)
			patience = left < 1000 ? (int)left : 1000;
	}
	return patience;
}

static void set_sleeping(struct exec *executor, uint32_t value)
{
	for (struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		atomic_store_explicit(&lane->memory->header.sleeping, value, memory_order_relaxed);
}

bool exec_lanes_sleep(struct exec *executor)
{
	if (!executor->lanes)
		return true;
	set_sleeping(executor, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!any_waiting(executor))
		return true;
	set_sleeping(executor, 0);
	return false;
}

void exec_lanes_wake(struct exec *executor)
{
	set_sleeping(executor, 0);
}

/* ---- Deadlines ---- */

/* The oldest entry of a lane that is under way. */
static const struct exec_flight *oldest(const struct exec *executor, const struct exec_lane *lane)
{
	const struct exec_flight *found = NULL, *flight;
	size_t cursor = 0;
	while ((flight = map_next(&executor->flights, &cursor)))
		if (flight->lane == lane && (!found || flight->number < found->number))
			found = flight;
	return found;
}

bool exec_lanes_overrun(struct exec *executor, struct device_done *culprit)
{
	uint64_t now = executor->lanes ? util_now_us() : 0;
	for (struct exec_lane *lane = executor->lanes; lane; lane = lane->next) {
		if (!lane->flights || !lane->deadline_us || now < lane->progress_us + lane->deadline_us)
			continue;
		const struct exec_flight *flight = oldest(executor, lane);
		*culprit = (struct device_done){.status = KILN_ETIMEDOUT};
		util_fail(culprit->error, sizeof(culprit->error), 0,
				  "nothing completed on %s for %" PRIu64 " ms, the deadline of the call that ran; "
				  "its device process was ended",
				  executor->info.name, lane->deadline_us / 1000);
		if (flight)
			tell(lane, flight->number, KILN_ETIMEDOUT, culprit->error, 0);
		return true;
	}
	return false;
}
