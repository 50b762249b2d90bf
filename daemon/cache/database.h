/*
 * database.h: the open database, for database.c (statements, transactions), database_schema.c
 * (what is in it), database_rows.c (what is done with a row), database_list.c (with many of them),
 * tuned.c (the winners of tuning) and failures.c.  Nobody else includes it.
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
	bool disk_failed; /* since it was last asked */
	/* Which files are open; zeroes: the system has not said yet. */
	struct db_file {
		dev_t device;
		ino_t inode;
	} file, log;
	sqlite3_stmt *statements[DB_STATEMENTS];
};

/* A statement ready for binding.  Whoever steps it resets it. */
sqlite3_stmt *cache_db_statement(struct cache_db *db, enum cache_db_statement which);
/* The sentence for the last error of the database; what: "reading a kernel". */
int cache_db_fail(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* The same where a table or a column may be missing, or there already: it is not ours. */
int cache_db_refuse(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* Parameter and column as texts; what does not fit is cut. */
void cache_db_bind_text(sqlite3_stmt *statement, int index, const char *text);
void cache_db_column_text(sqlite3_stmt *statement, int column, char *out, size_t size);
/* Forgets a row; an SQLite code. */
int cache_db_forget(struct cache_db *db, const char *key);
/* A sum that SQLite made, as a number that cannot be negative. */
uint64_t cache_db_column_sum(sqlite3_stmt *statement, int column);
/* A column that counts: one that is negative, or so large that one more is none, is damaged. */
int64_t cache_db_column_count(sqlite3_stmt *statement, int column);
/* The first column of the first row of a question as an integer; an SQLite code. */
int cache_db_ask(struct cache_db *db, const char *question, int64_t *number);
/* Whose database it is, and of which schema; an empty one becomes ours, an older one is brought up
 * to date (database_schema.c). */
int cache_db_identify(struct cache_db *db, char error[KERNEL_ERROR_MAX]);
/* Runs a bound statement that gives no rows, and resets it; an SQLite code. */
int cache_db_run(sqlite3_stmt *statement);
int cache_db_begin(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX]);
/* Commits if status is KILN_OK, else rolls back; returns how it ended. */
int cache_db_end(struct cache_db *db, int status, const char *what, char error[KERNEL_ERROR_MAX]);

#endif
