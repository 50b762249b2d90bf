/*
 * admit: who may connect, and who has a place.  A connection is silent until its hello comes; with
 * hello it takes one of the places that --max-sessions counts.  Knows nothing of what a session
 * asks for after that.
 */
#ifndef KILN_DAEMON_ADMIT_H
#define KILN_DAEMON_ADMIT_H

#include "daemon/broker/broker.h"

/* The kernel keeps this of a peer from the moment when it connected. */
struct admit_peer {
	uint32_t uid, gid;
	int32_t pid;
};

/* Says whether the options let the peer of this socket in: KILN_OK, or KILN_EPERM with a sentence.
 * Reads nothing that the peer sent. */
int admit_peer(const struct options *options, int sock, struct admit_peer *peer,
			   char error[KERNEL_ERROR_MAX]);
/* Says so to a peer that may not connect, and closes the socket. */
void admit_turn_away(struct broker *broker, int sock, int status, const char *error);
/* Makes room for one more silent connection. */
void admit_silent(struct broker *broker);
/* Gives a place to a session that says hello: KILN_OK, or a status with a sentence. */
int admit_seat(struct session *session, bool wants_device, char error[KERNEL_ERROR_MAX]);
/* The numbers of descriptors that a user may have in the daemon are below this; 0: any may be.  The
 * system gives the lowest that is free: the last quarter is used when all others are, and is the
 * operator's. */
int admit_descriptors(uint32_t uid);
bool admit_descriptor(uint32_t uid, int fd);
/* "kilnd has as many files open as ...", for the sentence of a refusal. */
const char *admit_files_text(uint32_t uid);
/* Takes the place back from a session that goes. */
void admit_leave(struct session *session);

#endif
