/*
 * norm_backward_warps.c: dx, dgamma and dbeta of rows without gaps between them, of which each warp
 * has some come into shared memory of its own (kernel_src/ops/norm_backward_warps.cuh).
 */
#include "norm_backward.h"

#include <string.h>

#define WARPS_LEAST 6
/* Shared memory of a multiprocessor, at least. */
#define WARPS_SHARED 131072
/* Elements of a row that a lane has, at most. */
#define WARPS_HELD 40
/* Rows of a piece at most, one a lane; bytes of a piece that are enough; barriers. */
#define WARPS_ROWS 32
#define WARPS_PIECE 4096
#define WARPS_BESIDE 1024
/* Bytes of pieces of odd rows that are under way in a block, at least. */
#define WARPS_FLYING 60000

static uint32_t row_bytes(const struct norm_backward_problem *norm)
{
	return (uint32_t)norm->form.columns * norm->need.element;
}

static uint32_t place_of(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way)
{
	uint32_t loose = way->shape.vector * norm->need.element == 16 ? 0 : 15;

	return (uint32_t)plan_divide_up(way->shape.rows * row_bytes(norm) + loose, 16) * 16;
}

/* Warps, or so many warps as share a row, that have pieces come together. */
static uint32_t teams_of(const struct norm_backward_way *way)
{
	return way->blocks * 32 / (way->shape.size > 32 ? way->shape.size : 32);
}

static uint32_t sums_of(const struct norm_backward_problem *norm,
						const struct norm_backward_way *way)
{
	return teams_of(way) * (uint32_t)norm->sums * (uint32_t)norm->form.columns * 4;
}

/* Do rows side by side in a piece begin so near to one another in the banks of shared memory that
 * lanes wait for one another?  A warp takes rows that are further apart where a piece has more. */
static bool is_crowded(const struct norm_backward_problem *norm,
					   const struct norm_backward_way *way)
{
	uint32_t bytes = way->shape.vector * norm->need.element, apart = row_bytes(norm) % 128;

	apart = apart < 64 ? apart : 128 - apart;
	return bytes < 8 && apart < way->shape.size * bytes;
}

/* As many rows a piece as there is room for, and as few as give every warp as many pieces. */
static bool cut(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
				struct norm_backward_way *way)
{
	uint32_t room = (limits->shared_optin - WARPS_BESIDE) / teams_of(way) / 2, side, most;
	uint32_t least = way->shape.vector * norm->need.element < 8 ? 3 : 2;
	uint64_t rows = (uint64_t)norm->form.rows, warps, turns, each;

	side = way->shape.size < 32 ? 32 / way->shape.size : 1;
	/* One more where dx leaves by way of a place. */
	for (way->stages = 4; way->stages >= least; way->stages--) {
		most = (room / way->stages - 32) / row_bytes(norm);
		if (most && (most * row_bytes(norm) >= WARPS_PIECE / 2 || way->stages == least))
			break;
	}
	if (way->stages < least)
		return false;
	if (most * row_bytes(norm) > WARPS_PIECE)
		most = WARPS_PIECE / row_bytes(norm) ? WARPS_PIECE / row_bytes(norm) : 1;
	most = way->shape.size > 32 ? 1 : most > WARPS_ROWS ? WARPS_ROWS : most;
	most = most > side ? most / side * side : most;
	if (most == side && side > 1 && is_crowded(norm, way) &&
		2 * (2 * side * row_bytes(norm) + 32) <= room) {
		most = 2 * side;
		way->stages = 2;
	}
	warps = (uint64_t)limits->multiprocessors * teams_of(way);
	turns = plan_divide_up(rows, warps * most);
	each = plan_divide_up(rows, warps * turns);
	each = most > side ? (uint64_t)plan_divide_up(each, side) * side : each;
	way->shape.rows = (uint32_t)(each < most ? each : most);
	/* The first pieces come late where more bytes are under way than is needed. */
	while (least > 2 && way->shape.size <= 32 && way->stages > 2 &&
		   teams_of(way) * 2 * place_of(norm, way) * (way->stages - 1) >= WARPS_FLYING)
		way->stages--;
	return sums_of(norm, way) <= limits->shared_optin - WARPS_BESIDE;
}

/* One more, if there is room. */
static bool offer_warps(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, uint32_t vector, uint32_t lanes,
						uint32_t held, struct norm_backward_way *way)
{
	uint32_t numbers = held * vector, each = lanes > 32 ? lanes / 32 : 1;

	memset(way, 0, sizeof(*way));
	way->kind = NORM_BACKWARD_WARPS;
	way->blocks = (numbers <= 16 ? 16 : numbers <= 24 ? 12 : 8) / each * each;
	way->shape =
		(struct rows_shape){.vector = vector, .held = held, .size = lanes, .rows = 1, .cluster = 1};
	return way->blocks >= WARPS_LEAST && numbers <= WARPS_HELD && cut(norm, limits, way);
}

/* Lanes that share an odd row: the fewest that have no more columns each than so many. */
static uint32_t lanes_of_odd(uint32_t columns)
{
	static const uint32_t lanes[] = {4, 8, 16, 32, 64, 96, 128, 160, 192, 256};
	static const uint32_t most[] = {32, 23, 16, 20};

	for (size_t l = 0; l < sizeof(lanes) / sizeof(lanes[0]); l++)
		if (columns <= lanes[l] * most[l < 3 ? l : 3])
			return lanes[l];
	return 0;
}

#define ODD_ONE_SUM 448 /* columns, at most, where there is one sum */

/*
 * Rows of narrow vectors.  Short ones of which no other way takes aligned vectors do better so;
 * longer ones of halves where those leave more than three of sixteen threads idle.
 */
static bool is_usual_odd(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way, const struct norm_backward_way *first)
{
	uint32_t columns = (uint32_t)norm->form.columns, element = norm->need.element;
	uint32_t vectors = (columns + 14) / 8;

	if (norm->need.alignment < 16 || way->shape.size != lanes_of_odd(columns))
		return false;
	if (!first || !first->shape.skewed)
		return way->shape.size == 4 || way->shape.vector == 1;
	return way->shape.vector == 1 && element == 2 && (norm->sums > 1 || columns <= ODD_ONE_SUM) &&
		   first->kind == NORM_BACKWARD_ALL &&
		   vectors * 16 < first->shape.size * first->shape.held * 13;
}

/*
 * Those that did better than all other ways when they were timed: for so many vectors of a row, of
 * 16 bytes or of 8.  Teams of three and five warps do better than those of two, four or eight; why
 * is not known.
 */
static bool is_usual(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					 uint64_t vectors)
{
	uint32_t element = norm->need.element, held = way->shape.held;
	uint64_t room = (uint64_t)way->shape.size * held;

	if (way->shape.vector * element == 8)
		return way->shape.size == 8 && (held == 5 || held == 6);
	if (way->shape.vector * element != 16)
		return false;
	if (way->shape.size == 8)
		return element == 2 && norm->sums == 1 && held == 3;
	if (way->shape.size == 96)
		return held == 2 && vectors * 12 >= room * (element == 2 ? 11 : 9);
	if (way->shape.size != 160)
		return false;
	return held == 3 || (element == 4 && (held == 2 || held == 5) && vectors * 8 >= room * 7);
}

int norm_backward_warps(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, const struct norm_backward_way *first,
						struct norm_backward_way *out, int most, bool *usual)
{
	static const uint32_t lanes[] = {32, 16, 8, 4, 64, 96, 128, 160, 192, 256};
	uint32_t vector = rows_vector(&norm->form, &norm->need);
	uint64_t vectors = plan_divide_up((uint64_t)norm->form.columns, vector);
	int count = 0;

	*usual = false;
	if (norm->need.element > 4 || norm->pieces || norm->form.rows == 0 || norm->form.rank > 1 ||
		norm->form.columns > 8192 || limits->shared_optin < WARPS_SHARED ||
		(strcmp(limits->target, "cpu") != 0 && !rows_clusters(&norm->form, 1, limits)))
		return 0;
	for (int i = 0; i < norm->form.operands; i++)
		if (norm->form.step[i] != 1 ||
			(norm->form.rank > 0 && norm->form.stride[i][0] != norm->form.columns))
			return 0;
	for (size_t l = 0; l < sizeof(lanes) / sizeof(lanes[0]) && count < most; l++) {
		uint32_t held = (uint32_t)plan_divide_up(vectors, lanes[l]);
		struct norm_backward_way way;

		if (vectors < lanes[l] || vectors * 4 < (uint64_t)held * lanes[l] * 3 ||
			(lanes[l] > 32 && held * vector < 8) ||
			!offer_warps(norm, limits, vector, lanes[l], held, &way))
			continue;
		out[count++] = way;
		if (!*usual && (vector * norm->need.element < 8 ? is_usual_odd(norm, &way, first)
														: is_usual(norm, &way, vectors))) {
			memmove(&out[1], &out[0], sizeof(way) * (size_t)(count - 1));
			out[0] = way;
			*usual = true;
		}
	}
	return count;
}

void norm_backward_warps_launch(const struct norm_backward_problem *norm,
								const struct norm_backward_way *way,
								const struct kernel_limits *limits, struct kernel_plan *out)
{
	uint64_t pieces = plan_divide_up((uint64_t)norm->form.rows, way->shape.rows), blocks, pitch;
	uint32_t shared = teams_of(way) * way->stages * 2 * place_of(norm, way);

	blocks = limits->multiprocessors < pieces ? limits->multiprocessors : pieces;
	pitch = plan_divide_up((uint64_t)norm->form.columns, 4) * 4;
	plan_launch(out, limits, blocks, way->blocks * 32);
	out->shared_bytes = shared > sums_of(norm, way) ? shared : sums_of(norm, way);
	out->scratch = (struct kernel_scratch){.bytes = 256 + blocks * (uint64_t)norm->sums * pitch * 4,
										   .counters = 256};
}
