/*
 * The reports of kernels on the cuda device, over the fake driver: a count at zero for each launch,
 * and what the call ends in.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	puts("built without cuda.h: there is no device to give work to");
	return 77;
}

#else

/* y: what the count was before. */
static int launch(struct device_module *module, struct device_memory *y, uint64_t by, uint64_t end,
				  uint64_t stream, uint64_t ticket, uint32_t delay_ms)
{
	const struct kernel_arg args[] = {{KERNEL_ARG_REPORT, -1, 8, 0},
									  {KERNEL_ARG_SCALAR, -1, 8, by},
									  {KERNEL_ARG_POINTER, 0, 8, 0}};
	const struct device_operand operands[] = {{y, 8 * (ticket % 1024)}};
	const struct device_launch what = {.module = module,
									   .grid = {1, 1, 1},
									   .block = {32, 1, 1},
									   .args = args,
									   .arg_count = 3,
									   .operands = operands,
									   .operand_count = 1,
									   .report = {70, end},
									   .delay_ms = delay_ms,
									   .ticket = ticket,
									   .stream = stream};
	return device_cuda.launch(device, &what, error);
}

static void expect_index(uint64_t ticket, const char *sentence)
{
	struct device_done done = next_done();
	assert_int_equal(done.ticket, ticket);
	assert_int_equal(done.status, KILN_EINDEX);
	assert_string_equal(done.error, sentence);
}

static void a_count_ends_the_call(void **state)
{
	(void)state;
	struct device_memory *y = alloc(8192);
	struct device_module *module = load(FAKE_REPORT);
	uint64_t before[8];
	assert_int_equal(launch(module, y, 3, 256, 1, 1, 0), KILN_OK);
	expect_index(1, "3 of 70 indices are out of range, which is 0 to 255");
	/* The next one finds nothing of it. */
	assert_int_equal(launch(module, y, 0, 256, 1, 2, 0), KILN_OK);
	expect_done(2);
	assert_int_equal(launch(module, y, 1ull << 40, 0, 1, 3, 0), KILN_OK);
	expect_index(3, "1099511627776 of 70 indices are out of range: there is nothing that they "
					"could name");
	transfer(y, 0, before, sizeof(before), false);
	for (int i = 1; i <= 3; i++)
		assert_int_equal(before[i], 0);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

/* More of them in flight than a page has, each with its own. */
static void launches_in_flight_do_not_meet(void **state)
{
	(void)state;
	struct device_memory *y = alloc(8192);
	struct device_module *module = load(FAKE_REPORT);
	static uint64_t before[600];
	char sentence[80];
	fake->hold(1);
	for (uint64_t i = 0; i < 600; i++)
		assert_int_equal(launch(module, y, i % 3 ? 0 : i, 9, i % 4, i, 0), KILN_OK);
	fake->hold(0);
	for (int i = 0; i < 600; i++) {
		struct device_done done = next_done();
		bool counted = done.ticket % 3 == 0 && done.ticket > 0;
		assert_int_equal(done.status, counted ? KILN_EINDEX : KILN_OK);
		snprintf(sentence, sizeof(sentence), "%d of 70 indices are out of range, which is 0 to 8",
				 (int)done.ticket);
		assert_string_equal(done.error, counted ? sentence : "");
	}
	transfer(y, 0, before, sizeof(before), false);
	for (int i = 0; i < 600; i++)
		assert_int_equal(before[i], 0);
	/* They are used again. */
	int pages = fake->calls("cuMemHostAlloc");
	for (uint64_t i = 0; i < 1000; i++) {
		assert_int_equal(launch(module, y, 0, 9, 1, i, 0), KILN_OK);
		expect_done(i);
	}
	assert_int_equal(fake->calls("cuMemHostAlloc"), pages);
	assert_int_equal(pages, 3);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

static void what_does_not_run_gives_it_back(void **state)
{
	(void)state;
	struct device_memory *y = alloc(8192);
	struct device_module *module = load(FAKE_REPORT);
	fake->inject("cuMemHostAlloc", 2, 1);
	assert_int_equal(launch(module, y, 0, 9, 1, 1, 0), KILN_ENOMEM);
	assert_sentence("cuda:0 cannot give host memory for what kernels report: "
					"CUDA_ERROR_OUT_OF_MEMORY");
	for (uint64_t i = 1; i <= 300; i++) {
		assert_int_equal(launch(module, y, 5, 9, 1, i, 60000), KILN_OK);
		device_cuda.cancel(device, &i, 1);
		assert_int_equal(next_done().status, KILN_ECANCELED);
		fake->inject("cuLaunchKernel", 1, 1);
		assert_int_equal(launch(module, y, 5, 9, 1, i, 0), KILN_EINTERNAL);
	}
	assert_int_equal(fake->live(FAKE_LIVE_HOST), 1);
	assert_int_equal(launch(module, y, 0, 9, 1, 1, 0), KILN_OK);
	expect_done(1);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(a_count_ends_the_call),
		OPENED(launches_in_flight_do_not_meet),
		OPENED(what_does_not_run_gives_it_back),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
