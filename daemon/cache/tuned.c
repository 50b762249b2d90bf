/*
 * tuned.c: the winners of tuning in the database.  A daemon reads the rows once, when it starts;
 * they are few and small.  They have no checksum: the planner checks each choice again, so a
 * damaged row makes no kernel wrong.
 */
#include "cache_state.h"
#include "database.h"

#include <string.h>

/* Reads a text.  False: it is longer than the field. */
static bool read_column(sqlite3_stmt *statement, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	size_t length = text ? strlen(text) : size;
	if (length >= size)
		return false;
	memcpy(out, text, length + 1);
	return true;
}

static bool read_tuned(sqlite3_stmt *statement, struct cache_tuned *out)
{
	*out = (struct cache_tuned){
		.micros = sqlite3_column_double(statement, 6),
		.own_micros = sqlite3_column_double(statement, 7),
		.candidates = sqlite3_column_int64(statement, 8),
		.when = sqlite3_column_int64(statement, 9),
	};
	return read_column(statement, 0, out->op, sizeof(out->op)) &&
		   read_column(statement, 1, out->model, sizeof(out->model)) &&
		   read_column(statement, 2, out->target, sizeof(out->target)) &&
		   read_column(statement, 3, out->signature, sizeof(out->signature)) &&
		   read_column(statement, 4, out->choice, sizeof(out->choice)) &&
		   read_column(statement, 5, out->version, sizeof(out->version));
}

int cache_tuned_list(struct cache *cache, cache_tuned_visit visit, void *arg,
					 char error[KERNEL_ERROR_MAX])
{
	struct cache_tuned row;
	static const char what[] = "reading winners of tuning in";
	int status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_TUNED_LIST);
	while ((status = cache_db_step(cache->db, statement, what, error)) == KILN_OK)
		if (read_tuned(statement, &row))
			visit(&row, arg);
	return status == KILN_ENOENT ? KILN_OK : cache_failed(cache, status, error);
}

/* Runs a bound statement that writes rows. */
static int write_rows(struct cache *cache, sqlite3_stmt *statement, char error[KERNEL_ERROR_MAX])
{
	int status = cache_db_run(cache->db, statement, "writing winners of tuning to", error);
	cache->write_failures += status != KILN_OK;
	return cache_failed(cache, status, error);
}

static int put_row(struct cache *cache, enum cache_db_statement which,
				   const struct cache_tuned *row, char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, which);
	const char *const texts[] = {row->op,        row->model,  row->target,
								 row->signature, row->choice, row->version};
	for (int i = 0; i < 6; i++)
		cache_db_bind_text(statement, i + 1, texts[i]);
	sqlite3_bind_double(statement, 7, row->micros);
	sqlite3_bind_double(statement, 8, row->own_micros);
	sqlite3_bind_int64(statement, 9, row->candidates);
	sqlite3_bind_int64(statement, 10, row->when);
	return write_rows(cache, statement, error);
}

int cache_tuned_put(struct cache *cache, const struct cache_tuned *row,
					char error[KERNEL_ERROR_MAX])
{
	return put_row(cache, DB_TUNED_PUT, row, error);
}

int cache_tuned_take(struct cache *cache, const struct cache_tuned *row, bool *taken,
					 char error[KERNEL_ERROR_MAX])
{
	int status = put_row(cache, DB_TUNED_NEWER, row, error);
	*taken = status == KILN_OK && sqlite3_changes(cache->db->handle) > 0;
	return status;
}

int cache_tuned_remove(struct cache *cache, const struct cache_tuned *row,
					   char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, row ? DB_TUNED_REMOVE : DB_TUNED_CLEAR);
	if (row) {
		cache_db_bind_text(statement, 1, row->model);
		cache_db_bind_text(statement, 2, row->target);
		cache_db_bind_text(statement, 3, row->signature);
	}
	return write_rows(cache, statement, error);
}
