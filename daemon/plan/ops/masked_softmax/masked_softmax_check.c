/*
 * masked_softmax_check.c: what masked softmax and its backward ask of attributes and operands, each
 * refusal with its sentence.
 */
#include "masked_softmax.h"

#include <math.h>
#include <string.h>

/* No row has so many elements; and every one of these is a number in any notation. */
#define FARTHEST_DIAGONAL ((int64_t)1 << 53)

static const char *const kinds[] = {"bool", "lengths", "causal", "additive", NULL};
static const char *const empties[] = {"zero", "nan", "uniform", NULL};

/* An attribute that only one kind has. */
static int check_kind_of(const struct masked_problem *masked, const char *name,
						 enum masked_kind kind, char error[KERNEL_ERROR_MAX])
{
	if (masked->kind == kind || !plan_attr(masked->problem, name))
		return KILN_OK;
	return plan_refuse(error, KILN_EINVAL, "%s: %s is given; it is for kind %s, and this is %s",
					   masked->problem->op, name, kinds[kind], kinds[masked->kind]);
}

static int read_kind(struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	int kind = -1, status = plan_attr_word(problem, "kind", kinds, &kind, error);

	if (status)
		return status;
	if (kind < 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: kind is missing; it may be one of: bool, lengths, causal, additive",
						   problem->op);
	masked->kind = (enum masked_kind)kind;
	status = check_kind_of(masked, "keep", MASKED_BOOL, error);
	return status ? status : check_kind_of(masked, "diagonal", MASKED_CAUSAL, error);
}

static int read_attrs(struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	kiln_dtype dtype = problem->tensors[0].dtype;
	int64_t keep = 0;
	int status = read_kind(masked, error);

	if (!status)
		status = plan_attr_int(problem, "keep", 0, 1, &keep, error);
	if (!status)
		status = plan_attr_int(problem, "diagonal", -FARTHEST_DIAGONAL, FARTHEST_DIAGONAL,
							   &masked->diagonal, error);
	if (!status)
		status = plan_attr_word(problem, "empty", empties, &masked->empty, error);
	masked->keep = keep != 0;
	masked->scale = 1;
	if (!status)
		status = plan_attr_real(problem, "scale", &masked->scale, error);
	if (!status && dtype != KILN_F64 && !isfinite((float)masked->scale))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: scale is %g; %s is computed in f32, where it must be finite",
						   problem->op, masked->scale, plan_dtype_name(dtype));
	return status;
}

/* Sizes 1 or those of x, aligned at the end of the first `dims` dimensions of x. */
static int check_broadcast(const struct masked_problem *masked, int dims,
						   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	const struct kernel_tensor *x = &problem->tensors[0], *mask = &problem->tensors[masked->mask];
	char name[16];

	plan_operand_name(problem->operands, 0, name);
	if (mask->rank > dims)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: mask has rank %d; of kind %s it may have the %d dimensions of %s%s, "
			"or less",
			problem->op, mask->rank, kinds[masked->kind], dims, name,
			dims < x->rank ? " before its last" : "");
	for (int m = 0; m < mask->rank; m++) {
		int k = m + dims - mask->rank;
		if (mask->shape[m] != 1 && mask->shape[m] != x->shape[k])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of mask has size %lld; it must be 1 or that of "
							   "dimension %d of %s, %lld",
							   problem->op, m, (long long)mask->shape[m], k, name,
							   (long long)x->shape[k]);
	}
	return KILN_OK;
}

static int check_mask_dtype(const struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	static const char *const wanted[] = {"bool or u8", "i32", "", "f16, bf16, f32 or f64"};
	const struct kernel_problem *problem = masked->problem;
	const struct kernel_tensor *mask = &problem->tensors[masked->mask];
	kiln_dtype dtype = mask->dtype;
	bool fits = masked->kind == MASKED_BOOL      ? dtype == KILN_BOOL || dtype == KILN_U8
				: masked->kind == MASKED_LENGTHS ? dtype == KILN_I32
												 : rows_is_float(dtype);

	if (!fits)
		return plan_refuse(error, KILN_EINVAL, "%s: mask is %s; of kind %s it must be %s",
						   problem->op, plan_dtype_name(dtype), kinds[masked->kind],
						   wanted[masked->kind]);
	if (mask->alignment < kernel_dtype_bytes(dtype))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the address of mask is aligned to %u bytes; elements of %s need %u",
						   problem->op, mask->alignment, plan_dtype_name(dtype),
						   kernel_dtype_bytes(dtype));
	return KILN_OK;
}

static int check_mask(struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	int rank = problem->tensors[0].rank, status;
	bool there = problem->tensors[masked->mask].dtype != KILN_DTYPE_NONE;

	if (masked->kind == MASKED_CAUSAL) {
		if (there)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: mask is given; kind causal has none and it must be left out",
							   problem->op);
		masked->mask = -1;
		return KILN_OK;
	}
	if (!there && masked->kind == MASKED_ADDITIVE && masked->backward) {
		masked->mask = -1;
		return KILN_OK;
	}
	if (!there)
		return plan_refuse(error, KILN_EINVAL, "%s: mask is missing; kind %s needs one",
						   problem->op, kinds[masked->kind]);
	status = check_mask_dtype(masked, error);
	if (!status)
		status = check_broadcast(masked, masked->kind == MASKED_LENGTHS ? rank - 1 : rank, error);
	/* What it added is in y. */
	if (masked->kind == MASKED_ADDITIVE && masked->backward)
		masked->mask = -1;
	return status;
}

static int check_rank(const struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	int rank = problem->tensors[0].rank;
	char name[16];

	plan_operand_name(problem->operands, 0, name);
	if (rank == 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank 0; it needs a dimension to go along", problem->op,
						   name);
	if (rank == 1 && masked->kind == MASKED_CAUSAL)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank 1; for kind causal it needs a dimension of queries "
						   "before its last",
						   problem->op, name);
	return KILN_OK;
}

int masked_read(const struct kernel_problem *problem, struct masked_problem *out,
				char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_float(problem, 0, error);

	memset(out, 0, sizeof(*out));
	out->problem = problem;
	out->backward = strstr(problem->op, "backward") != NULL;
	out->mask = out->backward ? 2 : 1;
	out->output = out->mask + 1;
	out->count = out->backward ? 3 : 2;
	for (int i = 0; i < out->count; i++)
		out->inputs[i] = i < out->count - 1 ? i : out->output;
	if (!status)
		status = read_attrs(out, error);
	if (!status)
		status = check_rank(out, error);
	if (!status)
		status = check_mask(out, error);
	for (int i = 1; i < out->count && !status; i++)
		status = rows_check_like(problem, out->inputs[i], 0, error);
	if (!status)
		status = rows_check_contiguous(problem, out->output, error);
	return status;
}
