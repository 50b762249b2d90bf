/*
 * waits: who waits now, for what, and of whom.  Each module that keeps somebody waiting tells of
 * those that it keeps; what the broker knows is enough, and nobody is asked.
 */
#ifndef KILN_DAEMON_WAITS_H
#define KILN_DAEMON_WAITS_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"

/* One who waits, and what for.  session 0: the daemon itself. */
struct wait_row {
	uint64_t session;
	uint32_t uid;
	int pid;
	const char *asked; /* its request: "prepare"; "": none */
	uint64_t request;  /* and its number, which is the ticket of a call; 0: none */
	struct wait_note note;
};

/* Those who have waited longest, these first; returns how many, and *all how many there are. */
int waits_collect(struct broker *broker, struct wait_row *rows, int most, uint64_t *all);

#endif
