/*
 * test_nvrtc: real compiles by the NVRTC of this machine.  Skipped, with its reason, where there is
 * none.
 */
#include "daemon/compile/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct compile_toolchain toolchain;

static const char kernel[] = "#pragma once\n"
							 "#if KILN_CPU\n#error not for the cpu\n#endif\n"
							 "template <class T, int N> __global__ void turn(const T *x, T *y)\n"
							 "{\n"
							 "	__shared__ T tile[N];\n"
							 "	tile[threadIdx.x] = x[threadIdx.x];\n"
							 "	__syncthreads();\n"
							 "	y[threadIdx.x] = tile[N - 1 - threadIdx.x];\n"
							 "}\n";

static void compile(const char *target, const char *text, const char *instantiation,
					struct compile_result *out)
{
	struct compile_file file = {"ops/turn.cuh", text, strlen(text)};
	struct compile_job job = {
		.source = "ops/turn.cuh", .instantiation = instantiation, .files = &file, .file_count = 1};

	snprintf(job.target, sizeof(job.target), "%s", target);
	nvrtc_compile(&job, out);
}

static void it_says_who_it_is(void **state)
{
	(void)state;
	assert_int_equal(strncmp(toolchain.id, "nvrtc ", 6), 0);
	assert_int_equal(strlen(strrchr(toolchain.id, ' ') + 1), 64);
	assert_int_equal(strlen(toolchain.stamp), 32);
	assert_string_equal(toolchain.reason, "");
	assert_non_null(strstr(toolchain.targets, "sm_90"));
}

static void a_template_becomes_a_cubin(void **state)
{
	struct compile_result result, again;

	(void)state;
	compile("sm_90", kernel, "turn<float, 1024>", &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_true(result.object_bytes > 64);
	assert_memory_equal(result.object, "\177ELF", 4);
	assert_string_equal(result.entry, "_Z4turnIfLi1024EEvPKT_PS0_");
	assert_non_null(
		memmem(result.object, result.object_bytes, result.entry, strlen(result.entry) + 1));
	assert_in_range(result.registers, 4, 255);
	assert_int_equal(result.shared_bytes, 4096);
	assert_int_equal(result.spill_bytes, 0);
	assert_int_equal(result.local_bytes, 0);
	assert_true(result.micros > 0);
	assert_non_null(strstr(result.source, "#line 1 \"ops/turn.cuh\"\n"));
	compile("sm_90", kernel, "turn<float, 1024>", &again);
	assert_int_equal(again.object_bytes, result.object_bytes);
	assert_memory_equal(again.object, result.object, result.object_bytes);
	compile_result_free(&again);
	compile_result_free(&result);
	assert_null(result.object);
}

static void every_target_it_names_works(void **state)
{
	char targets[sizeof(toolchain.targets)], *save = NULL;
	struct compile_result result;

	(void)state;
	memcpy(targets, toolchain.targets, sizeof(targets));
	for (char *at = strtok_r(targets, " ", &save); at; at = strtok_r(NULL, " ", &save)) {
		compile(at, kernel, "turn<unsigned char, 32>", &result);
		assert_string_equal(result.error, "");
		assert_int_equal(result.status, KILN_OK);
		assert_int_equal(result.shared_bytes >= 32, 1);
		compile_result_free(&result);
	}
}

static void an_error_has_the_callers_line(void **state)
{
	struct compile_result result;

	(void)state;
	compile("sm_90", "#pragma once\nint x;\n__global__ void turn(int *p)\n{\n\t*p = nosuch;\n}\n",
			"turn", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_non_null(strstr(result.log, "ops/turn.cuh(5): error:"));
	assert_string_equal(result.error, "ops/turn.cuh(5): error: identifier \"nosuch\" is undefined");
	assert_null(result.object);
	assert_null(result.entry);
	compile_result_free(&result);
	compile("sm_90", kernel, "turned<int>", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_non_null(strstr(result.error, "turned"));
	compile_result_free(&result);
}

static void warnings_are_kept(void **state)
{
	struct compile_result result;

	(void)state;
	compile("sm_90", "__global__ void turn(int *p) { int unused; *p = 1; }\n", "turn", &result);
	assert_int_equal(result.status, KILN_OK);
	assert_non_null(strstr(result.log, "ops/turn.cuh(1): warning"));
	compile_result_free(&result);
}

static void headers_are_found_by_name(void **state)
{
	struct compile_file files[] = {
		{"k.cu", "#include \"a/b.h\"\n__global__ void k(int *p)\n{\n\t*p = B;\n}\n", 0},
		{"a/b.h",
		 "#pragma once\n#define H <a/c.h>\n#if __has_include(H) && !__has_include(<d.h>)\n"
		 "#include H\n#endif\n#include \"a/b.h\"\n",
		 0},
		{"a/c.h", "#define B 7\n", 0},
	};
	struct compile_job job = {.target = "sm_90", .source = "k.cu", .instantiation = "k"};
	struct compile_result result;

	(void)state;
	for (int i = 0; i < 3; i++)
		files[i].bytes = strlen(files[i].text);
	job.files = files;
	job.file_count = job.user_files = 3;
	job.by_name = compile_wants_names(&job);
	assert_true(job.by_name);
	nvrtc_compile(&job, &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_null(strstr(result.source, "#define B"));
	compile_result_free(&result);
	files[2] = (struct compile_file){"a/c.h", "\n#define B y\n", 13};
	nvrtc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_string_equal(result.error, "k.cu(4): error: identifier \"y\" is undefined");
	compile_result_free(&result);
}

static void other_targets_are_refused(void **state)
{
	static const char *const targets[] = {"sm_10", "cpu", "sm_90b", "sm_99", "compute_90"};
	struct compile_result result;
	char sentence[KERNEL_ERROR_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
		compile(targets[i], kernel, "turn<int, 2>", &result);
		assert_int_equal(result.status, KILN_ENOTSUP);
		snprintf(sentence, sizeof(sentence), "target %s is not one of this NVRTC's: %s", targets[i],
				 toolchain.targets);
		assert_string_equal(result.error, sentence);
		compile_result_free(&result);
	}
}

/* As the worker has it: in-memory text compiles, files stay shut. */
static void no_file_is_read_without_descriptors(void **state)
{
	struct compile_result result;
	struct rlimit saved, none;

	(void)state;
	nvrtc_warm();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
	none = saved;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	compile("sm_90", kernel, "turn<short, 64>", &result);
	assert_int_equal(result.status, KILN_OK);
	compile_result_free(&result);
	/* A path that the scan of our own includes does not see. */
	compile("sm_90", "#define F </etc/passwd>\n#include F\n__global__ void turn(int *p) {}\n",
			"turn", &result);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_null(strstr(result.log, "root:"));
	compile_result_free(&result);
}

/* Runs in a child, because a process opens one NVRTC in its life. */
static int exit_status_of(int (*child)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int open_elsewhere(void)
{
	struct compile_toolchain other;
	struct compile_result result;

	setenv("KILN_NVRTC", "/nonexistent", 1);
	if (nvrtc_open(&other) != KILN_ENOTSUP || other.id[0])
		return 1;
	if (strncmp(other.reason,
				"KILN_NVRTC=/nonexistent is no libnvrtc and no directory with one: ", 66) != 0)
		return 2;
	compile("sm_90", kernel, "turn<int, 2>", &result);
	return result.status == KILN_ENOTSUP && strcmp(result.error, other.reason) == 0 ? 0 : 3;
}

static int open_with_id(void)
{
	struct compile_toolchain told;

	if (nvrtc_open(&told) != KILN_OK)
		return 1;
	if (getenv("CUDA_CACHE_PATH") || getenv("NVRTC_APPEND_OPTIONS") || !getenv("PATH"))
		return 2;
	return strcmp(told.id, "nvrtc told") == 0 ? 10 : 0;
}

static void a_named_library_is_the_only_one(void **state)
{
	(void)state;
	assert_int_equal(exit_status_of(open_elsewhere), 0);
}

static void an_id_is_believed_with_its_stamp_only(void **state)
{
	char value[200];

	(void)state;
	setenv("CUDA_CACHE_PATH", "/tmp", 1);
	setenv("NVRTC_APPEND_OPTIONS", "-lineinfo", 1);
	snprintf(value, sizeof(value), "%s:nvrtc told", toolchain.stamp);
	setenv(COMPILE_NVRTC_ID, value, 1);
	assert_int_equal(exit_status_of(open_with_id), 10);
	value[0] = value[0] == '0' ? '1' : '0';
	setenv(COMPILE_NVRTC_ID, value, 1);
	assert_int_equal(exit_status_of(open_with_id), 0);
	unsetenv(COMPILE_NVRTC_ID);
}

/* A child looks, so that this process has opened nothing when the children above begin. */
static bool look(void)
{
	int ends[2], status;
	pid_t pid;
	bool got;

	if (pipe(ends) != 0)
		return false;
	pid = fork();
	if (pid == 0) {
		nvrtc_open(&toolchain);
		_exit(write(ends[1], &toolchain, sizeof(toolchain)) != sizeof(toolchain));
	}
	close(ends[1]);
	got = pid > 0 && read(ends[0], &toolchain, sizeof(toolchain)) == sizeof(toolchain);
	close(ends[0]);
	return got && waitpid(pid, &status, 0) == pid && status == 0;
}

int main(void)
{
	const struct CMUnitTest children[] = {
		cmocka_unit_test(a_named_library_is_the_only_one),
		cmocka_unit_test(an_id_is_believed_with_its_stamp_only),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_who_it_is),
		cmocka_unit_test(a_template_becomes_a_cubin),
		cmocka_unit_test(every_target_it_names_works),
		cmocka_unit_test(an_error_has_the_callers_line),
		cmocka_unit_test(warnings_are_kept),
		cmocka_unit_test(headers_are_found_by_name),
		cmocka_unit_test(other_targets_are_refused),
		cmocka_unit_test(no_file_is_read_without_descriptors),
	};
	int failed;

	if (!look())
		return 1;
	if (toolchain.id[0] == 0) {
		printf("skipped: %s\n", toolchain.reason);
		return 77;
	}
	failed = cmocka_run_group_tests_name("children", children, NULL, NULL);
	nvrtc_open(&toolchain);
	return failed + cmocka_run_group_tests_name("nvrtc", tests, NULL, NULL);
}
