/*
 * test_cuda_local_record: launches in the program's own context that become graphs of one kernel:
 * when, with which arguments, when not, and that none is left.
 */
#include "cuda_local.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#define PLAIN 31 /* launches before the first that is recorded */
#define MOST 128 /* recordings of a process */

static void launch_often(const struct scene *scene, kiln_call *call, int times)
{
	for (int i = 0; i < times; i++)
		assert_ok(launch(scene, call));
}

/* There have been so many launches of kernels by now, and so many of graphs. */
static void assert_launched(int kernels, int graphs)
{
	assert_int_equal(fake->calls("cuLaunchKernel"), kernels);
	assert_int_equal(fake->calls("cuGraphLaunch"), graphs);
}

static void repeated(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	fake->note(2);
	launch_often(&scene, call, 100);
	assert_launched(PLAIN, 100 - PLAIN);
	assert_int_equal(fake->calls("cuGraphExecKernelNodeSetParams"), 0);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 2);
	const struct fake_launch before = fake->launched();
	/* Other addresses are set once, and are those of the launch. */
	for (int i = 0; i < 3; i++)
		assert_ok(launch_at(&scene, call, scene.y, scene.x));
	assert_int_equal(fake->calls("cuGraphExecKernelNodeSetParams"), 1);
	assert_int_equal(fake->launched().values[0], scene.y);
	assert_int_equal(fake->launched().values[1], scene.x);
	assert_ptr_equal(fake->launched().function, before.function);
	assert_launched(PLAIN, 103 - PLAIN);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* A graph does not run beside itself: what goes to two streams in turn is not recorded. */
static void two_streams(void **state)
{
	struct scene scene, other;
	scene_open(&scene, state);
	other = scene;
	assert_int_equal(cu.stream_create(&other.stream, 0), CUDA_SUCCESS);
	kiln_call *call = prepare_transpose(scene.client);
	for (int i = 0; i < 50; i++) {
		assert_ok(launch(&scene, call));
		assert_ok(launch(&other, call));
	}
	assert_launched(100, 0);
	launch_often(&scene, call, 50);
	assert_launched(100 + PLAIN, 50 - PLAIN);
	/* The same graph, once the other stream has it alone. */
	launch_often(&other, call, 50);
	assert_launched(100 + 2 * PLAIN, 2 * (50 - PLAIN));
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 2);
	kiln_call_free(call);
	scene_close(&scene);
}

/* A graph that the program captures has the kernel itself. */
static void captured(void **state)
{
	struct scene scene;
	CUgraph graph = NULL;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	launch_often(&scene, call, 40);
	assert_launched(PLAIN, 40 - PLAIN);
	assert_int_equal(cu.record(scene.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
	launch_often(&scene, call, 40);
	assert_int_equal(cu.recorded(scene.stream, &graph), CUDA_SUCCESS);
	assert_launched(40 + PLAIN, 40 - PLAIN);
	launch_often(&scene, call, 1);
	assert_launched(40 + PLAIN, 41 - PLAIN);
	cu.drop(graph);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	/* The program's graph might still be launched. */
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	scene_close(&scene);
}

/* A driver that refuses a step: every launch is made all the same. */
static void refused(void **state)
{
	static const char *const steps[] = {"cuGraphCreate", "cuGraphAddKernelNode",
										"cuGraphInstantiateWithFlags",
										"cuGraphExecKernelNodeSetParams", "cuGraphLaunch"};
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		struct scene scene;
		scene_open(&scene, state);
		kiln_call *call = prepare_transpose(scene.client);
		fake->inject(steps[i], 801, 1);
		fake->note(2);
		launch_often(&scene, call, 40);
		assert_ok(launch_at(&scene, call, scene.y, scene.x));
		assert_int_equal(fake->launched().values[0], scene.y);
		assert_true(fake->calls("cuLaunchKernel") > PLAIN);
		assert_int_equal(fake->calls(steps[i]), 1);
		kiln_call_free(call);
		assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
		scene_close(&scene);
	}
}

/* The context goes with all that is in it, and another has its address. */
static void renewed(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	launch_often(&scene, call, 40);
	int destroyed = fake->calls("cuGraphExecDestroy");
	fake->renew(0);
	assert_int_equal(cu.set_current(fake->context(0)), CUDA_SUCCESS);
	assert_int_equal(cu.stream_create(&scene.stream, 0), CUDA_SUCCESS);
	launch_often(&scene, call, 40);
	assert_launched(2 * PLAIN, 2 * (40 - PLAIN));
	assert_int_equal(fake->calls("cuGraphExecDestroy"), destroyed);
	kiln_call_free(call);
	assert_int_equal(fake->calls("cuGraphExecDestroy"), destroyed + 1);
	scene_close(&scene);
}

/* Each takes memory of the GPU, so there is a bound. */
static void bounded(void **state)
{
	static kiln_call *calls[MOST + 2];
	struct scene scene;
	scene_open(&scene, state);
	for (int i = 0; i < MOST + 2; i++) {
		calls[i] = prepare_transpose(scene.client);
		launch_often(&scene, calls[i], PLAIN + 1);
	}
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 2 * MOST);
	kiln_call_free(calls[0]);
	launch_often(&scene, calls[MOST], PLAIN + 1);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 2 * MOST);
	for (int i = 1; i < MOST + 2; i++)
		kiln_call_free(calls[i]);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 0);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(repeated), HARNESS_TEST(two_streams), HARNESS_TEST(captured),
		HARNESS_TEST(refused),  HARNESS_TEST(renewed),     HARNESS_TEST(bounded),
	};
	open_fake();
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	puts("built without cuda.h: there is no fake driver");
	return 77;
}

#endif
