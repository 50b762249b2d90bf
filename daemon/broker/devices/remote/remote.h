/*
 * remote: the second tier of the cache, a Redis that many hosts share.  The broker asks it for a
 * kernel that the cache here lacks, before it compiles, and gives it the kernels that it compiled.
 * A Redis that is away or slow costs the deadline of an ask at most, and a circuit breaker makes
 * such asks few; then the kernel is compiled here.
 *
 *   kiln:1:entry:KEY   a row of the cache with a seal (seal/seal.h), for --remote-ttl
 *   kiln:1:claim:KEY   the host that compiles the key now; expires soon unless that host renews it
 *   kiln:1:winner:HASH a winner of tuning with a seal, by the hash of model, target and signature
 *
 *   remote.c        opening, closing, the timer, figures
 *   breaker.c       the circuit breaker, which decides whether to ask
 *   remote_fetch.c  an ask: entry, else claim, else wait for the host that has the claim
 *   remote_claim.c  our own claims
 *   remote_winner.c a look for a winner of tuning
 *   remote_write.c  entries and winners on their way to the Redis
 *   remote_entry.c  their form
 *   remote_link.c   a connection, by hiredis
 *   remote_poll.c   its socket on the loop
 *   remote_name.c   the address of its host
 *   reply_guard.c   a filter of hiredis's answers; these three alone know hiredis
 *   remote_waits.c  notes of those who wait
 *   remote_none.c   stands for all of these in a kilnd that is built without hiredis
 *
 * The broker trusts the Redis with nothing: a kernel of it runs only if a trusted key has sealed
 * it, for this key; and so with winners.
 */
#ifndef KILN_DAEMON_REMOTE_H
#define KILN_DAEMON_REMOTE_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct remote_fetch;

/* Begins to connect, if --remote names a Redis.  KILN_OK also when none answers; a failure, with a
 * sentence, is one of the keys that seal. */
int remote_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes the connections while the loop still runs; no callback follows. */
void remote_close(struct broker *broker);
/* Frees the rest after the loop. */
void remote_free(struct broker *broker);
/* While the broker ends: returns whether everything is written, or has had its time. */
bool remote_finished(struct broker *broker);

/* row: the kernel, whose members the callback may take by zeroing them; NULL: compile it. */
typedef void (*remote_done)(void *arg, struct cache_row *row);
struct remote_want {
	const char *key, *op, *target;
	struct turn_owner owner; /* whose turn the check of the entry takes */
	bool compiles; /* without an entry, claims the key or waits for the host that has the claim */
};
/*
 * Asks for a key.  Calls done exactly once, never from inside, unless remote_leave() comes first.
 * NULL, and no callback: compile at once, for there is no second tier, it is away, or memory lacks.
 */
struct remote_fetch *remote_fetch(struct broker *broker, const struct remote_want *want,
								  remote_done done, void *arg);
void remote_leave(struct broker *broker, struct remote_fetch *fetch);
/* Returns whether another host compiles the key. */
bool remote_is_waiting(const struct remote_fetch *fetch);

/* Each compile ends in one of these.  The first takes the row's members, and writes an entry in the
 * background; the second lets another host try. */
void remote_compiled(struct broker *broker, struct cache_row *row);
void remote_not_compiled(struct broker *broker, const char *key);

/* ---- Winners of tuning ---- */

/* Returns whether to look now for the winner of the class that model, target and signature of
 * `place` name: nobody looked lately, and few looks are under way. */
bool remote_winner_due(const struct broker *broker, const struct cache_tuned *place);
/* row: the winner, which a trusted key has sealed; NULL: none is to be had, which is counted.  The
 * callback counts what becomes of a row. */
typedef void (*remote_winner_done)(struct broker *broker, void *arg, const struct cache_tuned *row);
/* Looks for it; nobody waits for a look.  Calls done exactly once, never from inside; false: never,
 * since memory lacks. */
bool remote_winner_look(struct broker *broker, const struct cache_tuned *place,
						remote_winner_done done, void *arg);
/* Write a winner in the background, and take one away. */
void remote_winner_put(struct broker *broker, const struct cache_tuned *row);
void remote_winner_remove(struct broker *broker, const struct cache_tuned *place);
uint64_t remote_winner_looking(const struct broker *broker); /* gauge: looks that have not ended */

uint64_t remote_asking(const struct broker *broker); /* gauge: asks without an answer */
uint64_t remote_queued(const struct broker *broker); /* gauge: entries not written yet */
struct remote_stats {
	const char *state, *url, *breaker; /* "connected", without login, "closed" */
	const char *reason;                /* why it is away; "" */
	const char *seals;                 /* name of the key that seals entries; "": none */
	int trusted;                       /* keys */
	uint64_t state_ms;                 /* since it came to this state */
	uint64_t queued, queued_bytes;     /* entries not written yet */
	/* Microseconds of an answer, of the write of an entry, and of an ask before a compile, unless
	 * it waited for another host. */
	const struct histogram *ask, *write, *miss;
};
void remote_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Fills in what an ask waits for. */
void remote_note(const struct remote_fetch *fetch, struct wait_note *note);
/* False: there is no second tier. */
bool remote_stats(const struct broker *broker, struct remote_stats *out);

#endif
