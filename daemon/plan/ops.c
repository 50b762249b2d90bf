/*
 * ops.c: the way into the operators: finds the row, checks what holds of any operator, and then
 * calls the operator's own functions.
 */
#include "internal.h"

#include <string.h>

/* A problem's operator, with the names that the operands of this problem have. */
struct found_op {
	const struct plan_op *row;
	char operands[KERNEL_OPERANDS_MAX];
};

static int ops_find(const struct kernel_problem *problem, struct found_op *op,
					char error[KERNEL_ERROR_MAX])
{
	op->row = memchr(problem->op, 0, sizeof(problem->op)) ? plan_find(problem->op) : NULL;
	if (op->row && op->row->names)
		return op->row->names(problem, op->operands, error);
	if (op->row) {
		plan_operands(op->row, op->operands);
		return KILN_OK;
	}
	return plan_refuse(error, KILN_EINVAL, "there is no operator \"%.24s\"; `kiln ops` lists them",
					   problem->op);
}

static int check_tensors(const struct found_op *op, const struct kernel_problem *problem,
						 char error[KERNEL_ERROR_MAX])
{
	int count = plan_operand_count(op->operands);

	if (problem->tensor_count < 0 || problem->tensor_count > count)
		return plan_refuse(error, KILN_EINVAL, "%s takes %d tensors (%s), not %d", op->row->name,
						   count, op->operands, problem->tensor_count);
	if (problem->attr_count < 0 || problem->attr_count > KERNEL_MAX_ATTRS)
		return plan_refuse(error, KILN_EINVAL, "%s cannot have %d attributes; the limit is %d",
						   op->row->name, problem->attr_count, KERNEL_MAX_ATTRS);
	for (int i = 0; i < problem->tensor_count; i++) {
		int status = plan_check_tensor(problem->op, op->operands, i, &problem->tensors[i], error);
		if (status)
			return status;
	}
	return KILN_OK;
}

/* The attributes are those of the row.  Where operands have names of the problem's own, attributes
 * may, too: that operator checks them by itself. */
static int check_attributes(const struct plan_op *op, const struct kernel_problem *problem,
							char error[KERNEL_ERROR_MAX])
{
	char names[256] = "";
	struct plan_text known = {.text = names, .size = sizeof(names)};

	if (op->names)
		return KILN_OK;
	for (const struct op_attribute *attribute = op->attributes; attribute->name; attribute++)
		plan_print(&known, "%s%s", names[0] ? ", " : "", attribute->name);
	return plan_attrs_check(problem, names, error);
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

/* What the caller left out at the end is written as left out. */
static void complete(const struct found_op *op, struct kernel_problem *problem)
{
	int count = plan_operand_count(op->operands);

	for (int i = problem->tensor_count; i < count; i++)
		problem->tensors[i] = (struct kernel_tensor){.dtype = KILN_DTYPE_NONE};
	problem->tensor_count = count;
}

/* What is required must be there. */
static int check_required(const struct found_op *op, struct kernel_problem *problem,
						  char error[KERNEL_ERROR_MAX])
{
	int count = plan_operand_count(op->operands);

	complete(op, problem);
	for (int i = 0; i < count; i++) {
		char name[16];
		plan_operand_name(op->operands, i, name);
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE && !plan_operand_optional(op->operands, i))
			return plan_refuse(error, KILN_EINVAL,
							   "%s: %s is missing; its operands are: %s (those with ? may be left "
							   "out)",
							   op->row->name, name, op->operands);
	}
	return KILN_OK;
}

/* Takes the attribute "choice" out of the problem: no operator sees it among its own. */
static int take_choice(struct kernel_problem *problem, const char **choice,
					   char text[KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX])
{
	*choice = NULL;
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		if (strncmp(attr->name, PLAN_CHOICE, sizeof(attr->name)) != 0)
			continue;
		if (*choice)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is given twice", problem->op);
		if (attr->kind != KILN_ATTR_STRING || attr->at ||
			strnlen(attr->s, sizeof(attr->s)) >= KERNEL_CHOICE_MAX)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is not a text of less than %d bytes",
							   problem->op, KERNEL_CHOICE_MAX);
		memcpy(text, attr->s, KERNEL_CHOICE_MAX);
		text[KERNEL_CHOICE_MAX - 1] = 0;
		*choice = text;
		problem->attr_count--;
		memmove(&problem->attrs[i], &problem->attrs[i + 1],
				(size_t)(problem->attr_count - i) * sizeof(problem->attrs[0]));
		i--;
	}
	return KILN_OK;
}

/* What holds of any operator's plan: all operands are described, and scratch memory has a limit.
 * An operand that is touched and says nothing of its address would be launched at any. */
static int finish(const struct found_op *op, const struct kernel_problem *problem,
				  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	memcpy(out->operands, op->operands, strlen(op->operands) + 1);
	out->operand_count = problem->tensor_count;
	for (int i = 0; i < out->operand_count; i++) {
		struct kernel_extent *extent = &out->extents[i];
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			*extent = (struct kernel_extent){0};
		else if (extent->bytes > 0 && extent->alignment == 0)
			return plan_refuse(error, KILN_EINTERNAL,
							   "%s: the plan does not say how operand %d is aligned", problem->op,
							   i);
		else if (extent->alignment == 0)
			extent->alignment = 1;
	}
	if (out->scratch.bytes > KERNEL_SCRATCH_MAX || out->scratch.counters > out->scratch.bytes)
		return plan_refuse(
			error, KILN_ENOTSUP,
			"%s: the kernel for these shapes would need %llu bytes of scratch memory, "
			"%llu of them counters; the limit is %u",
			problem->op, (unsigned long long)out->scratch.bytes,
			(unsigned long long)out->scratch.counters, KERNEL_SCRATCH_MAX);
	return KILN_OK;
}

int plan_problem(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole;
	char text[KERNEL_CHOICE_MAX];
	struct found_op op;
	const char *choice = NULL;
	int status;

	memset(out, 0, sizeof(*out));
	status = ops_find(problem, &op, error);
	if (!status)
		status = check_tensors(&op, problem, error);
	if (!status) {
		whole = *problem;
		whole.operands = op.operands;
		status = check_required(&op, &whole, error);
	}
	if (!status)
		status = take_choice(&whole, &choice, text, error);
	if (!status)
		status = check_attributes(op.row, &whole, error);
	if (!status)
		status = check_limits(limits, error);
	if (status)
		return status;

	memcpy(out->op, problem->op, strlen(problem->op) + 1);
	status = op.row->plan(&whole, limits, choice, out, error);
	if (!status)
		status = finish(&op, &whole, out, error);
	if (status)
		memset(out, 0, sizeof(*out));
	return status;
}

int plan_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole = *problem;
	char text[KERNEL_CHOICE_MAX];
	struct found_op op;
	const char *choice;
	struct kernel_plan plan;
	int status = plan_problem(problem, limits, &plan, error);

	if (!status)
		status = ops_find(problem, &op, error);
	if (status)
		return status;
	if (!op.row->choices || plan.kind != KERNEL_LAUNCH) {
		memcpy(names[0], plan.choice, KERNEL_CHOICE_MAX);
		return 1;
	}
	whole.operands = op.operands;
	check_required(&op, &whole, error);
	take_choice(&whole, &choice, text, error);
	return op.row->choices(&whole, limits, names, PLAN_MAX_CHOICES);
}

int plan_generic_at(const struct plan_op *op, int index, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem problem = {0};

	if (!op->generics || index < 0 || op->generics(index, &problem))
		return plan_refuse(error, KILN_ENOENT, "%s: there is no generic kernel number %d", op->name,
						   index);
	memcpy(problem.op, op->name, strlen(op->name) + 1);
	plan_made_word(&problem, PLAN_CHOICE, PLAN_GENERIC);
	return plan_problem(&problem, limits, out, error);
}

int plan_required(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole = *problem;
	struct found_op op;
	int status = ops_find(problem, &op, error);

	if (!status)
		status = check_tensors(&op, problem, error);
	return status ? status : check_required(&op, &whole, error);
}

int plan_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem plain;
	char text[KERNEL_CHOICE_MAX];
	struct found_op op;
	const char *choice;
	int status = ops_find(problem, &op, error);

	if (!status)
		status = check_tensors(&op, problem, error);
	if (status)
		return status;
	complete(&op, problem);
	plain = *problem;
	plain.operands = op.operands;
	status = take_choice(&plain, &choice, text, error);
	if (!status)
		status = check_attributes(op.row, &plain, error);
	if (!status)
		status = op.row->infer(&plain, error);
	if (status)
		return status;
	memcpy(problem->tensors, plain.tensors, sizeof(problem->tensors));
	problem->tensor_count = plain.tensor_count;
	return KILN_OK;
}

void plan_report(const struct kernel_problem *problem, uint64_t reported,
				 char error[KERNEL_ERROR_MAX])
{
	const struct plan_op *op = plan_find(problem->op);

	if (op && op->report)
		op->report(problem, reported, error);
}
