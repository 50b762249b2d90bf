/*
 * conductor.h: the state of a cache, for cache.c (opening, writing), heal.c (what happens when the
 * disk fails), read.c (reading and verifying), trim.c (what goes and what stays) and failures.c.
 * Nobody else includes it.
 */
#ifndef KILN_DAEMON_CACHE_CONDUCTOR_H
#define KILN_DAEMON_CACHE_CONDUCTOR_H

#include "internal.h"

#define PENDING_MAX 1024 /* uses kept back at most */

struct cache {
	char directory[PATH_MAX]; /* as it was given */
	struct cache_place place;
	struct cache_db *db; /* NULL while there is none: memory goes on alone */
	/* What is wrong with the disk and what helps, "" if nothing is; and when a database is tried
	 * again while there is none, or what memory alone has is. */
	char trouble[KERNEL_ERROR_MAX];
	uint64_t again_us;
	struct cache_aside aside; /* databases set aside */
	int suspected;            /* how often this one was said to be damaged, and was not */
	uint64_t suspected_us;    /* when it last was */
	uint64_t lapses;          /* times that the disk failed, or the database was left for another */
	struct cache_memory memory;
	struct cache_db_totals totals;
	uint64_t cap_bytes, cap_rows;
	bool trimming, shrinking; /* for cache_tend: not at the low marks yet; room to give back */
	uint64_t quarantined, trimmed, write_failures;
	uint64_t failures, failure_bytes; /* remembered (failures.c) */
	struct cache_db_use pending[PENDING_MAX];
	int pending_count;
	uint64_t set_aside; /* databases; and why the last was */
	char damage[KERNEL_ERROR_MAX];
};

/* ---- heal.c ---- */

/* Opens the database; one that is damaged or not ours is set aside for a new one. */
int cache_begin(struct cache *cache, char error[KERNEL_ERROR_MAX]);
/* Notes that the disk has failed and why; and that it works again. */
void cache_begin_trouble(struct cache *cache, const char *why);
void cache_sound(struct cache *cache);
/* Writes something, to learn whether the disk can be written. */
void cache_probe(struct cache *cache);
/* Call before a write: leaves a database whose file was removed or replaced, and begins another. */
void cache_stay(struct cache *cache);
/*
 * What a failure of the database means for the caller.  A damaged database is set aside at once, so
 * that the next call finds a sound one, and rows in memory go on.
 */
int cache_failed(struct cache *cache, int status, char error[KERNEL_ERROR_MAX]);
/* KILN_OK, or KILN_EIO with the trouble; now and then a database is tried again. */
int cache_have_db(struct cache *cache, char error[KERNEL_ERROR_MAX]);

/* ---- cache.c ---- */

/* Writes some of the rows that only memory has. */
int cache_save(struct cache *cache, char error[KERNEL_ERROR_MAX]);
int cache_check_key(const char *key, char error[KERNEL_ERROR_MAX]);
/* Checks a key, or the beginning of one. */
int cache_check_prefix(const char *prefix, char error[KERNEL_ERROR_MAX]);

/* When a database is opened: forgets failures that were to be remembered for a while only, for the
 * options of the daemon may be others now, and counts the rest. */
int cache_failures_open(struct cache *cache, char error[KERNEL_ERROR_MAX]);

/* Whether a failure has a key that begins so. */
bool cache_failures_match(struct cache *cache, const char *prefix);

/* Returns the uses of a key that are not in the database yet; NULL: there are none. */
struct cache_db_use *cache_pending(struct cache *cache, const char *key);
/* Counts one hit; written by cache_tend, before other writes, or when there are many. */
void cache_count_use(struct cache *cache, const char *key, int64_t now);
void cache_drop_use(struct cache *cache, const char *key);
void cache_flush_uses(struct cache *cache);

/* Finds the one key of pins or failures that begins so; needs a database.  KILN_ENOENT: there is
 * none; KILN_EINVAL: there are several, or the prefix is none. */
int cache_resolve_in(struct cache *cache, enum cache_db_table table, const char *prefix,
					 char key[KERNEL_KEY_HEX], char error[KERNEL_ERROR_MAX]);
/* Finds the one kernel whose key begins so, in the database or in memory alone; as above. */
int cache_resolve(struct cache *cache, const char *prefix, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX]);
/* Returns the bytes that the cap counts: of rows, of those in quarantine, and of failures. */
uint64_t cache_all_bytes(const struct cache *cache);
/* More than 90 % of a cap: a row of so many bytes would drive out too much. */
bool cache_fits(const struct cache *cache, uint64_t size);
/* Brings the cache under its caps where one is passed; the rest of the way to the low marks is
 * cache_tend's. */
int cache_keep_caps(struct cache *cache, char error[KERNEL_ERROR_MAX]);

#endif
