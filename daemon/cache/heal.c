/*
 * heal.c: keeps the cache at work when its disk fails, its database is damaged, or its files are
 * taken away.  Knows no SQL.
 *
 *   SOUND ---(a call fails for what may pass)---> TROUBLED ---(a probe succeeds)---> SOUND
 *     |                                              |
 *     |  (the database is damaged: it is set aside;  |
 *     |   or its files are gone)                     |
 *     +-------------------> ALONE <------------------+
 *                             |
 *                             +---(a database opens, tried again from again_us on)---> SOUND
 *
 * - SOUND: db is open, trouble is empty.
 * - TROUBLED: db is open and may still be read; memory keeps the rows that the disk does not take.
 * - ALONE: db is NULL, and memory serves alone.
 *
 * cache_begin_trouble() and cache_sound() write trouble, leave_db() and open_db() write db.
 * Outside of this file the cache is never ALONE without a sentence in trouble.
 */
#include "cache_state.h"
#include "daemon/base/deadlines.h"

#include <assert.h>
#include <string.h>

/* Each opening looks a database over up to this size; beyond it only one after a crash does. */
#define CHECK_ALWAYS_BYTES ((uint64_t)64 << 20)
#define SUSPECT_MOST 3 /* false reports of damage, after which the next is believed */

static void cache_assert_valid(const struct cache *cache)
{
	assert(cache->db || cache->trouble[0]);
	(void)cache;
}

/* ---- Trouble ---- */

void cache_begin_trouble(struct cache *cache, const char *why)
{
	if (!cache->trouble[0])
		util_log(UTIL_WARN, "cache: %s; until then kernels are kept in memory only", why);
	snprintf(cache->trouble, sizeof(cache->trouble), "%s", why);
	cache->lapses++;
	cache->again_us = util_now_us() + PAUSE_DATABASE_AGAIN_US;
}

void cache_sound(struct cache *cache)
{
	if (cache->trouble[0])
		util_log(UTIL_INFO, "cache: %s can be written again", cache->place.directory);
	cache->trouble[0] = 0;
}

/* ---- Beginning ---- */

/* Opens the database and counts what it holds. */
static int open_db(struct cache *cache, enum cache_db_check check, char error[KERNEL_ERROR_MAX])
{
	char path[PATH_MAX + 16];
	snprintf(path, sizeof(path), "%s/kiln.db", cache->place.directory);
	int status = cache_db_open(path, check, &cache->db, error);
	if (status == KILN_OK)
		status = cache_db_totals(cache->db, &cache->totals, error);
	if (status == KILN_OK)
		status = cache_failures_open(cache, error);
	if (status != KILN_OK) {
		cache_db_close(cache->db);
		cache->db = NULL;
	}
	return status;
}

/* Sets the database aside and opens a new one. */
static int begin_new(struct cache *cache, const char *why, char moved[32],
					 char error[KERNEL_ERROR_MAX])
{
	int status = cache_place_set_aside(&cache->place, moved, error);
	if (status == KILN_OK) {
		util_log(UTIL_WARN, "cache: %s; it was moved to %s/%s and a new one begun", why,
				 cache->place.directory, moved);
		cache->set_aside++;
		util_fail(cache->damage, sizeof(cache->damage), 0,
				  "the cache's database was moved to %s, and a new one begun: %s", moved, why);
		status = open_db(cache, DB_CHECK_NOTHING, error);
		cache->suspected = 0;
		cache->place.unclean = false;
	}
	cache->aside = cache_place_bound_aside(&cache->place, cache->cap_bytes);
	return status;
}

int cache_begin(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	char why[KERNEL_ERROR_MAX], moved[32];
	bool check =
		cache->place.unclean || cache_place_disk_bytes(&cache->place) <= CHECK_ALWAYS_BYTES;
	cache->aside = cache_place_bound_aside(&cache->place, cache->cap_bytes);
	int status = open_db(cache, check ? DB_CHECK_PAGES : DB_CHECK_NOTHING, error);
	if (status == KILN_EPROTO) {
		memcpy(why, error, sizeof(why));
		status = begin_new(cache, why, moved, error);
	}
	if (status == KILN_OK)
		cache->place.unclean = false;
	return status == KILN_EPROTO ? KILN_EIO : status;
}

/* Closes the database, and forgets its figures. */
static void leave_db(struct cache *cache)
{
	cache_db_close(cache->db);
	cache->db = NULL;
	cache->lapses++;
	cache->totals = (struct cache_db_totals){0};
	cache->failures = cache->failure_bytes = 0;
	cache->pending_count = 0;
}

/*
 * Opens the database anew and looks it over: where the disk fails, SQLite may report damage that
 * there is not.  KILN_EPROTO: the database is damaged, or was reported so too often.
 */
static int look_over(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	uint64_t now = util_now_us();
	cache->place.unclean = true;
	if (now - cache->suspected_us > PAUSE_SUSPICION_US)
		cache->suspected = 0;
	cache->suspected_us = now;
	if (cache->suspected == SUSPECT_MOST)
		return KILN_EPROTO;
	cache->suspected++;
	int status = open_db(cache, DB_CHECK_ALL, error);
	cache->place.unclean = status != KILN_OK;
	return status;
}

int cache_failed(struct cache *cache, int status, char error[KERNEL_ERROR_MAX])
{
	char why[KERNEL_ERROR_MAX], moved[32];
	if (status != KILN_OK && cache->db && cache_db_disk_failed(cache->db))
		cache_begin_trouble(cache, error);
	if (status != KILN_EPROTO)
		return status;
	memcpy(why, error, sizeof(why));
	leave_db(cache);
	status = look_over(cache, error);
	if (status == KILN_OK) {
		util_log(UTIL_WARN, "cache: %s; it was looked over and is sound", why);
		cache->again_us = util_now_us() + PAUSE_DATABASE_AGAIN_US;
		memcpy(error, why, sizeof(why));
		return KILN_EIO;
	}
	if (status == KILN_EPROTO)
		status = begin_new(cache, why, moved, error);
	if (status != KILN_OK) {
		memcpy(why, error, sizeof(why));
		FAIL(KILN_EIO, "the cache has no database: %.280s", why);
		cache_begin_trouble(cache, error);
		return KILN_EIO;
	}
	cache_sound(cache);
	/* The rows in memory were verified when they were read. */
	cache_memory_mark(&cache->memory, NULL, true);
	return FAIL(KILN_EIO, "the cache's database was damaged and is now %s: a new one has begun",
				moved);
}

/* ---- Going on ---- */

void cache_probe(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	int status = cache_db_probe(cache->db, error);
	if (status == KILN_OK)
		cache_sound(cache);
	else
		(void)cache_failed(cache, status, error);
}

/* Tries to write.  A disk that is nearly full has room for a probe and none for a row: it works
 * again once it takes the rows that wait.  False: the database must be opened anew to be written.
 * */
static bool try_disk(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	uint64_t lapses = cache->lapses;
	int status = cache_db_probe(cache->db, error);
	if (status == KILN_OK)
		(void)cache_save(cache, error);
	else
		(void)cache_failed(cache, status, error);
	if (status == KILN_OK && cache->lapses == lapses)
		cache_sound(cache);
	return status != KILN_EPERM;
}

/* Opens the directory again if it has gone, and a database in it. */
static int begin_again(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK;
	if (!cache_place_is_current(&cache->place)) {
		cache_place_close(&cache->place);
		status = cache_place_open(cache->directory, &cache->place, error);
	}
	if (status == KILN_OK)
		status = cache_begin(cache, error);
	if (status == KILN_OK) {
		cache_memory_mark(&cache->memory, NULL, true);
		cache_probe(cache);
	} else {
		cache_begin_trouble(cache, error);
	}
	return status;
}

int cache_have_db(struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	/* A database that was just begun may be found damaged at once. */
	cache_assert_valid(cache);
	bool may_begin = !cache->db && util_now_us() >= cache->again_us;
	if (cache->db || (may_begin && begin_again(cache, error) == KILN_OK && cache->db))
		return KILN_OK;
	cache_assert_valid(cache);
	return FAIL(KILN_EIO, "%s", cache->trouble);
}

void cache_stay(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	enum cache_db_lost lost = cache->db ? cache_db_lost(cache->db) : DB_LOST_NOTHING;
	if (lost == DB_LOST_NOTHING)
		return;
	util_log(UTIL_WARN, "cache: %s/kiln.db%s was removed or replaced; it is opened anew",
			 cache->place.directory, lost == DB_LOST_LOG ? "-wal" : "");
	if (lost == DB_LOST_LOG)
		cache_flush_uses(cache);
	leave_db(cache);
	/* The log of one file must not be read into another. */
	if (lost == DB_LOST_FILE)
		cache_place_forget_log(&cache->place);
	begin_again(cache, error);
}

void cache_look(struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	cache_stay(cache);
	if (cache->db && !cache_place_is_current(&cache->place))
		cache_place_lock_again(&cache->place);
	if (!cache->db) {
		begin_again(cache, error);
	} else if (cache->trouble[0] && !try_disk(cache)) {
		leave_db(cache);
		begin_again(cache, error);
	}
	cache_assert_valid(cache);
}
