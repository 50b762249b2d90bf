/*
 * test_cuda_local_raw: kernels of the program's own in the program's own context: that grid, block
 * and arguments are the caller's, that no device process is started, and what is refused.
 */
#include "cuda_local.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include <stddef.h>

static const char source[] =
	"template <typename T> __global__ void fill(T *x, long long n) { if (n) x[0] = 1; }\n";

static kiln_call *prepare_fill(kiln_client *client, unsigned flags)
{
	const kiln_raw raw = {
		.size = sizeof(raw), .source = source, .entry = "fill<float>", .flags = flags};
	kiln_call *call = NULL;
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	return call;
}

static kiln_call *open_with_fill(struct scene *scene, void **state, unsigned flags)
{
	scene_open(scene, state);
	kiln_call_free(prepare_transpose(scene->client)); /* skips without NVRTC */
	fake->note(2);
	return prepare_fill(scene->client, flags);
}

static int launch_fill(const struct scene *scene, kiln_call *call, int64_t n)
{
	const kiln_raw_arg args[] = {kiln_raw_value(&scene->x, 8), kiln_raw_value(&n, sizeof(n))};
	const kiln_launch launch = {
		.size = sizeof(launch), .grid = {7, 5}, .block = {64}, .args = args, .arg_count = 2};
	return kiln_launch_local_raw(call, &launch, scene->stream);
}

static void as_asked(void **state)
{
	struct scene scene;
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL);
	const int64_t compiles = info_int(scene.client, "counters.compiles");
	assert_ok(launch_fill(&scene, call, 42));
	const struct fake_launch was = fake->launched();
	const uint32_t grid[] = {7, 5, 1}, block[] = {64, 1, 1};
	assert_memory_equal(was.grid, grid, sizeof(grid));
	assert_memory_equal(was.block, block, sizeof(block));
	assert_int_equal(was.shared, 0);
	assert_ptr_equal(was.stream, scene.stream);
	assert_ptr_equal(was.context, fake->context(0));
	assert_int_equal(was.values[0], scene.x);
	assert_int_equal(was.values[1], 42);
	for (int i = 0; i < 20; i++)
		assert_ok(launch_fill(&scene, call, i));
	assert_int_equal(fake->launched().values[1], 19);
	assert_int_equal(objects(&scene), 1);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	assert_int_equal(info_int(scene.client, "counters.compiles"), compiles);
	/* A loaded kernel goes on without a daemon. */
	kilnd_stop(scene.daemon);
	assert_ok(launch_fill(&scene, call, 1));
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

static void no_process_of_its_own(void **state)
{
	struct scene scene;
	setenv("KILN_MAX_OWN", "1", 1);
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL), *both = NULL;
	unsetenv("KILN_MAX_OWN");
	const int64_t n = 1;
	const kiln_raw_arg args[] = {kiln_raw_value(&scene.x, 8), kiln_raw_value(&n, 8)};
	const kiln_launch launch = {.size = sizeof(launch), .args = args, .arg_count = 2};
	kiln_ticket ticket;
	assert_int_equal(kiln_call_params(call, NULL, 0), KILN_ENOENT);
	assert_refused(kiln_submit_raw(call, &launch, 0, &ticket), KILN_EINVAL, "KILN_RAW_LOCAL");
	/* Without the flag a call can be launched both ways, and the one process is taken. */
	kiln_client *client = connect_cuda(scene.daemon);
	both = prepare_fill(client, 0);
	assert_int_equal(kiln_call_params(both, NULL, 0), 2);
	assert_ok(launch_fill(&scene, both, 3));
	const kiln_raw raw = {.size = sizeof(raw), .source = source, .entry = "fill<float>"};
	kiln_call *refused = NULL;
	assert_refused(kiln_prepare_raw(scene.client, &raw, &refused), KILN_ELIMIT, "--max-own");
	assert_ok(launch_fill(&scene, call, 4));
	kiln_call_free(both);
	kiln_close(client);
	kiln_call_free(call);
	scene_close(&scene);
}

/* A program that was built before the structure had flags. */
static void shorter_structure(void **state)
{
	struct scene scene;
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL), *older = NULL;
	kiln_raw raw = {.size = offsetof(kiln_raw, flags),
					.source = source,
					.entry = "fill<float>",
					.flags = 0xdead};
	assert_ok(kiln_prepare_raw(scene.client, &raw, &older));
	kiln_call_free(older);
	raw.size = sizeof(raw);
	assert_refused(kiln_prepare_raw(scene.client, &raw, &older), KILN_EINVAL, "flags 0xdead");
	raw.size = offsetof(kiln_raw, flags) - 1;
	assert_refused(kiln_prepare_raw(scene.client, &raw, &older), KILN_EINVAL, "another size");
	kiln_call_free(call);
	scene_close(&scene);
}

static void shared_memory(void **state)
{
	struct scene scene;
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL);
	const int64_t n = 1;
	const kiln_raw_arg args[] = {kiln_raw_value(&scene.x, 8), kiln_raw_value(&n, 8)};
	kiln_launch launch = {.size = sizeof(launch), .args = args, .arg_count = 2};
	static const uint32_t sizes[] = {1000, 60000, 70000, 1000};
	for (int i = 0; i < 4; i++) {
		launch.shared_bytes = sizes[i];
		assert_ok(kiln_launch_local_raw(call, &launch, scene.stream));
		assert_int_equal(fake->launched().shared, sizes[i]);
	}
	assert_int_equal(fake->granted_shared(), 70000);
	launch.shared_bytes = 0x80000000u;
	assert_int_equal(kiln_launch_local_raw(call, &launch, scene.stream), KILN_EINVAL);
	fake->inject("cuLaunchKernel", CUDA_ERROR_INVALID_VALUE, 1);
	launch.shared_bytes = 0;
	assert_refused(kiln_launch_local_raw(call, &launch, scene.stream), KILN_EINVAL,
				   "a grid of 1x1x1 blocks");
	kiln_call_free(call);
	scene_close(&scene);
}

static void wrong_arguments(void **state)
{
	struct scene scene;
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL);
	const int64_t n = 1;
	kiln_buffer *buffer = NULL;
	assert_ok(kiln_alloc(scene.client, 64, 0, "b", &buffer));
	kiln_raw_arg args[] = {kiln_raw_value(&scene.x, 8), kiln_raw_value(&n, 4)};
	kiln_launch launch = {.size = sizeof(launch), .args = args, .arg_count = 1};
#define LAUNCH() kiln_launch_local_raw(call, &launch, scene.stream)
	assert_refused(kiln_launch_local_raw(NULL, &launch, NULL), KILN_EINVAL, "call is NULL");
	assert_refused(kiln_launch_local_raw(call, NULL, NULL), KILN_EINVAL, "launch is NULL");
	assert_refused(LAUNCH(), KILN_EINVAL, "takes 2 arguments and was given 1");
	launch.arg_count = 2;
	assert_refused(LAUNCH(), KILN_EINVAL, "argument 1 of the kernel has 8 bytes and was given 4");
	args[1] = kiln_raw_memory(buffer, 0, KILN_READ);
	assert_refused(LAUNCH(), KILN_EINVAL, "argument 1 has a buffer");
	args[1] = kiln_raw_value(&n, 0);
	assert_refused(LAUNCH(), KILN_EINVAL, "argument 1 has no such value");
	launch.arg_count = KILN_MAX_RAW_ARGS + 1;
	assert_refused(LAUNCH(), KILN_EINVAL, "there must be 0 to 64");
	launch.arg_count = 2;
	launch.timeout_ms = 5;
	assert_refused(LAUNCH(), KILN_EINVAL, "timeout_ms 5");
#undef LAUNCH
	assert_int_equal(fake->calls("cuLaunchKernel"), 0);
	assert_ok(launch_fill(&scene, call, 1));
	kiln_free(buffer);
	kiln_call_free(call);
	scene_close(&scene);
}

static void other_calls(void **state)
{
	struct scene scene;
	kiln_call *call = open_with_fill(&scene, state, KILN_RAW_LOCAL);
	kiln_call *planned = prepare_transpose(scene.client);
	assert_refused(launch_fill(&scene, planned, 1), KILN_EINVAL, "with kiln_launch_local()");
	assert_int_equal(cu.set_current(NULL), CUDA_SUCCESS);
	assert_refused(launch_fill(&scene, call, 1), KILN_EINVAL, "no CUDA context is current");
	assert_int_equal(cu.set_current(fake->context(1)), CUDA_SUCCESS);
	assert_ok(launch_fill(&scene, call, 1));
	kiln_client *host = client_open(scene.daemon);
	kiln_call *other = prepare_fill(host, 0);
	assert_refused(launch_fill(&scene, other, 1), KILN_ENOTSUP, "a kernel of device cpu");
	kiln_call_free(other);
	kiln_close(host);
	kiln_call_free(planned);
	kiln_call_free(call);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(as_asked),          HARNESS_TEST(no_process_of_its_own),
		HARNESS_TEST(shorter_structure), HARNESS_TEST(shared_memory),
		HARNESS_TEST(wrong_arguments),   HARNESS_TEST(other_calls),
	};
	harness_begin();
	open_fake();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_cuda_local_raw: built without cuda.h\n");
	return 77;
}

#endif
