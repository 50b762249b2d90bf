/*
 * store.c: the database as such: opening, schema, statements, transactions.  Knows nothing of what
 * a blob holds.
 *
 * Blobs have a table of their own, so that counting a use does not rewrite one.  The columns of
 * kernels repeat what the blob says, for lists and for choosing what to remove; the blob is the
 * truth.
 */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_MS 250 /* for somebody who looks inside with another program */

static const char schema[] =
	"CREATE TABLE kernels(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, op TEXT NOT NULL,"
	" target TEXT NOT NULL, instantiation TEXT NOT NULL, bytes INTEGER NOT NULL,"
	" registers INTEGER NOT NULL, shared INTEGER NOT NULL, spill INTEGER NOT NULL,"
	" local INTEGER NOT NULL, micros INTEGER NOT NULL, created INTEGER NOT NULL,"
	" used INTEGER NOT NULL, turn INTEGER NOT NULL, hits INTEGER NOT NULL) STRICT;"
	"CREATE TABLE objects(id INTEGER PRIMARY KEY, blob BLOB NOT NULL) STRICT;"
	"CREATE TABLE quarantine(id INTEGER PRIMARY KEY, key TEXT NOT NULL, reason TEXT NOT NULL,"
	" time INTEGER NOT NULL, blob BLOB) STRICT;";

#define LIST                                                                                 \
	"SELECT key, op, target, instantiation, bytes, registers, shared, spill, local, micros," \
	" created, used, hits FROM kernels ORDER BY "

static const char *const texts[STORE_STATEMENTS] = {
	[STORE_TOTALS] = "SELECT count(*), total(bytes), max(turn) FROM kernels",
	[STORE_GET] = "SELECT k.key, k.op, k.target, k.bytes, k.used, k.hits, o.blob FROM kernels k "
				  "LEFT JOIN objects o ON o.id = k.id WHERE k.key = ?1",
	[STORE_SIZE] = "SELECT bytes FROM kernels WHERE key = ?1",
	[STORE_PUT] = "INSERT INTO kernels(key, op, target, instantiation, bytes, registers, shared,"
				  " spill, local, micros, created, used, hits, turn)"
				  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
	[STORE_PUT_OBJECT] = "INSERT INTO objects(id, blob) VALUES(?1, ?2)",
	[STORE_FORGET_OBJECT] =
		"DELETE FROM objects WHERE id = (SELECT id FROM kernels WHERE key = ?1)",
	[STORE_FORGET] = "DELETE FROM kernels WHERE key = ?1",
	[STORE_SET_ASIDE] = "INSERT INTO quarantine(key, reason, time, blob) SELECT k.key, ?2, ?3,"
						" o.blob FROM kernels k LEFT JOIN objects o ON o.id = k.id"
						" WHERE k.key = ?1",
	[STORE_SET_ASIDE_BOUND] =
		"DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?1",
	[STORE_QUARANTINED] = "SELECT count(*) FROM quarantine",
	[STORE_USE] = "UPDATE kernels SET hits = hits + ?2, used = max(used, ?3), turn = ?4"
				  " WHERE key = ?1",
	/* Digits sort before 'g'. */
	[STORE_FIND] = "SELECT key FROM kernels WHERE key >= ?1 AND key < ?1 || 'g' LIMIT 2",
	[STORE_NEXT] = "SELECT key FROM kernels WHERE key > ?1 ORDER BY key LIMIT 1",
	[STORE_OLDEST] = "SELECT key, bytes FROM kernels ORDER BY used, turn LIMIT ?1",
	[STORE_OBJECT_ID] = "SELECT o.id, length(o.blob) FROM kernels k JOIN objects o ON o.id = k.id"
						" WHERE k.key = ?1",
	[STORE_BY_USED] = LIST "used DESC, turn DESC LIMIT ?1",
	[STORE_BY_HITS] = LIST "hits DESC, used DESC, turn DESC LIMIT ?1",
	[STORE_BY_BYTES] = LIST "bytes DESC, used DESC, turn DESC LIMIT ?1",
	[STORE_BY_CREATED] = LIST "created DESC, turn DESC LIMIT ?1",
};

int store_fail(struct store *store, const char *what, char error[KERNEL_ERROR_MAX])
{
	int code = sqlite3_errcode(store->db) & 0xff;
	int system = sqlite3_system_errno(store->db);
	bool file = code == SQLITE_IOERR || code == SQLITE_FULL || code == SQLITE_CANTOPEN;
	int status = code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? KILN_EPROTO
				 : code == SQLITE_NOMEM                          ? KILN_ENOMEM
																 : KILN_EIO;
	return util_fail(error, KERNEL_ERROR_MAX, status, "%s %.150s failed: %s%s%s%s", what,
					 store->path, sqlite3_errmsg(store->db), file && system ? " (" : "",
					 file && system ? strerror(system) : "", file && system ? ")" : "");
}

sqlite3_stmt *store_statement(struct store *store, enum store_statement which)
{
	sqlite3_stmt *statement = store->statements[which];
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	return statement;
}

int store_run(sqlite3_stmt *statement)
{
	int code = sqlite3_step(statement);
	sqlite3_reset(statement);
	return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
}

int store_begin(struct store *store, const char *what, char error[KERNEL_ERROR_MAX])
{
	if (sqlite3_exec(store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) {
		return store_fail(store, what, error);
	}
	return KILN_OK;
}

int store_end(struct store *store, int status, const char *what, char error[KERNEL_ERROR_MAX])
{
	if (status == KILN_OK) {
		if (sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK) {
			return KILN_OK;
		}
		status = store_fail(store, what, error);
	}
	/* A full disk may have rolled back already. */
	if (!sqlite3_get_autocommit(store->db)) {
		sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	}
	return status;
}

/* The first column of the first row of a question as an integer, or as text. */
static int ask(struct store *store, const char *question, int64_t *number, char *text, size_t size)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(store->db, question, -1, &statement, NULL);
	if (code == SQLITE_OK) {
		code = sqlite3_step(statement);
		if (code == SQLITE_ROW) {
			const char *answer = (const char *)sqlite3_column_text(statement, 0);
			snprintf(text, size, "%s", answer ? answer : "");
			*number = sqlite3_column_int64(statement, 0);
			code = SQLITE_OK;
		}
	}
	/* After an error the reset inside repeats it, so that store_fail still sees it. */
	sqlite3_finalize(statement);
	return code;
}

static int ask_number(struct store *store, const char *question, int64_t *number)
{
	char text[32];
	*number = 0;
	return ask(store, question, number, text, sizeof text);
}

static int create(struct store *store, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "creating";
	char mark[96];
	snprintf(mark, sizeof mark, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
			 STORE_APPLICATION, STORE_SCHEMA);
	/* Before the journal mode, which writes the first page. */
	if (sqlite3_exec(store->db, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL", NULL,
					 NULL, NULL) != SQLITE_OK) {
		return store_fail(store, what, error);
	}
	int status = store_begin(store, what, error);
	if (status != KILN_OK) {
		return status;
	}
	if (sqlite3_exec(store->db, schema, NULL, NULL, NULL) != SQLITE_OK ||
		sqlite3_exec(store->db, mark, NULL, NULL, NULL) != SQLITE_OK) {
		status = store_fail(store, what, error);
	}
	return store_end(store, status, what, error);
}

/* Whose database it is, and of which schema; an empty one becomes ours. */
static int identify(struct store *store, char error[KERNEL_ERROR_MAX])
{
	int64_t application, version, tables;
	if (ask_number(store, "PRAGMA application_id", &application) != SQLITE_OK ||
		ask_number(store, "PRAGMA user_version", &version) != SQLITE_OK ||
		ask_number(store, "SELECT count(*) FROM sqlite_schema", &tables) != SQLITE_OK) {
		return store_fail(store, "reading", error);
	}
	if (application == 0 && version == 0 && tables == 0) {
		return create(store, error);
	}
	if (application != STORE_APPLICATION) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "%.150s is the database of another program (application id %lld)",
						 store->path, (long long)application);
	}
	if (version > STORE_SCHEMA) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EVERSION,
						 "%.150s has schema %lld, and this kilnd knows schemas up to %d: use a "
						 "newer kilnd, or another --cache-dir",
						 store->path, (long long)version, STORE_SCHEMA);
	}
	if (version < STORE_SCHEMA) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "%.150s has an unknown schema, %lld",
						 store->path, (long long)version);
	}
	return KILN_OK;
}

static int configure(struct store *store, bool check, char error[KERNEL_ERROR_MAX])
{
	char answer[128] = "";
	int64_t number;
	if (ask(store, "PRAGMA journal_mode = WAL", &number, answer, sizeof answer) != SQLITE_OK ||
		sqlite3_exec(store->db,
					 "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = OFF;"
					 "PRAGMA journal_size_limit = 16777216; PRAGMA temp_store = MEMORY;"
					 "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF",
					 NULL, NULL, NULL) != SQLITE_OK) {
		return store_fail(store, "opening", error);
	}
	if (strcmp(answer, "wal") != 0) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "%.150s cannot have a write-ahead log, only journal mode %s: choose "
						 "another --cache-dir",
						 store->path, answer);
	}
	if (check) {
		if (ask(store, "PRAGMA quick_check(1)", &number, answer, sizeof answer) != SQLITE_OK) {
			return store_fail(store, "checking", error);
		}
		if (strcmp(answer, "ok") != 0) {
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "%.100s is damaged: %s",
							 store->path, answer);
		}
	}
	for (int i = 0; i < STORE_STATEMENTS; i++) {
		int code = sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
									  &store->statements[i], NULL);
		if (code != SQLITE_OK) {
			int status = store_fail(store, "opening", error);
			/* A table or a column is missing. */
			return code == SQLITE_ERROR ? KILN_EPROTO : status;
		}
	}
	return KILN_OK;
}

/* SQLite would make the file readable for all. */
static void make_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		close(fd);
	}
}

int store_open(const char *path, bool check, struct store **out, char error[KERNEL_ERROR_MAX])
{
	struct store *store = util_alloc(sizeof *store);
	snprintf(store->path, sizeof store->path, "%s", path);
	make_file(path);
	int status = KILN_OK;
	if (sqlite3_open_v2(path, &store->db,
						SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
						NULL) != SQLITE_OK) {
		status = store->db ? store_fail(store, "opening", error)
						   : util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
									   "opening %.150s failed: out of memory", path);
	} else if (sqlite3_db_readonly(store->db, "main") == 1) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						   "%.150s cannot be written: make it writable, or choose another "
						   "--cache-dir",
						   path);
	}
	if (status == KILN_OK) {
		sqlite3_busy_timeout(store->db, BUSY_MS);
		sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
		/* One process owns the directory: no shared memory is needed beside the log. */
		sqlite3_exec(store->db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
		status = identify(store, error);
	}
	if (status == KILN_OK) {
		status = configure(store, check, error);
	}
	if (status != KILN_OK) {
		store_close(store);
		return status;
	}
	*out = store;
	return KILN_OK;
}

void store_close(struct store *store)
{
	if (!store) {
		return;
	}
	for (int i = 0; i < STORE_STATEMENTS; i++) {
		sqlite3_finalize(store->statements[i]);
	}
	sqlite3_close(store->db);
	free(store);
}

int store_shrink(struct store *store, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "shrinking";
	int64_t before = INT64_MAX, left;
	for (;;) {
		if (ask_number(store, "PRAGMA freelist_count", &left) != SQLITE_OK) {
			return store_fail(store, what, error);
		}
		if (left == 0 || left >= before) {
			break;
		}
		before = left;
		/* In parts, so that the log stays small. */
		if (sqlite3_exec(store->db, "PRAGMA incremental_vacuum(8192)", NULL, NULL, NULL) !=
			SQLITE_OK) {
			return store_fail(store, what, error);
		}
	}
	if (sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK) {
		return store_fail(store, what, error);
	}
	return KILN_OK;
}
