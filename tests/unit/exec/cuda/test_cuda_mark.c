/*
 * The ends of launches that are not timed, on the cuda device over the fake driver: by a word that
 * the GPU writes, one for many launches, and by asking the driver where there is no such word.
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

/* Without the kernel that tells, nothing is recorded: the driver writes all marks. */
static int setup_unrecorded(void **state)
{
	(void)state;
	fake->reset();
	error[0] = 0;
	fake->inject("cuModuleLoadData", 218, 1);
	return device_cuda.open(NULL, &device, &info, error);
}

static int launch(struct device_module *module, struct device_memory *memory, uint32_t value,
				  uint64_t stream, uint64_t ticket, bool untimed)
{
	const struct kernel_arg args[] = {{KERNEL_ARG_POINTER, 0, 0, 0},
									  {KERNEL_ARG_SCALAR, 0, 8, value},
									  {KERNEL_ARG_SCALAR, 0, 4, 4}};
	const struct device_operand operands[] = {{memory, 0}};
	const struct device_launch what = {.module = module,
									   .grid = {1, 1, 1},
									   .block = {32, 1, 1},
									   .args = args,
									   .arg_count = memory ? 3 : 0,
									   .operands = operands,
									   .operand_count = memory ? 1 : 0,
									   .untimed = untimed,
									   .ticket = ticket,
									   .stream = stream};
	return device_cuda.launch(device, &what, error);
}

static void expect_untimed(uint64_t ticket)
{
	struct device_done done = next_done();
	assert_int_equal(done.ticket, ticket);
	assert_int_equal(done.status, KILN_OK);
	assert_int_equal(done.micros, 0);
}

static int poll_now(struct device_done *done)
{
	bool broken = false;
	int count = device_cuda.poll(device, -1, 0, done, 1, &broken);
	assert_false(broken);
	return count;
}

static void one_mark_for_many(void **state)
{
	(void)state;
	struct device_memory *y = alloc(4096);
	struct device_module *fill = load(FAKE_FILL);
	for (int round = 1; round <= 3; round++) {
		for (uint64_t i = 0; i < 20; i++)
			assert_int_equal(launch(fill, y, (uint32_t)i, 1, i, true), KILN_OK);
		for (uint64_t i = 0; i < 20; i++)
			expect_untimed(i);
		assert_int_equal(fake->calls("cuStreamWriteValue32"), round);
	}
	assert_int_equal(fake->calls("cuEventRecord"), 0);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
}

static void not_before_the_gpu_gets_there(void **state)
{
	(void)state;
	struct device_memory *y = alloc(4096);
	struct device_module *fill = load(FAKE_FILL);
	struct device_done done;
	fake->hold(1);
	assert_int_equal(launch(fill, y, 1, 1, 1, true), KILN_OK);
	for (int i = 0; i < 100; i++)
		assert_int_equal(poll_now(&done), 0);
	fake->hold(0);
	expect_untimed(1);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
}

/* Both kinds on one stream end in their order; each stream has a word of its own. */
static void timed_ones_between(void **state)
{
	(void)state;
	struct device_memory *y = alloc(4096);
	struct device_module *fill = load(FAKE_FILL);
	for (uint64_t stream = 1; stream <= 70; stream++) {
		assert_int_equal(launch(fill, y, 1, stream, 1, true), KILN_OK);
		assert_int_equal(launch(fill, y, 2, stream, 2, false), KILN_OK);
		assert_int_equal(launch(fill, y, 3, stream, 3, true), KILN_OK);
		expect_untimed(1);
		expect_done(2);
		expect_untimed(3);
	}
	for (uint64_t stream = 1; stream <= 70; stream++)
		device_cuda.stream_end(device, stream);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
}

/* No word will say that a kernel faulted. */
static void a_fault_is_seen(void **state)
{
	(void)state;
	struct device_module *fault = load(FAKE_FAULT);
	struct device_done done;
	bool broken = false;
	assert_int_equal(launch(fault, NULL, 0, 1, 9, true), KILN_OK);
	assert_int_equal(device_cuda.poll(device, -1, 10000, &done, 1, &broken), 1);
	assert_true(broken);
	assert_int_equal(done.ticket, 9);
	assert_int_equal(done.status, KILN_EDEVICE);
	assert_non_null(strstr(done.error, "CUDA_ERROR_ILLEGAL_ADDRESS"));
	device_cuda.unload(device, fault);
}

/* A client's own words: of the last launch before a mark, or of each that needs it at once. */
static void words_for_clients(void **state)
{
	(void)state;
	static _Atomic uint32_t words[8];
	struct device_memory *y = alloc(4096);
	struct device_module *fill = load(FAKE_FILL);
	assert_true(device_cuda.share_words(device, words, sizeof(words)));
	for (int last = 0; last < 2; last++) {
		memset(words, 0, sizeof(words));
		for (uint64_t i = 0; i < 3; i++) {
			const struct device_launch how = {.untimed = true,
											  .done_word = &words[i],
											  .done_value = (uint32_t)(100 + i),
											  .done_last = last,
											  .ticket = i,
											  .stream = 1};
			assert_int_equal(launch_fill_on(device, fill, (struct device_operand){y, 0}, 1, how),
							 KILN_OK);
		}
		for (uint64_t i = 0; i < 3; i++)
			expect_untimed(i);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(words[i], last && i < 2 ? 0 : 100 + i);
	}
	device_cuda.unshare_words(device, words);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
}

/* A driver that writes no words, or has none to give: launches end all the same. */
static void without_words(void **state)
{
	(void)state;
	struct device_memory *y = alloc(4096);
	struct device_module *fill = load(FAKE_FILL);
	fake->inject("cuMemHostAlloc", 2, 1);
	assert_int_equal(launch(fill, y, 1, 1, 1, true), KILN_OK);
	expect_done(1); /* with events, as if it were timed */
	fake->inject("cuStreamWriteValue32", 801, 1);
	assert_int_equal(launch(fill, y, 1, 1, 2, true), KILN_OK);
	assert_int_equal(launch(fill, y, 1, 1, 3, true), KILN_OK);
	expect_untimed(2);
	expect_untimed(3);
	assert_int_equal(launch(fill, y, 1, 1, 4, true), KILN_OK);
	expect_done(4);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_mark_for_many, setup_unrecorded, teardown),
		cmocka_unit_test_setup_teardown(not_before_the_gpu_gets_there, setup, teardown),
		cmocka_unit_test_setup_teardown(timed_ones_between, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fault_is_seen, setup, teardown),
		cmocka_unit_test_setup_teardown(words_for_clients, setup_unrecorded, teardown),
		cmocka_unit_test_setup_teardown(without_words, setup, teardown),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
