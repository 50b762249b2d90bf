/*
 * cross_entropy_check.c: what cross_entropy and its backward ask of a request, and the request as
 * rows of classes.
 */
#include "cross_entropy.h"

#include <string.h>

static bool is_backward(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "cross_entropy_backward") == 0;
}

static kiln_dtype computed(const struct kernel_problem *problem)
{
	return problem->tensors[CROSS_ENTROPY_X].dtype == KILN_F64 ? KILN_F64 : KILN_F32;
}

/* The shape of x without its last dimension. */
static int check_leading(const struct kernel_problem *problem, int index,
						 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (tensor->rank != x->rank - 1)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank %d; with x of rank %d it must have rank %d",
						   problem->op, name, tensor->rank, x->rank, x->rank - 1);
	for (int k = 0; k < tensor->rank; k++)
		if (tensor->shape[k] != x->shape[k])
			return plan_refuse(
				error, KILN_EINVAL,
				"%s: dimension %d has size %lld in x and %lld in %s; they must agree, and the last "
				"dimension of x has the classes",
				problem->op, k, (long long)x->shape[k], (long long)tensor->shape[k], name);
	return KILN_OK;
}

static int check_one(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	plan_operand_name(problem->operands, index, name);
	for (int k = 0; k < tensor->rank; k++)
		if (tensor->shape[k] != 1)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has size %lld; %s is one number",
							   problem->op, k, name, (long long)tensor->shape[k], name);
	return KILN_OK;
}

static int check_dtype(const struct kernel_problem *problem, int index, kiln_dtype dtype,
					   char error[KERNEL_ERROR_MAX])
{
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (problem->tensors[index].dtype != dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be %s", problem->op, name,
						   plan_dtype_name(problem->tensors[index].dtype), plan_dtype_name(dtype));
	return rows_check_aligned(problem, index, error);
}

/* A loss or its gradient: one for each row, or one. */
static int check_loss(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX])
{
	int status = check_dtype(problem, index, computed(problem), error);

	if (status)
		return status;
	return plan_word(problem, "reduction") == CROSS_ENTROPY_NONE
			   ? check_leading(problem, index, error)
			   : check_one(problem, index, error);
}

static int check_inputs(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	kiln_dtype target = problem->tensors[CROSS_ENTROPY_TARGET].dtype;
	double smoothing = plan_real(problem, "label_smoothing");
	int status = rows_check_float(problem, CROSS_ENTROPY_X, error);

	if (status)
		return status;
	if (x->rank == 0)
		return plan_refuse(error, KILN_EINVAL, "%s: x has rank 0; it needs a dimension of classes",
						   problem->op);
	if (target != KILN_I32 && target != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: target is %s; it must be i32 or i64",
						   problem->op, plan_dtype_name(target));
	if (smoothing > 1)
		return plan_refuse(error, KILN_EINVAL, "%s: label_smoothing is %g; it may be 0 to 1",
						   problem->op, smoothing);
	status = check_leading(problem, CROSS_ENTROPY_TARGET, error);
	return status ? status : rows_check_aligned(problem, CROSS_ENTROPY_TARGET, error);
}

static int check_forward(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int status = check_loss(problem, CROSS_ENTROPY_LOSS, error);

	if (!status && plan_has(problem, CROSS_ENTROPY_LSE))
		status = check_dtype(problem, CROSS_ENTROPY_LSE, computed(problem), error);
	if (!status && plan_has(problem, CROSS_ENTROPY_LSE))
		status = check_leading(problem, CROSS_ENTROPY_LSE, error);
	if (!status && plan_has(problem, CROSS_ENTROPY_COUNT))
		status = check_dtype(problem, CROSS_ENTROPY_COUNT, KILN_I64, error);
	if (!status && plan_has(problem, CROSS_ENTROPY_COUNT))
		status = check_one(problem, CROSS_ENTROPY_COUNT, error);
	if (!status && plan_has(problem, CROSS_ENTROPY_GRAD))
		status = rows_check_like(problem, CROSS_ENTROPY_GRAD, CROSS_ENTROPY_X, error);
	for (int i = CROSS_ENTROPY_LOSS; i <= CROSS_ENTROPY_GRAD && !status; i++)
		if (plan_has(problem, i))
			status = rows_check_contiguous(problem, i, error);
	return status;
}

static int check_backward(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int status = check_dtype(problem, CROSS_ENTROPY_BACK_LSE, computed(problem), error);

	if (!status)
		status = check_leading(problem, CROSS_ENTROPY_BACK_LSE, error);
	if (!status)
		status = check_dtype(problem, CROSS_ENTROPY_BACK_COUNT, KILN_I64, error);
	if (!status)
		status = check_one(problem, CROSS_ENTROPY_BACK_COUNT, error);
	if (!status)
		status = check_loss(problem, CROSS_ENTROPY_BACK_DLOSS, error);
	if (!status)
		status = rows_check_like(problem, CROSS_ENTROPY_BACK_DX, CROSS_ENTROPY_X, error);
	return status ? status : rows_check_contiguous(problem, CROSS_ENTROPY_BACK_DX, error);
}

/* Operands that have no classes do not move along them. */
static void make_form(const struct kernel_problem *problem, struct cross_entropy *out)
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	const int forward[] = {CROSS_ENTROPY_X, CROSS_ENTROPY_TARGET, CROSS_ENTROPY_GRAD};
	const int backward[] = {CROSS_ENTROPY_X, CROSS_ENTROPY_TARGET, CROSS_ENTROPY_BACK_LSE,
							CROSS_ENTROPY_BACK_DLOSS};
	int operands = out->backward ? 4 : out->grad ? 3 : 2, culprit;
	int64_t strides[4][KILN_MAX_RANK] = {{0}};
	const int64_t *stride[] = {strides[0], strides[1], strides[2], strides[3]};
	int written = out->backward ? CROSS_ENTROPY_BACK_DX : CROSS_ENTROPY_GRAD;

	for (int i = 0; i < operands; i++) {
		const struct kernel_tensor *tensor =
			&problem->tensors[out->backward ? backward[i] : forward[i]];
		/* One number stands for all rows. */
		if (out->backward && i == 3 && out->reduction != CROSS_ENTROPY_NONE)
			continue;
		memcpy(strides[i], tensor->stride, sizeof(strides[i][0]) * (size_t)tensor->rank);
	}
	(void)rows_form(&out->form, x->rank, x->shape, operands, stride, x->rank - 1, 1, &culprit);
	out->rows = out->form.rows;
	out->columns = out->form.columns;
	out->alignment = x->alignment;
	if (plan_has(problem, written) && problem->tensors[written].alignment < out->alignment)
		out->alignment = problem->tensors[written].alignment;
}

int cross_entropy_check(const struct kernel_problem *problem, struct cross_entropy *out,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	int status = check_inputs(problem, error);

	memset(out, 0, sizeof(*out));
	if (!status)
		status =
			is_backward(problem) ? check_backward(problem, error) : check_forward(problem, error);
	if (status)
		return status;
	out->backward = is_backward(problem);
	out->grad = !out->backward && plan_has(problem, CROSS_ENTROPY_GRAD);
	out->dtype = x->dtype;
	out->element = kernel_dtype_bytes(x->dtype);
	out->target = problem->tensors[CROSS_ENTROPY_TARGET].dtype;
	out->reduction = (enum cross_entropy_reduction)plan_word(problem, "reduction");
	out->ignore = plan_int(problem, "ignore_index");
	out->smoothing = plan_real(problem, "label_smoothing");
	out->square = plan_real(problem, "lse_square_scale");
	out->cap = plan_real(problem, "softcap");
	make_form(problem, out);
	if (out->columns == 0 && out->rows > 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size 0; a row needs a class", problem->op,
						   x->rank - 1);
	return KILN_OK;
}

int cross_entropy_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	struct kernel_tensor *loss = &problem->tensors[CROSS_ENTROPY_LOSS];
	struct cross_entropy unused;

	if (is_backward(problem)) {
		rows_infer_like(problem, CROSS_ENTROPY_BACK_DX, CROSS_ENTROPY_X);
	} else if (loss->dtype == KILN_DTYPE_NONE) {
		*loss = (struct kernel_tensor){.dtype = computed(problem), .alignment = 16};
		if (plan_word(problem, "reduction") == CROSS_ENTROPY_NONE && x->rank > 0) {
			loss->rank = x->rank - 1;
			memcpy(loss->shape, x->shape, sizeof(loss->shape));
			plan_contiguous(loss);
		}
	}
	return cross_entropy_check(problem, &unused, error);
}

void cross_entropy_pass(const struct cross_entropy *call, struct kernel_plan *out)
{
	plan_arg_scalar(out, 8, (uint64_t)call->ignore);
	plan_arg_real(out, call->dtype, call->smoothing);
	plan_arg_real(out, call->dtype, call->square);
	plan_arg_real(out, call->dtype, call->cap);
	plan_arg_scalar(out, 4, (uint64_t)call->reduction);
}

void cross_entropy_print_rows(struct plan_text *id, const struct cross_entropy *call, int operands)
{
	rows_print_step(id, &call->form, 0);
	rows_print_sizes(id, &call->form);
	for (int i = 0; i < operands; i++)
		rows_print_strides(id, &call->form, i);
}
