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
/* Memory as cudaMalloc gives it, or (exportable) made by cuMemCreate to be shared by descriptor.
 * 0: out of memory. */
uint64_t gpu_alloc(uint64_t bytes, bool exportable);
bool gpu_free(uint64_t pointer);
bool gpu_put(uint64_t pointer, const void *host, uint64_t bytes);
bool gpu_get(void *host, uint64_t pointer, uint64_t bytes);
/* What the driver said last when one of these failed. */
const char *gpu_error(void);
/* True if libcuda is mapped into this process. */
bool gpu_driver_is_mapped(void);

#endif
