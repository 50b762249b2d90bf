/*
 * cuda_graph: launches that the driver records once and starts together with one call.  To record
 * them, this file performs them on a stream that captures instead of running; the stream is a new
 * one, which nobody else can disturb.  No step of this waits for running kernels or keeps other
 * threads from launching.
 *
 * The driver orders a graph behind its earlier launches on any stream, so the graph needs one piece
 * of scratch memory.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_graph.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include <stdlib.h>

static int bind_all(struct device *device, const struct device_launch *launches, int count,
					struct cuda_queue *works, char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < count; i++) {
		struct cuda_work *work;
		int status = cuda_bind(device, &launches[i], &work, error);
		if (status != KILN_OK) {
			device_graph_blame(i, count, error);
			return status;
		}
		cuda_queue_add(works, work);
	}
	return KILN_OK;
}

/* Performs the works on the capturing stream: each becomes a node behind the one before. */
static int record(struct device *device, struct device_graph *graph, CUstream stream,
				  const struct cuda_queue *works, char error[KERNEL_ERROR_MAX])
{
	int index = 0, status = KILN_OK;
	for (struct cuda_work *work = works->head; work; work = work->next, index++) {
		if (work->scratch.bytes > 0)
			status = cuda_scratch_give(device, &graph->scratch, stream, work, error);
		if (status == KILN_OK) {
			CUresult result = cuda_perform(device, stream, work);
			if (result != CUDA_SUCCESS)
				status = cuda_perform_failed(device, work, result, error);
		}
		if (status != KILN_OK) {
			device_graph_blame(index, graph->count, error);
			return status;
		}
	}
	return KILN_OK;
}

static int graph_failed(struct device *device, const struct device_graph *graph, CUresult result,
						const char *what, char error[KERNEL_ERROR_MAX])
{
	return cuda_fail(device, error, KILN_EINTERNAL, result, "%s cannot %s a graph of %d launches",
					 device->name, what, graph->count);
}

static int capture(struct device *device, struct device_graph *graph, CUstream stream,
				   const struct cuda_queue *works, CUgraph *out, char error[KERNEL_ERROR_MAX])
{
	/* Thread-local: other threads may call the driver meanwhile. */
	CUresult result = device->cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (result != CUDA_SUCCESS)
		return graph_failed(device, graph, result, "record", error);
	int status = record(device, graph, stream, works, error);
	result = device->cu.cuStreamEndCapture(stream, out);
	if (status == KILN_OK && result != CUDA_SUCCESS)
		status = graph_failed(device, graph, result, "record", error);
	return status;
}

/* Makes the graph on a stream of its own.  All work there has ended when this returns. */
static int make_on(struct device *device, struct device_graph *graph, CUstream stream,
				   const struct cuda_queue *works, char error[KERNEL_ERROR_MAX])
{
	CUgraph recorded = NULL;
	int status = cuda_scratch_reserve(device, &graph->scratch, stream, works, error);
	if (status == KILN_OK)
		status = capture(device, graph, stream, works, &recorded, error);
	if (status == KILN_OK) {
		CUresult result = device->cu.cuGraphInstantiateWithFlags(&graph->exec, recorded, 0);
		if (result == CUDA_SUCCESS) /* so that the first launch need not */
			result = device->cu.cuGraphUpload(graph->exec, stream);
		if (result != CUDA_SUCCESS)
			status = graph_failed(device, graph, result, "make", error);
	}
	if (recorded)
		device->cu.cuGraphDestroy(recorded);
	CUresult result = device->cu.cuStreamSynchronize(stream);
	if (status == KILN_OK && result != CUDA_SUCCESS)
		status = graph_failed(device, graph, result, "make", error);
	return status;
}

int cuda_graph_make(struct device *device, const struct device_launch *launches, int count,
					struct device_graph **out, char error[KERNEL_ERROR_MAX])
{
	struct cuda_queue works = {0};
	CUstream stream = NULL;
	int status = device_graph_check(launches, count, error);
	if (status != KILN_OK)
		return status;
	struct device_graph *graph = util_alloc(sizeof(*graph));
	graph->count = count;
	status = bind_all(device, launches, count, &works, error);
	if (status == KILN_OK) {
		CUresult result = device->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		if (result != CUDA_SUCCESS)
			status = graph_failed(device, graph, result, "make a stream for", error);
	}
	if (status == KILN_OK)
		status = make_on(device, graph, stream, &works, error);
	if (stream)
		device->cu.cuStreamDestroy(stream);
	cuda_queue_retire(device, &works);
	if (status != KILN_OK) {
		cuda_graph_free(device, graph);
		return status;
	}
	*out = graph;
	return KILN_OK;
}

int cuda_graph_launch(struct device *device, struct device_graph *graph,
					  const struct device_launch *how, char error[KERNEL_ERROR_MAX])
{
	struct cuda_work *work = cuda_work_new(device, CUDA_WORK_GRAPH, how->ticket);
	work->graph = graph;
	work->untimed = how->untimed;
	work->done_word = (CUdeviceptr)(uintptr_t)how->done_word;
	work->done_value = how->done_value;
	work->done_last = how->done_last;
	return cuda_give(device, how->stream, work, how->delay_ms, error);
}

void cuda_graph_free(struct device *device, struct device_graph *graph)
{
	if (!graph)
		return;
	if (graph->exec)
		device->cu.cuGraphExecDestroy(graph->exec);
	cuda_scratch_free(device, &graph->scratch);
	free(graph);
}

#endif
