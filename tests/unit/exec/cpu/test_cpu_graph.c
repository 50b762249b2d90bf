/*
 * Graphs on the cpu device: launches that run one after another as one piece of work, in the order
 * of their stream; what is refused, and which launch is named when one fails.
 */
#include "cpu_scene.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 3
#define WORDS 1000

#define assert_sentence(text, part)                                          \
	do {                                                                     \
		if (!strstr(text, part))                                             \
			fail_msg("the sentence \"%s\" does not say \"%s\"", text, part); \
	} while (0)

static struct device_done next_done(void)
{
	struct device_done done = {0};
	bool broken = false;
	assert_int_equal(device_cpu.poll(device, -1, 20000, &done, 1, &broken), 1);
	return done;
}

static void expect_done(uint64_t ticket)
{
	struct device_done done = next_done();
	assert_string_equal(done.error, "");
	assert_int_equal(done.status, KILN_OK);
	assert_int_equal(done.ticket, ticket);
}

/* Returns the word that all WORDS words of the buffer are. */
static uint32_t word(struct device_memory *memory)
{
	uint32_t words[WORDS];
	transfer(memory, words, sizeof(words), false);
	for (int i = 1; i < WORDS; i++)
		assert_int_equal(words[i], words[0]);
	return words[0];
}

static void set_words(struct device_memory *memory, uint32_t value)
{
	uint32_t words[WORDS];
	for (int i = 0; i < WORDS; i++)
		words[i] = value;
	transfer(memory, words, sizeof(words), true);
}

/* y = 3 x, z = y and x = z * by: a scalar's bits, and those of 4 bytes of data. */
struct steps {
	struct device_memory *x, *y, *z;
	struct device_module *scale;
	uint32_t by;
	struct kernel_arg args[COUNT][4];
	struct device_operand operands[COUNT][2];
	struct device_launch launches[COUNT];
};

static void make_steps(struct steps *steps, uint32_t by)
{
	memset(steps, 0, sizeof(*steps));
	steps->x = alloc(4 * WORDS);
	steps->y = alloc(4 * WORDS);
	steps->z = alloc(4 * WORDS);
	steps->scale = load("scale<unsigned>");
	steps->by = by;
	struct device_memory *const memory[] = {steps->x, steps->y, steps->z, steps->x};
	for (int i = 0; i < COUNT; i++) {
		struct kernel_arg *args = steps->args[i];
		args[0] = (struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = 0};
		args[1] = (struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = 1};
		args[2] = (struct kernel_arg){.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = WORDS};
		args[3] = (struct kernel_arg){.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = 3};
		steps->operands[i][0] = (struct device_operand){memory[i], 0, 0, "from"};
		steps->operands[i][1] = (struct device_operand){memory[i + 1], 0, 0, "to"};
		steps->launches[i] = (struct device_launch){.module = steps->scale,
													.grid = {(WORDS + 31) / 32, 1, 1},
													.block = {32, 1, 1},
													.args = args,
													.arg_count = 4,
													.operands = steps->operands[i],
													.operand_count = 2};
	}
	steps->launches[1].copies = true;
	steps->launches[1].copy_bytes = 4 * WORDS;
	steps->args[2][3] = (struct kernel_arg){
		.kind = KERNEL_ARG_BYTES, .operand = -1, .bytes = 4, .data = &steps->by};
}

static void drop_steps(struct steps *steps)
{
	device_cpu.unload(device, steps->scale);
	device_cpu.free(device, steps->x);
	device_cpu.free(device, steps->y);
	device_cpu.free(device, steps->z);
}

static struct device_graph *make(const struct device_launch *launches, int count)
{
	struct device_graph *graph = NULL;
	if (device_cpu.graph_make(device, launches, count, &graph, error) != KILN_OK)
		fail_msg("%s", error);
	return graph;
}

static void start(struct device_graph *graph, uint64_t stream, uint64_t ticket)
{
	const struct device_launch how = {.stream = stream, .ticket = ticket};
	if (device_cpu.graph_launch(device, graph, &how, error) != KILN_OK)
		fail_msg("%s", error);
}

static int setup(void **state)
{
	struct device_info info;
	(void)state;
	error[0] = 0;
	return device_cpu.open(NULL, &device, &info, error);
}

static int teardown(void **state)
{
	(void)state;
	device_cpu.close(device);
	return 0;
}

static void runs_again_and_again(void **state)
{
	(void)state;
	struct steps steps;
	uint32_t expected = 1;
	make_steps(&steps, 5);
	struct device_graph *graph = make(steps.launches, COUNT);
	memset(steps.launches, 0xff, sizeof(steps.launches)); /* all of it was copied */
	memset(steps.args, 0xff, sizeof(steps.args));
	memset(steps.operands, 0xff, sizeof(steps.operands));
	steps.by = 0;
	set_words(steps.x, 1);
	for (uint64_t i = 0; i < 1000; i++) {
		start(graph, 5, i);
		expect_done(i);
		expected *= 15;
	}
	assert_int_equal(word(steps.x), expected);
	device_cpu.graph_free(device, graph);
	drop_steps(&steps);
}

/* Many at once, among ordinary launches of the same stream, beside another stream with its own. */
static void keeps_the_order_of_its_stream(void **state)
{
	(void)state;
	struct steps steps[2];
	struct device_graph *graphs[2];
	uint64_t next[2] = {0, 1000};
	uint32_t expected = 1;
	for (int i = 0; i < 2; i++) {
		make_steps(&steps[i], 1);
		set_words(steps[i].x, 1);
		graphs[i] = make(steps[i].launches, COUNT);
	}
	for (uint64_t round = 0; round < 50; round++) {
		for (uint64_t i = 0; i < 2; i++) {
			/* x = 3 x at once: lost if it comes while the graph works on y and z. */
			const struct device_operand both[2] = {{steps[i].x, 0, 0, "x"},
												   {steps[i].x, 0, 0, "x"}};
			struct device_launch launch = steps[i].launches[0];
			launch.operands = both;
			launch.stream = 1 + i;
			launch.ticket = 1000 * i + 2 * round;
			launch.delay_ms = round == 0 ? 20 : 0;
			assert_int_equal(device_cpu.launch(device, &launch, error), KILN_OK);
			start(graphs[i], 1 + i, 1000 * i + 2 * round + 1);
		}
		expected *= 9;
	}
	for (int ends = 0; ends < 200; ends++) {
		struct device_done done = next_done();
		assert_int_equal(done.status, KILN_OK);
		assert_int_equal(done.ticket, next[done.ticket / 1000]++);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(word(steps[i].x), expected);
		device_cpu.graph_free(device, graphs[i]);
		drop_steps(&steps[i]);
	}
}

/* One graph on many streams runs once at a time: else two would start from the same x. */
static void several_streams_share_one(void **state)
{
	(void)state;
	struct steps steps;
	make_steps(&steps, 5);
	uint32_t expected = 1;
	set_words(steps.x, 1);
	struct device_graph *graph = make(steps.launches, COUNT);
	for (uint64_t i = 0; i < 100; i++)
		start(graph, i % 5, i);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(next_done().status, KILN_OK);
		expected *= 15;
	}
	assert_int_equal(word(steps.x), expected);
	device_cpu.graph_free(device, graph);
	drop_steps(&steps);
}

/* Before its turn it is canceled whole; an end is the sum of its launches. */
static void canceled_and_timed(void **state)
{
	(void)state;
	struct steps steps;
	make_steps(&steps, 5);
	set_words(steps.x, 1);
	struct device_graph *graph = make(steps.launches, COUNT);
	struct device_launch first = steps.launches[0];
	first.stream = 1;
	first.ticket = 1;
	first.delay_ms = 60000;
	assert_int_equal(device_cpu.launch(device, &first, error), KILN_OK);
	start(graph, 1, 2);
	device_cpu.cancel(device, &(uint64_t){2}, 1);
	device_cpu.cancel(device, &(uint64_t){1}, 1);
	for (uint64_t ticket = 1; ticket <= 2; ticket++) {
		struct device_done done = next_done();
		assert_int_equal(done.ticket, ticket);
		assert_int_equal(done.status, KILN_ECANCELED);
		assert_string_equal(done.error, "the call was canceled before it started");
	}
	assert_int_equal(word(steps.x), 1);
	device_cpu.graph_free(device, graph);

	struct device_launch *many = calloc(200, sizeof(*many));
	for (int i = 0; i < 200; i++)
		many[i] = steps.launches[i % COUNT];
	graph = make(many, 200);
	start(graph, 1, 3);
	struct device_done done = next_done();
	assert_int_equal(done.status, KILN_OK);
	assert_true(done.micros > 0);
	device_cpu.graph_free(device, graph);
	free(many);
	drop_steps(&steps);
}

static void refusals_name_the_launch(void **state)
{
	(void)state;
	struct steps steps;
	struct device_graph *graph = NULL;
	make_steps(&steps, 5);
	assert_int_equal(device_cpu.graph_make(device, steps.launches, 0, &graph, error), KILN_EINVAL);
	assert_sentence(error, "a graph of 0 launches is none: it needs at least one");
	steps.launches[1].copy_bytes++;
	assert_int_equal(device_cpu.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_EINVAL);
	assert_sentence(error, "launch 2 of 3: a copy of 4001 bytes needs two operands");
	steps.launches[1].copy_bytes--;
	steps.args[2][1].kind = KERNEL_ARG_REPORT;
	assert_int_equal(device_cpu.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_ENOTSUP);
	assert_sentence(error, "launch 3 of 3: its kernel counts indices that are out of range, for "
						   "the end of each launch, and a graph has one end for all: submit that "
						   "call by itself");
	steps.args[2][1].kind = KERNEL_ARG_POINTER;
	steps.launches[0].arg_count = 3;
	assert_int_equal(device_cpu.graph_make(device, steps.launches, COUNT, &graph, error),
					 KILN_EINVAL);
	assert_sentence(error, "launch 1 of 3: the kernel takes 4 arguments and was given 3");
	assert_null(graph);
	device_cpu.graph_free(device, NULL);
	drop_steps(&steps);
}

/* Each launch gets scratch memory that is right for it, and its counters are looked after. */
static void a_launch_that_fails_ends_the_graph(void **state)
{
	(void)state;
	struct device_module *right = load("sum<0>"), *wrong = load("sum<1>");
	struct device_memory *y[3];
	const struct kernel_arg args[] = {{.kind = KERNEL_ARG_SCRATCH, .operand = -1},
									  {.kind = KERNEL_ARG_POINTER, .operand = 0},
									  {.kind = KERNEL_ARG_POINTER, .operand = 1},
									  {.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = 500}};
	struct device_operand operands[3][2];
	struct device_launch launches[3];
	for (int i = 0; i < 3; i++) {
		y[i] = alloc(16);
		operands[i][0] = (struct device_operand){NULL, 0, 0, "x"};
		operands[i][1] = (struct device_operand){y[i], 0, 0, "y"};
		launches[i] = (struct device_launch){.module = right,
											 .grid = {63u >> i, 1, 1},
											 .block = {1, 1, 1},
											 .args = args,
											 .arg_count = 4,
											 .operands = operands[i],
											 .operand_count = 2,
											 .scratch = {4 * (1 + (63u >> i)), 4}};
	}
	struct device_graph *graph = make(launches, 3);
	uint32_t words[4];
	for (int round = 0; round < 20; round++) {
		start(graph, 1, 1);
		expect_done(1);
	}
	for (int i = 0; i < 3; i++) {
		transfer(y[i], words, sizeof(words), false);
		assert_int_equal(words[0], 500);
		memset(words, 0, sizeof(words));
		transfer(y[i], words, sizeof(words), true);
	}
	device_cpu.graph_free(device, graph);

	launches[1].module = wrong;
	graph = make(launches, 3);
	start(graph, 1, 2);
	struct device_done done = next_done();
	assert_int_equal(done.ticket, 2);
	assert_int_equal(done.status, KILN_EDEVICE);
	assert_sentence(done.error, "launch 2 of 3: byte 0 of the 4 counter bytes of scratch memory");
	transfer(y[1], words, sizeof(words), false);
	assert_int_equal(words[0], 500);
	transfer(y[2], words, sizeof(words), false);
	assert_int_equal(words[0], 0); /* what comes after is not started */
	device_cpu.graph_free(device, graph);
	for (int i = 0; i < 3; i++)
		device_cpu.free(device, y[i]);
	device_cpu.unload(device, right);
	device_cpu.unload(device, wrong);
}

/* In a process of its own, for the device is broken then. */
static void a_fault_names_its_launch(void **state)
{
	(void)state;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct device_info info;
		if (device_cpu.open(NULL, &device, &info, error) != KILN_OK)
			_exit(2);
		struct device_module *good = load("bad<5>"), *bad = load("bad<0>");
		struct device_memory *y = alloc(4096);
		const struct kernel_arg args[] = {{.kind = KERNEL_ARG_POINTER, .operand = 0},
										  {.kind = KERNEL_ARG_POINTER, .operand = 0},
										  {.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = 2000}};
		const struct device_operand operands[] = {{y, 0, 0, "y"}};
		struct device_launch launch = {.module = good,
									   .grid = {4, 1, 1},
									   .block = {4, 1, 1},
									   .args = args,
									   .arg_count = 3,
									   .operands = operands,
									   .operand_count = 1};
		struct device_launch launches[4] = {launch, launch, launch, launch};
		launches[2].module = bad;
		launches[2].block[0] = 16;
		struct device_graph *graph = make(launches, 4);
		struct device_done done;
		bool broken = false;
		start(graph, 1, 7);
		if (device_cpu.poll(device, -1, 20000, &done, 1, &broken) != 1 || !broken)
			_exit(3);
		_exit(done.ticket == 7 && done.status == KILN_EDEVICE &&
					  strstr(done.error, "launch 3 of 4: block (2,0,0), thread (5,0,0): writes")
				  ? 0
				  : 4);
	}
	int ended = 0;
	assert_int_equal(waitpid(child, &ended, 0), child);
	assert_true(WIFEXITED(ended));
	assert_int_equal(WEXITSTATUS(ended), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(runs_again_and_again, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_the_order_of_its_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(several_streams_share_one, setup, teardown),
		cmocka_unit_test_setup_teardown(canceled_and_timed, setup, teardown),
		cmocka_unit_test_setup_teardown(refusals_name_the_launch, setup, teardown),
		cmocka_unit_test_setup_teardown(a_launch_that_fails_ends_the_graph, setup, teardown),
		cmocka_unit_test(a_fault_names_its_launch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
