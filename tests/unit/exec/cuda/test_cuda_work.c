/*
 * The cuda device over the fake driver: launches and copies, their order, waiting for them, and
 * what becomes of them when the device fails.
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

/* ---- Work ---- */

static void binds_operands_and_scalars(void **state)
{
	(void)state;
	uint32_t words[8] = {10, 20, 30, 40, 50, 60, 70, 80}, result[8] = {0};
	struct device_memory *memory = alloc(sizeof(words));
	struct device_module *add = load(FAKE_ADD_ONE);
	transfer(memory, 0, words, sizeof(words), true);
	/* y = the last four words, x = words 1 to 4, the count carries rubbish above its 4 bytes */
	const struct kernel_arg args[] = {{KERNEL_ARG_POINTER, 1, 0, 0},
									  {KERNEL_ARG_POINTER, 0, 0, 0},
									  {KERNEL_ARG_SCALAR, 0, 4, 0xffff000000000003ull}};
	const struct device_operand operands[] = {{memory, 20}, {memory, 4}};
	const struct device_launch launch = {.module = add,
										 .grid = {1, 1, 1},
										 .block = {3, 1, 1},
										 .args = args,
										 .arg_count = 3,
										 .operands = operands,
										 .operand_count = 2,
										 .ticket = 5,
										 .stream = 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	expect_done(5);
	transfer(memory, 0, result, sizeof(result), false);
	const uint32_t expected[8] = {10, 20, 30, 40, 50, 21, 31, 41};
	assert_memory_equal(result, expected, sizeof(expected));
	device_cuda.unload(device, add);
	device_cuda.free(device, memory);
}

static void copies_between_operands(void **state)
{
	(void)state;
	char text[16] = "0123456789abcde", result[16] = "";
	struct device_memory *a = alloc(16), *b = alloc(16);
	transfer(a, 0, text, 16, true);
	struct device_operand operands[] = {{a, 4}, {b, 8}};
	struct device_launch launch = {.copies = true,
								   .operands = operands,
								   .operand_count = 2,
								   .copy_bytes = 8,
								   .ticket = 3,
								   .stream = 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	expect_done(3);
	transfer(b, 0, result, 16, false);
	assert_memory_equal(result,
						"\0\0\0\0\0\0\0\0"
						"456789ab",
						16);
	launch.copy_bytes = 9;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("operand 1 needs 9 bytes from byte 8 of a buffer of 16 bytes");
	operands[0].offset = 17;
	launch.copy_bytes = 0;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	launch.operand_count = 1;
	operands[0].offset = 0;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("names operand 1 and has 1");
	operands[0].memory = NULL;
	launch.operand_count = 2;
	launch.copy_bytes = 1;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("operand 0 has no memory and needs 1 bytes");
	launch.copy_bytes = 0;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	expect_done(3);
	device_cuda.free(device, a);
	device_cuda.free(device, b);
}

static void refuses_launches_that_do_not_fit(void **state)
{
	(void)state;
	struct device_module *fill = load(FAKE_FILL);
	struct kernel_arg args[KERNEL_MAX_ARGS + 1] = {{KERNEL_ARG_POINTER, 0, 0, 0}};
	struct device_launch launch = {.module = fill,
								   .grid = {1, 1, 1},
								   .block = {1, 1, 1},
								   .args = args,
								   .arg_count = KERNEL_MAX_ARGS + 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("has 65 arguments");
	launch.arg_count = 1;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("names operand 0 and has 0");
	args[0].kind = args[1].kind = args[2].kind = KERNEL_ARG_SCALAR;
	args[0].bytes = args[1].bytes = 8;
	args[2].bytes = 4;
	launch.arg_count = 3;
	launch.block[0] = 1025;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINTERNAL);
	assert_sentence("does not launch fill with grid 1x1x1, block 1025x1x1");
	fake->inject("cuLaunchKernel", 701, 1);
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_ENOTSUP);
	/* Nothing of this was queued. */
	struct device_done done;
	bool broken;
	assert_int_equal(device_cuda.poll(device, -1, 0, &done, 1, &broken), 0);
	device_cuda.unload(device, fill);
}

static void waits_only_as_long_as_it_may(void **state)
{
	(void)state;
	struct device_done done;
	bool broken;
	int wake[2];
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(pipe(wake), 0);
	fake->hold(1);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 40, 0), KILN_OK);
	assert_int_equal(device_cuda.poll(device, wake[0], 0, &done, 1, &broken), 0);
	uint64_t before = util_now_us();
	assert_int_equal(device_cuda.poll(device, wake[0], 5, &done, 1, &broken), 0);
	assert_in_range(util_now_us() - before, 5000, 20000000);
	assert_int_equal(write(wake[1], "x", 1), 1);
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 0);
	fake->hold(0);
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 1);
	assert_int_equal(done.ticket, 40);
	/* Idle: only the descriptor wakes it. */
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 0);
	close(wake[0]);
	close(wake[1]);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void keeps_the_order_of_a_stream(void **state)
{
	(void)state;
	enum { COUNT = 500 };
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	struct device_done done[7];
	uint64_t next[2] = {0, 1};
	bool broken;
	for (uint32_t i = 0; i < COUNT; i++)
		assert_int_equal(launch_fill(fill, memory, i, i % 2, i, 0), KILN_OK);
	uint64_t micros = 0;
	for (int got = 0; got < COUNT;) {
		int count = device_cuda.poll(device, -1, 10000, done, 7, &broken);
		assert_in_range(count, 1, 7);
		for (int i = 0; i < count; i++) {
			uint64_t stream = done[i].ticket % 2;
			assert_int_equal(done[i].ticket, next[stream]);
			next[stream] += 2;
			micros += done[i].micros;
		}
		got += count;
	}
	/* 250.5 us each: what is rounded off one answer is in the next. */
	assert_in_range(micros, 250 * COUNT + COUNT / 2 - 1, 250 * COUNT + COUNT / 2 + 1);
	int events = fake->calls("cuEventCreate");
	assert_int_equal(launch_fill(fill, memory, 99, 0, 9999, 0), KILN_OK);
	expect_done(9999);
	assert_int_equal(fake->calls("cuEventCreate"), events);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 3); /* two, and the one for memory */
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

/* The driver would keep the thread, and with it every other stream, until the kernel has ended. */
static void a_host_copy_waits_without_holding_others_up(void **state)
{
	(void)state;
	uint32_t word = 0;
	struct device_done done;
	bool broken;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	fake->hold(1);
	assert_int_equal(launch_fill(fill, memory, 21, 1, 1, 0), KILN_OK);
	assert_int_equal(device_cuda.copy(device, 1, 2, memory, 0, &word, 4, false, error), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 22, 1, 3, 0), KILN_OK);
	assert_int_equal(device_cuda.poll(device, -1, 2, &done, 1, &broken), 0);
	assert_int_equal(fake->calls("cuMemcpyDtoHAsync"), 0);
	assert_int_equal(fake->calls("cuLaunchKernel"), 1);
	fake->hold(0);
	expect_done(1);
	expect_done(2);
	assert_int_equal(word, 21);
	expect_done(3);
	assert_int_equal(first_word(memory), 22);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void ends_a_stream_after_its_work(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(launch_fill(fill, memory, 1, 8, 1, 0), KILN_OK);
	device_cuda.stream_end(device, 8);
	device_cuda.stream_end(device, 1234);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 2);
	expect_done(1);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 1);
	assert_int_equal(first_word(memory), 1);
	device_cuda.stream_end(device, 1);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 1);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void a_delay_holds_its_stream_alone(void **state)
{
	(void)state;
	uint32_t word = 0;
	struct device_memory *memory = alloc(16), *other = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(launch_fill(fill, memory, 11, 1, 1, 60000), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 12, 1, 2, 0), KILN_OK);
	assert_int_equal(device_cuda.copy(device, 1, 3, memory, 0, &word, 4, false, error), KILN_OK);
	assert_int_equal(launch_fill(fill, other, 13, 2, 4, 0), KILN_OK);
	expect_done(4);
	assert_true(device_cuda.cancel(device, &(uint64_t){1}, 1));
	assert_int_equal(next_done().status, KILN_ECANCELED);
	expect_done(2);
	expect_done(3);
	assert_int_equal(word, 12);
	/* And it ends. */
	uint64_t before = util_now_us();
	assert_int_equal(launch_fill(fill, memory, 11, 1, 1, 30), KILN_OK);
	expect_done(1);
	assert_true(util_now_us() - before >= 30000);
	assert_int_equal(first_word(memory), 11);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
	device_cuda.free(device, other);
}

static void work_that_fails_when_its_time_comes_is_reported(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(launch_fill(fill, memory, 11, 1, 1, 1), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 12, 1, 2, 0), KILN_OK);
	fake->inject("cuLaunchKernel", 1, 1);
	struct device_done done = next_done();
	assert_int_equal(done.ticket, 1);
	assert_int_equal(done.status, KILN_EINTERNAL);
	assert_non_null(strstr(done.error, "does not launch fill"));
	expect_done(2);
	assert_int_equal(first_word(memory), 12);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

/* ---- Failure ---- */

static void a_fault_ends_everything_and_names_its_call(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL), *fault = load(FAKE_FAULT);
	struct device_done done[8];
	bool broken = false;
	assert_int_equal(launch_fault(fault, 1, 21), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 22, 0), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 23, 60000), KILN_OK);
	/* The ends do not fit into one report: the first names the culprit. */
	assert_int_equal(device_cuda.poll(device, -1, 10000, done, 2, &broken), 2);
	assert_true(broken);
	assert_int_equal(device_cuda.poll(device, -1, 10000, done + 2, 6, &broken), 1);
	assert_true(broken);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(done[i].ticket, 21 + i);
		assert_int_equal(done[i].status, KILN_EDEVICE);
		assert_non_null(strstr(done[i].error, "CUDA_ERROR_ILLEGAL_ADDRESS 700"));
		assert_non_null(strstr(done[i].error, "call 21 (fault)"));
	}
	assert_string_equal(done[0].error,
						"cuda:0 failed in call 21 (fault): CUDA_ERROR_ILLEGAL_ADDRESS 700 (an "
						"illegal memory access was encountered); `kiln run ... --check` names the "
						"line of a bad access");
	/* Nothing works any more, and nothing waits. */
	assert_int_equal(launch_fill(fill, memory, 1, 1, 24, 0), KILN_EDEVICE);
	assert_int_equal(device_cuda.poll(device, -1, -1, done, 8, &broken), 0);
	assert_true(broken);
	device_cuda.unload(device, fill);
	device_cuda.unload(device, fault);
	device_cuda.free(device, memory);
	device_cuda.close(device);
	setup(NULL); /* what the broken context had is gone with its process */
}

static void a_fault_among_streams_names_all_that_ran(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL), *fault = load(FAKE_FAULT);
	struct device_done done[8];
	bool broken = false;
	fake->hold(1);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 31, 0), KILN_OK);
	assert_int_equal(launch_fault(fault, 2, 32), KILN_OK);
	fake->hold(0);
	assert_int_equal(device_cuda.poll(device, -1, 10000, done, 8, &broken), 2);
	assert_true(broken);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(done[i].status, KILN_EDEVICE);
		assert_non_null(strstr(done[i].error, "31 (fill)"));
		assert_non_null(strstr(done[i].error, "32 (fault)"));
	}
	device_cuda.unload(device, fill);
	device_cuda.unload(device, fault);
	device_cuda.free(device, memory);
	device_cuda.close(device);
	setup(NULL);
}

/* Drivers answer so when a GPU has left its bus, is reset, or is another's; some of it is also
 * said of one call alone, and then the context is asked. */
static void a_gpu_that_goes_away_is_noticed(void **state)
{
	(void)state;
	static const struct {
		int result;
		bool context_too, broken;
	} answers[] = {
		{46, false, true},   {719, false, true}, {214, false, true},  {4, false, true},
		{709, false, true},  {999, true, true},  {999, false, false}, {304, true, true},
		{304, false, false}, {100, true, true},  {101, true, true},   {3, true, true},
		{802, true, true},
	};
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		int result = answers[i].result;
		struct device_memory *memory = alloc(16);
		struct device_module *fill = load(FAKE_FILL);
		struct device_done done[2];
		char number[32];
		bool broken = false;
		snprintf(number, sizeof(number), "CUDA_ERROR_FAKE_%d %d", result, result);
		assert_int_equal(launch_fill(fill, memory, 1, 1, 41, 0), KILN_OK);
		fake->inject("cuEventQuery", result, answers[i].broken ? -1 : 1);
		if (answers[i].context_too)
			fake->inject("cuStreamQuery", result, -1);
		assert_int_equal(device_cuda.poll(device, -1, 10000, done, 2, &broken), 1);
		assert_int_equal(broken, answers[i].broken);
		assert_int_equal(done[0].ticket, 41);
		assert_int_equal(done[0].status, KILN_EDEVICE);
		assert_non_null(strstr(done[0].error, "cuda:0"));
		assert_non_null(strstr(done[0].error, number));
		if (broken)
			fake->inject("cuStreamSynchronize", result, -1);
		else
			assert_int_equal(first_word(memory), 1);
		device_cuda.unload(device, fill);
		device_cuda.free(device, memory);
		device_cuda.close(device);
		setup(NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(binds_operands_and_scalars),
		OPENED(copies_between_operands),
		OPENED(refuses_launches_that_do_not_fit),
		OPENED(waits_only_as_long_as_it_may),
		OPENED(keeps_the_order_of_a_stream),
		OPENED(a_host_copy_waits_without_holding_others_up),
		OPENED(ends_a_stream_after_its_work),
		OPENED(a_delay_holds_its_stream_alone),
		OPENED(work_that_fails_when_its_time_comes_is_reported),
		OPENED(a_fault_ends_everything_and_names_its_call),
		OPENED(a_gpu_that_goes_away_is_noticed),
		OPENED(a_fault_among_streams_names_all_that_ran),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
