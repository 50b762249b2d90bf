/*
 * cuda_work: queues of works, spare works and events, the driver call of each kind of work, and the
 * count that a kernel leaves for the host.  Each launch in flight has a cell for that, which a
 * kernel with nothing to report never touches.  cuda_work.h draws the states of a work.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_cell.h"
#include "cuda_graph.h"
#include "cuda_module.h"
#include "cuda_work.h"
#include "daemon/base/util.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

CUresult cuda_event_take(struct device *device, CUevent *event)
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

/* ---- Counts that kernels leave for the host ---- */

/* With one address space for both, as on all these GPUs, the host's address is the kernel's too. */
int cuda_report_give(struct device *device, struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	CUresult result = cuda_cell_take(device, &work->reported);
	if (result == CUDA_SUCCESS)
		return KILN_OK;
	return cuda_fail(device, error, KILN_ENOMEM, result,
					 "%s cannot give host memory for what kernels report", device->name);
}

int cuda_report_read(const struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	if (!work->reported)
		return KILN_OK;
	return device_report(&work->report, *(const volatile uint64_t *)&work->reported->value, error);
}

void cuda_report_keep(struct device *device, struct cuda_work *work)
{
	if (work->reported)
		cuda_cell_keep(device, work->reported);
	work->reported = NULL;
}

/* ---- Works ---- */

struct cuda_work *cuda_work_new(struct device *device, enum cuda_work_kind kind, uint64_t ticket)
{
	struct cuda_work *work = device->spare_work;
	if (work) {
		device->spare_work = work->next;
		memset(work, 0, offsetof(struct cuda_work, values));
	} else {
		work = util_alloc(sizeof(*work));
	}
	work->kind = kind;
	work->state = CUDA_WORK_HELD;
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
	work->state = CUDA_WORK_SPARE;
	work->next = device->spare_work;
	device->spare_work = work;
}

void cuda_queue_retire(struct device *device, struct cuda_queue *queue)
{
	for (struct cuda_work *work; (work = cuda_queue_take(queue));)
		cuda_work_retire(device, work);
}

void cuda_works_close(struct device *device)
{
	while (device->spare_work) {
		struct cuda_work *work = device->spare_work;
		device->spare_work = work->next;
		free(work);
	}
	while (device->spare_event_count > 0)
		device->cu.cuEventDestroy(device->spare_events[--device->spare_event_count]);
	free(device->spare_events);
}

static bool is_copy(const struct cuda_work *work)
{
	return work->kind != CUDA_WORK_KERNEL && work->kind != CUDA_WORK_GRAPH;
}

void cuda_work_params(struct cuda_work *work, void *params[KERNEL_MAX_ARGS])
{
	for (int i = 0; i < work->value_count; i++)
		params[i] =
			work->data_values >> i & 1 ? (void *)(work->data + work->values[i]) : &work->values[i];
}

CUresult cuda_perform(struct device *device, CUstream stream, struct cuda_work *work)
{
	void *params[KERNEL_MAX_ARGS];
	if (is_copy(work) && work->bytes == 0)
		return CUDA_SUCCESS;
	switch (work->kind) {
	case CUDA_WORK_KERNEL:
		cuda_work_params(work, params);
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

#endif
