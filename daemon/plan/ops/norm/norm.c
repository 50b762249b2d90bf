/*
 * norm.c: layer_norm and rms_norm: what a request must satisfy, and the kernel that takes it.  The
 * ways to take one are in norm_way.c.
 */
#include "norm.h"

#include <stdio.h>
#include <string.h>

static struct norm_operands find_operands(const struct kernel_problem *problem, bool rms)
{
	struct norm_operands at = {0, 1, 2, 3, 4, rms ? -1 : 5, rms ? 5 : 6, rms ? 6 : 7};
	int *const optional[] = {&at.gamma, &at.beta, &at.residual, &at.mean, &at.rstd, &at.sum};

	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (*optional[i] >= 0 && !plan_has(problem, *optional[i]))
			*optional[i] = -1;
	return at;
}

static int check_operands(const struct norm_problem *norm, char error[KERNEL_ERROR_MAX])
{
	const struct norm_operands *at = &norm->at;
	const int like[] = {at->residual, at->y, at->sum}, trailing[] = {at->gamma, at->beta},
			  leading[] = {at->mean, at->rstd};
	int status = KILN_OK;

	for (int i = 0; i < 2 && !status; i++)
		if (trailing[i] >= 0)
			status = norm_check_trailing(norm->problem, trailing[i], at->x, norm->axes, error);
	for (int i = 0; i < 3 && !status; i++) {
		if (like[i] < 0)
			continue;
		status = rows_check_like(norm->problem, like[i], at->x, error);
		if (!status && like[i] != at->residual)
			status = rows_check_contiguous(norm->problem, like[i], error);
	}
	for (int i = 0; i < 2 && !status; i++)
		if (leading[i] >= 0)
			status = norm_check_leading(norm->problem, leading[i], at->x, norm->axes, error);
	if (!status && at->sum >= 0 && at->residual < 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: there is no residual; without it sum would be x and must be left "
						   "out",
						   norm->problem->op);
	return status;
}

static void norm_find_rows(struct norm_problem *norm)
{
	const struct kernel_problem *problem = norm->problem;
	const struct norm_operands *at = &norm->at;
	int index[4] = {at->x, at->y}, count = 2;

	norm->residual = at->residual >= 0 ? count : -1;
	if (at->residual >= 0)
		index[count++] = at->residual;
	if (at->sum >= 0)
		index[count++] = at->sum;
	norm_form(problem, index, count, norm->axes, &norm->form, &norm->pieces);
	norm->need.element = kernel_dtype_bytes(norm->dtype);
	norm->need.alignment = norm->affine = 16;
	for (int i = 0; i < count; i++) {
		norm->need.held |= 1u << i;
		if (problem->tensors[index[i]].alignment < norm->need.alignment)
			norm->need.alignment = problem->tensors[index[i]].alignment;
	}
	if (at->gamma >= 0)
		norm->affine = problem->tensors[at->gamma].alignment;
	if (at->beta >= 0 && problem->tensors[at->beta].alignment < norm->affine)
		norm->affine = problem->tensors[at->beta].alignment;
}

static int read_problem(const struct kernel_problem *problem, struct norm_problem *norm,
						char error[KERNEL_ERROR_MAX])
{
	int status = rows_check_float(problem, 0, error);

	memset(norm, 0, sizeof(*norm));
	norm->problem = problem;
	norm->rms = strncmp(problem->op, "rms", 3) == 0;
	norm->at = find_operands(problem, norm->rms);
	norm->dtype = problem->tensors[0].dtype;
	norm->axes = (int)plan_int(problem, "axes");
	norm->eps = plan_real(problem, "eps");
	if (!status)
		status = check_operands(norm, error);
	if (!status)
		norm_find_rows(norm);
	return status;
}

int norm_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct norm_problem norm;

	rows_infer_like(problem, 4, 0);
	return read_problem(problem, &norm, error);
}

/* "NormWith<f16, void, 16, NORM_RMS | NORM_RSTD>" */
static void print_with(const struct norm_problem *norm, bool skewed, struct plan_text *id)
{
	const struct norm_operands *at = &norm->at;
	const struct kernel_tensor *tensors = norm->problem->tensors;
	const struct {
		bool there;
		const char *name;
	} flags[] = {
		{norm->rms, "NORM_RMS"},      {at->residual >= 0, "NORM_RESIDUAL"},
		{at->mean >= 0, "NORM_MEAN"}, {at->rstd >= 0, "NORM_RSTD"},
		{at->sum >= 0, "NORM_SUM"},
	};
	const char *between = "";

	plan_print(id, ", NormWith<%s, %s, %u, ",
			   at->gamma >= 0 ? plan_dtype_name(tensors[at->gamma].dtype) : "void",
			   at->beta >= 0 ? plan_dtype_name(tensors[at->beta].dtype) : "void",
			   skewed ? 0 : norm->affine);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!flags[i].there)
			continue;
		plan_print(id, "%s%s", between, flags[i].name);
		between = " | ";
	}
	plan_print(id, "%s>", *between ? "" : "0");
}

void norm_pass_operands(const struct norm_problem *norm, struct kernel_plan *out)
{
	const struct norm_operands *at = &norm->at;
	const int pointers[] = {at->x, at->gamma, at->beta, at->residual,
							at->y, at->mean,  at->rstd, at->sum};

	for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++)
		if (pointers[i] >= 0)
			plan_arg_pointer(out, pointers[i]);
		else
			plan_arg_scalar(out, 8, 0);
	plan_arg_real(out, norm->dtype, norm->eps);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
}

static int add_kernel(const struct norm_problem *norm, const struct norm_way *way,
					  const struct kernel_limits *limits, struct kernel_plan *out,
					  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct norm_place place = norm_place(norm);
	bool stream = way->shape.stream, loop = norm_launch(norm, way, limits, out);
	const struct rows_shape *shape = &way->shape;

	snprintf(out->source, sizeof(out->source), "ops/norm%s.cuh",
			 stream        ? "_stream"
			 : way->each   ? "_wrap"
			 : way->piece  ? "_staged"
			 : way->stages ? "_ring"
						   : "");
	if (way->each) {
		plan_print(&id, "norm_wrap<NormWrapShape<%s, %lld, %u, %u, %u, %u, %s>",
				   plan_dtype_name(norm->dtype), (long long)norm->form.columns, shape->vector,
				   shape->held, shape->size, shape->rows, way->apart ? "true" : "false");
	} else {
		plan_print(&id, "norm_%s<",
				   stream               ? "stream"
				   : way->piece         ? "staged"
				   : way->stages        ? "ring"
				   : shape->cluster > 1 ? "cluster"
										: "rows");
		rows_print_shape(&id, norm->dtype, &norm->form, shape);
	}
	print_with(norm, shape->skewed && !way->each, &id);
	norm_print_place(&id, &place);
	if (way->piece && shape->vector * norm_element(norm) == 16)
		plan_print(&id, ", %u, %u, %u, %s>", way->pitch, way->piece, way->blocks,
				   loop ? "true" : "false");
	else if (way->piece)
		plan_print(&id, ", %u, %u, %u>", way->pitch, way->piece, way->blocks);
	else if (way->stages)
		plan_print(&id, ", %u>", way->stages);
	else if (way->each)
		plan_print(&id, ", %u, %s, %s>", way->each,
				   way->windows ? "NORM_WINDOWS"
				   : way->wide  ? "NORM_WIDE_PLANES"
								: "NORM_PLANES",
				   loop ? "true" : "false");
	else if (stream)
		plan_print(&id, ", %s>", loop ? "true" : "false");
	else
		norm_print_held(&id, way, loop);
	norm_pass_operands(norm, out);
	return plan_check_name(&id, out, error);
}

static void add_extents(const struct norm_problem *norm, uint32_t held, struct kernel_plan *out)
{
	const struct norm_operands *at = &norm->at;

	for (int i = 0; i < norm->problem->tensor_count; i++) {
		bool affine = i == at->gamma || i == at->beta, number = i == at->mean || i == at->rstd;
		if (plan_has(norm->problem, i))
			plan_touch(norm->problem, i,
					   affine   ? norm->affine
					   : number ? kernel_dtype_bytes(norm->problem->tensors[i].dtype)
								: held,
					   out);
	}
}

/* Plans without elements; *done: this was one. */
static int plan_nothing(const struct norm_problem *norm, struct kernel_plan *out, bool *done,
						char error[KERNEL_ERROR_MAX])
{
	int64_t rows, columns;

	norm_sizes(&norm->problem->tensors[0], norm->axes, &rows, &columns);
	*done = rows == 0 || columns == 0;
	if (!*done)
		return KILN_OK;
	if (rows && (norm->at.mean >= 0 || norm->at.rstd >= 0))
		return plan_refuse(error, KILN_EINVAL, "%s: rows of no elements have no %s; leave %s out",
						   norm->problem->op, norm->at.mean >= 0 ? "mean" : "deviation",
						   norm->at.mean >= 0 ? "mean and rstd" : "rstd");
	plan_no_elements(out);
	return KILN_OK;
}

int norm_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct norm_ways ways;
	struct norm_problem norm;
	uint32_t alignment;
	bool nothing = false;
	int status = read_problem(problem, &norm, error), chosen = 0;

	if (status)
		return status;
	status = plan_nothing(&norm, out, &nothing, error);
	if (status || nothing)
		return status;
	if (plan_is_generic(choice)) {
		status = norm_generic(&norm, limits, &alignment, out, error);
		if (!status)
			add_extents(&norm, alignment, out);
		return status;
	}
	norm_ways(&norm, limits, &ways);
	for (; chosen < ways.count; chosen++) {
		norm_way_name(&ways.way[chosen], out->choice);
		if (!choice || strcmp(choice, out->choice) == 0)
			break;
	}
	if (chosen == ways.count)
		return rows_no_candidate(problem, choice, &norm.form, limits, error);
	status = add_kernel(&norm, &ways.way[chosen], limits, out, error);
	if (status)
		return status;
	add_extents(&norm, rows_alignment(&ways.way[chosen].shape, kernel_dtype_bytes(norm.dtype)),
				out);
	norm_note(&norm, &ways.way[chosen], out);
	return KILN_OK;
}

int norm_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct norm_ways ways;
	struct norm_problem norm;
	char error[KERNEL_ERROR_MAX];

	if (read_problem(problem, &norm, error))
		return 0;
	norm_ways(&norm, limits, &ways);
	for (int i = 0; i < ways.count; i++)
		norm_way_name(&ways.way[i], names[i]);
	return ways.count;
}
