/*
 * lane_wait.c: sees that entries of the lane have ended, ends their tickets, and waits for them.
 */
#include "client.h"
#include "clock.h"
#include "error.h"
#include "lane.h"
#include "lane_state.h"
#include "link.h"
#include "ticket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STATUS_LEAST (-1000) /* statuses of later versions are above it, too */

static struct lane_cell *cell_of(const struct lane *lane, uint64_t number)
{
	return &lane->memory->cells[number % LANE_ENTRIES];
}

/* ---- Ends ---- */

static void finish_entry(struct kiln_client *client, uint64_t number)
{
	struct lane *lane = client->lane;
	const struct lane_cell *cell = cell_of(lane, number);
	struct lane_slot *slot = &lane->slots[number % LANE_ENTRIES];
	struct ticket *ticket = slot->ticket != 0 ? ticket_find(&client->tickets, slot->ticket) : NULL;
	char error[LANE_ERROR_MAX];
	int status = cell->status;
	slot->ticket = 0;
	if (!ticket)
		return;
	if (status > KILN_OK || status < STATUS_LEAST) {
		snprintf(error, sizeof(error),
				 "the device process says that the call ended in status %d, which there is not",
				 status);
		status = KILN_EPROTO;
	} else if (status != KILN_OK) {
		memcpy(error, cell->error, sizeof(error));
		error[sizeof(error) - 1] = 0;
	}
	ticket_finish_part(&client->tickets, ticket, slot->part, status,
					   status != KILN_OK ? error : NULL, (double)cell->micros);
}

bool lane_is_told(const struct lane *lane, uint64_t number)
{
	return atomic_load_explicit(&cell_of(lane, number)->done, memory_order_acquire) == number + 1;
}

/* The entry has ended, as its cell or its gate says. */
static bool lane_has_ended(const struct lane *lane, uint64_t number)
{
	const struct lane_slot *slot = &lane->slots[number % LANE_ENTRIES];
	const struct lane_gate *gate = &lane->memory->gates[number % LANE_ENTRIES];
	if (!slot->reports && !slot->timed &&
		atomic_load_explicit(&gate->done, memory_order_acquire) == lane_gate_value(number))
		return true;
	return lane_is_told(lane, number);
}

void lane_collect(struct kiln_client *client)
{
	struct lane *lane = client->lane;
	uint64_t number = lane->oldest;
	if (!lane->memory)
		return;
	while (number != lane->next && lane_has_ended(lane, number))
		finish_entry(client, number++);
	lane->oldest = number;
	/* Entries of one stream end in their order, but for refused ones: this stops at the first entry
	 * that has not ended.  Entries of other streams do not wait for it. */
	for (; lane->others_until > lane->oldest && number != lane->next; number++)
		if (lane->slots[number % LANE_ENTRIES].ticket != 0 && lane_has_ended(lane, number))
			finish_entry(client, number);
}

void lane_lost(struct kiln_client *client, int status, const char *why)
{
	struct lane *lane = client->lane;
	if (!lane->memory)
		return;
	for (uint64_t number = lane->oldest; number != lane->next; number++) {
		struct lane_slot *slot = &lane->slots[number % LANE_ENTRIES];
		struct ticket *ticket =
			slot->ticket != 0 ? ticket_find(&client->tickets, slot->ticket) : NULL;
		if (lane_has_ended(lane, number)) {
			finish_entry(client, number);
		} else if (ticket) {
			slot->ticket = 0;
			ticket_finish_part(&client->tickets, ticket, slot->part, status, why, 0);
		}
	}
	lane_close(lane);
}

void lane_forget(struct kiln_client *client, const struct ticket *ticket)
{
	struct lane *lane = client->lane;
	for (int i = 0; ticket->lane && i < ticket->parts; i++) {
		struct lane_slot *slot = &lane->slots[(ticket->first + (uint64_t)i) % LANE_ENTRIES];
		slot->ticket = slot->ticket == ticket->id ? 0 : slot->ticket;
	}
}

/* ---- Waiting ---- */

/* Entries to wait for: until each has ended, or until the device process has said so. */
struct awaited {
	uint64_t first, last;
	bool (*is)(const struct lane *lane, uint64_t number);
};

/* Passes over entries that are; true: all are. */
static bool all_are(const struct lane *lane, struct awaited *what)
{
	while (what->first <= what->last && what->is(lane, what->first))
		what->first++;
	return what->first > what->last;
}

/* Spins until all are, or for a while. */
static bool lane_wait_look(const struct lane *lane, struct awaited what)
{
	uint32_t spin_us = atomic_load_explicit(&lane->memory->header.spin_us, memory_order_relaxed);
	int64_t until = time_now_us() + (spin_us < LANE_SPIN_MOST_US ? spin_us : LANE_SPIN_MOST_US);
	do {
		for (int i = 0; i < 32; i++) {
			if (all_are(lane, &what))
				return true;
			lane_pause();
		}
	} while (!lane->alone && time_now_us() < until);
	return false;
}

/* Empties the pipe; what is left makes it readable again.  At its end the pipe would stay readable
 * for ever, so it is closed: a message tells what became of the lane. */
static void quiet(struct lane *lane)
{
	char bytes[64];
	if (lane->client_wake_fd >= 0 && read(lane->client_wake_fd, bytes, sizeof(bytes)) == 0) {
		if (lane_is_watched(lane))
			(void)epoll_ctl(lane->events_fd, EPOLL_CTL_DEL, lane->client_wake_fd, NULL);
		close(lane->client_wake_fd);
		lane->client_wake_fd = -1;
	}
}

void lane_watch(struct kiln_client *client)
{
	struct lane *lane = client->lane;
	if (lane->early_fd >= 0) {
		(void)epoll_ctl(lane->events_fd, EPOLL_CTL_DEL, lane->early_fd, NULL);
		close(lane->early_fd);
		lane->early_fd = -1;
	}
	if (!lane->memory || !lane_is_watched(lane))
		return;
	quiet(lane);
	atomic_store(&lane->memory->header.waiting, 1);
	atomic_thread_fence(memory_order_seq_cst);
	lane_collect(client);
}

/* Nobody is woken for entries that ended before: so that the client looks for them once, events_fd
 * is readable from the start. */
static bool watch_early(struct lane *lane)
{
	struct epoll_event event = {.events = EPOLLIN};
	if (!lane->memory || lane->oldest == lane->next)
		return true;
	lane->early_fd = eventfd(1, EFD_CLOEXEC);
	return lane->early_fd >= 0 &&
		   epoll_ctl(lane->events_fd, EPOLL_CTL_ADD, lane->early_fd, &event) == 0;
}

static bool watch_both(struct lane *lane, int sock)
{
	struct epoll_event event = {.events = EPOLLIN};
	lane->events_fd = epoll_create1(EPOLL_CLOEXEC);
	return lane->events_fd >= 0 && epoll_ctl(lane->events_fd, EPOLL_CTL_ADD, sock, &event) == 0 &&
		   (lane->client_wake_fd < 0 ||
			epoll_ctl(lane->events_fd, EPOLL_CTL_ADD, lane->client_wake_fd, &event) == 0) &&
		   watch_early(lane);
}

int lane_fd(struct lane *lane, int sock)
{
	if (!lane_is_watched(lane) && !watch_both(lane, sock)) {
		int why = errno;
		if (lane->early_fd >= 0)
			close(lane->early_fd);
		if (lane->events_fd >= 0)
			close(lane->events_fd);
		lane->events_fd = lane->early_fd = -1;
		return error_set(KILN_EIO, "no descriptor for event loops: %s", strerror(why));
	}
	if (lane->memory)
		atomic_store(&lane->memory->header.waiting, 1);
	return lane->events_fd;
}

int lane_events(struct lane *lane, int sock, bool writes)
{
	struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0)};
	if (!lane_is_watched(lane))
		return POLLIN | (writes ? POLLOUT : 0);
	if (writes != lane->writes && epoll_ctl(lane->events_fd, EPOLL_CTL_MOD, sock, &event) == 0)
		lane->writes = writes;
	return POLLIN;
}

/* Asks the device process to wake the client, looks once more, and sleeps. */
static int sleep_until(struct kiln_client *client, struct awaited what, int64_t deadline)
{
	struct lane *lane = client->lane;
	int status = KILN_OK;
	atomic_store(&lane->memory->header.waiting, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!all_are(lane, &what)) {
		struct pollfd watch[] = {{.fd = lane->client_wake_fd, .events = POLLIN},
								 {.fd = client->sock, .events = POLLIN}};
		int left = time_left(deadline);
		int n = poll(watch, 2, left);
		if (n > 0 && watch[0].revents != 0)
			quiet(lane);
		status = n == 0 && left == 0 ? KILN_ETIMEDOUT : link_drain(client);
	}
	if (lane->memory) {
		atomic_store(&lane->memory->header.waiting, lane_is_watched(lane));
		lane_collect(client);
	}
	return status;
}

int lane_wait(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline)
{
	struct lane *lane = client->lane;
	/* Other entries may have the cells of entries that were collected. */
	first = first > lane->oldest ? first : lane->oldest;
	const struct awaited what = {first, last, lane_has_ended};
	if (!lane_wait_look(lane, what))
		return sleep_until(client, what, deadline);
	for (uint64_t number = first; number <= last; number++)
		finish_entry(client, number);
	return KILN_OK;
}

int lane_wait_told(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline)
{
	const struct awaited what = {first, last, lane_is_told};
	return lane_wait_look(client->lane, what) ? KILN_OK : sleep_until(client, what, deadline);
}

static bool desk_has_answered(const struct lane *lane, uint64_t number)
{
	return atomic_load_explicit(&lane->memory->desk.answered, memory_order_acquire) == number;
}

int lane_wait_desk(struct kiln_client *client, int64_t deadline)
{
	struct lane *lane = client->lane;
	const struct awaited what = {lane->desk_asked, lane->desk_asked, desk_has_answered};
	int status = lane_wait_look(lane, what) ? KILN_OK : sleep_until(client, what, deadline);
	while (status == KILN_OK && lane->memory && !desk_has_answered(lane, lane->desk_asked))
		status = sleep_until(client, what, deadline);
	return status;
}

/* Waits until all entries below `until` have ended.  Otherwise a status with a message. */
static int wait_below(struct kiln_client *client, uint64_t until, int64_t deadline)
{
	struct lane *lane = client->lane;
	lane_collect(client);
	while (lane->memory && lane->oldest < until) {
		int status = lane_wait(client, lane->oldest, until - 1, deadline);
		if (status == KILN_ETIMEDOUT)
			return error_set(status, "the calls submitted before did not end before the deadline");
		if (status != KILN_OK)
			return link_dead(client);
		lane_collect(client);
	}
	return KILN_OK;
}

int lane_settle(struct kiln_client *client, uint64_t follows, bool all, int64_t deadline)
{
	struct lane *lane = client->lane;
	uint64_t until = all ? lane->others_until : follows;
	for (int i = 0; i < KILN_STREAMS; i++)
		until = lane->held_until[i] > until ? lane->held_until[i] : until;
	return lane->memory ? wait_below(client, until, deadline) : KILN_OK;
}

int lane_stop(struct kiln_client *client, int64_t deadline)
{
	client->lane->state = client->lane->memory ? LANE_DRAINING : LANE_OFF;
	return client->lane->memory ? wait_below(client, client->lane->next, deadline) : KILN_OK;
}
