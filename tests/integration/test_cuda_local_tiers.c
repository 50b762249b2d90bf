/*
 * test_cuda_local_tiers: launches in the program's own context take the generic kernel first, and
 * the exact one once the daemon has it: that no launch waits for it, who has it compiled and who
 * must not, and what goes wrong on the way.
 */
#include "cuda_local.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include <signal.h>

/* Generic kernels are compiled for the first call of a test alone. */
#define LAZY "--device", "cpu,cuda:0", "--specialize", "lazy", "--test-warm-generics", "none"

/* ---- The scene ---- */

static int64_t count(const struct scene *scene, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "counters.%s", name);
	return info_int(scene->client, path);
}

static kiln_call *prepare_columns(kiln_client *client, int64_t columns, const char *origin)
{
	const struct permute problem = transpose(ROWS, columns);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	if (origin)
		assert_string_equal(kiln_call_origin(call), origin);
	return call;
}

/* The daemon has the generic kernel of all transposes. */
static void lazy_open(struct scene *scene, void **state)
{
	scene_open_with(scene, state, OPTIONS(LAZY, "--workers", "1"));
	kiln_call_free(prepare_transpose(scene->client));
}

/* Frees a call whose launches have ended. */
static void finish(const struct scene *scene, kiln_call *call)
{
	fake->hold(0);
	assert_int_equal(cu.synchronize(scene->stream), CUDA_SUCCESS);
	kiln_call_free(call);
}

static const void *launch_some(const struct scene *scene, kiln_call *call, int launches)
{
	for (int i = 0; i < launches; i++)
		assert_ok(launch(scene, call));
	return fake->launched().function;
}

/* Launches until another kernel than this one does the work. */
static const void *launch_past(const struct scene *scene, kiln_call *call, const void *function)
{
	const int64_t end = now_ms() + CALL_TIMEOUT_MS;
	const void *now = function;
	while (now == function && now_ms() < end)
		now = launch_some(scene, call, 1);
	assert_ptr_not_equal(now, function);
	return now;
}

/* Launches until the daemon has the exact kernel compiled, while the stream is busy, and until the
 * client has the answer. */
static const void *find_exact(const struct scene *scene, kiln_call *call, int compiles)
{
	const int64_t end = now_ms() + CALL_TIMEOUT_MS;
	debug_int(scene->client, "gain", "ms", 1000);
	const void *function = launch_some(scene, call, 1);
	const int64_t before = objects(scene);
	fake->hold(1);
	while (objects(scene) == before && now_ms() < end)
		launch_some(scene, call, 1);
	assert_int_equal(objects(scene), before + 1);
	/* The answer came before that of the last request. */
	assert_ptr_equal(launch_some(scene, call, 3), function);
	assert_int_equal(count(scene, "specialized"), compiles);
	return function;
}

/* ---- Generic now, exact later ---- */

static void no_launch_waits_for_a_compile(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	debug_int(scene.client, "gain", "ms", 1000);
	const pid_t compiler = compiler_process(scene.client, NULL);
	process_stop(compiler);
	const void *generic = launch_some(&scene, call, 1);
	const int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (info_int(scene.client, "busy.compiling") == 0 && now_ms() < end)
		assert_ptr_equal(launch_some(&scene, call, 1), generic);
	/* It is compiled, and is not there. */
	assert_int_equal(info_int(scene.client, "busy.compiling"), 1);
	assert_ptr_equal(launch_some(&scene, call, 200), generic);
	assert_int_equal(count(&scene, "specialized"), 0);
	assert_int_equal(objects(&scene), 1);
	assert_int_equal(kill(compiler, SIGCONT), 0);
	const void *exact = launch_past(&scene, call, generic);
	assert_int_equal(count(&scene, "specialized"), 1);
	assert_int_equal(objects(&scene), 2);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	/* From now on nobody is asked. */
	assert_ptr_equal(launch_some(&scene, call, 100), exact);
	kilnd_stop(scene.daemon);
	assert_ptr_equal(launch_some(&scene, call, 100), exact);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* The daemon keeps the object of a generic kernel that it has given to somebody. */
static void no_launch_waits_for_the_cache(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	const void *generic = launch_some(&scene, call, 1);
	debug_int(scene.client, "store-deadline", "ms", 2 * CALL_TIMEOUT_MS);
	debug_int(scene.client, "delay-store", "ms", 2 * CALL_TIMEOUT_MS);
	kiln_call *next = prepare_columns(scene.client, COLUMNS - 5, "generic");
	assert_ptr_equal(launch_some(&scene, next, 1), generic);
	assert_int_equal(objects(&scene), 2);
	debug_int(scene.client, "delay-store", "ms", 0);
	finish(&scene, call);
	finish(&scene, next);
	scene_close(&scene);
}

/* The load of the exact kernel waits until the stream is idle; a graph that is captured meanwhile
 * has the generic one, which stays. */
static void a_busy_stream_and_a_capture(void **state)
{
	struct scene scene;
	CUgraph graph = NULL;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	const void *generic = find_exact(&scene, call, 1);
	assert_ptr_equal(launch_some(&scene, call, 100), generic);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	fake->hold(0);
	assert_int_equal(cu.synchronize(scene.stream), CUDA_SUCCESS);
	assert_int_equal(cu.record(scene.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
	assert_ptr_equal(launch_some(&scene, call, 2), generic);
	assert_int_equal(cu.recorded(scene.stream, &graph), CUDA_SUCCESS);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	assert_ptr_not_equal(launch_some(&scene, call, 1), generic);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	/* And with the exact kernel, which nothing can replace. */
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 2);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	cu.drop(graph);
	/* A stream that is never idle has the exact kernel after a thousand launches, those that waited
	 * for the daemon's answer among them. */
	call = prepare_columns(scene.client, COLUMNS - 5, "generic");
	find_exact(&scene, call, 2);
	int launches = 0;
	while (launches <= 1000 && launch_some(&scene, call, 1) == generic)
		launches++;
	assert_in_range(launches, 1, 1000);
	finish(&scene, call);
	scene_close(&scene);
}

/* One quiet moment serves all calls, and clients of a process share both kernels. */
static void calls_and_clients_share(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_client *other = connect_cuda(scene.daemon);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	kiln_call *same = prepare_columns(other, COLUMNS - 3, "generic");
	assert_ok(launch(&scene, same));
	const void *generic = find_exact(&scene, call, 1);
	assert_ptr_equal(fake->launched().function, generic);
	fake->hold(0);
	const void *exact = launch_some(&scene, call, 1);
	assert_ptr_not_equal(exact, generic);
	assert_ptr_equal(launch_past(&scene, same, generic), exact);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	assert_int_equal(count(&scene, "specialized"), 1);
	finish(&scene, call);
	assert_ptr_equal(launch_some(&scene, same, 3), exact);
	finish(&scene, same);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	kiln_close(other);
	scene_close(&scene);
}

/* An exact kernel that the cache has is launched from the start, or soon, and is not compiled. */
static void from_the_cache(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	kiln_call_free(prepare_columns(scene.client, COLUMNS - 3, "compiled"));
	kiln_close(scene.client);
	kilnd_stop(scene.daemon);
	scene_open_with(&scene, state, OPTIONS(LAZY));
	/* The generic kernel is there from now on. */
	kiln_call_free(prepare_columns(scene.client, COLUMNS - 5, "compiled"));
	/* The exact kernel is promoted before the store has read the generic one for the program. */
	debug_int(scene.client, "delay-store", "ms", 300);
	const int64_t lookups = count(&scene, "lookups");
	kiln_call *soon = prepare_columns(scene.client, COLUMNS - 3, "generic");
	await_info(scene.client, "counters.lookups", lookups + 1);
	assert_ok(launch(&scene, soon));
	debug_int(scene.client, "delay-store", "ms", 0);
	await_info(scene.client, "counters.promoted", 1);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "hit");
	const int64_t given = objects(&scene);
	const void *exact = launch_some(&scene, call, 1);
	assert_ptr_equal(launch_some(&scene, call, 100), exact);
	assert_int_equal(objects(&scene), given + 1);
	const int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (launch_some(&scene, soon, 1) != exact && now_ms() < end)
		continue;
	assert_ptr_equal(launch_some(&scene, soon, 3), exact);
	assert_int_equal(count(&scene, "jobs"), 1);
	finish(&scene, soon);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* ---- Who must not compile ---- */

/* So many launches that a compile would pay, with the kernel that came first; nothing is compiled.
 */
static void launch_generic_alone(const struct scene *scene, kiln_call *call)
{
	const int64_t jobs = count(scene, "jobs");
	debug_int(scene->client, "gain", "ms", 1000);
	const void *generic = launch_some(scene, call, 1);
	for (int i = 0; i < 10; i++) {
		assert_ptr_equal(launch_some(scene, call, 50), generic);
		assert_int_equal(count(scene, "jobs"), jobs);
	}
	assert_int_equal(objects(scene), 1);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
}

static void never(void **state)
{
	struct scene scene;
	scene_open_with(&scene, state, OPTIONS(LAZY, "--specialize", "never"));
	kiln_call *call = prepare_transpose(scene.client);
	launch_generic_alone(&scene, call);
	finish(&scene, call);
	scene_close(&scene);
}

static kiln_client *connect_frozen(const struct scene *scene, const char *on_miss)
{
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = scene->daemon->socket,
										  .device = "cuda:0",
										  .timeout_ms = CALL_TIMEOUT_MS,
										  .on_miss = on_miss};
	kiln_client *client = NULL;
	assert_ok(kiln_connect(&options, &client));
	return client;
}

static void frozen(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_client *fallback = connect_frozen(&scene, "fallback"),
				*error = connect_frozen(&scene, "error");
	kiln_call *call = prepare_columns(fallback, COLUMNS - 3, "generic");
	launch_generic_alone(&scene, call);
	finish(&scene, call);
	/* The exact kernel of another shape is in the cache, for those who want that or none. */
	kiln_call *other = prepare_columns(scene.client, COLUMNS, "generic");
	const void *generic = find_exact(&scene, other, 1);
	fake->hold(0);
	call = prepare_columns(error, COLUMNS, "hit");
	assert_ptr_not_equal(launch_some(&scene, call, 1), generic);
	assert_refused(launch_at(&scene, call, scene.x + 4, scene.y), KILN_EFROZEN,
				   "is not in the cache");
	finish(&scene, other);
	finish(&scene, call);
	kiln_close(fallback);
	kiln_close(error);
	scene_close(&scene);
}

/* A kernel that does not compile is asked for once. */
static void a_compile_that_fails(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	const void *generic = launch_some(&scene, call, 1);
	debug_int(scene.client, "fail-compile", "count", 1);
	debug_int(scene.client, "gain", "ms", 1000);
	while (count(&scene, "specialize_failed") == 0)
		assert_ptr_equal(launch_some(&scene, call, 5), generic);
	assert_ptr_equal(launch_some(&scene, call, 100), generic);
	assert_int_equal(count(&scene, "specialize_failed"), 1);
	assert_int_equal(count(&scene, "specialized"), 0);
	finish(&scene, call);
	scene_close(&scene);
}

/* ---- What ends on the way ---- */

/* The second launch asks; the daemon stands still. */
static kiln_call *ask_while_stopped(const struct scene *scene)
{
	kiln_call *call = prepare_columns(scene->client, COLUMNS - 3, "generic");
	assert_ok(launch(scene, call));
	process_stop(scene->daemon->pid);
	launch_some(scene, call, 20);
	return call;
}

static void freed_while_it_asks(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = ask_while_stopped(&scene);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	assert_int_equal(kill(scene.daemon->pid, SIGCONT), 0);
	/* Its answer means nothing to those that follow. */
	call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	launch_some(&scene, call, 20);
	kiln_call *late = ask_while_stopped(&scene);
	kiln_close(scene.client);
	assert_refused(launch(&scene, late), KILN_ECONN, "closed");
	finish(&scene, late);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	assert_int_equal(kill(scene.daemon->pid, SIGCONT), 0);
	kilnd_stop(scene.daemon);
}

static void what_was_found_is_not_loaded(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	find_exact(&scene, call, 1);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	/* The driver refuses it: the generic one serves on. */
	call = prepare_columns(scene.client, COLUMNS - 5, "generic");
	const void *generic = find_exact(&scene, call, 2);
	fake->hold(0);
	fake->inject("cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY, 1);
	assert_ptr_equal(launch_some(&scene, call, 100), generic);
	assert_int_equal(fake->calls("cuModuleLoadData"), 3);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

static void the_daemon_dies(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = ask_while_stopped(&scene);
	const void *generic = fake->launched().function;
	kill(scene.daemon->pid, SIGKILL);
	kilnd_wait(scene.daemon, STOP_TIMEOUT_MS);
	assert_no_children();
	assert_ptr_equal(launch_some(&scene, call, 100), generic);
	finish(&scene, call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* ---- Processes ---- */

/* Launches until its exact kernel is there. */
static int swap_in_child(const struct kilnd *daemon, void *arg)
{
	struct scene scene = *(const struct scene *)arg;
	scene.client = connect_cuda(daemon);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	const void *generic = launch_some(&scene, call, 1);
	launch_past(&scene, call, generic);
	finish(&scene, call);
	kiln_close(scene.client);
	return 0;
}

/* Launches of all count for one compile, and each process takes its kernel over. */
static void two_processes(void **state)
{
	struct scene scene;
	lazy_open(&scene, state);
	kiln_call *call = prepare_columns(scene.client, COLUMNS - 3, "generic");
	const void *generic = launch_some(&scene, call, 1);
	debug_int(scene.client, "gain", "ms", 1000);
	const pid_t child = process_start(scene.daemon, swap_in_child, &scene);
	launch_past(&scene, call, generic);
	assert_int_equal(process_wait(child, CALL_TIMEOUT_MS), EXITED(0));
	assert_int_equal(count(&scene, "specialized"), 1);
	finish(&scene, call);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(no_launch_waits_for_a_compile),
		HARNESS_TEST(no_launch_waits_for_the_cache),
		HARNESS_TEST(a_busy_stream_and_a_capture),
		HARNESS_TEST(calls_and_clients_share),
		HARNESS_TEST(from_the_cache),
		HARNESS_TEST(never),
		HARNESS_TEST(frozen),
		HARNESS_TEST(a_compile_that_fails),
		HARNESS_TEST(freed_while_it_asks),
		HARNESS_TEST(what_was_found_is_not_loaded),
		HARNESS_TEST(the_daemon_dies),
		HARNESS_TEST(two_processes),
	};
	harness_begin();
	open_fake();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_cuda_local_tiers: built without cuda.h\n");
	return 77;
}

#endif
