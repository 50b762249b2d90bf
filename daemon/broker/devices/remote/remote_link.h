/*
 * remote_link: one connection to the Redis, logged in.  Knows no entries and no claims.
 */
#ifndef KILN_DAEMON_REMOTE_LINK_H
#define KILN_DAEMON_REMOTE_LINK_H

#include <uv.h>

#include "daemon/options/remote_url.h"

struct remote_link;

/* ready comes at most once, lost at most once and last; neither from inside remote_link_open(). */
struct remote_link_events {
	/* The link is logged in; micros: the best of a few times that the Redis took to answer. */
	void (*ready)(void *owner, uint64_t micros);
	/* The connection ended, or none came about; the owner closes the link. */
	void (*lost)(void *owner, const char *why);
};

/* NULL without memory. */
struct remote_link *remote_link_open(uv_loop_t *loop, const struct remote_url *url,
									 const struct remote_link_events *events, void *owner);
/* Answers what has no answer with REMOTE_LOST; no events follow.  NULL is fine. */
void remote_link_close(struct remote_link *link);

enum remote_kind { REMOTE_LOST, REMOTE_NIL, REMOTE_BYTES, REMOTE_NUMBER, REMOTE_ERROR };
struct remote_reply {
	enum remote_kind kind;
	const char *bytes; /* BYTES; ERROR: its sentence, zero-terminated */
	size_t size;
	int64_t number;
};
#define REMOTE_REPLY_MOST ((size_t)9 << 20) /* bytes; a larger one ends the connection */
typedef void (*remote_answered)(void *arg, const struct remote_reply *reply);

#define REMOTE_WORDS 6
struct remote_command {
	int count;
	struct {
		const void *bytes;
		size_t size;
	} words[REMOTE_WORDS];
};
/* Both append a word, which must live until the command is sent. */
void remote_word(struct remote_command *command, const char *text);
void remote_word_bytes(struct remote_command *command, const void *bytes, size_t size);
/* Calls answered, which may be NULL, exactly once; answers come in the order of the commands.
 * False: the connection is gone, or memory lacks, and no call follows. */
bool remote_link_send(struct remote_link *link, const struct remote_command *command,
					  remote_answered answered, void *arg);
/* Returns the number of commands without an answer. */
int remote_link_pending(const struct remote_link *link);

#endif
