/*
 * accept: takes clients in at the listening socket, as many at a time as the daemon can serve.
 *
 *     CLOSED --start--> LISTENING <--> RESTING
 *                           |             |
 *                           +----stop-----+--> CLOSED
 *
 *   LISTENING  the loop watches the socket
 *   RESTING    no client can be taken in for a moment (no descriptors, strangers' descriptors that
 *              cannot be closed); the socket is not watched, for it stays readable
 */
#ifndef KILN_DAEMON_ACCEPT_H
#define KILN_DAEMON_ACCEPT_H

#include "daemon/broker/broker.h"

void accept_open(struct broker *broker);
/* Binds the socket; nobody is taken in yet. */
int accept_bind(struct broker *broker, char error[KERNEL_ERROR_MAX]);
void accept_start(struct broker *broker);
/* Takes nobody in any more, and removes the socket. */
void accept_stop(struct broker *broker);
/* Closes the handles of the loop, which runs until that is done. */
void accept_close(struct broker *broker);
void accept_free(struct broker *broker);

/* Makes the socket anew where it was removed. */
void accept_look(struct broker *broker);
/* The listening socket's path. */
const char *accept_path(const struct broker *broker);
#ifdef KILN_TEST_HOOKS
/* From now on descriptors may come with a connection, as before Linux 6.16. */
void accept_admit_rights(struct broker *broker);
#endif

#endif
