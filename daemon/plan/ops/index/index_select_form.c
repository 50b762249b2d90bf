/*
 * index_select_form.c: a request of index_select as rows: which elements of dst one index moves,
 * and where they are in src.
 */
#include "index_select.h"

#include <string.h>

/* How many dimensions at the end, after the axis, lie without gaps in src. */
static int count_run(const struct index_problem *index)
{
	const struct kernel_tensor *src = &index->few;
	int64_t expected = 1;
	int k = src->rank;

	while (k > index->axis + 1 && (src->shape[k - 1] == 1 || src->stride[k - 1] == expected)) {
		expected *= src->shape[k - 1];
		k--;
	}
	return src->rank - k;
}

/* Numbers the rows of dst, whose last `axes` dimensions are columns. */
static void number_rows(struct select_problem *out, int axes)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int64_t src[KILN_MAX_RANK], idx[KILN_MAX_RANK], other[KILN_MAX_RANK] = {0}, next = 1;
	const int64_t *stride[] = {src, idx, other};
	int first = dst->rank - axes, culprit;
	bool rows = out->kind == SELECT_ROWS;

	memcpy(src, index->few.stride, sizeof(src));
	memcpy(idx, index->idx_stride, sizeof(idx));
	src[index->axis] = 0;
	for (int k = dst->rank - 1; k >= 0 && !index->op.each; k--) {
		/* The dimensions before the axis of an embedding have indices of their own. */
		if (k == index->axis || (rows && k >= first) || (index->op.flat && k < index->axis))
			continue;
		other[k] = next;
		next *= dst->shape[k];
	}
	(void)rows_form(&out->form, dst->rank, dst->shape, 3, stride, first, axes, &culprit);
	out->axis = index->few.stride[index->axis];
}

/* As many dimensions at the end as merge in all operands are columns. */
static void number_elements(struct select_problem *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int axes = 0, k = dst->rank - 1;

	/* A lone dimension numbers the rows, so that its size is an argument. */
	while (k > 0 && dst->shape[k] == 1)
		k--;
	if (k > 0)
		axes = 1;
	for (; axes < dst->rank && dst->rank - axes > index->axis + 1; axes++) {
		int64_t src = index->few.stride[dst->rank - axes - 1];
		int64_t idx = index->idx_stride[dst->rank - axes - 1];
		int64_t size = dst->shape[dst->rank - axes];
		if (axes == 0 || src != index->few.stride[dst->rank - axes] * size ||
			idx != index->idx_stride[dst->rank - axes] * size)
			break;
	}
	number_rows(out, axes);
}

/* Are all strides of src multiples of so many elements, but for those of the run itself? */
static bool divides(const struct index_problem *index, int64_t unit)
{
	for (int k = 0; k <= index->axis; k++)
		if (index->few.shape[k] > 1 && index->few.stride[k] % unit)
			return false;
	return true;
}

static uint32_t find_width(const struct kernel_problem *problem,
						   const struct select_problem *select)
{
	const struct rows_form *form = &select->form;
	uint32_t element = select->index.element, width = 16;

	while (width > element &&
		   ((uint64_t)form->columns * element % width || (uint64_t)select->axis * element % width ||
			problem->tensors[select->index.op.few].alignment < width ||
			problem->tensors[select->index.op.many].alignment < width))
		width /= 2;
	return rows_narrow(form, 0, element, width);
}

static void find_kind(const struct kernel_problem *problem, struct select_problem *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int last = dst->rank - 1, run;
	int64_t unit = 1;
	uint64_t bytes;

	run = index->op.each ? 0 : count_run(index);
	for (int k = dst->rank - run; k < dst->rank; k++)
		unit *= dst->shape[k];
	bytes = (uint64_t)unit * index->element;
	while (last > index->axis && dst->shape[last] == 1)
		last--;
	out->unit = 1;
	out->kind = SELECT_ELEMENTS;
	if (index->axis > 0 && last == index->axis && !index->op.flat) {
		out->kind = SELECT_GATHER;
	} else if (run > 0 && unit > 1) {
		bool all = run == dst->rank - 1 - index->axis && !index->op.flat;
		bool little = all && index->axis > 0 && bytes <= 16 && (bytes & (bytes - 1)) == 0 &&
					  divides(index, unit) && problem->tensors[index->op.few].alignment >= bytes &&
					  problem->tensors[index->op.many].alignment >= bytes;
		out->kind = little ? SELECT_GATHER : SELECT_ROWS;
		out->unit = little ? unit : 1;
	}
	if (out->kind == SELECT_ROWS) {
		number_rows(out, run);
		out->width = find_width(problem, out);
	} else {
		number_elements(out);
	}
}

int index_select_check(const struct kernel_problem *problem, struct select_problem *out,
					   char error[KERNEL_ERROR_MAX])
{
	int status;

	memset(out, 0, sizeof(*out));
	status = index_check(problem, &out->index, error);
	if (status)
		return status;
	plan_elements(&out->index.many, &out->count);
	if (out->count > 0)
		find_kind(problem, out);
	return KILN_OK;
}

void index_select_extents(const struct kernel_problem *problem, uint32_t src, uint32_t idx,
						  uint32_t dst, struct kernel_plan *out)
{
	const uint32_t alignment[] = {src, idx, dst};

	for (int i = 0; i < 3; i++)
		plan_touch(problem, i, alignment[i], out);
}
