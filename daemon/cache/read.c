/*
 * read.c: reads rows, verifies them, and lists them; moves damaged ones to the quarantine.  Knows
 * no SQL: database_rows.c and database_list.c have it.
 */
#include "cache_state.h"
#include "daemon/base/deadlines.h"

#include <stdlib.h>
#include <string.h>

/* The most rows that one piece verifies. */
#define VERIFY_ROWS 64

/* Moves a damaged row to the quarantine.  If the disk refuses, the row stays, and the next read
 * finds it damaged again. */
static void quarantine(struct cache *cache, const char *key, const char *why)
{
	char error[KERNEL_ERROR_MAX];
	util_log(UTIL_WARN, "cache: kernel %.12s is damaged and set aside: %s", key, why);
	cache_drop_use(cache, key);
	cache_memory_remove(&cache->memory, key);
	cache->quarantined++;
	int status = cache_db_quarantine(cache->db, key, why, &cache->totals, error);
	if (status == KILN_OK)
		return;
	cache->write_failures++;
	util_log(UTIL_WARN, "cache: %s", error);
	cache_failed(cache, status, error);
}

/* Reads and verifies a row.  A damaged one moves to the quarantine: KILN_ENOENT, and error says
 * why. */
static int read_row(struct cache *cache, const char *key, struct cache_row *out, bool *damaged,
					char error[KERNEL_ERROR_MAX])
{
	struct cache_db_index index;
	struct cache_row row;
	void *blob;
	size_t bytes;
	*damaged = false;
	int status = cache_db_get(cache->db, key, &index, &blob, &bytes, error);
	if (status != KILN_OK) {
		*damaged = status == KILN_EPROTO;
		return cache_failed(cache, status, error);
	}
	status = cache_row_decode(blob, bytes, &row, error);
	free(blob);
	if (status == KILN_OK &&
		(strcmp(index.key, row.key) != 0 || strcmp(index.op, row.op) != 0 ||
		 strcmp(index.target, row.target) != 0 || index.bytes != (int64_t)row.object_bytes)) {
		cache_row_free(&row);
		status = FAIL(KILN_EPROTO, "the row does not belong to its entry in the list");
	}
	if (status == KILN_EPROTO) {
		*damaged = true;
		quarantine(cache, key, error);
		return KILN_ENOENT;
	}
	if (status == KILN_OK) {
		const struct cache_db_use *use = cache_pending(cache, key);
		row.hits = index.hits + (use ? use->hits : 0);
		row.used = use ? use->used : index.used;
		row.size = (uint64_t)index.size;
		row.pinned = index.pinned;
		memcpy(row.compiler, index.compiler, sizeof(row.compiler));
		*out = row;
	}
	return status;
}

int cache_get(struct cache *cache, const char *key, struct cache_row *out,
			  char error[KERNEL_ERROR_MAX])
{
	int64_t now = util_wall_s();
	struct cache_row row;
	bool damaged;
	int status = cache_check_key(key, error);
	if (status != KILN_OK)
		return status;
	if (cache_memory_take(&cache->memory, key, now, out)) {
		cache_count_use(cache, key, 1, now);
		return KILN_OK;
	}
	if (cache_have_db(cache, error) != KILN_OK)
		return FAIL(KILN_ENOENT, "no kernel %.12s in memory", key);
	status = read_row(cache, key, &row, &damaged, error);
	if (status != KILN_OK) {
		/* A row whose database was set aside is a miss. */
		return damaged ? KILN_ENOENT : status;
	}
	row.hits++;
	row.used = now;
	cache_memory_put(&cache->memory, &row);
	cache_count_use(cache, key, 1, now);
	*out = row;
	return KILN_OK;
}

bool cache_get_kept(struct cache *cache, const char *key, struct cache_row *out)
{
	return cache_memory_take_noted(&cache->memory, key, util_wall_s(), out);
}

int cache_has(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX])
{
	int status = cache_check_key(key, error);
	if (status != KILN_OK || cache_memory_get(&cache->memory, key))
		return status;
	if (!cache->db)
		return FAIL(KILN_ENOENT, "no kernel %.12s in memory", key);
	return cache_failed(cache, cache_db_has(cache->db, key, error), error);
}

int cache_resolve_in(struct cache *cache, enum cache_db_table table, const char *prefix,
					 char key[KERNEL_KEY_HEX], char error[KERNEL_ERROR_MAX])
{
	bool pins = table == DB_PINS;
	char keys[2][KERNEL_KEY_HEX];
	int count;
	int status = cache_check_prefix(prefix, error);
	if (status == KILN_OK) {
		status = cache_failed(cache, cache_db_find(cache->db, table, prefix, keys, &count, error),
							  error);
	}
	if (status != KILN_OK)
		return status;
	if (count == 0) {
		return FAIL(KILN_ENOENT,
					pins ? "no pinned kernel has a key that begins with %s"
						 : "no failure is remembered under a key that begins with %s",
					prefix);
	}
	if (count > 1) {
		return FAIL(KILN_EINVAL, "several %s have a key that begins with %s: give more digits",
					pins ? "pinned kernels" : "failures", prefix);
	}
	memcpy(key, keys[0], KERNEL_KEY_HEX);
	return KILN_OK;
}

int cache_resolve(struct cache *cache, const char *prefix, char key[KERNEL_KEY_HEX],
				  char error[KERNEL_ERROR_MAX])
{
	char keys[2][KERNEL_KEY_HEX] = {"", ""};
	int count = 0;
	int status = cache_check_prefix(prefix, error);
	if (status != KILN_OK)
		return status;
	if (cache->db) {
		status = cache_db_find(cache->db, DB_KERNELS, prefix, keys, &count, error);
		if (status != KILN_OK)
			return cache_failed(cache, status, error);
	}
	const char *kept = count < 2 ? cache_memory_find(&cache->memory, prefix, keys[0]) : NULL;
	if (kept)
		memcpy(keys[count++], kept, KERNEL_KEY_HEX);
	if (count == 1 && cache_memory_find(&cache->memory, prefix, keys[0]))
		count = 2;
	if (count == 0)
		return FAIL(KILN_ENOENT, "no kernel in the cache has a key that begins with %s", prefix);
	if (count > 1) {
		return FAIL(KILN_EINVAL, "several kernels have a key that begins with %s: give more digits",
					prefix);
	}
	if (strlen(prefix) < 64 && cache_failures_match(cache, prefix)) {
		return FAIL(KILN_EINVAL,
					"a kernel and a failure have keys that begin with %s: give more digits",
					prefix);
	}
	memcpy(key, keys[0], KERNEL_KEY_HEX);
	return KILN_OK;
}

int cache_peek(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	struct cache_row row;
	bool damaged = false;
	int status = cache_resolve(cache, key_prefix, key, error);
	if (status != KILN_OK)
		return status;
	status = KILN_ENOENT;
	if (cache->db)
		status = read_row(cache, key, &row, &damaged, error);
	if (status == KILN_OK) {
		*out = row;
		return KILN_OK;
	}
	const struct cache_row *kept = cache_memory_get(&cache->memory, key);
	if (kept) {
		return cache_row_copy(kept, true, out) == KILN_OK
				   ? KILN_OK
				   : FAIL(KILN_ENOMEM, "out of memory for the cached kernel %.12s", key);
	}
	return damaged ? KILN_ENOENT : status;
}

int cache_show(struct cache *cache, const char *key_prefix, struct cache_row *out,
			   char error[KERNEL_ERROR_MAX])
{
	int status = cache_peek(cache, key_prefix, out, error);
	if (status == KILN_OK) {
		free(out->object);
		out->object = NULL;
	}
	return status;
}

int cache_list(struct cache *cache, const char *sort, const char *after, int64_t limit,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX])
{
	cache_flush_uses(cache);
	int status = cache_have_db(cache, error);
	if (status == KILN_OK) {
		status = cache_failed(
			cache, cache_db_list(cache->db, sort, after, limit, visit, arg, error), error);
	}
	return status;
}

int cache_verify(struct cache *cache, struct cache_verified *progress, cache_bad report, void *arg,
				 char error[KERNEL_ERROR_MAX])
{
	struct cache_verified reached = *progress;
	uint64_t began = util_now_us();
	int status = cache_have_db(cache, error);
	for (int i = 0; status == KILN_OK && i < VERIFY_ROWS && util_now_us() - began < PAUSE_UPKEEP_US;
		 i++) {
		struct cache_row row;
		bool damaged = false;
		status = cache_db_next(cache->db, reached.next, reached.next, error);
		if (status != KILN_OK) {
			status = cache_failed(cache, status, error);
			break;
		}
		reached.checked++;
		status = read_row(cache, reached.next, &row, &damaged, error);
		if (status == KILN_OK) {
			cache_row_free(&row);
		} else if (status == KILN_ENOENT && damaged) {
			reached.bad++;
			report(reached.next, error, arg);
			status = cache_have_db(cache, error);
		}
	}
	if (status == KILN_ENOENT) {
		reached.next[0] = 0;
		status = KILN_OK;
	}
	if (status == KILN_OK)
		*progress = reached;
	return status;
}

#ifdef KILN_TEST_HOOKS
int cache_corrupt(struct cache *cache, const char *key_prefix, char error[KERNEL_ERROR_MAX])
{
	char key[KERNEL_KEY_HEX];
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_resolve(cache, key_prefix, key, error);
	if (status == KILN_OK)
		status = cache_failed(cache, cache_db_flip(cache->db, key, 0, error), error);
	if (status == KILN_OK)
		cache_memory_remove(&cache->memory, key);
	return status;
}
#endif
