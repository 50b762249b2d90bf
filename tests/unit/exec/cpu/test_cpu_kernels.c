/*
 * test_cpu_kernels: kernels in every way of waiting for each other on the cpu device, checked by
 * plain loops; and what the device says of those that are wrong and break nothing.
 */
#include "cpu_launch.h"

#include <stdio.h>
#include <unistd.h>

/* ---- Kernels that are right ---- */

static void scales_every_element(void **state)
{
	(void)state;
	enum { N = 100003 };
	float *host = malloc(N * sizeof(float));
	struct device_memory *x = alloc(N * sizeof(float)), *y = alloc(N * sizeof(float));
	struct device_module *module = load("scale<float>");
	for (int i = 0; i < N; i++)
		host[i] = (float)i;
	copy(x, host, N * sizeof(float), true);
	uint32_t scalars[2] = {N, 0};
	memcpy(&scalars[1], &(float){0.5f}, 4);
	run(module, (struct shape){{(N + 255) / 256, 1, 1}, {256, 1, 1}, 0}, 2,
		(struct device_memory *[]){x, y}, 2, scalars);
	copy(y, host, N * sizeof(float), false);
	for (int i = 0; i < N; i++)
		assert_true(host[i] == (float)i * 0.5f);
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
	free(host);
}

static void shared_memory_and_barriers(void **state)
{
	(void)state;
	enum { N = 192, BLOCKS = 50 };
	int host[N * BLOCKS];
	struct device_memory *x = alloc(sizeof(host)), *y = alloc(sizeof(host));
	struct device_module *module = load("reverse<192>");
	for (int i = 0; i < N * BLOCKS; i++)
		host[i] = i * 7;
	copy(x, host, sizeof(host), true);
	run(module, (struct shape){{BLOCKS, 1, 1}, {N, 1, 1}, 0}, 2, (struct device_memory *[]){x, y},
		0, NULL);
	copy(y, host, sizeof(host), false);
	for (int b = 0; b < BLOCKS; b++)
		for (int i = 0; i < N; i++)
			assert_int_equal(host[b * N + i], (b * N + N - 1 - i) * 7 + 1 + 1000 * b);
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
}

static void shuffles_sum_a_warp(void **state)
{
	(void)state;
	enum { N = 4096 };
	double *host = malloc(N * sizeof(double));
	struct device_memory *x = alloc(N * sizeof(double)), *y = alloc(N * sizeof(double));
	struct device_module *module = load("warp_sum<double>");
	for (int i = 0; i < N; i++)
		host[i] = i * 0.25;
	copy(x, host, N * sizeof(double), true);
	run(module, (struct shape){{4, 1, 1}, {1024, 1, 1}, 0}, 2, (struct device_memory *[]){x, y}, 0,
		NULL);
	copy(y, host, N * sizeof(double), false);
	for (int i = 0; i < N; i++) {
		int first = i / 32 * 32;
		assert_true(host[i] == (32.0 * first + 31 * 16) * 0.25);
	}
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
	free(host);
}

static void dynamic_shared_memory(void **state)
{
	(void)state;
	uint16_t host[100];
	struct device_memory *x = alloc(sizeof(host)), *y = alloc(sizeof(host));
	struct device_module *module = load("rotate<unsigned short>");
	for (int i = 0; i < 100; i++)
		host[i] = (uint16_t)(i * 601);
	copy(x, host, sizeof(host), true);
	run(module, (struct shape){{1, 1, 1}, {100, 1, 1}, sizeof(host)}, 2,
		(struct device_memory *[]){x, y}, 1, (uint32_t[]){100});
	copy(y, host, sizeof(host), false);
	for (int i = 0; i < 100; i++)
		assert_int_equal(host[i], (uint16_t)((i + 1) % 100 * 601));
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
}

static void exits_count_as_arrived(void **state)
{
	(void)state;
	int host[128];
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *module = load("leave<60>");
	memset(host, 0, sizeof(host));
	run(module, (struct shape){{1, 1, 1}, {128, 1, 1}, 0}, 1, &y, 0, NULL);
	copy(y, host, sizeof(host), false);
	/* Even threads from 60 on: 34.  Of a warp, lanes 4, 8 ... 28 vote; lane 0 has left. */
	uint32_t votes = 0x11111110u;
	for (int i = 0; i < 128; i++)
		assert_int_equal(host[i], i % 2    ? 0
								  : i % 32 ? 34 * 65536 + (int)(votes >> 16 ^ votes)
										   : -1);
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
}

static void three_dimensions(void **state)
{
	(void)state;
	enum { X = 5, Y = 3, Z = 4, BX = 7, BY = 2, BZ = 3, T = BX * BY * BZ };
	uint32_t host[X * Y * Z * T];
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *module = load("where<0>");
	run(module, (struct shape){{X, Y, Z}, {BX, BY, BZ}, 0}, 1, &y, 0, NULL);
	copy(y, host, sizeof(host), false);
	for (uint32_t i = 0; i < X * Y * Z * T; i++) {
		uint32_t b = i / T, t = i % T;
		assert_int_equal(host[i], b % X + 8 * (b / X % Y) + 64 * (b / X / Y) + 512 * (t % BX) +
									  4096 * (t / BX % BY) + 32768 * (t / BX / BY));
	}
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
}

static void every_collective(void **state)
{
	(void)state;
	uint32_t host[32][16];
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *module = load("collectives<0>");
	run(module, (struct shape){{1, 1, 1}, {32, 1, 1}, 0}, 1, &y, 0, NULL);
	copy(y, host, sizeof(host), false);
	for (uint32_t lane = 0; lane < 32; lane++) {
		const uint32_t *got = host[lane];
		assert_int_equal(got[0], (lane / 8 * 8 + 5) * 10);
		assert_int_equal(got[1], lane % 16 < 3 ? lane : lane - 3);
		assert_int_equal(got[2], lane % 16 > 12 ? lane : lane + 3);
		assert_int_equal(got[3], 1);
		assert_int_equal(got[4], 0);
		assert_int_equal(got[5], 0xffu << (lane / 8 * 8));
		assert_int_equal(got[6], 31 * 16);
		assert_int_equal((int32_t)got[7], -9);
		assert_int_equal(got[8], 31);
		assert_int_equal(got[9], lane < 12 ? 0xfffu : 0xfffff000u);
		assert_int_equal(got[10], lane < 12 ? 0xaaau : 0xaaaaa000u);
		assert_int_equal(got[11], 1);
		assert_int_equal(got[12], 3);
	}
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
}

static void bit_and_math_functions(void **state)
{
	(void)state;
	uint32_t host[11] = {0x01234560u};
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *module = load("bits<0>");
	copy(y, host, sizeof(host), true);
	run(module, (struct shape){{1, 1, 1}, {1, 1, 1}, 0}, 1, &y, 0, NULL);
	copy(y, host, sizeof(host), false);
	assert_int_equal(host[1], 9);
	assert_int_equal(host[2], 7);
	assert_int_equal(host[3], 0x06a2c480u);
	assert_int_equal(host[4], 0x89ab4560u); /* bytes 7 and 6 of the pair, then 1 and 0 */
	assert_int_equal(host[5], (uint32_t)((uint64_t)0x01234560u * 0x01234560u >> 32));
	assert_int_equal(host[6], 6);
	assert_int_equal(host[7], 7u + (uint32_t)-3 + 2 + 1);
	assert_int_equal(host[8], 0x3fc00000u ^ 0x40e00000u);
	assert_int_equal(host[9], 16 * 256 + 16);
	assert_int_equal(host[10], 107);
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
}

static void atomics_of_many_blocks(void **state)
{
	(void)state;
	uint32_t host[5];
	float sum;
	struct device_memory *y = alloc(sizeof(host)), *f = alloc(sizeof(sum));
	struct device_module *module = load("count<0>");
	run(module, (struct shape){{1000, 1, 1}, {64, 1, 1}, 0}, 2, (struct device_memory *[]){y, f}, 0,
		NULL);
	copy(y, host, sizeof(host), false);
	copy(f, &sum, sizeof(sum), false);
	assert_int_equal(host[0], 64000);
	assert_int_equal(host[1], 999);
	assert_int_equal(host[2], 0); /* 64000 is 640 rounds of 100 */
	assert_in_range(host[3], 1, 64);
	assert_int_equal(host[4], UINT32_MAX);
	assert_true(sum == 32000.0f);
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
	device_cpu.free(device, f);
}

static void a_yield_lets_later_threads_start(void **state)
{
	(void)state;
	uint32_t host = 0;
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *module = load("spin<70>");
	run(module, (struct shape){{1, 1, 1}, {128, 1, 1}, 0}, 1, &y, 0, NULL);
	copy(y, &host, sizeof(host), false);
	assert_int_equal(host, 7);
	device_cpu.unload(device, module);
	device_cpu.free(device, y);
}

/* As unique symbols, the two arrays would be one, of the first object's size. */
static void arrays_of_two_objects_are_two(void **state)
{
	(void)state;
	int host[1024];
	struct device_memory *y = alloc(sizeof(host));
	struct device_module *small = load("shadow<8>"), *large = load("shadow<1024>");
	for (int round = 0; round < 2; round++) {
		run(small, (struct shape){{3, 1, 1}, {8, 1, 1}, 0}, 1, &y, 0, NULL);
		copy(y, host, sizeof(host), false);
		for (int i = 0; i < 8; i++)
			assert_int_equal(host[i], 8 + 7 - i);
		run(large, (struct shape){{3, 1, 1}, {1024, 1, 1}, 0}, 1, &y, 0, NULL);
		copy(y, host, sizeof(host), false);
		for (int i = 0; i < 1024; i++)
			assert_int_equal(host[i], 1024 + 1023 - i);
	}
	device_cpu.unload(device, small);
	device_cpu.unload(device, large);
	/* The same symbols again: nothing of the first load is left. */
	small = load("shadow<16>");
	run(small, (struct shape){{1, 1, 1}, {16, 1, 1}, 0}, 1, &y, 0, NULL);
	copy(y, host, sizeof(host), false);
	assert_int_equal(host[15], 16);
	device_cpu.unload(device, small);
	device_cpu.free(device, y);
}

static void transposes_in_reasonable_time(void **state)
{
	(void)state;
	enum { N = 1024 };
	uint32_t *host = malloc(N * N * 4);
	struct device_memory *x = alloc(N * N * 4), *y = alloc(N * N * 4);
	struct device_module *module = load("transpose<unsigned, 1024>");
	for (uint32_t i = 0; i < N * N; i++)
		host[i] = i * 2654435761u;
	copy(x, host, N * N * 4, true);
	run(module, (struct shape){{N / 32, N / 32, 1}, {32, 8, 1}, 0}, 2,
		(struct device_memory *[]){x, y}, 0, NULL);
	uint64_t begin = util_now_us();
	run(module, (struct shape){{N / 32, N / 32, 1}, {32, 8, 1}, 0}, 2,
		(struct device_memory *[]){x, y}, 0, NULL);
	print_message("1024x1024 transpose: %.1f ms on %u workers\n",
				  (double)(util_now_us() - begin) / 1000, info.limits.multiprocessors);
	copy(y, host, N * N * 4, false);
	for (uint32_t i = 0; i < N * N; i++)
		assert_int_equal(host[i], (i % N * N + i / N) * 2654435761u);
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
	free(host);
}

/* ---- Kernels that are wrong and break nothing ---- */

static void expect_sentence(const char *instantiation, uint32_t threads, const char *const *parts)
{
	struct device_module *module = load(instantiation);
	struct device_memory *both[2] = {alloc(4096), alloc(4096)};
	assert_int_equal(
		start(module, (struct shape){{3, 1, 1}, {threads, 1, 1}, 0}, 2, both, 1, (uint32_t[]){0}),
		KILN_OK);
	struct device_done done = wait_done(next_ticket);
	assert_int_equal(done.status, KILN_EDEVICE);
	for (; *parts; parts++)
		if (!strstr(done.error, *parts))
			fail_msg("\"%s\" is not in \"%s\"", *parts, done.error);
	device_cpu.unload(device, module);
	device_cpu.free(device, both[0]);
	device_cpu.free(device, both[1]);
}

static void divergence_is_told_and_ends(void **state)
{
	(void)state;
	alarm(300); /* a hang is what this is about */
	expect_sentence("bad<5>", 32,
					(const char *[]){"block (", "thread (6,0,0): __trap was called at test.cuh:",
									 "(kernel bad<5>)", NULL});
	expect_sentence("bad<6>", 64,
					(const char *[]){"thread (0,0,0) waits in __shfl_sync with mask 0xffffffff",
									 "for thread (3,0,0), which waits in __syncthreads", NULL});
	expect_sentence("bad<7>", 32,
					(const char *[]){"thread (0,0,0) waits in __ballot_sync",
									 "for thread (9,0,0), which waits in __syncwarp with mask "
									 "0x00000300",
									 NULL});
	expect_sentence("bad<8>", 32,
					(const char *[]){"thread (16,0,0) is in __syncthreads_or at test.cuh:",
									 "while thread (0,0,0) waits in __syncthreads at", NULL});
	expect_sentence("bad<9>", 32,
					(const char *[]){"thread (16,0,0), lane 16, calls __shfl_sync",
									 "mask 0x0000ffff, which lacks its own lane", NULL});
	expect_sentence("bad<10>", 32,
					(const char *[]){"thread (11,0,0): assertion failed: t < 11", NULL});
	/* The device goes on. */
	three_dimensions(state);
	every_collective(state);
	alarm(0);
}

static void unavailable_things_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"template <int K> __global__ void k(int *y) { asm volatile(\"bar.sync 0;\"); y[0] = 1; }",
		 "inline PTX is not available on device cpu"},
		{"template <int K> __global__ void k(int *y) { y[0] = tex2D<int>(0, 1, 2); }",
		 "tex2D (textures) is not available on device cpu"},
		{"template <int K> __global__ void k(int *y) { cooperative_groups::this_grid(); }",
		 "cooperative_groups is not available on device cpu"},
		{"template <int K> __global__ void k(int *y) { nvcuda::wmma::fragment<int> f; }",
		 "wmma is not available on device cpu"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct compile_result result;
		cpu_kernel_compile(cases[i].text, "k<0>", &result);
		assert_int_equal(result.status, KILN_ECOMPILE);
		if (!result.log || !strstr(result.log, cases[i].says))
			fail_msg("\"%s\" is not in\n%s", cases[i].says, result.log ? result.log : "");
		compile_result_free(&result);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scales_every_element),
		cmocka_unit_test(shared_memory_and_barriers),
		cmocka_unit_test(shuffles_sum_a_warp),
		cmocka_unit_test(dynamic_shared_memory),
		cmocka_unit_test(exits_count_as_arrived),
		cmocka_unit_test(three_dimensions),
		cmocka_unit_test(every_collective),
		cmocka_unit_test(bit_and_math_functions),
		cmocka_unit_test(atomics_of_many_blocks),
		cmocka_unit_test(a_yield_lets_later_threads_start),
		cmocka_unit_test(arrays_of_two_objects_are_two),
		cmocka_unit_test(transposes_in_reasonable_time),
		cmocka_unit_test(divergence_is_told_and_ends),
		cmocka_unit_test(unavailable_things_are_named),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
