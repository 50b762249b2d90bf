/*
 * test_cuda_local_shared: that calls which launch one compiled kernel in a context share one
 * module, and that no module is unloaded which a graph may hold.
 */
#include "cuda_local.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include <pthread.h>

/* ---- Who shares ---- */

static void two_clients(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_client *other = connect_cuda(scene.daemon);
	kiln_call *first = prepare_transpose(scene.client), *second = prepare_transpose(other);
	assert_ok(launch(&scene, first));
	const void *function = fake->launched().function;
	assert_ok(launch(&scene, second));
	assert_ptr_equal(fake->launched().function, function);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	/* In each context one. */
	assert_int_equal(cu.set_current(fake->context(1)), CUDA_SUCCESS);
	assert_ok(
		kiln_launch_local(first, (kiln_place[]){{scene.x, BYTES}, {scene.y, BYTES}}, 2, NULL));
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	assert_int_equal(cu.set_current(fake->context(0)), CUDA_SUCCESS);
	kiln_call_free(first);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	assert_ok(launch(&scene, second));
	assert_ptr_equal(fake->launched().function, function);
	kiln_call_free(second);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	kiln_close(other);
	scene_close(&scene);
}

static kiln_call *prepare_softmax(kiln_client *client, int64_t rows, int64_t columns)
{
	const int64_t shape[] = {rows, columns};
	const kiln_tensor tensor = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	kiln_call *call = NULL;
	assert_ok(
		kiln_prepare(client, "softmax", (const kiln_tensor[]){tensor, tensor}, 2, NULL, 0, &call));
	return call;
}

/* The shapes of one generic kernel; each launch has its own arguments all the same. */
static void shapes_of_a_generic_kernel(void **state)
{
	struct scene scene;
	kiln_call *calls[8];
	/* Warming would still compile when the daemon is to be idle. */
	scene_open_with(
		&scene, state,
		OPTIONS("--device", "cpu,cuda:0", "--specialize", "never", "--test-warm-generics", "none"));
	kiln_call_free(prepare_transpose(scene.client)); /* skips without NVRTC */
	const void *function = NULL;
	uint32_t grids = 0;
	for (int i = 0; i < 8; i++) {
		calls[i] = prepare_softmax(scene.client, 10 + i, 64);
		if (i > 0)
			assert_string_equal(kiln_call_origin(calls[i]), "generic");
		assert_ok(launch(&scene, calls[i]));
		function = i == 0 ? fake->launched().function : function;
		assert_ptr_equal(fake->launched().function, function);
		grids += fake->launched().grid[0];
	}
	assert_true(grids > 8);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
		assert_ok(launch(&scene, calls[i]));
		kiln_call_free(calls[i]);
	}
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

#define THREADS 4

struct racer {
	const struct scene *scene;
	pthread_barrier_t *start;
	int status;
};

static void *race(void *arg)
{
	struct racer *racer = arg;
	kiln_client *client = connect_cuda(racer->scene->daemon);
	kiln_call *call = prepare_transpose(client);
	cu.set_current(fake->context(0));
	pthread_barrier_wait(racer->start);
	racer->status = launch(racer->scene, call);
	pthread_barrier_wait(racer->start);
	kiln_call_free(call);
	kiln_close(client);
	return NULL;
}

/* Threads that need a kernel at once load it once. */
static void threads(void **state)
{
	struct racer racers[THREADS];
	pthread_t all[THREADS];
	pthread_barrier_t start;
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	fake->slow("cuModuleLoadData", 20000);
	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		racers[i] = (struct racer){&scene, &start, -1};
		assert_int_equal(pthread_create(&all[i], NULL, race, &racers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(all[i], NULL);
		assert_int_equal(racers[i].status, KILN_OK);
	}
	pthread_barrier_destroy(&start);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* ---- What graphs hold ---- */

static CUgraphExec capture(const struct scene *scene, kiln_call *call)
{
	CUgraph graph = NULL;
	CUgraphExec runs = NULL;
	assert_int_equal(cu.record(scene->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
	assert_ok(launch(scene, call));
	assert_int_equal(cu.recorded(scene->stream, &graph), CUDA_SUCCESS);
	assert_int_equal(cu.instantiate(&runs, graph, 0), CUDA_SUCCESS);
	cu.drop(graph);
	return runs;
}

/* A call, and its client, may be gone when the graph is launched. */
static void graphs_outlive_calls(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_client *other = connect_cuda(scene.daemon);
	kiln_call *call = prepare_transpose(other);
	/* The first launch of all is captured; loading is no part of the graph. */
	CUgraphExec graph = capture(&scene, call);
	kiln_call_free(call);
	kiln_close(other);
	assert_int_equal(fake->calls("cuModuleUnload"), 0);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	assert_int_equal(cu.launch(graph, scene.stream), CUDA_SUCCESS);
	assert_int_equal(cu.synchronize(scene.stream), CUDA_SUCCESS);
	/* The next that needs the kernel finds it, and a second capture is not kept twice. */
	for (int i = 0; i < 3; i++) {
		call = prepare_transpose(scene.client);
		cu.destroy(capture(&scene, call));
		kiln_call_free(call);
	}
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	/* It is enough that one of two calls that share was captured. */
	kiln_call *shape = prepare_softmax(scene.client, 12, 64);
	kiln_call *same = prepare_softmax(scene.client, 12, 64);
	assert_ok(launch(&scene, shape));
	cu.destroy(capture(&scene, same));
	kiln_call_free(same);
	kiln_call_free(shape);
	assert_int_equal(fake->calls("cuModuleUnload"), 0);
	/* With the context they go. */
	fake->renew(0);
	call = prepare_transpose(scene.client);
	assert_ok(kiln_launch_local(call, (kiln_place[]){{scene.x, BYTES}, {scene.y, BYTES}}, 2, NULL));
	assert_int_equal(fake->calls("cuModuleLoadData"), 3);
	kiln_call_free(call);
	assert_int_equal(fake->calls("cuModuleUnload"), 1);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	cu.destroy(graph);
	scene_close(&scene);
}

/* A way that shares a kernel finds that shared memory granted which it needs. */
static void shared_memory_is_raised_alone(void **state)
{
	const int64_t large[] = {4, 32768};
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	const kiln_tensor tensor = kiln_tensor_make(NULL, 0, KILN_F32, 2, large);
	const uint64_t bytes = 4 * 32768 * 4, x = allocate(bytes), y = allocate(bytes);
	const kiln_place places[] = {{x, bytes}, {y, bytes}};
	kiln_call *calls[2];
	for (int i = 0; i < 2; i++) {
		assert_ok(kiln_prepare(scene.client, "softmax", (const kiln_tensor[]){tensor, tensor}, 2,
							   NULL, 0, &calls[i]));
		assert_ok(kiln_launch_local(calls[i], places, 2, scene.stream));
	}
	/* The second way finds what the first one was granted. */
	assert_int_equal(fake->calls("cuFuncSetAttribute"), 1);
	kiln_call_free(calls[0]);
	assert_ok(kiln_launch_local(calls[1], places, 2, scene.stream));
	kiln_call_free(calls[1]);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(two_clients),
		HARNESS_TEST(shapes_of_a_generic_kernel),
		HARNESS_TEST(threads),
		HARNESS_TEST(graphs_outlive_calls),
		HARNESS_TEST(shared_memory_is_raised_alone),
	};
	harness_begin();
	open_fake();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_cuda_local_shared: built without cuda.h\n");
	return 77;
}

#endif
