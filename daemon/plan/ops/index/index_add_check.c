/*
 * index_add_check.c: what a request for sums by indices must satisfy, and the parts of plans that
 * all ways to make them have.
 */
#include "index.h"

#include <string.h>

/* ---- The request ---- */

/* How many dimensions behind the axis lie without gaps in all operands. */
static int count_columns(const struct index_add *add)
{
	const struct kernel_tensor *many = &add->index.many, *base = &add->index.base;
	int64_t expected = 1;
	int k = many->rank;

	if (add->index.op.each)
		return 0;
	while (k > add->index.axis + 1 &&
		   (many->shape[k - 1] == 1 ||
			(many->stride[k - 1] == expected &&
			 (add->index.op.base < 0 || base->stride[k - 1] == expected)))) {
		expected *= many->shape[k - 1];
		k--;
	}
	return many->rank - k;
}

/* Numbers the slices: all dimensions but the axis and the columns. */
static void number_slices(struct index_add *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *many = &index->many;
	int64_t shape[KILN_MAX_RANK], strides[3][KILN_MAX_RANK];
	const int64_t *stride[] = {strides[0], strides[1], strides[2]};
	int axes = count_columns(out), rank = 0, culprit;

	out->inner = 1;
	for (int k = 0; k < many->rank; k++) {
		if (k == index->axis)
			continue;
		shape[rank] = many->shape[k];
		strides[0][rank] = many->stride[k];
		strides[1][rank] = index->op.base < 0 ? 0 : index->base.stride[k];
		strides[2][rank] = index->idx_stride[k];
		if (k >= many->rank - axes) /* columns of what is left out merge */
			strides[1][rank] = many->stride[k];
		if (k > index->axis && k < many->rank - axes)
			out->inner *= many->shape[k];
		rank++;
	}
	for (int k = rank - axes; k < rank; k++)
		strides[2][k] = 0;
	(void)rows_form(&out->form, rank, shape, 3, stride, rank - axes, axes, &culprit);
	out->many_axis = many->stride[index->axis];
	out->base_axis = index->op.base < 0 ? 0 : index->base.stride[index->axis];
	out->idx_step = index->idx_stride[index->axis];
}

static bool is_aligned(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t bytes)
{
	const struct index_problem *index = &add->index;
	uint32_t element = index->element;
	bool base = index->op.base >= 0;

	return (uint64_t)add->form.columns * element % bytes == 0 &&
		   problem->tensors[index->op.many].alignment >= bytes &&
		   problem->tensors[index->op.few].alignment >= bytes &&
		   (uint64_t)add->many_axis * element % bytes == 0 &&
		   rows_narrow(&add->form, 0, element, bytes) == bytes &&
		   (!base || (problem->tensors[index->op.base].alignment >= bytes &&
					  (uint64_t)add->base_axis * element % bytes == 0 &&
					  rows_narrow(&add->form, 1, element, bytes) == bytes));
}

/* Is it an integer that 64 bits hold? */
static bool is_whole(double value)
{
	return value <= 0x1p53 && value >= -0x1p53 && (double)(int64_t)value == value;
}

int index_add_check(const struct kernel_problem *problem, struct index_add *out,
					char error[KERNEL_ERROR_MAX])
{
	bool scaled = strcmp(problem->op, "index_add") == 0;
	int status;

	memset(out, 0, sizeof(*out));
	status = index_check(problem, &out->index, error);
	if (status)
		return status;
	out->count = out->index.many.shape[out->index.axis];
	out->end = out->index.few.shape[out->index.axis];
	out->alpha = scaled ? plan_real(problem, "alpha") : 1;
	if (!plan_is_float(out->index.dtype) && !is_whole(out->alpha))
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: alpha is %g; with elements of %s it must be an integer, -2^53 to 2^53",
			problem->op, out->alpha, plan_dtype_name(out->index.dtype));
	if (out->count > UINT32_MAX)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: a list has %lld indices; it may have %u at most", problem->op,
						   (long long)out->count, UINT32_MAX);
	out->any_order = !plan_int(problem, "deterministic");
	number_slices(out);
	out->vector = 16 / out->index.element;
	while (out->vector > 1 && !is_aligned(problem, out, out->vector * out->index.element))
		out->vector /= 2;
	return KILN_OK;
}

/* ---- Plans ---- */

/* Integers wrap whatever their sign is. */
const char *index_add_element(kiln_dtype dtype)
{
	static const char *const words[] = {"u8", "u16", "u32", "u64"};
	uint32_t bytes = kernel_dtype_bytes(dtype);

	return plan_is_float(dtype) ? plan_dtype_name(dtype)
								: words[bytes == 8   ? 3
										: bytes == 4 ? 2
													 : bytes - 1];
}

void index_add_pass_operands(const struct index_add *add, struct kernel_plan *out)
{
	const struct index_problem *index = &add->index;

	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	if (index->op.base >= 0)
		plan_arg_pointer(out, index->op.base);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_pointer(out, index->op.few);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)add->form.rows);
	plan_arg_scalar(out, 8, (uint64_t)add->count);
	plan_arg_scalar(out, 8, (uint64_t)add->end);
	plan_arg_scalar(out, 8, (uint64_t)index->padding);
}

void index_add_alpha(const struct index_add *add, struct kernel_plan *out)
{
	/* One of a float may be beyond all integers. */
	if (plan_is_float(add->index.dtype))
		plan_arg_real(out, add->index.dtype, add->alpha);
	else if (add->index.element == 8)
		plan_arg_scalar(out, 8, (uint64_t)(int64_t)add->alpha);
	else
		plan_arg_scalar(out, 4, (uint32_t)(int64_t)add->alpha);
}

void index_add_extents(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t vector, uint32_t load, struct kernel_plan *out)
{
	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i, i == 1 ? load : vector * add->index.element, out);
	if (add->index.op.base >= 0)
		plan_over(problem, add->index.op.few, add->index.op.base, out);
}

void index_add_print_places(const struct index_add *add, struct plan_text *id)
{
	plan_print(id, ", IndexAddPlaces<%lld, %lld, %lld, %lld, %lld", (long long)add->inner,
			   (long long)add->form.columns, (long long)add->many_axis, (long long)add->base_axis,
			   (long long)add->idx_step);
	rows_print_sizes(id, &add->form);
	for (int i = 0; i < 3; i++)
		rows_print_strides(id, &add->form, i);
	plan_print(id, ">, %s", add->end < INT32_MAX ? "u32" : "u64");
}

void index_add_pass_sizes(const struct index_add *add, struct kernel_plan *out)
{
	plan_arg_scalar(out, 8, (uint64_t)add->inner);
	plan_arg_scalar(out, 8, (uint64_t)add->form.columns);
	plan_arg_scalar(out, 8, (uint64_t)add->many_axis);
	plan_arg_scalar(out, 8, (uint64_t)add->base_axis);
	plan_arg_scalar(out, 8, (uint64_t)add->idx_step);
	plan_arg_scalar(out, 4, add->index.index_bytes);
	plan_arg_scalar(out, 4, add->index.bounds);
	plan_arg_scalar(out, 4, add->index.op.each);
}
