/*
 * test_memcheck: kilnd --memcheck: operators run clean, and users' kernels that touch what they may
 * not are told of by file, line, block and thread, each before it happens, so that the process goes
 * on; and other orders of threads.
 */
#include "harness.h"

#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 64
#define BYTES (WORDS * sizeof(float))

static const char source[] =
	"#include \"touch.cuh\"\n"
	"__device__ float table[8];\n"
	"__global__ void scale(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		y[i + by] = 2 * x[i];\n"
	"}\n"
	"__global__ void before(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
	"	if (i < n)\n"
	"		y[i] = x[i - by] + load(x + i);\n"
	"}\n"
	"template <int N> __global__ void tile(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	__shared__ float other[N], mine[N];\n"
	"	float *p = mine;\n"
	"	p[threadIdx.x + by] = x[threadIdx.x];\n"
	"	other[threadIdx.x] = 1;\n"
	"	__syncthreads();\n"
	"	y[threadIdx.x] = mine[N - 1 - threadIdx.x] + other[threadIdx.x];\n"
	"}\n"
	"template <int N> __global__ void index(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	__shared__ float mine[2][N];\n"
	"	mine[0][threadIdx.x + by] = x[threadIdx.x];\n"
	"	__syncthreads();\n"
	"	y[threadIdx.x] = mine[0][N - 1 - threadIdx.x];\n"
	"}\n"
	"__global__ void dynamic(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	extern __shared__ float mine[];\n"
	"	mine[(int)threadIdx.x + by] = x[threadIdx.x];\n"
	"	__syncthreads();\n"
	"	y[threadIdx.x] = mine[blockDim.x - 1 - threadIdx.x];\n"
	"}\n"
	"__global__ void wide(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	if (threadIdx.x == 5)\n"
	"		*(float4 *)(y + 4) = *(const float4 *)(x + by);\n"
	"}\n"
	"__global__ void sum(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	if (threadIdx.x == 9)\n"
	"		atomicAdd(y + by, x[0]);\n"
	"}\n"
	"__global__ void global(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	float *p = table;\n"
	"	p[by] = x[0];\n"
	"}\n"
	"__global__ void divide(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	y[0] = (float)(n / by);\n"
	"}\n"
	"struct row { float of[40]; };\n"
	"__global__ void copy(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	*(row *)y = *(const row *)(x + by);\n"
	"}\n"
	"__global__ void rotate(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	__shared__ float mine[32];\n"
	"	mine[threadIdx.x] = x[threadIdx.x];\n"
	"	if (by)\n"
	"		__syncthreads();\n"
	"	y[threadIdx.x] = mine[(threadIdx.x + 31) % 32];\n"
	"}\n"
	"__global__ void stale(const float *x, float *y, int n, int by)\n"
	"{\n"
	"	extern __shared__ float mine[];\n"
	"	if (blockIdx.x == 0)\n"
	"		mine[threadIdx.x] = 1;\n"
	"	else\n"
	"		y[threadIdx.x] = mine[threadIdx.x];\n"
	"}\n";
static const kiln_text headers[] = {
	{"touch.cuh",
	 "__device__ static float load(const float *p)\n"
	 "{\n"
	 "	return *p;\n"
	 "}\n",
	 0},
};

struct scene {
	kiln_client *client;
	kiln_buffer *x, *y;
	uint64_t x_offset, x_bytes, y_offset, y_bytes; /* bytes 0: the rest of the buffer */
};

static void scene_open(struct scene *scene, struct kilnd *daemon, const char *const *options)
{
	float data[WORDS];
	memset(scene, 0, sizeof(*scene));
	kilnd_start(daemon, options);
	scene->client = client_open(daemon);
	assert_ok(kiln_alloc(scene->client, BYTES, 0, "x", &scene->x));
	assert_ok(kiln_alloc(scene->client, BYTES, 0, "y", &scene->y));
	for (int i = 0; i < WORDS; i++)
		data[i] = (float)(i + 1);
	assert_ok(kiln_write(scene->x, 0, data, sizeof(data)));
	assert_ok(kiln_write(scene->y, 0, data, sizeof(data)));
}

static void scene_close(struct scene *scene, struct kilnd *daemon)
{
	kiln_free(scene->x);
	kiln_free(scene->y);
	kiln_close(scene->client);
	kilnd_stop(daemon);
}

/* Blocks of 32 threads. */
static int launch(struct scene *scene, const char *entry, unsigned blocks, int n, int by)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = entry};
	kiln_launch shape = {.size = sizeof(shape), .grid = {blocks}, .block = {32}};
	kiln_raw_arg args[4];
	kiln_call *call;
	kiln_ticket ticket;
	int status;

	raw.headers = headers;
	raw.header_count = 1;
	args[0] = kiln_raw_memory(scene->x, scene->x_offset, KILN_READ);
	args[0].bytes = scene->x_bytes;
	args[1] = kiln_raw_memory(scene->y, scene->y_offset, KILN_READ | KILN_WRITE);
	args[1].bytes = scene->y_bytes;
	args[2] = kiln_raw_value(&n, sizeof(n));
	args[3] = kiln_raw_value(&by, sizeof(by));
	shape.args = args;
	shape.arg_count = 4;
	shape.shared_bytes = 32 * sizeof(float);
	assert_ok(kiln_prepare_raw(scene->client, &raw, &call));
	assert_ok(kiln_submit_raw(call, &shape, 0, &ticket));
	status = kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS);
	kiln_call_free(call);
	return status;
}

static void assert_found(struct scene *scene, const char *entry, unsigned blocks, int n, int by,
						 const char *sentence)
{
	assert_int_equal(launch(scene, entry, blocks, n, by), KILN_EDEVICE);
	assert_sentence(sentence);
}

/* ---- Global memory ---- */

static void test_ends_of_operands(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	float data[WORDS];

	scene_open(&scene, daemon, OPTIONS("--memcheck"));
	assert_ok(launch(&scene, "scale", 2, WORDS, 0));
	assert_found(&scene, "scale", 2, WORDS, 1,
				 "mine.cu:7: block (1,0,0), thread (31,0,0): writes 4 bytes beyond the end of "
				 "argument 1, at byte 256 of 256 (kernel scale)");
	assert_found(&scene, "before", 2, WORDS, 1,
				 "mine.cu:13: block (0,0,0), thread (0,0,0): reads 4 bytes before the beginning "
				 "of argument 0, at byte -4 of 256");
	assert_found(&scene, "divide", 1, 1, 0, "mine.cu:55: block (0,0,0), thread (0,0,0): divides");
	/* The access that was found did not happen. */
	assert_ok(kiln_read(scene.x, 0, data, sizeof(data)));
	assert_true(data[0] == 1 && data[WORDS - 1] == WORDS);
	scene_close(&scene, daemon);
}

/* The second half of a buffer, which guard pages know nothing of. */
static void test_parts_of_buffers(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;

	scene_open(&scene, daemon, OPTIONS("--memcheck"));
	scene.x_bytes = scene.y_bytes = BYTES / 2;
	assert_ok(launch(&scene, "scale", 1, 32, 0));
	assert_found(&scene, "scale", 1, 32, 1,
				 "mine.cu:7: block (0,0,0), thread (31,0,0): writes 4 bytes beyond the end of "
				 "argument 1, at byte 128 of 128");
	scene.x_offset = scene.y_offset = BYTES / 2;
	assert_ok(launch(&scene, "scale", 1, 32, 0));
	assert_found(&scene, "scale", 1, 32, -1,
				 "mine.cu:7: block (0,0,0), thread (0,0,0): writes 4 bytes before the beginning of "
				 "argument 1, at byte -4 of 128");
	/* A header's function reads, and the sentence names the kernel's own line that calls it. */
	scene.x_bytes = BYTES / 4;
	assert_found(&scene, "before", 1, 32, 0,
				 "mine.cu:13: block (0,0,0), thread (16,0,0): reads 4 bytes beyond the end of "
				 "argument 0, at byte 64 of 64");
	assert_found(&scene, "copy", 1, 32, 0,
				 "mine.cu:60: block (0,0,0), thread (0,0,0): writes 160 bytes across the end of "
				 "argument 1, at byte 0 of 128");
	assert_found(&scene, "sum", 1, 32, 32,
				 "mine.cu:46: block (0,0,0), thread (9,0,0): reads 4 bytes beyond the end of "
				 "argument 1, at byte 128 of 128");
	/* Nothing of that cost the process its life. */
	assert_int_equal(info_int(scene.client, "counters.executor_faults"), 0);
	scene_close(&scene, daemon);
}

static void test_alignment(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;

	scene_open(&scene, daemon, OPTIONS("--memcheck"));
	assert_ok(launch(&scene, "wide", 1, 32, 4));
	assert_found(
		&scene, "wide", 1, 32, 1,
		"mine.cu:41: block (0,0,0), thread (5,0,0): accesses a const struct float4 at address 0x");
	assert_sentence(", which is not a multiple of 16");
	assert_found(&scene, "wide", 1, 32, WORDS,
				 "mine.cu:41: block (0,0,0), thread (5,0,0): reads 16 bytes beyond the end of "
				 "argument 0, at byte 256 of 256");
	scene_close(&scene, daemon);
}

/* ---- Shared memory, and variables ---- */

static void test_shared_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;

	scene_open(&scene, daemon, OPTIONS("--memcheck"));
	assert_ok(launch(&scene, "tile<32>", 2, 0, 0));
	assert_found(&scene, "tile<32>", 2, 0, 2,
				 "mine.cu:19: block (0,0,0), thread (30,0,0): writes 4 bytes beyond the end of "
				 "mine, at byte 128 of 128 (kernel tile<32>)");
	assert_ok(launch(&scene, "index<32>", 2, 0, 0));
	assert_found(&scene, "index<32>", 2, 0, 1,
				 "mine.cu:27: block (0,0,0), thread (31,0,0): uses index 32 of an array float");
	assert_ok(launch(&scene, "dynamic", 2, 0, 0));
	assert_found(&scene, "dynamic", 2, 0, 1,
				 "mine.cu:34: block (0,0,0), thread (31,0,0): writes 4 bytes beyond the end of "
				 "dynamic shared memory, at byte 128 of 128");
	assert_found(&scene, "dynamic", 2, 0, -1,
				 "mine.cu:34: block (0,0,0), thread (0,0,0): writes 4 bytes before the beginning "
				 "of dynamic shared memory, at byte -4 of 128");
	assert_ok(launch(&scene, "global", 1, 0, 7));
	assert_found(&scene, "global", 1, 0, 8,
				 "mine.cu:51: block (0,0,0), thread (0,0,0): writes 4 bytes beyond the end of "
				 "table, at byte 32 of 32");
	scene_close(&scene, daemon);
}

/* A block does not find what another block left in shared memory. */
static void test_stale_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	float data[32];

	scene_open(&scene, daemon, OPTIONS("--memcheck"));
	assert_ok(launch(&scene, "stale", 2, 0, 0));
	assert_ok(kiln_read(scene.y, 0, data, sizeof(data)));
	for (int i = 0; i < 32; i++)
		assert_true(data[i] != data[i]);
	scene_close(&scene, daemon);
}

/* ---- Order ---- */

/* How many elements a rotation without its barrier gets wrong. */
static int wrong_without_barrier(struct kilnd *daemon, const char *order)
{
	struct scene scene;
	float data[32];
	char memcheck[40];
	int wrong = 0;

	snprintf(memcheck, sizeof(memcheck), "--memcheck=%s", order);
	scene_open(&scene, daemon, OPTIONS(memcheck));
	assert_ok(launch(&scene, "rotate", 1, 0, 1));
	assert_ok(kiln_read(scene.y, 0, data, sizeof(data)));
	for (int i = 0; i < 32; i++)
		assert_true(data[i] == (float)((i + 31) % 32 + 1));
	/* A lane that reads too early finds what the array holds of the launch before. */
	assert_ok(kiln_write(scene.x, 0, (float[32]){100}, sizeof(data)));
	assert_ok(launch(&scene, "rotate", 1, 0, 0));
	assert_ok(kiln_read(scene.y, 0, data, sizeof(data)));
	for (int i = 1; i < 32; i++)
		wrong += data[i] != (i == 1 ? 100.0f : 0.0f);
	scene_close(&scene, daemon);
	return wrong;
}

static void test_orders(void **state)
{
	/* Threads in their order hide it: each reads what the one before has written. */
	assert_int_equal(wrong_without_barrier(*state, "natural"), 0);
	assert_int_equal(wrong_without_barrier(*state, "reversed"), 31);
	assert_in_range(wrong_without_barrier(*state, "shuffled"), 1, 30);
}

/* ---- Operators ---- */

static void test_operators_are_clean(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	struct permute problem = transpose(60, 100);

	kilnd_start(daemon, OPTIONS("--memcheck=shuffled"));
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	assert_permutes(client, &problem, "hit");
	assert_int_equal(info_int(client, "checked.launches"), 2);
	assert_true(info_int(client, "checked.blocks") >= 2);
	assert_true(info_int(client, "checked.accesses") >= 2 * 2 * 6000 / 4);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_ends_of_operands),    HARNESS_TEST(test_parts_of_buffers),
		HARNESS_TEST(test_alignment),           HARNESS_TEST(test_shared_memory),
		HARNESS_TEST(test_stale_memory),        HARNESS_TEST(test_orders),
		HARNESS_TEST(test_operators_are_clean),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
