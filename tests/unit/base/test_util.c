/*
 * util: texts that never overflow, sizes, hashes against published values, files, CPUs, the log.
 */
#include "daemon/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

static char directory[64];

static int make_directory(void **state)
{
	(void)state;
	snprintf(directory, sizeof(directory), "/tmp/kiln-test-util-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	(void)state;
	char command[96];
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command);
}

/* A file in the directory; its path is valid until the next call. */
static const char *file_with(const char *name, const void *content, size_t size)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	return path;
}

static void sentences_are_cut_cleanly(void **state)
{
	(void)state;
	char text[8];
	assert_int_equal(util_fail(text, sizeof(text), -3, "%s %d", "abc", 12), -3);
	assert_string_equal(text, "abc 12");
	util_fail(text, sizeof(text), -1, "%s", "abcdefghij");
	assert_string_equal(text, "abcdefg");
	/* a character of two, three, four bytes does not fit, or just fits */
	util_fail(text, sizeof(text), -1, "%s", "abcdef\xc3\xa9x");
	assert_string_equal(text, "abcdef");
	util_fail(text, sizeof(text), -1, "%s", "abcde\xc3\xa9x");
	assert_string_equal(text, "abcde\xc3\xa9");
	util_fail(text, sizeof(text), -1, "%s", "abcde\xe2\x82\xacx");
	assert_string_equal(text, "abcde");
	util_fail(text, sizeof(text), -1, "%s", "abcd\xf0\x9f\x94\xa5x");
	assert_string_equal(text, "abcd");
	text[0] = 'x';
	util_fail(text, 1, -1, "abc");
	assert_string_equal(text, "");
	assert_int_equal(util_fail(NULL, 0, -5, "abc"), -5);
	util_fail(text, sizeof(text), -1, "%s", "a\nb\x1b[\x7f");
	assert_string_equal(text, "a b\\x1b");
}

static void append_keeps_the_length(void **state)
{
	(void)state;
	char text[10] = "";
	size_t used = util_append(text, sizeof(text), 0, "%d,", 123);
	assert_int_equal(used, 4);
	used = util_append(text, sizeof(text), used, "%d,", 456);
	assert_int_equal(used, 8);
	used = util_append(text, sizeof(text), used, "%d,", 789);
	assert_int_equal(used, 9);
	assert_string_equal(text, "123,456,7");
	assert_int_equal(util_append(text, sizeof(text), used, "more"), 9);
	assert_string_equal(text, "123,456,7");
}

static void texts_grow(void **state)
{
	(void)state;
	struct util_text text = {0};
	for (int i = 0; i < 1000; i++)
		util_text_add(&text, "%03d;", i);
	assert_false(text.failed);
	assert_int_equal(text.size, 4000);
	assert_memory_equal(text.text, "000;001;", 8);
	assert_string_equal(text.text + 3996, "999;");
	util_text_bytes(&text, "a\0b", 3);
	assert_int_equal(text.size, 4003);
	assert_memory_equal(text.text + 4000, "a\0b\0", 4);
	util_text_bytes(&text, "", SIZE_MAX / 2);
	assert_true(text.failed);
	util_text_add(&text, "x");
	assert_int_equal(text.size, 4003);
	util_text_free(&text);
	assert_null(text.text);
	util_text_bytes(&text, NULL, 0);
	assert_string_equal(text.text, "");
	util_text_free(&text);
}

static void sizes_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"4096", 4096},
		{"512k", 512 << 10},
		{"512K", 512 << 10},
		{"64 MiB", 64 << 20},
		{"64MiB", 64 << 20},
		{"64mb", 64 << 20},
		{"10B", 10},
		{"2G", 2ull << 30},
		{"3TiB", 3ull << 40},
		{"18446744073709551615", UINT64_MAX},
		{"16777215T", 16777215ull << 40},
	};
	static const char *const bad[] = {
		"",      " 1",   "-1",  "+1",        "1.5k",
		"k",     "1q",   "1kk", "1kib2",     "1 x",
		"1KiBi", "0x10", "1e3", "16777216T", "18446744073709551616",
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint64_t bytes = 1;
		assert_true(util_parse_bytes(good[i].text, &bytes));
		assert_int_equal(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t bytes = 12345;
		assert_false(util_parse_bytes(bad[i], &bytes));
		assert_int_equal(bytes, 12345);
	}
}

static void sizes_are_written(void **state)
{
	(void)state;
	char text[16];
	assert_string_equal(util_bytes(0, text), "0 B");
	assert_string_equal(util_bytes(1023, text), "1023 B");
	assert_string_equal(util_bytes(1024, text), "1.0 KiB");
	assert_string_equal(util_bytes(67108864, text), "64.0 MiB");
	assert_string_equal(util_bytes((1 << 20) - 1, text), "1.0 MiB");
	assert_string_equal(util_bytes(1536ull << 30, text), "1.5 TiB");
	assert_string_equal(util_bytes(UINT64_MAX, text), "16.0 EiB");
}

/* Values of `b2sum -l 256`. */
static void hashes(void **state)
{
	(void)state;
	static const char empty[] = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8";
	static const char abc[] = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319";
	struct util_hash hash;
	unsigned char digest[32];
	char hex[65];
	util_hash_begin(&hash);
	util_hash_end(&hash, digest);
	util_hex(digest, 32, hex);
	assert_string_equal(hex, empty);
	util_hash_begin(&hash);
	util_hash_add(&hash, "a", 1);
	util_hash_add(&hash, NULL, 0);
	util_hash_add(&hash, "bc", 2);
	util_hash_end(&hash, digest);
	util_hex(digest, 32, hex);
	assert_string_equal(hex, abc);
	assert_true(util_hash_file(file_with("abc", "abc", 3), digest));
	util_hex(digest, 32, hex);
	assert_string_equal(hex, abc);
	assert_false(util_hash_file("/nonexistent", digest));
	assert_int_equal(errno, ENOENT);
	assert_false(util_hash_file(directory, digest));
	assert_int_equal(errno, EISDIR);
}

static void files_are_read(void **state)
{
	(void)state;
	size_t bytes = 99;
	char *text = util_read_file(file_with("some", "ab\0cd", 5), 5, &bytes);
	assert_non_null(text);
	assert_int_equal(bytes, 5);
	assert_memory_equal(text, "ab\0cd\0", 6);
	free(text);
	assert_null(util_read_file(file_with("some", "abcdef", 6), 5, &bytes));
	assert_int_equal(errno, EFBIG);
	text = util_read_file(file_with("none", "", 0), 5, NULL);
	assert_string_equal(text, "");
	free(text);
	/* a size of 0 from stat, and content all the same */
	text = util_read_file("/proc/self/status", 1 << 20, &bytes);
	assert_non_null(strstr(text, "Pid:"));
	assert_int_equal(strlen(text), bytes);
	free(text);
	static char large[100000];
	memset(large, 'x', sizeof(large));
	text = util_read_file(file_with("large", large, sizeof(large)), sizeof(large), &bytes);
	assert_int_equal(bytes, sizeof(large));
	assert_memory_equal(text, large, sizeof(large));
	free(text);
}

static void directories_are_made(void **state)
{
	(void)state;
	char path[PATH_MAX + 8];
	struct stat status;
	snprintf(path, sizeof(path), "%s/a/b//c/", directory);
	assert_int_equal(util_make_directories(path, 0700), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	assert_int_equal(util_make_directories(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/d", file_with("plain", "", 0));
	assert_int_equal(util_make_directories(path, 0700), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(util_make_directories("", 0700), -1);
}

/* A mount with the groups /, /a and /a/b. */
static void quota(const char *group, const char *content)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", directory, group);
	assert_int_equal(util_make_directories(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/cpu.max", group);
	file_with(path, content, strlen(content));
}

static void quotas_of_groups(void **state)
{
	(void)state;
	char self[PATH_MAX];
	snprintf(self, sizeof(self), "%s",
			 file_with("cgroup", "3:cpu:/x\n0::/a/b\n", strlen("3:cpu:/x\n0::/a/b\n")));
	assert_int_equal(util_cgroup_cpus(self, directory), INT_MAX);
	quota("a/b", "max 100000\n");
	assert_int_equal(util_cgroup_cpus(self, directory), INT_MAX);
	quota("a/b", "250000 100000\n");
	assert_int_equal(util_cgroup_cpus(self, directory), 3);
	quota("a", "150000 100000\n");
	assert_int_equal(util_cgroup_cpus(self, directory), 2);
	quota(".", "1000 100000\n");
	assert_int_equal(util_cgroup_cpus(self, directory), 1);
	quota(".", "nonsense\n");
	assert_int_equal(util_cgroup_cpus(self, directory), 2);
	assert_int_equal(util_cgroup_cpus("/nonexistent", directory), INT_MAX);
	assert_int_equal(util_cgroup_cpus(file_with("cgroup", "3:cpu:/x\n", 9), directory), INT_MAX);
	assert_in_range(util_cpu_count(), 1, sysconf(_SC_NPROCESSORS_CONF));
}

static void group_file(const char *group, const char *name, const char *text)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", directory, group);
	assert_int_equal(util_make_directories(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%s", group, name);
	file_with(path, text, strlen(text));
}

/* The least of what the host has and what each group has left. */
static void memory_of_groups(void **state)
{
	(void)state;
	const uint64_t kib = 1024;
	char self[PATH_MAX], host[PATH_MAX];
	const char *meminfo = "MemTotal:       900 kB\nMemFree: 5 kB\nMemAvailable:    700 kB\n";
	snprintf(self, sizeof(self), "%s", file_with("cgroup", "0::/a/b\n", strlen("0::/a/b\n")));
	snprintf(host, sizeof(host), "%s", file_with("meminfo", meminfo, strlen(meminfo)));
	assert_int_equal(util_memory_available(host, self, directory), 700 * kib);
	assert_true(util_memory_available("/nonexistent", self, directory) == UINT64_MAX);
	group_file("a/b", "memory.max", "max\n");
	group_file("a/b", "memory.current", "5000\n");
	assert_int_equal(util_memory_available(host, self, directory), 700 * kib);
	group_file("a", "memory.max", "409600\n");
	group_file("a", "memory.current", "307200\n");
	assert_int_equal(util_memory_available(host, self, directory), 102400);
	/* The page cache can give pages back. */
	group_file("a", "memory.stat", "anon 1\ninactive_file 51200\nfile 2\n");
	assert_int_equal(util_memory_available(host, self, directory), 153600);
	group_file("a", "memory.current", "500000\n");
	group_file("a", "memory.stat", "nonsense\n");
	assert_int_equal(util_memory_available(host, self, directory), 0);
	assert_in_range(util_resident_bytes(getpid()), 64 * kib, (uint64_t)1 << 40);
	assert_int_equal(util_resident_bytes(0), 0);
}

static const char error_text[] =
	"0123456789012345678901234567890123456789012345678901234567890123456789"
	"0123456789012345678901234567890123456789";

#define TIME_BYTES 25 /* of the time before a line that goes to no terminal and no journal */

#define OF_A_CHILD ((enum util_level)99)

/* Finds what a log call writes to stderr. */
static void logged(char *out, size_t size, bool journal, enum util_level level, const char *message)
{
	int ends[2];
	struct stat status;
	char stream[64], lines[4096];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(fstat(ends[1], &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
			 (unsigned long long)status.st_ino + !journal);
	setenv("JOURNAL_STREAM", stream, 1);
	int kept = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	errno = ENOSPC;
	snprintf(lines, sizeof(lines), "%s", message);
	if (level == OF_A_CHILD)
		util_log_child(lines);
	else
		util_log(level, "%s", message);
	int after = errno;
	dup2(kept, STDERR_FILENO);
	close(kept);
	unsetenv("JOURNAL_STREAM");
	ssize_t got = read(ends[0], out, size - 1);
	out[got > 0 ? got : 0] = 0;
	close(ends[0]);
	assert_int_equal(after, ENOSPC);
}

/* The last lines whole, whatever was logged before. */
static void log_tail(void **state)
{
	char tail[UTIL_LOG_TAIL], line[256], wanted[300];
	int kept = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
	(void)state;
	dup2(nothing, STDERR_FILENO);
	for (int i = 0; i < 500; i++) {
		snprintf(line, sizeof(line), "line %d of %.*s", i, i % 100, error_text);
		util_log(UTIL_ERROR, "%s", line);
		util_log_tail(tail);
		/* Other tests logged before. */
		if (i >= 400)
			assert_int_equal(strncmp(tail + TIME_BYTES, "kilnd[", 6), 0);
		snprintf(wanted, sizeof(wanted), " error %s\n", line);
		assert_true(strlen(tail) >= strlen(wanted));
		assert_string_equal(tail + strlen(tail) - strlen(wanted), wanted);
	}
	assert_in_range(strlen(tail), UTIL_LOG_TAIL - 300, UTIL_LOG_TAIL - 1);
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(nothing);
}

static void log_lines(void **state)
{
	(void)state;
	char line[4096], expected[128];
	logged(line, sizeof(line), false, UTIL_WARN, "two\nlines \xc3\xa9");
	snprintf(expected, sizeof(expected), "kilnd[%ld] warn two lines \xc3\xa9\n", (long)getpid());
	/* "2026-11-22T18:12:03.123Z " */
	static const char digits[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
	for (size_t i = 0; i < TIME_BYTES; i++)
		assert_true(digits[i] == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == digits[i]);
	assert_string_equal(line + TIME_BYTES, expected);
	logged(line, sizeof(line), true, UTIL_ERROR, "broken");
	assert_string_equal(line, "<3>broken\n");
	logged(line, sizeof(line), true, UTIL_DEBUG, "detail");
	assert_string_equal(line, "");
	util_log_level = UTIL_DEBUG;
	logged(line, sizeof(line), true, UTIL_DEBUG, "detail");
	util_log_level = UTIL_INFO;
	assert_string_equal(line, "<7>detail\n");
	static char large[3000];
	memset(large, 'x', sizeof(large) - 1);
	logged(line, sizeof(line), true, UTIL_INFO, large);
	assert_int_equal(strlen(line), 3 + 2047 + 1);
	assert_string_equal(line + 2049, "x\n");
}

/* Whatever is said, a line is one object. */
static void log_objects(void **state)
{
	(void)state;
	char line[8192], expected[256];
	static char large[3000];
	util_log_format = UTIL_LOG_JSON;
	logged(line, sizeof(line), false, UTIL_WARN, "a \"b\" \\ \033[1m\nc\td \xc3\xa9 \xff");
	assert_string_equal((snprintf(expected, sizeof(expected),
								  "{\"time\":\"%.24s\",\"level\":"
								  "\"warn\",\"pid\":%ld,\"message\":\"a \\\"b\\\" \\\\ \\\\x1b[1m "
								  "c d \xc3\xa9 \\\\xff\"}\n",
								  line + strlen("{\"time\":\""), (long)getpid()),
						 line),
						expected);
	logged(line, sizeof(line), true, UTIL_ERROR, "x");
	assert_true(!strncmp(line, "<3>{\"time\":\"", 12));
	logged(
		line, sizeof(line), false, OF_A_CHILD,
		"2026-11-23T18:00:00.000Z kilnd[77] warn \"slow\"\r\n\n<3>lost\nprinted {\tby\nkilnd[5]");
	const char *rest = line;
	static const char *const ends[] = {
		"\"level\":\"warn\",\"pid\":77,\"message\":\"\\\"slow\\\"\"}\n", "\"message\":\"lost\"}\n",
		"\"message\":\"printed { by\"}\n", "\"message\":\"kilnd[5]\"}\n"};
	for (int i = 0; i < 4; i++) {
		const char *found = strstr(rest, ends[i]);
		assert_non_null(found);
		assert_true(found < strchr(rest, '\n'));
		assert_int_equal(strstr(rest, "\"level\":\"error\"") == rest + 35, i == 1);
		rest = strchr(rest, '\n') + 1;
	}
	assert_string_equal(rest, "");
	memset(large, '"', sizeof(large) - 1);
	logged(line, sizeof(line), false, UTIL_INFO, large);
	assert_string_equal(line + strlen(line) - 5, "\\\"\"}\n");
	util_log_format = UTIL_LOG_TEXT;
}

/* The broker's loop must not stand still for whoever does not read its log. */
static void a_log_that_nobody_reads(void **state)
{
	(void)state;
	static char filler[1 << 16];
	int ends[2];
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	while (write(ends[1], filler, sizeof(filler)) > 0) {
	}
	assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
	int kept = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	uint64_t began = util_now_us();
	alarm(20);
	util_log(UTIL_WARN, "nobody reads this");
	alarm(0);
	dup2(kept, STDERR_FILENO);
	assert_true(util_now_us() - began < 10000000);
	close(kept);
	close(ends[0]);
	close(ends[1]);
}

static void clock_rises(void **state)
{
	(void)state;
	uint64_t before = util_now_us();
	uint64_t after = util_now_us();
	assert_true(before > 0 && after >= before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentences_are_cut_cleanly),
		cmocka_unit_test(append_keeps_the_length),
		cmocka_unit_test(texts_grow),
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(sizes_are_written),
		cmocka_unit_test_setup_teardown(hashes, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(files_are_read, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(directories_are_made, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(quotas_of_groups, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(memory_of_groups, make_directory, remove_directory),
		cmocka_unit_test(log_lines),
		cmocka_unit_test(log_objects),
		cmocka_unit_test(log_tail),
		cmocka_unit_test(a_log_that_nobody_reads),
		cmocka_unit_test(clock_rises),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
