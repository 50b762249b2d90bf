/*
 * norm_check.c: what the norm operators ask of their operands beyond what any operator on rows
 * does, each refusal with its sentence.
 */
#include "norm.h"

#include <string.h>

static void name_of(const struct kernel_problem *problem, int index, char name[16])
{
	plan_operand_name(problem->operands, index, name);
}

/* Rank and sizes of dimensions [first, first + count) of x. */
static int check_shape(const struct kernel_problem *problem, int index, int x, int first, int count,
					   const char *which, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index], *of = &problem->tensors[x];
	char name[16], other[16];

	name_of(problem, index, name);
	name_of(problem, x, other);
	if (tensor->rank != count)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank %d; it must have the %s dimensions of %s, which are %d",
						   problem->op, name, tensor->rank, which, other, count);
	for (int k = 0; k < count; k++)
		if (tensor->shape[k] != of->shape[first + k])
			return plan_refuse(
				error, KILN_EINVAL,
				"%s: dimension %d of %s has size %lld; it must be that of dimension %d of %s, %lld",
				problem->op, k, name, (long long)tensor->shape[k], first + k, other,
				(long long)of->shape[first + k]);
	return rows_check_contiguous(problem, index, error);
}

int norm_check_trailing(const struct kernel_problem *problem, int index, int x, int axes,
						char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_float(problem, index, error);

	return status ? status
				  : check_shape(problem, index, x, problem->tensors[x].rank - axes, axes,
								"normalized", error);
}

int norm_check_leading(const struct kernel_problem *problem, int index, int x, int axes,
					   char error[KERNEL_ERROR_MAX])
{
	kiln_dtype of = problem->tensors[x].dtype, dtype = of == KILN_F64 ? KILN_F64 : KILN_F32;
	char name[16], other[16];

	name_of(problem, index, name);
	name_of(problem, x, other);
	if (problem->tensors[index].dtype != dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; for %s of %s it must be %s",
						   problem->op, name, plan_dtype_name(problem->tensors[index].dtype), other,
						   plan_dtype_name(of), plan_dtype_name(dtype));
	if (rows_check_float(problem, index, error))
		return KILN_EINVAL;
	return check_shape(problem, index, x, 0, problem->tensors[x].rank - axes, "other", error);
}

void norm_form(const struct kernel_problem *problem, const int *index, int count, int axes,
			   struct rows_form *form, uint32_t *pieces)
{
	const struct kernel_tensor *x = &problem->tensors[index[0]];
	int64_t strides[ROWS_MAX_OPERANDS][KILN_MAX_RANK];
	const int64_t *stride[ROWS_MAX_OPERANDS];
	int first = x->rank - axes, culprit;

	for (int i = 0; i < count; i++) {
		memcpy(strides[i], problem->tensors[index[i]].stride, sizeof(strides[i]));
		stride[i] = strides[i];
	}
	*pieces = 0;
	/* Each operand is made dense once. */
	while (!rows_form(form, x->rank, x->shape, count, stride, first, axes, &culprit) &&
		   !(*pieces & 1u << culprit)) {
		struct kernel_tensor dense = *x;
		plan_contiguous(&dense);
		memcpy(&strides[culprit][first], &dense.stride[first], sizeof(int64_t) * (size_t)axes);
		*pieces |= 1u << culprit;
	}
	for (int i = 0; i < count; i++)
		if (*pieces & 1u << i)
			form->step[i] = 0;
}

void norm_sizes(const struct kernel_tensor *x, int axes, int64_t *rows, int64_t *columns)
{
	struct kernel_tensor part = *x;

	part.rank -= axes;
	plan_elements(&part, rows);
	part.rank = axes;
	memcpy(part.shape, &x->shape[x->rank - axes], (size_t)axes * sizeof(x->shape[0]));
	plan_elements(&part, columns);
}
