/*
 * rows_check.c: what operators on rows ask of their operands, each refusal with its sentence.
 */
#include "rows.h"

#include <string.h>

int rows_check_float(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (!plan_is_float(tensor->dtype))
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be f16, bf16, f32 or f64",
						   problem->op, name, plan_dtype_name(tensor->dtype));
	return rows_check_aligned(problem, index, error);
}

int rows_check_aligned(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (tensor->alignment < kernel_dtype_bytes(tensor->dtype))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the address of %s is aligned to %u bytes; elements of %s need %u",
						   problem->op, name, tensor->alignment, plan_dtype_name(tensor->dtype),
						   kernel_dtype_bytes(tensor->dtype));
	return KILN_OK;
}

int rows_check_inner(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	int last = tensor->rank - 1;
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (tensor->shape[last] > 1 && tensor->stride[last] != 1)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of %s has stride %lld; it must be 1", problem->op,
						   last, name, (long long)tensor->stride[last]);
	return rows_check_aligned(problem, index, error);
}

int rows_check_same(const struct kernel_problem *problem, int index, int like,
					char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *a = &problem->tensors[like], *b = &problem->tensors[index];
	char first[16], second[16];

	plan_operand_name(problem->operands, like, first);
	plan_operand_name(problem->operands, index, second);
	if (a->dtype != b->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s and %s is %s; they must agree",
						   problem->op, first, plan_dtype_name(a->dtype), second,
						   plan_dtype_name(b->dtype));
	if (a->rank != b->rank)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d and %s rank %d; they must agree",
						   problem->op, first, a->rank, second, b->rank);
	for (int k = 0; k < a->rank; k++)
		if (a->shape[k] != b->shape[k])
			return plan_refuse(
				error, KILN_EINVAL,
				"%s: dimension %d has size %lld in %s and %lld in %s; they must agree", problem->op,
				k, (long long)a->shape[k], first, (long long)b->shape[k], second);
	return KILN_OK;
}

int rows_check_size(const struct kernel_problem *problem, int a, int dim_a, int b, int dim_b,
					char error[KERNEL_ERROR_MAX])
{
	long long is = (long long)problem->tensors[a].shape[dim_a];
	long long must = (long long)problem->tensors[b].shape[dim_b];
	char name[16], other[16];

	if (is == must)
		return KILN_OK;
	plan_operand_name(problem->operands, a, name);
	plan_operand_name(problem->operands, b, other);
	return plan_refuse(error, KILN_EINVAL,
					   "%s: dimension %d of %s has size %lld; it must be that of dimension %d of "
					   "%s, %lld",
					   problem->op, dim_a, name, is, dim_b, other, must);
}

int rows_check_like(const struct kernel_problem *problem, int index, int like,
					char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_same(problem, index, like, error);

	return status ? status : rows_check_float(problem, index, error);
}

int rows_check_contiguous(const struct kernel_problem *problem, int index,
						  char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	struct kernel_tensor dense = *tensor;
	char name[16];
	int64_t count;

	plan_operand_name(problem->operands, index, name);
	plan_contiguous(&dense);
	plan_elements(tensor, &count);
	for (int k = 0; k < tensor->rank && count; k++)
		if (tensor->shape[k] > 1 && tensor->stride[k] != dense.stride[k])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has stride %lld; %s must be contiguous, "
							   "which is stride %lld there",
							   problem->op, k, name, (long long)tensor->stride[k], name,
							   (long long)dense.stride[k]);
	return KILN_OK;
}

void rows_infer_like(struct kernel_problem *problem, int index, int like)
{
	struct kernel_tensor *tensor = &problem->tensors[index];

	if (tensor->dtype != KILN_DTYPE_NONE)
		return;
	*tensor = problem->tensors[like];
	tensor->alignment = 16;
	plan_contiguous(tensor);
}

int rows_no_candidate(const struct kernel_problem *problem, const char *choice,
					  const struct rows_form *form, const struct kernel_limits *limits,
					  char error[KERNEL_ERROR_MAX])
{
	return plan_refuse(error, KILN_EINVAL,
					   "%s: there is no candidate \"%s\" for rows of %lld elements on %s",
					   problem->op, choice ? choice : "", (long long)form->columns, limits->target);
}
