/*
 * norm_backward_way.c: the ways to take the backward of a norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm_backward.h"

#include <stdio.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_BACKWARD_REGISTERS 32

struct rows_need norm_backward_need(const struct norm_backward_problem *norm)
{
	struct rows_need need = norm->need;

	need.streams = 2;
	need.registers = NORM_BACKWARD_REGISTERS;
	need.skew = need.slots = need.clusters = need.stream = true;
	return need;
}

static int rows_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					 struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct rows_shape shapes[NORM_BACKWARD_MAX_WAYS];
	struct rows_need need = norm_backward_need(norm);
	int count = rows_shapes(&norm->form, &need, limits, shapes, NORM_BACKWARD_MAX_WAYS);

	for (int i = 0; i < count; i++)
		out[i] = (struct norm_backward_way){.kind = NORM_BACKWARD_ROWS, .shape = shapes[i]};
	return count;
}

static int columns_ways(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits,
						struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct norm_backward_strips strips[NORM_BACKWARD_MAX_WAYS];
	int count = norm_backward_columns(norm, limits, strips, NORM_BACKWARD_MAX_WAYS);

	for (int i = 0; i < count; i++)
		out[i] = (struct norm_backward_way){.kind = NORM_BACKWARD_COLUMNS, .strips = strips[i]};
	return count;
}

int norm_backward_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	if (norm->at.dx < 0)
		return columns_ways(norm, limits, out);
	return rows_ways(norm, limits, out);
}

void norm_backward_way_name(const struct norm_backward_way *way, char name[KERNEL_CHOICE_MAX])
{
	const struct norm_backward_strips *strips = &way->strips;

	if (way->kind == NORM_BACKWARD_ROWS)
		rows_shape_name(&way->shape, name);
	else
		snprintf(name, KERNEL_CHOICE_MAX, "columns %ux%u u%u b%u", strips->size, strips->rows,
				 strips->unroll, strips->blocks);
}

uint32_t norm_backward_alignment(const struct norm_backward_problem *norm,
								 const struct norm_backward_way *way)
{
	if (way->kind == NORM_BACKWARD_ROWS)
		return rows_alignment(&way->shape, norm->need.element);
	return norm->need.element * (way->strips.skewed ? 1 : way->strips.vector);
}
