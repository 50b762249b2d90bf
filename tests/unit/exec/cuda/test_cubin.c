/*
 * test_cubin: the parameters that objects say they have: those that the NVRTC of this machine makes
 * for every target it knows, and objects that are none.  Skipped where there is no NVRTC.
 */
#include "daemon/compile/compile.h"
#include "daemon/exec/cuda/cubin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char source[] =
	"struct box { float lo[3], hi[3]; };\n"
	"struct __align__(16) wide { char c[4992]; };\n"
	"extern \"C\" __global__ void many(const float *x, float *y, box b,\n"
	"	char c, double d, short s)\n"
	"{\n"
	"	*y = *x + b.lo[0] + c + (float)d + s;\n"
	"}\n"
	"extern \"C\" __global__ void large(wide w, int *o) { *o = w.c[*o]; }\n"
	"extern \"C\" __global__ void none() {}\n"
	"template <class T> __global__ void unused(T x, T *y) {}\n"
	"template __global__ void unused(short, short *);\n";

static struct compile_toolchain toolchain;

static struct compile_result compile(const char *target, const char *entry)
{
	const struct compile_file file = {"k.cu", source, strlen(source)};
	struct compile_job job = {
		.source = "k.cu", .instantiation = entry, .files = &file, .file_count = 1, .user_files = 1};
	struct compile_result result;

	snprintf(job.target, sizeof(job.target), "%s", target);
	nvrtc_compile(&job, &result);
	assert_string_equal(result.error, "");
	return result;
}

static void expect(const struct compile_result *result, const char *entry, int count,
				   const uint32_t *sizes)
{
	struct device_kernel kernel = {.param_count = -2};

	if (!cubin_params(result->object, result->object_bytes, entry, &kernel))
		fail_msg("the object does not say what %s takes", entry);
	assert_int_equal(kernel.param_count, count);
	for (int i = 0; i < count; i++)
		assert_int_equal(kernel.params[i], sizes[i]);
}

static void every_target_says_its_parameters(void **state)
{
	char targets[sizeof(toolchain.targets)], *save = NULL;
	struct device_kernel kernel = {.param_count = -2};

	(void)state;
	memcpy(targets, toolchain.targets, sizeof(targets));
	for (char *target = strtok_r(targets, " ", &save); target;
		 target = strtok_r(NULL, " ", &save)) {
		struct compile_result result = compile(target, "unused<short>");
		expect(&result, "many", 6, (const uint32_t[]){8, 8, 24, 1, 8, 2});
		expect(&result, "large", 2, (const uint32_t[]){4992, 8});
		expect(&result, "none", 0, NULL);
		expect(&result, result.entry, 2, (const uint32_t[]){2, 8});
		assert_false(cubin_params(result.object, result.object_bytes, "man", &kernel));
		assert_false(cubin_params(result.object, result.object_bytes, "manyx", &kernel));
		assert_int_equal(kernel.param_count, -2);
		compile_result_free(&result);
	}
}

/* A cubin that is cut or changed gets an answer, and nothing outside of it is read. */
static void damaged_objects_are_answered(void **state)
{
	struct compile_result result = compile("sm_90", "many");
	struct device_kernel kernel;
	uint32_t random = 1;

	(void)state;
	for (size_t bytes = 0; bytes < result.object_bytes; bytes++) {
		uint8_t *cut = malloc(bytes ? bytes : 1);
		memcpy(cut, result.object, bytes);
		if (cubin_params(cut, bytes, "many", &kernel))
			assert_int_equal(kernel.param_count, 6);
		free(cut);
	}
	uint8_t *copy = malloc(result.object_bytes);
	for (int i = 0; i < 20000; i++) {
		memcpy(copy, result.object, result.object_bytes);
		for (int k = 0; k < 3; k++) {
			random = random * 1664525u + 1013904223u;
			/* Half of them in the header, where the sizes are. */
			size_t at = random >> 8;
			copy[at % (i & 1 ? 64 : result.object_bytes)] ^= (uint8_t)random | 1;
		}
		if (cubin_params(copy, result.object_bytes, "many", &kernel))
			assert_in_range(kernel.param_count, 0, KERNEL_MAX_ARGS);
	}
	free(copy);
	compile_result_free(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_target_says_its_parameters),
		cmocka_unit_test(damaged_objects_are_answered),
	};
	if (nvrtc_open(&toolchain) != KILN_OK) {
		printf("SKIP: %s\n", toolchain.reason);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
