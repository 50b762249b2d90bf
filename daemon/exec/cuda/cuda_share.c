/*
 * cuda_share: lets a second process use memory of this device.  Memory of the device's pool cannot
 * leave its process.  A pool whose memory could leave would never give any back.  So a shared
 * buffer moves to an allocation of its own.  None of the calls here waits for running kernels.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_memory.h"
#include <string.h>
#include <unistd.h>

static CUresult make_shareable(struct device *device, uint64_t bytes, size_t *span,
							   CUmemGenericAllocationHandle *out)
{
	CUmemAllocationProp prop;
	size_t granularity = 0;
	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device->handle;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUresult result = device->cu.cuMemGetAllocationGranularity(&granularity, &prop,
															   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result != CUDA_SUCCESS)
		return result;
	*span = (bytes + granularity - 1) / granularity * granularity;
	return device->cu.cuMemCreate(out, *span, &prop, 0);
}

/* Copies the contents to the new place and frees the old one. */
static int move(struct device *device, struct device_memory *memory, struct device_memory *to,
				char error[KERNEL_ERROR_MAX])
{
	CUresult result = device->cu.cuMemcpyDtoDAsync(to->mapping, memory->base, memory->bytes,
												   device->memory_stream);
	/* A process that maps it sees all of it. */
	if (result == CUDA_SUCCESS && to->mapped > memory->bytes)
		result = device->cu.cuMemsetD8Async(to->mapping + memory->bytes, 0,
											to->mapped - memory->bytes, device->memory_stream);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuStreamSynchronize(device->memory_stream);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EINTERNAL, result,
						 "%s cannot move %llu bytes to memory that can be shared", device->name,
						 (unsigned long long)memory->bytes);
	device->cu.cuMemFreeAsync(memory->base, device->memory_stream);
	memory->kind = CUDA_MEMORY_MAPPED;
	memory->base = memory->mapping = to->mapping;
	memory->mapped = to->mapped;
	return KILN_OK;
}

int cuda_share(struct device *device, struct device_memory *memory, struct device_shared *out,
			   char error[KERNEL_ERROR_MAX])
{
	CUmemGenericAllocationHandle allocation = 0;
	struct device_memory mapped = {.kind = CUDA_MEMORY_NONE};
	size_t span = 0;
	int fd = -1;
	if (memory->kind != CUDA_MEMORY_POOL)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "memory that is not this device's own is not its to share");
	CUresult result = make_shareable(device, memory->bytes, &span, &allocation);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOTSUP, result,
						 "%s has no memory of %llu bytes that can be shared", device->name,
						 (unsigned long long)memory->bytes);
	int status = cuda_map_allocation(device, allocation, span, &mapped, error);
	if (status == KILN_OK) {
		result = device->cu.cuMemExportToShareableHandle(
			&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (result != CUDA_SUCCESS)
			status = cuda_fail(device, error, KILN_ENOTSUP, result,
							   "%s does not export memory to another process", device->name);
		if (status == KILN_OK)
			status = move(device, memory, &mapped, error);
		if (status != KILN_OK)
			cuda_unmap_allocation(device, &mapped);
	}
	/* The mapping and the descriptor hold it from here on. */
	device->cu.cuMemRelease(allocation);
	if (status != KILN_OK && fd >= 0)
		close(fd);
	if (status == KILN_OK)
		*out = (struct device_shared){fd, span, 0};
	return status;
}

#endif
