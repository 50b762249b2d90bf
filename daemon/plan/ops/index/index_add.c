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
#define CHOICES 5
#define SCAN_PART 8 /* lists are so much of all that is moved, at most */
#define MOST_PLACES 4096
#define MOST_ROOM 512 /* entries of a warp */
#define MOST_GROUP 64 /* slices of a block */

/* What a launch is told of its blocks. */
struct add_blocks {
	uint32_t threads, rows, room, group, vectors;
	uint32_t shared;
	int64_t blocks;
};

/* ---- The request ---- */

/* How many dimensions behind the axis lie without gaps in all operands. */
static int count_columns(const struct index_add *add)
{
	const struct kernel_tensor *many = &add->index.many, *base = &add->index.base;
	int64_t expected = 1;
	int k = many->rank;

	if (add->index.op.each)
		return 0;
	while (k > add->index.axis + 1 &&
		   (many->shape[k - 1] == 1 ||
			(many->stride[k - 1] == expected &&
			 (add->index.op.base < 0 || base->stride[k - 1] == expected)))) {
		expected *= many->shape[k - 1];
		k--;
	}
	return many->rank - k;
}

/* Numbers the slices: all dimensions but the axis and the columns. */
static void number_slices(struct index_add *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *many = &index->many;
	int64_t shape[KILN_MAX_RANK], strides[3][KILN_MAX_RANK];
	const int64_t *stride[] = {strides[0], strides[1], strides[2]};
	int axes = count_columns(out), rank = 0, culprit;

	out->inner = 1;
	for (int k = 0; k < many->rank; k++) {
		if (k == index->axis)
			continue;
		shape[rank] = many->shape[k];
		strides[0][rank] = many->stride[k];
		strides[1][rank] = index->op.base < 0 ? 0 : index->base.stride[k];
		strides[2][rank] = index->idx_stride[k];
		if (k >= many->rank - axes) /* columns of what is left out merge */
			strides[1][rank] = many->stride[k];
		if (k > index->axis && k < many->rank - axes)
			out->inner *= many->shape[k];
		rank++;
	}
	for (int k = rank - axes; k < rank; k++)
		strides[2][k] = 0;
	(void)rows_form(&out->form, rank, shape, 3, stride, rank - axes, axes, &culprit);
	out->many_axis = many->stride[index->axis];
	out->base_axis = index->op.base < 0 ? 0 : index->base.stride[index->axis];
	out->idx_step = index->idx_stride[index->axis];
}

static bool is_aligned(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t bytes)
{
	const struct index_problem *index = &add->index;
	uint32_t element = index->element;
	bool base = index->op.base >= 0;

	return (uint64_t)add->form.columns * element % bytes == 0 &&
		   problem->tensors[index->op.many].alignment >= bytes &&
		   problem->tensors[index->op.few].alignment >= bytes &&
		   (uint64_t)add->many_axis * element % bytes == 0 &&
		   rows_narrow(&add->form, 0, element, bytes) == bytes &&
		   (!base || (problem->tensors[index->op.base].alignment >= bytes &&
					  (uint64_t)add->base_axis * element % bytes == 0 &&
					  rows_narrow(&add->form, 1, element, bytes) == bytes));
}

/* Is it an integer that 64 bits hold? */
static bool is_whole(double value)
{
	return value <= 0x1p53 && value >= -0x1p53 && (double)(int64_t)value == value;
}

static int add_check(const struct kernel_problem *problem, struct index_add *out,
					 char error[KERNEL_ERROR_MAX])
{
	bool scaled = strcmp(problem->op, "index_add") == 0;
	int status;

	memset(out, 0, sizeof(*out));
	status = index_check(problem, &out->index, error);
	if (status)
		return status;
	out->count = out->index.many.shape[out->index.axis];
	out->end = out->index.few.shape[out->index.axis];
	out->alpha = scaled ? plan_real(problem, "alpha") : 1;
	if (!plan_is_float(out->index.dtype) && !is_whole(out->alpha))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: alpha is %g; with elements of %s it must be an integer",
						   problem->op, out->alpha, plan_dtype_name(out->index.dtype));
	if (out->count > UINT32_MAX)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: a list has %lld indices; it may have %u at most", problem->op,
						   (long long)out->count, UINT32_MAX);
	out->any_order = !plan_int(problem, "deterministic");
	number_slices(out);
	out->vector = 16 / out->index.element;
	while (out->vector > 1 && !is_aligned(problem, out, out->vector * out->index.element))
		out->vector /= 2;
	return KILN_OK;
}

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

/* Integers wrap whatever their sign is. */
const char *index_add_element(kiln_dtype dtype)
{
	static const char *const words[] = {"u8", "u16", "u32", "u64"};
	uint32_t bytes = kernel_dtype_bytes(dtype);

	return plan_is_float(dtype) ? plan_dtype_name(dtype)
								: words[bytes == 8   ? 3
										: bytes == 4 ? 2
													 : bytes - 1];
}

void index_add_pass_operands(const struct index_add *add, struct kernel_plan *out)
{
	const struct index_problem *index = &add->index;

	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	if (index->op.base >= 0)
		plan_arg_pointer(out, index->op.base);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_pointer(out, index->op.few);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)add->form.rows);
	plan_arg_scalar(out, 8, (uint64_t)add->count);
	plan_arg_scalar(out, 8, (uint64_t)add->end);
	plan_arg_scalar(out, 8, (uint64_t)index->padding);
}

static void pass_blocks(const struct add_blocks *blocks, struct kernel_plan *out)
{
	plan_arg_scalar(out, 4, blocks->rows);
	plan_arg_scalar(out, 4, blocks->room);
	plan_arg_scalar(out, 4, blocks->group);
}

void index_add_alpha(const struct index_add *add, struct kernel_plan *out)
{
	if (plan_is_float(add->index.dtype))
		plan_arg_real(out, add->index.dtype, add->alpha);
	else
		plan_arg_scalar(out, add->index.element == 8 ? 8 : 4, (uint64_t)(int64_t)add->alpha);
}

void index_add_extents(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t vector, uint32_t load, struct kernel_plan *out)
{
	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i, i == 1 ? load : vector * add->index.element, out);
	if (add->index.op.base >= 0)
		plan_over(problem, add->index.op.few, add->index.op.base, out);
}

void index_add_print_places(const struct index_add *add, struct plan_text *id)
{
	plan_print(id, ", IndexAddPlaces<%lld, %lld, %lld, %lld, %lld", (long long)add->inner,
			   (long long)add->form.columns, (long long)add->many_axis, (long long)add->base_axis,
			   (long long)add->idx_step);
	rows_print_sizes(id, &add->form);
	for (int i = 0; i < 3; i++)
		rows_print_strides(id, &add->form, i);
	plan_print(id, ">, %s", add->end < INT32_MAX ? "u32" : "u64");
}

void index_add_pass_sizes(const struct index_add *add, struct kernel_plan *out)
{
	plan_arg_scalar(out, 8, (uint64_t)add->inner);
	plan_arg_scalar(out, 8, (uint64_t)add->form.columns);
	plan_arg_scalar(out, 8, (uint64_t)add->many_axis);
	plan_arg_scalar(out, 8, (uint64_t)add->base_axis);
	plan_arg_scalar(out, 8, (uint64_t)add->idx_step);
	plan_arg_scalar(out, 4, add->index.index_bytes);
	plan_arg_scalar(out, 4, add->index.bounds);
	plan_arg_scalar(out, 4, add->index.op.each);
}

static int plan_exact(const struct kernel_problem *problem, const struct index_add *add,
					  uint32_t threads, const struct kernel_limits *limits, struct kernel_plan *out,
					  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	struct gather_problem gather = {.bounds = index->bounds};
	struct add_blocks blocks;
	int status = find_blocks(problem, add, add->vector, threads, limits, &blocks, error);

	if (status)
		return status;
	plan_launch(out, limits, (uint64_t)blocks.blocks, blocks.threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add.cuh");
	snprintf(out->choice, sizeof(out->choice), NAME "%u", blocks.threads);
	out->shared_bytes = blocks.shared;
	plan_print(&id, "index_add<%s, %s, %s, %u, %u, %s", index_add_element(index->dtype),
			   plan_dtype_name(index->index), gather_bounds_name(&gather), add->vector,
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

static int plan_generic(const struct kernel_problem *problem, const struct index_add *add,
						const struct kernel_limits *limits, struct kernel_plan *out,
						char error[KERNEL_ERROR_MAX])
{
	const struct index_problem *index = &add->index;
	uint32_t vector = add->vector * index->element == 16 ? add->vector : 1;
	struct add_blocks blocks;
	int status =
		find_blocks(problem, add, vector, find_threads(add, limits), limits, &blocks, error);

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
	bool atomic = index_add_is_atomic(add), first = index_add_atomic_pays(add, limits);
	int count = 0;

	if (first)
		snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ATOMIC);
	if (panels && panel.usual)
		memcpy(names[count++], panel.name, KERNEL_CHOICE_MAX);
	snprintf(names[count++], KERNEL_CHOICE_MAX, NAME "%u", own);
	for (uint32_t threads = THREADS; threads <= AT_ONCE && threads <= limits->max_threads;
		 threads *= 2)
		if (threads != own)
			snprintf(names[count++], KERNEL_CHOICE_MAX, NAME "%u", threads);
	if (panels && !panel.usual)
		memcpy(names[count++], panel.name, KERNEL_CHOICE_MAX);
	if (atomic && !first)
		snprintf(names[count++], KERNEL_CHOICE_MAX, INDEX_ADD_ATOMIC);
	return count;
}

int index_add_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct index_add add;
	struct index_panel panel;
	char names[CHOICES][KERNEL_CHOICE_MAX];
	int status = add_check(problem, &add, error), count, chosen = 0;
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
	if (strncmp(names[chosen], NAME, strlen(NAME)) != 0) {
		(void)index_add_panel(&add.index, limits, &panel);
		return index_add_panel_plan(problem, &add.index, &panel, index_add_element(add.index.dtype),
									limits, out, error);
	}
	threads = (uint32_t)strtoul(names[chosen] + strlen(NAME), NULL, 10);
	return plan_exact(problem, &add, threads, limits, out, error);
}

int index_add_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct index_add add;
	char error[KERNEL_ERROR_MAX];

	return add_check(problem, &add, error) ? 0 : add_names(&add, limits, names);
}

#define TYPES 8
#define ATOMIC_TYPES 6 /* the first of them */

/* A list of indices for rows, or an index for each element; base: x comes first. */
static int make_generic(int index, bool base, bool each, struct kernel_problem *out)
{
	static const kiln_dtype types[TYPES] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64,
											KILN_I32, KILN_I64, KILN_I8,   KILN_I16};
	int chained = each ? TYPES : 2 * TYPES, rank = each ? 1 : 2;
	int of = index < chained ? TYPES : ATOMIC_TYPES, number = index % chained;
	/* One vector, and an element that is none. */
	int64_t columns = number < of ? 1 : 16;
	/* Many for each place are added by atomics. */
	int64_t count = index < chained ? 4 : 12;
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
