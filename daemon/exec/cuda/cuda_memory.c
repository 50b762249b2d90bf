/*
 * cuda_memory: the buffers of the cuda device.  It must not know their use.
 *
 * cuMemFree and cuIpcCloseMemHandle wait for all that runs, and stop launches meanwhile.  So the
 * device's own buffers live in a stream-ordered pool, and cuMemFree is never called.  The caller
 * may put off a free that closes an imported allocation (cuda_stalls).
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_memory.h"
#include <stdlib.h>
#include <string.h>

int cuda_memory_open(struct device *device, char error[KERNEL_ERROR_MAX])
{
	CUmemPoolProps props;
	memset(&props, 0, sizeof(props));
	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device->handle;
	CUresult result = device->cu.cuStreamCreate(&device->memory_stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuMemPoolCreate(&device->pool, &props);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOTSUP, result, "%s has no memory pools",
						 device->name);
	/* Freed memory stays in the pool: to give it back to the driver would stall launches. */
	cuuint64_t keep = UINT64_MAX;
	device->cu.cuMemPoolSetAttribute(device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
	/* The first allocation of a pool takes ten times as long as the next: the process makes it
	 * now, not for a client. */
	CUdeviceptr first = 0;
	if (device->cu.cuMemAllocFromPoolAsync(&first, 1, device->pool, device->memory_stream) ==
		CUDA_SUCCESS)
		device->cu.cuMemFreeAsync(first, device->memory_stream);
	return KILN_OK;
}

void cuda_memory_close(struct device *device)
{
	cuda_imports_close(device);
	if (device->memory_stream) {
		device->cu.cuStreamSynchronize(device->memory_stream);
		device->cu.cuStreamDestroy(device->memory_stream);
	}
	if (device->pool)
		device->cu.cuMemPoolDestroy(device->pool);
}

static int no_memory(struct device *device, uint64_t bytes, CUresult result,
					 char error[KERNEL_ERROR_MAX])
{
	size_t unused = 0, total = 0;
	char asked[16], have[16], all[16];
	device->cu.cuMemGetInfo(&unused, &total);
	return cuda_fail(device, error, KILN_ENOMEM, result,
					 "%s cannot give a buffer of %s (%llu bytes): %s of %s are free", device->name,
					 util_bytes(bytes, asked), (unsigned long long)bytes, util_bytes(unused, have),
					 util_bytes(total, all));
}

CUresult cuda_take(struct device *device, CUstream stream, uint64_t bytes, CUdeviceptr *out)
{
	CUresult result = device->cu.cuMemAllocFromPoolAsync(out, bytes, device->pool, stream);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		/* The pool may keep its memory in pieces that are too small: give them back and try
		 * again. */
		device->cu.cuStreamSynchronize(device->memory_stream);
		device->cu.cuMemPoolTrimTo(device->pool, 0);
		result = device->cu.cuMemAllocFromPoolAsync(out, bytes, device->pool, stream);
	}
	return result;
}

int cuda_alloc(struct device *device, uint64_t bytes, struct device_memory **out,
			   char error[KERNEL_ERROR_MAX])
{
	CUdeviceptr base = 0;
	if (bytes > device->memory_bytes)
		return no_memory(device, bytes, CUDA_ERROR_OUT_OF_MEMORY, error);
	if (bytes > 0) {
		CUresult result = cuda_take(device, device->memory_stream, bytes, &base);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			return no_memory(device, bytes, result, error);
		if (result != CUDA_SUCCESS)
			return cuda_fail(device, error, KILN_EINTERNAL, result,
							 "%s cannot give a buffer of %llu bytes", device->name,
							 (unsigned long long)bytes);
		result = device->cu.cuMemsetD8Async(base, 0, bytes, device->memory_stream);
		if (result == CUDA_SUCCESS)
			result = device->cu.cuStreamSynchronize(device->memory_stream);
		if (result != CUDA_SUCCESS) {
			device->cu.cuMemFreeAsync(base, device->memory_stream);
			return cuda_fail(device, error, KILN_EINTERNAL, result,
							 "%s cannot clear a buffer of %llu bytes", device->name,
							 (unsigned long long)bytes);
		}
	}
	struct device_memory *memory = util_alloc(sizeof(*memory));
	memory->kind = bytes > 0 ? CUDA_MEMORY_POOL : CUDA_MEMORY_NONE;
	memory->base = base;
	memory->bytes = bytes;
	*out = memory;
	return KILN_OK;
}

/* ---- Imports ---- */

CUmemAccessDesc cuda_access(const struct device *device)
{
	CUmemAccessDesc access;
	memset(&access, 0, sizeof(access));
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = device->handle;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return access;
}

int cuda_map_allocation(struct device *device, CUmemGenericAllocationHandle allocation, size_t size,
						struct device_memory *memory, char error[KERNEL_ERROR_MAX])
{
	CUmemAccessDesc access = cuda_access(device);
	CUresult result = device->cu.cuMemAddressReserve(&memory->mapping, size, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOMEM, result,
						 "%s has no addresses for %llu bytes of shared memory", device->name,
						 (unsigned long long)size);
	result = device->cu.cuMemMap(memory->mapping, size, 0, allocation, 0);
	if (result == CUDA_SUCCESS) {
		result = device->cu.cuMemSetAccess(memory->mapping, size, &access, 1);
		if (result != CUDA_SUCCESS)
			device->cu.cuMemUnmap(memory->mapping, size);
	}
	if (result != CUDA_SUCCESS) {
		device->cu.cuMemAddressFree(memory->mapping, size);
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot map %llu bytes of the descriptor (is the allocation that "
						 "large, and on a GPU that %s can reach?)",
						 device->name, (unsigned long long)size, device->name);
	}
	memory->mapped = size;
	return KILN_OK;
}

void cuda_unmap_allocation(struct device *device, const struct device_memory *memory)
{
	device->cu.cuMemUnmap(memory->mapping, memory->mapped);
	device->cu.cuMemAddressFree(memory->mapping, memory->mapped);
}

static int import_descriptor(struct device *device, const struct device_import *what,
							 struct device_memory *memory, char error[KERNEL_ERROR_MAX])
{
	CUmemGenericAllocationHandle allocation;
	CUmemAllocationProp prop;
	size_t granularity = 0;
	if (what->offset > UINT64_MAX - what->bytes)
		return cuda_check_span(what, what->span, "its owner says", error);
	uint64_t span = what->span ? what->span : what->offset + what->bytes;
	int status = cuda_check_span(what, span, "its owner says", error);
	if (status != KILN_OK)
		return status;
	CUresult result = device->cu.cuMemImportFromShareableHandle(
		&allocation, (void *)(uintptr_t)(unsigned)what->fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EINVAL, result,
						 "%s cannot import the lent descriptor (it must come from "
						 "cuMemExportToShareableHandle)",
						 device->name);
	memset(&prop, 0, sizeof(prop));
	result = device->cu.cuMemGetAllocationPropertiesFromHandle(&prop, allocation);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuMemGetAllocationGranularity(&granularity, &prop,
														  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result != CUDA_SUCCESS || granularity == 0)
		status = cuda_fail(device, error, KILN_EINVAL, result,
						   "%s does not know the lent descriptor's allocation", device->name);
	else if (span == 0 || span > device->memory_bytes)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						   "an allocation of %llu bytes cannot be lent to %s, which has %llu",
						   (unsigned long long)span, device->name,
						   (unsigned long long)device->memory_bytes);
	else
		status = cuda_map_allocation(device, allocation,
									 (span + granularity - 1) / granularity * granularity, memory,
									 error);
	/* The mapping holds the allocation from here on. */
	device->cu.cuMemRelease(allocation);
	if (status != KILN_OK)
		return status;
	memory->kind = CUDA_MEMORY_MAPPED;
	memory->base = memory->mapping + what->offset;
	return KILN_OK;
}

int cuda_import(struct device *device, const struct device_import *what, struct device_memory **out,
				char error[KERNEL_ERROR_MAX])
{
	struct device_memory *memory = util_alloc(sizeof(*memory));
	memory->bytes = what->bytes;
	int status = what->kind == DEVICE_IMPORT_FD ? import_descriptor(device, what, memory, error)
												: cuda_import_lent(device, what, memory, error);
	if (status != KILN_OK) {
		free(memory);
		return status;
	}
	*out = memory;
	return KILN_OK;
}

void cuda_free(struct device *device, struct device_memory *memory)
{
	if (!memory)
		return;
	switch (memory->kind) {
	case CUDA_MEMORY_NONE:
		break;
	case CUDA_MEMORY_POOL:
		device->cu.cuMemFreeAsync(memory->base, device->memory_stream);
		break;
	case CUDA_MEMORY_MAPPED:
		cuda_unmap_allocation(device, memory);
		break;
	case CUDA_MEMORY_LENT:
		cuda_free_lent(device, memory);
		break;
	}
	free(memory);
}

#endif
