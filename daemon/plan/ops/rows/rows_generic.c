/*
 * rows_generic.c: how rows of any length are spread over threads, by kernels that are told when
 * they are launched (kernel_src/common/row_any.cuh).
 */
#include "rows.h"

#include <stdio.h>

#define BLOCK_THREADS 128u
#define ONE_ROW 31u /* as a shift: a block has one row */

/* Threads for a row: two or three vectors each as long as a row has few, then all that a thread
 * takes in a step. */
static uint64_t threads_of(uint64_t vectors, uint32_t count)
{
	uint32_t few = count > 2 ? count - 1 : count;
	uint64_t size = 1;

	while (size < BLOCK_THREADS && size * few < vectors)
		size *= 2;
	return size * few < vectors ? ((vectors + count - 1) / count + 31) / 32 * 32 : size;
}

uint32_t rows_any_type(kiln_dtype dtype)
{
	switch (dtype) {
	case KILN_F16:
		return 1;
	case KILN_BF16:
		return 2;
	case KILN_F32:
		return 3;
	case KILN_F64:
		return 4;
	default:
		return 0;
	}
}

void rows_any(const struct rows_form *form, const struct rows_need *need, uint32_t count,
			  uint32_t threads, const struct kernel_limits *limits, struct rows_any *out)
{
	uint32_t wide = 16 / need->element, vector = rows_vector(form, need);
	uint32_t most = limits->max_threads < threads ? limits->max_threads / 32 * 32 : threads;
	bool skewed = vector < wide && form->columns >= 4 * (int64_t)wide && rows_congruent(form, need);
	uint64_t vectors, size, rows = 1;

	out->vector = vector == wide || skewed ? wide : 1;
	vectors = ((uint64_t)form->columns + (skewed ? 2 * wide - 2 : out->vector - 1)) / out->vector;
	size = threads_of(vectors, count);
	size = size < most ? size : most;
	while (size * rows < BLOCK_THREADS && size * rows * 2 <= most && (size & (size - 1)) == 0)
		rows *= 2;
	for (out->shift = 0; rows > 1 && UINT64_C(1) << out->shift < size;)
		out->shift++;
	out->shift = rows > 1 ? out->shift : ONE_ROW;
	out->threads = (uint32_t)(size * rows);
	out->blocks = ((uint64_t)form->rows + rows - 1) / rows;
}

void rows_any_describe(const struct rows_any *any, uint32_t element, struct kernel_plan *out)
{
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u; vectors of %u bytes; sizes and strides are arguments",
			 any->shift < ONE_ROW ? 1u << any->shift : any->threads, any->vector * element);
}

/* ---- Rows that are held ---- */

struct held {
	uint32_t size, held, rows;
};

/* The longest row of halves is as long in vectors, which take more registers. */
static const struct held *held_shapes(uint32_t element)
{
	static const struct held
		halves[] = {{8, 2, 16}, {32, 4, 4}, {128, 4, 1}, {256, 4, 1}, {1024, 2, 1}},
		words[] = {{8, 2, 16}, {32, 4, 4}, {128, 4, 1}, {256, 4, 1}, {512, 4, 1}};

	return element == 2 ? halves : words;
}

bool rows_held(const struct rows_form *form, const struct rows_need *need, bool skewed,
			   const struct kernel_limits *limits, struct rows_shape *out)
{
	const struct held *shapes = held_shapes(need->element);
	uint32_t wide = 16 / need->element, most = 0;
	bool aligned = rows_vector(form, need) == wide;

	for (int i = 0; i < form->operands; i++)
		if (need->held & 1u << i && form->step[i] != 1)
			return false;
	if (need->element > 4)
		return false;
	if (!aligned && (!skewed || form->columns < 4 * (int64_t)wide || !rows_congruent(form, need)))
		return false;
	for (int i = 0; i < ROWS_HELD_SHAPES; i++) {
		*out = (struct rows_shape){.vector = wide,
								   .held = shapes[i].held,
								   .size = shapes[i].size,
								   .rows = shapes[i].rows,
								   .cluster = 1,
								   .skewed = skewed};
		most = out->vector * out->held * out->size;
		if (form->columns + (aligned ? 0 : 2 * (int64_t)wide - 2) <= most)
			return out->size * out->rows <= limits->max_threads;
	}
	return false;
}

int64_t rows_held_columns(int index, uint32_t element)
{
	const struct held *shapes = held_shapes(element);
	int64_t wide = 16 / element;

	if (index >= ROWS_HELD_SHAPES)
		return wide * 4096;
	return wide * shapes[index].held * shapes[index].size;
}

void rows_held_print(struct plan_text *text, kiln_dtype dtype, const struct rows_shape *shape)
{
	plan_print(text, "HeldShape<%s, %u, %u, %u, %u, %s>", plan_dtype_name(dtype), shape->vector,
			   shape->held, shape->size, shape->rows, shape->skewed ? "true" : "false");
}

void rows_held_launch(const struct rows_form *form, const struct rows_shape *shape,
					  const struct kernel_limits *limits, const char *source,
					  struct kernel_plan *out)
{
	uint64_t blocks = ((uint64_t)form->rows + shape->rows - 1) / shape->rows;

	plan_generic_launch(out, limits, source, blocks, shape->size * shape->rows);
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u, which hold it; vectors of 16 bytes; sizes and strides are "
			 "arguments",
			 shape->size);
}
