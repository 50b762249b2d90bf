/*
 * index_add_row.c: scatter_add along the last dimension: a block has a row, whose elements and
 * links shared memory holds.  Along another one it has some rows that lie side by side.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define LATER_PART 9        /* sums of more than eight elements are a ninth of these, at most */
#define LEAST 64            /* elements of a row, on the longer side */
#define MOST_ELEMENTS 65536 /* on either */

#define LINES 32 /* bytes of each k that a block has, at least, of rows side by side */

enum { MANY, BASE, IDX, FEW, SIDES };

/* How the rows of a block lie. */
struct add_rows {
	uint32_t wide; /* rows side by side */
	struct rows_form form;
	int64_t axis[SIDES]; /* elements from one k to the next */
};

/* false: they lie otherwise. */
static bool rows_of(const struct index_add *add, uint32_t wide, struct add_rows *out)
{
	const struct index_problem *index = &add->index;
	const struct kernel_tensor *sides[SIDES] = {&index->many, &index->base, NULL, &index->few};
	int64_t shape[KILN_MAX_RANK], strides[SIDES][KILN_MAX_RANK];
	const int64_t *stride[SIDES];
	struct rows_form *form = &out->form;
	int rank = index->many.rank - 1, before = wide == 1 ? rank : index->axis, culprit;

	out->wide = wide;
	for (int i = 0; i < SIDES; i++) {
		const int64_t *from = i == IDX ? index->idx_stride : sides[i]->stride;
		stride[i] = strides[i];
		out->axis[i] = from[index->axis];
		for (int k = 0; k < rank; k++) {
			shape[k] = index->many.shape[k + (k >= index->axis)];
			strides[i][k] = from[k + (k >= index->axis)];
		}
	}
	if (!rows_form(form, rank, shape, SIDES, stride, before, rank - before, &culprit))
		return false;
	if (wide == 1)
		return add->inner == 1 && add->many_axis == 1 && add->base_axis == 1 && add->idx_step == 1;
	for (int i = 0; i < SIDES; i++)
		if (form->step[i] != 1)
			return false;
	if (index->axis == 0 || before == rank || form->columns % wide)
		return false;
	if (form->columns > wide) {
		form->size[form->rank] = form->columns / wide;
		for (int i = 0; i < SIDES; i++)
			form->stride[i][form->rank] = wide;
		form->rows *= form->columns / wide;
		form->rank++;
	}
	return true;
}

/* IndexAddRow in ops/index_add_row.cuh computes the same. */
static int64_t row_shared(const struct index_add *add, uint32_t wide)
{
	int64_t count = add->count * wide, end = add->end * wide;
	int64_t bytes = plan_divide_up((count + 1) * add->index.element, 16) * 16;

	bytes += plan_divide_up(count * 4 + 4, 16) * 16 + plan_divide_up(end * 4 + 4, 16) * 16;
	return bytes + plan_divide_up((count / LATER_PART + 1) * 4, 16) * 16;
}

/* Is every row of a side aligned to so many elements? */
static bool is_aligned(const struct kernel_problem *problem, const struct add_rows *rows,
					   int operand, int side, uint32_t element, uint32_t elements)
{
	uint32_t bytes = elements * element;

	for (int k = 0; k < rows->form.rank; k++)
		if (rows->form.stride[side][k] % elements)
			return false;
	return (rows->wide == 1 || rows->axis[side] % elements == 0) &&
		   problem->tensors[operand].alignment >= (bytes < 16 ? bytes : 16);
}

/* Elements of a thread at once, and bytes that are copied at once. */
static void find_widths(const struct kernel_problem *problem, const struct index_add *add,
						const struct add_rows *rows, uint32_t *vector, uint32_t *load)
{
	const struct index_problem *index = &add->index;
	uint32_t element = index->element, wide = rows->wide;

	/* Lanes side by side have rows side by side, and so banks of shared memory of their own. */
	*vector = wide > 1 ? 1 : element > 4 ? 16 / element : 4;
	*load = 16;
	while (*vector > 1 && (add->count % *vector || add->end % *vector ||
						   !is_aligned(problem, rows, index->op.base, BASE, element, *vector) ||
						   !is_aligned(problem, rows, 1, IDX, index->index_bytes, *vector) ||
						   !is_aligned(problem, rows, index->op.few, FEW, element, *vector)))
		*vector /= 2;
	while (*load > element &&
		   (add->count * wide * element % *load || (wide > 1 && wide * element % *load) ||
			!is_aligned(problem, rows, index->op.many, MANY, element, *load / element)))
		*load /= 2;
}

static bool rows_fit(const struct index_add *add, const struct kernel_limits *limits, uint32_t wide)
{
	int64_t longest = (add->count > add->end ? add->count : add->end);
	struct add_rows rows;

	return add->index.op.each && add->index.op.base >= 0 && longest * wide >= LEAST &&
		   add->count > 0 && longest <= MOST_ELEMENTS / wide &&
		   row_shared(add, wide) + 16 <= limits->shared_optin && rows_of(add, wide, &rows);
}

/* Two turns of four elements take a row, if there are so many threads. */
int index_add_rows(const struct index_add *add, const struct kernel_limits *limits,
				   char names[][KERNEL_CHOICE_MAX])
{
	int64_t longest = add->count > add->end ? add->count : add->end;
	uint32_t threads = 64;
	int count = 0;

	if (!rows_fit(add, limits, 1))
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

int index_add_side_rows(const struct index_add *add, const struct kernel_limits *limits,
						char names[][KERNEL_CHOICE_MAX])
{
	int count = 0;

	for (uint32_t bytes = LINES; bytes <= 2 * LINES; bytes *= 2)
		for (uint32_t threads = 512; threads <= 1024; threads *= 2)
			if (threads <= limits->max_threads && rows_fit(add, limits, bytes / add->index.element))
				snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ROW "%ux%u",
						 bytes / add->index.element, threads);
	return count;
}

int index_add_row_plan(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t wide, uint32_t threads, const struct kernel_limits *limits,
					   struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	uint32_t vector, load, list;
	struct add_rows rows;
	bool loop;

	(void)rows_of(add, wide, &rows);
	loop = plan_launch(out, limits, (uint64_t)rows.form.rows, threads);
	find_widths(problem, add, &rows, &vector, &load);
	list = vector * index->index_bytes;
	snprintf(out->source, sizeof(out->source), "ops/index_add_row.cuh");
	if (wide == 1)
		snprintf(out->choice, sizeof(out->choice), INDEX_ADD_ROW "%u", threads);
	else
		snprintf(out->choice, sizeof(out->choice), INDEX_ADD_ROW "%ux%u", wide, threads);
	out->shared_bytes = (uint32_t)row_shared(add, wide);
	plan_print(&id, "index_add_row<IndexAddRow<%s, %s, %s, %lld, %lld, %u, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), (long long)add->end * wide,
			   (long long)add->count * wide, vector, load, threads, wide);
	plan_print(&id, ", IndexAddAxes<%lld, %lld, %lld, %lld>", (long long)rows.axis[MANY],
			   (long long)rows.axis[BASE], (long long)rows.axis[IDX], (long long)rows.axis[FEW]);
	rows_print_sizes(&id, &rows.form);
	for (int i = 0; i < SIDES; i++)
		rows_print_strides(&id, &rows.form, i);
	plan_print(&id, ", %s>", loop ? "true" : "false");
	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	plan_arg_pointer(out, index->op.base);
	plan_arg_pointer(out, index->op.few);
	plan_arg_scalar(out, 8, (uint64_t)rows.form.rows);
	index_report_arg(index, out);
	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i,
				   i == index->op.many ? load
				   : i == 1            ? (list < 16 ? list : 16)
									   : vector * index->element,
				   out);
	plan_over(problem, index->op.few, index->op.base, out);
	snprintf(out->note, sizeof(out->note),
			 "a block links the %lld indices of %u row%s in shared memory, for %lld sums each",
			 (long long)add->count, wide, wide == 1 ? "" : "s", (long long)add->end);
	return plan_check_name(&id, out, error);
}
