/*
 * cuda_mark: finds out that launches without events have ended.  Each stream has a word in host
 * memory, and behind a batch of launches the GPU itself writes there (a mark).  This process looks
 * by a load, without a call of the driver, and one mark for many launches costs less than an event
 * for each.
 *
 * The driver's write and the kernel behind a recorded launch (cuda_record.c) each make marks.  Each
 * counts its own, in a half of the word, so neither needs to know of the other: the sum of the
 * halves says how many marks the GPU has reached.
 *
 * No client can write these words, because they decide when buffers are freed and kernels unloaded.
 * The driver's write may include a word of a waiting client, so that the client sees the end as
 * soon as this process does.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_cell.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include "daemon/base/util.h"
#include "daemon/base/deadlines.h"
#include <string.h>

bool cuda_mark_ready(struct device *device, struct cuda_stream *stream)
{
	if (device->no_marks || !device->cu.write_value)
		return false;
	if (stream->word)
		return true;
	if (cuda_cell_take(device, &stream->word) != CUDA_SUCCESS)
		return false;
	stream->written = stream->told = 0;
	return true;
}

void cuda_mark_drop(struct device *device, struct cuda_stream *stream)
{
	if (stream->word)
		cuda_cell_keep(device, stream->word);
	stream->word = NULL;
}

void cuda_mark_want(struct device *device, struct cuda_stream *stream, struct cuda_work *work)
{
	work->number = stream->written + stream->told + 1;
	stream->done_word = work->done_last && !work->record ? work->done_word : 0;
	stream->done_value = work->done_value;
	stream->unmarked = true;
	if (stream->listed)
		return;
	stream->listed = true;
	stream->unmarked_next = device->unmarked;
	device->unmarked = stream;
}

/* With one address space the host's address is the GPU's, too. */
static CUdeviceptr written_word(const struct cuda_stream *stream)
{
	return (CUdeviceptr)(uintptr_t)&stream->word->value;
}

/* Writes the client's word first: a client waits for it, and only that client's view depends on
 * it. */
static CUresult write_mark(struct device *device, const struct cuda_stream *stream)
{
	uint32_t count = stream->written + 1;
	if (!stream->done_word || !device->cu.write_values)
		return device->cu.write_value(stream->stream, written_word(stream), count, 0);
	CUstreamBatchMemOpParams writes[2];
	memset(writes, 0, sizeof(writes));
	writes[0].writeValue.operation = writes[1].writeValue.operation =
		CU_STREAM_MEM_OP_WRITE_VALUE_32;
	writes[0].writeValue.address = stream->done_word;
	writes[0].writeValue.value = stream->done_value;
	writes[1].writeValue.address = written_word(stream);
	writes[1].writeValue.value = count;
	return device->cu.write_values(stream->stream, 2, writes, 0);
}

void cuda_mark_now(struct device *device, struct cuda_stream *stream)
{
	stream->unmarked = false;
	if (stream->ahead && cuda_start_ahead(device, stream, true)) {
		stream->told++;
		return;
	}
	/* After a refusal the driver is asked, and tells if the GPU failed. */
	if (!device->no_marks && write_mark(device, stream) != CUDA_SUCCESS)
		device->no_marks = true;
	else
		stream->written++;
}

void cuda_marks_write(struct device *device)
{
	struct cuda_stream *stream;
	while ((stream = device->unmarked)) {
		device->unmarked = stream->unmarked_next;
		stream->listed = false;
		if (stream->unmarked)
			cuda_mark_now(device, stream);
	}
}

CUresult cuda_mark_query(struct device *device, struct cuda_stream *stream,
						 const struct cuda_work *work)
{
	uint64_t both = *(const volatile uint64_t *)&stream->word->value;
	uint32_t reached = (uint32_t)both + (uint32_t)(both >> 32);
	if (!device->no_marks && (int32_t)(reached - work->number) >= 0)
		return CUDA_SUCCESS;
	uint64_t now = device->now_us;
	if (!device->no_marks && now - stream->asked_us < PAUSE_CUDA_ASK_US)
		return CUDA_ERROR_NOT_READY;
	stream->asked_us = now;
	return device->cu.cuStreamQuery(stream->stream);
}

#endif
