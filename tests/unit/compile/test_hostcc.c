/*
 * test_hostcc: real compiles by the C++ compiler of this machine, for the cpu device.  Skipped,
 * with the reason, where there is none.
 */
#include "hostcc_scene.h"

#include <dlfcn.h>

/* Under a name of its own each time: the loader takes a name it knows for the object it has. */
static void *load(const struct compile_result *result)
{
	static int count;
	char path[100];
	void *handle;
	FILE *file;

	snprintf(path, sizeof(path), "%s/object%d.so", temporary, count++);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(result->object, 1, result->object_bytes, file), result->object_bytes);
	assert_int_equal(fclose(file), 0);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fail_msg("%s", dlerror());
	unlink(path);
	return handle;
}

static void call(void *handle, const char *entry, long *p)
{
	void *symbol = dlsym(handle, entry);
	void (*function)(long *);

	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	function(p);
}

static void it_says_who_it_is(void **state)
{
	(void)state;
	assert_int_equal(strncmp(toolchain.id, "host ", 5), 0);
	assert_true(strlen(toolchain.id) > 5 + 32 + 1);
	assert_int_equal(strlen(toolchain.stamp), 32);
	assert_string_equal(toolchain.targets, "cpu");
}

static void a_template_becomes_an_object(void **state)
{
	struct compile_result result;
	long p[6] = {5, 0, 1L << 62, 12, 16, 0};
	void *handle;

	(void)state;
	compile(kernel, "add<long, 37>", &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_string_equal(result.entry, "kiln_cpu_entry");
	assert_int_equal(result.registers, -1);
	assert_true(result.micros > 0);
	handle = load(&result);
	call(handle, result.entry, p);
	assert_int_equal(p[0], 42);
	assert_int_equal(p[1], (1L << 62) / 16 * 12); /* by 128-bit division */
	assert_int_equal(dlclose(handle), 0);
	compile_result_free(&result);
}

/* -fno-gnu-unique: what a kernel keeps is its own, and goes with it. */
static void objects_share_nothing(void **state)
{
	struct compile_result a, b;
	long p[6] = {0, 0, 1, 1, 1, 0};
	void *first, *second;

	(void)state;
	compile(kernel, "add<long, 2>", &a);
	compile(kernel, "add<long, 2>", &b);
	assert_int_equal(a.status, KILN_OK);
	/* The same bits, although another process, moment and directory made them. */
	assert_int_equal(a.object_bytes, b.object_bytes);
	assert_memory_equal(a.object, b.object, a.object_bytes);
	assert_null(memmem(a.object, a.object_bytes, "kiln-cc", 7));
	first = load(&a);
	call(first, a.entry, p);
	call(first, a.entry, p);
	assert_int_equal(p[5], 2);
	second = load(&b);
	call(second, b.entry, p);
	assert_int_equal(p[5], 1);
	dlclose(second);
	dlclose(first);
	first = load(&a);
	call(first, a.entry, p);
	assert_int_equal(p[5], 1);
	dlclose(first);
	compile_result_free(&a);
	compile_result_free(&b);
}

/*
 * Two sums, i64 while they are added up and u64 behind the loop: g++ 12.2.0 makes them 2 and 4 at
 * -O2 and at -O3, by its vectorizer of loops (its bug 107212); right are g++ 11.3, 12.4, 13.3 and
 * 14.2, clang++ 14 and 19.
 */
static void sums_in_two_types_are_whole(void **state)
{
	static const char sums[] =
		"typedef long long i64;\n"
		"typedef unsigned long long u64;\n"
		"__attribute__((noinline)) static void add_up(const int *x, int *y)\n"
		"{\n"
		"	i64 a = 0, b = 0;\n"
		"	u64 behind_a = 0, behind_b = 0;\n"
		"	for (int i = 0; i < 4; i++) {\n"
		"		behind_a = (u64)a + (u64)(i64)x[2 * i];\n"
		"		behind_b = (u64)b + (u64)(i64)x[2 * i + 1];\n"
		"		a = (i64)behind_a;\n"
		"		b = (i64)behind_b;\n"
		"	}\n"
		"	y[0] = (int)behind_a;\n"
		"	y[1] = (int)behind_b;\n"
		"}\n"
		"void add(long *p) { add_up((const int *)p, (int *)(p + 4)); }\n";
	struct compile_result result;
	int x[10] = {1, 2, 1, 2, 1, 2, 1, 2, 0, 0};
	long p[5];
	void *handle;

	(void)state;
	memcpy(p, x, sizeof(p));
	compile(sums, "add", &result);
	assert_string_equal(result.error, "");
	handle = load(&result);
	call(handle, result.entry, p);
	memcpy(x, p, sizeof(p));
	assert_int_equal(x[8], 4);
	assert_int_equal(x[9], 8);
	dlclose(handle);
	compile_result_free(&result);
}

static void an_error_has_the_callers_line(void **state)
{
	struct compile_result result;

	(void)state;
	compile("#pragma once\nint x;\n\nvoid add(long *p)\n{\n\t*p = nosuch;\n}\n", "add", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "ops/add.cuh:6:", 14), 0);
	assert_non_null(strstr(result.error, "nosuch"));
	assert_non_null(strstr(result.log, result.error));
	assert_non_null(strstr(result.source, "KILN_CPU_ENTRY(add)"));
	assert_null(result.object);
	compile_result_free(&result);
	compile(kernel, "added<int>", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "instantiation:1:", 16), 0);
	compile_result_free(&result);
}

static void headers_of_the_machine_are_not_there(void **state)
{
	struct compile_result result;

	(void)state;
	compile("#define F <stdio.h>\n#include F\nvoid add(long *p) { *p = 1; }\n", "add", &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_int_equal(strncmp(result.error, "ops/add.cuh:2:", 14), 0);
	compile_result_free(&result);
}

static void warnings_are_kept(void **state)
{
	struct compile_result result;

	(void)state;
	compile("void add(long *p) { *p = 1 / 0; }\n", "add", &result);
	assert_int_equal(result.status, KILN_OK);
	assert_non_null(strstr(result.log, "ops/add.cuh:1:"));
	compile_result_free(&result);
}

static void other_targets_are_refused(void **state)
{
	struct compile_job job = {.target = "sm_90"};
	struct compile_result result;

	(void)state;
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ENOTSUP);
	assert_string_equal(result.error, "the host compiler makes objects for target cpu, not sm_90");
	compile_result_free(&result);
}

/* Every kernel header compiles in front of the real shim. */
static void the_real_shim_compiles(void **state)
{
	static const char tiny[] = "#include \"common/types.cuh\"\n"
							   "template <class T> __global__ void twice(const T *x, T *y)\n"
							   "{ y[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }\n";
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct compile_file files[COMPILE_MAX_HEADERS + 1];
	struct compile_sources *sources;
	struct compile_job job = {
		.target = "cpu", .source = "twice.cuh", .instantiation = "twice<float>", .files = files};
	struct compile_result result;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	assert_int_equal(compile_sources_open(NULL, &sources, error), KILN_OK);
	if (compile_sources_closure(sources, "common/types.cuh", "cpu", found, &job.file_count, error))
		fail_msg("%s", error);
	for (int i = 0; i < job.file_count; i++)
		files[i] = *found[i];
	files[job.file_count++] = (struct compile_file){"twice.cuh", tiny, strlen(tiny)};
	hostcc_compile(&job, &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	dlclose(load(&result));
	compile_result_free(&result);
	/* To be checked, with lines, and nothing of where it was compiled. */
	job.check = true;
	hostcc_compile(&job, &result);
	assert_string_equal(result.error, "");
	assert_int_equal(result.status, KILN_OK);
	assert_null(memmem(result.object, result.object_bytes, temporary, strlen(temporary)));
	assert_non_null(memmem(result.object, result.object_bytes, "twice.cuh", 9));
	dlclose(load(&result));
	compile_result_free(&result);
	compile_sources_close(sources);
}

/* The compiler is asked whether the entry is a kernel, and what it says of that stays out of the
 * log. */
static void an_entry_of_a_users_is_a_kernel(void **state)
{
	static const char user_shim[] =
		"#define __global__ __attribute__((deprecated(KILN_CPU_KERNEL)))\n"
		"#define KILN_CPU_ENTRY(...) extern \"C\" __attribute__((visibility(\"default\"))) "
		"void kiln_cpu_entry(long *p) { __VA_ARGS__(p); }\n";
	static const char mine[] = "__global__ void kernel(long *p) { *p = 1 / 0; }\n"
							   "void function(long *p) { *p = 1 / 0; }\n";
	static const char wrong[] = "__global__ void kernel(long *p) { *p = M; }\n";
	struct compile_file files[] = {{"cpu/shim.cuh", user_shim, strlen(user_shim)},
								   {"mine.cu", mine, strlen(mine)}};
	struct compile_job job = {.target = "cpu",
							  .source = "mine.cu",
							  .instantiation = "kernel",
							  .files = files,
							  .file_count = 2,
							  .user_files = 1};
	struct compile_result result;

	(void)state;
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_OK);
	assert_non_null(strstr(result.log, "mine.cu:2:"));
	assert_non_null(strstr(result.log, "division by zero"));
	assert_null(strstr(result.log, "deprecated"));
	assert_null(strstr(result.log, "declared here"));
	assert_null(strstr(result.log, "entry:"));
	compile_result_free(&result);
	files[1] = (struct compile_file){"mine.cu", wrong, strlen(wrong)};
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_non_null(strstr(result.log, "mine.cu:1:"));
	assert_null(strstr(result.log, "deprecated"));
	assert_null(strstr(result.log, "entry:"));
	compile_result_free(&result);
	files[1] = (struct compile_file){"mine.cu", mine, strlen(mine)};
	job.instantiation = "function";
	hostcc_compile(&job, &result);
	assert_int_equal(result.status, KILN_ECOMPILE);
	assert_string_equal(result.error, "the entry function is a function that is not declared "
									  "__global__, and so no kernel");
	assert_null(result.object);
	compile_result_free(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_who_it_is),
		cmocka_unit_test(a_template_becomes_an_object),
		cmocka_unit_test(objects_share_nothing),
		cmocka_unit_test(sums_in_two_types_are_whole),
		cmocka_unit_test(an_error_has_the_callers_line),
		cmocka_unit_test(headers_of_the_machine_are_not_there),
		cmocka_unit_test(warnings_are_kept),
		cmocka_unit_test(an_entry_of_a_users_is_a_kernel),
		cmocka_unit_test(other_targets_are_refused),
		cmocka_unit_test(the_real_shim_compiles),
	};

	int status = scene_open();

	return status ? status : cmocka_run_group_tests(tests, NULL, scene_close);
}
