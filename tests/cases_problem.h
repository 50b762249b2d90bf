/*
 * cases_problem.h: a case as the planner's problem.  Apart from cases.h, which knows no planner.
 */
#ifndef KILN_TESTS_CASES_PROBLEM_H
#define KILN_TESTS_CASES_PROBLEM_H

#include "cases.h"
#include "daemon/kernel.h"

#include <stdio.h>
#include <string.h>

static inline uint32_t cases_alignment(uint32_t offset)
{
	uint32_t lowest = offset & (~offset + 1);

	return lowest == 0 || lowest > 16 ? 16 : lowest;
}

static inline void cases_problem(const struct cases_case *c, struct kernel_problem *problem)
{
	int64_t stride = 1;

	memset(problem, 0, sizeof(*problem));
	snprintf(problem->op, sizeof(problem->op), "%s", c->op);
	problem->tensor_count = 2;
	problem->attr_count = 1;
	for (int t = 0; t < 2; t++) {
		problem->tensors[t].dtype = c->dtype;
		problem->tensors[t].rank = c->rank;
		problem->tensors[t].alignment = cases_alignment(t ? c->y_offset : c->x_offset);
	}
	snprintf(problem->attrs[0].name, sizeof(problem->attrs[0].name), "perm");
	problem->attrs[0].kind = KILN_ATTR_INTS;
	problem->attrs[0].count = c->rank;
	for (int k = c->rank - 1; k >= 0; k--) {
		problem->attrs[0].ints[k] = c->perm[k];
		problem->tensors[0].shape[k] = c->shape[k];
		problem->tensors[0].stride[k] = c->stride[k];
		problem->tensors[1].shape[k] = c->shape[c->perm[k]];
		problem->tensors[1].stride[k] = stride;
		stride *= c->shape[c->perm[k]] ? c->shape[c->perm[k]] : 1;
	}
}

#endif
