/*
 * conductor.h: the state of a cache, for cache.c (opening, writing, trimming, failures) and look.c
 * (reading and verifying).  Nobody else includes it.
 */
#ifndef KILN_DAEMON_CACHE_CONDUCTOR_H
#define KILN_DAEMON_CACHE_CONDUCTOR_H

#include "internal.h"

#define PENDING_MAX 256 /* uses kept back at most */

struct cache {
	struct cache_place place;
	struct cache_db *db; /* NULL after a failed new beginning: memory goes on alone */
	struct cache_memory memory;
	struct cache_db_totals totals;
	uint64_t cap_bytes;
	uint64_t quarantined, trimmed, write_failures;
	uint64_t failures; /* remembered (failures.c) */
	struct cache_db_use pending[PENDING_MAX];
	int pending_count;
	uint64_t pending_since;
};

/*
 * What a failure of the database means for the caller.  A damaged database is set aside at once, so
 * that the next call finds a sound one, and rows in memory go on.
 */
int cache_failed(struct cache *cache, int status, char error[KERNEL_ERROR_MAX]);
/* KILN_OK, or KILN_EIO where a new beginning has failed. */
int cache_have_db(struct cache *cache, char error[KERNEL_ERROR_MAX]);
int cache_check_key(const char *key, char error[KERNEL_ERROR_MAX]);

/* When a database is opened: forgets failures that were to be remembered for a while only, for the
 * options of the daemon may be others now, and counts the rest. */
int cache_failures_open(struct cache *cache, char error[KERNEL_ERROR_MAX]);

/* Whether a failure has a key that begins so. */
bool cache_failures_match(struct cache *cache, const char *prefix);

/* Uses that are not in the database yet: of a key, or NULL. */
struct cache_db_use *cache_pending(struct cache *cache, const char *key);
/* Counts one hit; written when there are many, or after a while. */
void cache_count_use(struct cache *cache, const char *key, int64_t now);
void cache_drop_use(struct cache *cache, const char *key);
void cache_flush_uses(struct cache *cache);

#endif
