/*
 * cache: compiled objects by key, in memory over SQLite on local disk.
 *
 * Every read verifies the object's checksum; a bad row is set aside (table quarantine) and reads as
 * a miss.  Survives kill -9 at any moment (WAL).  One process owns the directory (a lock file with
 * the owner's pid).  All functions may be called from one thread at a time; they may block on the
 * disk, so the broker calls them from a worker thread of its loop.
 */
#ifndef KILN_DAEMON_CACHE_H
#define KILN_DAEMON_CACHE_H

#include "daemon/plan/kernel.h"

struct cache;

#define CACHE_COMPILER_MAX 96

/* One compiled kernel.  The row owns what its pointers name (cache_row_free). */
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
	/* The database knows these besides; cache_put() finds them out by itself. */
	char compiler[CACHE_COMPILER_MAX]; /* that key_text names; "" if it names none */
	uint64_t size;                     /* what the row takes on disk: object, texts and columns */
	bool pinned;
	bool in_memory; /* of cache_get: where it was found */
};

struct cache_options {
	const char *directory; /* made 0700 if missing */
	/* The caps: bytes of rows with objects and texts, and their number.  When one is passed, the
	 * least recently used rows go, down to 90 %. 0: no cap. */
	uint64_t cap_bytes, cap_rows;
	uint64_t memory_bytes; /* of objects kept in memory.  0: none */
	bool faults;           /* a test may break its disk: disk_fault.h */
};

struct cache_stats {
	uint64_t rows, object_bytes, disk_bytes, memory_rows, memory_bytes, quarantined, trimmed,
		write_failures, failures;
	uint64_t bytes;   /* that the cap counts: of rows, those in quarantine, and failures */
	uint64_t pinned;  /* keys */
	uint64_t waiting; /* uses that are not on disk yet */
	uint64_t unsaved; /* rows in memory that the disk does not have */
	uint64_t aside, aside_bytes;    /* databases that were set aside */
	char trouble[KERNEL_ERROR_MAX]; /* what is wrong with the disk, and what helps; "" */
	bool due;                       /* cache_tend() has something to do */
	/* Databases that were damaged or not ours, since it was opened; the sentence of the last. */
	uint64_t set_aside;
	char damage[KERNEL_ERROR_MAX];
};

/*
 * Opens or makes the cache.  A database of an older schema is upgraded; one that is damaged or not
 * ours is moved aside (kiln.db.bad-N) and a new one begun; a newer schema is refused.  Refuses
 * network file systems, a directory of another user, one writable by others, and one already in use
 * (with the owner's pid).  A disk that is full, read-only or broken and a database that another
 * program has locked are no reason to fail: memory serves alone until that ends.
 */
int cache_open(const struct cache_options *options, struct cache **out,
			   char error[KERNEL_ERROR_MAX]);
void cache_close(struct cache *cache);

/*
 * Finds and verifies a row with its object; counts the hit.  KILN_OK; KILN_ENOENT (a miss, also for
 * a bad row, which then is in the quarantine); KILN_EIO, KILN_ENOMEM with a sentence.
 */
int cache_get(struct cache *cache, const char *key, struct cache_row *out,
			  char error[KERNEL_ERROR_MAX]);
/*
 * Stores a row (replacing one with its key), first in memory, then on disk in one transaction.  A
 * disk that is full or read-only: KILN_EIO with a sentence; the row is still served from memory,
 * and written when the disk allows.
 */
int cache_put(struct cache *cache, const struct cache_row *row, char error[KERNEL_ERROR_MAX]);
/* Without the object's bytes and without counting; key may be a unique prefix of at least 4 digits.
 * ENOENT, EINVAL if ambiguous. */
int cache_show(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX]);

/* Whether there is a row with this key, without reading it.  KILN_OK, KILN_ENOENT, KILN_EIO. */
int cache_has(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX]);

/* Rows without texts and objects.  sort: "used", "hits", "bytes", "created" (all descending), or
 * "key" (ascending, those after the key that is given, "" for the first); NULL: used. */
typedef void (*cache_visit)(const struct cache_row *row, void *arg);
int cache_list(struct cache *cache, const char *sort, const char *after, int64_t limit,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/* As cache_get, but key may be a unique prefix, and it is no use of the row. */
int cache_peek(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX]);
#ifdef KILN_TEST_HOOKS
/* Forgets what memory holds: the next read goes to the disk. */
void cache_drop_memory(struct cache *cache);
#endif

/* ---- Rows from elsewhere: packs (pack.h) and the like ---- */

/* Whether its key is the hash of its key's text. */
bool cache_row_key_fits(const struct cache_row *row);
/* Stores a row with its bytes, which were decoded and checked, on disk, unless there is one with
 * its key.  As cache_put, but memory does not get it. */
int cache_take(struct cache *cache, const struct cache_row *row, const void *blob, size_t bytes,
			   bool *was_there, char error[KERNEL_ERROR_MAX]);
/* Removes one; fine if it is not there. */
int cache_remove(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX]);
/* Brings what was written to where it stays, which makes room in the log of the database. */
void cache_flush(struct cache *cache);
/* KILN_ELIMIT with a sentence where so many rows, of so many bytes together, would drive each other
 * out. */
int cache_room(struct cache *cache, uint64_t bytes, uint64_t rows, char error[KERNEL_ERROR_MAX]);

/* ---- Upkeep (trim.c, read.c, heal.c), in pieces so short that lookups go between ---- */

/* One piece of reading every row: those with keys after next ("" at first), which is moved on, and
 * "" again at the end.  Bad rows go to the quarantine and are reported. */
struct cache_verified {
	char next[KERNEL_KEY_HEX];
	int64_t checked, bad;
};
typedef void (*cache_bad)(const char *key, const char *why, void *arg);
int cache_verify(struct cache *cache, struct cache_verified *progress, cache_bad report, void *arg,
				 char error[KERNEL_ERROR_MAX]);

/* Which rows go, the least recently used first, until at most bytes and rows are left (of all rows,
 * also of those that may not go).  Pinned rows stay. */
struct cache_trim {
	const char *op, *target, *compiler; /* only these; a part of the compiler's name will do.  NULL:
										   all */
	int64_t used_before; /* only those not used since, in seconds since 1970.  0: all */
	uint64_t bytes, rows;
	bool dry_run; /* removes nothing */
};
/* Zeroed at first; removed and freed add up. */
struct cache_trimmed {
	int64_t after; /* where the next piece goes on */
	int64_t removed;
	uint64_t freed;
	bool more;
};
/* One piece of trimming, and at the end of giving the room back to the file system.  visit (or
 * NULL) sees the rows of the piece before they go. */
int cache_trim(struct cache *cache, const struct cache_trim *what, struct cache_trimmed *progress,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX]);
/*
 * A pinned row is never trimmed, and is pinned again when it was damaged and compiled anew.  key:
 * of the one that was found.  KILN_ENOENT; KILN_EINVAL if ambiguous; KILN_ELIMIT where more than
 * half of a cap would be pinned.
 */
int cache_pin(struct cache *cache, const char *key_prefix, bool pinned, char key[KERNEL_KEY_HEX],
			  char error[KERNEL_ERROR_MAX]);
/* Does a short piece of what no call should wait for: writes uses, trims for the caps, gives
 * room back to the file system. */
void cache_tend(struct cache *cache);
/* Every few seconds: looks whether its files are still where they were, and whether a disk that
 * failed can be written again. */
void cache_look(struct cache *cache);

#ifdef KILN_TEST_HOOKS
/* Flips one bit of a row's object on disk and forgets it in memory. */
int cache_corrupt(struct cache *cache, const char *key_prefix, char error[KERNEL_ERROR_MAX]);
#endif
void cache_stats(struct cache *cache, struct cache_stats *out);

/* ---- Winners of tuning (tuned.c): a table beside the kernels; nothing is trimmed from it ---- */

#define CACHE_TUNED_MOST 16384 /* rows */
#define CACHE_MODEL_MAX 96

/*
 * On this model of device, problems whose own plan has this instantiation run best by this choice.
 * Found by (model, target, signature).
 */
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
/* All rows, by operator, model and signature.  A row that does not fit into the structure is passed
 * over. */
int cache_tuned_list(struct cache *cache, cache_tuned_visit visit, void *arg,
					 char error[KERNEL_ERROR_MAX]);
/* Stores a row, in place of the one that is found in the same way. */
int cache_tuned_put(struct cache *cache, const struct cache_tuned *row,
					char error[KERNEL_ERROR_MAX]);
/* Removes the row that is found as this one is; NULL: all of them.  Fine if there is none. */
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

/* Finds one whose time is not over, and counts the use.  KILN_OK; KILN_ENOENT; else a sentence. */
int cache_failure_get(struct cache *cache, const char *key, struct cache_failure *out,
					  char error[KERNEL_ERROR_MAX]);
/* Stores one, on disk only. */
int cache_failure_put(struct cache *cache, const struct cache_failure *failure,
					  char error[KERNEL_ERROR_MAX]);
/* As cache_show. */
int cache_failure_show(struct cache *cache, const char *key_prefix, struct cache_failure *out,
					   char error[KERNEL_ERROR_MAX]);
/* The most recently asked for first; of the texts only the instantiation. */
typedef void (*cache_failure_visit)(const struct cache_failure *failure, void *arg);
int cache_failure_list(struct cache *cache, int64_t limit, cache_failure_visit visit, void *arg,
					   char error[KERNEL_ERROR_MAX]);
/* Forgets one, or with NULL all of them.  ENOENT, EINVAL as cache_show. */
int cache_failure_forget(struct cache *cache, const char *key_prefix, int64_t *removed,
						 char error[KERNEL_ERROR_MAX]);
/* Its time is over, or the clock was set back to before it: then nobody knows when that is. */
bool cache_failure_is_over(const struct cache_failure *failure);
void cache_failure_free(struct cache_failure *failure);

/* Frees what a row points to and zeroes it. */
void cache_row_free(struct cache_row *row);

/*
 * The bytes of a row as one blob with a checksum over all of it, which is what the database stores;
 * and back. Decoding never trusts a length: KILN_EPROTO with a sentence for anything that was not
 * encoded here.
 */
int cache_row_encode(const struct cache_row *row, void **blob, size_t *bytes);
int cache_row_decode(const void *blob, size_t bytes, struct cache_row *out,
					 char error[KERNEL_ERROR_MAX]);

#endif
