/*
 * peer: the socket of one client: frames in, replies out, and the deadlines of one that is silent
 * or sends too much.  Calls its owner back for each message; knows no session and no command.
 *
 *                 +--hold--+
 *                 v        |
 *     open ---> OPEN --> HELD --+
 *                 |             |
 *                 +----> ENDING-+--> CLOSED --> freed
 *
 *   OPEN    it is read
 *   HELD    it is not read until descriptors that its uid has sent are closed
 *   ENDING  its socket is shut down: nothing is read or written any more, and the loop closes it
 *   CLOSED  its handles are being closed
 *
 * The peer owns its socket and itself: its owner holds it from peer_open() until on_freed().
 */
#ifndef KILN_DAEMON_PEER_H
#define KILN_DAEMON_PEER_H

#include <client/wire/frame.h>
#include <client/wire/wire.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"

struct peer;

/* The kernel keeps this of a client from the moment when it connected. */
struct peer_identity {
	uint32_t uid, gid;
	int32_t pid;
};

struct peer_owner {
	void (*on_message)(void *arg, struct wire_in *message, struct frame *frame);
	/* The connection is at its end, or took too long: the owner calls peer_close(). */
	void (*on_end)(void *arg);
	/* After peer_close(), from the loop: the peer is freed when this returns. */
	void (*on_freed)(void *arg);
};

/* Takes the socket over; NULL without memory, and then it is not. */
struct peer *peer_open(struct broker *broker, int sock, uint64_t number,
					   const struct peer_identity *who, const struct peer_owner *owner, void *arg);
/* Ends it soon: what is queued for the client is still tried.  Safe from anywhere. */
void peer_end(struct peer *peer);
/* Ends it now; from the loop only.  Nothing that is sent from here on leaves. */
void peer_close(struct peer *peer);
/* Says whether it is ending, or closed. */
bool peer_is_ending(const struct peer *peer);

/* Ends the message and sends it, or drops it where the peer is ending. */
void peer_send(struct peer *peer, struct wire_out *out, const int *fds, int fd_count);

/* Returns the bytes that wait for the client to read. */
size_t peer_queued(const struct peer *peer);

/* hello has come: silence has no deadline any more. */
void peer_stop_clock(struct peer *peer);
/* hello is answered: from now on it may send descriptors. */
void peer_take_descriptors(struct peer *peer);
/* Descriptors were closed: a peer that is held looks whether it may go on. */
void peer_release(struct peer *peer);

/* Notes what keeps it waiting: its hello, and a client that takes no replies.  Returns how many
 * notes there are. */
#define PEER_NOTES 2
int peer_waits(const struct peer *peer, struct wait_note notes[PEER_NOTES]);

#endif
