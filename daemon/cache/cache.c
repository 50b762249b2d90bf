/*
 * cache.c: the conductor: memory before disk, uses counted in batches, and a new beginning when the
 * database is damaged.  Knows no SQL.
 */
#include "conductor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Up to this size a database is always looked over when opened, beyond it after a crash only. */
#define CHECK_ALWAYS_BYTES ((uint64_t)64 << 20)

/* ---- The database ---- */

/* Opens the database; one that is damaged or not ours is set aside for a new one. */
static int open_db(struct cache *cache, bool check, char error[KERNEL_ERROR_MAX])
{
	char path[PATH_MAX + 16];
	char moved[32];
	snprintf(path, sizeof path, "%s/kiln.db", cache->place.directory);
	int status = cache_db_open(path, check, &cache->db, error);
	if (status == KILN_EPROTO) {
		util_log(UTIL_WARN, "cache: %s", error);
		status = cache_place_set_aside(&cache->place, moved, error);
		if (status == KILN_OK) {
			util_log(UTIL_WARN, "cache: the database was moved to %s/%s and a new one begun",
					 cache->place.directory, moved);
			status = cache_db_open(path, false, &cache->db, error);
		}
	}
	if (status == KILN_OK) {
		status = cache_db_totals(cache->db, &cache->totals, error);
	}
	if (status == KILN_OK) {
		status = cache_failures_open(cache, error);
	}
	return status == KILN_EPROTO ? KILN_EIO : status;
}

int cache_failed(struct cache *cache, int status, char error[KERNEL_ERROR_MAX])
{
	if (status != KILN_EPROTO) {
		return status;
	}
	char why[KERNEL_ERROR_MAX], moved[32], again[KERNEL_ERROR_MAX];
	snprintf(why, sizeof why, "%s", error);
	cache_db_close(cache->db);
	cache->db = NULL;
	cache->totals = (struct cache_db_totals){0};
	cache->failures = cache->failure_bytes = 0;
	cache->pending_count = 0;
	if (cache_place_set_aside(&cache->place, moved, again) != KILN_OK ||
		open_db(cache, false, again) != KILN_OK) {
		cache_db_close(cache->db);
		cache->db = NULL;
		util_log(UTIL_ERROR, "cache: %s; from now on kernels are kept in memory only: %s", why,
				 again);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "the cache has no database: %.240s",
						 again);
	}
	util_log(UTIL_WARN, "cache: %s; moved to %s/%s, a new one begun", why, cache->place.directory,
			 moved);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
					 "the cache's database was damaged and is now %s: a new one has begun", moved);
}

int cache_have_db(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	if (cache->db) {
		return KILN_OK;
	}
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
					 "the cache in %.150s has no database: restart the daemon",
					 cache->place.directory);
}

/* ---- Uses ---- */

void cache_flush_uses(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	int count = cache->pending_count;
	/* Statistics are not worth keeping through a failure. */
	cache->pending_count = 0;
	if (count && cache->db) {
		int status = cache_db_uses(cache->db, cache->pending, count, error);
		if (status != KILN_OK) {
			cache->write_failures++;
			util_log(UTIL_WARN, "cache: %s", error);
			cache_failed(cache, status, error);
		}
	}
}

struct cache_db_use *cache_pending(struct cache *cache, const char *key)
{
	for (int i = 0; i < cache->pending_count; i++) {
		if (strcmp(cache->pending[i].key, key) == 0) {
			return &cache->pending[i];
		}
	}
	return NULL;
}

void cache_drop_use(struct cache *cache, const char *key)
{
	struct cache_db_use *use = cache_pending(cache, key);
	if (use) {
		*use = cache->pending[--cache->pending_count];
	}
}

void cache_count_use(struct cache *cache, const char *key, int64_t now)
{
	struct cache_db_use *use = cache_pending(cache, key);
	if (!use) {
		if (cache->pending_count == PENDING_MAX) {
			cache_flush_uses(cache);
		}
		use = &cache->pending[cache->pending_count++];
		*use = (struct cache_db_use){.hits = 0};
		memcpy(use->key, key, sizeof use->key);
	}
	use->hits++;
	use->used = now;
	use->turn = ++cache->totals.turn;
}

/* ---- Writing ---- */

int cache_check_key(const char *key, char error[KERNEL_ERROR_MAX])
{
	if (!cache_row_is_hex(key, 64)) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.70s\" is not a key: 64 digits of 0-9 and a-f", key);
	}
	return KILN_OK;
}

int cache_check_prefix(const char *prefix, char error[KERNEL_ERROR_MAX])
{
	size_t size = strnlen(prefix, KERNEL_KEY_HEX);
	if (size < 4 || size > 64 || !cache_row_is_hex(prefix, size)) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.70s\" is not the beginning of a key: 4 to 64 digits of 0-9 and a-f",
						 prefix);
	}
	return KILN_OK;
}

static int encode(const struct cache_row *row, void **blob, size_t *bytes,
				  char error[KERNEL_ERROR_MAX])
{
	int status = cache_row_encode(row, blob, bytes);
	if (status == KILN_ELIMIT) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "kernel %.12s is too large for the cache: object and texts have at most "
						 "512 MiB",
						 row->key);
	}
	if (status == KILN_ENOMEM) {
		return util_fail(error, KERNEL_ERROR_MAX, status, "out of memory for kernel %.12s",
						 row->key);
	}
	if (status != KILN_OK) {
		return util_fail(error, KERNEL_ERROR_MAX, status,
						 "kernel %.12s cannot be stored: an object is missing or a name too long",
						 row->key);
	}
	return KILN_OK;
}

static int write_row(struct cache *cache, const struct cache_row *row, const void *blob,
					 size_t bytes, char error[KERNEL_ERROR_MAX])
{
	uint64_t size = (uint64_t)cache_db_cost(bytes);
	int status = cache_have_db(cache, error);
	if (status != KILN_OK) {
		return status;
	}
	if (!cache_fits(cache, size)) {
		char takes[16], cap[16];
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "a kernel that takes %s with its texts is too large for a cache of %s: "
						 "raise --cache-bytes",
						 util_bytes(size, takes), util_bytes(cache->cap_bytes, cap));
	}
	cache_flush_uses(cache);
	status = cache_have_db(cache, error);
	if (status == KILN_OK) {
		status = cache_db_put(cache->db, row, blob, bytes, &cache->totals, error);
	}
	if (status == KILN_OK) {
		status = cache_keep_caps(cache, error);
	}
	return cache_failed(cache, status, error);
}

int cache_put(struct cache *cache, const struct cache_row *row, char error[KERNEL_ERROR_MAX])
{
	struct cache_row dated = *row; /* borrows the pointers */
	int64_t now = (int64_t)time(NULL);
	void *blob;
	size_t bytes;
	int status = cache_check_key(row->key, error);
	if (status != KILN_OK) {
		return status;
	}
	dated.created = row->created ? row->created : now;
	dated.used = row->used ? row->used : now;
	status = encode(&dated, &blob, &bytes, error);
	if (status != KILN_OK) {
		return status;
	}
	cache_memory_put(&cache->memory, &dated);
	status = write_row(cache, &dated, blob, bytes, error);
	free(blob);
	if (status != KILN_OK) {
		cache->write_failures++;
	}
	return status;
}

/* ---- Rows from elsewhere ---- */

int cache_take(struct cache *cache, const struct cache_row *row, const void *blob, size_t bytes,
			   bool *was_there, char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status == KILN_OK) {
		status = cache_failed(cache, cache_db_has(cache->db, row->key, error), error);
	}
	*was_there = status == KILN_OK;
	return status == KILN_ENOENT ? write_row(cache, row, blob, bytes, error) : status;
}

int cache_remove(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	cache_memory_remove(&cache->memory, key);
	cache_drop_use(cache, key);
	if (status == KILN_OK) {
		status = cache_failed(cache, cache_db_remove(cache->db, key, &cache->totals, error), error);
		cache->shrinking = true;
	}
	return status;
}

void cache_flush(struct cache *cache)
{
	if (cache->db) {
		cache_db_flush(cache->db);
	}
}

int cache_room(struct cache *cache, uint64_t bytes, uint64_t rows, char error[KERNEL_ERROR_MAX])
{
	char takes[16], cap[16];
	if (!cache_fits(cache, bytes)) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "kernels of %s are too many for a cache of %s: raise --cache-bytes",
						 util_bytes(bytes, takes), util_bytes(cache->cap_bytes, cap));
	}
	if (cache->cap_rows && rows > cache->cap_rows - cache->cap_rows / 10) {
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%llu kernels are too many for a cache of %llu: raise --cache-rows",
						 (unsigned long long)rows, (unsigned long long)cache->cap_rows);
	}
	return KILN_OK;
}

/* ---- Opening and closing ---- */

int cache_open(const struct cache_options *options, struct cache **out,
			   char error[KERNEL_ERROR_MAX])
{
	struct cache *cache = util_alloc(sizeof *cache);
	cache->cap_bytes = options->cap_bytes;
	cache->cap_rows = options->cap_rows;
	cache->memory.cap = options->memory_bytes;
	int status = cache_place_open(options->directory, &cache->place, error);
	if (status == KILN_OK) {
		bool check =
			cache->place.unclean || cache_place_disk_bytes(&cache->place) <= CHECK_ALWAYS_BYTES;
		status = open_db(cache, check, error);
	}
	if (status == KILN_OK) {
		/* The caps may be lower than last time. */
		status = cache_keep_caps(cache, error);
	}
	if (status != KILN_OK) {
		cache_db_close(cache->db);
		cache_place_close(&cache->place);
		free(cache);
		return status == KILN_EPROTO ? KILN_EIO : status;
	}
	cache->place.unclean = false;
	*out = cache;
	return KILN_OK;
}

void cache_drop_memory(struct cache *cache)
{
	cache_memory_clear(&cache->memory);
}

void cache_stats(struct cache *cache, struct cache_stats *out)
{
	*out = (struct cache_stats){
		.rows = cache->totals.rows,
		.object_bytes = cache->totals.objects,
		.disk_bytes = cache_place_disk_bytes(&cache->place),
		.memory_rows = cache->memory.rows,
		.memory_bytes = cache->memory.bytes,
		.quarantined = cache->quarantined,
		.trimmed = cache->trimmed,
		.write_failures = cache->write_failures,
		.failures = cache->failures,
		.bytes = cache_all_bytes(cache),
		.pinned = cache->totals.pinned,
		.waiting = (uint64_t)cache->pending_count,
		.due = cache->trimming || cache->shrinking,
	};
}

void cache_close(struct cache *cache)
{
	if (!cache) {
		return;
	}
	cache_flush_uses(cache);
	cache_memory_clear(&cache->memory);
	cache_db_close(cache->db);
	cache_place_close(&cache->place);
	free(cache);
}
