/*
 * permute_generic.c: permutes of which the kernel knows no size: what is passed to it.
 */
#include "permute.h"

#include <string.h>

#define THREADS 256u
#define PASSED 9 /* dimensions, the slowest without its size; permute_generic.cuh has it, too */

/* How many of the dimensions a kernel looks at: each has kernels for these. */
static const int ranks[] = {2, 4, PASSED};
#define RANKS (int)(sizeof(ranks) / sizeof(ranks[0]))

/* Runs that stay together move as one element, as wide as they allow. */
static void join_vectors(struct permute_form *form)
{
	int last = form->rank - 1;
	struct permute_dim *run = &form->dim[last];
	uint32_t width;
	int64_t each;

	if (form->rank == 0 || run->from != 1)
		return;
	width = permute_width(form, true, run->size, 1u << last);
	width = width < form->align_y ? width : form->align_y;
	each = width / form->element;
	run->size /= each;
	for (int k = 0; k < last; k++) {
		form->dim[k].from /= each;
		form->dim[k].to /= each;
	}
	form->element = width;
	form->count /= each;
	if (run->size == 1)
		form->rank--;
}

static bool is_wide(const struct permute_form *form)
{
	return strcmp(permute_offset_type(form, -1), "i64") == 0 || form->count > INT32_MAX / 2;
}

/* Sizes and strides, fastest first, and what fills up their number. */
static void pass_dims(const struct permute_form *form, uint32_t bytes, struct kernel_plan *out)
{
	for (int k = 0; k < PASSED - 1; k++)
		plan_arg_divisor(out, bytes,
						 k < form->rank ? (uint64_t)form->dim[form->rank - 1 - k].size : 1);
	for (int k = 0; k < PASSED; k++)
		plan_arg_scalar(out, bytes,
						k < form->rank ? (uint64_t)form->dim[form->rank - 1 - k].from : 0);
}

int permute_generic(const struct permute_form *given, const struct kernel_limits *limits,
					struct kernel_plan *out)
{
	struct permute_form form = *given;
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct plan_text note = {.text = out->note, .size = sizeof(out->note)};
	uint32_t bytes;
	int class = 0;

	join_vectors(&form);
	bytes = is_wide(&form) ? 8 : 4;
	while (class < RANKS - 1 && (form.rank > ranks[class] || bytes == 8))
		class ++;
	plan_generic_spread(out, limits, "ops/permute_generic.cuh", (uint64_t)form.count, THREADS);
	plan_print(&id, "permute_gather<%u, %d, %s>", form.element, ranks[class],
			   bytes == 8 ? "u64" : "u32");
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, bytes, (uint64_t)form.count);
	pass_dims(&form, bytes, out);
	out->extents[0].alignment = out->extents[1].alignment = form.element;
	plan_print(&note, "each thread moves %u bytes; sizes and strides are arguments", form.element);
	return KILN_OK;
}

/*
 * The kernels: each element size with each number of dimensions, the last once more for what is
 * wide.  The strides of the problems let nothing run on or be a transpose.
 */
int permute_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_U8, KILN_I16, KILN_I32, KILN_I64, KILN_C128};
	static const int64_t shape[KILN_MAX_RANK] = {3, 3, 3, 3, 3, 3, 3, 3};
	int element = index / (RANKS + 1), class = index % (RANKS + 1);
	int rank = class == 0 ? 2 : class == 1 ? 4 : 5;
	struct kernel_attr *perm = &out->attrs[0];

	if (element >= (int)(sizeof(dtypes) / sizeof(dtypes[0])))
		return KILN_ENOENT;
	for (int i = 0; i < 2; i++)
		plan_made_tensor(out, i, dtypes[element], rank, shape);
	plan_made_int(out, "perm", 0);
	perm->kind = KILN_ATTR_INTS;
	perm->count = rank;
	for (int k = 0; k < rank; k++) {
		perm->ints[k] = k;
		out->tensors[0].stride[k] = (class == RANKS ? INT64_C(1) << 31 : 32) << 2 * k;
	}
	return KILN_OK;
}
