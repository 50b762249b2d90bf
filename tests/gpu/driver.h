/*
 * driver: the CUDA of a client program, for tests that lend memory (allocate, copy, free) and for
 * benchmarks that launch kernels by themselves.  The driver is loaded by name, as the library under
 * test does it.  Knows nothing of Kiln.
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
/* Memory of the GPU in use, by all processes. */
bool gpu_used(uint64_t *bytes);
bool gpu_put(uint64_t pointer, const void *host, uint64_t bytes);
bool gpu_get(void *host, uint64_t pointer, uint64_t bytes);

/* A GPU says of itself what it can do. */
struct gpu_description {
	char name[96];
	int major, minor; /* compute capability */
	uint32_t max_threads, shared_default, shared_optin, grid_x, grid_y, grid_z, multiprocessors;
	uint32_t warp;
};
bool gpu_describe(struct gpu_description *out);

/* A kernel of a cubin, allowed so much dynamic shared memory. */
struct gpu_kernel {
	void *module, *function;
};
bool gpu_load(const void *cubin, const char *entry, uint32_t shared_bytes, struct gpu_kernel *out);
void gpu_unload(struct gpu_kernel *kernel);

/* ---- Queued, all on one stream; gpu_put and gpu_get are not: gpu_finish comes between ---- */

bool gpu_launch(const struct gpu_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
				uint32_t shared_bytes, void **arguments);
bool gpu_copy(uint64_t to, uint64_t from, uint64_t bytes);
bool gpu_set(uint64_t to, unsigned char value, uint64_t bytes);
/* The stream; NULL where there is none. */
void *gpu_stream(void);
/* All that follows goes to the other of two streams. */
void gpu_change_stream(void);
/* Calls between the two are recorded and not run; each replay then runs them once. */
bool gpu_record(void);
bool gpu_recorded(void **graph);
bool gpu_replay(void *graph);
void gpu_forget(void *graph);
/* Notes the time when the device gets here; mark: 0 .. GPU_MARKS - 1. */
#define GPU_MARKS 512
bool gpu_mark(int mark);
/* Waits until the device has done all that was queued. */
bool gpu_finish(void);
/* The same: the device writes a word of host memory behind all of it, and this looks there. */
bool gpu_finish_by_word(void);
/* The same, but no longer than this. */
bool gpu_finish_within(int milliseconds);
/* Microseconds between two marks, after gpu_finish. */
bool gpu_between(int first, int last, double *micros);

/* Returns the driver's last sentence when one of these failed. */
const char *gpu_error(void);
/* True if libcuda is mapped into this process. */
bool gpu_driver_is_mapped(void);

#endif
