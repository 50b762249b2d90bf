/*
 * permute_move.c: the variants without shared memory: vectors along a fastest dimension that stays,
 * or of planes that become neighbours, and the gather that takes everything.
 */
#include "permute.h"

#define THREADS 256u

/*
 * Work numbered through in y's order, each thread one number or those of its block; the last
 * dimension counts in steps of `each` elements.  Prints what is common to both kernels'
 * template-ids and makes the launch.
 */
static void number_through(const struct permute_form *form, const struct kernel_limits *limits,
						   const struct permute_choice *c, int64_t each, int64_t unit,
						   struct plan_text *id, struct kernel_plan *out)
{
	struct permute_form steps = *form;
	int last = form->rank - 1;
	uint32_t all = (1u << form->rank) - 1;
	uint64_t count;
	bool loop;

	/* A vector kernel counts offsets in vectors (unit = each), a gather in elements (unit = 1). */
	steps.dim[last].size /= each;
	steps.dim[last].from *= each;
	for (int k = 0; k < form->rank; k++)
		steps.dim[k].from /= unit;
	count = (uint64_t)(form->count / each);
	loop = plan_launch(out, limits,
					   plan_divide_up(count, (uint64_t)c->threads * (c->block ? c->block : 1)),
					   c->threads);
	if (steps.dim[last].size == 1 && last > 0) {
		steps.rank--;
		all >>= 1;
	}
	plan_print(id, ", %u", c->threads);
	permute_print_list(id, &steps, all & ~1u, PERMUTE_SIZE);
	permute_print_list(id, &steps, all, PERMUTE_FROM);
	plan_print(id, ", %s, %s, %s>", count <= INT32_MAX ? "u32" : "u64",
			   permute_offset_type(form, -1), loop ? "true" : "false");
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 8, count);
}

/* The number of a choice and its threads against what there is. */
static bool permute_move_fits(const struct permute_form *form, const struct kernel_limits *limits,
							  const struct permute_choice *c, uint32_t widest,
							  struct plan_text *why)
{
	if (!c->load || (c->load & (c->load - 1)) || c->load < form->element || c->load > widest) {
		plan_print(why, "vectors are %u to %u bytes here", form->element, widest);
		return false;
	}
	if (c->threads < 32 || c->threads % 32 || c->threads > limits->max_threads) {
		plan_print(why, "threads are whole warps, %u at most", limits->max_threads);
		return false;
	}
	return true;
}

/* Vectors of a thread that are under way together: narrow ones alone would be too few bytes. */
static uint32_t pick_block(uint32_t load)
{
	return load == 16 ? 1 : load == 8 ? 2 : 4;
}

/* The widest, and others around it; blocks: in blocks of several. */
static void suggest_widths(struct permute_list *list, uint32_t widest, bool blocks)
{
	static const uint32_t others[] = {128, 256, 512};
	struct permute_choice c = {.load = widest,
							   .threads = blocks ? THREADS / 2 : THREADS,
							   .block = blocks ? pick_block(widest) : 0};

	while (c.threads > list->limits->max_threads)
		c.threads /= 2;
	permute_suggest(list, &c);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct permute_choice other = c;
		other.threads = others[i];
		permute_suggest(list, &other);
	}
	for (uint32_t more = 2 * c.block; more && more <= 4 * c.block; more *= 2) {
		struct permute_choice other = c;
		other.block = more;
		permute_suggest(list, &other);
	}
	for (c.load = widest / 2; c.load >= 4; c.load /= 2) {
		c.block = blocks ? pick_block(c.load) : 0;
		permute_suggest(list, &c);
	}
}

/* ---- Vector ---- */

static uint32_t vector_widest(const struct permute_form *form)
{
	int last = form->rank - 1;
	uint32_t width = permute_width(form, true, form->dim[last].size, 1u << last);

	return width < form->align_y ? width : form->align_y;
}

static bool vector_takes(const struct permute_form *form, struct plan_text *why)
{
	if (form->dim[form->rank - 1].from == 1)
		return true;
	plan_print(why, "not vector: the fastest dimension moves; ");
	return false;
}

static bool make_vector(const struct permute_form *form, const struct kernel_limits *limits,
						const struct permute_choice *c, struct kernel_plan *out,
						struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	if (!vector_takes(form, why) || !permute_move_fits(form, limits, c, vector_widest(form), why))
		return false;
	if (c->block < 1 || c->block > 8) {
		plan_print(why, "a thread has 1 to 8 vectors");
		return false;
	}
	plan_print(&id, "permute_vector<%u, %u", c->load, c->block);
	number_through(form, limits, c, c->load / form->element, c->load / form->element, &id, out);
	out->extents[0].alignment = out->extents[1].alignment = c->load;
	plan_print(why, "runs of %lld bytes stay together and move %u bytes at a time",
			   (long long)form->dim[form->rank - 1].size * form->element, c->load);
	return !id.full;
}

static void suggest_vector(struct permute_list *list, struct plan_text *why)
{
	if (vector_takes(list->form, why))
		suggest_widths(list, vector_widest(list->form), true);
}

#define SHORT_RUN 64  /* bytes */
#define FAR_RUNS 4096 /* bytes from one run of x to the next of y: no cache has what is between */

bool permute_vector_short(const struct permute_form *form, const struct permute_choice *c)
{
	const struct permute_dim *last = &form->dim[form->rank - 1];

	return c->load == 8 && form->rank > 1 && last->size * form->element < SHORT_RUN &&
		   last[-1].from * form->element >= FAR_RUNS;
}

const struct permute_variant permute_vector = {
	.name = "vector",
	.source = "ops/permute.cuh",
	.fields = "wkt",
	.suggest = suggest_vector,
	.make = make_vector,
};

/* ---- Braid ---- */

#define BRAID_MOST 4 /* planes */

/* The widest vector of a plane, of which all planes' fill one of y; 0: these are no planes. */
static uint32_t braid_widest(const struct permute_form *form)
{
	const int last = form->rank - 1;
	uint32_t width;

	if (form->rank < 2 || form->dim[last - 1].from != 1 || form->dim[last].from <= 1 ||
		form->dim[last].size > BRAID_MOST || form->dim[last].size % 2)
		return 0;
	width = permute_width(form, true, form->dim[last - 1].size, 1u << (last - 1));
	while (width * form->dim[last].size > form->align_y)
		width /= 2;
	return width < 4 || width < form->element ? 0 : width;
}

static bool make_braid(const struct permute_form *form, const struct kernel_limits *limits,
					   const struct permute_choice *c, struct kernel_plan *out,
					   struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct permute_dim *planes = &form->dim[form->rank - 1];
	struct permute_form items = *form;
	uint32_t widest = braid_widest(form);

	if (!widest || !permute_move_fits(form, limits, c, widest, why))
		return false;
	if (c->block < 1 || c->block > 4 || c->load < 4) {
		plan_print(why, "a thread has 1 to 4 vectors of 4 bytes and more");
		return false;
	}
	items.rank--;
	items.count /= planes->size;
	plan_print(&id, "permute_braid<%u, %lld, %u, %u, %lld", form->element, (long long)planes->size,
			   c->load, c->block, (long long)planes->from);
	number_through(&items, limits, c, c->load / form->element, 1, &id, out);
	out->extents[0].alignment = c->load;
	out->extents[1].alignment = c->load * (uint32_t)planes->size;
	plan_print(why, "%lld planes are braided, %u bytes of each at a time", (long long)planes->size,
			   c->load);
	return !id.full;
}

static void suggest_braid(struct permute_list *list, struct plan_text *why)
{
	const uint32_t widest = braid_widest(list->form);
	struct permute_choice c = {.load = widest, .threads = THREADS / 2, .block = 1};

	(void)why;
	if (!widest)
		return;
	/* Two stores of 8 bytes under way, one of 16. */
	if (widest * list->form->dim[list->form->rank - 1].size < 16)
		c.block = 2;
	permute_suggest(list, &c);
	for (c.threads = THREADS; c.threads >= THREADS / 4; c.threads /= 2)
		for (c.block = 1; c.block <= 2; c.block *= 2)
			permute_suggest(list, &c);
}

const struct permute_variant permute_braid = {
	.name = "braid",
	.source = "ops/permute.cuh",
	.fields = "wkt",
	.suggest = suggest_braid,
	.make = make_braid,
};

/* ---- Strided ---- */

static uint32_t strided_widest(const struct permute_form *form)
{
	return permute_width(form, false, form->dim[form->rank - 1].size, (1u << form->rank) - 1);
}

static bool make_strided(const struct permute_form *form, const struct kernel_limits *limits,
						 const struct permute_choice *c, struct kernel_plan *out,
						 struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	if (!permute_move_fits(form, limits, c, strided_widest(form), why))
		return false;
	plan_print(&id, "permute_strided<%u, %u, %lld", form->element, c->load / form->element,
			   (long long)form->dim[form->rank - 1].from);
	number_through(form, limits, c, c->load / form->element, 1, &id, out);
	out->extents[0].alignment = form->element;
	out->extents[1].alignment = c->load;
	plan_print(why, "each thread gathers %u elements of %u bytes", c->load / form->element,
			   form->element);
	return !id.full;
}

static void suggest_strided(struct permute_list *list, struct plan_text *why)
{
	(void)why;
	suggest_widths(list, strided_widest(list->form), false);
}

const struct permute_variant permute_strided = {
	.name = "strided",
	.source = "ops/permute.cuh",
	.fields = "wt",
	.suggest = suggest_strided,
	.make = make_strided,
};
