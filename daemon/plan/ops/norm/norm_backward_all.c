/*
 * norm_backward_all.c: dx, dgamma and dbeta by threads that hold rows, and the sums of their
 * columns over all rows that they come to.
 *
 * As many blocks as find room at once, and no more than it takes for the same number of rows each:
 * every block leaves a set of sums behind.
 */
#include "norm_backward.h"

#include <string.h>

static uint32_t compute_words(const struct norm_backward_problem *norm)
{
	return norm->dtype == KILN_F64 ? 2 : 1;
}

/* Registers of a thread: sums, what is computed of a row, the next row, and what else the compiler
 * was seen to need. */
static uint32_t registers(const struct norm_backward_problem *norm,
						  const struct norm_backward_way *way)
{
	uint32_t held = way->shape.held, vector = way->shape.vector, wide = compute_words(norm);
	uint32_t words = (uint32_t)plan_divide_up(vector * norm->need.element, 4) * held * 2;
	uint32_t numbers = held * vector * wide * ((uint32_t)norm->sums + 2), others = 10 * held - 4;
	bool full = norm->form.columns == (int64_t)held * vector * way->shape.size;
	bool converts =
		norm->at.gamma >= 0 && wide == 1 &&
		kernel_dtype_bytes(norm->problem->tensors[norm->at.gamma].dtype) > norm->need.element;

	others += (way->shape.rows > 1 ? 10 : 0) + (full ? 0 : 8 * held) + (wide > 1 ? 8 * held : 0) +
			  (converts ? 8 : 0);
	/* Masks of the first vector and the last; gamma is in shared memory. */
	if (way->shape.skewed)
		others = 24 + 8 * held * wide;
	/* Narrow vectors leave the compiler little to keep. */
	if (vector <= 2 && wide == 1)
		others = 3 * held + 28 + (converts ? 8 : 0);
	return numbers + words + others + (way->pairs ? 8 * held : 0);
}

/* Rows under way, and then sums. */
static uint32_t norm_backward_all_shared_bytes(const struct norm_backward_problem *norm,
											   const struct norm_backward_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint32_t threads = shape->size * shape->rows, wide = compute_words(norm);
	uint32_t parts = threads / (shape->size < 32 ? 32 : shape->size);
	uint32_t sums = parts * shape->size * shape->vector * shape->held * (uint32_t)norm->sums;
	uint32_t rows = way->ahead * 2 * shape->held * threads * 16;

	if (shape->skewed) {
		sums = shape->rows * (uint32_t)norm->form.columns;
		rows += norm->at.gamma < 0 ? 0 : threads * shape->held * shape->vector * wide * 4;
	}
	sums *= wide * 4;
	sums = sums > threads * 16 ? sums : threads * 16;
	return sums > rows ? sums : rows;
}

static struct kernel_scratch scratch(const struct norm_backward_problem *norm, uint64_t blocks)
{
	uint64_t pitch = plan_divide_up((uint64_t)norm->form.columns, 4) * 4;
	uint64_t sums = (uint64_t)norm->sums * pitch * compute_words(norm) * 4;

	return (struct kernel_scratch){.bytes = 256 + blocks * sums, .counters = 256};
}

uint32_t norm_backward_period(const struct norm_backward_problem *norm,
							  const struct norm_backward_way *way)
{
	uint64_t unit = way->shape.vector, period = 1;

	while (way->shape.skewed && norm->form.rank > 0 &&
		   (uint64_t)norm->form.stride[0][0] * period % unit)
		period *= 2;
	return (uint32_t)period;
}

/* Blocks of a grid.  Rows of a period are worked on together, or not at all. */
static uint64_t grid_of(const struct norm_backward_problem *norm,
						const struct norm_backward_way *way, const struct kernel_limits *limits)
{
	uint64_t room = (uint64_t)limits->multiprocessors * way->blocks;
	uint64_t rows = (uint64_t)norm->form.rows, period = norm_backward_period(norm, way);
	uint64_t once, turns;

	room = room < limits->grid_x ? room : limits->grid_x;
	once = room * way->shape.rows / period * period;
	if (once == 0 || rows == 0)
		return plan_divide_up(period, way->shape.rows);
	turns = plan_divide_up(rows, once);
	once = plan_divide_up(plan_divide_up(rows, turns), period) * period;
	return plan_divide_up(once, way->shape.rows);
}

void norm_backward_all_launch(const struct norm_backward_problem *norm,
							  const struct norm_backward_way *way,
							  const struct kernel_limits *limits, struct kernel_plan *out)
{
	uint64_t blocks = grid_of(norm, way, limits);

	plan_launch(out, limits, blocks, way->shape.size * way->shape.rows);
	out->shared_bytes = norm_backward_all_shared_bytes(norm, way);
	out->scratch = scratch(norm, blocks);
}

static bool norm_backward_all_fits(const struct norm_backward_problem *norm,
								   const struct norm_backward_way *way,
								   const struct kernel_limits *limits)
{
	uint32_t threads = way->shape.size * way->shape.rows;
	uint32_t shared = norm_backward_all_shared_bytes(norm, way);

	return threads <= limits->max_threads && threads % 32 == 0 &&
		   (way->shape.rows < 16 || way->shape.size <= 32) &&
		   registers(norm, way) * threads * way->blocks <= 65536 && registers(norm, way) <= 255 &&
		   shared * way->blocks <= limits->shared_optin &&
		   shared + ROWS_SHARED_MEET <= limits->shared_optin &&
		   scratch(norm, grid_of(norm, way, limits)).bytes <= KERNEL_SCRATCH_MAX;
}

struct search {
	const struct norm_backward_problem *norm;
	const struct kernel_limits *limits;
	struct norm_backward_way *out;
	int count, most;
	uint32_t vector;
	uint64_t vectors;
	bool skewed;
};

/* One more if it can be, and is not there. */
static void offer(struct search *search, uint32_t threads, uint32_t blocks, uint32_t held,
				  uint32_t ahead, bool pairs)
{
	const struct norm_backward_problem *norm = search->norm;
	struct norm_backward_way way;

	memset(&way, 0, sizeof(way));
	way.kind = NORM_BACKWARD_ALL;
	way.blocks = blocks;
	way.ahead = ahead;
	way.pairs = pairs;
	way.shape.vector = search->vector;
	way.shape.skewed = search->skewed;
	way.shape.held = held;
	way.shape.cluster = 1;
	way.shape.size = rows_group(search->vectors, held);
	way.shape.rows = threads / way.shape.size;
	if (way.shape.rows > 15 && way.shape.size > 32)
		way.shape.rows = 15;
	if (way.shape.rows == 0 || held > search->vectors ||
		!norm_backward_all_fits(norm, &way, search->limits) ||
		(ahead && search->vector * norm->need.element != 16) || (pairs && way.shape.size < 64))
		return;
	for (int i = 0; i < search->count; i++)
		if (memcmp(&search->out[i], &way, sizeof(way)) == 0)
			return;
	if (search->count < search->most)
		search->out[search->count++] = way;
}

static uint32_t rows_under_way(const struct norm_backward_way *way)
{
	return way->shape.rows * way->blocks;
}

/* Puts the way first that has the most rows under way, of narrow vectors, which need many; of those
 * the one of the fewest blocks, which leave the fewest sums. */
static void prefer_many(struct norm_backward_way *ways, int count)
{
	int best = 0;

	for (int i = 1; i < count; i++) {
		uint32_t now = rows_under_way(&ways[i]), most = rows_under_way(&ways[best]);
		if (now > most || (now == most && ways[i].blocks < ways[best].blocks))
			best = i;
	}
	if (best > 0) {
		struct norm_backward_way found = ways[best];
		memmove(&ways[1], &ways[0], sizeof(found) * (size_t)best);
		ways[0] = found;
	}
}

static const struct {
	uint32_t threads, blocks;
} forms[] = {{1024, 1}, {512, 1}, {512, 2}, {256, 2}, {256, 4}, {768, 1}};
static const uint32_t aheads[] = {0, 2, 3}, helds[] = {1, 2, 4};

/*
 * Rows that begin between two aligned vectors, and so many rows on as far behind one again: threads
 * that take rows so far apart take whole vectors.
 */
static bool can_be_skewed(const struct norm_backward_problem *norm)
{
	return norm->form.rank <= 1 && norm->form.columns >= 32 &&
		   rows_congruent(&norm->form, &norm->need);
}

/* The best ones that were timed: one mean leaves room for more threads. */
static void offer_usual_skewed(struct search *search)
{
	bool halves = search->norm->need.element == 2;
	uint64_t vectors = search->vectors;

	if (search->norm->rms) {
		offer(search, vectors > 32 ? 1024 : 512, vectors > 32 ? 1 : 2, 1, 0, false);
		offer(search, 896, 1, 1, 0, false);
	} else if (halves && vectors > 64 && vectors <= 128) {
		offer(search, 896, 1, 1, 0, false);
	}
	if (!halves)
		offer(search, 640, 1, 2, 0, false);
	offer(search, 512, 1, 2, halves && vectors > 256 ? 2 : 0, false);
}

static void offer_skewed(struct search *search)
{
	for (int a = 0; a < 2; a++) {
		for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
			for (int h = 0; h < 3; h++)
				offer(search, forms[f].threads, forms[f].blocks, helds[h], aheads[a], false);
		for (int h = 0; h < 3; h++)
			offer(search, 896, 1, helds[h], aheads[a], false);
	}
}

/* The offers that follow are of these rows. */
static void begin_rows(struct search *search, uint32_t vector, bool skewed)
{
	search->vector = vector;
	search->skewed = skewed;
	search->vectors =
		plan_divide_up((uint64_t)search->norm->form.columns + (skewed ? vector - 1 : 0), vector);
}

/* Rows that begin and end with a vector. */
static void offer_even(struct search *search)
{
	const struct norm_backward_problem *norm = search->norm;
	uint64_t vectors = search->vectors;

	/* A vector of 8 columns and two sums of each take 72 registers: 896 threads have them. */
	if (vectors > 896 && norm->sums > 1 && norm->need.element == 2)
		offer(search, 512, 1, 2, 0, false);
	/* Half as many threads with twice the vectors, where not quite 1024 would share a row. */
	for (uint32_t held = 1; held <= 2; held++)
		if (rows_group(vectors, held) > 512 && rows_group(vectors, held) <= 896)
			offer(search, 512, 1, 2 * held, 0, false);
	/* One warp holds a row, and waits for no other. */
	for (uint32_t threads = 1024; vectors > 32 && vectors <= 64 && threads >= 512; threads -= 256)
		offer(search, threads, 1, 2, 0, false);
	for (int a = 0; a < 3; a++)
		for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
			for (int h = 0; h < 3; h++)
				offer(search, forms[f].threads, forms[f].blocks, helds[h], aheads[a], false);
	/* Short rows lie side by side: while some threads meet, others work. */
	for (int a = 1; a < 3 && vectors > 256; a++)
		for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
			for (int h = 0; h < 3; h++)
				offer(search, forms[f].threads, forms[f].blocks, helds[h], aheads[a], true);
	/* The devices with the smallest blocks. */
	for (int h = 0; h < 3; h++)
		offer(search, search->limits->max_threads / 32 * 32, 1, helds[h], 0, false);
}

int norm_backward_all(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					  struct norm_backward_way *out, int most)
{
	uint32_t vector = rows_vector(&norm->form, &norm->need), bytes = vector * norm->need.element;
	struct search search = {.norm = norm, .limits = limits, .out = out, .most = most};
	bool skewed = bytes < 16 && can_be_skewed(norm);
	int even;

	/* Short rows leave few vectors between their ends. */
	if (skewed && bytes <= 4 && norm->form.columns * norm->need.element >= 256) {
		begin_rows(&search, 16 / norm->need.element, true);
		offer_usual_skewed(&search);
	}
	even = search.count;
	/* Rows of more vectors no block holds. */
	begin_rows(&search, vector, false);
	if (search.vectors <= 4096)
		offer_even(&search);
	if (bytes < 16 && search.count > even)
		prefer_many(out + even, search.count - even);
	if (skewed && search.count > 0) {
		begin_rows(&search, 16 / norm->need.element, true);
		offer_skewed(&search);
	}
	return search.count;
}
