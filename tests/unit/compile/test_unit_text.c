/*
 * test_unit_text: the one text a compiler sees: its exact form, and the jobs that have none.
 */
#include "daemon/compile/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_OF(name, text)      \
	{                            \
		name, text, strlen(text) \
	}

static void form_for_a_gpu(void **state)
{
	struct compile_file files[] = {
		FILE_OF("common/a.cuh", "/* a */\n#pragma once\nint a; /*\n#pragma once\n*/\n"),
		FILE_OF("ops/x.cuh", "#include \"common/a.cuh\" // types\n\t#include \"b.cuh\"\nint x;"),
	};
	struct compile_job job = {
		.target = "sm_90", .instantiation = "k<1>", .files = files, .file_count = 2};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_string_equal(text, "#define KILN_CPU 0\n"
							  "#line 1 \"common/a.cuh\"\n"
							  "/* a */\n            \nint a; /*\n#pragma once\n*/\n"
							  "#line 1 \"ops/x.cuh\"\n"
							  "                        // types\n\t                \nint x;\n");
	free(text);
}

static void form_for_the_cpu(void **state)
{
	struct compile_file files[] = {FILE_OF("cpu/shim.cuh", "int s;\n"),
								   FILE_OF("ops/x.cuh", "int x;\n")};
	struct compile_job job = {
		.target = "cpu", .instantiation = "k<u8, 2>", .files = files, .file_count = 2};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_string_equal(text, "#define KILN_CPU 1\n"
							  "#line 1 \"cpu/shim.cuh\"\nint s;\n"
							  "#line 1 \"ops/x.cuh\"\nint x;\n"
							  "#line 1 \"instantiation\"\nKILN_CPU_ENTRY(k<u8, 2>)\n");
	free(text);
	job.check = true;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_string_equal(text, "#define KILN_CPU 1\n#define KILN_CPU_CHECK 1\n"
							  "#line 1 \"cpu/shim.cuh\"\nint s;\n"
							  "namespace {\n"
							  "#line 1 \"ops/x.cuh\"\nint x;\n"
							  "}\n"
							  "#line 1 \"instantiation\"\nKILN_CPU_ENTRY(k<u8, 2>)\n");
	free(text);
}

static void text_ends_where_its_size_says(void **state)
{
	struct compile_file file = {"x.cuh", "int x;#include \"y.cuh\"", 6};
	struct compile_job job = {
		.target = "sm_90", .instantiation = "k", .files = &file, .file_count = 1};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_string_equal(text, "#define KILN_CPU 0\n#line 1 \"x.cuh\"\nint x;\n");
	free(text);
	file.bytes = 0;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_string_equal(text, "#define KILN_CPU 0\n#line 1 \"x.cuh\"\n");
	free(text);
}

static void refuse(const struct compile_job *job, const char *sentence)
{
	char error[KERNEL_ERROR_MAX] = "", *text = NULL;

	assert_int_equal(unit_make(job, &text, error), KILN_EINVAL);
	assert_null(text);
	assert_string_equal(error, sentence);
}

static void bad_jobs_are_refused(void **state)
{
	static const char *const names[] = {"../x.cuh", "/x.cuh", "a//b", "a/",    "",    "x\"y",
										"a b",      "a\nb",   ".x",   "a/./b", "a\\b"};
	struct compile_file file = FILE_OF("x.cuh", "int x;\n");
	struct compile_job job = {
		.target = "sm_90", .instantiation = "", .files = &file, .file_count = 1};

	(void)state;
	refuse(&job, "the instantiation must be one line that is not empty");
	job.instantiation = "k<1>)\n#error";
	refuse(&job, "the instantiation must be one line that is not empty");
	job.instantiation = NULL;
	refuse(&job, "the instantiation must be one line that is not empty");
	job.instantiation = "k";
	job.file_count = 0;
	refuse(&job, "a kernel has 1 to 2176 source files, not 0");
	job.file_count = COMPILE_MAX_FILES + 1;
	refuse(&job, "a kernel has 1 to 2176 source files, not 2177");
	job.file_count = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char sentence[200];

		file.name = names[i];
		snprintf(sentence, sizeof(sentence),
				 "the name of a kernel source has only letters, digits and _-+./: %s", names[i]);
		/* A sentence is one line. */
		for (char *end = strchr(sentence, '\n'); end; end = strchr(end, '\n'))
			*end = ' ';
		refuse(&job, sentence);
	}
	file = (struct compile_file){"x.cuh", "int\0x", 5};
	refuse(&job, "kernel source x.cuh has a zero byte in it");
}

static void targets_are_told_apart(void **state)
{
	(void)state;
	assert_true(options_is_cpu("cpu"));
	assert_false(options_is_cpu("cpu2"));
	assert_true(options_is_cuda("sm_75"));
	assert_true(options_is_cuda("sm_90a"));
	assert_true(options_is_cuda("sm_120f"));
	assert_false(options_is_cuda("sm_9"));
	assert_false(options_is_cuda("sm_90b"));
	assert_false(options_is_cuda("sm_90aa"));
	assert_false(options_is_cuda("sm_1000"));
	assert_false(options_is_cuda("compute_90"));
	assert_false(options_is_cuda("sm_90 -lineinfo"));
}

static void figures_are_read(void **state)
{
	struct compile_result result = {.spill_bytes = -1};
	const char *log = "ptxas info    : 0 bytes gmem\n"
					  "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
					  "ptxas info    : Function properties for k\n"
					  "    40 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads\n"
					  "ptxas info    : Used 255 registers, used 1 barriers, 4224 bytes smem\n";

	(void)state;
	log_figures(log, &result);
	assert_int_equal(result.registers, 255);
	assert_int_equal(result.shared_bytes, 4224);
	assert_int_equal(result.spill_bytes, 36);
	assert_int_equal(result.local_bytes, 40);
	result = (struct compile_result){.spill_bytes = -1};
	log_figures("ptxas info    : Used 8 registers, used 0 barriers\n", &result);
	assert_int_equal(result.registers, 8);
	assert_int_equal(result.shared_bytes, 0);
	assert_int_equal(result.spill_bytes, -1);
	assert_int_equal(result.local_bytes, -1);
	log_figures("nothing of the kind", &result);
	assert_int_equal(result.registers, -1);
	assert_int_equal(result.shared_bytes, -1);
}

static void first_error_is_found(void **state)
{
	char error[KERNEL_ERROR_MAX];

	(void)state;
	log_first_error("x.cuh(1): warning #177-D: unused\n\nx.cuh(3): error: no such thing\nmore",
					error);
	assert_string_equal(error, "x.cuh(3): error: no such thing");
	log_first_error("cc1plus: fatal error: Killed\n", error);
	assert_string_equal(error, "cc1plus: fatal error: Killed");
	log_first_error("\nsomething odd\nelse", error);
	assert_string_equal(error, "something odd");
	log_first_error("k.cu: In function 'void k()':\n"
					"cpu/unavailable.cuh:8:16: error: static assertion failed: no PTX here\n"
					"cpu/shim.cuh:9:1: note: in expansion of macro 'other'\n"
					"k.cu:1:31: note: in expansion of macro 'asm'\n",
					error);
	assert_string_equal(error, "k.cu:1:31: error: no PTX here");
	log_first_error("cpu/unavailable.cuh: In instantiation of 'R printf(A ...)':\n"
					"k.cu:2:37:   required from here\n"
					"cpu/unavailable.cuh:26:43: error: static assertion failed: no printf\n",
					error);
	assert_string_equal(error, "k.cu:2:37: error: no printf");
	log_first_error("cpu/math.cuh:7:1: error: no such function\nk.cu:9:1: error: another\n"
					"k.cu:9:2: note: in expansion of macro 'other'\n",
					error);
	assert_string_equal(error, "cpu/math.cuh:7:1: error: no such function");
	log_first_error("", error);
	assert_string_equal(error, "the compiler failed without a word");
}

static void want_of_memory_is_found(void **state)
{
	(void)state;
	assert_true(log_says_no_memory("g++: fatal error: Killed signal terminated program cc1plus\n"
								   "compilation terminated.\n"));
	assert_true(log_says_no_memory("cc1plus: out of memory allocating 65536 bytes\n"));
	assert_true(log_says_no_memory("virtual memory exhausted: Cannot allocate memory\n"));
	assert_false(log_says_no_memory("k.cu:1:1: error: 'killed' was not declared\n"));
}

static void entry_is_named(void **state)
{
	char error[KERNEL_ERROR_MAX] = "entry:1:16: error: 'k' was not declared";

	(void)state;
	log_name_entry("k", error);
	assert_string_equal(error, "the entry k: 'k' was not declared");
	log_name_entry("k", error);
	assert_string_equal(error, "the entry k: 'k' was not declared");
	snprintf(error, sizeof(error), "%s", "__nv_name_map(2): error: identifier \"k\" is undefined");
	log_name_entry("k<1>", error);
	assert_string_equal(error, "the entry k<1>: identifier \"k\" is undefined");
	snprintf(error, sizeof(error), "%s", "k.cu(2): error: identifier \"k\" is undefined");
	log_name_entry("k", error);
	assert_string_equal(error, "k.cu(2): error: identifier \"k\" is undefined");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(form_for_a_gpu),
		cmocka_unit_test(form_for_the_cpu),
		cmocka_unit_test(text_ends_where_its_size_says),
		cmocka_unit_test(bad_jobs_are_refused),
		cmocka_unit_test(targets_are_told_apart),
		cmocka_unit_test(figures_are_read),
		cmocka_unit_test(first_error_is_found),
		cmocka_unit_test(want_of_memory_is_found),
		cmocka_unit_test(entry_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
