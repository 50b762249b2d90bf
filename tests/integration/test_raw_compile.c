/*
 * test_raw_compile: which sources of users' kernels compile, on device cpu and by NVRTC, with
 * errors in their authors' own words; and what may be the entry.
 */
#include "raw_scene.h"

#include <stdio.h>
#include <string.h>

/* ---- Errors ---- */

static void test_errors_of_the_compiler(void **state)
{
	struct kilnd *daemon = *state;
	const kiln_text headers[] = {
		{"a.h", "#include \"b.h\"\n#ifdef NEVER\n#include \"b.h\"\n#else\n#endif\nint a;\n", 0},
		{"b.h", "#ifndef B\n#define B\n#include \"a.h\"\nint b;\n#endif\n", 0},
		{"bad.h", "#pragma once\n\nint wrong() { return worse; }\n", 0},
	};
	kiln_raw raw = raw_of("#include <a.h>\n"
						  "#if 0\n"
						  "#include \"bad.h\"\n"
						  "#include \"not there\"\n"
						  "#endif\n"
						  "#include \"b.h\"\n"
						  "__global__ void k(int *x)\n"
						  "{\n"
						  "	*x = first;\n"
						  "	*x = second;\n"
						  "}\n",
						  "k");
	kiln_call *call;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	raw.headers = headers;
	raw.header_count = 3;
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ECOMPILE);
	assert_sentence("mine.cu:9:");
	assert_sentence("first");
	assert_non_null(strstr(kiln_errlog(), "mine.cu:10:"));
	assert_non_null(strstr(kiln_errlog(), "second"));

	/* In a header, by the header's own name and line. */
	raw.source = "#include \"bad.h\"\n__global__ void k() {}\n";
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ECOMPILE);
	assert_sentence("bad.h:3:");

	/* Nothing is looked for elsewhere. */
	raw.source = "__global__ void k() {}\n#include \"/etc/passwd\"\n";
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ECOMPILE);
	assert_sentence("mine.cu:2:");
	assert_sentence("\"/etc/passwd\" is not among the headers");
	assert_null(strstr(kiln_errlog(), "root:"));

	/* No such kernel; and what the cpu device has not. */
	raw.source = "__global__ void other() {}\n";
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ECOMPILE);
	assert_sentence("the entry ");
	raw.source = "__global__ void k() { tex1D(1); }\n";
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ECOMPILE);
	assert_sentence("mine.cu:1:");
	assert_sentence("tex1D (textures) is not available on device cpu");
	assert_int_equal(info_int(client, "counters.failures"), 5);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The same for a GPU that is not here, where there is NVRTC. */
static void test_errors_of_nvrtc(void **state)
{
	struct kilnd *daemon = *state;
	static const char *const options[] = {"--use_fast_math", "-std=c++20", "--maxrregcount=32"};
	kiln_raw raw = raw_saxpy();
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	raw.options = options;
	raw.option_count = 3;
	int status = kiln_compile_raw(client, &raw, "sm_90", &reply);
	if (status == KILN_ENOTSUP) {
		kiln_close(client);
		kilnd_stop(daemon);
		skip();
	}
	assert_ok(status);
	assert_string_equal(kiln_reply_str(reply, "origin"), "compiled");
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "saxpy.cu"));
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "--use_fast_math"));
	kiln_reply_free(reply);
	raw = raw_of("#include <cuda_bf16.h>\n"
				 "#include <cuda_fp16.h>\n"
				 "__global__ void k(half2 *x, nv_bfloat16 *y)\n"
				 "{\n"
				 "	half h = __shfl_xor_sync(~0u, x->x + __float2half(1.5f), 1);\n"
				 "	*x = __hfma2(*x, __halves2half2(h, hexp(h)), *x);\n"
				 "	*y = *y * nv_bfloat16(2.5);\n"
				 "}\n",
				 "k");
	static const char *const targets[] = {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120"};
	for (int i = 0; i < 5; i++) {
		status = kiln_compile_raw(client, &raw, targets[i], &reply);
		if (status == KILN_ENOTSUP) /* an NVRTC that does not know it yet, or no more */
			continue;
		assert_ok(status);
		kiln_reply_free(reply);
	}
	raw = raw_of("#include <cmath>\n"
				 "#if 0\n"
				 "#include \"not there\"\n"
				 "#endif\n"
				 "__global__ void k(float *x)\n"
				 "{\n"
				 "	*x = INFINITY;\n"
				 "	*x = first;\n"
				 "	*x = second;\n"
				 "}\n",
				 "k");
	assert_int_equal(kiln_compile_raw(client, &raw, "sm_90", &reply), KILN_ECOMPILE);
	assert_sentence("mine.cu(8): error");
	assert_sentence("first");
	assert_non_null(strstr(kiln_errlog(), "mine.cu(9): error"));
	raw.source = "#include <mma.h>\n__global__ void k() {}\n";
	assert_int_equal(kiln_compile_raw(client, &raw, "sm_90", &reply), KILN_ECOMPILE);
	assert_sentence("mine.cu(1): catastrophic error: #error directive: \"mma.h\" is not among");
	raw.source = "__global__ void other() {}\n";
	assert_int_equal(kiln_compile_raw(client, &raw, "sm_90", &reply), KILN_ECOMPILE);
	assert_sentence("the entry k: identifier \"k\" is undefined");
	kiln_close(client);
	kilnd_stop(daemon);
}

static void refused(kiln_client *client, const kiln_raw *raw, int status, const char *word)
{
	kiln_call *call;
	assert_int_equal(kiln_prepare_raw(client, raw, &call), status);
	assert_sentence(word);
}

static void test_what_is_refused(void **state)
{
	struct kilnd *daemon = *state;
	const char *const options[] = {"-I/etc"};
	const kiln_text macro = {"A B", "1", 0}, lines = {"A", "1\n#error", 0};
	static char large[(1 << 20) + 2];
	kiln_raw raw = raw_of("__global__ void k() {}\n", "k");

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	raw.options = options;
	raw.option_count = 1;
	refused(client, &raw, KILN_EINVAL, "option -I/etc is not allowed");
	raw.option_count = 0;
	raw.macros = &macro;
	raw.macro_count = 1;
	refused(client, &raw, KILN_EINVAL, "A B");
	raw.macros = &lines;
	refused(client, &raw, KILN_EINVAL, "one line");
	raw.macro_count = 0;
	raw.name = "a\"b.cu";
	refused(client, &raw, KILN_EINVAL, "no quotes");
	raw.name = NULL;
	raw.entry = "k\n";
	refused(client, &raw, KILN_EINVAL, "one line");
	raw.entry = "";
	refused(client, &raw, KILN_EINVAL, "no entry");
	raw.entry = "k";
	raw.size = 8;
	refused(client, &raw, KILN_EINVAL, "sizeof(kiln_raw)");
	raw.size = sizeof(raw);

	/* As much as may be sent is more than a message may have. */
	memset(large, '\n', sizeof(large) - 1);
	raw.source = large;
	refused(client, &raw, KILN_ELIMIT, "1048576");
	memcpy(large, raw_of("__global__ void k() {}\n", "k").source, 23);
	raw.source_bytes = 1 << 20;
	kiln_call *call;
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_non_null(strstr(kiln_call_plan(call), "raw.cu"));
	kiln_call_free(call);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- What may be an entry ---- */

static const char kinds[] =
	"#define NAMED plain\n"
	"__global__ void plain(int *x) { *x = 1; }\n"
	"static __global__ void hidden(int *x) { *x = 2; }\n"
	"extern \"C\" __global__ void in_c(int *x) { *x = 3; }\n"
	"namespace a { namespace { __global__ void deep(int *x) { *x = 4; } } }\n"
	"void __global__ __launch_bounds__(32) behind(int *x) { *x = 5; }\n"
	"template <class T, int N> __global__ void many(T *x) { *x = N; }\n"
	"template <> __global__ void many<int, 7>(int *x) { *x = 70; }\n"
	"__global__ void over(float *x) { *x = 0; }\n"
	"template <class T> __global__ void over(T *x) { *x = 8; }\n"
	"__device__ void helper(int *x) { *x = 9; }\n"
	"static __device__ __forceinline__ void quick(int *x) { *x = 9; }\n"
	"extern \"C\" __device__ void help_c(int *x) { *x = 9; }\n"
	"template <class T> __device__ void help_any(T *x) { *x = 9; }\n"
	"namespace a { __device__ void help_deep(int *x) { *x = 9; } }\n"
	"template <class T> __device__ void over(T x) { *x = 9; }\n"
	"[[deprecated(\"old\")]] __device__ void help_old(int *x) { *x = 9; }\n";

static bool has_nvrtc(kiln_client *client)
{
	const kiln_raw raw = raw_of("__global__ void k() {}\n", "k");
	kiln_reply *reply;
	int status = kiln_compile_raw(client, &raw, "sm_90", &reply);
	if (status == KILN_OK)
		kiln_reply_free(reply);
	return status == KILN_OK;
}

static void assert_kernel(kiln_client *client, kiln_buffer *x, const char *entry, int wanted,
						  bool nvrtc)
{
	const kiln_raw raw = raw_of(kinds, entry);
	kiln_raw_arg arg = {.buffer = x};
	kiln_launch how = {.size = sizeof(how), .args = &arg, .arg_count = 1};
	kiln_call *call;
	kiln_reply *reply;
	int got = 0;
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_ok(raw_launch(client, call, &how));
	assert_ok(kiln_read(x, 0, &got, sizeof(got)));
	assert_int_equal(got, wanted);
	kiln_call_free(call);
	if (nvrtc) {
		assert_ok(kiln_compile_raw(client, &raw, "sm_90", &reply));
		kiln_reply_free(reply);
	}
}

static void assert_no_kernel(kiln_client *client, const char *entry, bool nvrtc)
{
	const kiln_raw raw = raw_of(kinds, entry);
	kiln_reply *reply;
	char sentence[160];
	snprintf(sentence, sizeof(sentence),
			 "the entry %s is a function that is not declared __global__, and so no kernel", entry);
	assert_int_equal(kiln_compile_raw(client, &raw, "cpu", &reply), KILN_ECOMPILE);
	assert_string_equal(kiln_errmsg(), sentence);
	if (nvrtc) {
		assert_int_equal(kiln_compile_raw(client, &raw, "sm_90", &reply), KILN_ECOMPILE);
		assert_string_equal(kiln_errmsg(), sentence);
	}
}

/* Device cpu and NVRTC take the same. */
static void test_entries(void **state)
{
	struct kilnd *daemon = *state;
	static const struct {
		const char *entry;
		int wanted; /* 0: it is no kernel */
	} entries[] = {
		{"plain", 1},         {"NAMED", 1},    {"::plain", 1},      {"hidden", 2},
		{"in_c", 3},          {"a::deep", 4},  {"behind", 5},       {"many<int, 6>", 6},
		{"many<int, 7>", 70}, {"helper", 0},   {"quick", 0},        {"help_c", 0},
		{"help_any<int>", 0}, {"help_old", 0}, {"a::help_deep", 0},
	};
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = raw_floats(client, 0, 0, 1);
	bool nvrtc = has_nvrtc(client);
	for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++)
		if (entries[i].wanted)
			assert_kernel(client, x, entries[i].entry, entries[i].wanted, nvrtc);
		else
			assert_no_kernel(client, entries[i].entry, nvrtc);
	/* Nobody can tell which of several is meant. */
	const kiln_raw raw = raw_of(kinds, "over");
	refused(client, &raw, KILN_ECOMPILE, "the entry over: ");
	kiln_free(x);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_errors_of_the_compiler),
		HARNESS_TEST(test_errors_of_nvrtc),
		HARNESS_TEST(test_what_is_refused),
		HARNESS_TEST(test_entries),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
