/*
 * index_add.c: index_add, scatter_add and the gradients of what is selected by indices: how many
 * places of the indexed dimension a block sums up, for which part of the columns.
 *
 * Each block looks at the whole list of indices, so blocks are as few as keep the device busy: as
 * many as run at once, and of more threads where the lists would be a good part of all that is
 * read.  No kernel is told the sizes that follow from this by its name.
 */
#include "index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 256u  /* at least */
#define AT_ONCE 512u  /* threads of a multiprocessor, by the registers that they need */
#define PART 256u     /* vectors of a row that a block sums up, at most */
#define NAME "chain " /* of candidates, before their threads */
#define CHOICES (5 + INDEX_ADD_LINKS + INDEX_ADD_SPLITS + INDEX_ADD_ROWS)
#define SCAN_PART 8 /* lists are so much of all that is moved, at most */
#define MOST_PLACES 4096
#define MOST_ROOM 512 /* entries of a warp */
#define MOST_GROUP 64 /* slices of a block */

/* A launch is told this of its blocks. */
struct add_blocks {
	uint32_t threads, rows, room, group, vectors;
	uint32_t shared;
	int64_t blocks;
};

/* ---- Blocks ---- */

static int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static uint32_t add_shared(const struct add_blocks *blocks)
{
	uint32_t warps = blocks->threads / 32;

	return (warps * blocks->room * 8 + warps * 4 + blocks->rows * 2 + 15) / 16 * 16;
}

/* Threads of a block.  A multiprocessor's share of the list is for each of its blocks. */
static uint32_t find_threads(const struct index_add *add, const struct kernel_limits *limits)
{
	double list = (double)add->count * add->index.index_bytes * limits->multiprocessors;
	double moved = (double)(add->count + 2 * add->end) * (double)add->form.rows *
				   (double)add->form.columns * add->index.element;
	uint32_t threads = THREADS;

	while (!add->index.op.each && threads < AT_ONCE && 2 * threads <= limits->max_threads &&
		   list * (AT_ONCE / threads) * SCAN_PART > moved)
		threads *= 2;
	return threads < limits->max_threads ? threads : limits->max_threads / 32 * 32;
}

/* vector: elements. */
static int find_blocks(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t vector, uint32_t threads, const struct kernel_limits *limits,
					   struct add_blocks *out, char error[KERNEL_ERROR_MAX])
{
	int64_t vectors = add->form.columns / vector, parts = plan_divide_up(vectors, PART);
	int64_t wanted = (int64_t)limits->multiprocessors * (AT_ONCE / threads), most, work, chunks;
	int64_t groups, entries, lanes; /* parts of slices */
	int64_t warps;

	out->threads = threads;
	warps = out->threads / 32;
	out->vectors = (uint32_t)least_of(vectors, PART);
	if (__builtin_mul_overflow(parts, add->form.rows, &lanes) ||
		__builtin_mul_overflow(add->end, lanes, &work))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many sums", problem->op);
	most = least_of(add->end, MOST_PLACES);
	/* Blocks that are a few more than run at once would take twice the time. */
	chunks = lanes <= wanted ? wanted / lanes : 4 * wanted / lanes;
	out->rows = (uint32_t)least_of(most, plan_divide_up(add->end, chunks > 0 ? chunks : 1));
	/* Twice as many entries as there are if all places are named equally often. */
	entries = (int64_t)((double)add->count / (double)add->end * out->rows / (double)warps * 2) + 64;
	entries = least_of(entries, plan_divide_up(add->count, warps * 32) * 32);
	entries = entries < 32 ? 32 : plan_divide_up(entries, 32) * 32;
	out->room = (uint32_t)least_of(entries, MOST_ROOM);
	while (add_shared(out) > limits->shared_optin && (out->room > 32 || out->rows > 1))
		if (out->room > 32)
			out->room = out->room / 64 * 32;
		else
			out->rows /= 2;
	chunks = plan_divide_up(add->end, out->rows);
	groups = plan_divide_up(add->form.rows * chunks * parts, 2 * wanted);
	out->group =
		add->index.op.each || out->rows < most ? 1 : (uint32_t)least_of(groups, MOST_GROUP);
	out->shared = add_shared(out);
	if (__builtin_mul_overflow(plan_divide_up(add->form.rows, out->group) * chunks, parts,
							   &out->blocks))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many sums", problem->op);
	return KILN_OK;
}

/* ---- The plan ---- */

static void pass_blocks(const struct add_blocks *blocks, struct kernel_plan *out)
{
	plan_arg_scalar(out, 4, blocks->rows);
	plan_arg_scalar(out, 4, blocks->room);
	plan_arg_scalar(out, 4, blocks->group);
}

static int plan_exact(const struct kernel_problem *problem, const struct index_add *add,
					  uint32_t threads, const struct kernel_limits *limits, struct kernel_plan *out,
					  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	struct add_blocks blocks;
	int status = find_blocks(problem, add, add->vector, threads, limits, &blocks, error);

	if (status)
		return status;
	plan_launch(out, limits, (uint64_t)blocks.blocks, blocks.threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add.cuh");
	snprintf(out->choice, sizeof(out->choice), NAME "%u", blocks.threads);
	out->shared_bytes = blocks.shared;
	plan_print(&id, "index_add<%s, %s, %s, %u, %u, %s", index_add_element(index->dtype),
			   plan_dtype_name(index->index), plan_bounds_name(index->bounds), add->vector,
			   blocks.vectors, index->op.each ? "true" : "false");
	index_add_print_places(add, &id);
	plan_print(&id, ">");
	index_add_pass_operands(add, out);
	pass_blocks(&blocks, out);
	index_add_alpha(add, out);
	index_add_extents(problem, add, add->vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "a block chains the indices of %u of %lld places, for %u vector%s of %u elements",
			 blocks.rows, (long long)add->end, blocks.vectors, blocks.vectors == 1 ? "" : "s",
			 add->vector);
	return plan_check_name(&id, out, error);
}

/* ---- Lists of their own (index_add_lists_generic.cuh) ---- */

#define LISTS_THREADS 512u
#define LISTS_FEW 2048     /* indices and places that keep a block busy */
#define LISTS_MOST 65534   /* indices: links have 16 bits */
#define LISTS_LANES 6u     /* 2^LISTS_LANES slices of a block, at most */
#define LISTS_SECTOR 32u   /* bytes that memory brings at once */
#define LISTS_SMALL 65536u /* bytes of a block of 256 threads */

static uint64_t lists_bytes(const struct index_add *add, uint32_t lanes)
{
	uint64_t heads = ((uint64_t)add->end << lanes) * 4, links = (uint64_t)add->count << lanes;

	return plan_divide_up(heads, 16) * 16 + plan_divide_up(links * add->index.element, 16) * 16 +
		   links * 2;
}

/* The slices of a block, as a power of two; below 0: even one takes more than there is.  Elements
 * that do not lie side by side along their list do so in several slices. */
static int find_lists(const struct index_add *add, const struct kernel_limits *limits)
{
	uint32_t lanes = 0;

	if (!add->index.op.each || add->form.columns != 1 || add->count > LISTS_MOST ||
		add->end > LISTS_MOST || lists_bytes(add, 0) > limits->shared_optin)
		return -1;
	while (lanes < LISTS_LANES &&
		   (add->many_axis == 1 ? (uint64_t)(add->count + add->end) << lanes < LISTS_FEW
								: add->index.element << lanes < LISTS_SECTOR) &&
		   lists_bytes(add, lanes + 1) <= limits->shared_optin / 2)
		lanes++;
	return (int)lanes;
}

static void plan_lists(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t lanes, const struct kernel_limits *limits, struct kernel_plan *out)
{
	uint64_t bytes = lists_bytes(add, lanes);
	uint32_t threads = bytes > LISTS_SMALL ? LISTS_THREADS : LISTS_THREADS / 2;

	while (threads > limits->max_threads)
		threads /= 2;
	while (lanes > 0 && 1u << lanes > threads)
		lanes--;
	plan_generic_launch(out, limits, "ops/index_add_lists_generic.cuh",
						((uint64_t)add->form.rows + (1u << lanes) - 1) >> lanes, threads);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_add_lists_generic<%s>",
			 index_add_element(add->index.dtype));
	out->shared_bytes = (uint32_t)bytes;
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, lanes);
	index_add_pass_sizes(add, out);
	index_add_alpha(add, out);
	rows_pass_sizes(out, &add->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &add->form, i);
	index_add_extents(problem, add, 1, add->index.index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "a block links the indices of %u lists; sizes and strides are arguments", 1u << lanes);
}

static int plan_generic(const struct kernel_problem *problem, const struct index_add *add,
						const struct kernel_limits *limits, struct kernel_plan *out,
						char error[KERNEL_ERROR_MAX])
{
	int lists = find_lists(add, limits);
	const struct index_problem *index = &add->index;
	uint32_t vector = add->vector * index->element == 16 ? add->vector : 1;
	struct add_blocks blocks;
	int status;

	if (lists >= 0) {
		plan_lists(problem, add, (uint32_t)lists, limits, out);
		return KILN_OK;
	}
	status = find_blocks(problem, add, vector, find_threads(add, limits), limits, &blocks, error);
	if (status)
		return status;
	plan_generic_launch(out, limits, "ops/index_add.cuh", (uint64_t)blocks.blocks, blocks.threads);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_add_generic<%s, %u>",
			 index_add_element(index->dtype), vector);
	out->shared_bytes = blocks.shared;
	index_add_pass_operands(add, out);
	pass_blocks(&blocks, out);
	plan_arg_scalar(out, 4, blocks.vectors);
	index_add_pass_sizes(add, out);
	index_add_alpha(add, out);
	rows_pass_sizes(out, &add->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &add->form, i);
	index_add_extents(problem, add, vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "a block chains the indices of %u of %lld places; sizes and strides are arguments",
			 blocks.rows, (long long)add->end);
	return KILN_OK;
}

/* The names of the candidates, the planner's own first; how many. */
static int add_names(const struct index_add *add, const struct kernel_limits *limits,
					 char names[CHOICES][KERNEL_CHOICE_MAX])
{
	uint32_t own = find_threads(add, limits);
	struct index_panel panel;
	bool panels = index_add_panel(&add->index, limits, &panel);
	bool atomic = index_add_is_atomic(add, limits), first = index_add_atomic_pays(add, limits);
	char link_names[INDEX_ADD_LINKS][KERNEL_CHOICE_MAX];
	int links = index_add_links(add, limits, link_names), count = 0;
	bool pays = links > 0 && index_add_link_pays(add, limits);
	bool split = index_add_split_pays(add);

	if (split)
		count = index_add_splits(add, limits, names);
	/* Links move each element once, at the speed of memory; additions in memory, at half of it. */
	if (first && !pays)
		snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ATOMIC);
	if (panels && panel.usual)
		memcpy(names[count++], panel.name, KERNEL_CHOICE_MAX);
	count += index_add_rows(add, limits, names + count);
	for (int i = 0; pays && i < links; i++)
		memcpy(names[count++], link_names[i], KERNEL_CHOICE_MAX);
	snprintf(names[count++], KERNEL_CHOICE_MAX, NAME "%u", own);
	for (uint32_t threads = THREADS; threads <= AT_ONCE && threads <= limits->max_threads;
		 threads *= 2)
		if (threads != own)
			snprintf(names[count++], KERNEL_CHOICE_MAX, NAME "%u", threads);
	if (panels && !panel.usual)
		memcpy(names[count++], panel.name, KERNEL_CHOICE_MAX);
	for (int i = 0; !pays && i < links; i++)
		memcpy(names[count++], link_names[i], KERNEL_CHOICE_MAX);
	if (!split)
		count += index_add_splits(add, limits, names + count);
	if (atomic && (!first || pays))
		snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ATOMIC);
	return count;
}

int index_add_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct index_add add;
	struct index_panel panel;
	char names[CHOICES][KERNEL_CHOICE_MAX];
	int status = index_add_check(problem, &add, error), count, chosen = 0;
	uint32_t threads;

	if (status)
		return status;
	if (add.form.rows == 0 || add.form.columns == 0 || add.end == 0) {
		index_add_extents(problem, &add, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		return (index_add_atomic_pays(&add, limits) ? index_add_atomic_generic : plan_generic)(
			problem, &add, limits, out, error);
	count = add_names(&add, limits, names);
	while (choice && chosen < count && strcmp(choice, names[chosen]) != 0)
		chosen++;
	if (chosen == count)
		return index_no_candidate(problem, choice, limits, error);
	if (strcmp(names[chosen], INDEX_ADD_ATOMIC) == 0)
		return index_add_atomic_plan(problem, &add, limits, out, error);
	if (strncmp(names[chosen], INDEX_ADD_SPLIT, strlen(INDEX_ADD_SPLIT)) == 0)
		return index_add_split_plan(problem, &add, names[chosen], limits, out, error);
	if (strncmp(names[chosen], INDEX_ADD_LINK, strlen(INDEX_ADD_LINK)) == 0 ||
		strncmp(names[chosen], INDEX_ADD_BUCKET, strlen(INDEX_ADD_BUCKET)) == 0)
		return index_add_link_plan(problem, &add, names[chosen], limits, out, error);
	threads = (uint32_t)strtoul(strchr(names[chosen], ' '), NULL, 10);
	if (strncmp(names[chosen], INDEX_ADD_ROW, strlen(INDEX_ADD_ROW)) == 0)
		return index_add_row_plan(problem, &add, threads, limits, out, error);
	if (strncmp(names[chosen], NAME, strlen(NAME)) != 0) {
		(void)index_add_panel(&add.index, limits, &panel);
		return index_add_panel_plan(problem, &add.index, &panel, index_add_element(add.index.dtype),
									limits, out, error);
	}
	return plan_exact(problem, &add, threads, limits, out, error);
}

int index_add_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct index_add add;
	char error[KERNEL_ERROR_MAX];

	return index_add_check(problem, &add, error) ? 0 : add_names(&add, limits, names);
}

#define TYPES 8
#define ATOMIC_TYPES 6 /* the first of them */

/* A list of indices for rows, or an index for each element; base: x comes first. */
static int make_generic(int index, bool base, bool each, struct kernel_problem *out)
{
	static const kiln_dtype types[TYPES] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64,
											KILN_I32, KILN_I64, KILN_I8,   KILN_I16};
	int chained = 2 * TYPES, rank = each ? 1 : 2;
	int of = index < chained ? TYPES : ATOMIC_TYPES, number = index % chained;
	/* One vector, and an element that is none. */
	int64_t columns = number < of ? 1 : 16;
	/* Many for each place are added by atomics. */
	int64_t count = index >= chained ? 12 : each && number >= of ? LISTS_MOST + 1 : 4;
	kiln_dtype type = types[number % of];

	if (index >= chained + (each ? ATOMIC_TYPES : 2 * ATOMIC_TYPES))
		return KILN_ENOENT;
	plan_made_tensor(out, base ? 2 : 0, type, rank, (const int64_t[]){count, columns});
	plan_made_tensor(out, 1, KILN_I32, 1, (const int64_t[]){count});
	plan_made_tensor(out, base ? 3 : 2, type, rank, (const int64_t[]){3, columns});
	if (base)
		plan_made_tensor(out, 0, type, rank, (const int64_t[]){3, columns});
	if (index >= chained)
		plan_made_int(out, "deterministic", 0);
	return KILN_OK;
}

int index_add_generics(int index, struct kernel_problem *out)
{
	return make_generic(index, true, false, out);
}

int index_select_backward_generics(int index, struct kernel_problem *out)
{
	return make_generic(index, false, false, out);
}

int scatter_add_generics(int index, struct kernel_problem *out)
{
	return make_generic(index, true, true, out);
}
