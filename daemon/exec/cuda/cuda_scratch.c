/*
 * cuda_scratch: memory for the length of one launch.  Each stream and each graph has a piece of its
 * own, taken from the device's pool in a stream's order, so that growing frees nothing that a
 * queued launch uses, and waits for nothing.
 *
 * Counters are zero between launches, because kernels leave them so.  This needs a border: the
 * counters of every launch end there, and its other memory begins there.  A launch's address is a
 * multiple of 256; if the size of its counters is not, up to 255 bytes of its other memory lie
 * below the border.  These spoilt bytes are cleared before a launch that has counters there.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_memory.h"
#include "cuda_scratch.h"
#include "cuda_work.h"
#include <stdatomic.h>

#define ALIGNMENT 256u
#define FEWEST_BELOW 4096u

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void count_bytes(struct device *device, uint64_t more, uint64_t less)
{
	uint64_t bytes = atomic_load_explicit(&device->scratch_bytes, memory_order_relaxed);
	atomic_store_explicit(&device->scratch_bytes, bytes + more - less, memory_order_relaxed);
}

uint64_t cuda_scratch_bytes(const struct device *device)
{
	uint64_t bytes = 0;
	for (int i = 0; i < device->part_count; i++)
		bytes += atomic_load_explicit(&device->parts[i]->scratch_bytes, memory_order_relaxed);
	return bytes;
}

/* Returns the bytes from the work's first byte to the border; *gap of them are not its counters. */
static uint64_t below_border(const struct cuda_work *work, uint64_t *gap)
{
	uint64_t counters = work->scratch.counters;
	uint64_t below = (counters + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	*gap = below - counters;
	return below;
}

static int grow_piece(struct device *device, struct cuda_scratch *scratch, CUstream stream,
					  const struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	uint64_t gap, below = below_border(work, &gap);
	uint64_t above = work->scratch.bytes > below ? work->scratch.bytes - below : 0;
	struct cuda_scratch more = {.below = larger(larger(below, scratch->below), FEWEST_BELOW),
								.above = larger(above, scratch->above)};
	if (scratch->base && below <= scratch->below && above <= scratch->above)
		return KILN_OK;
	CUresult result = cuda_take(device, stream, more.below + more.above, &more.base);
	if (result == CUDA_SUCCESS) {
		result = device->cu.cuMemsetD8Async(more.base, 0, more.below, stream);
		if (result != CUDA_SUCCESS)
			device->cu.cuMemFreeAsync(more.base, stream);
	}
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EINTERNAL, result,
						 "%s cannot give %llu bytes of scratch memory to a launch", device->name,
						 (unsigned long long)(more.below + more.above));
	if (scratch->base)
		device->cu.cuMemFreeAsync(scratch->base, stream);
	count_bytes(device, more.below + more.above, scratch->below + scratch->above);
	*scratch = more;
	return KILN_OK;
}

int cuda_scratch_give(struct device *device, struct cuda_scratch *scratch, CUstream stream,
					  struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = work->scratch.bytes, counters = work->scratch.counters;
	uint64_t gap, below = below_border(work, &gap);
	int status = grow_piece(device, scratch, stream, work, error);
	if (status != KILN_OK)
		return status;
	CUdeviceptr border = scratch->base + scratch->below;
	if (counters > 0 && gap < scratch->spoilt) {
		CUresult result =
			device->cu.cuMemsetD8Async(border - scratch->spoilt, 0, scratch->spoilt, stream);
		if (result != CUDA_SUCCESS)
			return cuda_fail(device, error, KILN_EINTERNAL, result,
							 "%s cannot clear the counters of a launch", device->name);
		scratch->spoilt = 0;
	}
	if (bytes > counters)
		scratch->spoilt = larger(scratch->spoilt, gap);
	for (int i = 0; i < work->value_count; i++)
		if (work->scratch_values >> i & 1)
			work->values[i] = border - below;
	return KILN_OK;
}

int cuda_scratch_reserve(struct device *device, struct cuda_scratch *scratch, CUstream stream,
						 const struct cuda_queue *works, char error[KERNEL_ERROR_MAX])
{
	uint64_t gap, spoilt = 0;
	for (const struct cuda_work *work = works->head; work; work = work->next) {
		if (work->scratch.bytes == 0)
			continue;
		int status = grow_piece(device, scratch, stream, work, error);
		if (status != KILN_OK)
			return status;
		below_border(work, &gap);
		if (work->scratch.bytes > work->scratch.counters)
			spoilt = larger(spoilt, gap);
	}
	scratch->spoilt = spoilt;
	return KILN_OK;
}

void cuda_scratch_free(struct device *device, struct cuda_scratch *scratch)
{
	if (scratch->base)
		device->cu.cuMemFreeAsync(scratch->base, device->memory_stream);
	count_bytes(device, 0, scratch->below + scratch->above);
	*scratch = (struct cuda_scratch){0};
}

#endif
