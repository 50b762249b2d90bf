/*
 * cache_disk.h: a cache on a disk that fails as it is told, whose file others may write to.
 */
#ifndef KILN_TESTS_CACHE_DISK_H
#define KILN_TESTS_CACHE_DISK_H

#include "cache_rows.h"

#include "daemon/cache/disk_fault.h"

#include <sqlite3.h>
#include <unistd.h>

static inline int make_faultless(void **state)
{
	cache_fault_set("none", 0, 0, 0);
	return make_memory_directory(state);
}

static inline int try_open(uint64_t memory, struct cache **out)
{
	struct cache_options options = {.directory = directory, .memory_bytes = memory, .faults = true};
	*out = NULL;
	error[0] = 0;
	return cache_open(&options, out, error);
}

static inline struct cache *open_faulty(void)
{
	struct cache *cache;
	if (try_open(8 << 20, &cache) != KILN_OK)
		fail_msg("cache_open: %s", error);
	return cache;
}

/* Until it is as if nothing had been; fails the test if that takes long. */
static inline void heal(struct cache *cache)
{
	cache_fault_set("none", 0, 0, 0);
	cache_look(cache);
	for (int i = 0; stats_of(cache).trouble[0] || stats_of(cache).unsaved; i++) {
		if (i == 30) {
			fail_msg("after the fault: %s, %d rows unsaved", stats_of(cache).trouble,
					 (int)stats_of(cache).unsaved);
		}
		if (stats_of(cache).trouble[0])
			cache_look(cache);
		else
			cache_tend(cache);
	}
}

/* All rows from 1 to count are on the disk, and sound. */
static inline void assert_rows(struct cache *cache, int count)
{
	cache_drop_memory(cache);
	for (int i = 1; i <= count; i++)
		if (get(cache, i) != KILN_OK)
			fail_msg("row %d: %s", i, error);
	assert_int_equal(verify_all(cache, NULL, NULL).bad, 0);
}

/* As somebody else who has the file. */
static inline void run_sql(const char *text)
{
	sqlite3 *db;
	char *why = NULL;
	assert_int_equal(sqlite3_open(in_directory("kiln.db"), &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s: %s", text, why);
	sqlite3_close(db);
}

#endif
