/*
 * failures.c: remembers compiles that failed under the keys of their kernels, so that the next
 * request gets the same sentence at once.
 *
 * A failure is stored as a row without an object, so it has a checksum like any row.  The sentence
 * stands in the place of the symbol, the status in that of the registers, and the end of its time
 * in that of the shared memory.  A damaged failure is removed and reads as none.
 */
#include "cache_state.h"
#include "database.h"

#include <stdlib.h>
#include <string.h>

/* Runs a statement that writes failures; counts one that the disk refuses. */
static int write_failures(struct cache *cache, sqlite3_stmt *statement, const char *what,
						  char error[KERNEL_ERROR_MAX])
{
	int status = cache_db_run(cache->db, statement, what, error);
	cache->write_failures += status != KILN_OK;
	return status;
}

static int recount(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	return cache_db_count(cache->db, DB_FAILED_COUNT, "counting failures in", &cache->failures,
						  &cache->failure_bytes, error);
}

/* Removes the failure of a key; NULL: all of them. */
static int remove_failures(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement =
		cache_db_statement(cache->db, key ? DB_FAILED_REMOVE : DB_FAILED_CLEAR);
	if (key)
		cache_db_bind_text(statement, 1, key);
	int status = write_failures(cache, statement, "removing failures remembered in", error);
	return status == KILN_OK ? recount(cache, error) : status;
}

int cache_failures_open(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	/* On a full disk these failures are forgotten when their time is over: opening goes on. */
	write_failures(cache, cache_db_statement(cache->db, DB_FAILED_EXPIRE),
				   "removing failures remembered in", error);
	cache_db_disk_failed(cache->db);
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
						  const void *blob, size_t bytes, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "remembering a failure in";
	const struct cache_row *row = &failure->row;
	const char *const texts[] = {row->key, row->op, row->target, row->instantiation,
								 failure->error};
	const int64_t numbers[] = {failure->status, failure->until, row->created, row->used, row->hits};
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_PUT);
	for (int i = 0; i < 5; i++) {
		cache_db_bind_text(statement, 1 + i, texts[i]);
		sqlite3_bind_int64(statement, 6 + i, numbers[i]);
	}
	sqlite3_bind_blob64(statement, 11, blob, bytes, SQLITE_STATIC);
	int status = write_failures(cache, statement, what, error);
	if (status == KILN_OK) {
		statement = cache_db_statement(cache->db, DB_FAILED_BOUND);
		sqlite3_bind_int64(statement, 1, CACHE_FAILURES_MOST);
		status = write_failures(cache, statement, what, error);
	}
	return status;
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
		return FAIL(status, "the failure of kernel %.12s cannot be remembered: %s",
					failure->row.key,
					status == KILN_ENOMEM ? "out of memory" : "a name is too long");
	}
	status = insert_failure(cache, failure, blob, bytes, error);
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
		return FAIL(KILN_EPROTO, "it belongs to another key");
	}
	*out = (struct cache_failure){.status = (int)row.registers, .until = row.shared_bytes};
	snprintf(out->error, sizeof(out->error), "%s", row.entry);
	free(row.entry);
	row.entry = NULL;
	row.registers = row.shared_bytes = -1;
	out->row = row;
	return KILN_OK;
}

/* Reads a failure.  KILN_ENOENT: there is none, or it was damaged and is removed. */
static int read_failure(struct cache *cache, const char *key, struct cache_failure *out,
						char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_GET);
	cache_db_bind_text(statement, 1, key);
	int status = cache_db_step(cache->db, statement, "reading a failure from", error);
	if (status == KILN_ENOENT)
		return FAIL(status, "no failure of a kernel %.12s is remembered", key);
	if (status != KILN_OK)
		return status;
	status = decode(sqlite3_column_blob(statement, 0), (size_t)sqlite3_column_bytes(statement, 0),
					key, out, error);
	if (status == KILN_OK) {
		out->row.used = sqlite3_column_int64(statement, 1);
		out->row.hits = cache_db_column_count(statement, 2);
	}
	sqlite3_reset(statement);
	if (status != KILN_EPROTO)
		return status;
	util_log(UTIL_WARN, "cache: the failure of kernel %.12s is damaged and removed: %s", key,
			 error);
	remove_failures(cache, key, error);
	return KILN_ENOENT;
}

int cache_failure_get(struct cache *cache, const char *key, struct cache_failure *out,
					  char error[KERNEL_ERROR_MAX])
{
	int64_t now = util_wall_s();
	char ignored[KERNEL_ERROR_MAX];
	if (cache->failures == 0)
		return FAIL(KILN_ENOENT, "no failure is remembered");
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_failed(cache, read_failure(cache, key, out, error), error);
	if (status != KILN_OK)
		return status;
	if (cache_failure_is_over(out)) {
		cache_failure_free(out);
		status = remove_failures(cache, key, error);
		return status == KILN_OK ? KILN_ENOENT : cache_failed(cache, status, error);
	}
	out->row.hits++;
	out->row.used = now;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_USE);
	cache_db_bind_text(statement, 1, key);
	sqlite3_bind_int64(statement, 2, now);
	/* The answer is good even where its use cannot be counted, and the disk is not in trouble yet:
	 * the next write will say so in its own words. */
	if (write_failures(cache, statement, "counting a use in", ignored) != KILN_OK)
		cache_db_disk_failed(cache->db);
	return KILN_OK;
}

bool cache_failures_match(struct cache *cache, const char *prefix)
{
	char keys[2][KERNEL_KEY_HEX], ignored[KERNEL_ERROR_MAX];
	int count = 0;
	if (cache->failures)
		cache_db_find(cache->db, DB_FAILURES, prefix, keys, &count, ignored);
	return count > 0;
}

int cache_failure_show(struct cache *cache, const char *key_prefix, struct cache_failure *out,
					   char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_resolve_in(cache, DB_FAILURES, key_prefix, key, error);
	if (status == KILN_OK)
		status = read_failure(cache, key, out, error);
	return cache_failed(cache, status, error);
}

int cache_failure_list(struct cache *cache, int64_t limit, cache_failure_visit visit, void *arg,
					   char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "listing failures of";
	int status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	sqlite3_stmt *statement = cache_db_statement(cache->db, DB_FAILED_LIST);
	sqlite3_bind_int64(statement, 1, limit > 0 ? limit : -1);
	while ((status = cache_db_step(cache->db, statement, what, error)) == KILN_OK) {
		char instantiation[KERNEL_INSTANTIATION_MAX];
		struct cache_failure failure = {
			.row = {.instantiation = instantiation,
					.created = sqlite3_column_int64(statement, 7),
					.used = sqlite3_column_int64(statement, 8),
					.hits = sqlite3_column_int64(statement, 9)},
			.status = (int)sqlite3_column_int64(statement, 5),
			.until = sqlite3_column_int64(statement, 6),
		};
		cache_db_column_text(statement, 0, failure.row.key, sizeof(failure.row.key));
		cache_db_column_text(statement, 1, failure.row.op, sizeof(failure.row.op));
		cache_db_column_text(statement, 2, failure.row.target, sizeof(failure.row.target));
		cache_db_column_text(statement, 3, instantiation, sizeof(instantiation));
		cache_db_column_text(statement, 4, failure.error, sizeof(failure.error));
		visit(&failure, arg);
	}
	return status == KILN_ENOENT ? KILN_OK : cache_failed(cache, status, error);
}

/* ---- Forgetting ---- */

int cache_failure_forget(struct cache *cache, const char *key_prefix, int64_t *removed,
						 char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	uint64_t before = cache->failures;
	int status = cache_have_db(cache, error);
	if (status == KILN_OK && key_prefix)
		status = cache_resolve_in(cache, DB_FAILURES, key_prefix, key, error);
	if (status == KILN_OK)
		status = remove_failures(cache, key_prefix ? key : NULL, error);
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
