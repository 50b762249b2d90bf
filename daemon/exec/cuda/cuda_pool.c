/*
 * cuda_pool: memory of another process's stream-ordered pool, which takes two steps: the pool is
 * imported by descriptor, and its allocations one by one by the data that their owner exported.
 * Must not know what the buffers are used for.
 *
 * A pool is the expensive step, so it is opened once and closed with its last allocation.  An
 * allocation is opened once because the driver does not count: of two imports of the same data the
 * first to be freed unmaps both.  Its owner may free it only when it is freed here, so the answer
 * to a free waits for the stream.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_memory.h"
#include "daemon/base/deadlines.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cuda_pool {
	struct cuda_pool *next;
	int64_t pid;
	uint64_t id; /* its handle in the exporter */
	CUmemoryPool pool;
	struct cuda_pointer *pointers;
};

struct cuda_pointer {
	struct cuda_pointer *next;
	struct cuda_pool *pool;
	CUmemPoolPtrExportData data;
	uint64_t buffer_id;
	CUdeviceptr base;
	uint64_t span;
	int users;
};

_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(((struct device_import *)0)->handle),
			   "the data of an exported allocation fits");

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

/* Finds an imported pool.  Without a pid nothing is shared: numbers of different processes may
 * be equal. */
static struct cuda_pool *find_pool(struct device *device, const struct device_import *what)
{
	struct cuda_pool *pool = device->pools;
	while (pool && (what->pid == 0 || pool->pid != what->pid || pool->id != what->pool_id))
		pool = pool->next;
	return pool;
}

/* A pool is accessible from the GPU that it lies on; another GPU has to ask. */
static CUresult make_accessible(struct device *device, CUmemoryPool pool)
{
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUmemAccessDesc access;
	memset(&access, 0, sizeof(access));
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = device->handle;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
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

static void close_unused_pool(struct device *device, struct cuda_pool *pool)
{
	if (pool->pointers)
		return;
	for (struct cuda_pool **at = &device->pools; *at; at = &(*at)->next) {
		if (*at == pool) {
			*at = pool->next;
			break;
		}
	}
	device->cu.cuMemPoolDestroy(pool->pool);
	free(pool);
}

static int find_pointer(const struct cuda_pool *pool, const struct device_import *what,
						struct cuda_pointer **out, char error[KERNEL_ERROR_MAX])
{
	struct cuda_pointer *pointer = pool->pointers;
	while (pointer && memcmp(&pointer->data, what->handle, sizeof(pointer->data)) != 0)
		pointer = pointer->next;
	*out = pointer;
	if (pointer && pointer->buffer_id != what->buffer_id)
		return util_fail(
			error, KERNEL_ERROR_MAX, KILN_EINVAL,
			"the pool memory lent as CUDA buffer %llu by process %lld was freed and allocated "
			"again while %d lent buffer%s still used it: free the lent buffer before the memory",
			(unsigned long long)pointer->buffer_id, (long long)what->pid, pointer->users,
			pointer->users == 1 ? "" : "s");
	return KILN_OK;
}

static int open_pointer(struct device *device, struct cuda_pool *pool,
						const struct device_import *what, struct cuda_pointer **out,
						char error[KERNEL_ERROR_MAX])
{
	CUmemPoolPtrExportData data;
	CUdeviceptr base = 0, start = 0;
	size_t size = 0;
	memcpy(&data, what->handle, sizeof(data));
	CUresult result = device->cu.cuMemPoolImportPointer(&base, pool->pool, &data);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot import the pool memory that process %lld lends (it must still "
						 "be allocated)",
						 device->name, (long long)what->pid);
	struct cuda_pointer *pointer = util_alloc(sizeof(*pointer));
	memcpy(&pointer->data, what->handle, sizeof(pointer->data));
	pointer->pool = pool;
	pointer->buffer_id = what->buffer_id;
	pointer->base = base;
	pointer->span = what->span;
	result = device->cu.cuMemGetAddressRange(&start, &size, base);
	if (result == CUDA_SUCCESS && start <= base && size > base - start &&
		size - (base - start) < pointer->span)
		pointer->span = size - (base - start);
	pointer->next = pool->pointers;
	pool->pointers = pointer;
	*out = pointer;
	return KILN_OK;
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

static void close_unused_pointer(struct device *device, struct cuda_pointer *pointer)
{
	struct cuda_pool *pool = pointer->pool;
	if (pointer->users > 0)
		return;
	for (struct cuda_pointer **at = &pool->pointers; *at; at = &(*at)->next) {
		if (*at == pointer) {
			*at = pointer->next;
			break;
		}
	}
	char error[KERNEL_ERROR_MAX];
	CUresult result = device->cu.cuMemFreeAsync(pointer->base, device->memory_stream);
	if (result == CUDA_SUCCESS)
		result = wait_until_freed(device);
	if (result != CUDA_SUCCESS) {
		cuda_fail(device, error, KILN_EINTERNAL, result,
				  "giving back the pool memory of process %lld", (long long)pool->pid);
		util_log(UTIL_WARN, "%s", error);
	}
	free(pointer);
	close_unused_pool(device, pool);
}

int cuda_pool_import(struct device *device, const struct device_import *what,
					 struct device_memory *memory, char error[KERNEL_ERROR_MAX])
{
	struct cuda_pointer *pointer = NULL;
	int status = cuda_check_span(what, what->span, "its owner says", error);
	if (status != KILN_OK)
		return status;
	struct cuda_pool *pool = find_pool(device, what);
	if (!pool)
		status = open_pool(device, what, &pool, error);
	if (status != KILN_OK)
		return status;
	status = find_pointer(pool, what, &pointer, error);
	if (status == KILN_OK && !pointer)
		status = open_pointer(device, pool, what, &pointer, error);
	if (status != KILN_OK) {
		close_unused_pool(device, pool);
		return status;
	}
	status = cuda_check_span(what, pointer->span, "the driver knows it", error);
	if (status != KILN_OK) {
		close_unused_pointer(device, pointer);
		return status;
	}
	pointer->users++;
	memory->kind = CUDA_MEMORY_LENT_POOL;
	memory->pointer = pointer;
	memory->base = pointer->base + what->offset;
	return KILN_OK;
}

void cuda_pool_free(struct device *device, struct device_memory *memory)
{
	memory->pointer->users--;
	close_unused_pointer(device, memory->pointer);
}

void cuda_pools_close(struct device *device)
{
	while (device->pools) {
		struct cuda_pointer *pointer = device->pools->pointers;
		pointer->users = 0;
		close_unused_pointer(device, pointer);
	}
}

#endif
