/* database_rows.c: reads, writes and removes rows.  Knows of a blob's content only the columns that
 * repeat it. */
#include "database.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096
#define COLUMN_BYTES 512               /* the columns of a row and its entries in two indices */
#define NUMBER_MOST ((int64_t)1 << 62) /* larger than any number that the cache writes */

void cache_db_bind_text(sqlite3_stmt *statement, int index, const char *text)
{
	sqlite3_bind_text(statement, index, text ? text : "", -1, SQLITE_STATIC);
}

void cache_db_column_text(sqlite3_stmt *statement, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	snprintf(out, size, "%s", text ? text : "");
}

/* Reads a sum of SQLite; a negative one is 0. */
static uint64_t cache_db_column_sum(sqlite3_stmt *statement, int column)
{
	double sum = sqlite3_column_double(statement, column);
	return sum >= (double)NUMBER_MOST ? (uint64_t)NUMBER_MOST : sum > 0 ? (uint64_t)sum : 0;
}

int64_t cache_db_column_count(sqlite3_stmt *statement, int column)
{
	int64_t count = sqlite3_column_int64(statement, column);
	return count < 0 ? 0 : count > NUMBER_MOST ? NUMBER_MOST : count;
}

int64_t cache_db_cost(size_t blob_bytes)
{
	return COLUMN_BYTES + (int64_t)((blob_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

int cache_db_totals(struct cache_db *db, struct cache_db_totals *out, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_TOTALS);
	int status = cache_db_step(db, statement, "counting in", error);
	if (status != KILN_OK)
		return status;
	out->rows = (uint64_t)sqlite3_column_int64(statement, 0);
	out->objects = cache_db_column_sum(statement, 1);
	out->bytes = cache_db_column_sum(statement, 2);
	out->turn = sqlite3_column_int64(statement, 3);
	out->quarantine = cache_db_column_sum(statement, 4);
	out->pinned = (uint64_t)sqlite3_column_int64(statement, 5);
	sqlite3_reset(statement);
	if (out->turn < 0 || out->turn >= NUMBER_MOST) {
		return FAIL(KILN_EPROTO, "%.150s is damaged: it counts %lld uses", db->path,
					(long long)out->turn);
	}
	return KILN_OK;
}

static int copy_blob(sqlite3_stmt *statement, int column, void **blob, size_t *bytes)
{
	const void *data = sqlite3_column_blob(statement, column);
	int size = sqlite3_column_bytes(statement, column);
	/* SQLite returns NULL for a blob that it has no memory for, and for an empty one. */
	if (!data && sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM)
		return KILN_ENOMEM;
	*blob = malloc(size > 0 ? (size_t)size : 1);
	if (!*blob)
		return KILN_ENOMEM;
	if (size > 0)
		memcpy(*blob, data, (size_t)size);
	*bytes = size > 0 ? (size_t)size : 0;
	return KILN_OK;
}

int cache_db_get(struct cache_db *db, const char *key, struct cache_db_index *index, void **blob,
				 size_t *bytes, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_GET);
	cache_db_bind_text(statement, 1, key);
	int status = cache_db_step(db, statement, "reading a kernel from", error);
	if (status == KILN_ENOENT)
		return FAIL(status, "no kernel %s in the cache", key);
	if (status != KILN_OK)
		return status;
	if (copy_blob(statement, 9, blob, bytes) != KILN_OK) {
		status = FAIL(KILN_ENOMEM, "out of memory for the cached kernel %s", key);
	} else {
		cache_db_column_text(statement, 0, index->key, sizeof(index->key));
		cache_db_column_text(statement, 1, index->op, sizeof(index->op));
		cache_db_column_text(statement, 2, index->target, sizeof(index->target));
		cache_db_column_text(statement, 3, index->compiler, sizeof(index->compiler));
		index->bytes = sqlite3_column_int64(statement, 4);
		index->size = sqlite3_column_int64(statement, 5);
		index->used = cache_db_column_count(statement, 6);
		index->hits = cache_db_column_count(statement, 7);
		index->pinned = sqlite3_column_int(statement, 8);
	}
	sqlite3_reset(statement);
	return status;
}

/* Runs a statement whose parameter is the key. */
static int run_key(struct cache_db *db, enum cache_db_statement which, const char *key,
				   const char *what, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, which);
	cache_db_bind_text(statement, 1, key);
	return cache_db_run(db, statement, what, error);
}

int cache_db_forget(struct cache_db *db, const char *key, const char *what,
					char error[KERNEL_ERROR_MAX])
{
	int status = run_key(db, DB_FORGET_OBJECT, key, what, error);
	return status == KILN_OK ? run_key(db, DB_FORGET, key, what, error) : status;
}

static int insert_row(struct cache_db *db, const struct cache_row *row, const void *blob,
					  size_t bytes, int64_t turn, const char *what, char error[KERNEL_ERROR_MAX])
{
	const int64_t numbers[] = {
		(int64_t)row->object_bytes,
		row->registers,
		row->shared_bytes,
		row->spill_bytes,
		row->local_bytes,
		row->compile_micros,
		row->created,
		row->used,
		row->hits,
		turn,
		cache_db_cost(bytes),
	};
	char compiler[CACHE_COMPILER_MAX];
	cache_row_compiler(row->key_text ? row->key_text : "",
					   row->key_text ? strlen(row->key_text) : 0, compiler);
	sqlite3_stmt *statement = cache_db_statement(db, DB_PUT);
	cache_db_bind_text(statement, 1, row->key);
	cache_db_bind_text(statement, 2, row->op);
	cache_db_bind_text(statement, 3, row->target);
	cache_db_bind_text(statement, 4, row->instantiation);
	cache_db_bind_text(statement, 5, compiler);
	for (int i = 0; i < (int)(sizeof(numbers) / sizeof(numbers[0])); i++)
		sqlite3_bind_int64(statement, 6 + i, numbers[i]);
	int status = cache_db_run(db, statement, what, error);
	if (status == KILN_OK) {
		statement = cache_db_statement(db, DB_PUT_OBJECT);
		sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(db->handle));
		sqlite3_bind_blob64(statement, 2, blob, bytes, SQLITE_STATIC);
		status = cache_db_run(db, statement, what, error);
	}
	/* The key was removed before: the index and the table say two things. */
	bool contradicts =
		status != KILN_OK && (sqlite3_errcode(db->handle) & 0xff) == SQLITE_CONSTRAINT;
	return contradicts ? KILN_EPROTO : status;
}

static void take_away(uint64_t *from, int64_t bytes)
{
	uint64_t gone = bytes > 0 ? (uint64_t)bytes : 0;
	*from -= gone < *from ? gone : *from;
}

void cache_db_count_gone(struct cache_db_totals *totals, int64_t bytes, int64_t size)
{
	totals->rows -= totals->rows > 0;
	take_away(&totals->objects, bytes);
	take_away(&totals->bytes, size);
}

/* Removes the row with the key, if there is one, from the tables and from totals. */
static int remove_row(struct cache_db *db, const char *key, struct cache_db_totals *totals,
					  const char *what, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_SIZE);
	cache_db_bind_text(statement, 1, key);
	int status = cache_db_step(db, statement, what, error);
	if (status != KILN_OK)
		return status == KILN_ENOENT ? KILN_OK : status;
	cache_db_count_gone(totals, sqlite3_column_int64(statement, 0),
						sqlite3_column_int64(statement, 1));
	sqlite3_reset(statement);
	return cache_db_forget(db, key, what, error);
}

int cache_db_has(struct cache_db *db, const char *key, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_SIZE);
	cache_db_bind_text(statement, 1, key);
	int status = cache_db_step(db, statement, "reading a kernel from", error);
	sqlite3_reset(statement);
	if (status == KILN_ENOENT)
		FAIL(status, "no kernel %s in the cache", key);
	return status;
}

int cache_db_put(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				 struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "writing a kernel to";
	struct cache_db_totals after = *totals;
	int status = cache_db_begin(db, what, error);
	if (status == KILN_OK)
		status = remove_row(db, row->key, &after, what, error);
	if (status == KILN_OK)
		status = insert_row(db, row, blob, bytes, ++after.turn, what, error);
	status = cache_db_end(db, status, what, error);
	if (status == KILN_OK) {
		*totals = after;
		totals->rows++;
		totals->objects += row->object_bytes;
		totals->bytes += (uint64_t)cache_db_cost(bytes);
	}
	return status;
}

void cache_db_flush(struct cache_db *db)
{
	sqlite3_exec(db->handle, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
}

int cache_db_remove(struct cache_db *db, const char *key, struct cache_db_totals *totals,
					char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "removing a kernel from";
	struct cache_db_totals after = *totals;
	int status = cache_db_begin(db, what, error);
	if (status == KILN_OK)
		status = remove_row(db, key, &after, what, error);
	status = cache_db_end(db, status, what, error);
	if (status == KILN_OK)
		*totals = after;
	return status;
}

int cache_db_quarantine(struct cache_db *db, const char *key, const char *why,
						struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "setting a damaged kernel aside in";
	struct cache_db_totals after = *totals;
	uint64_t count;
	int status = cache_db_begin(db, what, error);
	if (status == KILN_OK) {
		sqlite3_stmt *statement = cache_db_statement(db, DB_SET_ASIDE);
		cache_db_bind_text(statement, 1, key);
		cache_db_bind_text(statement, 2, why);
		sqlite3_bind_int64(statement, 3, util_wall_s());
		status = cache_db_run(db, statement, what, error);
	}
	if (status == KILN_OK)
		status = remove_row(db, key, &after, what, error);
	if (status == KILN_OK) {
		sqlite3_stmt *statement = cache_db_statement(db, DB_SET_ASIDE_BOUND);
		sqlite3_bind_int64(statement, 1, DB_QUARANTINE);
		status = cache_db_run(db, statement, what, error);
	}
	status = cache_db_end(db, status, what, error);
	if (status != KILN_OK)
		return status;
	*totals = after;
	return cache_db_quarantined(db, &count, &totals->quarantine, error);
}

int cache_db_count(struct cache_db *db, enum cache_db_statement which, const char *what,
				   uint64_t *count, uint64_t *sum, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, which);
	int status = cache_db_step(db, statement, what, error);
	if (status == KILN_OK) {
		*count = (uint64_t)sqlite3_column_int64(statement, 0);
		*sum = cache_db_column_sum(statement, 1);
		sqlite3_reset(statement);
	}
	return status;
}

int cache_db_quarantined(struct cache_db *db, uint64_t *count, uint64_t *bytes,
						 char error[KERNEL_ERROR_MAX])
{
	return cache_db_count(db, DB_QUARANTINED, "counting in", count, bytes, error);
}

int cache_db_uses(struct cache_db *db, const struct cache_db_use *uses, int count,
				  char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "counting uses in";
	int status = cache_db_begin(db, what, error);
	for (int i = 0; i < count && status == KILN_OK; i++) {
		sqlite3_stmt *statement = cache_db_statement(db, DB_USE);
		cache_db_bind_text(statement, 1, uses[i].key);
		sqlite3_bind_int64(statement, 2, uses[i].hits);
		sqlite3_bind_int64(statement, 3, uses[i].used);
		sqlite3_bind_int64(statement, 4, uses[i].turn);
		status = cache_db_run(db, statement, what, error);
	}
	return cache_db_end(db, status, what, error);
}

int cache_db_release(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	return cache_db_run(db, cache_db_statement(db, DB_RELEASE), "emptying the quarantine of",
						error);
}

int cache_db_find(struct cache_db *db, enum cache_db_table table, const char *prefix,
				  char keys[2][KERNEL_KEY_HEX], int *count, char error[KERNEL_ERROR_MAX])
{
	static const struct {
		enum cache_db_statement statement;
		const char *what;
	} tables[] = {
		[DB_KERNELS] = {DB_FIND, "looking for a kernel in"},
		[DB_PINS] = {DB_FIND_PIN, "looking for a kernel in"},
		[DB_FAILURES] = {DB_FAILED_FIND, "looking for a failure in"},
	};
	sqlite3_stmt *statement = cache_db_statement(db, tables[table].statement);
	int status;
	*count = 0;
	cache_db_bind_text(statement, 1, prefix);
	while ((status = cache_db_step(db, statement, tables[table].what, error)) == KILN_OK)
		cache_db_column_text(statement, 0, keys[(*count)++], KERNEL_KEY_HEX);
	return status == KILN_ENOENT ? KILN_OK : status;
}

int cache_db_next(struct cache_db *db, const char *after, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_NEXT);
	cache_db_bind_text(statement, 1, after);
	int status = cache_db_step(db, statement, "reading", error);
	if (status == KILN_OK)
		cache_db_column_text(statement, 0, key, KERNEL_KEY_HEX);
	sqlite3_reset(statement);
	return status;
}

#ifdef KILN_TEST_HOOKS
int cache_db_flip(struct cache_db *db, const char *key, int64_t from_end,
				  char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "damaging a kernel in";
	sqlite3_stmt *statement = cache_db_statement(db, DB_OBJECT_ID);
	sqlite3_blob *blob = NULL;
	unsigned char byte;
	int status = KILN_OK;
	cache_db_bind_text(statement, 1, key);
	int code = sqlite3_step(statement);
	sqlite3_int64 id = sqlite3_column_int64(statement, 0);
	int at = (int)(sqlite3_column_int64(statement, 1) - 1 - from_end);
	sqlite3_reset(statement);
	if (code == SQLITE_DONE)
		return FAIL(KILN_ENOENT, "no kernel %s in the cache", key);
	if (code != SQLITE_ROW ||
		sqlite3_blob_open(db->handle, "main", "objects", "blob", id, 1, &blob) != SQLITE_OK ||
		sqlite3_blob_read(blob, &byte, 1, at) != SQLITE_OK) {
		status = cache_db_fail(db, what, error);
	} else {
		byte ^= 1;
		if (sqlite3_blob_write(blob, &byte, 1, at) != SQLITE_OK)
			status = cache_db_fail(db, what, error);
	}
	if (sqlite3_blob_close(blob) != SQLITE_OK && status == KILN_OK)
		status = cache_db_fail(db, what, error);
	return status;
}
#endif
