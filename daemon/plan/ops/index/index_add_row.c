/*
 * index_add_row.c: scatter_add along the last dimension: a block has a row, whose elements and
 * links shared memory holds.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define LATER_PART 9        /* sums of more than eight elements are a ninth of these, at most */
#define LEAST 64            /* elements of a row, on the longer side */
#define MOST_ELEMENTS 65536 /* on either */

enum { MANY, BASE, IDX };

/* IndexAddRow in ops/index_add_row.cuh computes the same. */
static int64_t row_shared(const struct index_add *add)
{
	int64_t bytes = plan_divide_up((add->count + 1) * add->index.element, 16) * 16;

	bytes +=
		plan_divide_up(add->count * 4 + 4, 16) * 16 + plan_divide_up(add->end * 4 + 4, 16) * 16;
	return bytes + plan_divide_up((add->count / LATER_PART + 1) * 4, 16) * 16;
}

/* Is every row of an operand aligned to so many elements?  number: in the form, or -1 where it has
 * no gaps. */
static bool is_aligned(const struct kernel_problem *problem, const struct index_add *add,
					   int operand, int number, uint32_t element, uint32_t elements)
{
	uint32_t bytes = elements * element;

	for (int k = 0; number >= 0 && k < add->form.rank; k++)
		if (add->form.stride[number][k] % elements)
			return false;
	return problem->tensors[operand].alignment >= (bytes < 16 ? bytes : 16);
}

/* Elements of a thread at once, and bytes that are copied at once. */
static void find_widths(const struct kernel_problem *problem, const struct index_add *add,
						uint32_t *vector, uint32_t *load)
{
	const struct index_problem *index = &add->index;
	uint32_t element = index->element;

	*vector = element > 4 ? 16 / element : 4;
	*load = 16;
	while (*vector > 1 && (add->count % *vector || add->end % *vector ||
						   !is_aligned(problem, add, index->op.base, BASE, element, *vector) ||
						   !is_aligned(problem, add, 1, IDX, index->index_bytes, *vector) ||
						   !is_aligned(problem, add, index->op.few, -1, element, *vector)))
		*vector /= 2;
	while (*load > element &&
		   (add->count * element % *load ||
			!is_aligned(problem, add, index->op.many, MANY, element, *load / element)))
		*load /= 2;
}

/* Two turns of four elements take a row, if there are so many threads. */
int index_add_rows(const struct index_add *add, const struct kernel_limits *limits,
				   char names[][KERNEL_CHOICE_MAX])
{
	int64_t longest = add->count > add->end ? add->count : add->end;
	uint32_t threads = 64;
	int count = 0;

	if (!add->index.op.each || add->index.op.base < 0 || add->inner != 1 || add->many_axis != 1 ||
		add->base_axis != 1 || add->idx_step != 1 || longest < LEAST || add->count < 1 ||
		longest > MOST_ELEMENTS || row_shared(add) + 16 > limits->shared_optin)
		return 0;
	while (threads < 512 && threads * 8 < longest)
		threads *= 2;
	for (int i = 0; i < INDEX_ADD_ROWS; i++) {
		uint32_t other = i == 0 ? threads : i == 1 ? threads / 2 : threads * 2;
		if (other <= limits->max_threads)
			snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ROW "%u", other);
	}
	return count;
}

int index_add_row_plan(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t threads, const struct kernel_limits *limits,
					   struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	uint32_t vector, load, list;
	bool loop = plan_launch(out, limits, (uint64_t)add->form.rows, threads);

	find_widths(problem, add, &vector, &load);
	list = vector * index->index_bytes;
	snprintf(out->source, sizeof(out->source), "ops/index_add_row.cuh");
	snprintf(out->choice, sizeof(out->choice), INDEX_ADD_ROW "%u", threads);
	out->shared_bytes = (uint32_t)row_shared(add);
	plan_print(&id, "index_add_row<IndexAddRow<%s, %s, %s, %lld, %lld, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), (long long)add->end, (long long)add->count, vector,
			   load, threads);
	rows_print_sizes(&id, &add->form);
	for (int i = 0; i < 3; i++)
		rows_print_strides(&id, &add->form, i);
	plan_print(&id, ", %s>", loop ? "true" : "false");
	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	plan_arg_pointer(out, index->op.base);
	plan_arg_pointer(out, index->op.few);
	plan_arg_scalar(out, 8, (uint64_t)add->form.rows);
	index_report_arg(index, out);
	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i,
				   i == index->op.many ? load
				   : i == 1            ? (list < 16 ? list : 16)
									   : vector * index->element,
				   out);
	plan_over(problem, index->op.few, index->op.base, out);
	snprintf(out->note, sizeof(out->note),
			 "a block links the %lld indices of a row in shared memory, for %lld sums",
			 (long long)add->count, (long long)add->end);
	return plan_check_name(&id, out, error);
}
