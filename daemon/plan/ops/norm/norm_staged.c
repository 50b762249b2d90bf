/*
 * norm_staged.c: norms of short rows that lie one behind the other, or nearly so, and begin between
 * two aligned vectors or leave many lanes idle: a block takes some of them by way of shared memory
 * as one piece (kernel_src/ops/norm_staged.cuh).
 */
#include "norm.h"

#include <string.h>

#define STAGED_THREADS 128u
/* Columns of a row that a lane has: of longer rows twice as many lanes of a warp share each; and
 * the most that a lane has at all. */
#define STAGED_LANE 11
#define STAGED_MOST 18
/* As many where y has a place of its own, in blocks of two warps. */
#define STAGED_APART 22
/* Bytes of a piece, of all operands: as many as are enough, and the most. */
#define STAGED_BYTES 6400
#define STAGED_ROOM 12800
/* Pieces of rows of whole vectors: threads and bytes, at least; bytes of a row, at most. */
#define WHOLE_THREADS 64u
#define WHOLE_BYTES 3500
#define WHOLE_ROW (1 << 13)
/* The gap between rows of x comes with them, so it is at most this part of a row. */
#define STAGED_GAP 8

/* Returns the elements from one row of x to the next, or 0 if rows do not lie as they must. */
static int64_t pitch_of(const struct norm_problem *norm)
{
	const struct rows_form *form = &norm->form;
	int64_t pitch = form->rank > 0 ? form->stride[0][0] : form->columns;

	if (norm->pieces || form->rank > 1 || norm->need.alignment < 16 || pitch < form->columns ||
		pitch > form->columns + form->columns / STAGED_GAP)
		return 0;
	for (int i = 0; i < form->operands; i++)
		if (form->step[i] != 1 || (i > 0 && form->rank > 0 && form->stride[i][0] != form->columns))
			return 0;
	return pitch;
}

/* Returns the bytes of a row of all operands in a piece. */
static uint32_t row_bytes(const struct norm_problem *norm, const struct norm_way *way)
{
	uint32_t columns = (uint32_t)norm->form.columns, row = way->pitch;

	row += norm->residual >= 0 ? columns : 0;
	row += way->pitch != columns ? columns : 0;
	return row * norm_element(norm);
}

/* Each operand begins with a line. */
uint32_t norm_staged_bytes(const struct norm_problem *norm, const struct norm_way *way)
{
	return way->piece * row_bytes(norm, way) + 2 * 128;
}

/*
 * Returns the rows of a piece of about so many bytes: whole vectors, and equally many rows for each
 * part of a warp.  Of halves each part has two rows at least if there is room, since gamma and beta
 * come once for all of its rows.
 */
static uint32_t rows_of(const struct norm_problem *norm, const struct norm_way *way, uint32_t bytes)
{
	uint32_t columns = (uint32_t)norm->form.columns, element = norm_element(norm);
	uint32_t row = row_bytes(norm, way), unit = way->shape.rows, rows, least;

	while (unit * columns * element % 16 || unit * way->pitch * element % 16)
		unit *= 2;
	rows = bytes / row / unit * unit;
	least =
		element == 2 && unit == way->shape.rows && 2 * unit * row <= STAGED_ROOM ? 2 * unit : unit;
	return rows < least ? least : rows;
}

/* Adds the way in which `size` lanes share a row. */
static void offer_lanes(struct norm_ways *ways, uint32_t pitch, uint32_t size, uint32_t bytes)
{
	const struct norm_problem *norm = ways->norm;
	uint32_t columns = (uint32_t)norm->form.columns, numbers;
	bool long_row = columns > 32 * STAGED_MOST;
	struct norm_way way = {.together = 1, .pitch = pitch};
	struct rows_shape *shape = &way.shape;

	*shape = (struct rows_shape){.vector = 1,
								 .size = size,
								 .rows = STAGED_THREADS / (long_row ? 2 * size : size),
								 .cluster = 1,
								 .staged = true};
	if (norm_element(norm) == 2 && columns % 2 == 0 && pitch % 2 == 0)
		shape->vector = 2;
	shape->held = (uint32_t)plan_divide_up(columns, size * shape->vector);
	numbers = shape->held * shape->vector;
	if (numbers > (long_row ? STAGED_APART : STAGED_MOST) || size > columns ||
		STAGED_THREADS > ways->limits->max_threads)
		return;
	way.piece = rows_of(norm, &way, bytes);
	/* The compiler finds registers for so many blocks on sm_90, but would spill some on others. */
	way.blocks = (numbers > 16   ? 7
				  : numbers > 12 ? 8
				  : numbers > 10 ? 9
								 : 10) -
				 (norm->residual >= 0);
	if (strcmp(ways->limits->target, "sm_90") != 0 || long_row)
		way.blocks = 1;
	if (norm_staged_bytes(norm, &way) <= ways->limits->shared_optin)
		norm_keep(ways, &way);
}

/* The threads that share a row of whole vectors, where pieces of such rows did better than rows in
 * registers when they were timed: few of them with much each.  0: they did not. */
static uint32_t whole_threads(const struct norm_problem *norm, uint32_t vectors)
{
	static const struct whole {
		uint32_t least, most, threads;
	} halves[] = {{8, 12, 4},     {13, 32, 8},    {33, 64, 16},   {65, 112, 32},
				  {113, 128, 64}, {129, 160, 32}, {241, 256, 64}, {345, 384, 128}},
	  words[] = {{17, 32, 16}, {33, 96, 32}};
	bool half = norm_element(norm) == 2;
	const struct whole *known = half ? halves : words;
	size_t count = half ? sizeof(halves) / sizeof(halves[0]) : sizeof(words) / sizeof(words[0]);

	for (size_t i = 0; i < count; i++)
		if (vectors >= known[i].least && vectors <= known[i].most)
			return known[i].threads;
	return 0;
}

/*
 * Adds the way of layer_norm for rows of whole vectors that lie one behind the other.  Gamma and
 * beta have come when the piece has; threads that hold a row have no registers for them, and wait
 * once more.
 */
static void offer_whole(struct norm_ways *ways)
{
	const struct norm_problem *norm = ways->norm;
	const struct kernel_tensor *tensors = norm->problem->tensors;
	uint32_t vector = 16 / norm_element(norm), columns = (uint32_t)norm->form.columns;
	uint32_t threads = whole_threads(norm, columns / vector);
	struct norm_way way = {.together = 1, .pitch = columns, .blocks = 1};

	/* Gamma and beta come as words. */
	if (threads == 0 || norm->rms || norm->residual >= 0 || norm->at.gamma < 0 ||
		norm->at.beta < 0 || norm->affine < 4 || tensors[norm->at.gamma].dtype != norm->dtype ||
		tensors[norm->at.beta].dtype != norm->dtype || threads > ways->limits->max_threads ||
		WHOLE_THREADS > ways->limits->max_threads)
		return;
	way.shape = (struct rows_shape){.vector = vector,
									.held = (uint32_t)plan_divide_up(columns / vector, threads),
									.size = threads,
									.rows = threads < WHOLE_THREADS ? WHOLE_THREADS / threads : 1,
									.cluster = 1,
									.staged = true};
	way.piece = 2 * way.shape.rows;
	while (way.piece * columns * norm_element(norm) < WHOLE_BYTES)
		way.piece *= 2;
	norm_keep(ways, &way);
}

void norm_offer_staged(struct norm_ways *ways)
{
	const struct norm_problem *norm = ways->norm;
	uint32_t element = norm_element(norm), vector = rows_vector(&norm->form, &norm->need);
	int64_t columns = norm->form.columns, row = columns * element;
	uint32_t pitch = (uint32_t)pitch_of(norm), size = 2, usual = STAGED_BYTES;

	if (element > 4 || pitch == 0)
		return;
	/* Whole vectors that leave few lanes idle. */
	if (vector * element == 16 && (row >= (element == 2 ? 256 : 128) || (row & (row - 1)) == 0)) {
		if (pitch == columns && row <= WHOLE_ROW &&
			(strcmp(ways->limits->target, "cpu") == 0 ||
			 rows_clusters(&norm->form, 1, ways->limits)))
			offer_whole(ways);
		return;
	}
	if (columns > 32 * (pitch == columns ? STAGED_MOST : STAGED_APART))
		return;
	while (size < 32 && columns > size * STAGED_LANE)
		size *= 2;
	/* Single halves of gamma and beta take long to come: more rows have them for one load. */
	if (element == 2 && (columns % 2 || pitch % 2) && norm->at.gamma >= 0 && norm->at.beta >= 0)
		usual = STAGED_ROOM;
	offer_lanes(ways, pitch, size, usual);
	offer_lanes(ways, pitch, size, STAGED_BYTES + STAGED_ROOM - usual);
	if (size > 2)
		offer_lanes(ways, pitch, size / 2, usual);
	if (size < 32)
		offer_lanes(ways, pitch, size * 2, usual);
}
