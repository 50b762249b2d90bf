/*
 * trim.c: caps, trimming, pins, and the upkeep between lookups.  Knows no SQL: the order in which
 * rows go is DB_VICTIMS of database.c.
 */
#include "cache_state.h"

#include <string.h>

/* ---- The caps ---- */

/* Trimming goes down to 90 % of a cap, so that not every new row trims. */
static uint64_t low_mark(uint64_t cap)
{
	return cap ? cap - cap / 10 : UINT64_MAX;
}

uint64_t cache_all_bytes(const struct cache *cache)
{
	return cache->totals.bytes + cache->totals.quarantine + cache->failure_bytes;
}

bool cache_fits(const struct cache *cache, uint64_t size)
{
	return size <= low_mark(cache->cap_bytes);
}

static bool over(const struct cache *cache, uint64_t bytes, uint64_t rows)
{
	return cache_all_bytes(cache) > bytes || cache->totals.rows > rows;
}

static void forget(struct cache *cache, const char *key)
{
	cache_memory_remove(&cache->memory, key);
	cache_drop_use(cache, key);
	cache->trimmed++;
}

static void forget_row(const struct cache_row *row, void *arg)
{
	forget(arg, row->key);
}

/* Trims rows to the bytes that the quarantine and the failures leave. */
static int trim_rows(struct cache *cache, const struct cache_trim *what,
					 struct cache_trimmed *progress, cache_visit visit, void *arg,
					 char error[KERNEL_ERROR_MAX])
{
	struct cache_trim rows = *what;
	uint64_t others = cache_all_bytes(cache) - cache->totals.bytes;
	if (what->bytes != UINT64_MAX)
		rows.bytes = others < what->bytes ? what->bytes - others : 0;
	return cache_db_trim(cache->db, &rows, &cache->totals, progress, visit, arg, error);
}

/* Empties the quarantine, and then forgets failures that take more than for_failures, as long as
 * more than so many bytes are there. */
static int make_room(struct cache *cache, uint64_t bytes, uint64_t for_failures,
					 char error[KERNEL_ERROR_MAX])
{
	int64_t forgotten;
	int status = KILN_OK;
	if (cache->totals.quarantine && cache_all_bytes(cache) > bytes) {
		status = cache_db_release(cache->db, error);
		if (status == KILN_OK)
			cache->totals.quarantine = 0;
	}
	if (status == KILN_OK && cache->failure_bytes > for_failures && cache_all_bytes(cache) > bytes)
		status = cache_failure_forget(cache, NULL, &forgotten, error);
	return status;
}

/* One piece of the way to the low marks. */
static int trim_piece(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	struct cache_trim what = {.bytes = low_mark(cache->cap_bytes),
							  .rows = low_mark(cache->cap_rows)};
	struct cache_trimmed progress = {0};
	int status = make_room(cache, what.bytes, what.bytes / 4, error);
	if (status == KILN_OK)
		status = trim_rows(cache, &what, &progress, forget_row, cache, error);
	/* All rows that are left are pinned if none went. */
	cache->trimming = progress.removed > 0 && over(cache, what.bytes, what.rows);
	cache->shrinking = true;
	return status;
}

int cache_keep_caps(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = cache->cap_bytes ? cache->cap_bytes : UINT64_MAX;
	uint64_t rows = cache->cap_rows ? cache->cap_rows : UINT64_MAX;
	int status = KILN_OK;
	cache->trimming |= over(cache, bytes, rows);
	while (status == KILN_OK && cache->trimming && over(cache, bytes, rows))
		status = trim_piece(cache, error);
	return status;
}

void cache_tend(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	int status = KILN_OK;
	cache_flush_uses(cache);
	if (!cache->db) {
		cache->trimming = cache->shrinking = false;
		return;
	}
	if (cache->trimming)
		status = trim_piece(cache, error);
	else if (cache->shrinking)
		status = cache_db_shrink(cache->db, &cache->shrinking, error);
	else if (cache->memory.unsaved && !cache->trouble[0])
		status = cache_save(cache, error);
	if (status != KILN_OK) {
		/* The next write tries again. */
		cache->trimming = cache->shrinking = false;
		cache->write_failures++;
		cache_failed(cache, status, error);
		util_log(UTIL_WARN, "cache: %s", error);
	}
}

/* ---- Trimming that was asked for ---- */

struct watcher {
	struct cache *cache;
	bool dry_run;
	cache_visit visit;
	void *arg;
};

static void tell_and_forget(const struct cache_row *row, void *arg)
{
	const struct watcher *watcher = arg;
	if (watcher->visit)
		watcher->visit(row, watcher->arg);
	if (!watcher->dry_run)
		forget(watcher->cache, row->key);
}

static bool takes_all(const struct cache_trim *what)
{
	return !what->op && !what->target && !what->compiler && !what->used_before;
}

static int remove_piece(struct cache *cache, const struct cache_trim *what,
						struct cache_trimmed *progress, cache_visit visit, void *arg,
						char error[KERNEL_ERROR_MAX])
{
	struct watcher watcher = {cache, what->dry_run, visit, arg};
	int status = KILN_OK;
	if (!what->dry_run && takes_all(what)) {
		uint64_t before = cache_all_bytes(cache);
		status = make_room(cache, what->bytes, what->bytes ? UINT64_MAX : 0, error);
		progress->freed += before - cache_all_bytes(cache);
	}
	if (status == KILN_OK)
		status = trim_rows(cache, what, progress, tell_and_forget, &watcher, error);
	if (status == KILN_OK && !what->dry_run && !progress->more) {
		status = cache_db_shrink(cache->db, &progress->more, error);
		cache->shrinking = progress->more;
	}
	return status;
}

int cache_trim(struct cache *cache, const struct cache_trim *what, struct cache_trimmed *progress,
			   cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status == KILN_OK) {
		cache_flush_uses(cache);
		status = cache_have_db(cache, error);
	}
	if (status != KILN_OK)
		return status;
	status = remove_piece(cache, what, progress, visit, arg, error);
	if (status == KILN_OK && !what->dry_run && takes_all(what) && what->bytes == 0) {
		/* Unsaved rows go as well. */
		cache_memory_clear(&cache->memory);
	}
	return cache_failed(cache, status, error);
}

/* ---- Pins ---- */

/* Refuses a pin that would leave other kernels less than half of a cap. */
static int check_room(struct cache *cache, const char *key, char error[KERNEL_ERROR_MAX])
{
	struct cache_row row;
	uint64_t rows = 0, bytes = 0;
	char takes[16], cap[16];
	int status = cache_show(cache, key, &row, error);
	if (status != KILN_OK)
		return status;
	bool pinned = row.pinned;
	uint64_t size = row.size;
	cache_row_free(&row);
	/* cache_show() may have found the database damaged. */
	status = cache_have_db(cache, error);
	if (status != KILN_OK)
		return status;
	status = cache_failed(cache, cache_db_pinned(cache->db, &rows, &bytes, error), error);
	if (status != KILN_OK || pinned)
		return status;
	if (cache->cap_bytes && bytes + size > cache->cap_bytes / 2) {
		return FAIL(KILN_ELIMIT,
					"with kernel %.12s %s would be pinned, and of a cache of %s at most half may "
					"be: unpin others, or raise --cache-bytes",
					key, util_bytes(bytes + size, takes), util_bytes(cache->cap_bytes, cap));
	}
	if (cache->cap_rows && rows + 1 > cache->cap_rows / 2) {
		return FAIL(KILN_ELIMIT,
					"with kernel %.12s %llu kernels would be pinned, and of a cache of %llu at "
					"most half may be: unpin others",
					key, (unsigned long long)rows + 1, (unsigned long long)cache->cap_rows);
	}
	return KILN_OK;
}

int cache_pin(struct cache *cache, const char *key_prefix, bool pinned, char key[KERNEL_KEY_HEX],
			  char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status == KILN_OK) {
		status = pinned ? cache_resolve(cache, key_prefix, key, error)
						: cache_resolve_in(cache, DB_PINS, key_prefix, key, error);
	}
	if (status == KILN_OK && pinned)
		status = check_room(cache, key, error);
	if (status == KILN_OK)
		status = cache_failed(cache, cache_db_set_pin(cache->db, key, pinned, error), error);
	if (status == KILN_OK) {
		struct cache_db_totals totals = {0};
		status = cache_failed(cache, cache_db_totals(cache->db, &totals, error), error);
		cache->totals.pinned = totals.pinned;
	}
	return status;
}
