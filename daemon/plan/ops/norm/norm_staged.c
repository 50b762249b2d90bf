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
/* Bytes of a piece, of all operands: as many as are enough, and the most. */
#define STAGED_BYTES 6400
#define STAGED_ROOM 12800
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
static uint32_t row_bytes(const struct norm_problem *norm, uint32_t pitch)
{
	uint32_t columns = (uint32_t)norm->form.columns, row = pitch;

	row += norm->residual >= 0 ? columns : 0;
	row += pitch != columns ? columns : 0;
	return row * norm_element(norm);
}

/* Each operand begins with a line. */
uint32_t norm_staged_bytes(const struct norm_problem *norm, const struct norm_way *way)
{
	return way->piece * row_bytes(norm, way->pitch) + 2 * 128;
}

/*
 * Returns the rows of a piece of about so many bytes: whole vectors, and equally many rows for each
 * part of a warp.  Of halves each part has two rows at least if there is room, since gamma and beta
 * come once for all of its rows.
 */
static uint32_t rows_of(const struct norm_problem *norm, const struct norm_way *way, uint32_t bytes)
{
	uint32_t columns = (uint32_t)norm->form.columns, element = norm_element(norm);
	uint32_t row = row_bytes(norm, way->pitch), unit = way->shape.rows, rows, least;

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
	struct norm_way way = {.together = 1, .pitch = pitch};
	struct rows_shape *shape = &way.shape;

	*shape = (struct rows_shape){
		.vector = 1, .size = size, .rows = STAGED_THREADS / size, .cluster = 1, .staged = true};
	if (norm_element(norm) == 2 && columns % 2 == 0 && pitch % 2 == 0)
		shape->vector = 2;
	shape->held = (uint32_t)plan_divide_up(columns, size * shape->vector);
	numbers = shape->held * shape->vector;
	if (numbers > STAGED_MOST || size > columns || STAGED_THREADS > ways->limits->max_threads)
		return;
	way.piece = rows_of(norm, &way, bytes);
	/* The compiler finds registers for so many blocks on sm_90, but would spill some on others. */
	way.blocks = (numbers > 16   ? 7
				  : numbers > 12 ? 8
				  : numbers > 10 ? 9
								 : 10) -
				 (norm->residual >= 0);
	if (strcmp(ways->limits->target, "sm_90") != 0)
		way.blocks = 1;
	if (norm_staged_bytes(norm, &way) <= ways->limits->shared_optin)
		norm_keep(ways, &way);
}

void norm_offer_staged(struct norm_ways *ways)
{
	const struct norm_problem *norm = ways->norm;
	uint32_t element = norm_element(norm), vector = rows_vector(&norm->form, &norm->need);
	int64_t columns = norm->form.columns, row = columns * element;
	uint32_t pitch = (uint32_t)pitch_of(norm), size = 2, usual = STAGED_BYTES;

	/* Whole vectors that leave few lanes idle need no help. */
	if (element > 4 || columns > 32 * STAGED_MOST || pitch == 0 ||
		(vector * element == 16 && (row >= (element == 2 ? 256 : 128) || (row & (row - 1)) == 0)))
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
