/*
 * scan_shape.c: how the rows of a scan are spread over threads.
 */
#include "scan_shape.h"

#include <string.h>

/* ---- Chains of blocks ---- */

#define CHAIN_STATE 512u /* bytes of EARLIER_STATE */
#define CHAIN_TILES 8u   /* SCAN_CHAIN */

uint32_t scan_ring_bytes(const struct scan_shape *shape)
{
	uint32_t steps = shape->early > 1 ? shape->early : shape->chain;

	return shape->size * shape->side * shape->held * steps * 16;
}

struct chain {
	uint64_t strips, tiles, groups; /* of rows; of their columns; of tiles */
};

static struct chain chain_of(const struct scan_form *form, const struct scan_shape *shape)
{
	uint64_t wide = (uint64_t)shape->side * shape->vector, tile = shape->size * shape->held;
	uint64_t tiles = ((uint64_t)form->rows.columns + tile - 1) / tile;

	return (struct chain){((uint64_t)form->rows.rows + wide - 1) / wide, tiles,
						  (tiles + CHAIN_TILES - 1) / CHAIN_TILES};
}

struct kernel_scratch scan_chain_scratch(const struct scan_form *form,
										 const struct scan_shape *shape)
{
	struct chain chain = chain_of(form, shape);
	uint64_t flags = chain.strips * (chain.tiles + chain.groups);
	uint64_t counters = CHAIN_STATE + (flags + 63) / 64 * 256;

	return (struct kernel_scratch){.bytes = counters + flags * shape->side * shape->vector * 4,
								   .counters = counters};
}

static bool chain_fits(const struct scan_form *form, const struct scan_shape *shape,
					   const struct kernel_limits *limits)
{
	struct chain chain = chain_of(form, shape);

	return shape->size * shape->side <= limits->max_threads && shape->vector <= shape->size &&
		   shape->side * shape->vector % 32 == 0 && chain.strips <= limits->grid_x / chain.tiles &&
		   scan_chain_scratch(form, shape).bytes <= KERNEL_SCRATCH_MAX &&
		   scan_ring_bytes(shape) + (shape->size + 1) * shape->side * shape->vector * 8 <=
			   limits->shared_optin;
}

uint64_t scan_chain_tiles(const struct scan_form *form, const struct scan_shape *shape)
{
	return chain_of(form, shape).tiles;
}

/* ---- Rows ---- */

static void keep_shape(struct scan_shape *shapes, int *count, struct scan_shape shape,
					   const struct kernel_limits *limits)
{
	bool known = shape.size * shape.side > limits->max_threads;

	for (int i = 0; i < *count; i++)
		known = known || memcmp(&shapes[i], &shape, sizeof(shape)) == 0;
	if (!known && *count < SCAN_SHAPES_MOST)
		shapes[(*count)++] = shape;
}

/* Vectors that a thread may hold at a time. */
static uint32_t held_most(const struct scan_form *form)
{
	return form->heavy && (form->element != 4 || form->outputs == 1) ? 2 : 4;
}

/* Blocks that hold a row, the one with the fewest idle threads first; of those that are about equal
 * the one in which a thread holds the usual number of vectors. */
static void keep_blocks(const struct scan_form *form, int64_t vectors,
						const struct kernel_limits *limits, struct scan_shape *shapes, int *count)
{
	uint32_t most = held_most(form), threads = form->heavy || form->element == 2 ? 512 : 1024;
	uint32_t usual = vectors > (form->element == 2 ? 512 : 1024) ? 4 : 2;
	struct scan_shape best = {0};
	int64_t least = INT64_MAX;

	if (form->skewed && form->element == 4)
		usual = 1;
	else if (form->heavy) /* where threads meet, each takes a while */
		usual = most;
	for (int turn = 0; turn < 2; turn++) {
		for (uint32_t held = 1; held <= most; held++) {
			int64_t size = plan_divide_up(plan_divide_up(vectors, held), 32) * 32;
			int64_t cost = size * held * (held == usual ? 7 : 8);
			struct scan_shape shape = {form->vector, held, (uint32_t)size, 1, 0, 0};
			if (size > threads || size > limits->max_threads)
				continue;
			if (turn > 0)
				keep_shape(shapes, count, shape, limits);
			else if (cost < least)
				best = shape;
			least = cost < least ? cost : least;
		}
		if (turn == 0 && best.size)
			keep_shape(shapes, count, best, limits);
	}
}

/* Blocks that take several steps for a row. */
static void keep_steps(const struct scan_form *form, const struct kernel_limits *limits,
					   struct scan_shape *shapes, int *count)
{
	static const uint32_t steps[][3] = {{512, 4, 1}, {256, 4, 1}, {1024, 1, 1}, {512, 2, 1},
										{128, 4, 1}, {256, 2, 1}, {512, 4, 0},  {256, 4, 0},
										{128, 4, 0}, {256, 2, 0}, {512, 2, 0},  {256, 1, 1}};
	int64_t most = form->rows.columns / form->vector;

	for (int i = form->element == 2; i < 12; i++) {
		uint32_t held = steps[i][1] < held_most(form) ? steps[i][1] : held_most(form);
		if ((!form->heavy || steps[i][0] <= 512) && (!steps[i][2] || most > steps[i][0] * held))
			keep_shape(shapes, count,
					   (struct scan_shape){form->vector, held, steps[i][0], 1, steps[i][2]},
					   limits);
	}
}

/* Vectors that a lane may hold of a row that a warp takes. */
static uint32_t warp_most(const struct scan_form *form)
{
	return form->skewed && form->element == 4 && !form->heavy ? 10 : 5;
}

/* So many rows a block, of a warp each or a part of one; 0: as many as 128 threads take. */
static struct scan_shape warp_shape(const struct scan_form *form, int64_t vectors, uint32_t side)
{
	struct scan_shape shape = {form->vector, (uint32_t)plan_divide_up(vectors, 32),
							   plan_power_of_two(vectors, 32), side, 0};

	shape.side = side ? side : 128 / shape.size;
	return shape;
}

/* Takes small blocks that take steps for a row, or warps that have a row each and wait for nobody,
 * if there is much to compute for what is read. */
static bool small_steps(const struct scan_form *form, int64_t vectors, struct scan_shape *out)
{
	bool halves = form->element == 2;
	struct scan_shape shape = {form->vector, 2, 128, 1, 1};

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
					  struct scan_shape shapes[SCAN_SHAPES_MOST])
{
	uint32_t more = form->skewed ? 2 * form->vector - 2 : form->vector - 1;
	int64_t vectors = (form->rows.columns + more) / form->vector;
	uint32_t most = form->heavy || !form->skewed ? 2 : warp_most(form);
	struct scan_shape small;
	int count = 0;

	/* Few warps share a block if each holds much. */
	if (vectors <= 32 * most)
		keep_shape(shapes, &count, warp_shape(form, vectors, vectors > 128 ? 2 : 0), limits);
	if (small_steps(form, vectors, &small))
		keep_shape(shapes, &count, small, limits);
	if (vectors > 32) {
		keep_blocks(form, vectors, limits, shapes, &count);
		keep_steps(form, limits, shapes, &count);
	}
	if (vectors > 64 && vectors <= 32 * warp_most(form))
		for (uint32_t side = 4; side >= 2; side /= 2)
			keep_shape(shapes, &count, warp_shape(form, vectors, side), limits);
	/* Elements that move one by one are aligned anywhere. */
	if (form->skewed)
		for (uint32_t size = 128; size <= 256; size *= 2)
			keep_shape(shapes, &count, (struct scan_shape){1, form->heavy ? 2 : 4, size, 1, 0},
					   limits);
	/* Blocks of 32 threads run on any device. */
	if (count == 0)
		keep_shape(shapes, &count, (struct scan_shape){form->vector, 2, 32, 1, 0}, limits);
	return count;
}

/* One matrix has so few blocks that each needs more on its way than registers hold. */
static void keep_ring(const struct scan_form *form, const struct kernel_limits *limits,
					  struct scan_shape *shapes, int *count)
{
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	bool few = inner / 8 < limits->multiprocessors, many = inner / 16 >= limits->multiprocessors;
	struct scan_shape shape = {form->vector, few ? 8 : 4, 16, 8, 3};

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
	if (scan_ring_bytes(&shape) <= limits->shared_optin)
		keep_shape(shapes, count, shape, limits);
}

/* One matrix of few rows has not a block for each multiprocessor, unless blocks share columns. */
static void keep_chain(const struct scan_form *form, const struct kernel_limits *limits,
					   struct scan_shape *shapes, int *count)
{
	int64_t inner = form->rows.size[form->rows.rank - 1] / form->vector;
	struct scan_shape shapes_of[] = {{form->vector, 16, 32, 8, 0, 1},
									 {form->vector, 8, 16, 16, 0, 1}};

	if (form->rows.rank > 1 || form->heavy || form->vector * form->element != 16 ||
		form->rows.columns < 1024 || inner / 8 >= limits->multiprocessors / 2)
		return;
	for (int i = 0; i < 2; i++)
		if (chain_fits(form, &shapes_of[i], limits))
			keep_shape(shapes, count, shapes_of[i], limits);
}

/* Few threads with many columns each are best, as long as blocks are enough for the device.  A
 * batch does not count: it may be of any size. */
static int side_shapes(const struct scan_form *form, const struct kernel_limits *limits,
					   struct scan_shape shapes[SCAN_SHAPES_MOST])
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
	keep_chain(form, limits, shapes, &count);
	keep_ring(form, limits, shapes, &count);
	for (size_t i = 0; i < MOST; i++) {
		const uint32_t *way = ways[i == 0 ? first : i <= first ? i - 1 : i];
		uint32_t held = form->heavy && way[2] > 4 ? 4 : way[2];
		struct scan_shape shape = {form->vector, held, 1, plan_power_of_two(inner, way[0]), way[3]};
		shape.size = plan_power_of_two(plan_divide_up(form->rows.columns, held), way[1]);
		while (shape.size * shape.side < 128)
			shape.side *= 2;
		if (form->rows.columns <= shape.size * held)
			shape.early = 0;
		keep_shape(shapes, &count, shape, limits);
	}
	if (count == 0)
		keep_shape(shapes, &count, (struct scan_shape){form->vector, 4, 1, 32, 0}, limits);
	return count;
}

int scan_shapes(const struct scan_form *form, const struct kernel_limits *limits,
				struct scan_shape shapes[SCAN_SHAPES_MOST])
{
	return form->strided ? side_shapes(form, limits, shapes) : row_shapes(form, limits, shapes);
}

/* ---- Generic kernels ---- */

#define GENERIC_HELD 2u
#define SHORT_COLUMNS 128 /* a warp takes such rows */

bool scan_generic_short(const struct scan_form *form)
{
	return !form->strided && form->rows.columns <= SHORT_COLUMNS;
}

struct scan_shape scan_generic_shape(const struct scan_form *form,
									 const struct kernel_limits *limits)
{
	bool wide = form->vector * form->element == 16;
	uint32_t threads = SCAN_GENERIC_THREADS, vector;
	uint64_t wanted;

	while (threads > limits->max_threads)
		threads /= 2;
	if (form->strided)
		return (struct scan_shape){1, GENERIC_HELD, threads / 32, 32, 0};
	if (scan_generic_short(form))
		return (struct scan_shape){1, GENERIC_HELD, 32, threads / 32, 0};
	/* No more than have a part in a row. */
	vector = wide ? form->vector : 1;
	wanted = (uint64_t)plan_divide_up(form->rows.columns + vector - 1, vector * GENERIC_HELD);
	while (threads > 32 && threads - 32 >= wanted)
		threads -= 32;
	return (struct scan_shape){vector, GENERIC_HELD, threads, 1, 0};
}
