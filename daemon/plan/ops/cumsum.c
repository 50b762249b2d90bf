/*
 * cumsum.c: cumulative sums along an axis, forward and backward: what a request must satisfy, how
 * its rows are spread over threads, and the operators' rows.
 *
 * The backward of y = cumsum(x) is dx = the cumulative sum of dy from the other end, so both
 * operators share all but the direction.  Operand 0 is read, operand 1 written.
 */
#include "daemon/plan/ops/rows/rows.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/cumsum.cuh"
#define SHAPES_MOST 8

/* The problem as rows of columns. */
struct form {
	struct rows_form rows;
	kiln_dtype dtype;
	uint32_t element, vector;
	bool strided;   /* rows of y lie side by side, and not the elements of a row */
	bool reverse;   /* from the end */
	bool exclusive; /* without the element itself */
};

/* Threads share the work: (size) threads a row and (side) rows a block; or, of strided rows, (size)
 * threads share the columns of each of (side) vectors of rows. */
struct shape {
	uint32_t vector, held, size, side;
};

/* ---- What a request must satisfy ---- */

static int cumsum_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	kiln_dtype dtype = problem->tensors[0].dtype;
	char name[16];
	int status;

	plan_operand_name(problem->operands, 0, name);
	if (!plan_is_float(dtype) && dtype != KILN_I32 && dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s is %s; it must be f16, bf16, f32, f64, i32 or i64", problem->op,
						   name, plan_dtype_name(dtype));
	status = rows_check_same(problem, 1, 0, error);
	for (int i = 0; i < 2 && !status; i++)
		status = rows_check_aligned(problem, i, error);
	return status ? status : rows_check_contiguous(problem, 1, error);
}

static int cumsum_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	rows_infer_like(problem, 1, 0);
	return cumsum_check(problem, error);
}

/* ---- Rows ---- */

/* Rows side by side that move at once. */
static uint32_t side_vector(const struct form *form, uint32_t bytes)
{
	const struct rows_form *rows = &form->rows;
	int last = rows->rank - 1;

	for (int i = 0; i < 2; i++) {
		if (rows->stride[i][last] != 1)
			return 1;
		for (int k = 0; k < last; k++)
			while (bytes > form->element && rows->stride[i][k] * form->element % bytes)
				bytes /= 2;
		while (bytes > form->element && rows->step[i] * form->element % bytes)
			bytes /= 2;
	}
	while (bytes > form->element && rows->size[last] * form->element % bytes)
		bytes /= 2;
	return bytes > form->element ? bytes / form->element : 1;
}

static void find_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[0], *y = &problem->tensors[1];
	const int64_t *const strides[] = {x->stride, y->stride};
	struct rows_need need = {.element = kernel_dtype_bytes(x->dtype), .held = 3};
	int culprit;

	memset(form, 0, sizeof(*form));
	form->dtype = x->dtype;
	form->element = need.element;
	form->reverse =
		(strcmp(problem->op, "cumsum_backward") == 0) != (plan_int(problem, "reverse") != 0);
	form->exclusive = plan_int(problem, "exclusive") != 0;
	/* One axis always merges with itself. */
	rows_form(&form->rows, x->rank, x->shape, 2, strides, plan_axis(problem), 1, &culprit);
	form->strided = form->rows.step[1] != 1;
	need.alignment = x->alignment < y->alignment ? x->alignment : y->alignment;
	form->vector = form->strided ? side_vector(form, need.alignment < 16 ? need.alignment : 16)
								 : rows_vector(&form->rows, &need);
}

/* ---- How they are spread ---- */

static uint32_t power_of_two(int64_t least, uint32_t most)
{
	uint32_t power = 1;

	while (power < least && power < most)
		power *= 2;
	return power;
}

static void cumsum_keep(struct shape *shapes, int *count, struct shape shape,
						const struct kernel_limits *limits)
{
	bool known = shape.size * shape.side > limits->max_threads;

	for (int i = 0; i < *count; i++)
		known = known || memcmp(&shapes[i], &shape, sizeof(shape)) == 0;
	if (!known && *count < SHAPES_MOST)
		shapes[(*count)++] = shape;
}

/* A short row takes part of a warp, a middling one a warp, and a long one a block in steps. */
static int row_shapes(const struct form *form, const struct kernel_limits *limits,
					  struct shape shapes[SHAPES_MOST])
{
	static const uint32_t others[][2] = {{128, 4}, {256, 4}, {256, 2}, {64, 4}, {512, 2}};
	int64_t vectors = (form->rows.columns + form->vector - 1) / form->vector;
	struct shape shape = {form->vector, 1, power_of_two(vectors, 32), 0};
	int count = 0;

	if (vectors <= 128) {
		shape.held = power_of_two((vectors + 31) / 32, 4);
		shape.side = 128 / shape.size;
		cumsum_keep(shapes, &count, shape, limits);
	}
	for (int i = vectors <= 512 ? 0 : 1; i < 5 && vectors > 32; i++)
		cumsum_keep(shapes, &count, (struct shape){form->vector, others[i][1], others[i][0], 1},
					limits);
	/* Blocks of 32 threads run on any device. */
	if (count == 0)
		cumsum_keep(shapes, &count, (struct shape){form->vector, 4, 32, 1}, limits);
	return count;
}

static int side_shapes(const struct form *form, const struct kernel_limits *limits,
					   struct shape shapes[SHAPES_MOST])
{
	static const uint32_t lanes[] = {32, 16, 64};
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	int count = 0;

	for (int i = 0; i < 3; i++) {
		struct shape shape = {form->vector, 4, 1, power_of_two(inner, lanes[i])};
		shape.size = power_of_two((form->rows.columns + 3) / 4, 256 / lanes[i]);
		while (shape.size * shape.side < 128)
			shape.side *= 2;
		cumsum_keep(shapes, &count, shape, limits);
	}
	if (count == 0)
		cumsum_keep(shapes, &count, (struct shape){form->vector, 4, 1, 32}, limits);
	return count;
}

static int find_shapes(const struct form *form, const struct kernel_limits *limits,
					   struct shape shapes[SHAPES_MOST])
{
	return form->strided ? side_shapes(form, limits, shapes) : row_shapes(form, limits, shapes);
}

#define GENERIC_THREADS 256u /* of a block, where the device has so many */
#define SHORT_COLUMNS 128    /* a warp takes such rows */

/* A generic kernel asks its block how many threads it has. */
static struct shape generic_shape(const struct form *form, const struct kernel_limits *limits)
{
	bool wide = form->vector * form->element == 16;
	uint32_t threads = GENERIC_THREADS;

	while (threads > limits->max_threads)
		threads /= 2;
	if (form->strided)
		return (struct shape){1, 4, threads / 32, 32};
	if (form->rows.columns <= SHORT_COLUMNS)
		return (struct shape){1, 4, 32, threads / 32};
	return (struct shape){wide ? form->vector : 1, 4, threads, 1};
}

static void name_shape(const struct form *form, const struct shape *shape,
					   char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%ux%u", form->strided ? "columns" : "rows",
			 shape->side, shape->size, shape->held);
}

static int cumsum_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct shape shapes[SHAPES_MOST];
	struct form form;
	int count;

	find_form(problem, &form);
	count = find_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++)
		name_shape(&form, &shapes[i], names[i]);
	return count;
}

/* ---- The plan ---- */

static void cumsum_print_kernel(const struct form *form, const struct shape *shape, bool generic,
								struct plan_text *id)
{
	const struct rows_form *rows = &form->rows;
	bool strided = form->strided;

	plan_print(id, "cumsum_%s%s<%s, %u, %u", strided ? "columns" : "rows",
			   generic ? "_generic" : "", plan_dtype_name(form->dtype), shape->vector, shape->held);
	if (generic && !strided)
		plan_print(id, ", %u, %s", GENERIC_THREADS,
				   form->rows.columns > SHORT_COLUMNS ? "true" : "false");
	else if (strided)
		plan_print(id, ", %u, %u", shape->side, generic ? GENERIC_THREADS / 32 : shape->size);
	else
		plan_print(id, ", %u, %u", shape->size, shape->side);
	plan_print(id, ", %s", form->reverse ? "true" : "false");
	if (!generic) {
		plan_print(id, ", %s", form->exclusive ? "true" : "false");
		plan_print(id, ", %lld", (long long)rows->columns);
		for (int i = 0; i < (strided ? 2 : 1); i++)
			rows_print_step(id, rows, i);
		rows_print_sizes(id, rows);
		for (int i = 0; i < 2; i++)
			rows_print_strides(id, rows, i);
		plan_print(id, ", %s", rows_index_type(rows));
	}
	plan_print(id, ">");
}

static void pass_arguments(const struct form *form, bool generic, struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;

	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	if (!generic)
		return;
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	for (int i = 0; i < (form->strided ? 2 : 1); i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i]);
	rows_pass_sizes(out, rows, 8);
	for (int i = 0; i < 2; i++)
		rows_pass_strides(out, rows, i);
	plan_arg_scalar(out, 4, form->exclusive);
}

static int plan_shape(const struct kernel_problem *problem, const struct form *form,
					  const struct shape *shape, bool generic, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t each = form->strided ? (uint64_t)shape->side * shape->vector : shape->side;

	plan_generic_launch(out, limits, SOURCE, ((uint64_t)form->rows.rows + each - 1) / each,
						shape->size * shape->side);
	cumsum_print_kernel(form, shape, generic, &id);
	pass_arguments(form, generic, out);
	for (int i = 0; i < 2; i++)
		plan_touch(problem, i, shape->vector * form->element, out);
	if (!generic) {
		name_shape(form, shape, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s", form->strided ? "columns" : "rows");
	}
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements%s; threads a row: %u; vectors a thread: %u of %u bytes%s",
			 (long long)form->rows.columns, form->strided ? " side by side" : "", shape->size,
			 shape->held, shape->vector * form->element,
			 generic ? "; sizes and strides are arguments" : "");
	return plan_check_name(&id, out, error);
}

static int cumsum_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct shape shapes[SHAPES_MOST];
	struct form form;
	int count, status = cumsum_check(problem, error);
	int64_t elements;

	if (status)
		return status;
	plan_elements(&problem->tensors[0], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	find_form(problem, &form);
	if (plan_is_generic(choice)) {
		shapes[0] = generic_shape(&form, limits);
		return plan_shape(problem, &form, &shapes[0], true, limits, out, error);
	}
	count = find_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_shape(&form, &shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_shape(problem, &form, &shapes[i], false, limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form.rows, limits, error);
}

/* Each type and direction has four: short rows, long ones by vectors and by elements, and rows side
 * by side. */
static int cumsum_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16,
										KILN_F64, KILN_I32, KILN_I64};
	static const int64_t shapes[][3] = {{2, 3}, {2, 1024}, {2, 1023}, {2, 3, 5}};
	bool strided = index % 4 == 3;

	if (index >= 2 * 6 * 4)
		return KILN_ENOENT;
	for (int i = 0; i < 2; i++)
		plan_made_tensor(out, i, dtypes[index / 8], strided ? 3 : 2, shapes[index % 4]);
	if (strided)
		plan_made_int(out, "axis", 1);
	if (index % 8 >= 4)
		plan_made_int(out, "reverse", 1);
	return KILN_OK;
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
			.text = "1 to leave the element itself out of its sum"                             \
	}
#define REVERSE(what)                                                                       \
	{                                                                                       \
		"reverse", KILN_ATTR_INT, NULL, "from the end", "0", OP_BETWEEN, 0, 1, .text = what \
	}

const struct plan_op plan_ops_cumsum[] = {
	{
		.name = "cumsum",
		.operands = {{"x", OP_NORMAL}, {"y"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 to add up from the end")},
		.summary = "y[k] = x[0] + .. + x[k] along an axis; f16 and bf16 are added up in f32, and "
				   "i32 and i64 wrap",
		.plan = cumsum_plan,
		.infer = cumsum_infer,
		.choices = cumsum_choices,
		.generics = cumsum_generics,
	},
	{
		.name = "cumsum_backward",
		.operands = {{"dy", OP_NORMAL}, {"dx"}},
		.attributes = {AXIS, EXCLUSIVE, REVERSE("1 if the sums were added up from the end")},
		.summary = "dx[k] = dy[k] + .. + dy[last] along an axis, added up as in cumsum",
		.plan = cumsum_plan,
		.infer = cumsum_infer,
		.choices = cumsum_choices,
		.generics = cumsum_generics,
	},
	{.name = NULL},
};
