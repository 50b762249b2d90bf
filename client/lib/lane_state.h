/*
 * lane_state.h: what lane.c (opening, submitting) and lane_wait.c (ends, waiting) share.
 */
#ifndef KILN_CLIENT_LANE_STATE_H
#define KILN_CLIENT_LANE_STATE_H

#include "lane.h"
#include "client/wire/lane_memory.h"

/* What became of the entry that was last written at a place. */
struct lane_slot {
	uint64_t ticket; /* 0: nobody waits any more */
	int part;        /* of the ticket */
	uint32_t stream;
	bool reports;
	bool timed;
};

/* A launch by message whose answer will say how the call is bound. */
struct lane_question {
	uint64_t id; /* the place is free once this ticket is no more; 0: it never was taken */
	struct kiln_call *call;
	struct kiln_buffer *buffers[KILN_MAX_OPERANDS];
	int buffer_count;
};
#define LANE_QUESTIONS 8

struct lane {
	struct lane_memory *memory; /* NULL: not open */
	struct order *order;        /* its gates, once a CUDA stream has used them */
	bool unwatched;             /* they cannot be used */
	int wake;
	int told;              /* readable when this client was woken; ends with the lane */
	int events;            /* epoll: the socket and told, for event loops; -1: there is none */
	bool writes;           /* there the socket is watched for room, too */
	uint64_t generation;   /* of the device process, as buffers and calls know it */
	uint64_t oldest, next; /* entries that have not been seen to end, and the next one */
	struct lane_slot slots[LANE_ENTRIES];
	/* By stream, number + 1 of the last entry that may not be launched when it is taken; and of the
	 * last on a stream but 0. */
	uint64_t held_until[KILN_STREAMS], others_until;
	bool off;   /* calls go by message for good */
	bool alone; /* one CPU is all there is */
	struct lane_question questions[LANE_QUESTIONS];
};

/* Somebody polls for the ends: they are to be woken for every one. */
static inline bool lane_is_watched(const struct lane *lane)
{
	return lane->events >= 0;
}

/* The entry has ended; only its cell knows. */
bool lane_has_ended(const struct lane *lane, uint64_t number);
/* The device process has said so itself, and takes the next entry at that place: its GPU may have
 * said it before. */
bool lane_is_told(const struct lane *lane, uint64_t number);
/* Waits until it has said so of these, otherwise as lane_wait(). */
int lane_wait_told(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline);
/* Forgets its memory and all entries. */
void lane_close(struct lane *lane);

#endif
