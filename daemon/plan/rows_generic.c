/*
 * rows_generic.c: how rows of any length are spread over threads, by kernels that are told when
 * they are launched (kernel_src/common/row_any.cuh).
 */
#include "rows.h"

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
