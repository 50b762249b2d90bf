/*
 * The cache on a disk that fails, at each system call of each thing it does: nothing that was
 * promised is lost, nothing wrong is got, memory goes on, the trouble is named with what helps, and
 * it ends by itself.
 */
#include "cache_disk.h"

#include <fcntl.h>
#include <sys/stat.h>

/* ---- Each call of each deed ---- */

static int do_put(struct cache *cache)
{
	return put(cache, 4, 40000);
}

static int do_replace(struct cache *cache)
{
	return put(cache, 1, 9000);
}

static int do_get(struct cache *cache)
{
	cache_drop_memory(cache);
	int status = get(cache, 1);
	/* A miss is no harm: it is compiled. */
	return status == KILN_ENOENT ? KILN_EIO : status;
}

static int do_trim(struct cache *cache)
{
	struct cache_trim what = {.op = "softmax"};
	struct cache_trimmed progress = {0};
	return cache_trim(cache, &what, &progress, NULL, NULL, error);
}

static int do_pin(struct cache *cache)
{
	char key[KERNEL_KEY_HEX], found[KERNEL_KEY_HEX];
	key_of(2, key);
	return cache_pin(cache, key, true, found, error);
}

static int do_fail(struct cache *cache)
{
	struct cache_failure failure = {.status = KILN_ECOMPILE, .error = "it does not compile"};
	make_row(9, 0, &failure.row);
	free(failure.row.entry);
	free(failure.row.object);
	failure.row.entry = NULL;
	failure.row.object = NULL;
	int status = cache_failure_put(cache, &failure, error);
	cache_failure_free(&failure);
	return status;
}

static int do_tune(struct cache *cache)
{
	struct cache_tuned row = {.op = "permute",
							  .model = "m",
							  .target = "cpu",
							  .signature = "s",
							  .choice = "c",
							  .version = "1",
							  .micros = 1,
							  .own_micros = 2};
	return cache_tuned_put(cache, &row, error);
}

static int do_flush(struct cache *cache)
{
	cache_flush(cache);
	return KILN_OK;
}

static int do_tend(struct cache *cache)
{
	(void)get(cache, 2);
	cache_tend(cache);
	return KILN_OK;
}

static int do_list(struct cache *cache)
{
	struct cache_verified progress = {.checked = 0};
	return cache_verify(cache, &progress, ignore_bad, NULL, error);
}

static const struct deed {
	const char *name;
	int (*run)(struct cache *cache);
} deeds[] = {
	{"put", do_put},   {"replace", do_replace}, {"get", do_get},   {"trim", do_trim},
	{"pin", do_pin},   {"fail", do_fail},       {"tune", do_tune}, {"flush", do_flush},
	{"tend", do_tend}, {"verify", do_list},
};

/* Memory goes on as long as the fault lasts. */
static void assert_serves(struct cache *cache)
{
	int status = put(cache, 5, 3000);
	assert_true(status == KILN_OK || status == KILN_EIO);
	if (status == KILN_EIO)
		assert_true(stats_of(cache).trouble[0] && stats_of(cache).unsaved);
	assert_int_equal(get(cache, 5), KILN_OK);
}

/* One deed, with a fault from its call number after on; false: it has no such call. */
static bool try_deed(const struct deed *deed, const char *kind, int after, int count)
{
	struct cache *cache = open_faulty();
	for (int i = 1; i <= 3; i++)
		assert_int_equal(put(cache, i, 9000), KILN_OK);
	cache_fault_set(kind, 0, (uint32_t)after, (uint32_t)count);
	int status = deed->run(cache);
	bool met = cache_fault_met() > 0;
	if (status != KILN_OK && status != KILN_EIO)
		fail_msg("%s, %s at call %d: %d %s", deed->name, kind, after, status, error);
	if (!met && status != KILN_OK)
		fail_msg("%s failed without a fault: %s", deed->name, error);
	assert_serves(cache);
	heal(cache);
	assert_int_equal(deed->run(cache), KILN_OK);
	if (stats_of(cache).aside)
		fail_msg("%s, %s at call %d: a sound database was set aside", deed->name, kind, after);
	assert_rows(cache, 3);
	assert_int_equal(get(cache, 5), KILN_OK);
	assert_int_equal(get(cache, 4), deed->run == do_put ? KILN_OK : KILN_ENOENT);
	cache_close(cache);
	cache = open_faulty();
	assert_rows(cache, 3);
	cache_close(cache);
	assert_int_equal(unlink(in_directory("kiln.db")), 0);
	return met;
}

static void sweep(const char *kind)
{
	for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
		int after = 0;
		while (try_deed(&deeds[i], kind, after, 1)) {
			after++;
			assert_true(after < 200);
		}
		/* And one that stays. */
		for (int first = 0; first < after; first += 1 + after / 4)
			try_deed(&deeds[i], kind, first, 0);
	}
}

static void a_full_disk(void **state)
{
	(void)state;
	sweep("full");
}

static void a_read_only_disk(void **state)
{
	(void)state;
	sweep("readonly");
}

static void a_failing_disk(void **state)
{
	(void)state;
	sweep("failing");
}

/* Damaged rows that the disk does not let go still take room. */
static void a_quarantine_that_stays(void **state)
{
	(void)state;
	const struct cache_trim what = {.bytes = 1000};
	struct cache_trimmed progress = {0};
	struct cache *cache = open_faulty();
	char key[KERNEL_KEY_HEX];
	for (int i = 1; i <= 3; i++)
		assert_int_equal(put(cache, i, 20000), KILN_OK);
	key_of(2, key);
	assert_int_equal(cache_corrupt(cache, key, error), KILN_OK);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	const uint64_t bytes = stats_of(cache).bytes;
	cache_fault_set("full", 0, 0, 0);
	assert_int_equal(cache_trim(cache, &what, &progress, NULL, NULL, error), KILN_EIO);
	assert_int_equal(stats_of(cache).bytes, bytes);
	assert_int_equal(progress.freed, 0);
	heal(cache);
	assert_int_equal(cache_trim(cache, &what, &progress, NULL, NULL, error), KILN_OK);
	assert_int_equal(stats_of(cache).bytes, 0);
	cache_close(cache);
}

/* ---- Opening and closing ---- */

/* Starting on a disk that fails: memory serves, and the disk has it all afterwards. */
static void start_on(const char *kind, int rows, int after)
{
	struct cache *cache;
	cache_fault_set(kind, 0, (uint32_t)after, 0);
	if (try_open(8 << 20, &cache) != KILN_OK)
		fail_msg("%s at call %d of opening: %s", kind, after, error);
	assert_serves(cache);
	heal(cache);
	assert_rows(cache, rows);
	assert_int_equal(get(cache, 5), KILN_OK);
	cache_close(cache);
}

static void starting_on_a_disk_that_fails(void **state)
{
	(void)state;
	static const char *const kinds[] = {"full", "readonly", "failing"};
	for (int i = 0; i < 3; i++) {
		for (int after = 0; after < 12; after += 3) {
			start_on(kinds[i], 0, after); /* with none yet */
			assert_int_equal(unlink(in_directory("kiln.db")), 0);
		}
		struct cache *cache = open_faulty();
		assert_int_equal(put(cache, 1, 500), KILN_OK);
		cache_fault_set(kinds[i], 0, 0, 0);
		cache_close(cache); /* on a disk that fails already */
		start_on(kinds[i], 1, 0);
		assert_int_equal(unlink(in_directory("kiln.db")), 0);
	}
}

/* Pages of an object that SQLite cannot read are no damage. */
static void starting_with_large_rows(void **state)
{
	(void)state;
	struct cache *cache = open_faulty();
	for (int i = 1; i <= 4; i++)
		assert_int_equal(put(cache, i, 20000), KILN_OK);
	cache_close(cache);
	for (int after = 0; after < 60; after++) {
		start_on("failing", 4, after);
		if (access(in_directory("kiln.db.bad-1"), F_OK) == 0)
			fail_msg("failing at call %d of opening: a sound database was set aside", after);
	}
}

static void the_trouble_is_named(void **state)
{
	(void)state;
	static const char *const cases[][3] = {
		{"full", "database or disk is full", "make room on its disk"},
		{"readonly", "disk I/O error (Read-only file system)", "make its file system writable"},
		{"failing", "disk I/O error (Input/output error)", "see to its disk"},
	};
	for (int i = 0; i < 3; i++) {
		struct cache *cache = open_faulty();
		char expected[KERNEL_ERROR_MAX];
		assert_string_equal(stats_of(cache).trouble, "");
		cache_fault_set(cases[i][0], 0, 0, 0);
		assert_int_equal(put(cache, 1, 100), KILN_EIO);
		snprintf(expected, sizeof(expected), "%s/kiln.db failed: %s", directory, cases[i][1]);
		assert_non_null(strstr(stats_of(cache).trouble, expected));
		assert_non_null(strstr(stats_of(cache).trouble, cases[i][2]));
		assert_string_equal(stats_of(cache).trouble, error);
		/* It is not over because a call was not made. */
		cache_look(cache);
		assert_true(stats_of(cache).trouble[0]);
		heal(cache);
		cache_close(cache);
	}
}

/* Not even whether its files are there can be seen: they are not given up for that. */
static void a_disk_that_does_not_say_what_is_there(void **state)
{
	(void)state;
	struct stat before, after;
	for (int count = 1; count <= 2; count++) {
		struct cache *cache = open_faulty();
		for (int i = 1; i <= 3; i++)
			assert_int_equal(put(cache, i, 9000), KILN_OK);
		cache_drop_memory(cache);
		assert_int_equal(stat(in_directory("kiln.db-wal"), &before), 0);
		cache_fault_set("failing", 0, 0, (uint32_t)count);
		cache_look(cache);
		assert_int_equal(cache_fault_met(), count);
		/* It would go with its database, and another come. */
		assert_int_equal(stat(in_directory("kiln.db-wal"), &after), 0);
		assert_true(before.st_size > 0 && after.st_size == before.st_size);
		assert_int_equal(after.st_ino, before.st_ino);
		cache_fault_set("none", 0, 0, 0);
		assert_rows(cache, 3);
		cache_close(cache);
	}
}

/* Room for a little, and not for a row: it is not said again and again that it is over. */
static void a_disk_that_is_nearly_full(void **state)
{
	(void)state;
	bool healed = false;
	struct cache *cache = open_faulty();
	assert_int_equal(put(cache, 1, 9000), KILN_OK);
	cache_fault_set("full", 0, 0, 0);
	assert_int_equal(put(cache, 2, 40000), KILN_EIO);
	for (int after = 0; after < 200 && !healed; after++) {
		cache_fault_set("full", 0, (uint32_t)after, 0);
		cache_look(cache);
		healed = !stats_of(cache).trouble[0];
		assert_int_equal(stats_of(cache).unsaved, healed ? 0 : 1);
		assert_int_equal(get(cache, 2), KILN_OK);
		/* Nor because a small one fits. */
		cache_fault_set("none", 0, 0, 0);
		assert_int_equal(put(cache, 3, 10), KILN_OK);
		assert_true(healed || stats_of(cache).trouble[0]);
	}
	assert_true(healed);
	heal(cache);
	assert_rows(cache, 2);
	cache_close(cache);
}

/* A row that is found to be too large is no trouble of the disk's, and does not keep it up. */
static void trouble_ends_with_a_row_that_is_refused(void **state)
{
	(void)state;
	struct cache_options options = {
		.directory = directory, .cap_bytes = 256 << 10, .memory_bytes = 8 << 20, .faults = true};
	struct cache *cache;
	assert_int_equal(cache_open(&options, &cache, error), KILN_OK);
	cache_fault_set("full", 0, 0, 0);
	assert_int_equal(put(cache, 1, 900), KILN_EIO);
	assert_int_equal(put(cache, 2, 400 << 10), KILN_EIO);
	assert_int_equal(stats_of(cache).unsaved, 2);
	heal(cache);
	assert_rows(cache, 1);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	cache_close(cache);
}

/* ---- Damage ---- */

#define LARGE (1 << 20)
#define MANY 66 /* of them: more than is looked over whenever it is opened */

static off_t place_of(const char *index)
{
	sqlite3 *db;
	sqlite3_stmt *ask;
	assert_int_equal(sqlite3_open(in_directory("kiln.db"), &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?1",
										-1, &ask, NULL),
					 SQLITE_OK);
	assert_int_equal(sqlite3_bind_text(ask, 1, index, -1, SQLITE_STATIC), SQLITE_OK);
	assert_int_equal(sqlite3_step(ask), SQLITE_ROW);
	int page = sqlite3_column_int(ask, 0);
	sqlite3_finalize(ask);
	sqlite3_close(db);
	return (off_t)(page - 1) * 4096;
}

/* The row whose write finds the database damaged is kept, and is in the next one. */
static void the_row_that_finds_damage(void **state)
{
	(void)state;
	static const unsigned char zeroes[4096];
	struct cache *cache = open_faulty();
	for (int i = 1; i <= MANY; i++)
		assert_int_equal(put(cache, i, LARGE), KILN_OK);
	cache_close(cache);
	int fd = open(in_directory("kiln.db"), O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, zeroes, sizeof(zeroes), place_of("sqlite_autoindex_kernels_1")),
					 sizeof(zeroes));
	close(fd);
	cache = open_faulty();
	assert_int_equal(stats_of(cache).rows, MANY);
	assert_int_equal(put(cache, MANY + 1, 9000), KILN_EIO);
	assert_non_null(strstr(error, "a new one has begun"));
	tend_all(cache);
	assert_int_equal(stats_of(cache).unsaved, 0);
	cache_drop_memory(cache);
	assert_int_equal(get(cache, MANY + 1), KILN_OK);
	cache_close(cache);
}

/* ---- Other schemas ---- */

/* An upgrade that fails in the middle leaves what was there, and is made up for. */
static void an_upgrade_on_a_disk_that_fails(void **state)
{
	(void)state;
	static const char *const kinds[] = {"full", "readonly", "failing"};
	for (int i = 0; i < 3; i++) {
		for (int after = 0; after < 20; after += 2) {
			struct cache *cache = open_faulty();
			for (int row = 1; row <= 3; row++)
				assert_int_equal(put(cache, row, 9000), KILN_OK);
			cache_close(cache);
			run_sql(
				"DROP TABLE pins; DROP INDEX kernels_by_turn; DROP TABLE failures;"
				"ALTER TABLE kernels DROP COLUMN size; ALTER TABLE kernels DROP COLUMN compiler;"
				"PRAGMA user_version = 2");
			start_on(kinds[i], 3, after);
			assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), -1);
			assert_int_equal(unlink(in_directory("kiln.db")), 0);
		}
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_faultless, remove_directory)

int main(void)
{
	util_log_level = getenv("KILN_TEST_LOG") ? UTIL_DEBUG : UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		TEST(a_full_disk),
		TEST(a_read_only_disk),
		TEST(a_failing_disk),
		TEST(a_quarantine_that_stays),
		TEST(starting_on_a_disk_that_fails),
		TEST(starting_with_large_rows),
		TEST(the_trouble_is_named),
		TEST(a_disk_that_does_not_say_what_is_there),
		TEST(a_disk_that_is_nearly_full),
		TEST(trouble_ends_with_a_row_that_is_refused),
		TEST(the_row_that_finds_damage),
		TEST(an_upgrade_on_a_disk_that_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
