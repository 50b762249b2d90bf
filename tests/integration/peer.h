/*
 * peer: part of the harness: a client that speaks frames by itself, and so may ask for what no
 * library would.
 */
#ifndef KILN_TESTS_PEER_H
#define KILN_TESTS_PEER_H

#include "harness.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>

struct peer {
	int sock;
	uint64_t id;        /* of its last request */
	int texts;          /* a memfd with a source */
	char sentence[512]; /* of the last reply; "": it had none */
	uint64_t made;      /* "call" or "buf" of the last reply */
};

/* Connects to the daemon's cpu device, or fails the test. */
void peer_open(struct peer *peer, const struct kilnd *daemon, const char *source);
void peer_close(struct peer *peer);
void peer_begin(struct peer *peer, struct wire_out *out, const char *type);
/* Sends the message, with a descriptor (-1: none), and does not wait. */
void peer_send(struct peer *peer, struct wire_out *out, int fd);
/* Waits for the next reply: its status, and of which request it is. */
int peer_take(struct peer *peer, uint64_t *id);
/* Both: the status of the reply to this message. */
int peer_ask(struct peer *peer, struct wire_out *out, int fd);
/* The same, asserting the status, and that the sentence has the word. */
void peer_expect(struct peer *peer, struct wire_out *out, int fd, int status, const char *word);

#endif
