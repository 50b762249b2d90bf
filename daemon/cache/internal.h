/*
 * internal.h: what the files of the cache share.  cache.c conducts; row.c knows the bytes of a row,
 * memory.c the rows kept in memory, place.c the directory and its lock, store*.c the database.
 * Nobody outside the cache and its tests includes this.
 */
#ifndef KILN_DAEMON_CACHE_INTERNAL_H
#define KILN_DAEMON_CACHE_INTERNAL_H

#include "../util/util.h"
#include "cache.h"

#include <limits.h>

/* ---- Rows ---- */

#define ROW_BYTES_MAX ((size_t)512 << 20) /* of one encoded row */

/* Exactly size lower-case hexadecimal digits. */
bool row_is_hex(const char *text, size_t size);
/* A deep copy; without the object's bytes (its size stays) unless asked for.  KILN_ENOMEM. */
int row_copy(const struct cache_row *row, bool with_object, struct cache_row *out);
/* Memory that a copy of the row takes, about. */
uint64_t row_cost(const struct cache_row *row);
/* Writes the checksum of a blob of at least the header's size into it. */
void row_seal(unsigned char *blob, size_t bytes);

/* ---- Memory ---- */

#define MEMORY_BUCKETS 4096

struct memory_entry;

/* Least recently used rows go first.  Zeroed but for cap: empty. */
struct memory {
	struct memory_entry *buckets[MEMORY_BUCKETS];
	struct memory_entry *newest, *oldest;
	uint64_t cap, bytes, rows;
};

/* The row, now the most recently used; NULL.  Valid until the next call. */
struct cache_row *memory_get(struct memory *memory, const char *key);
/* Keeps a copy in place of an older one; does nothing for a row that does not fit. */
void memory_put(struct memory *memory, const struct cache_row *row);
void memory_remove(struct memory *memory, const char *key);
void memory_clear(struct memory *memory);
/* A key that begins so and is not except (which may be ""); NULL. */
const char *memory_find(const struct memory *memory, const char *prefix, const char *except);

/* ---- Directory ---- */

struct place {
	char directory[PATH_MAX]; /* no links in it */
	int directory_fd, lock_fd;
	bool unclean; /* the owner before did not close it; whoever has looked for damage clears it */
};

/* Makes, checks and locks the directory.  KILN_EIO, KILN_EPERM, KILN_ENOTSUP, KILN_EBUSY. */
int place_open(const char *directory, struct place *out, char error[KERNEL_ERROR_MAX]);
/* Gives up the lock, which stays as a file while unclean.  Fine on a place that was not opened, if
 * its descriptors are -1. */
void place_close(struct place *place);
/* Renames the database to the first free kiln.db.bad-N; moved is its new name. */
int place_set_aside(const struct place *place, char moved[32], char error[KERNEL_ERROR_MAX]);
/* Bytes of the database's files. */
uint64_t place_disk_bytes(const struct place *place);
/* The name of a file system that other hosts or a user's process stand behind; NULL for others. */
const char *place_remote_name(unsigned long type);

/* ---- Database ---- */

#define STORE_APPLICATION 0x4b494c4e /* "KILN" */
#define STORE_SCHEMA 1
#define STORE_QUARANTINE 16 /* damaged rows kept */

/*
 * Results of the store: KILN_OK, KILN_ENOENT, KILN_ENOMEM, KILN_EIO; KILN_EPROTO where the database
 * itself is damaged or is not ours (the caller sets it aside); KILN_EVERSION for a newer schema.
 */
struct store;

/* What the database knows of a row beside its blob. */
struct store_index {
	char key[KERNEL_KEY_HEX];
	char op[24];
	char target[KERNEL_TARGET_MAX];
	int64_t bytes; /* of the object */
	int64_t used, hits;
};

/* Uses of a row that are not in the database yet. */
struct store_use {
	char key[KERNEL_KEY_HEX];
	int64_t hits, used, turn;
};

struct store_totals {
	uint64_t rows, bytes;
	int64_t turn; /* the highest: uses are ordered by (used, turn) */
};

/* check: look for damage (reads all of it). */
int store_open(const char *path, bool check, struct store **out, char error[KERNEL_ERROR_MAX]);
void store_close(struct store *store);
int store_totals(struct store *store, struct store_totals *out, char error[KERNEL_ERROR_MAX]);
/* blob is malloc'd. */
int store_get(struct store *store, const char *key, struct store_index *index, void **blob,
			  size_t *bytes, char error[KERNEL_ERROR_MAX]);
/* One transaction; *replaced: the object bytes of the row it replaced, -1 if there was none. */
int store_put(struct store *store, const struct cache_row *row, const void *blob, size_t bytes,
			  int64_t turn, int64_t *replaced, char error[KERNEL_ERROR_MAX]);
/* Moves a row to the quarantine. */
int store_quarantine(struct store *store, const char *key, const char *why, int64_t now,
					 char error[KERNEL_ERROR_MAX]);
/* How many rows are in the quarantine. */
int store_quarantined(struct store *store, int64_t *count, char error[KERNEL_ERROR_MAX]);
int store_uses(struct store *store, const struct store_use *uses, int count,
			   char error[KERNEL_ERROR_MAX]);
/* Up to two keys that begin so. */
int store_find(struct store *store, const char *prefix, char keys[2][KERNEL_KEY_HEX], int *count,
			   char error[KERNEL_ERROR_MAX]);
/* The key after this one ("" for the first); KILN_ENOENT at the end. */
int store_next(struct store *store, const char *after, char key[KERNEL_KEY_HEX],
			   char error[KERNEL_ERROR_MAX]);
/* sort: as cache_list; KILN_EINVAL for another. */
int store_list(struct store *store, const char *sort, int64_t limit, cache_visit visit, void *arg,
			   char error[KERNEL_ERROR_MAX]);
/* Removes a batch of the least recently used rows, until at most so many bytes of objects are left
 * (0: all rows) or the batch is full; tells their keys and brings totals up to date. */
int store_trim(struct store *store, uint64_t most, struct store_totals *totals,
			   void (*removed)(const char *key, void *arg), void *arg,
			   char error[KERNEL_ERROR_MAX]);
/* Gives the room of removed rows back to the file system. */
int store_shrink(struct store *store, char error[KERNEL_ERROR_MAX]);
/* Flips the lowest bit of the byte so far from the end of a row's blob. */
int store_flip(struct store *store, const char *key, int64_t from_end,
			   char error[KERNEL_ERROR_MAX]);

#endif
