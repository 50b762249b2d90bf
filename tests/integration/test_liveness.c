/*
 * test_liveness: two clocks for a child that works: how long its work may take, and how long it may
 * give no sign of life.  One that is busy for longer than the second is left alone, and one that is
 * stopped is found long before the first has passed.
 */
#include "waits_seen.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LIVENESS_MS 1250 /* more than a second, for which a busy machine may stop a heart */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define NO_SIGN "gave no sign of life for " TEXT(LIVENESS_MS) " ms"
#define FOUND_MS CALL_TIMEOUT_MS
#define FAR_MS 600000 /* the other deadlines, and what is to go on: far beyond FOUND_MS */

static struct kilnd *start(void **state)
{
	struct kilnd *daemon = *state;
	kilnd_start(daemon, OPTIONS("--test-liveness-timeout", TEXT(LIVENESS_MS), "--launch-timeout",
								TEXT(FAR_MS), "--compile-timeout", TEXT(FAR_MS), "--workers", "2",
								"--test-retry-after", "0"));
	return daemon;
}

struct asking {
	struct permute problem;
	const char *origin;
};

static int ask(const struct kilnd *daemon, void *arg)
{
	const struct asking *asking = arg;
	char origin[16], why[400];
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client || permute_check(client, &asking->problem, 1, origin, why) != KILN_OK)
		return 1;
	kiln_close(client);
	return strcmp(origin, asking->origin) != 0;
}

/* It is stopped while it compiles: found, killed, and its job is another's, so that no client is
 * told anything. */
static void worker_stopped(void **state)
{
	struct kilnd *daemon = start(state);
	kiln_client *observer = observer_open(daemon);
	struct asking asking = {transpose(21, 22), "compiled"};
	await_info(observer, "workers.idle", 2);
	debug_int(observer, "delay-compile", "ms", FAR_MS);
	int64_t began = now_ms();
	pid_t client = process_start(daemon, ask, &asking);
	struct wait_seen compiling = await_wait(observer, "compiling");
	debug_int(observer, "delay-compile", "ms", 0);
	process_stop((pid_t)compiling.of_pid);
	await_info(observer, "workers.killed", 1);
	assert_in_range(now_ms() - began, LIVENESS_MS / 2, FOUND_MS);
	assert_int_equal(process_wait(client, CALL_TIMEOUT_MS), EXITED(0));
	assert_int_equal(info_int(observer, "counters.worker_faults"), 1);
	kilnd_await_log(daemon, NO_SIGN);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- A device process ---- */

struct calls {
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call;
	pid_t executor;
};

static void calls_open(struct calls *calls, const struct kilnd *daemon)
{
	struct permute problem = transpose(8, 8);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	calls->client = client_open(daemon);
	assert_ok(kiln_alloc(calls->client, 256, KILN_BUFFER_SHARED, "x", &calls->x));
	assert_ok(kiln_alloc(calls->client, 256, KILN_BUFFER_SHARED, "y", &calls->y));
	assert_ok(kiln_prepare(calls->client, "permute", tensors, 2, &perm, 1, &calls->call));
	calls->executor = device_process(calls->client, 0);
}

static int run(struct calls *calls, int64_t *took)
{
	int64_t began = now_ms();
	kiln_ticket ticket;
	int status =
		kiln_submit(calls->call, (kiln_operand[]){{calls->x, 0}, {calls->y, 0}}, 2, 0, &ticket);
	status = status ? status : kiln_wait(calls->client, ticket, CALL_TIMEOUT_MS);
	*took = now_ms() - began;
	return status;
}

static void calls_close(struct calls *calls)
{
	kiln_call_free(calls->call);
	kiln_free(calls->x);
	kiln_free(calls->y);
	kiln_close(calls->client);
}

static void executor_stopped(void **state)
{
	struct kilnd *daemon = start(state);
	struct calls calls;
	int64_t took;
	calls_open(&calls, daemon);
	/* Stopped while it has nothing to do: found by who asks. */
	process_stop(calls.executor);
	assert_int_equal(run(&calls, &took), KILN_EDEVICE);
	assert_sentence("the device process of cpu " NO_SIGN " and was ended");
	assert_in_range(took, LIVENESS_MS / 2, FOUND_MS);
	/* Another is there; and launches that the broker does not see are no different. */
	for (int i = 0; i < 3; i++)
		assert_ok(run(&calls, &took));
	await_info_at_least(calls.client, "counters.lane_launches", 1);
	calls.executor = device_process(calls.client, 0);
	calls_close(&calls);
	kilnd_stop(daemon);
}

/* Both kinds, at once: each is busy for twice as long as it may be silent. */
static void busy_is_alive(void **state)
{
	struct kilnd *daemon = start(state);
	struct calls calls;
	struct asking asking = {transpose(23, 24), "compiled"};
	int64_t took;
	calls_open(&calls, daemon);
	kiln_client *observer = observer_open(daemon);
	debug_int(observer, "delay-compile", "ms", 2 * LIVENESS_MS);
	debug_int(observer, "delay-launch", "ms", 2 * LIVENESS_MS);
	pid_t client = process_start(daemon, ask, &asking);
	await_wait(observer, "compiling");
	assert_ok(run(&calls, &took));
	assert_true(took >= 2 * LIVENESS_MS);
	debug_int(observer, "delay-launch", "ms", 0);
	assert_int_equal(process_wait(client, CALL_TIMEOUT_MS), EXITED(0));
	assert_int_equal(info_int(observer, "workers.killed"), 0);
	assert_int_equal(info_int(observer, "counters.executor_faults"), 0);
	assert_int_equal(info_int(observer, "executors[0].pid"), calls.executor);
	/* It has an end all the same, which is that of the work. */
	kiln_close(observer);
	calls_close(&calls);
	kilnd_stop(daemon);
}

/* A call that does not end is overdue, however well its neighbour gets on in the same device
 * process, by message and through its lane. */
static void a_neighbour_is_no_excuse(void **state)
{
	struct kilnd *daemon = *state;
	struct calls stuck, other;
	kiln_ticket ticket;
	int64_t took;
	int status = KILN_EAGAIN;
	kilnd_start(daemon, OPTIONS("--launch-timeout", "1200"));
	calls_open(&stuck, daemon);
	calls_open(&other, daemon);
	debug_int(other.client, "delay-launch", "ms", 60000);
	const kiln_operand operands[] = {{stuck.x, 0}, {stuck.y, 0}};
	assert_ok(kiln_submit(stuck.call, operands, 2, 0, &ticket));
	await_wait(other.client, "launch");
	debug_int(other.client, "delay-launch", "ms", 0);
	int64_t began = now_ms();
	while (status == KILN_EAGAIN && now_ms() < began + FOUND_MS) {
		int of_other = run(&other, &took);
		if (of_other != KILN_OK)
			assert_int_equal(of_other, KILN_EDEVICE);
		status = kiln_wait(stuck.client, ticket, 0);
	}
	assert_int_equal(status, KILN_ETIMEDOUT);
	assert_sentence("nothing completed on cpu for 1200 ms, the deadline of the call that ran");
	calls_close(&stuck);
	calls_close(&other);
	kilnd_stop(daemon);
}

/* The end of a lane's last call may keep it from answering what nobody waits for. */
static void what_was_posted_is_not_awaited(void **state)
{
	struct kilnd *daemon = start(state);
	struct calls calls, other;
	int64_t took;
	calls_open(&calls, daemon);
	calls_open(&other, daemon);
	assert_ok(run(&other, &took));
	debug_fail_device(calls.client, "mute", "end", false);
	calls_close(&other);
	for (int i = 0; i < 2; i++) {
		pause_ms(LIVENESS_MS + LIVENESS_MS / 4);
		assert_ok(run(&calls, &took));
	}
	assert_int_equal(info_int(calls.client, "counters.executor_faults"), 0);
	assert_int_equal(info_int(calls.client, "executors[0].pid"), calls.executor);
	/* The answer that never comes ends with it. */
	assert_int_equal(info_int(calls.client, "executors[0].inflight"), 1);
	debug_str(calls.client, "kill", "role", "executor");
	await_info(calls.client, "counters.executor_faults", 1);
	calls_close(&calls);
	kilnd_stop(daemon);
}

/* One that hangs, and says that it lives, is the affair of --compile-timeout. */
static void hanging_is_overdue(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(25, 26);
	char why[400];
	kilnd_start(daemon, OPTIONS("--test-liveness-timeout", TEXT(LIVENESS_MS), "--compile-timeout",
								"1500", "--test-retry-after", "0"));
	kiln_client *client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "hang-compile", "count", 1);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ETIMEDOUT);
	assert_non_null(strstr(why, "took longer than 1500 ms (--compile-timeout)"));
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(worker_stopped),     HARNESS_TEST(executor_stopped),
		HARNESS_TEST(busy_is_alive),      HARNESS_TEST(what_was_posted_is_not_awaited),
		HARNESS_TEST(hanging_is_overdue), HARNESS_TEST(a_neighbour_is_no_excuse),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
