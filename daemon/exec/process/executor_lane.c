/*
 * executor_lane: launches that come through memory shared with a client
 * (client/wire/lane_memory.h), without a message: lanes, the calls that are bound to them, and when
 * they are looked at. What becomes of an entry is executor_entry.c's.
 *
 * The client may write anything there at any time: what makes no sense ends that lane alone.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES_PER_TURN 32 /* of a lane, so that no lane keeps the others waiting */
#define BOUND_MOST 4096     /* calls of a lane */
#define WAKER_CPUS 4        /* with fewer its thread would be in the way */

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

static void free_memory(struct exec *executor, void *what)
{
	struct exec_lane *lane = what;
	if (lane->gates_shared)
		executor->ops->unshare_words(executor->device, lane->memory->gates);
	munmap(lane->memory, sizeof(*lane->memory));
	munmap(lane->counts, sizeof(*lane->counts));
	free(lane);
}

/*
 * With n clients a turn comes n launches after the last: who looks for no longer than it takes one
 * would mostly sleep before, and be late for the next.  Not so where they would take each other's
 * CPUs, and this process's.
 */
static void share_spin(struct exec *executor)
{
	uint32_t count = 0;
	for (const struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		count++;
	uint32_t times = 2 * count <= (uint32_t)executor->cpus ? count : 1;
	for (struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		atomic_store_explicit(&lane->memory->header.spin_us, times * executor->spin_us,
							  memory_order_relaxed);
}

static void free_lane(struct exec *executor, struct exec_lane *lane)
{
	struct exec_template *bound;
	struct exec_lane **link = &executor->lanes;
	while (*link && *link != lane)
		link = &(*link)->next;
	if (*link)
		*link = lane->next;
	executor->lane_table[lane->index] = NULL;
	share_spin(executor);
	while ((bound = map_take(&lane->calls)))
		drop_template(executor, bound);
	map_free(&lane->calls);
	/* Others have it open, too: closing alone would not end the watch. */
	epoll_ctl(executor->epoll, EPOLL_CTL_DEL, lane->wake, NULL);
	waker_drain(executor->waker);
	close(lane->wake);
	close(lane->told);
	if (lane->close_id)
		exec_reply(executor, lane->close_id, KILN_OK, NULL);
	if (!lane->gates_shared || !exec_quiet_waits(executor, NULL)) {
		free_memory(executor, lane);
		return;
	}
	lane->task = (struct exec_task){.perform = free_memory, .what = lane};
	exec_quiet_add(executor, &lane->task, EXEC_TASK_LAZY);
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
	exec_lane_drop_parked(lane);
	exec_lane_settle(executor, lane);
}

void exec_lane_settle(struct exec *executor, struct exec_lane *lane)
{
	if (lane->closing && lane->flights == 0)
		free_lane(executor, lane);
}

/* NULL with a sentence. */
static void *map_shared(int fd, size_t bytes, char error[KERNEL_ERROR_MAX])
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (address != MAP_FAILED)
		return address;
	util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "a lane cannot be mapped: %s", strerror(errno));
	return NULL;
}

static int map_lane(struct exec *executor, struct exec_lane *lane, struct frame *frame,
					char error[KERNEL_ERROR_MAX])
{
	if (frame->fd_count != LANE_EXEC_DESCRIPTORS ||
		!frame_fd_is_safe(frame->fds[0], sizeof(*lane->memory)) ||
		!frame_fd_is_safe(frame->fds[3], sizeof(*lane->counts)))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "a lane is opened with a sealed memfd of %zu bytes, an eventfd, a pipe "
						 "and a sealed memfd of %zu bytes",
						 sizeof(*lane->memory), sizeof(*lane->counts));
	lane->memory = map_shared(frame->fds[0], sizeof(*lane->memory), error);
	if (!lane->memory)
		return KILN_ENOMEM;
	const struct lane_header *header = &lane->memory->header;
	int status = KILN_OK;
	if (header->magic != LANE_MAGIC || header->version != LANE_VERSION ||
		header->entries != LANE_ENTRIES)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						   "a lane of version %u with %u entries; this process knows version %u "
						   "with %u",
						   header->version, header->entries, LANE_VERSION, LANE_ENTRIES);
	else if (!(lane->counts = map_shared(frame->fds[3], sizeof(*lane->counts), error)))
		status = KILN_ENOMEM;
	if (status != KILN_OK) {
		munmap(lane->memory, sizeof(*lane->memory));
		return status;
	}
	/* All lanes of a daemon say the same; the client has it not yet. */
	uint32_t spin_us = header->spin_us;
	executor->spin_us = spin_us < LANE_SPIN_MOST_US ? spin_us : LANE_SPIN_MOST_US;
	return KILN_OK;
}

static int watch_lane(struct exec *executor, struct exec_lane *lane, struct frame *frame,
					  char error[KERNEL_ERROR_MAX])
{
	/* Each write is told of once, and never read: the client could make that block. */
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = lane};
	lane->wake = frame_take_fd(frame, 1);
	lane->told = frame_take_fd(frame, 2);
	if (epoll_ctl(executor->epoll, EPOLL_CTL_ADD, lane->wake, &event) == 0)
		return KILN_OK;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "a lane cannot be watched: %s",
					 strerror(errno));
}

/* Finds a free index for it. */
static int enter_table(struct exec *executor, struct exec_lane *lane, char error[KERNEL_ERROR_MAX])
{
	uint32_t room = executor->lane_room;
	while (lane->index < room && executor->lane_table[lane->index])
		lane->index++;
	if (lane->index < room)
		return KILN_OK;
	struct exec_lane **more = realloc(executor->lane_table, (room + 16) * sizeof(*more));
	if (!more)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a lane's record");
	memset(more + room, 0, 16 * sizeof(*more));
	executor->lane_table = more;
	executor->lane_room = room + 16;
	return KILN_OK;
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
	lane->ready_us = wire_get_uint(&message->root, "ready", 0) * 1000;
	int status = enter_table(executor, lane, error);
	if (status == KILN_OK)
		status = map_lane(executor, lane, frame, error);
	if (status != KILN_OK) {
		free(lane);
		return status;
	}
	executor->lane_table[lane->index] = lane;
	if (!executor->waker_tried && executor->cpus >= WAKER_CPUS)
		executor->waker = waker_start();
	executor->waker_tried = true;
	lane->waker = executor->waker;
	lane->next = executor->lanes;
	executor->lanes = lane;
	share_spin(executor);
	status = watch_lane(executor, lane, frame, error);
	if (status != KILN_OK)
		free_lane(executor, lane);
	return status;
}

/* ---- Calls that a lane may launch ---- */

/* What a lane keeps of a call: a launch whose arguments are all its own. */
static int read_bound(struct exec *executor, struct wire_in *message, struct exec_template *bound,
					  char error[KERNEL_ERROR_MAX])
{
	struct exec_place places[KERNEL_MAX_OPERANDS];
	int status = exec_template_read(executor, message, &message->root, bound, places, error);
	for (int i = 0; status == KILN_OK && i < bound->arg_count; i++)
		if (bound->args[i].kind == KERNEL_ARG_BYTES)
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
							   "argument %d of a bound call is a value of its own", i);
	bound->id = wire_get_uint(&message->root, "call", 0);
	bound->of = wire_get_uint(&message->root, "of", 0);
	bound->notice = bound->left = wire_get_uint(&message->root, "notice", 0);
	return status;
}

int exec_lane_bind(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t call = wire_get_uint(&message->root, "call", 0);
	(void)frame;
	if (!lane || !call || map_get_id(&lane->calls, call))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "call %" PRIu64 " cannot be bound: there is no such lane, or it has the "
						 "call",
						 call);
	if (lane->calls.count >= BOUND_MOST)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "its lane knows %d calls, the most there may be: release some",
						 BOUND_MOST);
	struct exec_template *bound = calloc(1, sizeof(*bound));
	if (!bound)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a bound call");
	int status = read_bound(executor, message, bound, error);
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

/* Entries that are taken from now on, or parked, are this launch; what is under way stays what it
 * was.  A call that was unbound meanwhile needs no other kernel. */
int exec_lane_rebind(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t call = wire_get_uint(&message->root, "call", 0);
	struct exec_template *bound = lane ? map_get_id(&lane->calls, call) : NULL, other;
	(void)frame;
	if (!bound)
		return KILN_OK;
	int status = read_bound(executor, message, &other, error);
	if (status == KILN_OK && other.operand_count != bound->operand_count)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						   "call %" PRIu64 " has %d operands and cannot have %d", call,
						   bound->operand_count, other.operand_count);
	if (status != KILN_OK)
		return status;
	if (other.module)
		other.module->uses++;
	if (bound->module)
		exec_release_module(executor, bound->module);
	other.leaving = bound->leaving;
	*bound = other;
	return KILN_OK;
}

int exec_lane_unbind(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t call = wire_get_uint(&message->root, "call", 0);
	struct exec_template *bound = lane ? map_get_id(&lane->calls, call) : NULL;
	(void)frame, (void)error;
	if (bound && (bound->leaving = exec_lane_leave(executor, lane->id)) == 0)
		drop_template(executor, map_remove_id(&lane->calls, call));
	return KILN_OK;
}

uint64_t exec_lane_leave(struct exec *executor, uint64_t stream)
{
	struct exec_lane *lane = find_lane(executor, stream);
	if (!lane || lane->parked == 0)
		return 0;
	lane->leaving = lane->leaving ? lane->leaving : lane->head;
	return lane->head;
}

/* Those that parked entries named, and name no more. */
static void drop_leaving(struct exec *executor, struct exec_lane *lane)
{
	struct exec_template *bound;
	uint64_t parked = exec_lane_first_parked(lane), least = 0;
	size_t cursor = 0;
	if (parked < lane->leaving)
		return;
	while ((bound = map_next(&lane->calls, &cursor)))
		if (bound->leaving && bound->leaving <= parked)
			drop_template(executor, map_remove_id(&lane->calls, bound->id));
		else if (bound->leaving && (!least || bound->leaving < least))
			least = bound->leaving;
	lane->leaving = least;
	least = exec_graphs_settle(executor, lane->id, parked);
	if (least && (!lane->leaving || least < lane->leaving))
		lane->leaving = least;
}

/* The broker ends its session; until then nothing more is taken. */
static void give_up(struct exec *executor, struct exec_lane *lane)
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
	exec_send(executor, &message, -1);
	exec_lane_close(executor, lane->id, 0);
}

/* What its client has written of the next entry: nothing yet, all of it, or what cannot be. */
enum next { NEXT_NONE, NEXT_HERE, NEXT_WRONG };

static enum next look(const struct exec_lane *lane)
{
	const struct lane_entry *entry = &lane->memory->entries[lane->head % LANE_ENTRIES];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
	uint32_t before = lane->head < LANE_ENTRIES ? 0 : (uint32_t)(lane->head + 1 - LANE_ENTRIES);
	if (sequence == (uint32_t)(lane->head + 1))
		return NEXT_HERE;
	return sequence == before ? NEXT_NONE : NEXT_WRONG;
}

/* What is launched last in a turn has the least time to end in it, and may lose the next: so each
 * lane is the first and the last in turn. */
static void rotate(struct exec *executor)
{
	struct exec_lane *first = executor->lanes, *last = first;
	if (!first || !first->next)
		return;
	while (last->next)
		last = last->next;
	executor->lanes = first->next;
	first->next = NULL;
	last->next = first;
}

void exec_lanes_serve(struct exec *executor)
{
	struct exec_lane *next;
	for (struct exec_lane *lane = executor->lanes; lane; lane = next) {
		next = lane->next;
		if (lane->closing)
			continue;
		if (lane->parked > 0)
			exec_lane_unpark(executor, lane);
		if (lane->leaving)
			drop_leaving(executor, lane);
		int taken = 0;
		enum next there = look(lane);
		while (there == NEXT_HERE && taken < ENTRIES_PER_TURN &&
			   exec_lane_has_room(executor, lane)) {
			exec_lane_take(executor, lane);
			taken++;
			there = look(lane);
		}
		if (there == NEXT_WRONG) {
			give_up(executor, lane);
			continue;
		}
		if (taken > 0 && executor->ops->flush)
			executor->ops->flush(executor->device);
	}
	rotate(executor);
}

int exec_lane_catch_up(struct exec *executor, const struct wire_in *message,
					   char error[KERNEL_ERROR_MAX])
{
	uint64_t until = wire_get_uint(&message->root, "tail", 0);
	uint64_t follows = wire_get_uint(&message->root, "follows", 0);
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "lane", 0));
	if (!lane)
		return KILN_OK;
	/* It has not written more; one that does so meanwhile keeps others waiting no longer. */
	for (uint32_t i = 0; i < LANE_ENTRIES && lane->head < until && look(lane) == NEXT_HERE &&
						 exec_lane_has_place(lane);
		 i++)
		exec_lane_take(executor, lane);
	if (follows && exec_lane_failed(lane, follows - 1))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED,
						 "the call that this one follows did not succeed");
	return KILN_OK;
}

int exec_lane_cancel(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	struct exec_lane *lane = find_lane(executor, wire_get_uint(&message->root, "stream", 0));
	uint64_t number = wire_get_uint(&message->root, "number", 0);
	uint64_t count = wire_get_uint(&message->root, "count", 1);
	(void)frame, (void)error;
	for (uint64_t i = 0; lane && i < count && i < LANE_ENTRIES; i++)
		exec_lane_cancel_entry(executor, lane, number + i);
	return KILN_OK;
}

/* ---- Waiting ---- */

bool exec_lanes_waiting(const struct exec *executor)
{
	for (const struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		if (!lane->closing && ((look(lane) != NEXT_NONE && exec_lane_has_place(lane)) ||
							   (lane->parked > 0 && exec_lane_may_unpark(executor, lane))))
			return true;
	return false;
}

/* And may be taken. */
static bool any_waiting(const struct exec *executor)
{
	return exec_lanes_may_launch(executor) && exec_lanes_waiting(executor);
}

/* Nobody tells when a ready word is written. */
static bool any_gated(const struct exec *executor)
{
	for (const struct exec_lane *lane = executor->lanes; lane; lane = lane->next)
		if (lane->gated > 0)
			return true;
	return false;
}

int exec_lanes_patience(struct exec *executor)
{
	int patience = -1;
	if (!executor->lanes)
		return -1;
	uint64_t now = executor->now_us;
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
	return any_gated(executor) ? 0 : patience;
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

/*
 * While nothing moves but ready words are waited for, they are looked at ever less often: such an
 * entry starts late by at most an eighth of the time that it waited.
 */
static uint64_t nap_us(uint64_t idle)
{
	uint64_t most = idle < PAUSE_NAP_PATIENT_US ? PAUSE_NAP_MOST_US : PAUSE_NAP_LONG_US;
	uint64_t nap = idle / 8;
	return nap < PAUSE_NAP_LEAST_US ? PAUSE_NAP_LEAST_US : nap > most ? most : nap;
}

void exec_lanes_nap(struct exec *executor)
{
	uint64_t idle = executor->now_us - executor->lane_active_us;
	struct pollfd wake = {.fd = executor->epoll, .events = POLLIN};
	if ((!executor->alone && idle < executor->spin_us) || !any_gated(executor) ||
		!exec_lanes_sleep(executor))
		return;
	struct timespec time = {0, (long)nap_us(idle) * 1000};
	ppoll(&wake, 1, &time, NULL);
	exec_lanes_wake(executor);
}

/* ---- Deadlines ---- */

/* Of the stream of a lane on which nothing has ended for longest. */
static uint64_t least_progress(const struct exec_lane *lane)
{
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < KILN_STREAMS; i++)
		if (lane->paces[i].flights && lane->paces[i].progress_us < least)
			least = lane->paces[i].progress_us;
	return least;
}

/* The oldest entry of that stream that is under way. */
static const struct exec_slot *oldest(const struct exec_lane *lane)
{
	const struct exec_slot *found = NULL;
	for (uint32_t place = 0; place < LANE_ENTRIES; place++) {
		const struct exec_slot *slot = &lane->slots[place];
		if (slot->state == SLOT_FLYING && (!found || slot->number < found->number) &&
			lane->paces[exec_lane_stream(lane, slot->number)].progress_us == lane->progress_us)
			found = slot;
	}
	return found;
}

/* Its client is told here, before the daemon has a name for the report. */
static void tell_overrun(struct exec_lane *lane, uint64_t number, const char *why)
{
	char error[LANE_ERROR_MAX];
	util_append(error, sizeof(error), 0, "%s; report: kiln faults ls", why);
	exec_lane_tell(lane, number, KILN_ETIMEDOUT, error, 0);
}

bool exec_lanes_overrun(struct exec *executor, struct device_done *culprit)
{
	uint64_t now = executor->now_us;
	for (struct exec_lane *lane = executor->lanes; lane; lane = lane->next) {
		if (!lane->flights || !lane->deadline_us || now < lane->progress_us + lane->deadline_us)
			continue;
		lane->progress_us = least_progress(lane);
		if (now < lane->progress_us + lane->deadline_us)
			continue;
		const struct exec_slot *slot = oldest(lane);
		uint64_t since = slot ? exec_pace_since(executor, slot->flight.id, lane->progress_us) : 0;
		if (now < since + lane->deadline_us) {
			lane->paces[exec_lane_stream(lane, slot->number)].progress_us = since;
			lane->progress_us = least_progress(lane);
			continue;
		}
		*culprit = (struct device_done){.status = KILN_ETIMEDOUT};
		exec_pace_sentence(executor, lane->deadline_us, culprit->error);
		if (slot)
			culprit->ticket = slot->flight.id;
		if (slot)
			tell_overrun(lane, slot->number, culprit->error);
		return true;
	}
	return false;
}
