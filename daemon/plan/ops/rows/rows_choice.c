/*
 * rows_choice.c: how a row is spread over threads: the candidates, and which of them the figures of
 * an H200 speak for.
 *
 * Tables say it for the lengths that were timed one by one: many small independent blocks, of 128
 * threads as long as a row needs no more; one or two vectors of 16 bytes a thread up to 2048
 * vectors a row, twice that for elements of 2 bytes, then more, in slots; a part of a warp for rows
 * of less than 32 vectors; clusters for rows that do not fit a block, and only for them.  For other
 * lengths they are a beginning, and rows_cost.c may know better.
 */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

uint32_t rows_narrow(const struct rows_form *form, int operand, uint32_t element, uint32_t bytes)
{
	for (int k = 0; k < form->rank; k++)
		while (bytes > element && (uint64_t)form->stride[operand][k] * element % bytes)
			bytes /= 2;
	return bytes;
}

uint32_t rows_vector(const struct rows_form *form, const struct rows_need *need)
{
	uint32_t bytes = need->alignment < 16 ? need->alignment : 16;

	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1 && form->columns > 1)
			return 1;
		bytes = rows_narrow(form, i, need->element, bytes);
	}
	while (bytes > need->element && form->columns * need->element % bytes)
		bytes /= 2;
	return bytes > need->element ? bytes / need->element : 1;
}

bool rows_congruent(const struct rows_form *form, const struct rows_need *need)
{
	int64_t unit = 16 / need->element;
	int first = -1;

	if (need->alignment < 16)
		return false;
	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1)
			return false;
		first = first < 0 ? i : first;
		for (int k = 0; k < form->rank; k++)
			if ((form->stride[i][k] - form->stride[first][k]) % unit)
				return false;
	}
	return true;
}

bool rows_clusters(const struct rows_form *form, uint32_t blocks,
				   const struct kernel_limits *limits)
{
	return strncmp(limits->target, "sm_", 3) == 0 && strtol(limits->target + 3, NULL, 10) >= 90 &&
		   (uint64_t)form->rows <= limits->grid_x / blocks;
}

uint32_t rows_group(uint64_t vectors, uint32_t held)
{
	uint64_t size = plan_divide_up(vectors, held);

	if (size > 32)
		return (uint32_t)plan_divide_up(size, 32) * 32;
	for (uint32_t power = 1;; power *= 2)
		if (power >= size)
			return power;
}

/* Rows by way of shared memory: bytes of a row, of a long one, and of a block's piece, and
 * candidates, at most. */
#define STAGED_BYTES 512
#define STAGED_FAR 2048
#define STAGED_PIECE 28672
#define STAGED_SHAPES 8
/* So short they are the first choice; longer ones of halves, and of f32 whose masks come with them,
 * but not where the ends of rows are not read. */
#define STAGED_FIRST 256
#define STAGED_FIRST_LONG 520

/* Words of numbers and masks that a thread of a part of a warp has at most. */
#define PART_WORDS 90

struct search {
	const struct rows_form *form;
	const struct rows_need *need;
	const struct kernel_limits *limits;
	uint64_t vectors; /* that a row may touch */
	bool timed;       /* the tables were made from rows of this length */
	struct rows_shape base;
	struct rows_shape *out;
	int count, most;
};

/* Bytes that each staged row has in shared memory beside its place in a piece. */
static uint32_t staged_aside(const struct rows_form *form, const struct rows_need *need,
							 bool gapped)
{
	return gapped ? ((uint32_t)form->columns * need->element + 30) / 16 * 16 : need->aside;
}

static uint32_t rows_shape_shared_bytes(const struct rows_form *form, const struct rows_need *need,
										const struct rows_shape *shape)
{
	if (shape->staged)
		return shape->rows * ((uint32_t)form->columns * need->element * need->streams +
							  staged_aside(form, need, shape->gapped));
	return shape->slots * need->streams * shape->size * shape->rows * 16;
}

/* One more, unless it is there. */
static void rows_shape_keep(struct search *search, const struct rows_shape *shape)
{
	for (int i = 0; i < search->count; i++)
		if (memcmp(&search->out[i], shape, sizeof(*shape)) == 0)
			return;
	if (search->count < search->most)
		search->out[search->count++] = *shape;
}

static uint32_t words_of(uint32_t bytes)
{
	return (bytes + 3) / 4;
}

/* 32-bit words that a thread has of each vector. */
static uint32_t words_held(const struct search *search)
{
	const struct rows_need *need = search->need;
	uint32_t vector = search->base.vector;
	uint32_t words = words_of(vector * need->element) + words_of(vector * need->converted);

	return words * need->streams + words_of(vector * need->beside);
}

static void offer(struct search *search, uint32_t held, uint32_t slots, uint32_t rows,
				  uint32_t cluster)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;
	uint32_t words = words_held(search);

	shape.held = held;
	shape.slots = slots;
	shape.cluster = cluster;
	shape.size = rows_group(plan_divide_up(search->vectors, cluster), held);
	shape.rows = rows;
	/* A block is whole warps. */
	while (shape.size * shape.rows % 32)
		shape.rows *= 2;
	if (shape.size * shape.rows > search->limits->max_threads ||
		(held - slots) * words > need->registers ||
		(slots && rows_shape_shared_bytes(search->form, need, &shape) + ROWS_SHARED_MEET >
					  search->limits->shared_optin))
		return;
	if (slots && (!need->slots || shape.vector * need->element != 16))
		return;
	/* The registers of a multiprocessor: 64 Ki words.  For clusters the compiler saves them. */
	if ((cluster > 1 && need->converted && held - slots > 6) ||
		((held - slots) * words + 24 + need->around) * shape.size * shape.rows > 65536)
		return;
	rows_shape_keep(search, &shape);
}

static bool clusters_possible(const struct search *search)
{
	return search->need->clusters && rows_clusters(search->form, 8, search->limits) &&
		   search->vectors >= 4096;
}

static void offer_clusters(struct search *search)
{
	static const uint32_t blocks[] = {2, 4, 8}, threads[] = {256, 512, 1024};

	if (!clusters_possible(search))
		return;
	for (int b = 0; b < 3 && search->vectors >= blocks[b] * 2048; b++) {
		for (int t = 0; t < 3; t++) {
			uint32_t held =
				(uint32_t)plan_divide_up(search->vectors, (uint64_t)blocks[b] * threads[t]);
			for (uint32_t slots = 0; slots <= held; slots += held / 4 ? held / 4 : 1)
				offer(search, held, slots, 1, blocks[b]);
		}
	}
}

/* ---- What an H200 likes ---- */

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

static void offer_usual(struct search *search)
{
	const struct usual *usual = usual_table(search->need);
	uint32_t held, size, rows;

	/* One warp a row as long as it can: what sticks out costs each warp alike. */
	if (search->base.skewed && search->vectors <= 8 * 32)
		offer(search, (uint32_t)plan_divide_up(search->vectors, 32), 0, 4, 1);
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
	if (usual->cluster > 1 && !clusters_possible(search))
		return;
	offer(search, held, held * usual->quarters / 4, rows, usual->cluster);
}

/* A shape for rows of at most so many vectors; held 0: the tables and the model know better. */
struct known {
	uint64_t vectors;
	uint32_t cluster, held, slots;
};

/* Softmax of lengths that are in no table: never all of a row in slots.  Halves, f32, and halves of
 * the backward. */
static const struct known known_narrow[] = {
	{3200, 0, 0, 0},   {4096, 1, 8, 4},  {8192, 0, 0, 0},  {14336, 2, 7, 6},     {20480, 0, 0, 0},
	{26624, 8, 13, 9}, {28672, 0, 0, 0}, {32768, 8, 8, 6}, {USUAL_END, 0, 0, 0},
};
static const struct known known_wide[] = {
	{36864, 0, 0, 0}, {40960, 8, 10, 8}, {57344, 0, 0, 0}, {65536, 8, 8, 6}, {USUAL_END, 0, 0, 0},
};
static const struct known known_pair[] = {
	{3600, 0, 0, 0}, {4096, 1, 10, 8}, {28672, 0, 0, 0}, {32768, 8, 4, 3}, {USUAL_END, 0, 0, 0},
};

/* Parts of warps and warps that have a skewed masked row of halves, and rows of a block.  Warps
 * with a row each are best at testing flags. */
static bool known_masked(const struct search *search, struct rows_shape *shape)
{
	uint64_t vectors = search->vectors;
	bool flags = search->need->beside == 1;

	if (flags && vectors > 512) {
		shape->size = rows_group(vectors, 3);
		shape->rows = 1;
	} else if (flags && vectors > 7 * 8) {
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

static void offer_known(struct search *search)
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
			rows_shape_keep(search, &shape);
	} else if (!need->along && (need->element == 2 || need->streams == 1)) {
		while (search->vectors > known->vectors)
			known++;
		if (known->held && (known->cluster == 1 || clusters_possible(search)))
			offer(search, known->held, known->slots, 1, known->cluster);
	}
	search->timed = search->timed || search->count > first;
}

/* Long steps for long rows; a block is busy with all of its threads for two steps at least. */
static void offer_streams(struct search *search)
{
	static const uint32_t threads[] = {1024, 512, 256}, helds[] = {4, 2, 1, 8};
	uint32_t most = search->limits->max_threads / 32 * 32;
	struct rows_shape shape = search->base;

	if (!search->need->stream)
		return;
	shape.stream = true;
	shape.rows = shape.cluster = 1;
	for (int h = 0; h < 4; h++) {
		for (int t = 0; t < 3; t++) {
			shape.held = search->vectors < 16384 && h < 2 ? helds[1 - h] : helds[h];
			shape.size = threads[t] < most ? threads[t] : most;
			if ((shape.held * words_held(search) + 16 + search->need->around) * shape.size > 65536)
				continue;
			if (shape.held * words_held(search) <= 48 && shape.held * search->need->streams <= 8 &&
				(shape.size * shape.held <= search->vectors || (shape.held == 1 && t == 2)))
				rows_shape_keep(search, &shape);
		}
	}
}

/*
 * Every number of vectors a thread with which fewer threads do, in registers or in slots; as many
 * rows as fill blocks of 32 to 512 threads.
 */
static void offer_helds(struct search *search)
{
	static const uint32_t helds[] = {2, 1, 4, 3, 8, 5, 6, 16, 7, 12, 10, 13};

	for (size_t h = 0; h < sizeof(helds) / sizeof(helds[0]); h++) {
		uint32_t held = helds[h], size = rows_group(search->vectors, held);
		if (held > 1 && rows_group(search->vectors, held - 1) == size)
			continue;
		for (uint32_t rows = 1; rows == 1 || (size * rows <= 512 && rows <= 32); rows *= 2)
			if (size >= 32 || size * rows >= 64)
				offer(search, held, 0, rows, 1);
		if (search->vectors >= 256) {
			offer(search, held, held / 2, 1, 1);
			if (held >= 8)
				offer(search, held, held - held / 4, 1, 1);
			offer(search, held, held, 1, 1);
		}
	}
}

/*
 * Skewed rows of halves are more to compute than to move: parts of warps that leave few lanes idle
 * take them, with more vectors than registers are reckoned for, and several rows' ends at once.
 */
static void offer_parts(struct search *search)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;

	if (!shape.skewed || !need->converted || !need->uneven || need->streams != 1)
		return;
	shape.cluster = 1;
	for (shape.size = 4; shape.size <= 64; shape.size *= 2) {
		shape.held = (uint32_t)plan_divide_up(search->vectors, shape.size);
		/* Words as they came are gone by the time that numbers are made of the last. */
		if (shape.held * words_of(shape.vector * need->converted) > need->registers ||
			shape.held * words_of(shape.vector * (need->converted + need->beside)) > PART_WORDS)
			continue;
		for (uint32_t threads = 64; threads <= 256; threads *= 2) {
			shape.rows = threads / shape.size;
			if (threads <= search->limits->max_threads)
				rows_shape_keep(search, &shape);
		}
	}
}

/* Do the elements of rows lie side by side, in tensors that are aligned?  *gaps: the rows of a held
 * operand do not lie one behind the other. */
static bool side_by_side(const struct rows_form *form, const struct rows_need *need, bool *gaps)
{
	*gaps = false;
	for (int i = 0; i < form->operands; i++) {
		int64_t next = form->columns;
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1)
			return false;
		for (int k = form->rank - 1; k >= 0; next *= form->size[k--])
			*gaps = *gaps || form->stride[i][k] != next;
	}
	return need->alignment >= 16;
}

/* Parts of warps that take rows of a piece. */
static void offer_pieces(struct search *search)
{
	const struct rows_form *form = search->form;
	uint32_t row = (uint32_t)form->columns * search->need->element;
	uint32_t vector = search->base.vector, vectors;
	/* The best first: with gamma and beta many elements a thread, with a mask few if they do. */
	static const uint32_t usual[] = {20, 32, 16, 8, 4}, along[] = {32, 20, 16, 8, 4},
						  masked[] = {10, 20, 32, 16, 8};
	const uint32_t *mosts = usual;

	if (search->base.skewed && search->need->along && !search->need->uneven)
		mosts = along;
	else if (search->need->beside == 1 && form->columns <= 80)
		mosts = masked;

	vectors = ((uint32_t)form->columns + (search->base.skewed ? 2 * vector - 2 : 0)) / vector;
	search->vectors = vectors;
	for (int m = 0; m < 5; m++) {
		uint32_t held = mosts[m] / vector, size = rows_group(vectors, held);
		held = (uint32_t)plan_divide_up(vectors, size);
		for (uint32_t threads = 128; threads <= 256 && size <= 32; threads *= 2) {
			uint32_t bytes = threads / size * row;
			if (bytes % 16 == 0 &&
				bytes * search->need->streams +
						threads / size * staged_aside(form, search->need, search->base.gapped) <=
					STAGED_PIECE &&
				rows_group(vectors, held) == size)
				offer(search, held, 0, threads / size, 1);
		}
	}
}

/*
 * Rows by way of shared memory: short ones that begin between two vectors, or take so few that
 * lanes would stay idle.  One part of a warp for each row, which takes as many elements at once as
 * a bank of shared memory has bytes for: also where a row begins in the middle of one, if x and y
 * lie in the same place.
 */
static void offer_staged(struct search *search)
{
	const struct rows_form *form = search->form;
	uint32_t element = search->need->element, vector = rows_vector(form, search->need);
	uint32_t row = (uint32_t)form->columns * element;
	int64_t longest = search->need->staged_far ? STAGED_FAR : STAGED_BYTES;
	bool gaps;

	if (!search->need->staged || element > 4 || form->columns * element > longest ||
		!side_by_side(form, search->need, &gaps) || (gaps && !search->need->gapped))
		return;
	/* Whole vectors that leave few lanes idle need no help. */
	if (vector * element == 16 && (gaps || row >= 128 || (row & (row - 1)) == 0))
		return;
	search->base.staged = true;
	search->base.gapped = gaps;
	/* The elements of a mask begin elsewhere; logarithms gain nothing. */
	search->base.skewed = element == 2 && vector % 2 != 0 && !gaps && search->need->beside == 0 &&
						  (search->need->around == 0 || search->need->uneven);
	search->base.vector = element == 2 && (vector % 2 == 0 || search->base.skewed) ? 2 : 1;
	offer_pieces(search);
	if (!search->base.skewed)
		return;
	search->base.skewed = false;
	search->base.vector = 1;
	offer_pieces(search);
}

/* Brings shapes [from, count) before the others. */
static void bring_first(struct rows_shape *shapes, int from, int count)
{
	for (int i = from; i < count; i++) {
		struct rows_shape shape = shapes[i];
		memmove(shapes + i - from + 1, shapes + i - from, (size_t)from * sizeof(*shapes));
		shapes[i - from] = shape;
	}
}

int rows_shapes(const struct rows_form *form, const struct rows_need *need,
				const struct kernel_limits *limits, struct rows_shape *out, int most)
{
	struct search search = {form, need, limits, 0, false, {0}, out, 0, most};
	uint32_t vector = rows_vector(form, need), wide = 16 / need->element;
	int ordered, first = STAGED_FIRST;

	search.base.vector = vector;
	search.vectors = plan_divide_up((uint64_t)form->columns, vector);
	if (vector < wide && need->skew && form->columns >= 4 * (int64_t)wide &&
		rows_congruent(form, need)) {
		search.base.vector = wide;
		search.base.skewed = true;
		search.vectors = plan_divide_up((uint64_t)form->columns + 2 * wide - 2, wide);
	}
	if (form->columns > INT32_MAX / 2) {
		offer_streams(&search);
		return search.count;
	}
	/* Lengths that the tables were made from, without a mask. */
	search.timed =
		!need->around && ((form->columns & (form->columns - 1)) == 0 || form->columns == 768);
	offer_known(&search);
	offer_usual(&search);
	offer_helds(&search);
	offer_parts(&search);
	offer_streams(&search);
	offer_clusters(&search);
	if (need->drawn && need->element < 8)
		rows_order(form, need, limits, search.timed, out, search.count);
	search.count = search.count < most - STAGED_SHAPES ? search.count : most - STAGED_SHAPES;
	ordered = search.count;
	offer_staged(&search);
	if (need->element == 4 ? need->aside > 0
						   : need->staged_far && need->streams == 1 && !need->along)
		first = STAGED_FIRST_LONG;
	/* Single halves are too little to move at once. */
	if (search.base.gapped ? vector * need->element == 2 : form->columns * need->element <= first)
		bring_first(out, ordered, search.count);
	return search.count;
}

void rows_shape_name(const struct rows_shape *shape, char name[KERNEL_CHOICE_MAX])
{
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (shape->stream) {
		plan_print(&text, "stream %ux%u", shape->size, shape->held);
		return;
	}
	if (shape->cluster > 1)
		plan_print(&text, "cluster%u %ux%u", shape->cluster, shape->size, shape->held);
	else
		plan_print(&text, "%s %ux%u",
				   shape->gapped   ? "gapped"
				   : shape->staged ? (shape->skewed ? "paired" : "staged")
				   : shape->slots  ? "slots"
				   : shape->skewed ? "skewed"
				   : shape->wide   ? "wide"
				   : shape->narrow ? "narrow"
								   : "rows",
				   shape->size, shape->held);
	if (shape->slots)
		plan_print(&text, "/%u", shape->slots);
	if (shape->cluster == 1)
		plan_print(&text, " r%u", shape->rows);
}

int rows_shape_find(const struct rows_shape *shapes, int count, const char *name)
{
	for (int i = 0; i < count; i++) {
		char known[KERNEL_CHOICE_MAX];
		rows_shape_name(&shapes[i], known);
		if (!name || strcmp(name, known) == 0)
			return i;
	}
	return -1;
}

void rows_print_shape(struct plan_text *text, kiln_dtype dtype, const struct rows_form *form,
					  const struct rows_shape *shape)
{
	const char *skewed = shape->skewed ? "true" : "false";

	plan_print(text, "%s<%s, %lld, %u, %u", shape->stream ? "RowStream" : "RowShape",
			   plan_dtype_name(dtype), (long long)form->columns, shape->vector, shape->held);
	if (shape->stream)
		plan_print(text, ", %u, %s>", shape->size, skewed);
	else
		plan_print(text, ", %u, %u, %u, %u, %s>", shape->slots, shape->size, shape->rows,
				   shape->cluster, skewed);
}

uint32_t rows_alignment(const struct rows_shape *shape, uint32_t element)
{
	return shape->staged ? 16 : shape->vector * element;
}

bool rows_launch(const struct rows_form *form, const struct rows_need *need,
				 const struct rows_shape *shape, const struct kernel_limits *limits,
				 struct kernel_plan *out)
{
	uint64_t blocks = plan_divide_up((uint64_t)form->rows, shape->rows) * shape->cluster;

	out->shared_bytes = rows_shape_shared_bytes(form, need, shape);
	return plan_launch(out, limits, blocks, shape->size * shape->rows);
}
