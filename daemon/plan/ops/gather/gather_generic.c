/*
 * gather_generic.c: gathers of which the kernel knows no size: what is passed to it, and which
 * kernels there are.
 */
#include "gather.h"

#include <stdio.h>

#define THREADS 256
#define ROWS 1u /* flags of ops/gather_generic.cuh */
#define LOADS 2u
#define STORES 4u

static uint32_t find_flags(const struct kernel_problem *problem,
						   const struct gather_problem *gather, int64_t vector,
						   uint32_t *index_load, uint32_t *store)
{
	uint32_t bytes = (uint32_t)vector * gather->index_bytes, flags = 0;
	bool loads = gather->many % vector == 0 && (gather->index_step == 1 || vector == 1);

	bytes = bytes < 16 ? bytes : 16;
	loads = loads && problem->tensors[1].alignment >= bytes;
	for (int k = 0; k < gather->form.rank; k++)
		loads = loads && (uint64_t)gather->form.stride[1][k] * gather->index_bytes % bytes == 0;
	*index_load = loads ? bytes : gather->index_bytes;
	*store = (uint32_t)vector * gather->element;
	flags = gather->many % vector == 0 ? ROWS : 0;
	flags |= loads ? LOADS : 0;
	if (problem->tensors[2].alignment >= *store)
		return flags | STORES;
	*store = gather->element;
	return flags;
}

int gather_generic(const struct kernel_problem *problem, const struct gather_problem *gather,
				   const struct kernel_limits *limits, struct kernel_plan *out,
				   char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	/* GatherAny::vector is the same number. */
	int64_t most = 64 / gather->index_bytes, whole = 16 / gather->element;
	int64_t vector = whole < most ? whole : most, count;
	uint32_t load, store, bytes, flags = find_flags(problem, gather, vector, &load, &store);

	if (__builtin_mul_overflow(gather->form.rows, gather->many, &count))
		return plan_refuse(error, KILN_ENOTSUP, "gather: there are too many rows and indices");
	/* Do 31 bits number the elements of dst, the rows and their places, with room for one step? */
	bytes = count <= INT32_MAX / 2 && gather->form.rows <= INT32_MAX && gather->few <= INT32_MAX &&
					gather->many <= INT32_MAX
				? 4
				: 8;
	plan_generic_spread(out, limits, "ops/gather_generic.cuh",
						((uint64_t)count + (uint64_t)vector - 1) / (uint64_t)vector, THREADS);
	plan_print(&id, "gather_generic<%u, %s, %s>", gather->element, gather_index_name(gather),
			   bytes == 4 ? "u32" : "u64");
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	gather_report_arg(gather, out);
	plan_arg_scalar(out, bytes, (uint64_t)count);
	plan_arg_scalar(out, bytes, (uint64_t)gather->form.rows);
	plan_arg_divisor(out, bytes, (uint64_t)gather->many);
	plan_arg_scalar(out, bytes, (uint64_t)gather->few);
	plan_arg_scalar(out, bytes, (uint64_t)gather->lists);
	plan_arg_scalar(out, 8, (uint64_t)gather->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)gather->index_step);
	plan_arg_scalar(out, 4, gather->bounds);
	plan_arg_scalar(out, 4, flags);
	rows_pass_sizes(out, &gather->form, bytes);
	rows_pass_strides(out, &gather->form, 0);
	rows_pass_strides(out, &gather->form, 1);
	gather_extents(problem, gather, gather->element, load, store, out);
	snprintf(out->note, sizeof(out->note),
			 "each thread makes %lld elements, %u bytes stored at once; sizes and strides are "
			 "arguments",
			 (long long)vector, store);
	return KILN_OK;
}

/* One of each size, and all that indices may be. */
static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_I8, KILN_F64, KILN_C128};
static const kiln_dtype indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_U16};

int gather_generics(int index, struct kernel_problem *out)
{
	kiln_dtype element, number;
	/* The second half is for what 31 bits do not number. */
	int64_t rows = index % 2 ? INT64_C(1) << 32 : 2;

	if (index >= 2 * 5 * 4)
		return KILN_ENOENT;
	element = elements[index / 8];
	number = indices[index / 2 % 4];
	plan_made_tensor(out, 0, element, 3, (const int64_t[]){rows, 3, 5});
	plan_made_tensor(out, 1, number, 2, (const int64_t[]){3, 7});
	plan_made_tensor(out, 2, element, 3, (const int64_t[]){rows, 3, 7});
	return KILN_OK;
}
