/*
 * failures.c: compiles that failed, remembered under the keys that they would have had, so that the
 * next who asks is told at once, in the same words.
 *
 * A failure is kept as the bytes of a row without an object, so that it has a checksum, too: where
 * a kernel has its symbol stands the sentence, and where it has registers and shared memory the
 * status and the end of its time.  A damaged one is no failure at all: it is removed.
 */
#include "conductor.h"
#include "database.h"

#include <stdlib.h>
#include <string.h>

static int write_done(struct cache *cache, int code, const char *what, char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK;
	if (code != SQLITE_OK) {
		status = cache_db_fail(cache->db, what, error);
		cache->write_failures++;
	}
	return status;
}

static int recount(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_COUNT);
	int status = KILN_OK;
	if (sqlite3_step(statement) == SQLITE_ROW) {
		cache->failures = (uint64_t)sqlite3_column_int64(statement, 0);
		cache->failure_bytes = cache_db_column_sum(statement, 1);
	} else {
		status = cache_db_fail(cache->db, "counting failures in", error);
	}
	sqlite3_reset(statement);
	return status;
}

/* Runs a statement that removes failures; key NULL: it has no parameter. */
static int remove_rows(struct cache *cache, enum cache_db_statement which, const char *key,
					   char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(cache->db, which);
	if (key)
		sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
	int status =
		write_done(cache, cache_db_run(statement), "removing failures remembered in", error);
	return status == KILN_OK ? recount(cache, error) : status;
}

int cache_failures_open(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	/* On a full disk these failures are forgotten when their time is over. */
	if (cache_db_run(cache_db_statement(cache->db, DB_FAILED_EXPIRE)) != SQLITE_OK)
		cache->write_failures++;
	return recount(cache, error);
}

/* ---- Writing ---- */

static int encode(const struct cache_failure *failure, void **blob, size_t *bytes)
{
	struct cache_row row = failure->row; /* borrows the pointers */
	row.entry = (char *)failure->error;
	row.registers = failure->status;
	row.shared_bytes = failure->until;
	row.object = NULL;
	row.object_bytes = 0;
	return cache_row_encode(&row, blob, bytes);
}

static int insert_failure(struct cache *cache, const struct cache_failure *failure,
						  const void *blob, size_t bytes)
{
	const struct cache_row *row = &failure->row;
	const char *const texts[] = {row->key, row->op, row->target, row->instantiation,
								 failure->error};
	const int64_t numbers[] = {failure->status, failure->until, row->created, row->used, row->hits};
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_PUT);
	for (int i = 0; i < 5; i++) {
		sqlite3_bind_text(statement, 1 + i, texts[i], -1, SQLITE_STATIC);
		sqlite3_bind_int64(statement, 6 + i, numbers[i]);
	}
	sqlite3_bind_blob64(statement, 11, blob, bytes, SQLITE_STATIC);
	int code = cache_db_run(statement);
	if (code == SQLITE_OK) {
		statement = cache_db_statement(cache->db, DB_FAILED_BOUND);
		sqlite3_bind_int64(statement, 1, CACHE_FAILURES_MOST);
		code = cache_db_run(statement);
	}
	return code;
}

int cache_failure_put(struct cache *cache, const struct cache_failure *failure,
					  char error[KERNEL_ERROR_MAX])
{
	void *blob;
	size_t bytes;
	int status = cache_check_key(failure->row.key, error);
	if (status == KILN_OK)
		status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	status = encode(failure, &blob, &bytes);
	if (status != KILN_OK) {
		return util_fail(error, KERNEL_ERROR_MAX, status,
						 "the failure of kernel %.12s cannot be remembered: %s", failure->row.key,
						 status == KILN_ENOMEM ? "out of memory" : "a name is too long");
	}
	status = write_done(cache, insert_failure(cache, failure, blob, bytes),
						"remembering a failure in", error);
	free(blob);
	if (status == KILN_OK)
		status = recount(cache, error);
	return cache_failed(cache, status, error);
}

/* ---- Reading ---- */

static int decode(const void *blob, size_t bytes, const char *key, struct cache_failure *out,
				  char error[KERNEL_ERROR_MAX])
{
	struct cache_row row;
	int status = cache_row_decode(blob, bytes, &row, error);
	if (status != KILN_OK)
		return status;
	if (strcmp(row.key, key) != 0) {
		cache_row_free(&row);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "it belongs to another key");
	}
	*out = (struct cache_failure){.status = (int)row.registers, .until = row.shared_bytes};
	snprintf(out->error, sizeof(out->error), "%s", row.entry);
	free(row.entry);
	row.entry = NULL;
	row.registers = row.shared_bytes = -1;
	out->row = row;
	return KILN_OK;
}

/* KILN_ENOENT: there is none, or it was damaged and is removed. */
static int read_failure(struct cache *cache, const char *key, struct cache_failure *out,
						char error[KERNEL_ERROR_MAX])
{
	int status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_GET);
	sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
	int code = sqlite3_step(statement);
	if (code == SQLITE_DONE) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						   "no failure of a kernel %.12s is remembered", key);
	} else if (code != SQLITE_ROW) {
		status = cache_db_fail(cache->db, "reading a failure from", error);
	} else {
		status = decode(sqlite3_column_blob(statement, 0),
						(size_t)sqlite3_column_bytes(statement, 0), key, out, error);
		if (status == KILN_OK) {
			out->row.used = sqlite3_column_int64(statement, 1);
			out->row.hits = cache_db_column_count(statement, 2);
		} else if (status == KILN_EPROTO) {
			sqlite3_reset(statement);
			util_log(UTIL_WARN, "cache: the failure of kernel %.12s is damaged and removed: %s",
					 key, error);
			remove_rows(cache, DB_FAILED_REMOVE, key, error);
			return KILN_ENOENT;
		}
	}
	sqlite3_reset(statement);
	return status;
}

int cache_failure_get(struct cache *cache, const char *key, struct cache_failure *out,
					  char error[KERNEL_ERROR_MAX])
{
	int64_t now = util_wall_s();
	char ignored[KERNEL_ERROR_MAX];
	if (cache->failures == 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "no failure is remembered");
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_failed(cache, read_failure(cache, key, out, error), error);
	if (status != KILN_OK)
		return status;
	if (cache_failure_is_over(out)) {
		cache_failure_free(out);
		status = remove_rows(cache, DB_FAILED_REMOVE, key, error);
		return status == KILN_OK ? KILN_ENOENT : cache_failed(cache, status, error);
	}
	out->row.hits++;
	out->row.used = now;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_USE);
	sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, now);
	/* The answer is good even where it cannot be counted. */
	write_done(cache, cache_db_run(statement), "counting a use in", ignored);
	return KILN_OK;
}

/* The one key that begins so. */
static int resolve(struct cache *cache, const char *prefix, char key[KERNEL_KEY_HEX],
				   char error[KERNEL_ERROR_MAX])
{
	int count = 0, code;
	int status = cache_check_prefix(prefix, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_FIND);
	sqlite3_bind_text(statement, 1, prefix, -1, SQLITE_STATIC);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		snprintf(key, KERNEL_KEY_HEX, "%s", (const char *)sqlite3_column_text(statement, 0));
		count++;
	}
	status =
		code == SQLITE_DONE ? KILN_OK : cache_db_fail(cache->db, "looking for a failure in", error);
	sqlite3_reset(statement);
	if (status == KILN_OK && count == 0) {
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						   "no failure is remembered under a key that begins with %s", prefix);
	} else if (status == KILN_OK && count > 1) {
		status =
			util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
					  "several failures have a key that begins with %s: give more digits", prefix);
	}
	return status;
}

bool cache_failures_match(struct cache *cache, const char *prefix)
{
	if (cache->failures == 0)
		return false;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_FIND);
	sqlite3_bind_text(statement, 1, prefix, -1, SQLITE_STATIC);
	bool found = sqlite3_step(statement) == SQLITE_ROW;
	sqlite3_reset(statement);
	return found;
}

int cache_failure_show(struct cache *cache, const char *key_prefix, struct cache_failure *out,
					   char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = resolve(cache, key_prefix, key, error);
	if (status == KILN_OK)
		status = read_failure(cache, key, out, error);
	return cache_failed(cache, status, error);
}

static void take_column(sqlite3_stmt *statement, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	snprintf(out, size, "%s", text ? text : "");
}

int cache_failure_list(struct cache *cache, int64_t limit, cache_failure_visit visit, void *arg,
					   char error[KERNEL_ERROR_MAX])
{
	int code, status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_LIST);
	sqlite3_bind_int64(statement, 1, limit > 0 ? limit : -1);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
		char instantiation[KERNEL_INSTANTIATION_MAX];
		struct cache_failure failure = {
			.row = {.instantiation = instantiation,
					.created = sqlite3_column_int64(statement, 7),
					.used = sqlite3_column_int64(statement, 8),
					.hits = sqlite3_column_int64(statement, 9)},
			.status = (int)sqlite3_column_int64(statement, 5),
			.until = sqlite3_column_int64(statement, 6),
		};
		take_column(statement, 0, failure.row.key, sizeof(failure.row.key));
		take_column(statement, 1, failure.row.op, sizeof(failure.row.op));
		take_column(statement, 2, failure.row.target, sizeof(failure.row.target));
		take_column(statement, 3, instantiation, sizeof(instantiation));
		take_column(statement, 4, failure.error, sizeof(failure.error));
		visit(&failure, arg);
	}
	if (code != SQLITE_DONE)
		status = cache_db_fail(cache->db, "listing failures of", error);
	sqlite3_reset(statement);
	return cache_failed(cache, status, error);
}

/* ---- Forgetting ---- */

int cache_failure_forget(struct cache *cache, const char *key_prefix, int64_t *removed,
						 char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	uint64_t before = cache->failures;
	int status = cache_have_db(cache, error);
	if (status == KILN_OK && key_prefix)
		status = resolve(cache, key_prefix, key, error);
	if (status == KILN_OK) {
		status = key_prefix ? remove_rows(cache, DB_FAILED_REMOVE, key, error)
							: remove_rows(cache, DB_FAILED_CLEAR, NULL, error);
	}
	if (status == KILN_OK)
		*removed = (int64_t)(before - cache->failures);
	return cache_failed(cache, status, error);
}

bool cache_failure_is_over(const struct cache_failure *failure)
{
	int64_t now = util_wall_s();
	return failure->until && (failure->until <= now || failure->row.created > now);
}

void cache_failure_free(struct cache_failure *failure)
{
	cache_row_free(&failure->row);
	*failure = (struct cache_failure){.status = KILN_OK};
}
