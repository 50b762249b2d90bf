/*
 * internal.h: declarations that the files of the cache share.  cache.c conducts; row.c knows the
 * bytes of a row, memory.c the rows kept in memory, directory.c where the cache lies and its lock,
 * database*.c the database.  Only the cache and its tests include this.
 */
#ifndef KILN_DAEMON_CACHE_INTERNAL_H
#define KILN_DAEMON_CACHE_INTERNAL_H

#include "daemon/base/util.h"
#include "cache.h"

#include <limits.h>
#include <pthread.h>

/* Writes a sentence into the caller's error; the value is the status. */
#define FAIL(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

/* ---- Rows ---- */

#define ROW_BYTES_MAX ((size_t)512 << 20) /* of one encoded row */

/* Whether the text is exactly size lower-case hexadecimal digits. */
bool cache_row_is_hex(const char *text, size_t size);
/* Makes a deep copy, which the caller frees; without with_object it lacks the object's bytes and
 * keeps its size.  KILN_OK, KILN_ENOMEM. */
int cache_row_copy(const struct cache_row *row, bool with_object, struct cache_row *out);
/* Estimates the memory that a copy of the row takes. */
uint64_t cache_row_cost(const struct cache_row *row);
/* Finds the compiler that a key's text names, in the text or in the first bytes of a blob; "": it
 * names none. */
void cache_row_compiler(const void *text, size_t bytes, char compiler[CACHE_COMPILER_MAX]);
/* Writes the checksum of a blob of at least the header's size into it. */
void cache_row_seal(unsigned char *blob, size_t bytes);

/* ---- Memory ---- */

#define MEMORY_BUCKETS 4096
#define MEMORY_USES 32 /* of rows, that the store's thread has not counted yet */

/* Keeps copies of rows; the least recently used go first.  Zeroed but for cap, it is empty.  The
 * store's thread alone puts and removes rows; others take them meanwhile.  A row that is removed
 * lives until all who have taken it have freed it. */
struct cache_memory {
	pthread_mutex_t lock;
	struct cache_memory_entry *buckets[MEMORY_BUCKETS];
	struct cache_memory_entry *newest, *oldest;
	uint64_t cap, bytes, rows;
	uint64_t unsaved; /* rows that the disk does not have */
	/* Rows that other threads have taken; further ones are not counted. */
	struct memory_use {
		char key[KERNEL_KEY_HEX];
		int64_t hits, used;
	} uses[MEMORY_USES];
	int use_count;
};

/* Finds a row and makes it the most recently used; NULL: there is none.  The row is the memory's,
 * and valid until the next call. */
const struct cache_row *cache_memory_get(struct cache_memory *memory, const char *key);
/* Gives out a row, which is used now; false: there is none. */
bool cache_memory_take(struct cache_memory *memory, const char *key, int64_t now,
					   struct cache_row *out);
/* The same at once for any thread, and has the store's thread count the use; false also while
 * another thread is here. */
bool cache_memory_take_noted(struct cache_memory *memory, const char *key, int64_t now,
							 struct cache_row *out);
/* Drops the hold of a row that was taken. */
void cache_memory_drop(struct cache_memory_entry *entry);
/* Takes the uses that were noted, and returns how many there are. */
int cache_memory_uses(struct cache_memory *memory, struct memory_use uses[MEMORY_USES]);
/* Keeps a copy in place of an older one; does nothing for a row that does not fit. */
void cache_memory_put(struct cache_memory *memory, const struct cache_row *row);
void cache_memory_remove(struct cache_memory *memory, const char *key);
void cache_memory_clear(struct cache_memory *memory);
/* Notes whether the disk still lacks the row; key NULL: all rows. */
void cache_memory_mark(struct cache_memory *memory, const char *key, bool unsaved);
/* Returns a row that the disk lacks; NULL: there is none. */
const struct cache_row *cache_memory_unsaved(struct cache_memory *memory);
/* Returns a key that begins so and is not except (which may be ""); NULL: there is none. */
const char *cache_memory_find(struct cache_memory *memory, const char *prefix, const char *except);

/* ---- Directory ---- */

struct cache_place {
	char directory[PATH_MAX]; /* no links in it */
	int directory_fd, lock_fd;
	bool unclean; /* the last owner did not close it; heal.c clears this after a look for damage */
	bool passing; /* cache_place_open() failed for a reason that may pass by itself */
};

/* Makes, checks and locks the directory.  KILN_EIO, KILN_EPERM, KILN_ENOTSUP, KILN_EBUSY. */
int cache_place_open(const char *directory, struct cache_place *out, char error[KERNEL_ERROR_MAX]);
/* Gives up the lock; while unclean its file stays.  Fine on a place that was not opened, whose
 * descriptors are -1. */
void cache_place_close(struct cache_place *place);
/* Whether the path still leads to this directory, and to this lock. */
bool cache_place_is_current(const struct cache_place *place);
/* Takes the lock anew after its file was removed, unless another process has it meanwhile. */
void cache_place_lock_again(struct cache_place *place);
/* Removes the database's log. */
void cache_place_forget_log(const struct cache_place *place);
/* Renames the database to kiln.db.bad-N, with the number after the highest there is; moved becomes
 * its new name. */
int cache_place_set_aside(const struct cache_place *place, char moved[32],
						  char error[KERNEL_ERROR_MAX]);
struct cache_aside {
	uint64_t count, bytes;
};
/* Removes the oldest databases that were set aside until at most DB_ASIDE are left, of at most so
 * many bytes (0: any number); the newest always stays.  Returns those that are left. */
struct cache_aside cache_place_bound_aside(const struct cache_place *place, uint64_t most_bytes);
/* Returns the bytes of the database's files. */
uint64_t cache_place_disk_bytes(const struct cache_place *place);
/* Returns the name of a file system that other hosts or a user's process serve; NULL for others. */
const char *cache_place_remote_name(unsigned long type);

/* ---- Database ---- */

#define DB_APPLICATION 0x4b494c4e /* "KILN" */
#define DB_SCHEMA 3
#define DB_QUARANTINE 16 /* damaged rows kept */
#define DB_ASIDE 3       /* databases that were set aside */

/*
 * Functions of the database return KILN_OK, KILN_ENOENT, KILN_ENOMEM, KILN_EIO; KILN_EPROTO where
 * the database itself is damaged or is not ours (cache_failed() sets it aside); KILN_EVERSION for a
 * newer schema.
 */
struct cache_db;

/* The columns of a row, beside its blob. */
struct cache_db_index {
	char key[KERNEL_KEY_HEX];
	char op[24];
	char target[KERNEL_TARGET_MAX];
	char compiler[CACHE_COMPILER_MAX];
	int64_t bytes; /* of the object */
	int64_t size;  /* cache_db_cost() of the blob */
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
	/* The highest turn of a row.  Turns are a clock that goes on by one with each use, whatever the
	 * time of day does; rows with low turns are the first to go. */
	int64_t turn;
};

/* Returns what a row with a blob of so many bytes takes on disk, with its columns and index
 * entries; blobs lie in pages of their own. */
int64_t cache_db_cost(size_t blob_bytes);

/* The damage to look for: both checks read the whole database; DB_CHECK_ALL compares the indices as
 * well. */
enum cache_db_check { DB_CHECK_NOTHING, DB_CHECK_PAGES, DB_CHECK_ALL };
int cache_db_open(const char *path, enum cache_db_check check, struct cache_db **out,
				  char error[KERNEL_ERROR_MAX]);
void cache_db_close(struct cache_db *db);
/* Whether a call failed, since this was last asked, for a reason that may pass: a disk that is
 * full, read-only or broken, or another program that holds the file.  The sentence has the remedy.
 * */
bool cache_db_disk_failed(struct cache_db *db);
/* Tells which of its open files is no longer at its path.  Without its log the database is whole
 * once it is closed; without its file, writes are lost. */
enum cache_db_lost { DB_LOST_NOTHING, DB_LOST_LOG, DB_LOST_FILE };
enum cache_db_lost cache_db_lost(struct cache_db *db);
/* Writes a value that changes nothing.  KILN_EPERM: the file could only be read when it was opened.
 * */
int cache_db_probe(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
int cache_db_totals(struct cache_db *db, struct cache_db_totals *out, char error[KERNEL_ERROR_MAX]);
/* Reads a row; the caller frees blob. */
int cache_db_get(struct cache_db *db, const char *key, struct cache_db_index *index, void **blob,
				 size_t *bytes, char error[KERNEL_ERROR_MAX]);
/* Moves the log's content into the database, as far as the disk allows. */
void cache_db_flush(struct cache_db *db);
/* Forgets a row, in a transaction of its own; fine if there is none. */
int cache_db_remove(struct cache_db *db, const char *key, struct cache_db_totals *totals,
					char error[KERNEL_ERROR_MAX]);
/* Tells whether there is a row: KILN_OK or KILN_ENOENT. */
int cache_db_has(struct cache_db *db, const char *key, char error[KERNEL_ERROR_MAX]);
/* Writes a row in one transaction; brings totals up to date, whose turn becomes the row's. */
int cache_db_put(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				 struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX]);
/* Moves a row to the quarantine; brings totals up to date. */
int cache_db_quarantine(struct cache_db *db, const char *key, const char *why,
						struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX]);
/* Counts the rows of the quarantine, and their bytes. */
int cache_db_quarantined(struct cache_db *db, uint64_t *count, uint64_t *bytes,
						 char error[KERNEL_ERROR_MAX]);
/* Empties the quarantine. */
int cache_db_release(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
/* Writes uses in one transaction. */
int cache_db_uses(struct cache_db *db, const struct cache_db_use *uses, int count,
				  char error[KERNEL_ERROR_MAX]);
/* Finds up to two keys of a table that begin so. */
enum cache_db_table { DB_KERNELS, DB_PINS, DB_FAILURES };
int cache_db_find(struct cache_db *db, enum cache_db_table table, const char *prefix,
				  char keys[2][KERNEL_KEY_HEX], int *count, char error[KERNEL_ERROR_MAX]);
/* Finds the key behind after ("" for the first), which may be the same array; KILN_ENOENT at the
 * end. */
int cache_db_next(struct cache_db *db, const char *after, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX]);
/* Visits rows as cache_list() does; KILN_EINVAL: sort is none. */
int cache_db_list(struct cache_db *db, const char *sort, const char *after, int64_t limit,
				  cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/* Removes one piece of the rows that cache_trim() names, or with dry_run none; visits each of them,
 * and brings totals up to date. */
int cache_db_trim(struct cache_db *db, const struct cache_trim *what,
				  struct cache_db_totals *totals, struct cache_trimmed *progress,
				  cache_visit removed, void *arg, char error[KERNEL_ERROR_MAX]);
/* Gives some of the room of removed rows back to the file system; more: there is more to give. */
int cache_db_shrink(struct cache_db *db, bool *more, char error[KERNEL_ERROR_MAX]);
int cache_db_set_pin(struct cache_db *db, const char *key, bool pinned,
					 char error[KERNEL_ERROR_MAX]);
/* Counts pinned rows, and the bytes that they take. */
int cache_db_pinned(struct cache_db *db, uint64_t *rows, uint64_t *bytes,
					char error[KERNEL_ERROR_MAX]);
#ifdef KILN_TEST_HOOKS
/* Flips the lowest bit of the byte that stands from_end bytes before the end of a row's blob. */
int cache_db_flip(struct cache_db *db, const char *key, int64_t from_end,
				  char error[KERNEL_ERROR_MAX]);
#endif

#endif
