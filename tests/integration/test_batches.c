/*
 * test_batches: several calls submitted together: one ticket, which ends once, when all have ended;
 * each is run only if the one before it succeeded, and the sentence says which did not; through the
 * lane and by message, canceled, followed, and when the device process or the daemon dies.
 */
#include "lane_scene.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>

/* There and back, count times in all. */
static int submit_chain(struct pair *pair, int count, unsigned stream, kiln_ticket after,
						kiln_ticket *ticket)
{
	kiln_operand operands[2][2];
	kiln_work works[KILN_MAX_BATCH];
	kiln_submit_options options = {.size = sizeof(options), .stream = stream, .after = after};
	for (int i = 0; i < count; i++)
		works[i] = pair_work(pair, i % 2, operands[i % 2]);
	return kiln_submit_many(works, count, &options, ticket);
}

/* ---- Results ---- */

static void results(struct kilnd *daemon, bool lane)
{
	static const int counts[] = {1, 2, 3, 17, KILN_MAX_BATCH - 1};
	struct pair pair;
	kiln_ticket ticket;
	int64_t calls = 0;
	double micros;
	pair_open(daemon, &pair);
	pair_warm(&pair);
	int64_t before = lane_launches(&pair);
	for (int i = 0; i < 5 * (lane ? 10 : 2); i++) {
		matrix_put(pair.x, (float)i);
		assert_ok(submit_chain(&pair, counts[i % 5], (unsigned)i % KILN_STREAMS, 0, &ticket));
		calls += counts[i % 5];
		micros = -1;
		assert_ok(kiln_wait_time(pair.client, ticket, CALL_TIMEOUT_MS, &micros));
		assert_true(micros >= 0 && (i == 0 || counts[i % 5] < 17 || micros > 0));
		assert_int_equal(kiln_wait(pair.client, ticket, 0), KILN_ENOENT);
		assert_int_equal(kiln_dispatch(pair.client), 0);
		assert_transposed(&pair, (float)i);
	}
	assert_int_equal(lane_launches(&pair) - before, lane ? calls : 0);
	pair_close(&pair);
}

static void results_come_with_one_ticket(void **state)
{
	both_ways(*state, results);
}

/* How long a batch took is the sum of what its calls took. */
static void micros_are_a_sum(void **state)
{
	struct kilnd *daemon = *state;
	enum { CALLS = 5 };
	struct pair pair;
	kiln_ticket ticket;
	double micros = 0, sum = 0;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	assert_ok(submit_chain(&pair, CALLS, 0, 0, &ticket));
	assert_ok(kiln_wait_time(pair.client, ticket, CALL_TIMEOUT_MS, &micros)); /* from here on */
	assert_ok(submit_chain(&pair, CALLS, 0, 0, &ticket));
	assert_ok(kiln_wait_time(pair.client, ticket, CALL_TIMEOUT_MS, &micros));
	struct lane_memory *lane = lane_find(NULL);
	uint64_t tail = atomic_load(&lane->header.tail);
	for (uint64_t number = tail - CALLS; number < tail; number++)
		sum += (double)lane->cells[number % LANE_ENTRIES].micros;
	assert_true(micros == sum && sum > 0);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* More calls than the ring has places: what does not fit goes by message, behind the rest. */
static void many(struct kilnd *daemon, bool lane)
{
	enum { BATCHES = 7 }; /* by message, each of their calls is a request in flight */
	struct pair pair;
	kiln_ticket tickets[BATCHES];
	pair_open(daemon, &pair);
	pair_warm(&pair);
	int64_t before = info_int(pair.client, "counters.launches");
	for (int round = 0; round < (lane ? 4 : 1); round++) {
		matrix_put(pair.x, (float)round);
		for (int i = 0; i < BATCHES; i++)
			assert_ok(submit_chain(&pair, KILN_MAX_BATCH - !(i % 2), 2, 0, &tickets[i]));
		for (int i = BATCHES; i-- > 0;)
			assert_ok(kiln_wait(pair.client, tickets[i], CALL_TIMEOUT_MS));
		pair_run(&pair, false);
		assert_transposed(&pair, (float)round);
	}
	before += (lane ? 4 : 1) * (BATCHES * KILN_MAX_BATCH - 4 + 1);
	assert_int_equal(info_int(pair.client, "counters.launches"), before);
	pair_close(&pair);
}

static void more_than_the_ring_holds(void **state)
{
	both_ways(*state, many);
}

/* A program that polls hears of a batch once, when all of it has ended. */
static void polled(struct kilnd *daemon, bool lane)
{
	struct pair pair;
	kiln_ticket ticket;
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < (lane ? 100 : 10); i++) {
		int64_t end = now_ms() + CALL_TIMEOUT_MS;
		int ended;
		assert_ok(submit_chain(&pair, 1 + i % 9, 0, 0, &ticket));
		while ((ended = kiln_dispatch(pair.client)) == 0) {
			struct pollfd watch = {.fd = kiln_fd(pair.client),
								   .events = (short)kiln_events(pair.client)};
			assert_true(now_ms() < end);
			assert_int_not_equal(poll(&watch, 1, CALL_TIMEOUT_MS), 0);
		}
		assert_int_equal(ended, 1);
		assert_ok(kiln_wait(pair.client, ticket, 0));
	}
	pair_close(&pair);
}

static void a_batch_is_one_end_for_event_loops(void **state)
{
	both_ways(*state, polled);
}

/* ---- Failures ---- */

static void assert_untouched(kiln_buffer *buffer, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(buffer, 0, data, sizeof(data)));
	for (int i = 0; i < COUNT; i++)
		assert_true(data[i] == first + (float)i);
}

/* Two transposes and, at this place among them, a gather that fails. */
static kiln_ticket submit_failing(struct pair *pair, struct gather *gather, int at, unsigned stream)
{
	kiln_operand there[2], back[2], picked[3];
	kiln_work works[3];
	kiln_submit_options options = {.size = sizeof(options), .stream = stream};
	kiln_ticket ticket;
	for (int i = 0, turned = 0; i < 3; i++)
		if (i == at)
			works[i] = gather_work(gather, picked);
		else
			works[i] = pair_work(pair, turned, turned ? back : there), turned++;
	assert_ok(kiln_submit_many(works, 3, &options, &ticket));
	return ticket;
}

/* Those before it have run, and those behind it not. */
static void failing(struct kilnd *daemon, bool lane)
{
	struct pair pair;
	struct gather gather;
	pair_open(daemon, &pair);
	gather_open(pair.client, &gather);
	pair_warm(&pair);
	gather_spoil(&gather, true);
	for (int i = 0; i < 12; i++) {
		char sentence[160];
		int at = i % 3;
		matrix_put(pair.x, (float)i);
		matrix_put(pair.y, -1000);
		kiln_ticket ticket = submit_failing(&pair, &gather, at, (unsigned)i);
		assert_int_equal(kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS), KILN_EINDEX);
		snprintf(sentence, sizeof(sentence), "call %d of 3: %s", at + 1, GATHER_SENTENCE);
		assert_string_equal(kiln_errmsg(), sentence);
		if (at == 0)
			assert_untouched(pair.y, -1000);
		else
			assert_transposed(&pair, (float)i);
		assert_untouched(pair.x, (float)i);
	}
	if (lane)
		assert_int_equal(info_int(pair.client, "counters.lane_failures"), 4 * (3 + 2 + 1));
	gather_close(&gather);
	pair_close(&pair);
}

static void the_first_that_fails_speaks_for_all(void **state)
{
	both_ways(*state, failing);
}

/* A batch that is followed, and one that follows; while it is under way, and afterwards. */
static void followed(struct kilnd *daemon, bool lane)
{
	struct pair pair, other;
	struct gather gather;
	pair_open(daemon, &pair);
	gather_open(pair.client, &gather);
	pair_warm(&pair);
	other = pair;
	assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "x", &other.x));
	assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "y", &other.y));
	pair_warm(&other);
	for (int i = 0; i < (lane ? 40 : 8); i++) {
		bool bad = i % 2;
		kiln_ticket next[3];
		gather_spoil(&gather, bad);
		matrix_put(pair.x, (float)i);
		matrix_put(other.x, (float)i);
		matrix_put(other.y, -1000);
		kiln_ticket first = submit_failing(&pair, &gather, i / 2 % 3, 3);
		assert_ok(pair_submit_on(&other, false, 3, first, &next[0]));
		assert_ok(submit_chain(&other, 3, 4, first, &next[1]));
		assert_ok(submit_chain(&other, 3, 5, next[1], &next[2]));
		for (int k = 0; k < 3; k++)
			assert_int_equal(kiln_wait(pair.client, next[k], CALL_TIMEOUT_MS),
							 bad ? KILN_ECANCELED : KILN_OK);
		assert_int_equal(kiln_wait(pair.client, first, CALL_TIMEOUT_MS), bad ? KILN_EINDEX : 0);
		if (!bad) {
			assert_transposed(&other, (float)i);
			continue;
		}
		assert_untouched(other.y, -1000);
		assert_ok(submit_chain(&other, 2, 4, first, &next[0]));
		assert_int_equal(kiln_wait(pair.client, next[0], CALL_TIMEOUT_MS), KILN_ECANCELED);
		assert_sentence("which this call follows, did not succeed");
		assert_untouched(other.y, -1000);
	}
	assert_ok(kiln_free(other.x));
	assert_ok(kiln_free(other.y));
	gather_close(&gather);
	pair_close(&pair);
}

static void what_follows_a_batch(void **state)
{
	both_ways(*state, followed);
}

/* ---- Canceled ---- */

static void canceled_before_it_starts(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	matrix_put(pair.y, -1000);
	debug_int(pair.client, "delay-launch", "ms", 60000);
	assert_ok(submit_chain(&pair, 3, 1, 0, &ticket));
	assert_int_equal(kiln_wait(pair.client, ticket, 0), KILN_EAGAIN);
	assert_ok(kiln_cancel(pair.client, ticket));
	assert_int_equal(kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_string_equal(kiln_errmsg(),
						"call 1 of 3: permute: the call was canceled before it started");
	debug_int(pair.client, "delay-launch", "ms", 0);
	assert_untouched(pair.y, -1000);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* Whatever had started, no call was run without the one before it: so y is x's transpose, or x has
 * not been read yet. */
static void canceled_under_way(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	int ends[2] = {0, 0};
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < 40; i++) {
		kiln_ticket ticket;
		float data[COUNT];
		matrix_put(pair.x, (float)i);
		matrix_put(pair.y, -1000);
		assert_ok(submit_chain(&pair, KILN_MAX_BATCH, 1, 0, &ticket));
		assert_ok(kiln_cancel(pair.client, ticket));
		int status = kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS);
		assert_true(status == KILN_OK || status == KILN_ECANCELED);
		if (status != KILN_OK)
			assert_sentence("the call was canceled before it started");
		ends[status != KILN_OK]++;
		assert_untouched(pair.x, (float)i);
		assert_ok(kiln_read(pair.y, 0, data, sizeof(data)));
		if (status == KILN_OK || data[0] != -1000)
			assert_transposed(&pair, (float)i);
	}
	print_message("%d ran, %d did not\n", ends[0], ends[1]);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- When somebody dies ---- */

static void process_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_client *other;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	other = client_open(daemon);
	for (int i = 1; i <= 5; i++) {
		kiln_ticket first, second;
		pair_warm(&pair);
		kill(device_process(other, 0), SIGKILL);
		assert_ok(submit_chain(&pair, KILN_MAX_BATCH, 0, 0, &first));
		assert_ok(submit_chain(&pair, 3, 1, first, &second));
		assert_int_equal(kiln_wait(pair.client, first, CALL_TIMEOUT_MS), KILN_EDEVICE);
		assert_sentence("call 1 of 128: ");
		int status = kiln_wait(pair.client, second, CALL_TIMEOUT_MS);
		assert_true(status == KILN_EDEVICE || status == KILN_ECANCELED);
		await_info_at_least(other, "executors[0].restarts", i);
	}
	pair_warm(&pair);
	assert_transposed(&pair, 0);
	kiln_close(other);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* The daemon takes its device process along; both are stopped first, so that nothing has run. */
static void daemon_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket first, second, ticket;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	process_stop(device_process(pair.client, 0));
	assert_ok(submit_chain(&pair, 3, 0, 0, &first));
	assert_ok(submit_chain(&pair, 3, 1, first, &second));
	kill(daemon->pid, SIGKILL);
	kilnd_wait(daemon, STOP_TIMEOUT_MS);
	assert_int_equal(kiln_wait(pair.client, second, CALL_TIMEOUT_MS), KILN_ECONN);
	assert_sentence("call 1 of 3: kilnd at ");
	assert_sentence("connect again");
	assert_int_equal(kiln_dispatch(pair.client), 1);
	assert_int_equal(kiln_wait(pair.client, first, 0), KILN_ECONN);
	/* Nothing goes to the lane any more. */
	assert_int_equal(submit_chain(&pair, 3, 0, 0, &ticket), KILN_ECONN);
	assert_sentence("connect again");
	assert_int_equal(pair_submit_on(&pair, false, 0, 0, &ticket), KILN_ECONN);
	assert_int_equal(kiln_dispatch(pair.client), KILN_ECONN);
	pair_close(&pair);
	assert_no_children();
}

/* ---- Refusals ---- */

static void refusals(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair, other;
	kiln_operand operands[2], others[2];
	kiln_work works[KILN_MAX_BATCH + 1];
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_open(daemon, &other);
	for (int i = 0; i <= KILN_MAX_BATCH; i++)
		works[i] = pair_work(&pair, false, operands);
	assert_int_equal(kiln_submit_many(NULL, 1, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "works is NULL");
	assert_int_equal(kiln_submit_many(works, 1, NULL, NULL), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "out is NULL");
	assert_int_equal(kiln_submit_many(works, 0, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "count is 0; a batch has 1 to 128 calls");
	assert_int_equal(kiln_submit_many(works, KILN_MAX_BATCH + 1, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "count is 129; a batch has 1 to 128 calls");
	works[1].call = NULL;
	assert_int_equal(kiln_submit_many(works, 3, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "works[1].call is NULL");
	works[1] = pair_work(&other, false, others);
	assert_int_equal(kiln_submit_many(works, 3, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "works[1].call is one of another client");
	works[1] = pair_work(&pair, true, others);
	works[1].operand_count = 1;
	assert_int_equal(kiln_submit_many(works, 3, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(
		kiln_errmsg(),
		"works[1]: the call was prepared for 2 tensors and is submitted with 1 operands");
	works[0].call = NULL;
	assert_int_equal(kiln_submit_many(works, 3, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "works[0].call is NULL");
	/* None of them was submitted. */
	assert_int_equal(info_int(pair.client, "counters.launches"), 0);
	assert_int_equal(kiln_dispatch(pair.client), 0);
	pair_close(&other);
	pair_close(&pair);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(results_come_with_one_ticket),
		HARNESS_TEST(micros_are_a_sum),
		HARNESS_TEST(more_than_the_ring_holds),
		HARNESS_TEST(a_batch_is_one_end_for_event_loops),
		HARNESS_TEST(the_first_that_fails_speaks_for_all),
		HARNESS_TEST(what_follows_a_batch),
		HARNESS_TEST(canceled_before_it_starts),
		HARNESS_TEST(canceled_under_way),
		HARNESS_TEST(process_killed),
		HARNESS_TEST(daemon_killed),
		HARNESS_TEST(refusals),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
