/*
 * test_graph: calls that are made one: replayed through the lane and by message, in the order of
 * their streams, in batches; what they do when buffers go, move to another process, or the device
 * process dies.  test_graph_refusals has what is refused.
 */
#include "graph_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
			matrix_put(chain.x, (float)i);
		assert_ok(chain_run(&chain));
		if (i % 100 == 0)
			assert_chain_ran(&chain, (float)i);
	}
	/* All three are one launch. */
	assert_int_equal(info_int(chain.client, "counters.launches"), 1000);
	assert_true(chain_lane_launches(&chain) >= 990);
	assert_ok(chain_submit(&chain, &ticket));
	assert_ok(kiln_wait_time(chain.client, ticket, CALL_TIMEOUT_MS, &micros));
	assert_ok(chain_submit(&chain, &ticket));
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
			matrix_put(chain.x, (float)k);
			assert_ok(chain_run(&chain));
			assert_chain_ran(&chain, (float)k);
		}
		assert_int_equal(info_int(chain.client, "counters.launches"), 20);
		assert_int_equal(chain_lane_launches(&chain), 0);
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
		matrix_put(chain.x, (float)round);
		for (int i = 0; i < ROUNDS; i++) {
			/* x is itself again: w is the transpose of x, and x that of w. */
			assert_ok(
				kiln_submit(chain.graph, NULL, 0, i ? tickets[2 * i - 1] : 0, &tickets[2 * i]));
			assert_ok(kiln_submit(chain.back, back_to_x, 2, i % 2 ? tickets[2 * i] : 0,
								  &tickets[2 * i + 1]));
		}
		assert_chain_ran(&chain, (float)round);
		assert_matrix(chain.x, (float)round);
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
	matrix_put(chain.x, 3);
	assert_ok(chain_run(&chain));
	const kiln_operand back_to_x[] = {{chain.w, 0}, {chain.x, 0}};
	const kiln_work batch[] = {
		{chain.graph, NULL, 0}, {chain.back, back_to_x, 2}, {chain.graph, NULL, 0}};
	for (unsigned i = 0; i < 64; i++) {
		kiln_submit_options options = {.size = sizeof(options), .stream = 1};
		assert_ok(kiln_submit_many(batch, 3, &options, &tickets[i]));
	}
	for (int i = 0; i < 64; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_chain_ran(&chain, 3);
	/* The same graph on all streams at once: it writes the same each time. */
	for (unsigned i = 0; i < 64; i++) {
		kiln_submit_options options = {.size = sizeof(options), .stream = i % KILN_STREAMS};
		assert_ok(kiln_submit_with(chain.graph, NULL, 0, &options, &tickets[i]));
	}
	for (int i = 0; i < 64; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_chain_ran(&chain, 3);
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
	matrix_put(chain.x, 1);
	assert_ok(chain_run(&chain));
	debug_int(chain.client, "delay-launch", "ms", 60000);
	setenv("KILN_LANE", "off", 1);
	struct chain slow;
	chain_open(daemon, &slow);
	assert_ok(chain_submit(&slow, &first));
	assert_ok(kiln_submit(slow.graph, NULL, 0, first, &second));
	assert_ok(kiln_cancel(slow.client, first));
	assert_int_equal(kiln_wait(slow.client, first, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_sentence("graph: the call was canceled before it started");
	assert_int_equal(kiln_wait(slow.client, second, CALL_TIMEOUT_MS), KILN_ECANCELED);
	unsetenv("KILN_LANE");
	debug_int(chain.client, "delay-launch", "ms", 0);
	matrix_put(slow.x, 2);
	assert_ok(chain_run(&slow));
	assert_chain_ran(&slow, 2);
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
	matrix_put(chain.x, 7);
	assert_ok(chain_run(&chain));
	assert_ok(chain_run(&chain));
	assert_chain_ran(&chain, 7);
	for (int i = 0; i < 32; i++)
		assert_ok(chain_submit(&chain, &tickets[i]));
	assert_ok(kiln_free(chain.z));
	chain.z = NULL;
	for (int i = 0; i < 32; i++)
		assert_ok(kiln_wait(chain.client, tickets[i], CALL_TIMEOUT_MS));
	assert_matrix_transposed(chain.w, 7);
	/* Through the lane, and by message. */
	int64_t before = chain_lane_launches(&chain);
	assert_int_equal(chain_run(&chain), KILN_ENOENT);
	assert_sentence("graph: launch 2 of 3: permute: operand 1: there is no buffer");
	assert_int_equal(chain_lane_launches(&chain), before);
	chain_close(&chain);
	setenv("KILN_LANE", "off", 1);
	chain_open(daemon, &chain);
	assert_ok(kiln_free(chain.z));
	chain.z = NULL;
	assert_int_equal(chain_run(&chain), KILN_ENOENT);
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
	matrix_put(chain.x, 1);
	pid_t pid = device_process(chain.client, 0);
	int64_t resident = 0;
	for (int i = 0; i < 600; i++) {
		for (int k = 0; k < 8; k++)
			assert_ok(chain_submit(&chain, &tickets[k]));
		kiln_call_free(chain.graph);
		chain.graph = chain_make(&chain);
		for (int k = 0; k < 8; k++)
			assert_ok(kiln_wait(chain.client, tickets[k], CALL_TIMEOUT_MS));
		if (i == 100)
			resident = resident_kib(pid);
	}
	/* A record of a graph is 10 KiB there.  Under a sanitizer freed memory stays for a while. */
	if (!getenv("KILN_SANITIZE"))
		assert_in_range(resident_kib(pid), 0, (uintmax_t)resident + 2048);
	assert_chain_ran(&chain, 1);
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
	matrix_put(other.x, 4);
	for (int i = 0; i < 20; i++) {
		kiln_ticket ticket;
		chain_open(daemon, &chain);
		matrix_put(chain.x, 1);
		assert_ok(chain_run(&chain));
		for (int k = 0; k < 100; k++)
			assert_ok(chain_submit(&chain, &ticket));
		kiln_close(chain.client);
		chain.client = NULL;
		assert_ok(chain_run(&other));
		kiln_call_free(chain.there);
		kiln_call_free(chain.back);
		kiln_call_free(chain.graph);
		kiln_free(chain.x);
		kiln_free(chain.y);
		kiln_free(chain.z);
		kiln_free(chain.w);
	}
	assert_chain_ran(&other, 4);
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
	matrix_put(chain.x, 10);
	assert_ok(chain_run(&chain));
	assert_ok(chain_run(&chain));
	assert_ok(kiln_prepare_raw(chain.client, &raw, &twice));
	for (int round = 0; round < 3; round++) {
		kiln_raw_arg args[] = {{.buffer = chain.x, .bytes = COUNT * 4},
							   {.bytes = sizeof(n), .value = &n}};
		kiln_launch how = {.size = sizeof(how), .args = args, .arg_count = 2};
		matrix_put(chain.x, 10);
		assert_ok(kiln_submit_raw(twice, &how, 0, &ticket));
		assert_ok(chain_run(&chain));
		assert_ok(kiln_wait(chain.client, ticket, CALL_TIMEOUT_MS));
		assert_chain_ran(&chain, 21);
		assert_ok(chain_run(&chain));
		assert_chain_ran(&chain, 21);
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
		matrix_put(chain.x, (float)i);
		/* y, z and w need not be written: the graph writes all of them before it reads them. */
		assert_ok(chain_run(&chain));
		assert_ok(chain_run(&chain));
		assert_chain_ran(&chain, (float)i);
		kill(device_process(chain.client, 0), SIGKILL);
		for (int k = 0; k < 50; k++)
			assert_ok(chain_submit(&chain, &tickets[k]));
		for (int k = 0; k < 50; k++) {
			int status = kiln_wait(chain.client, tickets[k], CALL_TIMEOUT_MS);
			if (status != KILN_OK && status != KILN_EDEVICE && status != KILN_ELOST)
				fail_msg("ticket %d: %s: %s", k, kiln_status_name(status), kiln_errmsg());
			failed += status != KILN_OK;
		}
		assert_true(failed > 0);
		await_info_at_least(chain.client, "executors[0].restarts", i);
		assert_int_equal(chain_run(&chain), KILN_ELOST);
		assert_sentence("launch 1 of 3: the contents of buffer x (x of permute) were lost");
	}
	matrix_put(chain.x, 99);
	assert_ok(chain_run(&chain));
	assert_chain_ran(&chain, 99);
	int64_t before = chain_lane_launches(&chain);
	for (int i = 0; i < 20; i++)
		assert_ok(chain_run(&chain));
	assert_true(chain_lane_launches(&chain) >= before + 19);
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
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
