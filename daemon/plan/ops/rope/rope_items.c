/*
 * rope_items.c: how the elements of a head are spread over threads: vectors as wide as sizes,
 * strides and addresses let them be.
 */
#include "rope.h"

#define VECTOR_BYTES 16

/* Halves bytes, down to an element, until they divide a number of elements. */
static void narrow(int64_t elements, uint32_t element, uint32_t *bytes)
{
	while (*bytes > element && elements * element % *bytes)
		*bytes /= 2;
}

static void narrow_operand(const struct kernel_problem *problem, const struct rope_problem *rope,
						   int operand, uint32_t *bytes)
{
	const struct kernel_tensor *tensor = &problem->tensors[operand];
	const struct rope_strides *strides = &rope->strides[operand];
	uint32_t element = kernel_dtype_bytes(tensor->dtype);

	if (tensor->dtype == KILN_DTYPE_NONE)
		return;
	while (*bytes > element && *bytes > tensor->alignment)
		*bytes /= 2;
	narrow(strides->batch, element, bytes);
	narrow(strides->token, element, bytes);
	narrow(strides->head, element, bytes);
}

/* Do 31 bits number all elements of the operands, and all positions? */
static bool fits_narrow(const struct kernel_problem *problem)
{
	for (int i = 0; i < ROPE_OPERANDS; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		uint64_t bytes = 0;
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		plan_extent(tensor, &bytes);
		if (bytes / kernel_dtype_bytes(tensor->dtype) > INT32_MAX / 2)
			return false;
		for (int k = 0; k < tensor->rank; k++)
			if (tensor->shape[k] > INT32_MAX / 2)
				return false;
	}
	return true;
}

int64_t rope_work(const struct rope_problem *rope, const struct rope_items *items, int64_t held)
{
	int64_t groups = plan_divide_up(rope->q_heads + rope->k_heads, held), work;

	if (__builtin_mul_overflow(groups, items->all, &work) ||
		__builtin_mul_overflow(work, rope->tokens, &work) ||
		__builtin_mul_overflow(work, rope->batch, &work))
		return -1;
	return work;
}

/* An item that is copied is one vector, so that those of threads lie side by side. */
static bool count_items(const struct kernel_problem *problem, const struct rope_problem *rope,
						struct rope_items *out)
{
	int64_t each = rope->interleaved ? out->vector : 2 * (int64_t)out->vector, work;

	out->rotated = 2 * rope->half / each;
	out->all = out->rotated + plan_divide_up(rope->dim - 2 * rope->half, out->vector);
	work = rope_work(rope, out, 1);
	out->wide = work > INT32_MAX / 2 || !fits_narrow(problem);
	return work >= 0;
}

bool rope_find_items(const struct kernel_problem *problem, const struct rope_problem *rope,
					 struct rope_items *out)
{
	uint32_t element = kernel_dtype_bytes(rope->dtype), angles;
	uint32_t table = kernel_dtype_bytes(rope->table);

	out->access = VECTOR_BYTES;
	narrow(rope->interleaved ? 2 * rope->half : rope->half, element, &out->access);
	narrow(rope->dim, element, &out->access);
	for (int i = 0; i < ROPE_OPERANDS; i++)
		if (i != ROPE_COS && i != ROPE_SIN && i != ROPE_POSITIONS)
			narrow_operand(problem, rope, i, &out->access);
	out->vector = out->access / element;
	if (rope->interleaved && out->vector == 1)
		out->vector = 2;
	angles = rope->interleaved ? out->vector / 2 : out->vector;
	out->table_access = angles * table < VECTOR_BYTES ? angles * table : VECTOR_BYTES;
	narrow_operand(problem, rope, ROPE_COS, &out->table_access);
	narrow_operand(problem, rope, ROPE_SIN, &out->table_access);
	return count_items(problem, rope, out);
}

bool rope_narrow_items(const struct kernel_problem *problem, const struct rope_problem *rope,
					   struct rope_items *out)
{
	*out = (struct rope_items){.vector = rope->interleaved ? 2 : 1,
							   .access = kernel_dtype_bytes(rope->dtype),
							   .table_access = kernel_dtype_bytes(rope->table)};
	return count_items(problem, rope, out);
}
