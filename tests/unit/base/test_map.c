/* Maps against a plain array: keys of all lengths, removals, walks, and growth in the middle. */
#include "daemon/base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 600

static uint64_t random_next(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *state >> 33;
}

/* Key i has i % MAP_KEY_MAX + 1 bytes, of which no other has the same, or is an id. */
static size_t key_of(int i, bool ids, unsigned char key[MAP_KEY_MAX])
{
	const uint64_t id = (uint64_t)i + 1;
	const size_t bytes = ids || i % MAP_KEY_MAX < 8 ? sizeof(id) : (size_t)i % MAP_KEY_MAX + 1;
	memset(key, i, MAP_KEY_MAX);
	memcpy(key, &id, sizeof(id));
	return bytes;
}

static void check(const struct map *map, bool ids, int *const values[KEYS])
{
	unsigned char key[MAP_KEY_MAX];
	size_t count = 0, walked = 0, cursor = 0;
	for (int i = 0; i < KEYS; i++) {
		size_t bytes = key_of(i, ids, key);
		assert_ptr_equal(map_get(map, key, bytes), values[i]);
		count += values[i] != NULL;
	}
	while (map_next(map, &cursor))
		walked++;
	assert_int_equal(map->count, count);
	assert_int_equal(walked, count);
}

static void play(bool ids)
{
	static int things[KEYS];
	int *values[KEYS] = {NULL};
	struct map map = {0};
	unsigned char key[MAP_KEY_MAX];
	uint64_t random = 1;
	check(&map, ids, values);
	for (int step = 0; step < 20000; step++) {
		/* More comes than goes, and then the other way round. */
		int i = (int)(random_next(&random) % KEYS);
		bool puts = random_next(&random) % 4 < (step < 10000 ? 3u : 1u);
		size_t bytes = key_of(i, ids, key);
		if (puts) {
			values[i] = &things[random_next(&random) % KEYS];
			assert_int_equal(map_put(&map, key, bytes, values[i]), 0);
		} else {
			assert_ptr_equal(map_remove(&map, key, bytes), values[i]);
			values[i] = NULL;
		}
		if (step % 500 == 0)
			check(&map, ids, values);
	}
	size_t left = map.count;
	while (map_take(&map))
		left--;
	assert_int_equal(left, 0);
	memset(values, 0, sizeof(values));
	check(&map, ids, values);
	map_free(&map);
}

static void test_ids(void **state)
{
	(void)state;
	play(true);
}

static void test_keys_of_all_lengths(void **state)
{
	(void)state;
	play(false);
}

static void test_refusals(void **state)
{
	struct map map = {0};
	const unsigned char key[MAP_KEY_MAX + 1] = {1};
	int thing;
	(void)state;
	assert_int_equal(map_put(&map, key, 0, &thing), -1);
	assert_int_equal(map_put(&map, key, sizeof(key), &thing), -1);
	assert_int_equal(map_put(&map, key, 1, NULL), -1);
	assert_null(map_remove(&map, key, 1));
	assert_null(map_take(&map));
	assert_int_equal(map.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_keys_of_all_lengths),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
