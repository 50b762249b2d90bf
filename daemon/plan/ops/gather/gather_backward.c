/*
 * gather_backward.c: dsrc[i, j, p] = the sum of ddst[i, j, k] over the k with idx[j, k] = p: how
 * much a block chains and sums up.
 *
 * A block chains a list of indices once for `rows` of the rows that share it.  More rows are less
 * chaining, fewer are more blocks.  Blocks take FEW_ROWS, as long as larger ones would be fewer
 * than two for each multiprocessor.  There is nothing between: all batches have two kernels.
 *
 * Where at least so many rows share a list as fill 16 bytes with an element of each, a block sums
 * up these together: one access to shared memory does for all.  It chains the list for several such
 * groups, as long as there are blocks for all multiprocessors.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define MAX_WAYS 12
#define LARGEST_CHUNK 8192
#define LARGEST_TILE 8192
#define BLOCK_BYTES 16384 /* of ddst that a block has, at least if there are rows for it */
#define MOST_ROWS 32
#define FEW_ROWS 4
#define LINK_BYTES 40960 /* of shared memory, which leave a multiprocessor five blocks */
#define LINK_MOST 16383  /* elements of dsrc, and indices */
#define LINKED 8         /* indices of an element that are put in order in registers */
#define LINK_BLOCKS 3    /* of a multiprocessor, at least */
#define TURNS 4          /* groups of rows, usually */
#define MOST_TURNS 8

struct scatter_way {
	bool skew;      /* rows of ddst are not whole vectors */
	uint32_t turns; /* groups of rows that are summed up together; 0: rows are, each by itself */
	uint32_t rows, threads;
	uint32_t chunk, tile, load, vector;
	uint32_t shared;
	char name[KERNEL_CHOICE_MAX];
};

static uint32_t round_up(uint32_t value)
{
	return (value + 15) / 16 * 16;
}

/* ScatterShape in ops/gather_backward.cuh computes the same. */
static uint32_t gather_backward_shared_bytes(const struct gather_problem *gather,
											 const struct scatter_way *way)
{
	uint32_t compute = gather->element == 8 ? 8 : 4;
	uint32_t sums = gather->many > way->tile ? way->chunk * compute : 0;

	return round_up(sums) + way->rows * round_up(way->tile * gather->element) + way->chunk * 2 +
		   way->tile * 2;
}

/* The most bytes of ddst that are aligned in all rows. */
static uint32_t find_load(const struct kernel_problem *problem, const struct gather_problem *gather)
{
	const struct rows_form *form = &gather->form;
	uint32_t element = gather->element, width = problem->tensors[0].alignment;

	if (form->step[0] != 1 && gather->many > 1)
		return element;
	width = width < 16 ? width : 16;
	while (width > element && (uint64_t)gather->many * element % width)
		width /= 2;
	return rows_narrow(form, 0, element, width);
}

/* Elements of dsrc that make a word, if rows are whole words. */
static uint32_t find_vector(const struct kernel_problem *problem,
							const struct gather_problem *gather)
{
	uint32_t vector = gather->element < 4 ? 4 / gather->element : 1;

	while (vector > 1 &&
		   (gather->few % vector || vector * gather->element > problem->tensors[2].alignment))
		vector /= 2;
	return vector;
}

static void backward_make_way(const struct kernel_problem *problem,
							  const struct gather_problem *gather,
							  const struct kernel_limits *limits, struct scatter_way *way)
{
	while (way->threads > limits->max_threads / 32 * 32)
		way->threads /= 2;
	way->load = find_load(problem, gather);
	way->vector = find_vector(problem, gather);
	way->chunk = gather->few < LARGEST_CHUNK ? (uint32_t)gather->few : LARGEST_CHUNK;
	way->tile = gather->many < LARGEST_TILE ? (uint32_t)gather->many : LARGEST_TILE;
	way->tile = way->tile ? way->tile : 1;
	if (gather->many > way->tile)
		way->rows = 1;
	while (gather_backward_shared_bytes(gather, way) > limits->shared_optin)
		if (way->rows > 1)
			way->rows /= 2;
		else if (way->tile * (gather->element + 2) > way->chunk * 2)
			way->tile = (way->tile / 2 + 15) / 16 * 16;
		else if (way->chunk > 32)
			way->chunk = (way->chunk / 2 + 15) / 16 * 16;
		else
			way->threads /= 2;
	if (gather->many > way->tile)
		way->rows = 1;
	way->shared = round_up(gather_backward_shared_bytes(gather, way));
	snprintf(way->name, sizeof(way->name), "chain %u r%u", way->threads, way->rows);
}

static void gather_backward_add_way(const struct kernel_problem *problem,
									const struct gather_problem *gather,
									const struct kernel_limits *limits, uint32_t threads,
									uint32_t rows, struct scatter_way ways[MAX_WAYS], int *count)
{
	struct scatter_way way = {.threads = threads, .rows = rows};

	if (rows < 1 || rows > MOST_ROWS)
		return;
	backward_make_way(problem, gather, limits, &way);
	for (int i = 0; i < *count; i++)
		if (strcmp(ways[i].name, way.name) == 0)
			return;
	ways[(*count)++] = way;
}

/* Elements of as many rows as fill 16 bytes, so many times; ScatterLink in
 * ops/gather_backward_link.cuh computes the same.  false: a block has no room for them, they have
 * no list together, or it is long beside what it names. */
static bool make_link(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct kernel_limits *limits, uint32_t turns, struct scatter_way *way)
{
	uint32_t element = gather->element, load = element == 2 ? 8 : 16;
	int64_t loads = plan_divide_up(gather->many * element, load), units, slots;

	if (problem->tensors[0].rank < 3 || element < 2 || gather->many < 1 ||
		gather->many >= LINK_MOST || gather->few >= LINK_MOST ||
		gather->many > LINKED * gather->few || (gather->form.step[0] != 1 && gather->many > 1))
		return false;
	*way = (struct scatter_way){.turns = turns, .rows = 16 / element, .threads = 64};
	way->load = find_load(problem, gather);
	way->skew = way->load < load;
	way->load = way->skew ? element : load;
	way->vector = find_vector(problem, gather);
	way->tile = (uint32_t)gather->many;
	way->chunk = (uint32_t)gather->few;
	slots = plan_divide_up(loads * load / element, 8) * 8;
	way->shared = (uint32_t)slots * 18 + (way->tile + 8) / 8 * 16 + (way->chunk + 4) / 4 * 16;
	way->shared = round_up(way->shared + way->chunk * 2);
	units = loads > gather->few / way->vector / 2 ? loads : gather->few / way->vector / 2;
	while (way->threads < 256 && way->threads < units)
		way->threads *= 2;
	snprintf(way->name, sizeof(way->name), "link %u r%ux%u", way->threads, way->rows, turns);
	return way->shared <= limits->shared_optin && way->threads <= limits->max_threads;
}

/* Groups of rows for which a block chains its list: some, where that leaves enough blocks. */
static uint32_t find_turns(const struct gather_problem *gather, const struct kernel_limits *limits)
{
	int64_t groups = plan_divide_up(gather->outer, 16 / gather->element) * gather->lists;
	uint32_t turns = 1;

	while (turns < TURNS && groups / (2 * turns) >= LINK_BLOCKS * (int64_t)limits->multiprocessors)
		turns *= 2;
	return turns;
}

/* The planner's own first. */
static int scatter_ways(const struct kernel_problem *problem, const struct gather_problem *gather,
						const struct kernel_limits *limits, struct scatter_way ways[MAX_WAYS])
{
	int64_t chunks = plan_divide_up(gather->few, LARGEST_CHUNK),
			row = gather->many * gather->element;
	int64_t blocks = 2 * (int64_t)limits->multiprocessors;
	uint32_t rows = 1, threads = gather->few > 1024 || gather->many > 2048 ? 512 : 128;
	uint32_t own = find_turns(gather, limits);
	struct scatter_way link;
	bool linked = make_link(problem, gather, limits, own, &link);
	int count = 0;

	/* A row has a list of its own if there are no leading dimensions. */
	while (problem->tensors[0].rank > 2 && rows < MOST_ROWS && 2 * rows * row <= BLOCK_BYTES)
		rows *= 2;
	if (rows > FEW_ROWS && plan_divide_up(gather->outer, rows) * gather->lists * chunks < blocks)
		rows = FEW_ROWS;
	memset(ways, 0, sizeof(*ways) * MAX_WAYS);
	if (linked && link.shared <= LINK_BYTES)
		ways[count++] = link;
	gather_backward_add_way(problem, gather, limits, threads, rows, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads, rows / 2, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads, rows * 2, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads * 2, rows, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads * 2, rows * 2, ways, &count);
	if (linked && link.shared > LINK_BYTES)
		ways[count++] = link;
	for (uint32_t turns = 1; turns <= MOST_TURNS; turns *= 2)
		if (turns != own && count < MAX_WAYS && make_link(problem, gather, limits, turns, &link))
			ways[count++] = link;
	return count;
}

/* ---- The plan ---- */

/* Integers wrap whatever their sign is. */
static const char *element_name(const struct gather_problem *gather)
{
	static const char *const words[] = {"u8", "u16", "", "u32", "", "", "", "u64"};

	return plan_is_float(gather->dtype) ? plan_dtype_name(gather->dtype)
										: words[gather->element == 2 ? 1 : gather->element - 1];
}

static void print_link(const struct gather_problem *gather, const struct scatter_way *way,
					   struct plan_text *id)
{
	plan_print(id, "gather_backward_link<ScatterLink<%s, %s, %s, %lld, %lld, %u, %s, %u>",
			   element_name(gather), gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, way->threads,
			   way->skew ? "true" : "false", way->vector);
}

static void print_rows(const struct gather_problem *gather, const struct scatter_way *way,
					   struct plan_text *id)
{
	plan_print(id,
			   "gather_backward_rows<ScatterShape<%s, %s, %s, %lld, %lld, %u, %u, %u, %u, %u, "
			   "%u>",
			   element_name(gather), gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, way->chunk, way->tile, way->rows,
			   way->threads, way->load, way->vector);
}

static void gather_backward_print_kernel(const struct gather_problem *gather,
										 const struct scatter_way *way, bool leads,
										 const char *number, bool loop, struct plan_text *id)
{
	(way->turns ? print_link : print_rows)(gather, way, id);
	plan_print(id, ", ScatterPlaces<%lld, %lld", (long long)gather->form.step[0],
			   (long long)gather->index_step);
	rows_print_sizes(id, &gather->form);
	rows_print_strides(id, &gather->form, 0);
	rows_print_strides(id, &gather->form, 1);
	plan_print(id, ">, %lld, %s, %s>", (long long)(leads ? gather->lists : 0), number,
			   loop ? "true" : "false");
}

static int gather_backward_plan_way(const struct kernel_problem *problem,
									const struct gather_problem *gather,
									const struct scatter_way *way,
									const struct kernel_limits *limits, struct kernel_plan *out,
									char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t chunks = plan_divide_up(gather->few, way->chunk), items;
	int64_t rows = way->rows * (way->turns ? way->turns : 1);
	bool loop;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, rows) * gather->lists, chunks, &items))
		return plan_refuse(error, KILN_ENOTSUP, "gather_backward: there are too many rows");
	loop = plan_launch(out, limits, items, way->threads);
	snprintf(out->source, sizeof(out->source), "ops/gather_backward%s.cuh",
			 way->turns ? "_link" : "");
	out->shared_bytes = way->shared;
	gather_backward_print_kernel(gather, way, problem->tensors[0].rank > 2,
								 items > INT32_MAX || gather->form.rows > INT32_MAX ? "i64" : "u32",
								 loop, &id);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)gather->outer);
	plan_arg_scalar(out, 8, (uint64_t)items);
	gather_report_arg(gather, out);
	if (way->turns)
		plan_arg_scalar(out, 4, way->turns);
	gather_extents(problem, gather, way->load, gather->index_bytes, way->vector * gather->element,
				   out);
	return plan_check_name(&id, out, error);
}

static void gather_backward_describe(const struct gather_problem *gather,
									 const struct scatter_way *way, struct kernel_plan *out)
{
	memcpy(out->choice, way->name, sizeof(out->choice));
	if (way->turns)
		snprintf(out->note, sizeof(out->note),
				 "a list of %lld indices is chained for %u times %u of its rows, which are summed "
				 "up together",
				 (long long)gather->many, way->turns, way->rows);
	else if (gather->many > way->tile)
		snprintf(out->note, sizeof(out->note),
				 "lists of %lld indices are chained %u at a time, for each row",
				 (long long)gather->many, way->tile);
	else
		snprintf(
			out->note, sizeof(out->note),
			"a list of %lld indices is chained once for %u of its rows; %u of %lld sums a block",
			(long long)gather->many, way->rows, way->chunk, (long long)gather->few);
}

/* ---- The generic plan ---- */

#define LOADS 1u /* flags of ops/gather_backward_generic.cuh */
#define WORDS 2u

/* The planner's own way, as arguments. */
static void pass_way(const struct gather_problem *gather, const struct scatter_way *way,
					 uint64_t items, struct kernel_plan *out)
{
	bool loads = way->load == 16,
		 words = gather->element < 4 && way->vector > 1 && way->vector * gather->element == 4;
	uint32_t each = loads ? 16 / gather->element : 1, stored = words ? way->vector : 1;

	plan_arg_scalar(out, 8, (uint64_t)gather->outer);
	plan_arg_scalar(out, 8, items);
	plan_arg_scalar(out, 8, (uint64_t)gather->few);
	plan_arg_scalar(out, 8, (uint64_t)gather->many);
	plan_arg_divisor(out, 8, (uint64_t)plan_divide_up(gather->few, way->chunk));
	plan_arg_divisor(out, 8, (uint64_t)gather->lists);
	plan_arg_divisor(out, 4, (uint64_t)plan_divide_up(way->tile, each));
	plan_arg_divisor(out, 4, (uint64_t)plan_divide_up(way->chunk, stored));
	plan_arg_scalar(out, 4, way->chunk);
	plan_arg_scalar(out, 4, way->tile);
	plan_arg_scalar(out, 4, way->rows);
	plan_arg_scalar(out, 8, (uint64_t)gather->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)gather->index_step);
	plan_arg_scalar(out, 4, gather->bounds);
	plan_arg_scalar(out, 4, (loads ? LOADS : 0) | (words ? WORDS : 0));
	rows_pass_sizes(out, &gather->form, 8);
	rows_pass_strides(out, &gather->form, 0);
	rows_pass_strides(out, &gather->form, 1);
}

static int gather_backward_plan_generic(const struct kernel_problem *problem,
										const struct gather_problem *gather,
										const struct scatter_way *way,
										const struct kernel_limits *limits, struct kernel_plan *out,
										char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t items;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, way->rows) * gather->lists,
							   plan_divide_up(gather->few, way->chunk), &items))
		return plan_refuse(error, KILN_ENOTSUP, "gather_backward: there are too many rows");
	plan_generic_launch(out, limits, "ops/gather_backward_generic.cuh", (uint64_t)items,
						way->threads);
	out->shared_bytes = way->shared;
	plan_print(&id, "gather_backward_generic<%s, %s>", element_name(gather),
			   gather_index_name(gather));
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	gather_report_arg(gather, out);
	pass_way(gather, way, (uint64_t)items, out);
	gather_extents(problem, gather, way->load == 16 ? 16 : gather->element, gather->index_bytes,
				   way->vector * gather->element, out);
	snprintf(out->note, sizeof(out->note),
			 "a list is chained for %u of its rows; sizes and strides are arguments", way->rows);
	return KILN_OK;
}

int gather_backward_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64,
										  KILN_I32, KILN_I64, KILN_I8,   KILN_I16};
	static const kiln_dtype indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_U16};

	if (index >= 8 * 4)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index / 4], 3, (const int64_t[]){2, 3, 7});
	plan_made_tensor(out, 1, indices[index % 4], 2, (const int64_t[]){3, 7});
	plan_made_tensor(out, 2, elements[index / 4], 3, (const int64_t[]){2, 3, 5});
	return KILN_OK;
}

int gather_backward_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct gather_problem gather;
	struct scatter_way ways[MAX_WAYS];
	int status = gather_check(problem, &gather, error), count, chosen = 0;

	if (status)
		return status;
	if (gather.form.rows == 0 || gather.few == 0) {
		gather_extents(problem, &gather, 1, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	count = scatter_ways(problem, &gather, limits, ways);
	if (plan_is_generic(choice))
		return gather_backward_plan_generic(problem, &gather, &ways[ways[0].turns > 0], limits, out,
											error);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return plan_refuse(error, KILN_EINVAL,
						   "gather_backward: there is no candidate \"%s\" for rows of %lld "
						   "elements and %lld indices on %s",
						   choice, (long long)gather.few, (long long)gather.many, limits->target);
	status = gather_backward_plan_way(problem, &gather, &ways[chosen], limits, out, error);
	if (!status)
		gather_backward_describe(&gather, &ways[chosen], out);
	return status;
}

int gather_backward_choices(const struct kernel_problem *problem,
							const struct kernel_limits *limits,
							char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct gather_problem gather;
	struct scatter_way ways[MAX_WAYS];
	char error[KERNEL_ERROR_MAX];
	int count;

	if (gather_check(problem, &gather, error))
		return 0;
	count = scatter_ways(problem, &gather, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

int gather_backward_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct gather_problem gather;

	if (problem->tensors[2].dtype == KILN_DTYPE_NONE)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dsrc is missing; how long its rows are does not follow from the "
						   "others",
						   problem->op);
	return gather_check(problem, &gather, error);
}
