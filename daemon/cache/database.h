/*
 * database.h: the open database, for database.c (statements, transactions), database_schema.c (the
 * tables), database_rows.c (one row), database_list.c (many rows), tuned.c and failures.c.  No
 * other file includes it.
 */
#ifndef KILN_DAEMON_CACHE_DATABASE_H
#define KILN_DAEMON_CACHE_DATABASE_H

#include "internal.h"

#include <sqlite3.h>
#include <sys/types.h>

enum cache_db_statement {
	DB_TOTALS,
	DB_GET,
	DB_SIZE,
	DB_PUT,
	DB_PUT_OBJECT,
	DB_FORGET_OBJECT,
	DB_FORGET,
	DB_SET_ASIDE,
	DB_SET_ASIDE_BOUND,
	DB_QUARANTINED,
	DB_RELEASE,
	DB_USE,
	DB_FIND,
	DB_NEXT,
	DB_VICTIMS,
	DB_OBJECT_ID,
	DB_BY_USED,
	DB_BY_HITS,
	DB_BY_BYTES,
	DB_BY_CREATED,
	DB_BY_KEY,
	DB_FIND_PIN,
	DB_PIN,
	DB_UNPIN,
	DB_PINNED,
	DB_TUNED_LIST,
	DB_TUNED_PUT,
	DB_TUNED_NEWER,
	DB_TUNED_REMOVE,
	DB_TUNED_CLEAR,
	DB_FAILED_GET,
	DB_FAILED_PUT,
	DB_FAILED_BOUND,
	DB_FAILED_USE,
	DB_FAILED_FIND,
	DB_FAILED_LIST,
	DB_FAILED_COUNT,
	DB_FAILED_REMOVE,
	DB_FAILED_CLEAR,
	DB_FAILED_EXPIRE,
	DB_STATEMENTS,
};

struct cache_db {
	sqlite3 *handle;
	char path[PATH_MAX + 16];
	bool disk_failed; /* see cache_db_disk_failed() */
	/* The files that are open; zeroes: the system has not said yet. */
	struct db_file {
		dev_t device;
		ino_t inode;
	} file, log;
	sqlite3_stmt *statements[DB_STATEMENTS];
};

/* Returns a statement ready for binding; db owns it. */
sqlite3_stmt *cache_db_statement(struct cache_db *db, enum cache_db_statement which);
/* Steps a bound statement to its next row.  KILN_OK: there is one, and the caller steps on or
 * resets the statement; KILN_ENOENT: there is none, without a sentence; else as cache_db_fail(). */
int cache_db_step(struct cache_db *db, sqlite3_stmt *statement, const char *what,
				  char error[KERNEL_ERROR_MAX]);
/* Runs a bound statement that gives no rows, and resets it. */
int cache_db_run(struct cache_db *db, sqlite3_stmt *statement, const char *what,
				 char error[KERNEL_ERROR_MAX]);
/* Writes the sentence for the database's last error, and returns its status.  what: "reading a
 * kernel from". */
int cache_db_fail(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* Does the same where a statement may fail because the database is not ours: KILN_EPROTO then. */
int cache_db_refuse(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* Binds a text, which must live until the statement is run, as a parameter; NULL is "".  Reads a
 * column as a text, which is cut where it does not fit. */
void cache_db_bind_text(sqlite3_stmt *statement, int index, const char *text);
void cache_db_column_text(sqlite3_stmt *statement, int column, char *out, size_t size);
/* Reads a statement that counts: its row has a number and a sum. */
int cache_db_count(struct cache_db *db, enum cache_db_statement which, const char *what,
				   uint64_t *count, uint64_t *sum, char error[KERNEL_ERROR_MAX]);
/* Removes a row with its blob, within the caller's transaction. */
int cache_db_forget(struct cache_db *db, const char *key, const char *what,
					char error[KERNEL_ERROR_MAX]);
/* Takes a row, of so many bytes of object and in all, out of the totals. */
void cache_db_count_gone(struct cache_db_totals *totals, int64_t bytes, int64_t size);
/* Reads a column that counts; a value that is negative, or too large to count on, is damaged and
 * brought into range. */
int64_t cache_db_column_count(sqlite3_stmt *statement, int column);
/* Asks a question; number becomes the first column of its first row.  Returns an SQLite code. */
int cache_db_ask(struct cache_db *db, const char *question, int64_t *number);
/* Checks whose database it is, and its schema; makes an empty one ours, and upgrades an older one
 * (database_schema.c). */
int cache_db_identify(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
int cache_db_begin(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* Commits where status is KILN_OK, else rolls back; returns status, or that of the commit. */
int cache_db_end(struct cache_db *db, int status, const char *what, char error[KERNEL_ERROR_MAX]);

#endif
