/*
 * ops.c: the table of operators and the way into it: common checks first, then the operator's own.
 */
#include "internal.h"

#include <string.h>

const struct plan_op plan_ops[] = {
	{
		.name = "permute",
		.operands = "x, y",
		.attributes = "perm: which dimension of x each dimension of y is",
		.summary =
			"y = x with its dimensions reordered, bit for bit; x may be strided or broadcast",
		.plan = permute_plan,
		.infer = permute_infer,
	},
	{.name = NULL},
};

const struct plan_op *plan_find(const char *op)
{
	for (const struct plan_op *row = plan_ops; row->name; row++)
		if (strcmp(row->name, op) == 0)
			return row;
	return NULL;
}

static int find(const struct kernel_problem *problem, const struct plan_op **op,
				char error[KERNEL_ERROR_MAX])
{
	char names[128] = "";
	struct plan_text known = {.text = names, .size = sizeof(names)};

	*op = NULL;
	if (memchr(problem->op, 0, sizeof(problem->op)))
		*op = plan_find(problem->op);
	if (*op)
		return KILN_OK;
	for (const struct plan_op *row = plan_ops; row->name; row++)
		plan_print(&known, "%s%s", row == plan_ops ? "" : ", ", row->name);
	return plan_refuse(error, KILN_EINVAL, "there is no operator \"%.24s\"; there is: %s",
					   problem->op, names);
}

static int check_tensors(const struct plan_op *op, const struct kernel_problem *problem,
						 char error[KERNEL_ERROR_MAX])
{
	int count = plan_operand_count(op);

	if (problem->tensor_count < 0 || problem->tensor_count > count)
		return plan_refuse(error, KILN_EINVAL, "%s takes %d tensors (%s), not %d", op->name, count,
						   op->operands, problem->tensor_count);
	if (problem->attr_count < 0 || problem->attr_count > KERNEL_MAX_ATTRS)
		return plan_refuse(error, KILN_EINVAL, "%s cannot have %d attributes; the limit is %d",
						   op->name, problem->attr_count, KERNEL_MAX_ATTRS);
	for (int i = 0; i < problem->tensor_count; i++) {
		int status = plan_check_tensor(op, i, &problem->tensors[i], error);
		if (status)
			return status;
	}
	return KILN_OK;
}

static int check_limits(const struct kernel_limits *limits, char error[KERNEL_ERROR_MAX])
{
	if (limits->max_threads < 32 || limits->warp != 32 || limits->grid_x == 0)
		return plan_refuse(error, KILN_ENOTSUP,
						   "target %.16s has blocks of %u threads, warps of %u and grids of %u: "
						   "kernels need at least 32, 32 and 1",
						   limits->target, limits->max_threads, limits->warp, limits->grid_x);
	return KILN_OK;
}

int plan_problem(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	const struct plan_op *op;
	int status;

	memset(out, 0, sizeof(*out));
	status = find(problem, &op, error);
	if (!status)
		status = check_tensors(op, problem, error);
	if (!status && problem->tensor_count != plan_operand_count(op))
		status = plan_refuse(error, KILN_EINVAL, "%s takes %d tensors (%s), not %d", op->name,
							 plan_operand_count(op), op->operands, problem->tensor_count);
	if (!status)
		status = check_limits(limits, error);
	if (status)
		return status;

	memcpy(out->op, problem->op, strlen(problem->op) + 1);
	status = op->plan(problem, limits, out, error);
	if (status)
		memset(out, 0, sizeof(*out));
	return status;
}

int plan_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct plan_op *op;
	int status = find(problem, &op, error);

	if (!status)
		status = check_tensors(op, problem, error);
	if (status)
		return status;
	return op->infer(problem, error);
}
