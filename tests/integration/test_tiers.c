/*
 * test_tiers: generic kernels now, exact ones later: who waits for a compile and who does not, when
 * an exact kernel takes over, and that no launch is lost, doubled or moved when it does.
 */
#include "harness.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SIDE 16
#define CUBE (SIDE * SIDE * SIDE)
#define BATCH 48

/* A cube of f32 whose axes are turned: three times is once around. */
struct cube {
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *buffers[2];
	int turns; /* so far, from the first buffer to the second and back */
	float start[CUBE];
};

static struct permute turn(int64_t side)
{
	return (struct permute){
		.dtype = KILN_F32, .rank = 3, .shape = {side, side, side}, .perm = {1, 2, 0}};
}

static kiln_client *lazy(struct kilnd *daemon)
{
	kilnd_start(daemon, OPTIONS("--specialize", "lazy"));
	return client_open(daemon);
}

static void finish(struct kilnd *daemon, kiln_client *client)
{
	kiln_close(client);
	kilnd_stop(daemon);
}

static void cube_open(kiln_client *client, struct cube *cube)
{
	struct permute problem = turn(SIDE);
	kiln_attr perm = perm_attr(&problem);

	*cube = (struct cube){.client = client};
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(client, sizeof(cube->start), 0, NULL, &cube->buffers[i]));
	for (int i = 0; i < CUBE; i++)
		cube->start[i] = (float)i;
	assert_ok(kiln_write(cube->buffers[0], 0, cube->start, sizeof(cube->start)));
	kiln_tensor tensors[2] = {permute_input(&problem, cube->buffers[0]),
							  permute_output(&problem, cube->buffers[1])};
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &cube->call));
}

static void cube_close(struct cube *cube)
{
	kiln_call_free(cube->call);
	for (int i = 0; i < 2; i++)
		kiln_free(cube->buffers[i]);
}

static kiln_client *lazy_with_cube(struct kilnd *daemon, struct cube *cube)
{
	kiln_client *client = lazy(daemon);
	cube_open(client, cube);
	return client;
}

static void cube_finish(struct kilnd *daemon, struct cube *cube)
{
	cube_close(cube);
	finish(daemon, cube->client);
}

/* So many turns, submitted without waiting. */
static void cube_turn(struct cube *cube, int turns)
{
	kiln_ticket tickets[BATCH];

	for (int i = 0; i < turns; i++, cube->turns++) {
		const kiln_operand operands[2] = {{cube->buffers[cube->turns % 2], 0},
										  {cube->buffers[(cube->turns + 1) % 2], 0}};
		assert_ok(kiln_submit(cube->call, operands, 2, 0, &tickets[i]));
	}
	for (int i = 0; i < turns; i++)
		assert_ok(kiln_wait(cube->client, tickets[i], CALL_TIMEOUT_MS));
}

/* What so many turns make of the start: one more or less would be another. */
static void assert_turned(const struct cube *cube)
{
	static float now[CUBE];
	int count = cube->turns % 3;

	assert_ok(kiln_read(cube->buffers[cube->turns % 2], 0, now, sizeof(now)));
	for (int i = 0; i < CUBE; i++) {
		int at[3] = {i / SIDE / SIDE, i / SIDE % SIDE, i % SIDE};
		/* Axis k of the result is axis (k + count) % 3 of the start. */
		int from[3];
		for (int k = 0; k < 3; k++)
			from[(k + count) % 3] = at[k];
		assert_true(now[i] == cube->start[(from[0] * SIDE + from[1]) * SIDE + from[2]]);
	}
}

static int64_t counter(kiln_client *client, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "counters.%s", name);
	return info_int(client, path);
}

/* The first shape has the generic kernel compiled, which all others have at once. */
static void only_the_first_waits(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	client = lazy(daemon);
	struct permute first = turn(15);
	assert_permutes(client, &first, "compiled");
	for (int64_t side = 16; side < 24; side++) {
		struct permute problem = turn(side);
		assert_permutes(client, &problem, "generic");
	}
	assert_int_equal(counter(client, "requests"), 9);
	assert_int_equal(counter(client, "compiles"), 1);
	assert_int_equal(counter(client, "generic"), 8);
	assert_int_equal(counter(client, "specialized"), 0);
	finish(daemon, client);
}

static int turn_once(kiln_client *client, kiln_buffer *const buffers[2], int64_t side)
{
	struct permute problem = turn(side);
	kiln_attr perm = perm_attr(&problem);
	kiln_tensor tensors[2] = {permute_input(&problem, buffers[0]),
							  permute_output(&problem, buffers[1])};
	return kiln_run(client, "permute", tensors, 2, &perm, 1);
}

static void assert_turned_once(kiln_buffer *buffer, int side)
{
	static float now[CUBE];
	assert_ok(kiln_read(buffer, 0, now, sizeof(float) * (size_t)(side * side * side)));
	for (int i = 0; i < side * side * side; i++) {
		int at[3] = {i / side / side, i / side % side, i % side};
		assert_true(now[i] == (float)((at[2] * side + at[0]) * side + at[1]));
	}
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
		int64_t came = counter(client, "submitted"), generic = counter(client, "generic");
		assert_ok(turn_once(client, cube.buffers, side));
		assert_int_equal(counter(client, "submitted"), came + 1);
		assert_int_equal(counter(client, "generic"), generic + 1);
		assert_turned_once(cube.buffers[1], side);
	}
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
	assert_true(counter(client, "generic") > 4);
	assert_int_equal(counter(client, "launch_failures"), 8);
	for (int i = 0; i < 3; i++)
		kiln_free(buffers[i]);
	finish(daemon, client);
}

/* Launches go on all the time while the exact kernel is compiled, loaded and put in. */
static void takes_over_between_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client;

	client = lazy(daemon);
	debug_int(client, "gain", "ms", 1000);
	cube_open(client, &cube);
	assert_string_equal(kiln_call_origin(cube.call), "compiled");
	int after = 0;
	while (after < 20) {
		cube_turn(&cube, BATCH);
		assert_turned(&cube);
		after += counter(client, "promoted") == 1;
	}
	assert_int_equal(counter(client, "specialized"), 1);
	assert_int_equal(counter(client, "launches"), cube.turns);
	assert_true(counter(client, "lane_launches") > 20 * BATCH / 2);
	/* Whoever comes next has it from the start. */
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
	int64_t messages = counter(client, "message_launches");
	for (int i = 0; i < 2; i++)
		cube_turn(&other, 40);
	assert_int_equal(counter(client, "message_launches"), messages);
	await_info(client, "counters.specialized", 1);
	await_info(client, "counters.promoted", 2);
	cube_turn(&cube, 6);
	cube_turn(&other, 6);
	assert_turned(&cube);
	assert_turned(&other);
	cube_close(&other);
	cube_finish(daemon, &cube);
}

/* What the cache has takes over without a compile, however seldom it is used. */
static void from_the_cache(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = turn(SIDE), other = turn(SIDE + 1);
	struct cube cube;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	finish(daemon, client);

	client = lazy(daemon);
	/* No generic kernel is there yet: better the exact one than a compile. */
	assert_permutes(client, &problem, "hit");
	assert_int_equal(counter(client, "jobs"), 0);
	finish(daemon, client);

	client = lazy(daemon);
	assert_permutes(client, &other, "compiled");
	cube_open(client, &cube);
	assert_string_equal(kiln_call_origin(cube.call), "generic");
	await_info(client, "counters.promoted", 1);
	cube_turn(&cube, 5);
	assert_turned(&cube);
	assert_int_equal(counter(client, "jobs"), 1);
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
	assert_int_equal(counter(client, "jobs"), 1);
	assert_int_equal(counter(client, "promoted"), 0);
	cube_finish(daemon, &cube);
}

/* A compile that fails in the background is nobody's failure. */
static void a_failed_compile_changes_nothing(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	debug_int(client, "gain", "ms", 1000);
	debug_int(client, "fail-compile", "count", 1);
	struct cube other;
	cube_open(client, &other);
	while (counter(client, "specialize_failed") == 0)
		cube_turn(&other, BATCH);
	for (int i = 0; i < 4; i++)
		cube_turn(&other, BATCH);
	assert_turned(&other);
	assert_int_equal(counter(client, "failures"), 0);
	assert_int_equal(counter(client, "promoted"), 0);
	assert_int_equal(counter(client, "jobs"), 2);
	cube_close(&other);
	cube_finish(daemon, &cube);
}

/* The process that comes after another has no kernel: both tiers are brought back. */
static void after_the_device_process_died(void **state)
{
	struct kilnd *daemon = *state;
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	cube_turn(&cube, 3);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.executor_faults", 1);
	debug_int(client, "gain", "ms", 1000);
	cube.turns = 0;
	assert_ok(kiln_write(cube.buffers[0], 0, cube.start, sizeof(cube.start)));
	cube_turn(&cube, 1);
	assert_turned(&cube);
	assert_int_equal(counter(client, "jobs"), 1);
	struct permute problem = turn(SIDE + 1);
	assert_permutes(client, &problem, "generic");
	cube_turn(&cube, BATCH);
	await_info(client, "counters.specialized", 1);
	cube_turn(&cube, 4);
	assert_turned(&cube);
	cube_finish(daemon, &cube);
}

/* An exact kernel that went with its process, and that the cache has lost, is not compiled while a
 * launch waits. */
static void a_kernel_that_was_lost(void **state)
{
	struct kilnd *daemon = *state;
	struct permute other = turn(SIDE + 1);
	struct cube cube;
	kiln_client *client = lazy_with_cube(daemon, &cube);

	/* The first has the generic kernel made, the second call is promoted. */
	debug_int(client, "gain", "ms", 1000);
	cube_turn(&cube, BATCH);
	await_info(client, "counters.promoted", 1);
	cache_clear(client, NULL);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.executor_faults", 1);
	debug_int(client, "gain", "ms", 0);
	assert_permutes(client, &other, "compiled");
	int64_t jobs = counter(client, "jobs");

	cube.turns = 0;
	assert_ok(kiln_write(cube.buffers[0], 0, cube.start, sizeof(cube.start)));
	cube_turn(&cube, 2);
	assert_turned(&cube);
	assert_int_equal(counter(client, "jobs"), jobs);
	debug_int(client, "gain", "ms", 1000);
	while (counter(client, "promoted") < 2)
		cube_turn(&cube, BATCH);
	assert_turned(&cube);
	assert_int_equal(counter(client, "jobs"), jobs + 1);
	cube_finish(daemon, &cube);
}

/* There is no process to load the exact kernel into when it has been found: the next one gets it,
 * and nobody has to ask again. */
static void while_there_is_no_device_process(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = turn(SIDE);
	kiln_attr perm = perm_attr(&problem);
	const int deaths = 6; /* the next start is 800 ms later */
	struct cube cube;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	finish(daemon, client);

	client = lazy_with_cube(daemon, &cube);
	kiln_call_free(cube.call);
	for (int i = 1; i <= deaths; i++) {
		assert_ok(kiln_write(cube.buffers[0], 0, cube.start, sizeof(cube.start)));
		debug_str(client, "kill", "role", "executor");
		await_info(client, "counters.executor_faults", i);
	}
	const kiln_tensor tensors[2] = {permute_input(&problem, cube.buffers[0]),
									permute_output(&problem, cube.buffers[1])};
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &cube.call));
	await_info(client, "counters.promoted", 1);
	assert_ok(kiln_write(cube.buffers[0], 0, cube.start, sizeof(cube.start)));
	cube_turn(&cube, 4);
	assert_turned(&cube);
	assert_int_equal(counter(client, "jobs"), 0);
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
	assert_int_equal(counter(client, "jobs"), 2);
	assert_ok(kiln_submit(graph, NULL, 0, 0, &ticket));
	assert_ok(kiln_wait(client, ticket, CALL_TIMEOUT_MS));
	cube.turns = 1;
	assert_turned(&cube);
	kiln_call_free(graph);
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
	for (; counter(client, "widened") == 0 && side < SIDE + 8; side++) {
		struct permute problem = turn(side);
		while (counter(client, "widened") == 0 && counter(client, "specialized") < side - SIDE + 1)
			assert_permutes(client, &problem, NULL);
	}
	assert_int_equal(side, SIDE + 3);
	assert_int_equal(counter(client, "specialized"), 2);
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
	finish(daemon, client);
}

/* A session that may have nothing compiled has what there is. */
static void fallback_has_what_is_there(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = turn(SIDE), other = turn(SIDE + 1);
	kiln_client *client;
	char why[400];

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--on-miss", "fallback"));
	client = client_open(daemon);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_EFROZEN);
	assert_int_equal(counter(client, "frozen"), 1);
	assert_int_equal(counter(client, "jobs"), 0);
	finish(daemon, client);

	client = lazy(daemon);
	assert_permutes(client, &other, "compiled");
	finish(daemon, client);

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--on-miss", "fallback"));
	client = client_open(daemon);
	debug_int(client, "gain", "ms", 1000);
	for (int i = 0; i < 20; i++)
		assert_permutes(client, &problem, i ? "generic" : "hit");
	assert_int_equal(counter(client, "jobs"), 0);
	finish(daemon, client);
}

/* It still compiles generic kernels, which nobody waits for. */
static void stop_at_work(struct kilnd *daemon, kiln_client *client)
{
	kiln_reply *reply = NULL;

	assert_ok(kiln_request(client, "stop", NULL, 0, &reply));
	kiln_reply_free(reply);
	kiln_close(client);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_no_children(STOP_TIMEOUT_MS);
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

/* Whoever comes first finds the generic kernels, and the daemon ends while it still makes more. */
static void warm_from_the_start(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--specialize", "lazy", "--test-warm-generics", "all"));
	client = client_open(daemon);
	await_info_at_least(client, "tiers.resident", 2);
	assert_true(info_int(client, "tiers.generics") > 20);
	assert_int_equal(info_int(client, "tiers.warming"), 1);
	assert_int_equal(counter(client, "requests"), 0);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.executor_faults", 1);
	await_info_at_least(client, "tiers.resident", 2);
	stop_at_work(daemon, client);
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, "still under way"));
	free(log);
}

/* ---- A compiler that changes ---- */

/* Two programs that are g++ and differ in their bytes, one in the place of the other. */
static void put_compiler(const struct kilnd *daemon, int number, char path[96])
{
	char fresh[104];
	snprintf(path, 96, "%s/cxx", daemon->dir);
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	FILE *file = fopen(fresh, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n# %d\nexec g++ \"$@\"\n", number);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(fresh, 0755), 0);
	assert_int_equal(rename(fresh, path), 0);
}

static void copy_compiler(kiln_client *client, char name[128])
{
	kiln_reply *reply;
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	snprintf(name, 128, "%s", kiln_reply_str(reply, "workers.host"));
	kiln_reply_free(reply);
}

static void await_another_compiler(kiln_client *client, const char *before)
{
	char name[128];
	do
		copy_compiler(client, name);
	while (!strcmp(name, before));
}

static int prepare_a_cube(const struct kilnd *daemon, void *arg)
{
	struct permute problem = turn(SIDE);
	kiln_attr perm = perm_attr(&problem);
	kiln_tensor tensors[2] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_call *call;
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	(void)arg;
	if (client)
		status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call);
	kiln_close(client);
	return status == KILN_OK ? 0 : 1;
}

/* The exact kernel of the old compiler is loaded at last when its call has another key, by which
 * nothing is loaded: the lane goes on with the generic kernel, and gets the exact one of the new
 * compiler. */
static void the_compiler_changes_while_a_load_waits(void **state)
{
	struct kilnd *daemon = *state;
	const char *const options[] = {"--specialize", "lazy", "--test-quiet-patience", "1", NULL};
	struct permute problem = turn(SIDE);
	struct cube cube;
	char path[96], before[128];

	put_compiler(daemon, 2, path);
	setenv("KILN_CXX", path, 1);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	finish(daemon, client);

	put_compiler(daemon, 1, path);
	kilnd_start(daemon, options);
	unsetenv("KILN_CXX");
	client = client_open(daemon);
	cube_open(client, &cube);
	cube_turn(&cube, 3);
	copy_compiler(client, before);
	debug_fail_device(client, "hold", "no step", false);
	debug_int(client, "gain", "ms", 1000);
	while (counter(client, "specialized") == 0)
		cube_turn(&cube, BATCH);
	assert_int_equal(counter(client, "promoted"), 0);

	put_compiler(daemon, 2, path);
	debug_str(client, "kill", "role", "compiler");
	await_another_compiler(client, before);
	int64_t hits = counter(client, "lookup_hits");
	pid_t other = process_start(daemon, prepare_a_cube, NULL);
	await_info(client, "counters.lookup_hits", hits + 1);
	cube_turn(&cube, 4);
	debug_fail_device(client, "cells", "no step", false);
	assert_int_equal(process_wait(other, CALL_TIMEOUT_MS), EXITED(0));
	for (int i = 0; i < 4; i++) {
		cube_turn(&cube, 4);
		assert_turned(&cube);
	}
	await_info(client, "counters.promoted", 1);
	cube_turn(&cube, 4);
	assert_turned(&cube);
	cube_finish(daemon, &cube);
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, "its calls go by message"));
	free(log);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(only_the_first_waits),
		HARNESS_TEST(a_first_call_is_one_launch),
		HARNESS_TEST(a_first_call_that_fails),
		HARNESS_TEST(takes_over_between_launches),
		HARNESS_TEST(counts_what_no_message_says),
		HARNESS_TEST(from_the_cache),
		HARNESS_TEST(never),
		HARNESS_TEST(a_failed_compile_changes_nothing),
		HARNESS_TEST(after_the_device_process_died),
		HARNESS_TEST(a_kernel_that_was_lost),
		HARNESS_TEST(while_there_is_no_device_process),
		HARNESS_TEST(graphs_are_exact),
		HARNESS_TEST(a_budget_of_exact_kernels),
		HARNESS_TEST(fallback_has_what_is_there),
		HARNESS_TEST(none_for_a_process_of_ones_own),
		HARNESS_TEST(warm_from_the_start),
		HARNESS_TEST(the_compiler_changes_while_a_load_waits),
	};

	harness_begin(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
