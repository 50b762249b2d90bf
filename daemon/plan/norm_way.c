/*
 * norm_way.c: the ways to take a row of layer_norm or rms_norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm.h"

#include <string.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_REGISTERS 40
/* Registers that a thread needs beside them. */
#define NORM_BESIDE 40
/* Candidates of rows that are each held by themselves; others come behind them. */
#define NORM_SHAPES 34

static uint32_t element_of(const struct norm_problem *norm)
{
	return kernel_dtype_bytes(norm->dtype);
}

static struct rows_need need_of(const struct norm_problem *norm, uint32_t together)
{
	struct rows_need need = norm->need;

	need.element = element_of(norm);
	need.streams = together * (norm->residual >= 0 ? 2 : 1);
	need.registers = NORM_REGISTERS;
	need.along = norm->at.gamma >= 0 || norm->at.beta >= 0;
	need.skew = together == 1;
	need.slots = need.clusters = true;
	need.stream = together == 1;
	return need;
}

/* 32-bit words of numbers that a thread computes with. */
static uint32_t numbers(const struct norm_problem *norm, const struct norm_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint32_t element = element_of(norm), inputs = norm->residual >= 0 ? 2 : 1;
	uint32_t elements = (shape->held - shape->slots) * shape->vector * way->together;

	if (element == 2 && elements > 32)
		return elements / 2 * inputs + 16; /* they stay halves; some of them are numbers */
	return elements * (element == 8 ? 2 : 1);
}

/* Does a thread have registers enough? */
static bool fits(const struct norm_problem *norm, const struct norm_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint32_t threads = shape->size * shape->rows, most = 65536 / threads / 8 * 8;

	return shape->stream || numbers(norm, way) + NORM_BESIDE <= most;
}

struct ways {
	const struct norm_problem *norm;
	const struct kernel_limits *limits;
	struct norm_way *out;
	int count;
};

/* One more, if a thread has room for it. */
static void keep(struct ways *ways, const struct norm_way *way)
{
	if (ways->count < NORM_MAX_WAYS && fits(ways->norm, way))
		ways->out[ways->count++] = *way;
}

static void offer_shapes(struct ways *ways, uint32_t together, int most)
{
	struct rows_shape shapes[NORM_MAX_WAYS];
	struct rows_need need = need_of(ways->norm, together);
	int count = rows_shapes(&ways->norm->form, &need, ways->limits, shapes, NORM_MAX_WAYS);

	most += ways->count;
	for (int i = 0; i < count && ways->count < most; i++)
		keep(ways, &(struct norm_way){.shape = shapes[i], .together = together});
}

/* ---- Wrapped rows (kernel_src/common/norm_wrap.cuh) ---- */

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
	uint32_t vector = 16 / element_of(norm);

	return (uint32_t)((norm->form.columns + vector - 1) / vector);
}

/* Shared memory: planes of what belongs to each column. */
static uint64_t wrap_bytes(const struct norm_problem *norm, bool wide)
{
	uint32_t number = norm->dtype == KILN_F64 ? 8 : 4, vector = 16 / element_of(norm);
	uint32_t bytes = (norm->at.gamma >= 0 ? number : 0) + (norm->at.beta >= 0 ? number : 0);

	if (packs(norm) && !wide)
		bytes = 4;
	return (uint64_t)(2 * vector - 1) * wrap_vectors(norm) * bytes;
}

/* `threads` of a block, as far as a row lets it be so. */
static void offer_wrap(struct ways *ways, uint32_t held, uint32_t threads, uint32_t each, bool wide)
{
	uint32_t vectors = wrap_vectors(ways->norm), size = 1;
	struct norm_way way = {.together = 1, .each = each, .wide = wide};

	while (size < 32 && size * held < vectors)
		size *= 2;
	if (size * held < vectors)
		size = (vectors + 32 * held - 1) / (32 * held) * 32;
	/* Fewer of them would do. */
	if (held > 1 && size * (held - 1) >= vectors)
		return;
	way.shape = (struct rows_shape){.vector = 16 / element_of(ways->norm),
									.held = held,
									.size = size,
									.rows = size < threads ? threads / size : 1,
									.cluster = 1,
									.skewed = true};
	if (size * way.shape.rows > ways->limits->max_threads ||
		wrap_bytes(ways->norm, wide) > ways->limits->shared_optin)
		return;
	for (int i = 0; i < ways->count; i++)
		if (memcmp(&ways->out[i], &way, sizeof(way)) == 0)
			return;
	keep(ways, &way);
}

/*
 * As few threads a row as can hold it, but for short rows, and one warp for rows of 1023 halves; many
 * rows a block, which share what it takes to fill the planes.
 */
static void offer_wraps(struct ways *ways)
{
	static const uint32_t threads[] = {256, 128, 512, 64};
	uint32_t vectors = wrap_vectors(ways->norm), most = element_of(ways->norm) == 2 ? 4 : 8, usual;

	usual = vectors <= 32 ? 1 : vectors <= 64 ? 2 : most;
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
	for (uint32_t held = most; held > 0; held /= 2)
		for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
			offer_wrap(ways, held, threads[t], 1, false);
}

/* ---- All of them ---- */

int norm_ways(const struct norm_problem *norm, const struct kernel_limits *limits,
			  struct norm_way out[NORM_MAX_WAYS])
{
	struct ways ways = {norm, limits, out, 0};
	struct rows_need need = need_of(norm, 1);
	struct rows_shape first;
	bool skewed = rows_shapes(&norm->form, &need, limits, &first, 1) == 1 && first.skewed;

	if (skewed && norm->form.columns <= 1 << 20)
		offer_wraps(&ways);
	offer_shapes(&ways, 1, skewed ? NORM_MAX_WAYS : NORM_SHAPES);
	for (uint32_t together = 2; together <= 3 && !skewed; together++)
		offer_shapes(&ways, together, (NORM_MAX_WAYS - NORM_SHAPES) / 2);
	return ways.count;
}

void norm_way_name(const struct norm_way *way, char name[KERNEL_CHOICE_MAX])
{
	const struct rows_shape *shape = &way->shape;
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (way->each) {
		plan_print(&text, "wrap %ux%u r%u e%u%s", shape->size, shape->held, shape->rows, way->each,
				   way->wide ? " wide" : "");
		return;
	}
	rows_shape_name(shape, name);
	text.used = strlen(name);
	if (way->together > 1)
		plan_print(&text, " t%u", way->together);
}

bool norm_launch(const struct norm_problem *norm, const struct norm_way *way,
				 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct rows_need need = need_of(norm, way->together);
	struct rows_form form = norm->form;
	uint32_t taken = way->together * (way->each ? way->each : 1);
	bool loop;

	/* What a group takes counts as one row. */
	form.rows = (form.rows + taken - 1) / taken;
	loop = rows_launch(&form, &need, &way->shape, limits, out);
	if (way->each)
		out->shared_bytes = (uint32_t)wrap_bytes(norm, way->wide);
	return loop;
}

void norm_note(const struct norm_problem *norm, const struct norm_way *way, struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;
	struct plan_text text = {.text = out->note, .size = sizeof(out->note)};

	plan_print(&text, "rows of %lld elements: %u threads a row, %u vectors of %u bytes each",
			   (long long)norm->form.columns, shape->size * shape->cluster, shape->held,
			   shape->vector * element_of(norm));
	if (way->together > 1)
		plan_print(&text, ", %u rows together", way->together);
	if (way->each)
		plan_print(&text, "; gamma and beta by way of shared memory, for rows begin between two "
						  "vectors");
}
