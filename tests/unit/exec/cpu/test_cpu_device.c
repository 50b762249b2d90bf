/*
 * The cpu device: kernels in every way of waiting for each other, checked against plain loops, and
 * what it says of kernels that are wrong.  Faults break the device, so each has a process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu_kernels.h"
#include "daemon/exec/device.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct device *device;
static struct device_info info;
static char error[KERNEL_ERROR_MAX];
static uint64_t next_ticket;

/* ---- Small words for what tests do ---- */

static void open_device(void)
{
	if (device_cpu.open(0, &device, &info, error) != KILN_OK)
		fail_msg("%s", error);
}

static struct device_module *load(const char *instantiation)
{
	struct compile_result result;
	struct device_module *module;
	cpu_kernel_compile(cpu_kernel_text(instantiation), instantiation, &result);
	if (result.status != KILN_OK)
		fail_msg("%s: %s\n%s", instantiation, result.error, result.log ? result.log : "");
	if (device_cpu.load(device, result.object, result.object_bytes, result.entry, 0, &module,
						error) != KILN_OK)
		fail_msg("%s", error);
	compile_result_free(&result);
	return module;
}

static struct device_memory *alloc(uint64_t bytes)
{
	struct device_memory *memory;
	if (device_cpu.alloc(device, bytes, &memory, error) != KILN_OK)
		fail_msg("%s", error);
	return memory;
}

/* Waits up to 20 s for one end. */
static struct device_done wait_done(uint64_t ticket)
{
	struct device_done done = {0};
	bool broken = false;
	int n = device_cpu.poll(device, -1, 20000, &done, 1, &broken);
	assert_int_equal(n, 1);
	assert_int_equal(done.ticket, ticket);
	return done;
}

static void copy(struct device_memory *memory, void *host, uint64_t bytes, bool to_device)
{
	uint64_t ticket = ++next_ticket;
	assert_int_equal(device_cpu.copy(device, 1, ticket, memory, 0, host, bytes, to_device, error),
					 KILN_OK);
	assert_int_equal(wait_done(ticket).status, KILN_OK);
}

struct shape {
	uint32_t grid[3], block[3], shared;
};

/* Operands are passed first, then 4-byte scalars. */
static int start(struct device_module *module, struct shape shape, int operand_count,
				 struct device_memory *const *operands, int scalar_count, const uint32_t *scalars)
{
	struct kernel_arg args[KERNEL_MAX_ARGS];
	struct device_operand bound[KERNEL_MAX_OPERANDS];
	for (int i = 0; i < operand_count; i++) {
		bound[i] = (struct device_operand){operands[i], 0};
		args[i] = (struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = i};
	}
	for (int i = 0; i < scalar_count; i++)
		args[operand_count + i] =
			(struct kernel_arg){.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = scalars[i]};
	struct device_launch launch = {
		.module = module,
		.shared_bytes = shape.shared,
		.args = args,
		.arg_count = operand_count + scalar_count,
		.operands = bound,
		.operand_count = operand_count,
		.ticket = ++next_ticket,
		.stream = 1,
	};
	memcpy(launch.grid, shape.grid, sizeof(launch.grid));
	memcpy(launch.block, shape.block, sizeof(launch.block));
	return device_cpu.launch(device, &launch, error);
}

static void run(struct device_module *module, struct shape shape, int operand_count,
				struct device_memory *const *operands, int scalar_count, const uint32_t *scalars)
{
	if (start(module, shape, operand_count, operands, scalar_count, scalars) != KILN_OK)
		fail_msg("%s", error);
	struct device_done done = wait_done(next_ticket);
	if (done.status != KILN_OK)
		fail_msg("%s", done.error);
}

static int setup(void **state)
{
	(void)state;
	open_device();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	device_cpu.close(device);
	return 0;
}

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

/* ---- Streams, copies, memory ---- */

static void streams_are_independent(void **state)
{
	(void)state;
	enum { BYTES = 9 << 20 }; /* more than two chunks */
	uint8_t *host = malloc(BYTES);
	struct device_memory *x = alloc(BYTES), *y = alloc(BYTES);
	for (int i = 0; i < BYTES; i++)
		host[i] = (uint8_t)(i * 31 >> 3);
	copy(x, host, BYTES, true);
	struct device_operand operands[2] = {{x, 0}, {y, 0}};
	struct device_launch launch = {.copies = true,
								   .operands = operands,
								   .operand_count = 2,
								   .copy_bytes = BYTES,
								   .delay_ms = 300,
								   .ticket = 1001,
								   .stream = 7};
	assert_int_equal(device_cpu.launch(device, &launch, error), KILN_OK);
	memset(host, 0, BYTES);
	/* Behind the delayed one in its stream; the other stream does not wait for either. */
	assert_int_equal(device_cpu.copy(device, 7, 1002, y, 0, host, BYTES, false, error), KILN_OK);
	uint8_t other[16] = {1, 2, 3};
	assert_int_equal(device_cpu.copy(device, 8, 1003, x, 0, other, 4, false, error), KILN_OK);
	assert_int_equal(wait_done(1003).status, KILN_OK);
	assert_int_equal(wait_done(1001).status, KILN_OK);
	assert_int_equal(wait_done(1002).status, KILN_OK);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(host[i], (uint8_t)(i * 31 >> 3));
	device_cpu.stream_end(device, 7);
	device_cpu.stream_end(device, 8);
	device_cpu.stream_end(device, 9);
	device_cpu.free(device, x);
	device_cpu.free(device, y);
	free(host);
}

static void poll_returns_for_the_wake_fd(void **state)
{
	(void)state;
	int pipes[2];
	bool broken;
	struct device_done done;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(device_cpu.poll(device, pipes[0], 0, &done, 1, &broken), 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(device_cpu.poll(device, pipes[0], 20000, &done, 1, &broken), 0);
	assert_false(broken);
	close(pipes[0]);
	close(pipes[1]);
}

/* Their pages can vanish below a mapping, seals or not.  None is used. */
static void refuses_huge_pages(void **state)
{
	(void)state;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd < 0) {
		fprintf(stderr, "SKIPPED: memfd_create(MFD_HUGETLB): %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	struct device_import what = {.kind = DEVICE_IMPORT_FD, .fd = fd, .span = 4096, .bytes = 4096};
	struct device_memory *memory;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "MFD_HUGETLB"));
	close(fd);
}

static void imports_a_part_of_a_memfd(void **state)
{
	(void)state;
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 3 * 4096), 0);
	struct device_import what = {
		.kind = DEVICE_IMPORT_FD, .fd = fd, .span = 3 * 4096, .offset = 4000, .bytes = 400};
	struct device_memory *memory;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "F_SEAL_SHRINK"));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_OK);
	char text[400];
	memset(text, 'k', sizeof(text));
	copy(memory, text, sizeof(text), true);
	assert_int_equal(pread(fd, text, 1, 3999), 1);
	assert_int_equal(text[0], 0);
	assert_int_equal(pread(fd, text, 1, 4000), 1);
	assert_int_equal(text[0], 'k');
	assert_int_equal(pread(fd, text, 1, 4400), 1);
	assert_int_equal(text[0], 0);
	device_cpu.free(device, memory);
	what.bytes = 3 * 4096 - 4000 + 1;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	assert_non_null(strstr(error, "12288"));
	what.bytes = UINT64_MAX - 100;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_EINVAL);
	what.kind = DEVICE_IMPORT_IPC;
	assert_int_equal(device_cpu.import(device, &what, &memory, error), KILN_ENOTSUP);
	close(fd);
}

static void refuses_what_is_wrong(void **state)
{
	(void)state;
	struct device_module *module = load("rotate<int>");
	struct device_memory *x = alloc(64);
	struct device_memory *both[2] = {x, x};
	uint32_t n = 1;
	struct shape good = {{1, 1, 1}, {1, 1, 1}, 64}, shape = good;
	assert_int_equal(start(module, good, 2, both, 0, NULL), KILN_EINVAL);
	assert_string_equal(error, "the kernel takes 3 arguments and was given 2");
	shape.block[1] = 1025;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	shape = good;
	shape.grid[1] = 65536;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	shape = good;
	shape.shared = info.limits.shared_optin + 1;
	assert_int_equal(start(module, shape, 2, both, 1, &n), KILN_EINVAL);
	struct device_memory *none;
	assert_int_equal(device_cpu.alloc(device, UINT64_MAX, &none, error), KILN_ENOMEM);
	assert_int_equal(device_cpu.copy(device, 1, 1, x, 60, error, 5, true, error), KILN_EINVAL);
	struct device_module *junk;
	assert_int_equal(device_cpu.load(device, "\177ELFjunk", 8, "kiln_cpu_entry", 0, &junk, error),
					 KILN_ECOMPILE);
	device_cpu.unload(device, module);
	device_cpu.free(device, x);
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
	alarm(30); /* a hang is what this is about */
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

/* ---- Faults: each in a process, which the device does not survive ---- */

/* The child's sentence for one launch of 3 blocks of 32 threads on two buffers of 100 bytes. */
static void fault(const char *instantiation, uint32_t by, int operand_count, char *sentence,
				  size_t size)
{
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(30);
		open_device();
		struct device_memory *both[2] = {alloc(100), alloc(100)};
		struct device_module *module = load(instantiation);
		struct device_done done[2] = {{0}};
		bool broken = false;
		int status = start(module, (struct shape){{3, 1, 1}, {32, 1, 1}, 64}, operand_count, both,
						   operand_count == 2, &by);
		/* Queued behind: fails with the device, after the culprit. */
		char host[4];
		device_cpu.copy(device, 1, 77, both[0], 0, host, 4, false, error);
		int n = 0;
		while (status == KILN_OK && !broken && n == 0)
			n = device_cpu.poll(device, -1, 20000, done, 2, &broken);
		dprintf(pipes[1], "%d %d %d %d %d %d:%s", status, broken, n, done[0].status, done[1].status,
				(int)done[1].ticket, done[0].error);
		_exit(0);
	}
	close(pipes[1]);
	size_t used = 0;
	ssize_t n;
	while ((n = read(pipes[0], sentence + used, size - 1 - used)) > 0)
		used += (size_t)n;
	sentence[used] = 0;
	close(pipes[0]);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void faults_name_who_and_where(void **state)
{
	(void)state;
	static const struct {
		const char *instantiation;
		uint32_t by;
		int operands;
		const char *says;
	} cases[] = {
		{"bad<0>", 28, 2,
		 "block (2,0,0), thread (5,0,0): writes beyond the end of operand 1, at byte 112 of "
		 "100"},
		{"bad<1>", 40, 2,
		 "block (1,0,0), thread (3,0,0): reads beyond the end of operand 0, at byte 160 of "
		 "100"},
		{"bad<1>", (uint32_t)-2000, 2, "before the beginning of operand 0, at byte -"},
		{"bad<2>", 0, 2, "thread (4,0,0): divides an integer by zero"},
		{"bad<3>", 17, 2, "writes beyond the end of dynamic shared memory, at byte 68 of 64"},
		{"bad<4>", 8, 2, "thread (9,0,0): writes address 0x8, a null pointer"},
		{"bad<11>", 1, 2, "not aligned for a vector access"},
		{"recurse<100000>", 0, 1, "thread (0,0,0): overflows its stack of 256 KiB"},
		/* A frame that a guard is too small for. */
		{"large<120000>", 0, 1, "thread (0,0,0): overflows its stack of 256 KiB"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char sentence[600];
		fault(cases[i].instantiation, cases[i].by, cases[i].operands, sentence, sizeof(sentence));
		if (strncmp(sentence, "0 1 2 -6 -6 77:block (", 22) != 0 ||
			!strstr(sentence, cases[i].says) || !strstr(sentence, cases[i].instantiation))
			fail_msg("%s: expected \"%s\" in \"%s\"", cases[i].instantiation, cases[i].says,
					 sentence);
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
		cmocka_unit_test(streams_are_independent),
		cmocka_unit_test(poll_returns_for_the_wake_fd),
		cmocka_unit_test(imports_a_part_of_a_memfd),
		cmocka_unit_test(refuses_huge_pages),
		cmocka_unit_test(refuses_what_is_wrong),
		cmocka_unit_test(divergence_is_told_and_ends),
		cmocka_unit_test(unavailable_things_are_named),
	};
	/* Before there are threads in this process, which fork would not copy. */
	const struct CMUnitTest faults[] = {cmocka_unit_test(faults_name_who_and_where)};
	int failed = cmocka_run_group_tests_name("faults", faults, NULL, NULL);
	return failed + cmocka_run_group_tests(tests, setup, teardown);
}
