/*
 * lane_state.h: what lane.c (opening, submitting) and lane_wait.c (ends, waiting) share.
 *
 *      lane_answer() brings the memory            lane_stop()
 *   UNOPENED ------------------------> OPEN -----------------------> DRAINING
 *      |  ^                             |                               |
 *      |  +---- lane_lost() ------------+         lane_lost()           |
 *      |                                                                v
 *      +---- KILN_LANE=off, lane_stop(), the memory is not usable ---> OFF
 *
 * A kiln_client owns its lane from lane_new() until it is closed.  The thread inside the client
 * alone touches the lane.  The memory is mapped while the lane is OPEN or DRAINING; events_fd stays
 * open until lane_free().  Entries are numbered from 0; those of [oldest, next) may be under way,
 * and entry n stands at place n % LANE_ENTRIES.
 */
#ifndef KILN_CLIENT_LANE_STATE_H
#define KILN_CLIENT_LANE_STATE_H

#include "lane.h"
#include "client/wire/lane_memory.h"

/* The entry that was written last at a place. */
struct lane_slot {
	uint64_t ticket; /* 0: nobody waits for it */
	int part;        /* which call of the ticket */
	uint32_t stream;
	bool reports; /* only the device process knows whether it succeeds */
	bool timed;   /* only the device process knows how long it took */
};

/* A launch by message whose answer will say how the call is bound. */
struct lane_question {
	uint64_t id; /* of the launch; its place is free again when this ticket is gone; 0: free */
	struct kiln_call *call;
	struct kiln_buffer *buffers[KILN_MAX_OPERANDS];
	int buffer_count;
};
#define LANE_QUESTIONS 8

enum lane_state { LANE_UNOPENED, LANE_OPEN, LANE_DRAINING, LANE_OFF };

struct lane {
	enum lane_state state;
	struct lane_memory *memory;
	struct order *order; /* its gates, once a CUDA stream has used them */
	bool unwatched;      /* its gates cannot be used */
	int device_wake_fd;  /* wakes the device process; -1: the lane is not open */
	int client_wake_fd; /* readable when the device process wakes this client; ends with the lane */
	int events_fd;      /* epoll of the socket and client_wake_fd, for event loops; -1: none */
	int early_fd;       /* in events_fd and readable, for ends from before it; -1: none */
	bool writes;        /* events_fd watches the socket for room, too */
	uint64_t generation;   /* of the device process, as buffers and calls know it */
	uint64_t oldest, next; /* the first entry not seen to end, and the next one to be written */
	struct lane_slot slots[LANE_ENTRIES];
	/* By stream, number + 1 of the last entry that the device process may take without launching
	 * it; and number + 1 of the last entry on a stream but 0. */
	uint64_t held_until[KILN_STREAMS], others_until;
	uint32_t desk_asked; /* problems that were laid on the desk */
	bool desk_shut;      /* the daemon has refused a call that was planned there */
	bool desk_late;      /* the last problem was given up before the answer came */
	bool alone; /* there is one CPU, so a spinning client would keep it from the device process */
	struct lane_question questions[LANE_QUESTIONS];
};

/* The program polls for ends: the device process wakes the client at every one. */
static inline bool lane_is_watched(const struct lane *lane)
{
	return lane->events_fd >= 0;
}

/* The device process itself has said so, and takes the next entry at that place.  Its GPU may have
 * opened the gate before. */
bool lane_is_told(const struct lane *lane, uint64_t number);
/* Like lane_wait(), but until lane_is_told() holds for all of them. */
int lane_wait_told(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline);
/* Waits until the device process has answered at the desk, or the lane is closed. */
int lane_wait_desk(struct kiln_client *client, int64_t deadline);
/* Whether `count` places are free.  The device process may hear of an end later than the client;
 * until then it takes nothing from that place, and a message would overtake the entry. */
bool lane_has_room(const struct lane *lane, int count);
/* Wakes the device process.  It sleeps only after it has said so and looked once more. */
void lane_wake_device(struct lane *lane);
/* Unmaps the memory and forgets all entries. */
void lane_close(struct lane *lane);

#endif
