/*
 * index_add_atomic.c: sums whose elements are added in memory, in any order, by atomic operations:
 * where the same bits again are not asked for, or integers make the order one.
 *
 * Chains look at each list once a block, and read and write every sum once.  Additions in memory
 * look at each index once, but move sums that do not stay in the device's cache twice more.
 */
#include "index.h"

#include <stdio.h>

#define THREADS 256u
#define BLOCKS 4 /* of a multiprocessor at once */
#define STRIP 16 /* vectors of a thread in a strip */
#define STRIP_VECTORS ((int64_t)THREADS * STRIP)
#define PAYS_INDICES 2      /* so many for each place, and more */
#define COUNTERS 16         /* bytes in which blocks meet */
#define MOST_U32 (1u << 31) /* vectors that are counted in 32 bits, with room for a step more */

/* Vectors of the larger side: the sums, or what is added.  Tensors of one side have no more
 * elements than 62 bits count. */
static int64_t count_vectors(const struct index_add *add, uint32_t vector)
{
	int64_t larger = add->count > add->end ? add->count : add->end;

	return add->form.rows * (add->form.columns / vector) * larger;
}

bool index_add_is_atomic(const struct index_add *add, const struct kernel_limits *limits)
{
	bool real = plan_is_float(add->index.dtype);

	return limits->max_threads >= THREADS && (real ? add->any_order : add->index.element >= 4) &&
		   count_vectors(add, 1) / STRIP_VECTORS < UINT32_MAX;
}

bool index_add_atomic_pays(const struct index_add *add, const struct kernel_limits *limits)
{
	int64_t sums;
	bool few = !__builtin_mul_overflow(add->end, add->form.rows, &sums) &&
			   !__builtin_mul_overflow(sums, add->form.columns / add->vector, &sums) &&
			   sums < (int64_t)limits->multiprocessors * THREADS;

	return add->any_order && index_add_is_atomic(add, limits) &&
		   (add->count / PAYS_INDICES >= add->end || (few && add->count >= THREADS));
}

/* Returns the blocks; *strips: how many they share.  number: vectors, of the larger side. */
static uint64_t atomic_blocks(const struct index_add *add, uint32_t vector, int64_t number,
							  const struct kernel_limits *limits, uint32_t *strips)
{
	int64_t adds = add->form.rows * (add->form.columns / vector) * add->count;
	int64_t most = (int64_t)(limits->multiprocessors ? limits->multiprocessors : 1) * BLOCKS;
	int64_t wanted = plan_divide_up(number, THREADS);

	*strips = (uint32_t)plan_divide_up(adds, STRIP_VECTORS);
	return (uint64_t)(wanted < most ? wanted : most);
}

static void atomic_arguments(const struct index_add *add, uint32_t strips, struct kernel_plan *out)
{
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, strips);
	plan_arg_scratch(out);
	index_add_alpha(add, out);
	out->scratch = (struct kernel_scratch){.bytes = COUNTERS, .counters = COUNTERS};
}

int index_add_atomic_plan(const struct kernel_problem *problem, const struct index_add *add,
						  const struct kernel_limits *limits, struct kernel_plan *out,
						  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	int64_t number = count_vectors(add, add->vector);
	uint32_t strips;
	uint64_t blocks = atomic_blocks(add, add->vector, number, limits, &strips);

	plan_launch(out, limits, blocks, THREADS);
	snprintf(out->source, sizeof(out->source), "ops/index_add_atomic.cuh");
	snprintf(out->choice, sizeof(out->choice), INDEX_ADD_ATOMIC);
	plan_print(&id, "index_add_atomic<%s, %s, %s, %u, %s", index_add_element(index->dtype),
			   plan_dtype_name(index->index), plan_bounds_name(index->bounds), add->vector,
			   index->op.each ? "true" : "false");
	index_add_print_places(add, &id);
	plan_print(&id, ", %s>", number < MOST_U32 ? "u32" : "u64");
	atomic_arguments(add, strips, out);
	index_add_extents(problem, add, add->vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "elements are added in memory, %u at once; %u strips of them", add->vector, strips);
	return plan_check_name(&id, out, error);
}

int index_add_atomic_generic(const struct kernel_problem *problem, const struct index_add *add,
							 const struct kernel_limits *limits, struct kernel_plan *out,
							 char error[KERNEL_ERROR_MAX])
{
	uint32_t vector = add->vector * add->index.element == 16 ? add->vector : 1, strips;
	uint64_t blocks = atomic_blocks(add, vector, count_vectors(add, vector), limits, &strips);

	(void)error;
	plan_generic_launch(out, limits, "ops/index_add_atomic.cuh", blocks, THREADS);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_add_atomic_generic<%s, %u>",
			 index_add_element(add->index.dtype), vector);
	atomic_arguments(add, strips, out);
	index_add_pass_sizes(add, out);
	rows_pass_sizes(out, &add->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &add->form, i);
	index_add_extents(problem, add, vector, add->index.index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "elements are added in memory, %u at once; sizes and strides are arguments", vector);
	return KILN_OK;
}
