/*
 * graph.c: makes calls one piece of work of the device process.  The broker remembers the calls,
 * and tells a new process of them when the graph is next launched.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "work_state.h"

/* ---- Making and freeing ---- */

struct call *graph_new(struct session *session, int count)
{
	struct call *call = calloc(1, sizeof(*call));
	struct graph *graph = calloc(1, sizeof(*graph) + (size_t)count * sizeof(*graph->parts));
	if (!call || !graph) {
		free(call);
		free(graph);
		return NULL;
	}
	snprintf(call->problem.op, sizeof(call->problem.op), "graph");
	call->id = broker_id(session->broker);
	call->holders = 1;
	call->device = session->device ? session->device->kind : 0;
	call->graph = graph;
	graph->id = broker_id(session->broker);
	graph->session = session;
	graph->count = count;
	session->owned->graph_launches += (uint64_t)count;
	return call;
}

void graph_set(struct call *call, int i, struct kernel_ref *variant,
			   const struct work_operand operands[KERNEL_MAX_OPERANDS])
{
	struct graph_part *part = &call->graph->parts[i];
	part->variant = kernel_hold(variant);
	memcpy(part->operands, operands, sizeof(part->operands));
	for (int k = 0; k < KERNEL_MAX_OPERANDS; k++)
		part->buffers[k] = operands[k].buffer ? operands[k].buffer->id : 0;
}

static bool is_there(const struct graph *graph)
{
	const struct session *session = graph->session;
	return session && handle_is_ready(session->executor) &&
		   graph->generation == handle_generation(session->executor);
}

void graph_free(struct graph *graph)
{
	if (!graph)
		return;
	if (is_there(graph)) {
		struct device_handle *executor = graph->session->executor;
		struct wire_out message;
		uint64_t id = handle_begin(executor, &message, "graph.free");
		wire_put_uint(&message, "graph", graph->id);
		wire_put_uint(&message, "stream", graph->session->stream);
		wire_put_uint(&message, "lane", graph->session->stream);
		wire_put_uint(&message, "tail", graph->lane_tail);
		handle_post(executor, &message, id);
	}
	if (graph->session)
		graph->session->owned->graph_launches -= (uint64_t)graph->count;
	for (int i = 0; i < graph->count; i++)
		kernel_drop(graph->parts[i].variant);
	free(graph);
}

void graph_orphan(struct call *call)
{
	if (call && call->graph)
		call->graph->session = NULL;
}

void graph_put(const struct call *call, struct wire_out *out)
{
	const struct graph *graph = call->graph;
	size_t size = ((size_t)graph->count + 1) * 96, used = 0;
	char *text = calloc(1, size);
	if (text)
		used = util_append(text, size, used, "graph of %d calls\n", graph->count);
	for (int i = 0; text && i < graph->count; i++) {
		const struct kernel_plan *plan = &graph->parts[i].variant->plan;
		used = util_append(text, size, used, "%d %s: %s\n", i + 1, plan->op, plan->variant);
	}
	wire_put_uint(out, "call", call->id);
	wire_put_str(out, "origin", "graph");
	wire_put_str(out, "text", text ? text : "");
	free(text);
}

int graph_resolve(struct graph *graph, char error[KERNEL_ERROR_MAX])
{
	char name[24];
	for (int i = 0; i < graph->count; i++) {
		struct graph_part *part = &graph->parts[i];
		const struct kernel_plan *plan = &part->variant->plan;
		for (int k = 0; k < plan->operand_count; k++) {
			struct work_operand *operand = &part->operands[k];
			operand->buffer =
				part->buffers[k] ? buffer_find(graph->session, part->buffers[k]) : NULL;
			if (operand->buffer || !part->buffers[k])
				continue;
			util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
					  "%s of %s lies in buffer %llu, which was freed: free the graph, too, and "
					  "make one of what is there now",
					  kernel_operand_name(plan->operands, k, name), plan->op,
					  (unsigned long long)part->buffers[k]);
			device_graph_blame(i, graph->count, error);
			return KILN_ENOENT;
		}
	}
	return KILN_OK;
}

/* ---- Towards the device process ---- */

/* Makes the work stand for this launch of the graph. */
static void look_at(struct work *work, const struct graph_part *part)
{
	const struct kernel_plan *plan = &part->variant->plan;
	kernel_hold(part->variant);
	kernel_drop(work->variant);
	work->variant = part->variant;
	work->kernel = tier_choose_lasting(work->session, part->variant);
	work->extents = plan->extents;
	work->operand_count = plan->operand_count;
	memcpy(work->operands, part->operands, sizeof(work->operands));
}

static enum work_step need_all(struct work *work)
{
	struct graph *graph = work->call->graph;
	if (work->state != WORK_QUEUED)
		return STEP_WAITS;
	for (int i = 0; i < graph->count; i++) {
		struct graph_part *part = &graph->parts[i];
		enum work_step step = STEP_READY;
		look_at(work, part);
		for (int k = 0, count = work->operand_count; k < count && step == STEP_READY; k++)
			if (part->operands[k].buffer)
				step = work_need_buffer(work, part->operands[k].buffer);
		if (step == STEP_READY)
			step = work_need_kernel(work, &part->module);
		if (step != STEP_READY)
			return step;
	}
	return STEP_READY;
}

static int put_graph(struct work *work)
{
	struct graph *graph = work->call->graph;
	struct session *session = work->session;
	struct wire_out message;
	bool made = work->kind == WORK_GRAPH;
	uint64_t id = handle_begin(session->executor, &message, "graph");
	wire_put_uint(&message, "graph", graph->id);
	wire_put_uint(&message, "stream", session->stream);
	wire_list_begin(&message, "parts");
	for (int i = 0; i < graph->count; i++) {
		look_at(work, &graph->parts[i]);
		if (work->variant->plan.kind == KERNEL_NOTHING)
			continue;
		wire_map_begin(&message, NULL);
		wire_put_str(&message, "op", work->variant->plan.op);
		work_put_launch(&message, work, graph->parts[i].module, true, false);
		wire_map_end(&message);
	}
	wire_list_end(&message);
	work_put_lane(&message, work);
	int status = handle_send(session->executor, &message, id, NULL, 0,
							 (uint32_t)session->broker->options.launch_timeout_ms,
							 made ? work_done : NULL, made ? work : NULL);
	if (status == KILN_OK)
		graph->generation = handle_generation(session->executor);
	return status;
}

/* Notes the graph for a post-mortem of the device process: its first launch stands for all. */
static void note(const struct work *work, struct handle_about *about)
{
	const struct graph *graph = work->call->graph;
	about->session = work->session->id;
	about->pid = work->session->pid;
	about->account = work->session->account;
	about->calls = graph->count;
	kernel_describe(about, graph->parts[0].variant, graph->parts[0].variant);
}

static int put_launch(struct work *work)
{
	struct session *session = work->session;
	struct wire_out message;
	lane_bind_graph(work);
	uint64_t id = handle_begin(session->executor, &message, "graph.launch");
	wire_put_uint(&message, "graph", work->call->graph->id);
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "sub", work->order.stream);
	wire_put_uint(&message, "account", session->account);
	wire_put_uint(&message, "delay", session->broker->test.delay_launch_ms);
	wire_put_uint(&message, "deadline",
				  session->broker->options.launch_timeout_ms * handle_patience(session->executor));
	work_put_lane(&message, work);
	work->executor_call = id;
	note(work, handle_note(session->executor, HANDLE_MESSAGE, id));
	if (work->bound && !handle_noted(session->executor, HANDLE_LANE, work->bound))
		note(work, handle_note(session->executor, HANDLE_LANE, work->bound));
	return handle_send(session->executor, &message, id, NULL, 0,
					   (uint32_t)session->broker->options.launch_timeout_ms, work_done, work);
}

/* A launch may use lost contents if an earlier launch of the graph writes all of them. */
static int check_lost(const struct graph *graph, char *error, size_t size)
{
	char label[96], name[24];
	int index = 0, operand = 0;
	struct buffer *found = NULL;
	for (int i = 0; i < graph->count && !found; i++) {
		const struct graph_part *part = &graph->parts[i];
		const struct kernel_plan *plan = &part->variant->plan;
		for (int k = 0; k < plan->operand_count && !found; k++) {
			struct buffer *buffer = part->operands[k].buffer;
			if (!buffer || !buffer->lost || buffer->rewritten || !plan->extents[k].bytes ||
				work_writes_all(&part->operands[k], &plan->extents[k]))
				continue;
			found = buffer;
			index = i;
			operand = k;
		}
		for (int k = 0; k < plan->operand_count; k++)
			if (part->operands[k].buffer && work_writes_all(&part->operands[k], &plan->extents[k]))
				part->operands[k].buffer->rewritten = true;
	}
	for (int i = 0; i < graph->count; i++)
		for (int k = 0; k < graph->parts[i].variant->plan.operand_count; k++) {
			struct buffer *buffer = graph->parts[i].operands[k].buffer;
			if (!buffer)
				continue;
			buffer->lost = buffer->lost && (found || !buffer->rewritten);
			buffer->rewritten = false;
		}
	if (!found)
		return KILN_OK;
	snprintf(error, size,
			 "launch %d of %d: the contents of %s (%s of %s) were lost when the device process "
			 "ended; write it again",
			 index + 1, graph->count, buffer_label(found, label),
			 kernel_operand_name(graph->parts[index].variant->plan.operands, operand, name),
			 graph->parts[index].variant->plan.op);
	return KILN_ELOST;
}

enum work_step graph_advance(struct work *work)
{
	struct graph *graph = work->call->graph;
	char error[KERNEL_ERROR_MAX + 128];
	bool nothing = true;
	enum work_step step = need_all(work);
	if (step != STEP_READY)
		return step;
	for (int i = 0; i < graph->count; i++)
		nothing = nothing && graph->parts[i].variant->plan.kind == KERNEL_NOTHING;
	if (nothing) {
		work_end(work, KILN_OK, NULL, 0);
		return STEP_ENDED;
	}
	if (work->kind == WORK_GRAPH)
		return work_sent(work, put_graph(work));
	if (check_lost(graph, error, sizeof(error)) != KILN_OK)
		return work_refuse(work, KILN_ELOST, error);
	int status = is_there(graph) ? KILN_OK : put_graph(work);
	return work_sent(work, status == KILN_OK ? put_launch(work) : status);
}
