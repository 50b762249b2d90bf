/*
 * fault: reports as files: named, bounded, whole or not at all, counted in place; what a report
 * must not say is taken out of what others wrote.
 */
#include "daemon/broker/devices/fault/fault.h"
#include "daemon/plan/kernel.h"
#include "daemon/base/util.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define REPORT                                 \
	"report         %s\nkind           %s\n"   \
	"times          1         \n"              \
	"last           2026-11-22 10:11:12 UTC\n" \
	"said           it ended  \n\ntimes          99\n"

static char base[64], directory[PATH_MAX], error[KERNEL_ERROR_MAX];

static int set_up(void **state)
{
	(void)state;
	snprintf(base, sizeof(base), "/tmp/kiln-test-fault-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	fault_directory(base, directory);
	return 0;
}

static int tear_down(void **state)
{
	char command[96];
	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", base);
	return system(command);
}

static int put(const char *id, const char *kind)
{
	char text[512];
	snprintf(text, sizeof(text), REPORT, id, kind);
	return fault_file_write(directory, id, text, error);
}

static void count_one(void *arg, const char *id, const char *text)
{
	(void)text;
	assert_true(fault_is_id(id));
	*(int *)arg += 1;
}

static int count_all(void)
{
	int count = 0;
	assert_int_equal(fault_file_each(directory, count_one, &count, error), KILN_OK);
	return count;
}

static void names(void **state)
{
	static const char *const bad[] = {"",
									  "20261122-101112-7f3",
									  "20261122-101112-7f3ag",
									  "20261122-101112-7F3A",
									  "2026112a-101112-7f3a",
									  "../../etc/passwd",
									  "20261122/101112-7f3a"};
	char found[FAULT_ID_MAX], *text;
	(void)state;
	assert_true(fault_is_id("20261122-101112-7f3a"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_false(fault_is_id(bad[i]));
		if (*bad[i])
			assert_int_equal(fault_file_read(directory, bad[i], found, &text, error), KILN_EINVAL);
	}
	assert_int_equal(fault_file_read(directory, "", found, &text, error), KILN_ENOENT);
	assert_string_equal(error, "there is no report: nothing has gone wrong that leaves one");
	assert_int_equal(fault_file_read(directory, "20261122-101112-7f3a", found, &text, error),
					 KILN_ENOENT);
	assert_non_null(strstr(error, "there is no report 20261122-101112-7f3a: it made room"));
}

static void written_and_read(void **state)
{
	char found[FAULT_ID_MAX], value[64], *text;
	struct stat status;
	(void)state;
	assert_int_equal(count_all(), 0);
	assert_int_equal(put("20261122-101112-0001", "device"), KILN_OK);
	assert_int_equal(put("20261122-101113-0000", "store"), KILN_OK);
	assert_int_equal(stat(directory, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0700);
	assert_int_equal(fault_file_read(directory, "", found, &text, error), KILN_OK);
	assert_string_equal(found, "20261122-101113-0000");
	fault_value(text, "kind", value, sizeof(value));
	assert_string_equal(value, "store");
	fault_value(text, "said", value, sizeof(value));
	assert_string_equal(value, "it ended");
	fault_value(text, "nothing", value, sizeof(value));
	assert_string_equal(value, "");
	free(text);
	assert_int_equal(fault_file_count(directory, found, 1234567, 1795600000, error), KILN_OK);
	assert_int_equal(fault_file_read(directory, "20261122-101113-0000", found, &text, error),
					 KILN_OK);
	fault_value(text, "times", value, sizeof(value));
	assert_string_equal(value, "1234567");
	fault_value(text, "last", value, sizeof(value));
	assert_string_equal(value, "2026-11-25 09:46:40 UTC");
	assert_non_null(strstr(text, "\nsaid           it ended"));
	assert_non_null(strstr(text, "\ntimes          99\n"));
	free(text);
	/* One that made room meanwhile is not missed. */
	assert_int_equal(fault_file_count(directory, "20261122-101112-7777", 2, 1, error), KILN_OK);
}

static void bounded(void **state)
{
	char id[FAULT_ID_MAX], found[FAULT_ID_MAX], *text;
	(void)state;
	for (int i = 0; i < FAULT_KEPT + 10; i++) {
		snprintf(id, sizeof(id), "20261122-101112-%04x", i);
		assert_int_equal(put(id, "device"), KILN_OK);
	}
	assert_int_equal(count_all(), FAULT_KEPT);
	assert_int_equal(fault_file_read(directory, "20261122-101112-0009", found, &text, error),
					 KILN_ENOENT);
	assert_int_equal(fault_file_read(directory, "20261122-101112-000a", found, &text, error),
					 KILN_OK);
	free(text);
}

static void what_is_in_the_way(void **state)
{
	(void)state;
	assert_int_equal(symlink("/tmp", directory), 0);
	assert_int_equal(put("20261122-101112-0001", "device"), KILN_EIO);
	assert_non_null(strstr(error, "cannot be used"));
	assert_int_equal(unlink(directory), 0);
	assert_int_equal(mkdir(directory, 0700), 0);
	assert_int_equal(chmod(directory, 0777), 0);
	assert_int_equal(put("20261122-101112-0001", "device"), KILN_EIO);
	assert_int_equal(rmdir(directory), 0);
	/* Nothing is made above it. */
	fault_directory("/tmp/kiln-test-fault-nowhere/cache", directory);
	assert_int_equal(put("20261122-101112-0001", "device"), KILN_EIO);
	assert_non_null(strstr(error, "No such file"));
}

/* Nothing of a report that could not be written whole is left. */
static void disk_full(void **state)
{
	char temporary[PATH_MAX + 16];
	(void)state;
	assert_int_equal(mkdir(directory, 0700), 0);
	snprintf(temporary, sizeof(temporary), "%s/new.part", directory);
	assert_int_equal(mkdir(temporary, 0700), 0);
	assert_int_equal(put("20261122-101112-0001", "device"), KILN_EIO);
	assert_non_null(strstr(error, "report 20261122-101112-0001 cannot be written to"));
	assert_int_equal(count_all(), 0);
}

static void scrubbed(void **state)
{
	static const char key[] = "3f2a90c1aabbccdd3f2a90c1aabbccdd3f2a90c1aabbccdd3f2a90c1aabbccdd";
	static const char *const cases[][2] = {
		{"at 0x7f12ab34cd56 in f", "at 0x............ in f"},
		{"address 0x10, a null pointer", "address 0x10, a null pointer"},
		{"the password sword:fish went", "the password .......... went"},
		{"sword:fishsword:fish", "...................."},
		{"abcdefg 0xyz 00", "abcdefg 0xyz 00"},
		{"0x", "0x"},
		{"", ""},
	};
	char text[256];
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(text, sizeof(text), "%s", cases[i][0]);
		fault_scrub(text, "sword:fish");
		assert_string_equal(text, cases[i][1]);
	}
	snprintf(text, sizeof(text), "kernel %s, handle %s0", key, key);
	fault_scrub(text, "");
	assert_int_equal(strncmp(text + 7, key, 64), 0);
	assert_int_equal(strspn(text + 7 + 64 + strlen(", handle "), "."), 65);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(names),     TEST(written_and_read), TEST(bounded), TEST(what_is_in_the_way),
		TEST(disk_full), TEST(scrubbed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
