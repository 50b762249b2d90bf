/*
 * Scratch memory on the cpu device: where it is, what a launch finds in it, and what is said of
 * kernels that use it wrongly.
 */
#include "cpu_scene.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 63 /* with the counter: 256 bytes, so that the guard follows at once */
#define SCRATCH_BYTES (4 * (1 + BLOCKS))

/* A sum of n words by BLOCKS blocks. */
struct sum {
	struct device_module *module;
	struct device_memory *x, *y;
	uint32_t n;
	uint64_t bytes, counters;
};

static int start(const struct sum *sum, uint64_t stream, uint64_t ticket, uint32_t delay_ms)
{
	const struct kernel_arg args[] = {{.kind = KERNEL_ARG_SCRATCH, .operand = -1},
									  {.kind = KERNEL_ARG_POINTER, .operand = 0},
									  {.kind = KERNEL_ARG_POINTER, .operand = 1},
									  {.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = sum->n}};
	const struct device_operand operands[] = {{sum->x, 0}, {sum->y, 0}};
	const struct device_launch launch = {
		.module = sum->module,
		.grid = {BLOCKS, 1, 1},
		.block = {1, 1, 1},
		.args = args,
		.arg_count = 4,
		.operands = operands,
		.operand_count = 2,
		.scratch = {sum->bytes, sum->counters},
		.delay_ms = delay_ms,
		.ticket = ticket,
		.stream = stream,
	};
	return device_cpu.launch(device, &launch, error);
}

static void must_start(const struct sum *sum, uint64_t stream, uint64_t ticket)
{
	if (start(sum, stream, ticket, 0) != KILN_OK)
		fail_msg("%s", error);
}

/* Where the scratch memory of the last launch to y was; the sum must be this. */
static uint64_t check_sum(const struct sum *sum, uint32_t expected)
{
	uint32_t y[4];
	transfer(sum->y, y, sizeof(y), false);
	assert_int_equal(y[0], expected);
	assert_int_equal(y[3], UINT32_MAX); /* no zeros to lean on */
	return y[1] | (uint64_t)y[2] << 32;
}

static struct sum make(const char *instantiation)
{
	struct sum sum = {.n = 1000, .bytes = SCRATCH_BYTES, .counters = 4};
	sum.module = load(instantiation);
	assert_int_equal(device_cpu.alloc(device, 4000, &sum.x, error), KILN_OK);
	assert_int_equal(device_cpu.alloc(device, 16, &sum.y, error), KILN_OK);
	return sum;
}

static void drop(struct sum *sum)
{
	device_cpu.unload(device, sum->module);
	device_cpu.free(device, sum->x);
	device_cpu.free(device, sum->y);
}

static int setup(void **state)
{
	struct device_info info;
	(void)state;
	return device_cpu.open(NULL, &device, &info, error);
}

static int teardown(void **state)
{
	(void)state;
	device_cpu.close(device);
	return 0;
}

/* ---- Tests ---- */

static void sums_in_one_launch(void **state)
{
	uint32_t x[1000], expected = 0;
	struct sum sum = make("sum<0>");
	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		expected += x[i] = i * i;
	transfer(sum.x, x, sizeof(x), true);
	/* One after another without waiting: each finds the counter as the one before left it. */
	for (uint64_t ticket = 1; ticket <= 50; ticket++)
		must_start(&sum, 1, ticket);
	for (uint64_t ticket = 1; ticket <= 50; ticket++)
		assert_int_equal(wait_done(ticket).status, KILN_OK);
	assert_int_equal(check_sum(&sum, expected) % 256, 0);
	drop(&sum);
}

static void an_operand_left_out_is_a_null_pointer(void **state)
{
	struct sum sum = make("sum<0>");
	struct device_memory *x = sum.x;
	(void)state;
	sum.x = NULL;
	must_start(&sum, 1, 1);
	assert_int_equal(wait_done(1).status, KILN_OK);
	check_sum(&sum, 1000);
	sum.x = x;
	drop(&sum);
}

static void streams_have_their_own(void **state)
{
	struct sum sum = make("sum<0>");
	uint64_t at[3];
	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		must_start(&sum, i % 2, i + 1);
		assert_int_equal(wait_done(i + 1).status, KILN_OK);
		at[i] = check_sum(&sum, 0);
	}
	assert_true(at[0] != at[1]);
	assert_true(at[0] == at[2]);
	/* Both are counted until their streams end. */
	uint64_t both = device_cpu.scratch_bytes(device);
	assert_true(both >= UINT64_C(2) * SCRATCH_BYTES && both % 2 == 0);
	device_cpu.stream_end(device, 0);
	assert_int_equal(device_cpu.scratch_bytes(device), both / 2);
	device_cpu.stream_end(device, 1);
	assert_int_equal(device_cpu.scratch_bytes(device), 0);
	drop(&sum);
}

static void grows_and_ends_at_the_guard(void **state)
{
	struct sum small = make("sum<0>"), large = small;
	uint64_t first, second;
	(void)state;
	large.bytes = (5u << 20) + 3;
	for (uint64_t ticket = 1; ticket <= 6; ticket += 2) {
		must_start(&small, 1, ticket);
		must_start(&large, 1, ticket + 1);
	}
	for (uint64_t ticket = 1; ticket <= 6; ticket++)
		assert_int_equal(wait_done(ticket).status, KILN_OK);
	first = check_sum(&large, 0);
	must_start(&small, 1, 7);
	assert_int_equal(wait_done(7).status, KILN_OK);
	second = check_sum(&small, 0);
	assert_true(first + (5u << 20) + 256 == second + SCRATCH_BYTES);
	drop(&small);
}

static void counters_that_are_left_are_told(void **state)
{
	struct sum good = make("sum<0>"), bad = good;
	struct device_done done;
	(void)state;
	bad.module = load("sum<1>");
	must_start(&bad, 1, 1);
	must_start(&good, 1, 2);
	done = wait_done(1);
	assert_int_equal(done.status, KILN_EDEVICE);
	assert_string_equal(done.error, "byte 0 of the 4 counter bytes of scratch memory is 63 when "
									"the launch ends; a kernel must leave them at zero (kernel "
									"sum<1>)");
	assert_int_equal(wait_done(2).status, KILN_OK);
	check_sum(&good, 0);
	device_cpu.unload(device, bad.module);
	drop(&good);
}

static void launches_that_fail_leave_no_counters(void **state)
{
	struct sum good = make("sum<0>"), bad = good;
	(void)state;
	bad.module = load("sum<2>");
	must_start(&bad, 1, 1);
	assert_int_equal(wait_done(1).status, KILN_EDEVICE);
	assert_int_equal(start(&bad, 1, 2, 60000), KILN_OK);
	device_cpu.cancel(device, &(uint64_t){2}, 1);
	assert_int_equal(wait_done(2).status, KILN_ECANCELED);
	must_start(&good, 1, 3);
	assert_int_equal(wait_done(3).status, KILN_OK);
	check_sum(&good, 0);
	device_cpu.unload(device, bad.module);
	drop(&good);
}

static void refuses_sizes_that_cannot_be(void **state)
{
	struct sum sum = make("sum<0>");
	(void)state;
	sum.bytes = KERNEL_SCRATCH_MAX + 1;
	assert_int_equal(start(&sum, 1, 1, 0), KILN_EINVAL);
	assert_string_equal(error, "268435457 bytes of scratch memory, 4 of them counters, are not "
							   "within 268435456");
	sum.bytes = 3;
	assert_int_equal(start(&sum, 1, 1, 0), KILN_EINVAL);
	drop(&sum);
}

/* In a process, which the device does not survive. */
static void a_step_too_far_is_told(void **state)
{
	int pipes[2], status;
	char said[KERNEL_ERROR_MAX + 1] = "";
	(void)state;
	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(300);
		setup(NULL);
		struct sum sum = make("sum<3>");
		struct device_done done = {0};
		bool broken = false;
		must_start(&sum, 1, 1);
		while (!broken)
			device_cpu.poll(device, -1, 20000, &done, 1, &broken);
		_exit(write(pipes[1], done.error, strlen(done.error)) < 0);
	}
	close(pipes[1]);
	for (size_t used = 0; used < sizeof(said) - 1;) {
		ssize_t n = read(pipes[0], said + used, sizeof(said) - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* Blocks run side by side, so any of them may be the first to fail. */
	const char *at = strstr(said, "beyond the end of scratch memory, at byte ");
	int byte = 0;
	if (!at || sscanf(at, "beyond the end of scratch memory, at byte %d of 256", &byte) != 1 ||
		byte < 256 || byte >= 512)
		fail_msg("%s", said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_in_one_launch),
		cmocka_unit_test(an_operand_left_out_is_a_null_pointer),
		cmocka_unit_test(streams_have_their_own),
		cmocka_unit_test(grows_and_ends_at_the_guard),
		cmocka_unit_test(counters_that_are_left_are_told),
		cmocka_unit_test(launches_that_fail_leave_no_counters),
		cmocka_unit_test(refuses_sizes_that_cannot_be),
	};
	/* Before there are threads in this process, which fork would not copy. */
	const struct CMUnitTest faults[] = {cmocka_unit_test(a_step_too_far_is_told)};
	int failed = cmocka_run_group_tests_name("faults", faults, NULL, NULL);
	return failed + cmocka_run_group_tests(tests, setup, teardown);
}
