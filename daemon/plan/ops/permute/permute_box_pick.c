/*
 * permute_box_pick.c: which box is better than another, or than narrow vectors.
 */
#include "permute_box.h"

#define LEAST_RUN 16 /* bytes of runs that are better than byte by byte */
#define LONG_RUN 48  /* bytes of other runs */

/* ---- How often lanes meet in a bank ---- */

#define BANKS 32
#define WARPS 4 /* that are looked at */

/* Returns the place of run or element number i: the dimensions' indices by their strides. */
static uint32_t near_of(const struct box *box, const int *dims, int count, uint32_t i)
{
	uint32_t at = 0;

	for (int k = 0; k < count; k++) {
		uint32_t size = (uint32_t)box->extent[dims[k]], here = k + 1 < count ? i % size : i;
		at += here * (uint32_t)box->near[dims[k]];
		i /= size;
	}
	return at;
}

/* Words of shared memory that a bank gives one after the other. */
static uint32_t count_turns(const uint32_t *words, int count)
{
	uint32_t turns = 0, of_bank[BANKS] = {0};

	for (int i = 0; i < count; i++) {
		int before = 0;
		while (before < i && words[before] != words[i])
			before++;
		if (before == i && ++of_bank[words[i] % BANKS] > turns)
			turns = of_bank[words[i] % BANKS];
	}
	return turns;
}

/* Lanes of permute_box.cuh load these together: element k of a word each. */
static int find_words(const struct box *box, const struct permute_choice *c, uint32_t warp,
					  uint32_t k, uint32_t words[BANKS])
{
	const uint32_t element = box->form->element, each = c->store / element;
	const uint32_t length = (uint32_t)box->length[SIDE_Y];
	const uint32_t most = permute_box_runs(box, SIDE_Y);
	const uint32_t align = length * element >= 256 ? 128 : 32;
	const uint32_t all = (length * element + align + c->store - element - 1) / c->store;
	const uint32_t together = most >= 8 ? c->columns / c->store : all;
	int dims[PERMUTE_MAX_DIMS], numbers = permute_box_numbering(box, SIDE_Y, dims), count = 0;

	for (uint32_t lane = 0; lane < BANKS; lane++) {
		uint32_t i = warp * BANKS + lane, part = i / together;
		uint32_t word = part / most * together + i % together;
		uint32_t at = near_of(box, dims, numbers, part % most);
		if (word * each + k >= length)
			continue;
		at += near_of(box, box->run[SIDE_Y], box->run_dims[SIDE_Y], word * each + k);
		words[count++] = (c->turn ? at ^ (at >> 3 & 0x70) : at) / 4;
	}
	return count;
}

/* Turns for a thousand full warps of elements, by a few. */
static uint32_t turns_of(const struct box *box, const struct permute_choice *c)
{
	const uint32_t words = (uint32_t)(box->count * box->form->element) / c->store;
	uint32_t sum = 0, elements = 0, lanes[BANKS];

	for (uint32_t w = 0; w < WARPS; w++) {
		uint32_t warp = words / BANKS * (2 * w + 1) / (2 * WARPS);
		for (uint32_t k = 0; k < 2; k++) {
			int count = find_words(box, c, warp, k * (c->store / box->form->element / 2), lanes);
			sum += count_turns(lanes, count);
			elements += (uint32_t)count;
		}
	}
	return elements ? 32 * 1000 * sum / elements : UINT32_MAX / 2;
}

/* The boxes that the figures of an H200 speak for: of words and bytes; of halves whose runs of y
 * are taken side by side, of others, and of those whose neighbours are some elements apart. */
static const struct permute_choice words = {
	.rows = 256, .columns = 128, .block = 48, .store = 16, .threads = 512, .resident = 1024};
static const struct permute_choice many = {
	.rows = 256, .columns = 64, .block = 32, .store = 8, .threads = 512, .resident = 256};
static const struct permute_choice few = {
	.rows = 128, .columns = 128, .block = 16, .store = 16, .threads = 256, .resident = 256};
static const struct permute_choice halves = {
	.rows = 128, .columns = 128, .block = 24, .store = 16, .threads = 512, .resident = 512};
static const struct permute_choice stepped = {
	.rows = 128, .columns = 64, .block = 16, .store = 16, .threads = 256, .resident = 256};
#define MANY_RUNS 8
#define CLOSE 6 /* bytes */
#define NEAR 16
#define FAR 256
#define MANY_DIMS 5 /* whose boxes of bytes are full of short runs */

#define CRUMB 16       /* bytes of a run of x */
#define LEAST_PIECE 32 /* bytes of a run of y */
#define MOST_PIECE 512
#define LARGE_PIECE 128

bool permute_box_crumbled(const struct permute_form *form)
{
	const struct permute_dim *last = &form->dim[form->rank - 1];
	int fast = permute_fastest(form);
	int64_t element = form->element;

	return element <= 4 && fast >= 0 && form->dim[fast].from == 1 && last->from != 1 &&
		   form->dim[fast].size * element <= CRUMB && last->size * element >= LEAST_PIECE &&
		   last->size * element <= MOST_PIECE;
}

bool permute_box_many(const struct permute_form *form)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct box box;

	return permute_box_find(form, &many, &box, &unsaid) &&
		   box.count / box.length[SIDE_Y] >= MANY_RUNS;
}

static const struct permute_choice *usual_box(const struct permute_form *form)
{
	int64_t step = form->dim[form->rank - 1].from * form->element;

	if (permute_box_crumbled(form) && form->dim[form->rank - 1].size * form->element >= LARGE_PIECE)
		return &many;
	if ((form->element == 1 && form->rank >= MANY_DIMS) || (form->element == 4 && form->rank < 4))
		return &few;
	if (form->element != 2 || (step >= FAR && permute_box_many(form)))
		return &words;
	/* Neighbours in y that are close in x would meet in banks, were more of them stored at once, or
	 * by more lanes side by side. */
	if (step <= CLOSE || permute_box_many(form))
		return &many;
	return step <= NEAR ? &stepped : &few;
}

/* The words of y by which a box's lanes meet least.  Narrow ones take more instructions, and so do
 * chunks that have changed places. */
static struct permute_choice pick_words(const struct permute_form *form,
										const struct permute_choice *usual)
{
	static const struct {
		uint32_t store, together, cost;
		bool turn;
	} ways[] = {{16, 128, 0, false},  {16, 64, 0, false}, {16, 128, 1000, true},
				{16, 64, 1000, true}, {8, 128, 0, false}, {8, 64, 0, false},
				{8, 64, 1000, true}};
	const uint32_t narrow = usual->block == many.block ? 1500 : 2300;
	struct permute_choice best = *usual, c = *usual;
	uint32_t least = UINT32_MAX;
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct box box;

	if (!permute_box_find(form, usual, &box, &unsaid))
		return best;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		uint32_t turns;
		c.store = ways[i].store;
		c.columns = ways[i].together;
		c.turn = ways[i].turn;
		turns = turns_of(&box, &c) + ways[i].cost + (c.store == 8 ? narrow : 0);
		if (turns < least) {
			least = turns;
			best = c;
		}
	}
	return best;
}

#define LOW_BYTES (48 << 20) /* of x, of which large boxes leave multiprocessors idle at the end */
#define LOW_X 256            /* bytes of the runs of a small box */
#define LOW_Y 4000
#define SMALL_BOX 14336 /* bytes */

/* Halves are better off in larger boxes if they need not change places.  Tensors that are read and
 * written soon enough, and are no batch, in small ones if these keep their runs. */
static struct permute_choice pick_size(const struct permute_form *form, struct permute_choice c)
{
	struct permute_choice low = c;
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct box box;

	low.rows = low.resident = 128;
	low.block = 8;
	low.threads = 256;
	if (form->element > 1 && !c.turn && !permute_box_is_batch(form, 0) &&
		form->count * form->element <= LOW_BYTES && permute_box_find(form, &low, &box, &unsaid) &&
		box.length[SIDE_X] * box.form->element >= LOW_X &&
		box.length[SIDE_Y] * box.form->element >= LOW_Y)
		return low;
	if (form->element == 2 && !c.turn && c.block == few.block && c.rows == few.rows) {
		c.block = halves.block;
		c.threads = halves.threads;
		c.resident = halves.resident;
		/* A box of one small batch has too little for so many threads: it takes two. */
		if (permute_box_find(form, &c, &box, &unsaid) && box.count * 2 <= SMALL_BOX) {
			c.rows = 256;
			c.block = many.block;
			c.resident = many.resident;
		}
	}
	return c;
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
		   (form->element < 4 || wide < 16) && permute_box_find(form, usual, &box, &unsaid) &&
		   permute_box_notes(&box, &notes) && box.shared <= limits->shared_optin &&
		   limits->max_threads >= usual->threads && box.length[SIDE_X] * box.form->element >= run &&
		   box.length[SIDE_Y] * box.form->element >= run;
}

void permute_box_suggest(struct permute_list *list, struct plan_text *why)
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
	struct permute_choice best;
	struct box box;

	if (!permute_box_find(form, &few, &box, why))
		return;
	if (permute_width(form, true, form->dim[fast].size, 1u << fast) == 16 &&
		permute_width(form, false, form->dim[last].size, 1u << last) == 16) {
		plan_print(why, "not box: vectors are 16 bytes; ");
		return;
	}
	best = pick_size(form, pick_words(form, usual_box(form)));
	permute_suggest(list, &best);
	permute_suggest(list, usual_box(form));
	permute_suggest(list, &words);
	permute_suggest(list, &many);
	permute_suggest(list, &few);
	permute_suggest(list, &stepped);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		permute_suggest(list, &cuts[i]);
}
