/*
 * test_tiers_faults: compiles that fail, device processes and kernels that are lost, and a compiler
 * that changes, while generic and exact kernels serve the same calls.
 */
#include "tier_scene.h"

#include <kiln/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
	while (tier_counter(client, "specialize_failed") == 0)
		cube_turn(&other, BATCH);
	for (int i = 0; i < 4; i++)
		cube_turn(&other, BATCH);
	assert_turned(&other);
	assert_int_equal(tier_counter(client, "failures"), 0);
	assert_int_equal(tier_counter(client, "promoted"), 0);
	assert_int_equal(tier_counter(client, "jobs"), 2);
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
	assert_int_equal(tier_counter(client, "jobs"), 1);
	struct permute problem = cube_problem(SIDE + 1);
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
	struct permute other = cube_problem(SIDE + 1);
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
	int64_t jobs = tier_counter(client, "jobs");

	cube.turns = 0;
	assert_ok(kiln_write(cube.buffers[0], 0, cube.start, sizeof(cube.start)));
	cube_turn(&cube, 2);
	assert_turned(&cube);
	assert_int_equal(tier_counter(client, "jobs"), jobs);
	debug_int(client, "gain", "ms", 1000);
	while (tier_counter(client, "promoted") < 2)
		cube_turn(&cube, BATCH);
	assert_turned(&cube);
	assert_int_equal(tier_counter(client, "jobs"), jobs + 1);
	cube_finish(daemon, &cube);
}

/* There is no process to load the exact kernel into when it has been found: the next one gets it,
 * and nobody has to ask again. */
static void while_there_is_no_device_process(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = cube_problem(SIDE);
	kiln_attr perm = perm_attr(&problem);
	const int deaths = 6; /* the next start is 800 ms later */
	struct cube cube;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	lazy_finish(daemon, client);

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
	assert_int_equal(tier_counter(client, "jobs"), 0);
	cube_finish(daemon, &cube);
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
	struct permute problem = cube_problem(SIDE);
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
	struct permute problem = cube_problem(SIDE);
	struct cube cube;
	char path[96], before[128];

	put_compiler(daemon, 2, path);
	setenv("KILN_CXX", path, 1);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	lazy_finish(daemon, client);

	put_compiler(daemon, 1, path);
	kilnd_start(daemon, options);
	unsetenv("KILN_CXX");
	client = client_open(daemon);
	cube_open(client, &cube);
	cube_turn(&cube, 3);
	copy_compiler(client, before);
	debug_fail_device(client, "hold", "no step", false);
	debug_int(client, "gain", "ms", 1000);
	while (tier_counter(client, "specialized") == 0)
		cube_turn(&cube, BATCH);
	assert_int_equal(tier_counter(client, "promoted"), 0);

	put_compiler(daemon, 2, path);
	debug_str(client, "kill", "role", "compiler");
	await_another_compiler(client, before);
	int64_t hits = tier_counter(client, "lookup_hits");
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
		HARNESS_TEST(a_failed_compile_changes_nothing),
		HARNESS_TEST(after_the_device_process_died),
		HARNESS_TEST(a_kernel_that_was_lost),
		HARNESS_TEST(while_there_is_no_device_process),
		HARNESS_TEST(the_compiler_changes_while_a_load_waits),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
