/*
 * scan.c: scans along rows: how the rows are spread over threads, and the plan.
 */
#include "scan.h"

#include <stdio.h>
#include <string.h>

#define INPUTS 3 /* a kernel has so many, and two outputs */
#define OUTPUTS 2
#define SHAPES_MOST 32

/* Threads share the work: (size) threads a row and (side) rows a block; or, of strided rows, (size)
 * threads share the columns of each of (side) vectors of rows. */
struct shape {
	uint32_t vector, held, size, side;
	/* 1: the next step is read before this one is computed; 2 and more: so many steps have room in
	 * shared memory. */
	uint32_t early;
	uint32_t chain; /* 1: blocks share the columns of a row */
};

/* ---- Chains of blocks ---- */

#define CHAIN_STATE 512u /* bytes of EARLIER_STATE */
#define CHAIN_TILES 8u   /* SCAN_CHAIN */

/* Shared memory of a ring, or of a chain's tile. */
static uint32_t ring_bytes(const struct shape *shape)
{
	uint32_t steps = shape->early > 1 ? shape->early : shape->chain;

	return shape->size * shape->side * shape->held * steps * 16;
}

struct chain {
	uint64_t strips, tiles, groups; /* of rows; of their columns; of tiles */
};

static struct chain chain_of(const struct scan_form *form, const struct shape *shape)
{
	uint64_t wide = (uint64_t)shape->side * shape->vector, tile = shape->size * shape->held;
	uint64_t tiles = ((uint64_t)form->rows.columns + tile - 1) / tile;

	return (struct chain){((uint64_t)form->rows.rows + wide - 1) / wide, tiles,
						  (tiles + CHAIN_TILES - 1) / CHAIN_TILES};
}

/* Returns scratch memory that has a flag for each tile and each group of tiles, then what these
 * come to, in four bytes a row. */
static struct kernel_scratch chain_scratch(const struct scan_form *form, const struct shape *shape)
{
	struct chain chain = chain_of(form, shape);
	uint64_t flags = chain.strips * (chain.tiles + chain.groups);
	uint64_t counters = CHAIN_STATE + (flags + 63) / 64 * 256;

	return (struct kernel_scratch){.bytes = counters + flags * shape->side * shape->vector * 4,
								   .counters = counters};
}

static bool chain_fits(const struct scan_form *form, const struct shape *shape,
					   const struct kernel_limits *limits)
{
	struct chain chain = chain_of(form, shape);

	return shape->size * shape->side <= limits->max_threads && shape->vector <= shape->size &&
		   shape->side * shape->vector % 32 == 0 && chain.strips <= limits->grid_x / chain.tiles &&
		   chain_scratch(form, shape).bytes <= KERNEL_SCRATCH_MAX &&
		   ring_bytes(shape) + (shape->size + 1) * shape->side * shape->vector * 8 <=
			   limits->shared_optin;
}

/* ---- Rows ---- */

/* Do vectors of so many elements begin where an operand's rows do, or rows side by side? */
static bool scan_fits(const struct kernel_problem *problem, const struct scan_form *form,
					  int operand, uint32_t vector)
{
	const struct rows_form *rows = &form->rows;
	const struct kernel_tensor *tensor = &problem->tensors[operand];
	uint32_t element = kernel_dtype_bytes(tensor->dtype);
	uint32_t bytes = vector * element < 16 ? vector * element : 16, unit = bytes / element;
	int last = rows->rank - 1, along = form->strided ? last : rows->rank;

	if ((form->strided ? rows->stride[operand][last] : rows->step[operand]) != 1 ||
		(form->strided ? rows->size[last] : rows->columns) % vector)
		return false;
	for (int k = 0; k < along; k++)
		if (rows->stride[operand][k] % unit)
			return false;
	return tensor->alignment >= bytes && (!form->strided || rows->step[operand] % unit == 0);
}

static bool scan_all_fit(const struct kernel_problem *problem, const struct scan_form *form,
						 uint32_t vector)
{
	for (int i = 0; i < form->rows.operands; i++)
		if (!scan_fits(problem, form, i, vector))
			return false;
	return true;
}

/* Do rows begin equally far beyond a vector in all operands? */
static bool scan_congruent(const struct kernel_problem *problem, const struct scan_form *form,
						   uint32_t vector)
{
	const struct rows_form *rows = &form->rows;

	for (int i = 0; i < rows->operands; i++) {
		if (rows->step[i] != 1 || problem->tensors[i].alignment < 16)
			return false;
		for (int k = 0; k < rows->rank; k++)
			if ((rows->stride[i][k] - rows->stride[0][k]) % vector)
				return false;
	}
	return true;
}

void scan_find_form(const struct kernel_problem *problem, int inputs, int outputs,
					struct scan_form *form)
{
	const struct kernel_tensor *x = &problem->tensors[0];
	const int64_t *strides[INPUTS + OUTPUTS];
	uint32_t wide;
	int culprit;

	memset(form, 0, sizeof(*form));
	form->inputs = inputs;
	form->outputs = outputs;
	form->dtype = x->dtype;
	form->element = kernel_dtype_bytes(x->dtype);
	for (int i = 0; i < inputs + outputs; i++)
		strides[i] = problem->tensors[i].stride;
	/* One axis always merges with itself. */
	rows_form(&form->rows, x->rank, x->shape, inputs + outputs, strides, plan_axis(problem), 1,
			  &culprit);
	form->strided = form->rows.step[inputs] != 1;
	wide = 16 / form->element;
	form->vector = wide;
	while (form->vector > 1 && !scan_all_fit(problem, form, form->vector))
		form->vector /= 2;
	form->skewed = !form->strided && form->vector < wide &&
				   form->rows.columns >= 4 * (int64_t)wide && scan_congruent(problem, form, wide);
	if (form->skewed)
		form->vector = wide;
}

/* ---- How they are spread ---- */

static void scan_keep(struct shape *shapes, int *count, struct shape shape,
					  const struct kernel_limits *limits)
{
	bool known = shape.size * shape.side > limits->max_threads;

	for (int i = 0; i < *count; i++)
		known = known || memcmp(&shapes[i], &shape, sizeof(shape)) == 0;
	if (!known && *count < SHAPES_MOST)
		shapes[(*count)++] = shape;
}

/* Vectors that a thread may hold at a time. */
static uint32_t held_most(const struct scan_form *form)
{
	return form->heavy && (form->element != 4 || form->outputs == 1) ? 2 : 4;
}

/* Blocks that hold a row, the one with the fewest idle threads first; of those that are about equal
 * the one in which a thread holds the usual number of vectors. */
static void scan_keep_blocks(const struct scan_form *form, int64_t vectors,
							 const struct kernel_limits *limits, struct shape *shapes, int *count)
{
	uint32_t most = held_most(form), threads = form->heavy || form->element == 2 ? 512 : 1024;
	uint32_t usual = vectors > (form->element == 2 ? 512 : 1024) ? 4 : 2;
	struct shape best = {0};
	int64_t least = INT64_MAX;

	if (form->skewed && form->element == 4)
		usual = 1;
	else if (form->heavy) /* where threads meet, each takes a while */
		usual = most;
	for (int turn = 0; turn < 2; turn++) {
		for (uint32_t held = 1; held <= most; held++) {
			int64_t size = plan_divide_up(plan_divide_up(vectors, held), 32) * 32;
			int64_t cost = size * held * (held == usual ? 7 : 8);
			struct shape shape = {form->vector, held, (uint32_t)size, 1, 0, 0};
			if (size > threads || size > limits->max_threads)
				continue;
			if (turn > 0)
				scan_keep(shapes, count, shape, limits);
			else if (cost < least)
				best = shape;
			least = cost < least ? cost : least;
		}
		if (turn == 0 && best.size)
			scan_keep(shapes, count, best, limits);
	}
}

/* Blocks that take several steps for a row. */
static void scan_keep_steps(const struct scan_form *form, const struct kernel_limits *limits,
							struct shape *shapes, int *count)
{
	static const uint32_t steps[][3] = {{512, 4, 1}, {256, 4, 1}, {1024, 1, 1}, {512, 2, 1},
										{128, 4, 1}, {256, 2, 1}, {512, 4, 0},  {256, 4, 0},
										{128, 4, 0}, {256, 2, 0}, {512, 2, 0},  {256, 1, 1}};
	int64_t most = form->rows.columns / form->vector;

	for (int i = form->element == 2; i < 12; i++) {
		uint32_t held = steps[i][1] < held_most(form) ? steps[i][1] : held_most(form);
		if ((!form->heavy || steps[i][0] <= 512) && (!steps[i][2] || most > steps[i][0] * held))
			scan_keep(shapes, count,
					  (struct shape){form->vector, held, steps[i][0], 1, steps[i][2]}, limits);
	}
}

/* Vectors that a lane may hold of a row that a warp takes. */
static uint32_t warp_most(const struct scan_form *form)
{
	return form->skewed && form->element == 4 && !form->heavy ? 10 : 5;
}

/* So many rows a block, of a warp each or a part of one; 0: as many as 128 threads take. */
static struct shape warp_shape(const struct scan_form *form, int64_t vectors, uint32_t side)
{
	struct shape shape = {form->vector, (uint32_t)plan_divide_up(vectors, 32),
						  plan_power_of_two(vectors, 32), side, 0};

	shape.side = side ? side : 128 / shape.size;
	return shape;
}

/* Where there is much to compute for what is read: small blocks that take steps for a row, or warps
 * that have a row each and wait for nobody. */
static bool small_steps(const struct scan_form *form, int64_t vectors, struct shape *out)
{
	bool halves = form->element == 2;
	struct shape shape = {form->vector, 2, 128, 1, 1};

	if (form->costly && form->inputs > 1 && halves) {
		shape.size = vectors < 512 ? 32 : 64;
	} else if (form->costly && form->inputs == 1 && halves && form->rows.columns <= 32768) {
		shape.held = 1;
		shape.size = 32;
	} else if (form->costly && form->inputs == 1 && (halves || vectors < 1024)) {
		shape.size = 64;
	} else if (!form->costly && form->outputs > 1 && halves && vectors >= 512) {
		shape.held = 4;
	} else if (!form->costly) {
		return false;
	}
	if (shape.size == 32)
		shape.side = 4;
	*out = shape;
	return vectors >= 256;
}

/* A short row takes part of a warp, a middling one a warp, one of up to some thousand vectors a
 * block that holds it, and a long one a block in steps. */
static int row_shapes(const struct scan_form *form, const struct kernel_limits *limits,
					  struct shape shapes[SHAPES_MOST])
{
	uint32_t more = form->skewed ? 2 * form->vector - 2 : form->vector - 1;
	int64_t vectors = (form->rows.columns + more) / form->vector;
	uint32_t most = form->heavy || !form->skewed ? 2 : warp_most(form);
	struct shape small;
	int count = 0;

	/* Few warps share a block if each holds much. */
	if (vectors <= 32 * most)
		scan_keep(shapes, &count, warp_shape(form, vectors, vectors > 128 ? 2 : 0), limits);
	if (small_steps(form, vectors, &small))
		scan_keep(shapes, &count, small, limits);
	if (vectors > 32) {
		scan_keep_blocks(form, vectors, limits, shapes, &count);
		scan_keep_steps(form, limits, shapes, &count);
	}
	if (vectors > 64 && vectors <= 32 * warp_most(form))
		for (uint32_t side = 4; side >= 2; side /= 2)
			scan_keep(shapes, &count, warp_shape(form, vectors, side), limits);
	/* Elements that move one by one are aligned anywhere. */
	if (form->skewed)
		for (uint32_t size = 128; size <= 256; size *= 2)
			scan_keep(shapes, &count, (struct shape){1, form->heavy ? 2 : 4, size, 1, 0}, limits);
	/* Blocks of 32 threads run on any device. */
	if (count == 0)
		scan_keep(shapes, &count, (struct shape){form->vector, 2, 32, 1, 0}, limits);
	return count;
}

/* One matrix has so few blocks that each needs more on its way than registers hold. */
static void scan_keep_ring(const struct scan_form *form, const struct kernel_limits *limits,
						   struct shape *shapes, int *count)
{
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	bool few = inner / 8 < limits->multiprocessors, many = inner / 16 >= limits->multiprocessors;
	struct shape shape = {form->vector, few ? 8 : 4, 16, 8, 3};

	if (form->rows.rank > 1 || form->heavy || form->vector * form->element != 16 ||
		form->rows.columns < 1024 || (many && form->element != 2))
		return;
	if (few && form->element == 2) {
		shape.size = 32;
		shape.early = 2;
	} else if (!few && (many || form->element != 2)) {
		shape.held = many ? 4 : 8;
		shape.size = 8;
		shape.side = 16;
	}
	if (ring_bytes(&shape) <= limits->shared_optin)
		scan_keep(shapes, count, shape, limits);
}

/* One matrix of few rows has not a block for each multiprocessor, unless blocks share columns. */
static void scan_keep_chain(const struct scan_form *form, const struct kernel_limits *limits,
							struct shape *shapes, int *count)
{
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	struct shape shapes_of[] = {{form->vector, 16, 32, 8, 0, 1}, {form->vector, 8, 16, 16, 0, 1}};

	if (form->rows.rank > 1 || form->heavy || form->vector * form->element != 16 ||
		form->rows.columns < 1024 || inner / 8 >= limits->multiprocessors / 2)
		return;
	for (int i = 0; i < 2; i++)
		if (chain_fits(form, &shapes_of[i], limits))
			scan_keep(shapes, count, shapes_of[i], limits);
}

/* Few threads with many columns each are best, as long as blocks are enough for the device.  A
 * batch does not count: it may be of any size. */
static int side_shapes(const struct scan_form *form, const struct kernel_limits *limits,
					   struct shape shapes[SHAPES_MOST])
{
	static const uint32_t ways[][4] = {{64, 2, 4, 1}, {16, 16, 4, 1}, {8, 32, 4, 1}, {16, 8, 8, 1},
									   {8, 16, 4, 1}, {64, 2, 8, 0},  {8, 16, 8, 1}, {64, 2, 8, 1},
									   {16, 8, 4, 1}, {32, 4, 8, 0},  {32, 8, 4, 1}, {8, 32, 2, 1},
									   {8, 64, 4, 1}};
	enum { MOST = sizeof(ways) / sizeof(ways[0]) };
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	int64_t enough = form->rows.rank > 1 ? 16 : limits->multiprocessors * 3 / 2;
	size_t first = 0;
	int count = 0;

	if (form->rows.rank == 1)
		first = inner / 16 >= enough ? 1 : 2;
	else if (inner / 64 < enough)
		first = form->heavy && form->inputs > 1                      ? 4
				: form->element == 2 && !form->heavy && inner >= 512 ? 7
				: form->element == 4                                 ? 8
																	 : 3;
	scan_keep_chain(form, limits, shapes, &count);
	scan_keep_ring(form, limits, shapes, &count);
	for (size_t i = 0; i < MOST; i++) {
		const uint32_t *way = ways[i == 0 ? first : i <= first ? i - 1 : i];
		uint32_t held = form->heavy && way[2] > 4 ? 4 : way[2];
		struct shape shape = {form->vector, held, 1, plan_power_of_two(inner, way[0]), way[3]};
		shape.size = plan_power_of_two(plan_divide_up(form->rows.columns, held), way[1]);
		while (shape.size * shape.side < 128)
			shape.side *= 2;
		if (form->rows.columns <= shape.size * held)
			shape.early = 0;
		scan_keep(shapes, &count, shape, limits);
	}
	if (count == 0)
		scan_keep(shapes, &count, (struct shape){form->vector, 4, 1, 32, 0}, limits);
	return count;
}

static int find_shapes(const struct scan_form *form, const struct kernel_limits *limits,
					   struct shape shapes[SHAPES_MOST])
{
	return form->strided ? side_shapes(form, limits, shapes) : row_shapes(form, limits, shapes);
}

#define GENERIC_THREADS 256u /* of a block, where the device has so many */
#define GENERIC_HELD 2u
#define SHORT_COLUMNS 128 /* a warp takes such rows */

static bool generic_short(const struct scan_form *form)
{
	return !form->strided && form->rows.columns <= SHORT_COLUMNS;
}

/* A generic kernel asks its block how many threads it has. */
static struct shape generic_shape(const struct scan_form *form, const struct kernel_limits *limits)
{
	bool wide = form->vector * form->element == 16;
	uint32_t threads = GENERIC_THREADS, vector;
	uint64_t wanted;

	while (threads > limits->max_threads)
		threads /= 2;
	if (form->strided)
		return (struct shape){1, GENERIC_HELD, threads / 32, 32, 0};
	if (generic_short(form))
		return (struct shape){1, GENERIC_HELD, 32, threads / 32, 0};
	/* No more than have a part in a row. */
	vector = wide ? form->vector : 1;
	wanted = (uint64_t)plan_divide_up(form->rows.columns + vector - 1, vector * GENERIC_HELD);
	while (threads > 32 && threads - 32 >= wanted)
		threads -= 32;
	return (struct shape){vector, GENERIC_HELD, threads, 1, 0};
}

static bool is_skewed(const struct scan_form *form, const struct shape *shape)
{
	return form->skewed && shape->vector > 1;
}

static void name_shape(const struct scan_form *form, const struct shape *shape,
					   char name[KERNEL_CHOICE_MAX])
{
	char early[16] = "";

	if (shape->early > 1)
		snprintf(early, sizeof(early), " ring%u", shape->early);
	else if (shape->early)
		snprintf(early, sizeof(early), " early");
	snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%ux%u%s",
			 shape->chain             ? "chain"
			 : form->strided          ? "columns"
			 : is_skewed(form, shape) ? "skewed"
									  : "rows",
			 shape->side, shape->size, shape->held, early);
}

int scan_choices(const struct scan_form *form, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct shape shapes[SHAPES_MOST];
	int count = find_shapes(form, limits, shapes);

	for (int i = 0; i < count; i++)
		name_shape(form, &shapes[i], names[i]);
	return count;
}

/* ---- The plan ---- */

static void scan_print_kernel(const struct scan_form *form, const struct shape *shape, bool generic,
							  struct plan_text *id)
{
	const struct rows_form *rows = &form->rows;
	bool strided = form->strided;

	plan_print(id, "scan_%s%s<%s, %u, %u",
			   shape->chain ? "chain"
			   : strided    ? "columns"
							: "rows",
			   generic ? "_generic" : "", generic ? form->generic_monoid : form->monoid,
			   shape->vector, shape->held);
	if (generic && !strided)
		plan_print(id, ", %u, %s", GENERIC_THREADS, generic_short(form) ? "false" : "true");
	else if (strided)
		plan_print(id, ", %u, %u", shape->side, generic ? GENERIC_THREADS / 32 : shape->size);
	else
		plan_print(id, ", %u, %u, %s", shape->size, shape->side,
				   is_skewed(form, shape) ? "true" : "false");
	if (!generic && strided && !shape->chain)
		plan_print(id, ", %u", shape->early);
	else if (!generic && !strided)
		plan_print(id, ", %s", shape->early ? "true" : "false");
	plan_print(id, ", %s", form->reverse ? "true" : "false");
	if (!generic) {
		plan_print(id, ", %s, %lld", form->exclusive ? "true" : "false", (long long)rows->columns);
		if (strided)
			rows_print_step(id, rows, form->inputs);
		rows_print_sizes(id, rows);
		rows_print_strides(id, rows, form->inputs);
		plan_print(id, ", %s", rows_index_type(rows));
		for (int i = 0; i < form->inputs; i++) {
			plan_print(id, ", ScanIn<%lld", (long long)rows->step[i]);
			rows_print_strides(id, rows, i);
			plan_print(id, ">");
		}
	}
	plan_print(id, ">");
}

static void pass_arguments(const struct scan_form *form, bool generic, struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;

	/* Those that are not there have the places of y, and no address. */
	for (int i = 0; i < INPUTS + OUTPUTS; i++) {
		int operand = i < INPUTS ? i : form->inputs + i - INPUTS;
		bool there = i < INPUTS ? i < form->inputs : i - INPUTS < form->outputs;
		if (there)
			plan_arg_pointer(out, operand);
		else
			plan_arg_scalar(out, 8, 0);
	}
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	if (!generic)
		return;
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	rows_pass_sizes(out, rows, 8);
	for (int i = 0; i <= INPUTS; i++)
		rows_pass_strides(out, rows, i < form->inputs ? i : form->inputs);
	for (int i = 0; i <= INPUTS; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i < form->inputs ? i : form->inputs]);
	plan_arg_scalar(out, 4, form->exclusive);
}

static int plan_shape(const struct kernel_problem *problem, const struct scan_form *form,
					  const struct shape *shape, bool generic, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t each = form->strided ? (uint64_t)shape->side * shape->vector : shape->side;

	plan_generic_launch(out, limits, form->source, ((uint64_t)form->rows.rows + each - 1) / each,
						shape->size * shape->side);
	out->shared_bytes = ring_bytes(shape);
	if (shape->chain)
		out->grid[0] *= (uint32_t)chain_of(form, shape).tiles;
	scan_print_kernel(form, shape, generic, &id);
	pass_arguments(form, generic, out);
	if (shape->chain) {
		out->scratch = chain_scratch(form, shape);
		plan_arg_scratch(out);
	}
	for (int i = 0; i < form->inputs + form->outputs; i++) {
		uint32_t bytes = shape->vector * kernel_dtype_bytes(problem->tensors[i].dtype);
		plan_touch(problem, i, bytes < 16 ? bytes : 16, out);
	}
	if (!generic) {
		name_shape(form, shape, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s",
				 shape->chain    ? "chain"
				 : form->strided ? "columns"
								 : "rows");
	}
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements%s; threads a row: %u; vectors a thread: %u of %u bytes%s",
			 (long long)form->rows.columns, form->strided ? " side by side" : "", shape->size,
			 shape->held, shape->vector * form->element,
			 generic ? "; sizes and strides are arguments" : "");
	return plan_check_name(&id, out, error);
}

int scan_plan(const struct kernel_problem *problem, const struct scan_form *form,
			  const struct kernel_limits *limits, const char *choice, struct kernel_plan *out,
			  char error[KERNEL_ERROR_MAX])
{
	struct shape shapes[SHAPES_MOST];
	int count;

	if (plan_is_generic(choice)) {
		shapes[0] = generic_shape(form, limits);
		return plan_shape(problem, form, &shapes[0], true, limits, out, error);
	}
	count = find_shapes(form, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_shape(form, &shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_shape(problem, form, &shapes[i], false, limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form->rows, limits, error);
}

void scan_made(int layout, int operands, kiln_dtype dtype, struct kernel_problem *out)
{
	static const int64_t shapes[SCAN_LAYOUTS][3] = {{2, 3}, {2, 1024}, {2, 1024}, {2, 3, 5}};

	for (int i = 0; i < operands; i++)
		plan_made_tensor(out, i, dtype, layout == 3 ? 3 : 2, shapes[layout]);
	if (layout == 3)
		plan_made_int(out, "axis", 1);
	/* Elements apart from one another move one by one. */
	if (layout == 2)
		for (int k = 0; k < 2; k++)
			out->tensors[0].stride[k] *= 2;
}
