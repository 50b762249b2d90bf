/*
 * cuda_memory: buffers.  cuda_free() frees each kind of memory in its own way.
 */
#ifndef KILN_DAEMON_CUDA_MEMORY_H
#define KILN_DAEMON_CUDA_MEMORY_H

#include "cuda_device.h"

enum cuda_memory_kind {
	CUDA_MEMORY_NONE,   /* a buffer of no bytes */
	CUDA_MEMORY_POOL,   /* of the device's own pool */
	CUDA_MEMORY_MAPPED, /* an allocation that this process has mapped */
	CUDA_MEMORY_LENT    /* in a cuda_import */
};

struct device_memory {
	enum cuda_memory_kind kind;
	CUdeviceptr base; /* the buffer's first byte */
	uint64_t bytes;
	struct cuda_import *import; /* LENT */
	CUdeviceptr mapping;        /* MAPPED: the reserved range */
	size_t mapped;              /* MAPPED: its bytes */
};

int cuda_memory_open(struct device *device, char error[KERNEL_ERROR_MAX]);
void cuda_memory_close(struct device *device);
/* Takes memory of the device's own pool, for use on the stream; cuMemFreeAsync() gives it back.
 * Its contents are undefined. */
CUresult cuda_take(struct device *device, CUstream stream, uint64_t bytes, CUdeviceptr *out);
/* Returns what lets the GPU read and write a range or a pool. */
CUmemAccessDesc cuda_access(const struct device *device);
/* Maps the first size bytes of an allocation.  The caller sets kind, base and bytes, and ends the
 * mapping with cuda_unmap_allocation(). */
int cuda_map_allocation(struct device *device, CUmemGenericAllocationHandle allocation, size_t size,
						struct device_memory *memory, char error[KERNEL_ERROR_MAX]);
void cuda_unmap_allocation(struct device *device, const struct device_memory *memory);

/* ---- cuda_import.c ---- */

/* EINVAL with a sentence unless the buffer lies within span bytes, as who says. */
int cuda_check_span(const struct device_import *what, uint64_t span, const char *who,
					char error[KERNEL_ERROR_MAX]);
/* Opens the allocation unless it is open, and sets kind, base and import. */
int cuda_import_lent(struct device *device, const struct device_import *what,
					 struct device_memory *memory, char error[KERNEL_ERROR_MAX]);
/* Returns when the driver has let go of the memory; of a pool's, after DEADLINE_POOL_FREE_US at the
 * latest. */
void cuda_free_lent(struct device *device, struct device_memory *memory);
void cuda_imports_close(struct device *device);

#endif
