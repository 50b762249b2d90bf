/*
 * softmax_form.c: softmax problems as rows, and the pieces of plans that all of their kernels have
 * in common.
 */
#include "softmax.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* 32-bit words of a row in the registers of a thread at most: halves are there as floats too. */
#define SOFTMAX_REGISTERS 40
#define SOFTMAX_REGISTERS_HALVES 60
#define SECTOR 32 /* bytes that memory moves at once */

void softmax_form(const struct kernel_problem *problem, const int *index, int count, int axis,
				  struct softmax_form *form)
{
	const struct kernel_tensor *first = &problem->tensors[index[0]];
	const int64_t *stride[ROWS_MAX_OPERANDS];
	int culprit;

	memset(form, 0, sizeof(*form));
	form->dtype = first->dtype;
	form->need.alignment = 16;
	for (int i = 0; i < count; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[index[i]];
		stride[i] = tensor->stride;
		form->need.held |= 1u << i;
		if (tensor->alignment < form->need.alignment)
			form->need.alignment = tensor->alignment;
	}
	/* One axis always is one dimension. */
	(void)rows_form(&form->rows, first->rank, first->shape, count, stride, axis, 1, &culprit);
	form->need.element = kernel_dtype_bytes(first->dtype);
	form->need.streams = (uint32_t)count - 1;
	form->need.converted = form->need.element == 2 ? 4 : 0;
	form->need.registers = form->need.converted ? SOFTMAX_REGISTERS_HALVES : SOFTMAX_REGISTERS;
	form->need.around = form->dtype == KILN_F64 ? 12 : 0; /* for 2^x */
	form->need.skew = form->need.slots = form->need.clusters = form->need.stream = true;
	form->need.drawn = form->need.staged = form->need.staged_far = true;
	form->need.gapped = form->need.pairs = count == 2;
}

int softmax_shapes(const struct softmax_form *form, const struct kernel_limits *limits,
				   struct rows_shape out[SOFTMAX_MAX_WAYS])
{
	return rows_shapes(&form->rows, &form->need, limits, out, SOFTMAX_MAX_WAYS);
}

int softmax_ways(const struct softmax_form *form, const struct kernel_limits *limits,
				 struct softmax_way out[SOFTMAX_MAX_WAYS])
{
	struct rows_shape shapes[SOFTMAX_MAX_WAYS];
	struct softmax_tile tiles[SOFTMAX_MAX_WAYS];
	int count = 0, found = 0;

	memset(out, 0, sizeof(*out) * SOFTMAX_MAX_WAYS);
	if (softmax_is_strided(form))
		found = softmax_tiles(form, limits, tiles, SOFTMAX_MAX_WAYS);
	for (; count < found; count++) {
		out[count].strided = true;
		out[count].tile = tiles[count];
		softmax_tile_name(&tiles[count], out[count].name);
	}
	/* A row's elements alone are too little of a sector, but for a few rows side by side. */
	found = count > 1 && form->rows.size[form->rows.rank - 1] * form->need.element >= SECTOR
				? 0
				: softmax_shapes(form, limits, shapes);
	for (int i = 0; i < found && count < SOFTMAX_MAX_WAYS; i++, count++) {
		out[count].row = shapes[i];
		rows_shape_name(&shapes[i], out[count].name);
	}
	return count;
}

int softmax_way_find(const struct softmax_way *ways, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (!name || strcmp(name, ways[i].name) == 0)
			return i;
	return -1;
}

void softmax_print_rows(struct plan_text *text, const struct softmax_form *form)
{
	for (int i = 0; i < form->rows.operands; i++)
		rows_print_step(text, &form->rows, i);
	rows_print_sizes(text, &form->rows);
	for (int i = 0; i < form->rows.operands; i++)
		rows_print_strides(text, &form->rows, i);
	plan_print(text, ", %s", rows_index_type(&form->rows));
}

void softmax_scale_args(struct kernel_plan *out, kiln_dtype dtype, double scale)
{
	double before = scale < 0 ? -1 : 1, after = fabs(scale);
	double most = dtype == KILN_F64 ? DBL_MAX : FLT_MAX;
	int exponent = 0, least = dtype == KILN_F64 ? -537 : -74;

	/* Factors below 1: their power of two goes before, so that differences of huge elements do not
	 * overflow; products stay exact. */
	if (after < ldexp(1, 2 * least)) {
		/* No number makes anything of it, but it is not 0: what takes no part is infinitely far. */
		after = ldexp(1, least);
		before *= after;
	} else if (after < 1) {
		after = 2 * frexp(after, &exponent);
		exponent--;
		if (exponent < -100) {
			after = ldexp(after, exponent + 100);
			exponent = -100;
		}
		before = ldexp(before, exponent);
	}
	plan_arg_real(out, dtype, before);
	/* The largest element is 0 from itself, and infinitely often that is no number. */
	plan_arg_real(out, dtype, fmin(after * 1.4426950408889634074, most));
	plan_arg_real(out, dtype, after);
}

void softmax_extents(const struct kernel_problem *problem, const int *index, int count,
					 uint32_t alignment, struct kernel_plan *out)
{
	for (int i = 0; i < count; i++)
		plan_touch(problem, index[i], alignment, out);
}
