/*
 * masked_softmax.c: masked_softmax and masked_softmax_backward: the kernel that takes a problem.
 * masked_softmax_check.c checks a problem, masked_softmax_mask.c describes its mask to kernels; the
 * candidates are softmax's.
 */
#include "masked_softmax.h"

#include <stdio.h>
#include <string.h>

/* A problem with its form; the form only if there are elements. */
static int read_problem(const struct kernel_problem *problem, struct masked_problem *masked,
						int64_t *elements, char error[KERNEL_ERROR_MAX])
{
	int status = masked_read(problem, masked, error);

	if (status)
		return status;
	plan_elements(&problem->tensors[0], elements);
	if (*elements)
		masked_form(masked);
	return KILN_OK;
}

int masked_softmax_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	bool backward = strstr(problem->op, "backward") != NULL;
	struct masked_problem masked;

	rows_infer_like(problem, backward ? 3 : 2, 0);
	return masked_read(problem, &masked, error);
}

/* ", 1, List<>, List<512>, u32": the output is contiguous and needs no strides. */
static void print_inputs(const struct masked_problem *masked, struct plan_text *id)
{
	const struct rows_form *form = &masked->form.rows;

	for (int i = 0; i < form->operands - 1; i++)
		rows_print_step(id, form, i);
	rows_print_sizes(id, form);
	for (int i = 0; i < form->operands - 1; i++)
		rows_print_strides(id, form, i);
	plan_print(id, ", %s", rows_index_type(form));
}

static void masked_softmax_print_kernel(const struct masked_problem *masked,
										const struct rows_shape *shape, bool loop,
										struct plan_text *id)
{
	bool none = !masked->masks;

	plan_print(id, "%ssoftmax%s_%s<", none ? "" : "masked_", masked->backward ? "_backward" : "",
			   shape->pairs         ? "pairs"
			   : shape->staged      ? "staged"
			   : shape->stream      ? "stream"
			   : shape->cluster > 1 ? "cluster"
									: "rows");
	rows_print_shape(id, masked->form.dtype, &masked->form.rows, shape);
	if (shape->staged) {
		masked_print_mask(id, masked, shape);
		plan_print(id, ", %s", rows_index_type(&masked->form.rows));
	} else if (none) {
		plan_print(id, ", false, %s", loop ? "true" : "false");
		softmax_print_rows(id, &masked->form);
	} else {
		masked_print_mask(id, masked, shape);
		plan_print(id, ", %s", loop ? "true" : "false");
		print_inputs(masked, id);
	}
	plan_print(id, ">");
}

void masked_scale_args(const struct masked_problem *masked, struct kernel_plan *out)
{
	kiln_dtype dtype = masked->form.dtype;

	if (masked->backward) {
		plan_arg_real(out, dtype, masked->scale);
	} else if (masked->kind == MASKED_ADDITIVE) {
		plan_arg_real(out, dtype, masked->scale);
		plan_arg_real(out, dtype, 1.4426950408889634074);
		plan_arg_real(out, dtype, 1);
	} else {
		softmax_scale_args(out, dtype, masked->scale);
	}
}

static void add_args(const struct masked_problem *masked, struct kernel_plan *out)
{
	for (int i = 0; i < masked->count - 1; i++)
		plan_arg_pointer(out, masked->inputs[i]);
	if (masked->kind == MASKED_CAUSAL)
		plan_arg_scalar(out, 8, (uint64_t)masked->diagonal);
	else if (masked->mask >= 0)
		plan_arg_pointer(out, masked->mask);
	plan_arg_pointer(out, masked->output);
	masked_scale_args(masked, out);
	plan_arg_scalar(out, 8, (uint64_t)masked->form.rows.rows);
}

void masked_extents(const struct masked_problem *masked, uint32_t rows, uint32_t mask,
					struct kernel_plan *out)
{
	softmax_extents(masked->problem, masked->inputs, masked->count, rows, out);
	if (masked->mask >= 0)
		plan_touch(masked->problem, masked->mask, mask, out);
}

static int plan_rows(const struct masked_problem *masked, const struct rows_shape *shape,
					 const struct kernel_limits *limits, struct kernel_plan *out,
					 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	bool loop = rows_launch(&masked->form.rows, &masked->form.need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/%ssoftmax%s%s.cuh",
			 !masked->masks ? "" : "masked_", masked->backward && !shape->staged ? "_backward" : "",
			 shape->pairs    ? "_pairs"
			 : shape->staged ? "_staged"
			 : shape->stream ? "_stream"
							 : "");
	masked_softmax_print_kernel(masked, shape, loop, &id);
	add_args(masked, out);
	masked_extents(masked, rows_alignment(shape, masked->form.need.element),
				   masked->mask >= 0 ? masked_alignment(masked, shape) : 0, out);
	return plan_check_name(&id, out, error);
}

int masked_softmax_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct rows_shape shapes[SOFTMAX_MAX_WAYS];
	struct masked_problem masked;
	int64_t elements;
	int status = read_problem(problem, &masked, &elements, error), count, chosen;

	if (status)
		return status;
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice)) {
		masked_generic(&masked, limits, out);
		return KILN_OK;
	}
	count = softmax_shapes(&masked.form, limits, shapes);
	chosen = rows_shape_find(shapes, count, choice);
	if (chosen < 0)
		return rows_no_candidate(problem, choice, &masked.form.rows, limits, error);
	rows_shape_name(&shapes[chosen], out->choice);
	rows_describe(&masked.form.rows, &masked.form.need, &shapes[chosen], "", out);
	return plan_rows(&masked, &shapes[chosen], limits, out, error);
}

int masked_softmax_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct rows_shape shapes[SOFTMAX_MAX_WAYS];
	char error[KERNEL_ERROR_MAX];
	struct masked_problem masked;
	int64_t elements;
	int count;

	if (read_problem(problem, &masked, &elements, error) || elements == 0)
		return 0;
	count = softmax_shapes(&masked.form, limits, shapes);
	for (int i = 0; i < count; i++)
		rows_shape_name(&shapes[i], names[i]);
	return count;
}
