/*
 * reduce.c: the plan of a reduction: which kernel, grid and arguments.
 */
#include "reduce.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SOURCE "ops/reduce.cuh"

/* ---- The kernel's name ---- */

/* The type that the generic kernel takes elements as. */
static kiln_dtype taken_as(kiln_dtype dtype)
{
	if (dtype == KILN_F64)
		return KILN_F64;
	return plan_is_float(dtype) ? KILN_F32 : KILN_I64;
}

static void print_norm(const struct reduce_form *form, const char *type, struct plan_text *id)
{
	if (isinf(form->real))
		plan_print(id, "ReduceNormMost<%s, %s>", type, form->real < 0 ? "true" : "false");
	else
		plan_print(id, "ReduceNorm<%s, %d>", type, form->real == 1 ? 1 : form->real == 2 ? 2 : 3);
}

/* "ReduceSum<f32>": the kernel's reduction, of elements as it takes them (generic), or of x's. */
static void reduce_print_kind(const struct reduce_form *form, bool generic, struct plan_text *id)
{
	const char *type = plan_dtype_name(generic ? taken_as(form->dtype) : form->dtype);
	bool far = generic || form->columns > INT32_MAX / 2;

	switch (form->kind) {
	case REDUCE_SUM:
	case REDUCE_MEAN:
		plan_print(id, "ReduceSum<%s>", type);
		break;
	case REDUCE_PROD:
		plan_print(id, "ReduceProd<%s>", type);
		break;
	case REDUCE_AMAX:
	case REDUCE_AMIN:
		plan_print(id, "ReduceMost<%s, %s>", type, form->kind == REDUCE_AMIN ? "true" : "false");
		break;
	case REDUCE_ARGMAX:
	case REDUCE_ARGMIN:
		plan_print(id, "ReduceArg<%s, %s, %s>", type,
				   form->kind == REDUCE_ARGMIN ? "true" : "false", far ? "i64" : "i32");
		break;
	case REDUCE_ANY:
	case REDUCE_ALL:
		plan_print(id, "ReduceAnyOf<%s, %s>", type, form->kind == REDUCE_ALL ? "true" : "false");
		break;
	case REDUCE_NORM:
		print_norm(form, type, id);
		break;
	case REDUCE_LOGSUMEXP:
		plan_print(id, "ReduceLogsumexp<%s>", type);
		break;
	case REDUCE_VAR:
		plan_print(id, "ReduceVar<%s>", type);
		break;
	}
}

/* ", List<sizes>, List<strides>" of the dimensions of a row, fastest first, of which the fastest is
 * in vectors. */
static void print_row(const struct reduce_form *form, uint32_t vector, struct plan_text *id)
{
	int last = form->rank - 1;

	plan_print(id, ", List<");
	for (int k = last; k > 0; k--)
		plan_print(id, "%s%lld", k < last ? ", " : "",
				   (long long)form->size[k] / (k == last ? vector : 1));
	plan_print(id, ">, List<");
	for (int k = last; k >= 0; k--)
		plan_print(id, "%s%lld", k < last ? ", " : "",
				   (long long)form->stride[k] * (k == last ? vector : 1));
	plan_print(id, form->rank ? ">" : "0>");
}

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

/* Does a kernel of long rows go without looking for their ends? */
static bool is_full(const struct reduce_form *form, const struct reduce_shape *shape)
{
	return shape->chunk && !form->open && !form->skewed &&
		   shape->chunk % (shape->size * shape->held) == 0 &&
		   reduce_vectors(form, shape->vector) % shape->chunk == 0;
}

static void print_exact(const struct reduce_form *form, const struct reduce_shape *shape,
						struct plan_text *id)
{
	const struct rows_form *kept = &form->kept;
	bool is_long = reduce_is_long(form, shape);

	plan_print(id, "reduce_%s<", !shape->side ? "columns" : is_long ? "long" : "rows");
	reduce_print_kind(form, false, id);
	plan_print(id, ", %s, %s, %u, %u", plan_dtype_name(form->dtype), plan_dtype_name(form->y_dtype),
			   shape->vector, shape->held);
	if (is_long)
		plan_print(id, ", %u, %s, %s", shape->size, truth(is_full(form, shape)),
				   truth(form->skewed));
	else if (shape->side)
		plan_print(id, ", %u, %u, %u, %s, %lld", shape->size, shape->side, shape->times,
				   truth(form->skewed), (long long)form->columns);
	else
		plan_print(id, ", %u, %u, %u", shape->unroll, shape->lanes, shape->split);
	plan_print(id, ", %s", form->columns > INT32_MAX / 2 ? "i64" : "i32");
	print_row(form, shape->side ? shape->vector : 1, id);
	rows_print_sizes(id, kept);
	for (int i = 0; i < 2; i++)
		rows_print_strides(id, kept, i);
	plan_print(id, ", %s", rows_index_type(kept));
	if (shape->side == 0)
		plan_print(id, ", %lld", (long long)kept->stride[1][kept->rank - 1]);
	plan_print(id, ">");
}

static void print_generic(const struct reduce_form *form, const struct reduce_shape *shape,
						  struct plan_text *id)
{
	plan_print(id, "reduce_%s_generic<", shape->side ? "rows" : "columns");
	reduce_print_kind(form, true, id);
	if (shape->side)
		plan_print(id, ", %s", shape->size == 256 ? "true" : "false");
	plan_print(id, ">");
}

/* ---- Arguments ---- */

#define SPACE_DIMS 8 /* of ReduceSpace */

/* Dimensions fastest first: those that number the rows, then those of a row. */
static void pass_space(const struct reduce_form *form, uint32_t vector, struct kernel_plan *out)
{
	const struct rows_form *kept = &form->kept;
	int all = kept->rank + form->rank;

	plan_arg_scalar(out, 4, (uint64_t)kept->rank);
	plan_arg_scalar(out, 4, (uint64_t)all);
	for (int i = 0; i < SPACE_DIMS; i++) {
		int k = i < kept->rank ? kept->rank - 1 - i : all - 1 - i;
		int64_t size = 1, x = 0, y = 0;
		if (i < kept->rank) {
			size = kept->size[k];
			x = kept->stride[0][k];
			y = kept->stride[1][k];
		} else if (i < all) {
			bool fastest = i == kept->rank;
			size = form->size[k] / (fastest ? vector : 1);
			x = form->stride[k] * (fastest ? vector : 1);
		}
		plan_arg_divisor(out, 8, size > 0 ? (uint64_t)size : 1);
		plan_arg_scalar(out, 8, (uint64_t)x);
		plan_arg_scalar(out, 8, (uint64_t)y);
	}
}

static void pass_arguments(const struct reduce_form *form, const struct reduce_shape *shape,
						   bool generic, struct kernel_plan *out)
{
	int64_t vectors = shape->side ? reduce_vectors(form, shape->vector) : form->columns;
	bool constant = !generic && shape->side && !reduce_is_long(form, shape);

	for (int i = 0; i < 2; i++)
		plan_arg_pointer(out, i);
	if (out->scratch.bytes)
		plan_arg_scratch(out);
	else if (!constant)
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, (uint64_t)form->kept.rows);
	plan_arg_real(out, form->dtype, form->real);
	if (constant)
		return;
	plan_arg_scalar(out, 8, (uint64_t)form->columns);
	if (shape->side)
		plan_arg_scalar(out, 8, (uint64_t)vectors);
	plan_arg_scalar(out, 8, (uint64_t)(shape->chunk ? shape->chunk : vectors));
	plan_arg_scalar(out, 4, (uint64_t)reduce_chunks(form, shape));
	if (!generic)
		return;
	plan_arg_scalar(out, 4, (uint64_t)form->dtype);
	plan_arg_scalar(out, 4, form->element);
	if (shape->side)
		plan_arg_scalar(out, 4, shape->vector > 1);
	plan_arg_scalar(out, 4, (uint64_t)form->y_dtype);
	plan_arg_scalar(out, 4, kernel_dtype_bytes(form->y_dtype));
	pass_space(form, shape->vector, out);
}

/* ---- The plan ---- */

static int plan_shape(const struct kernel_problem *problem, const struct reduce_form *given,
					  const struct reduce_shape *shape, bool generic,
					  const struct kernel_limits *limits, struct kernel_plan *out,
					  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct reduce_form form = *given;
	int64_t each = (int64_t)shape->lanes * shape->vector, chunks;
	uint32_t threads = shape->side ? shape->size * shape->side : shape->lanes * shape->split;

	form.skewed = form.skewed && (!generic || shape->vector > 1);
	chunks = reduce_chunks(&form, shape);
	if (shape->side)
		each = (int64_t)shape->side * shape->times;
	plan_generic_launch(out, limits, SOURCE,
						(uint64_t)(plan_divide_up(form.kept.rows, each) * chunks), threads);
	out->scratch = reduce_scratch(&form, shape);
	if (generic)
		print_generic(&form, shape, &id);
	else
		print_exact(&form, shape, &id);
	pass_arguments(&form, shape, generic, out);
	plan_touch(problem, 0, shape->vector * form.element, out);
	plan_touch(problem, 1, kernel_dtype_bytes(form.y_dtype), out);
	if (!generic) {
		reduce_shape_name(shape, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s", shape->side ? "rows" : "columns");
	}
	snprintf(out->note, sizeof(out->note),
			 "%lld elements a result%s; threads that share it: %u%s; vectors of %u bytes%s",
			 (long long)form.columns, shape->side ? "" : ", side by side with others",
			 shape->side ? shape->size : shape->split, chunks > 1 ? ", of several blocks" : "",
			 shape->vector * form.element, generic ? "; sizes and strides are arguments" : "");
	return plan_check_name(&id, out, error);
}

int reduce_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct reduce_shape shapes[REDUCE_SHAPES];
	struct reduce_form form;
	int count, status = reduce_check(problem, &form, error);

	if (status)
		return status;
	if (form.kept.rows == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice)) {
		shapes[0] = reduce_generic_shape(&form, limits);
		return plan_shape(problem, &form, &shapes[0], true, limits, out, error);
	}
	count = reduce_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		reduce_shape_name(&shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_shape(problem, &form, &shapes[i], false, limits, out, error);
	}
	form.kept.columns = form.columns;
	return rows_no_candidate(problem, choice, &form.kept, limits, error);
}

int reduce_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct reduce_shape shapes[REDUCE_SHAPES];
	char error[KERNEL_ERROR_MAX];
	struct reduce_form form;
	int count = 0;

	if (reduce_check(problem, &form, error) == KILN_OK)
		count = reduce_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++)
		reduce_shape_name(&shapes[i], names[i]);
	return count;
}
