/*
 * store.h: the open database, for store.c (schema, statements, transactions) and store_rows.c (what
 * is done with rows).  Nobody else includes it.
 */
#ifndef KILN_DAEMON_CACHE_STORE_H
#define KILN_DAEMON_CACHE_STORE_H

#include "internal.h"

#include <sqlite3.h>

enum store_statement {
	STORE_TOTALS,
	STORE_GET,
	STORE_SIZE,
	STORE_PUT,
	STORE_PUT_OBJECT,
	STORE_FORGET_OBJECT,
	STORE_FORGET,
	STORE_SET_ASIDE,
	STORE_SET_ASIDE_BOUND,
	STORE_QUARANTINED,
	STORE_USE,
	STORE_FIND,
	STORE_NEXT,
	STORE_OLDEST,
	STORE_OBJECT_ID,
	STORE_BY_USED,
	STORE_BY_HITS,
	STORE_BY_BYTES,
	STORE_BY_CREATED,
	STORE_STATEMENTS,
};

struct store {
	sqlite3 *db;
	char path[PATH_MAX + 16];
	sqlite3_stmt *statements[STORE_STATEMENTS];
};

/* A statement ready for binding.  Whoever steps it resets it. */
sqlite3_stmt *store_statement(struct store *store, enum store_statement which);
/* The sentence for the last error of the database; what: "reading a kernel". */
int store_fail(struct store *store, const char *what, char error[KERNEL_ERROR_MAX]);
/* Runs a bound statement that gives no rows, and resets it; an SQLite code. */
int store_run(sqlite3_stmt *statement);
int store_begin(struct store *store, const char *what, char error[KERNEL_ERROR_MAX]);
/* Commits if status is KILN_OK, else rolls back; returns how it ended. */
int store_end(struct store *store, int status, const char *what, char error[KERNEL_ERROR_MAX]);

#endif
