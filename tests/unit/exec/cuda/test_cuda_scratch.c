/*
 * Scratch memory on the cuda device, over the fake driver: the piece of each stream, how it grows
 * in the stream's order, and the counters that every launch finds at zero.
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

/* The words that FAKE_TALLY writes. */
struct tally {
	uint64_t at, not_zero;
};

static int launch(struct device_module *module, struct device_memory *y, uint64_t y_offset,
				  struct kernel_scratch scratch, uint64_t stream, uint64_t ticket,
				  uint32_t delay_ms)
{
	const struct kernel_arg args[] = {{KERNEL_ARG_SCRATCH, -1, 8, 0},
									  {KERNEL_ARG_POINTER, 0, 8, 0},
									  {KERNEL_ARG_SCALAR, -1, 8, scratch.bytes},
									  {KERNEL_ARG_SCALAR, -1, 8, scratch.counters}};
	const struct device_operand operands[] = {{y, y_offset}};
	const struct device_launch what = {.module = module,
									   .grid = {1, 1, 1},
									   .block = {32, 1, 1},
									   .args = args,
									   .arg_count = 4,
									   .operands = operands,
									   .operand_count = 1,
									   .scratch = scratch,
									   .delay_ms = delay_ms,
									   .ticket = ticket,
									   .stream = stream};
	return device_cuda.launch(device, &what, error);
}

static struct tally tally(struct device_module *module, struct device_memory *y, uint64_t bytes,
						  uint64_t counters, uint64_t stream)
{
	struct tally said = {0};
	assert_int_equal(launch(module, y, 0, (struct kernel_scratch){bytes, counters}, stream, 5, 0),
					 KILN_OK);
	expect_done(5);
	transfer(y, 0, &said, sizeof(said), false);
	assert_int_equal(said.at % 256, 0);
	assert_int_equal(said.not_zero, 0);
	return said;
}

/* The pool's memory is not zero at first. */
static void a_stream_has_its_own_and_keeps_it(void **state)
{
	(void)state;
	struct device_memory *y = alloc(16);
	struct device_module *module = load(FAKE_TALLY);
	int blocks = fake->live(FAKE_LIVE_BLOCKS), sets = fake->calls("cuMemsetD8Async");
	uint64_t first = tally(module, y, 8192, 512, 1).at;
	for (int i = 0; i < 10; i++)
		assert_int_equal(tally(module, y, 8192, 512, 1).at, first);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks + 1);
	assert_int_equal(fake->calls("cuMemsetD8Async"), sets + 1);
	assert_true(tally(module, y, 8192, 512, 2).at != first);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks + 2);
	/* Both are counted until their streams end. */
	uint64_t both = device_cuda.scratch_bytes(device);
	assert_true(both >= UINT64_C(2) * 8192 && both % 2 == 0);
	device_cuda.stream_end(device, 1);
	assert_int_equal(device_cuda.scratch_bytes(device), both / 2);
	device_cuda.stream_end(device, 2);
	assert_int_equal(device_cuda.scratch_bytes(device), 0);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

/* The fake unmaps what is freed: a launch that still used it would end this process. */
static void growing_spares_what_is_queued(void **state)
{
	(void)state;
	struct device_memory *y = alloc(64);
	struct device_module *module = load(FAKE_TALLY);
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	struct tally said[3];
	fake->hold(1);
	assert_int_equal(launch(module, y, 0, (struct kernel_scratch){5000, 100}, 1, 1, 0), KILN_OK);
	assert_int_equal(launch(module, y, 16, (struct kernel_scratch){70000, 100}, 1, 2, 0), KILN_OK);
	assert_int_equal(launch(module, y, 32, (struct kernel_scratch){9000, 8192}, 1, 3, 0), KILN_OK);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks + 3);
	fake->hold(0);
	expect_done(1);
	expect_done(2);
	expect_done(3);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks + 1);
	assert_int_equal(fake->calls("cuMemFree"), 0);
	transfer(y, 0, said, sizeof(said), false);
	for (int i = 0; i < 3; i++)
		assert_int_equal(said[i].not_zero, 0);
	assert_true(said[0].at != said[1].at && said[1].at != said[2].at);
	/* Large enough for all of them now. */
	int allocations = fake->calls("cuMemAllocFromPoolAsync");
	tally(module, y, 70000, 8192, 1);
	assert_int_equal(fake->calls("cuMemAllocFromPoolAsync"), allocations);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

/* Sizes that leave rubbish below the border, and counters of others that lie there. */
static void counters_of_all_sizes_are_zero(void **state)
{
	static const uint64_t counters[] = {4,    1000, 0,   256, 1, 3000, 255, 12,
										4096, 257,  100, 0,   8, 8192, 252, 4};
	(void)state;
	struct device_memory *y = alloc(16);
	struct device_module *module = load(FAKE_TALLY);
	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
		for (size_t k = 0; k < sizeof(counters) / sizeof(*counters); k++) {
			tally(module, y, counters[i] + 300, counters[i], 1);
			tally(module, y, counters[k] + k, counters[k], 1);
		}
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

static void nothing_is_taken_for_what_does_not_start(void **state)
{
	(void)state;
	struct device_memory *y = alloc(16);
	struct device_module *module = load(FAKE_TALLY);
	int allocations = fake->calls("cuMemAllocFromPoolAsync");
	assert_int_equal(launch(module, y, 0, (struct kernel_scratch){5000, 100}, 1, 1, 60000),
					 KILN_OK);
	device_cuda.cancel(device, &(uint64_t){1}, 1);
	assert_int_equal(next_done().status, KILN_ECANCELED);
	assert_int_equal(
		launch(module, y, 0, (struct kernel_scratch){KERNEL_SCRATCH_MAX + 1ull, 0}, 1, 1, 0),
		KILN_EINVAL);
	assert_sentence("268435457 bytes of scratch memory");
	assert_int_equal(launch(module, y, 0, (struct kernel_scratch){8, 9}, 1, 1, 0), KILN_EINVAL);
	assert_int_equal(fake->calls("cuMemAllocFromPoolAsync"), allocations);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

static void without_memory_the_launch_fails_alone(void **state)
{
	(void)state;
	struct device_memory *y = alloc(16);
	struct device_module *module = load(FAKE_TALLY);
	const struct kernel_scratch scratch = {5000, 100};
	fake->inject("cuMemAllocFromPoolAsync", 2, 2);
	assert_int_equal(launch(module, y, 0, scratch, 1, 1, 0), KILN_ENOMEM);
	assert_sentence("cuda:0 cannot give 8840 bytes of scratch memory to a launch: "
					"CUDA_ERROR_OUT_OF_MEMORY");
	/* With the second try after the pool was trimmed. */
	fake->inject("cuMemAllocFromPoolAsync", 2, 1);
	tally(module, y, 5000, 100, 1);
	/* The device gives memory back that it could not clear. */
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	fake->inject("cuMemsetD8Async", 1, 1);
	assert_int_equal(launch(module, y, 0, (struct kernel_scratch){90000, 100}, 1, 1, 0),
					 KILN_EINTERNAL);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
	tally(module, y, 90000, 100, 1);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(a_stream_has_its_own_and_keeps_it),
		OPENED(growing_spares_what_is_queued),
		OPENED(counters_of_all_sizes_are_zero),
		OPENED(nothing_is_taken_for_what_does_not_start),
		OPENED(without_memory_the_launch_fails_alone),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
