/*
 * driver: the CUDA of a client program, for tests that lend memory: allocate, copy, free.  The
 * driver is loaded by name, as the library under test does it.  Knows nothing of Kiln.
 */
#ifndef KILN_TESTS_GPU_DRIVER_H
#define KILN_TESTS_GPU_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the GPU; false with a sentence in why. */
bool gpu_open(int ordinal, char why[200]);
enum gpu_memory {
	GPU_MALLOC,   /* as cudaMalloc gives it */
	GPU_EXPORTED, /* made by cuMemCreate to be shared by descriptor */
	GPU_POOL,     /* from a stream-ordered pool that was made to be shared */
	GPU_POOL_2,   /* from another such pool */
	GPU_DEFAULT   /* as cudaMallocAsync gives it */
};
/* 0: out of memory, or the driver has no such memory. */
uint64_t gpu_alloc(uint64_t bytes, enum gpu_memory kind);
bool gpu_free(uint64_t pointer);
bool gpu_put(uint64_t pointer, const void *host, uint64_t bytes);
bool gpu_get(void *host, uint64_t pointer, uint64_t bytes);
/* What the driver said last when one of these failed. */
const char *gpu_error(void);
/* True if libcuda is mapped into this process. */
bool gpu_driver_is_mapped(void);

#endif
