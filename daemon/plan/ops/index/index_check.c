/*
 * index_check.c: what the operators with indices ask of a request, and the request with operands of
 * one rank.
 */
#include "index.h"

#include <string.h>

static const struct index_op ops[] = {
	{"index_select", .few = 0, .many = 2, .base = -1, .output = 2},
	{"embedding", .few = 0, .many = 2, .base = -1, .output = 2, .flat = true},
	{"take_along_axis", .few = 0, .many = 2, .base = -1, .output = 2, .each = true},
	{"index_select_backward", .few = 2, .many = 0, .base = -1, .output = 2, .adds = true},
	{"embedding_backward", .few = 2, .many = 0, .base = -1, .output = 2, .adds = true,
	 .flat = true},
	{"index_add", .few = 3, .many = 2, .base = 0, .output = 3, .adds = true},
	{"scatter_add", .few = 3, .many = 2, .base = 0, .output = 3, .adds = true, .each = true},
};

#define IDX 1

static const struct index_op *op_of(const struct kernel_problem *problem)
{
	const struct index_op *op = ops;

	while (strcmp(op->name, problem->op) != 0)
		op++;
	return op;
}

static int index_check_dtypes(const struct kernel_problem *problem, const struct index_op *op,
							  char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *first = &problem->tensors[0], *idx = &problem->tensors[IDX];
	char name[16], other[16];
	int status = KILN_OK;

	plan_operand_name(problem->operands, 0, name);
	if (idx->dtype != KILN_U8 && idx->dtype != KILN_U16 && idx->dtype != KILN_I32 &&
		idx->dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: idx is %s; it must be u8, u16, i32 or i64",
						   problem->op, plan_dtype_name(idx->dtype));
	for (int i = 2; i < problem->tensor_count; i++) {
		plan_operand_name(problem->operands, i, other);
		if (problem->tensors[i].dtype != first->dtype)
			return plan_refuse(error, KILN_EINVAL, "%s: %s is %s and %s is %s; they must agree",
							   problem->op, name, plan_dtype_name(first->dtype), other,
							   plan_dtype_name(problem->tensors[i].dtype));
	}
	if (op->adds)
		status = plan_check_summand(problem, 0, error);
	for (int i = 0; i < problem->tensor_count && !status; i++)
		status = rows_check_aligned(problem, i, error);
	return status;
}

/* ---- Shapes ---- */

static int check_rank(const struct kernel_problem *problem, int operand, int rank, const char *why,
					  char error[KERNEL_ERROR_MAX])
{
	char name[16];

	if (problem->tensors[operand].rank == rank)
		return KILN_OK;
	plan_operand_name(problem->operands, operand, name);
	return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; it must have rank %d%s",
					   problem->op, name, problem->tensors[operand].rank, rank, why);
}

/* Rows of few at the places of many: all dimensions of idx come before the one of a row. */
static int check_flat(const struct kernel_problem *problem, const struct index_op *op,
					  char error[KERNEL_ERROR_MAX])
{
	int rank = problem->tensors[IDX].rank;
	int status = check_rank(problem, op->few, 2, "", error);

	if (!status && rank + 1 > KILN_MAX_RANK)
		return plan_refuse(error, KILN_EINVAL, "%s: idx has rank %d; it may have %d at most",
						   problem->op, rank, KILN_MAX_RANK - 1);
	if (!status)
		status = check_rank(problem, op->many, rank + 1, ", one more than idx", error);
	for (int k = 0; k < rank && !status; k++)
		status = rows_check_size(problem, op->many, k, IDX, k, error);
	if (!status)
		status = rows_check_size(problem, op->many, rank, op->few, 1, error);
	return status;
}

/* Are there as many elements of src as indices along another dimension than the axis? */
static int check_covered(const struct kernel_problem *problem, int dim,
						 char error[KERNEL_ERROR_MAX])
{
	long long is = (long long)problem->tensors[IDX].shape[dim];
	long long most = (long long)problem->tensors[0].shape[dim];

	if (is <= most)
		return KILN_OK;
	return plan_refuse(error, KILN_EINVAL,
					   "%s: dimension %d of idx has size %lld; it may be no larger than that of "
					   "src, %lld",
					   problem->op, dim, is, most);
}

static int check_axis(const struct kernel_problem *problem, const struct index_op *op, int axis,
					  char error[KERNEL_ERROR_MAX])
{
	int rank = problem->tensors[op->few].rank, status;
	int indexed = op->base >= 0 ? op->base : op->few;
	bool covers = op->each && !op->adds;

	status = check_rank(problem, op->many, rank, ", as the side that is indexed", error);
	if (!status && op->base >= 0)
		status = check_rank(problem, op->few, problem->tensors[op->base].rank, ", as x", error);
	if (!status)
		status = check_rank(problem, IDX, op->each ? rank : 1, "", error);
	for (int k = 0; k < rank && !status; k++)
		if (op->base >= 0)
			status = rows_check_size(problem, op->few, k, op->base, k, error);
	for (int k = 0; k < rank && !status; k++)
		if (k != axis)
			status = covers ? check_covered(problem, k, error)
							: rows_check_size(problem, op->many, k, indexed, k, error);
	for (int k = 0; k < rank && !status && op->each; k++)
		status = rows_check_size(problem, op->many, k, IDX, k, error);
	if (!status && !op->each)
		status = rows_check_size(problem, op->many, axis, IDX, 0, error);
	return status;
}

/* ---- Operands of one rank ---- */

/* The rows of few at places of which each dimension of idx has a stride of its own. */
static void spread(const struct kernel_tensor *idx, struct index_problem *out)
{
	struct kernel_tensor *few = &out->few;
	int leading = idx->rank;

	out->axis = leading - 1;
	memcpy(out->idx_stride, idx->stride, (size_t)leading * sizeof(*idx->stride));
	few->shape[leading] = few->shape[1];
	few->stride[leading] = few->stride[1];
	few->shape[leading - 1] = few->shape[0];
	few->stride[leading - 1] = few->stride[0];
	for (int k = 0; k < leading - 1; k++) {
		few->shape[k] = 1;
		few->stride[k] = 0;
	}
	few->rank = leading + 1;
}

/* Merges the first `count` dimensions into one; false: they do not lie one after another. */
static bool merge_leading(struct kernel_tensor *tensor, int count, int64_t *step)
{
	int64_t size = 1, stride = 1;
	bool first = true;

	for (int k = count - 1; k >= 0; k--) {
		if (tensor->shape[k] == 1)
			continue;
		if (!first && tensor->stride[k] != stride * size)
			return false;
		stride = first ? tensor->stride[k] : stride;
		size *= tensor->shape[k];
		first = false;
	}
	/* Nothing is multiplied by the stride of a list of one, but all lists have one kernel. */
	if (first)
		stride = count > 0 ? tensor->stride[count - 1] : tensor->rank ? tensor->shape[0] : 1;
	*step = stride;
	tensor->shape[0] = size;
	tensor->stride[0] = stride;
	return true;
}

static int flatten(const struct kernel_problem *problem, struct index_problem *out,
				   char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor idx = problem->tensors[IDX], *many = &out->many;
	int leading = idx.rank;
	int64_t step, row = many->shape[leading], row_stride = many->stride[leading];
	char name[16];

	plan_operand_name(problem->operands, out->op.many, name);
	if (out->indices > 0 && !merge_leading(&idx, leading, &step)) {
		if (!out->op.adds) {
			spread(&problem->tensors[IDX], out);
			return KILN_OK;
		}
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the dimensions of idx do not lie one after another: it must be "
						   "contiguous",
						   problem->op);
	}
	out->idx_stride[0] = idx.stride[0];
	if (out->indices > 0 && row > 0 && !merge_leading(many, leading, &step))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the leading dimensions of %s do not lie one after another: its "
						   "rows must be evenly spaced",
						   problem->op, name);
	many->rank = 2;
	many->shape[0] = out->indices;
	many->shape[1] = row;
	many->stride[1] = row_stride;
	out->axis = 0;
	return KILN_OK;
}

static int make_views(const struct kernel_problem *problem, struct index_problem *out,
					  char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *idx = &problem->tensors[IDX];

	out->few = problem->tensors[out->op.few];
	out->many = problem->tensors[out->op.many];
	if (out->op.base >= 0)
		out->base = problem->tensors[out->op.base];
	plan_elements(idx, &out->indices);
	if (out->op.flat)
		return flatten(problem, out, error);
	/* The part of src that has an index. */
	for (int k = 0; k < idx->rank && out->op.each && !out->op.adds; k++)
		if (k != out->axis)
			out->few.shape[k] = idx->shape[k];
	if (out->op.each)
		memcpy(out->idx_stride, idx->stride, sizeof(out->idx_stride));
	else
		out->idx_stride[out->axis] = idx->stride[0];
	return KILN_OK;
}

static int check_padding(const struct kernel_problem *problem, struct index_problem *out,
						 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_attr *padding = plan_attr(problem, "padding_idx");
	int64_t rows = out->few.shape[out->axis];

	out->padding = INT64_MIN;
	if (!padding)
		return KILN_OK;
	if (padding->i < -rows || padding->i >= rows)
		return plan_refuse(error, KILN_EINVAL, "%s: padding_idx is %lld; it may be %lld to %lld",
						   problem->op, (long long)padding->i, (long long)-rows,
						   (long long)rows - 1);
	out->padding = padding->i < 0 ? padding->i + rows : padding->i;
	return KILN_OK;
}

int index_check(const struct kernel_problem *problem, struct index_problem *out,
				char error[KERNEL_ERROR_MAX])
{
	const struct index_op *op = op_of(problem);
	enum plan_bounds bounds = plan_bounds(problem);
	int status = index_check_dtypes(problem, op, error);
	int64_t few, elements;

	memset(out, 0, sizeof(*out));
	out->op = *op;
	out->axis = status || op->flat ? 0 : plan_axis(problem);
	if (!status)
		status =
			op->flat ? check_flat(problem, op, error) : check_axis(problem, op, out->axis, error);
	if (!status)
		status = rows_check_contiguous(problem, op->output, error);
	if (!status)
		status = make_views(problem, out, error);
	if (!status)
		status = check_padding(problem, out, error);
	if (status)
		return status;
	out->dtype = problem->tensors[0].dtype;
	out->index = problem->tensors[IDX].dtype;
	out->element = kernel_dtype_bytes(out->dtype);
	out->index_bytes = kernel_dtype_bytes(out->index);
	few = out->few.shape[out->axis];
	plan_elements(&out->many, &elements);
	if (!op->adds && bounds != PLAN_CHECK && few == 0 && elements > 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of %s has size 0; with bounds %s it needs an element "
						   "to take",
						   problem->op, op->flat ? 0 : out->axis, op->flat ? "weight" : "src",
						   plan_attr_text(problem, "bounds"));
	/* An index that can have no value out of range needs no look. */
	out->bounds = (out->index == KILN_U8 && few >= 256) || (out->index == KILN_U16 && few >= 65536)
					  ? PLAN_TRUST
					  : bounds;
	return KILN_OK;
}

int index_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct index_op *op = op_of(problem);
	struct kernel_tensor *output = &problem->tensors[op->output];
	const struct kernel_tensor *first = &problem->tensors[0], *idx = &problem->tensors[IDX];
	struct index_problem index;
	int axis = op->flat || first->rank == 0 ? 0 : plan_axis(problem);
	char name[16];

	plan_operand_name(problem->operands, op->output, name);
	if (output->dtype == KILN_DTYPE_NONE && op->adds && op->base < 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s is missing; its size along the axis does not follow from the "
						   "others",
						   problem->op, name);
	if (output->dtype == KILN_DTYPE_NONE && op->adds) {
		rows_infer_like(problem, op->output, op->base);
	} else if (output->dtype == KILN_DTYPE_NONE) {
		*output = *first;
		output->alignment = 16;
		if (op->flat && idx->rank < KILN_MAX_RANK) {
			memcpy(output->shape, idx->shape, sizeof(output->shape));
			output->rank = idx->rank + 1;
			output->shape[idx->rank] = first->rank ? first->shape[first->rank - 1] : 1;
		} else if (op->each) {
			for (int k = 0; k < output->rank; k++)
				output->shape[k] = k < idx->rank ? idx->shape[k] : 1;
		} else {
			output->shape[axis] = idx->rank ? idx->shape[0] : 1;
		}
		plan_contiguous(output);
	}
	return index_check(problem, &index, error);
}

void index_as_gather(const struct index_problem *index, int64_t unit, struct gather_problem *out)
{
	const struct kernel_tensor *input = index->op.adds ? &index->many : &index->few;
	struct kernel_tensor view = *input;
	int64_t idx[KILN_MAX_RANK];
	const int64_t *stride[] = {view.stride, idx};
	int rank = index->axis + 1, culprit;

	memset(out, 0, sizeof(*out));
	memcpy(idx, index->idx_stride, sizeof(idx));
	idx[index->axis] = 0; /* index_step has it */
	for (int k = 0; k < rank; k++)
		view.stride[k] /= unit;
	out->op = (struct gather_op){.backward = index->op.adds,
								 .few = index->op.few,
								 .many = index->op.many,
								 .idx = IDX,
								 .input = index->op.adds ? index->op.many : index->op.few,
								 .output = index->op.output};
	out->bounds = index->bounds;
	out->dtype = index->dtype;
	out->index = index->index;
	out->element = index->element * (uint32_t)unit;
	out->index_bytes = index->index_bytes;
	out->few = index->few.shape[index->axis];
	out->many = index->many.shape[index->axis];
	out->index_step = out->many == 1 ? 1 : index->idx_stride[index->axis];
	(void)rows_form(&out->form, rank, view.shape, 2, stride, rank - 1, 1, &culprit);
	out->form.step[0] = view.shape[rank - 1] == 1 ? 1 : view.stride[rank - 1];
	/* Without an index for each element, all rows have one list. */
	out->lists = index->op.each ? out->form.rows : 1;
	out->outer = index->op.each ? 1 : out->form.rows;
}

void index_report_arg(const struct index_problem *index, struct kernel_plan *out)
{
	if (index->bounds == PLAN_CHECK && index->indices > 0)
		plan_arg_report(out, (uint64_t)index->indices, (uint64_t)index->few.shape[index->axis]);
	else
		plan_arg_scalar(out, 8, 0);
}

int index_no_candidate(const struct kernel_problem *problem, const char *choice,
					   const struct kernel_limits *limits, char error[KERNEL_ERROR_MAX])
{
	return plan_refuse(error, KILN_EINVAL,
					   "%s: there is no candidate \"%s\" for these shapes on %s", problem->op,
					   choice ? choice : "", limits->target);
}
