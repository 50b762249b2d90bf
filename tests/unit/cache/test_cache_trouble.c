/*
 * The cache in trouble: directories that will not do, a second owner, databases that are damaged,
 * foreign or newer, a full disk, and writers killed at any moment.
 */
#include "cache_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The status of an opening that must fail. */
static int refused(const char *path)
{
	struct cache_options options = {.directory = path};
	struct cache *cache = NULL;
	error[0] = 0;
	int status = cache_open(&options, &cache, error);
	assert_null(cache);
	return status;
}

static void write_file(const char *name, const void *content, size_t size)
{
	FILE *file = fopen(in_directory(name), "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

/* Waits for a child, for a minute at most; its exit status, or minus the signal. */
static int join(pid_t pid)
{
	int status = 0;
	for (int i = 0; i < 6000; i++) {
		pid_t done = waitpid(pid, &status, WNOHANG);
		if (done == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		poll(NULL, 0, 10);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1000;
}

/* ---- Directories ---- */

static void directories_that_will_not_do(void **state)
{
	(void)state;
	char expected[KERNEL_ERROR_MAX];
	assert_int_equal(chmod(directory, 0777), 0);
	assert_int_equal(refused(directory), KILN_EPERM);
	snprintf(expected, sizeof(expected),
			 "the cache directory %s can be written by others (mode 0777): chmod go-w it, or "
			 "choose another with --cache-dir",
			 directory);
	assert_string_equal(error, expected);
	assert_int_equal(chmod(directory, 0755), 0);
	write_file("plain", "", 0);
	assert_int_equal(refused(in_directory("plain")), KILN_EIO);
	assert_non_null(strstr(error, "cannot be made: Not a directory; choose another"));
	if (geteuid() == 0) {
		assert_int_equal(chown(directory, 12345, 12345), 0);
		assert_int_equal(refused(directory), KILN_EPERM);
		snprintf(expected, sizeof(expected),
				 "the cache directory %s belongs to uid 12345, not to uid 0: choose another with "
				 "--cache-dir",
				 directory);
		assert_string_equal(error, expected);
		assert_int_equal(chown(directory, 0, 0), 0);
	}
	cache_close(open_cache(0, 0));
}

static void file_systems_of_others(void **state)
{
	(void)state;
	assert_string_equal(cache_place_remote_name(0x6969), "NFS");
	assert_string_equal(cache_place_remote_name(0xff534d42), "CIFS");
	/* as a 32-bit statfs would extend it */
	assert_string_equal(cache_place_remote_name((unsigned long)(long)(int)0xff534d42), "CIFS");
	assert_string_equal(cache_place_remote_name(0x65735546), "FUSE");
	assert_string_equal(cache_place_remote_name(0x0bd00bd0), "Lustre");
	assert_null(cache_place_remote_name(0xef53));     /* ext4 */
	assert_null(cache_place_remote_name(0x58465342)); /* xfs */
	assert_null(cache_place_remote_name(0x01021994)); /* tmpfs */
	assert_null(cache_place_remote_name(0x9123683e)); /* btrfs */
	assert_null(cache_place_remote_name(0x794c7630)); /* overlayfs */
	assert_null(cache_place_remote_name(0x2fc12fc1)); /* zfs */
}

/* Root may write anywhere: a child that is nobody tries. */
static void read_only_directory(void **state)
{
	(void)state;
	if (geteuid() == 0)
		assert_int_equal(chown(directory, 65534, 65534), 0);
	assert_int_equal(chmod(directory, 0500), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && setuid(65534) != 0)
			_exit(9);
		struct cache_options options = {.directory = directory};
		struct cache *cache;
		int status = cache_open(&options, &cache, error);
		_exit(status == KILN_EIO && strstr(error, "/lock, cannot be made: Permission denied") ? 0
																							  : 1);
	}
	assert_int_equal(join(pid), 0);
}

static void one_owner(void **state)
{
	(void)state;
	char expected[KERNEL_ERROR_MAX];
	struct cache *cache = open_cache(0, 0);
	snprintf(expected, sizeof(expected),
			 "the cache directory %s is in use by the process with pid %ld: a cache has one "
			 "daemon; stop that one, or choose another with --cache-dir or KILN_CACHE_DIR",
			 directory, (long)getpid());
	assert_int_equal(refused(directory), KILN_EBUSY);
	assert_string_equal(error, expected);
	pid_t pid = fork();
	if (pid == 0) {
		struct cache_options options = {.directory = directory};
		struct cache *other;
		int status = cache_open(&options, &other, error);
		_exit(status == KILN_EBUSY && strcmp(error, expected) == 0 ? 0 : 1);
	}
	assert_int_equal(join(pid), 0);
	/* The refused ones have taken nothing away. */
	assert_int_equal(put(cache, 1, 10), KILN_OK);
	assert_int_equal(refused(directory), KILN_EBUSY);
	cache_close(cache);
	cache_close(open_cache(0, 0));
}

/* ---- Databases ---- */

static void assert_same_file(const char *name, const void *content, size_t size)
{
	size_t bytes;
	char *text = util_read_file(in_directory(name), 1 << 20, &bytes);
	assert_non_null(text);
	assert_int_equal(bytes, size);
	assert_memory_equal(text, content, size);
	free(text);
}

static void no_database(void **state)
{
	(void)state;
	static char nonsense[5000];
	char name[32];
	memset(nonsense, 'n', sizeof(nonsense));
	for (int i = 1; i <= 11; i++) {
		nonsense[0] = (char)('a' + i);
		write_file("kiln.db", nonsense, sizeof(nonsense));
		struct cache *cache = open_cache(0, 0);
		assert_int_equal(get(cache, 1), KILN_ENOENT);
		assert_int_equal(put(cache, 1, 10), KILN_OK);
		assert_int_equal(get(cache, 1), KILN_OK);
		assert_int_equal(stats_of(cache).aside, i < DB_ASIDE ? i : DB_ASIDE);
		assert_int_equal(stats_of(cache).aside_bytes, stats_of(cache).aside * sizeof(nonsense));
		cache_close(cache);
		snprintf(name, sizeof(name), "kiln.db.bad-%d", i);
		assert_same_file(name, nonsense, sizeof(nonsense));
		/* The oldest have gone. */
		snprintf(name, sizeof(name), "kiln.db.bad-%d", i - DB_ASIDE);
		assert_int_equal(access(in_directory(name), F_OK), -1);
	}
	/* Together they are no larger than a cache may be; the newest stays in any case. */
	struct cache *cache = open_cache(2 * sizeof(nonsense), 0);
	assert_int_equal(stats_of(cache).aside, 2);
	cache_close(cache);
	cache = open_cache(sizeof(nonsense) / 2, 0);
	assert_int_equal(stats_of(cache).aside, 1);
	cache_close(cache);
	assert_same_file("kiln.db.bad-11", nonsense, sizeof(nonsense));
	assert_int_equal(access(in_directory("kiln.db.bad-10"), F_OK), -1);
}

/* Writes a big-endian number into the database's header. */
static void set_header(long at, uint32_t value)
{
	FILE *file = fopen(in_directory("kiln.db"), "r+b");
	assert_non_null(file);
	assert_int_equal(fseek(file, at, SEEK_SET), 0);
	for (int i = 3; i >= 0; i--)
		assert_int_equal(fputc((int)(value >> (8 * i) & 0xff), file), value >> (8 * i) & 0xff);
	assert_int_equal(fclose(file), 0);
}

#define AT_USER_VERSION 60
#define AT_APPLICATION 68

static void filled_database(int count)
{
	struct cache *cache = open_cache(0, 0);
	for (int i = 1; i <= count; i++)
		assert_int_equal(put(cache, i, 500), KILN_OK);
	cache_close(cache);
}

static void newer_schema_is_refused(void **state)
{
	(void)state;
	char expected[KERNEL_ERROR_MAX];
	size_t bytes;
	filled_database(3);
	set_header(AT_USER_VERSION, DB_SCHEMA + 1);
	char *before = util_read_file(in_directory("kiln.db"), 1 << 20, &bytes);
	assert_int_equal(refused(directory), KILN_EVERSION);
	snprintf(expected, sizeof(expected),
			 "%s/kiln.db has schema 4, and this kilnd knows schemas up to 3: use a newer kilnd, or "
			 "another --cache-dir",
			 directory);
	assert_string_equal(error, expected);
	assert_same_file("kiln.db", before, bytes);
	free(before);
	assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), -1);
	set_header(AT_USER_VERSION, DB_SCHEMA);
	struct cache *cache = open_cache(0, 0);
	assert_int_equal(get(cache, 3), KILN_OK);
	cache_close(cache);
}

static void foreign_database_is_set_aside(void **state)
{
	(void)state;
	filled_database(3);
	set_header(AT_APPLICATION, 77);
	struct cache *cache = open_cache(0, 0);
	assert_int_equal(stats_of(cache).rows, 0);
	assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), 0);
	cache_close(cache);
	filled_database(3);
	set_header(AT_USER_VERSION, 0);
	cache = open_cache(0, 0);
	assert_int_equal(stats_of(cache).rows, 0);
	assert_int_equal(access(in_directory("kiln.db.bad-2"), F_OK), 0);
	assert_int_equal(put(cache, 1, 10), KILN_OK);
	cache_close(cache);
}

/* A deterministic source of bits (xorshift). */
static uint64_t bits(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/*
 * Any byte of the file may change while nobody looks: what is read is right or missing, and the
 * cache works on.  get() itself checks that a row that was got is the right one.
 */
static void any_byte_may_be_damaged(void **state)
{
	(void)state;
	enum { ROUNDS = 60, COUNT = 12 };
	uint64_t seed = 88172645463325252u;
	size_t bytes;
	int missing = 0, found = 0;
	filled_database(COUNT);
	char *sound = util_read_file(in_directory("kiln.db"), 1 << 20, &bytes);
	assert_non_null(sound);
	for (int round = 0; round < ROUNDS; round++) {
		char *damaged = malloc(bytes);
		memcpy(damaged, sound, bytes);
		for (int i = 0; i <= round % 4; i++)
			damaged[bits(&seed) % bytes] ^= (char)(1 << bits(&seed) % 8);
		write_file("kiln.db", damaged, bytes);
		free(damaged);
		struct cache_options options = {.directory = directory};
		struct cache *cache;
		int opened = cache_open(&options, &cache, error);
		/* The schema number is a byte like any other. */
		assert_true(opened == KILN_OK || opened == KILN_EVERSION);
		for (int i = 1; opened == KILN_OK && i <= COUNT; i++) {
			int status = get(cache, i);
			assert_true(status == KILN_OK || status == KILN_ENOENT);
			missing += status == KILN_ENOENT;
			found += status == KILN_OK;
		}
		if (opened == KILN_OK) {
			assert_int_equal(put(cache, 1, 700), KILN_OK);
			assert_int_equal(get(cache, 1), KILN_OK);
			cache_close(cache);
		}
		assert_int_equal(unlink(in_directory("kiln.db")), 0);
	}
	free(sound);
	assert_true(missing > 20 && found > 200);
}

/* Damage that comes while the database is open is not seen by the check at opening. */
static void damage_while_open(void **state)
{
	(void)state;
	enum { COUNT = 300 };
	struct cache *cache = open_cache(0, 0);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(put(cache, i, 30000), KILN_OK);     /* more than the page cache holds */
	assert_int_equal(trim_to(cache, UINT64_MAX).removed, 0); /* and writes the log to the file */
	struct stat status;
	assert_int_equal(stat(in_directory("kiln.db"), &status), 0);
	int fd = open(in_directory("kiln.db"), O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	static unsigned char junk[4096];
	memset(junk, 0x5a, sizeof(junk));
	for (off_t at = 4096; at < status.st_size; at += 4096)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
	close(fd);
	for (int i = 0; i < COUNT; i++) {
		int result = get(cache, i);
		assert_true(result == KILN_OK || result == KILN_ENOENT);
	}
	assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), 0);
	assert_int_equal(put(cache, 1, 700), KILN_OK);
	assert_int_equal(get(cache, 1), KILN_OK);
	assert_int_equal(stats_of(cache).rows, 1);
	cache_close(cache);
	cache = open_cache(0, 0);
	assert_int_equal(get(cache, 1), KILN_OK);
	cache_close(cache);
}

/* ---- Full disk ---- */

/* No file may grow beyond this; the writes of SQLite fail as on a full disk. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void full_disk(void **state)
{
	(void)state;
	struct cache *cache = open_cache(0, 8 << 20);
	assert_int_equal(put(cache, 1, 1000), KILN_OK);
	void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
	limit_files(256 << 10);
	int status = put(cache, 2, 1 << 20);
	char sentence[KERNEL_ERROR_MAX];
	memcpy(sentence, error, sizeof(sentence));
	int kept = get(cache, 2);
	int other = get(cache, 1);
	uint64_t failures = stats_of(cache).write_failures, rows = stats_of(cache).rows;
	limit_files(RLIM_INFINITY);
	signal(SIGXFSZ, before);
	assert_int_equal(status, KILN_EIO);
	assert_non_null(strstr(sentence, "writing a kernel to "));
	assert_non_null(strstr(sentence, "/kiln.db failed: "));
	assert_int_equal(kept, KILN_OK);
	assert_int_equal(other, KILN_OK);
	assert_int_equal(failures, 1);
	assert_int_equal(rows, 1);
	/* With room again it goes on as if nothing had been. */
	assert_int_equal(put(cache, 3, 1 << 20), KILN_OK);
	cache_drop_memory(cache);
	assert_int_equal(get(cache, 2), KILN_ENOENT);
	assert_int_equal(get(cache, 3), KILN_OK);
	assert_int_equal(get(cache, 1), KILN_OK);
	struct cache_row row;
	assert_int_equal(cache_show(cache, "0000", &row, error), KILN_ENOENT);
	struct cache_verified verified = verify_all(cache, NULL, NULL);
	assert_int_equal(verified.checked, 2);
	assert_int_equal(verified.bad, 0);
	cache_close(cache);
}

/* ---- kill -9 ---- */

/* Puts rows from number on, tells each one's end, replaces and trims now and then. */
static _Noreturn void writer(int number, int tell)
{
	struct cache_options options = {
		.directory = directory, .cap_bytes = 2 << 20, .memory_bytes = 1 << 20};
	struct cache *cache;
	if (cache_open(&options, &cache, error) != KILN_OK)
		_exit(1);
	for (;; number++)
		if (put(cache, number, 100 + (size_t)(number * 7919 % 60000)) != KILN_OK ||
			get(cache, number) != KILN_OK || write(tell, &number, sizeof(number)) < 0)
			_exit(2);
}

static void killed_writers(void **state)
{
	(void)state;
	enum { ROUNDS = 12 };
	uint64_t seed = 1234567;
	int next = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int ends[2], number = -1;
		int first = next;
		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		pid_t pid = fork();
		if (pid == 0) {
			close(ends[0]);
			writer(next, ends[1]);
		}
		close(ends[1]);
		/* After some rows, and then somewhere inside the next ones. */
		int rows = 1 + (int)(bits(&seed) % 40);
		for (int i = 0; i < rows; i++)
			assert_int_equal(read(ends[0], &number, sizeof(number)), sizeof(number));
		for (volatile uint64_t spin = bits(&seed) % 2000000; spin; spin--) {
		}
		kill(pid, SIGKILL);
		assert_int_equal(join(pid), -SIGKILL);
		while (read(ends[0], &number, sizeof(number)) == sizeof(number)) {
		}
		close(ends[0]);
		next = number + 2;

		struct cache *cache = open_cache(0, 0);
		struct cache_verified verified = verify_all(cache, NULL, NULL);
		assert_int_equal(verified.bad, 0);
		assert_int_equal(verified.checked, stats_of(cache).rows);
		/* Rows that were told are there, but for those that the cap has removed since. */
		for (int i = number; i >= first && i > number - 20; i--)
			assert_int_equal(get(cache, i), KILN_OK);
		assert_int_equal(access(in_directory("kiln.db.bad-1"), F_OK), -1);
		cache_close(cache);
	}
}

int main(void)
{
	util_log_level = UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(directories_that_will_not_do, make_directory,
										remove_directory),
		cmocka_unit_test(file_systems_of_others),
		cmocka_unit_test_setup_teardown(read_only_directory, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(one_owner, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(no_database, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(newer_schema_is_refused, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(foreign_database_is_set_aside, make_directory,
										remove_directory),
		cmocka_unit_test_setup_teardown(any_byte_may_be_damaged, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(damage_while_open, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(full_disk, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(killed_writers, make_directory, remove_directory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
