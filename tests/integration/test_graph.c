/*
 * test_graph: calls that are made one: replayed through the lane and by message, in the order of
 * their streams, in batches; what they do when buffers go, move to another process, or the device
 * process dies; what is refused.
 */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 13
#define COLUMNS 29
#define COUNT (ROWS * COLUMNS)

/* y is the transpose of x, z that of y, and w that of z: the graph's calls. */
struct chain {
	kiln_client *client;
	kiln_call *there, *back, *graph;
	kiln_buffer *x, *y, *z, *w;
};

static kiln_call *prepare(kiln_client *client, int64_t rows, int64_t columns)
{
	struct permute problem = transpose(rows, columns);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	return call;
}

static kiln_call *make(struct chain *chain)
{
	const kiln_operand first[] = {{chain->x, 0}, {chain->y, 0}};
	const kiln_operand second[] = {{chain->y, 0}, {chain->z, 0}};
	const kiln_operand third[] = {{chain->z, 0}, {chain->w, 0}};
	const kiln_work works[] = {
		{chain->there, first, 2}, {chain->back, second, 2}, {chain->there, third, 2}};
	kiln_call *graph = NULL;
	assert_ok(kiln_prepare_graph(chain->client, works, 3, &graph));
	return graph;
}

static kiln_buffer *floats(kiln_client *client, const char *name)
{
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(client, COUNT * 4, 0, name, &buffer));
	return buffer;
}

static void chain_open(const struct kilnd *daemon, struct chain *chain)
{
	chain->client = client_open(daemon);
	chain->there = prepare(chain->client, ROWS, COLUMNS);
	chain->back = prepare(chain->client, COLUMNS, ROWS);
	chain->x = floats(chain->client, "x");
	chain->y = floats(chain->client, "y");
	chain->z = floats(chain->client, "z");
	chain->w = floats(chain->client, "w");
	chain->graph = make(chain);
}

static void chain_close(struct chain *chain)
{
	kiln_call_free(chain->there);
	kiln_call_free(chain->back);
	kiln_free(chain->x);
	kiln_free(chain->y);
	kiln_free(chain->z);
	kiln_free(chain->w);
	kiln_call_free(chain->graph); /* after what it names */
	kiln_close(chain->client);
}

static void put(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	for (int i = 0; i < COUNT; i++)
		data[i] = first + (float)i;
	assert_ok(kiln_write(buffer, 0, data, sizeof(data)));
}

static void assert_same(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(buffer, 0, data, sizeof(data)));
	for (int i = 0; i < COUNT; i++)
		if (data[i] != first + (float)i)
			fail_msg("element %d is %g and not %g", i, (double)data[i], (double)first + i);
}

static void assert_transposed(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(buffer, 0, data, sizeof(data)));
	for (int i = 0; i < COUNT; i++)
		if (data[i % COLUMNS * ROWS + i / COLUMNS] != first + (float)i)
			fail_msg("element %d is %g and not %g", i,
					 (double)data[i % COLUMNS * ROWS + i / COLUMNS], (double)first + i);
}

static void assert_ran(struct chain *chain, float first)
{
	assert_transposed(chain->y, first);
	assert_same(chain->z, first);
	assert_transposed(chain->w, first);
}

static int submit(struct chain *chain, kiln_ticket *ticket)
{
	return kiln_submit(chain->graph, NULL, 0, 0, ticket);
}

static int run(struct chain *chain)
{
	kiln_ticket ticket;
	int status = submit(chain, &ticket);
	return status == KILN_OK ? kiln_wait(chain->client, ticket, CALL_TIMEOUT_MS) : status;
}

static int64_t lane_launches(struct chain *chain)
{
	return info_int(chain->client, "counters.lane_launches");
}

/* ---- Replays ---- */

static void replayed(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	double micros = 0;
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	assert_string_equal(kiln_call_origin(chain.graph), "graph");
	assert_non_null(strstr(kiln_call_plan(chain.graph), "graph of 3 calls\n1 permute: "));
	assert_int_equal(info_int(chain.client, "counters.launches"), 0); /* to make is not to run */
	for (int i = 0; i < 1000; i++) {
		if (i % 100 == 0)
			put(chain.x, (float)i);
		assert_ok(run(&chain));
		if (i % 100 == 0)
			assert_ran(&chain, (float)i);
	}
	/* All three are one launch. */
	assert_int_equal(info_int(chain.client, "counters.launches"), 1000);
	assert_true(lane_launches(&chain) >= 990);
	assert_ok(submit(&chain, &ticket));
	assert_ok(kiln_wait_time(chain.client, ticket, CALL_TIMEOUT_MS, &micros));
	assert_ok(submit(&chain, &ticket));
	assert_ok(kiln_wait_time(chain.client, ticket, CALL_TIMEOUT_MS, &micros));
	assert_true(micros > 0);
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* Without a lane everything goes by message; and with every access to memory checked. */
static void without_a_lane(void **state)
{
	struct kilnd *daemon = *state;
	const char *const *const options[] = {OPTIONS("--test-lane-spin", "0"), OPTIONS("--memcheck"),
										  NULL};
	for (int i = 0; i < 3; i++) {
		struct chain chain;
		if (i == 2)
			setenv("KILN_LANE", "off", 1);
		kilnd_start(daemon, options[i]);
		chain_open(daemon, &chain);
		for (int k = 0; k < 20; k++) {
			put(chain.x, (float)k);
			assert_ok(run(&chain));
			assert_ran(&chain, (float)k);
		}
		assert_int_equal(info_int(chain.client, "counters.launches"), 20);
		assert_int_equal(lane_launches(&chain), 0);
		chain_close(&chain);
		kilnd_stop(daemon);
	}
	unsetenv("KILN_LANE");
}

/* Among ordinary calls, unwaited, more than the lane has places for. */
static void in_order(void **state)
{
	struct kilnd *daemon = *state;
	enum { ROUNDS = 400 };
	static kiln_ticket tickets[2 * ROUNDS];
	struct chain chain;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	const kiln_operand back_to_x[] = {{chain.w, 0}, {chain.x, 0}};
	for (int round = 0; round < 5; round++) {
		put(chain.x, (float)round);
		for (int i = 0; i < ROUNDS; i++) {
			/* x is itself again: w is the transpose of x, and x that of w. */
			assert_ok(
				kiln_submit(chain.graph, NULL, 0, i ? tickets[2 * i - 1] : 0, &tickets[2 * i]));
			assert_ok(kiln_submit(chain.back, back_to_x, 2, i % 2 ? tickets[2 * i] : 0,
								  &tickets[2 * i + 1]));
		}
		assert_ran(&chain, (float)round);
		assert_same(chain.x, (float)round);
		for (int i = 0; i < 2 * ROUNDS; i++)
			assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	}
	chain_close(&chain);
	kilnd_stop(daemon);
}

static void on_streams_and_in_batches(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_ticket tickets[64];
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	put(chain.x, 3);
	assert_ok(run(&chain));
	const kiln_operand back_to_x[] = {{chain.w, 0}, {chain.x, 0}};
	const kiln_work batch[] = {
		{chain.graph, NULL, 0}, {chain.back, back_to_x, 2}, {chain.graph, NULL, 0}};
	for (unsigned i = 0; i < 64; i++) {
		kiln_submit_options options = {.size = sizeof(options), .stream = 1};
		assert_ok(kiln_submit_many(batch, 3, &options, &tickets[i]));
	}
	for (int i = 0; i < 64; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_ran(&chain, 3);
	/* The same graph on all streams at once: it writes the same each time. */
	for (unsigned i = 0; i < 64; i++) {
		kiln_submit_options options = {.size = sizeof(options), .stream = i % KILN_STREAMS};
		assert_ok(kiln_submit_with(chain.graph, NULL, 0, &options, &tickets[i]));
	}
	for (int i = 0; i < 64; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_ran(&chain, 3);
	chain_close(&chain);
	kilnd_stop(daemon);
}

static void canceled_before_it_starts(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_ticket first, second;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	put(chain.x, 1);
	assert_ok(run(&chain));
	debug_int(chain.client, "delay-launch", "ms", 60000);
	setenv("KILN_LANE", "off", 1);
	struct chain slow;
	chain_open(daemon, &slow);
	assert_ok(submit(&slow, &first));
	assert_ok(kiln_submit(slow.graph, NULL, 0, first, &second));
	assert_ok(kiln_cancel(slow.client, first));
	assert_int_equal(kiln_wait(slow.client, first, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_sentence("graph: the call was canceled before it started");
	assert_int_equal(kiln_wait(slow.client, second, CALL_TIMEOUT_MS), KILN_ECANCELED);
	unsetenv("KILN_LANE");
	debug_int(chain.client, "delay-launch", "ms", 0);
	put(slow.x, 2);
	assert_ok(run(&slow));
	assert_ran(&slow, 2);
	chain_close(&slow);
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* ---- What goes, and what moves ---- */

/* Calls may go before the graph; buffers too, but then it cannot be launched any more. */
static void freed(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_ticket tickets[32];
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	kiln_call_free(chain.there);
	kiln_call_free(chain.back);
	chain.there = chain.back = NULL;
	put(chain.x, 7);
	assert_ok(run(&chain));
	assert_ok(run(&chain));
	assert_ran(&chain, 7);
	for (int i = 0; i < 32; i++)
		assert_ok(submit(&chain, &tickets[i]));
	assert_ok(kiln_free(chain.z));
	chain.z = NULL;
	for (int i = 0; i < 32; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_transposed(chain.w, 7);
	/* Through the lane, and by message. */
	int64_t before = lane_launches(&chain);
	assert_int_equal(run(&chain), KILN_ENOENT);
	assert_sentence("graph: launch 2 of 3: permute: operand 1: there is no buffer");
	assert_int_equal(lane_launches(&chain), before);
	chain_close(&chain);
	setenv("KILN_LANE", "off", 1);
	chain_open(daemon, &chain);
	assert_ok(kiln_free(chain.z));
	chain.z = NULL;
	assert_int_equal(run(&chain), KILN_ENOENT);
	assert_sentence("launch 2 of 3: y of permute lies in buffer");
	assert_sentence("which was freed");
	unsetenv("KILN_LANE");
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* Freed behind its launches, again and again: nothing stays, neither here nor there. */
static void made_and_freed(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_ticket tickets[8];
	kilnd_start(daemon, OPTIONS("--test-max-graph-calls", "12", "--max-calls", "8"));
	chain_open(daemon, &chain);
	put(chain.x, 1);
	pid_t pid = (pid_t)info_int(chain.client, "executors[0].pid");
	int64_t resident = 0;
	for (int i = 0; i < 600; i++) {
		for (int k = 0; k < 8; k++)
			assert_ok(submit(&chain, &tickets[k]));
		kiln_call_free(chain.graph);
		chain.graph = make(&chain);
		for (int k = 0; k < 8; k++)
			assert_ok(kiln_wait(chain.client, tickets[k], CALL_TIMEOUT_MS));
		if (i == 100)
			resident = resident_kib(pid);
	}
	/* A record of a graph is 10 KiB there.  Under a sanitizer freed memory stays for a while. */
	if (!getenv("KILN_SANITIZE"))
		assert_in_range(resident_kib(pid), 0, (uintmax_t)resident + 2048);
	assert_ran(&chain, 1);
	assert_int_equal(info_int(chain.client, "session.calls"), 3);
	chain_close(&chain);
	kilnd_stop(daemon);
}

static void client_leaves_in_the_middle(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain, other;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &other);
	put(other.x, 4);
	for (int i = 0; i < 20; i++) {
		kiln_ticket ticket;
		chain_open(daemon, &chain);
		put(chain.x, 1);
		assert_ok(run(&chain));
		for (int k = 0; k < 100; k++)
			assert_ok(submit(&chain, &ticket));
		kiln_close(chain.client);
		chain.client = NULL;
		assert_ok(run(&other));
		kiln_call_free(chain.there);
		kiln_call_free(chain.back);
		kiln_call_free(chain.graph);
		kiln_free(chain.x);
		kiln_free(chain.y);
		kiln_free(chain.z);
		kiln_free(chain.w);
	}
	assert_ran(&other, 4);
	chain_close(&other);
	kilnd_stop(daemon);
}

/* A kernel of the program's own uses one of its buffers: for that it moves to memory that two
 * processes can have. */
static void buffers_that_move(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kiln_call *twice;
	kiln_ticket ticket;
	const int n = COUNT;
	kiln_raw raw = {.size = sizeof(raw),
					.source = "__global__ void twice(float *x, int n)\n"
							  "{ for (int i = 0; i < n; i++) x[i] = 2 * x[i] + 1 - i; }\n",
					.entry = "twice"};
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	put(chain.x, 10);
	assert_ok(run(&chain));
	assert_ok(run(&chain));
	assert_ok(kiln_prepare_raw(chain.client, &raw, &twice));
	for (int round = 0; round < 3; round++) {
		kiln_raw_arg args[] = {{.buffer = chain.x, .bytes = COUNT * 4},
							   {.bytes = sizeof(n), .value = &n}};
		kiln_launch how = {.size = sizeof(how), .args = args, .arg_count = 2};
		put(chain.x, 10);
		assert_ok(kiln_submit_raw(twice, &how, 0, &ticket));
		assert_ok(run(&chain));
		assert_ok(kiln_wait(chain.client, ticket, CALL_TIMEOUT_MS));
		assert_ran(&chain, 21);
		assert_ok(run(&chain));
		assert_ran(&chain, 21);
	}
	kiln_call_free(twice);
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* ---- When the device process dies ---- */

static void process_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct chain chain;
	kilnd_start(daemon, NULL);
	chain_open(daemon, &chain);
	for (int i = 1; i <= 5; i++) {
		kiln_ticket tickets[50];
		int failed = 0;
		put(chain.x, (float)i);
		/* y, z and w need not be written: the graph writes all of them before it reads them. */
		assert_ok(run(&chain));
		assert_ok(run(&chain));
		assert_ran(&chain, (float)i);
		kill((pid_t)info_int(chain.client, "executors[0].pid"), SIGKILL);
		for (int k = 0; k < 50; k++)
			assert_ok(submit(&chain, &tickets[k]));
		for (int k = 0; k < 50; k++) {
			int status = kiln_wait(chain.client, tickets[k], CALL_TIMEOUT_MS);
			if (status != KILN_OK && status != KILN_EDEVICE && status != KILN_ELOST)
				fail_msg("ticket %d: %s: %s", k, kiln_status_name(status), kiln_errmsg());
			failed += status != KILN_OK;
		}
		assert_true(failed > 0);
		await_info_at_least(chain.client, "executors[0].restarts", i);
		assert_int_equal(run(&chain), KILN_ELOST);
		assert_sentence("launch 1 of 3: the contents of buffer x (x of permute) were lost");
	}
	put(chain.x, 99);
	assert_ok(run(&chain));
	assert_ran(&chain, 99);
	int64_t before = lane_launches(&chain);
	for (int i = 0; i < 20; i++)
		assert_ok(run(&chain));
	assert_true(lane_launches(&chain) >= before + 19);
	chain_close(&chain);
	kilnd_stop(daemon);
}

/* ---- Refusals ---- */

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
	put(chain.x, 1);
	assert_ok(run(&chain));
	assert_ran(&chain, 1);
	kiln_ticket ticket;
	assert_int_equal(kiln_submit(chain.graph, right, 2, 0, &ticket), KILN_EINVAL);
	assert_sentence(
		"the call is a graph, whose calls have their operands: it is submitted with none, "
		"and not 2");
	kiln_launch how = {.size = sizeof(how)};
	assert_int_equal(kiln_submit_raw(chain.graph, &how, 0, &ticket), KILN_EINVAL);
	kiln_call *rest[2];
	rest[0] = prepare(chain.client, 3, 5);
	rest[1] = prepare(chain.client, 5, 3);
	works[1] = (kiln_work){chain.back, right, 2};
	expect(&chain, works, 2, KILN_ELIMIT, "--max-calls");
	kiln_call_free(rest[0]);
	kiln_call_free(rest[1]);
	kiln_call_free(raw_call);
	chain_close(&chain);
	chain_close(&other);
	kilnd_stop(daemon);
}

/* What it counts is told at the end of each launch. */
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
	put(chain.x, 100);
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
	assert_ok(run(&chain));
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
	nothing = prepare(chain.client, 0, COLUMNS);
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
	put(chain.x, 8);
	for (int i = 0; i < 3; i++)
		assert_ok(run(&chain));
	assert_same(chain.x, 8);
	assert_transposed(chain.y, 8);
	/* One of nothing but such. */
	kiln_call_free(chain.graph);
	assert_ok(kiln_prepare_graph(chain.client, &works[1], 1, &chain.graph));
	assert_ok(run(&chain));
	assert_ok(run(&chain));
	kiln_call_free(nothing);
	chain_close(&chain);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(replayed),
		HARNESS_TEST(without_a_lane),
		HARNESS_TEST(in_order),
		HARNESS_TEST(on_streams_and_in_batches),
		HARNESS_TEST(canceled_before_it_starts),
		HARNESS_TEST(freed),
		HARNESS_TEST(made_and_freed),
		HARNESS_TEST(client_leaves_in_the_middle),
		HARNESS_TEST(buffers_that_move),
		HARNESS_TEST(process_killed),
		HARNESS_TEST(refusals),
		HARNESS_TEST(calls_that_count),
		HARNESS_TEST(as_many_as_there_may_be),
	};
	harness_begin(280);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
