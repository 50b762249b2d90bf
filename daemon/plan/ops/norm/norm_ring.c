/*
 * norm_ring.c: norms of long rows by blocks that stay, keep gamma and beta in registers and have
 * rows come into a ring of places in shared memory (kernel_src/ops/norm_ring.cuh).
 */
#include "norm.h"

/* Rows of fewer vectors are short for it. */
#define RING_VECTORS 1024
#define RING_STAGES 8
#define RING_HELD 8
/* Registers that a thread needs beside gamma and beta. */
#define RING_BESIDE 32

/* Words of gamma and beta that a thread keeps. */
static uint32_t along_words(const struct norm_problem *norm, uint32_t elements)
{
	const struct kernel_tensor *tensors = norm->problem->tensors;
	const int operands[] = {norm->at.gamma, norm->at.beta};
	uint32_t words = 0;

	for (int i = 0; i < 2; i++)
		if (operands[i] >= 0)
			words += elements * kernel_dtype_bytes(tensors[operands[i]].dtype) / 4;
	return words;
}

static void offer_ring(struct norm_ways *ways, uint32_t cluster, uint32_t threads)
{
	uint32_t vector = 16 / norm_element(ways->norm);
	uint64_t vectors = (uint64_t)ways->norm->form.columns / vector;
	uint64_t held = (vectors + (uint64_t)threads * cluster - 1) / ((uint64_t)threads * cluster);
	struct norm_way way = {.together = 1};

	/* No block of a cluster may be without any of the row. */
	if ((uint64_t)threads * (cluster - 1) * held >= vectors || held > RING_HELD ||
		held * threads * 16 * 3 > ways->limits->shared_optin - 4096 ||
		threads > ways->limits->max_threads ||
		along_words(ways->norm, (uint32_t)held * vector) + RING_BESIDE > 65536 / threads)
		return;
	way.shape = (struct rows_shape){
		.vector = vector, .held = (uint32_t)held, .size = threads, .rows = 1, .cluster = cluster};
	way.stages = (ways->limits->shared_optin - 4096) / norm_ring_bytes(&way, 1);
	if (way.stages > RING_STAGES)
		way.stages = RING_STAGES;
	norm_keep(ways, &way);
	if (--way.stages >= 3)
		norm_keep(ways, &way);
}

uint32_t norm_ring_bytes(const struct norm_way *way, uint32_t stages)
{
	return way->shape.held * way->shape.size * 16 * stages;
}

/*
 * One block a multiprocessor.  Where clusters of 4 and 8 find places depends on how these are
 * grouped: on an H200 they reach 120 of 132.
 */
uint32_t norm_ring_blocks(const struct norm_way *way, const struct kernel_limits *limits)
{
	uint32_t cluster = way->shape.cluster, blocks = limits->multiprocessors;

	if (cluster > 2)
		blocks = blocks * 10 / 11;
	blocks = blocks / cluster ? blocks / cluster : 1;
	return blocks * cluster;
}

void norm_offer_rings(struct norm_ways *ways, bool clusters)
{
	static const uint32_t threads[] = {512, 1024};
	const struct norm_problem *norm = ways->norm;
	uint32_t vector = 16 / norm_element(norm);

	if (norm->residual >= 0 || norm->form.columns / vector < RING_VECTORS ||
		norm->form.columns > INT32_MAX / 2 || norm->affine < 4)
		return;
	for (uint32_t cluster = clusters ? 8 : 1; cluster > 0; cluster /= 2)
		for (int t = 0; t < 2; t++)
			offer_ring(ways, cluster, threads[t]);
}
