/*
 * database_rows.c: what is done with rows in the database.  Knows nothing of what a blob holds, but
 * for the columns that repeat it.
 */
#include "database.h"

#include <stdlib.h>
#include <string.h>

#define TRIM_BATCH 500 /* rows removed in one transaction */

static void bind_text(sqlite3_stmt *statement, int index, const char *text)
{
	sqlite3_bind_text(statement, index, text ? text : "", -1, SQLITE_STATIC);
}

static void column_text(sqlite3_stmt *statement, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	snprintf(out, size, "%s", text ? text : "");
}

int cache_db_totals(struct cache_db *db, struct cache_db_totals *out, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_TOTALS);
	if (sqlite3_step(statement) != SQLITE_ROW) {
		int status = cache_db_fail(db, "counting in", error);
		sqlite3_reset(statement);
		return status;
	}
	double bytes = sqlite3_column_double(statement, 1);
	out->rows = (uint64_t)sqlite3_column_int64(statement, 0);
	out->bytes = bytes > 0 ? (uint64_t)bytes : 0;
	out->turn = sqlite3_column_int64(statement, 2);
	sqlite3_reset(statement);
	return KILN_OK;
}

static int copy_blob(sqlite3_stmt *statement, int column, void **blob, size_t *bytes)
{
	const void *data = sqlite3_column_blob(statement, column);
	int size = sqlite3_column_bytes(statement, column);
	/* A blob that could not be brought into memory reads as empty. */
	if (!data && sqlite3_errcode(sqlite3_db_handle(statement)) == SQLITE_NOMEM) {
		return KILN_ENOMEM;
	}
	*blob = malloc(size > 0 ? (size_t)size : 1);
	if (!*blob) {
		return KILN_ENOMEM;
	}
	if (size > 0) {
		memcpy(*blob, data, (size_t)size);
	}
	*bytes = size > 0 ? (size_t)size : 0;
	return KILN_OK;
}

int cache_db_get(struct cache_db *db, const char *key, struct cache_db_index *index, void **blob,
				 size_t *bytes, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_GET);
	bind_text(statement, 1, key);
	int code = sqlite3_step(statement);
	int status = KILN_OK;
	if (code == SQLITE_DONE) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no kernel %s in the cache", key);
	} else if (code != SQLITE_ROW) {
		status = cache_db_fail(db, "reading a kernel from", error);
	} else if (copy_blob(statement, 6, blob, bytes) != KILN_OK) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						   "out of memory for the cached kernel %s", key);
	} else {
		column_text(statement, 0, index->key, sizeof index->key);
		column_text(statement, 1, index->op, sizeof index->op);
		column_text(statement, 2, index->target, sizeof index->target);
		index->bytes = sqlite3_column_int64(statement, 3);
		index->used = sqlite3_column_int64(statement, 4);
		index->hits = sqlite3_column_int64(statement, 5);
	}
	sqlite3_reset(statement);
	return status;
}

/* Runs a statement whose first parameter is the key. */
static int run_key(struct cache_db *db, enum cache_db_statement which, const char *key)
{
	sqlite3_stmt *statement = cache_db_statement(db, which);
	bind_text(statement, 1, key);
	return cache_db_run(statement);
}

static int forget(struct cache_db *db, const char *key)
{
	int code = run_key(db, DB_FORGET_OBJECT, key);
	return code == SQLITE_OK ? run_key(db, DB_FORGET, key) : code;
}

static int insert(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				  int64_t turn)
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
	};
	sqlite3_stmt *statement = cache_db_statement(db, DB_PUT);
	bind_text(statement, 1, row->key);
	bind_text(statement, 2, row->op);
	bind_text(statement, 3, row->target);
	bind_text(statement, 4, row->instantiation);
	for (int i = 0; i < (int)(sizeof numbers / sizeof numbers[0]); i++) {
		sqlite3_bind_int64(statement, 5 + i, numbers[i]);
	}
	int code = cache_db_run(statement);
	if (code != SQLITE_OK) {
		return code;
	}
	statement = cache_db_statement(db, DB_PUT_OBJECT);
	sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(db->handle));
	sqlite3_bind_blob64(statement, 2, blob, bytes, SQLITE_STATIC);
	return cache_db_run(statement);
}

int cache_db_put(struct cache_db *db, const struct cache_row *row, const void *blob, size_t bytes,
				 int64_t turn, int64_t *replaced, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "writing a kernel to";
	int64_t old = -1;
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK) {
		return status;
	}
	sqlite3_stmt *statement = cache_db_statement(db, DB_SIZE);
	bind_text(statement, 1, row->key);
	int code = sqlite3_step(statement);
	if (code == SQLITE_ROW) {
		old = sqlite3_column_int64(statement, 0);
		sqlite3_reset(statement);
		code = forget(db, row->key);
	} else {
		code = code == SQLITE_DONE ? SQLITE_OK : code;
		sqlite3_reset(statement);
	}
	if (code == SQLITE_OK) {
		code = insert(db, row, blob, bytes, turn);
	}
	if (code != SQLITE_OK) {
		status = cache_db_fail(db, what, error);
	}
	status = cache_db_end(db, status, what, error);
	if (status == KILN_OK) {
		*replaced = old;
	}
	return status;
}

int cache_db_quarantine(struct cache_db *db, const char *key, const char *why, int64_t now,
						char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "setting a damaged kernel aside in";
	int status = cache_db_begin(db, what, error);
	if (status != KILN_OK) {
		return status;
	}
	sqlite3_stmt *statement = cache_db_statement(db, DB_SET_ASIDE);
	bind_text(statement, 1, key);
	bind_text(statement, 2, why);
	sqlite3_bind_int64(statement, 3, now);
	int code = cache_db_run(statement);
	if (code == SQLITE_OK) {
		code = forget(db, key);
	}
	if (code == SQLITE_OK) {
		statement = cache_db_statement(db, DB_SET_ASIDE_BOUND);
		sqlite3_bind_int64(statement, 1, DB_QUARANTINE);
		code = cache_db_run(statement);
	}
	if (code != SQLITE_OK) {
		status = cache_db_fail(db, what, error);
	}
	return cache_db_end(db, status, what, error);
}

int cache_db_quarantined(struct cache_db *db, int64_t *count, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_QUARANTINED);
	int status = KILN_OK;
	if (sqlite3_step(statement) == SQLITE_ROW) {
		*count = sqlite3_column_int64(statement, 0);
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
		bind_text(statement, 1, uses[i].key);
		sqlite3_bind_int64(statement, 2, uses[i].hits);
		sqlite3_bind_int64(statement, 3, uses[i].used);
		sqlite3_bind_int64(statement, 4, uses[i].turn);
		if (cache_db_run(statement) != SQLITE_OK) {
			status = cache_db_fail(db, what, error);
		}
	}
	return cache_db_end(db, status, what, error);
}

int cache_db_find(struct cache_db *db, const char *prefix, char keys[2][KERNEL_KEY_HEX], int *count,
				  char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_FIND);
	int code, status = KILN_OK;
	*count = 0;
	bind_text(statement, 1, prefix);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW && *count < 2) {
		column_text(statement, 0, keys[(*count)++], KERNEL_KEY_HEX);
	}
	if (code != SQLITE_DONE && code != SQLITE_ROW) {
		status = cache_db_fail(db, "looking for a kernel in", error);
	}
	sqlite3_reset(statement);
	return status;
}

int cache_db_next(struct cache_db *db, const char *after, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_NEXT);
	char next[KERNEL_KEY_HEX] = "";
	bind_text(statement, 1, after);
	int code = sqlite3_step(statement);
	int status = KILN_OK;
	if (code == SQLITE_ROW) {
		column_text(statement, 0, next, sizeof next);
	} else {
		status = code == SQLITE_DONE ? KILN_ENOENT : cache_db_fail(db, "reading", error);
	}
	sqlite3_reset(statement);
	if (status == KILN_OK) {
		memcpy(key, next, sizeof next);
	}
	return status;
}

static int list_statement(const char *sort)
{
	static const struct {
		const char *name;
		enum cache_db_statement statement;
	} sorts[] = {
		{"used", DB_BY_USED},
		{"hits", DB_BY_HITS},
		{"bytes", DB_BY_BYTES},
		{"created", DB_BY_CREATED},
	};
	for (size_t i = 0; i < sizeof sorts / sizeof sorts[0]; i++) {
		if (!sort || strcmp(sort, sorts[i].name) == 0) {
			return sorts[i].statement;
		}
	}
	return -1;
}

int cache_db_list(struct cache_db *db, const char *sort, int64_t limit, cache_visit visit,
				  void *arg, char error[KERNEL_ERROR_MAX])
{
	int which = list_statement(sort);
	if (which < 0) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "kernels cannot be sorted by \"%.40s\": by used, hits, bytes or created",
						 sort);
	}
	sqlite3_stmt *statement = cache_db_statement(db, (enum cache_db_statement)which);
	sqlite3_bind_int64(statement, 1, limit > 0 ? limit : -1);
	int code, status = KILN_OK;
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct cache_row row = {{0}};
		char instantiation[KERNEL_INSTANTIATION_MAX];
		column_text(statement, 0, row.key, sizeof row.key);
		column_text(statement, 1, row.op, sizeof row.op);
		column_text(statement, 2, row.target, sizeof row.target);
		column_text(statement, 3, instantiation, sizeof instantiation);
		row.instantiation = instantiation;
		row.object_bytes = (size_t)sqlite3_column_int64(statement, 4);
		row.registers = sqlite3_column_int64(statement, 5);
		row.shared_bytes = sqlite3_column_int64(statement, 6);
		row.spill_bytes = sqlite3_column_int64(statement, 7);
		row.local_bytes = sqlite3_column_int64(statement, 8);
		row.compile_micros = sqlite3_column_int64(statement, 9);
		row.created = sqlite3_column_int64(statement, 10);
		row.used = sqlite3_column_int64(statement, 11);
		row.hits = sqlite3_column_int64(statement, 12);
		visit(&row, arg);
	}
	if (code != SQLITE_DONE) {
		status = cache_db_fail(db, "listing", error);
	}
	sqlite3_reset(statement);
	return status;
}

struct victim {
	char key[KERNEL_KEY_HEX];
	uint64_t bytes;
};

/* The least recently used rows that have to go; fewer if they are many. */
static int choose_victims(struct cache_db *db, uint64_t most, uint64_t total,
						  struct victim victims[TRIM_BATCH], int *count,
						  char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_OLDEST);
	int code = SQLITE_DONE, status = KILN_OK;
	*count = 0;
	sqlite3_bind_int64(statement, 1, TRIM_BATCH);
	while (*count < TRIM_BATCH && (total > most || most == 0) &&
		   (code = sqlite3_step(statement)) == SQLITE_ROW) {
		struct victim *victim = &victims[(*count)++];
		int64_t bytes = sqlite3_column_int64(statement, 1);
		column_text(statement, 0, victim->key, sizeof victim->key);
		victim->bytes = bytes > 0 ? (uint64_t)bytes : 0;
		total -= victim->bytes < total ? victim->bytes : total;
	}
	if (code != SQLITE_DONE && code != SQLITE_ROW) {
		status = cache_db_fail(db, "trimming", error);
	}
	sqlite3_reset(statement);
	return status;
}

int cache_db_trim(struct cache_db *db, uint64_t most, struct cache_db_totals *totals,
				  void (*removed)(const char *key, void *arg), void *arg,
				  char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "trimming";
	struct victim *victims = malloc(TRIM_BATCH * sizeof *victims);
	int count;
	if (!victims) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for trimming");
	}
	int status = choose_victims(db, most, totals->bytes, victims, &count, error);
	if (status == KILN_OK) {
		status = cache_db_begin(db, what, error);
		for (int i = 0; i < count && status == KILN_OK; i++) {
			if (forget(db, victims[i].key) != SQLITE_OK) {
				status = cache_db_fail(db, what, error);
			}
		}
		status = cache_db_end(db, status, what, error);
	}
	for (int i = 0; i < count && status == KILN_OK; i++) {
		uint64_t bytes = victims[i].bytes;
		totals->bytes -= bytes < totals->bytes ? bytes : totals->bytes;
		totals->rows -= totals->rows > 0;
		removed(victims[i].key, arg);
	}
	free(victims);
	return status;
}

int cache_db_flip(struct cache_db *db, const char *key, int64_t from_end,
				  char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "damaging a kernel in";
	sqlite3_stmt *statement = cache_db_statement(db, DB_OBJECT_ID);
	sqlite3_blob *blob = NULL;
	unsigned char byte;
	int status = KILN_OK;
	bind_text(statement, 1, key);
	int code = sqlite3_step(statement);
	sqlite3_int64 id = sqlite3_column_int64(statement, 0);
	int at = (int)(sqlite3_column_int64(statement, 1) - 1 - from_end);
	sqlite3_reset(statement);
	if (code == SQLITE_DONE) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no kernel %s in the cache", key);
	}
	if (code != SQLITE_ROW ||
		sqlite3_blob_open(db->handle, "main", "objects", "blob", id, 1, &blob) != SQLITE_OK ||
		sqlite3_blob_read(blob, &byte, 1, at) != SQLITE_OK) {
		status = cache_db_fail(db, what, error);
	} else {
		byte ^= 1;
		if (sqlite3_blob_write(blob, &byte, 1, at) != SQLITE_OK) {
			status = cache_db_fail(db, what, error);
		}
	}
	if (sqlite3_blob_close(blob) != SQLITE_OK && status == KILN_OK) {
		status = cache_db_fail(db, what, error);
	}
	return status;
}
