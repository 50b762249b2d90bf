/*
 * remote_state.h: shared by the files of the second tier, which remote.h lists; no other file
 * includes it.
 */
#ifndef KILN_DAEMON_REMOTE_STATE_H
#define KILN_DAEMON_REMOTE_STATE_H

#include "remote.h"
#include "remote_link.h"
#include "daemon/cache/pack_winners.h"
#include "daemon/seal/seal.h"
#include "daemon/base/histogram.h"
#include "daemon/base/map.h"

#define REMOTE_NEVER UINT64_MAX
#define REMOTE_ENTRY_MOST ((size_t)8 << 20) /* bytes of an entry */
#define REMOTE_NAME_MAX (16 + KERNEL_KEY_HEX)
#define REMOTE_WINNER_MOST (PACK_WINNER_MOST + SEAL_BYTES)

/*
 *   HALF_OPEN --it answers in time--> CLOSED
 *   HALF_OPEN, CLOSED --remote_give_up()--> OPEN --the pause is over--> HALF_OPEN
 *
 * Asks are sent in CLOSED alone.  `asks` is NULL in OPEN.
 */
enum remote_breaker { REMOTE_CLOSED, REMOTE_OPEN, REMOTE_HALF_OPEN };

struct remote_claim;
struct remote_write;

struct remote {
	struct broker *broker;
	bool seals; /* it has a secret to seal with; else it writes no entries and makes no claims */
	struct seal_secret secret;
	int trusted;       /* keys, when they were last read */
	char claimant[96]; /* what other hosts read in our claims */

	enum remote_breaker breaker;
	int failures; /* asks in a row that were not answered in time */
	uint64_t backoff_ms, changed_us;
	char why[KERNEL_ERROR_MAX]; /* OPEN: the reason */
	bool met;                   /* it was CLOSED once */
	struct remote_link *asks, *writes;
	bool writes_ready;
	uv_timer_t timer; /* the next of all that is due */
	uv_timer_t probe; /* OPEN: the pause; HALF_OPEN: the deadline */

	struct remote_fetch *fetches;
	struct remote_claim *claims;
	struct map winners_seen; /* hash of a class to the time of its last look; see remote_winner.c */
	int winners_looking, looks_sent;   /* looks; of these, those without an answer */
	uint64_t look_due_us;              /* when one of these must have an answer */
	struct remote_write *first, *last; /* QUEUED entries, the first of them maybe SENT */
	uint64_t queued, queued_bytes;
	uint64_t write_due_us;
	int sealing;        /* entries that the store's thread seals */
	uint64_t finish_us; /* the deadline of remote_finished(); 0: the broker does not end */
	struct histogram ask_times, write_times, miss_times;
};

/* ---- breaker.c ---- */

/* Returns whether the breaker is CLOSED: asks may be sent. */
bool remote_usable(const struct remote *remote);
/* Note that an ask was answered, after so long; or that it was not. */
void remote_answer_came(struct remote *remote, uint64_t micros);
void remote_trouble(struct remote *remote, const char *why);
/* Opens the breaker: ends the connections and all asks; the next try comes after a pause. */
void remote_give_up(struct remote *remote, const char *why);
/* Tries a new connection: HALF_OPEN until it answers or its deadline passes. */
void remote_try_again(struct remote *remote);

/* ---- remote.c ---- */

/* Sets the timer anew, after a change of anything that is due. */
void remote_arm(struct remote *remote);
/* Write "kiln:1:entry:KEY", "kiln:1:claim:KEY" and "kiln:1:winner:HASH". */
void remote_entry_name(const char *key, char name[REMOTE_NAME_MAX]);
void remote_claim_name(const char *key, char name[REMOTE_NAME_MAX]);
void remote_winner_name(const struct cache_tuned *place, char name[REMOTE_NAME_MAX]);

/* ---- remote_fetch.c ---- */

/* Ends all asks, to be compiled here, but for those whose entry is here already. */
void remote_fetch_end_all(struct remote *remote);
/* A tick does all that is due by now; due returns when the next is, or REMOTE_NEVER. */
void remote_fetch_tick(struct remote *remote, uint64_t now);
uint64_t remote_fetch_due(const struct remote *remote);

/* ---- remote_claim.c ---- */

/* Returns how long a claim lasts that nobody renews. */
uint32_t remote_claim_ms(const struct remote *remote);
/* Notes that a claim is ours, and was so at that time. */
void remote_claim_hold(struct remote *remote, const char *key, uint64_t since_us);
/* Gives up the claim, if it is ours, so that another host may compile. */
void remote_claim_release(struct remote *remote, const char *key);
/* Forgets the claim: it is no longer ours to give up. */
void remote_claim_forget(struct remote *remote, const char *key);
void remote_claim_forget_all(struct remote *remote);
void remote_claim_tick(struct remote *remote, uint64_t now);
uint64_t remote_claim_due(const struct remote *remote);

/* ---- remote_winner.c ---- */

void remote_winner_tick(struct remote *remote, uint64_t now);
uint64_t remote_winner_tick_due(const struct remote *remote);

/* ---- remote_write.c ---- */

/* Writes a winner, or takes it away (row NULL), after what was to be written before. */
void remote_write_winner(struct remote *remote, const char name[REMOTE_NAME_MAX],
						 const struct cache_tuned *row);
/* Sends the first entry, or connects to send it. */
void remote_write_pump(struct remote *remote);
/* Closes the connection for entries. */
void remote_write_stop(struct remote *remote);
void remote_write_tick(struct remote *remote, uint64_t now);
uint64_t remote_write_due(const struct remote *remote);
void remote_write_free(struct remote *remote);
/* Returns when the first entry was sent; now, if none is. */
uint64_t remote_write_since(const struct remote *remote, uint64_t now);

/* ---- remote_entry.c: on the store's thread ---- */

/* Makes a row an entry, which the caller frees.  KILN_OK; KILN_ELIMIT: too large; KILN_ENOMEM. */
int remote_entry_make(const struct seal_secret *secret, const struct cache_row *row, int64_t now,
					  uint64_t seconds, void **entry, size_t *bytes);
/* Makes an entry a row.  KILN_OK: it is the row of this key, and a trusted key has sealed it;
 * KILN_EPERM, KILN_EPROTO: refused, with the reason; KILN_ENOMEM. */
int remote_entry_open(const struct seal_ring *trusted, const char *key, const char *target,
					  const void *entry, size_t bytes, int64_t now, struct cache_row *out,
					  char error[KERNEL_ERROR_MAX]);
/* The same of winners; `place` has the model, target and signature that the winner must have. */
int remote_winner_make(const struct seal_secret *secret, const struct cache_tuned *row, int64_t now,
					   void **entry, size_t *bytes);
int remote_winner_open(const struct seal_ring *trusted, const struct cache_tuned *place,
					   const void *entry, size_t bytes, int64_t now, struct cache_tuned *out,
					   char error[KERNEL_ERROR_MAX]);

#endif
