/*
 * link.h: the traffic of one connection: requests, and their replies.
 */
#ifndef KILN_CLIENT_LINK_H
#define KILN_CLIENT_LINK_H

#include "client.h"
#include "client/wire/wire.h"

#define LINK_REPLY_MAX ((size_t)256 << 20) /* bytes of one message from the daemon */
#define LINK_QUEUE_MAX ((size_t)8 << 20) /* bytes of submitted calls that the socket did not take */

/* The object of the daemon that a reply brings, and that is given back if the reply comes late. */
enum undo { UNDO_NOTHING, UNDO_BUFFER, UNDO_CALL };

/* A request that timed out. */
struct late {
	uint64_t id;
	enum undo undo;
};

struct request {
	struct wire_out out;
	const char *name;
	uint64_t id;
	int fd; /* a descriptor to send along, which stays the caller's; or -1 */
	enum undo undo;
};

struct answer {
	struct frame frame;
	struct wire_in in;
};

/* A posted request whose reply somebody takes, whenever it comes.  The asker owns the struct. */
struct question {
	struct question *next; /* in client->questions */
	uint64_t id;           /* of the request */
	void *asker;
	/* Takes the reply, which stays the link's, once; answer is NULL where the link is dead.  Must
	 * not use the link. */
	void (*take)(struct question *question, int64_t status, struct answer *answer);
};

static inline void answer_free(struct answer *answer)
{
	wire_in_free(&answer->in);
	frame_free(&answer->frame);
}

/* Begins a request; the caller adds its members to request->out. */
void link_begin(struct kiln_client *client, struct request *request, const char *name);
/*
 * Sends the request and waits for its reply.  A reply with a negative "st" becomes that status and
 * this thread's message.  On success *answer is the caller's to free (answer NULL: not wanted).
 * Frees request->out in any case; the struct is the caller's.
 */
int link_ask(struct kiln_client *client, struct request *request, int64_t deadline,
			 struct answer *answer);
/* Sends or queues the request and does not wait.  Frees request->out in any case. */
int link_post(struct kiln_client *client, struct request *request, size_t queue_limit);
/* Adds a question that was posted to those that wait; link_withdraw() ends that before the reply
 * has come. */
void link_expect(struct kiln_client *client, struct question *question);
void link_withdraw(struct kiln_client *client, const struct question *question);
/* Handles what has arrived, without waiting.  KILN_OK, or KILN_ECONN once the link is dead. */
int link_drain(struct kiln_client *client);
/* Waits until something arrives, and handles it.  KILN_OK, KILN_ETIMEDOUT (sets no message),
 * KILN_ECONN. */
int link_wait(struct kiln_client *client, int64_t deadline);
/* Sets the message of a dead link, and returns its status. */
int link_dead(const struct kiln_client *client);

#endif
