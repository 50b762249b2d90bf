/*
 * remote.h: the second tier of the cache, for many hosts: a Redis.  Asked for a kernel that is not
 * in the cache here, before it is compiled; told of one that was.  Never needed: whatever is wrong
 * with it, the kernel is compiled here, after the deadline of an ask at the latest; a circuit
 * breaker sees to it that few pay even that.
 *
 *   kiln:1:entry:KEY   a row of the cache with a seal (seal/seal.h), for --remote-ttl
 *   kiln:1:claim:KEY   who compiles it now; gone soon after whoever it was
 *
 *   remote.c     the breaker: whether to ask at all; figures
 *   fetch.c      an ask: entry, else claim, else wait for who has the claim
 *   claim.c      claims of ours
 *   write.c      entries on their way there
 *   entry.c      what an entry is
 *   link.c       a connection, by hiredis
 *   name.c       its host's address
 *   guard.c      what hiredis may make of a Redis' words; no other file knows hiredis
 *   none.c       all of this, in a kilnd that was built without
 *
 * The Redis is trusted with nothing: a kernel from it runs only if a key that is trusted here has
 * sealed it, for this key.
 */
#ifndef KILN_DAEMON_REMOTE_H
#define KILN_DAEMON_REMOTE_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct remote_fetch;

/* Begins to connect, if --remote says so.  KILN_OK also where nobody answers; else a sentence of
 * what is wrong with the keys. */
int remote_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes the connections; the loop must still run.  Nothing that was asked is answered. */
void remote_close(struct broker *broker);
/* After the loop. */
void remote_free(struct broker *broker);
/* While the broker ends: true once everything is written, or has had its time. */
bool remote_finished(struct broker *broker);

/* row: what was found, whose members may be taken by zeroing them; NULL: it is to be compiled. */
typedef void (*remote_done)(void *arg, struct cache_row *row);
struct remote_want {
	const char *key, *op, *target;
	struct turn_owner owner; /* whose turn it is when the entry is looked over */
	/* Whoever asks may have it compiled here, and so claims it, or waits for a host that does; else
	 * the entry is there, or it is not. */
	bool compiles;
};
/*
 * Asks for a key.  done is called exactly once, never
 * from inside, unless remote_leave came first.  NULL, and nothing follows: compile it at once
 * (there is no second tier, it is away, no memory).
 */
struct remote_fetch *remote_fetch(struct broker *broker, const struct remote_want *want,
								  remote_done done, void *arg);
void remote_leave(struct broker *broker, struct remote_fetch *fetch);
/* Another host compiles it. */
bool remote_is_waiting(const struct remote_fetch *fetch);

/* What came of a compile: its row, whose members are taken, goes to the others in the background;
 * or there is none, and another host may try. */
void remote_compiled(struct broker *broker, struct cache_row *row);
void remote_not_compiled(struct broker *broker, const char *key);

/* Gauges. */
uint64_t remote_asking(const struct broker *broker); /* keys asked for, not answered */
uint64_t remote_queued(const struct broker *broker); /* entries to be written */
struct remote_stats {
	const char *state, *url, *breaker; /* "connected", without login, "closed" */
	const char *reason;                /* why it is away; "" */
	const char *seals;                 /* name of the key that entries are sealed with; "" */
	int trusted;                       /* keys */
	uint64_t state_ms;                 /* it is in this state */
	uint64_t queued, queued_bytes;     /* to be written */
	/* Microseconds: an answer took, an entry took to be written, a compile had to wait for either
	 * (other hosts' compiles not counted). */
	const struct histogram *ask, *write, *miss;
};
void remote_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Fills in what is known of this one. */
void remote_note(const struct remote_fetch *fetch, struct wait_note *note);
/* False: there is none. */
bool remote_stats(const struct broker *broker, struct remote_stats *out);

#endif
