/*
 * rows_choice.c: how a row is spread over threads: the candidates, and which of them the figures of
 * an H200 speak for.  Tables name some shapes (rows_usual.c), others are tried one after another,
 * and rows_cost.c puts them in order.
 */
#include "rows_search.h"

#include <string.h>

/* Shapes of staged rows, at most. */
#define STAGED_SHAPES 12
/* So short they are the first choice; longer ones of halves, and of f32 whose masks come with them,
 * but not where the ends of rows are not read. */
#define STAGED_FIRST 256
#define STAGED_FIRST_LONG 520
/* So short are rows of halves with flags of which pairs are the first choice. */
#define STAGED_FIRST_FLAGS 1100

/* Words of numbers and masks that a thread of a part of a warp has at most. */
#define PART_WORDS 90

static void offer_clusters(struct rows_search *search)
{
	static const uint32_t blocks[] = {2, 4, 8}, threads[] = {256, 512, 1024};

	if (!rows_clusters_possible(search))
		return;
	for (int b = 0; b < 3 && search->vectors >= blocks[b] * 2048; b++) {
		for (int t = 0; t < 3; t++) {
			uint32_t held =
				(uint32_t)plan_divide_up(search->vectors, (uint64_t)blocks[b] * threads[t]);
			for (uint32_t slots = 0; slots <= held; slots += held / 4 ? held / 4 : 1)
				rows_offer(search, held, slots, 1, blocks[b]);
		}
	}
}

/* Long steps for long rows; a block is busy with all of its threads for two steps at least. */
static void offer_streams(struct rows_search *search)
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
			if ((shape.held * rows_words_held(search) + 16 + search->need->around) * shape.size >
				65536)
				continue;
			if (shape.held * rows_words_held(search) <= 48 &&
				shape.held * search->need->streams <= 8 &&
				(shape.size * shape.held <= search->vectors || (shape.held == 1 && t == 2)))
				rows_keep(search, &shape);
		}
	}
}

/*
 * Every number of vectors a thread with which fewer threads do, in registers or in slots; as many
 * rows as fill blocks of 32 to 512 threads.
 */
static void offer_helds(struct rows_search *search)
{
	static const uint32_t helds[] = {2, 1, 4, 3, 8, 5, 6, 16, 7, 12, 10, 13};

	for (size_t h = 0; h < sizeof(helds) / sizeof(helds[0]); h++) {
		uint32_t held = helds[h], size = rows_group(search->vectors, held);
		if (held > 1 && rows_group(search->vectors, held - 1) == size)
			continue;
		for (uint32_t rows = 1; rows == 1 || (size * rows <= 512 && rows <= 32); rows *= 2)
			if (size >= 32 || size * rows >= 64)
				rows_offer(search, held, 0, rows, 1);
		if (search->vectors >= 256) {
			rows_offer(search, held, held / 2, 1, 1);
			if (held >= 8)
				rows_offer(search, held, held - held / 4, 1, 1);
			rows_offer(search, held, held, 1, 1);
		}
	}
}

/*
 * Skewed rows of halves are more to compute than to move: parts of warps that leave few lanes idle
 * take them, with more vectors than registers are reckoned for, and several rows' ends at once.
 */
static void offer_parts(struct rows_search *search)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;

	if (!shape.skewed || !need->converted || !need->uneven || need->streams != 1)
		return;
	shape.cluster = 1;
	for (shape.size = 4; shape.size <= 64; shape.size *= 2) {
		shape.held = (uint32_t)plan_divide_up(search->vectors, shape.size);
		/* Words as they came are gone by the time that numbers are made of the last. */
		if (shape.held * rows_words(shape.vector * need->converted) > need->registers ||
			shape.held * rows_words(shape.vector * (need->converted + need->beside)) > PART_WORDS)
			continue;
		for (uint32_t threads = 64; threads <= 256; threads *= 2) {
			shape.rows = threads / shape.size;
			if (threads <= search->limits->max_threads)
				rows_keep(search, &shape);
		}
	}
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
	struct rows_search search = {form, need, limits, 0, false, {0}, out, 0, most};
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
	rows_offer_known(&search);
	rows_offer_usual(&search);
	offer_helds(&search);
	offer_parts(&search);
	offer_streams(&search);
	offer_clusters(&search);
	if (need->drawn && need->element < 8)
		rows_order(form, need, limits, search.timed, out, search.count);
	search.count = search.count < most - STAGED_SHAPES ? search.count : most - STAGED_SHAPES;
	ordered = search.count;
	rows_offer_staged(&search);
	if (need->element == 4 ? need->aside > 0
						   : need->staged_far && need->streams == 1 && !need->along)
		first = STAGED_FIRST_LONG;
	if (need->element == 2 && need->pairs && need->beside == 1)
		first = STAGED_FIRST_FLAGS;
	/* Single halves are too little to move at once. */
	if (search.base.gapped ? vector * need->element == 2 : form->columns * need->element <= first)
		bring_first(out, ordered, search.count);
	return search.count;
}
