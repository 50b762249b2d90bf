/*
 * internal.h: what the files of the cache share.  cache.c conducts; row.c knows the bytes of a row,
 * memory.c the rows kept in memory, place.c the directory and its lock, database*.c the database.
 * Nobody outside the cache and its tests includes this.
 */
#ifndef KILN_DAEMON_CACHE_INTERNAL_H
#define KILN_DAEMON_CACHE_INTERNAL_H

#include "daemon/base/util.h"
#include "cache.h"

#include <limits.h>

/* Writes a sentence into the caller's error; the value is the status. */
#define FAIL(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

/* ---- Rows ---- */

#define ROW_BYTES_MAX ((size_t)512 << 20) /* of one encoded row */

/* Exactly size lower-case hexadecimal digits. */
bool cache_row_is_hex(const char *text, size_t size);
/* A deep copy; without the object's bytes (its size stays) unless asked for.  KILN_ENOMEM. */
int cache_row_copy(const struct cache_row *row, bool with_object, struct cache_row *out);
/* Memory that a copy of the row takes, about. */
uint64_t cache_row_cost(const struct cache_row *row);
/* The compiler that a key's text names, from the text or from the first bytes of a blob; "" if it
 * names none. */
void cache_row_compiler(const void *text, size_t bytes, char compiler[CACHE_COMPILER_MAX]);
/* Writes the checksum of a blob of at least the header's size into it. */
void cache_row_seal(unsigned char *blob, size_t bytes);

/* ---- Memory ---- */

#define MEMORY_BUCKETS 4096

struct cache_memory_entry;

/* Least recently used rows go first.  Zeroed but for cap: empty. */
struct cache_memory {
	struct cache_memory_entry *buckets[MEMORY_BUCKETS];
	struct cache_memory_entry *newest, *oldest;
	uint64_t cap, bytes, rows;
	uint64_t unsaved; /* rows that the disk does not have */
};

/* The row, now the most recently used; NULL.  Valid until the next call. */
struct cache_row *cache_memory_get(struct cache_memory *memory, const char *key);
/* Keeps a copy in place of an older one; does nothing for a row that does not fit. */
void cache_memory_put(struct cache_memory *memory, const struct cache_row *row);
void cache_memory_remove(struct cache_memory *memory, const char *key);
void cache_memory_clear(struct cache_memory *memory);
/* Whether the disk has the row; NULL: all of them. */
void cache_memory_mark(struct cache_memory *memory, const char *key, bool unsaved);
/* One that the disk does not have; NULL. */
const struct cache_row *cache_memory_unsaved(const struct cache_memory *memory);
/* A key that begins so and is not except (which may be ""); NULL. */
const char *cache_memory_find(const struct cache_memory *memory, const char *prefix,
							  const char *except);

/* ---- Directory ---- */

struct cache_place {
	char directory[PATH_MAX]; /* no links in it */
	int directory_fd, lock_fd;
	bool unclean; /* the owner before did not close it; whoever has looked for damage clears it */
	bool passing; /* it could not be opened, for a reason that may pass by itself */
};

/* Makes, checks and locks the directory.  KILN_EIO, KILN_EPERM, KILN_ENOTSUP, KILN_EBUSY. */
int cache_place_open(const char *directory, struct cache_place *out, char error[KERNEL_ERROR_MAX]);
/* Gives up the lock, which stays as a file while unclean.  Fine on a place that was not opened, if
 * its descriptors are -1. */
void cache_place_close(struct cache_place *place);
/* Whether the path still leads to this directory, and to this lock. */
bool cache_place_is_current(const struct cache_place *place);
/* Takes a lock that was removed, if nobody else has meanwhile. */
void cache_place_lock_again(struct cache_place *place);
/* Removes the database's log. */
void cache_place_forget_log(const struct cache_place *place);
/* Renames the database to kiln.db.bad-N, with the number after the highest there is; moved is its
 * new name. */
int cache_place_set_aside(const struct cache_place *place, char moved[32],
						  char error[KERNEL_ERROR_MAX]);
struct cache_aside {
	uint64_t count, bytes;
};
/* Removes the oldest databases that were set aside until at most DB_ASIDE are left, of at most so
 * many bytes (0: no matter), the newest in any case; what is left. */
struct cache_aside cache_place_bound_aside(const struct cache_place *place, uint64_t most_bytes);
/* Bytes of the database's files. */
uint64_t cache_place_disk_bytes(const struct cache_place *place);
/* The name of a file system that other hosts or a user's process stand behind; NULL for others. */
const char *cache_place_remote_name(unsigned long type);

/* ---- Database ---- */

#define DB_APPLICATION 0x4b494c4e /* "KILN" */
#define DB_SCHEMA 3
#define DB_QUARANTINE 16 /* damaged rows kept */
#define DB_ASIDE 3       /* databases that were set aside */

/*
 * Results of the database: KILN_OK, KILN_ENOENT, KILN_ENOMEM, KILN_EIO; KILN_EPROTO where the
 * database itself is damaged or is not ours (the caller sets it aside); KILN_EVERSION for a newer
 * schema.
 */
struct cache_db;

/* The columns that the database has of a row, beside its blob. */
struct cache_db_index {
	char key[KERNEL_KEY_HEX];
	char op[24];
	char target[KERNEL_TARGET_MAX];
	char compiler[CACHE_COMPILER_MAX];
	int64_t bytes; /* of the object */
	int64_t size;  /* of all of it: cache_db_cost */
	int64_t used, hits;
	bool pinned;
};

/* Uses of a row that are not in the database yet. */
struct cache_db_use {
	char key[KERNEL_KEY_HEX];
	int64_t hits, used, turn;
};

struct cache_db_totals {
	uint64_t rows, objects; /* bytes of objects */
	uint64_t bytes;         /* of rows: the sum of what they cost */
	uint64_t quarantine;    /* bytes */
	uint64_t pinned;        /* keys */
	/* The highest: our own clock, which goes on by one with each use, whatever the time of day
	 * does. Rows with low turns are the first to go. */
	int64_t turn;
};

/* Returns what a row with a blob of so many bytes takes on disk, with its columns and index
 * entries; blobs lie in pages of their own. */
int64_t cache_db_cost(size_t blob_bytes);

/* Which damage to look for; both read all of it, DB_CHECK_ALL compares the indices as well. */
enum cache_db_check { DB_CHECK_NOTHING, DB_CHECK_PAGES, DB_CHECK_ALL };
int cache_db_open(const char *path, enum cache_db_check check, struct cache_db **out,
				  char error[KERNEL_ERROR_MAX]);
void cache_db_close(struct cache_db *db);
/* Whether a call has failed for what may pass, since this was asked last: a disk that is full,
 * read-only or broken, or another program that holds the file.  The sentence has the remedy. */
bool cache_db_disk_failed(struct cache_db *db);
/* Tells which of its open files is no longer at its path.  Without its log the database is whole
 * once it is closed; without its file, writes are lost. */
enum cache_db_lost { DB_LOST_NOTHING, DB_LOST_LOG, DB_LOST_FILE };
enum cache_db_lost cache_db_lost(struct cache_db *db);
/* Writes something that changes nothing.  KILN_EPERM: it was opened when it could only be read. */
int cache_db_probe(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
int cache_db_totals(struct cache_db *db, struct cache_db_totals *out, char error[KERNEL_ERROR_MAX]);
/* blob is malloc'd. */
int cache_db_get(struct cache_db *db, const char *key, struct cache_db_index *index, void **blob,
				 size_t *bytes, char error[KERNEL_ERROR_MAX]);
/* Empties the log into the database, as far as that goes. */
void cache_db_flush(struct cache_db *db);
/* Forgets a row, in a transaction of its own; fine if there is none. */
int cache_db_remove(struct cache_db *db, const char *key, struct cache_db_totals *totals,
					char error[KERNEL_ERROR_MAX]);
/* KILN_OK or KILN_ENOENT. */
int cache_db_has(struct cache_db *db, const char *key, char error[KERNEL_ERROR_MAX]);
/* One transaction; brings totals up to date, whose turn becomes the row's. */
int cache_db_put(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				 struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX]);
/* Moves a row to the quarantine; brings totals up to date. */
int cache_db_quarantine(struct cache_db *db, const char *key, const char *why,
						struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX]);
/* Counts the rows of the quarantine, and their bytes. */
int cache_db_quarantined(struct cache_db *db, uint64_t *count, uint64_t *bytes,
						 char error[KERNEL_ERROR_MAX]);
/* Empties it. */
int cache_db_release(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
int cache_db_uses(struct cache_db *db, const struct cache_db_use *uses, int count,
				  char error[KERNEL_ERROR_MAX]);
/* Finds up to two keys of a table that begin so. */
enum cache_db_table { DB_KERNELS, DB_PINS, DB_FAILURES };
int cache_db_find(struct cache_db *db, enum cache_db_table table, const char *prefix,
				  char keys[2][KERNEL_KEY_HEX], int *count, char error[KERNEL_ERROR_MAX]);
/* The key after this one ("" for the first); KILN_ENOENT at the end. */
int cache_db_next(struct cache_db *db, const char *after, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX]);
/* sort, after: as cache_list; KILN_EINVAL for another. */
int cache_db_list(struct cache_db *db, const char *sort, const char *after, int64_t limit,
				  cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/* One batch of what cache_trim does with rows; tells the rows that went, or with dry_run would go,
 * and brings totals up to date. */
int cache_db_trim(struct cache_db *db, const struct cache_trim *what,
				  struct cache_db_totals *totals, struct cache_trimmed *progress,
				  cache_visit removed, void *arg, char error[KERNEL_ERROR_MAX]);
/* Gives some of the room of removed rows back to the file system; more: there is more. */
int cache_db_shrink(struct cache_db *db, bool *more, char error[KERNEL_ERROR_MAX]);
int cache_db_set_pin(struct cache_db *db, const char *key, bool pinned,
					 char error[KERNEL_ERROR_MAX]);
/* Rows that are pinned, and what they take. */
int cache_db_pinned(struct cache_db *db, uint64_t *rows, uint64_t *bytes,
					char error[KERNEL_ERROR_MAX]);
#ifdef KILN_TEST_HOOKS
/* Flips the lowest bit of the byte that stands from_end bytes before the end of a row's blob. */
int cache_db_flip(struct cache_db *db, const char *key, int64_t from_end,
				  char error[KERNEL_ERROR_MAX]);
#endif

#endif
