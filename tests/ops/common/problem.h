/*
 * problem.h: a case as the planner's problem.  Apart from cases.h, which knows no planner.
 */
#ifndef KILN_TESTS_OPS_PROBLEM_H
#define KILN_TESTS_OPS_PROBLEM_H

#include "cases.h"
#include "daemon/plan/kernel.h"

#include <stdio.h>
#include <string.h>

static inline uint32_t cases_alignment(uint32_t offset)
{
	uint32_t lowest = offset & (~offset + 1);

	return lowest == 0 || lowest > 16 ? 16 : lowest;
}

static inline void cases_problem_attr(const kiln_attr *from, struct kernel_problem *problem,
									  struct kernel_attr *to)
{
	const char *text = from->kind == KILN_ATTR_STRING ? from->s : "";

	snprintf(to->name, sizeof(to->name), "%s", from->name);
	to->kind = from->kind;
	to->i = from->i;
	to->f = from->f;
	to->count = from->kind == KILN_ATTR_INTS ? from->count : 0;
	for (int k = 0; k < to->count; k++)
		to->ints[k] = from->ints[k];
	if (from->kind == KILN_ATTR_STRING)
		(void)kernel_attr_set_text(problem, to, text, strlen(text));
}

static inline void cases_problem(const struct cases_case *c, struct kernel_problem *problem)
{
	kiln_attr attrs[CASES_MAX_ATTRS];

	memset(problem, 0, sizeof(*problem));
	snprintf(problem->op, sizeof(problem->op), "%s", c->op->name);
	problem->tensor_count = c->operand_count;
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *from = &c->operand[i];
		struct kernel_tensor *to = &problem->tensors[i];
		if (from->dtype == KILN_DTYPE_NONE)
			continue;
		to->dtype = from->dtype;
		to->rank = from->rank;
		to->alignment = cases_alignment(from->offset);
		memcpy(to->shape, from->shape, sizeof(to->shape));
		memcpy(to->stride, from->stride, sizeof(to->stride));
	}
	problem->attr_count = c->attr_count;
	cases_attrs(c, attrs);
	for (int i = 0; i < c->attr_count; i++)
		cases_problem_attr(&attrs[i], problem, &problem->attrs[i]);
}

/* The same problem, to be planned with this candidate. */
static inline void cases_problem_choose(struct kernel_problem *problem, const char *choice)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count++];

	*attr = (struct kernel_attr){.name = "choice"};
	(void)kernel_attr_set_text(problem, attr, choice, strlen(choice));
}

#endif
