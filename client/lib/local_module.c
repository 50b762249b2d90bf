/*
 * local_module.c: launches kernels in the program's contexts.  A launch uses the current context.
 */
#include "error.h"
#include "local_launch.h"

#include <stdlib.h>
#include <string.h>

#ifndef KILN_HAVE_CUDA_H

int local_current(struct local_context *out)
{
	*out = (struct local_context){0};
	return error_set(KILN_ENOTSUP, "no call can be launched in this process: this libkiln was "
								   "built without cuda.h; use kiln_submit()");
}

int local_start(struct local_way *way, const struct local_context *current,
				const kiln_place *operands, int count, void *stream)
{
	struct local_context none = *current;
	(void)way, (void)operands, (void)count, (void)stream;
	return local_current(&none);
}

int local_load(struct local_way *way, const struct local_context *current, struct local_use **out)
{
	struct local_context none = *current;
	(void)way, (void)out;
	return local_current(&none);
}

int local_load_later(struct local_way *way, const struct local_context *current, void *stream,
					 bool busy_too)
{
	struct local_context none = *current;
	(void)way, (void)stream, (void)busy_too;
	return local_current(&none);
}

int local_start_raw(struct local_use *use, const kiln_launch *launch, void **values, void *stream)
{
	struct local_context none;
	(void)use, (void)launch, (void)values, (void)stream;
	return local_current(&none);
}

void local_unload(struct local_way *way, bool forked)
{
	(void)way, (void)forked;
}

#else

#include "local_record.h"
#include "local_shared.h"

#include <assert.h>

/* A module that a way is launched from, in one context. */
struct local_use {
	struct local_use *next;
	struct local_context of;
	struct local_module *module;
	CUmemoryPool pool;     /* the module's; NULL until a launch needs it */
	uint32_t shared_bytes; /* of a kernel of the program's own: what it was granted */
	bool kept;             /* the module is KEPT: nobody need look whether a stream captures */
	struct local_record record;
};

/* ---- Contexts ---- */

int local_current(struct local_context *out)
{
	const char *missing = cuda_driver_load();
	CUcontext context = NULL;
	if (missing) {
		return error_set(KILN_ENOTSUP,
						 "no call can be launched in this process: the CUDA driver of this machine "
						 "has no %s; use kiln_submit()",
						 missing);
	}
	CUresult result = cuda.cuCtxGetCurrent(&context);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED)
		return local_module_fail(result, "cuCtxGetCurrent", "the call is not launched");
	if (!context) {
		return error_set(KILN_EINVAL, "no CUDA context is current in this thread: make one so with "
									  "cudaSetDevice() or cuCtxSetCurrent() first");
	}
	out->context = context;
	out->id = cuda_context_id(context);
	return KILN_OK;
}

/* A kernel for sm_90 runs on GPUs 9.0 to 9.x, and on no others. */
static int check_target(const struct local_way *way, CUdevice device)
{
	const char *target = way->is.target;
	int major = 0, minor = 0;
	long number = strncmp(target, "sm_", 3) == 0 ? strtol(target + 3, NULL, 10) : 0;
	CUresult result =
		cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	if (result == CUDA_SUCCESS) {
		result =
			cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	}
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuDeviceGetAttribute", "the call is not launched");
	if (number / 10 != major || number % 10 > minor) {
		return error_set(KILN_ENOTSUP,
						 "the call is compiled for %s, and the GPU of the current context is "
						 "sm_%d%d: connect to a daemon's device of that kind, or make a context of "
						 "another GPU current",
						 target, major, minor);
	}
	return KILN_OK;
}

/* ---- Uses of modules ---- */

static void local_use_assert_valid(const struct local_way *way)
{
	(void)way;
	assert((way->state == LOCAL_WAY_LOADED) == (way->uses != NULL));
	assert(!way->uses || (way->object && way->is.kind == LOCAL_KERNEL));
}

static int local_use_add(struct local_way *way, const struct local_context *current,
						 struct local_use **out)
{
	CUdevice device;
	CUresult result = cuda.cuCtxGetDevice(&device);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuCtxGetDevice", "the call is not launched");
	int status = check_target(way, device);
	if (status != KILN_OK)
		return status;
	struct local_use *use = calloc(1, sizeof(*use));
	if (!use)
		return error_set(KILN_ENOMEM, "no memory for a module");
	status = local_module_take(way, current, &use->module);
	if (status != KILN_OK) {
		free(use);
		return status;
	}
	use->of = *current;
	use->next = way->uses;
	way->uses = use;
	way->state = LOCAL_WAY_LOADED;
	*out = use;
	return KILN_OK;
}

/* A recording goes before its kernel. */
static void drop_use(struct local_use *use, bool forked)
{
	CUcontext popped;
	if (use->record.exec) {
		bool gone = forked || cuda_context_id(use->of.context) != use->of.id ||
					cuda.cuCtxPushCurrent(use->of.context) != CUDA_SUCCESS;
		local_record_drop(&use->record, gone);
		if (!gone)
			(void)cuda.cuCtxPopCurrent(&popped);
	}
	local_module_drop(use->module, forked);
	free(use);
}

static int find_use(struct local_way *way, const struct local_context *current,
					struct local_use **out)
{
	local_use_assert_valid(way);
	for (struct local_use **link = &way->uses; *link != NULL; link = &(*link)->next) {
		struct local_use *use = *link;
		if (use->of.context != current->context)
			continue;
		if (use->of.id == current->id) {
			*out = use;
			return KILN_OK;
		}
		/* A new context has the address of one that is gone, and whose modules went with it. */
		*link = use->next;
		drop_use(use, false);
		if (!way->uses)
			way->state = LOCAL_WAY_ASKED;
		break;
	}
	return local_use_add(way, current, out);
}

void local_unload(struct local_way *way, bool forked)
{
	local_use_assert_valid(way);
	way->state = LOCAL_WAY_ASKED;
	while (way->uses) {
		struct local_use *use = way->uses;
		way->uses = use->next;
		drop_use(use, forked);
	}
}

int local_load_later(struct local_way *way, const struct local_context *current, void *stream,
					 bool busy_too)
{
	struct local_use *use = NULL;
	if (way->is.kind != LOCAL_KERNEL)
		return KILN_OK;
	return local_stream_may_load(stream, busy_too) ? find_use(way, current, &use) : KILN_EAGAIN;
}

/* ---- Scratch memory ---- */

/* Allocates scratch memory in the stream's order, so each stream has memory of its own, and a
 * captured launch takes its allocation into the graph.  The kernel finds its counters at zero. */
static int take_scratch(struct local_use *use, const struct local_template *is, CUstream stream,
						CUdeviceptr *out)
{
	static const char what[] = "there is no scratch memory for the launch";
	int status = use->pool ? KILN_OK : local_module_pool(use->module, &use->pool);
	if (status != KILN_OK)
		return status;
	CUresult result = cuda.cuMemAllocFromPoolAsync(out, is->scratch_bytes, use->pool, stream);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuMemAllocFromPoolAsync", what);
	if (is->scratch_counters > 0)
		result = cuda.cuMemsetD8Async(*out, 0, is->scratch_counters, stream);
	if (result != CUDA_SUCCESS) {
		(void)cuda.cuMemFreeAsync(*out, stream);
		return local_module_fail(result, "cuMemsetD8Async", what);
	}
	return KILN_OK;
}

/* ---- Launching ---- */

static void put_values(const struct local_template *is, const kiln_place *operands, int count,
					   CUdeviceptr scratch, uint64_t values[KILN_MAX_RAW_ARGS])
{
	for (int i = 0; i < is->argument_count; i++) {
		const struct local_argument *argument = &is->arguments[i];
		values[i] = argument->kind == LOCAL_SCALAR    ? argument->value
					: argument->kind == LOCAL_SCRATCH ? scratch
					: argument->value < (uint64_t)(unsigned)count
						? operands[argument->value].address
						: 0;
	}
}

/* A launch of a recorded kernel has no scratch memory, which is allocated anew each time. */
static CUresult local_module_launch(struct local_use *use, const struct local_template *is,
									const uint64_t *values, bool captured, CUstream stream)
{
	void *parameters[KILN_MAX_RAW_ARGS];
	const CUDA_KERNEL_NODE_PARAMS params = {.func = use->module->function,
											.gridDimX = is->grid[0],
											.gridDimY = is->grid[1],
											.gridDimZ = is->grid[2],
											.blockDimX = is->block[0],
											.blockDimY = is->block[1],
											.blockDimZ = is->block[2],
											.sharedMemBytes = is->shared_bytes,
											.kernelParams = parameters};
	for (int i = 0; i < is->argument_count; i++)
		parameters[i] = (void *)(uintptr_t)&values[i];
	if (!captured && is->scratch_bytes == 0 &&
		local_record_launch(&use->record, &params, values, is->argument_count, stream))
		return CUDA_SUCCESS;
	return cuda.cuLaunchKernel(params.func, is->grid[0], is->grid[1], is->grid[2], is->block[0],
							   is->block[1], is->block[2], is->shared_bytes, stream, parameters,
							   NULL);
}

/* True: the stream captures, so the launch goes into a graph.  Where the driver answers with an
 * error, the launch has the same one. */
static bool is_captured(struct local_use *use, CUstream stream)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	if (cuda.cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS)
		return true;
	if (capture == CU_STREAM_CAPTURE_STATUS_NONE)
		return false;
	if (!use->kept)
		local_module_keep(use->module);
	use->kept = true;
	return true;
}

static int launch_kernel(struct local_way *way, const struct local_context *current,
						 const kiln_place *operands, int count, CUstream stream)
{
	uint64_t values[KILN_MAX_RAW_ARGS];
	struct local_use *use = NULL;
	CUdeviceptr scratch = 0;
	int status = find_use(way, current, &use);
	if (status != KILN_OK)
		return status;
	bool captured = is_captured(use, stream);
	if (way->is.scratch_bytes > 0)
		status = take_scratch(use, &way->is, stream, &scratch);
	if (status != KILN_OK)
		return status;
	put_values(&way->is, operands, count, scratch, values);
	CUresult result = local_module_launch(use, &way->is, values, captured, stream);
	if (scratch != 0)
		(void)cuda.cuMemFreeAsync(scratch, stream);
	return result == CUDA_SUCCESS
			   ? KILN_OK
			   : local_module_fail(result, "cuLaunchKernel", "the call is not launched");
}

/* ---- Kernels of the program's own ---- */

static void find_parameters(struct local_way *way, CUfunction function)
{
	size_t offset, bytes;
	int count = 0;
	way->has_params = true;
	way->param_count = -1;
	if (!cuda.parameter)
		return;
	while (count < KILN_MAX_RAW_ARGS &&
		   cuda.parameter(function, (size_t)count, &offset, &bytes) == CUDA_SUCCESS)
		way->params[count++] = (uint32_t)bytes;
	way->param_count = count;
}

int local_load(struct local_way *way, const struct local_context *current, struct local_use **out)
{
	int status = find_use(way, current, out);
	if (status == KILN_OK && !way->has_params)
		find_parameters(way, (*out)->module->function);
	return status;
}

static uint32_t extent(const uint32_t sizes[3], int i)
{
	return sizes[i] != 0 ? sizes[i] : 1;
}

static int fail_launch_raw(CUresult result, const kiln_launch *launch)
{
	const uint32_t *grid = launch->grid, *block = launch->block;
	if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
		return local_module_fail(result, "cuLaunchKernel", "the call is not launched");
	return error_set(KILN_EINVAL,
					 "a grid of %ux%ux%u blocks, each of %ux%ux%u threads with %u bytes of shared "
					 "memory, is more than the kernel or the GPU can have, or the stream is of "
					 "another context: cuLaunchKernel says %s",
					 extent(grid, 0), extent(grid, 1), extent(grid, 2), extent(block, 0),
					 extent(block, 1), extent(block, 2), launch->shared_bytes,
					 cuda_driver_error(result));
}

int local_start_raw(struct local_use *use, const kiln_launch *launch, void **values, void *stream)
{
	const uint32_t *grid = launch->grid, *block = launch->block;
	if (launch->shared_bytes > use->shared_bytes) {
		int status = local_module_grant(use->module, launch->shared_bytes);
		if (status != KILN_OK)
			return status;
		use->shared_bytes = launch->shared_bytes;
	}
	if (!use->kept)
		(void)is_captured(use, stream);
	CUresult result = cuda.cuLaunchKernel(
		use->module->function, extent(grid, 0), extent(grid, 1), extent(grid, 2), extent(block, 0),
		extent(block, 1), extent(block, 2), launch->shared_bytes, stream, values, NULL);
	return result == CUDA_SUCCESS ? KILN_OK : fail_launch_raw(result, launch);
}

/* ---- Calls ---- */

int local_start(struct local_way *way, const struct local_context *current,
				const kiln_place *operands, int count, void *stream)
{
	const struct local_template *is = &way->is;
	CUresult result = CUDA_SUCCESS;
	if (is->kind == LOCAL_KERNEL)
		return launch_kernel(way, current, operands, count, stream);
	if (is->kind == LOCAL_COPY && is->copy_bytes > 0) {
		result = cuda.cuMemcpyDtoDAsync(operands[1].address, operands[0].address, is->copy_bytes,
										stream);
	}
	return result == CUDA_SUCCESS
			   ? KILN_OK
			   : local_module_fail(result, "cuMemcpyDtoDAsync", "the call is not launched");
}

#endif
