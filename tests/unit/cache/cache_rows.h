/*
 * cache_rows.h: rows made from a number, a directory of one's own, for the tests of the cache.
 */
#ifndef KILN_TESTS_CACHE_ROWS_H
#define KILN_TESTS_CACHE_ROWS_H

#include "daemon/cache/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define ROOM_BYTES ((uint64_t)256 << 20)

static char directory[64];
static char error[KERNEL_ERROR_MAX];

static int make_directory(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/kiln-test-cache-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

/* Where that can be: there is much to write, and no disk to be waited for. */
static inline int make_memory_directory(void **state)
{
	struct statvfs memory;
	bool fits =
		statvfs("/dev/shm", &memory) == 0 && memory.f_bavail * memory.f_frsize >= ROOM_BYTES;
	snprintf(directory, sizeof(directory), "/dev/shm/kiln-test-cache-XXXXXX");
	return fits && mkdtemp(directory) ? 0 : make_directory(state);
}

static int remove_directory(void **state)
{
	(void)state;
	char command[192];
	snprintf(command, sizeof(command), "chmod 700 %s && rm -rf %s", directory, directory);
	return system(command);
}

static const char *in_directory(const char *name)
{
	static char path[128];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void key_of(int number, char key[KERNEL_KEY_HEX])
{
	struct util_hash hash;
	unsigned char digest[32];
	util_hash_begin(&hash);
	util_hash_add(&hash, &number, sizeof(number));
	util_hash_end(&hash, digest);
	util_hex(digest, 32, key);
}

/* Row number: an object of this size, and texts that tell the number. */
static void make_row(int number, size_t bytes, struct cache_row *row)
{
	char text[64];
	*row = (struct cache_row){.op = "permute", .target = "cpu", .registers = number};
	key_of(number, row->key);
	snprintf(text, sizeof(text), "permute_tile<%d>", number);
	row->instantiation = strdup(text);
	row->entry = strdup("kiln_cpu_entry");
	snprintf(text, sizeof(text), "key text %d", number);
	row->key_text = strdup(text);
	row->source = strdup("source");
	row->log = strdup("");
	row->plan = strdup("plan");
	row->object = malloc(bytes + 1);
	row->object_bytes = bytes;
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)row->object)[i] = (unsigned char)(i * 31 + (size_t)number);
}

/* True if a row is what make_row makes. */
static bool is_row(int number, const struct cache_row *row)
{
	struct cache_row wanted;
	make_row(number, row->object_bytes, &wanted);
	bool same = strcmp(row->key, wanted.key) == 0 &&
				strcmp(row->instantiation, wanted.instantiation) == 0 &&
				strcmp(row->key_text, wanted.key_text) == 0 && row->registers == number &&
				memcmp(row->object, wanted.object, row->object_bytes) == 0;
	cache_row_free(&wanted);
	return same;
}

static inline struct cache *open_cache(uint64_t cap, uint64_t memory)
{
	struct cache_options options = {
		.directory = directory, .cap_bytes = cap, .memory_bytes = memory};
	struct cache *cache = NULL;
	error[0] = 0;
	if (cache_open(&options, &cache, error) != KILN_OK)
		fail_msg("cache_open: %s", error);
	return cache;
}

static int put(struct cache *cache, int number, size_t bytes)
{
	struct cache_row row;
	make_row(number, bytes, &row);
	int status = cache_put(cache, &row, error);
	cache_row_free(&row);
	return status;
}

/* Gets row number, checks what it holds, and returns the status. */
static inline int get(struct cache *cache, int number)
{
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	key_of(number, key);
	int status = cache_get(cache, key, &row, error);
	if (status == KILN_OK) {
		assert_true(is_row(number, &row));
		cache_row_free(&row);
	}
	return status;
}

/* Returns what the cache says of row number; the caller frees it. */
static inline struct cache_row show(struct cache *cache, int number)
{
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	key_of(number, key);
	assert_int_equal(cache_show(cache, key, &row, error), KILN_OK);
	return row;
}

static struct cache_stats stats_of(struct cache *cache)
{
	struct cache_stats stats;
	cache_stats(cache, &stats);
	return stats;
}

static inline void ignore_bad(const char *key, const char *why, void *arg)
{
	(void)key;
	(void)why;
	(void)arg;
}

/* All pieces of verifying. */
static inline struct cache_verified verify_all(struct cache *cache, cache_bad report, void *arg)
{
	struct cache_verified progress = {.checked = 0};
	int pieces = 0;
	do {
		assert_int_equal(cache_verify(cache, &progress, report ? report : ignore_bad, arg, error),
						 KILN_OK);
		assert_true(++pieces < 10000);
	} while (progress.next[0]);
	return progress;
}

/* All pieces of a trim; how many there were. */
static inline int trim_all(struct cache *cache, const struct cache_trim *what,
						   struct cache_trimmed *progress)
{
	int pieces = 0;
	*progress = (struct cache_trimmed){0};
	do {
		assert_int_equal(cache_trim(cache, what, progress, NULL, NULL, error), KILN_OK);
		assert_true(++pieces < 10000);
	} while (progress->more);
	return pieces;
}

/* To so many bytes, whatever the rows. */
static inline struct cache_trimmed trim_to(struct cache *cache, uint64_t bytes)
{
	struct cache_trim what = {.bytes = bytes, .rows = UINT64_MAX};
	struct cache_trimmed progress;
	trim_all(cache, &what, &progress);
	return progress;
}

/* Does all that was put off. */
static inline void tend_all(struct cache *cache)
{
	for (int i = 0; stats_of(cache).due; i++) {
		assert_true(i < 10000);
		cache_tend(cache);
	}
}

#endif
