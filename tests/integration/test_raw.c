/*
 * test_raw: users' kernels through a daemon: compiled and launched, their errors in their authors'
 * own words, and what they break.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

#define COUNT 1000

static const char saxpy[] =
	"#include <stdint.h>\n"
	"#include \"scale.h\"\n"
	"extern \"C\" __global__ void saxpy(const float *x, float *y, float a,\n"
	"                                  int64_t n)\n"
	"{\n"
	"	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		y[i] = SCALE * a * x[i] + y[i];\n"
	"}\n";
static const kiln_text scale_h = {"scale.h", "#pragma once\n#define SCALE FACTOR\n", 0};
static const kiln_text factor = {"FACTOR", "2.0f", 0};

static kiln_raw saxpy_raw(void)
{
	return (kiln_raw){.size = sizeof(kiln_raw),
					  .name = "saxpy.cu",
					  .source = saxpy,
					  .entry = "saxpy",
					  .headers = &scale_h,
					  .header_count = 1,
					  .macros = &factor,
					  .macro_count = 1};
}

static kiln_raw raw_of(const char *source, const char *entry)
{
	return (kiln_raw){
		.size = sizeof(kiln_raw), .name = "mine.cu", .source = source, .entry = entry};
}

static kiln_raw_arg value_of(const void *value, size_t bytes)
{
	return (kiln_raw_arg){.value = value, .bytes = bytes};
}

static int launch(kiln_client *client, kiln_call *call, const kiln_launch *how)
{
	kiln_ticket ticket;
	int status = kiln_submit_raw(call, how, 0, &ticket);
	return status ? status : kiln_wait(client, ticket, CALL_TIMEOUT_MS);
}

static kiln_buffer *floats(kiln_client *client, unsigned flags, float first, float step)
{
	float values[COUNT];
	kiln_buffer *buffer;
	for (int i = 0; i < COUNT; i++)
		values[i] = first + step * (float)i;
	assert_ok(kiln_alloc(client, sizeof(values), flags, NULL, &buffer));
	assert_ok(kiln_write(buffer, 0, values, sizeof(values)));
	return buffer;
}

/* ---- What goes well ---- */

static void test_saxpy(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw raw = saxpy_raw();
	float a = 3, values[COUNT];
	int64_t n = COUNT;
	uint32_t params[8];
	kiln_call *call;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = floats(client, 0, 0, 1), *y = floats(client, KILN_BUFFER_SHARED, 5, 0);
	kiln_raw_arg args[] = {{.buffer = x, .access = KILN_READ},
						   {.buffer = y, .bytes = sizeof(values)},
						   value_of(&a, sizeof(a)),
						   value_of(&n, sizeof(n))};
	kiln_launch how = {.size = sizeof(how),
					   .grid = {(COUNT + 63) / 64},
					   .block = {64},
					   .args = args,
					   .arg_count = 4};
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_string_equal(kiln_call_origin(call), "compiled");
	assert_non_null(strstr(kiln_call_plan(call), "saxpy.cu"));
	assert_ok(launch(client, call, &how));
	assert_ok(kiln_read(y, 0, values, sizeof(values)));
	for (int i = 0; i < COUNT; i++)
		assert_float_equal(values[i], 5 + 6 * (float)i, 0);

	/* Other scalars, another grid, another place: nothing is compiled for that. */
	a = 0.5f;
	n = 64;
	how.grid[0] = 1;
	args[0].offset = 4;
	assert_ok(launch(client, call, &how));
	assert_ok(kiln_read(y, 0, values, sizeof(values)));
	for (int i = 0; i < COUNT; i++)
		assert_float_equal(values[i], 5 + 6 * (float)i + (i < 64 ? (float)(i + 1) : 0), 0);
	assert_int_equal(info_int(client, "counters.compiles"), 1);

	kiln_call_free(call);
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_string_equal(kiln_call_origin(call), "hit");
	(void)params;
	kiln_call_free(call);
	kiln_free(x);
	kiln_free(y);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static const char odds[] =
	"struct box { float lo[3], hi[3]; };\n"
	"namespace deep {\n"
	"extern __shared__ __align__(16) unsigned char bytes[];\n"
	"template <class T, int N> __global__ void sum(const T *in, T *out, box b, char add)\n"
	"{\n"
	"	extern __shared__ /* as many as threads */\n"
	"		T part[];\n"
	"	part[threadIdx.x] = in[threadIdx.x] * (T)N;\n"
	"	__syncthreads();\n"
	"	if (threadIdx.x == 0) {\n"
	"		T total = (T)(b.hi[2] - b.lo[0]) + (T)add;\n"
	"		for (unsigned i = 0; i < blockDim.x; i++)\n"
	"			total += part[i];\n"
	"		*out = total + (T)(bytes[0] == *(unsigned char *)part ? 0 : 1000);\n"
	"	}\n"
	"}\n"
	"}\n";

/* A template in a namespace, dynamic shared memory inside and outside of functions, a structure. */
static void test_odds(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw raw = raw_of(odds, "deep::sum<float, 2>");
	const float box[6] = {1, 2, 3, 4, 5, 6};
	const char add = 7;
	float result;
	kiln_call *call;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = floats(client, 0, 1, 1), *y;
	assert_ok(kiln_alloc(client, sizeof(result), 0, "result", &y));
	kiln_raw_arg args[] = {
		{.buffer = x}, {.buffer = y}, value_of(box, sizeof(box)), value_of(&add, 1)};
	kiln_launch how = {
		.size = sizeof(how), .block = {100}, .shared_bytes = 400, .args = args, .arg_count = 4};
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_ok(launch(client, call, &how));
	assert_ok(kiln_read(y, 0, &result, sizeof(result)));
	assert_float_equal(result, 2 * 5050 + 5 + 7, 0);
	kiln_call_free(call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_saxpy),
		HARNESS_TEST(test_odds),
	};
	harness_begin(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
