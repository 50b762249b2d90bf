/*
 * test_lane: launches through the memory that a client shares with its device process: that they go
 * there, keep their order among those that go by message, and end once each; what becomes of them
 * when the process dies; and what a client that writes nonsense there can do: nothing to others.
 */
#include "lane_scene.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- What goes through it ---- */

static void repeated_calls(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < 300; i++) {
		matrix_put(pair.x, (float)i);
		pair_run(&pair, false);
		assert_transposed(&pair, (float)i);
	}
	assert_true(lane_launches(&pair) >= 300);
	assert_int_equal(info_int(pair.client, "counters.launches"), 303);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* More than the ring has places: the rest goes by message, behind it. */
static void many_queued(void **state)
{
	struct kilnd *daemon = *state;
	enum { MANY = 3 * LANE_ENTRIES + 1 };
	static kiln_ticket tickets[MANY];
	struct pair pair;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int round = 0; round < 5; round++) {
		matrix_put(pair.x, (float)round);
		for (int i = 0; i < MANY; i++)
			assert_ok(pair_submit(&pair, i % 2, 0, &tickets[i]));
		for (int i = MANY - 1; i >= 0; i--)
			assert_ok(kiln_wait(pair.client, tickets[i], CALL_TIMEOUT_MS));
		assert_transposed(&pair, (float)round);
	}
	assert_true(lane_launches(&pair) >= 5 * LANE_ENTRIES);
	assert_int_equal(info_int(pair.client, "counters.launches"), 3 + 5 * MANY);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* A write must not overtake the launch before it, nor a launch the write. */
static void order_with_messages(void **state)
{
	struct kilnd *daemon = *state;
	kiln_ticket tickets[8];
	struct pair pair;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < 200; i++) {
		matrix_put(pair.x, (float)i);
		for (int k = 0; k < 7; k++)
			assert_ok(pair_submit(&pair, k % 2, k ? tickets[k - 1] : 0, &tickets[k]));
		/* Unwaited: the read comes behind them all. */
		assert_transposed(&pair, (float)i);
		for (int k = 0; k < 7; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], 0));
	}
	assert_true(lane_launches(&pair) >= 1000);
	pair_close(&pair);
	kilnd_stop(daemon);
}

static void buffers_freed_behind_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket tickets[64];
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < 50; i++) {
		for (int k = 0; k < 64; k++)
			assert_ok(pair_submit(&pair, k % 2, 0, &tickets[k]));
		assert_ok(kiln_free(pair.y));
		for (int k = 0; k < 64; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS));
		assert_ok(kiln_alloc(pair.client, COUNT * 4, 0, "y", &pair.y));
		pair_run(&pair, false);
	}
	assert_transposed(&pair, 0);
	pair_close(&pair);
	kilnd_stop(daemon);
}

static void calls_freed_behind_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket tickets[64];
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	for (int i = 0; i < 50; i++) {
		pair_warm(&pair);
		for (int k = 0; k < 64; k++)
			assert_ok(pair_submit(&pair, k % 2, 0, &tickets[k]));
		kiln_call_free(pair.there);
		kiln_call_free(pair.back);
		for (int k = 0; k < 64; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS));
		pair.there = transpose_prepare(pair.client, ROWS, COLUMNS);
		pair.back = transpose_prepare(pair.client, COLUMNS, ROWS);
	}
	assert_true(lane_launches(&pair) >= 50 * 64);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* A launch that was canceled before it started does not run, and neither does the one that follows
 * it: through the lane or, as the first launch of a call, by message, when nobody has waited for it
 * yet. */
static void canceled(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_operand operands[2];
	int ends[2] = {0, 0};
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int i = 0; i < 30; i++) {
		kiln_ticket tickets[100], next, message;
		kiln_call *fresh = transpose_prepare(pair.client, ROWS, COLUMNS);
		pair_work(&pair, false, operands);
		for (int k = 0; k < 100; k++)
			assert_ok(pair_submit(&pair, k % 2, 0, &tickets[k]));
		assert_ok(kiln_cancel(pair.client, tickets[99]));
		assert_ok(kiln_submit(fresh, operands, 2, tickets[99], &message));
		int status = kiln_wait(pair.client, tickets[99], CALL_TIMEOUT_MS);
		assert_true(status == KILN_OK || status == KILN_ECANCELED);
		ends[status != KILN_OK]++;
		assert_int_equal(kiln_wait(pair.client, message, CALL_TIMEOUT_MS), status);
		assert_ok(pair_submit(&pair, false, tickets[99], &next));
		assert_int_equal(kiln_wait(pair.client, next, CALL_TIMEOUT_MS), status);
		if (status != KILN_OK)
			assert_sentence("which this call follows, did not succeed");
		for (int k = 0; k < 99; k++)
			assert_ok(kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS));
		kiln_call_free(fresh);
	}
	print_message("%d ran, %d did not\n", ends[0], ends[1]);
	assert_true(ends[1] > 0);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* A program that polls the descriptor is told of ends, whichever way they come. */
static void event_loop(void **state)
{
	struct kilnd *daemon = *state;
	for (int early = 0; early < 2; early++) {
		struct pair pair;
		kiln_ticket ticket;
		kilnd_start(daemon, NULL);
		pair_open(daemon, &pair);
		int fd = early ? kiln_fd(pair.client) : -1;
		pair_warm(&pair);
		fd = early ? fd : kiln_fd(pair.client);
		for (int i = 0; i < 200; i++) {
			int64_t end = now_ms() + CALL_TIMEOUT_MS;
			assert_ok(pair_submit(&pair, i % 2, 0, &ticket));
			while (kiln_dispatch(pair.client) == 0) {
				struct pollfd watch = {.fd = fd, .events = (short)kiln_events(pair.client)};
				assert_true(now_ms() < end);
				assert_int_not_equal(poll(&watch, 1, CALL_TIMEOUT_MS), 0);
			}
			assert_ok(kiln_wait(pair.client, ticket, 0));
		}
		assert_true(lane_launches(&pair) >= 200);
		pair_close(&pair);
		kilnd_stop(daemon);
	}
}

/* A child of fork() that closes the client it inherited takes no end from its parent. */
static void a_child_closes(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	int status;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	struct pollfd watch = {.fd = kiln_fd(pair.client), .events = POLLIN};
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		kiln_close(pair.client);
		_exit(0);
	}
	assert_true(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 200; i++) {
		assert_ok(pair_submit(&pair, i % 2, 0, &ticket));
		while (kiln_dispatch(pair.client) == 0)
			assert_int_equal(poll(&watch, 1, CALL_TIMEOUT_MS), 1);
		assert_ok(kiln_wait(pair.client, ticket, 0));
	}
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- Without system calls ---- */

static int silent_client(const struct kilnd *daemon, void *arg)
{
	struct pair pair;
	(void)arg;
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pair_run(&pair, true);
	if (!forbid_system_calls())
		_exit(2);
	for (int i = 0; i < 1000; i++) {
		kiln_ticket ticket;
		if (pair_submit(&pair, i % 2, 0, &ticket) ||
			kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS))
			_exit(3);
	}
	_exit(0);
}

static void steady_state_makes_no_system_call(void **state)
{
	assert_silent(*state, silent_client);
}

/* ---- Many at once ---- */

/* Every ticket ends, once, and in order. */
static int stress(const struct kilnd *daemon, void *arg)
{
	enum { DEPTH = 128 };
	const int64_t *rounds = arg;
	struct pair pair;
	kiln_ticket tickets[DEPTH];
	pair_open(daemon, &pair);
	pair_warm(&pair);
	for (int64_t i = 0; i < *rounds; i++) {
		for (int k = 0; k < DEPTH; k++)
			assert_ok(pair_submit(&pair, k % 2, 0, &tickets[k]));
		for (int k = 0; k < DEPTH; k++) {
			assert_ok(kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS));
			assert_int_equal(kiln_wait(pair.client, tickets[k], 0), KILN_ENOENT);
		}
	}
	pair_run(&pair, false);
	assert_transposed(&pair, 0);
	pair_close(&pair);
	return 0;
}

static void clients_at_once(void **state)
{
	struct kilnd *daemon = *state;
	enum { CLIENTS = 4 };
	pid_t pids[CLIENTS];
	int64_t rounds = 20;
	kiln_client *client;
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (int i = 0; i < CLIENTS; i++)
		pids[i] = process_start(daemon, stress, &rounds);
	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(process_wait(pids[i], 60000), EXITED(0));
	assert_int_equal(info_int(client, "counters.launches"), CLIENTS * (3 + 20 * 128 + 1));
	assert_true(info_int(client, "counters.lane_launches") > CLIENTS * 20 * 100);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- When the device process dies ---- */

static void process_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_client *other;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	other = client_open(daemon);
	debug_int(other, "restart-pause", "ms", 50);
	for (int i = 1; i <= 10; i++) {
		kiln_ticket tickets[100];
		int failed = 0;
		pair_warm(&pair);
		kill(device_process(other, 0), SIGKILL);
		for (int k = 0; k < 100; k++)
			assert_ok(pair_submit(&pair, k % 2, 0, &tickets[k]));
		for (int k = 0; k < 100; k++) {
			int status = kiln_wait(pair.client, tickets[k], CALL_TIMEOUT_MS);
			if (status != KILN_OK && status != KILN_EDEVICE && status != KILN_ELOST)
				fail_msg("ticket %d: %s: %s", k, kiln_status_name(status), kiln_errmsg());
			failed += status != KILN_OK;
		}
		await_info_at_least(other, "executors[0].restarts", i);
		assert_true(failed > 0);
	}
	pair_warm(&pair);
	assert_transposed(&pair, 0);
	kiln_close(other);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* A descriptor that is polled is not readable for ever when the lane has ended. */
static void process_killed_under_an_event_loop(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_client *other;
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	other = client_open(daemon);
	pair_warm(&pair);
	struct pollfd watch = {.fd = kiln_fd(pair.client), .events = POLLIN};
	kill(device_process(other, 0), SIGKILL);
	await_info_at_least(other, "executors[0].restarts", 1);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	do {
		assert_true(now_ms() < end);
		assert_int_equal(kiln_dispatch(pair.client), 0);
	} while (poll(&watch, 1, 100) != 0);
	int64_t before = lane_launches(&pair);
	pair_warm(&pair);
	for (int i = 0; i < 20; i++) {
		assert_ok(pair_submit(&pair, i % 2, 0, &ticket));
		while (kiln_dispatch(pair.client) == 0)
			assert_int_equal(poll(&watch, 1, CALL_TIMEOUT_MS), 1);
		assert_ok(kiln_wait(pair.client, ticket, 0));
	}
	/* It has another lane. */
	assert_true(lane_launches(&pair) >= before + 20);
	kiln_close(other);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* A call that has to wait for others first says what every call says when the daemon is gone. */
static void daemon_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	float first;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	process_stop(device_process(pair.client, 0));
	assert_ok(pair_submit_on(&pair, true, 1, 0, &ticket));
	assert_int_equal(kiln_wait(pair.client, ticket + 1, 0), KILN_ENOENT);
	kill(daemon->pid, SIGKILL);
	kilnd_wait(daemon, STOP_TIMEOUT_MS);
	assert_int_equal(kiln_read(pair.x, 0, &first, sizeof(first)), KILN_ECONN);
	if (!strstr(kiln_errmsg(), "went away"))
		fail_msg("of a daemon that is gone: %s", kiln_errmsg());
	assert_int_equal(kiln_wait(pair.client, ticket, 0), KILN_ECONN);
	pair_close(&pair);
}

/* A kernel of the program's own waits for all that is in the lane, and says so when it has waited
 * for too long. */
static void deadline_before_a_raw_kernel(void **state)
{
	static const char source[] = "extern \"C\" __global__ void nothing() {}";
	const kiln_raw raw = {
		.size = sizeof(raw), .name = "n.cu", .source = source, .entry = "nothing"};
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_ticket ticket;
	kiln_call *call;
	int status;
	kilnd_start(daemon, NULL);
	pair_open_on(client_try(daemon, 1000, &status), &pair);
	pair_warm(&pair);
	pid_t process = device_process(pair.client, 0);
	process_stop(process);
	assert_ok(pair_submit(&pair, true, 0, &ticket));
	assert_int_equal(kiln_wait(pair.client, ticket + 1, 0), KILN_ENOENT);
	assert_int_equal(kiln_prepare_raw(pair.client, &raw, &call), KILN_ETIMEDOUT);
	if (!strstr(kiln_errmsg(), "before the deadline"))
		fail_msg("after the deadline: %s", kiln_errmsg());
	kill(process, SIGCONT);
	assert_ok(kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS));
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- A client that writes nonsense ---- */

static void bad_entries(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair, other;
	struct lane_entry good, bad;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &other);
	pair_warm(&other);
	pair_run(&other, false);
	struct lane_memory *others = lane_find(NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pair_run(&pair, false);
	struct lane_memory *lane = lane_find(others);
	good = lane_last_entry(lane);
	assert_entry_ends(lane, good, KILN_OK, NULL);
	bad = good, bad.call += 1000000;
	assert_entry_ends(lane, bad, KILN_EINVAL, "is not bound");
	bad = good, bad.operand_count = 1;
	assert_entry_ends(lane, bad, KILN_EINVAL, "with 1 operands");
	bad = good, bad.operand_count = UINT32_MAX;
	assert_entry_ends(lane, bad, KILN_EINVAL, "is not bound");
	bad = good, bad.call = lane_last_entry(others).call;
	assert_entry_ends(lane, bad, KILN_EINVAL, "is not bound");
	bad = good, bad.operands[1] = lane_last_entry(others).operands[1];
	assert_entry_ends(lane, bad, KILN_ENOENT, "there is no buffer");
	bad = good, bad.operands[0].buffer = 0;
	assert_entry_ends(lane, bad, KILN_ENOENT, "there is no buffer");
	bad = good, bad.operands[0].offset = UINT64_MAX - 3;
	assert_entry_ends(lane, bad, KILN_EINVAL, "not within its buffer");
	bad = good, bad.operands[1] = good.operands[0];
	assert_entry_ends(lane, bad, KILN_EINVAL, "x and y overlap");
	bad = good, bad.after = atomic_load(&lane->header.tail); /* the one just refused */
	assert_entry_ends(lane, bad, KILN_ECANCELED, "did not succeed");
	assert_entry_ends(lane, good, KILN_OK, NULL);
	/* An entry that cannot come next: that client alone is thrown out. */
	uint64_t next = atomic_load(&lane->header.tail);
	atomic_store(&lane->entries[next % LANE_ENTRIES].sequence, (uint32_t)(next + 2));
	lane_ring();
	await_info(other.client, "server.sessions", 1);
	assert_int_equal(kiln_free(pair.y), KILN_ECONN);
	assert_ok(kiln_alloc(other.client, COUNT * 4, 0, "y", &pair.y));
	matrix_put(other.x, 5);
	pair_run(&other, false);
	assert_transposed(&other, 5);
	kiln_free(pair.y);
	pair.y = NULL;
	pair_close(&pair);
	pair_close(&other);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(repeated_calls),
		HARNESS_TEST(many_queued),
		HARNESS_TEST(order_with_messages),
		HARNESS_TEST(buffers_freed_behind_launches),
		HARNESS_TEST(calls_freed_behind_launches),
		HARNESS_TEST(canceled),
		HARNESS_TEST(event_loop),
		HARNESS_TEST(a_child_closes),
		HARNESS_TEST(steady_state_makes_no_system_call),
		HARNESS_TEST(clients_at_once),
		HARNESS_TEST(process_killed),
		HARNESS_TEST(process_killed_under_an_event_loop),
		HARNESS_TEST(daemon_killed),
		HARNESS_TEST(deadline_before_a_raw_kernel),
		HARNESS_TEST(bad_entries),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
