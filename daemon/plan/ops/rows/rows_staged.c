/*
 * rows_staged.c: candidates for rows that come and go by way of shared memory, several of a block
 * as one piece: short ones that begin between two vectors, or take few of them.
 */
#include "rows_search.h"

/* Bytes of a row, of a long one, and of a block's piece, at most. */
#define STAGED_BYTES 512
#define STAGED_FAR 2048
#define STAGED_PIECE 28672

/* Threads of a block that takes rows by pairs; halves that a thread has, at most; its words, and
 * its words where flags come with them, if there is a choice. */
#define PAIRS_THREADS 128
#define PAIRS_MOST 68
#define PAIRS_FEW 14
#define PAIRS_FLAGGED 20
/* Shorter rows of an even number of halves go one by one. */
#define PAIRS_EVEN 80

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
static void offer_pieces(struct rows_search *search)
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
						threads / size *
							rows_staged_aside(form, search->need, search->base.gapped) <=
					STAGED_PIECE &&
				rows_group(vectors, held) == size)
				rows_offer(search, held, 0, threads / size, 1);
		}
	}
}

/* Returns how many lanes of a warp, at most, want different words of one bank, when each of `size`
 * threads that share a row of halves wants its first word. */
static uint32_t bank_words(uint32_t columns, uint32_t size, uint32_t apart)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < 32; i++) {
		uint32_t word = i / size * columns / 2 + i % size * apart, count = 0;
		for (uint32_t j = 0; j < 32; j++) {
			uint32_t other = j / size * columns / 2 + j % size * apart;
			count += other % 32 == word % 32 && (j == i || other != word);
		}
		most = count > most ? count : most;
	}
	return most;
}

/* Has a thread of the shape few words, and do lanes of many rows seldom want the same bank? */
static bool pairs_fit(const struct rows_search *search, const struct rows_shape *shape)
{
	uint32_t words = shape->held * (shape->vector / 2);
	bool odd = search->form->columns % 2 != 0;
	uint32_t most =
		search->need->beside == 1 && (odd || shape->size == 16) ? PAIRS_FLAGGED : PAIRS_FEW;

	return words <= most && (shape->size >= 8 || bank_words((uint32_t)search->form->columns,
															shape->size, shape->vector / 2) <= 3);
}

/* Adds rows of halves by words of two, or by two such words where flags come with them: the
 * smallest part of a warp that fits first, then others. */
static void offer_pairs(struct rows_search *search)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;
	uint32_t vectors;

	shape.pairs = shape.skewed = true;
	shape.cluster = 1;
	shape.vector = need->beside == 1 ? 4 : 2;
	vectors = ((uint32_t)search->form->columns + 2 * shape.vector - 2) / shape.vector;
	for (int fit = 1; fit >= 0; fit--) {
		for (shape.size = 2; shape.size <= 16; shape.size *= 2) {
			shape.held = (uint32_t)plan_divide_up(vectors, shape.size);
			shape.rows = PAIRS_THREADS / shape.size;
			if (pairs_fit(search, &shape) == (fit == 1) &&
				shape.held * shape.vector <= PAIRS_MOST &&
				PAIRS_THREADS <= search->limits->max_threads &&
				rows_shape_bytes(search->form, need, &shape) <= STAGED_PIECE)
				rows_keep(search, &shape);
		}
	}
}

/*
 * Rows by way of shared memory: short ones that begin between two vectors, or take so few that
 * lanes would stay idle.  A part of a warp takes each row, as many elements at once as a bank of
 * shared memory has bytes for.  A row may begin in the middle of a bank if x and y lie in the same
 * place.
 */
void rows_offer_staged(struct rows_search *search)
{
	const struct rows_form *form = search->form;
	uint32_t element = search->need->element, vector = rows_vector(form, search->need);
	uint32_t row = (uint32_t)form->columns * element;
	int64_t longest = search->need->staged_far ? STAGED_FAR : STAGED_BYTES;
	bool gaps, pairs;

	if (!search->need->staged || element > 4 || form->columns * element > longest ||
		!side_by_side(form, search->need, &gaps) || (gaps && !search->need->gapped))
		return;
	/* Whole vectors that leave few lanes idle need no help. */
	if (vector * element == 16 && (gaps || row >= 128 || (row & (row - 1)) == 0))
		return;
	search->base.staged = true;
	search->base.gapped = gaps;
	pairs = search->need->pairs && element == 2 && !gaps &&
			(vector % 2 != 0 || (search->need->beside == 1 && form->columns > PAIRS_EVEN));
	if (pairs)
		offer_pairs(search);
	/* The elements of a mask begin elsewhere; logarithms gain nothing. */
	search->base.skewed = element == 2 && vector % 2 != 0 && !gaps && !pairs &&
						  search->need->beside == 0 &&
						  (search->need->around == 0 || search->need->uneven);
	search->base.vector = element == 2 && (vector % 2 == 0 || search->base.skewed) ? 2 : 1;
	offer_pieces(search);
	if (!search->base.skewed)
		return;
	search->base.skewed = false;
	search->base.vector = 1;
	offer_pieces(search);
}
