/*
 * test_tiers: generic kernels now, exact ones later: who waits for a compile and who does not, when
 * an exact kernel takes over, and that no launch is lost, doubled or moved when it does.
 * test_tiers_faults has what goes wrong meanwhile.
 */
#include "peer.h"
#include "tier_scene.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first shape has the generic kernel compiled, which all others have at once. */
static void only_the_first_waits(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	client = lazy_client(daemon);
	struct permute first = cube_problem(15);
	assert_permutes(client, &first, "compiled");
	for (int64_t side = 16; side < 24; side++) {
		struct permute problem = cube_problem(side);
		assert_permutes(client, &problem, "generic");
	}
	assert_int_equal(tier_counter(client, "requests"), 9);
	assert_int_equal(tier_counter(client, "compiles"), 1);
	assert_int_equal(tier_counter(client, "generic"), 8);
	assert_int_equal(tier_counter(client, "specialized"), 0);
	lazy_finish(daemon, client);
}

/* A shape never seen, whose generic kernel is there, is prepared and launched at once; that this is
 * one message, unit/test_client_run says. */
static void a_first_call_is_one_launch(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	/* Smaller ones have another generic kernel. */
	for (int side = 15; side > 12; side--) {
		int64_t came = tier_counter(client, "submitted"), generic = tier_counter(client, "generic");
		assert_ok(turn_once(client, cube.buffers, side));
		assert_int_equal(tier_counter(client, "submitted"), came + 1);
		assert_int_equal(tier_counter(client, "generic"), generic + 1);
		assert_turned_once(cube.buffers[1], side);
	}
	cube_finish(daemon, &cube);
}

/* Once the lane is open, the answer to the first call of a shape binds that to it: it is launched
 * through it, as all later calls are, and the exact kernel takes over all the same. */
static void a_first_call_is_bound(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	cube_turn(&cube, 6);
	int64_t messages = tier_counter(client, "message_launches");
	int64_t lane = tier_counter(client, "lane_launches");
	for (int i = 0; i < 3; i++) {
		assert_ok(turn_once(client, cube.buffers, 15));
		assert_turned_once(cube.buffers[1], 15);
	}
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	assert_int_equal(tier_counter(client, "lane_launches"), lane + 3);
	debug_int(client, "gain", "ms", 1000);
	while (tier_counter(client, "promoted") == 0)
		assert_ok(turn_once(client, cube.buffers, 15));
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	assert_int_equal(tier_counter(client, "specialized"), 1);
	for (int i = 0; i < 3; i++)
		assert_ok(turn_once(client, cube.buffers, 15));
	assert_turned_once(cube.buffers[1], 15);
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	cube_finish(daemon, &cube);
}

/* And one that fails leaves nothing behind: not even a call, of which there may be two. */
static void a_first_call_that_fails(void **state)
{
	struct kilnd *daemon = *state;
	const int64_t bad[12] = {0, 99};
	kiln_client *client;
	kiln_buffer *buffers[3];

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--max-calls", "2"));
	client = client_open(daemon);
	for (int i = 0; i < 3; i++)
		assert_ok(kiln_alloc(client, 4096, 0, NULL, &buffers[i]));
	assert_ok(kiln_write(buffers[1], 0, bad, sizeof(bad)));
	for (int64_t n = 4; n < 12; n++) {
		const int64_t from[2] = {1, n + 3}, to[2] = {1, n};
		assert_int_equal(kiln_gather(client, kiln_tensor_make(buffers[0], 0, KILN_F32, 2, from),
									 kiln_tensor_make(buffers[1], 0, KILN_I64, 2, to),
									 kiln_tensor_make(buffers[2], 0, KILN_F32, 2, to), "check"),
						 KILN_EINDEX);
		assert_non_null(strstr(kiln_errmsg(), "gather: "));
	}
	assert_true(tier_counter(client, "generic") > 4);
	assert_int_equal(tier_counter(client, "launch_failures"), 8);
	for (int i = 0; i < 3; i++)
		kiln_free(buffers[i]);
	lazy_finish(daemon, client);
}

static int64_t prepared(kiln_client *client)
{
	const kiln_attr all = string_attr("section", "all");
	kiln_reply *reply;
	assert_ok(kiln_request(client, "info", &all, 1, &reply));
	int64_t count = kiln_reply_int(reply, "sessions[0].shapes[0].prepared");
	kiln_reply_free(reply);
	return count;
}

/* A worker thread plans the exact kernel of a first call.  A second call that comes before has the
 * loop plan it, and a program may end before. */
static void exact_kernels_are_planned_meanwhile(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube), *other;
	kiln_buffer *theirs[2];

	assert_int_equal(prepared(client), 1);
	assert_ok(turn_once(client, cube.buffers, 15));
	while (prepared(client) == 1)
		pause_ms(1);
	debug_int(client, "store-deadline", "ms", 2 * CALL_TIMEOUT_MS);
	debug_int(client, "delay-store", "ms", 2 * CALL_TIMEOUT_MS);
	assert_ok(turn_once(client, cube.buffers, 14));
	assert_int_equal(prepared(client), 2);
	assert_ok(turn_once(client, cube.buffers, 14));
	assert_int_equal(prepared(client), 3);
	assert_turned_once(cube.buffers[1], 14);
	other = client_open(daemon);
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(other, sizeof(cube.start), 0, NULL, &theirs[i]));
	assert_ok(turn_once(other, theirs, 13));
	for (int i = 0; i < 2; i++)
		kiln_free(theirs[i]);
	kiln_close(other);
	debug_int(client, "delay-store", "ms", 0);
	cube_finish(daemon, &cube);
}

/* An exact kernel that one program has had made launches the first call of another. */
static void first_calls_have_exact_kernels(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube), *other = client_open(daemon);
	kiln_buffer *theirs[2];

	debug_int(client, "gain", "ms", 1000);
	while (tier_counter(client, "promoted") == 0)
		assert_ok(turn_once(client, cube.buffers, 15));
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(other, sizeof(cube.start), 0, NULL, &theirs[i]));
	assert_ok(kiln_write(theirs[0], 0, cube.start, sizeof(cube.start)));
	int64_t generic = tier_counter(client, "generic"), hits = tier_counter(client, "hits");
	assert_ok(turn_once(other, theirs, 15));
	assert_turned_once(theirs[1], 15);
	assert_int_equal(tier_counter(client, "generic"), generic);
	assert_int_equal(tier_counter(client, "hits"), hits + 1);
	for (int i = 0; i < 2; i++)
		kiln_free(theirs[i]);
	kiln_close(other);
	cube_finish(daemon, &cube);
}

/* Launches go on all the time while the exact kernel is compiled, loaded and put in. */
static void takes_over_between_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client;

	client = lazy_client(daemon);
	debug_int(client, "gain", "ms", 1000);
	cube_open(client, &cube);
	assert_string_equal(kiln_call_origin(cube.call), "compiled");
	int after = 0;
	while (after < 20) {
		cube_turn(&cube, BATCH);
		assert_turned(&cube);
		after += tier_counter(client, "promoted") == 1;
	}
	assert_int_equal(tier_counter(client, "specialized"), 1);
	assert_int_equal(tier_counter(client, "launches"), cube.turns);
	assert_true(tier_counter(client, "lane_launches") > 20 * BATCH / 2);
	/* The next program has it from the start. */
	struct cube other;
	cube_open(client, &other);
	assert_string_equal(kiln_call_origin(other.call), "hit");
	cube_turn(&other, 4);
	assert_turned(&other);
	cube_close(&other);
	cube_finish(daemon, &cube);
}

/* The lane alone is used: the device process tells how often. */
static void counts_what_no_message_says(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	cube_turn(&cube, 1);
	debug_int(client, "gain", "ms", 1000);
	/* Bound with the estimate, which asks for no notice that comes soon; this one is. */
	struct cube other;
	cube_open(client, &other);
	for (int i = 0; i < 4; i++)
		cube_turn(&other, 1);
	int64_t messages = tier_counter(client, "message_launches");
	for (int i = 0; i < 2; i++)
		cube_turn(&other, 40);
	assert_int_equal(tier_counter(client, "message_launches"), messages);
	await_info(client, "counters.specialized", 1);
	await_info(client, "counters.promoted", 2);
	cube_turn(&cube, 6);
	cube_turn(&other, 6);
	assert_turned(&cube);
	assert_turned(&other);
	cube_close(&other);
	cube_finish(daemon, &cube);
}

/* A kernel of the cache takes over without a compile, however seldom it is used. */
static void from_the_cache(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = cube_problem(SIDE), other = cube_problem(SIDE + 1);
	struct cube cube;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	lazy_finish(daemon, client);

	client = lazy_client(daemon);
	/* No generic kernel is there yet: better the exact one than a compile. */
	assert_permutes(client, &problem, "hit");
	assert_int_equal(tier_counter(client, "jobs"), 0);
	lazy_finish(daemon, client);

	client = lazy_client(daemon);
	assert_permutes(client, &other, "compiled");
	cube_open(client, &cube);
	assert_string_equal(kiln_call_origin(cube.call), "generic");
	await_info(client, "counters.promoted", 1);
	cube_turn(&cube, 5);
	assert_turned(&cube);
	assert_int_equal(tier_counter(client, "jobs"), 1);
	cube_finish(daemon, &cube);
}

static void never(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--specialize", "never"));
	client = client_open(daemon);
	debug_int(client, "gain", "ms", 1000);
	cube_open(client, &cube);
	for (int i = 0; i < 4; i++)
		cube_turn(&cube, BATCH);
	assert_turned(&cube);
	assert_int_equal(tier_counter(client, "jobs"), 1);
	assert_int_equal(tier_counter(client, "promoted"), 0);
	cube_finish(daemon, &cube);
}

/* A graph is made once to be launched often: its kernels are exact. */
static void graphs_are_exact(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client;
	kiln_call *graph = NULL;
	kiln_ticket ticket;

	client = lazy_with_cube(daemon, &cube);
	kiln_operand operands[2] = {{cube.buffers[0], 0}, {cube.buffers[1], 0}};
	kiln_work work = {.call = cube.call, .operands = operands, .operand_count = 2};
	assert_ok(kiln_prepare_graph(client, &work, 1, &graph));
	assert_int_equal(tier_counter(client, "jobs"), 2);
	assert_ok(kiln_submit(graph, NULL, 0, 0, &ticket));
	assert_ok(kiln_wait(client, ticket, CALL_TIMEOUT_MS));
	cube.turns = 1;
	assert_turned(&cube);
	kiln_call_free(graph);
	cube_finish(daemon, &cube);
}

static void ask_for_object(struct peer *peer, uint64_t call, bool generic)
{
	const int64_t alignments[2] = {16, 16};
	struct wire_out out;
	peer_begin(peer, &out, "object");
	wire_put_uint(&out, "call", call);
	wire_put_ints(&out, "alignments", alignments, 2);
	if (generic)
		wire_put_bool(&out, "generic", true);
	peer_expect(peer, &out, -1, KILN_OK, "");
}

/* A library that does not say that it takes generic kernels waits for the exact one. */
static void libraries_of_before_have_exact_objects(void **state)
{
	const int64_t shape[3] = {SIDE + 1, SIDE + 1, SIDE + 1}, perm[3] = {1, 2, 0};
	struct kilnd *daemon = *state;
	struct peer peer;
	struct cube cube;
	struct wire_out out;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	peer_open(&peer, daemon, "");
	peer_begin(&peer, &out, "prepare");
	wire_put_str(&out, "op", "permute");
	wire_list_begin(&out, "tensors");
	for (int i = 0; i < 2; i++) {
		wire_map_begin(&out, NULL);
		wire_put_int(&out, "d", KILN_F32);
		wire_put_ints(&out, "s", shape, 3);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	wire_map_begin(&out, "attrs");
	wire_put_ints(&out, "perm", perm, 3);
	wire_map_end(&out);
	peer_expect(&peer, &out, -1, KILN_OK, "");
	const uint64_t call = peer.made;
	ask_for_object(&peer, call, true);
	assert_int_equal(tier_counter(client, "jobs"), 1);
	ask_for_object(&peer, call, false);
	assert_int_equal(tier_counter(client, "jobs"), 2);
	assert_int_equal(tier_counter(client, "objects"), 2);
	peer_close(&peer);
	cube_finish(daemon, &cube);
}

/* Shapes that go on differing are not compiled for ever. */
static void a_budget_of_exact_kernels(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	int64_t side = SIDE;

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--max-variants", "2"));
	client = client_open(daemon);
	debug_int(client, "gain", "ms", 1000);
	for (; tier_counter(client, "widened") == 0 && side < SIDE + 8; side++) {
		struct permute problem = cube_problem(side);
		while (tier_counter(client, "widened") == 0 &&
			   tier_counter(client, "specialized") < side - SIDE + 1)
			assert_permutes(client, &problem, NULL);
	}
	assert_int_equal(side, SIDE + 3);
	assert_int_equal(tier_counter(client, "specialized"), 2);
	/* The report names what varies. */
	kiln_attr all = string_attr("section", "all");
	kiln_reply *reply;
	assert_ok(kiln_request(client, "info", &all, 1, &reply));
	assert_string_equal(kiln_reply_str(reply, "sessions[0].shapes[0].op"), "permute");
	assert_int_equal(kiln_reply_int(reply, "sessions[0].shapes[0].shapes"), 3);
	assert_int_equal(kiln_reply_int(reply, "sessions[0].shapes[0].variants"), 2);
	assert_int_equal(kiln_reply_int(reply, "sessions[0].shapes[0].widened"), 1);
	assert_non_null(
		strstr(kiln_reply_str(reply, "sessions[0].shapes[0].text"), "x axis 0: 3 values, 16..18"));
	kiln_reply_free(reply);
	kilnd_await_log(daemon, "permute has 2 exact kernels, the most it may have (--max-variants)");
	lazy_finish(daemon, client);
}

/* A session that may have nothing compiled has what there is. */
static void fallback_has_what_is_there(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = cube_problem(SIDE), other = cube_problem(SIDE + 1);
	kiln_client *client;
	char why[400];

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--on-miss", "fallback"));
	client = client_open(daemon);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_EFROZEN);
	assert_int_equal(tier_counter(client, "frozen"), 1);
	assert_int_equal(tier_counter(client, "jobs"), 0);
	lazy_finish(daemon, client);

	client = lazy_client(daemon);
	assert_permutes(client, &other, "compiled");
	lazy_finish(daemon, client);

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--on-miss", "fallback"));
	client = client_open(daemon);
	debug_int(client, "gain", "ms", 1000);
	for (int i = 0; i < 20; i++)
		assert_permutes(client, &problem, i ? "generic" : "hit");
	assert_int_equal(tier_counter(client, "jobs"), 0);
	lazy_finish(daemon, client);
}

/* It still compiles generic kernels, which nobody waits for. */
static void stop_at_work(struct kilnd *daemon, kiln_client *client)
{
	kiln_reply *reply = NULL;

	assert_ok(kiln_request(client, "stop", NULL, 0, &reply));
	kiln_reply_free(reply);
	kiln_close(client);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_no_children();
}

/* A process for a user's source is given no generic kernels: its session would keep them from those
 * who wait, and may end while they are on their way. */
static void none_for_a_process_of_ones_own(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw raw = {.size = sizeof(raw),
					.source = "extern \"C\" __global__ void nothing() {}",
					.entry = "nothing"};
	kiln_client *client, *other;
	kiln_call *call;

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--test-warm-generics", "all"));
	client = client_open(daemon);
	await_info_at_least(client, "tiers.resident", 1);
	int64_t generics = info_int(client, "tiers.generics");
	other = client_open(daemon);
	assert_ok(kiln_prepare_raw(other, &raw, &call));
	await_info(client, "server.sessions", 2);
	assert_int_equal(info_int(client, "tiers.generics"), generics);
	kiln_call_free(call);
	kiln_close(other);
	await_info(client, "server.sessions", 1);
	int64_t resident = info_int(client, "tiers.resident");
	await_info_at_least(client, "tiers.resident", resident + 1);
	stop_at_work(daemon, client);
}

/* The first program finds the generic kernels, and the daemon ends while it still makes more. */
static void warm_from_the_start(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--test-warm-generics", "all"));
	client = client_open(daemon);
	await_info_at_least(client, "tiers.resident", 2);
	assert_true(info_int(client, "tiers.generics") > 20);
	assert_int_equal(info_int(client, "tiers.warming"), 1);
	assert_int_equal(tier_counter(client, "requests"), 0);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.executor_faults", 1);
	await_info_at_least(client, "tiers.resident", 2);
	stop_at_work(daemon, client);
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, "still under way"));
	free(log);
}

/* Counts compiles that the daemon has begun: of permute, and of others after the first of those. */
static int compiles_of_permute(const struct kilnd *daemon, int *others)
{
	static const char begun[] = " compiles ";
	char *log = kilnd_log(daemon);
	int count = 0;
	*others = 0;
	for (const char *at = strstr(log, begun); at; at = strstr(at + 1, begun)) {
		bool permute = !strncmp(at + strlen(begun), "permute_", strlen("permute_"));
		count += permute;
		*others += !permute && count > 0 && count < 3;
	}
	free(log);
	return count;
}

/* The generic kernels of an operator that a program asks for are made before those of others. */
static void asked_for_comes_first(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = cube_problem(15);
	const int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int others = 0;
	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--test-warm-generics", "all", "--workers",
								"1", "--log-level", "debug"));
	kiln_client *client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	while (compiles_of_permute(daemon, &others) < 3 && now_ms() < end)
		usleep(10000);
	assert_true(compiles_of_permute(daemon, &others) >= 3);
	assert_in_range(others, 0, 1); /* the one that was asked for before */
	stop_at_work(daemon, client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(only_the_first_waits),
		HARNESS_TEST(a_first_call_is_one_launch),
		HARNESS_TEST(a_first_call_is_bound),
		HARNESS_TEST(a_first_call_that_fails),
		HARNESS_TEST(exact_kernels_are_planned_meanwhile),
		HARNESS_TEST(first_calls_have_exact_kernels),
		HARNESS_TEST(takes_over_between_launches),
		HARNESS_TEST(counts_what_no_message_says),
		HARNESS_TEST(from_the_cache),
		HARNESS_TEST(never),
		HARNESS_TEST(graphs_are_exact),
		HARNESS_TEST(libraries_of_before_have_exact_objects),
		HARNESS_TEST(a_budget_of_exact_kernels),
		HARNESS_TEST(fallback_has_what_is_there),
		HARNESS_TEST(none_for_a_process_of_ones_own),
		HARNESS_TEST(warm_from_the_start),
		HARNESS_TEST(asked_for_comes_first),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
