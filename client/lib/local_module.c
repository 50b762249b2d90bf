/*
 * local_module.c: loads kernels into the program's contexts and calls the driver.  A launch uses
 * the current context; where another one is needed, it is pushed and popped again.
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

void local_unload(struct local_way *way, bool forked)
{
	(void)way, (void)forked;
}

#else

#include "cuda_driver.h"

#include <assert.h>

struct local_module {
	struct local_module *next;
	struct local_context of;
	CUmodule module;
	CUfunction function;
	CUmemoryPool pool; /* for scratch memory; NULL until a launch needs some */
};

static int local_module_fail(CUresult result, const char *function, const char *what)
{
	const char *name = cuda_driver_error(result);
	switch ((int)result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return error_set(KILN_ENOMEM, "%s: %s says %s", what, function, name);
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
		return error_set(KILN_EINVAL,
						 "%s: %s says %s; the stream must belong to the context that is current",
						 what, function, name);
	case CUDA_ERROR_NOT_SUPPORTED:
		return error_set(KILN_ENOTSUP, "%s: %s says %s; use kiln_submit()", what, function, name);
	default:
		return error_set(KILN_EDEVICE, "%s: %s says %s", what, function, name);
	}
}

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

/* ---- Modules ---- */

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

/* Asks for dynamic shared memory beyond the default, which the kernel's static shared memory is
 * part of. */
static int grant_shared(const struct local_way *way, CUdevice device, CUfunction function)
{
	int fixed = 0, without = 0, wanted = (int)way->is.shared_bytes;
	CUresult result =
		cuda.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
	if (result == CUDA_SUCCESS) {
		result = cuda.cuDeviceGetAttribute(&without,
										   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
	}
	if (result == CUDA_SUCCESS && wanted > without - fixed) {
		result = cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
										 wanted);
	}
	return result == CUDA_SUCCESS ? KILN_OK
								  : local_module_fail(result, "cuFuncSetAttribute",
													  "the kernel's shared memory is not granted");
}

static int load_function(struct local_way *way, struct local_module *module, CUdevice device)
{
	CUresult result = cuda.cuModuleLoadData(&module->module, way->object);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuModuleLoadData", "the kernel cannot be loaded");
	result = cuda.cuModuleGetFunction(&module->function, module->module, way->entry);
	int status = result == CUDA_SUCCESS ? grant_shared(way, device, module->function)
										: local_module_fail(result, "cuModuleGetFunction",
															"the kernel cannot be loaded");
	if (status != KILN_OK)
		(void)cuda.cuModuleUnload(module->module);
	return status;
}

static int local_module_load(struct local_way *way, const struct local_context *current,
							 struct local_module **out)
{
	CUdevice device;
	CUresult result = cuda.cuCtxGetDevice(&device);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuCtxGetDevice", "the call is not launched");
	int status = check_target(way, device);
	if (status != KILN_OK)
		return status;
	struct local_module *module = calloc(1, sizeof(*module));
	if (!module)
		return error_set(KILN_ENOMEM, "no memory for a module");
	status = load_function(way, module, device);
	if (status != KILN_OK) {
		free(module);
		return status;
	}
	module->of = *current;
	module->next = way->modules;
	way->modules = module;
	way->state = LOCAL_WAY_LOADED;
	*out = module;
	return KILN_OK;
}

static void local_module_assert_valid(const struct local_way *way)
{
	(void)way;
	assert((way->state == LOCAL_WAY_LOADED) == (way->modules != NULL));
	assert(!way->modules || (way->object && way->is.kind == LOCAL_KERNEL));
}

static int find_module(struct local_way *way, const struct local_context *current,
					   struct local_module **out)
{
	local_module_assert_valid(way);
	for (struct local_module **link = &way->modules; *link != NULL; link = &(*link)->next) {
		struct local_module *module = *link;
		if (module->of.context != current->context)
			continue;
		if (module->of.id == current->id) {
			*out = module;
			return KILN_OK;
		}
		/* A new context has the address of one that is gone, and whose modules went with it. */
		*link = module->next;
		free(module);
		if (!way->modules)
			way->state = LOCAL_WAY_ASKED;
		break;
	}
	return local_module_load(way, current, out);
}

void local_unload(struct local_way *way, bool forked)
{
	local_module_assert_valid(way);
	way->state = LOCAL_WAY_ASKED;
	while (way->modules) {
		struct local_module *module = way->modules;
		CUcontext popped;
		way->modules = module->next;
		if (!forked && cuda_context_id(module->of.context) == module->of.id &&
			cuda.cuCtxPushCurrent(module->of.context) == CUDA_SUCCESS) {
			(void)cuda.cuModuleUnload(module->module);
			if (module->pool)
				(void)cuda.cuMemPoolDestroy(module->pool);
			(void)cuda.cuCtxPopCurrent(&popped);
		}
		free(module);
	}
}

/* ---- Scratch memory ---- */

/* Makes a pool that keeps freed memory: the driver's own pool gives memory back at every
 * synchronization, and each launch would map it anew. */
static CUresult open_pool(struct local_module *module)
{
	CUmemPoolProps props;
	CUdevice device;
	cuuint64_t keep = UINT64_MAX;
	CUresult result = module->pool ? CUDA_SUCCESS : cuda.cuCtxGetDevice(&device);
	if (module->pool || result != CUDA_SUCCESS)
		return result;
	memset(&props, 0, sizeof(props));
	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	result = cuda.cuMemPoolCreate(&module->pool, &props);
	if (result == CUDA_SUCCESS)
		result = cuda.cuMemPoolSetAttribute(module->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
	else
		module->pool = NULL;
	return result;
}

/* Allocates scratch memory in the stream's order, so each stream has memory of its own, and a
 * captured launch takes its allocation into the graph.  The kernel finds its counters at zero. */
static int take_scratch(struct local_module *module, const struct local_template *is,
						CUstream stream, CUdeviceptr *out)
{
	static const char what[] = "there is no scratch memory for the launch";
	CUresult result = open_pool(module);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuMemPoolCreate", what);
	result = cuda.cuMemAllocFromPoolAsync(out, is->scratch_bytes, module->pool, stream);
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

static CUresult local_module_launch(const struct local_template *is, CUfunction function,
									const kiln_place *operands, int count, CUdeviceptr scratch,
									CUstream stream)
{
	uint64_t values[KILN_MAX_RAW_ARGS];
	void *parameters[KILN_MAX_RAW_ARGS];
	for (int i = 0; i < is->argument_count; i++) {
		const struct local_argument *argument = &is->arguments[i];
		values[i] = argument->kind == LOCAL_SCALAR    ? argument->value
					: argument->kind == LOCAL_SCRATCH ? scratch
					: argument->value < (uint64_t)(unsigned)count
						? operands[argument->value].address
						: 0;
		parameters[i] = &values[i];
	}
	return cuda.cuLaunchKernel(function, is->grid[0], is->grid[1], is->grid[2], is->block[0],
							   is->block[1], is->block[2], is->shared_bytes, stream, parameters,
							   NULL);
}

static int launch_kernel(struct local_way *way, const struct local_context *current,
						 const kiln_place *operands, int count, CUstream stream)
{
	struct local_module *module = NULL;
	CUdeviceptr scratch = 0;
	int status = find_module(way, current, &module);
	if (status == KILN_OK && way->is.scratch_bytes > 0)
		status = take_scratch(module, &way->is, stream, &scratch);
	if (status != KILN_OK)
		return status;
	CUresult result =
		local_module_launch(&way->is, module->function, operands, count, scratch, stream);
	if (scratch != 0)
		(void)cuda.cuMemFreeAsync(scratch, stream);
	return result == CUDA_SUCCESS
			   ? KILN_OK
			   : local_module_fail(result, "cuLaunchKernel", "the call is not launched");
}

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
