/*
 * executor_lane: opens and closes lanes: launches that come through memory shared with a client
 * (client/wire/lane_memory.h), without a message.  executor_lane.h draws their states.
 *
 * The client may write anything there at any time.  Nonsense ends that lane alone.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_lane.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WAKER_CPUS 4 /* with fewer its thread would be in the way */
#define LEAST_TIMES 4
#define TURN_US 3 /* of one client among many, who launch all the time */

static void free_memory(struct exec *executor, void *what)
{
	struct exec_lane *lane = what;
	if (lane->gates_shared)
		executor->ops->unshare_words(executor->device, lane->memory->gates);
	munmap(lane->memory, sizeof(*lane->memory));
	munmap(lane->counts, sizeof(*lane->counts));
	free(lane);
}

/* Returns how long clients are to spin before they sleep, where so many launch at the time. */
static uint32_t spin_among(const struct launcher *launcher, uint32_t count)
{
	uint32_t times = count > LEAST_TIMES ? count : LEAST_TIMES;
	if (2 * count <= (uint32_t)launcher->executor->cpus)
		return times * launcher->spin_us;
	return count * TURN_US > launcher->spin_us ? 0 : launcher->spin_us;
}

/*
 * Tells the clients how long to spin before they sleep.  The driver takes launches one by one, so
 * each of n clients that launch has a turn every n launches.  A client that spins for the time of
 * one launch would mostly fall asleep before its turn, and be late for the next.  A graph, or
 * launches that are queued, take several times as long as one launch.  Where CPUs are too few,
 * clients that spin take them from each other and from this process.  There each client spins for
 * one launch, and not at all if its turn comes later.
 */
static void share_spin(struct launcher *launcher, bool always)
{
	struct exec *executor = launcher->executor;
	uint32_t count = 0, all = 0;
	for (const struct exec_lane *lane = launcher->lanes; lane; lane = lane->next)
		count += launcher->now_us - lane->taken_us < PAUSE_ACTIVE_US;
	atomic_store_explicit(&launcher->active, count, memory_order_relaxed);
	for (int i = 0; i < executor->launcher_count; i++)
		all += atomic_load_explicit(&executor->launchers[i].active, memory_order_relaxed);
	uint32_t spin_us = spin_among(launcher, all);
	if (spin_us == launcher->shared_spin_us && !always)
		return;
	launcher->shared_spin_us = spin_us;
	for (struct exec_lane *lane = launcher->lanes; lane; lane = lane->next)
		atomic_store_explicit(&lane->memory->header.spin_us, spin_us, memory_order_relaxed);
}

void exec_lanes_share_spin(struct launcher *launcher)
{
	if (launcher->now_us - launcher->shared_us < PAUSE_ACTIVE_US)
		return;
	launcher->shared_us = launcher->now_us;
	share_spin(launcher, false);
}

static void free_lane(struct launcher *launcher, struct exec_lane *lane)
{
	struct exec_template *bound;
	struct exec_lane **link = &launcher->lanes;
	while (*link && *link != lane)
		link = &(*link)->next;
	if (*link)
		*link = lane->next;
	launcher->lane_table[lane->index] = NULL;
	lane->state = EXEC_LANE_GONE;
	share_spin(launcher, false);
	while ((bound = map_take(&lane->calls)))
		exec_lane_drop_call(launcher, bound);
	map_free(&lane->calls);
	/* The client has the eventfd open too, so close() alone would not end the watch. */
	epoll_ctl(launcher->epoll, EPOLL_CTL_DEL, lane->doorbell_fd, NULL);
	waker_drain(launcher->waker);
	close(lane->doorbell_fd);
	close(lane->client_wake_fd);
	if (lane->close_id)
		exec_reply(launcher->executor, lane->close_id, KILN_OK, NULL);
	lane->task = (struct exec_task){.kind = EXEC_TASK_LAZY, .perform = free_memory, .what = lane};
	if (lane->gates_shared)
		exec_quiet_hand_over(launcher, &lane->task, NULL);
	else
		free_memory(launcher->executor, lane);
}

/* The lane's counts must be those of its slots. */
static void lane_assert_valid(const struct exec_lane *lane)
{
#ifndef NDEBUG
	int flying = 0, parked = 0;
	for (uint32_t i = 0; i < LANE_ENTRIES; i++) {
		flying += lane->slots[i].state == SLOT_FLYING;
		parked += lane->slots[i].state == SLOT_PARKED;
	}
	assert(lane->flights == flying && lane->parked == parked && lane->gated <= parked);
	assert(lane->state != EXEC_LANE_GONE);
#else
	(void)lane;
#endif
}

/* Frees a closing lane once nothing of it is under way any more. */
static void settle(struct launcher *launcher, struct exec_lane *lane)
{
	if (lane->state != EXEC_LANE_CLOSING || lane->flights > 0)
		return;
	lane_assert_valid(lane);
	free_lane(launcher, lane);
}

void exec_lane_finish(struct launcher *launcher, const struct device_done *done)
{
	uint64_t index = (done->ticket & ~EXEC_LANE_TICKET) / LANE_ENTRIES;
	struct exec_lane *lane = launcher->lane_table[index];
	exec_entry_finish(launcher, lane, done);
	settle(launcher, lane);
}

void exec_lane_close(struct launcher *launcher, uint64_t stream, uint64_t request)
{
	struct exec_lane *lane = exec_lane_find(launcher, stream);
	if (!lane) {
		if (request)
			exec_reply(launcher->executor, request, KILN_OK, NULL);
		return;
	}
	lane->state = EXEC_LANE_CLOSING;
	lane->close_id = request;
	lane_assert_valid(lane);
	exec_lane_drop_parked(lane);
	settle(launcher, lane);
}

/* NULL with a sentence. */
static void *map_shared(int fd, size_t bytes, struct exec_request *request)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (address != MAP_FAILED)
		return address;
	exec_refuse(request, KILN_ENOMEM, "a lane cannot be mapped: %s", strerror(errno));
	return NULL;
}

static int map_lane(struct launcher *launcher, struct exec_lane *lane, struct exec_request *request)
{
	if (request->frame->fd_count != LANE_EXEC_DESCRIPTORS ||
		!frame_fd_is_safe(request->frame->fds[0], sizeof(*lane->memory)) ||
		!frame_fd_is_safe(request->frame->fds[3], sizeof(*lane->counts)))
		return exec_refuse(request, KILN_EPROTO,
						   "a lane is opened with a sealed memfd of %zu bytes, an eventfd, a pipe "
						   "and a sealed memfd of %zu bytes",
						   sizeof(*lane->memory), sizeof(*lane->counts));
	lane->memory = map_shared(request->frame->fds[0], sizeof(*lane->memory), request);
	if (!lane->memory)
		return KILN_ENOMEM;
	const struct lane_header *header = &lane->memory->header;
	int status = KILN_OK;
	if (header->magic != LANE_MAGIC || header->version != LANE_VERSION ||
		header->entries != LANE_ENTRIES)
		status = exec_refuse(request, KILN_EPROTO,
							 "a lane of version %u with %u entries; this process knows version %u "
							 "with %u",
							 header->version, header->entries, LANE_VERSION, LANE_ENTRIES);
	else if (!(lane->counts = map_shared(request->frame->fds[3], sizeof(*lane->counts), request)))
		status = KILN_ENOMEM;
	if (status != KILN_OK) {
		munmap(lane->memory, sizeof(*lane->memory));
		return status;
	}
	/* The broker writes the same time to all lanes, before the client gets the memory. */
	uint32_t spin_us = header->spin_us;
	launcher->spin_us = spin_us < LANE_SPIN_MOST_US ? spin_us : LANE_SPIN_MOST_US;
	return KILN_OK;
}

static int watch_lane(struct launcher *launcher, struct exec_lane *lane,
					  struct exec_request *request)
{
	/* Edge-triggered, and never read: a client could make a read block. */
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = lane};
	lane->doorbell_fd = frame_take_fd(request->frame, 1);
	lane->client_wake_fd = frame_take_fd(request->frame, 2);
	if (epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, lane->doorbell_fd, &event) == 0)
		return KILN_OK;
	return exec_refuse(request, KILN_EIO, "a lane cannot be watched: %s", strerror(errno));
}

/* Finds a free index for the lane. */
static int enter_table(struct launcher *launcher, struct exec_lane *lane,
					   struct exec_request *request)
{
	uint32_t room = launcher->lane_room;
	while (lane->index < room && launcher->lane_table[lane->index])
		lane->index++;
	if (lane->index < room)
		return KILN_OK;
	struct exec_lane **more = realloc(launcher->lane_table, (room + 16) * sizeof(*more));
	if (!more)
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a lane's record");
	memset(more + room, 0, 16 * sizeof(*more));
	launcher->lane_table = more;
	launcher->lane_room = room + 16;
	return KILN_OK;
}

int exec_lane_open(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = request->stream;
	if (!id || exec_lane_find(launcher, id))
		return exec_refuse(request, KILN_EPROTO,
						   "the stream %" PRIu64 " has a lane already, or is none", id);
	struct exec_lane *lane = calloc(1, sizeof(*lane));
	if (!lane)
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a lane's record");
	lane->id = id;
	lane->account = exec_account_read(request->root);
	lane->deadline_us = wire_get_uint(request->root, "deadline", 0) * 1000;
	lane->ready_us = wire_get_uint(request->root, "ready", 0) * 1000;
	lane->desk = wire_get_uint(request->root, "desk", 0);
	lane->desk_notice = wire_get_uint(request->root, "notice", 0);
	int status = enter_table(launcher, lane, request);
	if (status == KILN_OK)
		status = map_lane(launcher, lane, request);
	if (status != KILN_OK) {
		free(lane);
		return status;
	}
	launcher->lane_table[lane->index] = lane;
	if (!launcher->waker_tried && launcher->executor->cpus >= WAKER_CPUS)
		launcher->waker = waker_start();
	launcher->waker_tried = true;
	lane->waker = launcher->waker;
	lane->next = launcher->lanes;
	launcher->lanes = lane;
	share_spin(launcher, true);
	status = watch_lane(launcher, lane, request);
	if (status != KILN_OK)
		free_lane(launcher, lane);
	return status;
}
