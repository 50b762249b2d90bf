/*
 * test_raw: users' kernels through a daemon: launched with other values, grids and places without
 * another compile, and checked before they run.
 */
#include "raw_scene.h"

#include <stdio.h>
#include <string.h>

static kiln_raw_arg value_of(const void *value, size_t bytes)
{
	return (kiln_raw_arg){.value = value, .bytes = bytes};
}

static void test_saxpy(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw raw = raw_saxpy();
	float a = 3, values[RAW_FLOATS];
	int64_t n = RAW_FLOATS;
	kiln_call *call;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = raw_floats(client, 0, 0, 1), *y = raw_floats(client, KILN_BUFFER_SHARED, 5, 0);
	kiln_raw_arg args[] = {{.buffer = x, .access = KILN_READ},
						   {.buffer = y, .bytes = sizeof(values)},
						   value_of(&a, sizeof(a)),
						   value_of(&n, sizeof(n))};
	kiln_launch how = {.size = sizeof(how),
					   .grid = {(RAW_FLOATS + 63) / 64},
					   .block = {64},
					   .args = args,
					   .arg_count = 4};
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_string_equal(kiln_call_origin(call), "compiled");
	assert_non_null(strstr(kiln_call_plan(call), "saxpy.cu"));
	assert_ok(raw_launch(client, call, &how));
	assert_ok(kiln_read(y, 0, values, sizeof(values)));
	for (int i = 0; i < RAW_FLOATS; i++)
		assert_float_equal(values[i], 5 + 6 * (float)i, 0);

	/* Other scalars, another grid, another place: nothing is compiled for that. */
	a = 0.5f;
	n = 64;
	how.grid[0] = 1;
	args[0].offset = 4;
	assert_ok(raw_launch(client, call, &how));
	assert_ok(kiln_read(y, 0, values, sizeof(values)));
	for (int i = 0; i < RAW_FLOATS; i++)
		assert_float_equal(values[i], 5 + 6 * (float)i + (i < 64 ? (float)(i + 1) : 0), 0);
	assert_int_equal(info_int(client, "counters.compiles"), 1);

	kiln_call_free(call);
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_string_equal(kiln_call_origin(call), "hit");
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
	kiln_buffer *x = raw_floats(client, 0, 1, 1), *y;
	assert_ok(kiln_alloc(client, sizeof(result), 0, "result", &y));
	kiln_raw_arg args[] = {
		{.buffer = x}, {.buffer = y}, value_of(box, sizeof(box)), value_of(&add, 1)};
	kiln_launch how = {
		.size = sizeof(how), .block = {100}, .shared_bytes = 400, .args = args, .arg_count = 4};
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_ok(raw_launch(client, call, &how));
	assert_ok(kiln_read(y, 0, &result, sizeof(result)));
	assert_float_equal(result, 2 * 5050 + 5 + 7, 0);
	kiln_call_free(call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- What a launch must satisfy ---- */

static void launch_refused(kiln_client *client, kiln_call *call, const kiln_launch *how,
						   const char *word)
{
	assert_int_equal(raw_launch(client, call, how), KILN_EINVAL);
	assert_sentence(word);
}

static void test_launches_are_checked(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw raw = raw_saxpy();
	struct permute problem = transpose(8, 8);
	float a = 1;
	int64_t n = RAW_FLOATS;
	uint32_t params[4];
	kiln_call *call;
	kiln_ticket ticket;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = raw_floats(client, 0, 0, 1);
	kiln_raw_arg args[] = {
		{.buffer = x}, {.buffer = x}, value_of(&a, sizeof(a)), value_of(&n, sizeof(n))};
	kiln_launch how = {.size = sizeof(how), .block = {64}, .args = args, .arg_count = 4};
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_int_equal(kiln_call_params(call, params, 4), 4);
	assert_int_equal(params[0], 8);
	assert_int_equal(params[2], 4);
	assert_int_equal(params[3], 8);

	how.arg_count = 3;
	launch_refused(client, call, &how, "kernel saxpy of saxpy.cu: the kernel takes 4 arguments");
	how.arg_count = 4;
	args[3].bytes = 4;
	launch_refused(client, call, &how, "argument 3 of the kernel has 8 bytes and was given 4");
	args[3].bytes = 8;
	how.block[0] = 1025;
	launch_refused(client, call, &how, "a block of 1025x1x1 threads");
	how.block[0] = 64;
	how.grid[1] = 65536;
	launch_refused(client, call, &how, "a grid of 1x65536x1 blocks");
	how.grid[1] = 1;
	how.shared_bytes = 1 << 20;
	launch_refused(client, call, &how, "1048576 bytes of shared memory");
	how.shared_bytes = 0;
	args[0].offset = 8;
	args[0].bytes = RAW_FLOATS * 4;
	launch_refused(client, call, &how, "argument 0 needs 4000 bytes at offset 8");
	args[0] = (kiln_raw_arg){.buffer = x};
	assert_ok(raw_launch(client, call, &how));

	/* Each kind of call has a function of its own. */
	const kiln_operand operands[2] = {{x, 0}, {x, 0}};
	assert_int_equal(kiln_submit(call, operands, 2, 0, &ticket), KILN_EINVAL);
	assert_sentence("kiln_submit_raw()");
	kiln_call_free(call);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	assert_int_equal(kiln_submit_raw(call, &how, 0, &ticket), KILN_EINVAL);
	assert_sentence("kiln_submit()");
	assert_int_equal(kiln_call_params(call, params, 4), KILN_ENOENT);
	kiln_call_free(call);
	kiln_free(x);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_saxpy),
		HARNESS_TEST(test_odds),
		HARNESS_TEST(test_launches_are_checked),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
