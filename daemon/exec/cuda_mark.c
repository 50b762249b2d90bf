/*
 * cuda_mark: how it is known that launches without events have ended.  Each stream has a word in
 * host memory, and behind a batch of launches the GPU itself writes their number there.  To look is
 * a load and no call of the driver; one mark for many launches costs less than an event for each.
 *
 * The words are this process's own.  What clients can write to would not do: buffers are freed and
 * kernels unloaded by what is read here.
 */
#include "device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_device.h"
#include "../util/util.h"

#define ASK_US 100 /* without a sign for so long the driver is asked: a fault leaves none */

bool cuda_mark_ready(struct device *device, struct cuda_stream *stream)
{
	if (device->no_marks || !device->cu.write_value)
		return false;
	if (stream->word)
		return true;
	if (cuda_cell_take(device, &stream->word) != CUDA_SUCCESS)
		return false;
	stream->given = stream->marked = 0;
	return true;
}

void cuda_mark_drop(struct device *device, struct cuda_stream *stream)
{
	if (stream->word)
		cuda_cell_keep(device, stream->word);
	stream->word = NULL;
}

void cuda_marks_write(struct device *device)
{
	for (struct cuda_stream *stream = device->active; stream; stream = stream->active_next) {
		if (stream->marked == stream->given || device->no_marks)
			continue;
		/* With one address space the host's address is the GPU's, too. */
		CUresult result = device->cu.write_value(
			stream->stream, (CUdeviceptr)(uintptr_t)&stream->word->value, stream->given, 0);
		if (result == CUDA_SUCCESS)
			stream->marked = stream->given;
		else
			device->no_marks = true; /* the driver is asked, and says if it is worse than that */
	}
}

CUresult cuda_mark_query(struct device *device, struct cuda_stream *stream,
						 const struct cuda_work *work)
{
	uint64_t reached = *(const volatile uint64_t *)&stream->word->value;
	if (!device->no_marks && (int32_t)((uint32_t)reached - work->number) >= 0)
		return CUDA_SUCCESS;
	uint64_t now = util_now_us();
	if (!device->no_marks && now - stream->asked_us < ASK_US)
		return CUDA_ERROR_NOT_READY;
	stream->asked_us = now;
	return device->cu.cuStreamQuery(stream->stream);
}

#endif
