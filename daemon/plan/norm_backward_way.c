/*
 * norm_backward_way.c: the ways to take the backward of a norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm_backward.h"

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_BACKWARD_REGISTERS 32

static struct rows_need need_of(const struct norm_backward_problem *norm)
{
	struct rows_need need = norm->need;

	need.streams = 2;
	need.registers = NORM_BACKWARD_REGISTERS;
	need.skew = need.slots = need.clusters = need.stream = true;
	return need;
}

int norm_backward_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct rows_shape shapes[NORM_BACKWARD_MAX_WAYS];
	struct rows_need need = need_of(norm);
	int count = rows_shapes(&norm->form, &need, limits, shapes, NORM_BACKWARD_MAX_WAYS);

	for (int i = 0; i < count; i++)
		out[i] = (struct norm_backward_way){shapes[i]};
	return count;
}

void norm_backward_way_name(const struct norm_backward_way *way, char name[KERNEL_CHOICE_MAX])
{
	rows_shape_name(&way->shape, name);
}
