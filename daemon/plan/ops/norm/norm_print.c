/*
 * norm_print.c: where elements of the inputs of norm operators lie, as the type NormPlace that
 * their kernels take (kernel_src/common/norm_operands.cuh).
 */
#include "norm.h"

struct norm_place norm_place(const struct norm_problem *norm)
{
	return (struct norm_place){.problem = norm->problem,
							   .form = &norm->form,
							   .pieces = norm->pieces,
							   .axes = norm->axes,
							   .operand = {norm->at.x, norm->at.residual},
							   .number = {0, norm->residual}};
}

/* Sizes or strides of dimensions [first, last], fastest first, without sizes of 1. */
static void print_list(struct plan_text *id, const struct kernel_tensor *x, int first, int last,
					   const int64_t *values)
{
	const char *between = "";

	plan_print(id, ", List<");
	for (int k = last; k >= first; k--) {
		if (x->shape[k] == 1)
			continue;
		plan_print(id, "%s%lld", between, (long long)values[k]);
		between = ", ";
	}
	plan_print(id, ">");
}

/* ", List<sizes>, List<x>, List<other>" of the columns. */
static void print_columns(struct plan_text *id, const struct norm_place *place)
{
	const struct kernel_tensor *tensors = place->problem->tensors, *x = &tensors[place->operand[0]];
	int first = x->rank - place->axes, slowest = first, other = place->operand[1];

	if (place->pieces) {
		while (x->shape[slowest] == 1)
			slowest++;
		print_list(id, x, slowest + 1, x->rank - 1, x->shape);
		print_list(id, x, first, x->rank - 1, x->stride);
		print_list(id, x, first, other >= 0 ? x->rank - 1 : -1,
				   tensors[other >= 0 ? other : 0].stride);
	} else {
		plan_print(id, ", List<>, List<%lld>", (long long)place->form->step[place->number[0]]);
		if (other >= 0)
			plan_print(id, ", List<%lld>", (long long)place->form->step[place->number[1]]);
		else
			plan_print(id, ", List<>");
	}
}

void norm_print_held(struct plan_text *id, const struct norm_way *way, bool loop)
{
	plan_print(id, ", %u, %s", way->together, loop ? "true" : "false");
	if (way->turn)
		plan_print(id, ", %u", way->turn);
	plan_print(id, ">");
}

/* The type that the offsets of all operands fit in. */
static const char *offset_type(const struct kernel_problem *problem)
{
	for (int i = 0; i < problem->tensor_count; i++) {
		uint64_t bytes;
		if (plan_has(problem, i) && plan_extent(&problem->tensors[i], &bytes) &&
			bytes / kernel_dtype_bytes(problem->tensors[i].dtype) > INT32_MAX / 2)
			return "i64";
	}
	return "u32";
}

/* "NormPlace<List<>, List<1024>, List<>, List<>, List<1>, List<>, u32>": sizes, x, the other of the
 * rows, the same of the columns. */
void norm_print_place(struct plan_text *id, const struct norm_place *place)
{
	const struct rows_form *form = place->form;

	plan_print(id, ", NormPlace<List<");
	for (int k = form->rank - 1; k > 0; k--)
		plan_print(id, "%s%lld", k < form->rank - 1 ? ", " : "", (long long)form->size[k]);
	plan_print(id, ">");
	rows_print_strides(id, form, place->number[0]);
	if (place->operand[1] >= 0)
		rows_print_strides(id, form, place->number[1]);
	else
		plan_print(id, ", List<>");
	print_columns(id, place);
	plan_print(id, ", %s>", offset_type(place->problem));
}
