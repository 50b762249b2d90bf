/*
 * norm_backward_ring.c: dx, dgamma and dbeta of long rows that come into a ring of places in shared
 * memory (kernel_src/ops/norm_backward_ring.cuh): by blocks, or by clusters of blocks that share
 * each row, and with it the sums that each has to leave.
 */
#include "norm_backward.h"

#include <string.h>

/* Shorter rows are as well held in registers. */
#define RING_BYTES 2048
#define RING_STAGES 12
/* Places for two sums of columns, at most: with more, and with four or six, these rows took up to a
 * fifth longer when they were timed.  Why an odd number does better is not known. */
#define RING_STAGES_TWO 5
#define RING_LEAST_STAGES 3
/* Shared memory beside the places: barriers, and the sums of four rows. */
#define RING_BESIDE 6144
/* Registers that a thread needs beside the sums of its columns, gamma and what comes of a row: of
 * all of that the compiler was seen to keep four fifths at least. */
#define RING_REGISTERS 44
/* Threads that work, at least, and sizes of blocks for each cluster. */
#define RING_THREADS 128
#define RING_SIZES 3
/* These did best when they were timed: so many threads, and in a cluster with some that have less
 * to do than others; bytes of a block's part of a row, at most. */
#define RING_FEW 256
#define RING_MANY 384
#define RING_PART 25200
/* Halves of which two sums leave two blocks registers for aligned vectors, at most. */
#define RING_SKEWED 16384

/*
 * Odd rows, of which so many on one begins as far behind an aligned vector again: a cluster that
 * takes rows so far apart takes aligned vectors.  Clusters of more than two blocks are too few to
 * be shared out so.
 */
static bool is_skewed(const struct norm_backward_problem *norm)
{
	int64_t columns = norm->form.columns, element = norm->need.element;

	return rows_vector(&norm->form, &norm->need) == 1 && norm->form.rank == 1 &&
		   columns * element <= 2 * RING_PART &&
		   columns <= (element == 2 && norm->sums > 1 ? RING_SKEWED : INT32_MAX) &&
		   rows_congruent(&norm->form, &norm->need);
}

/* Registers of a thread, as the compiler was seen to need them: aligned vectors of skewed rows. */
static uint32_t skewed_registers(const struct norm_backward_problem *norm, uint32_t held)
{
	if (norm->need.element == 2)
		return 36 + (norm->sums > 1 ? 44 : 28) * held;
	return norm->sums > 1 ? 38 + 20 * held : 34 + 14 * held;
}

/* Columns of a block's part of a row, with what sticks out of it. */
static uint64_t slice_of(const struct norm_backward_problem *norm, uint32_t cluster)
{
	uint64_t unit = 16 / norm->need.element;
	uint64_t columns = (uint64_t)norm->form.columns + (is_skewed(norm) ? unit - 1 : 0);

	return plan_divide_up(plan_divide_up(columns, cluster), unit) * unit;
}

/* Bytes of a place for one operand. */
static uint64_t place_of(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way)
{
	uint32_t element = norm->need.element;

	return slice_of(norm, way->shape.cluster) * element +
		   (way->shape.vector * element == 16 ? 0 : 16);
}

static bool offer_ring(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   uint32_t cluster, uint32_t held, struct norm_backward_way *way)
{
	bool skewed = is_skewed(norm);
	uint32_t vector = skewed ? 16 / norm->need.element : rows_vector(&norm->form, &norm->need);
	uint64_t slice = slice_of(norm, cluster), room = limits->shared_optin, size;
	uint32_t registers, wanted, kept, part;
	uint32_t most = norm->sums > 1 ? RING_STAGES_TWO : RING_STAGES;

	size = plan_divide_up(plan_divide_up(slice / vector, held), 32) * 32;
	memset(way, 0, sizeof(*way));
	way->kind = NORM_BACKWARD_RING;
	way->shape = (struct rows_shape){.vector = vector,
									 .held = held,
									 .size = (uint32_t)size,
									 .rows = 1,
									 .cluster = cluster,
									 .skewed = skewed};
	if (size < RING_THREADS || size + 32 > limits->max_threads || room < RING_BESIDE ||
		(cluster - 1) * slice >= (uint64_t)norm->form.columns)
		return false;
	registers = 65536 / ((uint32_t)size + 32);
	/* They are in four parts, each for a quarter of the warps. */
	part = 512 / (((uint32_t)size / 32 + 4) / 4);
	kept = held * vector * ((uint32_t)norm->sums + 1) + 4 * vector + RING_REGISTERS;
	wanted = kept + 2 * held * (uint32_t)plan_divide_up(vector * norm->need.element, 4);
	if (norm->need.element == 2 && vector == 8 && norm->sums > 1 && held >= 3)
		wanted = 36 + 36 * held;
	/* A thread has what it computes of halves twice. */
	kept = norm->need.element == 2 ? wanted : kept;
	if (skewed) {
		wanted = skewed_registers(norm, held);
		kept = wanted * 5 / 4;
	}
	way->stages = (uint32_t)((room - RING_BESIDE) / (2 * place_of(norm, way)));
	if (way->stages > most)
		way->stages = most;
	if (skewed && limits->multiprocessors / cluster < 2 * norm_backward_period(norm, way))
		return false;
	return wanted <= registers && wanted <= 255 && kept * 4 <= part * 5 &&
		   way->stages >= RING_LEAST_STAGES;
}

/* How well a way does among those of its cluster. */
static int rank_of(const struct norm_backward_problem *norm, const struct norm_backward_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint64_t slice = slice_of(norm, shape->cluster);
	bool full = (uint64_t)shape->size * shape->held * shape->vector == slice;

	return full && shape->cluster > 1                          ? 0
		   : shape->size < RING_FEW || shape->size > RING_MANY ? 1
															   : 2;
}

static void bring_best(const struct norm_backward_problem *norm, struct norm_backward_way *ways,
					   int count)
{
	struct norm_backward_way found;
	uint32_t cluster = 0;
	int best = 0;

	for (int i = 0; i < count && !cluster; i++)
		if (slice_of(norm, ways[i].shape.cluster) * norm->need.element <= RING_PART)
			cluster = ways[i].shape.cluster;
	for (int i = 0; i < count; i++) {
		bool wanted = !cluster || ways[i].shape.cluster == cluster;
		if (cluster && ways[best].shape.cluster != cluster)
			best = wanted ? i : best;
		else if (wanted && rank_of(norm, &ways[i]) > rank_of(norm, &ways[best]))
			best = i;
	}
	if (count == 0)
		return;
	found = ways[best];
	memmove(&ways[1], &ways[0], sizeof(found) * (size_t)best);
	ways[0] = found;
}

int norm_backward_rings(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, struct norm_backward_way *out, int most)
{
	int count = 0;

	if (norm->need.element > 4 || norm->pieces || norm->form.rows == 0 ||
		norm->form.columns * norm->need.element < RING_BYTES ||
		norm->form.columns > INT32_MAX / 4 || !rows_clusters(&norm->form, 8, limits))
		return 0;
	for (int i = 0; i < norm->form.operands; i++)
		if (norm->form.step[i] != 1)
			return 0;
	for (uint32_t cluster = 1; cluster <= 8; cluster *= 2) {
		int sizes = 0;
		for (uint32_t held = 1; held <= 16 && sizes < RING_SIZES && count < most; held++)
			if (offer_ring(norm, limits, cluster, held, &out[count]) &&
				(sizes == 0 || out[count].shape.size < out[count - 1].shape.size)) {
				sizes++;
				count++;
			}
	}
	bring_best(norm, out, count);
	return count;
}

/*
 * One block a multiprocessor, and no more than it takes for the same number of rows each.  Where
 * clusters of 4 and 8 find places depends on how these are grouped: on an H200 they reach 120 of
 * 132.
 */
void norm_backward_ring_launch(const struct norm_backward_problem *norm,
							   const struct norm_backward_way *way,
							   const struct kernel_limits *limits, struct kernel_plan *out)
{
	uint32_t cluster = way->shape.cluster, blocks = limits->multiprocessors;
	uint64_t rows = (uint64_t)norm->form.rows, clusters, pitch;
	uint64_t period = norm_backward_period(norm, way);

	blocks = cluster > 2 ? blocks * 10 / 11 : blocks;
	clusters = (blocks / cluster ? blocks / cluster : 1) / period * period;
	clusters =
		plan_divide_up(plan_divide_up(rows, plan_divide_up(rows, clusters)), period) * period;
	pitch = plan_divide_up((uint64_t)norm->form.columns, 4) * 4;
	plan_launch(out, limits, clusters * cluster, way->shape.size + 32);
	out->shared_bytes = (uint32_t)(way->stages * 2 * place_of(norm, way));
	if (out->shared_bytes < (way->shape.size + 32) * 16)
		out->shared_bytes = (way->shape.size + 32) * 16;
	out->scratch = (struct kernel_scratch){
		.bytes = 256 + clusters * (uint64_t)norm->sums * pitch * 4, .counters = 256};
}
