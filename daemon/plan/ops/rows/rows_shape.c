/*
 * rows_shape.c: a shape of rows once it is chosen: its name, its template-id, its launch.
 */
#include "rows_search.h"

#include <string.h>

/* Bytes that each staged row has in shared memory beside its place in a piece. */
uint32_t rows_staged_aside(const struct rows_form *form, const struct rows_need *need, bool gapped)
{
	return gapped ? ((uint32_t)form->columns * need->element + 30) / 16 * 16 : need->aside;
}

/* Does so for flags of a row that goes by pairs: pairs_aside() of kernel_src. */
static uint32_t pairs_aside(const struct rows_need *need, const struct rows_shape *shape)
{
	uint32_t period = shape->size < 4 ? 2 : shape->size / 2;

	if (!need->aside)
		return 0;
	return ((need->aside / 16 + period / 2 - 1) / period * period + period / 2) * 16;
}

uint32_t rows_shape_bytes(const struct rows_form *form, const struct rows_need *need,
						  const struct rows_shape *shape)
{
	/* A thread reads flags by whole words, which may reach beyond the last row's. */
	if (shape->staged)
		return shape->rows * ((uint32_t)form->columns * need->element * need->streams +
							  (shape->pairs ? pairs_aside(need, shape)
											: rows_staged_aside(form, need, shape->gapped))) +
			   (shape->pairs && need->aside ? 16 : 0);
	return shape->slots * need->streams * shape->size * shape->rows * 16;
}

void rows_shape_name(const struct rows_shape *shape, char name[KERNEL_CHOICE_MAX])
{
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (shape->stream) {
		plan_print(&text, "stream %ux%u", shape->size, shape->held);
		return;
	}
	if (shape->cluster > 1)
		plan_print(&text, "cluster%u %ux%u", shape->cluster, shape->size, shape->held);
	else
		plan_print(&text, "%s %ux%u",
				   shape->gapped   ? "gapped"
				   : shape->pairs  ? "pairs"
				   : shape->staged ? (shape->skewed ? "paired" : "staged")
				   : shape->slots  ? "slots"
				   : shape->skewed ? "skewed"
				   : shape->wide   ? "wide"
				   : shape->narrow ? "narrow"
								   : "rows",
				   shape->size, shape->held);
	if (shape->slots)
		plan_print(&text, "/%u", shape->slots);
	if (shape->cluster == 1)
		plan_print(&text, " r%u", shape->rows);
}

int rows_shape_find(const struct rows_shape *shapes, int count, const char *name)
{
	for (int i = 0; i < count; i++) {
		char known[KERNEL_CHOICE_MAX];
		rows_shape_name(&shapes[i], known);
		if (!name || strcmp(name, known) == 0)
			return i;
	}
	return -1;
}

void rows_print_shape(struct plan_text *text, kiln_dtype dtype, const struct rows_form *form,
					  const struct rows_shape *shape)
{
	const char *skewed = shape->skewed ? "true" : "false";

	plan_print(text, "%s<%s, %lld, %u, %u", shape->stream ? "RowStream" : "RowShape",
			   plan_dtype_name(dtype), (long long)form->columns, shape->vector, shape->held);
	if (shape->stream)
		plan_print(text, ", %u, %s>", shape->size, skewed);
	else
		plan_print(text, ", %u, %u, %u, %u, %s>", shape->slots, shape->size, shape->rows,
				   shape->cluster, skewed);
}

uint32_t rows_alignment(const struct rows_shape *shape, uint32_t element)
{
	return shape->staged ? 16 : shape->vector * element;
}

bool rows_launch(const struct rows_form *form, const struct rows_need *need,
				 const struct rows_shape *shape, const struct kernel_limits *limits,
				 struct kernel_plan *out)
{
	uint64_t blocks = plan_divide_up((uint64_t)form->rows, shape->rows) * shape->cluster;

	out->shared_bytes = rows_shape_bytes(form, need, shape);
	return plan_launch(out, limits, blocks, shape->size * shape->rows);
}
