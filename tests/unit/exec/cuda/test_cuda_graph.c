/*
 * Graphs on the cuda device, over the fake driver: launches recorded once and started together, in
 * the order of their stream, with scratch memory of the graph's own; what is refused, and what
 * becomes of a recording that fails.
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

#define COUNT 3

/* y = x + 1, z = y + 1 and a copy of z to x: each time the graph runs, x grows by two. */
struct steps {
	struct device_memory *x, *y, *z;
	struct device_module *add_one;
	struct kernel_arg args[3];
	struct device_operand operands[COUNT][2];
	struct device_launch launches[COUNT];
};

static void make_steps(struct steps *steps)
{
	memset(steps, 0, sizeof(*steps));
	steps->x = alloc(16);
	steps->y = alloc(16);
	steps->z = alloc(16);
	steps->add_one = load(FAKE_ADD_ONE);
	steps->args[0] = (struct kernel_arg){KERNEL_ARG_POINTER, 0, 8, 0};
	steps->args[1] = (struct kernel_arg){KERNEL_ARG_POINTER, 1, 8, 0};
	steps->args[2] = (struct kernel_arg){KERNEL_ARG_SCALAR, -1, 4, 4};
	struct device_memory *const memory[] = {steps->x, steps->y, steps->z, steps->x};
	for (int i = 0; i < COUNT; i++) {
		steps->operands[i][0] = (struct device_operand){memory[i], 0};
		steps->operands[i][1] = (struct device_operand){memory[i + 1], 0};
		steps->launches[i] = (struct device_launch){.module = steps->add_one,
													.grid = {1, 1, 1},
													.block = {32, 1, 1},
													.args = steps->args,
													.arg_count = 3,
													.operands = steps->operands[i],
													.operand_count = 2};
	}
	steps->launches[2].copies = true;
	steps->launches[2].copy_bytes = 16;
}

static void drop_steps(struct steps *steps)
{
	device_cuda.unload(device, steps->add_one);
	device_cuda.free(device, steps->x);
	device_cuda.free(device, steps->y);
	device_cuda.free(device, steps->z);
}

static struct device_graph *make(const struct device_launch *launches, int count)
{
	struct device_graph *graph = NULL;
	if (device_cuda.graph_make(device, launches, count, &graph, error) != KILN_OK)
		fail_msg("%s", error);
	return graph;
}

static int start(struct device_graph *graph, uint64_t stream, uint64_t ticket, bool untimed)
{
	const struct device_launch how = {.stream = stream, .ticket = ticket, .untimed = untimed};
	return device_cuda.graph_launch(device, graph, &how, error);
}

static void runs_again_and_again(void **state)
{
	(void)state;
	struct steps steps;
	make_steps(&steps);
	struct device_graph *graph = make(steps.launches, COUNT);
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 1);
	assert_int_equal(first_word(steps.x), 0); /* to record is not to run */
	int kernels = fake->calls("cuLaunchKernel");
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(start(graph, 5, i, false), KILN_OK);
		expect_done(i);
	}
	assert_int_equal(first_word(steps.x), 2000);
	assert_int_equal(first_word(steps.y), 1999);
	/* One call of the driver each, and nothing is kept of them. */
	assert_int_equal(fake->calls("cuLaunchKernel"), kernels);
	assert_int_equal(fake->calls("cuGraphLaunch"), 1000);
	assert_int_equal(fake->calls("cuStreamBeginCapture"), 1);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
	device_cuda.graph_free(device, graph);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	drop_steps(&steps);
}

/* Launched several times before any has ended, among ordinary launches: all in their order. */
static void keeps_the_order_of_its_stream(void **state)
{
	(void)state;
	struct steps steps;
	make_steps(&steps);
	struct device_module *fill = load(FAKE_FILL);
	struct device_graph *graph = make(steps.launches, COUNT);
	fake->hold(1);
	assert_int_equal(start(graph, 1, 1, false), KILN_OK);
	assert_int_equal(start(graph, 1, 2, false), KILN_OK);
	assert_int_equal(launch_fill(fill, steps.x, 100, 1, 3, 0), KILN_OK);
	assert_int_equal(start(graph, 1, 4, false), KILN_OK);
	fake->hold(0);
	for (uint64_t ticket = 1; ticket <= 4; ticket++)
		expect_done(ticket);
	assert_int_equal(first_word(steps.x), 102);
	/* Behind one that waits for its time. */
	assert_int_equal(launch_fill(fill, steps.x, 7, 1, 5, 20), KILN_OK);
	assert_int_equal(start(graph, 1, 6, false), KILN_OK);
	expect_done(5);
	expect_done(6);
	assert_int_equal(first_word(steps.x), 9);
	/* Canceled before its turn came. */
	assert_int_equal(launch_fill(fill, steps.x, 50, 1, 7, 20), KILN_OK);
	assert_int_equal(start(graph, 1, 8, false), KILN_OK);
	device_cuda.cancel(device, &(uint64_t){8}, 1);
	for (int i = 0; i < 2; i++) {
		struct device_done done = next_done();
		assert_int_equal(done.status, done.ticket == 8 ? KILN_ECANCELED : KILN_OK);
	}
	assert_int_equal(first_word(steps.x), 50);
	device_cuda.graph_free(device, graph);
	device_cuda.unload(device, fill);
	drop_steps(&steps);
}

static void untimed_ones_end_by_marks(void **state)
{
	(void)state;
	struct steps steps;
	make_steps(&steps);
	struct device_graph *graph = make(steps.launches, COUNT);
	int events = fake->calls("cuEventRecord");
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(start(graph, 5, i, true), KILN_OK);
	for (uint64_t i = 0; i < 20; i++) {
		struct device_done done = next_done();
		assert_int_equal(done.ticket, i);
		assert_int_equal(done.status, KILN_OK);
		assert_int_equal(done.micros, 0);
	}
	assert_int_equal(fake->calls("cuEventRecord"), events);
	assert_int_equal(fake->calls("cuStreamWriteValue32"), 1);
	assert_int_equal(first_word(steps.x), 40);
	device_cuda.graph_free(device, graph);
	drop_steps(&steps);
}

/* ---- Scratch memory ---- */

/* The words that FAKE_TALLY writes: where its scratch memory was, and how many counters were not
 * zero. */
struct tally {
	uint64_t at, not_zero;
};

#define TALLIES 5

/* Sizes at which one launch's other memory lies where the next one's counters are. */
static void scratch_is_the_graphs_own(void **state)
{
	static const struct kernel_scratch sizes[TALLIES] = {
		{9000, 4}, {700, 256}, {70000, 1000}, {255, 255}, {512, 0}};
	(void)state;
	struct device_memory *y = alloc(TALLIES * sizeof(struct tally));
	struct device_module *module = load(FAKE_TALLY);
	struct kernel_arg args[TALLIES][4];
	struct device_operand operands[TALLIES];
	struct device_launch launches[TALLIES];
	for (int i = 0; i < TALLIES; i++) {
		args[i][0] = (struct kernel_arg){KERNEL_ARG_SCRATCH, -1, 8, 0};
		args[i][1] = (struct kernel_arg){KERNEL_ARG_POINTER, 0, 8, 0};
		args[i][2] = (struct kernel_arg){KERNEL_ARG_SCALAR, -1, 8, sizes[i].bytes};
		args[i][3] = (struct kernel_arg){KERNEL_ARG_SCALAR, -1, 8, sizes[i].counters};
		operands[i] = (struct device_operand){y, (uint64_t)i * sizeof(struct tally)};
		launches[i] = (struct device_launch){.module = module,
											 .grid = {1, 1, 1},
											 .block = {32, 1, 1},
											 .args = args[i],
											 .arg_count = 4,
											 .operands = &operands[i],
											 .operand_count = 1,
											 .scratch = sizes[i]};
	}
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	struct device_graph *graph = make(launches, TALLIES);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks + 1);
	struct tally said[2][TALLIES];
	for (int round = 0; round < 10; round++) {
		/* An ordinary launch between, with the stream's own. */
		launches[0].stream = 3;
		launches[0].ticket = 99;
		assert_int_equal(device_cuda.launch(device, &launches[0], error), KILN_OK);
		expect_done(99);
		transfer(y, 0, said[0], sizeof(said[0]), false);
		assert_int_equal(start(graph, 3, 1, false), KILN_OK);
		expect_done(1);
		transfer(y, 0, said[1], sizeof(said[1]), false);
		for (int i = 0; i < TALLIES; i++) {
			assert_int_equal(said[1][i].not_zero, 0);
			assert_int_equal(said[1][i].at % 256, 0);
			assert_true(said[1][i].at != 0 && said[1][i].at != said[0][0].at);
		}
	}
	device_cuda.graph_free(device, graph);
	device_cuda.stream_end(device, 3);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
	/* Counters of one size need nobody to clear them. */
	int sets = fake->calls("cuMemsetD8Async");
	graph = make(launches, 1);
	assert_int_equal(fake->calls("cuMemsetD8Async"), sets + 1);
	device_cuda.graph_free(device, graph);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

/* ---- What is refused, and what fails ---- */

static void refusals_name_the_launch(void **state)
{
	(void)state;
	struct steps steps;
	struct device_graph *graph = NULL;
	make_steps(&steps);
	assert_int_equal(device_cuda.graph_make(device, steps.launches, 0, &graph, error), KILN_EINVAL);
	assert_sentence("a graph of 0 launches is none: it needs at least one");
	steps.launches[1].report.indices = 5;
	assert_int_equal(device_cuda.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_ENOTSUP);
	assert_sentence("launch 2 of 3: its kernel counts indices that are out of range");
	steps.launches[1].report.indices = 0;
	steps.launches[2].copy_bytes = 17;
	assert_int_equal(device_cuda.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_EINVAL);
	assert_sentence("launch 3 of 3: operand 0 needs 17 bytes from byte 0 of a buffer of 16");
	steps.launches[2].copy_bytes = 16;
	steps.launches[0].block[0] = 2048;
	assert_int_equal(device_cuda.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_EINTERNAL);
	assert_sentence("launch 1 of 3: cuda:0 does not launch add_one");
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	assert_null(graph);
	drop_steps(&steps);
}

/* Whatever fails: a sentence, nothing left (see teardown), and the next one is made. */
static void failing_calls_of_the_driver(void **state)
{
	static const char *const functions[] = {"cuStreamCreate",     "cuStreamBeginCapture",
											"cuLaunchKernel",     "cuMemcpyDtoDAsync",
											"cuStreamEndCapture", "cuGraphInstantiateWithFlags",
											"cuGraphUpload",      "cuStreamSynchronize"};
	(void)state;
	struct steps steps;
	make_steps(&steps);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		struct device_graph *graph = NULL;
		fake->inject(functions[i], 801, 1);
		assert_int_equal(device_cuda.graph_make(device, steps.launches, COUNT, &graph, error),
						 KILN_EINTERNAL);
		assert_null(graph);
		assert_sentence("CUDA_ERROR_FAKE_801");
		assert_sentence(strstr(functions[i], "cuMemcpy") ? "launch 3 of 3: cuda:0 cannot copy"
						: strstr(functions[i], "Kernel") ? "launch 1 of 3: cuda:0 does not launch"
														 : "a graph of 3 launches");
		assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	}
	struct device_graph *graph = make(steps.launches, COUNT);
	fake->inject("cuGraphLaunch", 801, 1);
	assert_int_equal(start(graph, 1, 1, false), KILN_EINTERNAL);
	assert_sentence("cuda:0 does not launch a graph of 3 launches: CUDA_ERROR_FAKE_801");
	assert_int_equal(start(graph, 1, 2, false), KILN_OK);
	expect_done(2);
	device_cuda.graph_free(device, graph);
	drop_steps(&steps);
}

static void without_memory_for_scratch(void **state)
{
	(void)state;
	const struct kernel_arg args[] = {{KERNEL_ARG_SCRATCH, -1, 8, 0},
									  {KERNEL_ARG_POINTER, 0, 8, 0},
									  {KERNEL_ARG_SCALAR, -1, 8, 5000},
									  {KERNEL_ARG_SCALAR, -1, 8, 4}};
	struct device_memory *y = alloc(16);
	struct device_module *module = load(FAKE_TALLY);
	const struct device_operand operands[] = {{y, 0}};
	const struct device_launch launch = {.module = module,
										 .grid = {1, 1, 1},
										 .block = {32, 1, 1},
										 .args = args,
										 .arg_count = 4,
										 .operands = operands,
										 .operand_count = 1,
										 .scratch = {5000, 4}};
	struct device_graph *graph = NULL;
	fake->inject("cuMemAllocFromPoolAsync", 2, 2);
	assert_int_equal(device_cuda.graph_make(device, &launch, 1, &graph, error), KILN_ENOMEM);
	assert_sentence("cuda:0 cannot give 8840 bytes of scratch memory");
	assert_int_equal(fake->calls("cuStreamBeginCapture"), 0);
	device_cuda.unload(device, module);
	device_cuda.free(device, y);
}

static void a_fault_names_the_graph(void **state)
{
	(void)state;
	struct device_module *fault = load(FAKE_FAULT);
	const struct device_launch launch = {.module = fault, .grid = {1, 1, 1}, .block = {1, 1, 1}};
	const struct device_launch launches[] = {launch, launch};
	struct device_graph *graph = make(launches, 2);
	struct device_done done;
	bool broken = false;
	assert_int_equal(start(graph, 1, 9, true), KILN_OK);
	assert_int_equal(device_cuda.poll(device, -1, 10000, &done, 1, &broken), 1);
	assert_true(broken);
	assert_int_equal(done.ticket, 9);
	assert_int_equal(done.status, KILN_EDEVICE);
	snprintf(error, sizeof(error), "%s", done.error);
	assert_sentence("failed in call 9 (a graph of 2 launches): CUDA_ERROR_ILLEGAL_ADDRESS");
	device_cuda.graph_free(device, graph);
	device_cuda.unload(device, fault);
}

static void empty_copies_are_no_work(void **state)
{
	(void)state;
	struct device_memory *x = alloc(16);
	const struct device_operand operands[] = {{x, 16}, {x, 0}};
	const struct device_launch launch = {.copies = true, .operands = operands, .operand_count = 2};
	struct device_graph *graph = make(&launch, 1);
	assert_int_equal(start(graph, 1, 4, false), KILN_OK);
	expect_done(4);
	assert_int_equal(fake->calls("cuMemcpyDtoDAsync"), 0);
	device_cuda.graph_free(device, graph);
	device_cuda.graph_free(device, NULL);
	device_cuda.free(device, x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(runs_again_and_again),       OPENED(keeps_the_order_of_its_stream),
		OPENED(untimed_ones_end_by_marks),  OPENED(scratch_is_the_graphs_own),
		OPENED(refusals_name_the_launch),   OPENED(failing_calls_of_the_driver),
		OPENED(without_memory_for_scratch), OPENED(a_fault_names_the_graph),
		OPENED(empty_copies_are_no_work),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
