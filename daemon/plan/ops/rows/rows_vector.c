/*
 * rows_vector.c: what the strides of rows, their addresses and the device allow: how much moves at
 * once, and how many threads or blocks share a row.
 */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

/* Whole warps that no block has. */
#define GROUP_MOST (1u << 30)

uint32_t rows_narrow(const struct rows_form *form, int operand, uint32_t element, uint32_t bytes)
{
	for (int k = 0; k < form->rank; k++)
		while (bytes > element && (uint64_t)form->stride[operand][k] * element % bytes)
			bytes /= 2;
	return bytes;
}

uint32_t rows_vector(const struct rows_form *form, const struct rows_need *need)
{
	uint32_t bytes = need->alignment < 16 ? need->alignment : 16;

	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1 && form->columns > 1)
			return 1;
		bytes = rows_narrow(form, i, need->element, bytes);
	}
	while (bytes > need->element && form->columns * need->element % bytes)
		bytes /= 2;
	return bytes > need->element ? bytes / need->element : 1;
}

bool rows_congruent(const struct rows_form *form, const struct rows_need *need)
{
	int64_t unit = 16 / need->element;
	int first = -1;

	if (need->alignment < 16)
		return false;
	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1)
			return false;
		first = first < 0 ? i : first;
		for (int k = 0; k < form->rank; k++)
			if ((form->stride[i][k] - form->stride[first][k]) % unit)
				return false;
	}
	return true;
}

bool rows_clusters(const struct rows_form *form, uint32_t blocks,
				   const struct kernel_limits *limits)
{
	return strncmp(limits->target, "sm_", 3) == 0 && strtol(limits->target + 3, NULL, 10) >= 90 &&
		   (uint64_t)form->rows <= limits->grid_x / blocks;
}

uint32_t rows_group(uint64_t vectors, uint64_t held)
{
	uint64_t size = (uint64_t)plan_divide_up((int64_t)vectors, (int64_t)held);

	if (size > GROUP_MOST)
		return GROUP_MOST;
	if (size > 32)
		return (uint32_t)plan_divide_up(size, 32) * 32;
	for (uint32_t power = 1;; power *= 2)
		if (power >= size)
			return power;
}
