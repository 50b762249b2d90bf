/*
 * ops.c: the way into the operators: finds the row, checks what holds of any operator, and then
 * calls the operator's own functions.
 */
#include "internal.h"

#include <string.h>

/* A problem as its operator sees it: complete, and without the choice. */
struct asked {
	const struct plan_op *row;
	struct kernel_problem problem;
	char operands[KERNEL_OPERANDS_MAX]; /* the names that this problem's operands have */
	const char *choice;                 /* NULL: none is given */
	char choice_text[KERNEL_CHOICE_MAX];
};

static int check_tensors(const struct asked *asked, int count, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = &asked->problem;

	if (problem->tensor_count < 0 || problem->tensor_count > count)
		return plan_refuse(error, KILN_EINVAL, "%s takes %d tensors (%s), not %d", asked->row->name,
						   count, asked->operands, problem->tensor_count);
	if (problem->attr_count < 0 || problem->attr_count > KERNEL_MAX_ATTRS)
		return plan_refuse(error, KILN_EINVAL, "%s cannot have %d attributes; the limit is %d",
						   asked->row->name, problem->attr_count, KERNEL_MAX_ATTRS);
	for (int i = 0; i < problem->tensor_count; i++) {
		int status =
			plan_check_tensor(problem->op, asked->operands, i, &problem->tensors[i], error);
		if (status)
			return status;
	}
	return KILN_OK;
}

/* Finds the operator and checks what can be said of each operand by itself.  The operands that the
 * caller left out at the end become tensors without a dtype. */
static int find_operator(const struct kernel_problem *problem, struct asked *out,
						 char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK, count;

	out->row = memchr(problem->op, 0, sizeof(problem->op)) ? plan_find(problem->op) : NULL;
	if (!out->row)
		return plan_refuse(error, KILN_EINVAL,
						   "there is no operator \"%.24s\"; `kiln ops` lists them", problem->op);
	if (out->row->names)
		status = out->row->names(problem, out->operands, error);
	else
		plan_operands(out->row, out->operands);
	if (status)
		return status;
	kernel_problem_copy(&out->problem, problem);
	out->problem.operands = out->operands;
	out->problem.attributes = out->row->attributes;
	count = plan_operand_count(out->operands);
	status = check_tensors(out, count, error);
	for (int i = problem->tensor_count; i < count && !status; i++)
		out->problem.tensors[i] = (struct kernel_tensor){.dtype = KILN_DTYPE_NONE};
	out->problem.tensor_count = count;
	return status;
}

static int check_required(const struct asked *asked, char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < asked->problem.tensor_count; i++) {
		char name[16];
		if (asked->problem.tensors[i].dtype != KILN_DTYPE_NONE ||
			plan_operand_optional(asked->operands, i))
			continue;
		plan_operand_name(asked->operands, i, name);
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s is missing; its operands are: %s (those with ? may be left out)",
						   asked->row->name, name, asked->operands);
	}
	return KILN_OK;
}

/* Takes the attribute "choice" out of the problem: no operator sees it among its own. */
static int take_choice(struct asked *asked, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem *problem = &asked->problem;

	asked->choice = NULL;
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		if (strncmp(attr->name, PLAN_CHOICE, sizeof(attr->name)) != 0)
			continue;
		if (asked->choice)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is given twice", problem->op);
		if (attr->kind != KILN_ATTR_STRING || attr->at ||
			strnlen(attr->s, sizeof(attr->s)) >= KERNEL_CHOICE_MAX)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is not a text of less than %d bytes",
							   problem->op, KERNEL_CHOICE_MAX);
		memcpy(asked->choice_text, attr->s, KERNEL_CHOICE_MAX);
		asked->choice = asked->choice_text;
		problem->attr_count--;
		memmove(&problem->attrs[i], &problem->attrs[i + 1],
				(size_t)(problem->attr_count - i) * sizeof(problem->attrs[0]));
		i--;
	}
	return KILN_OK;
}

/* Operands with names of the problem's own come with attributes that have such names, too: that
 * operator checks the names by itself. */
static int check_attributes(struct asked *asked, char error[KERNEL_ERROR_MAX])
{
	int status = take_choice(asked, error);

	if (!status && !asked->row->names)
		status = plan_attrs_check_names(&asked->problem, error);
	return status ? status : plan_attrs_check_values(&asked->problem, error);
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

/* Completes a plan by what the row says, and checks what holds of any: all operands are described,
 * and scratch memory has a limit.  An operand that is touched and says nothing of its address would
 * be launched at any. */
static int finish(const struct asked *asked, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = &asked->problem;

	if (!out->variant[0])
		memcpy(out->variant, out->choice, strcspn(out->choice, " "));
	memcpy(out->operands, asked->operands, strlen(asked->operands) + 1);
	out->operand_count = problem->tensor_count;
	for (int i = 0; i < out->operand_count; i++) {
		struct kernel_extent *extent = &out->extents[i];
		if (!asked->row->names) {
			extent->written = op_is_output(asked->row->operands[i].data);
			extent->kept = asked->row->operands[i].data == OP_KEPT;
		}
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			*extent = (struct kernel_extent){0};
		else if (extent->bytes > 0 && extent->alignment == 0)
			return plan_refuse(error, KILN_EINTERNAL,
							   "%s: the plan does not say how operand %d is aligned", problem->op,
							   i);
		else if (extent->alignment == 0)
			extent->alignment = 1;
		if (extent->bytes == 0)
			continue;
		plan_period(&problem->tensors[i], &extent->period, &extent->width);
		/* Between elements that lie apart there is what stays. */
		if (extent->written && plan_distinct_bytes(&problem->tensors[i]) < extent->bytes)
			extent->kept = true;
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
	struct asked asked;
	int status = find_operator(problem, &asked, error);

	kernel_plan_clear(out);
	if (!status)
		status = check_required(&asked, error);
	if (!status)
		status = check_attributes(&asked, error);
	if (!status)
		status = check_limits(limits, error);
	if (status)
		return status;
	memcpy(out->op, problem->op, strlen(problem->op) + 1);
	status = asked.row->plan(&asked.problem, limits, asked.choice, out, error);
	if (!status)
		status = finish(&asked, out, error);
	if (status)
		kernel_plan_clear(out);
	return status;
}

int plan_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX])
{
	struct asked asked;
	struct kernel_plan plan;
	int status = plan_problem(problem, limits, &plan, error);

	if (!status)
		status = find_operator(problem, &asked, error);
	if (!status)
		status = take_choice(&asked, error);
	if (status)
		return status;
	if (asked.row->choices && plan.kind == KERNEL_LAUNCH)
		return asked.row->choices(&asked.problem, limits, names);
	memcpy(names[0], plan.choice, KERNEL_CHOICE_MAX);
	return 1;
}

int plan_as_generic(struct kernel_problem *problem, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count];

	if (problem->attr_count >= KERNEL_MAX_ATTRS)
		return plan_refuse(error, KILN_ENOTSUP,
						   "the call has no attribute left to name the generic kernel");
	*attr = (struct kernel_attr){.name = PLAN_CHOICE};
	kernel_attr_set_text(problem, attr, PLAN_GENERIC, strlen(PLAN_GENERIC));
	problem->attr_count++;
	return plan_problem(problem, limits, out, error);
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

int plan_required(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct asked asked;
	int status = find_operator(problem, &asked, error);

	if (!status)
		status = check_required(&asked, error);
	for (int i = problem->tensor_count; !status && i < asked.problem.tensor_count; i++)
		problem->tensors[problem->tensor_count++] = asked.problem.tensors[i];
	return status;
}

/* No planner completes an input.  Where operands have names of the problem's own, the operator
 * knows which are inputs. */
static int check_inputs(const struct asked *asked, char error[KERNEL_ERROR_MAX])
{
	const struct op_operand *operand = asked->row->operands;

	for (int i = 0; !asked->row->names && operand[i].name; i++)
		if (asked->problem.tensors[i].dtype == KILN_DTYPE_NONE && operand[i].data != OP_WRITTEN &&
			operand[i].presence == OP_REQUIRED)
			return plan_refuse(error, KILN_EINVAL, "%s: %s is missing", asked->row->name,
							   operand[i].name);
	return KILN_OK;
}

int plan_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct asked asked;
	int status = find_operator(problem, &asked, error);

	if (!status)
		status = check_inputs(&asked, error);
	if (!status)
		status = check_attributes(&asked, error);
	if (!status)
		status = asked.row->infer(&asked.problem, error);
	if (status)
		return status;
	memcpy(problem->tensors, asked.problem.tensors,
		   sizeof(problem->tensors[0]) * (size_t)asked.problem.tensor_count);
	problem->tensor_count = asked.problem.tensor_count;
	return KILN_OK;
}

void plan_report(const struct kernel_problem *problem, uint64_t reported,
				 char error[KERNEL_ERROR_MAX])
{
	const struct plan_op *op = plan_find(problem->op);
	struct kernel_problem own = *problem;

	if (!op || !op->report)
		return;
	own.attributes = op->attributes;
	op->report(&own, reported, error);
}
