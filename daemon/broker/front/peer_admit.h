/*
 * peer_admit: which clients may connect, and which have a place.  A connection is silent until its
 * hello comes; with hello it takes one of the places that --max-sessions counts.  Knows nothing of
 * what a session asks for after that.
 */
#ifndef KILN_DAEMON_PEER_ADMIT_H
#define KILN_DAEMON_PEER_ADMIT_H

#include "daemon/broker/requests/session.h"
#include "peer.h"

/* Says whether the options let the peer of this socket in: KILN_OK, or KILN_EPERM with a sentence.
 * Reads nothing that the peer sent. */
int admit_peer(const struct options *options, int sock, struct peer_identity *peer,
			   char error[KERNEL_ERROR_MAX]);
/* Tells a peer that it may not connect, and closes the socket. */
void admit_turn_away(struct broker *broker, int sock, int status, const char *error);
/* Tells the silent session that has to go before one more may connect, and returns it; NULL:
 * there is room. */
struct session *admit_crowded_out(struct broker *broker);
/* Gives a place to a session that says hello: KILN_OK, or a status with a sentence. */
int admit_seat(struct session *session, bool wants_device, char error[KERNEL_ERROR_MAX]);
/* Takes the place back from a session that goes. */
void admit_leave(struct session *session);

#endif
