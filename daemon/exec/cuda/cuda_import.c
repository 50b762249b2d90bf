/*
 * cuda_import: opens allocations of other processes.  One of cuMemAlloc is opened by its IPC
 * handle.  One of a stream-ordered pool takes two steps: the pool is imported by its descriptor,
 * then each allocation by the data that its owner exported.  Must not know what the buffers are
 * used for.
 *
 * Several buffers may lie in one allocation; it is opened for the first of them and closed with the
 * last.  A second opening would do harm: the driver does not count, and of two imports of the same
 * pool data the first to be freed unmaps both.  A pool is the expensive step, so it is opened once
 * and closed with its last allocation.
 *
 * The owner frees an allocation after this process has answered the free of its last buffer, so
 * that answer waits for the close or for the stream.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "cuda_memory.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_pool {
	struct cuda_pool *next;
	int64_t pid;
	uint64_t id; /* its handle in the exporter */
	CUmemoryPool pool;
	int imports;
};

struct cuda_import {
	struct cuda_import *next;
	struct cuda_pool *pool; /* NULL: opened by IPC handle */
	uint8_t handle[sizeof(((struct device_import *)0)->handle)];
	int64_t pid;
	uint64_t buffer_id;
	CUdeviceptr base;
	uint64_t span; /* bytes that may be used: what the exporter says and the driver confirms */
	int users;     /* buffers */
};

_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(((struct cuda_import *)0)->handle) &&
				   sizeof(CUipcMemHandle) == sizeof(((struct cuda_import *)0)->handle),
			   "what names an allocation fits");

int cuda_check_span(const struct device_import *what, uint64_t span, const char *who,
					char error[KERNEL_ERROR_MAX])
{
	if (what->offset > span || what->bytes > span - what->offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the lent buffer (%llu bytes from byte %llu) ends beyond its allocation, "
						 "which has %llu bytes as %s",
						 (unsigned long long)what->bytes, (unsigned long long)what->offset,
						 (unsigned long long)span, who);
	return KILN_OK;
}

/* ---- Pools ---- */

/* A pool is accessible from the GPU that it lies on; another GPU has to ask. */
static CUresult make_accessible(struct device *device, CUmemoryPool pool)
{
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUmemAccessDesc access = cuda_access(device);
	CUresult result = device->cu.cuMemPoolGetAccess(&flags, pool, &access.location);
	if (result != CUDA_SUCCESS || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return result;
	return device->cu.cuMemPoolSetAccess(pool, &access, 1);
}

static int open_pool(struct device *device, const struct device_import *what,
					 struct cuda_pool **out, char error[KERNEL_ERROR_MAX])
{
	CUmemoryPool imported = NULL;
	CUresult result = device->cu.cuMemPoolImportFromShareableHandle(
		&imported, (void *)(uintptr_t)(unsigned)what->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		0);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot import the pool that process %lld lends from (its descriptor "
						 "must come from cuMemPoolExportToShareableHandle)",
						 device->name, (long long)what->pid);
	result = make_accessible(device, imported);
	if (result != CUDA_SUCCESS) {
		device->cu.cuMemPoolDestroy(imported);
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot reach the GPU of the pool that process %lld lends from",
						 device->name, (long long)what->pid);
	}
	struct cuda_pool *pool = util_alloc(sizeof(*pool));
	pool->pid = what->pid;
	pool->id = what->pool_id;
	pool->pool = imported;
	pool->next = device->pools;
	device->pools = pool;
	*out = pool;
	return KILN_OK;
}

/* Without a pid nothing is shared: numbers of different processes may be equal. */
static int need_pool(struct device *device, const struct device_import *what,
					 struct cuda_pool **out, char error[KERNEL_ERROR_MAX])
{
	struct cuda_pool *pool = device->pools;
	while (pool && (what->pid == 0 || pool->pid != what->pid || pool->id != what->pool_id))
		pool = pool->next;
	*out = pool;
	return pool ? KILN_OK : open_pool(device, what, out, error);
}

static void close_unused_pool(struct device *device, struct cuda_pool *pool)
{
	struct cuda_pool **at = &device->pools;
	if (!pool || pool->imports > 0)
		return;
	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	device->cu.cuMemPoolDestroy(pool->pool);
	free(pool);
}

/* Waits until the stream has done all frees. */
static CUresult wait_until_freed(struct device *device)
{
	const struct timespec pause = {0, PAUSE_POOL_LOOK_NS};
	uint64_t until = util_now_us() + DEADLINE_POOL_FREE_US;
	CUresult result = device->cu.cuStreamQuery(device->memory_stream);
	while (result == CUDA_ERROR_NOT_READY && util_now_us() < until) {
		nanosleep(&pause, NULL);
		result = device->cu.cuStreamQuery(device->memory_stream);
	}
	return result;
}

/* ---- Allocations ---- */

/* *out is NULL if the allocation is not open. */
static int find_import(struct device *device, const struct device_import *what,
					   const struct cuda_pool *pool, struct cuda_import **out,
					   char error[KERNEL_ERROR_MAX])
{
	struct cuda_import *import = device->imports;
	while (import && (import->pool != pool ||
					  memcmp(import->handle, what->handle, sizeof(import->handle)) != 0))
		import = import->next;
	*out = import;
	/* The driver would answer with the old mapping, whose memory is gone. */
	if (import && (import->pid != what->pid || import->buffer_id != what->buffer_id))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the %smemory lent as CUDA buffer %llu by process %lld was freed and "
						 "%sallocated again while %d lent buffer%s still used it: free the lent "
						 "buffer before the memory",
						 pool ? "pool " : "", (unsigned long long)import->buffer_id,
						 (long long)import->pid, pool ? "" : "its address ", import->users,
						 import->users == 1 ? "" : "s");
	return KILN_OK;
}

static CUresult map_import(struct device *device, struct cuda_import *import)
{
	if (import->pool) {
		CUmemPoolPtrExportData data;
		memcpy(&data, import->handle, sizeof(data));
		return device->cu.cuMemPoolImportPointer(&import->base, import->pool->pool, &data);
	}
	CUipcMemHandle handle;
	memcpy(&handle, import->handle, sizeof(handle));
	return device->cu.cuIpcOpenMemHandle(&import->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static int open_import(struct device *device, const struct device_import *what,
					   struct cuda_pool *pool, struct cuda_import **out,
					   char error[KERNEL_ERROR_MAX])
{
	struct cuda_import *import = util_alloc(sizeof(*import));
	memcpy(import->handle, what->handle, sizeof(import->handle));
	import->pool = pool;
	import->pid = what->pid;
	import->buffer_id = what->buffer_id;
	import->span = what->span;
	CUresult result = map_import(device, import);
	if (result != CUDA_SUCCESS) {
		free(import);
		if (pool)
			return cuda_fail(device, error, KILN_EINVAL, result,
							 "%s cannot import the pool memory that process %lld lends (it must "
							 "still be allocated)",
							 device->name, (long long)what->pid);
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot open the memory that process %lld lends (it must still be "
						 "allocated, on a GPU that %s can reach, and in the same PID namespace: "
						 "a container has hostPID and hostIPC, or lends what is shared by "
						 "descriptor: cuMemCreate, a pool, PyTorch's expandable_segments)",
						 device->name, (long long)what->pid, device->name);
	}
	CUdeviceptr start = 0;
	size_t size = 0;
	result = device->cu.cuMemGetAddressRange(&start, &size, import->base);
	if (result == CUDA_SUCCESS && start <= import->base && size > import->base - start &&
		size - (import->base - start) < import->span)
		import->span = size - (import->base - start);
	import->next = device->imports;
	device->imports = import;
	if (pool)
		pool->imports++;
	*out = import;
	return KILN_OK;
}

static void close_unused(struct device *device, struct cuda_import *import)
{
	struct cuda_import **at = &device->imports;
	struct cuda_pool *pool = import->pool;
	if (import->users > 0)
		return;
	while (*at != import)
		at = &(*at)->next;
	*at = import->next;
	CUresult result = pool ? device->cu.cuMemFreeAsync(import->base, device->memory_stream)
						   : device->cu.cuIpcCloseMemHandle(import->base);
	if (result == CUDA_SUCCESS && pool)
		result = wait_until_freed(device);
	if (result != CUDA_SUCCESS) {
		char error[KERNEL_ERROR_MAX];
		cuda_fail(device, error, KILN_EINTERNAL, result, "%s memory of process %lld",
				  pool ? "giving back the pool" : "closing the", (long long)import->pid);
		util_log(UTIL_WARN, "%s", error);
	}
	free(import);
	if (pool) {
		pool->imports--;
		close_unused_pool(device, pool);
	}
}

int cuda_import_lent(struct device *device, const struct device_import *what,
					 struct device_memory *memory, char error[KERNEL_ERROR_MAX])
{
	struct cuda_pool *pool = NULL;
	struct cuda_import *import = NULL;
	int status = cuda_check_span(what, what->span, "its owner says", error);
	if (status == KILN_OK && what->kind == DEVICE_IMPORT_POOL)
		status = need_pool(device, what, &pool, error);
	if (status == KILN_OK)
		status = find_import(device, what, pool, &import, error);
	if (status == KILN_OK && !import)
		status = open_import(device, what, pool, &import, error);
	if (status != KILN_OK) {
		close_unused_pool(device, pool);
		return status;
	}
	status = cuda_check_span(what, import->span, "the driver knows it", error);
	if (status != KILN_OK) {
		close_unused(device, import);
		return status;
	}
	import->users++;
	memory->kind = CUDA_MEMORY_LENT;
	memory->import = import;
	memory->base = import->base + what->offset;
	return KILN_OK;
}

void cuda_free_lent(struct device *device, struct device_memory *memory)
{
	memory->import->users--;
	close_unused(device, memory->import);
}

bool cuda_stalls(const struct device_memory *memory)
{
	return !memory || (memory->kind == CUDA_MEMORY_LENT && !memory->import->pool &&
					   memory->import->users == 1);
}

void cuda_imports_close(struct device *device)
{
	while (device->imports) {
		device->imports->users = 0;
		close_unused(device, device->imports);
	}
}

#endif
