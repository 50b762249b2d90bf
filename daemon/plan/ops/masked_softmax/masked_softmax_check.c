/*
 * masked_softmax_check.c: what masked softmax and its backward ask of attributes and operands, each
 * refusal with its sentence.
 */
#include "masked_softmax.h"

#include <string.h>

static const char *kind_name(const struct masked_problem *masked)
{
	return plan_attr_text(masked->problem, "kind");
}

/* Refuses an attribute that only one kind has. */
static int check_kind_of(const struct masked_problem *masked, const char *name,
						 enum masked_kind kind, const char *kind_of, char error[KERNEL_ERROR_MAX])
{
	if (masked->kind == kind || !plan_attr(masked->problem, name))
		return KILN_OK;
	return plan_refuse(error, KILN_EINVAL, "%s: %s is given; it is for kind %s, and this is %s",
					   masked->problem->op, name, kind_of, kind_name(masked));
}

static int read_attrs(struct masked_problem *masked, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = masked->problem;
	int status;

	masked->kind = (enum masked_kind)plan_word(problem, "kind");
	masked->keep = plan_int(problem, "keep") != 0;
	masked->diagonal = plan_int(problem, "diagonal");
	masked->empty = masked->backward ? 0 : plan_word(problem, "empty");
	masked->scale = plan_real(problem, "scale");
	status = check_kind_of(masked, "keep", MASKED_BOOL, "bool", error);
	return status ? status : check_kind_of(masked, "diagonal", MASKED_CAUSAL, "causal", error);
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
			problem->op, mask->rank, kind_name(masked), dims, name,
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
												 : plan_is_float(dtype);

	if (!fits)
		return plan_refuse(error, KILN_EINVAL, "%s: mask is %s; of kind %s it must be %s",
						   problem->op, plan_dtype_name(dtype), kind_name(masked),
						   wanted[masked->kind]);
	return rows_check_aligned(problem, masked->mask, error);
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
						   problem->op, kind_name(masked));
	status = check_mask_dtype(masked, error);
	if (!status)
		status = check_broadcast(masked, masked->kind == MASKED_LENGTHS ? rank - 1 : rank, error);
	/* y contains already what the mask added. */
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
