/*
 * The cache in use: what was put is got, in memory and on disk; hits, lists, prefixes, trimming,
 * the cap; rows that are damaged.
 */
#include "cache_rows.h"

#include <pthread.h>

#include <sys/stat.h>
#include <unistd.h>

/* The cost of a row with so large an object. */
#define COST(object) ((uint64_t)cache_db_cost((object) + 500))

static int64_t hits_of(struct cache *cache, int number)
{
	struct cache_row row = show(cache, number);
	int64_t hits = row.hits;
	cache_row_free(&row);
	return hits;
}

static void what_was_put_is_got(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	assert_int_equal(get(cache, 1), KILN_ENOENT);
	assert_int_equal(put(cache, 1, 5000), KILN_OK);
	assert_int_equal(put(cache, 2, 0), KILN_OK);
	assert_int_equal(get(cache, 1), KILN_OK);
	cache_drop_memory(cache);
	assert_int_equal(stats_of(cache).memory_rows, 0);
	key_of(1, key);
	assert_int_equal(cache_get(cache, key, &row, error), KILN_OK);
	assert_true(is_row(1, &row));
	assert_int_equal(row.object_bytes, 5000);
	assert_int_equal(row.hits, 2);
	assert_true(row.created > 1000000000 && row.used >= row.created);
	cache_row_free(&row);
	assert_int_equal(get(cache, 2), KILN_OK);
	struct cache_stats stats = stats_of(cache);
	assert_int_equal(stats.rows, 2);
	assert_int_equal(stats.object_bytes, 5000);
	assert_int_equal(stats.memory_rows, 2);
	assert_true(stats.disk_bytes > 5000);
	assert_int_equal(stats.quarantined + stats.trimmed + stats.write_failures, 0);
	cache_close(cache);

	cache = open_cache(0, 0);
	assert_int_equal(hits_of(cache, 1), 2);
	assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(stats_of(cache).memory_rows, 0);
	assert_int_equal(stats_of(cache).object_bytes, 5000);
	assert_int_equal(hits_of(cache, 1), 3);
	cache_close(cache);
	cache_close(NULL);
}

static void files_are_private(void **state)
{
	(void)state;
	struct stat status;
	char path[96];
	snprintf(path, sizeof(path), "%s/a/b", directory);
	struct cache_options options = {.directory = path};
	struct cache *cache;
	mode_t mask = umask(0);
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	assert_int_equal(put(cache, 1, 10), KILN_OK);
	umask(mask);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	assert_int_equal(stat(in_directory("a/b/kiln.db"), &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(stat(in_directory("a/b/kiln.db-wal"), &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(access(in_directory("a/b/lock"), F_OK), 0);
	cache_close(cache);
	assert_int_equal(access(in_directory("a/b/lock"), F_OK), -1);
	assert_int_equal(access(in_directory("a/b/kiln.db-wal"), F_OK), -1);
}

static void a_row_replaces_its_elder(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	assert_int_equal(put(cache, 1, 300), KILN_OK);
	assert_int_equal(stats_of(cache).rows, 1);
	assert_int_equal(stats_of(cache).memory_rows, 1);
	assert_int_equal(stats_of(cache).object_bytes, 300);
	cache_drop_memory(cache);
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	key_of(1, key);
	assert_int_equal(cache_get(cache, key, &row, error), KILN_OK);
	assert_int_equal(row.object_bytes, 300);
	cache_row_free(&row);
	cache_close(cache);
}

static void wrong_keys(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_row row;
	assert_int_equal(cache_get(cache, "abc", &row, error), KILN_EINVAL);
	assert_string_equal(error, "\"abc\" is not a key: 64 digits of 0-9 and a-f");
	make_row(1, 10, &row);
	row.key[0] = 'X';
	assert_int_equal(cache_put(cache, &row, error), KILN_EINVAL);
	row.key[0] = 'a';
	memset(row.op, 'x', sizeof(row.op));
	assert_int_equal(cache_put(cache, &row, error), KILN_EINVAL);
	cache_row_free(&row);
	assert_int_equal(stats_of(cache).rows, 0);
	cache_close(cache);
}

/* Two numbers whose keys share the first four digits do not come easily: keys are set by hand. */
static void put_key(struct cache *cache, const char *first)
{
	struct cache_row row;
	make_row(1, 10, &row);
	memcpy(row.key, first, strlen(first));
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	cache_row_free(&row);
}

static void prefixes(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_row row;
	put_key(cache, "abcd01");
	put_key(cache, "abcd02");
	put_key(cache, "ffff00");
	assert_int_equal(cache_show(cache, "ffff", &row, error), KILN_OK);
	assert_memory_equal(row.key, "ffff00", 6);
	assert_null(row.object);
	assert_int_equal(row.object_bytes, 10);
	assert_string_equal(row.source, "source");
	assert_int_equal(row.hits, 0);
	char key[KERNEL_KEY_HEX];
	memcpy(key, row.key, sizeof(key));
	cache_row_free(&row);
	assert_int_equal(cache_show(cache, key, &row, error), KILN_OK);
	cache_row_free(&row);
	assert_int_equal(cache_show(cache, "abcd02", &row, error), KILN_OK);
	assert_memory_equal(row.key, "abcd02", 6);
	cache_row_free(&row);

	assert_int_equal(cache_show(cache, "abcd", &row, error), KILN_EINVAL);
	assert_string_equal(error,
						"several kernels have a key that begins with abcd: give more digits");
	assert_int_equal(cache_show(cache, "abcd03", &row, error), KILN_ENOENT);
	assert_string_equal(error, "no kernel in the cache has a key that begins with abcd03");
	static const char *const bad[] = {"", "fff", "FFFF", "fff%", "ffff' --"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(cache_show(cache, bad[i], &row, error), KILN_EINVAL);
		assert_non_null(strstr(error, "is not the beginning of a key: 4 to 64 digits"));
	}
	char longer[67] = "";
	memset(longer, 'f', 65);
	assert_int_equal(cache_show(cache, longer, &row, error), KILN_EINVAL);
	cache_close(cache);
}

struct listing {
	int count;
	int64_t numbers[16], hits[16];
	size_t bytes[16];
};

static void list_row(const struct cache_row *row, void *arg)
{
	struct listing *listing = arg;
	char text[64];
	snprintf(text, sizeof(text), "permute_tile<%d>", (int)row->registers);
	assert_string_equal(row->instantiation, text);
	assert_string_equal(row->op, "permute");
	assert_string_equal(row->target, "cpu");
	assert_null(row->object);
	assert_null(row->source);
	listing->numbers[listing->count] = row->registers;
	listing->hits[listing->count] = row->hits;
	listing->bytes[listing->count++] = row->object_bytes;
}

static void expect_order(struct cache *cache, const char *sort, int64_t limit, const char *order)
{
	struct listing listing = {0};
	char found[17] = "";
	assert_int_equal(cache_list(cache, sort, "", limit, list_row, &listing, error), KILN_OK);
	for (int i = 0; i < listing.count; i++)
		found[i] = (char)('0' + listing.numbers[i]);
	assert_string_equal(found, order);
}

static void lists(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	struct listing listing = {0};
	expect_order(cache, NULL, 0, "");
	put(cache, 1, 300);
	put(cache, 2, 100);
	put(cache, 3, 200);
	expect_order(cache, "created", 0, "321");
	expect_order(cache, "bytes", 0, "132");
	for (int i = 0; i < 3; i++)
		get(cache, 2);
	get(cache, 1);
	expect_order(cache, "hits", 0, "213");
	expect_order(cache, "used", 0, "123");
	expect_order(cache, NULL, 2, "12");
	assert_int_equal(cache_list(cache, "hits", "", 1, list_row, &listing, error), KILN_OK);
	assert_int_equal(listing.hits[0], 3);
	assert_int_equal(listing.bytes[0], 100);
	assert_int_equal(cache_list(cache, "key; DROP", "", 1, list_row, &listing, error), KILN_EINVAL);
	assert_string_equal(error, "kernels cannot be sorted by \"key; DROP\": by used, hits, bytes, "
							   "created or key");
	cache_close(cache);
}

static void hits_are_written_in_batches(void **state)
{
	(void)state;
	struct stat before, after;
	struct cache *cache = open_cache(0, 1 << 20);
	put(cache, 1, 100);
	assert_int_equal(stat(in_directory("kiln.db-wal"), &before), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(stat(in_directory("kiln.db-wal"), &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_int_equal(hits_of(cache, 1), 100);
	/* More different rows than are kept back: none is lost. */
	for (int i = 10; i < 310; i++)
		put(cache, i, 10);
	for (int i = 10; i < 310; i++)
		assert_int_equal(get(cache, i), KILN_OK);
	cache_close(cache);
	cache = open_cache(0, 0);
	assert_int_equal(hits_of(cache, 1), 100);
	for (int i = 10; i < 310; i++)
		assert_int_equal(hits_of(cache, i), 1);
	cache_close(cache);
}

struct taker {
	struct cache *cache;
	int got, wrong;
};

static void *take_from_memory(void *arg)
{
	struct taker *taker = arg;
	char key[KERNEL_KEY_HEX];
	struct cache_row row;
	key_of(1, key);
	while (taker->got < 200) {
		if (!cache_get_kept(taker->cache, key, &row))
			continue;
		taker->wrong += !is_row(1, &row);
		cache_row_free(&row);
		taker->got++;
	}
	return NULL;
}

/* Other threads take rows out of memory while this one reads, writes and forgets, and all uses of
 * them are counted. */
static void memory_is_for_all_threads(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	struct taker takers[2] = {{cache}, {cache}};
	pthread_t threads[2];
	char key[KERNEL_KEY_HEX];
	struct cache_row row;
	put(cache, 1, 1000);
	key_of(2, key);
	assert_false(cache_get_kept(cache, key, &row));
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_from_memory, &takers[i]), 0);
	for (int i = 0; i < 100; i++) {
		put(cache, 2 + i % 3, 1000);
		assert_int_equal(get(cache, 1), KILN_OK);
		cache_tend(cache);
		assert_int_equal(cache_remove(cache, key, error), KILN_OK);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(takers[i].wrong, 0);
	}
	cache_tend(cache);
	assert_int_equal(hits_of(cache, 1), 100 + takers[0].got + takers[1].got);
	cache_close(cache);
}

/* A row that was taken out of memory stays as it is, whatever becomes of the one in there. */
static void a_taken_row_stays(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	struct cache_row taken[2];
	char key[KERNEL_KEY_HEX];
	put(cache, 1, 1000);
	key_of(1, key);
	for (int i = 0; i < 2; i++)
		assert_true(cache_get_kept(cache, key, &taken[i]));
	assert_int_equal(cache_remove(cache, key, error), KILN_OK);
	put(cache, 2, 1000);
	assert_true(is_row(1, &taken[0]));
	cache_row_free(&taken[0]);
	cache_close(cache);
	assert_true(is_row(1, &taken[1]));
	cache_row_free(&taken[1]);
}

static void the_cap_holds(void **state)
{
	(void)state;
	uint64_t cost = COST(1000);
	struct cache *cache = open_cache(10 * cost, 1 << 20);
	for (int i = 0; i < 10; i++)
		assert_int_equal(put(cache, i, 1000), KILN_OK);
	assert_int_equal(stats_of(cache).rows, 10);
	assert_int_equal(stats_of(cache).bytes, 10 * cost);
	assert_int_equal(get(cache, 0), KILN_OK);
	assert_int_equal(put(cache, 10, 1000), KILN_OK);
	/* Down to 90 %: the two least recently used. */
	assert_int_equal(stats_of(cache).rows, 9);
	assert_int_equal(stats_of(cache).bytes, 9 * cost);
	assert_int_equal(stats_of(cache).object_bytes, 9000);
	assert_int_equal(get(cache, 0), KILN_OK);
	assert_int_equal(get(cache, 1), KILN_ENOENT);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_int_equal(get(cache, 3), KILN_OK);
	assert_int_equal(get(cache, 10), KILN_OK);
	/* One that would drive out all others is kept in memory only. */
	assert_int_equal(put(cache, 11, 9 * cost), KILN_EIO);
	assert_string_equal(error,
						"a kernel that takes 44.5 KiB with its texts is too large for a cache "
						"of 45.0 KiB: raise --cache-bytes");
	assert_int_equal(get(cache, 11), KILN_OK);
	assert_int_equal(stats_of(cache).rows, 9);
	cache_close(cache);
	cache = open_cache(4 * cost, 0);
	assert_in_range(stats_of(cache).bytes, 3 * cost, 4 * cost);
	cache_close(cache);
}

static void memory_is_bounded(void **state)
{
	(void)state;
	struct cache_row row;
	make_row(1, 1000, &row);
	uint64_t cost = cache_row_cost(&row);
	cache_row_free(&row);
	struct cache *cache = open_cache(0, 3 * cost);
	for (int i = 1; i <= 3; i++)
		put(cache, i, 1000);
	assert_int_equal(stats_of(cache).memory_rows, 3);
	assert_int_equal(stats_of(cache).memory_bytes, 3 * cost);
	get(cache, 1);
	put(cache, 4, 1000); /* drives out 2 */
	assert_int_equal(stats_of(cache).memory_rows, 3);
	put(cache, 5, 100000); /* larger than all memory */
	assert_int_equal(stats_of(cache).memory_rows, 3);
	assert_int_equal(get(cache, 5), KILN_OK);
	assert_int_equal(get(cache, 2), KILN_OK);
	assert_int_equal(stats_of(cache).memory_bytes, 3 * cost);
	cache_close(cache);
}

struct bad_rows {
	int count;
	char key[KERNEL_KEY_HEX], why[KERNEL_ERROR_MAX];
};

static void note_bad(const char *key, const char *why, void *arg)
{
	struct bad_rows *rows = arg;
	rows->count++;
	snprintf(rows->key, sizeof(rows->key), "%s", key);
	snprintf(rows->why, sizeof(rows->why), "%s", why);
}

static void damaged_rows_are_misses(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	char key[KERNEL_KEY_HEX];
	for (int i = 1; i <= 4; i++)
		put(cache, i, 3000);
	key_of(2, key);
	key[8] = 0;
	assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_non_null(strstr(error, "the checksum does not match"));
	assert_int_equal(stats_of(cache).quarantined, 1);
	assert_int_equal(stats_of(cache).rows, 3);
	assert_int_equal(stats_of(cache).object_bytes, 9000);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_int_equal(stats_of(cache).quarantined, 1);
	assert_int_equal(put(cache, 2, 3000), KILN_OK);
	cache_drop_memory(cache);
	assert_int_equal(get(cache, 2), KILN_OK);

	key_of(3, key);
	assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
	struct bad_rows rows = {0};
	struct cache_verified verified = verify_all(cache, note_bad, &rows);
	assert_int_equal(verified.checked, 4);
	assert_int_equal(verified.bad, 1);
	assert_int_equal(rows.count, 1);
	assert_string_equal(rows.key, key);
	assert_non_null(strstr(rows.why, "the checksum does not match"));
	verified = verify_all(cache, note_bad, &rows);
	assert_int_equal(verified.checked, 3);
	assert_int_equal(verified.bad, 0);
	assert_int_equal(cache_corrupt(cache, key, error), KILN_ENOENT);
	cache_close(cache);
}

static void the_quarantine_is_bounded(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_db *db;
	uint64_t count, held;
	char key[KERNEL_KEY_HEX];
	for (int i = 0; i < 20; i++) {
		put(cache, i, 10);
		key_of(i, key);
		assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
		assert_int_equal(get(cache, i), KILN_ENOENT);
	}
	assert_int_equal(stats_of(cache).quarantined, 20);
	assert_int_equal(stats_of(cache).rows, 0);
	cache_close(cache);
	assert_int_equal(cache_db_open(in_directory("kiln.db"), true, &db, error), KILN_OK);
	assert_int_equal(cache_db_quarantined(db, &count, &held, error), KILN_OK);
	assert_int_equal(count, DB_QUARANTINE);
	assert_in_range(held, 10 * DB_QUARANTINE, 1000 * DB_QUARANTINE);
	cache_db_close(db);
}

/* A sound blob in the place of another one. */
static void a_row_of_another_key_is_a_miss(void **state)
{
	(void)state;
	struct cache_row row, other;
	struct cache_db *db;
	void *blob;
	size_t bytes;
	struct cache_db_totals totals = {0};
	make_row(1, 100, &row);
	make_row(2, 100, &other);
	assert_int_equal(cache_row_encode(&other, &blob, &bytes), KILN_OK);
	assert_int_equal(cache_db_open(in_directory("kiln.db"), true, &db, error), KILN_OK);
	assert_int_equal(cache_db_put(db, &row, blob, bytes, &totals, error), KILN_OK);
	assert_int_equal(totals.rows, 1);
	cache_db_close(db);
	free(blob);
	cache_row_free(&row);
	cache_row_free(&other);
	struct cache *cache = open_cache(0, 0);
	assert_int_equal(stats_of(cache).rows, 1);
	assert_int_equal(get(cache, 1), KILN_ENOENT);
	assert_string_equal(error, "the row does not belong to its entry in the list");
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_int_equal(stats_of(cache).rows, 0);
	assert_int_equal(stats_of(cache).quarantined, 1);
	cache_close(cache);
}

int main(void)
{
	util_log_level = UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_put_is_got, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(files_are_private, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(a_row_replaces_its_elder, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(wrong_keys, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(prefixes, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(lists, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(a_taken_row_stays, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(memory_is_for_all_threads, make_directory,
										remove_directory),
		cmocka_unit_test_setup_teardown(hits_are_written_in_batches, make_directory,
										remove_directory),
		cmocka_unit_test_setup_teardown(the_cap_holds, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(memory_is_bounded, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(damaged_rows_are_misses, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(the_quarantine_is_bounded, make_directory,
										remove_directory),
		cmocka_unit_test_setup_teardown(a_row_of_another_key_is_a_miss, make_directory,
										remove_directory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
