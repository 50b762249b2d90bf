/*
 * cuda_graph: a recorded graph, which a work of kind GRAPH launches.
 */
#ifndef KILN_DAEMON_CUDA_GRAPH_H
#define KILN_DAEMON_CUDA_GRAPH_H

#include "cuda_scratch.h"

struct device_graph {
	CUgraphExec exec;
	int count; /* of launches */
	/* All launches of the graph use it: the driver never runs a graph twice at once. */
	struct cuda_scratch scratch;
};

#endif
