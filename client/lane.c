/*
 * lane.c: calls that are submitted through memory shared with the device process
 * (client/lane_memory.h) and not by message.  The answer to a call's first launch brings what is
 * needed; from then on its launches take no system call, as long as both sides are awake.
 *
 * A launch goes by message as before where it must: while another launch that went by message is
 * not finished (the order is kept), for buffers of which the device process is not known to have
 * heard, where every place of the ring is taken, and where it is going to be refused, for the
 * broker has the better sentence.
 */
#include "client/lane_memory.h"
#include "client/local.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct lane {
	struct lane_memory *memory; /* NULL: not open */
	int wake, told;
	int events;                     /* epoll: told and the socket, for event loops */
	uint64_t generation;            /* of the device process, as buffers and calls know it */
	uint64_t oldest, next;          /* entries that have not been seen to end, and the next one */
	uint64_t tickets[LANE_ENTRIES]; /* of the entries; 0: nobody waits any more */
	int64_t spin_us;                /* to look for an end before sleeping */
	bool watched; /* somebody polls the descriptor: they are to be woken for every end */
	bool off;     /* calls go by message for good */
	bool alone;   /* one CPU is all there is */
	/* The launch by message whose answer will say how the call is bound; 0: none. */
	uint64_t asking;
	struct kiln_call *call;
	struct kiln_buffer *buffers[KILN_MAX_OPERANDS];
	int buffer_count;
};

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static struct lane_cell *cell_of(const struct lane *lane, uint64_t number)
{
	return &lane->memory->cells[number % LANE_ENTRIES];
}

struct lane *lane_new(void)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	cpu_set_t set;
	if (lane != NULL) {
		const char *wish = secure_getenv("KILN_LANE");
		lane->wake = lane->told = lane->events = -1;
		lane->off = wish != NULL && strcmp(wish, "off") == 0;
		lane->alone = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1;
	}
	return lane;
}

static void shut(struct lane *lane)
{
	int *descriptors[] = {&lane->wake, &lane->told, &lane->events};
	if (lane->memory != NULL) {
		munmap(lane->memory, sizeof(*lane->memory));
	}
	lane->memory = NULL;
	for (int i = 0; i < 3; i++) {
		if (*descriptors[i] >= 0) {
			close(*descriptors[i]);
		}
		*descriptors[i] = -1;
	}
}

void lane_free(struct lane *lane)
{
	if (lane != NULL) {
		shut(lane);
		free(lane);
	}
}

/* ---- Ends ---- */

static void finish_entry(struct kiln_client *client, uint64_t number)
{
	struct lane *lane = client->lane;
	const struct lane_cell *cell = cell_of(lane, number);
	uint64_t id = lane->tickets[number % LANE_ENTRIES];
	struct ticket *ticket = id != 0 ? ticket_find(&client->tickets, id) : NULL;
	char error[LANE_ERROR_MAX];
	int status = cell->status;
	lane->tickets[number % LANE_ENTRIES] = 0;
	if (ticket == NULL) {
		return;
	}
	memcpy(error, cell->error, sizeof(error));
	error[sizeof(error) - 1] = 0;
	ticket->micros = (double)cell->micros;
	ticket_finish(&client->tickets, ticket, status > 0 ? KILN_EPROTO : status,
				  status != KILN_OK ? error : NULL, NULL);
}

static bool has_ended(const struct lane *lane, uint64_t number)
{
	return atomic_load_explicit(&cell_of(lane, number)->done, memory_order_acquire) == number + 1;
}

void lane_collect(struct kiln_client *client)
{
	struct lane *lane = client->lane;
	uint64_t number = lane->oldest;
	if (lane->memory == NULL) {
		return;
	}
	/* They end in their order but for those that are refused: the first that has not is the last
	 * that is looked at. */
	while (number != lane->next && has_ended(lane, number)) {
		finish_entry(client, number++);
	}
	lane->oldest = number;
}

void lane_lost(struct kiln_client *client, int status, const char *why)
{
	struct lane *lane = client->lane;
	if (lane->memory == NULL) {
		return;
	}
	for (uint64_t number = lane->oldest; number != lane->next; number++) {
		uint64_t id = lane->tickets[number % LANE_ENTRIES];
		struct ticket *ticket = id != 0 ? ticket_find(&client->tickets, id) : NULL;
		if (has_ended(lane, number)) {
			finish_entry(client, number);
		} else if (ticket != NULL) {
			ticket_finish(&client->tickets, ticket, status, why, NULL);
		}
	}
	/* Who polls its descriptor goes on doing so: from now on there are messages alone. */
	lane->off = lane->off || lane->watched;
	if (!lane->watched) {
		shut(lane);
	}
	lane->oldest = lane->next = 0;
	lane->generation = 0;
}

void lane_forget(struct kiln_client *client, const struct ticket *ticket)
{
	struct lane *lane = client->lane;
	if (ticket->lane) {
		lane->tickets[ticket->number % LANE_ENTRIES] = 0;
	} else if (!ticket->done) {
		/* It is under way, and nothing would tell when a launch must not overtake it any more. */
		lane->off = true;
	}
}

/* ---- Opening, and what calls and buffers know ---- */

static bool map_lane(struct kiln_client *client, struct answer *answer)
{
	struct lane *lane = client->lane;
	int memory = frame_take_fd(&answer->frame, 0);
	struct epoll_event event = {.events = EPOLLIN};
	shut(lane);
	lane->wake = frame_take_fd(&answer->frame, 1);
	lane->told = frame_take_fd(&answer->frame, 2);
	lane->events = epoll_create1(EPOLL_CLOEXEC);
	if (memory < 0 || lane->wake < 0 || lane->told < 0 || lane->events < 0 ||
		!frame_fd_is_safe(memory, sizeof(*lane->memory)) ||
		epoll_ctl(lane->events, EPOLL_CTL_ADD, lane->told, &event) != 0 ||
		epoll_ctl(lane->events, EPOLL_CTL_ADD, client->sock, &event) != 0) {
		shut(lane);
	} else {
		void *map =
			mmap(NULL, sizeof(*lane->memory), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		lane->memory = map == MAP_FAILED ? NULL : map;
	}
	if (memory >= 0) {
		close(memory);
	}
	if (lane->memory != NULL &&
		(lane->memory->header.magic != LANE_MAGIC || lane->memory->header.version != LANE_VERSION ||
		 lane->memory->header.entries != LANE_ENTRIES)) {
		shut(lane);
	}
	if (lane->memory != NULL) {
		uint32_t spin_us = lane->memory->header.spin_us;
		lane->spin_us = spin_us < LANE_SPIN_MOST_US ? spin_us : LANE_SPIN_MOST_US;
	}
	lane->oldest = lane->next = 0;
	memset(lane->tickets, 0, sizeof(lane->tickets));
	return lane->memory != NULL;
}

/* Which way of the call is for these requirements; a new one, or the first in the place of the
 * oldest. */
static struct call_way *way_for(struct kiln_call *call, const int64_t *alignments, int count)
{
	for (int i = 0; i < call->way_count; i++) {
		struct call_way *way = &call->ways[i];
		bool same = way->operand_count == count;
		for (int k = 0; k < count && same; k++) {
			same = way->alignments[k] == alignments[k];
		}
		if (same) {
			return way;
		}
	}
	return &call->ways[call->way_count < CALL_WAYS ? call->way_count++ : 0];
}

static void learn(struct kiln_client *client, struct kiln_call *call, const msgpack_object *root)
{
	struct lane *lane = client->lane;
	int64_t alignments[KILN_MAX_OPERANDS], extents[KILN_MAX_OPERANDS];
	int count = wire_get_ints(root, "alignments", alignments, KILN_MAX_OPERANDS);
	if (count < 0 || wire_get_ints(root, "extents", extents, KILN_MAX_OPERANDS) != count) {
		return;
	}
	struct call_way *way = way_for(call, alignments, count);
	way->bound = wire_get_uint(root, "bound", 0);
	way->generation = lane->generation;
	way->operand_count = count;
	for (int i = 0; i < count; i++) {
		way->alignments[i] = alignments[i] > 0 ? alignments[i] : 1;
		way->extents[i] = extents[i] > 0 ? (uint64_t)extents[i] : 0;
	}
}

void lane_answer(struct kiln_client *client, uint64_t id, struct answer *answer)
{
	struct lane *lane = client->lane;
	const msgpack_object *root = &answer->in.root;
	uint64_t generation = wire_get_uint(root, "generation", 0);
	struct kiln_call *call = lane->call;
	if (id != lane->asking) {
		return;
	}
	lane->asking = 0;
	if (wire_get_uint(root, "bound", 0) == 0 || call == NULL) {
		return;
	}
	if (answer->frame.fd_count == 3) {
		lane->off = lane->off || !map_lane(client, answer);
		lane->generation = generation;
	}
	if (lane->memory == NULL || lane->generation != generation) {
		return;
	}
	learn(client, call, root);
	/* The launch has used them there. */
	for (int i = 0; i < lane->buffer_count; i++) {
		if (lane->buffers[i] != NULL) {
			lane->buffers[i]->generation = generation;
		}
	}
}

void lane_ask(struct kiln_call *call, struct request *request, const kiln_operand *operands,
			  int count)
{
	struct lane *lane = call->client->lane;
	if (lane->off || lane->asking != 0) {
		return;
	}
	wire_put_bool(&request->out, "lane", true);
	lane->asking = request->id;
	lane->call = call;
	lane->buffer_count = count;
	for (int i = 0; i < count; i++) {
		lane->buffers[i] = operands[i].buffer;
	}
}

void lane_forget_call(struct kiln_client *client, const struct kiln_call *call)
{
	if (client->lane->call == call) {
		client->lane->call = NULL;
	}
}

void lane_forget_buffer(struct kiln_client *client, const struct kiln_buffer *buffer)
{
	struct lane *lane = client->lane;
	for (int i = 0; i < lane->buffer_count; i++) {
		if (lane->buffers[i] == buffer) {
			lane->buffers[i] = NULL;
		}
	}
}

void lane_put_tail(struct kiln_client *client, struct wire_out *out)
{
	if (client->lane->memory != NULL && client->lane->next > 0) {
		wire_put_uint(out, "tail", client->lane->next);
	}
}

/* ---- Submitting ---- */

/* False: by message, where it is refused with a sentence, or where the planner is asked for a
 * variant that fits. */
static bool fits(const struct call_way *way, const kiln_operand *operands, int count)
{
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		uint64_t offset = operands[i].offset;
		if (buffer == NULL) {
			continue;
		}
		if (buffer->generation != way->generation || offset > buffer->bytes ||
			way->extents[i] > buffer->bytes - offset ||
			(buffer->phase + offset) % (uint64_t)way->alignments[i] != 0) {
			return false;
		}
		/* The same buffer twice may overlap. */
		for (int k = 0; k < i; k++) {
			if (operands[k].buffer == buffer) {
				return false;
			}
		}
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
			fits(way, operands, count)) {
			return way;
		}
	}
	return NULL;
}

/* The device process sleeps only after it has said so and looked once more. */
static void ring(struct lane *lane)
{
	static const uint64_t one = 1;
	struct lane_header *header = &lane->memory->header;
	atomic_store_explicit(&header->tail, lane->next, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&header->sleeping, memory_order_relaxed) &&
		write(lane->wake, &one, sizeof(one)) < 0) {
		return; /* a full counter is as good as one more */
	}
}

bool lane_submit(struct kiln_call *call, const kiln_operand *operands, int count, uint64_t follows,
				 uint64_t id)
{
	struct kiln_client *client = call->client;
	struct lane *lane = client->lane;
	if (lane->memory == NULL || lane->off || client->tickets.messages > 0) {
		return false;
	}
	if (lane->next - lane->oldest >= LANE_ENTRIES) {
		lane_collect(client);
	}
	const struct call_way *way =
		lane->next - lane->oldest < LANE_ENTRIES ? find_way(call, operands, count) : NULL;
	if (way == NULL) {
		return false;
	}
	uint64_t number = lane->next;
	struct lane_entry *entry = &lane->memory->entries[number % LANE_ENTRIES];
	if (ticket_add_lane(&client->tickets, id, number) != KILN_OK) {
		return false;
	}
	memset(entry, 0, sizeof(*entry));
	entry->call = way->bound;
	entry->after = follows;
	entry->operand_count = (uint32_t)way->operand_count;
	entry->flags = client->times ? LANE_TIMED : 0;
	for (int i = 0; i < count; i++) {
		if (operands[i].buffer != NULL) {
			entry->operands[i] = (struct lane_operand){operands[i].buffer->id, operands[i].offset};
		}
	}
	lane->tickets[number % LANE_ENTRIES] = id;
	lane->next = number + 1;
	if (lane->watched) {
		atomic_store(&lane->memory->header.waiting, 1);
	}
	ring(lane);
	return true;
}

/* ---- Waiting ---- */

/* Until the entry has ended, or for a while. */
static bool look(const struct lane *lane, uint64_t number)
{
	int64_t until = lane->alone ? 0 : now_us() + lane->spin_us;
	do {
		for (int i = 0; i < 32; i++) {
			if (has_ended(lane, number)) {
				return true;
			}
			lane_pause();
		}
	} while (!lane->alone && now_us() < until);
	return false;
}

static void quiet(struct lane *lane)
{
	uint64_t count;
	if (read(lane->told, &count, sizeof(count)) < 0 && errno != EAGAIN) {
		return; /* it will be readable again, and read then */
	}
}

void lane_watch(struct kiln_client *client)
{
	struct lane *lane = client->lane;
	if (lane->memory == NULL || !lane->watched) {
		return;
	}
	quiet(lane);
	atomic_store(&lane->memory->header.waiting, 1);
	atomic_thread_fence(memory_order_seq_cst);
	lane_collect(client);
}

int lane_fd(struct lane *lane)
{
	if (lane->memory == NULL) {
		lane->off = lane->off || lane->events < 0;
		return lane->events;
	}
	lane->watched = true;
	atomic_store(&lane->memory->header.waiting, 1);
	return lane->events;
}

int lane_wait(struct kiln_client *client, uint64_t number, int64_t deadline)
{
	struct lane *lane = client->lane;
	int status = KILN_OK;
	if (look(lane, number)) {
		finish_entry(client, number);
		return KILN_OK;
	}
	atomic_store(&lane->memory->header.waiting, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!has_ended(lane, number)) {
		struct pollfd watch[] = {{.fd = lane->told, .events = POLLIN},
								 {.fd = client->sock, .events = POLLIN}};
		int left = time_left(deadline);
		int n = poll(watch, 2, left);
		if (n > 0 && watch[0].revents != 0) {
			quiet(lane);
		}
		status = n == 0 && left == 0 ? KILN_ETIMEDOUT : link_drain(client);
	}
	if (lane->memory != NULL) {
		atomic_store(&lane->memory->header.waiting, lane->watched);
		lane_collect(client);
	}
	return status;
}

int lane_stop(struct kiln_client *client, int64_t deadline)
{
	struct lane *lane = client->lane;
	lane->off = true;
	lane_collect(client);
	while (lane->memory != NULL && lane->oldest != lane->next) {
		int status = lane_wait(client, lane->next - 1, deadline);
		if (status != KILN_OK) {
			return status;
		}
	}
	return KILN_OK;
}
