/*
 * cuda_stream: streams, and giving work to the driver.  What became of the work is cuda_poll.c's.
 *
 * Work is a struct of its own, complete in itself, because work behind a delay starts long after
 * the call that described it.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_device.h"
#include <stdlib.h>
#include <string.h>

/* ---- Queues, work and events ---- */

void cuda_queue_add(struct cuda_queue *queue, struct cuda_work *work)
{
	work->next = NULL;
	if (queue->tail)
		queue->tail->next = work;
	else
		queue->head = work;
	queue->tail = work;
}

struct cuda_work *cuda_queue_take(struct cuda_queue *queue)
{
	struct cuda_work *work = queue->head;
	if (work) {
		queue->head = work->next;
		if (!queue->head)
			queue->tail = NULL;
	}
	return work;
}

static CUresult take_event(struct device *device, CUevent *event)
{
	if (device->spare_event_count > 0) {
		*event = device->spare_events[--device->spare_event_count];
		return CUDA_SUCCESS;
	}
	return device->cu.cuEventCreate(event, CU_EVENT_DEFAULT);
}

static void keep_event(struct device *device, CUevent event)
{
	if (!event)
		return;
	if (device->spare_event_count == device->spare_event_room) {
		int room = device->spare_event_room ? 2 * device->spare_event_room : 64;
		CUevent *more = realloc(device->spare_events, (size_t)room * sizeof(*more));
		if (!more) {
			device->cu.cuEventDestroy(event);
			return;
		}
		device->spare_events = more;
		device->spare_event_room = room;
	}
	device->spare_events[device->spare_event_count++] = event;
}

struct cuda_work *cuda_work_new(struct device *device, enum cuda_work_kind kind, uint64_t ticket)
{
	struct cuda_work *work = device->spare_work;
	if (work) {
		device->spare_work = work->next;
		memset(work, 0, sizeof(*work));
	} else {
		work = util_alloc(sizeof(*work));
	}
	work->kind = kind;
	work->ticket = ticket;
	return work;
}

void cuda_work_retire(struct device *device, struct cuda_work *work)
{
	keep_event(device, work->begin);
	keep_event(device, work->end);
	cuda_report_keep(device, work);
	free(work->data);
	work->data = NULL;
	work->next = device->spare_work;
	device->spare_work = work;
}

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
	cuda_scratch_free(device, &stream->scratch);
	cuda_mark_drop(device, stream);
	device->cu.cuStreamDestroy(stream->stream);
	free(stream);
}

static void stream_activate(struct device *device, struct cuda_stream *stream)
{
	if (stream->active)
		return;
	stream->active = true;
	stream->active_previous = NULL;
	stream->active_next = device->active;
	if (device->active)
		device->active->active_previous = stream;
	device->active = stream;
}

void cuda_stream_settle(struct device *device, struct cuda_stream *stream)
{
	if (stream->running.head || stream->held.head)
		return;
	if (stream->active) {
		if (stream->active_previous)
			stream->active_previous->active_next = stream->active_next;
		else
			device->active = stream->active_next;
		if (stream->active_next)
			stream->active_next->active_previous = stream->active_previous;
		stream->active = false;
	}
	if (stream->ended)
		drop_stream(device, stream);
}

void cuda_stream_end(struct device *device, uint64_t id)
{
	struct cuda_stream *stream = find_stream(device, id);
	if (!stream)
		return;
	stream->ended = true;
	cuda_stream_settle(device, stream);
}

static void free_queue(struct device *device, struct cuda_queue *queue)
{
	for (struct cuda_work *work; (work = cuda_queue_take(queue));)
		cuda_work_retire(device, work);
}

void cuda_streams_close(struct device *device)
{
	for (int i = 0; i < CUDA_STREAM_BUCKETS; i++) {
		while (device->streams[i]) {
			struct cuda_stream *stream = device->streams[i];
			device->cu.cuStreamSynchronize(stream->stream);
			free_queue(device, &stream->running);
			free_queue(device, &stream->held);
			drop_stream(device, stream);
		}
	}
	free_queue(device, &device->failed);
	while (device->spare_work) {
		struct cuda_work *work = device->spare_work;
		device->spare_work = work->next;
		free(work);
	}
	while (device->spare_event_count > 0)
		device->cu.cuEventDestroy(device->spare_events[--device->spare_event_count]);
	free(device->spare_events);
}

/* ---- Giving work to the driver ---- */

static bool is_copy(const struct cuda_work *work)
{
	return work->kind != CUDA_WORK_KERNEL && work->kind != CUDA_WORK_GRAPH;
}

CUresult cuda_perform(struct device *device, CUstream stream, struct cuda_work *work)
{
	void *params[KERNEL_MAX_ARGS];
	if (is_copy(work) && work->bytes == 0)
		return CUDA_SUCCESS;
	switch (work->kind) {
	case CUDA_WORK_KERNEL:
		for (int i = 0; i < work->value_count; i++)
			params[i] = work->data_values >> i & 1 ? (void *)(work->data + work->values[i])
												   : &work->values[i];
		return device->cu.cuLaunchKernel(work->module->function, work->grid[0], work->grid[1],
										 work->grid[2], work->block[0], work->block[1],
										 work->block[2], work->shared_bytes, stream, params, NULL);
	case CUDA_WORK_COPY:
		return device->cu.cuMemcpyDtoDAsync(work->to, work->from, work->bytes, stream);
	case CUDA_WORK_TO_DEVICE:
		return device->cu.cuMemcpyHtoDAsync(work->to, work->host, work->bytes, stream);
	case CUDA_WORK_TO_HOST:
		return device->cu.cuMemcpyDtoHAsync(work->host, work->from, work->bytes, stream);
	case CUDA_WORK_GRAPH:
		return device->cu.cuGraphLaunch(work->graph->exec, stream);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

int cuda_perform_failed(struct device *device, const struct cuda_work *work, CUresult result,
						char error[KERNEL_ERROR_MAX])
{
	if (work->kind == CUDA_WORK_GRAPH)
		return cuda_fail(device, error, KILN_EINTERNAL, result,
						 "%s does not launch a graph of %d launches", device->name,
						 work->graph->count);
	if (is_copy(work))
		return cuda_fail(device, error, KILN_EINTERNAL, result, "%s cannot copy %llu bytes",
						 device->name, (unsigned long long)work->bytes);
	return cuda_fail(device, error,
					 result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? KILN_ENOTSUP : KILN_EINTERNAL,
					 result,
					 "%s does not launch %s with grid %ux%ux%u, block %ux%ux%u and %u bytes of "
					 "shared memory",
					 device->name, work->module->entry, work->grid[0], work->grid[1], work->grid[2],
					 work->block[0], work->block[1], work->block[2], work->shared_bytes);
}

static CUresult begin_timing(struct device *device, struct cuda_stream *stream,
							 struct cuda_work *work)
{
	CUresult result = take_event(device, &work->begin);
	if (result == CUDA_SUCCESS)
		result = take_event(device, &work->end);
	return result == CUDA_SUCCESS ? device->cu.cuEventRecord(work->begin, stream->stream) : result;
}

int cuda_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work,
			   char error[KERNEL_ERROR_MAX])
{
	if (work->scratch.bytes > 0) {
		int status = cuda_scratch_give(device, &stream->scratch, stream->stream, work, error);
		if (status != KILN_OK)
			return status;
	}
	work->untimed = work->untimed && cuda_mark_ready(device, stream);
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
	cuda_queue_add(&stream->running, work);
	stream_activate(device, stream);
	device->running++;
	device->progress_us = device->now_us;
	return KILN_OK;
}

/*
 * A copy from or to ordinary host memory keeps the calling thread until all before it on its stream
 * is done, and with it the launches of all other streams: so it is given to an idle stream only.
 */
static bool must_wait(const struct cuda_stream *stream, const struct cuda_work *work)
{
	return stream->running.head &&
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

/* What the driver already has cannot be called back; held work becomes an empty one with a status.
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
