/*
 * norm_backward_all.c: dx, dgamma and dbeta by threads that hold rows, and the sums of their columns
 * over all rows that they come to.
 *
 * As many blocks as find room at once, and no more than it takes for the same number of rows each:
 * every block leaves a set of sums behind.
 */
#include "norm_backward.h"

#include <string.h>

/* Registers of a thread that hold no row and no sum. */
#define OTHER_REGISTERS 22

static uint64_t divide_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit;
}

static uint32_t compute_words(const struct norm_backward_problem *norm)
{
	return norm->dtype == KILN_F64 ? 2 : 1;
}

/* Sums, rows as they come, and what is computed of them: registers of a thread. */
static uint32_t registers(const struct norm_backward_problem *norm,
						  const struct norm_backward_way *way)
{
	uint32_t elements = way->shape.held * way->shape.vector, words;

	words = divide_up(way->shape.vector * norm->need.element, 4) * way->shape.held * 2;
	return elements * compute_words(norm) * ((uint32_t)norm->sums + 2) + words * way->ahead +
		   OTHER_REGISTERS;
}

static uint32_t shared_bytes(const struct norm_backward_problem *norm,
							 const struct norm_backward_way *way)
{
	uint32_t threads = way->shape.size * way->shape.rows;
	uint32_t parts = threads / (way->shape.size < 32 ? 32 : way->shape.size);
	uint32_t merging = parts * way->shape.size * way->shape.vector * way->shape.held;

	return (merging > threads ? merging : threads) * compute_words(norm) * 4;
}

static struct kernel_scratch scratch(const struct norm_backward_problem *norm, uint64_t blocks)
{
	uint64_t sums = (uint64_t)norm->sums * (uint64_t)norm->form.columns * compute_words(norm) * 4;

	return (struct kernel_scratch){.bytes = 256 + blocks * sums, .counters = 256};
}

/* Blocks of a grid. */
static uint64_t grid_of(const struct norm_backward_problem *norm,
						const struct norm_backward_way *way, const struct kernel_limits *limits)
{
	uint64_t room = (uint64_t)limits->multiprocessors * way->blocks;
	uint64_t sets = divide_up((uint64_t)norm->form.rows, way->shape.rows);

	room = room < limits->grid_x ? room : limits->grid_x;
	if (room == 0 || sets == 0)
		return 1;
	return divide_up(sets, divide_up(sets, room));
}

void norm_backward_all_launch(const struct norm_backward_problem *norm,
							  const struct norm_backward_way *way,
							  const struct kernel_limits *limits, struct kernel_plan *out)
{
	uint64_t blocks = grid_of(norm, way, limits);

	out->kind = KERNEL_LAUNCH;
	out->grid[0] = (uint32_t)blocks;
	out->block[0] = way->shape.size * way->shape.rows;
	out->grid[1] = out->grid[2] = out->block[1] = out->block[2] = 1;
	out->shared_bytes = shared_bytes(norm, way);
	out->scratch = scratch(norm, blocks);
}

/* Threads of a row that holds so many vectors in each. */
static uint32_t size_of(uint64_t vectors, uint32_t held)
{
	uint64_t size = divide_up(vectors, held), power = 1;

	if (size > 32)
		return (uint32_t)(divide_up(size, 32) * 32);
	while (power < size)
		power *= 2;
	return (uint32_t)power;
}

static bool fits(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
				 const struct kernel_limits *limits)
{
	uint32_t threads = way->shape.size * way->shape.rows;

	return threads <= limits->max_threads && threads % 32 == 0 &&
		   (way->shape.rows < 16 || way->shape.size <= 32) &&
		   registers(norm, way) * threads * way->blocks <= 65536 && registers(norm, way) <= 255 &&
		   shared_bytes(norm, way) * way->blocks <= limits->shared_optin &&
		   scratch(norm, grid_of(norm, way, limits)).bytes <= KERNEL_SCRATCH_MAX;
}

int norm_backward_all(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					  struct norm_backward_way *out, int most)
{
	static const struct {
		uint32_t threads, blocks;
	} forms[] = {{1024, 1}, {512, 2}, {512, 1}, {768, 1}, {256, 4}, {256, 2}, {128, 8}};
	static const uint32_t helds[] = {1, 2, 4};
	uint32_t vector = rows_vector(&norm->form, &norm->need);
	uint64_t vectors = divide_up((uint64_t)norm->form.columns, vector);
	int count = 0;

	if (vectors > 4096)
		return 0;
	for (int ahead = 1; ahead >= 0; ahead--) {
		for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
			for (size_t h = 0; h < sizeof(helds) / sizeof(helds[0]) && count < most; h++) {
				struct norm_backward_way way = {
					.kind = NORM_BACKWARD_ALL, .blocks = forms[f].blocks, .ahead = ahead != 0};
				way.shape = (struct rows_shape){.vector = vector, .held = helds[h], .cluster = 1};
				way.shape.size = size_of(vectors, helds[h]);
				way.shape.rows = forms[f].threads / way.shape.size;
				if (way.shape.rows > 15 && way.shape.size > 32)
					way.shape.rows = 15;
				if (way.shape.rows > 0 && helds[h] <= vectors && fits(norm, &way, limits))
					out[count++] = way;
			}
		}
	}
	return count;
}
