/*
 * permute_box_find.c: which dimensions a box takes, and how it lies in shared memory.
 *
 * A box grows from its fastest dimensions, in x and in y, until its runs are long on both sides.
 * It takes short dimensions whole; the last one of a side, a part of it.
 */
#include "permute_box.h"

#include <string.h>

#define RUN_BYTES 256  /* of a run of y, wanted */
#define LEAST_RUN 16   /* bytes */
#define BRIDGED 128    /* bytes of a run that may go on over gaps, less than this */
#define GAP 64         /* bytes */
#define SHORT_RUN 4096 /* bytes of a run of y whose ends count */

bool permute_box_is_part(const struct box *box, int dim)
{
	return dim == box->part[SIDE_X] || dim == box->part[SIDE_Y];
}

/* The number of batches must not change the kernel. */
bool permute_box_is_batch(const struct permute_form *form, int dim)
{
	for (int k = 1; k < form->rank && dim == 0; k++)
		if (form->dim[k].from > form->dim[0].from)
			return false;
	return dim == 0;
}

/* The dimension that goes on where a run ends; -1: none. */
static int next_of(const struct box *box, enum box_side side)
{
	for (int k = 0; k < box->form->rank; k++) {
		const struct permute_dim *dim = &box->form->dim[k];
		if ((side == SIDE_X ? dim->from : dim->to) == box->length[side])
			return k;
	}
	return -1;
}

/* Short rows with gaps: all sectors are read anyway, so a run goes on over the gaps. */
static void bridge(struct box *box)
{
	int64_t length = box->length[SIDE_X], element = box->form->element, from = 0;

	if (box->run_dims[SIDE_X] != 1 || box->ended[SIDE_X] || length * element >= BRIDGED ||
		next_of(box, SIDE_X) >= 0)
		return;
	for (int k = 0; k < box->form->rank; k++)
		if (box->form->dim[k].from > length && (!from || box->form->dim[k].from < from))
			from = box->form->dim[k].from;
	if (!from || (from - length) * element > GAP || box->count / length * from > box->most)
		return;
	box->hole = from - length;
	box->count = box->count / length * from;
	box->length[SIDE_X] = from;
}

/* So many elements of a dimension at most: tiles of equal size, but of batches. */
static int64_t part_of(const struct box *box, int dim, int64_t most)
{
	int64_t size = box->form->dim[dim].size, tiles = plan_divide_up((uint64_t)size, (uint64_t)most);

	return permute_box_is_batch(box->form, dim)
			   ? most
			   : (int64_t)plan_divide_up((uint64_t)size, (uint64_t)tiles);
}

static void take(struct box *box, enum box_side side, int dim, int64_t extent)
{
	box->run[side][box->run_dims[side]++] = dim;
	box->length[side] *= extent;
	if (!box->extent[dim])
		box->count *= extent;
	box->extent[dim] = extent;
}

/* A run of one side becomes longer, by a dimension or by a part of one. */
static void grow(struct box *box, enum box_side side, int64_t wanted)
{
	if (side == SIDE_X)
		bridge(box);
	int dim = next_of(box, side);
	int64_t size = dim < 0 ? 0 : box->form->dim[dim].size, room = box->most / box->count;

	if (dim < 0) {
		box->ended[side] = true;
	} else if (box->extent[dim]) {
		box->part[side] = permute_box_is_part(box, dim) ? dim : -1;
		box->ended[side] = permute_box_is_part(box, dim);
		take(box, side, dim, box->extent[dim]);
	} else if (!permute_box_is_batch(box->form, dim) && size <= room &&
			   box->length[side] * size <= 2 * wanted) {
		take(box, side, dim, size);
	} else {
		int64_t most = (wanted + box->length[side] - 1) / box->length[side];
		most = most < room ? most : room;
		most = most < size || permute_box_is_batch(box->form, dim) ? most : size;
		box->ended[side] = true;
		if (most < 2)
			return;
		box->part[side] = dim;
		take(box, side, dim, part_of(box, dim, most));
	}
}

/* Adds all dimensions that make runs longer and the box no larger. */
static void grow_free(struct box *box)
{
	for (enum box_side side = SIDE_X; side < SIDES; side++)
		for (int dim = next_of(box, side); !box->ended[side] && dim >= 0 && box->extent[dim];
			 dim = next_of(box, side))
			grow(box, side, 0);
}

/* A box of few elements takes a larger part, or all of it: true, and the runs may go on. */
static bool widen(struct box *box)
{
	int dim = box->part[box->part[SIDE_Y] >= 0 ? SIDE_Y : SIDE_X];
	int64_t size = dim < 0 ? 0 : box->form->dim[dim].size, wider;
	bool batch = dim >= 0 && permute_box_is_batch(box->form, dim), whole;

	if (dim < 0)
		return false;
	wider = box->extent[dim] * (box->most / box->count);
	wider = part_of(box, dim, wider < size || batch ? wider : size);
	whole = !batch && wider == size;
	for (enum box_side side = SIDE_X; side < SIDES; side++) {
		if (box->part[side] != dim)
			continue;
		box->length[side] = box->length[side] / box->extent[dim] * wider;
		box->part[side] = whole ? -1 : dim;
		box->ended[side] = !whole;
	}
	box->count = box->count / box->extent[dim] * wider;
	box->extent[dim] = wider;
	return whole;
}

/* May a run of y take from the next dimension?  From batches where a box is small without, for a
 * batch of one has another kernel then. */
static bool may_go_on(const struct box *box)
{
	int dim = next_of(box, SIDE_Y);

	return !box->ended[SIDE_Y] &&
		   (dim < 0 || !permute_box_is_batch(box->form, dim) || box->most / box->count >= 2);
}

/* First until both runs are long enough, then until the box is full. */
static void fill(struct box *box, uint32_t run_x, uint32_t run_y)
{
	const int64_t wanted[SIDES] = {run_x / box->form->element, run_y / box->form->element};
	int64_t before;

	for (;;) {
		enum box_side side =
			box->length[SIDE_X] * wanted[SIDE_Y] < box->length[SIDE_Y] * wanted[SIDE_X] ? SIDE_X
																						: SIDE_Y;
		if (box->ended[side] || box->length[side] >= wanted[side])
			side = !side;
		if (box->ended[side] || box->length[side] >= wanted[side])
			break;
		grow(box, side, wanted[side]);
	}
	do {
		before = box->count;
		grow_free(box);
		if (box->part[SIDE_X] < 0 && box->part[SIDE_Y] < 0 && may_go_on(box))
			grow(box, SIDE_Y, box->most);
		grow_free(box);
	} while (widen(box) || box->count > before);
}

/* Are runs of y short, and does each go on in a box of another item?  Then these write their common
 * sectors soon after each other. */
static bool goes_on(const struct box *box)
{
	int dim = next_of(box, SIDE_Y);

	return box->length[SIDE_Y] * box->form->element < SHORT_RUN && dim > 0 && !box->extent[dim] &&
		   (box->part[SIDE_X] >= 0 || box->part[SIDE_Y] >= 0);
}

static bool in_run(const struct box *box, enum box_side side, int dim)
{
	for (int i = 0; i < box->run_dims[side]; i++)
		if (box->run[side][i] == dim)
			return true;
	return false;
}

/* The dimensions that number the runs of a side, a part of one last: how many. */
int permute_box_numbering(const struct box *box, enum box_side side, int dims[PERMUTE_MAX_DIMS])
{
	int count = 0, last = -1;

	for (int k = box->form->rank - 1; k >= 0; k--) {
		int at = count;
		if (!box->extent[k] || in_run(box, side, k))
			continue;
		if (permute_box_is_part(box, k)) {
			last = k;
			continue;
		}
		/* Runs of y whose elements are neighbours in x follow each other. */
		for (;
			 side == SIDE_Y && at > 0 && box->form->dim[k].from < box->form->dim[dims[at - 1]].from;
			 at--)
			dims[at] = dims[at - 1];
		dims[at] = k;
		count++;
	}
	if (last >= 0)
		dims[count++] = last;
	return count;
}

static int64_t up(int64_t n)
{
	return (n + 15) / 16 * 16;
}

/* Distances in shared memory: of a run as in x, of runs congruent to those in x, and no two runs in
 * one aligned piece, wherever they begin. */
static void lay_out(struct box *box)
{
	int64_t element = box->form->element, bytes = box->length[SIDE_X] * element, pitch = 0;
	int64_t end = up(bytes + 16 - element);
	int dims[PERMUTE_MAX_DIMS], count = permute_box_numbering(box, SIDE_X, dims);

	for (int i = 0; i < box->run_dims[SIDE_X]; i++)
		box->near[box->run[SIDE_X][i]] = box->form->dim[box->run[SIDE_X][i]].from * element;
	for (int i = 0; i < count; i++) {
		int64_t past = box->form->dim[dims[i]].from % 16 * element % 16, least = pitch;
		if (i == 0)
			least = end;
		pitch = least / 16 * 16 + past;
		while (pitch < least)
			pitch += 16;
		if (i == 0 && pitch % 32 == 0)
			pitch += 16;
		box->near[dims[i]] = pitch;
		end += (box->extent[dims[i]] - 1) * pitch;
		pitch *= box->extent[dims[i]];
	}
	box->shared = (uint32_t)(up(end + 32) + 127) / 128 * 128;
}

/* The dimensions that are not in the box; behind them batches of which it takes a part. */
void permute_box_batch(const struct box *box, struct permute_batch *batch)
{
	uint32_t mask = 0;

	for (int k = 0; k < box->form->rank; k++)
		if (box->extent[k])
			mask |= 1u << k;
	permute_batch(box->form, mask, false, batch);
	if (permute_box_is_part(box, 0) && permute_box_is_batch(box->form, 0)) {
		batch->inner += batch->outer >= 0;
		batch->outer = 0;
	}
}

/* Elements that stay together are taken together, to 4 bytes. */
static void in_words(const struct permute_form *form, struct permute_form *words)
{
	int last = form->rank - 1;
	uint32_t width = 4;

	*words = *form;
	if (form->element >= 4 || form->dim[last].from != 1)
		return;
	for (int in_x = 0; in_x < 2; in_x++) {
		uint32_t most = permute_width(form, in_x, form->dim[last].size, 1u << last);
		width = most < width ? most : width;
	}
	permute_join(words, width);
}

bool permute_box_find(const struct permute_form *form, const struct permute_choice *c,
					  struct box *box, struct plan_text *why)
{
	struct permute_batch batch;
	int fast;

	*box = (struct box){.length = {1, 1}, .part = {-1, -1}, .count = 1};
	if (form->huge || form->element > 8 || form->rank < 2) {
		plan_print(why, "not box: %s; ",
				   form->element > 8 ? "elements are vectors" : "there is no room for one");
		return false;
	}
	in_words(form, &box->words);
	form = box->form = &box->words;
	fast = permute_fastest(form);
	if (fast < 0 || form->dim[fast].from != 1) {
		plan_print(why, "not box: x has no neighbours; ");
		return false;
	}
	box->most = (int64_t)c->block * 1024 / form->element;
	fill(box, c->rows, c->resident ? c->resident : RUN_BYTES);
	if (form->element == 8 && !box->hole) {
		plan_print(why, "not box: elements are vectors, and there are no gaps to go over; ");
		return false;
	}
	lay_out(box);
	box->next = goes_on(box);
	if (box->length[SIDE_X] * form->element < LEAST_RUN ||
		box->length[SIDE_Y] * form->element < LEAST_RUN) {
		plan_print(why, "not box: runs of %lld and %lld elements; ", (long long)box->length[SIDE_X],
				   (long long)box->length[SIDE_Y]);
		return false;
	}
	permute_box_batch(box, &batch);
	return !permute_too_small(form, &batch, "box", why);
}

/* The runs of a side, all of a whole box. */
uint32_t permute_box_runs(const struct box *box, enum box_side side)
{
	int dims[PERMUTE_MAX_DIMS], count = permute_box_numbering(box, side, dims);
	uint32_t runs = 1;

	for (int i = 0; i < count; i++)
		runs *= (uint32_t)box->extent[dims[i]];
	return runs;
}

/* Places of runs are noted behind the box, in 32 or 64 bits and as many again; false: they would be
 * a large part of it. */
bool permute_box_notes(struct box *box, uint32_t *notes)
{
	struct permute_batch batch;
	uint32_t bytes;

	permute_box_batch(box, &batch);
	bytes = strcmp(permute_offset_type_bytes(box->form, batch.outer), "i32") == 0 ? 8 : 16;
	*notes = box->shared;
	box->shared += (permute_box_runs(box, SIDE_X) + permute_box_runs(box, SIDE_Y)) * bytes;
	return box->shared <= 2 * *notes;
}
