/*
 * session_life: how a session begins and ends: ties a peer to its session, and gives back all that
 * it owns.
 */
#ifndef KILN_DAEMON_SESSION_LIFE_H
#define KILN_DAEMON_SESSION_LIFE_H

#include "daemon/broker/requests/session.h"

/* Takes over a connected socket; a peer that may not connect is told so, and closed. */
void session_open(struct broker *broker, int sock);
/* Ends it soon: what is queued for the client is still tried.  Safe from anywhere. */
void session_end(struct session *session);
/* Ends it now: from the loop only. */
void session_close(struct session *session);

#endif
