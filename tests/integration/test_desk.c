/*
 * test_desk: first calls that the device process plans at the desk of a lane, and of which the
 * daemon is told: that nobody waits for the daemon, what the daemon knows of them in the end, calls
 * that it refuses, nonsense on the desk, processes that die at it, and clients that make many.
 */
#include "lane_scene.h"
#include "peer.h"
#include "tier_scene.h"

#include <kiln/ops.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMPATIENT_MS 1000

/* A lane whose buffers are known, and in which the generic kernel of these cubes is loaded. */
static kiln_client *open_desk(struct kilnd *daemon, struct cube *cube, const char *const *options)
{
	kilnd_start(daemon, options);
	kiln_client *client = client_open(daemon);
	cube_open(client, cube);
	cube_turn(cube, 6);
	return client;
}

static kiln_client *open_lazy_desk(struct kilnd *daemon, struct cube *cube)
{
	return open_desk(daemon, cube, OPTIONS("--specialize", "lazy"));
}

static void turn(struct cube *cube, int side)
{
	assert_ok(turn_once(cube->client, cube->buffers, side));
	assert_turned_once(cube->buffers[1], side);
}

/* The daemon stands still meanwhile.  Smaller cubes have another generic kernel. */
static void nobody_waits_for_the_daemon(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = open_lazy_desk(daemon, &cube);
	int64_t messages = tier_counter(client, "message_launches");
	int64_t requests = tier_counter(client, "requests"), generic = tier_counter(client, "generic");

	process_stop(daemon->pid);
	for (int round = 0; round < 2; round++)
		for (int side = 15; side > 12; side--)
			assert_ok(turn_once(client, cube.buffers, side));
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	assert_turned_once(cube.buffers[1], 13);
	assert_int_equal(tier_counter(client, "requests"), requests + 3);
	assert_int_equal(tier_counter(client, "generic"), generic + 3);
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	assert_int_equal(info_int(client, "session.calls"), 4);
	cube_finish(daemon, &cube);
}

/* A program that makes a buffer hears which device process has it: no launch with it needs a
 * message. */
static void new_buffers_are_known(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_buffer *buffers[2];
	kiln_client *client = open_lazy_desk(daemon, &cube);
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(client, sizeof(cube.start), 0, NULL, &buffers[i]));
	assert_ok(kiln_write(buffers[0], 0, cube.start, sizeof(cube.start)));

	process_stop(daemon->pid);
	for (int i = 0; i < 2; i++) {
		const kiln_operand operands[2] = {{buffers[0], 0}, {buffers[1], 0}};
		kiln_ticket ticket;
		assert_ok(turn_once(client, buffers, 15));
		assert_ok(kiln_submit(cube.call, operands, 2, 0, &ticket));
		assert_ok(kiln_wait(client, ticket, CALL_TIMEOUT_MS));
	}
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	assert_turned_once(buffers[1], SIDE);
	for (int i = 0; i < 2; i++)
		kiln_free(buffers[i]);
	cube_finish(daemon, &cube);
}

/* A call of the desk is a call like any other: its exact kernel takes over, and another session's
 * first call of that shape has the exact kernel. */
static void exact_kernels_take_over(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = open_lazy_desk(daemon, &cube);
	int64_t messages = tier_counter(client, "message_launches");

	debug_int(client, "gain", "ms", 1000);
	while (tier_counter(client, "promoted") == 0)
		turn(&cube, 15);
	assert_int_equal(tier_counter(client, "specialized"), 1);
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	turn(&cube, 15);

	struct cube other;
	kiln_client *second = client_open(daemon);
	cube_open(second, &other);
	cube_turn(&other, 6);
	int64_t generic = tier_counter(client, "generic"), promoted = tier_counter(client, "promoted");
	turn(&other, 15);
	assert_int_equal(tier_counter(client, "generic"), generic);
	assert_int_equal(tier_counter(client, "promoted"), promoted);
	turn(&other, 14);
	assert_int_equal(tier_counter(client, "generic"), generic + 1);
	cube_close(&other);
	kiln_close(second);
	cube_finish(daemon, &cube);
}

/* The desk binds no more calls than the session may have.  The library lets go of one for each that
 * goes by message then, and asks at the desk again for the next. */
static void the_daemon_takes_so_many(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client =
		open_desk(daemon, &cube, OPTIONS("--specialize", "lazy", "--max-calls", "3"));
	const struct lane_memory *lane = lane_find(NULL);

	for (int round = 0; round < 3; round++)
		for (int side = 15; side > 9; side--) {
			uint32_t asked = atomic_load(&lane->desk.asked);
			turn(&cube, side);
			assert_true(atomic_load(&lane->desk.asked) > asked);
			assert_true(info_int(client, "session.calls") <= 3);
		}
	cube_finish(daemon, &cube);
}

static void none_where_kernels_are_exact(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = open_desk(daemon, &cube, OPTIONS("--specialize", "eager"));
	const struct lane_memory *lane = lane_find(NULL);
	turn(&cube, 15);
	assert_int_equal(lane->header.desk, 0);
	assert_int_equal(atomic_load(&lane->desk.asked), 0);
	assert_int_equal(tier_counter(client, "generic"), 0);
	cube_finish(daemon, &cube);
}

/* Lays these bytes on the desk behind the library's back; the number in the answer. */
static uint64_t lay(struct lane_memory *lane, const void *bytes, uint32_t size)
{
	struct lane_desk *desk = &lane->desk;
	uint32_t asked = atomic_load(&desk->asked) + 1;
	memcpy(desk->problem, bytes, size < sizeof(desk->problem) ? size : sizeof(desk->problem));
	atomic_store(&desk->bytes, size);
	lane_ask_desk(lane, asked, atomic_load(&lane->header.tail));
	lane_ring();
	for (int64_t until = now_ms() + CALL_TIMEOUT_MS; atomic_load(&desk->answered) != asked;) {
		assert_true(now_ms() < until);
		usleep(100);
	}
	return desk->call;
}

/* The test changes one place of what the library laid there last.  The process goes on, and gives
 * no number twice. */
static void nonsense(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = open_lazy_desk(daemon, &cube);
	struct lane_memory *lane = lane_find(NULL);
	unsigned char problem[LANE_PROBLEM_BYTES];
	turn(&cube, 15);
	uint32_t size = atomic_load(&lane->desk.bytes);
	uint64_t last = lane->desk.call, first = last;
	memcpy(problem, lane->desk.problem, sizeof(problem));
	assert_true(last & LANE_DESK);

	assert_int_equal(lay(lane, problem, 0), 0);
	assert_int_equal(lay(lane, problem, UINT32_MAX), 0);
	assert_int_equal(lay(lane, problem, size - 1), 0);
	assert_int_equal(lay(lane, problem, sizeof(problem)), 0);
	for (uint32_t at = 0; at < size; at++) {
		static const unsigned char others[] = {0, 0x7f, 0x80, 0xc0, 0xdf, 0xff};
		for (size_t i = 0; i < sizeof(others); i++) {
			unsigned char was = problem[at];
			problem[at] = others[i];
			uint64_t call = lay(lane, problem, size);
			assert_true(call == 0 || call > last);
			last = call ? call : last;
			problem[at] = was;
		}
	}
	/* Half of a lane's calls, and not one more, and the daemon still binds its own. */
	while (lay(lane, problem, size))
		last++;
	assert_true(last - first >= LANE_CALLS / 2 - 16 && last - first <= LANE_CALLS / 2);
	cube_close(&cube);
	kiln_close(client);
	client = client_open(daemon);
	assert_int_equal(info_int(client, "executors[0].restarts"), 0);
	lazy_finish(daemon, client);
}

static int prepare_cube(const struct cube *cube, int64_t side, kiln_call **out)
{
	struct permute problem = cube_problem(side);
	kiln_attr perm = perm_attr(&problem);
	kiln_tensor tensors[2] = {permute_input(&problem, cube->buffers[0]),
							  permute_output(&problem, cube->buffers[1])};
	return kiln_prepare(cube->client, "permute", tensors, 2, &perm, 1, out);
}

static void release_number(kiln_client *client, uint64_t number)
{
	const kiln_attr call = int_attr("call", (int64_t)number);
	kiln_reply *reply;
	assert_int_equal(kiln_request(client, "release", &call, 1, &reply), KILN_ENOENT);
}

/* A client that tells the daemon of nothing has no more calls than one that does. */
static void a_client_that_tells_nothing(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client =
		open_desk(daemon, &cube, OPTIONS("--specialize", "lazy", "--max-calls", "8"));
	struct lane_memory *lane = lane_find(NULL);
	unsigned char problem[LANE_PROBLEM_BYTES];
	turn(&cube, 15);
	uint32_t size = atomic_load(&lane->desk.bytes);
	uint64_t last = lane->desk.call;
	memcpy(problem, lane->desk.problem, sizeof(problem));

	for (int64_t calls = info_int(client, "session.calls"); calls < 8; calls++)
		assert_int_equal(lay(lane, problem, size), ++last);
	assert_int_equal(lay(lane, problem, size), 0);
	/* The call that the library keeps makes room for one, and there is no other. */
	kiln_call *calls[2];
	assert_ok(prepare_cube(&cube, 14, &calls[0]));
	assert_int_equal(prepare_cube(&cube, 13, &calls[1]), KILN_ELIMIT);

	/* A call that is given up makes room for one; twice, or before it is bound, for none. */
	release_number(client, last);
	assert_int_equal(lay(lane, problem, size), last + 1);
	assert_int_equal(lay(lane, problem, size), 0);
	release_number(client, last);
	release_number(client, last + 2);
	assert_int_equal(lay(lane, problem, size), 0);
	kiln_call_free(calls[0]);
	assert_in_range(info_int(client, "session.calls"), 1, 7); /* it is released */
	assert_int_equal(lay(lane, problem, size), last + 2);
	cube_finish(daemon, &cube);
}

/* The buffers that a problem names are its session's, or it goes by message. */
static void buffers_of_others(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube, other;
	kiln_client *client = open_lazy_desk(daemon, &cube), *second = client_open(daemon);
	struct lane_memory *lane = lane_find(NULL);
	unsigned char problem[LANE_PROBLEM_BYTES];
	turn(&cube, 15);
	uint32_t size = atomic_load(&lane->desk.bytes);
	memcpy(problem, lane->desk.problem, sizeof(problem));
	cube_open(second, &other);
	cube_turn(&other, 6);
	assert_true(lay(lane, problem, size) != 0);
	assert_int_equal(lay(lane_find(lane), problem, size), 0);
	cube_close(&other);
	kiln_close(second);
	cube_close(&cube);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A request for a call that turns cubes of this side, in these buffers. */
static void begin_prepare(struct peer *peer, struct wire_out *out, int64_t side,
						  const uint64_t *buffers)
{
	const int64_t shape[] = {side, side, side}, perm[] = {2, 1, 0};
	peer_begin(peer, out, "prepare");
	wire_put_str(out, "op", "permute");
	wire_list_begin(out, "tensors");
	for (int k = 0; k < 2; k++) {
		wire_map_begin(out, NULL);
		wire_put_int(out, "d", KILN_F32);
		wire_put_ints(out, "s", shape, 3);
		if (buffers)
			wire_put_uint(out, "b", buffers[k]);
		wire_map_end(out);
	}
	wire_list_end(out);
	wire_map_begin(out, "attrs");
	wire_put_ints(out, "perm", perm, 3);
	wire_map_end(out);
}

#define OFFERS 300

/* The daemon binds calls to a lane that are not launched yet.  While the device process stands
 * still, it is sent no more of them than of launches. */
static void calls_that_are_not_taken(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;
	uint64_t buffers[2], id;
	kilnd_start(daemon, OPTIONS("--specialize", "lazy"));
	kiln_client *observer = client_open(daemon);
	peer_open(&peer, daemon, "");
	for (int k = 0; k < 2; k++) {
		peer_begin(&peer, &out, "alloc");
		wire_put_uint(&out, "bytes", 65536);
		assert_int_equal(peer_ask(&peer, &out, -1), KILN_OK);
		buffers[k] = peer.made;
	}
	begin_prepare(&peer, &out, 15, buffers);
	assert_int_equal(peer_ask(&peer, &out, -1), KILN_OK);
	const uint64_t call = peer.made;
	peer_begin(&peer, &out, "submit");
	wire_put_uint(&out, "call", call);
	wire_list_begin(&out, "operands");
	for (int k = 0; k < 2; k++) {
		const int64_t place[2] = {(int64_t)buffers[k], 0};
		wire_put_ints(&out, NULL, place, 2);
	}
	wire_list_end(&out);
	wire_put_bool(&out, "lane", true);
	assert_int_equal(peer_ask(&peer, &out, -1), KILN_OK);

	pid_t process = device_process(observer, 0);
	process_stop(process);
	for (int i = 0; i < OFFERS; i++) {
		begin_prepare(&peer, &out, 14, buffers);
		wire_put_bool(&out, "run", true);
		wire_put_bool(&out, "lane", true);
		peer_send(&peer, &out, -1);
	}
	/* Its answer comes behind those of all that the daemon has read. */
	peer_begin(&peer, &out, "devices");
	peer_send(&peer, &out, -1);
	int taken = 0;
	for (id = 0; id != peer.id; taken++)
		assert_int_equal(peer_take(&peer, &id), KILN_OK);
	assert_in_range(info_int(observer, "executors[0].inflight"), 64, 200);
	assert_int_equal(kill(process, SIGCONT), 0);
	for (; taken <= OFFERS; taken++)
		assert_int_equal(peer_take(&peer, &id), KILN_OK);
	peer_close(&peer);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* A session has no desk before it has a lane; a client chooses no number of its own. */
static void numbers_of_no_desk(void **state)
{
	static const uint64_t numbers[] = {1, LANE_DESK, LANE_DESK + LANE_DESK_CALLS, UINT64_MAX};
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;
	kilnd_start(daemon, NULL);
	peer_open(&peer, daemon, "");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		begin_prepare(&peer, &out, 2, NULL);
		wire_put_uint(&out, "bound", numbers[i]);
		peer_expect(&peer, &out, -1, KILN_EINVAL, "gives no new call the number");
	}
	peer_close(&peer);
	kilnd_stop(daemon);
}

/* A device process that dies, or hangs, before it has answered. */
static void dies_at_the_desk(void **state)
{
	static const char *const misdeeds[] = {"kill", "crash", "hang"};
	struct kilnd *daemon = *state;
	for (size_t i = 0; i < sizeof(misdeeds) / sizeof(misdeeds[0]); i++) {
		struct cube cube;
		kiln_client *client =
			open_desk(daemon, &cube, OPTIONS("--specialize", "lazy", "--launch-timeout", "2000"));
		kiln_client *watch = client_open(daemon);
		debug_fail_device(watch, misdeeds[i], "desk", false);
		int status = turn_once(client, cube.buffers, 15);
		if (status != KILN_ELOST && status != KILN_EDEVICE)
			fail_msg("%s at the desk: %s", misdeeds[i], kiln_errmsg());
		await_info(watch, "executors[0].restarts", 1);
		for (int k = 0; k < 2; k++)
			assert_ok(kiln_write(cube.buffers[k], 0, cube.start, sizeof(cube.start)));
		turn(&cube, 15);
		turn(&cube, 14);
		cube_close(&cube);
		kiln_close(client);
		lazy_finish(daemon, watch);
	}
}

/* Calls that are planned when their client does not wait any more count for nothing. */
static void a_client_that_gives_up(void **state)
{
	enum { MOST = 3 };
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_call *call;
	int status;
	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--max-calls", "3"));
	kiln_client *client, *patient = client_open(daemon);
	cube_open(patient, &cube); /* the kernel is there from now on */
	cube_close(&cube);
	kiln_close(patient);
	client = client_try(daemon, IMPATIENT_MS, &status);
	cube_open(client, &cube);
	cube_turn(&cube, 6);
	const struct lane_memory *lane = lane_find(NULL);
	pid_t process = device_process(client, 0);
	for (int round = 0; round < MOST; round++) {
		process_stop(process);
		assert_int_equal(turn_once(client, cube.buffers, 15), KILN_ETIMEDOUT);
		assert_int_equal(kill(process, SIGCONT), 0);
		for (int64_t until = now_ms() + CALL_TIMEOUT_MS;
			 atomic_load(&lane->desk.answered) != atomic_load(&lane->desk.asked);) {
			assert_true(now_ms() < until);
			usleep(100);
		}
		assert_true(lane->desk.call != 0);
	}
	turn(&cube, 14);
	assert_ok(prepare_cube(&cube, 13, &call));
	kiln_call_free(call);
	cube_finish(daemon, &cube);
}

/* A client that dies between the launch and the telling leaves nothing behind. */
static void a_client_that_dies(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = open_lazy_desk(daemon, &cube);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		struct cube own;
		kiln_client *dying = client_open(daemon);
		cube_open(dying, &own);
		cube_turn(&own, 6);
		process_stop(daemon->pid);
		turn_once(dying, own.buffers, 15);
		kill(getpid(), SIGKILL);
	}
	assert_true(child > 0 && waitpid(child, NULL, 0) == child);
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	await_info(client, "server.sessions", 1);
	turn(&cube, 14);
	assert_counters_add_up(client);
	cube_finish(daemon, &cube);
}

#define CLIENTS 4
#define LEAST 13
#define BOXES 64
#define MANY 10
#define MANY_KIB 4096 /* each call that waited would take 24 */

/* Binds a call by message, and unbinds it, which stops the launcher of this session alone. */
static void come_and_go(kiln_client *client, const kiln_tensor tensors[2], const kiln_attr *perm)
{
	const kiln_operand operands[2] = {{tensors[0].buffer, 0}, {tensors[1].buffer, 0}};
	kiln_call *call;
	kiln_ticket ticket;
	assert_ok(kiln_prepare(client, "permute", tensors, 2, perm, 1, &call));
	for (int i = 0; i < 3; i++) {
		assert_ok(kiln_submit(call, operands, 2, 0, &ticket));
		assert_ok(kiln_wait(client, ticket, CALL_TIMEOUT_MS));
	}
	kiln_call_free(call);
}

/* Turns a box, one of BOXES, each a shape of its own: its sides are from LEAST to SIDE. */
static void turn_box(const struct cube *cube, int n, bool again)
{
	static float now[CUBE];
	const int a = LEAST + n / 16, b = LEAST + n / 4 % 4, c = LEAST + n % 4;
	struct permute problem = {.dtype = KILN_F32, .rank = 3, .shape = {a, b, c}, .perm = {1, 2, 0}};
	kiln_attr perm = perm_attr(&problem);
	kiln_tensor tensors[2] = {permute_input(&problem, cube->buffers[0]),
							  permute_output(&problem, cube->buffers[1])};
	assert_ok(kiln_run(cube->client, "permute", tensors, 2, &perm, 1));
	assert_ok(kiln_read(cube->buffers[1], 0, now, sizeof(float) * (size_t)(a * b * c)));
	for (int i = 0; i < a * b * c; i++)
		assert_true(now[i] == (float)((i % a * b + i / a / c) * c + i / a % c));
	if (again)
		come_and_go(cube->client, tensors, &perm);
}

/* A program that makes calls, and frees them, while the thread that plans their exact kernels is
 * busy fills no memory with what is to be planned. */
static void more_calls_than_are_planned(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client =
		open_desk(daemon, &cube, OPTIONS("--specialize", "lazy", "--max-calls", "3"));
	turn_box(&cube, 0, false);
	int64_t generic = tier_counter(client, "generic"), before = resident_kib(daemon->pid);
	debug_int(client, "delay-store", "ms", 2000);
	for (int n = 0; n < MANY * BOXES; n++)
		turn_box(&cube, n % BOXES, false);
	assert_true(tier_counter(client, "generic") > generic + MANY * BOXES / 2);
	int64_t grown = resident_kib(daemon->pid) - before;
	if (!getenv("KILN_SANITIZE") && grown > MANY_KIB)
		fail_msg("the daemon has grown by %lld KiB; the most is %d", (long long)grown, MANY_KIB);
	debug_int(client, "delay-store", "ms", 0);
	cube_finish(daemon, &cube);
}

/* Turns each of them, and again by message. */
static int turn_boxes(const struct kilnd *daemon)
{
	struct cube cube;
	kiln_client *client = client_open(daemon);
	cube_open(client, &cube);
	cube_turn(&cube, 6);
	for (int n = 0; n < BOXES; n++)
		turn_box(&cube, n, true);
	cube_close(&cube);
	kiln_close(client);
	return 0;
}

/* Several threads plan at once; ThreadSanitizer looks at them. */
static void threads_that_plan(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	pid_t children[CLIENTS];
	kiln_client *client =
		open_desk(daemon, &cube, OPTIONS("--specialize", "lazy", "--launchers", "4"));
	turn(&cube, 15);
	fflush(NULL);
	for (int i = 0; i < CLIENTS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0)
			_exit(turn_boxes(daemon));
	}
	for (int i = 0; i < CLIENTS; i++) {
		int status;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	await_info(client, "server.sessions", 1);
	assert_counters_add_up(client);
	cube_finish(daemon, &cube);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(nobody_waits_for_the_daemon),
		HARNESS_TEST(new_buffers_are_known),
		HARNESS_TEST(exact_kernels_take_over),
		HARNESS_TEST(the_daemon_takes_so_many),
		HARNESS_TEST(none_where_kernels_are_exact),
		HARNESS_TEST(nonsense),
		HARNESS_TEST(a_client_that_tells_nothing),
		HARNESS_TEST(buffers_of_others),
		HARNESS_TEST(numbers_of_no_desk),
		HARNESS_TEST(calls_that_are_not_taken),
		HARNESS_TEST(dies_at_the_desk),
		HARNESS_TEST(a_client_that_gives_up),
		HARNESS_TEST(a_client_that_dies),
		HARNESS_TEST(more_calls_than_are_planned),
		HARNESS_TEST(threads_that_plan),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
