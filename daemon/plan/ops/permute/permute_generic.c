/*
 * permute_generic.c: permutes of which the kernel knows no size: what is passed to it.  Transposes
 * go in tiles (permute_tile_generic.c), everything else element by element in the order of y.
 */
#include "permute.h"

#include <string.h>

#define THREADS 256u
#define PASSED 9 /* dimensions, the slowest without its size; permute_generic.cuh has it, too */
#define RUN 4    /* elements of less than 4 bytes that a thread stores together */

/* A kernel looks at so many dimensions: each has kernels for these. */
static const int ranks[] = {2, 4, PASSED};
#define RANKS (int)(sizeof(ranks) / sizeof(ranks[0]))

/* Runs that stay together move as one element, as wide as they allow. */
static void join_vectors(struct permute_form *form)
{
	int last = form->rank - 1;
	struct permute_dim *run = &form->dim[last];
	uint32_t width;

	if (form->rank == 0 || run->from != 1)
		return;
	width = permute_width(form, true, run->size, 1u << last);
	width = width < form->align_y ? width : form->align_y;
	permute_join(form, width);
	if (run->size == 1)
		form->rank--;
}

static bool is_wide(const struct permute_form *form)
{
	return strcmp(permute_offset_type(form, -1), "i64") == 0 || form->count > INT32_MAX / 2;
}

/* Returns how many elements a thread takes; they become one step of the fastest dimension. */
static uint32_t join_runs(struct permute_form *form, int64_t *apart)
{
	struct permute_dim *last = &form->dim[form->rank - 1];

	*apart = 0;
	if (form->element >= 4 || last->size % RUN || form->align_y < RUN * form->element ||
		is_wide(form))
		return 1;
	*apart = last->from;
	last->size /= RUN;
	last->from *= RUN;
	form->count /= RUN;
	return RUN;
}

static void plan_gather(struct permute_form *form, const struct kernel_limits *limits,
						struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct plan_text note = {.text = out->note, .size = sizeof(out->note)};
	uint32_t bytes, run;
	int64_t apart;
	int class = 0;

	join_vectors(form);
	bytes = is_wide(form) ? 8 : 4;
	run = join_runs(form, &apart);
	while (class < RANKS - 1 && (form->rank > ranks[class] || bytes == 8))
		class ++;
	plan_generic_spread(out, limits, "ops/permute_generic.cuh", (uint64_t)form->count, THREADS);
	plan_print(&id, "permute_gather<%u, %u, %d, %s>", form->element, run, ranks[class],
			   bytes == 8 ? "u64" : "u32");
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, bytes, (uint64_t)form->count);
	plan_arg_scalar(out, bytes, (uint64_t)apart);
	/* Sizes and strides, fastest first, and what fills up their number. */
	for (int k = 0; k < PASSED - 1; k++)
		plan_arg_divisor(out, bytes,
						 k < form->rank ? (uint64_t)form->dim[form->rank - 1 - k].size : 1);
	for (int k = 0; k < PASSED; k++)
		plan_arg_scalar(out, bytes,
						k < form->rank ? (uint64_t)form->dim[form->rank - 1 - k].from : 0);
	out->extents[0].alignment = form->element;
	out->extents[1].alignment = form->element * run;
	plan_print(&note, "each thread moves %u element%s of %u bytes; sizes and strides are arguments",
			   run, run == 1 ? "" : "s", form->element);
}

void permute_generic(const struct kernel_problem *problem, const int64_t *perm,
					 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct permute_form form;

	permute_canonical(problem, perm, INT32_MAX, &form);
	permute_refine(&form);
	if (permute_tile_generic(&form, limits, out))
		return;
	permute_canonical(problem, perm, INT64_MAX, &form);
	permute_widen(&form);
	plan_gather(&form, limits, out);
}

/* ---- Which there are ---- */

static void make_perm(struct kernel_problem *out, int rank, const int64_t *perm)
{
	struct kernel_attr *attr = &out->attrs[0];

	plan_made_int(out, "perm", 0);
	attr->kind = KILN_ATTR_INTS;
	attr->count = rank;
	memcpy(attr->ints, perm, (size_t)rank * sizeof(perm[0]));
}

/* Strides that let nothing run on or be a transpose. */
static void make_gather(int class, kiln_dtype dtype, int64_t last, struct kernel_problem *out)
{
	static const int64_t perm[] = {0, 1, 2, 3, 4};
	int rank = class == 0 ? 2 : class == 1 ? 4 : 5;
	int64_t sizes[] = {3, 3, 3, 3, 3};

	sizes[rank - 1] = last;
	for (int i = 0; i < 2; i++)
		plan_made_tensor(out, i, dtype, rank, sizes);
	make_perm(out, rank, perm);
	for (int k = 0; k < rank; k++)
		out->tensors[0].stride[k] = (class == RANKS ? INT64_C(1) << 31 : 32) << 2 * k;
}

/*
 * Each element size has gathers of each number of dimensions, the last once more for what is wide;
 * the same by runs for small elements; a tile.
 */
int permute_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_I32, KILN_I16, KILN_U8, KILN_I64, KILN_C128};
	static const int64_t tile[] = {96, 128, 96}, turned[] = {1, 0};
	const int sizes = (int)(sizeof(dtypes) / sizeof(dtypes[0])), gathers = RANKS + 1;

	if (index < sizes) {
		plan_made_tensor(out, 0, dtypes[index], 2, tile);
		plan_made_tensor(out, 1, dtypes[index], 2, tile + 1);
		make_perm(out, 2, turned);
		return KILN_OK;
	}
	index -= sizes;
	if (index < sizes * gathers) {
		make_gather(index % gathers, dtypes[index / gathers], 3, out);
		return KILN_OK;
	}
	index -= sizes * gathers;
	if (index < 2 * RANKS) {
		make_gather(index % RANKS, dtypes[1 + index / RANKS], RUN, out);
		return KILN_OK;
	}
	return KILN_ENOENT;
}
