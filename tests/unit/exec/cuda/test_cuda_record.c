/*
 * Launches that repeat, on the cuda device over the fake driver: they are recorded and launched as
 * graphs, in the order of their streams and with the ends and words that launches have anyhow; what
 * ends a recording, and what becomes of launches that the driver does not record or launch so.
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

#define REPEATS 4 /* so often a kernel is launched on a stream before it is recorded */
#define OBJECTS 4 /* of the driver, that a recording is */

static struct device_memory *y;
static struct device_module *fill;

struct how {
	bool timed, now;
	_Atomic uint32_t *word;
	uint32_t value;
};

static int launch_on(struct device *part, uint32_t value, uint64_t stream, uint64_t ticket,
					 struct how how)
{
	const struct device_launch what = {.untimed = !how.timed,
									   .done_word = how.word,
									   .done_value = how.value,
									   .done_last = !how.now,
									   .ticket = ticket,
									   .stream = stream};
	return launch_fill_on(part, fill, (struct device_operand){y, 16 * stream}, value, what);
}

static void launch(uint32_t value, uint64_t stream, uint64_t ticket)
{
	if (launch_on(device, value, stream, ticket, (struct how){0}) != KILN_OK)
		fail_msg("%s", error);
}

static struct device_done end_of(uint64_t ticket, int status)
{
	struct device_done done = next_done();
	assert_int_equal(done.ticket, ticket);
	assert_int_equal(done.status, status);
	return done;
}

static uint32_t word_of(uint64_t stream)
{
	uint32_t word = 0;
	assert_int_equal(device_cuda.copy(device, stream, 77, y, 16 * stream, &word, 4, false, error),
					 KILN_OK);
	end_of(77, KILN_OK);
	return word;
}

/* From now on the kernel is a recorded one on this stream. */
static void repeat(uint32_t value, uint64_t stream)
{
	int graphs = fake->live(FAKE_LIVE_GRAPHS);
	for (uint64_t i = 0; i < REPEATS; i++) {
		launch(value, stream, 1000 + i);
		end_of(1000 + i, KILN_OK);
	}
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), graphs + OBJECTS);
}

static void begin(void)
{
	y = alloc(4096);
	fill = load(FAKE_FILL);
}

static void finish(void)
{
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
}

/* The last of launches that come together tells for all. */
static void one_tells_for_many(void **state)
{
	(void)state;
	begin();
	repeat(7, 1);
	int kernels = fake->calls("cuLaunchKernel"), writes = fake->calls("cuStreamWriteValue32"),
		graphs = fake->calls("cuGraphLaunch");
	for (int round = 0; round < 3; round++) {
		fake->hold(1);
		for (uint64_t i = 0; i < 20; i++)
			launch(7, 1, i);
		device_cuda.flush(device);
		assert_int_equal(fake->calls("cuGraphLaunch"), graphs + 20 * (round + 1));
		struct device_done done;
		bool broken;
		assert_int_equal(device_cuda.poll(device, -1, 0, &done, 1, &broken), 0);
		fake->hold(0);
		for (uint64_t i = 0; i < 20; i++)
			end_of(i, KILN_OK);
	}
	assert_int_equal(fake->calls("cuLaunchKernel"), kernels);
	assert_int_equal(fake->calls("cuGraphExecKernelNodeSetParams"), 0);
	assert_int_equal(word_of(1), 7);
	/* With other arguments it is the same recording. */
	for (uint64_t i = 0; i < 6; i++)
		launch(8 + (uint32_t)i / 3, 1, i);
	for (uint64_t i = 0; i < 6; i++)
		end_of(i, KILN_OK);
	assert_int_equal(fake->calls("cuLaunchKernel"), kernels);
	assert_int_equal(fake->calls("cuGraphExecKernelNodeSetParams"), 3);
	assert_int_equal(word_of(1), 9);
	assert_int_equal(fake->calls("cuStreamWriteValue32"), writes);
	finish();
}

/* Nothing that is done on several streams with recorded launches, others, timed ones and copies
 * loses its order or its end. */
static void any_mixture_keeps_its_order(void **state)
{
	(void)state;
	enum { STREAMS = 3, ROUNDS = 3000 };
	begin();
	uint32_t random = 12345, last[STREAMS] = {0};
	uint64_t given[STREAMS] = {0}, ended[STREAMS] = {0};
	for (int round = 0; round < ROUNDS || memcmp(given, ended, sizeof(given)) != 0; round++) {
		random = random * 1664525 + 1013904223;
		uint64_t stream = (random >> 8) % STREAMS, ticket = given[stream] * STREAMS + stream;
		uint32_t value = (random >> 12) % 3 + 1;
		unsigned what = (random >> 16) % 16;
		static uint32_t copied[STREAMS][4];
		if (round < ROUNDS && what < 12) {
			assert_int_equal(launch_on(device, what < 2 ? 1000 + (uint32_t)round : value, stream,
									   ticket, (struct how){.timed = what == 2}),
							 KILN_OK);
			last[stream] = what < 2 ? 1000 + (uint32_t)round : value;
			given[stream]++;
		} else if (round < ROUNDS && what == 12) {
			assert_int_equal(device_cuda.copy(device, stream, ticket, y, 16 * stream,
											  copied[stream], 16, false, error),
							 KILN_OK);
			given[stream]++;
		} else if (what == 13) {
			device_cuda.flush(device);
		} else {
			struct device_done done[5];
			bool broken;
			int count = device_cuda.poll(device, -1, 0, done, 5, &broken);
			for (int i = 0; i < count; i++) {
				uint64_t of = done[i].ticket % STREAMS;
				assert_int_equal(done[i].status, KILN_OK);
				assert_int_equal(done[i].ticket, ended[of] * STREAMS + of);
				ended[of]++;
			}
		}
		assert_true(round < 100 * ROUNDS);
	}
	for (uint64_t stream = 0; stream < STREAMS; stream++)
		assert_int_equal(word_of(stream), last[stream]);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS * STREAMS);
	finish();
}

/* The word of a launch that needs it at once does not wait for launches behind it. */
static void words_for_clients(void **state)
{
	(void)state;
	static _Atomic uint32_t words[2];
	struct device_done done;
	bool broken;
	begin();
	memset(words, 0, sizeof(words));
	assert_true(device_cuda.share_words(device, words, sizeof(words)));
	repeat(7, 1);
	int writes = fake->calls("cuStreamWriteValue32");
	assert_int_equal(launch_on(device, 7, 1, 1, (struct how){.word = &words[0], .value = 11}),
					 KILN_OK);
	end_of(1, KILN_OK);
	assert_int_equal(words[0], 11);
	int graphs = fake->calls("cuGraphLaunch");
	assert_int_equal(
		launch_on(device, 7, 1, 2, (struct how){.now = true, .word = &words[1], .value = 12}),
		KILN_OK);
	assert_int_equal(fake->calls("cuGraphLaunch"), graphs + 1);
	assert_int_equal(words[1], 0); /* its end is not known yet */
	fake->hold(1);
	launch(7, 1, 3);
	assert_int_equal(device_cuda.poll(device, -1, 0, &done, 1, &broken), 0);
	fake->hold(0);
	end_of(2, KILN_OK);
	assert_int_equal(words[1], 12);
	end_of(3, KILN_OK);
	assert_int_equal(fake->calls("cuStreamWriteValue32"), writes);
	device_cuda.unshare_words(device, words);
	finish();
}

/* A kernel at the place of one that was unloaded, and memory at that of memory that was freed, are
 * not taken for these. */
static void modules_and_memory_come_and_go(void **state)
{
	(void)state;
	begin();
	repeat(7, 1);
	repeat(8, 2);
	device_cuda.unload(device, fill);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	struct device_module *add_one = load(FAKE_ADD_ONE);
	fill = load(FAKE_FILL);
	repeat(7, 1);
	device_cuda.free(device, y);
	y = alloc(4096);
	launch(7, 1, 5);
	end_of(5, KILN_OK);
	assert_int_equal(word_of(1), 7);
	device_cuda.unload(device, add_one);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS);
	device_cuda.stream_end(device, 1);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	finish();
}

/* The stream ends between a launch and the look that would give it to the driver. */
static void a_stream_ends_with_a_launch_ahead(void **state)
{
	(void)state;
	begin();
	repeat(7, 1);
	launch(7, 1, 5);
	device_cuda.stream_end(device, 1);
	end_of(5, KILN_OK);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	finish();
}

/* It is launched as it is then, and the driver tells if that fails, too. */
static void the_driver_does_not_launch_it(void **state)
{
	(void)state;
	static const char *const functions[] = {"cuGraphLaunch", "cuGraphExecKernelNodeSetParams"};
	begin();
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t stream = 1 + i;
		repeat(7, stream);
		launch(8, stream, 1);
		launch(8, stream, 2);
		fake->inject(functions[i], 2, 1);
		launch(8, stream, 3); /* gives 2 to the driver */
		for (uint64_t ticket = 1; ticket <= 3; ticket++)
			end_of(ticket, KILN_OK);
		int graphs = fake->calls("cuGraphLaunch");
		launch(9, stream, 4);
		end_of(4, KILN_OK);
		assert_int_equal(fake->calls("cuGraphLaunch"), graphs);
		assert_int_equal(word_of(stream), 9);
	}
	repeat(7, 3);
	launch(8, 3, 1);
	launch(8, 3, 2);
	fake->inject("cuGraphLaunch", 2, 1);
	fake->inject("cuLaunchKernel", 2, 1);
	/* The last of a batch was to tell for those before it. */
	struct device_done done = end_of(2, KILN_ENOMEM);
	assert_non_null(strstr(done.error, "does not launch fill with grid 1x1x1"));
	end_of(1, KILN_OK);
	finish();
}

static void the_driver_does_not_record(void **state)
{
	(void)state;
	static const char *const functions[] = {"cuStreamBeginCapture",        "cuStreamEndCapture",
											"cuGraphInstantiateWithFlags", "cuGraphGetRootNodes",
											"cuMemAllocFromPoolAsync",     "cuStreamCreate"};
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		begin();
		launch(7, 1 + i, 0);
		end_of(0, KILN_OK);
		fake->inject(functions[sizeof(functions) / sizeof(functions[0]) - 1 - i], 999, 1);
		for (uint64_t k = 1; k < REPEATS; k++) {
			launch(7, 1 + i, k);
			end_of(k, KILN_OK);
		}
		assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
		for (uint64_t k = REPEATS; k < 2 * REPEATS; k++) {
			launch(7, 1 + i, k);
			end_of(k, KILN_OK);
		}
		assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS);
		assert_int_equal(word_of(1 + i), 7);
		finish();
	}
}

/* A part records for itself, and not more than it may. */
static void there_is_a_limit(void **state)
{
	(void)state;
	enum { MODULES = 16, STREAMS = 18, MOST = 256 };
	struct device *parts[2];
	struct device_module *modules[MODULES];
	begin();
	assert_int_equal(device_cuda.split(device, 2, parts, error), KILN_OK);
	for (int i = 0; i < MODULES; i++)
		modules[i] = load(FAKE_FILL);
	for (int i = 0; i < MODULES * STREAMS; i++) {
		struct device_module *before = fill;
		fill = modules[i % MODULES];
		for (uint64_t k = 0; k <= REPEATS; k++) {
			struct device_done done;
			bool broken;
			uint64_t stream = (uint64_t)(i / MODULES);
			assert_int_equal(launch_on(parts[1], 7, stream, k, (struct how){0}), KILN_OK);
			assert_int_equal(device_cuda.poll(parts[1], -1, 10000, &done, 1, &broken), 1);
			assert_int_equal(done.ticket, k);
			assert_int_equal(done.status, KILN_OK);
		}
		fill = before;
	}
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS * MOST);
	repeat(7, 1);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS * MOST + OBJECTS);
	for (int i = 0; i < MODULES; i++)
		device_cuda.unload(device, modules[i]);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), OBJECTS);
	finish();
}

/* A fault on one stream: the recorded launch behind it, and the one of another stream. */
static void a_fault_among_them(void **state)
{
	(void)state;
	struct device_done done[4];
	bool broken = false;
	begin();
	struct device_module *fault = load(FAKE_FAULT);
	repeat(7, 1);
	repeat(7, 2);
	fake->hold(1);
	launch(7, 2, 1);
	const struct device_launch bad = {.module = fault,
									  .grid = {1, 1, 1},
									  .block = {1, 1, 1},
									  .untimed = true,
									  .ticket = 2,
									  .stream = 1};
	assert_int_equal(device_cuda.launch(device, &bad, error), KILN_OK);
	launch(7, 1, 3);
	device_cuda.flush(device);
	fake->hold(0);
	int count = 0;
	while (!broken && count < 3)
		count += device_cuda.poll(device, -1, 10000, done + count, 4 - count, &broken);
	assert_true(broken);
	assert_int_equal(count, 3);
	for (int i = 0; i < count; i++) {
		if (done[i].status == KILN_OK) {
			assert_int_equal(done[i].ticket, 1);
			continue;
		}
		assert_int_equal(done[i].status, KILN_EDEVICE);
		assert_non_null(strstr(done[i].error, "2 (fault)"));
		assert_int_equal(done[i].culprit, done[i].ticket != 3);
	}
	device_cuda.unload(device, fault);
	device_cuda.unload(device, fill);
	device_cuda.free(device, y);
	device_cuda.close(device);
	setup(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(one_tells_for_many),
		OPENED(any_mixture_keeps_its_order),
		OPENED(words_for_clients),
		OPENED(modules_and_memory_come_and_go),
		OPENED(a_stream_ends_with_a_launch_ahead),
		OPENED(the_driver_does_not_launch_it),
		OPENED(the_driver_does_not_record),
		OPENED(there_is_a_limit),
		OPENED(a_fault_among_them),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
