/*
 * request: a request whose answer comes later, and the replies to all of them.  Knows the wire and
 * the session's way to send; no socket, no command.
 *
 *     (zeroed) --request_open--> OPEN --request_close--> CLOSED
 *                                  |
 *                                  +--abandon (the session ends)--> freed by its command
 *
 * A command embeds a struct request as the first member of what it keeps until it answers; it owns
 * and frees that memory.  While a request is OPEN its session lives: a session that ends closes
 * each of its requests and calls abandon().  This stops all that would call back, and frees.  While
 * another thread holds the memory, abandon() leaves it, and the done callback frees it.
 */
#ifndef KILN_DAEMON_REQUEST_H
#define KILN_DAEMON_REQUEST_H

#include <client/wire/frame.h>
#include <client/wire/wire.h>

#include "daemon/broker/devices/store.h"
#include "session.h"

#define REPLY_TEXT_MAX 1024 /* bytes of the sentence of an error */

enum request_state { REQUEST_NEW, REQUEST_OPEN, REQUEST_CLOSED };

struct request {
	enum request_state state;
	struct session *session; /* NULL unless it is OPEN */
	uint64_t id;             /* as the client numbered it */
	void (*abandon)(struct request *request);
	struct request *previous, *next;
	const char *name; /* "prepare" */
	uint64_t since_us;
	const void *doing; /* the argument of what calls back, where that is not the request itself */
};

/* Opens a request; false when the session has too many, which is answered. */
bool request_open(struct session *session, uint64_t id, struct request *request,
				  void (*abandon)(struct request *request));
/* Unlinks an open request, any other is left alone; does not free. */
void request_close(struct request *request);
/* Closes and abandons all requests of a session. */
void requests_abandon(struct session *session);

/*
 * Runs work on the store's thread when the session has its turn, then done on the loop.  Until done
 * begins, work may use the command's own members; it does not touch the request.  When the disk
 * takes too long the request is answered with KILN_ETIMEDOUT, closed and abandoned.
 */
int request_store(struct request *request, store_work work, store_done done);

/* ---- Replies ---- */

/* Strings of replies and events are shown to people: plain.h's rule is applied to each. */
void reply_begin(struct wire_out *out, uint64_t id);
void reply_begin_with(struct wire_out *out, uint64_t id, int status);
void reply_send(struct session *session, struct wire_out *out, const int *fds, int fd_count);
void reply_ok(struct session *session, uint64_t id);
void reply_error(struct session *session, uint64_t id, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
