/*
 * permute_box.c: permutations whose vectors would be narrow: boxes of elements through shared
 * memory, loaded by whole pieces of x and stored by whole words of y
 * (kernel_src/ops/permute_box.cuh).
 *
 * A box grows from its fastest dimensions, in x and in y, until its runs are long on both sides.
 * It takes short dimensions whole; the last one of a side, a part of it.
 */
#include "permute.h"

#include <string.h>

#define RUN_BYTES 256 /* of a run of y, wanted */
#define LEAST_RUN 16  /* bytes */
#define LONG_RUN 64   /* bytes */

enum side { SIDE_X, SIDE_Y, SIDES };

struct box {
	const struct permute_form *form;
	int64_t most;                     /* elements */
	int64_t extent[PERMUTE_MAX_DIMS]; /* elements of each dimension; 0: it is not in the box */
	int run[SIDES][PERMUTE_MAX_DIMS]; /* the dimensions of a run, fastest first */
	int run_dims[SIDES];
	int64_t length[SIDES]; /* elements of a run */
	int part[SIDES];       /* the dimension at the run's end of which a part is taken; -1 */
	bool ended[SIDES];
	int64_t count;
	int64_t near[PERMUTE_MAX_DIMS]; /* strides in shared memory, bytes */
	uint32_t shared;
};

static bool is_part(const struct box *box, int dim)
{
	return dim == box->part[SIDE_X] || dim == box->part[SIDE_Y];
}

/* The number of batches must not change the kernel. */
static bool is_batch(const struct permute_form *form, int dim)
{
	for (int k = 1; k < form->rank && dim == 0; k++)
		if (form->dim[k].from > form->dim[0].from)
			return false;
	return dim == 0;
}

/* The dimension that goes on where a run ends; -1: none. */
static int next_of(const struct box *box, enum side side)
{
	for (int k = 0; k < box->form->rank; k++) {
		const struct permute_dim *dim = &box->form->dim[k];
		if ((side == SIDE_X ? dim->from : dim->to) == box->length[side])
			return k;
	}
	return -1;
}

/* So many elements of a dimension at most: tiles of equal size, but of batches. */
static int64_t part_of(const struct box *box, int dim, int64_t most)
{
	int64_t size = box->form->dim[dim].size, tiles = plan_divide_up((uint64_t)size, (uint64_t)most);

	return is_batch(box->form, dim) ? most
									: (int64_t)plan_divide_up((uint64_t)size, (uint64_t)tiles);
}

static void take(struct box *box, enum side side, int dim, int64_t extent)
{
	box->run[side][box->run_dims[side]++] = dim;
	box->length[side] *= extent;
	if (!box->extent[dim])
		box->count *= extent;
	box->extent[dim] = extent;
}

/* A run of one side becomes longer, by a dimension or by a part of one. */
static void grow(struct box *box, enum side side, int64_t wanted)
{
	int dim = next_of(box, side);
	int64_t size = dim < 0 ? 0 : box->form->dim[dim].size, room = box->most / box->count;

	if (dim < 0) {
		box->ended[side] = true;
	} else if (box->extent[dim]) {
		box->part[side] = is_part(box, dim) ? dim : -1;
		box->ended[side] = is_part(box, dim);
		take(box, side, dim, box->extent[dim]);
	} else if (!is_batch(box->form, dim) && size <= room &&
			   box->length[side] * size <= 2 * wanted) {
		take(box, side, dim, size);
	} else {
		int64_t most = (wanted + box->length[side] - 1) / box->length[side];
		most = most < room ? most : room;
		most = most < size || is_batch(box->form, dim) ? most : size;
		box->ended[side] = true;
		if (most < 2)
			return;
		box->part[side] = dim;
		take(box, side, dim, part_of(box, dim, most));
	}
}

/* Whatever makes runs longer and the box no larger. */
static void grow_free(struct box *box)
{
	for (enum side side = SIDE_X; side < SIDES; side++)
		for (int dim = next_of(box, side); !box->ended[side] && dim >= 0 && box->extent[dim];
			 dim = next_of(box, side))
			grow(box, side, 0);
}

/* A box of few elements takes a larger part, or all of it: true, and the runs may go on. */
static bool widen(struct box *box)
{
	int dim = box->part[box->part[SIDE_Y] >= 0 ? SIDE_Y : SIDE_X];
	int64_t size = dim < 0 ? 0 : box->form->dim[dim].size, wider;
	bool batch = dim >= 0 && is_batch(box->form, dim), whole;

	if (dim < 0)
		return false;
	wider = box->extent[dim] * (box->most / box->count);
	wider = part_of(box, dim, wider < size || batch ? wider : size);
	whole = !batch && wider == size;
	for (enum side side = SIDE_X; side < SIDES; side++) {
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
		   (dim < 0 || !is_batch(box->form, dim) || box->most / box->count >= 2);
}

/* First until both runs are long enough, then until the box is full. */
static void fill(struct box *box, uint32_t run_x, uint32_t run_y)
{
	const int64_t wanted[SIDES] = {run_x / box->form->element, run_y / box->form->element};
	int64_t before;

	for (;;) {
		enum side side = box->length[SIDE_X] * wanted[SIDE_Y] < box->length[SIDE_Y] * wanted[SIDE_X]
							 ? SIDE_X
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

static bool in_run(const struct box *box, enum side side, int dim)
{
	for (int i = 0; i < box->run_dims[side]; i++)
		if (box->run[side][i] == dim)
			return true;
	return false;
}

/* The dimensions that number the runs of a side, a part of one last: how many. */
static int numbering(const struct box *box, enum side side, int dims[PERMUTE_MAX_DIMS])
{
	int count = 0, last = -1;

	for (int k = box->form->rank - 1; k >= 0; k--) {
		int at = count;
		if (!box->extent[k] || in_run(box, side, k))
			continue;
		if (is_part(box, k)) {
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
	int dims[PERMUTE_MAX_DIMS], count = numbering(box, SIDE_X, dims);

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
	box->shared = (uint32_t)up(end + 32);
}

/* The dimensions that are not in the box; behind them batches of which it takes a part. */
static void find_batch(const struct box *box, struct permute_batch *batch)
{
	uint32_t mask = 0;

	for (int k = 0; k < box->form->rank; k++)
		if (box->extent[k])
			mask |= 1u << k;
	permute_batch(box->form, mask, false, batch);
	if (is_part(box, 0) && is_batch(box->form, 0)) {
		batch->inner += batch->outer >= 0;
		batch->outer = 0;
	}
}

static bool box_find(const struct permute_form *form, const struct permute_choice *c,
					 struct box *box, struct plan_text *why)
{
	int fast = permute_fastest(form);
	struct permute_batch batch;

	*box = (struct box){.form = form,
						.most = (int64_t)c->block * 1024 / form->element,
						.length = {1, 1},
						.part = {-1, -1},
						.count = 1};
	if (form->huge || form->element > 4 || form->rank < 2 || fast < 0 ||
		form->dim[fast].from != 1) {
		plan_print(why, "not box: %s; ",
				   form->element > 4 ? "elements are vectors" : "x has no neighbours");
		return false;
	}
	fill(box, c->rows, c->resident ? c->resident : RUN_BYTES);
	lay_out(box);
	if (box->length[SIDE_X] * form->element < LEAST_RUN ||
		box->length[SIDE_Y] * form->element < LEAST_RUN) {
		plan_print(why, "not box: runs of %lld and %lld elements; ", (long long)box->length[SIDE_X],
				   (long long)box->length[SIDE_Y]);
		return false;
	}
	find_batch(box, &batch);
	return !permute_too_small(form, &batch, "box", why);
}

/* ---- Making ---- */

/* ", BoxPart<32, 100, 1, 700>" */
static void print_part(const struct box *box, int dim, struct plan_text *id)
{
	const struct permute_dim *d = dim < 0 ? NULL : &box->form->dim[dim];

	if (d)
		plan_print(id, ", BoxPart<%lld, %lld, %lld, %lld>", (long long)box->extent[dim],
				   is_batch(box->form, dim) ? 0ll : (long long)d->size, (long long)d->from,
				   (long long)d->to);
	else
		plan_print(id, ", BoxPart<1, 1, 0, 0>");
}

static void print_numbers(struct plan_text *id, const int64_t *numbers, int count)
{
	plan_print(id, ", List<");
	for (int i = 0; i < count; i++)
		plan_print(id, "%s%lld", i ? ", " : "", (long long)numbers[i]);
	plan_print(id, ">");
}

/* ", BoxRuns<105, List<31>, List<..>, List<..>>, 31": a side's runs, and how many. */
static void print_runs(const struct box *box, enum side side, struct plan_text *id)
{
	int64_t size[PERMUTE_MAX_DIMS], far[PERMUTE_MAX_DIMS], near[PERMUTE_MAX_DIMS], runs = 1;
	int dims[PERMUTE_MAX_DIMS], count = numbering(box, side, dims);

	for (int i = 0; i < count; i++) {
		const struct permute_dim *dim = &box->form->dim[dims[i]];
		size[i] = box->extent[dims[i]];
		far[i] = side == SIDE_X ? dim->from : dim->to;
		near[i] = box->near[dims[i]];
		runs *= is_part(box, dims[i]) ? 1 : size[i];
	}
	plan_print(id, ", BoxRuns<%lld", (long long)box->length[side]);
	print_numbers(id, size, count ? count - 1 : 0);
	print_numbers(id, far, count);
	print_numbers(id, near, count);
	plan_print(id, ">, %lld", (long long)runs);
}

/* The dimensions of a run of y, and their strides in shared memory. */
static void print_run(const struct box *box, struct plan_text *id)
{
	int64_t size[PERMUTE_MAX_DIMS], near[PERMUTE_MAX_DIMS];
	int count = box->run_dims[SIDE_Y];

	for (int i = 0; i < count; i++) {
		size[i] = box->extent[box->run[SIDE_Y][i]];
		near[i] = box->near[box->run[SIDE_Y][i]];
	}
	print_numbers(id, size, count - 1);
	print_numbers(id, near, count);
}

/* Prints what is not in the box; returns how many boxes there are. */
static uint64_t print_batch(const struct box *box, struct plan_text *id,
							struct permute_batch *batch)
{
	uint64_t tiles = 1;

	for (int k = 0; k < box->form->rank; k++)
		if (is_part(box, k))
			tiles *= plan_divide_up((uint64_t)box->form->dim[k].size, (uint64_t)box->extent[k]);
	find_batch(box, batch);
	permute_print_batch(id, box->form, batch);
	return tiles * (uint64_t)batch->items;
}

static bool permute_box_fits(const struct permute_choice *c, const struct kernel_limits *limits,
							 const struct box *box, struct plan_text *why)
{
	const char *rule = NULL;

	if (c->store != 4 && c->store != 8 && c->store != 16)
		rule = "stores are 4, 8 or 16 bytes";
	else if (!c->rows || c->rows % 64 || c->rows > 512 || (c->columns != 64 && c->columns != 128))
		rule = "runs are 64 to 512 bytes, 64 or 128 of them side by side";
	else if (c->threads < 32 || c->threads % 32 || c->threads > limits->max_threads)
		rule = "threads are whole warps, as many as a block may have";
	else if (!c->block || c->block > 64 || box->shared > limits->shared_optin)
		rule = "a box is 1 to 64 KiB, which shared memory holds";
	if (rule)
		plan_print(why, "%s", rule);
	return !rule;
}

/* The runs of a side, all of a whole box. */
static uint32_t count_runs(const struct box *box, enum side side)
{
	int dims[PERMUTE_MAX_DIMS], count = numbering(box, side, dims);
	uint32_t runs = 1;

	for (int i = 0; i < count; i++)
		runs *= (uint32_t)box->extent[dims[i]];
	return runs;
}

/* Places of runs are noted behind the box, in 32 or 64 bits and as many again; false: they would be
 * a large part of it. */
static bool add_notes(struct box *box, uint32_t *notes)
{
	struct permute_batch batch;
	uint32_t bytes;

	find_batch(box, &batch);
	bytes = strcmp(permute_offset_type_bytes(box->form, batch.outer), "i32") == 0 ? 8 : 16;
	*notes = box->shared;
	box->shared += (count_runs(box, SIDE_X) + count_runs(box, SIDE_Y)) * bytes;
	return box->shared <= 2 * *notes;
}

static bool permute_box_make(const struct permute_form *form, const struct kernel_limits *limits,
							 const struct permute_choice *c, struct kernel_plan *out,
							 struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct permute_batch batch;
	struct box box;
	bool both, loop, outer;
	uint32_t notes;
	uint64_t blocks;

	if (!c->block || c->block > 64 || !c->resident || !box_find(form, c, &box, why))
		return false;
	if (!add_notes(&box, &notes)) {
		plan_print(why, "not box: runs are too short to be looked up; ");
		return false;
	}
	if (!permute_box_fits(c, limits, &box, why))
		return false;
	both = box.part[SIDE_X] >= 0 && box.part[SIDE_X] == box.part[SIDE_Y];
	plan_print(&id, "permute_box<%u, %u, %u, %u, %u", notes, form->element, c->store, c->threads,
			   c->columns);
	print_part(&box, box.part[SIDE_X], &id);
	print_part(&box, both ? -1 : box.part[SIDE_Y], &id);
	plan_print(&id, ", %s", both ? "true" : "false");
	print_runs(&box, SIDE_X, &id);
	print_runs(&box, SIDE_Y, &id);
	print_run(&box, &id);
	blocks = print_batch(&box, &id, &batch);
	out->shared_bytes = box.shared;
	loop = plan_launch(out, limits, blocks, c->threads);
	plan_print(&id, ", %s, %s>", permute_offset_type_bytes(form, batch.outer),
			   loop ? "true" : "false");
	permute_batch_args(out, form, &batch, blocks);
	outer = is_batch(form, 0) && is_part(&box, 0);
	if (outer) {
		out->args[2].value *= (uint64_t)box.extent[0];
		out->args[3].value *= (uint64_t)box.extent[0];
	}
	plan_arg_scalar(out, 8, outer ? (uint64_t)form->dim[0].size : 0);
	out->extents[0].alignment = out->extents[1].alignment = form->element;
	plan_print(why, "boxes of %lld elements: runs of %lld in x and of %lld in y, %u bytes a store",
			   (long long)box.count, (long long)box.length[SIDE_X], (long long)box.length[SIDE_Y],
			   c->store);
	return !id.full;
}

/* ---- Suggesting ---- */

/* The boxes that the figures of an H200 speak for: of words and bytes; of halves whose runs of y
 * are taken side by side, of others, and of those whose neighbours are some elements apart. */
static const struct permute_choice words = {
	.rows = 256, .columns = 128, .block = 48, .store = 16, .threads = 512, .resident = 1024};
static const struct permute_choice many = {
	.rows = 256, .columns = 64, .block = 32, .store = 8, .threads = 512, .resident = 256};
static const struct permute_choice few = {
	.rows = 128, .columns = 128, .block = 16, .store = 16, .threads = 256, .resident = 256};
static const struct permute_choice stepped = {
	.rows = 128, .columns = 64, .block = 16, .store = 16, .threads = 256, .resident = 256};
#define MANY_RUNS 8
#define CLOSE 6 /* bytes */
#define NEAR 16
#define FAR 256
#define MANY_DIMS 5 /* whose boxes of bytes are full of short runs */

bool permute_box_many(const struct permute_form *form)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct box box;

	return box_find(form, &many, &box, &unsaid) && box.count / box.length[SIDE_Y] >= MANY_RUNS;
}

static const struct permute_choice *usual_box(const struct permute_form *form)
{
	int64_t step = form->dim[form->rank - 1].from * form->element;

	if (form->element == 1 && form->rank >= MANY_DIMS)
		return &few;
	if (form->element != 2 || (step >= FAR && permute_box_many(form)))
		return &words;
	/* Neighbours in y that are close in x would meet in banks, were more of them stored at once, or
	 * by more lanes side by side. */
	if (step <= CLOSE || permute_box_many(form))
		return &many;
	return step <= NEAR ? &stepped : &few;
}

/*
 * Halves and bytes one by one cost more instructions than a box, and so do 32-bit elements, on both
 * sides.  Runs of x that are short and lie apart gain nothing: it is x that they are read from.
 */
bool permute_box_better(const struct permute_form *form, const struct kernel_limits *limits,
						uint32_t load, uint32_t store)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	uint32_t narrow = load < store ? load : store, wide = load < store ? store : load;
	int64_t run = wide == 1 ? LEAST_RUN : LONG_RUN; /* anything is better than byte by byte */
	const struct permute_choice *usual = usual_box(form);
	struct box box;
	uint32_t notes;

	return (narrow == form->element || narrow <= 4) && narrow < 8 &&
		   (form->element < 4 || wide < 16) && box_find(form, usual, &box, &unsaid) &&
		   add_notes(&box, &notes) && box.shared <= limits->shared_optin &&
		   limits->max_threads >= usual->threads && box.length[SIDE_X] * form->element >= run &&
		   box.length[SIDE_Y] * form->element >= run;
}

static void permute_box_suggest(struct permute_list *list, struct plan_text *why)
{
	static const struct permute_choice cuts[] = {
		{.rows = 256, .columns = 128, .block = 32, .store = 16, .threads = 256, .resident = 256},
		{.rows = 256, .columns = 128, .block = 32, .store = 16, .threads = 512, .resident = 256},
		{.rows = 128, .columns = 64, .block = 16, .store = 8, .threads = 256, .resident = 256},
		{.rows = 256, .columns = 128, .block = 32, .store = 16, .threads = 256, .resident = 1024},
		{.rows = 128, .columns = 128, .block = 32, .store = 16, .threads = 256, .resident = 2048},
		{.rows = 256, .columns = 128, .block = 16, .store = 16, .threads = 128, .resident = 512},
	};
	const struct permute_form *form = list->form;
	int last = form->rank - 1, fast = permute_fastest(form);
	struct box box;

	if (!box_find(form, &few, &box, why))
		return;
	if (permute_width(form, true, form->dim[fast].size, 1u << fast) == 16 &&
		permute_width(form, false, form->dim[last].size, 1u << last) == 16) {
		plan_print(why, "not box: vectors are 16 bytes; ");
		return;
	}
	permute_suggest(list, usual_box(form));
	permute_suggest(list, &words);
	permute_suggest(list, &many);
	permute_suggest(list, &few);
	permute_suggest(list, &stepped);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		permute_suggest(list, &cuts[i]);
}

const struct permute_variant permute_box = {
	.name = "box",
	.source = "ops/permute_box.cuh",
	.fields = "xkstm",
	.suggest = permute_box_suggest,
	.make = permute_box_make,
};
