/*
 * test_cuda_local_refusals: launches in the program's own context that are refused, each with the
 * sentence that says what to do.
 */
#include "cuda_local.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

/* ---- Contexts ---- */

static void no_context(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	assert_int_equal(cu.set_current(NULL), CUDA_SUCCESS);
	assert_refused(launch(&scene, call), KILN_EINVAL, "no CUDA context is current in this thread");
	fake->inject("cuCtxGetCurrent", CUDA_ERROR_NOT_INITIALIZED, 1);
	assert_refused(launch(&scene, call), KILN_EINVAL, "no CUDA context is current in this thread");
	assert_int_equal(objects(&scene), 0);
	kiln_call_free(call);
	scene_close(&scene);
}

static void another_gpu(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	fake->capability(80);
	assert_refused(launch(&scene, call), KILN_ENOTSUP,
				   "compiled for sm_90, and the GPU of the current context is sm_80");
	fake->capability(100);
	assert_refused(launch(&scene, call), KILN_ENOTSUP, "is sm_100");
	fake->capability(91);
	assert_ok(launch(&scene, call));
	kiln_call_free(call);
	scene_close(&scene);
}

/* ---- What is refused ---- */

static void wrong_operands(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	const uint64_t x = scene.x, y = scene.y;
	const kiln_place small[] = {{x, BYTES}, {y, BYTES - 1}};
	assert_refused(kiln_launch_local(NULL, small, 2, NULL), KILN_EINVAL, "call is NULL");
	assert_refused(kiln_launch_local(call, small, 1, NULL), KILN_EINVAL,
				   "prepared for 2 tensors and is launched with 1 operands");
	assert_refused(kiln_launch_local(call, NULL, 2, NULL), KILN_EINVAL, "prepared for 2 tensors");
	assert_refused(kiln_launch_local(call, small, 2, NULL), KILN_EINVAL,
				   "where 24575 are said to be");
	assert_refused(launch_at(&scene, call, 0, y), KILN_EINVAL, "x has no address");
	assert_refused(launch_at(&scene, call, x, x), KILN_EINVAL,
				   "an output may share no byte with another operand");
	assert_refused(launch_at(&scene, call, x, x + BYTES - 4), KILN_EINVAL, "overlap");
	assert_refused(launch_at(&scene, call, x + BYTES - 16, x), KILN_EINVAL, "overlap");
	assert_int_equal(fake->calls("cuLaunchKernel"), 0);
	/* Side by side is well. */
	assert_ok(launch_at(&scene, call, x, x + BYTES));
	kiln_call_free(call);
	scene_close(&scene);
}

static void left_out(void **state)
{
	const int64_t rows[] = {8, 64}, row[] = {64};
	struct scene scene;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	const kiln_tensor none = {.dtype = KILN_DTYPE_NONE};
	const kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 2, rows);
	const kiln_tensor gamma = kiln_tensor_make(NULL, 0, KILN_F32, 1, row);
	const kiln_tensor tensors[] = {x, gamma, none, none, x};
	kiln_place places[] = {{scene.x, 2048}, {scene.x + 2048, 256}, {0, 0}, {0, 0}, {scene.y, 2048}};
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(scene.client, "layer_norm", tensors, 5, NULL, 0, &call));
	assert_ok(kiln_launch_local(call, places, 5, NULL));
	assert_null(fake->launched().stream);
	places[2].address = scene.x;
	assert_refused(kiln_launch_local(call, places, 5, NULL), KILN_EINVAL,
				   "operand 2 has an address, and the call was prepared without it");
	kiln_call_free(call);
	scene_close(&scene);
}

/* Where indices are counted nobody would be told. */
static void counted_indices(void **state)
{
	const int64_t source[] = {4, 32}, list[] = {4, 8};
	const kiln_attr clamp = kiln_attr_text("bounds", "clamp");
	struct scene scene;
	kiln_call *call = NULL;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	const kiln_tensor src = kiln_tensor_make(NULL, 0, KILN_F32, 2, source);
	const kiln_tensor idx = kiln_tensor_make(NULL, 0, KILN_I32, 2, list);
	const kiln_tensor dst = kiln_tensor_make(NULL, 0, KILN_F32, 2, list);
	const kiln_tensor tensors[] = {src, idx, dst};
	const kiln_place places[] = {{scene.x, 512}, {scene.x + 512, 128}, {scene.y, 128}};
	const kiln_attr map[] = {kiln_attr_text("statement", "y[i,j] = x[i,k[i,j]]"),
							 kiln_attr_text("names", "x,k,y")};
	assert_ok(kiln_prepare(scene.client, "gather", tensors, 3, NULL, 0, &call));
	assert_refused(kiln_launch_local(call, places, 3, scene.stream), KILN_ENOTSUP,
				   "gather counts indices that are out of range");
	assert_sentence("attribute bounds clamp or trust");
	kiln_call_free(call);
	assert_ok(kiln_prepare(scene.client, "gather", tensors, 3, &clamp, 1, &call));
	assert_ok(kiln_launch_local(call, places, 3, scene.stream));
	kiln_call_free(call);
	assert_ok(kiln_prepare(scene.client, "map", tensors, 3, map, 2, &call));
	assert_refused(kiln_launch_local(call, places, 3, scene.stream), KILN_ENOTSUP,
				   "attribute bounds clamp or zero, and without checked");
	kiln_call_free(call);
	scene_close(&scene);
}

static void other_kinds(void **state)
{
	const kiln_raw raw = {.size = sizeof(raw),
						  .source = "__global__ void nop(float *x) { x[0] = 1; }",
						  .entry = "nop"};
	const struct permute problem = transpose(ROWS, COLUMNS);
	const kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	const kiln_attr perm = perm_attr(&problem);
	struct scene scene;
	kiln_call *call = NULL;
	scene_open(&scene, state);
	kiln_call_free(prepare_transpose(scene.client));
	assert_ok(kiln_prepare_raw(scene.client, &raw, &call));
	assert_refused(kiln_launch_local(call, NULL, 0, NULL), KILN_ENOTSUP,
				   "kiln_launch_local_raw() or");
	kiln_call_free(call);
	kiln_call *part = prepare_transpose(scene.client);
	kiln_buffer *buffers[2];
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(scene.client, BYTES, 0, NULL, &buffers[i]));
	const kiln_operand operands[] = {{buffers[0], 0}, {buffers[1], 0}};
	const kiln_work work = {part, operands, 2};
	assert_ok(kiln_prepare_graph(scene.client, &work, 1, &call));
	assert_refused(kiln_launch_local(call, NULL, 0, scene.stream), KILN_ENOTSUP,
				   "the call is a graph, which its device process alone can launch");
	kiln_call_free(call);
	kiln_call_free(part);
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_free(buffers[i]));
	kiln_client *host = client_open(scene.daemon);
	assert_ok(kiln_prepare(host, "permute", tensors, 2, &perm, 1, &call));
	assert_refused(launch(&scene, call), KILN_ENOTSUP,
				   "a call of device cpu cannot be launched in a CUDA context: connect with device "
				   "\"cuda:0\"");
	kiln_call_free(call);
	kiln_close(host);
	scene_close(&scene);
}

static void driver_errors(void **state)
{
	struct scene scene;
	scene_open(&scene, state);
	kiln_call *call = prepare_transpose(scene.client);
	static const struct {
		const char *function;
		int result, status;
		const char *word;
	} errors[] = {
		{"cuCtxGetCurrent", CUDA_ERROR_ILLEGAL_ADDRESS, KILN_EDEVICE, "cuCtxGetCurrent says"},
		{"cuDeviceGetAttribute", CUDA_ERROR_NOT_SUPPORTED, KILN_ENOTSUP, "use kiln_submit()"},
		{"cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY, KILN_ENOMEM,
		 "the kernel cannot be loaded: cuModuleLoadData says CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, KILN_EDEVICE, "cuModuleGetFunction says"},
		{"cuLaunchKernel", CUDA_ERROR_INVALID_HANDLE, KILN_EINVAL,
		 "the stream must belong to the context that is current"},
		{"cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS, KILN_EDEVICE,
		 "cuLaunchKernel says CUDA_ERROR_ILLEGAL_ADDRESS"},
	};
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		fake->inject(errors[i].function, errors[i].result, 1);
		assert_refused(launch(&scene, call), errors[i].status, errors[i].word);
	}
	assert_ok(launch(&scene, call));
	assert_int_equal(objects(&scene), 1);
	kiln_call_free(call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(no_context),    HARNESS_TEST(another_gpu),     HARNESS_TEST(wrong_operands),
		HARNESS_TEST(left_out),      HARNESS_TEST(counted_indices), HARNESS_TEST(other_kinds),
		HARNESS_TEST(driver_errors),
	};
	harness_begin();
	open_fake();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_cuda_local_refusals: built without cuda.h\n");
	return 77;
}

#endif
