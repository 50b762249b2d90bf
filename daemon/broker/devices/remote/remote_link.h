/*
 * remote_link.h: one connection to the Redis, logged in.  Knows nothing of what it is asked.
 */
#ifndef KILN_DAEMON_REMOTE_LINK_H
#define KILN_DAEMON_REMOTE_LINK_H

#include <uv.h>

#include "daemon/options/remote_url.h"

struct remote_link;

/* Either, but not both and lost at most once, is never called from inside remote_link_open. */
struct remote_link_events {
	/* It may be used; micros: what the Redis took to answer, the best of a few times. */
	void (*ready)(void *owner, uint64_t micros);
	/* It ended, or there was none, and who holds it closes it. */
	void (*lost)(void *owner, const char *why);
};

/* NULL without memory. */
struct remote_link *remote_link_open(uv_loop_t *loop, const struct remote_url *url,
									 const struct remote_link_events *events, void *owner);
/* Answers what was not, with REMOTE_LOST; no events follow.  NULL is fine. */
void remote_link_close(struct remote_link *link);

enum remote_kind { REMOTE_LOST, REMOTE_NIL, REMOTE_BYTES, REMOTE_NUMBER, REMOTE_ERROR };
struct remote_reply {
	enum remote_kind kind;
	const char *bytes; /* BYTES; ERROR: its sentence, zero-terminated */
	size_t size;
	int64_t number;
};
#define REMOTE_REPLY_MOST ((size_t)9 << 20) /* bytes; one of more ends the connection */
typedef void (*remote_answered)(void *arg, const struct remote_reply *reply);

#define REMOTE_WORDS 6
struct remote_command {
	int count;
	struct {
		const void *bytes;
		size_t size;
	} words[REMOTE_WORDS];
};
/* A word of a command. */
void remote_word(struct remote_command *command, const char *text);
void remote_word_bytes(struct remote_command *command, const void *bytes, size_t size);
/* answered is called exactly once; may be NULL for who does not care.  Commands are answered in
 * their order.  False: there is no connection any more, or no memory, and nothing follows. */
bool remote_link_send(struct remote_link *link, const struct remote_command *command,
					  remote_answered answered, void *arg);
/* Commands that were not answered yet. */
int remote_link_pending(const struct remote_link *link);

#endif
