/*
 * cache: compiled objects by key, in memory over SQLite on local disk.
 *
 * Every read verifies the row's checksum; a bad row moves to the quarantine (a table) and reads as
 * a miss.  A kill -9 at any moment loses no row that was written (WAL).  One process owns the
 * directory, by a lock file with its pid.  One thread at a time calls these functions; they may
 * block on the disk, so the broker has a thread for them (the store's).
 *
 * Functions that return an int return KILN_OK, or a status with a sentence in error.
 */
#ifndef KILN_DAEMON_CACHE_H
#define KILN_DAEMON_CACHE_H

#include "daemon/plan/kernel.h"

struct cache;

#define CACHE_COMPILER_MAX 96

struct cache_memory_entry;

/* One compiled kernel.  The row owns its texts and its object, or holds what in memory owns them:
 * cache_row_free() frees them, or drops the hold. */
struct cache_row {
	char key[KERNEL_KEY_HEX];
	char op[24];
	char target[KERNEL_TARGET_MAX];
	char *instantiation;
	char *entry;    /* the symbol to launch: mangled name or exported symbol */
	char *key_text; /* everything that was hashed */
	char *source;   /* the translation unit as compiled */
	char *log;      /* the compiler's */
	char *plan;     /* plan_explain text of the first request */
	void *object;
	size_t object_bytes;
	int64_t registers, shared_bytes, spill_bytes, local_bytes; /* -1 where not known */
	int64_t compile_micros;
	int64_t created, used; /* seconds since 1970 */
	int64_t hits;
	/* Columns of the database; cache_put() computes them. */
	char compiler[CACHE_COMPILER_MAX]; /* that key_text names; "" if it names none */
	uint64_t size;                     /* what the row takes on disk: object, texts and columns */
	bool pinned;
	struct cache_memory_entry *kept; /* of a row that was found in memory; NULL: of any other */
};

struct cache_options {
	const char *directory; /* made 0700 if missing */
	/* The caps: bytes of rows with objects and texts, and their number; 0: no cap.  Where one is
	 * passed, the least recently used rows go, down to 90 %. */
	uint64_t cap_bytes, cap_rows;
	uint64_t memory_bytes; /* of objects kept in memory.  0: none */
	bool faults;           /* a test may break its disk: disk_fault.h */
};

struct cache_stats {
	uint64_t rows, object_bytes, disk_bytes, memory_rows, memory_bytes, quarantined, trimmed,
		write_failures, failures;
	uint64_t bytes;              /* counted by the cap: rows, those in quarantine, and failures */
	uint64_t pinned;             /* keys */
	uint64_t waiting;            /* uses that are not on disk yet */
	uint64_t unsaved;            /* rows in memory that the disk does not have */
	uint64_t aside, aside_bytes; /* databases that were set aside */
	char trouble[KERNEL_ERROR_MAX]; /* what is wrong with the disk, and what helps; "" */
	bool due;                       /* cache_tend() has something to do */
	/* Databases set aside since cache_open(), as damaged or not ours; the sentence of the last. */
	uint64_t set_aside;
	char damage[KERNEL_ERROR_MAX];
};

/*
 * Opens or makes the cache; cache_close() frees it.  Upgrades a database of an older schema, and
 * refuses one of a newer schema; moves one that is damaged or not ours aside (kiln.db.bad-N) and
 * begins a new one.  Refuses a network file system, a directory of another user, one that others
 * can write to, and one in use (with the owner's pid).  Goes on where the disk is full, read-only
 * or broken, or another program has locked the database: memory serves alone until that ends.
 */
int cache_open(const struct cache_options *options, struct cache **out,
			   char error[KERNEL_ERROR_MAX]);
/* Writes uses and unsaved rows, and gives up the directory.  NULL is fine. */
void cache_close(struct cache *cache);

/* Finds and verifies a row with its object, which the caller frees, and counts the hit.
 * KILN_ENOENT: a miss, or a bad row, which now is in the quarantine; KILN_EIO, KILN_ENOMEM. */
int cache_get(struct cache *cache, const char *key, struct cache_row *out,
			  char error[KERNEL_ERROR_MAX]);
/* Like cache_get(), of memory alone, on any thread while the cache is open, and at once: nothing is
 * waited for or copied.  False: memory does not have the row, or another thread looks into it. */
bool cache_get_kept(struct cache *cache, const char *key, struct cache_row *out);
/* Stores a copy of a row in place of one with its key, first in memory, then on disk in one
 * transaction.  KILN_EIO: the disk is full or read-only; memory serves the row all the same, and
 * the cache writes it once the disk allows. */
int cache_put(struct cache *cache, const struct cache_row *row, char error[KERNEL_ERROR_MAX]);
/* Finds a row without its object, and counts no hit.  The key may be a prefix of at least 4 digits;
 * KILN_EINVAL: several keys begin so. */
int cache_show(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX]);

/* Tells whether there is a row with this key, without reading it.  KILN_OK, KILN_ENOENT, KILN_EIO.
 * */
int cache_has(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX]);

/* Visits rows without texts and objects.  sort is "used", "hits", "bytes", "created" (all
 * descending), or "key" (ascending, keys behind after, which is "" at first); NULL: used.  The row
 * is valid within visit(), which must not call the cache. */
typedef void (*cache_visit)(const struct cache_row *row, void *arg);
int cache_list(struct cache *cache, const char *sort, const char *after, int64_t limit,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/* Finds a row with its object as cache_get() does, but by a prefix too, and counts no hit. */
int cache_peek(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX]);
#ifdef KILN_TEST_HOOKS
/* Forgets all rows in memory: the next read goes to the disk. */
void cache_drop_memory(struct cache *cache);
#endif

/* ---- Rows from elsewhere: packs (pack.h) and the like ---- */

/* Whether the key is the hash of the key's text. */
bool cache_row_key_fits(const struct cache_row *row);
/* Writes a row and its encoded bytes, which the caller has checked, to the disk alone, unless there
 * is a row with its key. */
int cache_take(struct cache *cache, const struct cache_row *row, const void *blob, size_t bytes,
			   bool *was_there, char error[KERNEL_ERROR_MAX]);
/* Removes a row; fine if there is none. */
int cache_remove(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX]);
/* Moves the log's content into the database, which makes room in the log. */
void cache_flush(struct cache *cache);
/* Returns KILN_ELIMIT where so many rows, of so many bytes together, would drive each other out. */
int cache_room(struct cache *cache, uint64_t bytes, uint64_t rows, char error[KERNEL_ERROR_MAX]);

/* ---- Upkeep (trim.c, read.c, heal.c), in pieces so short that lookups go between ---- */

/* Reads and verifies one piece of all rows, by keys: next is "" at first and moves on, until it is
 * "" again.  Moves bad rows to the quarantine and reports them. */
struct cache_verified {
	char next[KERNEL_KEY_HEX];
	int64_t checked, bad;
};
typedef void (*cache_bad)(const char *key, const char *why, void *arg);
int cache_verify(struct cache *cache, struct cache_verified *progress, cache_bad report, void *arg,
				 char error[KERNEL_ERROR_MAX]);

/* Chooses rows to remove, the least recently used first, until all rows that are left are at most
 * so many and of so many bytes.  Pinned rows stay. */
struct cache_trim {
	/* Only rows of these go; a part of the compiler's name will do.  NULL: all. */
	const char *op, *target, *compiler;
	int64_t used_before; /* only rows not used since, in seconds since 1970; 0: all */
	uint64_t bytes, rows;
	bool dry_run; /* removes nothing */
};
/* Zeroed at first; removed and freed add up. */
struct cache_trimmed {
	int64_t after; /* the turn of the last row that was looked at */
	int64_t removed;
	uint64_t freed;
	bool more;
};
/* Removes one piece of those rows, and at the end gives the room back to the file system, until
 * more is false.  visit (or NULL) sees the rows before they go. */
int cache_trim(struct cache *cache, const struct cache_trim *what, struct cache_trimmed *progress,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/* Pins a row, or unpins it; key becomes that of the row.  The cache never trims a pinned row; a pin
 * outlives a row that is damaged and compiled anew.  KILN_ENOENT; KILN_EINVAL: several keys begin
 * so; KILN_ELIMIT: more than half of a cap would be pinned. */
int cache_pin(struct cache *cache, const char *key_prefix, bool pinned, char key[KERNEL_KEY_HEX],
			  char error[KERNEL_ERROR_MAX]);
/* Does one short piece of upkeep: writes uses, trims for the caps, gives room back to the file
 * system, writes unsaved rows. */
void cache_tend(struct cache *cache);
/* Looks whether the files are still in place, and whether a disk that failed works again.  The
 * broker calls this every few seconds. */
void cache_look(struct cache *cache);

#ifdef KILN_TEST_HOOKS
/* Flips one bit of a row's object on disk and forgets it in memory. */
int cache_corrupt(struct cache *cache, const char *key_prefix, char error[KERNEL_ERROR_MAX]);
#endif
void cache_stats(struct cache *cache, struct cache_stats *out);

/* ---- Winners of tuning (tuned.c): a table beside the kernels; nothing is trimmed from it ---- */

#define CACHE_TUNED_MOST 16384 /* rows */
#define CACHE_MODEL_MAX 96

/* On this model of device, problems whose own plan has this instantiation run best by this choice.
 * The first three of (model, target, signature) are the row's key. */
struct cache_tuned {
	char op[24];
	char model[CACHE_MODEL_MAX]; /* "NVIDIA H200" */
	char target[KERNEL_TARGET_MAX];
	char signature[KERNEL_INSTANTIATION_MAX];
	char choice[KERNEL_CHOICE_MAX];
	double micros, own_micros; /* of the winner, and of the planner's own choice */
	int64_t candidates;        /* that were timed */
	int64_t when;              /* seconds since 1970 */
	char version[16];          /* of the Kiln that timed them */
};

typedef void (*cache_tuned_visit)(const struct cache_tuned *row, void *arg);
/* Visits all rows by operator, model and signature, without those that do not fit the structure. */
int cache_tuned_list(struct cache *cache, cache_tuned_visit visit, void *arg,
					 char error[KERNEL_ERROR_MAX]);
/* Stores a row in place of one with its key. */
int cache_tuned_put(struct cache *cache, const struct cache_tuned *row,
					char error[KERNEL_ERROR_MAX]);
/* Stores a row that was tuned elsewhere, unless the row with its key is as new. */
int cache_tuned_take(struct cache *cache, const struct cache_tuned *row, bool *taken,
					 char error[KERNEL_ERROR_MAX]);
/* Removes the row with this one's key; NULL: all of them.  Fine if there is none. */
int cache_tuned_remove(struct cache *cache, const struct cache_tuned *row,
					   char error[KERNEL_ERROR_MAX]);

/* ---- Failures (failures.c): compiles that ended badly, by the keys of their kernels ---- */

#define CACHE_FAILURES_MOST 512 /* the least recently asked for go first */

struct cache_failure {
	struct cache_row row; /* without entry and object */
	int status;
	char error[KERNEL_ERROR_MAX];
	int64_t until; /* seconds since 1970; 0: until it is forgotten on purpose */
};

/* Finds a failure whose time is not over, and counts the use; the caller frees it.  KILN_ENOENT:
 * there is none. */
int cache_failure_get(struct cache *cache, const char *key, struct cache_failure *out,
					  char error[KERNEL_ERROR_MAX]);
/* Stores a copy of a failure, on disk alone. */
int cache_failure_put(struct cache *cache, const struct cache_failure *failure,
					  char error[KERNEL_ERROR_MAX]);
/* Finds a failure by a prefix of its key, as cache_show() does. */
int cache_failure_show(struct cache *cache, const char *key_prefix, struct cache_failure *out,
					   char error[KERNEL_ERROR_MAX]);
/* Visits failures, the most recently asked for first, with no text but the instantiation. */
typedef void (*cache_failure_visit)(const struct cache_failure *failure, void *arg);
int cache_failure_list(struct cache *cache, int64_t limit, cache_failure_visit visit, void *arg,
					   char error[KERNEL_ERROR_MAX]);
/* Forgets one failure, or all of them for NULL.  KILN_ENOENT, KILN_EINVAL as cache_show(). */
int cache_failure_forget(struct cache *cache, const char *key_prefix, int64_t *removed,
						 char error[KERNEL_ERROR_MAX]);
/* Whether the time of the failure is over; so it is where the clock was set back to before it. */
bool cache_failure_is_over(const struct cache_failure *failure);
void cache_failure_free(struct cache_failure *failure);

/* Frees the texts and the object of a row, and zeroes it. */
void cache_row_free(struct cache_row *row);

/* Encodes a row as one blob with a checksum over all of it, as the database stores it, and decodes
 * it; the caller frees the blob and the row.  Encoding returns KILN_EINVAL, KILN_ELIMIT or
 * KILN_ENOMEM without a sentence.  Decoding trusts no length: KILN_EPROTO for bytes that were not
 * encoded here. */
int cache_row_encode(const struct cache_row *row, void **blob, size_t *bytes);
int cache_row_decode(const void *blob, size_t bytes, struct cache_row *out,
					 char error[KERNEL_ERROR_MAX]);

#endif
