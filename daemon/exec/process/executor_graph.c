/*
 * executor_graph: launches that the device starts as one piece of work.
 *
 *   DESCRIBED --(the first launch)--> MADE --(a buffer moves or goes)--> DESCRIBED
 *   either of them --(graph.free)--> gone, or LEAVING while parked entries may name it --> gone
 *
 * struct exec_graph is the broker's description, and holds its kernels.  struct exec_made is the
 * device's graph, and holds its buffers; flights hold it, so they go on when the graph is made
 * anew.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_graph.h"
#include "executor_module.h"
#include "executor_template.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct exec_part {
	struct exec_template what;
	struct exec_place places[KERNEL_MAX_OPERANDS];
};

struct exec_graph {
	uint64_t id, owner; /* the stream of the session that may launch it */
	struct exec_part *parts;
	int count;
	struct exec_made *made; /* NULL: DESCRIBED; the next launch makes it for its buffers */
	int holders;            /* launcher->graphs, and each exec_made of it; the last one frees it */
	uint64_t leaving; /* LEAVING: parked entries below this may name it; 0: it does not leave */
};

struct exec_made {
	struct exec_graph *of;
	struct device_graph *graph;
	struct exec_buffer **buffers; /* one for each operand, so a buffer may be here twice */
	int buffer_count;
	int holders; /* of->made, and flights; the last one frees it */
};

/* A graph that launcher->graphs has. */
static void graph_assert_valid(const struct exec_graph *graph)
{
	assert(graph->count > 0 && graph->holders >= 1 + (graph->made != NULL));
	assert(!graph->made || (graph->made->of == graph && graph->made->holders > 0));
	(void)graph;
}

/* ---- Holders ---- */

static void graph_release(struct launcher *launcher, struct exec_graph *graph)
{
	if (--graph->holders > 0)
		return;
	for (int i = 0; i < graph->count; i++)
		if (graph->parts[i].what.module)
			exec_release_module(launcher, graph->parts[i].what.module);
	free(graph->parts);
	free(graph);
}

void exec_made_release(struct launcher *launcher, struct exec_made *made)
{
	struct exec_graph *graph = made->of;
	if (--made->holders > 0)
		return;
	launcher->ops->graph_free(launcher->device, made->graph);
	for (int i = 0; i < made->buffer_count; i++)
		exec_release_buffer(launcher, made->buffers[i]);
	free(made->buffers);
	free(made);
	graph_release(launcher, graph);
}

static void unmake(struct launcher *launcher, struct exec_graph *graph)
{
	struct exec_made *made = graph->made;
	graph->made = NULL;
	if (made)
		exec_made_release(launcher, made);
}

static void forget(struct launcher *launcher, struct exec_graph *graph)
{
	map_remove_id(&launcher->graphs, graph->id);
	unmake(launcher, graph);
	graph_release(launcher, graph);
}

struct exec_graph *exec_graph_find(const struct launcher *launcher, uint64_t owner, uint64_t id)
{
	struct exec_graph *graph = map_get_id(&launcher->graphs, id);
	return graph && graph->owner == owner ? graph : NULL;
}

void exec_graphs_drop(struct launcher *launcher, uint64_t owner)
{
	struct exec_graph *graph;
	size_t cursor = 0;
	while ((graph = map_next(&launcher->graphs, &cursor)))
		if (!owner || graph->owner == owner)
			forget(launcher, graph);
}

uint64_t exec_graphs_settle(struct launcher *launcher, uint64_t owner, uint64_t parked)
{
	struct exec_graph *graph;
	uint64_t least = 0;
	size_t cursor = 0;
	while ((graph = map_next(&launcher->graphs, &cursor)))
		if (graph->owner != owner || !graph->leaving)
			continue;
		else if (graph->leaving <= parked)
			forget(launcher, graph);
		else if (!least || graph->leaving < least)
			least = graph->leaving;
	return least;
}

void exec_graphs_unmake(struct exec *executor, const struct exec_buffer *buffer)
{
	for (int k = 0; k < executor->launcher_count; k++) {
		struct launcher *launcher = &executor->launchers[k];
		struct exec_graph *graph;
		size_t cursor = 0;
		while ((graph = map_next(&launcher->graphs, &cursor)))
			for (int i = 0; graph->made && i < graph->made->buffer_count; i++)
				if (graph->made->buffers[i] == buffer)
					unmake(launcher, graph);
	}
}

/* ---- Making ---- */

static struct exec_made *made_new(struct exec_graph *graph)
{
	struct exec_made *made = calloc(1, sizeof(*made));
	size_t most = (size_t)graph->count * KERNEL_MAX_OPERANDS;
	if (made && !(made->buffers = calloc(most, sizeof(struct exec_buffer *)))) {
		free(made);
		return NULL;
	}
	if (made) {
		made->of = graph;
		made->holders = 1;
		graph->holders++;
	}
	return made;
}

static int make_graph(struct launcher *launcher, struct exec_graph *graph, struct exec_made *made,
					  char error[KERNEL_ERROR_MAX])
{
	const struct exec_held held = {made->buffers, &made->buffer_count};
	size_t count = (size_t)graph->count;
	struct device_launch *launches = calloc(count, sizeof(*launches));
	struct device_operand *operands = calloc(count * KERNEL_MAX_OPERANDS, sizeof(*operands));
	int status = KILN_OK;
	if (!launches || !operands)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						   "out of memory for a graph of %d launches", graph->count);
	for (int i = 0; i < graph->count && status == KILN_OK; i++) {
		struct exec_part *part = &graph->parts[i];
		exec_find_buffers(launcher, part->places, part->what.operand_count);
		status = exec_bind(&part->what, part->places, graph->owner, held,
						   &operands[(size_t)i * KERNEL_MAX_OPERANDS], &launches[i], error);
		if (status != KILN_OK) {
			char sentence[KERNEL_ERROR_MAX];
			util_append(sentence, sizeof(sentence), 0, "%s: %s", part->what.op, error);
			memcpy(error, sentence, sizeof(sentence));
			device_graph_blame(i, graph->count, error);
		}
	}
	if (status == KILN_OK)
		status = launcher->ops->graph_make(launcher->device, launches, graph->count, &made->graph,
										   error);
	free(launches);
	free(operands);
	return status;
}

static int graph_take(struct launcher *launcher, struct exec_graph *graph, struct exec_made **out,
					  char error[KERNEL_ERROR_MAX])
{
	if (!graph->made) {
		struct exec_made *made = made_new(graph);
		if (!made)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
							 "out of memory for a graph of %d launches", graph->count);
		int status = make_graph(launcher, graph, made, error);
		if (status != KILN_OK) {
			exec_made_release(launcher, made);
			return status;
		}
		graph->made = made;
	}
	graph->made->holders++;
	graph_assert_valid(graph);
	*out = graph->made;
	return KILN_OK;
}

int exec_graph_start(struct launcher *launcher, struct exec_graph *graph,
					 const struct device_launch *how, struct exec_made **out,
					 char error[KERNEL_ERROR_MAX])
{
	int status = graph_take(launcher, graph, out, error);
	if (status != KILN_OK)
		return status;
	return launcher->ops->graph_launch(launcher->device, (*out)->graph, how, error);
}

/* ---- Requests ---- */

static int read_parts(struct launcher *launcher, struct exec_request *request,
					  struct exec_graph *graph)
{
	const msgpack_object *list = wire_get(request->root, "parts");
	uint32_t count = wire_count(list);
	if (count < 1 || count > KILN_MAX_GRAPH)
		return exec_refuse(request, KILN_EPROTO, "a graph has 1 to %d launches, not %u",
						   KILN_MAX_GRAPH, count);
	graph->parts = calloc(count, sizeof(*graph->parts));
	if (!graph->parts)
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a graph of %u launches", count);
	for (uint32_t i = 0; i < count; i++) {
		struct exec_part *part = &graph->parts[i];
		struct exec_template *what = &part->what;
		int status = exec_template_read(launcher, request, wire_at(list, i), what, part->places);
		for (int k = 0; status == KILN_OK && k < what->arg_count; k++)
			if (what->args[k].kind == KERNEL_ARG_BYTES)
				status = exec_refuse(request, KILN_EPROTO,
									 "argument %d of a graph's launch is a value of its own", k);
		if (status != KILN_OK)
			return status;
		if (what->module)
			exec_hold_module(what->module);
		graph->count = (int)i + 1;
	}
	return KILN_OK;
}

static size_t count_graphs(const struct exec *executor)
{
	size_t count = 0;
	for (int i = 0; i < executor->launcher_count; i++)
		count += executor->launchers[i].graphs.count;
	return count;
}

int exec_graph_new(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = wire_get_uint(request->root, "graph", 0);
	struct exec_made *made = NULL;
	if (id == 0 || map_get_id(&launcher->graphs, id))
		return exec_refuse(request, KILN_EPROTO, "graph %" PRIu64 " is there already, or no id",
						   id);
	if (count_graphs(launcher->executor) >= EXEC_MAX_GRAPHS)
		return exec_refuse(request, KILN_ELIMIT,
						   "a device process has room for %d graphs, of all sessions that it works "
						   "for: free some",
						   EXEC_MAX_GRAPHS);
	struct exec_graph *graph = calloc(1, sizeof(*graph));
	if (!graph)
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a graph");
	graph->id = id;
	graph->owner = request->stream;
	graph->holders = 1;
	int status = read_parts(launcher, request, graph);
	if (status == KILN_OK && map_put_id(&launcher->graphs, id, graph) < 0)
		status = exec_refuse(request, KILN_ENOMEM, "out of memory for a graph");
	if (status != KILN_OK) {
		graph_release(launcher, graph);
		return status;
	}
	status = graph_take(launcher, graph, &made, request->error);
	if (status == KILN_OK)
		exec_made_release(launcher, made);
	return status;
}

void exec_graph_leave(struct launcher *launcher, struct exec_graph *graph, uint64_t until)
{
	graph->leaving = until;
	graph_assert_valid(graph);
	if (until == 0)
		forget(launcher, graph);
}
