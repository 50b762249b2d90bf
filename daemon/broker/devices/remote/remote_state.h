/*
 * remote_state.h: what the files of the second tier share; remote.h says who does what.  Nobody
 * else includes it.
 */
#ifndef KILN_DAEMON_REMOTE_STATE_H
#define KILN_DAEMON_REMOTE_STATE_H

#include "remote.h"
#include "remote_link.h"
#include "daemon/seal/seal.h"
#include "daemon/base/histogram.h"

#define REMOTE_NEVER UINT64_MAX
#define REMOTE_ENTRY_MOST ((size_t)8 << 20) /* bytes of an entry */
#define REMOTE_NAME_MAX (16 + KERNEL_KEY_HEX)

/* CLOSED: it is asked.  OPEN: it is not, for a while.  HALF_OPEN: the next connection is tried. */
enum remote_breaker { REMOTE_CLOSED, REMOTE_OPEN, REMOTE_HALF_OPEN };

struct remote_claim;
struct remote_write;

struct remote {
	struct broker *broker;
	/* Who seals what is written, if anybody; how many keys were trusted when last looked. */
	bool seals;
	struct seal_secret secret;
	int trusted;
	char claimant[96]; /* what others see in our claims */

	enum remote_breaker breaker;
	int failures; /* asks in a row that were not answered in time */
	uint64_t backoff_ms, changed_us;
	char why[KERNEL_ERROR_MAX]; /* it is not asked */
	bool met;                   /* it was there once */
	struct remote_link *asks, *writes;
	bool writes_ready;
	uv_timer_t timer; /* of whatever is due next */
	uv_timer_t probe;

	struct remote_fetch *fetches;
	struct remote_claim *claims;
	struct remote_write *first, *last; /* entries to be written; first may be under way */
	uint64_t queued, queued_bytes;
	uint64_t write_due_us;
	int sealing;
	uint64_t finish_us; /* the broker ends: until when; 0: it does not */
	struct histogram ask_times, write_times, miss_times;
};

/* ---- remote.c ---- */

bool remote_usable(const struct remote *remote);
/* An ask was answered, so fast; or it was not. */
void remote_answer_came(struct remote *remote, uint64_t micros);
void remote_trouble(struct remote *remote, const char *why);
/* Nobody asks from now on; the next try is in a while. */
void remote_give_up(struct remote *remote, const char *why);
/* Something is due at another time than before. */
void remote_arm(struct remote *remote);
/* "kiln:1:entry:KEY" */
void remote_entry_name(const char *key, char name[REMOTE_NAME_MAX]);
void remote_claim_name(const char *key, char name[REMOTE_NAME_MAX]);

/* ---- fetch.c ---- */

/* All end, to be compiled here; those whose entry is here already do not need the Redis. */
void remote_fetch_end_all(struct remote *remote);
/* Does what is due by now; when the next is, or REMOTE_NEVER. */
void remote_fetch_tick(struct remote *remote, uint64_t now);
uint64_t remote_fetch_due(const struct remote *remote);

/* ---- claim.c ---- */

/* Ours, since then at the latest. */
/* How long a claim lasts that nobody renews. */
uint32_t remote_claim_ms(const struct remote *remote);
void remote_claim_hold(struct remote *remote, const char *key, uint64_t since_us);
/* Gives it up, if it is ours: others may compile. */
void remote_claim_release(struct remote *remote, const char *key);
/* No longer ours to give up. */
void remote_claim_forget(struct remote *remote, const char *key);
void remote_claim_forget_all(struct remote *remote);
void remote_claim_tick(struct remote *remote, uint64_t now);
uint64_t remote_claim_due(const struct remote *remote);

/* ---- write.c ---- */

/* Sends what there is to be sent, where there is a connection. */
void remote_write_pump(struct remote *remote);
/* Its connection is gone. */
void remote_write_stop(struct remote *remote);
void remote_write_tick(struct remote *remote, uint64_t now);
uint64_t remote_write_due(const struct remote *remote);
void remote_write_free(struct remote *remote);
/* Since when the first is sent; now, if none is. */
uint64_t remote_write_since(const struct remote *remote, uint64_t now);

/* ---- entry.c: on the store's thread ---- */

/* The row as an entry, malloc'd.  KILN_OK; KILN_ELIMIT: it would be too large; KILN_ENOMEM. */
int remote_entry_make(const struct seal_secret *secret, const struct cache_row *row, int64_t now,
					  uint64_t seconds, void **entry, size_t *bytes);
/* And back.  KILN_OK: it is the row of this key, and somebody who is trusted made it; KILN_EPERM,
 * KILN_EPROTO: why it is refused; KILN_ENOMEM. */
int remote_entry_open(const struct seal_ring *trusted, const char *key, const char *target,
					  const void *entry, size_t bytes, int64_t now, struct cache_row *out,
					  char error[KERNEL_ERROR_MAX]);

#endif
