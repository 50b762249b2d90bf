/*
 * plan_problems.h: what the tests of the planner share: problems, plans, and refusals said in full.
 */
#ifndef KILN_TESTS_PLAN_PROBLEMS_H
#define KILN_TESTS_PLAN_PROBLEMS_H

#include "daemon/plan/op.h"
#include "daemon/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline struct kernel_limits limits_of(const char *target)
{
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];

	assert_int_equal(plan_limits_for(target, &limits, error), KILN_OK);
	return limits;
}

static inline void set_text(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text);
}

static inline void set_perm(struct kernel_problem *problem, int count, const int64_t *perm)
{
	problem->attr_count = 1;
	set_text(problem->attrs[0].name, sizeof(problem->attrs[0].name), "perm");
	problem->attrs[0].kind = KILN_ATTR_INTS;
	problem->attrs[0].count = count;
	for (int k = 0; k < count; k++)
		problem->attrs[0].ints[k] = perm[k];
}

/* x contiguous, y left to be inferred. */
static inline struct kernel_problem make(kiln_dtype dtype, int rank, const int64_t *shape,
										 const int64_t *perm)
{
	struct kernel_problem problem = {.op = "permute", .tensor_count = 1};
	struct kernel_tensor *x = &problem.tensors[0];
	char error[KERNEL_ERROR_MAX] = "";

	x->dtype = dtype;
	x->rank = rank;
	x->alignment = 16;
	for (int k = 0; k < rank; k++)
		x->shape[k] = shape[k];
	plan_contiguous(x);
	set_perm(&problem, rank, perm);
	if (plan_infer(&problem, error))
		fail_msg("%s", error);
	assert_int_equal(problem.tensor_count, 2);
	return problem;
}

/* All operands alike and contiguous. */
static inline struct kernel_problem make_alike(const char *op, kiln_dtype dtype, int rank,
											   const int64_t *shape)
{
	struct kernel_problem problem = {.tensor_count = 0};

	set_text(problem.op, sizeof(problem.op), op);
	while (plan_find(op)->operands[problem.tensor_count].name) {
		struct kernel_tensor *tensor = &problem.tensors[problem.tensor_count++];
		tensor->dtype = dtype;
		tensor->rank = rank;
		tensor->alignment = 16;
		for (int k = 0; k < rank; k++)
			tensor->shape[k] = shape[k];
		plan_contiguous(tensor);
	}
	return problem;
}

static inline struct kernel_attr *add_attr(struct kernel_problem *p, const char *name,
										   kiln_attr_kind kind)
{
	struct kernel_attr *attr = &p->attrs[p->attr_count++];

	memset(attr, 0, sizeof(*attr));
	set_text(attr->name, sizeof(attr->name), name);
	attr->kind = kind;
	return attr;
}

static inline void set_axis(struct kernel_problem *p, int64_t axis)
{
	add_attr(p, "axis", KILN_ATTR_INT)->i = axis;
}

static inline void set_choice(struct kernel_problem *p, const char *choice)
{
	struct kernel_attr *attr = add_attr(p, "choice", KILN_ATTR_STRING);

	snprintf(attr->s, sizeof(attr->s), "%.*s", KERNEL_CHOICE_MAX - 1, choice);
}

static inline struct kernel_plan plan_with(const struct kernel_limits *limits,
										   const struct kernel_problem *problem)
{
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";

	if (plan_problem(problem, limits, &plan, error))
		fail_msg("%s", error);
	return plan;
}

static inline struct kernel_plan plan_on(const char *target, const struct kernel_problem *problem)
{
	struct kernel_limits limits = limits_of(target);

	return plan_with(&limits, problem);
}

#define SHAPE(...)    \
	(const int64_t[]) \
	{                 \
		__VA_ARGS__   \
	}

static inline struct kernel_problem good(void)
{
	return make(KILN_F32, 3, SHAPE(2, 3, 4), SHAPE(2, 0, 1));
}

static inline void refused(const struct kernel_problem *problem, const char *sentence)
{
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan, empty;
	char error[KERNEL_ERROR_MAX] = "";

	memset(&plan, 0x5a, sizeof(plan));
	memset(&empty, 0, sizeof(empty));
	assert_int_equal(plan_problem(problem, &limits, &plan, error), KILN_EINVAL);
	assert_string_equal(error, sentence);
	assert_memory_equal(&plan, &empty, kernel_plan_bytes(&plan));
}

#endif
