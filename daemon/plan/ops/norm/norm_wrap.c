/*
 * norm_wrap.c: norms of rows that begin between two aligned vectors: wrapped, so that a row takes
 * no more vectors than it fills, with gamma and beta by way of shared memory
 * (kernel_src/common/norm_wrap.cuh).
 */
#include "norm.h"

/* Longer rows than threads can hold. */
#define WRAP_COLUMNS (1 << 16)
/* Planes that are larger do not lie there twice: NormPlanes has the same rule. */
#define TWICE_BYTES 16384
/* Vectors of a row that one warp holds, for each of its threads at most. */
#define WARP_HELD 8

/* Do gamma and beta of a column share a word? */
static bool packs(const struct norm_problem *norm)
{
	const struct kernel_tensor *tensors = norm->problem->tensors;
	int gamma = norm->at.gamma, beta = norm->at.beta;

	return gamma >= 0 && beta >= 0 && kernel_dtype_bytes(tensors[gamma].dtype) == 2 &&
		   kernel_dtype_bytes(tensors[beta].dtype) == 2;
}

static uint32_t wrap_vectors(const struct norm_problem *norm)
{
	uint32_t vector = 16 / norm_element(norm);

	return (uint32_t)((norm->form.columns + vector - 1) / vector);
}

uint32_t norm_wrap_bytes(const struct norm_problem *norm, bool wide)
{
	uint32_t number = norm->dtype == KILN_F64 ? 8 : 4, vector = 16 / norm_element(norm);
	uint32_t bytes = (norm->at.gamma >= 0 ? number : 0) + (norm->at.beta >= 0 ? number : 0), twice;

	if (packs(norm) && !wide)
		bytes = 4;
	twice = (2 * vector - 1) * wrap_vectors(norm) * bytes;
	return twice <= TWICE_BYTES ? twice : vector * (wrap_vectors(norm) + 1) * bytes;
}

/* Are gamma and beta, those that are there, aligned vectors as wide as x's? */
static bool windows_possible(const struct norm_problem *norm)
{
	const int affine[] = {norm->at.gamma, norm->at.beta};

	for (int i = 0; i < 2; i++)
		if (affine[i] >= 0 &&
			kernel_dtype_bytes(norm->problem->tensors[affine[i]].dtype) != norm_element(norm))
			return false;
	return norm->affine >= 16 && (affine[0] >= 0 || affine[1] >= 0);
}

/* `threads` of a block, as far as a row lets it be so. */
static void offer_wrapped(struct norm_ways *ways, uint32_t held, uint32_t threads,
						  struct norm_way way)
{
	uint32_t vectors = wrap_vectors(ways->norm), size = 1;

	way.apart = ways->apart;
	while (size < 32 && size * held < vectors)
		size *= 2;
	if (size * held < vectors)
		size = (vectors + 32 * held - 1) / (32 * held) * 32;
	/* Fewer of them would do. */
	if (held > 1 && size * (held - 1) >= vectors)
		return;
	way.shape = (struct rows_shape){.vector = 16 / norm_element(ways->norm),
									.held = held,
									.size = size,
									.rows = size < threads ? threads / size : 1,
									.cluster = 1,
									.skewed = true};
	if (size * way.shape.rows > ways->limits->max_threads ||
		(!way.windows &&
		 norm_wrap_bytes(ways->norm, way.wide) + ROWS_SHARED_MEET > ways->limits->shared_optin))
		return;
	norm_keep(ways, &way);
}

static void offer_wrap(struct norm_ways *ways, uint32_t held, uint32_t threads, uint32_t each,
					   bool wide)
{
	offer_wrapped(ways, held, threads,
				  (struct norm_way){.together = 1, .each = each, .wide = wide});
}

/* A warp is busy with a row for about so many vectors of each thread besides. */
#define ROW_VECTORS 2
/* Vectors that a thread has room for, where a part of a warp holds a row. */
#define PART_HELD 5

/*
 * Vectors of a row that a thread takes: so many that one warp holds the row if it can, for then no
 * thread waits for another warp; for longer rows as many as few warps need.  Short rows of halves
 * are more to compute than to move: the part of a warp takes them that leaves least of it idle.
 */
static uint32_t usual_held(uint32_t vectors, uint32_t most, bool halves)
{
	uint32_t warps = (vectors + 32 * most - 1) / (32 * most);
	uint32_t best = 0, least = UINT32_MAX;

	if (vectors <= 16)
		return 1;
	for (uint32_t size = 8; halves && size <= 32; size *= 2) {
		uint32_t held = (vectors + size - 1) / size;
		if (held > PART_HELD || size * (held + ROW_VECTORS) >= least)
			continue;
		least = size * (held + ROW_VECTORS);
		best = held;
	}
	if (best)
		return best;
	if (vectors <= 64)
		return 2;
	if (vectors <= 32 * WARP_HELD)
		warps = 1;
	return (vectors + 32 * warps - 1) / (32 * warps);
}

static const struct norm_way windows = {.together = 1, .each = 1, .windows = true};

/*
 * The best ones that were timed.  Where one number is agreed on, more threads with two vectors each
 * do better than few with many, and long rows do so unwrapped.  Large planes take longer to fill
 * than gamma and beta to be cut out.
 */
static void offer_timed(struct norm_ways *ways, uint32_t usual)
{
	const struct norm_problem *norm = ways->norm;
	uint32_t vectors = wrap_vectors(norm), vector = 16 / norm_element(norm);
	bool halves = vector == 8;

	if (norm->rms && vector == 4 && vectors > 1024 && !ways->apart) {
		uint32_t touched = (uint32_t)((norm->form.columns + 2 * vector - 2) / vector);
		struct norm_way way = {.together = 1};
		way.shape = (struct rows_shape){.vector = vector,
										.held = 3,
										.size = rows_group(touched, 3),
										.rows = 1,
										.cluster = 1,
										.skewed = true};
		if (way.shape.size <= ways->limits->max_threads)
			norm_keep(ways, &way);
	} else if (norm->rms && halves && norm->residual < 0 && vectors > 384 && vectors <= 480) {
		offer_wrap(ways, 3, 128, 1, false);
	} else if (norm->rms && vectors <= 1024 && vectors > (halves ? 288 : 128) && vector >= 4) {
		offer_wrap(ways, 2, 512, 1, false);
	}
	if (vector == 4 && !norm->rms && norm->residual >= 0 && !ways->apart &&
		norm_wrap_bytes(norm, false) > TWICE_BYTES && windows_possible(norm))
		offer_wrapped(ways, usual, 64, windows);
	if (halves && norm_wrap_bytes(norm, false) > TWICE_BYTES && windows_possible(norm))
		offer_wrapped(ways, usual, 256, windows);
	if (halves && packs(norm) && !norm->rms && ways->apart && vectors > 40 && vectors <= 128)
		offer_wrap(ways, usual, 256, 2, true);
	if (halves && packs(norm) && !norm->rms && vectors > 64 && vectors <= 128)
		offer_wrap(ways, usual, 256, 1, true);
}

/* Offers many rows a block, which share the work of filling the planes. */
void norm_offer_wraps(struct norm_ways *ways)
{
	static const uint32_t threads[] = {256, 128, 512, 64};
	uint32_t most = norm_element(ways->norm) == 2 ? 4 : 8;
	uint32_t usual = usual_held(wrap_vectors(ways->norm), most, most == 4);
	uint32_t vectors = wrap_vectors(ways->norm);

	if (ways->norm->form.columns > WRAP_COLUMNS)
		return;
	offer_timed(ways, usual);
	/* Rows of parts of warps like small blocks. */
	if (most == 4 && vectors > 16 && usual * 16 >= vectors)
		offer_wrap(ways, usual, 128, 1, false);
	for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
		offer_wrap(ways, usual, threads[t], 1, false);
	for (uint32_t each = 2; each <= 8; each *= 2) {
		offer_wrap(ways, usual, 256, each, false);
		offer_wrap(ways, usual, 128, each, false);
	}
	if (packs(ways->norm)) {
		offer_wrap(ways, usual, 256, 1, true);
		offer_wrap(ways, usual, 256, 2, true);
	}
	for (uint32_t held = 2; held <= 6; held++)
		offer_wrap(ways, held, 256, 1, false);
	for (uint32_t held = most; held > 0; held /= 2)
		for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
			offer_wrap(ways, held, threads[t], 1, false);
	/* Small planes are filled soon. */
	if (!windows_possible(ways->norm) || norm_wrap_bytes(ways->norm, false) <= TWICE_BYTES)
		return;
	for (uint32_t held = usual; held > 0; held = held > most ? most : held / 2)
		for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
			offer_wrapped(ways, held, threads[t], windows);
}
