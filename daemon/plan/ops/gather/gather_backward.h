/*
 * gather_backward.h: the candidates of gather_backward, which gather_backward_way.c makes and
 * gather_backward.c plans.
 */
#ifndef KILN_DAEMON_PLAN_GATHER_BACKWARD_H
#define KILN_DAEMON_PLAN_GATHER_BACKWARD_H

#include "gather.h"

#define SCATTER_WAYS 12

struct scatter_way {
	bool skew;      /* rows of ddst are not whole vectors */
	uint32_t turns; /* groups of rows that are summed up together; 0: rows are, each by itself */
	uint32_t rows, threads;
	uint32_t chunk, tile, load, vector;
	uint32_t shared;
	char name[KERNEL_CHOICE_MAX];
};

/* The planner's own first; how many. */
int scatter_ways(const struct kernel_problem *problem, const struct gather_problem *gather,
				 const struct kernel_limits *limits, struct scatter_way ways[SCATTER_WAYS]);

#endif
