/*
 * local_shared.c: loads each kernel once in a context, and unloads it when nobody can need it.
 */
#ifdef KILN_HAVE_CUDA_H

#include "local_shared.h"
#include "error.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct local_module *modules;

/* A child of fork() finds the list whole. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}

int local_module_fail(CUresult result, const char *function, const char *what)
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

/* ---- The driver ---- */

/* A thread that captures a graph may load and unload only if it says that the graph does not
 * capture this. */
static CUstreamCaptureMode relax(CUstreamCaptureMode mode)
{
	return cuda.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS
			   ? mode
			   : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool local_stream_may_load(CUstream stream, bool busy_too)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	/* A query of a stream that captures would spoil the graph. */
	if (cuda.cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
		capture != CU_STREAM_CAPTURE_STATUS_NONE)
		return false;
	if (busy_too)
		return true;
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
	CUresult result = cuda.cuStreamQuery(stream);
	(void)relax(mode);
	return result == CUDA_SUCCESS;
}

/* Asks for dynamic shared memory beyond the default, which the kernel's static shared memory is
 * part of.  Other ways that share the kernel keep what they were granted. */
static int grant_shared(struct local_module *module, uint32_t bytes)
{
	CUfunction function = module->function;
	CUdevice device;
	int fixed = 0, without = 0, wanted = bytes <= INT32_MAX ? (int)bytes : INT32_MAX;
	if (bytes <= module->shared_bytes)
		return KILN_OK;
	CUresult result = cuda.cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = cuda.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
	if (result == CUDA_SUCCESS) {
		result = cuda.cuDeviceGetAttribute(&without,
										   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
	}
	if (result == CUDA_SUCCESS && wanted > without - fixed) {
		result = cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
										 wanted);
	}
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuFuncSetAttribute",
								 "the kernel's shared memory is not granted");
	module->shared_bytes = bytes;
	return KILN_OK;
}

static void unload(struct local_module *module)
{
	CUcontext popped;
	if (cuda_context_id(module->of.context) != module->of.id ||
		cuda.cuCtxPushCurrent(module->of.context) != CUDA_SUCCESS)
		return;
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
	(void)cuda.cuModuleUnload(module->module);
	if (module->pool)
		(void)cuda.cuMemPoolDestroy(module->pool);
	(void)relax(mode);
	(void)cuda.cuCtxPopCurrent(&popped);
}

static void module_free(struct local_module *module)
{
	free(module->entry);
	free(module);
}

static int load(const struct local_way *way, struct local_module *module)
{
	static const char what[] = "the kernel cannot be loaded";
	CUstreamCaptureMode mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
	const char *function = "cuModuleLoadData";
	CUresult result = cuda.cuModuleLoadData(&module->module, way->object);
	if (result == CUDA_SUCCESS) {
		function = "cuModuleGetFunction";
		result = cuda.cuModuleGetFunction(&module->function, module->module, way->entry);
		if (result != CUDA_SUCCESS)
			(void)cuda.cuModuleUnload(module->module);
	}
	(void)relax(mode);
	return result == CUDA_SUCCESS ? KILN_OK : local_module_fail(result, function, what);
}

/* ---- The list, under the lock ---- */

static void local_module_assert_valid(const struct local_module *module)
{
	(void)module;
	assert(module->refs >= 0 && module->function && module->of.context);
	assert(module->refs > 0 || module->state == LOCAL_MODULE_KEPT);
}

static bool is_of(const struct local_module *module, const struct local_way *way,
				  const struct local_context *current)
{
	return module->of.context == current->context && module->of.id == current->id &&
		   module->object_bytes == way->object_bytes && strcmp(module->key, way->is.key) == 0 &&
		   strcmp(module->entry, way->entry) == 0;
}

/* Finds the way's module, and forgets those that went with a context at the same address. */
static struct local_module *find(const struct local_way *way, const struct local_context *current)
{
	struct local_module *found = NULL;
	for (struct local_module **link = &modules; *link != NULL;) {
		struct local_module *module = *link;
		local_module_assert_valid(module);
		if (module->refs == 0 && module->of.context == current->context &&
			module->of.id != current->id) {
			*link = module->next;
			module_free(module);
			continue;
		}
		if (is_of(module, way, current))
			found = module;
		link = &module->next;
	}
	return found;
}

static int add(const struct local_way *way, const struct local_context *current,
			   struct local_module **out)
{
	struct local_module *module = calloc(1, sizeof(*module));
	char *entry = strdup(way->entry);
	int status =
		module && entry ? load(way, module) : error_set(KILN_ENOMEM, "no memory for a module");
	if (status != KILN_OK) {
		free(entry);
		free(module);
		return status;
	}
	module->state = LOCAL_MODULE_USED;
	module->of = *current;
	module->object_bytes = way->object_bytes;
	module->entry = entry;
	memcpy(module->key, way->is.key, sizeof(module->key));
	module->next = modules;
	modules = module;
	*out = module;
	return KILN_OK;
}

static void module_unref(struct local_module *module, bool forked)
{
	struct local_module **link = &modules;
	bool gone = !forked && cuda_context_id(module->of.context) != module->of.id;
	if (--module->refs > 0 || (module->state == LOCAL_MODULE_KEPT && !gone))
		return;
	while (*link != module)
		link = &(*link)->next;
	*link = module->next;
	if (!forked)
		unload(module);
	module_free(module);
}

/* ---- What the ways use ---- */

int local_module_take(const struct local_way *way, const struct local_context *current,
					  struct local_module **out)
{
	int status = KILN_OK;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	struct local_module *module = find(way, current);
	if (!module)
		status = add(way, current, &module);
	if (status == KILN_OK) {
		module->refs++;
		status = grant_shared(module, way->is.shared_bytes);
		if (status != KILN_OK)
			module_unref(module, false);
	}
	pthread_mutex_unlock(&lock);
	if (status == KILN_OK)
		*out = module;
	return status;
}

void local_module_drop(struct local_module *module, bool forked)
{
	pthread_mutex_lock(&lock);
	module_unref(module, forked);
	pthread_mutex_unlock(&lock);
}

int local_module_grant(struct local_module *module, uint32_t bytes)
{
	pthread_mutex_lock(&lock);
	int status = grant_shared(module, bytes);
	pthread_mutex_unlock(&lock);
	return status;
}

void local_module_keep(struct local_module *module)
{
	pthread_mutex_lock(&lock);
	module->state = LOCAL_MODULE_KEPT;
	pthread_mutex_unlock(&lock);
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

int local_module_pool(struct local_module *module, CUmemoryPool *out)
{
	pthread_mutex_lock(&lock);
	CUresult result = open_pool(module);
	pthread_mutex_unlock(&lock);
	if (result != CUDA_SUCCESS)
		return local_module_fail(result, "cuMemPoolCreate",
								 "there is no scratch memory for the launch");
	*out = module->pool;
	return KILN_OK;
}

#else

/* ISO C forbids an empty file; without cuda.h nothing is loaded. */
typedef int local_shared_is_absent;

#endif
