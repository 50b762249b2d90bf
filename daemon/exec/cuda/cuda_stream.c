/*
 * cuda_stream: streams, and giving work to the driver.  cuda_stream.h draws the states of a stream;
 * cuda_poll.c collects the ends of works.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_cell.h"
#include "cuda_record.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include <assert.h>
#include <stdlib.h>

/* ---- Streams ---- */

static struct cuda_stream **bucket(struct device *device, uint64_t id)
{
	return &device->streams[id % CUDA_STREAM_BUCKETS];
}

static struct cuda_stream *find_stream(struct device *device, uint64_t id)
{
	struct cuda_stream *stream = *bucket(device, id);
	while (stream && stream->id != id)
		stream = stream->next;
	return stream;
}

static int need_stream(struct device *device, uint64_t id, struct cuda_stream **out,
					   char error[KERNEL_ERROR_MAX])
{
	struct cuda_stream *stream = find_stream(device, id);
	if (!stream) {
		CUstream handle;
		CUresult result = device->cu.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING);
		if (result != CUDA_SUCCESS)
			return cuda_fail(device, error, KILN_EINTERNAL, result, "%s cannot make a stream",
							 device->name);
		stream = util_alloc(sizeof(*stream));
		stream->id = id;
		stream->stream = handle;
		stream->next = *bucket(device, id);
		*bucket(device, id) = stream;
	}
	*out = stream;
	return KILN_OK;
}

static void drop_stream(struct device *device, struct cuda_stream *stream)
{
	for (struct cuda_stream **at = bucket(device, stream->id); *at; at = &(*at)->next) {
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	}
	cuda_records_drop_stream(device, stream);
	if (stream->counter)
		device->cu.cuMemFreeAsync(stream->counter, device->memory_stream);
	cuda_scratch_free(device, &stream->scratch);
	cuda_mark_drop(device, stream);
	device->cu.cuStreamDestroy(stream->stream);
	free(stream);
}

static void stream_assert_valid(const struct cuda_stream *stream)
{
	bool has_work = stream->running.head || stream->held.head || stream->ahead;
	(void)has_work;
	assert((stream->state != CUDA_STREAM_IDLE) == has_work);
	assert(!stream->running.head || stream->running.head->state == CUDA_WORK_RUNNING);
	assert(!stream->held.head || stream->held.head->state == CUDA_WORK_HELD);
}

static void stream_activate(struct device *device, struct cuda_stream *stream)
{
	if (stream->state != CUDA_STREAM_IDLE)
		return;
	stream->state = CUDA_STREAM_ACTIVE;
	stream->active_previous = NULL;
	stream->active_next = device->active;
	if (device->active)
		device->active->active_previous = stream;
	device->active = stream;
}

void cuda_stream_settle(struct device *device, struct cuda_stream *stream)
{
	if (stream->running.head || stream->held.head || stream->ahead) {
		stream_assert_valid(stream);
		return;
	}
	bool ending = stream->state == CUDA_STREAM_ENDING;
	if (stream->state != CUDA_STREAM_IDLE) {
		if (stream->active_previous)
			stream->active_previous->active_next = stream->active_next;
		else
			device->active = stream->active_next;
		if (stream->active_next)
			stream->active_next->active_previous = stream->active_previous;
		stream->state = CUDA_STREAM_IDLE;
	}
	if (ending)
		drop_stream(device, stream);
}

void cuda_stream_end(struct device *device, uint64_t id)
{
	struct cuda_stream *stream = find_stream(device, id);
	if (stream && stream->state == CUDA_STREAM_IDLE)
		drop_stream(device, stream);
	else if (stream)
		stream->state = CUDA_STREAM_ENDING;
}

void cuda_streams_close(struct device *device)
{
	for (int i = 0; i < CUDA_STREAM_BUCKETS; i++) {
		while (device->streams[i]) {
			struct cuda_stream *stream = device->streams[i];
			device->cu.cuStreamSynchronize(stream->stream);
			cuda_queue_retire(device, &stream->running);
			cuda_queue_retire(device, &stream->held);
			if (stream->ahead)
				cuda_work_retire(device, stream->ahead);
			drop_stream(device, stream);
		}
	}
	cuda_queue_retire(device, &device->failed);
	cuda_works_close(device);
}

/* ---- Giving work to the driver ---- */

static CUresult begin_timing(struct device *device, struct cuda_stream *stream,
							 struct cuda_work *work)
{
	CUresult result = cuda_event_take(device, &work->begin);
	if (result == CUDA_SUCCESS)
		result = cuda_event_take(device, &work->end);
	return result == CUDA_SUCCESS ? device->cu.cuEventRecord(work->begin, stream->stream) : result;
}

/* The driver has the work now. */
static void note_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work)
{
	work->state = CUDA_WORK_RUNNING;
	cuda_queue_add(&stream->running, work);
	stream_activate(device, stream);
	stream_assert_valid(stream);
	/* The threads of other parts rest outside of cuda_poll(), which would tell the time. */
	if (device != device->parts[0] && device->running == 0)
		device->now_us = util_now_us();
	device->running++;
	device->progress_us = device->now_us;
}

bool cuda_start_ahead(struct device *device, struct cuda_stream *stream, bool tells)
{
	struct cuda_work *work = stream->ahead;
	stream->ahead = NULL;
	CUresult result = cuda_record_launch(device, work, tells);
	bool told = tells && result == CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		result = cuda_perform(device, stream->stream, work);
	if (result == CUDA_SUCCESS) {
		note_start(device, stream, work);
		return told;
	}
	work->status = cuda_perform_failed(device, work, result, work->error);
	work->state = CUDA_WORK_FAILED;
	cuda_queue_add(&device->failed, work);
	return false;
}

/* Holds a recorded launch back, until it is known whether another one follows at once. */
static void hold_ahead(struct device *device, struct cuda_stream *stream, struct cuda_work *work)
{
	stream->ahead = work;
	stream_activate(device, stream);
	cuda_mark_want(device, stream, work);
	if (work->done_word && !work->done_last)
		cuda_mark_now(device, stream);
}

int cuda_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work,
			   char error[KERNEL_ERROR_MAX])
{
	if (stream->ahead)
		cuda_start_ahead(device, stream, false);
	if (work->scratch.bytes > 0) {
		int status = cuda_scratch_give(device, &stream->scratch, stream->stream, work, error);
		if (status != KILN_OK)
			return status;
	}
	work->untimed = work->untimed && cuda_mark_ready(device, stream);
	work->record = work->untimed ? cuda_record_find(device, stream, work) : NULL;
	if (work->record) {
		hold_ahead(device, stream, work);
		return KILN_OK;
	}
	CUresult result = work->untimed ? CUDA_SUCCESS : begin_timing(device, stream, work);
	if (result == CUDA_SUCCESS)
		result = cuda_perform(device, stream->stream, work);
	if (result == CUDA_SUCCESS && work->done_word && !(work->done_last && work->untimed))
		result = device->cu.write_value(stream->stream, work->done_word, work->done_value, 0);
	if (result == CUDA_SUCCESS && !work->untimed)
		result = device->cu.cuEventRecord(work->end, stream->stream);
	if (result == CUDA_SUCCESS && work->untimed)
		cuda_mark_want(device, stream, work);
	if (result != CUDA_SUCCESS)
		return cuda_perform_failed(device, work, result, error);
	note_start(device, stream, work);
	return KILN_OK;
}

/*
 * The driver keeps the thread that copies from or to ordinary host memory until all before the copy
 * on its stream has ended, and the launches of other streams would wait, too.  So a copy waits
 * until its stream is idle.
 */
static bool must_wait(const struct cuda_stream *stream, const struct cuda_work *work)
{
	return (stream->running.head || stream->ahead) &&
		   (work->kind == CUDA_WORK_TO_DEVICE || work->kind == CUDA_WORK_TO_HOST);
}

bool cuda_stream_ready(const struct cuda_stream *stream)
{
	return stream->held.head && !must_wait(stream, stream->held.head);
}

static bool cancel_one(struct device *device, uint64_t ticket)
{
	for (struct cuda_stream *stream = device->active; stream; stream = stream->active_next)
		for (struct cuda_work *work = stream->held.head; work; work = work->next)
			if (work->ticket == ticket) {
				work->canceled = true;
				work->due_us = 0;
				return true;
			}
	return false;
}

/* Cancels held works alone, which fail when their turn comes: the driver does not give back works.
 */
bool cuda_cancel(struct device *device, const uint64_t *tickets, int count)
{
	bool canceled = cancel_one(device, tickets[0]);
	for (int i = 1; canceled && i < count; i++)
		cancel_one(device, tickets[i]);
	return canceled;
}

int cuda_give(struct device *device, uint64_t stream_id, struct cuda_work *work, uint32_t delay_ms,
			  char error[KERNEL_ERROR_MAX])
{
	struct cuda_stream *stream = NULL;
	int status = need_stream(device, stream_id, &stream, error);
	if (status == KILN_OK && (delay_ms > 0 || stream->held.head || must_wait(stream, work))) {
		work->due_us = delay_ms > 0 ? util_now_us() + (uint64_t)delay_ms * 1000 : 0;
		cuda_queue_add(&stream->held, work);
		stream_activate(device, stream);
		return KILN_OK;
	}
	if (status == KILN_OK)
		status = cuda_start(device, stream, work, error);
	if (status != KILN_OK)
		cuda_work_retire(device, work);
	return status;
}

#endif
