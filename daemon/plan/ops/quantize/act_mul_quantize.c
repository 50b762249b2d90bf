/*
 * act_mul_quantize.c: the plan of act_mul_quantize, whose rows go along the last dimension of y.
 * Without other, a row of x has x in its first half and other in its second.
 */
#include "quantize.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/act_mul_quantize.cuh"
#define GENERIC_COUNT 2u /* vectors that a thread takes in a step */
#define REGISTERS 32     /* words of both rows that a thread keeps */

enum { X, OTHER, SCALE, Y, SCALES };

struct form {
	const struct kernel_problem *problem;
	struct rows_form rows; /* of x, other and y */
	struct rows_need need;
	kiln_dtype from, to;
	int64_t half; /* elements from a row of x to that of other */
	int64_t group;
	int act;
};

/* ---- What a request must satisfy ---- */

/* The problem with x as long as y must be. */
static struct kernel_problem halved(const struct kernel_problem *problem)
{
	struct kernel_problem same = *problem;
	struct kernel_tensor *x = &same.tensors[X];

	if (!plan_has(problem, OTHER))
		x->shape[x->rank - 1] /= 2;
	return same;
}

static int act_quantize_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X];
	int status = quantize_check_input(problem, error), last = x->rank - 1;
	struct kernel_problem same;

	if (!status)
		status = quantize_check_rank(problem, error);
	if (!status && plan_has(problem, OTHER))
		status = rows_check_like(problem, OTHER, X, error);
	else if (!status && x->shape[last] % 2)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; without other it must be even",
						   problem->op, last, (long long)x->shape[last]);
	if (status)
		return status;
	same = halved(problem);
	if (problem->tensors[Y].rank == x->rank &&
		problem->tensors[Y].shape[last] != same.tensors[X].shape[last])
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of y has size %lld; it must be %lld", problem->op,
						   last, (long long)problem->tensors[Y].shape[last],
						   (long long)same.tensors[X].shape[last]);
	status = quantize_check_output(&same, Y, error);
	return status ? status : quantize_check_rows(problem, SCALE, Y, SCALES, error);
}

int act_mul_quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *y = &problem->tensors[Y];

	if (!plan_has(problem, Y) && problem->tensors[X].rank) {
		struct kernel_problem same = halved(problem);
		rows_infer_like(&same, Y, X);
		*y = same.tensors[Y];
		y->dtype = quantize_to(problem);
		plan_contiguous(y);
	}
	return act_quantize_check(problem, error);
}

/* ---- Rows ---- */

static void align_to(uint32_t *alignment, uint32_t to)
{
	*alignment = to < *alignment ? to : *alignment;
}

static void act_quantize_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *tensors = problem->tensors, *x = &tensors[X], *y = &tensors[Y];
	int other = plan_has(problem, OTHER) ? OTHER : X, last = x->rank - 1, culprit;
	const int64_t *const strides[] = {x->stride, tensors[other].stride, y->stride};
	uint32_t element = kernel_dtype_bytes(x->dtype);

	memset(form, 0, sizeof(*form));
	form->problem = problem;
	form->from = x->dtype;
	form->to = y->dtype;
	form->act = plan_word(problem, "act");
	form->group = plan_int(problem, "group");
	form->half = other == X ? y->shape[last] * x->stride[last] : 0;
	/* One axis always is one dimension. */
	(void)rows_form(&form->rows, y->rank, y->shape, 3, strides, last, 1, &culprit);
	form->need = (struct rows_need){.element = element,
									.streams = 2,
									.held = 7,
									.alignment = x->alignment,
									.registers = REGISTERS,
									.skew = true,
									.stream = true};
	align_to(&form->need.alignment, tensors[other].alignment);
	/* y has a byte where x has an element. */
	align_to(&form->need.alignment, y->alignment * element);
	while (form->need.alignment > element && (uint64_t)form->half * element % form->need.alignment)
		form->need.alignment /= 2;
}

/* ---- Vectors that know no rows ---- */

/* Threads of a block, those that an H200 likes best first. */
static const uint32_t flats[] = {128, 256};
#define FLATS ((int)(sizeof(flats) / sizeof(flats[0])))

static void flat_name(uint32_t threads, char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "flat %u", threads);
}

/* Those there are if no row has a scale of its own, all of y is whole vectors of 16 bytes of x, and
 * lanes share groups. */
static int act_quantize_flats(const struct form *form, const struct kernel_limits *limits,
							  uint32_t out[FLATS])
{
	uint32_t vector = 16 / form->need.element;
	int64_t elements = form->rows.rows * form->rows.columns, lanes = form->group / vector;
	int count = 0;

	if (elements == 0 || (!form->group && !plan_has(form->problem, SCALE)) ||
		rows_vector(&form->rows, &form->need) != vector || form->group % vector || lanes > 32 ||
		(lanes & (lanes - 1)))
		return 0;
	for (int i = 0; i < FLATS; i++)
		if (flats[i] <= limits->max_threads &&
			(uint64_t)plan_divide_up(elements, (int64_t)vector * flats[i]) <= limits->grid_x)
			out[count++] = flats[i];
	return count;
}

/* Rows that threads share, where no groups have scales. */
static int act_quantize_rows(const struct form *form, const struct kernel_limits *limits,
							 struct rows_shape *out, int most)
{
	if (form->group || form->rows.columns == 0)
		return 0;
	return rows_shapes(&form->rows, &form->need, limits, out, most);
}

/* ---- The plan ---- */

static void act_quantize_pass(const struct form *form, struct kernel_plan *out)
{
	for (int i = X; i <= SCALES; i++)
		plan_arg_pointer(out, i);
	quantize_limits(out, form->to, form->group > 0);
	quantize_pass_scales(form->problem, SCALES, form->group > 0, out);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.rows);
	plan_arg_scalar(out, 8, (uint64_t)form->half);
}

static void act_quantize_touch(const struct form *form, uint32_t vector, struct kernel_plan *out)
{
	for (int i = X; i <= SCALES; i++)
		if (plan_has(form->problem, i))
			plan_touch(form->problem, i,
					   i == SCALE || i == SCALES ? 4
					   : i == Y                  ? vector
												 : vector * form->need.element,
					   out);
}

static const char *const act_words[] = {"ACT_SILU", "ACT_GELU", "ACT_GELU_TANH", "ACT_RELU"};

static int act_quantize_flat(const struct form *form, uint32_t threads,
							 const struct kernel_limits *limits, struct kernel_plan *out,
							 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t elements = form->rows.rows * form->rows.columns;
	uint32_t vector = 16 / form->need.element;

	(void)plan_launch(out, limits, (uint64_t)plan_divide_up(elements, (int64_t)vector * threads),
					  threads);
	snprintf(out->source, sizeof(out->source), SOURCE);
	flat_name(threads, out->choice);
	plan_print(&id, "act_mul_quantize_flat<%s, %s, %u, %u, %s, %lld, %lld",
			   plan_dtype_name(form->from), quantize_type(form->to), vector, threads,
			   act_words[form->act], (long long)form->group, (long long)form->rows.columns);
	rows_print_sizes(&id, &form->rows);
	for (int i = 0; i < 2; i++)
		rows_print_strides(&id, &form->rows, i);
	/* The last block goes beyond the last element. */
	plan_print(&id, ", %s>", elements > INT32_MAX ? "i64" : "u32");
	act_quantize_pass(form, out);
	act_quantize_touch(form, vector, out);
	snprintf(out->note, sizeof(out->note), "vectors of %u elements, %u threads a block", vector,
			 threads);
	return plan_check_name(&id, out, error);
}

static int act_quantize_exact(const struct form *form, const struct rows_shape *shape,
							  const struct kernel_limits *limits, struct kernel_plan *out,
							  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	bool loop = rows_launch(&form->rows, &form->need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), SOURCE);
	rows_shape_name(shape, out->choice);
	plan_print(&id, "act_mul_quantize%s<", shape->stream ? "_stream" : "");
	rows_print_shape(&id, form->from, &form->rows, shape);
	plan_print(&id, ", %s, %s, %s", quantize_type(form->to), act_words[form->act],
			   loop ? "true" : "false");
	for (int i = 0; i < 2; i++)
		rows_print_step(&id, &form->rows, i);
	rows_print_sizes(&id, &form->rows);
	for (int i = 0; i < 3; i++)
		rows_print_strides(&id, &form->rows, i);
	plan_print(&id, ", %s>", rows_index_type(&form->rows));
	act_quantize_pass(form, out);
	act_quantize_touch(form, shape->vector, out);
	rows_describe(&form->rows, &form->need, shape,
				  shape->stream ? " at a time, read twice for a scale of the row" : "", out);
	return plan_check_name(&id, out, error);
}

static void act_quantize_generic(const struct form *form, const struct kernel_limits *limits,
								 struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct rows_any any;
	uint32_t lanes;

	rows_any(&form->rows, &form->need, GENERIC_COUNT, ROWS_ANY_THREADS, limits, &any);
	plan_generic_launch(out, limits, SOURCE, any.blocks, any.threads);
	plan_print(&id, "act_mul_quantize_generic<%s, %u, %s>", plan_dtype_name(form->from), any.vector,
			   quantize_type(form->to));
	act_quantize_pass(form, out);
	plan_arg_scalar(out, 4, (uint64_t)form->act);
	plan_arg_scalar(out, 8, (uint64_t)form->group);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.columns);
	plan_arg_scalar(out, 4, any.shift);
	plan_arg_scalar(out, 4,
					quantize_whole_groups(&form->rows, &form->need, form->group, &any, &lanes));
	plan_arg_scalar(out, 4, lanes);
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 8, (uint64_t)form->rows.step[i]);
	rows_pass_sizes(out, &form->rows, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &form->rows, i);
	act_quantize_touch(form, any.vector, out);
	rows_any_describe(&any, form->need.element, out);
}

int act_mul_quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct form form;
	uint32_t flats_of[FLATS];
	int status = act_quantize_check(problem, error), flat_count, count, chosen;

	if (status)
		return status;
	act_quantize_form(problem, &form);
	/* Rows of nothing have scales. */
	if (form.rows.rows == 0 ||
		(form.rows.columns == 0 && (form.group || !plan_has(problem, SCALES)))) {
		plan_no_elements(out);
		return KILN_OK;
	}
	flat_count = act_quantize_flats(&form, limits, flats_of);
	count = act_quantize_rows(&form, limits, shapes, PLAN_MAX_CHOICES);
	if (plan_is_generic(choice) || (flat_count + count == 0 && !choice)) {
		act_quantize_generic(&form, limits, out);
		return KILN_OK;
	}
	for (int i = 0; i < flat_count; i++) {
		char name[KERNEL_CHOICE_MAX];
		flat_name(flats_of[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return act_quantize_flat(&form, flats_of[i], limits, out, error);
	}
	chosen = rows_shape_find(shapes, count, choice);
	if (chosen < 0)
		return rows_no_candidate(problem, choice, &form.rows, limits, error);
	return act_quantize_exact(&form, &shapes[chosen], limits, out, error);
}

int act_mul_quantize_choices(const struct kernel_problem *problem,
							 const struct kernel_limits *limits,
							 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	uint32_t flats_of[FLATS];
	struct form form;
	int flat_count, count;

	act_quantize_form(problem, &form);
	flat_count = act_quantize_flats(&form, limits, flats_of);
	count = act_quantize_rows(&form, limits, shapes, PLAN_MAX_CHOICES - flat_count);
	for (int i = 0; i < flat_count; i++)
		flat_name(flats_of[i], names[i]);
	if (flat_count && !count)
		return flat_count;
	return flat_count + quantize_shape_names(shapes, count, names + flat_count);
}
