/*
 * The cache's upkeep: which rows go and in which order, pieces, pins, the caps on bytes and rows,
 * the file that becomes small again, uses written later, and databases of an older schema.
 */
#include "cache_disk.h"

#include <sys/stat.h>
#include <unistd.h>

/* The cost of a row with so large an object. */
#define COST(object) ((uint64_t)cache_db_cost((object) + 500))

static const char nvrtc[] = "nvrtc 13.0 5f2a5f2a";
static const char host[] = "host 1234 g++ (Distribution 12.2.0-14) 12.2.0";

/* A row of another operator, target and compiler. */
static void put_other(struct cache *cache, int number, const char *op, const char *target,
					  const char *compiler)
{
	struct cache_row row;
	char text[256];
	make_row(number, 1000, &row);
	snprintf(row.op, sizeof(row.op), "%s", op);
	snprintf(row.target, sizeof(row.target), "%s", target);
	snprintf(text, sizeof(text), "kiln-key 1\ntarget %s\ntoolchain %s\noptions\n", target,
			 compiler);
	free(row.key_text);
	row.key_text = strdup(text);
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	cache_row_free(&row);
}

static bool has(struct cache *cache, int number)
{
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	key_of(number, key);
	int status = cache_show(cache, key, &row, error);
	if (status == KILN_OK)
		cache_row_free(&row);
	return status == KILN_OK;
}

static void pin(struct cache *cache, int number, bool pinned)
{
	char key[KERNEL_KEY_HEX], found[KERNEL_KEY_HEX];
	key_of(number, key);
	assert_int_equal(cache_pin(cache, key, pinned, found, error), KILN_OK);
	assert_string_equal(found, key);
}

/* ---- Which rows go ---- */

static void least_recently_used_goes_first(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	for (int i = 1; i <= 5; i++)
		put(cache, i, 1000);
	get(cache, 1);
	get(cache, 3);
	assert_int_equal(trim_to(cache, 5 * COST(1000)).removed, 0);
	struct cache_trimmed trimmed = trim_to(cache, 4 * COST(1000) - 1);
	assert_int_equal(trimmed.removed, 2);
	assert_int_equal(trimmed.freed, 2 * COST(1000));
	/* Gone from memory too. */
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_int_equal(get(cache, 4), KILN_ENOENT);
	assert_int_equal(get(cache, 1) + get(cache, 3) + get(cache, 5), KILN_OK);
	assert_int_equal(stats_of(cache).trimmed, 2);
	assert_int_equal(stats_of(cache).object_bytes, 3000);
	cache_close(cache);
}

/* The time of day is no clock: a row that was used when it was late is not the last to go. */
static void the_clock_is_our_own(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 0);
	struct cache_row row;
	make_row(1, 1000, &row);
	row.used = row.created = 4000000000;
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	cache_row_free(&row);
	put(cache, 2, 1000);
	put(cache, 3, 1000);
	get(cache, 2);
	trim_to(cache, 2 * COST(1000));
	assert_false(has(cache, 1));
	trim_to(cache, COST(1000));
	assert_true(has(cache, 2));
	assert_false(has(cache, 3));
	cache_close(cache);
	/* It goes on where it was. */
	cache = open_cache(0, 0);
	put(cache, 4, 1000);
	get(cache, 2);
	trim_to(cache, COST(1000));
	assert_true(has(cache, 2));
	cache_close(cache);
}

static void filters(void **state)
{
	(void)state;
	static const struct {
		struct cache_trim what;
		const char *left;
	} trims[] = {
		{{.op = "permute"}, "34"},
		{{.target = "sm_90"}, "124"},
		{{.compiler = "nvrtc"}, "1"},
		{{.compiler = "13.0 5f2a"}, "1"},
		{{.compiler = "%"}, "1234"},
		{{.op = "softmax", .target = "sm_80"}, "123"},
		{{.op = "softmax", .target = "cpu"}, "1234"},
		{{.used_before = 2000}, "34"},
		{{.used_before = 1000}, "1234"},
		{{.op = "permute", .rows = 3, .bytes = UINT64_MAX}, "234"},
		{{.op = "permute", .rows = 1, .bytes = UINT64_MAX}, "34"},
		{{.rows = 3, .bytes = UINT64_MAX}, "234"},
		{{.rows = UINT64_MAX}, ""},
	};
	for (size_t i = 0; i < sizeof(trims) / sizeof(*trims); i++) {
		struct cache *cache = open_cache(0, 1 << 20);
		struct cache_trimmed trimmed;
		char left[8] = "";
		put_other(cache, 1, "permute", "cpu", host);
		put_other(cache, 2, "permute", "sm_80", nvrtc);
		put_other(cache, 3, "softmax", "sm_90", nvrtc);
		put_other(cache, 4, "softmax", "sm_80", nvrtc);
		cache_close(cache);
		/* The two oldest were used long ago. */
		run_sql("UPDATE kernels SET used = 1000 WHERE op = 'permute'");
		cache = open_cache(0, 1 << 20);
		struct cache_trim dry = trims[i].what;
		dry.dry_run = true;
		trim_all(cache, &dry, &trimmed);
		assert_int_equal(trimmed.removed, 4 - (int)strlen(trims[i].left));
		assert_int_equal(stats_of(cache).rows, 4);
		trim_all(cache, &trims[i].what, &trimmed);
		for (int k = 1; k <= 4; k++)
			if (has(cache, k))
				left[strlen(left)] = (char)('0' + k);
		assert_string_equal(left, trims[i].left);
		assert_int_equal(trimmed.freed, (4 - strlen(left)) * COST(1000));
		trim_to(cache, 0);
		cache_close(cache);
	}
}

static void count_row(const struct cache_row *row, void *arg)
{
	assert_string_equal(row->op, "permute");
	assert_true(row->size > 0 && row->instantiation[0]);
	++*(int *)arg;
}

/* No call takes long, whatever there is to do: others go between. */
static void it_goes_in_pieces(void **state)
{
	(void)state;
	enum { COUNT = 300 };
	struct cache *cache = open_cache(0, 0);
	struct cache_trim all = {.bytes = 0};
	struct cache_trimmed progress = {0};
	struct cache_verified verified = {.checked = 0};
	int seen = 0, pieces = 1;
	for (int i = 0; i < COUNT; i++)
		put(cache, i, 100);
	assert_int_equal(cache_verify(cache, &verified, ignore_bad, NULL, error), KILN_OK);
	assert_in_range(verified.checked, 1, 64);
	while (verified.next[0]) {
		assert_int_equal(cache_verify(cache, &verified, ignore_bad, NULL, error), KILN_OK);
		pieces++;
	}
	assert_int_equal(verified.checked, COUNT);
	assert_true(pieces >= 5);
	assert_int_equal(cache_trim(cache, &all, &progress, count_row, &seen, error), KILN_OK);
	assert_in_range(progress.removed, 1, 64);
	assert_int_equal(seen, progress.removed);
	assert_true(progress.more);
	/* A row that is used between two pieces still goes, for it is among those that were meant. */
	assert_int_equal(get(cache, COUNT - 1), KILN_OK);
	while (progress.more) {
		int64_t before = progress.removed;
		assert_int_equal(cache_trim(cache, &all, &progress, NULL, NULL, error), KILN_OK);
		assert_true(progress.removed - before <= 64);
	}
	assert_int_equal(progress.removed, COUNT);
	assert_int_equal(stats_of(cache).rows, 0);
	cache_close(cache);
}

static void the_file_becomes_small_again(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	struct stat file;
	for (int i = 0; i < 1200; i++)
		put(cache, i, 8000);
	put(cache, 5000, 0);
	assert_true(stats_of(cache).disk_bytes > 9600000);
	struct cache_trimmed trimmed = trim_to(cache, 0);
	assert_int_equal(trimmed.removed, 1201);
	struct cache_stats stats = stats_of(cache);
	assert_int_equal(stats.rows + stats.bytes + stats.object_bytes, 0);
	assert_int_equal(stats.memory_rows + stats.memory_bytes, 0);
	assert_int_equal(stat(in_directory("kiln.db"), &file), 0);
	assert_true(file.st_size < 100000);
	assert_true(stats.disk_bytes < 100000);
	assert_int_equal(put(cache, 1, 10), KILN_OK);
	cache_close(cache);
}

/* ---- The caps ---- */

/* The cap counts as many bytes as the file takes, within a tenth and the empty database. */
static void the_cap_is_the_files(void **state)
{
	(void)state;
	enum { CAP = 4 << 20 };
	struct cache *cache = open_cache(CAP, 0);
	struct stat file;
	char *text = malloc(60001);
	memset(text, 't', 60000);
	text[60000] = 0;
	for (int i = 0; i < 200; i++) {
		struct cache_row row;
		make_row(i, 9000, &row);
		free(row.source);
		row.source = strdup(text); /* as in life: the texts are most of it */
		assert_int_equal(cache_put(cache, &row, error), KILN_OK);
		cache_row_free(&row);
		tend_all(cache);
	}
	free(text);
	assert_in_range(stats_of(cache).bytes, CAP / 2, CAP);
	cache_close(cache);
	assert_int_equal(stat(in_directory("kiln.db"), &file), 0);
	assert_in_range(file.st_size, CAP / 2, CAP + CAP / 10 + 65536);
	/* A lower cap makes the file smaller, by and by. */
	cache = open_cache(CAP / 4, 0);
	assert_in_range(stats_of(cache).bytes, 1, CAP / 4);
	tend_all(cache);
	assert_int_equal(stat(in_directory("kiln.db"), &file), 0);
	assert_in_range(file.st_size, 1, CAP / 4 + CAP / 10 + 65536);
	cache_close(cache);
}

static void rows_have_a_cap(void **state)
{
	(void)state;
	struct cache_options options = {.directory = directory, .cap_rows = 100};
	struct cache *cache;
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	for (int i = 0; i < 300; i++) {
		put(cache, i, 10);
		assert_true(stats_of(cache).rows <= 100);
	}
	tend_all(cache);
	assert_in_range(stats_of(cache).rows, 90, 100);
	assert_true(has(cache, 299) && has(cache, 215) && !has(cache, 199));
	cache_close(cache);
	options.cap_rows = 10;
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	assert_in_range(stats_of(cache).rows, 9, 10);
	cache_close(cache);
}

/* Damaged rows are evidence, but the first to go where room is short. */
static void the_quarantine_counts(void **state)
{
	(void)state;
	uint64_t cost = COST(19000);
	struct cache *cache = open_cache(10 * cost, 0);
	char key[KERNEL_KEY_HEX];
	for (int i = 0; i < 9; i++)
		put(cache, i, 19000);
	key_of(3, key);
	assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
	assert_int_equal(get(cache, 3), KILN_ENOENT);
	assert_in_range(stats_of(cache).bytes, 8 * cost + 19000, 9 * cost);
	put(cache, 20, 19000);
	put(cache, 21, 19000);
	/* Without it there is room for all. */
	assert_int_equal(stats_of(cache).bytes, 9 * cost);
	assert_int_equal(stats_of(cache).rows, 9);
	assert_int_equal(stats_of(cache).trimmed, 1);
	cache_close(cache);
}

/* ---- Pins ---- */

static void pinned_rows_stay(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 1 << 20);
	char key[KERNEL_KEY_HEX], found[KERNEL_KEY_HEX];
	struct cache_trimmed trimmed;
	for (int i = 1; i <= 5; i++)
		put(cache, i, 1000);
	pin(cache, 1, true);
	pin(cache, 4, true);
	pin(cache, 4, true);
	assert_int_equal(stats_of(cache).pinned, 2);
	trimmed = trim_to(cache, 4 * COST(1000));
	assert_true(has(cache, 1) && !has(cache, 2));
	trimmed = trim_to(cache, 0);
	assert_int_equal(trimmed.removed, 2);
	assert_true(has(cache, 1) && has(cache, 4));
	cache_close(cache);

	/* Also after a new start, and where it is compiled anew in place of a damaged one. */
	cache = open_cache(0, 0);
	assert_int_equal(stats_of(cache).pinned, 2);
	key_of(4, key);
	assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
	assert_int_equal(get(cache, 4), KILN_ENOENT);
	put(cache, 4, 1000);
	put(cache, 4, 2000);
	trim_to(cache, 0);
	assert_true(has(cache, 1) && has(cache, 4));

	pin(cache, 4, false);
	key[8] = 0;
	assert_int_equal(cache_pin(cache, key, false, found, error), KILN_ENOENT);
	char expected[KERNEL_ERROR_MAX];
	snprintf(expected, sizeof(expected), "no pinned kernel has a key that begins with %s", key);
	assert_string_equal(error, expected);
	trim_to(cache, 0);
	assert_true(has(cache, 1) && !has(cache, 4));
	assert_int_equal(cache_pin(cache, key, true, found, error), KILN_ENOENT);
	assert_int_equal(cache_pin(cache, "no", false, found, error), KILN_EINVAL);
	assert_string_equal(error,
						"\"no\" is not the beginning of a key: 4 to 64 digits of 0-9 and a-f");
	cache_close(cache);
}

static void pins_have_a_limit(void **state)
{
	(void)state;
	uint64_t cost = COST(1000);
	struct cache_options options = {.directory = directory, .cap_bytes = 10 * cost};
	struct cache *cache;
	char key[KERNEL_KEY_HEX], found[KERNEL_KEY_HEX], expected[KERNEL_ERROR_MAX];
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	for (int i = 1; i <= 8; i++)
		put(cache, i, 1000);
	for (int i = 1; i <= 5; i++)
		pin(cache, i, true);
	key_of(6, key);
	assert_int_equal(cache_pin(cache, key, true, found, error), KILN_ELIMIT);
	snprintf(expected, sizeof(expected),
			 "with kernel %.12s 27.0 KiB would be pinned, and of a cache of 45.0 KiB at most half "
			 "may be: unpin others, or raise --cache-bytes",
			 key);
	assert_string_equal(error, expected);
	pin(cache, 5, true); /* which is pinned already */
	/* The others have room all the same. */
	for (int i = 20; i < 60; i++) {
		put(cache, i, 1000);
		assert_true(has(cache, i));
	}
	assert_true(stats_of(cache).bytes <= 10 * cost);
	for (int i = 1; i <= 5; i++)
		assert_true(has(cache, i));
	cache_close(cache);

	options = (struct cache_options){.directory = directory, .cap_rows = 10};
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	key_of(59, key);
	assert_int_equal(cache_pin(cache, key, true, found, error), KILN_ELIMIT);
	snprintf(expected, sizeof(expected),
			 "with kernel %.12s 6 kernels would be pinned, and of a cache of 10 at most half may "
			 "be: unpin others",
			 key);
	assert_string_equal(error, expected);
	cache_close(cache);
}

/* ---- Uses ---- */

/* A hit writes nothing; what it changes is written when somebody tends, and lost with a crash. */
static void uses_are_written_later(void **state)
{
	(void)state;
	struct stat before, after;
	struct cache *cache = open_cache(0, 1 << 20);
	for (int i = 0; i < 300; i++)
		put(cache, i, 10);
	cache_tend(cache);
	assert_int_equal(stat(in_directory("kiln.db-wal"), &before), 0);
	for (int i = 0; i < 300; i++)
		assert_int_equal(get(cache, i), KILN_OK);
	assert_int_equal(stats_of(cache).waiting, 300);
	assert_int_equal(stat(in_directory("kiln.db-wal"), &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	cache_tend(cache);
	assert_int_equal(stats_of(cache).waiting, 0);
	assert_int_equal(stat(in_directory("kiln.db-wal"), &after), 0);
	assert_true(after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
				after.st_mtim.tv_nsec != before.st_mtim.tv_nsec);
	cache_close(cache);
}

/* ---- Schema 2 ---- */

static const char schema_2[] =
	"DROP INDEX kernels_by_turn; DROP TABLE pins; ALTER TABLE kernels DROP COLUMN size;"
	"ALTER TABLE kernels DROP COLUMN compiler; PRAGMA user_version = 2";

static void make_schema_2(const char *more)
{
	run_sql(schema_2);
	run_sql(more);
}

/* more: what else that database may have been like. */
static void assert_upgrades(const char *more)
{
	struct cache *cache = open_cache(0, 0);
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	int64_t forgotten;
	put(cache, 1, 100000);
	put_other(cache, 2, "softmax", "sm_90", nvrtc);
	struct cache_stats before = stats_of(cache);
	cache_close(cache);
	make_schema_2(more);

	cache = open_cache(0, 0);
	assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), -1);
	struct cache_stats after = stats_of(cache);
	assert_int_equal(after.rows, 2);
	assert_int_equal(after.bytes, before.bytes);
	assert_int_equal(after.object_bytes, before.object_bytes);
	assert_int_equal(get(cache, 1), KILN_OK);
	key_of(2, key);
	assert_int_equal(cache_show(cache, key, &row, error), KILN_OK);
	assert_string_equal(row.compiler, nvrtc);
	assert_int_equal(row.size, COST(1000));
	cache_row_free(&row);
	assert_int_equal(cache_failure_forget(cache, NULL, &forgotten, error), KILN_OK);
	pin(cache, 2, true);
	trim_to(cache, 0);
	assert_true(has(cache, 2));
	cache_close(cache);
	/* And only once. */
	cache = open_cache(0, 0);
	assert_int_equal(stats_of(cache).pinned, 1);
	cache_close(cache);
}

static void an_older_schema_is_upgraded(void **state)
{
	(void)state;
	assert_upgrades("");
	assert_upgrades("DROP TABLE failures");
}

/* Half an upgrade, or one of something else: set aside, and a new one begun. */
static void what_cannot_be_upgraded_is_set_aside(void **state)
{
	(void)state;
	static const char *const wrong[] = {
		"DROP TABLE objects",
		"ALTER TABLE kernels RENAME TO others",
		"PRAGMA user_version = 1",
	};
	for (int i = 0; i < 3; i++) {
		char name[32];
		cache_close(open_cache(0, 0));
		make_schema_2(wrong[i]);
		struct cache *cache = open_cache(0, 0);
		snprintf(name, sizeof(name), "kiln.db.bad-%d", i + 1);
		assert_int_equal(access(in_directory(name), F_OK), 0);
		assert_int_equal(put(cache, 1, 10), KILN_OK);
		assert_int_equal(get(cache, 1), KILN_OK);
		cache_close(cache);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
	util_log_level = UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		TEST(least_recently_used_goes_first),
		TEST(the_clock_is_our_own),
		TEST(filters),
		TEST(it_goes_in_pieces),
		TEST(the_file_becomes_small_again),
		TEST(the_cap_is_the_files),
		TEST(rows_have_a_cap),
		TEST(the_quarantine_counts),
		TEST(pinned_rows_stay),
		TEST(pins_have_a_limit),
		TEST(uses_are_written_later),
		TEST(an_older_schema_is_upgraded),
		TEST(what_cannot_be_upgraded_is_set_aside),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
