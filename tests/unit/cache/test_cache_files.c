/*
 * The cache's files in the hands of others: removed, replaced, of a newer kilnd, locked by another
 * program; and a clock that jumps.
 */
#include "cache_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
	snprintf(command, sizeof(command), "rm -rf %s", directory);
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
	assert_int_equal(write(fd, directory, sizeof(directory)), sizeof(directory));
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
	for (int i = 1; i <= 2; i++)
		assert_int_equal(put(cache, i, 9000), KILN_OK);
	cache_drop_memory(cache);
	assert_int_equal(get(cache, 1), KILN_OK); /* is in memory again */
	theft->take();
	if (looked)
		cache_look(cache);
	/* A caller that was not told yet loses nothing that it stores now. */
	assert_int_equal(put(cache, 3, 9000), KILN_OK);
	heal(cache);
	cache_drop_memory(cache);
	for (int i = 1; i <= 3; i++) {
		int status = get(cache, i);
		if (status != (i == 2 && theft->lost ? KILN_ENOENT : KILN_OK))
			fail_msg("%s: row %d: %s", theft->name, i, error);
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
	for (size_t i = 0; i < sizeof(thefts) / sizeof(thefts[0]); i++) {
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
	for (size_t i = 0; i < sizeof(replace) / sizeof(replace[0]); i++) {
		struct cache *cache = open_faulty();
		assert_int_equal(put(cache, 1, 100), KILN_OK);
		cache_close(cache);
		replace[i]();
		cache = open_faulty();
		assert_string_equal(stats_of(cache).trouble, "");
		assert_int_equal(stats_of(cache).aside, 1 + (i < 3 ? i : 2));
		/* The thing that stood in the place of a log had nothing of ours. */
		assert_int_equal(get(cache, 1), i < 3 ? KILN_ENOENT : KILN_OK);
		assert_int_equal(put(cache, 1, 100), KILN_OK);
		cache_close(cache);
	}
	/* The link's end is untouched. */
	assert_int_equal(access("/etc/passwd", R_OK), 0);
}

/* ---- Other schemas ---- */

/* A newer kilnd's file that comes in place of ours is its own, and is left alone. */
static void a_newer_database_comes(void **state)
{
	(void)state;
	struct cache *cache = open_faulty();
	assert_int_equal(put(cache, 1, 100), KILN_OK);
	remove_file();
	run_sql("PRAGMA application_id = 1263094862; PRAGMA user_version = 99; CREATE TABLE new(x)");
	cache_look(cache);
	assert_non_null(strstr(stats_of(cache).trouble, "has schema 99"));
	assert_non_null(strstr(stats_of(cache).trouble, "use a newer kilnd"));
	assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(put(cache, 2, 100), KILN_EIO);
	assert_int_equal(get(cache, 2), KILN_OK);
	assert_int_equal(stats_of(cache).aside, 0);
	run_sql("INSERT INTO new VALUES(1)");
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
	if (status == KILN_OK)
		cache_failure_free(&failure);
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
	struct cache_row row = show(cache, number);
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
	for (int i = 1; i <= 2; i++)
		assert_int_equal(get(cache, i), KILN_OK);
	cache_tend(cache);
	for (int i = 1; i <= 2; i++)
		assert_in_range(used(cache, i), util_wall_s() - 100, util_wall_s());
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
			write(told[1], "x", 1) != 1)
			_exit(1);
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_faultless, remove_directory)

int main(void)
{
	util_log_level = getenv("KILN_TEST_LOG") ? UTIL_DEBUG : UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		TEST(files_that_are_taken_away),
		TEST(starting_with_what_is_no_file),
		TEST(a_newer_database_comes),
		TEST(a_clock_that_jumps),
		TEST(a_program_that_holds_the_database),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
