/* cache.c: opens and writes: memory before disk, and uses in batches; heal.c answers a disk that
 * fails.  Knows no SQL. */
#include "cache_state.h"
#include "disk_fault.h"

#include <stdlib.h>
#include <string.h>

#define SAVE_ROWS 16 /* rows of one piece */

/* ---- Uses ---- */

/* Counts what other threads have taken out of memory. */
static void collect_uses(struct cache *cache)
{
	struct memory_use uses[MEMORY_USES];
	const int count = cache_memory_uses(&cache->memory, uses);
	for (int i = 0; i < count; i++)
		cache_count_use(cache, uses[i].key, uses[i].hits, uses[i].used);
}

void cache_flush_uses(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	collect_uses(cache);
	int count = cache->pending_count;
	/* Uses that the disk refuses are dropped: they are statistics. */
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

static struct cache_db_use *find_use(struct cache *cache, const char *key)
{
	for (int i = 0; i < cache->pending_count; i++)
		if (strcmp(cache->pending[i].key, key) == 0)
			return &cache->pending[i];
	return NULL;
}

struct cache_db_use *cache_pending(struct cache *cache, const char *key)
{
	collect_uses(cache);
	return find_use(cache, key);
}

void cache_drop_use(struct cache *cache, const char *key)
{
	struct cache_db_use *use = cache_pending(cache, key);
	if (use)
		*use = cache->pending[--cache->pending_count];
}

void cache_count_use(struct cache *cache, const char *key, int64_t hits, int64_t now)
{
	struct cache_db_use *use = find_use(cache, key);
	if (!use) {
		if (cache->pending_count == PENDING_MAX)
			cache_flush_uses(cache);
		use = &cache->pending[cache->pending_count++];
		*use = (struct cache_db_use){.hits = 0};
		memcpy(use->key, key, sizeof(use->key));
	}
	use->hits += hits;
	use->used = now;
	use->turn = ++cache->totals.turn;
}

/* ---- Writing ---- */

int cache_check_key(const char *key, char error[KERNEL_ERROR_MAX])
{
	if (!cache_row_is_hex(key, 64)) {
		return FAIL(KILN_EINVAL, "\"%.*s\" is not a key: 64 digits of 0-9 and a-f",
					PLAIN_CUT(key, 70));
	}
	return KILN_OK;
}

int cache_check_prefix(const char *prefix, char error[KERNEL_ERROR_MAX])
{
	size_t size = strnlen(prefix, KERNEL_KEY_HEX);
	if (size < 4 || size > 64 || !cache_row_is_hex(prefix, size)) {
		return FAIL(KILN_EINVAL,
					"\"%.*s\" is not the beginning of a key: 4 to 64 digits of 0-9 and a-f",
					PLAIN_CUT(prefix, 70));
	}
	return KILN_OK;
}

static int encode(const struct cache_row *row, void **blob, size_t *bytes,
				  char error[KERNEL_ERROR_MAX])
{
	int status = cache_row_encode(row, blob, bytes);
	if (status == KILN_ELIMIT) {
		return FAIL(
			KILN_EIO,
			"kernel %.12s is too large for the cache: object and texts have at most 512 MiB",
			row->key);
	}
	if (status == KILN_ENOMEM)
		return FAIL(status, "out of memory for kernel %.12s", row->key);
	if (status != KILN_OK) {
		return FAIL(status,
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
	if (status != KILN_OK)
		return status;
	if (!cache_fits(cache, size)) {
		char takes[16], cap[16];
		return FAIL(KILN_EIO,
					"a kernel that takes %s with its texts is too large for a cache of %s: raise "
					"--cache-bytes",
					util_bytes(size, takes), util_bytes(cache->cap_bytes, cap));
	}
	cache_stay(cache);
	cache_flush_uses(cache);
	status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_db_put(cache->db, row, blob, bytes, &cache->totals, error);
	if (status == KILN_OK) {
		/* A disk that takes this row may have no room for a row that waits. */
		if (!cache->memory.unsaved)
			cache_sound(cache);
		status = cache_keep_caps(cache, error);
	}
	return cache_failed(cache, status, error);
}

/* Marks a row that was not written as unsaved, if the disk failed since lapses was read: a row that
 * is refused for its size would be refused again. */
static void keep_unsaved(struct cache *cache, const char *key, uint64_t lapses)
{
	cache_memory_mark(&cache->memory, key, cache->trouble[0] || cache->lapses != lapses);
}

int cache_save(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	const struct cache_row *row = cache_memory_unsaved(&cache->memory);
	int status = KILN_OK;
	void *blob;
	size_t bytes;
	for (int i = 0; row && i < SAVE_ROWS && status == KILN_OK; i++) {
		char key[KERNEL_KEY_HEX]; /* a copy: write_row() may trim this very row */
		uint64_t lapses = cache->lapses;
		memcpy(key, row->key, sizeof(key));
		status = cache_have_db(cache, error);
		if (status == KILN_OK)
			status = cache_failed(cache, cache_db_has(cache->db, key, error), error);
		if (status == KILN_ENOENT) {
			status = encode(row, &blob, &bytes, error);
			if (status == KILN_OK) {
				status = write_row(cache, row, blob, bytes, error);
				free(blob);
			}
		}
		if (status == KILN_OK)
			cache_memory_mark(&cache->memory, key, false);
		else
			keep_unsaved(cache, key, lapses);
		row = cache_memory_unsaved(&cache->memory);
	}
	return status;
}

int cache_put(struct cache *cache, const struct cache_row *row, char error[KERNEL_ERROR_MAX])
{
	struct cache_row dated = *row; /* borrows the pointers */
	int64_t now = util_wall_s();
	void *blob;
	size_t bytes;
	int status = cache_check_key(row->key, error);
	if (status != KILN_OK)
		return status;
	dated.created = row->created ? row->created : now;
	dated.used = row->used ? row->used : now;
	status = encode(&dated, &blob, &bytes, error);
	if (status != KILN_OK)
		return status;
	cache_memory_put(&cache->memory, &dated);
	uint64_t lapses = cache->lapses;
	status = write_row(cache, &dated, blob, bytes, error);
	free(blob);
	if (status != KILN_OK) {
		cache->write_failures++;
		keep_unsaved(cache, row->key, lapses);
	}
	return status;
}

/* ---- Rows from elsewhere ---- */

int cache_take(struct cache *cache, const struct cache_row *row, const void *blob, size_t bytes,
			   bool *was_there, char error[KERNEL_ERROR_MAX])
{
	int status = cache_have_db(cache, error);
	if (status == KILN_OK)
		status = cache_failed(cache, cache_db_has(cache->db, row->key, error), error);
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
	if (cache->db)
		cache_db_flush(cache->db);
}

int cache_room(struct cache *cache, uint64_t bytes, uint64_t rows, char error[KERNEL_ERROR_MAX])
{
	char takes[16], cap[16];
	if (!cache_fits(cache, bytes)) {
		return FAIL(KILN_ELIMIT,
					"kernels of %s are too many for a cache of %s: raise --cache-bytes",
					util_bytes(bytes, takes), util_bytes(cache->cap_bytes, cap));
	}
	if (cache->cap_rows && rows > cache->cap_rows - cache->cap_rows / 10) {
		return FAIL(KILN_ELIMIT, "%llu kernels are too many for a cache, which keeps %llu",
					(unsigned long long)rows, (unsigned long long)cache->cap_rows);
	}
	return KILN_OK;
}

/* ---- Opening and closing ---- */

int cache_open(const struct cache_options *options, struct cache **out,
			   char error[KERNEL_ERROR_MAX])
{
	struct cache *cache = util_alloc(sizeof(*cache));
	cache->cap_bytes = options->cap_bytes;
	cache->cap_rows = options->cap_rows;
	cache->memory.cap = options->memory_bytes;
	snprintf(cache->directory, sizeof(cache->directory), "%s", options->directory);
	if (options->faults)
		cache_fault_install();
	int status = cache_place_open(options->directory, &cache->place, error);
	bool passing = status == KILN_EIO && cache->place.passing;
	if (status == KILN_OK) {
		status = cache_begin(cache, error);
		passing = status == KILN_EIO;
	}
	if (status == KILN_OK)
		cache_probe(cache);
	if (status == KILN_OK && cache->db) {
		/* The caps may be lower than those of the last owner. */
		(void)cache_failed(cache, cache_keep_caps(cache, error), error);
	}
	if (passing) {
		cache_begin_trouble(cache, error);
	} else if (status != KILN_OK) {
		cache_place_close(&cache->place);
		free(cache);
		return status;
	}
	*out = cache;
	return KILN_OK;
}

#ifdef KILN_TEST_HOOKS
void cache_drop_memory(struct cache *cache)
{
	cache_memory_clear(&cache->memory);
}
#endif

void cache_stats(struct cache *cache, struct cache_stats *out)
{
	collect_uses(cache);
	bool may_save = cache->memory.unsaved && !cache->trouble[0] && util_now_us() >= cache->again_us;
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
		.due = cache->trimming || cache->shrinking || may_save,
		.unsaved = cache->memory.unsaved,
		.aside = cache->aside.count,
		.aside_bytes = cache->aside.bytes,
		.set_aside = cache->set_aside,
	};
	memcpy(out->trouble, cache->trouble, sizeof(out->trouble));
	memcpy(out->damage, cache->damage, sizeof(out->damage));
}

void cache_close(struct cache *cache)
{
	if (!cache)
		return;
	char ignored[KERNEL_ERROR_MAX];
	cache_flush_uses(cache);
	while (cache->memory.unsaved && !cache->trouble[0] && cache_save(cache, ignored) == KILN_OK) {
	}
	cache_memory_clear(&cache->memory);
	cache_db_close(cache->db);
	cache_place_close(&cache->place);
	free(cache);
}
