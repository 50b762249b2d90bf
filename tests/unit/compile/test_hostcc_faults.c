/*
 * test_hostcc_faults: the sentences of a worker whose host compiler, directory or system fails.
 * Skipped, with the reason, where there is no compiler.
 */
#include "hostcc_scene.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A clock of which each look takes so much longer. */
static uint64_t look_us, ahead_us;
uint64_t __real_util_now_us(void);
uint64_t __wrap_util_now_us(void);

uint64_t __wrap_util_now_us(void)
{
	ahead_us += look_us;
	return __real_util_now_us() + ahead_us;
}

/* Names in $TMPDIR that are not "." or "..". */
static int left_behind(void)
{
	DIR *dir = opendir(temporary);
	int count = 0;

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* ---- Stand-ins ---- */

static char named[200]; /* KILN_CXX as it was at the beginning; "": it was not set */
static char stand_in_path[100];

static void run_command(const char *command)
{
	assert_int_equal(system(command), 0);
}

/* Puts a script in the compiler's place, which does this before it runs the compiler.  It counts
 * from the next hostcc_open() on. */
static void stand_in(const char *first)
{
	FILE *file = fopen(stand_in_path, "w");

	assert_non_null(file);
	assert_true(fprintf(file, "#!/bin/sh\n%s\nexec %s \"$@\"\n", first, named[0] ? named : "g++") >
				0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(stand_in_path, 0700), 0);
	setenv("KILN_CXX", stand_in_path, 1);
}

static void stand_in_ends(void)
{
	struct compile_toolchain other;

	assert_int_equal(unlink(stand_in_path), 0);
	setenv("KILN_CXX", named, 1);
	hostcc_close();
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
}

/* ---- The tests ---- */

static void a_dead_process_is_cleaned_up_after(void **state)
{
	struct compile_toolchain other;
	int status;
	pid_t pid;

	(void)state;
	hostcc_close();
	assert_int_equal(left_behind(), 0);
	pid = fork();
	if (pid == 0) {
		hostcc_open(&other);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(left_behind(), 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
	assert_int_equal(left_behind(), 1); /* its own */
}

/* No file may grow beyond this, as on a disk with so much room. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A full disk is not the job's failure, and nobody may remember it as that. */
static void a_full_disk_is_no_error_of_the_source(void **state)
{
	static const rlim_t rooms[] = {0, 100, 1000};
	struct compile_result result;

	(void)state;
	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		limit_files(rooms[i]);
		compile(kernel, "add<long, 2>", &result);
		limit_files(RLIM_INFINITY);
		assert_int_equal(result.status, KILN_EIO);
		assert_non_null(strstr(result.error, temporary));
		assert_non_null(strstr(result.error, "make room there, or name another with TMPDIR"));
		compile_result_free(&result);
	}
	compile(kernel, "add<long, 2>", &result);
	assert_int_equal(result.status, KILN_OK);
	compile_result_free(&result);
}

static void a_directory_that_is_removed_is_made_anew(void **state)
{
	struct compile_result result;
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s/*", temporary);
	run_command(command);
	assert_false(hostcc_is_current());
	compile(kernel, "add<long, 2>", &result);
	assert_int_equal(result.status, KILN_OK);
	assert_true(hostcc_is_current());
	compile_result_free(&result);
}

/* A compiler that was ended, or whose files were taken away, says nothing.  The failure is not the
 * source's, nobody may remember it as that, and it has a sentence all the same. */
static void a_compiler_that_says_nothing_is_spoken_for(void **state)
{
	static const struct {
		const char *does;
		int status;
		const char *words;
	} ends[] = {
		{"rm -rf \"$TMPDIR\"", KILN_EIO, "directory was removed while the worker ran: ask again"},
		{"rm \"$TMPDIR\"/*", KILN_EIO, "directory was removed while the worker ran: ask again"},
		{"kill -TERM $$", KILN_EIO, ".cxx was ended from outside (Terminated): ask again"},
		{"kill -KILL $$", KILN_ENOMEM, ".cxx was killed, as the system does when memory runs out"},
		{"exit 3", KILN_ECOMPILE, ".cxx failed without a word, with exit status 3"},
	};
	struct compile_result result;
	char first[200];

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		snprintf(first, sizeof(first), "read -r first <unit.cc\n[ -z \"$first\" ] || %s",
				 ends[i].does);
		hostcc_close();
		stand_in(first);
		compile(kernel, "add<long, 2>", &result);
		if (result.status != ends[i].status || !strstr(result.error, ends[i].words))
			fail_msg("%s: %d, %s", ends[i].does, result.status, result.error);
		compile_result_free(&result);
	}
	stand_in_ends();
}

static void a_named_compiler_is_the_only_one(void **state)
{
	struct compile_toolchain other;
	char value[200];

	(void)state;
	hostcc_close();
	setenv("KILN_CXX", "/nonexistent/g++", 1);
	assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
	assert_string_equal(other.reason, "KILN_CXX=/nonexistent/g++ is no program that can be run");
	assert_string_equal(other.id, "");
	setenv("KILN_CXX", "false", 1);
	assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
	assert_non_null(strstr(other.reason, "false does not answer --version and -dumpmachine"));
	assert_int_equal(left_behind(), 0);
	setenv("KILN_CXX", named, 1);
	snprintf(value, sizeof(value), "%s:host told", toolchain.stamp);
	setenv(COMPILE_CXX_ID, value, 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, "host told");
	hostcc_close();
	value[0] = value[0] == '0' ? '1' : '0';
	setenv(COMPILE_CXX_ID, value, 1);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	assert_string_equal(other.id, toolchain.id);
	unsetenv(COMPILE_CXX_ID);
}

/* A compiler that is a script of ours can be replaced. */
static void a_replaced_compiler_is_noticed(void **state)
{
	struct compile_toolchain first, second;
	struct compile_result result;
	char command[200];

	(void)state;
	hostcc_close();
	stand_in(":");
	assert_int_equal(hostcc_open(&first), KILN_OK);
	assert_true(hostcc_is_current());
	snprintf(command, sizeof(command), "echo '# changed' >>%s", stand_in_path);
	run_command(command);
	assert_false(hostcc_is_current());
	compile(kernel, "add<long, 1>", &result);
	assert_int_equal(result.status, KILN_EIO);
	assert_non_null(strstr(result.error, ".cxx was replaced while the worker ran: ask again"));
	compile_result_free(&result);
	hostcc_close();
	assert_int_equal(hostcc_open(&second), KILN_OK);
	assert_string_not_equal(first.id, second.id);
	stand_in_ends();
}

/* Each question in turn is the one that hangs; nothing is asked after it. */
static void a_compiler_that_hangs_is_named(void **state)
{
	static const char *const questions[] = {"--version", "-dumpmachine", "unit",
											"-print-prog-name"};
	char first[200], command[300];
	struct compile_toolchain other;
	int count = strstr(toolchain.id, "clang") ? 3 : 4;

	(void)state;
	hostcc_close();
	for (int i = 0; i < count; i++) {
		snprintf(first, sizeof(first),
				 "case \"$*\" in *%s*) echo $$ >$0.pid; exec sleep 600;; esac", questions[i]);
		stand_in(first);
		look_us = 100000;
		assert_int_equal(hostcc_open(&other), KILN_ENOTSUP);
		look_us = 0;
		assert_non_null(strstr(other.reason, ".cxx has not answered within 20 s who it is: "));
		assert_string_equal(other.id, "");
		assert_int_equal(left_behind(), 0);
		snprintf(command, sizeof(command), "kill $(cat %s.pid); rm %s.pid", stand_in_path,
				 stand_in_path);
		run_command(command);
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
	stand_in_ends();
}

/* Neither a kernel nor the compiler has failed. */
static void a_system_without_processes_is_no_error_of_the_source(void **state)
{
	static const char refusal[] =
		"case \"$*\" in *unit*) "
		"[ -e $0.on ] && { echo vfork: Resource temporarily unavailable >&2; exit 1; };; esac";
	char command[300];
	struct compile_toolchain other;
	struct compile_result result;

	(void)state;
	hostcc_close();
	stand_in(refusal);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	snprintf(command, sizeof(command), ": >%s.on", stand_in_path);
	run_command(command);
	compile(kernel, "add<long, 3>", &result);
	assert_int_equal(result.status, KILN_EIO);
	assert_non_null(strstr(result.error, "the system gives no process for "));
	compile_result_free(&result);
	hostcc_close();
	assert_int_equal(hostcc_open(&other), KILN_EIO);
	assert_non_null(strstr(other.reason, ".cxx: end others, or raise the limit (ulimit -u"));
	assert_string_equal(other.id, "");
	snprintf(command, sizeof(command), "rm %s.on", stand_in_path);
	run_command(command);
	assert_int_equal(hostcc_open(&other), KILN_OK);
	stand_in_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dead_process_is_cleaned_up_after),
		cmocka_unit_test(a_full_disk_is_no_error_of_the_source),
		cmocka_unit_test(a_directory_that_is_removed_is_made_anew),
		cmocka_unit_test(a_compiler_that_says_nothing_is_spoken_for),
		cmocka_unit_test(a_named_compiler_is_the_only_one),
		cmocka_unit_test(a_replaced_compiler_is_noticed),
		cmocka_unit_test(a_compiler_that_hangs_is_named),
		cmocka_unit_test(a_system_without_processes_is_no_error_of_the_source),
	};
	const char *before = getenv("KILN_CXX");
	int status = scene_open();

	if (status)
		return status;
	snprintf(named, sizeof(named), "%s", before ? before : "");
	snprintf(stand_in_path, sizeof(stand_in_path), "%s/.cxx", temporary);
	return cmocka_run_group_tests(tests, NULL, scene_close);
}
