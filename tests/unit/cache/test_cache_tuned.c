/*
 * The winners of tuning in the cache: what was put is listed, in order, after a new start too; a
 * row replaces the one that is found as it is; what does not fit is passed over.
 */
#include "cache_disk.h"

static struct cache_tuned tuned(const char *op, const char *model, const char *signature,
								const char *choice)
{
	struct cache_tuned row = {.target = "sm_90",
							  .micros = 253.25,
							  .own_micros = 270.5,
							  .candidates = 12,
							  .when = 1795219200,
							  .version = "0.1.0"};
	snprintf(row.op, sizeof(row.op), "%s", op);
	snprintf(row.model, sizeof(row.model), "%s", model);
	snprintf(row.signature, sizeof(row.signature), "%s", signature);
	snprintf(row.choice, sizeof(row.choice), "%s", choice);
	return row;
}

struct list {
	int count;
	struct cache_tuned rows[8];
};

static void take(const struct cache_tuned *row, void *arg)
{
	struct list *list = arg;
	assert_true(list->count < 8);
	list->rows[list->count++] = *row;
}

static struct list list_of(struct cache *cache)
{
	struct list list = {0};
	assert_int_equal(cache_tuned_list(cache, take, &list, error), KILN_OK);
	return list;
}

static void put_tuned(struct cache *cache, const struct cache_tuned *row)
{
	assert_int_equal(cache_tuned_put(cache, row, error), KILN_OK);
}

static void what_was_put_is_listed(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_tuned b = tuned("softmax", "NVIDIA H200", "softmax_rows<f32, 1024>", "regs 128x2");
	struct cache_tuned a = tuned("permute", "NVIDIA H200", "permute_tile<4>", "tile 64x32");
	struct cache_tuned c = tuned("permute", "NVIDIA B200", "permute_tile<4>", "tile 128x32");
	assert_int_equal(list_of(cache).count, 0);
	put_tuned(cache, &b);
	put_tuned(cache, &a);
	put_tuned(cache, &c);
	cache_close(cache);

	cache = open_cache(0, 0);
	struct list list = list_of(cache);
	assert_int_equal(list.count, 3);
	assert_memory_equal(&list.rows[0], &c, sizeof(c));
	assert_memory_equal(&list.rows[1], &a, sizeof(a));
	assert_memory_equal(&list.rows[2], &b, sizeof(b));
	/* Kernels come and go without them. */
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	assert_int_equal(trim_to(cache, 0).removed, 1);
	assert_int_equal(get(cache, 1), KILN_ENOENT);
	assert_int_equal(stats_of(cache).rows, 0);
	assert_int_equal(list_of(cache).count, 3);
	cache_close(cache);
}

static void rows_are_replaced_and_removed(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_tuned a = tuned("permute", "NVIDIA H200", "permute_tile<4>", "tile 64x32");
	struct cache_tuned other = tuned("permute", "NVIDIA H200", "permute_tile<2>", "tile 64x32");
	put_tuned(cache, &a);
	put_tuned(cache, &other);
	snprintf(a.choice, sizeof(a.choice), "tile 32x32");
	a.micros = 1.5;
	put_tuned(cache, &a);
	struct list list = list_of(cache);
	assert_int_equal(list.count, 2);
	assert_memory_equal(&list.rows[1], &a, sizeof(a));
	/* Another model, another target: not found, and no failure. */
	struct cache_tuned elsewhere = a;
	snprintf(elsewhere.model, sizeof(elsewhere.model), "NVIDIA H20");
	assert_int_equal(cache_tuned_remove(cache, &elsewhere, error), KILN_OK);
	elsewhere = a;
	snprintf(elsewhere.target, sizeof(elsewhere.target), "sm_80");
	assert_int_equal(cache_tuned_remove(cache, &elsewhere, error), KILN_OK);
	assert_int_equal(list_of(cache).count, 2);
	assert_int_equal(cache_tuned_remove(cache, &a, error), KILN_OK);
	list = list_of(cache);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.rows[0].signature, "permute_tile<2>");
	put_tuned(cache, &a);
	assert_int_equal(cache_tuned_remove(cache, NULL, error), KILN_OK);
	assert_int_equal(list_of(cache).count, 0);
	cache_close(cache);
}

/* The newer of two winners from different hosts stays, whichever came first. */
static void the_newer_one_is_taken(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_tuned here = tuned("permute", "NVIDIA H200", "permute_tile<4>", "tile 64x32");
	struct cache_tuned row = tuned("permute", "NVIDIA H200", "permute_tile<4>", "tile 32x32");
	bool taken;
	assert_int_equal(cache_tuned_take(cache, &here, &taken, error), KILN_OK);
	assert_true(taken);
	for (int later = -1; later <= 1; later++) {
		row.when = here.when + later;
		assert_int_equal(cache_tuned_take(cache, &row, &taken, error), KILN_OK);
		assert_int_equal(taken, later > 0);
		struct list list = list_of(cache);
		assert_int_equal(list.count, 1);
		assert_memory_equal(&list.rows[0], taken ? &row : &here, sizeof(row));
	}
	/* A put does not look at times. */
	here.when = 1;
	put_tuned(cache, &here);
	struct list list = list_of(cache);
	assert_memory_equal(&list.rows[0], &here, sizeof(here));
	cache_close(cache);
}

/* Somebody wrote into the database with another program. */
static void what_does_not_fit_is_passed_over(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_tuned a = tuned("permute", "NVIDIA H200", "permute_tile<4>", "tile 64x32");
	put_tuned(cache, &a);
	cache_close(cache);
	run_sql("INSERT INTO tuned SELECT model, target, 'x', op, hex(zeroblob(24)), micros,"
			" own_micros, candidates, time, version FROM tuned;"
			"INSERT INTO tuned SELECT model, target, hex(zeroblob(512)), op, choice,"
			" micros, own_micros, candidates, time, version FROM tuned LIMIT 1");
	cache = open_cache(0, 0);
	struct list list = list_of(cache);
	assert_int_equal(list.count, 1);
	assert_memory_equal(&list.rows[0], &a, sizeof(a));
	cache_close(cache);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)
	const struct CMUnitTest tests[] = {
		TEST(what_was_put_is_listed),
		TEST(rows_are_replaced_and_removed),
		TEST(the_newer_one_is_taken),
		TEST(what_does_not_fit_is_passed_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
