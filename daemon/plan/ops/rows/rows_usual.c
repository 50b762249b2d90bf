/*
 * rows_usual.c: tables of the shapes that were the best on an H200, for the lengths that were timed
 * one by one: many small independent blocks, of 128 threads as long as a row needs no more; one or
 * two vectors of 16 bytes a thread up to 2048 vectors a row, twice that for elements of 2 bytes,
 * then more, in slots; a part of a warp for rows of less than 32 vectors; clusters for rows that do
 * not fit a block, and only for them.  For other lengths they are a beginning, and rows_cost.c may
 * know better.
 */
#include "rows_search.h"

/*
 * A shape for rows of at most so many vectors.  rows 0: as many as fill 128 threads; threads 0: as
 * many as the vectors need.
 */
struct usual {
	uint64_t vectors;
	uint32_t held, quarters; /* how much of what is held lies in slots */
	uint32_t rows, cluster, threads;
};

#define USUAL_END UINT64_MAX

/* Elements of 4 and 8 bytes, and of 2, which take more instructions a byte. */
static const struct usual usual_wide[] = {
	{32, 1, 0, 0, 1, 0},   {128, 2, 0, 0, 1, 0},          {2048, 2, 0, 1, 1, 0},
	{8192, 8, 4, 1, 1, 0}, {USUAL_END, 8, 3, 1, 4, 1024},
};
static const struct usual usual_narrow[] = {
	{32, 1, 0, 0, 1, 0},   {128, 2, 0, 0, 1, 0},    {256, 4, 0, 2, 1, 0},
	{512, 4, 0, 4, 1, 0},  {1024, 4, 0, 2, 1, 0},   {2048, 4, 0, 1, 1, 0},
	{4096, 4, 4, 1, 1, 0}, {8192, 8, 3, 1, 2, 512}, {USUAL_END, 8, 3, 1, 4, 512},
};
/* The tables for kernels with operands along the row. */
static const struct usual usual_wide_along[] = {
	{32, 1, 0, 0, 1, 0},          {128, 2, 0, 0, 1, 0},  {512, 2, 0, 1, 1, 0},
	{1024, 4, 0, 2, 1, 0},        {2048, 4, 0, 1, 1, 0}, {8192, 16, 2, 1, 1, 0},
	{USUAL_END, 8, 3, 1, 8, 512},
};
static const struct usual usual_narrow_along[] = {
	{16, 1, 0, 0, 1, 0},   {32, 2, 0, 0, 1, 0},   {64, 2, 0, 0, 1, 0},
	{128, 4, 0, 2, 1, 0},  {512, 4, 0, 2, 1, 0},  {1024, 4, 0, 1, 1, 0},
	{2048, 8, 3, 1, 1, 0}, {8192, 8, 4, 1, 1, 0}, {USUAL_END, 16, 2, 1, 2, 512},
};
/* Two operands are held: half as many vectors of each. */
static const struct usual usual_pair[] = {
	{1024, 1, 0, 0, 1, 0}, {2048, 2, 0, 1, 1, 0},        {4096, 4, 2, 1, 1, 0},
	{8192, 8, 2, 1, 1, 0}, {USUAL_END, 8, 3, 1, 8, 512},
};

static const struct usual *usual_table(const struct rows_need *need)
{
	if (need->streams > 1 && !need->along)
		return usual_pair;
	if (need->along)
		return need->element == 2 ? usual_narrow_along : usual_wide_along;
	return need->element == 2 ? usual_narrow : usual_wide;
}

void rows_offer_usual(struct rows_search *search)
{
	const struct usual *usual = usual_table(search->need);
	uint32_t held, size, rows;

	/* A row has one warp as long as that can hold it: the ends of skewed rows cost each warp
	 * alike. */
	if (search->base.skewed && search->vectors <= 8 * 32)
		rows_offer(search, (uint32_t)plan_divide_up(search->vectors, 32), 0, 4, 1);
	while (search->vectors > usual->vectors)
		usual++;
	held = usual->held;
	if (usual->threads)
		held = (uint32_t)plan_divide_up(search->vectors, (uint64_t)usual->threads * usual->cluster);
	while (rows_group(plan_divide_up(search->vectors, usual->cluster), held) >
		   search->limits->max_threads)
		held *= 2;
	size = rows_group(plan_divide_up(search->vectors, usual->cluster), held);
	rows = usual->rows ? usual->rows : size < 128 ? 128 / size : 1;
	/* Rows of other lengths than were timed leave threads without work; those of a softmax that
	 * hold many vectors do not wait for others then. */
	if (!search->timed && search->need->drawn && !search->need->along && size >= 64 && held > 2)
		rows = 1;
	if (search->need->uneven && size * rows > 64 && size >= 32)
		rows = size < 64 ? 64 / size : 1;
	if (usual->cluster > 1 && !rows_clusters_possible(search))
		return;
	rows_offer(search, held, held * usual->quarters / 4, rows, usual->cluster);
}

/* A shape for rows of at most so many vectors; held 0: the tables and the model know better. */
struct known {
	uint64_t vectors;
	uint32_t cluster, held, slots;
};

/* Softmax of lengths that are in no table: never all of a row in slots.  Halves, f32, and halves of
 * the backward. */
static const struct known known_narrow[] = {
	{1664, 0, 0, 0},  {1760, 1, 5, 0},      {3200, 0, 0, 0},   {3840, 1, 8, 4},   {4096, 1, 4, 2},
	{4608, 1, 8, 4},  {5888, 0, 0, 0},      {6144, 1, 6, 6},   {7168, 0, 0, 0},   {8192, 1, 16, 12},
	{14336, 2, 7, 6}, {18432, 0, 0, 0},     {20480, 8, 10, 8}, {26624, 8, 13, 9}, {28672, 0, 0, 0},
	{32768, 8, 8, 6}, {USUAL_END, 0, 0, 0},
};
static const struct known known_wide[] = {
	{11264, 0, 0, 0},  {12288, 4, 6, 5}, {31744, 0, 0, 0}, {32512, 8, 8, 4},     {36864, 0, 0, 0},
	{40960, 8, 10, 8}, {57344, 0, 0, 0}, {65536, 8, 8, 6}, {USUAL_END, 0, 0, 0},
};
static const struct known known_pair[] = {
	{3600, 0, 0, 0},  {4096, 1, 10, 8}, {6144, 0, 0, 0},  {6496, 1, 7, 7},
	{7168, 0, 0, 0},  {8192, 4, 4, 2},  {12288, 8, 3, 2}, {16384, 8, 4, 3},
	{26624, 0, 0, 0}, {28672, 8, 7, 7}, {32768, 8, 4, 3}, {USUAL_END, 0, 0, 0},
};

/* Parts of warps and warps that have a skewed masked row of halves, and rows of a block.  Warps
 * with a row each are best at testing flags of long ones. */
static bool known_masked(const struct rows_search *search, struct rows_shape *shape)
{
	uint64_t vectors = search->vectors;
	bool flags = search->need->beside == 1;

	if (flags && vectors > 512) {
		shape->size = rows_group(vectors, 3);
		shape->rows = 1;
	} else if (flags && vectors > 5 * 16) {
		shape->size = 32;
		shape->rows = 1;
	} else {
		shape->size = vectors <= 7 * 8 ? 8 : 16;
		shape->rows = 64 / shape->size;
	}
	shape->held = (uint32_t)plan_divide_up(vectors, shape->size);
	return search->need->beside <= 2 && vectors > 32 &&
		   shape->held <= (shape->size >= 32 ? 4u : 7u) &&
		   shape->size * shape->rows <= search->limits->max_threads;
}

void rows_offer_known(struct rows_search *search)
{
	const struct rows_need *need = search->need;
	const struct known *known = need->element == 4  ? known_wide
								: need->streams > 1 ? known_pair
													: known_narrow;
	struct rows_shape shape = search->base;
	int first = search->count;

	shape.cluster = 1;
	if (!need->drawn || need->element > 4)
		return;
	if (need->uneven) {
		if (need->converted && need->streams == 1 && shape.skewed && known_masked(search, &shape))
			rows_keep(search, &shape);
	} else if (!need->along && (need->element == 2 || need->streams == 1)) {
		while (search->vectors > known->vectors)
			known++;
		/* The ends of skewed rows take registers: a block of four vectors a thread would be
		 * alone. */
		if (shape.skewed && known->cluster == 1 && known->held == 4)
			rows_offer(search, 8, 4, 1, 1);
		else if (known->held && (known->cluster == 1 || rows_clusters_possible(search)))
			rows_offer(search, known->held, known->slots, 1, known->cluster);
	}
	/* Two vectors a thread would leave a quarter of the threads idle: half as many have three
	 * each. */
	if (need->element == 2 && need->streams == 1 && !need->along && !shape.skewed &&
		((search->vectors > 64 && search->vectors < 96) ||
		 (need->uneven && search->vectors > 32 && search->vectors <= 48)))
		rows_offer(search, 3, 0, need->uneven ? 4 : 2, 1);
	search->timed = search->timed || search->count > first;
}
