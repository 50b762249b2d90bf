/*
 * norm_backward_way.c: the ways to take the backward of a norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm_backward.h"

#include <stdio.h>
#include <string.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_BACKWARD_REGISTERS 96
/* Candidates of the kinds BOTH, RING and WARPS, at most. */
#define BOTH_WAYS 16
#define RING_WAYS 12
#define WARPS_WAYS 9

struct rows_need norm_backward_need(const struct norm_backward_problem *norm)
{
	struct rows_need need = norm->need;

	need.streams = 2;
	need.registers = NORM_BACKWARD_REGISTERS;
	need.converted = norm->need.element == 2 ? 4 : 0;
	need.around = 8;
	need.skew = need.slots = need.clusters = need.stream = true;
	return need;
}

static int rows_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					 struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct rows_shape shapes[NORM_BACKWARD_MAX_WAYS];
	struct rows_need need = norm_backward_need(norm);
	int found = rows_shapes(&norm->form, &need, limits, shapes, NORM_BACKWARD_MAX_WAYS), count = 0;

	/* Clusters of skewed rows were seen to run out of registers. */
	for (int i = 0; i < found; i++)
		if (shapes[i].cluster == 1 || !shapes[i].skewed)
			out[count++] =
				(struct norm_backward_way){.kind = NORM_BACKWARD_ROWS, .shape = shapes[i]};
	return count;
}

#define STEP_THREADS 512
#define STEP_THREADS_SKEWED 256 /* each has the ends to look at */
#define STEP_HELD 4

/* Puts the shape first that takes the longest steps with so many threads. */
static void prefer_steps(struct rows_shape *shapes, int count)
{
	int best = -1;

	for (int i = 0; i < count; i++) {
		uint32_t threads = shapes[i].skewed ? STEP_THREADS_SKEWED : STEP_THREADS;
		if (shapes[i].stream && shapes[i].size == threads && shapes[i].held <= STEP_HELD &&
			(best < 0 || shapes[i].held > shapes[best].held))
			best = i;
	}
	if (best > 0) {
		struct rows_shape found = shapes[best];
		memmove(&shapes[1], &shapes[0], sizeof(found) * (size_t)best);
		shapes[0] = found;
	}
}

/* Rows of a strip that a thread reads at once: the last strips have nobody beside them to hide
 * what they wait for.  1024 threads have no registers for more than one. */
static const uint32_t unrolls[] = {2, 4, 1};

static bool unrolls_to(const struct rows_shape *shape, uint32_t unroll)
{
	uint32_t threads = shape->size * shape->rows;

	return threads > 512 ? unroll == 1 : unroll < 4 || threads <= 256;
}

/*
 * Rows by some blocks and columns by others: blocks of as many threads.  Rows that are read in
 * steps go first, by blocks of 512 threads at most: they leave room for those of the columns, and
 * what they read again is near.
 */
static int both_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					 struct norm_backward_way *out, int most)
{
	struct rows_shape shapes[NORM_BACKWARD_MAX_WAYS];
	struct rows_need need = norm_backward_need(norm);
	int shape_count, count = 0;

	need.clusters = false;
	need.around += 12;
	shape_count = rows_shapes(&norm->form, &need, limits, shapes, NORM_BACKWARD_MAX_WAYS);
	prefer_steps(shapes, shape_count);
	for (int i = 0; i < shape_count; i++) {
		struct norm_backward_way way = {.kind = NORM_BACKWARD_BOTH, .shape = shapes[i]};
		bool crowded = shapes[i].skewed && shapes[i].held - shapes[i].slots > 4;
		if (crowded ||
			!norm_backward_strips_of(norm, limits, shapes[i].size * shapes[i].rows, &way.strips))
			continue;
		for (int u = 0; u < 3 && count < most; u++) {
			way.strips.unroll = unrolls[u];
			if (unrolls_to(&shapes[i], unrolls[u]))
				out[count++] = way;
			if (i > 1 && unrolls_to(&shapes[i], unrolls[u]))
				break;
		}
	}
	return count;
}

static void bring_first(struct norm_backward_way *ways, int number)
{
	struct norm_backward_way found = ways[number];

	memmove(&ways[1], &ways[0], sizeof(found) * (size_t)number);
	ways[0] = found;
}

#define RING_SIZE 384       /* threads of a row that a block has alone, at most */
#define RING_ROWS 512       /* of two sums, at least */
#define RING_ROWS_ONE 1536  /* of one */
#define RING_ROWS_PAIR 1024 /* of two sums of longer rows of halves that blocks share, at most */
#define RING_HALVES 6145 /* columns of halves that four vectors a thread are best for, at least */
/* Columns that threads held as fast where both were timed with one sum. */
#define HELD_HALVES 8192

#define RING_WIDE 448  /* threads of a row of two sums of words, two vectors each, at most */
#define RING_WHOLE 928 /* those that have a block to themselves, one vector each or two, at least */
#define RING_PLACES 5  /* rows that lie in such a ring, at least */

/*
 * Was a ring faster for these rows of words than `ring`, the threads that hold them?  It becomes
 * the threads of that ring: as many, or a third or a quarter as many for each half of a row.
 */
static bool is_ring_of_words(const struct norm_backward_problem *norm, struct rows_shape *ring)
{
	if (norm->need.element != 4 || ring->rows != 1)
		return false;
	if (ring->held == 4 || (ring->held == 2 && norm->sums > 1 && ring->size <= RING_WIDE))
		return true;
	if (ring->held > 2 || norm->sums < 2 || ring->size < RING_WHOLE)
		return false;
	ring->cluster = ring->held;
	ring->held = ring->size % 128 == 0 ? 4 : 3;
	ring->size = (uint32_t)plan_divide_up(ring->size, ring->held * 32) * 32;
	return true;
}

/* Are there rows enough for rings, which begin late?  One sum of columns ends sooner without. */
static bool are_many(const struct norm_backward_problem *norm)
{
	return norm->form.rows >= (norm->sums > 1 ? RING_ROWS : RING_ROWS_ONE);
}

/*
 * Ways of rings stand behind `all`, which threads hold.  Where these have one row a block, and few
 * threads for it, a ring of as many threads keeps more of memory busy; long rows of halves by half
 * as many with four vectors each, by two blocks with three where rows are few, long ones of words
 * as is_ring_of_words() says.
 */
static void prefer_ring(const struct norm_backward_problem *norm, struct norm_backward_way *ways,
						int all, int count)
{
	const struct rows_shape *first = &ways[0].shape;
	struct rows_shape ring = *first;
	bool halves = norm->need.element == 2 && first->vector == 8 &&
				  norm->form.columns >= RING_HALVES && are_many(norm);
	bool words = is_ring_of_words(norm, &ring);

	if (all == 0 || first->skewed || (norm->form.columns == HELD_HALVES && norm->sums == 1) ||
		(!halves && !words && (first->rows > 1 || first->held != 2 || first->size > RING_SIZE)))
		return;
	if (halves) {
		bool pair =
			norm->sums > 1 && norm->form.columns > HELD_HALVES && norm->form.rows <= RING_ROWS_PAIR;
		uint32_t columns = (uint32_t)norm->form.columns;
		ring.cluster = pair ? 2 : 1;
		ring.held = pair ? 3 : 4;
		ring.size = (uint32_t)plan_divide_up(columns, ring.cluster * 8 * ring.held * 32) * 32;
	}
	for (int i = all; i < count; i++)
		if (ways[i].shape.cluster == ring.cluster && ways[i].shape.size == ring.size &&
			ways[i].shape.held == ring.held && (!words || ways[i].stages >= RING_PLACES)) {
			bring_first(ways, i);
			return;
		}
}

#define RING_LONG 16384 /* columns of halves */

/*
 * Do rings go before ways that read rows twice?  Two sums of halves are much work for a ring: it
 * begins late, and has to be long, or the rows many; rows that no vector fits gain by it
 * nevertheless, if few blocks share them.
 */
static bool are_rings_better(const struct norm_backward_problem *norm,
							 const struct norm_backward_way *ring)
{
	if (norm->need.element > 2 || norm->sums == 1 || norm->form.columns > RING_LONG ||
		are_many(norm))
		return true;
	return (ring->shape.skewed || ring->shape.vector * norm->need.element < 16) &&
		   ring->shape.cluster <= 2;
}

int norm_backward_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct norm_backward_strips strips[NORM_BACKWARD_MAX_WAYS];
	int count, all, warps;
	bool usual;

	if (norm->at.dx < 0) {
		count = norm_backward_columns(norm, limits, strips, NORM_BACKWARD_MAX_WAYS);
		for (int i = 0; i < count; i++)
			out[i] = (struct norm_backward_way){.kind = NORM_BACKWARD_COLUMNS, .strips = strips[i]};
		return count;
	}
	if (norm->sums == 0)
		return rows_ways(norm, limits, out);
	all = norm_backward_all(norm, limits, out,
							NORM_BACKWARD_MAX_WAYS - BOTH_WAYS - RING_WAYS - WARPS_WAYS);
	count = all + norm_backward_rings(norm, limits, out + all, RING_WAYS);
	prefer_ring(norm, out, all, count);
	warps = norm_backward_warps(norm, limits, all > 0 ? &out[0] : NULL, out + count, WARPS_WAYS,
								&usual);
	if (usual)
		bring_first(out, count);
	count += warps;
	if (all > 0 || usual || count == 0 || are_rings_better(norm, &out[0]))
		return count + both_ways(norm, limits, out + count, BOTH_WAYS);
	count = both_ways(norm, limits, out, BOTH_WAYS);
	return count + norm_backward_rings(norm, limits, out + count, RING_WAYS);
}

void norm_backward_way_name(const struct norm_backward_way *way, char name[KERNEL_CHOICE_MAX])
{
	const struct norm_backward_strips *strips = &way->strips;
	char rows[KERNEL_CHOICE_MAX];

	switch (way->kind) {
	case NORM_BACKWARD_ROWS:
		rows_shape_name(&way->shape, name);
		break;
	case NORM_BACKWARD_COLUMNS:
		snprintf(name, KERNEL_CHOICE_MAX, "columns %ux%u u%u b%u", strips->size, strips->rows,
				 strips->unroll, strips->blocks);
		break;
	case NORM_BACKWARD_ALL:
		snprintf(name, KERNEL_CHOICE_MAX, "all %s%ux%u r%u b%u a%u%s",
				 way->shape.skewed ? "skewed " : "", way->shape.size, way->shape.held,
				 way->shape.rows, way->blocks, way->ahead, way->pairs ? " p" : "");
		break;
	case NORM_BACKWARD_RING:
		snprintf(name, KERNEL_CHOICE_MAX, "ring%u %s%ux%u s%u", way->shape.cluster,
				 way->shape.skewed ? "skewed " : "", way->shape.size, way->shape.held, way->stages);
		break;
	case NORM_BACKWARD_WARPS:
		snprintf(name, KERNEL_CHOICE_MAX, "warps %ux%u w%u r%u s%u", way->shape.size,
				 way->shape.held, way->blocks, way->shape.rows, way->stages);
		break;
	case NORM_BACKWARD_BOTH:
		rows_shape_name(&way->shape, rows);
		snprintf(name, KERNEL_CHOICE_MAX, "both %.24s u%u", rows, strips->unroll);
		break;
	}
}

uint32_t norm_backward_alignment(const struct norm_backward_problem *norm,
								 const struct norm_backward_way *way)
{
	if (way->kind != NORM_BACKWARD_COLUMNS)
		return rows_alignment(&way->shape, norm->need.element);
	return norm->need.element * (way->strips.skewed ? 1 : way->strips.vector);
}
