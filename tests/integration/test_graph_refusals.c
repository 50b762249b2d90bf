/*
 * test_graph_refusals: the calls that cannot be part of a graph, and graphs at their limits.
 */
#include "graph_scene.h"

static void expect(struct chain *chain, const kiln_work *works, int count, int status,
				   const char *sentence)
{
	kiln_call *graph = NULL;
	int got = kiln_prepare_graph(chain->client, works, count, &graph);
	if (got != status)
		fail_msg("%s: %s", kiln_status_name(got), kiln_errmsg());
	assert_sentence(sentence);
	assert_null(graph);
}

static void refusals(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain, other;
	kiln_call *raw_call = NULL;
	kiln_raw raw = {.size = sizeof(raw), .source = "__global__ void k() {}\n", .entry = "k"};
	kilnd_start(daemon, OPTIONS("--test-max-graph-calls", "7", "--max-calls", "6"));
	chain_open(daemon, &chain);
	chain_open(daemon, &other);
	const kiln_operand right[] = {{chain.x, 0}, {chain.y, 0}}, half[] = {{chain.x, 0}, {NULL, 0}};
	const kiln_operand same[] = {{chain.x, 0}, {chain.x, 0}}, far[] = {{chain.x, 4}, {chain.y, 0}};
	kiln_work works[] = {{chain.there, right, 2}, {chain.back, right, 2}};
	kiln_work many[5];

	expect(&chain, works, 0, KILN_EINVAL, "count is 0; a graph has 1 to 1024 calls");
	expect(&chain, works, KILN_MAX_GRAPH + 1, KILN_EINVAL, "count is 1025");
	expect(&chain, NULL, 1, KILN_EINVAL, "works is NULL");
	assert_int_equal(kiln_prepare_graph(chain.client, works, 2, NULL), KILN_EINVAL);
	works[1].call = NULL;
	expect(&chain, works, 2, KILN_EINVAL, "works[1].call is NULL");
	works[1].call = other.back;
	expect(&chain, works, 2, KILN_EINVAL, "works[1].call is one of another client");
	works[1] = (kiln_work){chain.back, half, 2};
	expect(&chain, works, 2, KILN_EINVAL, "works[1]: operand 1 has no buffer");
	works[1] = (kiln_work){chain.back, right, 1};
	expect(&chain, works, 2, KILN_EINVAL, "works[1]: the call was prepared for 2 tensors");
	works[1] = (kiln_work){chain.back, same, 2};
	expect(&chain, works, 2, KILN_EINVAL, "launch 2 of 2: x and y overlap in buffer x");
	works[1] = (kiln_work){chain.back, far, 2};
	expect(&chain, works, 2, KILN_EINVAL, "launch 2 of 2: x needs 1508 bytes at offset 4");
	works[1] = (kiln_work){chain.graph, NULL, 0};
	expect(&chain, works, 2, KILN_ENOTSUP,
		   "launch 2 of 2: it is a graph itself: name the calls that it is made of");
	for (int i = 0; i < 5; i++)
		many[i] = works[0];
	expect(&chain, many, 5, KILN_ELIMIT, "more than the 7 that it may have");
	assert_ok(kiln_prepare_raw(chain.client, &raw, &raw_call));
	works[1] = (kiln_work){raw_call, NULL, 0};
	expect(&chain, works, 2, KILN_EINVAL, "works[1]: the call is a kernel of the program's own");

	/* Nothing of that hurt. */
	matrix_put(chain.x, 1);
	assert_ok(chain_run(&chain));
	assert_chain_ran(&chain, 1);
	kiln_ticket ticket;
	assert_int_equal(kiln_submit(chain.graph, right, 2, 0, &ticket), KILN_EINVAL);
	assert_sentence(
		"the call is a graph, whose calls have their operands: it is submitted with none, "
		"and not 2");
	kiln_launch how = {.size = sizeof(how)};
	assert_int_equal(kiln_submit_raw(chain.graph, &how, 0, &ticket), KILN_EINVAL);
	kiln_call *rest[2];
	rest[0] = transpose_prepare(chain.client, 3, 5);
	rest[1] = transpose_prepare(chain.client, 5, 3);
	works[1] = (kiln_work){chain.back, right, 2};
	expect(&chain, works, 2, KILN_ELIMIT, "--max-calls");
	kiln_call_free(rest[0]);
	kiln_call_free(rest[1]);
	kiln_call_free(raw_call);
	chain_close(&chain);
	chain_close(&other);
	kilnd_stop(daemon);
}

/* The end of each launch tells its count. */
static void calls_that_count(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_buffer *index;
	kiln_call *gather, *graph;
	const int64_t wanted[] = {5, 1, 3, 90};
	float taken[4];
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	assert_ok(kiln_alloc(chain.client, sizeof(wanted), 0, "index", &index));
	assert_ok(kiln_write(index, 0, wanted, sizeof(wanted)));
	matrix_put(chain.x, 100);
	const kiln_tensor tensors[] = {
		{.dtype = KILN_F32, .rank = 3, .contiguous = 1, .shape = {1, 1, 10}},
		{.dtype = KILN_I64, .rank = 2, .contiguous = 1, .shape = {1, 4}},
		{.dtype = KILN_F32, .rank = 3, .contiguous = 1, .shape = {1, 1, 4}}};
	const kiln_operand operands[] = {{chain.x, 0}, {index, 0}, {chain.y, 0}};
	kiln_attr bounds = string_attr("bounds", "check");
	assert_ok(kiln_prepare(chain.client, "gather", tensors, 3, &bounds, 1, &gather));
	const kiln_work check = {gather, operands, 3};
	expect(
		&chain, &check, 1, KILN_ENOTSUP,
		"launch 1 of 1: gather counts indices that are out of range, for the end of each launch, "
		"and a graph has one end for all: submit that call by itself, or prepare it with bounds "
		"other than check");
	kiln_call_free(gather);
	bounds = string_attr("bounds", "clamp");
	assert_ok(kiln_prepare(chain.client, "gather", tensors, 3, &bounds, 1, &gather));
	const kiln_work clamp = {gather, operands, 3};
	assert_ok(kiln_prepare_graph(chain.client, &clamp, 1, &graph));
	kiln_call_free(chain.graph);
	chain.graph = graph;
	assert_ok(chain_run(&chain));
	assert_ok(kiln_read(chain.y, 0, taken, sizeof(taken)));
	assert_float_equal(taken[0], 105, 0);
	assert_float_equal(taken[3], 109, 0);
	kiln_call_free(gather);
	kiln_free(index);
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* Many calls, some of which have nothing to do. */
static void as_many_as_there_may_be(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	static kiln_work works[KILN_MAX_GRAPH];
	static kiln_operand operands[KILN_MAX_GRAPH][2];
	kiln_call *nothing, *graph;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	nothing = transpose_prepare(chain.client, 0, COLUMNS);
	/* x to y and back, over and over, with an empty one between. */
	for (int i = 0; i < KILN_MAX_GRAPH; i++) {
		bool back = i / 2 % 2, empty = i % 2;
		operands[i][0].buffer = back ? chain.y : chain.x;
		operands[i][1].buffer = back ? chain.x : chain.y;
		works[i] = (kiln_work){empty ? nothing : back ? chain.back : chain.there, operands[i], 2};
	}
	assert_ok(kiln_prepare_graph(chain.client, works, KILN_MAX_GRAPH, &graph));
	kiln_call_free(chain.graph);
	chain.graph = graph;
	matrix_put(chain.x, 8);
	for (int i = 0; i < 3; i++)
		assert_ok(chain_run(&chain));
	assert_matrix(chain.x, 8);
	assert_matrix_transposed(chain.y, 8);
	/* One of nothing but such. */
	kiln_call_free(chain.graph);
	assert_ok(kiln_prepare_graph(chain.client, &works[1], 1, &chain.graph));
	assert_ok(chain_run(&chain));
	assert_ok(chain_run(&chain));
	kiln_call_free(nothing);
	chain_close(&chain);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(refusals),
		HARNESS_TEST(calls_that_count),
		HARNESS_TEST(as_many_as_there_may_be),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
