/*
 * test_cache_failures: compiles that failed, in the database: kept, found, bounded, forgotten, and
 * gone when their time is over or a bit of them is wrong.
 */
#include "cache_disk.h"

#include <time.h>

static void make_failure(int number, int64_t until, struct cache_failure *failure)
{
	struct cache_row row;
	make_row(number, 0, &row);
	free(row.object);
	free(row.entry);
	row.object = NULL;
	row.entry = NULL;
	row.created = row.used = 1000 + number;
	*failure = (struct cache_failure){.row = row, .status = KILN_ECOMPILE, .until = until};
	snprintf(failure->error, sizeof(failure->error), "k.cu:%d: error", number);
}

static void put_failure(struct cache *cache, int number, int64_t until)
{
	struct cache_failure failure;
	make_failure(number, until, &failure);
	if (cache_failure_put(cache, &failure, error) != KILN_OK)
		fail_msg("cache_failure_put: %s", error);
	cache_failure_free(&failure);
}

static int get_failure(struct cache *cache, int number)
{
	struct cache_failure failure;
	char key[KERNEL_KEY_HEX], wanted[64];
	key_of(number, key);
	int status = cache_failure_get(cache, key, &failure, error);
	if (status != KILN_OK)
		return status;
	snprintf(wanted, sizeof(wanted), "k.cu:%d: error", number);
	assert_string_equal(failure.error, wanted);
	assert_int_equal(failure.status, KILN_ECOMPILE);
	assert_string_equal(failure.row.key, key);
	snprintf(wanted, sizeof(wanted), "key text %d", number);
	assert_string_equal(failure.row.key_text, wanted);
	assert_string_equal(failure.row.source, "source");
	assert_null(failure.row.entry);
	cache_failure_free(&failure);
	return status;
}

static void kept_through_a_restart(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	assert_int_equal(get_failure(cache, 1), KILN_ENOENT);
	put_failure(cache, 1, 0);
	put_failure(cache, 2, (int64_t)time(NULL) + 1000);
	assert_int_equal(stats_of(cache).failures, 2);
	assert_int_equal(stats_of(cache).rows, 0);
	assert_int_equal(get_failure(cache, 1), KILN_OK);
	assert_int_equal(get_failure(cache, 2), KILN_OK);
	cache_close(cache);

	/* Failures kept for a while are gone: the daemon's options may be others. */
	cache = open_cache(0, 1 << 20);
	assert_int_equal(stats_of(cache).failures, 1);
	assert_int_equal(get_failure(cache, 1), KILN_OK);
	assert_int_equal(get_failure(cache, 2), KILN_ENOENT);
	cache_close(cache);
}

static void over_when_its_time_is(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	put_failure(cache, 1, (int64_t)time(NULL) - 1);
	put_failure(cache, 2, (int64_t)time(NULL) + 1000);
	assert_int_equal(get_failure(cache, 1), KILN_ENOENT);
	assert_int_equal(stats_of(cache).failures, 1);
	assert_int_equal(get_failure(cache, 2), KILN_OK);
	cache_close(cache);
}

struct seen {
	int count;
	char first[KERNEL_KEY_HEX], error[KERNEL_ERROR_MAX];
	int64_t hits;
};

static void see(const struct cache_failure *failure, void *arg)
{
	struct seen *seen = arg;
	if (seen->count++ > 0)
		return;
	memcpy(seen->first, failure->row.key, sizeof(seen->first));
	memcpy(seen->error, failure->error, sizeof(seen->error));
	seen->hits = failure->row.hits;
	assert_non_null(strstr(failure->row.instantiation, "permute_tile<"));
}

static void listed_by_last_use(void **state)
{
	struct cache *cache = open_cache(0, 0);
	struct seen seen = {0};
	char key[KERNEL_KEY_HEX];
	(void)state;
	for (int i = 1; i <= 3; i++)
		put_failure(cache, i, 0);
	assert_int_equal(get_failure(cache, 2), KILN_OK);
	assert_int_equal(get_failure(cache, 2), KILN_OK);
	assert_int_equal(cache_failure_list(cache, 0, see, &seen, error), KILN_OK);
	key_of(2, key);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.first, key);
	assert_string_equal(seen.error, "k.cu:2: error");
	assert_int_equal(seen.hits, 2);
	seen.count = 0;
	assert_int_equal(cache_failure_list(cache, 2, see, &seen, error), KILN_OK);
	assert_int_equal(seen.count, 2);
	cache_close(cache);
}

static void bounded(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	for (int i = 0; i < CACHE_FAILURES_MOST + 3; i++)
		put_failure(cache, i, 0);
	assert_int_equal(stats_of(cache).failures, CACHE_FAILURES_MOST);
	for (int i = 0; i < 3; i++)
		assert_int_equal(get_failure(cache, i), KILN_ENOENT);
	assert_int_equal(get_failure(cache, 3), KILN_OK);
	/* Again the same is no further one. */
	put_failure(cache, 3, 0);
	assert_int_equal(stats_of(cache).failures, CACHE_FAILURES_MOST);
	cache_close(cache);
}

static void shown_and_forgotten(void **state)
{
	struct cache *cache = open_cache(0, 0);
	struct cache_failure failure;
	char key[KERNEL_KEY_HEX];
	int64_t removed = -1;
	(void)state;
	put_failure(cache, 1, 0);
	put_failure(cache, 2, 0);
	key_of(1, key);
	key[8] = 0;
	assert_int_equal(cache_failure_show(cache, key, &failure, error), KILN_OK);
	assert_string_equal(failure.error, "k.cu:1: error");
	assert_int_equal(failure.row.hits, 0);
	cache_failure_free(&failure);
	assert_int_equal(cache_failure_forget(cache, key, &removed, error), KILN_OK);
	assert_int_equal(removed, 1);
	assert_int_equal(cache_failure_forget(cache, key, &removed, error), KILN_ENOENT);
	assert_non_null(strstr(error, "no failure is remembered under a key that begins with "));
	assert_non_null(strstr(error, key));
	assert_int_equal(cache_failure_forget(cache, "xyz", &removed, error), KILN_EINVAL);
	assert_non_null(strstr(error, "\"xyz\" is not the beginning of a key: 4 to 64 digits"));
	assert_int_equal(get_failure(cache, 2), KILN_OK);
	assert_int_equal(cache_failure_forget(cache, NULL, &removed, error), KILN_OK);
	assert_int_equal(removed, 1);
	assert_int_equal(get_failure(cache, 2), KILN_ENOENT);
	cache_close(cache);
}

static void ambiguous(void **state)
{
	struct cache *cache = open_cache(0, 0);
	struct cache_failure failure;
	struct cache_row row, shown;
	int64_t removed;
	(void)state;
	for (int i = 0; i < 2; i++) {
		make_failure(i, 0, &failure);
		memcpy(failure.row.key, "abcd", 4);
		assert_int_equal(cache_failure_put(cache, &failure, error), KILN_OK);
		cache_failure_free(&failure);
	}
	assert_int_equal(cache_failure_forget(cache, "abcd", &removed, error), KILN_EINVAL);
	assert_string_equal(error,
						"several failures have a key that begins with abcd: give more digits");
	make_row(3, 10, &row);
	memcpy(row.key, "abcd", 4);
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	assert_int_equal(cache_show(cache, "abcd", &shown, error), KILN_EINVAL);
	assert_string_equal(error,
						"a kernel and a failure have keys that begin with abcd: give more digits");
	assert_int_equal(cache_show(cache, row.key, &shown, error), KILN_OK);
	cache_row_free(&shown);
	cache_row_free(&row);
	cache_close(cache);
}

/* Clearing the cache is a new beginning for them, too; trimming is not. */
static void cleared_with_the_rest(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	put_failure(cache, 1, 0);
	assert_int_equal(put(cache, 2, 1000), KILN_OK);
	uint64_t all = stats_of(cache).bytes;
	assert_int_equal(trim_to(cache, all).removed, 0);
	/* They take their part of the bytes. */
	assert_int_equal(trim_to(cache, all - 1).removed, 1);
	assert_in_range(stats_of(cache).bytes, 1, 4096);
	trim_to(cache, 1);
	assert_int_equal(stats_of(cache).failures, 1);
	trim_to(cache, 0);
	assert_int_equal(stats_of(cache).failures, 0);
	assert_int_equal(stats_of(cache).bytes, 0);
	cache_close(cache);
}

/* A cap that they fill is for kernels. */
static void they_leave_room(void **state)
{
	(void)state;
	struct cache *cache = open_cache(40000, 0);
	for (int i = 0; i < 100; i++)
		put_failure(cache, i, 0);
	for (int i = 200; i < 220; i++) {
		assert_int_equal(put(cache, i, 100), KILN_OK);
		assert_int_equal(get(cache, i), KILN_OK);
		assert_true(stats_of(cache).bytes <= 40000);
	}
	assert_int_equal(stats_of(cache).failures, 0);
	cache_close(cache);
}

static void damaged_is_none(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	char sql[256], first[KERNEL_KEY_HEX], second[KERNEL_KEY_HEX];
	for (int i = 1; i <= 3; i++)
		put_failure(cache, i, 0);
	cache_close(cache);
	key_of(1, first);
	key_of(2, second);
	/* One is cut short, and another has the bytes of a third. */
	snprintf(sql, sizeof(sql),
			 "UPDATE failures SET blob = substr(blob, 1, length(blob) - 1) WHERE key = '%s'",
			 first);
	run_sql(sql);
	snprintf(sql, sizeof(sql),
			 "UPDATE failures SET blob = (SELECT blob FROM failures WHERE id = 3) WHERE key = '%s'",
			 second);
	run_sql(sql);
	cache = open_cache(0, 0);
	assert_int_equal(get_failure(cache, 1), KILN_ENOENT);
	assert_int_equal(get_failure(cache, 2), KILN_ENOENT);
	assert_int_equal(get_failure(cache, 3), KILN_OK);
	assert_int_equal(stats_of(cache).failures, 1);
	cache_close(cache);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
	const struct CMUnitTest tests[] = {
		TEST(kept_through_a_restart), TEST(over_when_its_time_is),
		TEST(listed_by_last_use),     TEST(bounded),
		TEST(shown_and_forgotten),    TEST(ambiguous),
		TEST(cleared_with_the_rest),  TEST(damaged_is_none),
		TEST(they_leave_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
