/*
 * link.h: the traffic of one connection.
 */
#ifndef KILN_CLIENT_LINK_H
#define KILN_CLIENT_LINK_H

#include "client.h"
#include "client/wire/wire.h"

#define LINK_REPLY_MAX ((size_t)256 << 20) /* bytes of one message from the daemon */
#define LINK_QUEUE_MAX ((size_t)8 << 20) /* bytes of submitted calls that the socket did not take */

/* What a reply that came after its deadline obliges us to give back. */
enum undo { UNDO_NOTHING, UNDO_BUFFER, UNDO_CALL };

struct late {
	uint64_t id;
	enum undo undo;
};

struct request {
	struct wire_out out;
	const char *name;
	uint64_t id;
	int fd; /* to send along, or -1 */
	enum undo undo;
};

struct answer {
	struct frame frame;
	struct wire_in in;
};

static inline void answer_free(struct answer *answer)
{
	wire_in_free(&answer->in);
	frame_free(&answer->frame);
}

/* Starts a request; the caller adds its members to request->out. */
void link_begin(struct kiln_client *client, struct request *request, const char *name);
/*
 * Sends the request and waits for its reply.  A reply with a negative "st" becomes that status and
 * this thread's message.  On success *answer is the caller's to free (NULL: not wanted).  Frees the
 * request in any case.
 */
int link_ask(struct kiln_client *client, struct request *request, int64_t deadline,
			 struct answer *answer);
/* Sends or queues the request and does not wait.  Frees it in any case. */
int link_post(struct kiln_client *client, struct request *request, size_t queue_limit);
/* Handles what has arrived, without waiting.  KILN_OK, or KILN_ECONN once the client is dead. */
int link_drain(struct kiln_client *client);
/* Waits until something can be handled, and handles it.  KILN_OK, KILN_ETIMEDOUT (no message is
 * set), KILN_ECONN. */
int link_wait(struct kiln_client *client, int64_t deadline);
/* The message and status of a client whose daemon is gone. */
int link_dead(const struct kiln_client *client);

#endif
