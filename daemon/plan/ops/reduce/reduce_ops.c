/*
 * reduce_ops.c: the rows of the reductions, and which generic kernels they have: for each type that
 * elements are taken as, one for short rows, one for long ones, and one for rows side by side.
 */
#include "reduce.h"

#include <math.h>
#include <string.h>

static struct kernel_attr *made_attr(struct kernel_problem *problem, const char *name,
									 kiln_attr_kind kind)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count++];

	*attr = (struct kernel_attr){.kind = kind};
	memcpy(attr->name, name, strlen(name) + 1);
	return attr;
}

static void made(int layout, kiln_dtype dtype, struct kernel_problem *out)
{
	static const int64_t shapes[][3] = {{2, 3}, {2, 8192}, {2, 3, 5}}, results[] = {2, 5};
	struct kernel_attr *over = made_attr(out, "over", KILN_ATTR_INTS);

	over->count = 1;
	over->ints[0] = 1;
	plan_made_tensor(out, 0, dtype, layout == 2 ? 3 : 2, shapes[layout]);
	plan_made_tensor(out, 1, dtype, layout == 2 ? 2 : 1, results);
}

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F64, KILN_I64};

static int generics_of(int index, int count, kiln_dtype result, struct kernel_problem *out)
{
	if (index >= 3 * count)
		return KILN_ENOENT;
	made(index % 3, dtypes[index / 3], out);
	if (result != KILN_DTYPE_NONE)
		out->tensors[1].dtype = result;
	return KILN_OK;
}

static int generics_all(int index, struct kernel_problem *out)
{
	return generics_of(index, 3, KILN_DTYPE_NONE, out);
}

static int generics_places(int index, struct kernel_problem *out)
{
	return generics_of(index, 3, KILN_I64, out);
}

static int generics_truth(int index, struct kernel_problem *out)
{
	return generics_of(index, 3, KILN_BOOL, out);
}

static int generics_floats(int index, struct kernel_problem *out)
{
	return generics_of(index, 2, KILN_DTYPE_NONE, out);
}

static int generics_norm(int index, struct kernel_problem *out)
{
	static const double orders[] = {2, 1, INFINITY, -INFINITY, 3};

	if (index >= 5 * 6)
		return KILN_ENOENT;
	made_attr(out, "ord", KILN_ATTR_REAL)->f = orders[index / 6];
	return generics_of(index % 6, 2, KILN_DTYPE_NONE, out);
}

/* ---- The rows of the operators ---- */

#define OVER                                                                                    \
	{                                                                                           \
		"over", KILN_ATTR_INTS, "LIST", "the dimensions to reduce; all if there is none", NULL, \
			.text = "the dimensions to reduce, from the end if below 0; all if there is none"   \
	}
#define KEEPDIM                                                                                    \
	{                                                                                              \
		"keepdim", KILN_ATTR_INT, NULL, "the reduced dimensions stay, of size 1", "0", OP_BETWEEN, \
			0, 1, .text = "1 to keep the reduced dimensions, of size 1"                            \
	}
#define REDUCTION(op, type, what, kernels, ...)                                                   \
	{                                                                                             \
		.name = op, .operands = {{"x", OP_NORMAL}, {"y", .shape = OP_REDUCED, .dtype = type}},    \
		.attributes = {__VA_ARGS__}, .summary = what, .plan = reduce_plan, .infer = reduce_infer, \
		.choices = reduce_choices, .generics = kernels,                                           \
	}

const struct plan_op plan_ops_reduce[] = {
	REDUCTION("sum", OP_SUMMED,
			  "y = the sum of x over some dimensions; f16 and bf16 are added up in f32, integers "
			  "and bools in i64, which is y's type then",
			  generics_all, OVER, KEEPDIM),
	REDUCTION("mean", OP_SAME, "y = the mean of x over some dimensions", generics_floats, OVER,
			  KEEPDIM),
	REDUCTION("prod", OP_SUMMED, "y = the product of x over some dimensions, in types as of sum",
			  generics_all, OVER, KEEPDIM),
	REDUCTION("amax", OP_SAME, "y = the largest of x over some dimensions; a NaN, if there is one",
			  generics_all, OVER, KEEPDIM),
	REDUCTION("amin", OP_SAME, "y = the smallest of x over some dimensions; a NaN, if there is one",
			  generics_all, OVER, KEEPDIM),
	REDUCTION("argmax", OP_I64,
			  "y = the number of the largest of x among the elements of the reduced dimensions; of "
			  "the first of equals, and of the first NaN, if there is one",
			  generics_places, OVER, KEEPDIM),
	REDUCTION("argmin", OP_I64, "y = the number of the smallest of x, as of argmax",
			  generics_places, OVER, KEEPDIM),
	REDUCTION("any", OP_BOOL, "y = is any of x over some dimensions not 0?", generics_truth, OVER,
			  KEEPDIM),
	REDUCTION("all", OP_BOOL, "y = are all of x over some dimensions not 0?", generics_truth, OVER,
			  KEEPDIM),
	REDUCTION("vector_norm", OP_SAME,
			  "y = (the sum of |x| to the power of ord) to the power of 1 / ord, over some "
			  "dimensions; of ord inf the largest magnitude, of -inf the smallest, of 0 how many "
			  "are not 0",
			  generics_norm,
			  {"ord", KILN_ATTR_REAL, "R", "the order of the norm: any number, inf and -inf", "2"},
			  OVER, KEEPDIM),
	REDUCTION("logsumexp", OP_SAME, "y = log(the sum of exp(x) over some dimensions)",
			  generics_floats, OVER, KEEPDIM),
	REDUCTION("var", OP_SAME,
			  "y = the sum of (x - mean)^2 over some dimensions, divided by their elements less "
			  "correction",
			  generics_floats, OVER,
			  {"correction", KILN_ATTR_REAL, "R", "how many less than the elements divide", "1",
			   OP_FINITE},
			  KEEPDIM),
	{.name = NULL},
};
