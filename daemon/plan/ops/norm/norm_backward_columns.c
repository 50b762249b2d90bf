/*
 * norm_backward_columns.c: how dgamma and dbeta are added up: strips of columns, chunks of rows.
 *
 * The figures of an H200 speak for strips of 32 vectors and blocks of 1024 threads, each of which
 * takes two rows in a step; for as many blocks as there are multiprocessors, and no more chunks
 * than that takes.
 */
#include "norm_backward.h"

#include <string.h>

/* Steps over the rows that a block's beginning and end are worth. */
#define STEPS_OF_A_BLOCK 4

static uint32_t compute_bytes(const struct norm_backward_problem *norm)
{
	return norm->dtype == KILN_F64 ? 8 : 4;
}

int64_t norm_backward_strip_count(const struct norm_backward_problem *norm,
								  const struct norm_backward_strips *strips)
{
	return (int64_t)plan_divide_up((uint64_t)norm->form.columns, strips->size * strips->vector);
}

uint32_t norm_backward_strip_shared(const struct norm_backward_problem *norm,
									const struct norm_backward_strips *strips)
{
	uint32_t threads = strips->size * strips->rows;
	uint32_t parts = threads / (strips->size < 32 ? 32 : strips->size);
	uint32_t merging = parts * strips->size * strips->vector;

	return (merging > threads ? merging : threads) * compute_bytes(norm);
}

struct kernel_scratch norm_backward_strip_scratch(const struct norm_backward_problem *norm,
												  const struct norm_backward_strips *strips,
												  uint32_t chunks)
{
	uint64_t count = (uint64_t)norm_backward_strip_count(norm, strips);
	uint64_t counters = plan_divide_up(count * 4, 256) * 256;
	uint64_t sums = (uint64_t)norm->sums * strips->size * strips->vector * compute_bytes(norm);

	if (strips->alone)
		return (struct kernel_scratch){0, 0};
	return (struct kernel_scratch){.bytes = counters + count * chunks * sums, .counters = counters};
}

/* Blocks that there is room for at once. */
static uint64_t room_for(const struct norm_backward_strips *strips,
						 const struct kernel_limits *limits)
{
	return limits->multiprocessors ? (uint64_t)limits->multiprocessors * strips->blocks : 1;
}

/* The time that so many chunks take, in steps of a block: all blocks that find room at once take
 * the same, and the sums of a chunk take a little. */
static uint64_t cost(uint64_t strips, uint64_t chunks, uint64_t steps, uint64_t room)
{
	uint64_t waves = plan_divide_up(strips * chunks, room);

	return waves * (plan_divide_up(steps, chunks) + STEPS_OF_A_BLOCK) * 64 + chunks;
}

uint32_t norm_backward_chunk_count(const struct norm_backward_problem *norm,
								   const struct norm_backward_strips *strips,
								   const struct kernel_limits *limits)
{
	uint64_t count = (uint64_t)norm_backward_strip_count(norm, strips), best = 0;
	uint64_t room = room_for(strips, limits);
	uint64_t steps =
		plan_divide_up((uint64_t)norm->form.rows, (uint64_t)strips->rows * strips->unroll);
	uint32_t chunks = 1;

	if (strips->alone)
		return 1;
	for (uint32_t i = 1; i <= 4 * plan_divide_up(room, count) && i <= (steps ? steps : 1); i++) {
		struct kernel_scratch scratch = norm_backward_strip_scratch(norm, strips, i);
		uint64_t now = cost(count, i, steps, room);
		if (scratch.bytes > KERNEL_SCRATCH_MAX)
			break;
		if (i == 1 || now < best) {
			best = now;
			chunks = i;
		}
	}
	return chunks;
}

/* The widest vector, and how rows begin between two of them. */
static void find_vector(const struct norm_backward_problem *norm,
						struct norm_backward_strips *strips)
{
	const struct rows_form *form = &norm->form;
	uint32_t wide = 16 / norm->need.element;
	bool spread = false;

	strips->vector = rows_vector(form, &norm->need);
	for (int i = 0; i < form->operands; i++)
		spread = spread || (norm->need.held & 1u << i && form->step[i] != 1);
	if (strips->vector < wide && !spread && form->columns >= 4 * (int64_t)wide) {
		strips->vector = wide;
		strips->skewed = true;
	}
}

static uint32_t strip_size(const struct norm_backward_problem *norm, uint32_t vector)
{
	uint32_t size = 1;

	while (size < 32 && (int64_t)size * vector < norm->form.columns)
		size *= 2;
	return size;
}

/* Finds out if there are so many strips that chunks of rows would not help.  The number of rows has
 * no say, since the answer makes another kernel. */
static void find_alone(const struct norm_backward_problem *norm,
					   struct norm_backward_strips *strips, const struct kernel_limits *limits)
{
	uint64_t count = (uint64_t)norm_backward_strip_count(norm, strips);

	strips->alone = count >= 4 * room_for(strips, limits);
}

bool norm_backward_strips_of(const struct norm_backward_problem *norm,
							 const struct kernel_limits *limits, uint32_t threads,
							 struct norm_backward_strips *strips)
{
	memset(strips, 0, sizeof(*strips));
	find_vector(norm, strips);
	strips->size = strip_size(norm, strips->vector);
	strips->rows = threads / strips->size;
	strips->unroll = strips->blocks = 1;
	find_alone(norm, strips, limits);
	return threads % strips->size == 0 &&
		   norm_backward_strip_shared(norm, strips) <= limits->shared_optin;
}

int norm_backward_columns(const struct norm_backward_problem *norm,
						  const struct kernel_limits *limits, struct norm_backward_strips *out,
						  int most)
{
	static const struct {
		uint32_t threads, unroll, blocks;
	} forms[] = {{1024, 1, 1}, {1024, 2, 1}, {512, 4, 2}, {512, 2, 2},
				 {512, 4, 1},  {256, 4, 4},  {512, 1, 2}, {256, 2, 4}};
	struct norm_backward_strips base = {0};
	uint32_t size, most_threads = limits->max_threads;
	int count = 0;

	find_vector(norm, &base);
	size = strip_size(norm, base.vector);
	/* 1024 threads have 64 registers each, too few for the ends of two rows of f64. */
	if (norm->dtype == KILN_F64 && base.skewed && most_threads > 512)
		most_threads = 512;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]) && count < most; i++) {
		/* Two rows at once are best, where 1024 threads have the registers. */
		size_t f = base.skewed || norm->dtype == KILN_F64 || i > 1 ? i : 1 - i;
		struct norm_backward_strips strips = base;
		uint32_t threads = forms[f].threads;
		bool known = false;
		strips.size = size;
		strips.unroll = forms[f].unroll;
		strips.blocks = forms[f].blocks;
		for (strips.rows = threads / size;
			 threads > most_threads ||
			 norm_backward_strip_shared(norm, &strips) > limits->shared_optin;
			 strips.rows = threads / size)
			threads = threads > most_threads ? most_threads / 32 * 32 : threads / 2;
		find_alone(norm, &strips, limits);
		for (int k = 0; k < count; k++)
			known = known || memcmp(&out[k], &strips, sizeof(strips)) == 0;
		if (!known)
			out[count++] = strips;
	}
	return count;
}
