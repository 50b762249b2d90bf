/*
 * topk_ops.c: the first k of each row in order, and whole rows sorted: what a request must satisfy,
 * and the operators' rows.
 *
 * sort is topk of all columns, so both operators share all but the range of sizes.
 */
#include "daemon/plan/ops/topk/topk.h"

#include <string.h>

#define K_MOST 2048
#define SORT_MOST 8192

enum { X = TOPK_X, VALUES = TOPK_VALUES, INDICES = TOPK_INDICES };

/* ---- What a request must satisfy ---- */

static bool is_sort(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "sort") == 0;
}

/* The shape of the results. */
static int find_result(const struct kernel_problem *problem, kiln_dtype dtype,
					   struct kernel_tensor *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X];
	int axis;
	int64_t columns, k;

	axis = plan_axis(problem);
	columns = x->shape[axis];
	k = is_sort(problem) ? columns : plan_int(problem, "k");
	if (k > columns)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: k is %lld; dimension %d of x has size %lld, and k may be no more",
						   problem->op, (long long)k, axis, (long long)columns);
	if (is_sort(problem) && columns > SORT_MOST)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; rows of up to %d are sorted",
						   problem->op, axis, (long long)columns, SORT_MOST);
	if (columns > TOPK_COLUMNS_MOST)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; it may have up to %d", problem->op,
						   axis, (long long)columns, TOPK_COLUMNS_MOST);
	*out = (struct kernel_tensor){.dtype = dtype, .rank = x->rank, .alignment = 16};
	memcpy(out->shape, x->shape, sizeof(out->shape));
	out->shape[axis] = k;
	plan_contiguous(out);
	return KILN_OK;
}

static int check_result(const struct kernel_problem *problem, int index,
						const struct kernel_tensor *right, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *is = &problem->tensors[index];
	char name[16];
	int status;

	plan_operand_name(problem->operands, index, name);
	if (is->dtype != right->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be %s", problem->op, name,
						   plan_dtype_name(is->dtype), plan_dtype_name(right->dtype));
	if (is->rank != right->rank)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; it must have rank %d",
						   problem->op, name, is->rank, right->rank);
	for (int i = 0; i < is->rank; i++)
		if (is->shape[i] != right->shape[i])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has size %lld; it must be %lld", problem->op,
							   i, name, (long long)is->shape[i], (long long)right->shape[i]);
	status = rows_check_aligned(problem, index, error);
	return status ? status : rows_check_contiguous(problem, index, error);
}

int topk_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	kiln_dtype dtype = problem->tensors[X].dtype;
	struct kernel_tensor right;
	int status;

	if (!plan_is_float(dtype) && dtype != KILN_I32 && dtype != KILN_I64 && !topk_is_small(dtype))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x is %s; it must be f16, bf16, f32, f64, i8, u8, i16, i32, i64 or "
						   "bool",
						   problem->op, plan_dtype_name(dtype));
	status = rows_check_aligned(problem, X, error);
	if (!status)
		status = find_result(problem, dtype, &right, error);
	if (!status)
		status = check_result(problem, VALUES, &right, error);
	right.dtype = KILN_I64;
	if (!status && plan_has(problem, INDICES))
		status = check_result(problem, INDICES, &right, error);
	return status;
}

static int topk_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *values = &problem->tensors[VALUES];

	if (values->dtype == KILN_DTYPE_NONE) {
		int status = find_result(problem, problem->tensors[X].dtype, values, error);
		if (status)
			return status;
	}
	return topk_check(problem, error);
}

#define TYPES 10

/* Each type has three: rows that are sorted as a whole; and longer ones whose elements lie side by
 * side, and others. */
static int topk_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[TYPES] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64, KILN_I32,
											 KILN_I64, KILN_I16, KILN_I8,   KILN_U8,  KILN_BOOL};
	int which = index % TYPES, rank = index < 2 * TYPES ? 2 : 3;
	const int64_t shape[] = {4, index < TYPES ? 64 : 512, 8}, result[] = {4, 1, 8};

	if (index >= 3 * TYPES)
		return KILN_ENOENT;
	plan_made_tensor(out, X, dtypes[which], rank, shape);
	plan_made_tensor(out, VALUES, dtypes[which], rank, result);
	plan_made_int(out, "k", 1);
	plan_made_int(out, "axis", 1);
	return KILN_OK;
}

/* The first of topk's: rows are sorted as a whole. */
static int sort_generics(int index, struct kernel_problem *out)
{
	int status = index < TYPES ? topk_generics(index, out) : KILN_ENOENT;

	if (status)
		return status;
	out->tensors[VALUES] = out->tensors[X];
	out->attrs[0] = out->attrs[1];
	out->attr_count = 1;
	return KILN_OK;
}

/* ---- The rows of the operators ---- */

#define AXIS                                                                                    \
	{                                                                                           \
		"axis", KILN_ATTR_INT, "N", "the dimension to go along, from the end if below 0", "-1", \
			OP_AXIS                                                                             \
	}

const struct plan_op plan_ops_topk[] = {
	{
		.name = "topk",
		.operands = {{"x", OP_NORMAL},
					 {"values", .shape = OP_FIRST_K},
					 {"indices", .shape = OP_FIRST_K, .dtype = OP_I64, .presence = OP_USUAL}},
		.attributes = {{"k", KILN_ATTR_INT, "N", "how many of each row", "1", OP_BETWEEN, 0, K_MOST,
						.needed = true},
					   AXIS,
					   {"largest", KILN_ATTR_INT, "N", "1: the greatest; 0: the least", "1",
						OP_BETWEEN, 0, 1, .text = "1 (default) for the greatest, 0 for the least"}},
		.summary = "values = the k greatest of x along an axis in order, or the least, and their "
				   "places; equals by place, and NaN is greater than any number",
		.gains =
			{{"list", 4.1, 4.1}, {"network", 2.8, 2.8}, {"sampled", 2.6, 2.6}, {NULL, 1.2, 1.2}},
		.plan = topk_plan,
		.infer = topk_infer,
		.choices = topk_choices,
		.generics = topk_generics,
	},
	{
		.name = "sort",
		.operands = {{"x", OP_NORMAL},
					 {"values"},
					 {"indices", .dtype = OP_I64, .presence = OP_USUAL}},
		.attributes = {AXIS,
					   {"descending", KILN_ATTR_INT, NULL, "from the greatest", "0", OP_BETWEEN, 0,
						1, .text = "1 to begin with the greatest"}},
		.summary = "values = x in order along an axis, and where each was; equals by place, and "
				   "NaN is greater than any number",
		.gains = {{"network", 2.8, 2.8}, {NULL, 1.2, 1.2}},
		.plan = topk_plan,
		.infer = topk_infer,
		.choices = topk_choices,
		.generics = sort_generics,
	},
	{.name = NULL},
};
