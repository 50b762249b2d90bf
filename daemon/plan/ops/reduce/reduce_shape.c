/*
 * reduce_shape.c: how the rows of a reduction are spread over threads.
 *
 * A short row takes part of a warp, a middling one a warp, a long one a block; where a row is less
 * than a thread ought to have on its way, threads take several rows.  Rows longer than a block
 * ought to read are cut into chunks, by their length alone.
 */
#include "reduce.h"

#include <stdio.h>
#include <string.h>

#define LONG_VECTORS 6144    /* rows of more are cut */
#define CHUNK_BYTES 65536    /* of a row */
#define CHUNKS_MOST 8192     /* of a row */
#define COLUMNS_THREADS 256u /* of a block */
#define LEAF_COLUMNS 8       /* columns of a chunk, for each value of a row */
#define COLUMNS_CHUNKS 1024
#define LONG_CHUNKS 8      /* of a variance's columns, at least, if they are the longest */
#define WHOLE_COLUMNS 1024 /* that one block takes */
#define WHOLE_VECTORS 512  /* that eight threads of a generic kernel take */
#define FLAT_COLUMNS 0x3fffffff

uint32_t reduce_value_bytes(const struct reduce_form *form)
{
	uint32_t wide = form->dtype == KILN_F64 || form->dtype == KILN_I64 ? 8 : 4;

	switch (form->kind) {
	case REDUCE_SUM:
	case REDUCE_PROD:
		return plan_is_float(form->dtype) ? wide : 8;
	case REDUCE_ANY:
	case REDUCE_ALL:
		return 4;
	case REDUCE_ARGMAX:
	case REDUCE_ARGMIN:
		return wide == 8 || form->columns > INT32_MAX / 2 ? 16 : 8;
	case REDUCE_LOGSUMEXP:
		return 2 * wide;
	case REDUCE_VAR:
		return 3 * wide;
	default:
		return wide;
	}
}

int64_t reduce_vectors(const struct reduce_form *form, uint32_t vector)
{
	return plan_divide_up(form->columns + (form->skewed ? (int64_t)vector - 1 : 0), vector);
}

int64_t reduce_chunks(const struct reduce_form *form, const struct reduce_shape *shape)
{
	int64_t all = shape->side ? reduce_vectors(form, shape->vector) : form->columns;

	return shape->chunk ? plan_divide_up(all, shape->chunk) : 1;
}

static int64_t tiles_of(const struct reduce_form *form, const struct reduce_shape *shape)
{
	return plan_divide_up(form->kept.rows, (int64_t)shape->lanes * shape->vector);
}

struct kernel_scratch reduce_scratch(const struct reduce_form *form,
									 const struct reduce_shape *shape)
{
	uint64_t chunks = (uint64_t)reduce_chunks(form, shape), values = (uint64_t)form->kept.rows;
	/* A generic kernel keeps integers as 64 bits. */
	uint64_t bytes = reduce_value_bytes(form) < 8 ? 8 : 2 * (uint64_t)reduce_value_bytes(form);
	uint64_t counters = values;

	if (chunks < 2)
		return (struct kernel_scratch){0};
	if (shape->side == 0) {
		counters = (uint64_t)tiles_of(form, shape);
		values = counters * shape->lanes * shape->vector;
	}
	counters = (counters * 4 + 255) / 256 * 256;
	return (struct kernel_scratch){.bytes = counters + values * chunks * bytes,
								   .counters = counters};
}

static void keep(struct reduce_shape *shapes, int *count, struct reduce_shape shape,
				 const struct reduce_form *form, const struct kernel_limits *limits)
{
	uint32_t threads = shape.side ? shape.size * shape.side : shape.lanes * shape.split;
	bool known = threads > limits->max_threads;

	/* Results that are too many for their parts to be kept are made by whole blocks. */
	if (reduce_scratch(form, &shape).bytes > KERNEL_SCRATCH_MAX)
		shape.chunk = 0;
	for (int i = 0; i < *count; i++)
		known = known || memcmp(&shapes[i], &shape, sizeof(shape)) == 0;
	if (!known && *count < REDUCE_SHAPES)
		shapes[(*count)++] = shape;
}

/* Vectors of a chunk, 0 for rows that are not cut. */
static int64_t rows_chunk(int64_t vectors, uint32_t bytes)
{
	int64_t each = CHUNK_BYTES / bytes, chunks;

	if (vectors <= LONG_VECTORS * (16 / (int64_t)bytes))
		return 0;
	chunks = plan_divide_up(vectors, each);
	chunks = chunks < CHUNKS_MOST ? chunks : CHUNKS_MOST;
	return plan_divide_up(plan_divide_up(vectors, chunks), 256) * 256;
}

static void short_shapes(const struct reduce_form *form, const struct kernel_limits *limits,
						 struct reduce_shape *shapes, int *count)
{
	int64_t vectors = reduce_vectors(form, form->vector);
	struct reduce_shape shape = {.vector = form->vector, .held = 1, .times = 4};

	if (vectors <= 32) {
		static const uint32_t helds[] = {1, 2, 4};
		for (int i = 0; i < 3 && (i == 0 || vectors > 4); i++) {
			shape.held = helds[i];
			shape.times = 4 / helds[i];
			shape.size = plan_power_of_two(plan_divide_up(vectors, shape.held), 32);
			shape.side = 128 / shape.size;
			keep(shapes, count, shape, form, limits);
		}
	} else if (vectors <= 256) {
		shape.size = 32;
		shape.held = (uint32_t)plan_divide_up(vectors, 32);
		shape.times = shape.held >= 4 ? 1 : shape.held == 1 ? 4 : 2;
		shape.side = 4;
		keep(shapes, count, shape, form, limits);
		shape.side = 8;
		keep(shapes, count, shape, form, limits);
	}
}

/* Are a row's columns an argument of the kernel? */
bool reduce_is_long(const struct reduce_form *form, const struct reduce_shape *shape)
{
	return shape->side && (shape->chunk || form->open);
}

static int row_shapes(const struct reduce_form *form, const struct kernel_limits *limits,
					  struct reduce_shape shapes[REDUCE_SHAPES])
{
	static const uint32_t ways[][2] = {{256, 4}, {128, 4}, {512, 4}, {256, 8}, {256, 2}, {1024, 4}};
	enum { MOST = sizeof(ways) / sizeof(ways[0]) };
	int64_t vectors = reduce_vectors(form, form->vector);
	int64_t chunk = rows_chunk(vectors, form->vector * form->element);
	int count = 0, first;

	if (!form->open)
		short_shapes(form, limits, shapes, &count);
	if (vectors > 256 && vectors <= 512 && !form->open)
		keep(shapes, &count,
			 (struct reduce_shape){form->vector, (uint32_t)plan_divide_up(vectors, 128), 128, 1, 1,
								   .chunk = 0},
			 form, limits);
	/* A vector's place takes a division if a row is of several pieces: fewer registers leave room
	 * for more threads. */
	first = form->rank > 1 && (chunk || form->open) ? 4 : 0;
	for (int i = 0; i < MOST && (vectors > 128 || form->open); i++) {
		const uint32_t *way = ways[i == 0 ? first : i <= first ? i - 1 : i];
		keep(shapes, &count,
			 (struct reduce_shape){form->vector, way[1], way[0], 1, 1, .chunk = chunk}, form,
			 limits);
	}
	/* Blocks of 32 threads run on any device. */
	if (count == 0)
		keep(shapes, &count, (struct reduce_shape){form->vector, 4, 32, 1, 1, .chunk = 0}, form,
			 limits);
	return count;
}

/* A block of 256 threads, or of as many as the device has. */
static struct reduce_shape column_shape(const struct reduce_form *form, uint32_t lanes,
										uint32_t held, uint32_t threads)
{
	struct reduce_shape shape = {.vector = form->vector, .held = held};
	int64_t chunk;
	uint32_t leaves;

	/* Values of a row: 32 where rows are wide, and fewer where there are fewer columns. */
	leaves = threads / lanes > 32 ? threads / lanes : 32;
	if (!form->open)
		leaves = plan_power_of_two(form->columns, leaves);
	shape.held = leaves < held ? leaves : held;
	while (shape.held > 1 && leaves / shape.held < threads / lanes &&
		   (form->open || form->columns > leaves))
		shape.held /= 2;
	shape.unroll = 4 / shape.held;
	shape.split = leaves / shape.held;
	shape.lanes = threads / shape.split;
	chunk = (int64_t)leaves * LEAF_COLUMNS;
	if (form->columns < 2 * chunk)
		return shape;
	shape.chunk = plan_divide_up(form->columns, COLUMNS_CHUNKS);
	shape.chunk = shape.chunk > chunk ? plan_divide_up(shape.chunk, leaves) * leaves : chunk;
	return shape;
}

/* Few values of a row, many columns of each at a time, and long chunks. */
static void keep_unrolled(const struct reduce_form *form, const struct kernel_limits *limits,
						  uint32_t most, struct reduce_shape *shapes, int *count)
{
	static const uint32_t ways[][5] = {/* lanes, threads, held, unroll, chunk */
									   {16, 256, 1, 8, 0},   {32, 256, 1, 8, 1024},
									   {32, 256, 1, 8, 512}, {16, 256, 1, 8, 1024},
									   {16, 256, 1, 8, 512}, {8, 256, 1, 8, 0}};
	/* A variance has three numbers for each element, and the end of a chunk takes its time. */
	static const uint32_t var_ways[][5] = {
		{32, 256, 1, 8, 2048}, {32, 128, 1, 8, 1024}, {16, 256, 1, 4, 0},    {32, 256, 1, 4, 1024},
		{32, 256, 1, 4, 2048}, {32, 256, 1, 4, 512},  {32, 256, 1, 8, 1024}, {16, 256, 1, 4, 1024},
		{16, 256, 1, 8, 0},    {32, 256, 1, 2, 1024}, {16, 256, 1, 4, 2048}, {8, 256, 1, 4, 0}};
	bool var = form->kind == REDUCE_VAR;
	size_t count_ways =
		var ? sizeof(var_ways) / sizeof(var_ways[0]) : sizeof(ways) / sizeof(ways[0]);
	/* Blocks are enough without chunks if others number rows besides those side by side. */
	bool many = form->kept.rank > 1 && form->columns <= WHOLE_COLUMNS && !form->open;

	for (size_t i = 0; i < count_ways; i++) {
		const uint32_t *way = var ? var_ways[i] : ways[i];
		struct reduce_shape shape = {.vector = form->vector, .held = way[2]};
		int64_t leaves;
		bool few = i == 0 && var && form->columns < LONG_CHUNKS * (int64_t)way[4];
		if ((!way[4] && !many) || (few && !form->open))
			continue;
		shape.lanes = most < way[0] ? most : way[0];
		shape.split = way[1] / shape.lanes;
		shape.unroll = way[3];
		shape.chunk = few ? way[4] / 2 : way[4];
		leaves = shape.split * shape.held;
		/* One kernel takes any number of columns if they are a batch. */
		if (!form->open &&
			(form->columns < leaves * shape.unroll || form->columns < 2 * shape.chunk))
			continue;
		if (form->columns < 2 * shape.chunk)
			shape.chunk = 0;
		else if (shape.chunk && form->columns > shape.chunk * COLUMNS_CHUNKS)
			shape.chunk =
				plan_divide_up(plan_divide_up(form->columns, COLUMNS_CHUNKS), leaves) * leaves;
		keep(shapes, count, shape, form, limits);
	}
}

static int column_shapes(const struct reduce_form *form, const struct kernel_limits *limits,
						 struct reduce_shape shapes[REDUCE_SHAPES])
{
	uint32_t threads = COLUMNS_THREADS, lanes;
	int count = 0;

	while (threads > limits->max_threads)
		threads /= 2;
	lanes = plan_power_of_two(plan_divide_up(form->inner, form->vector), 32);
	keep_unrolled(form, limits, lanes, shapes, &count);
	keep(shapes, &count, column_shape(form, lanes, 4, threads), form, limits);
	keep(shapes, &count, column_shape(form, lanes, 2, threads), form, limits);
	if (threads > 128)
		keep(shapes, &count, column_shape(form, lanes, 4, 128), form, limits);
	return count;
}

int reduce_shapes(const struct reduce_form *form, const struct kernel_limits *limits,
				  struct reduce_shape shapes[REDUCE_SHAPES])
{
	return form->strided ? column_shapes(form, limits, shapes) : row_shapes(form, limits, shapes);
}

/* The generic kernel takes rows that begin between two vectors where REDUCE_IS_FLAT holds
 * (reduce.cuh), and element by element elsewhere. */
static bool is_flat(const struct reduce_form *form)
{
	return form->kept.rank <= 2 && form->rank == 1 && form->columns <= FLAT_COLUMNS;
}

struct reduce_shape reduce_generic_shape(const struct reduce_form *form,
										 const struct kernel_limits *limits)
{
	bool narrow = form->vector * form->element != 16 ||
				  (!plan_is_float(form->dtype) && form->element < 4) ||
				  (form->skewed && !is_flat(form));
	struct reduce_shape shape = {.vector = narrow ? 1 : form->vector, .held = 4, .times = 1};
	struct reduce_form plain = *form;
	int64_t vectors;

	plain.skewed = form->skewed && !narrow;
	if (form->strided && limits->max_threads >= COLUMNS_THREADS) {
		shape = column_shape(&plain, 32, 4, COLUMNS_THREADS);
		shape.vector = 1;
		shape.held = 4;
		shape.lanes = 32;
		shape.split = 8;
	} else {
		vectors = form->strided ? form->columns : reduce_vectors(&plain, shape.vector);
		shape.vector = form->strided ? 1 : shape.vector;
		shape.size = vectors > WHOLE_VECTORS && limits->max_threads >= 256 ? 256 : 8;
		shape.side = shape.size == 256 ? 1 : limits->max_threads < 256 ? 4 : 32;
		shape.chunk = shape.size == 256 ? rows_chunk(vectors, shape.vector * form->element) : 0;
	}
	if (reduce_scratch(&plain, &shape).bytes > KERNEL_SCRATCH_MAX)
		shape.chunk = 0;
	return shape;
}

void reduce_shape_name(const struct reduce_shape *shape, char name[KERNEL_CHOICE_MAX])
{
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (shape->side)
		plan_print(&text, "rows %ux%u r%u", shape->size, shape->held, shape->side * shape->times);
	else
		plan_print(&text, "columns %ux%ux%u u%u", shape->lanes, shape->split, shape->held,
				   shape->unroll);
	if (shape->chunk)
		plan_print(&text, " c%lld", (long long)shape->chunk);
}
