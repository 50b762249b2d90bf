/*
 * quantize_check.c: what requests of quantize, dequantize and dynamic_quantize must satisfy, and
 * what is inferred of their outputs.
 */
#include "quantize.h"

#include <stdio.h>
#include <string.h>

static const kiln_dtype wide[] = {KILN_F16, KILN_BF16, KILN_F32};
static const kiln_dtype narrow[] = {KILN_F8E4M3, KILN_F8E5M2, KILN_I8};

bool quantize_is_back(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "dequantize") == 0;
}

static bool quantize_is_dynamic(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "dynamic_quantize") == 0;
}

/* The words of the attribute are in the order of the lists above. */
kiln_dtype quantize_to(const struct kernel_problem *problem)
{
	return (quantize_is_back(problem) ? wide : narrow)[plan_word(problem, "to")];
}

const char *quantize_type(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3   ? "sat<f8e4m3>"
		   : dtype == KILN_F8E5M2 ? "sat<f8e5m2>"
								  : plan_dtype_name(dtype);
}

int quantize_check_input(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	bool back = quantize_is_back(problem), found = false;
	kiln_dtype dtype = problem->tensors[0].dtype;

	for (int i = 0; i < 3; i++)
		found = found || dtype == (back ? narrow : wide)[i];
	if (!found)
		return plan_refuse(error, KILN_EINVAL, "%s: x is %s; it must be %s", problem->op,
						   plan_dtype_name(dtype),
						   back ? "f8e4m3, f8e5m2 or i8" : "f16, bf16 or f32");
	return rows_check_aligned(problem, 0, error);
}

int quantize_check_rank(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	if (problem->tensors[0].rank == 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x has rank 0; it needs a dimension of which rows are made",
						   problem->op);
	return KILN_OK;
}

int quantize_check_output(const struct kernel_problem *problem, int index,
						  char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *y = &problem->tensors[index];
	kiln_dtype to = quantize_to(problem);
	struct kernel_problem same = *problem;
	char name[16];
	int status;

	plan_operand_name(problem->operands, index, name);
	if (y->dtype != to)
		return plan_refuse(error, KILN_EINVAL, "%s: to is \"%s\" and %s is %s; they must agree",
						   problem->op, plan_dtype_name(to), name, plan_dtype_name(y->dtype));
	same.tensors[0].dtype = y->dtype;
	status = rows_check_same(&same, index, 0, error);
	if (!status)
		status = rows_check_aligned(problem, index, error);
	return status ? status : rows_check_contiguous(problem, index, error);
}

/* ---- Scales ---- */

/* A tensor of scales, wherever they lie. */
static int check_scale_type(const struct kernel_problem *problem, int index,
							char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *scale = &problem->tensors[index];
	char name[16];

	plan_operand_name(problem->operands, index, name);
	if (scale->dtype != KILN_F32)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be f32", problem->op, name,
						   plan_dtype_name(scale->dtype));
	return rows_check_aligned(problem, index, error);
}

/* *step: how far apart the scales of rows lie, which dimensions [0, leading) number.  false: they
 * are not evenly spaced. */
static bool find_row_step(const struct kernel_tensor *scales, int leading, int64_t *step)
{
	int64_t rows = 1;

	*step = 1;
	for (int k = leading - 1; k >= 0; k--) {
		if (scales->shape[k] == 1)
			continue;
		if (rows == 1)
			*step = scales->stride[k];
		else if (scales->stride[k] != *step * rows)
			return false;
		rows *= scales->shape[k];
	}
	return true;
}

/* Scales for each row, or for groups of each, wherever they lie. */
static int check_places(const struct kernel_problem *problem, int index, bool groups,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *scales = &problem->tensors[index];
	int64_t count, step;
	char name[16];

	plan_operand_name(problem->operands, index, name);
	plan_elements(scales, &count);
	if (count && !find_row_step(scales, scales->rank - groups, &step))
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: the dimensions of %s that number rows do not lie one after another: "
			"its rows must be evenly spaced",
			problem->op, name);
	return KILN_OK;
}

static int check_written_scales(const struct kernel_problem *problem, int index, bool groups,
								char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *scales = &problem->tensors[index];
	int status = check_places(problem, index, groups, error);
	int64_t count;
	char name[16];

	plan_operand_name(problem->operands, index, name);
	plan_elements(scales, &count);
	if (!status && count && !plan_is_distinct(scales))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: elements of %s share their place; an output's must lie apart",
						   problem->op, name);
	return status;
}

/* A tensor of scales: f32, aligned and contiguous. */
static int quantize_check_scale(const struct kernel_problem *problem, int index,
								char error[KERNEL_ERROR_MAX])
{
	int status = check_scale_type(problem, index, error);

	return status ? status : rows_check_contiguous(problem, index, error);
}

/* The dimensions of x but the last; `more`: and one of so many groups behind them. */
static int check_leading(const struct kernel_problem *problem, int index, bool more,
						 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0], *scale = &problem->tensors[index];

	if (scale->rank != x->rank - !more)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x has rank %d and scale rank %d; it must have x's dimensions but "
						   "the last%s",
						   problem->op, x->rank, scale->rank,
						   quantize_is_dynamic(problem)
							   ? more ? ", and one of groups" : ""
							   : ", one of groups or not, or be one number");
	for (int k = 0; k < x->rank - 1; k++)
		if (scale->shape[k] != x->shape[k])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d has size %lld in x and %lld in scale; they must "
							   "agree",
							   problem->op, k, (long long)x->shape[k], (long long)scale->shape[k]);
	return KILN_OK;
}

static int check_given(const struct kernel_problem *problem, int64_t *group,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0], *scale = &problem->tensors[1];
	int status = check_scale_type(problem, 1, error), last = x->rank - 1;
	int64_t count, groups = 1;
	bool more;

	*group = 0;
	if (status)
		return status;
	plan_elements(scale, &count);
	if (count == 1)
		return KILN_OK;
	more = x->rank > 0 && scale->rank == x->rank;
	status = check_leading(problem, 1, more, error);
	if (status)
		return status;
	if (more)
		groups = scale->shape[last];
	if (groups < 1 ? x->shape[last] != 0 : x->shape[last] % groups)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d has size %lld in x and %lld in scale, which must be a "
						   "divisor of it",
						   problem->op, last, (long long)x->shape[last], (long long)groups);
	*group = groups ? x->shape[last] / groups : 0;
	return check_places(problem, 1, more, error);
}

static int check_group(const struct kernel_problem *problem, int64_t *group,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0];
	int last = x->rank - 1;

	if (quantize_check_rank(problem, error))
		return KILN_EINVAL;
	*group = plan_int(problem, "group");
	if (*group && x->shape[last] % *group)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: dimension %d of x has size %lld, which is no multiple of group %lld", problem->op,
			last, (long long)x->shape[last], (long long)*group);
	return KILN_OK;
}

static int check_found(const struct kernel_problem *problem, int64_t group,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0], *scale = &problem->tensors[2];
	int status, last = x->rank - 1;

	if (scale->dtype == KILN_DTYPE_NONE)
		return KILN_OK;
	status = check_scale_type(problem, 2, error);
	if (!status)
		status = check_leading(problem, 2, group > 0, error);
	if (!status && group && scale->shape[last] != x->shape[last] / group)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of scale has size %lld; it must be %lld, one for each "
						   "group of %lld",
						   problem->op, last, (long long)scale->shape[last],
						   (long long)(x->shape[last] / group), (long long)group);
	return status ? status : check_written_scales(problem, 2, group > 0, error);
}

/* ---- Scales of the rows that an operator makes ---- */

int quantize_check_one(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX])
{
	int64_t count;
	int status = quantize_check_scale(problem, index, error);

	plan_elements(&problem->tensors[index], &count);
	if (!status && count != 1)
		return plan_refuse(error, KILN_EINVAL, "%s: scale has %lld elements; it must have one",
						   problem->op, (long long)count);
	return status;
}

static int check_row_scales(const struct kernel_problem *problem, int y, int index, int64_t group,
							char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *of = &problem->tensors[y], *scales = &problem->tensors[index];
	int status = check_scale_type(problem, index, error), last = of->rank - 1;
	bool right = scales->rank == last + (group > 0);
	int64_t groups = group ? of->shape[last] / group : 0;

	if (status)
		return status;
	for (int k = 0; right && k < last; k++)
		right = scales->shape[k] == of->shape[k];
	if (!right)
		return plan_refuse(error, KILN_EINVAL, "%s: scales must have y's dimensions but the last%s",
						   problem->op, group ? ", and one of groups" : "");
	if (group && scales->shape[last] != groups)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: dimension %d of scales has size %lld; it must be %lld, one for each "
			"group of %lld",
			problem->op, last, (long long)scales->shape[last], (long long)groups, (long long)group);
	return check_written_scales(problem, index, group > 0, error);
}

int quantize_check_rows(const struct kernel_problem *problem, int scale, int y, int scales,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *of = &problem->tensors[y];
	int last = of->rank - 1;
	int64_t group = plan_int(problem, "group");
	bool given = plan_has(problem, scale);

	if (group && given)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: scale is given and group is %lld; only scales that are found have "
						   "groups",
						   problem->op, (long long)group);
	if (group && of->shape[last] % group)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: dimension %d of y has size %lld, which is no multiple of group %lld", problem->op,
			last, (long long)of->shape[last], (long long)group);
	if (given && quantize_check_one(problem, scale, error))
		return KILN_EINVAL;
	if (!plan_has(problem, scales))
		return KILN_OK;
	return check_row_scales(problem, y, scales, group, error);
}

void quantize_pass_scales(const struct kernel_problem *problem, int scales, bool groups,
						  struct kernel_plan *out)
{
	const struct kernel_tensor *at = &problem->tensors[scales];
	bool there = at->dtype != KILN_DTYPE_NONE;
	int64_t step = 1;

	if (there)
		(void)find_row_step(at, at->rank - groups, &step);
	plan_arg_scalar(out, 8, (uint64_t)step);
	plan_arg_scalar(out, 8, there && groups ? (uint64_t)at->stride[at->rank - 1] : 1);
}

/* ---- Rows that are held by lanes ---- */

bool quantize_shares(const struct rows_shape *shape, int64_t group)
{
	int64_t lanes = group / shape->vector;

	return !shape->skewed && group % shape->vector == 0 && lanes <= 32 &&
		   (lanes & (lanes - 1)) == 0 && shape->size % lanes == 0;
}

int quantize_shapes(const struct rows_form *form, const struct rows_need *need, int64_t group,
					const struct kernel_limits *limits, struct rows_shape *out, int most)
{
	int count = rows_shapes(form, need, limits, out, most), kept = 0;

	for (int i = 0; i < count; i++)
		if (group == 0 || quantize_shares(&out[i], group))
			out[kept++] = out[i];
	return kept;
}

void quantize_prefer(struct rows_shape *shapes, int count, const struct rows_shape *like)
{
	for (int i = 1; i < count; i++) {
		struct rows_shape shape = shapes[i];
		if (shape.stream || shape.skewed || shape.slots || shape.cluster > 1 ||
			shape.size != like->size || shape.rows != like->rows || shape.wide != like->wide ||
			shape.narrow != like->narrow)
			continue;
		memmove(shapes + 1, shapes, (size_t)i * sizeof(*shapes));
		shapes[0] = shape;
		return;
	}
}

int quantize_shape_names(const struct rows_shape *shapes, int count,
						 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	if (count == 0)
		snprintf(names[count++], KERNEL_CHOICE_MAX, "%s", PLAN_GENERIC);
	else
		for (int i = 0; i < count; i++)
			rows_shape_name(&shapes[i], names[i]);
	return count;
}

/* ---- All of it ---- */

int quantize_check(const struct kernel_problem *problem, int64_t *group,
				   char error[KERNEL_ERROR_MAX])
{
	bool dynamic = quantize_is_dynamic(problem);
	int status = quantize_check_input(problem, error);

	if (!status)
		status = (dynamic ? check_group : check_given)(problem, group, error);
	if (!status)
		status = quantize_check_output(problem, dynamic ? 1 : 2, error);
	if (!status && dynamic)
		status = check_found(problem, *group, error);
	return status;
}

int quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int y = quantize_is_dynamic(problem) ? 1 : 2;
	int64_t group;

	if (!plan_has(problem, y)) {
		rows_infer_like(problem, y, 0);
		problem->tensors[y].dtype = quantize_to(problem);
	}
	return quantize_check(problem, &group, error);
}
