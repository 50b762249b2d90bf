/*
 * cpu_graph: launches that follow one another as one work.  cpu_graph_make() binds each launch
 * once, to a step.  A work that runs the graph becomes one step after the other, at the head of its
 * stream.
 */
#include "cpu_work.h"
#include "daemon/base/util.h"

#include <stdlib.h>
#include <string.h>

struct device_graph {
	int count;
	size_t data_bytes; /* of the step that has most */
	bool running;      /* a work is STARTED that runs this graph */
	struct cpu_work *steps[];
};

void cpu_graph_free(struct device *device, struct device_graph *graph)
{
	(void)device;
	if (!graph)
		return;
	for (int i = 0; i < graph->count; i++)
		free(graph->steps[i]);
	free(graph);
}

int cpu_graph_make(struct device *device, const struct device_launch *launches, int count,
				   struct device_graph **out, char error[KERNEL_ERROR_MAX])
{
	int status = device_graph_check(launches, count, error);
	if (status != KILN_OK)
		return status;
	struct device_graph *graph =
		calloc(1, sizeof(*graph) + (size_t)count * sizeof(struct cpu_work *));
	if (!graph)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for a graph of %d launches", count);
	graph->count = count;
	for (int i = 0; i < count; i++) {
		status = cpu_bind(device, &launches[i], &graph->steps[i], error);
		if (status != KILN_OK) {
			device_graph_blame(i, count, error);
			cpu_graph_free(device, graph);
			return status;
		}
		if (graph->steps[i]->data_bytes > graph->data_bytes)
			graph->data_bytes = graph->steps[i]->data_bytes;
	}
	*out = graph;
	return KILN_OK;
}

/* Copies from the step what is to run.  The work keeps its own progress. */
static void become(struct cpu_work *work, const struct cpu_work *step)
{
	work->total = step->total;
	work->chunk = step->chunk;
	work->module = step->module;
	work->grid = step->grid;
	work->block_size = step->block_size;
	work->shared_bytes = step->shared_bytes;
	work->scratch = step->scratch;
	work->scratch_args = step->scratch_args;
	work->granule = step->granule;
	work->arg_count = step->arg_count;
	memcpy(work->values, step->values, sizeof(work->values));
	memcpy(work->data, step->data, step->data_bytes);
	/* They point to values and data. */
	for (int i = 0; i < step->arg_count; i++)
		work->args[i] = (uint8_t *)work + ((uint8_t *)step->args[i] - (const uint8_t *)step);
	memcpy(work->operands, step->operands, sizeof(work->operands));
	work->operand_count = step->operand_count;
	work->copy_to = step->copy_to;
	work->copy_from = step->copy_from;
	work->copy_bytes = step->copy_bytes;
	atomic_store(&work->taken, 0);
}

int cpu_graph_launch(struct device *device, struct device_graph *graph,
					 const struct device_launch *how, char error[KERNEL_ERROR_MAX])
{
	struct cpu_work *work = cpu_work_new(how->ticket, graph->data_bytes, error);
	if (!work)
		return KILN_ENOMEM;
	work->graph = graph;
	work->delay_us = (uint64_t)how->delay_ms * 1000;
	become(work, graph->steps[0]);
	return cpu_queue_add(device, how->stream, work, error);
}

bool cpu_graph_free_to_start(const struct cpu_work *work)
{
	return !work->graph || !work->graph->running;
}

void cpu_graph_started(struct cpu_work *work)
{
	if (work->graph)
		work->graph->running = true;
}

bool cpu_graph_next(struct device *device, struct cpu_work *work)
{
	if (!work->graph || atomic_load(&work->status) != KILN_OK ||
		work->step + 1 == work->graph->count)
		return false;
	become(work, work->graph->steps[++work->step]);
	cpu_scratch_give(device, work);
	return atomic_load(&work->status) == KILN_OK;
}

void cpu_graph_ended(struct device *device, struct cpu_work *work)
{
	if (!work->graph)
		return;
	work->graph->running = false;
	pthread_cond_broadcast(&device->changed); /* another stream may wait for it */
}

void cpu_graph_blame(struct cpu_work *work)
{
	int status = atomic_load(&work->status);
	if (work->graph && status != KILN_OK && status != KILN_ECANCELED)
		device_graph_blame(work->step, work->graph->count, work->error);
}
