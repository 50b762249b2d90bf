/*
 * gather_check.c: what gather and its backward ask of a request, and the request as rows.
 */
#include "gather.h"

#include <string.h>

#define MOST_FEW 0xfff0 /* elements of a row of src in planes: their numbers have 16 bits */

static struct gather_op gather_op_of(const struct kernel_problem *problem)
{
	bool backward = strcmp(problem->op, "gather_backward") == 0;

	/* src, idx, dst; ddst, idx, dsrc */
	return (struct gather_op){.backward = backward,
							  .few = backward ? 2 : 0,
							  .many = backward ? 0 : 2,
							  .idx = 1,
							  .input = 0,
							  .output = 2};
}

static int check_dtypes(const struct kernel_problem *problem, const struct gather_op *op,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *input = &problem->tensors[op->input];
	const struct kernel_tensor *output = &problem->tensors[op->output];
	const struct kernel_tensor *idx = &problem->tensors[op->idx];
	char from[16], to[16];
	int status = KILN_OK;

	plan_operand_name(problem->operands, op->input, from);
	plan_operand_name(problem->operands, op->output, to);
	if (idx->dtype != KILN_U8 && idx->dtype != KILN_U16 && idx->dtype != KILN_I32 &&
		idx->dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: idx is %s; it must be u8, u16, i32 or i64",
						   problem->op, plan_dtype_name(idx->dtype));
	if (input->dtype != output->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s and %s is %s; they must agree",
						   problem->op, from, plan_dtype_name(input->dtype), to,
						   plan_dtype_name(output->dtype));
	if (op->backward)
		status = plan_check_summand(problem, op->input, error);
	for (int i = 0; i < 3 && !status; i++)
		status = rows_check_aligned(problem, i, error);
	return status;
}

static int check_shapes(const struct kernel_problem *problem, const struct gather_op *op,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *input = &problem->tensors[op->input];
	const struct kernel_tensor *output = &problem->tensors[op->output];
	const struct kernel_tensor *idx = &problem->tensors[op->idx];
	int rank = input->rank, status;
	char from[16], to[16];

	plan_operand_name(problem->operands, op->input, from);
	plan_operand_name(problem->operands, op->output, to);
	if (rank < 2)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank %d; it needs 2 dimensions at least, those of idx and "
						   "any before them",
						   problem->op, from, rank);
	if (idx->rank != 2)
		return plan_refuse(error, KILN_EINVAL, "%s: idx has rank %d; it must have rank 2",
						   problem->op, idx->rank);
	if (output->rank != rank)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d and %s rank %d; they must agree",
						   problem->op, from, rank, to, output->rank);
	status = rows_check_size(problem, op->idx, 0, op->input, rank - 2, error);
	for (int k = 0; k < rank - 1 && !status; k++)
		status = rows_check_size(problem, op->output, k, op->input, k, error);
	if (!status)
		status = rows_check_size(problem, op->idx, 1, op->many, rank - 1, error);
	return status ? status : rows_check_contiguous(problem, op->output, error);
}

/* Rows of the input and lists of indices, in the same order. */
static void make_form(const struct kernel_problem *problem, struct gather_problem *out)
{
	const struct kernel_tensor *input = &problem->tensors[out->op.input];
	const struct kernel_tensor *idx = &problem->tensors[out->op.idx];
	int64_t lists[KILN_MAX_RANK] = {0};
	const int64_t *stride[] = {input->stride, lists};
	int rank = input->rank, culprit;

	lists[rank - 2] = idx->stride[0];
	(void)rows_form(&out->form, rank, input->shape, 2, stride, rank - 1, 1, &culprit);
	out->index_step = idx->shape[1] == 1 ? 1 : idx->stride[1];
	out->lists = input->shape[rank - 2];
	out->outer = 1;
	for (int k = 0; k < rank - 2; k++)
		out->outer *= input->shape[k];
}

int gather_check(const struct kernel_problem *problem, struct gather_problem *out,
				 char error[KERNEL_ERROR_MAX])
{
	struct gather_op op = gather_op_of(problem);
	const struct kernel_tensor *few = &problem->tensors[op.few];
	enum plan_bounds bounds = plan_bounds(problem);
	int status = check_dtypes(problem, &op, error);

	memset(out, 0, sizeof(*out));
	if (!status)
		status = check_shapes(problem, &op, error);
	if (status)
		return status;
	out->op = op;
	out->dtype = few->dtype;
	out->index = problem->tensors[op.idx].dtype;
	out->element = kernel_dtype_bytes(few->dtype);
	out->index_bytes = kernel_dtype_bytes(out->index);
	out->few = few->shape[few->rank - 1];
	out->many = problem->tensors[op.many].shape[few->rank - 1];
	make_form(problem, out);
	if (!op.backward && bounds != PLAN_CHECK && out->few == 0 && out->many > 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of src has size 0; with bounds %s it needs an element "
						   "to take",
						   problem->op, few->rank - 1, plan_attr_text(problem, "bounds"));
	/* An index that can have no value out of range needs no look. */
	out->bounds =
		(out->index == KILN_U8 && out->few >= 256) || (out->index == KILN_U16 && out->few >= 65536)
			? PLAN_TRUST
			: bounds;
	return KILN_OK;
}

const char *gather_index_name(const struct gather_problem *gather)
{
	return plan_dtype_name(gather->index);
}

void gather_extents(const struct kernel_problem *problem, const struct gather_problem *gather,
					uint32_t input, uint32_t index, uint32_t output, struct kernel_plan *out)
{
	const uint32_t alignment[] = {input, index, output};

	for (int i = 0; i < 3; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		uint64_t bytes = plan_distinct_bytes(tensor);
		plan_touch(problem, i, alignment[i], out);
		/* A row may be longer than the part of it that is wanted: only so much is read. */
		if (i == gather->op.input && !gather->op.backward && gather->many < gather->few)
			out->bytes_moved -= bytes - bytes / (uint64_t)gather->few * (uint64_t)gather->many;
	}
}

void gather_report_arg(const struct gather_problem *gather, struct kernel_plan *out)
{
	uint64_t indices = (uint64_t)gather->lists * (uint64_t)gather->many;

	if (gather->bounds == PLAN_CHECK && indices > 0)
		plan_arg_report(out, indices, (uint64_t)gather->few);
	else
		plan_arg_scalar(out, 8, 0);
}

uint32_t gather_aligned(const struct gather_problem *gather, int operand, uint32_t element,
						uint32_t address, uint64_t bytes, uint32_t most)
{
	uint32_t width = address < most ? address : most;

	while (width > element && bytes % width)
		width /= 2;
	return rows_narrow(&gather->form, operand, element, width);
}

bool gather_has_planes(const struct kernel_problem *problem, const struct gather_problem *gather,
					   int64_t most)
{
	uint32_t element = gather->element;

	return problem->tensors[0].rank >= 2 && element <= 8 && gather->outer >= 2 &&
		   gather->outer >= 8 / element && gather->few >= 1 && gather->few <= MOST_FEW &&
		   gather->many >= 1 && gather->many <= most &&
		   (gather->form.step[0] == 1 || gather->few == 1);
}

struct gather_planes gather_planes_of(const struct kernel_problem *problem,
									  const struct gather_problem *gather, uint32_t planes)
{
	uint32_t element = gather->element, word = element > 4 ? element : 4;
	uint32_t each = 16 / word, load = each * element;
	bool skew = gather_aligned(gather, 0, element, problem->tensors[0].alignment,
							   (uint64_t)gather->few * element, load) < load;

	return (struct gather_planes){
		.skew = skew,
		.rows = planes * word / element,
		.load = skew ? element : load,
		.shared = planes * ((uint32_t)plan_divide_up((uint64_t)gather->few, each) * 16 + 16),
	};
}

void gather_pass_lists(const struct gather_problem *gather, int64_t lists, int64_t items, bool loop,
					   struct plan_text *id, struct kernel_plan *out)
{
	plan_print(id, ", ScatterPlaces<%lld, %lld", (long long)gather->form.step[0],
			   (long long)gather->index_step);
	rows_print_sizes(id, &gather->form);
	rows_print_strides(id, &gather->form, 0);
	rows_print_strides(id, &gather->form, 1);
	plan_print(id, ">, %lld, %s, %s>", (long long)lists,
			   items > INT32_MAX || gather->form.rows > INT32_MAX ? "i64" : "u32",
			   loop ? "true" : "false");
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)gather->outer);
	plan_arg_scalar(out, 8, (uint64_t)items);
	gather_report_arg(gather, out);
}
