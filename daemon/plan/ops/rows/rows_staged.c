/*
 * rows_staged.c: candidates for rows that come and go by way of shared memory, several of a block
 * as one piece: short ones that begin between two vectors, or take few of them.
 */
#include "rows_search.h"

/* Bytes of a row, of a long one, and of a block's piece, at most. */
#define STAGED_BYTES 512
#define STAGED_FAR 2048
#define STAGED_PIECE 28672

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
