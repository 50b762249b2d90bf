/*
 * test_cuda_local: launches in the program's own context: that they are those of the plan, ask
 * nobody when repeated, choose by alignment, and are loaded once in each context.
 */
#include "cuda_local.h"
#include "waits_seen.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

/* ---- What is launched ---- */

static void as_planned(void **state)
{
	const struct permute problem = transpose(ROWS, COLUMNS);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	kiln_reply *plan = NULL;
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	assert_ok(kiln_explain(scene.client, "permute", tensors, 2, &perm, 1, NULL, &plan));
	fake->note(2);
	assert_ok(launch(&scene, call));
	const struct fake_launch was = fake->launched();
	for (int i = 0; i < 3; i++) {
		char path[32];
		snprintf(path, sizeof(path), "plan.grid[%d]", i);
		assert_int_equal(was.grid[i], kiln_reply_int(plan, path));
		snprintf(path, sizeof(path), "plan.block[%d]", i);
		assert_int_equal(was.block[i], kiln_reply_int(plan, path));
	}
	assert_true(was.grid[0] > 1);
	assert_int_equal(was.shared, kiln_reply_int(plan, "plan.shared"));
	assert_ptr_equal(was.stream, scene.stream);
	assert_ptr_equal(was.context, fake->context(0));
	assert_int_equal(was.values[0], scene.x);
	assert_int_equal(was.values[1], scene.y);
	assert_int_equal(objects(&scene), 1);
	assert_int_equal(info_int(scene.client, "counters.launches"), 0);
	/* The kernel that prepare brought into the cache, not another. */
	assert_int_equal(info_int(scene.client, "counters.compiles"), 1);
	assert_int_equal(info_int(scene.client, "counters.hits"), 1);
	assert_counters_add_up(scene.client);
	kiln_reply_free(plan);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* No daemon is needed for what was launched before. */
static void nobody_is_asked(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	assert_ok(launch(&scene, call));
	for (int i = 0; i < 50; i++)
		assert_ok(launch(&scene, call));
	assert_int_equal(objects(&scene), 1);
	kilnd_stop(scene.daemon);
	assert_ok(launch_at(&scene, call, scene.y, scene.x));
	assert_int_equal(fake->calls("cuLaunchKernel") + fake->calls("cuGraphLaunch"), 52);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	assert_int_equal(launch_at(&scene, call, scene.x + 4, scene.y), KILN_ECONN);
	kiln_call_free(call);
	scene_close(&scene);
}

static void ways_by_alignment(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	/* The other one first: it would do for all addresses, and is not used for them. */
	assert_ok(launch_at(&scene, call, scene.x + 4, scene.y));
	const struct fake_launch slow = fake->launched();
	assert_ok(launch(&scene, call));
	const struct fake_launch fast = fake->launched();
	assert_ptr_not_equal(slow.function, fast.function);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	for (int i = 0; i < 10; i++) {
		assert_ok(launch_at(&scene, call, scene.x + 4, scene.y));
		assert_ptr_equal(slow.function, fake->launched().function);
		assert_ok(launch(&scene, call));
		assert_ptr_equal(fast.function, fake->launched().function);
	}
	assert_int_equal(objects(&scene), 2);
	/* More of them than are remembered, of few variants. */
	for (int i = 0; i < 3; i++)
		for (unsigned k = 0; k < 9; k++)
			assert_ok(launch_at(&scene, call, scene.x + (1u << (2 + k % 3)) % 16,
								scene.y + (1u << (2 + k / 3)) % 16));
	assert_true(objects(&scene) > 9);
	assert_true(fake->calls("cuModuleLoadData") <= 9);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), fake->calls("cuModuleLoadData"));
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

/* A launch asks for nothing that a stream which records does not allow. */
static void recorded(void **state)
{
	struct scene scene;
	CUgraph graph = NULL;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	assert_ok(launch(&scene, call));
	assert_int_equal(cu.record(scene.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
	assert_ok(launch(&scene, call));
	assert_int_equal(cu.recorded(scene.stream, &graph), CUDA_SUCCESS);
	assert_int_equal(fake->live(FAKE_LIVE_GRAPHS), 1);
	cu.drop(graph);
	kiln_call_free(call);
	scene_close(&scene);
}

/* Zero elements, and a plain copy: there is no kernel. */
static void without_a_kernel(void **state)
{
	const int64_t none[] = {0, 8}, some[] = {8, 8}, perm[] = {0, 1};
	const kiln_attr attr = kiln_attr_ints("perm", perm, 2);
	struct scene scene;
	kiln_call *nothing = NULL, *copy = NULL;
	scene_open(&scene, state);
	const kiln_tensor empty = kiln_tensor_make(NULL, 0, KILN_F32, 2, none);
	const kiln_tensor full = kiln_tensor_make(NULL, 0, KILN_F32, 2, some);
	assert_ok(kiln_prepare(scene.client, "permute", (const kiln_tensor[]){empty, empty}, 2, &attr,
						   1, &nothing));
	assert_ok(kiln_prepare(scene.client, "permute", (const kiln_tensor[]){full, full}, 2, &attr, 1,
						   &copy));
	assert_ok(kiln_launch_local(nothing, (const kiln_place[]){{0, 0}, {0, 0}}, 2, NULL));
	assert_int_equal(fake->calls("cuMemcpyDtoDAsync"), 0);
	memset((void *)(uintptr_t)scene.x, 7, 256);
	memset((void *)(uintptr_t)scene.y, 0, 260);
	assert_ok(kiln_launch_local(copy, (const kiln_place[]){{scene.x, 256}, {scene.y, 256}}, 2,
								scene.stream));
	assert_int_equal(fake->calls("cuMemcpyDtoDAsync"), 1);
	assert_int_equal(cu.synchronize(scene.stream), CUDA_SUCCESS);
	assert_memory_equal((void *)(uintptr_t)scene.x, (void *)(uintptr_t)scene.y, 256);
	assert_int_equal(((uint8_t *)(uintptr_t)scene.y)[256], 0);
	assert_refused(
		kiln_launch_local(copy, (const kiln_place[]){{scene.x, 256}, {scene.y, 255}}, 2, NULL),
		KILN_EINVAL, "y needs 256 bytes");
	assert_int_equal(fake->calls("cuLaunchKernel"), 0);
	kiln_call_free(nothing);
	kiln_call_free(copy);
	scene_close(&scene);
}

/* How many parameters are the address of an allocation of so many bytes. */
static int count_allocations(const struct fake_launch *launch, int values, size_t wanted)
{
	int count = 0;
	for (int i = 0; i < values; i++) {
		CUdeviceptr base = 0;
		size_t bytes = 0;
		count += cu.range(&base, &bytes, launch->values[i]) == CUDA_SUCCESS &&
				 base == launch->values[i] && bytes == wanted;
	}
	return count;
}

#define SCRATCH 264 /* bytes that giou_loss of 100 boxes needs, with its counters */

static void scratch_memory(void **state)
{
	const int64_t boxes[] = {100, 4};
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client)); /* skips without NVRTC */
	const kiln_tensor box = kiln_tensor_make(NULL, 0, KILN_F32, 2, boxes);
	const kiln_tensor loss = kiln_tensor_make(NULL, 0, KILN_F32, 0, NULL);
	const kiln_tensor tensors[] = {box, box, {.dtype = KILN_DTYPE_NONE}, loss};
	const kiln_place places[] = {{scene.x, 1600}, {scene.x + 1600, 1600}, {0, 0}, {scene.y, 4}};
	const uint64_t blocks = (uint64_t)fake->live(FAKE_LIVE_BLOCKS);
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(scene.client, "giou_loss", tensors, 4, NULL, 0, &call));
	fake->note(6);
	fake->hold(1);
	for (int i = 1; i <= 3; i++) {
		assert_ok(kiln_launch_local(call, places, 4, scene.stream));
		const struct fake_launch was = fake->launched();
		assert_int_equal(count_allocations(&was, 6, SCRATCH), 1);
		assert_int_equal(fake->calls("cuMemAllocFromPoolAsync"), i);
		assert_int_equal(fake->calls("cuMemsetD8Async"), i);
		assert_int_equal(fake->calls("cuMemFreeAsync"), i);
	}
	assert_int_equal(fake->calls("cuMemPoolCreate"), 1);
	fake->hold(0);
	/* A launch that fails keeps none. */
	fake->inject("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 1);
	assert_refused(kiln_launch_local(call, places, 4, scene.stream), KILN_EDEVICE,
				   "cuLaunchKernel says CUDA_ERROR");
	fake->inject("cuMemAllocFromPoolAsync", CUDA_ERROR_OUT_OF_MEMORY, 1);
	assert_refused(kiln_launch_local(call, places, 4, scene.stream), KILN_ENOMEM,
				   "no scratch memory for the launch");
	assert_int_equal(cu.synchronize(scene.stream), CUDA_SUCCESS);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_POOLS), 0);
	scene_close(&scene);
}

static void shared_by_request(void **state)
{
	const int64_t shape[] = {4, 32768};
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	const kiln_tensor tensor = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	const uint64_t bytes = 4 * 32768 * 4, x = allocate(bytes), y = allocate(bytes);
	const kiln_place places[] = {{x, bytes}, {y, bytes}};
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(scene.client, "softmax", (const kiln_tensor[]){tensor, tensor}, 2, NULL,
						   0, &call));
	fake->inject("cuFuncSetAttribute", CUDA_ERROR_INVALID_VALUE, 1);
	assert_refused(kiln_launch_local(call, places, 2, scene.stream), KILN_EINVAL,
				   "shared memory is not granted");
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	assert_ok(kiln_launch_local(call, places, 2, scene.stream));
	assert_true(fake->launched().shared > 49152);
	assert_int_equal(fake->granted_shared(), fake->launched().shared);
	kiln_call_free(call);
	scene_close(&scene);
}

/* ---- Contexts ---- */

static void two_contexts(void **state)
{
	CUcontext current;
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < FAKE_CONTEXTS; i++) {
			assert_int_equal(cu.set_current(fake->context(i)), CUDA_SUCCESS);
			assert_ok(launch(&scene, call));
			assert_ptr_equal(fake->launched().context, fake->context(i));
		}
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	assert_int_equal(objects(&scene), 1);
	/* A kernel loaded in a context that is gone is not used in the next one, nor unloaded. */
	fake->renew(1);
	assert_ok(launch(&scene, call));
	assert_int_equal(fake->calls("cuModuleLoadData"), 3);
	fake->renew(0);
	kiln_call_free(call);
	assert_int_equal(fake->calls("cuModuleUnload"), 1);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	assert_int_equal(cu.get_current(&current), CUDA_SUCCESS);
	assert_ptr_equal(current, fake->context(1));
	scene_close(&scene);
}

/* ---- Processes ---- */

/* A child has neither the client nor the driver. */
static int free_in_child(const struct kilnd *daemon, void *arg)
{
	kiln_call *call = arg;
	(void)daemon;
	const int pushed = fake->calls("cuCtxPushCurrent"), unloaded = fake->calls("cuModuleUnload");
	if (kiln_launch_local(call, (const kiln_place[]){{0, 0}, {0, 0}}, 2, NULL) != KILN_EFORK)
		return 1;
	kiln_call_free(call);
	return fake->calls("cuCtxPushCurrent") == pushed && fake->calls("cuModuleUnload") == unloaded
			   ? 0
			   : 2;
}

static void forked(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	assert_ok(launch(&scene, call));
	pid_t child = process_start(scene.daemon, free_in_child, call);
	assert_int_equal(process_wait(child, CALL_TIMEOUT_MS), EXITED(0));
	assert_ok(launch(&scene, call));
	/* A client that is closed leaves its calls to be freed. */
	kiln_close(scene.client);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	kilnd_stop(scene.daemon);
}

static int launch_without_driver(const struct kilnd *daemon, void *arg)
{
	const struct permute problem = transpose(ROWS, COLUMNS);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	const kiln_connect_options options = {
		.size = sizeof(options), .socket = daemon->socket, .device = "cuda:0"};
	const kiln_place places[] = {{256, BYTES}, {256 + BYTES, BYTES}};
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	(void)arg;
	setenv("KILN_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	if (kiln_connect(&options, &client))
		return 1;
	if (kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call))
		return 2;
	if (kiln_launch_local(call, places, 2, NULL) != KILN_ENOTSUP ||
		!strstr(kiln_errmsg(), "has no /nowhere/libcuda.so.1; use kiln_submit()"))
		return 3;
	kiln_call_free(call);
	kiln_close(client);
	return 0;
}

/* First of all, for a driver that was found is kept. */
static void no_driver(void **state)
{
	struct kilnd *daemon = *state;
	kilnd_start(daemon, OPTIONS("--device", "cpu,cuda:0"));
	kiln_client *client = connect_cuda(daemon);
	kiln_call_free(prepare_transpose(client));
	kiln_close(client);
	pid_t child = process_start(daemon, launch_without_driver, NULL);
	assert_int_equal(process_wait(child, CALL_TIMEOUT_MS), EXITED(0));
	kilnd_stop(daemon);
}

/* A kernel that is to be loaded while another runs waits for the device to be quiet, and who looks
 * at who waits sees that. */
static void loads_wait_for_quiet(void **state)
{
	struct scene scene;
	int status;
	scene_open(&scene, state);
	kiln_client *observer = observer_open(scene.daemon);
	kiln_call *call = prepare_transpose(scene.client);
	const struct permute other = transpose(ROWS, COLUMNS + 1);
	const kiln_tensor tensors[] = {permute_input(&other, NULL), permute_output(&other, NULL)};
	const kiln_attr perm = perm_attr(&other);
	kiln_buffer *x, *y;
	kiln_ticket ticket;
	kiln_reply *compiled;
	assert_ok(kiln_alloc(scene.client, BYTES, 0, "x", &x));
	assert_ok(kiln_alloc(scene.client, BYTES, 0, "y", &y));
	/* All that is left to do while the launch is under way is to ask for the load. */
	assert_ok(kiln_compile(scene.client, "permute", tensors, 2, &perm, 1, NULL, &compiled));
	kiln_reply_free(compiled);
	const kiln_connect_options hasty = {.size = sizeof(hasty),
										.socket = scene.daemon->socket,
										.device = "cuda:0",
										.timeout_ms = 60};
	kiln_client *client = NULL;
	kiln_call *never = NULL;
	while ((status = kiln_connect(&hasty, &client)) != KILN_OK)
		assert_int_equal(status, KILN_ETIMEDOUT); /* connecting has no more time than a call */
	debug_int(observer, "delay-launch", "ms", 2500);
	assert_ok(kiln_submit(call, (kiln_operand[]){{x, 0}, {y, 0}}, 2, 0, &ticket));
	status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &never);
	assert_int_equal(status, KILN_ETIMEDOUT);
	const struct wait_seen quiet = await_wait(observer, "quiet");
	assert_string_equal(quiet.asked, "prepare");
	assert_string_equal(quiet.device, "cuda:0");
	assert_true(quiet.left_ms > 0);
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	await_no_wait(observer, "quiet");
	kiln_close(client);
	kiln_call_free(call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(observer);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(no_driver),
		HARNESS_TEST(as_planned),
		HARNESS_TEST(nobody_is_asked),
		HARNESS_TEST(ways_by_alignment),
		HARNESS_TEST(recorded),
		HARNESS_TEST(without_a_kernel),
		HARNESS_TEST(scratch_memory),
		HARNESS_TEST(shared_by_request),
		HARNESS_TEST(two_contexts),
		HARNESS_TEST(forked),
		HARNESS_TEST(loads_wait_for_quiet),
	};
	harness_begin();
	open_fake();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_cuda_local: built without cuda.h\n");
	return 77;
}

#endif
