/*
 * cuda_memory: buffers.  Each kind of memory has its own way to be freed.
 */
#ifndef KILN_DAEMON_CUDA_MEMORY_H
#define KILN_DAEMON_CUDA_MEMORY_H

#include "cuda_device.h"

enum cuda_memory_kind {
	CUDA_MEMORY_NONE,     /* a buffer of no bytes */
	CUDA_MEMORY_POOL,     /* of the device's own pool */
	CUDA_MEMORY_IPC,      /* of another process, by IPC handle */
	CUDA_MEMORY_MAPPED,   /* an allocation that this process has mapped */
	CUDA_MEMORY_LENT_POOL /* of another process's pool */
};

struct device_memory {
	enum cuda_memory_kind kind;
	CUdeviceptr base; /* the buffer's first byte */
	uint64_t bytes;
	struct cuda_import *import;   /* IPC */
	struct cuda_pointer *pointer; /* LENT_POOL */
	CUdeviceptr mapping;          /* MAPPED: the reserved range */
	size_t mapped;                /* MAPPED: its bytes */
};

int cuda_memory_open(struct device *device, char error[KERNEL_ERROR_MAX]);
void cuda_memory_close(struct device *device);
/* Takes memory of the device's own pool, for use on the stream.  Its contents are undefined. */
CUresult cuda_take(struct device *device, CUstream stream, uint64_t bytes, CUdeviceptr *out);
/* Maps the first size bytes of an allocation.  The caller sets kind, base and bytes. */
int cuda_map_allocation(struct device *device, CUmemGenericAllocationHandle allocation, size_t size,
						struct device_memory *memory, char error[KERNEL_ERROR_MAX]);
void cuda_unmap_allocation(struct device *device, const struct device_memory *memory);

/* ---- cuda_pool.c ---- */

/* EINVAL with a sentence unless the buffer lies within span bytes, as who says. */
int cuda_check_span(const struct device_import *what, uint64_t span, const char *who,
					char error[KERNEL_ERROR_MAX]);
/* Fills in kind, base and pointer. */
int cuda_pool_import(struct device *device, const struct device_import *what,
					 struct device_memory *memory, char error[KERNEL_ERROR_MAX]);
/* Returns when the driver has let go of the memory, after DEADLINE_POOL_FREE_US at the latest. */
void cuda_pool_free(struct device *device, struct device_memory *memory);
void cuda_pools_close(struct device *device);

#endif
