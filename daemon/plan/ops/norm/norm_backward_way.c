/*
 * norm_backward_way.c: the ways to take the backward of a norm, and which of them the figures of an
 * H200 speak for.
 */
#include "norm_backward.h"

#include <stdio.h>
#include <string.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_BACKWARD_REGISTERS 96
/* Candidates of the kind BOTH, at most. */
#define BOTH_WAYS 16

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

int norm_backward_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS])
{
	struct norm_backward_strips strips[NORM_BACKWARD_MAX_WAYS];
	int count;

	if (norm->at.dx < 0) {
		count = norm_backward_columns(norm, limits, strips, NORM_BACKWARD_MAX_WAYS);
		for (int i = 0; i < count; i++)
			out[i] = (struct norm_backward_way){.kind = NORM_BACKWARD_COLUMNS, .strips = strips[i]};
		return count;
	}
	if (norm->sums == 0)
		return rows_ways(norm, limits, out);
	count = norm_backward_all(norm, limits, out, NORM_BACKWARD_MAX_WAYS - BOTH_WAYS);
	return count + both_ways(norm, limits, out + count, BOTH_WAYS);
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
