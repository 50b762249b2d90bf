/*
 * index_add_row.c: scatter_add whose columns lie side by side, or are rows by themselves: a block
 * has some, whose elements and links shared memory holds.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define LATER_PART 9        /* sums of more than eight elements are a ninth of these, at most */
#define LEAST 64            /* indices, or places, of a column */
#define MOST_ELEMENTS 65536 /* of a block, and sums */
#define LEAST_BYTES 32      /* of elements side by side: what memory reads at once */

enum { MANY, BASE, IDX };

struct row_way {
	struct rows_form form; /* slices; columns */
	uint32_t wide, threads, shared;
	uint32_t vector, load; /* elements; bytes */
};

/* Is an operand aligned to so many elements, wherever a block begins?  number: in the form, or -1
 * where it has no gaps. */
static bool is_aligned(const struct kernel_problem *problem, const struct row_way *way, int operand,
					   int number, int64_t axis, uint32_t element, uint32_t elements)
{
	uint32_t bytes = elements * element;

	if (way->wide > 1 && (axis % elements || way->form.columns % elements || way->wide % elements))
		return false;
	for (int k = 0; number >= 0 && k < way->form.rank; k++)
		if (way->form.stride[number][k] % elements)
			return false;
	return problem->tensors[operand].alignment >= (bytes < 16 ? bytes : 16);
}

static void find_widths(const struct kernel_problem *problem, const struct index_add *add,
						struct row_way *way)
{
	const struct index_problem *index = &add->index;
	uint32_t element = index->element, v = element > 4 ? 16 / element : 4, load = 16;

	while (v > 1 && ((way->wide == 1 && (add->count % v || add->end % v)) ||
					 !is_aligned(problem, way, index->op.base, BASE, add->base_axis, element, v) ||
					 !is_aligned(problem, way, 1, IDX, add->idx_step, index->index_bytes, v) ||
					 !is_aligned(problem, way, index->op.few, -1, 0, element, v)))
		v /= 2;
	while (load > element && ((way->wide == 1 && add->count * element % load) ||
							  !is_aligned(problem, way, index->op.many, MANY, add->many_axis,
										  element, load / element)))
		load /= 2;
	way->vector = v;
	way->load = load;
}

/* IndexAddRow in ops/index_add_row.cuh computes the same. */
static bool make_way(const struct index_add *add, const struct kernel_limits *limits, uint32_t wide,
					 uint32_t threads, struct row_way *out)
{
	int64_t elements = add->count * wide, sums = add->end * wide, bytes;

	*out = (struct row_way){.wide = wide, .threads = threads};
	if (add->count < 1 || add->count > MOST_ELEMENTS || add->end > MOST_ELEMENTS ||
		elements > MOST_ELEMENTS || sums > MOST_ELEMENTS || threads > limits->max_threads)
		return false;
	bytes = plan_divide_up((elements + 1) * add->index.element, 16) * 16;
	bytes += plan_divide_up(elements * 4 + 4, 16) * 16 + plan_divide_up(sums * 4 + 4, 16) * 16;
	bytes += plan_divide_up((elements / LATER_PART + 1) * 4, 16) * 16;
	out->shared = (uint32_t)bytes;
	if (bytes + 16 > limits->shared_optin)
		return false;
	if (wide > 1)
		return index_add_panel_form(&add->index, &out->form) && out->form.columns > wide / 2 &&
			   out->form.step[MANY] == 1 && out->form.step[BASE] == 1 && out->form.step[IDX] == 1;
	out->form = add->form;
	return add->inner == 1 && add->many_axis == 1 && add->base_axis == 1 && add->idx_step == 1;
}

/* "row 512", "columns 8x512" */
static void name_way(uint32_t wide, uint32_t threads, char name[KERNEL_CHOICE_MAX])
{
	if (wide == 1)
		snprintf(name, KERNEL_CHOICE_MAX, INDEX_ADD_ROW "%u", threads);
	else
		snprintf(name, KERNEL_CHOICE_MAX, INDEX_ADD_COLUMNS "%ux%u", wide, threads);
}

/* Two turns of four elements take a row, if there are so many threads; that of columns is made of
 * the fewest that memory reads at once, or twice as many. */
static int find_ways(const struct index_add *add, const struct kernel_limits *limits,
					 struct row_way ways[INDEX_ADD_ROWS])
{
	int64_t longest = add->count > add->end ? add->count : add->end;
	uint32_t threads = 64, wide = LEAST_BYTES / add->index.element;
	int count = 0;

	if (!add->index.op.each || add->index.op.base < 0 || longest < LEAST)
		return 0;
	while (threads < 512 && threads * 8 < longest)
		threads *= 2;
	for (int i = 0; i < 3; i++)
		if (make_way(add, limits, 1,
					 i == 0   ? threads
					 : i == 1 ? threads / 2
							  : threads * 2,
					 &ways[count]))
			count++;
	if (count)
		return count;
	for (int i = 0; i < 3; i++)
		if (make_way(add, limits, i < 2 ? wide : 2 * wide, i ? 1024 : 512, &ways[count]))
			count++;
	return count;
}

int index_add_rows(const struct index_add *add, const struct kernel_limits *limits,
				   char names[][KERNEL_CHOICE_MAX])
{
	struct row_way ways[INDEX_ADD_ROWS];
	int count = find_ways(add, limits, ways);

	for (int i = 0; i < count; i++)
		name_way(ways[i].wide, ways[i].threads, names[i]);
	return count;
}

static void print_side(const struct row_way *way, int number, int64_t axis, struct plan_text *id)
{
	plan_print(id, ", IndexAddAlong<%lld", (long long)axis);
	rows_print_sizes(id, &way->form);
	rows_print_strides(id, &way->form, number);
	plan_print(id, ">");
}

static void row_extents(const struct kernel_problem *problem, const struct index_add *add,
						const struct row_way *way, struct kernel_plan *out)
{
	const struct index_problem *index = &add->index;
	uint32_t list = way->vector * index->index_bytes;

	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i,
				   i == index->op.many ? way->load
				   : i == 1            ? (list < 16 ? list : 16)
									   : way->vector * index->element,
				   out);
	plan_over(problem, index->op.few, index->op.base, out);
}

int index_add_row_plan(const struct kernel_problem *problem, const struct index_add *add,
					   const char *choice, const struct kernel_limits *limits,
					   struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	char names[INDEX_ADD_ROWS][KERNEL_CHOICE_MAX];
	struct row_way ways[INDEX_ADD_ROWS], *way = ways;
	int64_t columns, items;
	bool loop;

	(void)find_ways(add, limits, ways);
	(void)index_add_rows(add, limits, names);
	while (strcmp(names[way - ways], choice) != 0)
		way++;
	find_widths(problem, add, way);
	columns = way->wide == 1 ? 1 : way->form.columns;
	if (__builtin_mul_overflow(way->form.rows, plan_divide_up(columns, way->wide), &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many sums", problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, way->threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add_row.cuh");
	memcpy(out->choice, choice, strlen(choice) + 1);
	out->shared_bytes = way->shared;
	plan_print(&id, "index_add_row<IndexAddRow<%s, %s, %s, %lld, %lld, %lld, %u, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), (long long)add->end, (long long)add->count,
			   (long long)columns, way->wide, way->vector, way->load, way->threads);
	print_side(way, MANY, add->many_axis, &id);
	print_side(way, BASE, add->base_axis, &id);
	print_side(way, IDX, add->idx_step, &id);
	plan_print(&id, ", %s>", loop ? "true" : "false");
	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	plan_arg_pointer(out, index->op.base);
	plan_arg_pointer(out, index->op.few);
	plan_arg_scalar(out, 8, (uint64_t)items);
	index_report_arg(index, out);
	row_extents(problem, add, way, out);
	snprintf(out->note, sizeof(out->note),
			 "a block links the %lld indices of %u column%s in shared memory, for %lld sums each",
			 (long long)add->count, way->wide, way->wide == 1 ? "" : "s", (long long)add->end);
	return plan_check_name(&id, out, error);
}
