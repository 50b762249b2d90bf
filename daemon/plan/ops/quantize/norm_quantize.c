/*
 * norm_quantize.c: the plan of layer_norm_quantize and rms_norm_quantize, whose rows go along the
 * last dimension.
 */
#include "quantize.h"

#include <stdio.h>
#include <string.h>

#define GENERIC_COUNT 5u     /* vectors that a thread of a short row has, and one more */
#define GENERIC_THREADS 128u /* of a block: NORM_QUANTIZE_ANY_THREADS */
#define REGISTERS 96         /* words of a row that a thread keeps, and the numbers that they are */
#define HELD 4               /* vectors of such a thread, of long rows */

enum { X, GAMMA, BETA, RESIDUAL, SCALE, Y, SCALES, SUM, OPERANDS };

struct form {
	const struct kernel_problem *problem;
	struct rows_form rows; /* of x, residual or x again, and y, as which sum lies */
	struct rows_need need;
	kiln_dtype from, to;
	uint32_t affine; /* that gamma and beta are aligned to */
	bool rms;
	double eps;
	int64_t group; /* columns that share a scale; 0: all, or it is given */
};

/* ---- What a request must satisfy ---- */

/* gamma or beta. */
static int check_along(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X], *along = &problem->tensors[index];
	int status = rows_check_float(problem, index, error);
	char name[16];
	int64_t count;

	plan_operand_name(problem->operands, index, name);
	plan_elements(along, &count);
	if (!status && (along->rank != 1 || count != x->shape[x->rank - 1]))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank %d and %lld elements; it must have rank 1 and %lld, as "
						   "x's last dimension",
						   problem->op, name, along->rank, (long long)count,
						   (long long)x->shape[x->rank - 1]);
	return status ? status : rows_check_contiguous(problem, index, error);
}

static int norm_quantize_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int status = quantize_check_input(problem, error);

	if (!status)
		status = quantize_check_rank(problem, error);
	for (int i = GAMMA; i <= BETA && !status; i++)
		if (plan_has(problem, i))
			status = check_along(problem, i, error);
	if (!status && plan_has(problem, RESIDUAL))
		status = rows_check_like(problem, RESIDUAL, X, error);
	if (!status)
		status = quantize_check_output(problem, Y, error);
	if (!status)
		status = quantize_check_rows(problem, SCALE, Y, SCALES, error);
	if (!status && plan_has(problem, SUM)) {
		status = rows_check_like(problem, SUM, X, error);
		if (!status)
			status = rows_check_contiguous(problem, SUM, error);
	}
	if (!status && plan_has(problem, SUM) && !plan_has(problem, RESIDUAL))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: there is no residual; without it sum would be x and must be left "
						   "out",
						   problem->op);
	return status;
}

int norm_quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	if (!plan_has(problem, Y)) {
		rows_infer_like(problem, Y, X);
		problem->tensors[Y].dtype = quantize_to(problem);
	}
	return norm_quantize_check(problem, error);
}

/* ---- Rows ---- */

static void align_to(uint32_t *alignment, uint32_t to)
{
	*alignment = to < *alignment ? to : *alignment;
}

static void norm_quantize_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *tensors = problem->tensors, *x = &tensors[X];
	int other = plan_has(problem, RESIDUAL) ? RESIDUAL : X, culprit;
	const int64_t *const strides[] = {x->stride, tensors[other].stride, tensors[Y].stride};
	uint32_t element = kernel_dtype_bytes(x->dtype);

	memset(form, 0, sizeof(*form));
	form->problem = problem;
	form->from = x->dtype;
	form->to = tensors[Y].dtype;
	form->rms = strncmp(problem->op, "rms", 3) == 0;
	form->eps = plan_real(problem, "eps");
	form->group = plan_int(problem, "group");
	/* One axis always is one dimension. */
	(void)rows_form(&form->rows, x->rank, x->shape, 3, strides, x->rank - 1, 1, &culprit);
	form->need = (struct rows_need){.element = element,
									.streams = other == X ? 1 : 2,
									.held = 7,
									.alignment = x->alignment,
									.registers = REGISTERS,
									.converted = 4,
									.along = true,
									.skew = true,
									.slots = true,
									.stream = true};
	align_to(&form->need.alignment, tensors[other].alignment);
	/* y has a byte where x has an element. */
	align_to(&form->need.alignment, tensors[Y].alignment * element);
	if (plan_has(problem, SUM))
		align_to(&form->need.alignment, tensors[SUM].alignment);
	/* Lanes share the groups of rows that are held as numbers. */
	if (form->group)
		form->need.slots = form->need.stream = false;
	form->affine = 16;
	for (int i = GAMMA; i <= BETA; i++)
		if (plan_has(problem, i))
			align_to(&form->affine, tensors[i].alignment);
}

/* Bytes of gamma and beta for each column. */
static uint32_t bytes_along(const struct form *form)
{
	uint32_t bytes = 0;

	for (int i = GAMMA; i <= BETA; i++)
		if (plan_has(form->problem, i))
			bytes += kernel_dtype_bytes(form->problem->tensors[i].dtype);
	return bytes;
}

/* Behind the shapes, those of other vectors: wide ones, of which y takes 16 bytes, make a scale for
 * twice as many elements of a group; narrow ones read gamma and beta in whole vectors, though these
 * have twice the bytes of x. */
static int offer_vectors(const struct form *form, bool is_wide, struct rows_shape *shapes,
						 int count, int most)
{
	int all = count;

	for (int i = 0; i < count && all < most; i++) {
		struct rows_shape shape = shapes[i];
		if (shape.stream || shape.skewed || shape.slots || shape.cluster > 1 ||
			shape.vector * form->need.element != 16)
			continue;
		shape.wide = is_wide;
		shape.narrow = !is_wide;
		shape.vector = is_wide ? shape.vector * 2 : shape.vector / 2;
		shape.held = is_wide ? shape.held / 2 : shape.held * 2;
		if (!is_wide || (shapes[i].held % 2 == 0 && form->rows.columns % shape.vector == 0 &&
						 form->problem->tensors[Y].alignment >= shape.vector &&
						 quantize_shares(&shape, form->group)))
			shapes[all++] = shape;
	}
	return all;
}

/* An H200 likes blocks of one long row, whose threads have some vectors each, or one where the
 * residual comes with them. */
static int norm_quantize_shapes(const struct form *form, const struct kernel_limits *limits,
								struct rows_shape *out, int most)
{
	bool wide = form->group > 0,
		 narrow = !wide && form->need.streams == 1 && bytes_along(form) >= 4 * form->need.element;
	int count = quantize_shapes(&form->rows, &form->need, form->group, limits, out, most);
	struct rows_shape like = {.rows = 1};
	uint64_t vectors;

	if (form->rows.columns == 0)
		return 0;
	if (count == 0 || out[0].skewed || out[0].vector * form->need.element != 16)
		return count;
	if (wide || narrow)
		count = offer_vectors(form, wide, out, count, most);
	vectors = (uint64_t)form->rows.columns / out[0].vector;
	if (vectors < 512)
		return count;
	if (form->need.streams > 1) {
		like.size = rows_group(vectors, (uint64_t)plan_divide_up(vectors, limits->max_threads));
		quantize_prefer(out, count, &like);
		return count;
	}
	like.size = rows_group(vectors, HELD);
	quantize_prefer(out, count, &like);
	like.wide = wide;
	like.narrow = narrow;
	quantize_prefer(out, count, &like);
	return count;
}

/* ---- The plan ---- */

static const char *type_of(const struct form *form, int operand)
{
	return plan_has(form->problem, operand) ? plan_dtype_name(form->problem->tensors[operand].dtype)
											: "void";
}

static void norm_quantize_pass(const struct form *form, struct kernel_plan *out)
{
	for (int i = X; i < OPERANDS; i++)
		plan_arg_pointer(out, i);
	plan_arg_real(out, KILN_F32, form->eps);
	quantize_limits(out, form->to, form->group > 0);
	quantize_pass_scales(form->problem, SCALES, form->group > 0, out);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.rows);
}

static void norm_quantize_touch(const struct form *form, uint32_t vector, uint32_t affine,
								struct kernel_plan *out)
{
	for (int i = X; i < OPERANDS; i++)
		if (plan_has(form->problem, i))
			plan_touch(form->problem, i,
					   i == GAMMA || i == BETA     ? affine
					   : i == SCALE || i == SCALES ? 4
					   : i == Y                    ? vector
												   : vector * form->need.element,
					   out);
}

static int norm_quantize_exact(const struct form *form, const struct rows_shape *shape,
							   const struct kernel_limits *limits, struct kernel_plan *out,
							   char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	bool loop = rows_launch(&form->rows, &form->need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/norm_quantize.cuh");
	rows_shape_name(shape, out->choice);
	plan_print(&id, "norm_quantize%s<", shape->stream ? "_stream" : shape->slots ? "_slots" : "");
	rows_print_shape(&id, form->from, &form->rows, shape);
	plan_print(&id, ", %s, %s, %s, %u, %s, %u", quantize_type(form->to), type_of(form, GAMMA),
			   type_of(form, BETA), shape->skewed ? 0 : form->affine, form->rms ? "true" : "false",
			   form->need.streams);
	if (!shape->stream && !shape->slots)
		plan_print(&id, ", %lld", (long long)form->group);
	plan_print(&id, ", %s", loop ? "true" : "false");
	for (int i = 0; i < 2; i++)
		rows_print_step(&id, &form->rows, i);
	rows_print_sizes(&id, &form->rows);
	for (int i = 0; i < 3; i++)
		rows_print_strides(&id, &form->rows, i);
	plan_print(&id, ", %s>", rows_index_type(&form->rows));
	norm_quantize_pass(form, out);
	norm_quantize_touch(form, shape->wide ? shape->vector / 2 : shape->vector, form->affine, out);
	rows_describe(&form->rows, &form->need, shape,
				  shape->stream ? " at a time, read three or four times" : "", out);
	return plan_check_name(&id, out, error);
}

/* The type of y, NORM_QUANTIZE_I8, with those of gamma and beta and which norm it is. */
static uint32_t generic_kinds(const struct form *form)
{
	const struct kernel_tensor *tensors = form->problem->tensors;
	uint32_t out = form->to == KILN_F8E4M3 ? 1 : form->to == KILN_F8E5M2 ? 2 : 0;

	return out | (form->rms ? 16u : 0) | rows_any_type(tensors[GAMMA].dtype) << 8 |
		   rows_any_type(tensors[BETA].dtype) << 12;
}

/* May gamma and beta be read in vectors? */
static bool generic_along(const struct form *form)
{
	for (int i = GAMMA; i <= BETA; i++) {
		kiln_dtype dtype = form->problem->tensors[i].dtype;
		if (plan_has(form->problem, i) && dtype != form->from && dtype != KILN_F32)
			return false;
	}
	return true;
}

static void norm_quantize_generic(const struct form *form, const struct kernel_limits *limits,
								  struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct rows_need need = form->need;
	struct rows_any any;
	uint32_t lanes = 0, places, shared;

	rows_any(&form->rows, &need, GENERIC_COUNT, GENERIC_THREADS, limits, &any);
	if (!generic_along(form) ||
		(form->group && !quantize_whole_groups(&form->rows, &need, form->group, &any, &lanes))) {
		need.alignment = need.element;
		need.skew = false;
		rows_any(&form->rows, &need, GENERIC_COUNT, GENERIC_THREADS, limits, &any);
	}
	places = rows_any_ring(&form->rows, need.element, form->need.streams, 1, limits, &any, &shared);
	plan_generic_launch(out, limits, "ops/norm_quantize_generic.cuh", any.blocks, any.threads);
	out->shared_bytes = shared;
	plan_print(&id, "norm_quantize_generic<%s, %u, %u>", plan_dtype_name(form->from), any.vector,
			   form->need.streams);
	norm_quantize_pass(form, out);
	plan_arg_scalar(out, 4, generic_kinds(form));
	plan_arg_scalar(out, 8, (uint64_t)form->group);
	plan_arg_scalar(out, 4, lanes);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.columns);
	plan_arg_scalar(out, 4, any.shift);
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 8, (uint64_t)form->rows.step[i]);
	plan_arg_scalar(out, 4, places);
	rows_pass_sizes(out, &form->rows, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &form->rows, i);
	norm_quantize_touch(form, any.vector, 1, out);
	rows_any_describe(&any, form->need.element, out);
}

int norm_quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct form form;
	int status = norm_quantize_check(problem, error), count, chosen;

	if (status)
		return status;
	norm_quantize_form(problem, &form);
	/* Rows of nothing have scales. */
	if (form.rows.rows == 0 ||
		(form.rows.columns == 0 && (form.group || !plan_has(problem, SCALES)))) {
		plan_no_elements(out);
		return KILN_OK;
	}
	count = norm_quantize_shapes(&form, limits, shapes, PLAN_MAX_CHOICES);
	if (plan_is_generic(choice) || (count == 0 && !choice)) {
		norm_quantize_generic(&form, limits, out);
		return KILN_OK;
	}
	chosen = rows_shape_find(shapes, count, choice);
	if (chosen < 0)
		return rows_no_candidate(problem, choice, &form.rows, limits, error);
	return norm_quantize_exact(&form, &shapes[chosen], limits, out, error);
}

int norm_quantize_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct form form;
	int count;

	norm_quantize_form(problem, &form);
	count = norm_quantize_shapes(&form, limits, shapes, PLAN_MAX_CHOICES);
	return quantize_shape_names(shapes, count, names);
}
