/*
 * waits: the rows of `kiln waits`: each client that waits now, and what for.  Every room names the
 * clients that it keeps waiting.  The broker knows them all, and asks no other process.
 */
#ifndef KILN_DAEMON_WAITS_H
#define KILN_DAEMON_WAITS_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"

/* A session that waits, and what for; session 0: the daemon itself waits. */
struct wait_row {
	uint64_t session;
	uint32_t uid;
	int pid;
	const char *asked; /* its request: "prepare"; "": none */
	uint64_t request;  /* and its number, which is the ticket of a call; 0: none */
	struct wait_note note;
};

/* Fills in the rows that have waited longest, these first; returns how many, and in *all how many
 * there are. */
int waits_collect(struct broker *broker, struct wait_row *rows, int most, uint64_t *all);

#endif
