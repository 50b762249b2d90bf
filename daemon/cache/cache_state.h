/*
 * cache_state.h: the state of a cache, for cache.c (opening, writing), heal.c (a disk that fails),
 * read.c (reading and verifying), trim.c (caps and pins), failures.c, tuned.c and pack_read.c.  No
 * other file includes it.
 */
#ifndef KILN_DAEMON_CACHE_STATE_H
#define KILN_DAEMON_CACHE_STATE_H

#include "internal.h"

#define PENDING_MAX 1024 /* uses kept back at most */

struct cache {
	char directory[PATH_MAX]; /* as it was given */
	struct cache_place place;
	struct cache_db *db;            /* NULL: memory goes on alone */
	char trouble[KERNEL_ERROR_MAX]; /* the disk's failure and its remedy; "": it works */
	uint64_t again_us;              /* from here on a database, or an unsaved row, is tried again */
	struct cache_aside aside;       /* databases set aside */
	int suspected;                  /* reports of damage to this database that were false */
	uint64_t suspected_us;          /* time of the last */
	uint64_t lapses; /* times that the disk failed, or the database was left for another */
	struct cache_memory memory;
	struct cache_db_totals totals;
	uint64_t cap_bytes, cap_rows;
	bool trimming;  /* cache_tend() goes on to the low marks */
	bool shrinking; /* cache_tend() gives room back to the file system */
	uint64_t quarantined, trimmed, write_failures;
	uint64_t failures, failure_bytes; /* remembered (failures.c) */
	struct cache_db_use pending[PENDING_MAX];
	int pending_count;
	uint64_t set_aside;            /* databases */
	char damage[KERNEL_ERROR_MAX]; /* why the last was set aside */
};

/* ---- heal.c ---- */

/* Opens the database; sets one that is damaged or not ours aside and begins a new one. */
int cache_begin(struct cache *cache, char error[KERNEL_ERROR_MAX]);
/* Notes that the disk has failed, and why. */
void cache_begin_trouble(struct cache *cache, const char *why);
/* Notes that the disk works. */
void cache_sound(struct cache *cache);
/* Writes to the database, to learn whether the disk takes it. */
void cache_probe(struct cache *cache);
/* Leaves a database whose file was removed or replaced, and begins another; call before a write. */
void cache_stay(struct cache *cache);
/* Acts on a status of the database, and returns the caller's.  A damaged database is set aside at
 * once, so that the next call finds a sound one.  Rows in memory go on. */
int cache_failed(struct cache *cache, int status, char error[KERNEL_ERROR_MAX]);
/* Returns KILN_OK, or KILN_EIO with the trouble; now and then tries to open a database again. */
int cache_have_db(struct cache *cache, char error[KERNEL_ERROR_MAX]);

/* ---- cache.c ---- */

/* Writes some of the rows that only memory has. */
int cache_save(struct cache *cache, char error[KERNEL_ERROR_MAX]);
int cache_check_key(const char *key, char error[KERNEL_ERROR_MAX]);
/* Checks a key, or the beginning of one. */
int cache_check_prefix(const char *prefix, char error[KERNEL_ERROR_MAX]);

/* Forgets the failures of a newly opened database that may pass, for the options of the daemon may
 * be others now, and counts the rest. */
int cache_failures_open(struct cache *cache, char error[KERNEL_ERROR_MAX]);

/* Whether a failure has a key that begins so. */
bool cache_failures_match(struct cache *cache, const char *prefix);

/* Returns the uses of a key that the database lacks; NULL: there are none. */
struct cache_db_use *cache_pending(struct cache *cache, const char *key);
/* Counts one hit.  cache_flush_uses() writes it: from cache_tend(), before other writes, or when
 * many wait. */
void cache_count_use(struct cache *cache, const char *key, int64_t hits, int64_t now);
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
/* Whether a row of so many bytes is at most 90 % of the cap: a larger one would drive out too much.
 * */
bool cache_fits(const struct cache *cache, uint64_t size);
/* Brings the cache under a cap that it has passed; cache_tend() goes the rest of the way to the low
 * mark. */
int cache_keep_caps(struct cache *cache, char error[KERNEL_ERROR_MAX]);

#endif
