/*
 * cpu_scratch: memory for the length of one launch.  Each stream has a piece of its own, as large
 * as its launches needed so far.  A launch gets the end of the piece, so its memory ends at the
 * guard (but for the bytes that align its beginning).
 *
 * A kernel must leave its counters at zero and may rely on nothing else.  This file checks both:
 * other counters are an error, and the rest of the memory holds rubbish at first.
 */
#include "cpu_memory.h"
#include "cpu_module.h"
#include "cpu_work.h"
#include "daemon/base/util.h"

#include <inttypes.h>
#include <string.h>

#define ALIGNMENT 256u
#define RUBBISH 0xff /* not a number in any float type, and no index */

uint64_t cpu_scratch_bytes(const struct device *device)
{
	return atomic_load_explicit(&device->scratch_bytes, memory_order_relaxed);
}

void cpu_scratch_free(struct device *device, struct cpu_stream *stream)
{
	if (!stream->scratch)
		return;
	atomic_fetch_sub(&device->scratch_bytes, stream->scratch->bytes);
	cpu_free(device, stream->scratch);
	stream->scratch = NULL;
}

/* Launches of a stream follow one another: nothing uses the old piece. */
static int grow_scratch(struct device *device, struct cpu_stream *stream, uint64_t bytes,
						char error[KERNEL_ERROR_MAX])
{
	if (stream->scratch && stream->scratch->bytes >= bytes)
		return KILN_OK;
	cpu_scratch_free(device, stream);
	int status = cpu_alloc(device, bytes, &stream->scratch, error);
	if (status == KILN_OK)
		atomic_fetch_add(&device->scratch_bytes, stream->scratch->bytes);
	return status;
}

void cpu_scratch_give(struct device *device, struct cpu_work *work)
{
	char error[KERNEL_ERROR_MAX];
	uint64_t room = (work->scratch.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (room == 0 || atomic_load(&work->status) != KILN_OK)
		return;
	int status = grow_scratch(device, work->stream, room, error);
	if (status != KILN_OK) {
		cpu_work_fail(work, status, error);
		return;
	}
	const struct device_memory *memory = work->stream->scratch;
	uint8_t *base = memory->base + (memory->bytes - room);
	memset(base, 0, work->scratch.counters);
	memset(base + work->scratch.counters, RUBBISH, work->scratch.bytes - work->scratch.counters);
	for (int i = 0; i < work->arg_count; i++)
		if (work->scratch_args >> i & 1)
			memcpy(&work->values[i], &base, sizeof(base));
	work->operands[work->operand_count].base = base;
	work->operands[work->operand_count].bytes = work->scratch.bytes;
}

void cpu_scratch_check(struct cpu_work *work)
{
	const uint8_t *base = work->operands[work->operand_count].base;
	char error[KERNEL_ERROR_MAX];
	if (!base || atomic_load(&work->status) != KILN_OK)
		return;
	for (uint64_t i = 0; i < work->scratch.counters; i++) {
		if (base[i] == 0)
			continue;
		util_fail(
			error, sizeof(error), KILN_EDEVICE,
			"byte %" PRIu64 " of the %" PRIu64
			" counter bytes of scratch memory is %u when the launch ends; a kernel must leave "
			"them at zero (kernel %s)",
			i, work->scratch.counters, base[i], work->module->about->name);
		cpu_work_fail(work, KILN_EDEVICE, error);
		return;
	}
}
