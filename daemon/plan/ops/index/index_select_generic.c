/*
 * index_select_generic.c: the kernels of index_select that are told all sizes, and problems that
 * plan each of them once.
 */
#include "index_select.h"

#include <stdio.h>

static void pass_space(const struct select_problem *select, struct kernel_plan *out)
{
	rows_pass_sizes(out, &select->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &select->form, i);
}

static void plan_generic_rows(const struct kernel_problem *problem,
							  const struct select_problem *select,
							  const struct kernel_limits *limits, struct kernel_plan *out)
{
	const struct index_problem *index = &select->index;
	uint32_t width = select->width == 16 ? 16 : index->element;
	int64_t columns = select->form.columns * index->element / width;
	int64_t count = select->count * index->element / width;

	plan_generic_spread(out, limits, "ops/index_select.cuh", (uint64_t)plan_divide_up(count, 2),
						SELECT_THREADS);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_rows_generic<%u>", width);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)count);
	plan_arg_divisor(out, 8, (uint64_t)columns);
	plan_arg_scalar(out, 8, (uint64_t)index->few.shape[index->axis]);
	plan_arg_scalar(out, 8, (uint64_t)select->axis);
	plan_arg_scalar(out, 4, index->element);
	plan_arg_scalar(out, 4, index->index_bytes);
	plan_arg_scalar(out, 4, index->bounds);
	pass_space(select, out);
	index_select_extents(problem, width, index->index_bytes, width, out);
	snprintf(out->note, sizeof(out->note),
			 "an index moves %lld vectors of %u bytes; sizes and strides are arguments",
			 (long long)columns, width);
}

static void plan_generic_elements(const struct kernel_problem *problem,
								  const struct select_problem *select,
								  const struct kernel_limits *limits, struct kernel_plan *out)
{
	const struct index_problem *index = &select->index;
	uint32_t vector = index->element <= 4 ? 4 : 16 / index->element;
	bool run = select->form.columns % vector == 0;
	bool whole = problem->tensors[index->op.many].alignment >= vector * index->element;

	plan_generic_spread(out, limits, "ops/index_select.cuh",
						(uint64_t)plan_divide_up(select->count, vector), SELECT_THREADS);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_elements_generic<%u>",
			 index->element);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)select->count);
	plan_arg_divisor(out, 8, (uint64_t)select->form.columns);
	plan_arg_scalar(out, 8, (uint64_t)index->few.shape[index->axis]);
	plan_arg_scalar(out, 8, (uint64_t)select->axis);
	plan_arg_scalar(out, 4, run);
	plan_arg_scalar(out, 4, whole);
	plan_arg_scalar(out, 4, index->index_bytes);
	plan_arg_scalar(out, 4, index->bounds);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[1]);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[2]);
	pass_space(select, out);
	index_select_extents(problem, index->element, index->index_bytes,
						 whole ? vector * index->element : index->element, out);
	snprintf(out->note, sizeof(out->note),
			 "a thread makes %u elements; sizes and strides are arguments", vector);
}

void index_select_generic(const struct kernel_problem *problem, const struct select_problem *select,
						  const struct kernel_limits *limits, struct kernel_plan *out)
{
	if (select->kind == SELECT_ROWS)
		plan_generic_rows(problem, select, limits, out);
	else
		plan_generic_elements(problem, select, limits, out);
}

/* One of each size. */
static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_I8, KILN_F64, KILN_C128};

int index_select_generics(int index, struct kernel_problem *out)
{
	/* Rows of such elements, which one index moves, and elements apart. */
	int64_t columns = index < 5 ? 7 : 1;

	if (index >= 10)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index % 5], 2, (const int64_t[]){3, columns});
	plan_made_tensor(out, 1, KILN_I32, 1, (const int64_t[]){4});
	plan_made_tensor(out, 2, elements[index % 5], 2, (const int64_t[]){4, columns});
	return KILN_OK;
}

int take_along_axis_generics(int index, struct kernel_problem *out)
{
	if (index >= 5)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index], 2, (const int64_t[]){3, 7});
	plan_made_tensor(out, 1, KILN_I32, 2, (const int64_t[]){3, 4});
	plan_made_tensor(out, 2, elements[index], 2, (const int64_t[]){3, 4});
	return KILN_OK;
}
