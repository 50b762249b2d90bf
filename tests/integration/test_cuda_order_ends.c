/*
 * test_cuda_order_ends: whatever ends while calls are in order with a CUDA stream (their device
 * process, the broker, the session, the client), the stream goes on, and touches no memory that is
 * gone.
 */
#include "cuda_order.h"

#include "client/lib/order.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 12

static void kill_executor(const struct scene *scene)
{
	kill(device_process(scene->other, 0), SIGKILL);
}

/* Each has ended, somehow. */
static int count_failed(const struct scene *scene, const kiln_ticket *tickets, int count)
{
	int failed = 0;
	for (int i = 0; i < count; i++) {
		int status = kiln_wait(scene->client, tickets[i], CALL_TIMEOUT_MS);
		if (status != KILN_OK && status != KILN_EDEVICE && status != KILN_ELOST &&
			status != KILN_ECANCELED)
			fail_msg("ticket %d: %s: %s", i, kiln_status_name(status), kiln_errmsg());
		failed += status != KILN_OK;
	}
	return failed;
}

/* A call that is lost may come before its client has heard of it. */
static void warm_again(const struct scene *scene)
{
	const kiln_operand operands[] = {{scene->x, 0}, {scene->y, 0}};
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (int good = 0; good < 2;) {
		kiln_ticket ticket;
		assert_ok(kiln_submit(scene->call, operands, 2, 0, &ticket));
		good = kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS) == KILN_OK ? good + 1 : 0;
		assert_true(now_ms() < end);
	}
}

/* In turn: while the gate is shut, while calls run, and while they are submitted. */
static int kill_once(const struct scene *scene, int way)
{
	struct round rounds[2 * CALLS];
	kiln_ticket tickets[2 * CALLS];
	struct hold gate = {0};
	int waits = streams->waits();
	if (way == 0)
		streams->then(scene->stream, hold, &gate);
	queue_rounds(scene, rounds, tickets, CALLS);
	kill_executor(scene);
	if (way == 2)
		queue_rounds(scene, rounds + CALLS, tickets + CALLS, CALLS);
	open_gate(&gate);
	assert_finishes(scene->stream);
	/* A stream that has nothing to do may not hear of its calls. */
	assert_true(way != 0 || streams->waits() >= waits + CALLS);
	return count_failed(scene, tickets, way == 2 ? 2 * CALLS : CALLS);
}

static void assert_in_order(const struct scene *scene)
{
	struct round round;
	kiln_ticket ticket;
	int waited = host_waits(scene);
	queue_rounds(scene, &round, &ticket, 1);
	assert_finishes(scene->stream);
	assert_right(&round, 1);
	assert_ok(kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS));
	assert_int_equal(host_waits(scene), waited);
}

/* A hundred times; a daemon whose device process ends again and again waits ever longer before it
 * starts another, so there are several. */
static void executor_killed(void **state)
{
	enum { DAEMONS = 5, KILLS = 20 };
	int failed[3] = {0, 0, 0};
	for (int i = 0; i < DAEMONS * KILLS; i += KILLS) {
		struct scene scene;
		scene_open(&scene, state, NULL);
		debug_int(scene.other, "restart-pause", "ms", 50);
		for (int k = 0; k < KILLS; k++) {
			failed[(i + k) % 3] += kill_once(&scene, (i + k) % 3);
			await_info_at_least(scene.other, "executors[0].restarts", k + 1);
			warm_again(&scene);
		}
		assert_in_order(&scene);
		scene_close(&scene);
	}
	print_message("failed calls: %d, %d, %d\n", failed[0], failed[1], failed[2]);
	assert_int_equal(failed[0], (DAEMONS * KILLS + 2) / 3 * CALLS);
}

/* The streams of several clients, of one process that dies. */
static void several_lanes_at_once(void **state)
{
	enum { CLIENTS = 5, KILLS = 4 };
	struct scene scenes[CLIENTS];
	struct round rounds[CLIENTS][CALLS];
	kiln_ticket tickets[CLIENTS][CALLS];
	scene_open(&scenes[0], state, NULL);
	for (int c = 1; c < CLIENTS; c++) {
		scenes[c] = scenes[0];
		scenes[c].stream = streams->open(fake->context(0), 0);
		connect_scene(&scenes[c]);
	}
	for (int i = 0; i < KILLS; i++) {
		struct hold gate = {0};
		for (int c = 0; c < CLIENTS; c++) {
			if (c % 2 == 0)
				streams->then(scenes[c].stream, hold, &gate);
			queue_rounds(&scenes[c], rounds[c], tickets[c], CALLS);
		}
		kill_executor(&scenes[0]);
		/* Those that wait for nothing else are free without any call of the library. */
		for (int c = 1; c < CLIENTS; c += 2)
			assert_finishes(scenes[c].stream);
		open_gate(&gate);
		for (int c = 0; c < CLIENTS; c++) {
			assert_finishes(scenes[c].stream);
			count_failed(&scenes[c], tickets[c], CALLS);
		}
		await_info_at_least(scenes[0].other, "executors[0].restarts", i + 1);
		for (int c = 0; c < CLIENTS; c++)
			warm_again(&scenes[c]);
	}
	for (int c = 1; c < CLIENTS; c++) {
		disconnect_scene(&scenes[c]);
		streams->close(scenes[c].stream);
	}
	scene_close(&scenes[0]);
}

static void broker_killed(void **state)
{
	for (int shut = 0; shut < 2; shut++) {
		struct scene scene;
		struct round rounds[CALLS];
		kiln_ticket tickets[CALLS];
		struct hold gate = {0};
		scene_open(&scene, state, NULL);
		if (shut)
			streams->then(scene.stream, hold, &gate);
		queue_rounds(&scene, rounds, tickets, CALLS);
		kill(scene.daemon->pid, SIGKILL);
		assert_true(WIFSIGNALED(kilnd_wait(scene.daemon, CALL_TIMEOUT_MS)));
		open_gate(&gate);
		assert_finishes(scene.stream);
		for (int i = 0; i < CALLS; i++) {
			int status = kiln_wait(scene.client, tickets[i], CALL_TIMEOUT_MS);
			assert_true(status == KILN_ECONN || (!shut && status == KILN_OK));
		}
		/* Where all had ended before, nobody has looked at the connection since. */
		int status = submit(&scene, tickets);
		if (!status && !shut)
			status = kiln_wait(scene.client, tickets[0], CALL_TIMEOUT_MS);
		assert_int_equal(status, KILN_ECONN);
		assert_no_children();
		scene_close(&scene);
	}
}

static void session_ended(void **state)
{
	struct scene scene;
	struct round rounds[CALLS];
	kiln_ticket tickets[CALLS];
	struct hold gate = {0};
	const kiln_attr what = string_attr("what", "drop");
	kiln_reply *reply = NULL;
	scene_open(&scene, state, NULL);
	streams->then(scene.stream, hold, &gate);
	queue_rounds(&scene, rounds, tickets, CALLS);
	int waits = streams->waits();
	assert_int_equal(kiln_request(scene.client, "debug", &what, 1, &reply), KILN_ECONN);
	await_info(scene.other, "server.sessions", 1);
	open_gate(&gate);
	assert_finishes(scene.stream);
	assert_int_equal(streams->waits(), waits + CALLS);
	scene_close(&scene);
}

/* The client may be gone when the stream comes by. */
static void client_closed(void **state)
{
	enum { TIMES = 20 };
	struct scene scene;
	scene_open(&scene, state, NULL);
	streams_seem_busy(true);
	for (int i = 0; i < TIMES; i++) {
		kiln_ticket ticket;
		struct hold gate = {0};
		bool shut = i % 2;
		int waits = streams->waits();
		if (shut)
			streams->then(scene.stream, hold, &gate);
		for (int k = 0; k < CALLS; k++)
			assert_ok(submit(&scene, &ticket));
		disconnect_scene(&scene);
		if (shut)
			assert_int_equal(streams->finish(scene.stream, 0), 0);
		else
			assert_finishes(scene.stream);
		await_info(scene.other, "server.sessions", 1);
		open_gate(&gate);
		assert_finishes(scene.stream);
		assert_int_equal(streams->waits(), waits + CALLS);
		connect_scene(&scene);
	}
	streams_seem_busy(false);
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* A child has no watch, and leaves that of its parent alone. */
static void forked(void **state)
{
	struct scene scene;
	struct round rounds[CALLS];
	kiln_ticket tickets[CALLS];
	struct hold gate = {0};
	int status = -1;
	scene_open(&scene, state, NULL);
	streams->then(scene.stream, hold, &gate);
	queue_rounds(&scene, rounds, tickets, CALLS);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		kiln_ticket ticket;
		alarm(CALL_TIMEOUT_MS / 1000);
		int refused = submit(&scene, &ticket);
		kiln_close(scene.client);
		_exit(refused == KILN_EFORK ? 0 : 1);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	assert_int_equal(status, EXITED(0));
	kill_executor(&scene);
	open_gate(&gate);
	assert_finishes(scene.stream);
	assert_int_equal(count_failed(&scene, tickets, CALLS), CALLS);
	scene_close(&scene);
}

/* The last test, for this process: what is registered stays so; beyond a limit the host waits. */
static void registered_for_good(void **state)
{
	struct scene scene;
	struct round rounds[4];
	kiln_ticket tickets[4];
	scene_open(&scene, state, NULL);
	for (int i = 0; host_waits(&scene) == 0; i++) {
		assert_in_range(i, 0, ORDER_MOST);
		disconnect_scene(&scene);
		connect_scene(&scene);
		queue_rounds(&scene, rounds, tickets, 4);
		assert_finishes(scene.stream);
		assert_right(rounds, 4);
	}
	assert_int_equal(fake->live(FAKE_LIVE_HOST), ORDER_MOST);
	assert_int_equal(host_waits(&scene), 4);
	scene_close(&scene);
}

CUDA_ORDER_MAIN(HARNESS_TEST(executor_killed), HARNESS_TEST(several_lanes_at_once),
				HARNESS_TEST(broker_killed), HARNESS_TEST(session_ended),
				HARNESS_TEST(client_closed), HARNESS_TEST(forked),
				HARNESS_TEST(registered_for_good))

#else
CUDA_ORDER_MAIN()
#endif
