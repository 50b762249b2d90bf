/*
 * norm_backward.c: layer_norm_backward and rms_norm_backward: what a request must satisfy.  The
 * ways to take one are in norm_backward_way.c, their kernels in norm_backward_kernel.c.
 */
#include "norm_backward.h"

#include <stdio.h>
#include <string.h>

static struct norm_backward_operands find_operands(const struct kernel_problem *problem, bool rms)
{
	int less = rms ? 1 : 0;
	struct norm_backward_operands at = {0,        1,        2,        rms ? -1 : 3,
										4 - less, 5 - less, 6 - less, 7 - less};
	int *const optional[] = {&at.gamma, &at.dx, &at.dgamma, &at.dbeta};

	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (!plan_has(problem, *optional[i]))
			*optional[i] = -1;
	return at;
}

static int check_operands(const struct norm_backward_problem *norm, char error[KERNEL_ERROR_MAX])
{
	const struct norm_backward_operands *at = &norm->at;
	const int trailing[] = {at->gamma, at->dgamma, at->dbeta}, leading[] = {at->mean, at->rstd};
	int status = rows_check_like(norm->problem, at->dy, at->x, error);

	if (!status && at->gamma >= 0)
		status = norm_check_trailing(norm->problem, at->gamma, at->x, norm->axes, error);
	for (int i = 0; i < 2 && !status; i++)
		if (leading[i] >= 0)
			status = norm_check_leading(norm->problem, leading[i], at->x, norm->axes, error);
	if (!status && at->dx >= 0)
		status = rows_check_like(norm->problem, at->dx, at->x, error);
	if (!status && at->dx >= 0)
		status = rows_check_contiguous(norm->problem, at->dx, error);
	for (int i = 1; i < 3 && !status; i++)
		if (trailing[i] >= 0)
			status = norm_check_trailing(norm->problem, trailing[i], at->x, norm->axes, error);
	if (!status && at->dx < 0 && at->dgamma < 0 && at->dbeta < 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dx, dgamma and dbeta are all left out; one of them must be there",
						   norm->problem->op);
	return status;
}

static uint32_t bit(int operand)
{
	return operand >= 0 ? 1u << operand : 0;
}

/* gamma has no part in the sums over the rows, and x none in that of dy. */
static void find_touched(struct norm_backward_problem *norm)
{
	const struct norm_backward_operands *at = &norm->at;

	norm->sums = (at->dgamma >= 0) + (at->dbeta >= 0);
	norm->touched = bit(at->dy) | bit(at->dx) | bit(at->dgamma) | bit(at->dbeta);
	if (at->dx >= 0 || at->dgamma >= 0)
		norm->touched |= bit(at->x) | bit(at->mean) | bit(at->rstd);
	if (at->dx >= 0)
		norm->touched |= bit(at->gamma);
}

static void norm_backward_find_rows(struct norm_backward_problem *norm)
{
	const struct kernel_problem *problem = norm->problem;
	const struct norm_backward_operands *at = &norm->at;
	const int index[3] = {at->x, at->dy, at->dx};
	int count = at->dx >= 0 ? 3 : 2;

	norm_form(problem, index, count, norm->axes, &norm->form, &norm->pieces);
	if (norm->form.rows == 0)
		norm->form.rank = 0;
	norm->need.element = kernel_dtype_bytes(norm->dtype);
	norm->need.alignment = norm->affine = 16;
	for (int i = 0; i < count; i++) {
		if (!(norm->touched & bit(index[i])))
			continue;
		norm->need.held |= 1u << i;
		if (problem->tensors[index[i]].alignment < norm->need.alignment)
			norm->need.alignment = problem->tensors[index[i]].alignment;
	}
	if (at->gamma >= 0)
		norm->affine = problem->tensors[at->gamma].alignment;
}

static int read_problem(const struct kernel_problem *problem, struct norm_backward_problem *norm,
						char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_float(problem, 0, error);

	memset(norm, 0, sizeof(*norm));
	norm->problem = problem;
	norm->rms = strncmp(problem->op, "rms", 3) == 0;
	norm->at = find_operands(problem, norm->rms);
	norm->dtype = problem->tensors[0].dtype;
	norm->axes = (int)plan_int(problem, "axes");
	if (!status)
		status = check_operands(norm, error);
	if (status)
		return status;
	find_touched(norm);
	norm_backward_find_rows(norm);
	return KILN_OK;
}

/* No output must be there; so there is none to complete. */
int norm_backward_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct norm_backward_problem norm;

	return read_problem(problem, &norm, error);
}

/* held: alignment of x, dy and dx. */
static void add_extents(const struct norm_backward_problem *norm, uint32_t held,
						struct kernel_plan *out)
{
	const struct norm_backward_operands *at = &norm->at;

	for (int i = 0; i < norm->problem->tensor_count; i++) {
		bool row = i == at->x || i == at->dy || i == at->dx;
		if (norm->touched & bit(i))
			plan_touch(norm->problem, i,
					   row              ? held
					   : i == at->gamma ? norm->affine
										: kernel_dtype_bytes(norm->problem->tensors[i].dtype),
					   out);
	}
}

int norm_backward_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct norm_backward_way ways[NORM_BACKWARD_MAX_WAYS];
	struct norm_backward_problem norm;
	int status = read_problem(problem, &norm, error), count, chosen = 0;
	int64_t rows, columns;
	uint32_t alignment;

	if (status)
		return status;
	norm_sizes(&problem->tensors[0], norm.axes, &rows, &columns);
	if (columns == 0 || (rows == 0 && norm.sums == 0)) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice)) {
		status = norm_backward_generic(&norm, limits, &alignment, out, error);
		if (!status)
			add_extents(&norm, alignment, out);
		return status;
	}
	count = norm_backward_ways(&norm, limits, ways);
	for (; chosen < count; chosen++) {
		norm_backward_way_name(&ways[chosen], out->choice);
		if (!choice || strcmp(choice, out->choice) == 0)
			break;
	}
	if (chosen == count)
		return rows_no_candidate(problem, choice, &norm.form, limits, error);
	status = norm_backward_kernel(&norm, &ways[chosen], limits, out, error);
	if (status)
		return status;
	add_extents(&norm, norm_backward_alignment(&norm, &ways[chosen]), out);
	return KILN_OK;
}

int norm_backward_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct norm_backward_way ways[NORM_BACKWARD_MAX_WAYS];
	struct norm_backward_problem norm;
	char error[KERNEL_ERROR_MAX];
	int count;

	if (read_problem(problem, &norm, error))
		return 0;
	count = norm_backward_ways(&norm, limits, ways);
	for (int i = 0; i < count; i++)
		norm_backward_way_name(&ways[i], names[i]);
	return count;
}
