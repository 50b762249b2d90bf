/*
 * generic.c: what the planners of generic kernels share: divisors, launches, and problems made up
 * to name a kernel.  Knows no operator.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

bool plan_is_generic(const char *choice)
{
	return choice && strcmp(choice, PLAN_GENERIC) == 0;
}

__extension__ typedef unsigned __int128 wide;

/* floor(2^bits * (2^shift - size) / size) + 1.  Nothing is divided by a size of 0. */
static uint64_t magic_of(uint64_t size, uint32_t shift, uint32_t bits)
{
	uint64_t rest = (UINT64_C(1) << shift) - size;

	if (size == 0)
		return 1;
	return bits == 32 ? (rest << 32) / size + 1 : (uint64_t)(((wide)rest << 64) / size) + 1;
}

void plan_arg_divisor(struct kernel_plan *plan, uint32_t bytes, uint64_t size)
{
	uint32_t shift = 0;

	/* No shift reaches a product that has wrapped around. */
	while (shift < 63 && UINT64_C(1) << shift < size)
		shift++;
	plan_arg_scalar(plan, bytes, size);
	plan_arg_scalar(plan, bytes, magic_of(size, shift, bytes * 8));
	plan_arg_scalar(plan, 4, shift);
}

bool plan_launch(struct kernel_plan *plan, const struct kernel_limits *limits, uint64_t blocks,
				 uint32_t threads)
{
	uint32_t most = limits->grid_x < INT32_MAX ? limits->grid_x : INT32_MAX;

	plan->kind = KERNEL_LAUNCH;
	plan->grid[0] = blocks < most ? (uint32_t)blocks : most;
	plan->grid[1] = plan->grid[2] = plan->block[1] = plan->block[2] = 1;
	plan->block[0] = threads;
	return blocks > most;
}

void plan_generic_launch(struct kernel_plan *plan, const struct kernel_limits *limits,
						 const char *source, uint64_t blocks, uint32_t threads)
{
	plan_launch(plan, limits, blocks, threads);
	snprintf(plan->choice, sizeof(plan->choice), "%s", PLAN_GENERIC);
	snprintf(plan->variant, sizeof(plan->variant), "%s", PLAN_GENERIC);
	snprintf(plan->source, sizeof(plan->source), "%s", source);
}

void plan_generic_spread(struct kernel_plan *plan, const struct kernel_limits *limits,
						 const char *source, uint64_t work, uint32_t threads)
{
	while (threads > limits->max_threads)
		threads /= 2;
	plan_generic_launch(plan, limits, source, work / threads + (work % threads != 0), threads);
}

void plan_made_tensor(struct kernel_problem *problem, int operand, kiln_dtype dtype, int rank,
					  const int64_t *shape)
{
	struct kernel_tensor *tensor = &problem->tensors[operand];

	*tensor = (struct kernel_tensor){.dtype = dtype, .rank = rank, .alignment = 16};
	if (rank)
		memcpy(tensor->shape, shape, (size_t)rank * sizeof(shape[0]));
	plan_contiguous(tensor);
	if (problem->tensor_count <= operand)
		problem->tensor_count = operand + 1;
}

static struct kernel_attr *add_attr(struct kernel_problem *problem, const char *name)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count++];

	*attr = (struct kernel_attr){.kind = KILN_ATTR_INT};
	snprintf(attr->name, sizeof(attr->name), "%s", name);
	return attr;
}

void plan_made_int(struct kernel_problem *problem, const char *name, int64_t value)
{
	add_attr(problem, name)->i = value;
}

void plan_made_word(struct kernel_problem *problem, const char *name, const char *word)
{
	kernel_attr_set_text(problem, add_attr(problem, name), word, strlen(word));
}
