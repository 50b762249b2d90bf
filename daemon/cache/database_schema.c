/*
 * database_schema.c: the tables, and the upgrade of an older schema.
 *
 * Blobs have a table of their own, so that counting a use rewrites none.  The columns of kernels
 * repeat a part of the blob, for lists and for trimming; where they differ, the blob is the truth.
 * Pins are of keys: a pin outlives a damaged row.
 */
#include "database.h"

#include <errno.h>

/* The key's text begins within so many bytes of a blob, behind the header, a template-id and a
 * symbol. */
#define HEAD_BYTES 16384

/* Since schema 3. */
#define COLUMN_SIZE "size INTEGER NOT NULL DEFAULT 0"
#define COLUMN_COMPILER "compiler TEXT NOT NULL DEFAULT ''"
#define SINCE_3 ", " COLUMN_SIZE ", " COLUMN_COMPILER
/* A database of schema 2 may have the table of failures. */
#define TABLES_3                                                                                 \
	"CREATE TABLE pins(key TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"                             \
	"CREATE INDEX kernels_by_turn ON kernels(turn);"                                             \
	"CREATE TABLE IF NOT EXISTS failures(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,"      \
	" op TEXT NOT NULL, target TEXT NOT NULL, instantiation TEXT NOT NULL, error TEXT NOT NULL," \
	" status INTEGER NOT NULL, until INTEGER NOT NULL, created INTEGER NOT NULL,"                \
	" used INTEGER NOT NULL, hits INTEGER NOT NULL, blob BLOB NOT NULL) STRICT;"

static const char schema[] =
	"CREATE TABLE kernels(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, op TEXT NOT NULL,"
	" target TEXT NOT NULL, instantiation TEXT NOT NULL, bytes INTEGER NOT NULL,"
	" registers INTEGER NOT NULL, shared INTEGER NOT NULL, spill INTEGER NOT NULL,"
	" local INTEGER NOT NULL, micros INTEGER NOT NULL, created INTEGER NOT NULL,"
	" used INTEGER NOT NULL, turn INTEGER NOT NULL, hits INTEGER NOT NULL" SINCE_3 ") STRICT;"
	"CREATE TABLE objects(id INTEGER PRIMARY KEY, blob BLOB NOT NULL) STRICT;"
	"CREATE TABLE quarantine(id INTEGER PRIMARY KEY, key TEXT NOT NULL, reason TEXT NOT NULL,"
	" time INTEGER NOT NULL, blob BLOB) STRICT;"
	"CREATE TABLE tuned(model TEXT NOT NULL, target TEXT NOT NULL, signature TEXT NOT NULL,"
	" op TEXT NOT NULL, choice TEXT NOT NULL, micros REAL NOT NULL, own_micros REAL NOT NULL,"
	" candidates INTEGER NOT NULL, time INTEGER NOT NULL, version TEXT NOT NULL,"
	" PRIMARY KEY(model, target, signature)) STRICT, WITHOUT ROWID;" TABLES_3;

static int set_mark(struct cache_db *db)
{
	char text[96];
	snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %d;",
			 DB_APPLICATION, DB_SCHEMA);
	return sqlite3_exec(db->handle, text, NULL, NULL, NULL);
}

static int create(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "creating";
	/* Before the journal mode, which writes the first page. */
	if (sqlite3_exec(db->handle, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL",
					 NULL, NULL, NULL) != SQLITE_OK)
		return cache_db_fail(db, what, error);
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK)
		return status;
	if (sqlite3_exec(db->handle, schema, NULL, NULL, NULL) != SQLITE_OK ||
		set_mark(db) != SQLITE_OK)
		status = cache_db_fail(db, what, error);
	return cache_db_end(db, status, what, error);
}

/* ---- From schema 2 ---- */

/* Fills the new columns of a row: its size, and its compiler, which the key's text names near the
 * beginning of the blob. */
static int fill_row(struct cache_db *db, sqlite3_stmt *set, int64_t id)
{
	char head[HEAD_BYTES], compiler[CACHE_COMPILER_MAX];
	sqlite3_blob *blob = NULL;
	int code = sqlite3_blob_open(db->handle, "main", "objects", "blob", id, 0, &blob);
	int bytes = code == SQLITE_OK ? sqlite3_blob_bytes(blob) : 0;
	int part = bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
	if (code == SQLITE_OK)
		code = sqlite3_blob_read(blob, head, part, 0);
	sqlite3_blob_close(blob);
	if (code != SQLITE_OK)
		return code;
	cache_row_compiler(head, (size_t)part, compiler);
	sqlite3_bind_int64(set, 1, id);
	cache_db_bind_text(set, 2, compiler);
	sqlite3_bind_int64(set, 3, cache_db_cost((size_t)bytes));
	code = sqlite3_step(set);
	sqlite3_reset(set);
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

static const char upgrading[] = "upgrading";

static int fill_columns(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *rows = NULL, *set = NULL;
	int code = sqlite3_prepare_v2(db->handle, "SELECT id FROM objects", -1, &rows, NULL);
	if (code == SQLITE_OK) {
		code = sqlite3_prepare_v2(db->handle,
								  "UPDATE kernels SET compiler = ?2, size = ?3 WHERE id = ?1", -1,
								  &set, NULL);
	}
	while (code == SQLITE_OK && (code = sqlite3_step(rows)) == SQLITE_ROW)
		code = fill_row(db, set, sqlite3_column_int64(rows, 0));
	int status = KILN_OK;
	if ((code & 0xff) == SQLITE_CORRUPT && errno != EIO)
		status = FAIL(KILN_EPROTO, "%.150s is damaged", db->path);
	else if (code != SQLITE_DONE)
		status = cache_db_refuse(db, upgrading, error);
	sqlite3_finalize(set);
	sqlite3_finalize(rows);
	return status;
}

static int upgrade(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	static const char *const columns[] = {COLUMN_SIZE, COLUMN_COMPILER};
	int status = cache_db_begin(db, upgrading, error);
	if (status != KILN_OK)
		return status;
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns) && status == KILN_OK; i++) {
		char text[128];
		snprintf(text, sizeof(text), "ALTER TABLE kernels ADD COLUMN %s", columns[i]);
		if (sqlite3_exec(db->handle, text, NULL, NULL, NULL) != SQLITE_OK)
			status = cache_db_refuse(db, upgrading, error);
	}
	if (status == KILN_OK && sqlite3_exec(db->handle, TABLES_3, NULL, NULL, NULL) != SQLITE_OK)
		status = cache_db_refuse(db, upgrading, error);
	if (status == KILN_OK)
		status = fill_columns(db, error);
	if (status == KILN_OK && set_mark(db) != SQLITE_OK)
		status = cache_db_fail(db, upgrading, error);
	status = cache_db_end(db, status, upgrading, error);
	if (status == KILN_OK)
		util_log(UTIL_INFO, "cache: %s was upgraded from schema 2 to %d", db->path, DB_SCHEMA);
	return status;
}

int cache_db_identify(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	int64_t application, version, tables;
	if (cache_db_ask(db, "PRAGMA application_id", &application) != SQLITE_OK ||
		cache_db_ask(db, "PRAGMA user_version", &version) != SQLITE_OK ||
		cache_db_ask(db, "SELECT count(*) FROM sqlite_schema", &tables) != SQLITE_OK)
		return cache_db_fail(db, "reading", error);
	if (application == 0 && version == 0 && tables == 0)
		return create(db, error);
	if (application != DB_APPLICATION) {
		return FAIL(KILN_EPROTO, "%.150s is the database of another program (application id %lld)",
					db->path, (long long)application);
	}
	if (version > DB_SCHEMA) {
		return FAIL(KILN_EVERSION,
					"%.150s has schema %lld, and this kilnd knows schemas up to %d: use a newer "
					"kilnd, or another --cache-dir",
					db->path, (long long)version, DB_SCHEMA);
	}
	if (version == DB_SCHEMA)
		return KILN_OK;
	if (version == 2)
		return upgrade(db, error);
	return FAIL(KILN_EPROTO, "%.150s has an unknown schema, %lld", db->path, (long long)version);
}
