/*
 * database_rows.c: what is done with rows in the database.  Knows nothing of what a blob holds, but
 * for the columns that repeat it.
 */
#include "database.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096
#define COLUMN_BYTES 512               /* of a row: its columns, and its entries in two indices */
#define NUMBER_MOST ((int64_t)1 << 62) /* none that we write comes near it */

void cache_db_bind_text(sqlite3_stmt *statement, int index, const char *text)
{
	sqlite3_bind_text(statement, index, text ? text : "", -1, SQLITE_STATIC);
}

void cache_db_column_text(sqlite3_stmt *statement, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	snprintf(out, size, "%s", text ? text : "");
}

uint64_t cache_db_column_sum(sqlite3_stmt *statement, int column)
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
	if (sqlite3_step(statement) != SQLITE_ROW) {
		int status = cache_db_fail(db, "counting in", error);
		sqlite3_reset(statement);
		return status;
	}
	out->rows = (uint64_t)sqlite3_column_int64(statement, 0);
	out->objects = cache_db_column_sum(statement, 1);
	out->bytes = cache_db_column_sum(statement, 2);
	out->turn = sqlite3_column_int64(statement, 3);
	out->quarantine = cache_db_column_sum(statement, 4);
	out->pinned = (uint64_t)sqlite3_column_int64(statement, 5);
	sqlite3_reset(statement);
	if (out->turn < 0 || out->turn >= NUMBER_MOST) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "%.150s is damaged: it counts %lld uses", db->path, (long long)out->turn);
	}
	return KILN_OK;
}

static int copy_blob(sqlite3_stmt *statement, int column, void **blob, size_t *bytes)
{
	const void *data = sqlite3_column_blob(statement, column);
	int size = sqlite3_column_bytes(statement, column);
	/* A blob that could not be brought into memory reads as empty. */
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
	int code = sqlite3_step(statement);
	int status = KILN_OK;
	if (code == SQLITE_DONE) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no kernel %s in the cache", key);
	} else if (code != SQLITE_ROW) {
		status = cache_db_fail(db, "reading a kernel from", error);
	} else if (copy_blob(statement, 9, blob, bytes) != KILN_OK) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						   "out of memory for the cached kernel %s", key);
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

/* Runs a statement whose first parameter is the key. */
static int run_key(struct cache_db *db, enum cache_db_statement which, const char *key)
{
	sqlite3_stmt *statement = cache_db_statement(db, which);
	cache_db_bind_text(statement, 1, key);
	return cache_db_run(statement);
}

int cache_db_forget(struct cache_db *db, const char *key)
{
	int code = run_key(db, DB_FORGET_OBJECT, key);
	return code == SQLITE_OK ? run_key(db, DB_FORGET, key) : code;
}

static int insert_row(struct cache_db *db, const struct cache_row *row, const void *blob,
					  size_t bytes, int64_t turn)
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
	int code = cache_db_run(statement);
	if (code != SQLITE_OK)
		return code;
	statement = cache_db_statement(db, DB_PUT_OBJECT);
	sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(db->handle));
	sqlite3_bind_blob64(statement, 2, blob, bytes, SQLITE_STATIC);
	return cache_db_run(statement);
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

/* Removes the row with the key, if there is one, and tells its sizes; an SQLite code. */
static int replace(struct cache_db *db, const char *key, bool *was, int64_t *bytes, int64_t *size)
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_SIZE);
	cache_db_bind_text(statement, 1, key);
	int code = sqlite3_step(statement);
	*was = code == SQLITE_ROW;
	*bytes = *was ? sqlite3_column_int64(statement, 0) : 0;
	*size = *was ? sqlite3_column_int64(statement, 1) : 0;
	sqlite3_reset(statement);
	if (*was)
		return cache_db_forget(db, key);
	return code == SQLITE_DONE ? SQLITE_OK : code;
}

int cache_db_has(struct cache_db *db, const char *key, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_SIZE);
	int status = KILN_OK;
	cache_db_bind_text(statement, 1, key);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no kernel %s in the cache", key);
	else if (code != SQLITE_ROW)
		status = cache_db_fail(db, "reading a kernel from", error);
	sqlite3_reset(statement);
	return status;
}

int cache_db_put(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				 struct cache_db_totals *totals, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "writing a kernel to";
	int64_t old_bytes, old_size;
	bool was;
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK)
		return status;
	int code = replace(db, row->key, &was, &old_bytes, &old_size);
	if (code == SQLITE_OK)
		code = insert_row(db, row, blob, bytes, ++totals->turn);
	if (code != SQLITE_OK) {
		status = cache_db_fail(db, what, error);
		/* Its key is free: the index and the table say two things. */
		status = (code & 0xff) == SQLITE_CONSTRAINT ? KILN_EPROTO : status;
	}
	status = cache_db_end(db, status, what, error);
	if (status == KILN_OK) {
		if (was)
			cache_db_count_gone(totals, old_bytes, old_size);
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
	int64_t bytes, size;
	bool was;
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK)
		return status;
	if (replace(db, key, &was, &bytes, &size) != SQLITE_OK)
		status = cache_db_fail(db, what, error);
	status = cache_db_end(db, status, what, error);
	if (status == KILN_OK && was)
		cache_db_count_gone(totals, bytes, size);
	return status;
}

int cache_db_quarantine(struct cache_db *db, const char *key, const char *why, int64_t now,
						char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "setting a damaged kernel aside in";
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(db, DB_SET_ASIDE);
	cache_db_bind_text(statement, 1, key);
	cache_db_bind_text(statement, 2, why);
	sqlite3_bind_int64(statement, 3, now);
	int code = cache_db_run(statement);
	if (code == SQLITE_OK)
		code = cache_db_forget(db, key);
	if (code == SQLITE_OK) {
		statement = cache_db_statement(db, DB_SET_ASIDE_BOUND);
		sqlite3_bind_int64(statement, 1, DB_QUARANTINE);
		code = cache_db_run(statement);
	}
	if (code != SQLITE_OK)
		status = cache_db_fail(db, what, error);
	return cache_db_end(db, status, what, error);
}

int cache_db_quarantined(struct cache_db *db, int64_t *count, uint64_t *bytes,
						 char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_QUARANTINED);
	int status = KILN_OK;
	if (sqlite3_step(statement) == SQLITE_ROW) {
		*count = sqlite3_column_int64(statement, 0);
		*bytes = cache_db_column_sum(statement, 1);
	} else {
		status = cache_db_fail(db, "counting in", error);
	}
	sqlite3_reset(statement);
	return status;
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
		if (cache_db_run(statement) != SQLITE_OK)
			status = cache_db_fail(db, what, error);
	}
	return cache_db_end(db, status, what, error);
}

int cache_db_release(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	return cache_db_run(cache_db_statement(db, DB_RELEASE)) == SQLITE_OK
			   ? KILN_OK
			   : cache_db_fail(db, "emptying the quarantine of", error);
}

static int find_keys(struct cache_db *db, enum cache_db_statement which, const char *prefix,
					 char keys[2][KERNEL_KEY_HEX], int *count, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, which);
	int code, status = KILN_OK;
	*count = 0;
	cache_db_bind_text(statement, 1, prefix);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW && *count < 2)
		cache_db_column_text(statement, 0, keys[(*count)++], KERNEL_KEY_HEX);
	if (code != SQLITE_DONE && code != SQLITE_ROW)
		status = cache_db_fail(db, "looking for a kernel in", error);
	sqlite3_reset(statement);
	return status;
}

int cache_db_find(struct cache_db *db, const char *prefix, char keys[2][KERNEL_KEY_HEX], int *count,
				  char error[KERNEL_ERROR_MAX])
{
	return find_keys(db, DB_FIND, prefix, keys, count, error);
}

int cache_db_find_pin(struct cache_db *db, const char *prefix, char keys[2][KERNEL_KEY_HEX],
					  int *count, char error[KERNEL_ERROR_MAX])
{
	return find_keys(db, DB_FIND_PIN, prefix, keys, count, error);
}

int cache_db_next(struct cache_db *db, const char *after, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_NEXT);
	char next[KERNEL_KEY_HEX] = "";
	cache_db_bind_text(statement, 1, after);
	int code = sqlite3_step(statement);
	int status = KILN_OK;
	if (code == SQLITE_ROW)
		cache_db_column_text(statement, 0, next, sizeof(next));
	else
		status = code == SQLITE_DONE ? KILN_ENOENT : cache_db_fail(db, "reading", error);
	sqlite3_reset(statement);
	if (status == KILN_OK)
		memcpy(key, next, sizeof(next));
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
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no kernel %s in the cache", key);
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
