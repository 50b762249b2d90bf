/*
 * The cache on a disk that fails, at each system call of each thing it does: nothing that was
 * promised is lost, nothing wrong is got, memory goes on, the trouble is named with what helps, and
 * it ends by itself.
 */
#include "cache_rows.h"

#include "daemon/cache/fault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* In memory where that can be: there is much to write, and no disk to be waited for. */
static int set_up(void **state)
{
	cache_fault_set("none", 0, 0, 0);
	snprintf(directory, sizeof directory, "/dev/shm/kiln-test-cache-XXXXXX");
	return mkdtemp(directory) ? 0 : make_directory(state);
}

static int try_open(uint64_t memory, struct cache **out)
{
	struct cache_options options = {.directory = directory, .memory_bytes = memory, .faults = true};
	*out = NULL;
	error[0] = 0;
	return cache_open(&options, out, error);
}

static struct cache *open_faulty(void)
{
	struct cache *cache;
	if (try_open(8 << 20, &cache) != KILN_OK) {
		fail_msg("cache_open: %s", error);
	}
	return cache;
}

/* Until it is as if nothing had been; fails the test if that takes long. */
static void heal(struct cache *cache)
{
	cache_fault_set("none", 0, 0, 0);
	cache_look(cache);
	for (int i = 0; stats_of(cache).trouble[0] || stats_of(cache).unsaved; i++) {
		if (i == 30) {
			fail_msg("after the fault: %s, %d rows unsaved", stats_of(cache).trouble,
					 (int)stats_of(cache).unsaved);
		}
		if (stats_of(cache).trouble[0]) {
			cache_look(cache);
		} else {
			cache_tend(cache);
		}
	}
}

/* All rows from 1 to count are on the disk, and sound. */
static void assert_rows(struct cache *cache, int count)
{
	cache_drop_memory(cache);
	for (int i = 1; i <= count; i++) {
		if (get(cache, i) != KILN_OK) {
			fail_msg("row %d: %s", i, error);
		}
	}
	assert_int_equal(verify_all(cache, NULL, NULL).bad, 0);
}

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
	if (status == KILN_EIO) {
		assert_true(stats_of(cache).trouble[0] && stats_of(cache).unsaved);
	}
	assert_int_equal(get(cache, 5), KILN_OK);
}

/* One deed, with a fault from its call number after on; false: it has no such call. */
static bool try_deed(const struct deed *deed, const char *kind, int after, int count)
{
	struct cache *cache = open_faulty();
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(put(cache, i, 9000), KILN_OK);
	}
	cache_fault_set(kind, 0, (uint32_t)after, (uint32_t)count);
	int status = deed->run(cache);
	bool met = cache_fault_met() > 0;
	if (status != KILN_OK && status != KILN_EIO) {
		fail_msg("%s, %s at call %d: %d %s", deed->name, kind, after, status, error);
	}
	if (!met && status != KILN_OK) {
		fail_msg("%s failed without a fault: %s", deed->name, error);
	}
	assert_serves(cache);
	heal(cache);
	assert_int_equal(deed->run(cache), KILN_OK);
	if (stats_of(cache).aside) {
		fail_msg("%s, %s at call %d: a sound database was set aside", deed->name, kind, after);
	}
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
	for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
		int after = 0;
		while (try_deed(&deeds[i], kind, after, 1)) {
			after++;
			assert_true(after < 200);
		}
		/* And one that stays. */
		for (int first = 0; first < after; first += 1 + after / 4) {
			try_deed(&deeds[i], kind, first, 0);
		}
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

/* ---- Opening and closing ---- */

/* Starting on a disk that fails: memory serves, and the disk has it all afterwards. */
static void start_on(const char *kind, int rows, int after)
{
	struct cache *cache;
	cache_fault_set(kind, 0, (uint32_t)after, 0);
	if (try_open(8 << 20, &cache) != KILN_OK) {
		fail_msg("%s at call %d of opening: %s", kind, after, error);
	}
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
		snprintf(expected, sizeof expected, "%s/kiln.db failed: %s", directory, cases[i][1]);
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

/* ---- Files that are taken away, or replaced ---- */

static void remove_file(void)
{
	assert_int_equal(unlink(in_directory("kiln.db")), 0);
}

static void remove_log(void)
{
	assert_int_equal(unlink(in_directory("kiln.db-wal")), 0);
}

static void remove_lock(void)
{
	assert_int_equal(unlink(in_directory("lock")), 0);
}

static void remove_all(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", directory);
	assert_int_equal(system(command), 0);
}

static void replace_by_directory(void)
{
	remove_file();
	assert_int_equal(mkdir(in_directory("kiln.db"), 0700), 0);
}

static void replace_by_pipe(void)
{
	remove_file();
	assert_int_equal(mkfifo(in_directory("kiln.db"), 0600), 0);
}

static void replace_by_link(void)
{
	remove_file();
	assert_int_equal(symlink("/etc/passwd", in_directory("kiln.db")), 0);
}

static void replace_by_nonsense(void)
{
	remove_file();
	int fd = open(in_directory("kiln.db"), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, directory, sizeof directory), sizeof directory);
	close(fd);
}

static void replace_log_by_directory(void)
{
	unlink(in_directory("kiln.db-wal"));
	assert_int_equal(mkdir(in_directory("kiln.db-wal"), 0700), 0);
}

static const struct theft {
	const char *name;
	void (*take)(void);
	bool lost, replaced; /* rows that only the disk had; something of another kind is there */
} thefts[] = {
	{"the file removed", remove_file, true, false},
	{"the log removed", remove_log, false, false},
	{"the lock removed", remove_lock, false, false},
	{"the directory removed", remove_all, true, false},
	{"a directory in its place", replace_by_directory, true, true},
	{"a pipe in its place", replace_by_pipe, true, true},
	{"a link in its place", replace_by_link, true, true},
	{"nonsense in its place", replace_by_nonsense, true, true},
	{"a directory for a log", replace_log_by_directory, false, true},
};

static void steal(const struct theft *theft, bool looked)
{
	struct cache *cache = open_faulty();
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(put(cache, i, 9000), KILN_OK);
	}
	cache_drop_memory(cache);
	assert_int_equal(get(cache, 1), KILN_OK); /* is in memory again */
	theft->take();
	if (looked) {
		cache_look(cache);
	}
	/* Whoever was not told yet loses nothing that he stores now. */
	assert_int_equal(put(cache, 3, 9000), KILN_OK);
	heal(cache);
	cache_drop_memory(cache);
	for (int i = 1; i <= 3; i++) {
		int status = get(cache, i);
		if (status != (i == 2 && theft->lost ? KILN_ENOENT : KILN_OK)) {
			fail_msg("%s: row %d: %s", theft->name, i, error);
		}
	}
	assert_int_equal(verify_all(cache, NULL, NULL).bad, 0);
	assert_int_equal(access(in_directory("lock"), F_OK),
					 looked ? 0 : access(in_directory("lock"), F_OK));
	cache_close(cache);
	cache = open_faulty();
	assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(get(cache, 3), KILN_OK);
	cache_close(cache);
}

static void files_that_are_taken_away(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof thefts / sizeof thefts[0]; i++) {
		for (int looked = 0; looked < 2; looked++) {
			steal(&thefts[i], looked);
			if (thefts[i].lost) {
				remove_all();
				assert_int_equal(mkdir(directory, 0700), 0);
			}
		}
	}
}

static void starting_with_what_is_no_file(void **state)
{
	(void)state;
	static void (*const replace[])(void) = {replace_by_directory, replace_by_pipe, replace_by_link,
											replace_log_by_directory};
	for (size_t i = 0; i < sizeof replace / sizeof replace[0]; i++) {
		struct cache *cache = open_faulty();
		assert_int_equal(put(cache, 1, 100), KILN_OK);
		cache_close(cache);
		replace[i]();
		cache = open_faulty();
		assert_string_equal(stats_of(cache).trouble, "");
		assert_int_equal(stats_of(cache).aside, 1 + (i < 3 ? i : 2));
		/* What stood in the place of a log had nothing of ours. */
		assert_int_equal(get(cache, 1), i < 3 ? KILN_ENOENT : KILN_OK);
		assert_int_equal(put(cache, 1, 100), KILN_OK);
		cache_close(cache);
	}
	/* The link's end is untouched. */
	assert_int_equal(access("/etc/passwd", R_OK), 0);
}

/* ---- Other schemas ---- */

static void sql(const char *text)
{
	sqlite3 *db;
	char *why = NULL;
	assert_int_equal(sqlite3_open(in_directory("kiln.db"), &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK) {
		fail_msg("%s: %s", text, why);
	}
	sqlite3_close(db);
}

/* An upgrade that fails in the middle leaves what was there, and is made up for. */
static void an_upgrade_on_a_disk_that_fails(void **state)
{
	(void)state;
	static const char *const kinds[] = {"full", "readonly", "failing"};
	for (int i = 0; i < 3; i++) {
		for (int after = 0; after < 20; after += 2) {
			struct cache *cache = open_faulty();
			for (int row = 1; row <= 3; row++) {
				assert_int_equal(put(cache, row, 9000), KILN_OK);
			}
			cache_close(cache);
			sql("DROP TABLE pins; DROP INDEX kernels_by_turn; DROP TABLE failures;"
				"ALTER TABLE kernels DROP COLUMN size; ALTER TABLE kernels DROP COLUMN compiler;"
				"PRAGMA user_version = 2");
			start_on(kinds[i], 3, after);
			assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), -1);
			assert_int_equal(unlink(in_directory("kiln.db")), 0);
		}
	}
}

/* A newer kilnd's file that comes in place of ours is its own, and is left alone. */
static void a_newer_database_comes(void **state)
{
	(void)state;
	struct cache *cache = open_faulty();
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	remove_file();
	sql("PRAGMA application_id = 1263094862; PRAGMA user_version = 99; CREATE TABLE new(x)");
	cache_look(cache);
	assert_non_null(strstr(stats_of(cache).trouble, "has schema 99"));
	assert_non_null(strstr(stats_of(cache).trouble, "use a newer kilnd"));
	assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(put(cache, 2, 100), KILN_EIO);
	assert_int_equal(get(cache, 2), KILN_OK);
	assert_int_equal(stats_of(cache).aside, 0);
	sql("INSERT INTO new VALUES(1)");
	remove_file();
	heal(cache);
	assert_rows(cache, 2);
	cache_close(cache);
}

/* ---- The clock ---- */

#define YEAR ((int64_t)366 * 24 * 3600)

static int failure_status(struct cache *cache)
{
	struct cache_failure failure;
	char key[KERNEL_KEY_HEX];
	key_of(9, key);
	int status = cache_failure_get(cache, key, &failure, error);
	if (status == KILN_OK) {
		cache_failure_free(&failure);
	}
	return status;
}

/* Remembered for a minute from now on. */
static void remember(struct cache *cache)
{
	struct cache_failure failure = {.status = KILN_ETIMEDOUT, .error = "late"};
	make_row(9, 0, &failure.row);
	free(failure.row.entry);
	failure.row.entry = NULL;
	failure.row.created = failure.row.used = util_wall_s();
	failure.until = failure.row.created + 60;
	assert_int_equal(cache_failure_put(cache, &failure, error), KILN_OK);
	cache_failure_free(&failure);
	assert_int_equal(failure_status(cache), KILN_OK);
}

static int64_t used(struct cache *cache, int number)
{
	struct cache_row row;
	char key[KERNEL_KEY_HEX];
	key_of(number, key);
	assert_int_equal(cache_show(cache, key, &row, error), KILN_OK);
	int64_t when = row.used;
	cache_row_free(&row);
	return when;
}

static void a_clock_that_jumps(void **state)
{
	(void)state;
	struct cache *cache = open_faulty();
	const int64_t jumps[] = {-3 * YEAR, YEAR};
	for (int i = 0; i < 2; i++) {
		/* A failure is kept for a minute, and not for as long as the clock is wrong. */
		remember(cache);
		util_wall_jump(jumps[i]);
		assert_int_equal(failure_status(cache), KILN_ENOENT);
		remember(cache);
		util_wall_jump(0);
		assert_int_equal(failure_status(cache), KILN_ENOENT);
	}
	/* Rows that were stored or used at a wrong time are found, and the next use puts that right. */
	util_wall_jump(YEAR);
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	util_wall_jump(-3 * YEAR);
	assert_int_equal(put(cache, 2, 100), KILN_OK);
	util_wall_jump(0);
	assert_true(used(cache, 1) > util_wall_s() + YEAR / 2);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(get(cache, i), KILN_OK);
	}
	cache_tend(cache);
	for (int i = 1; i <= 2; i++) {
		assert_in_range(used(cache, i), util_wall_s() - 100, util_wall_s());
	}
	/* And then age is what it says. */
	struct cache_trim what = {.used_before = util_wall_s() - 3600};
	struct cache_trimmed progress;
	trim_all(cache, &what, &progress);
	assert_int_equal(progress.removed, 0);
	assert_rows(cache, 2);
	cache_close(cache);
}

/* ---- Somebody else ---- */

/* A program that has the database locked, as a shell of SQLite in a transaction; it tells when it
 * has, and ends with its standard input. */
static pid_t start_locker(int *hold)
{
	int told[2], held[2];
	char byte;
	assert_int_equal(pipe2(told, O_CLOEXEC), 0);
	assert_int_equal(pipe2(held, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		sqlite3 *db;
		close(held[1]);
		if (sqlite3_open(in_directory("kiln.db"), &db) != SQLITE_OK ||
			sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; SELECT 1", NULL,
						 NULL, NULL) != SQLITE_OK ||
			write(told[1], "x", 1) != 1) {
			_exit(1);
		}
		(void)!read(held[0], &byte, 1);
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
		sqlite3_close(db);
		_exit(0);
	}
	close(told[1]);
	close(held[0]);
	assert_int_equal(read(told[0], &byte, 1), 1);
	close(told[0]);
	*hold = held[1];
	return pid;
}

static void a_program_that_holds_the_database(void **state)
{
	(void)state;
	struct cache *cache = open_faulty();
	int hold, status;
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	cache_close(cache);
	pid_t pid = start_locker(&hold);
	cache = open_faulty();
	assert_non_null(strstr(stats_of(cache).trouble,
						   "database is locked: end the other program that has it open"));
	assert_int_equal(get(cache, 1), KILN_ENOENT);
	assert_int_equal(put(cache, 5, 100), KILN_EIO);
	assert_non_null(strstr(error, "database is locked"));
	assert_int_equal(get(cache, 5), KILN_OK);
	close(hold);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	heal(cache);
	assert_rows(cache, 1);
	assert_int_equal(get(cache, 5), KILN_OK);
	assert_int_equal(stats_of(cache).aside, 0);
	/* While it is ours nobody else gets in. */
	pid = fork();
	if (pid == 0) {
		sqlite3 *db;
		int code = sqlite3_open(in_directory("kiln.db"), &db);
		code = code ? code : sqlite3_exec(db, "DELETE FROM kernels", NULL, NULL, NULL);
		_exit((code & 0xff) == SQLITE_BUSY ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	cache_close(cache);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, remove_directory)

int main(void)
{
	util_log_level = getenv("KILN_TEST_LOG") ? UTIL_DEBUG : UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		TEST(a_full_disk),
		TEST(a_read_only_disk),
		TEST(a_failing_disk),
		TEST(starting_on_a_disk_that_fails),
		TEST(the_trouble_is_named),
		TEST(files_that_are_taken_away),
		TEST(starting_with_what_is_no_file),
		TEST(an_upgrade_on_a_disk_that_fails),
		TEST(a_newer_database_comes),
		TEST(a_clock_that_jumps),
		TEST(a_program_that_holds_the_database),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
