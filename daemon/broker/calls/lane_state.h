/*
 * lane_state.h: what a session's lane is, for the files of this room.
 *
 *   OPEN --the device process refuses it, or a call--> REFUSED
 *   OPEN, REFUSED --lane_end--> ENDING --all that was taken has ended--> freed
 *   (any) --the session or the device process ends--> freed
 *
 * Only an OPEN lane binds further calls and is given to the client; what a REFUSED one has bound
 * goes on.  The lane owns its mappings and descriptors.  `given` says whether the client must be
 * told of its end.
 */
#ifndef KILN_DAEMON_LANE_STATE_H
#define KILN_DAEMON_LANE_STATE_H

#include <client/wire/lane_memory.h>

#include "daemon/broker/requests/session.h"
#include "lane.h"

enum lane_state { LANE_OPEN, LANE_REFUSED, LANE_ENDING };

struct lane {
	enum lane_state state;
	bool given; /* the client has its descriptors */
	int memory_fd;
	int doorbell_fd;    /* an eventfd: wakes the device process */
	int client_wake_fd; /* the client's end of a pipe: the device process wakes the client */
	struct lane_memory *map;
	struct lane_counts *counts;
	uint64_t generation;              /* of the device process that has it */
	uint64_t desk;                    /* number of the first call that is bound at its desk; or 0 */
	uint64_t desk_next;               /* of these, from 0, the first that may be told of yet */
	uint64_t desk_told;               /* how many were told of, or given up */
	uint64_t taken, launched, failed; /* counted so far */
	int calls;                        /* that are bound to it */
};

/* Sees that the session has a lane; false: it can have none now.  The device process may refuse
 * it later. */
bool lane_open(struct session *session);
/* The lane binds no further call: these go by message. */
void lane_refuse(struct session *session, const char *why);
/* A handle_done of messages about the lane: a failure refuses it.  arg is the session. */
void lane_answered(void *arg, int status, const char *error, struct wire_in *reply);

#endif
