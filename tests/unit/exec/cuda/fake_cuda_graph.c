/*
 * fake_cuda_graph: graphs of the fake driver.  A stream that records keeps its work in a graph
 * instead of its queue; to launch a graph puts copies of that into a queue.
 */
#include "fake_cuda_state.h"
#include <stdlib.h>

#define RECORDED_BADLY 901 /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
#define NOT_WHILE_RECORDING 900

struct CUgraph_st {
	struct op *head, **tail;
	bool spoilt;
};

struct CUgraphExec_st {
	struct op *head;
	struct CUgraph_st *graph;    /* that it was made of */
	struct CUgraphExec_st *next; /* of all: those of a context that is gone stay here */
};

static struct CUgraphExec_st *execs;

void fake_graph_add(struct CUgraph_st *graph, struct op *op)
{
	op->next = NULL;
	*graph->tail = op;
	graph->tail = &op->next;
}

CUresult fake_spoil(struct CUgraph_st *graph)
{
	graph->spoilt = true;
	return (CUresult)NOT_WHILE_RECORDING;
}

static void free_ops(struct op *op)
{
	while (op) {
		struct op *next = op->next;
		free(op);
		op = next;
	}
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	ENTER();
	struct CUgraph_st **capture = fake_capture(stream);
	if (*capture || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
		return CUDA_ERROR_INVALID_VALUE;
	*capture = calloc(1, sizeof(**capture));
	(*capture)->tail = &(*capture)->head;
	fake_live[FAKE_LIVE_GRAPHS]++;
	return CUDA_SUCCESS;
}

/* The recording ends in any case. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	LOCKED;
	struct CUgraph_st **capture = fake_capture(stream), *graph = *capture;
	CUresult result = fake_enter(__func__);
	*capture = NULL;
	*out = NULL;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && graph->spoilt)
		result = (CUresult)RECORDED_BADLY;
	if (result != CUDA_SUCCESS)
		cuGraphDestroy(graph);
	else
		*out = graph;
	return result;
}

CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
	ENTER();
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = calloc(1, sizeof(**out));
	(*out)->tail = &(*out)->head;
	fake_live[FAKE_LIVE_GRAPHS]++;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,
							  size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
	ENTER();
	struct op *op = before || count || params->extra ? NULL : calloc(1, sizeof(*op));
	if (!op)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = OP_KERNEL;
	fake_graph_add(graph, op);
	*out = (CUgraphNode)op;
	return fake_set_kernel(op, params);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	LOCKED;
	free_ops(graph->head);
	free(graph);
	fake_live[FAKE_LIVE_GRAPHS]--;
	return fake_enter(__func__);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	ENTER();
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*out = calloc(1, sizeof(**out));
	(*out)->graph = graph;
	(*out)->next = execs;
	execs = *out;
	struct op **tail = &(*out)->head;
	for (const struct op *op = graph->head; op; op = op->next) {
		*tail = calloc(1, sizeof(**tail));
		**tail = *op;
		(*tail)->next = NULL;
		tail = &(*tail)->next;
	}
	fake_live[FAKE_LIVE_GRAPHS]++;
	return CUDA_SUCCESS;
}

/* A graph of the fake is a row, so its first node is its only root. */
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ENTER();
	if (*count < 1 || !graph->head)
		return CUDA_ERROR_INVALID_VALUE;
	*count = 1;
	*nodes = (CUgraphNode)graph->head;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
										const CUDA_KERNEL_NODE_PARAMS *params)
{
	ENTER();
	struct op *op = exec->head;
	if ((CUgraphNode)exec->graph->head != node || op->kind != OP_KERNEL || params->extra)
		return CUDA_ERROR_INVALID_VALUE;
	return fake_set_kernel(op, params);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	ENTER();
	return exec && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	ENTER();
	for (const struct op *op = exec->head; op; op = op->next) {
		struct op *copy = fake_add_op(stream, op->kind), *next = copy->next;
		*copy = *op;
		copy->next = next;
	}
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	LOCKED;
	struct CUgraphExec_st **link = &execs;
	while (*link != exec)
		link = &(*link)->next;
	*link = exec->next;
	free_ops(exec->head);
	free(exec);
	fake_live[FAKE_LIVE_GRAPHS]--;
	return fake_enter(__func__);
}
