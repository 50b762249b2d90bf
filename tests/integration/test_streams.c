/*
 * test_streams: calls on several streams of one client: each stream keeps its order, different ones
 * do not wait for each other, what follows a call on another stream sees its result or is not run,
 * and copies and frees come behind all of them; through the lane and by message.
 */
#include "lane_scene.h"

#include <stdio.h>
#include <unistd.h>

/* Other buffers for the same calls. */
static struct pair twin(const struct pair *pair)
{
	struct pair other = *pair;
	assert_ok(kiln_alloc(pair->client, COUNT * 4, 0, "x", &other.x));
	assert_ok(kiln_alloc(pair->client, COUNT * 4, 0, "y", &other.y));
	return other;
}

static void twin_free(struct pair *pair)
{
	assert_ok(kiln_free(pair->x));
	assert_ok(kiln_free(pair->y));
}

/* ---- Order ---- */

static void chain_on_streams(struct pair *pairs, unsigned streams, float first)
{
	enum { LENGTH = 7 };
	kiln_ticket tickets[KILN_STREAMS][LENGTH];
	for (unsigned s = 0; s < streams; s++)
		matrix_put(pairs[s].x, first + 1000 * (float)s);
	for (int i = 0; i < LENGTH; i++)
		for (unsigned s = 0; s < streams; s++)
			assert_ok(pair_submit_on(&pairs[s], i % 2, s, 0, &tickets[s][i]));
	/* Nobody has waited: the reads come behind them all. */
	for (unsigned s = streams; s-- > 0;)
		assert_transposed(&pairs[s], first + 1000 * (float)s);
	for (unsigned s = 0; s < streams; s++)
		for (int i = 0; i < LENGTH; i++)
			assert_ok(kiln_wait(pairs[s].client, tickets[s][i], 0));
}

static void in_order(struct kilnd *daemon, bool lane)
{
	static const unsigned streams[] = {1, 2, 5, KILN_STREAMS};
	struct pair pairs[KILN_STREAMS];
	int rounds = lane ? 20 : 4;
	pair_open(daemon, &pairs[0]);
	for (int s = 1; s < KILN_STREAMS; s++)
		pairs[s] = twin(&pairs[0]);
	for (int s = 0; s < KILN_STREAMS; s++)
		pair_warm(&pairs[s]);
	int64_t before = lane_launches(&pairs[0]);
	for (int i = 0; i < 4; i++)
		for (int round = 0; round < rounds; round++)
			chain_on_streams(pairs, streams[i], (float)round);
	assert_int_equal(lane_launches(&pairs[0]) - before,
					 lane ? rounds * 7 * (1 + 2 + 5 + KILN_STREAMS) : 0);
	for (int s = 1; s < KILN_STREAMS; s++)
		twin_free(&pairs[s]);
	pair_close(&pairs[0]);
}

static void each_stream_keeps_its_order(void **state)
{
	both_ways(*state, in_order);
}

#define DELAY_MS 150

/* How long eight delayed launches take. */
static int64_t delayed(struct pair *pairs, bool apart)
{
	kiln_ticket tickets[8];
	int64_t begin = now_ms();
	for (unsigned i = 0; i < 8; i++)
		assert_ok(pair_submit_on(&pairs[i], false, apart ? i : 3, 0, &tickets[i]));
	for (int i = 0; i < 8; i++)
		assert_ok(kiln_wait(pairs[i].client, tickets[i], CALL_TIMEOUT_MS));
	return now_ms() - begin;
}

static void different_streams_overlap(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pairs[8];
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pairs[0]);
	pair_warm(&pairs[0]);
	for (int i = 1; i < 8; i++) {
		pairs[i] = twin(&pairs[0]);
		matrix_put(pairs[i].x, (float)i);
	}
	debug_int(pairs[0].client, "delay-launch", "ms", DELAY_MS);
	assert_true(delayed(pairs, false) >= 8 * DELAY_MS);
	/* A machine with other work may delay them further, but not each time. */
	int64_t apart = INT64_MAX;
	for (int i = 0; i < 5 && apart > 6 * DELAY_MS; i++)
		apart = delayed(pairs, true);
	assert_in_range(apart, DELAY_MS, 6 * DELAY_MS);
	debug_int(pairs[0].client, "delay-launch", "ms", 0);
	for (int i = 1; i < 8; i++) {
		assert_transposed(&pairs[i], (float)i);
		twin_free(&pairs[i]);
	}
	pair_close(&pairs[0]);
	kilnd_stop(daemon);
}

/* ---- What follows ---- */

static void follow(struct kilnd *daemon, bool lane)
{
	enum { LENGTH = 9 };
	struct pair pair;
	int rounds = lane ? 200 : 20;
	pair_open(daemon, &pair);
	pair_warm(&pair);
	int64_t before = lane_launches(&pair);
	for (int i = 0; i < rounds; i++) {
		kiln_ticket tickets[LENGTH];
		matrix_put(pair.x, (float)i);
		for (int k = 0; k < LENGTH; k++)
			assert_ok(pair_submit_on(&pair, k % 2, (unsigned)(i + k * (1 + i % 5)) % KILN_STREAMS,
									 k ? tickets[k - 1] : 0, &tickets[k]));
		assert_transposed(&pair, (float)i);
		for (int k = 0; k < LENGTH; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], 0));
	}
	assert_int_equal(lane_launches(&pair) - before, lane ? rounds * LENGTH : 0);
	pair_close(&pair);
}

static void what_follows_on_another_stream_sees_the_result(void **state)
{
	both_ways(*state, follow);
}

static void assert_canceled(kiln_client *client, kiln_ticket ticket)
{
	assert_int_equal(kiln_wait(client, ticket, CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_sentence("follow");
	assert_sentence("did not succeed");
}

static void follow_failure(struct kilnd *daemon, bool lane)
{
	struct pair pair;
	struct gather gather;
	kiln_ticket first, same, other, late;
	pair_open(daemon, &pair);
	gather_open(pair.client, &gather);
	pair_warm(&pair);
	for (int i = 0; i < 20; i++) {
		bool bad = i % 2;
		gather_spoil(&gather, bad);
		matrix_put(pair.x, (float)i);
		matrix_put(pair.y, -1000);
		gather_submit_on(&gather, 1, 0, &first);
		assert_ok(pair_submit_on(&pair, false, 1, first, &same));
		assert_ok(pair_submit_on(&pair, false, 2, first, &other));
		assert_int_equal(kiln_wait(pair.client, first, CALL_TIMEOUT_MS), bad ? KILN_EINDEX : 0);
		if (!bad) {
			assert_ok(kiln_wait(pair.client, same, CALL_TIMEOUT_MS));
			assert_ok(kiln_wait(pair.client, other, CALL_TIMEOUT_MS));
			assert_transposed(&pair, (float)i);
			continue;
		}
		assert_string_equal(kiln_errmsg(), GATHER_SENTENCE);
		assert_canceled(pair.client, same);
		assert_canceled(pair.client, other);
		assert_ok(pair_submit_on(&pair, false, 3, first, &late));
		assert_canceled(pair.client, late);
		/* None of them has run. */
		float data[COUNT];
		assert_ok(kiln_read(pair.y, 0, data, sizeof(data)));
		for (int k = 0; k < COUNT; k++)
			assert_true(data[k] == -1000 + (float)k);
	}
	assert_int_equal(info_int(pair.client, "counters.lane_failures"), lane ? 30 : 0);
	gather_close(&gather);
	pair_close(&pair);
}

static void what_follows_a_failure_is_not_run(void **state)
{
	both_ways(*state, follow_failure);
}

/* ---- Beside copies, frees and messages ---- */

static void behind_all(struct kilnd *daemon, bool lane)
{
	struct pair pair;
	kiln_ticket tickets[4];
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < (lane ? 60 : 10); i++) {
		matrix_put(pair.x, (float)i);
		for (unsigned k = 0; k < 3; k++)
			assert_ok(pair_submit_on(&pair, k % 2, 5 + k, k ? tickets[k - 1] : 0, &tickets[k]));
		matrix_put(pair.x, -1);
		assert_transposed(&pair, (float)i);
		assert_ok(pair_submit_on(&pair, false, 9, 0, &tickets[3]));
		assert_ok(kiln_free(pair.x));
		for (int k = 0; k < 4; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS));
		assert_transposed(&pair, -1);
		assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "x", &pair.x));
		pair_run(&pair, true);
	}
	pair_close(&pair);
}

static void copies_and_frees_come_behind_all_streams(void **state)
{
	both_ways(*state, behind_all);
}

/* An entry that follows a call that may still fail is parked until that call has ended. */
static void what_is_done_while_entries_are_parked(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	struct gather gather;
	kiln_buffer *z;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	gather_open(pair.client, &gather);
	assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "z", &z));
	for (int i = 0; i < 30; i++) {
		kiln_ticket first, parked, fresh;
		struct pair out = pair;
		pair_warm(&pair);
		matrix_put(pair.x, (float)i);
		gather_submit_on(&gather, 1, 0, &first);
		assert_ok(pair_submit_on(&pair, false, 2, first, &parked));
		/* A call that has never been launched goes by message, and behind it on its stream. */
		out.back = transpose_prepare(pair.client, COLUMNS, ROWS);
		out.x = z;
		assert_ok(pair_submit_on(&out, true, 2, 0, &fresh));
		kiln_call_free(pair.there);
		kiln_call_free(out.back);
		assert_ok(kiln_wait(pair.client, fresh, CALL_TIMEOUT_MS));
		assert_ok(kiln_wait(pair.client, parked, CALL_TIMEOUT_MS));
		assert_ok(kiln_wait(pair.client, first, CALL_TIMEOUT_MS));
		pair.there = transpose_prepare(pair.client, ROWS, COLUMNS);
		out.there = pair.there;
		pair_run(&out, false);
		assert_transposed(&out, (float)i);
		gather_submit_on(&gather, 1, 0, &first);
		assert_ok(pair_submit_on(&pair, false, 2, first, &parked));
		assert_ok(kiln_free(pair.y));
		assert_ok(kiln_wait(pair.client, parked, CALL_TIMEOUT_MS));
		assert_ok(kiln_wait(pair.client, first, 0));
		assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "y", &pair.y));
	}
	assert_ok(kiln_free(z));
	gather_close(&gather);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- Ends ---- */

/* A later entry of another stream has ended, and an earlier one seems not to have. */
static void ends_are_seen_past_what_runs(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair, other;
	kiln_ticket slow, fast;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	other = twin(&pair);
	pair_warm(&other);
	assert_ok(pair_submit_on(&pair, false, 1, 0, &slow));
	assert_ok(pair_submit_on(&other, false, 2, 0, &fast));
	struct lane_memory *lane = lane_find(NULL);
	uint64_t number = atomic_load(&lane->header.tail) - 2;
	lane_await(lane, number + 1);
	lane_await(lane, number);
	uint32_t gate = atomic_exchange(&lane->gates[number % LANE_ENTRIES].done, 0);
	atomic_store(&lane->cells[number % LANE_ENTRIES].done, 0);
	assert_int_equal(kiln_dispatch(pair.client), 1);
	assert_ok(kiln_wait(pair.client, fast, 0));
	assert_int_equal(kiln_wait(pair.client, slow, 0), KILN_EAGAIN);
	atomic_store(&lane->gates[number % LANE_ENTRIES].done, gate);
	atomic_store(&lane->cells[number % LANE_ENTRIES].done, number + 1);
	assert_int_equal(kiln_dispatch(pair.client), 1);
	assert_ok(kiln_wait(pair.client, slow, 0));
	twin_free(&other);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* The device process may not know yet of an end that only the GPU has told. */
static void places_are_not_reused_before_their_end_is_told(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (uint32_t i = 0; i < LANE_ENTRIES; i++)
		pair_run(&pair, i % 2);
	struct lane_memory *lane = lane_find(NULL);
	uint64_t tail = atomic_load(&lane->header.tail);
	assert_true(tail >= LANE_ENTRIES);
	atomic_store(&lane->cells[tail % LANE_ENTRIES].done, 0);
	pair_run(&pair, false); /* by message */
	assert_int_equal(atomic_load(&lane->header.tail), tail);
	atomic_store(&lane->cells[tail % LANE_ENTRIES].done, tail + 1 - LANE_ENTRIES);
	pair_run(&pair, false);
	assert_int_equal(atomic_load(&lane->header.tail), tail + 1);
	assert_transposed(&pair, 0);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- A ready word that is never written ---- */

/* Milliseconds of a processor that the process has used. */
static int64_t used_ms(pid_t pid)
{
	char path[64];
	unsigned long long user = 0, kernel = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
							&user, &kernel),
					 2);
	fclose(file);
	return (int64_t)((user + kernel) * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static void a_ready_word_that_is_never_written(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair, other;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &other);
	pair_warm(&other);
	pair_run(&other, true);
	pid_t executor = device_process(other.client, 0);
	int maps = count_shared_maps(executor), fds = count_fds(executor);
	struct lane_memory *others = lane_find(NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pair_run(&pair, true);
	struct lane_memory *lane = lane_find(others);
	struct lane_entry entry = lane_last_entry(lane), gated = entry, behind = entry;
	gated.flags = LANE_READY;
	gated.stream = behind.stream = 4;
	uint64_t parked = lane_post(lane, gated), next = lane_post(lane, behind);
	assert_entry_ends(lane, entry, KILN_OK, NULL);
	/* It is looked at now and then only; this is no wait for anything. */
	int64_t before = used_ms(executor);
	pause_ms(1000);
	assert_in_range(used_ms(executor) - before, 0, 400);
	matrix_put(other.x, 7);
	pair_run(&other, false);
	assert_transposed(&other, 7);
	/* Their client writes on until it comes to the place of the first. */
	while (atomic_load(&lane->header.tail) < parked + LANE_ENTRIES)
		assert_entry_ends(lane, entry, KILN_OK, NULL);
	uint64_t stuck = lane_post(lane, entry);
	pair_run(&other, true);
	assert_int_equal(atomic_load(&lane->header.head), stuck);
	assert_int_not_equal(atomic_load(&lane->cells[next % LANE_ENTRIES].done), next + 1);
	kiln_close(pair.client);
	/* With the session ends what was parked, and the lane. */
	assert_shared_maps_at_most(executor, maps);
	assert_fds_at_most(executor, fds);
	pair_run(&other, false);
	assert_transposed(&other, 7);
	kiln_call_free(pair.there);
	kiln_call_free(pair.back);
	kiln_free(pair.x);
	kiln_free(pair.y);
	pair_close(&other);
	kilnd_stop(daemon);
}

/* ---- Refusals ---- */

static void refusals(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_operand operands[2];
	kiln_ticket ticket;
	char size[96];
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	kiln_work work = pair_work(&pair, false, operands);
	kiln_submit_options options = {.size = sizeof(options), .stream = KILN_STREAMS};
	assert_int_equal(kiln_submit_with(work.call, operands, 2, &options, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "stream is 16; the streams of a client are 0 to 15");
	options = (kiln_submit_options){.size = sizeof(options), .flags = 6};
	assert_int_equal(kiln_submit_with(work.call, operands, 2, &options, &ticket), KILN_EINVAL);
	assert_sentence("options->flags is 0x6; this libkiln ");
	assert_sentence(" knows 0x1");
	options = (kiln_submit_options){.size = sizeof(options), .cuda_stream = &pair};
	assert_int_equal(kiln_submit_with(work.call, operands, 2, &options, &ticket), KILN_EINVAL);
	assert_sentence("options->flags lacks KILN_SUBMIT_CUDA, without which it would mean nothing");
	options = (kiln_submit_options){.size = 8};
	assert_int_equal(kiln_submit_with(work.call, operands, 2, &options, &ticket), KILN_EINVAL);
	snprintf(size, sizeof(size),
			 "options->size is 8; it must be sizeof(kiln_submit_options), which is %zu here",
			 sizeof(options));
	assert_string_equal(kiln_errmsg(), size);
	options = (kiln_submit_options){.size = sizeof(options), .after = 123456};
	assert_int_equal(kiln_submit_with(work.call, operands, 2, &options, &ticket), KILN_ENOENT);
	assert_string_equal(kiln_errmsg(),
						"after is 123456, which no call of this client had for a ticket");
	assert_int_equal(kiln_submit_with(NULL, operands, 2, NULL, &ticket), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "call is NULL");
	assert_int_equal(kiln_submit_with(work.call, operands, 2, NULL, NULL), KILN_EINVAL);
	assert_string_equal(kiln_errmsg(), "out is NULL");
	/* Without options it is kiln_submit(). */
	matrix_put(pair.x, 3);
	assert_ok(kiln_submit_with(work.call, operands, 2, NULL, &ticket));
	assert_ok(kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS));
	assert_transposed(&pair, 3);
	pair_close(&pair);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(each_stream_keeps_its_order),
		HARNESS_TEST(different_streams_overlap),
		HARNESS_TEST(what_follows_on_another_stream_sees_the_result),
		HARNESS_TEST(what_follows_a_failure_is_not_run),
		HARNESS_TEST(copies_and_frees_come_behind_all_streams),
		HARNESS_TEST(what_is_done_while_entries_are_parked),
		HARNESS_TEST(ends_are_seen_past_what_runs),
		HARNESS_TEST(places_are_not_reused_before_their_end_is_told),
		HARNESS_TEST(a_ready_word_that_is_never_written),
		HARNESS_TEST(refusals),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
