/*
 * softmax.c: softmax, log_softmax and their backward: what a request must satisfy, and the kernel
 * that takes it.  The rows are in softmax_form.c.
 */
#include "softmax.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The four operators: operands 0 .. inputs are inputs, the next is the output. */
struct softmax_op {
	int inputs;
	bool log;
};

static struct softmax_op op_of(const struct kernel_problem *problem)
{
	return (struct softmax_op){strstr(problem->op, "backward") ? 2 : 1,
							   strncmp(problem->op, "log_", 4) == 0};
}

static const int operand_index[] = {0, 1, 2};

struct softmax_attrs {
	int axis;
	double scale;
};

static int read_attrs(const struct kernel_problem *problem, struct softmax_attrs *attrs,
					  char error[KERNEL_ERROR_MAX])
{
	int64_t rank = problem->tensors[0].rank, axis = -1;
	char name[16];
	int status = plan_attrs_check(problem, "axis, scale", error);

	if (status)
		return status;
	plan_operand_name(plan_find(problem->op), 0, name);
	if (rank == 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank 0; it needs a dimension to go along", problem->op,
						   name);
	attrs->scale = 1;
	status = plan_attr_int(problem, "axis", -rank, rank - 1, &axis, error);
	if (!status)
		status = plan_attr_real(problem, "scale", &attrs->scale, error);
	if (!status && problem->tensors[0].dtype != KILN_F64 && !isfinite((float)attrs->scale))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: scale is %g; %s is computed in f32, where it must be finite",
						   problem->op, attrs->scale, plan_dtype_name(problem->tensors[0].dtype));
	attrs->axis = (int)(axis < 0 ? axis + rank : axis);
	return status;
}

static int check(const struct kernel_problem *problem, struct softmax_attrs *attrs,
				 char error[KERNEL_ERROR_MAX])
{
	int inputs = op_of(problem).inputs;
	int status = rows_check_float(problem, 0, error);

	if (!status)
		status = read_attrs(problem, attrs, error);
	for (int i = 1; i <= inputs && !status; i++)
		status = rows_check_like(problem, i, 0, error);
	if (!status)
		status = rows_check_contiguous(problem, inputs, error);
	return status;
}

int softmax_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct softmax_op op = op_of(problem);
	struct softmax_attrs attrs;

	for (int i = 0; i < op.inputs; i++) {
		char name[16];
		plan_operand_name(plan_find(problem->op), i, name);
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			return plan_refuse(error, KILN_EINVAL, "%s: %s is missing", problem->op, name);
	}
	rows_infer_like(problem, op.inputs, 0);
	return check(problem, &attrs, error);
}

static void print_kernel(const struct softmax_form *form, const struct rows_shape *shape,
						 struct softmax_op op, bool loop, struct plan_text *id)
{
	plan_print(id, "softmax%s_%s<", op.inputs > 1 ? "_backward" : "",
			   shape->stream        ? "stream"
			   : shape->cluster > 1 ? "cluster"
									: "rows");
	rows_print_shape(id, form->dtype, &form->rows, shape);
	plan_print(id, ", %s, %s", op.log ? "true" : "false", loop ? "true" : "false");
	softmax_print_rows(id, form);
	plan_print(id, ">");
}

static int plan_rows(const struct softmax_form *form, const struct rows_shape *shape,
					 const struct kernel_limits *limits, struct softmax_op op, double scale,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	bool loop = rows_launch(&form->rows, &form->need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/softmax%s%s.cuh",
			 op.inputs > 1 ? "_backward" : "", shape->stream ? "_stream" : "");
	print_kernel(form, shape, op, loop, &id);
	if (id.full)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: the name of the kernel would be longer than %d characters", out->op,
						   KERNEL_INSTANTIATION_MAX);
	for (int i = 0; i <= op.inputs; i++)
		plan_arg_pointer(out, i);
	if (op.inputs > 1)
		softmax_real_arg(out, form->dtype, scale);
	else
		softmax_scale_args(out, form->dtype, scale);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.rows);
	return KILN_OK;
}

int softmax_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct softmax_op op = op_of(problem);
	struct rows_shape shapes[SOFTMAX_MAX_WAYS];
	struct softmax_attrs attrs;
	struct softmax_form form;
	int status = check(problem, &attrs, error), count, chosen;
	int64_t elements;

	if (status)
		return status;
	plan_elements(&problem->tensors[0], &elements);
	out->extents[op.inputs].written = true;
	if (elements == 0) {
		out->kind = KERNEL_NOTHING;
		snprintf(out->variant, sizeof(out->variant), "nothing");
		snprintf(out->note, sizeof(out->note), "there are no elements");
		return KILN_OK;
	}
	softmax_form(problem, operand_index, op.inputs + 1, attrs.axis, &form);
	count = softmax_shapes(&form, limits, shapes);
	chosen = rows_shape_find(shapes, count, choice);
	if (chosen < 0)
		return plan_refuse(
			error, KILN_EINVAL, "%s: there is no candidate \"%s\" for rows of %lld elements on %s",
			problem->op, choice ? choice : "", (long long)form.rows.columns, limits->target);
	rows_shape_name(&shapes[chosen], out->choice);
	snprintf(out->variant, sizeof(out->variant), "%.*s", (int)strcspn(out->choice, " "),
			 out->choice);
	status = plan_rows(&form, &shapes[chosen], limits, op, attrs.scale, out, error);
	if (status)
		return status;
	softmax_extents(problem, operand_index, op.inputs + 1,
					rows_alignment(&shapes[chosen], form.need.element), out);
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements: %u threads a row, %u vectors of %u bytes each",
			 (long long)form.rows.columns, shapes[chosen].size * shapes[chosen].cluster,
			 shapes[chosen].held, shapes[chosen].vector * form.need.element);
	return KILN_OK;
}

int softmax_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[][KERNEL_CHOICE_MAX], int most)
{
	struct rows_shape shapes[SOFTMAX_MAX_WAYS];
	char error[KERNEL_ERROR_MAX];
	struct softmax_attrs attrs;
	struct softmax_form form;
	int count;

	if (check(problem, &attrs, error))
		return 0;
	softmax_form(problem, operand_index, op_of(problem).inputs + 1, attrs.axis, &form);
	count = softmax_shapes(&form, limits, shapes);
	for (int i = 0; i < count && i < most; i++)
		rows_shape_name(&shapes[i], names[i]);
	return count < most ? count : most;
}
