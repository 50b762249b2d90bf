/*
 * rows_generic.c: how rows of any length are spread over threads, by kernels that are told when
 * they are launched (kernel_src/common/row_any.cuh).
 */
#include "rows.h"

#include <stdio.h>

#define BLOCK_THREADS 128u

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
	out->shift = rows > 1 ? out->shift : ROWS_ANY_ALONE;
	out->threads = (uint32_t)(size * rows);
	out->blocks = ((uint64_t)form->rows + rows - 1) / rows;
}

#define RING_AHEAD 4u         /* ROW_RING_AHEAD */
#define RING_BESIDE 2048u     /* bytes of shared memory that a block takes otherwise */
#define THREADS_AT_ONCE 1024u /* of a multiprocessor, which share its memory */

/* Half as many threads: of fewer rows, or of the one that the block has. */
static void halve_threads(const struct rows_form *form, struct rows_any *any)
{
	uint64_t rows;

	if (any->shift < ROWS_ANY_ALONE && any->threads == 1u << any->shift)
		any->shift = ROWS_ANY_ALONE;
	any->threads = any->threads / 64 * 32;
	rows = any->shift < ROWS_ANY_ALONE ? any->threads >> any->shift : 1;
	any->blocks = ((uint64_t)form->rows + rows - 1) / rows;
}

uint32_t rows_any_ring(const struct rows_form *form, uint32_t element, uint32_t streams,
					   uint32_t count, const struct kernel_limits *limits, struct rows_any *any,
					   uint32_t *shared_bytes)
{
	uint32_t least = RING_AHEAD / count + 1, each = streams * count * 16, places;
	uint64_t size, steps, room;

	*shared_bytes = 0;
	if (any->vector * element != 16)
		return 0;
	while (any->threads >= 64 && any->threads * each * least + RING_BESIDE > limits->shared_optin)
		halve_threads(form, any);
	if (any->threads * each * least > limits->shared_optin) {
		any->vector = 1;
		return 0;
	}
	size = any->shift == ROWS_ANY_ALONE ? any->threads : UINT64_C(1) << any->shift;
	/* A row that begins between two vectors may have one more. */
	steps = ((uint64_t)form->columns / any->vector + 1) / (size * count) + 1;
	room = (uint64_t)limits->shared_optin * any->threads / THREADS_AT_ONCE;
	room = room > RING_BESIDE ? (room - RING_BESIDE) / (any->threads * each) : 0;
	places = (uint32_t)(steps < room ? steps : room);
	places = places > least ? places : least;
	*shared_bytes = places * any->threads * each;
	return places;
}

void rows_any_describe(const struct rows_any *any, uint32_t element, struct kernel_plan *out)
{
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u; vectors of %u bytes; sizes and strides are arguments",
			 any->shift < ROWS_ANY_ALONE ? 1u << any->shift : any->threads, any->vector * element);
}

/* ---- Rows that are held ---- */

struct held {
	uint32_t size, held, rows;
};

/* Few vectors a thread leave little on its way.  The longest row of halves is as long in vectors,
 * which take more registers. */
static const struct held *held_shapes(uint32_t element)
{
	static const struct held halves[] = {{8, 2, 16},  {8, 4, 16},  {32, 4, 4},  {32, 5, 4},
										 {128, 4, 1}, {256, 4, 1}, {1024, 2, 1}},
							 words[] = {{8, 4, 16},  {16, 4, 8},  {32, 4, 4}, {64, 4, 2},
										{128, 4, 1}, {256, 4, 1}, {512, 4, 1}};

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
