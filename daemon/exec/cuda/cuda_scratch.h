/*
 * cuda_scratch: memory for the length of one launch.  Each piece belongs to a stream or a graph,
 * which frees it.
 */
#ifndef KILN_DAEMON_CUDA_SCRATCH_H
#define KILN_DAEMON_CUDA_SCRATCH_H

#include "cuda_device.h"

/* Counters end at base + below; the rest of scratch memory begins there. */
struct cuda_scratch {
	CUdeviceptr base; /* 0 until a launch needs it */
	uint64_t below, above;
	uint64_t spoilt; /* bytes at the end of the counters' part that may not be zero */
};

struct cuda_queue;
struct cuda_work;

/* Call just before the work is launched on the stream: grows the piece if the work needs more, and
 * writes the address into the work's values. */
int cuda_scratch_give(struct device *device, struct cuda_scratch *scratch, CUstream stream,
					  struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
/* Makes the piece large enough for works that use it one after another, again and again: the first
 * work may find the rubbish of the last one. */
int cuda_scratch_reserve(struct device *device, struct cuda_scratch *scratch, CUstream stream,
						 const struct cuda_queue *works, char error[KERNEL_ERROR_MAX]);
/* Frees the piece; the caller has nothing queued that uses it. */
void cuda_scratch_free(struct device *device, struct cuda_scratch *scratch);

#endif
