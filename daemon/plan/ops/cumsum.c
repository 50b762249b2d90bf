/*
 * cumsum.c: the cumulative sum along an axis and its like: what a request must satisfy, what each
 * makes of elements, and the operators' rows.  rows/scan.c spreads them over threads.
 *
 * A gradient is a scan from the other end: that of y = cumsum(x) is the cumulative sum of dy.
 */
#include "daemon/plan/ops/rows/scan.h"

#include <stdio.h>
#include <string.h>

/* The struct in kernel_src/ops/cumsum.cuh, of the element's type and what else it is told. */
static const struct kind {
	const char *op, *monoid, *with;
	int inputs, outputs;
	bool backward;
	bool floats; /* takes no integers */
	bool places; /* is told the type of numbers within a row */
} kinds[] = {
	{"cumsum", "ScanSum", ", false", 1, 1, false, false, false},
	{"cumsum_backward", "ScanSum", ", false", 1, 1, true, false, false},
	{"cumprod", "ScanSum", ", true", 1, 1, false, false, false},
	{"cumprod_backward", "ScanProductGradient", "", 3, 1, true, true, false},
	{"cummax", "ScanBest", ", false", 1, 2, false, false, true},
	{"cummin", "ScanBest", ", true", 1, 2, false, false, true},
	{"logcumsumexp", "ScanLog", "", 1, 1, false, true, false},
	{"logcumsumexp_backward", "ScanLogGradient", "", 3, 1, true, true, false},
};

static const struct kind *kind_of(const struct kernel_problem *problem)
{
	const struct kind *kind = kinds;

	while (strcmp(kind->op, problem->op) != 0)
		kind++;
	return kind;
}

/* ---- What a request must satisfy ---- */

static int check_output(const struct kernel_problem *problem, int index,
						char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_aligned(problem, index, error);

	return status ? status : rows_check_contiguous(problem, index, error);
}

/* The numbers of elements: i64, with the shape of the others. */
static int check_places(const struct kernel_problem *problem, int index,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *places = &problem->tensors[index];
	struct kernel_problem alike = *problem;

	if (places->dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: indices is %s; it must be i64", problem->op,
						   plan_dtype_name(places->dtype));
	alike.tensors[index].dtype = problem->tensors[0].dtype;
	if (rows_check_same(&alike, index, 0, error))
		return KILN_EINVAL;
	return check_output(problem, index, error);
}

static int cumsum_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kind *kind = kind_of(problem);
	kiln_dtype dtype = problem->tensors[0].dtype;
	char name[16];
	int status = KILN_OK;

	plan_operand_name(problem->operands, 0, name);
	if (!plan_is_float(dtype) && (kind->floats || (dtype != KILN_I32 && dtype != KILN_I64)))
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be f16, bf16, f32%s",
						   problem->op, name, plan_dtype_name(dtype),
						   kind->floats ? " or f64" : ", f64, i32 or i64");
	for (int i = 0; i <= kind->inputs && !status; i++) {
		status = i > 0 ? rows_check_same(problem, i, 0, error) : KILN_OK;
		if (!status)
			status = i < kind->inputs ? rows_check_aligned(problem, i, error)
									  : check_output(problem, i, error);
	}
	if (!status && kind->outputs > 1 && plan_has(problem, 2))
		status = check_places(problem, 2, error);
	return status;
}

static int cumsum_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kind *kind = kind_of(problem);

	rows_infer_like(problem, kind->inputs, 0);
	return cumsum_check(problem, error);
}

/* ---- The plan ---- */

static void print_monoid(const struct kind *kind, kiln_dtype dtype, bool far,
						 char monoid[SCAN_MONOID_MAX])
{
	snprintf(monoid, SCAN_MONOID_MAX, "%s<%s%s%s>", kind->monoid, plan_dtype_name(dtype),
			 kind->with,
			 !kind->places ? ""
			 : far         ? ", i64"
						   : ", i32");
}

static void find_form(const struct kernel_problem *problem, struct scan_form *form)
{
	const struct kind *kind = kind_of(problem);
	int outputs = kind->outputs > 1 && !plan_has(problem, 2) ? 1 : kind->outputs;

	scan_find_form(problem, kind->inputs, outputs, form);
	form->source = "ops/cumsum.cuh";
	form->heavy = form->element == 8 || strcmp(kind->monoid, "ScanSum") != 0;
	form->costly = strncmp(kind->monoid, "ScanLog", 7) == 0;
	print_monoid(kind, form->dtype, form->rows.columns > INT32_MAX, form->monoid);
	print_monoid(kind, form->dtype, true, form->generic_monoid);
	form->reverse = kind->backward != (plan_int(problem, "reverse") != 0);
	form->exclusive = plan_int(problem, "exclusive") != 0;
}

static int cumsum_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct scan_form form;

	find_form(problem, &form);
	return scan_choices(&form, limits, names);
}

static int cumsum_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	int status = cumsum_check(problem, error);
	struct scan_form form;
	int64_t elements;

	if (status)
		return status;
	plan_elements(&problem->tensors[0], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	find_form(problem, &form);
	return scan_plan(problem, &form, limits, choice, out, error);
}

/* Each type and direction has one for each layout of rows. */
static int generics_of(int index, int types, int operands, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16,
										KILN_F64, KILN_I32, KILN_I64};

	if (index >= 2 * types * SCAN_LAYOUTS)
		return KILN_ENOENT;
	scan_made(index % SCAN_LAYOUTS, operands, dtypes[index / (2 * SCAN_LAYOUTS)], out);
	if (index / SCAN_LAYOUTS % 2)
		plan_made_int(out, "reverse", 1);
	return KILN_OK;
}

static int generics_all(int index, struct kernel_problem *out)
{
	return generics_of(index, 6, 2, out);
}

static int generics_floats(int index, struct kernel_problem *out)
{
	return generics_of(index, 4, 2, out);
}

static int generics_gradient(int index, struct kernel_problem *out)
{
	return generics_of(index, 4, 4, out);
}

/* ---- The rows of the operators ---- */

#define AXIS                                                                                    \
	{                                                                                           \
		"axis", KILN_ATTR_INT, "N", "the dimension to go along, from the end if below 0", "-1", \
			OP_AXIS                                                                             \
	}
#define EXCLUSIVE                                                                              \
	{                                                                                          \
		"exclusive", KILN_ATTR_INT, NULL, "without the element itself", "0", OP_BETWEEN, 0, 1, \
			.text = "1 to leave the element itself out of its result"                          \
	}
#define REVERSE(what)                                                                       \
	{                                                                                       \
		"reverse", KILN_ATTR_INT, NULL, "from the end", "0", OP_BETWEEN, 0, 1, .text = what \
	}

#define SCAN(kernels) \
	.plan = cumsum_plan, .infer = cumsum_infer, .choices = cumsum_choices, .generics = kernels
#define BEST(op, which)                                                                            \
	{                                                                                              \
		.name = op,                                                                                \
		.operands = {{"x", OP_NORMAL}, {"y"}, {"indices", .dtype = OP_I64, .presence = OP_USUAL}}, \
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 to go from the end")},                          \
		.summary = "y[k] = the " which " of x[0] to x[k] along an axis, and its number, that of "  \
				   "the last of equals; a NaN, if there is one; of nothing an infinity and -1",    \
		SCAN(generics_all),                                                                        \
	}

const struct plan_op plan_ops_cumsum[] = {
	{
		.name = "cumsum",
		.operands = {{"x", OP_NORMAL}, {"y"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 to add up from the end")},
		.summary = "y[k] = x[0] + .. + x[k] along an axis; f16 and bf16 are added up in f32, and "
				   "i32 and i64 wrap",
		SCAN(generics_all),
		.widens_integers = true,
	},
	{
		.name = "cumsum_backward",
		.operands = {{"dy", OP_NORMAL}, {"dx"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 if the sums were added up from the end")},
		.summary = "dx[k] = dy[k] + .. + dy[last] along an axis, added up as in cumsum",
		SCAN(generics_all),
	},
	{
		.name = "cumprod",
		.operands = {{"x", OP_ABOUT_ONE}, {"y"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 to multiply from the end")},
		.summary = "y[k] = x[0] * .. * x[k] along an axis, in types as of cumsum",
		SCAN(generics_all),
		.widens_integers = true,
	},
	{
		.name = "cumprod_backward",
		.operands = {{"x", OP_ABOUT_ONE}, {"y", OP_ABOUT_ONE}, {"dy", OP_NORMAL}, {"dx"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 if the products began at the end")},
		.summary =
			"dx[j] = y[j - 1] * (dy[j] + x[j + 1] * (dy[j + 1] + ..)) along an axis, y being "
			"the product: right where x holds zeros",
		SCAN(generics_gradient),
	},
	BEST("cummax", "largest"),
	BEST("cummin", "smallest"),
	{
		.name = "logcumsumexp",
		.operands = {{"x", OP_NORMAL}, {"y"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 to add up from the end")},
		.summary = "y[k] = log(exp(x[0]) + .. + exp(x[k])) along an axis",
		SCAN(generics_floats),
	},
	{
		.name = "logcumsumexp_backward",
		.operands = {{"x", OP_NORMAL}, {"y", OP_NORMAL}, {"dy", OP_NORMAL}, {"dx"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 if the sums were added up from the end")},
		.summary =
			"dx[j] = the sum of dy[k] * exp(x[j] - y[k]) over k from j on; 0 where x is -inf",
		SCAN(generics_gradient),
	},
	{.name = NULL},
};
