/*
 * norm_way.c: the ways to take a row of layer_norm or rms_norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm.h"

#include <stdio.h>
#include <string.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_REGISTERS 40

static struct rows_need need_of(const struct norm_problem *norm, uint32_t together)
{
	struct rows_need need = norm->need;

	need.element = kernel_dtype_bytes(norm->dtype);
	need.streams = together * (norm->residual >= 0 ? 2 : 1);
	need.registers = NORM_REGISTERS;
	need.along = true;
	need.skew = together == 1;
	need.slots = need.clusters = need.stream = true;
	return need;
}

int norm_ways(const struct norm_problem *norm, const struct kernel_limits *limits,
			  struct norm_way out[NORM_MAX_WAYS])
{
	struct rows_shape shapes[NORM_MAX_WAYS];
	struct rows_need need = need_of(norm, 1);
	int count = rows_shapes(&norm->form, &need, limits, shapes, NORM_MAX_WAYS);

	for (int i = 0; i < count; i++)
		out[i] = (struct norm_way){shapes[i], 1};
	return count;
}

void norm_way_name(const struct norm_way *way, char name[KERNEL_CHOICE_MAX])
{
	size_t used;

	rows_shape_name(&way->shape, name);
	used = strlen(name);
	if (way->together > 1)
		snprintf(name + used, KERNEL_CHOICE_MAX - used, " t%u", way->together);
}

bool norm_launch(const struct norm_problem *norm, const struct norm_way *way,
				 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct rows_need need = need_of(norm, way->together);
	struct rows_form form = norm->form;

	/* One group's rows count as one. */
	form.rows = (form.rows + way->together - 1) / way->together;
	return rows_launch(&form, &need, &way->shape, limits, out);
}

void norm_note(const struct norm_problem *norm, const struct norm_way *way, struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;

	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements: %u threads a row, %u vectors of %u bytes each",
			 (long long)norm->form.columns, shape->size * shape->cluster, shape->held,
			 shape->vector * kernel_dtype_bytes(norm->dtype));
}
