/*
 * permute_rows.c: rows that stay rows, and begin anywhere: aligned vectors of y are cut out of
 * aligned vectors of x.
 */
#include "permute.h"

#define WIDTH 16
#define LEAST_BYTES 128 /* of a row of bytes, and of halves */
#define LEAST_HALVES 160
#define LEAST_WORDS 480 /* which may also go word by word */
#define LEAST_WHOLE 64  /* of rows that are whole vectors in y */
#define MOST_COUNT (INT32_MAX - (1 << 20))
#define MOST_BYTES INT32_MAX /* of a row, which a kernel counts in 31 bits */

/* Bytes of a row that make it worth while; vectors of 8 bytes are as good. */
static int64_t least_row(const struct permute_form *form, uint32_t widest)
{
	if (form->dim[form->rank - 1].size * form->element % WIDTH == 0)
		return LEAST_WHOLE;
	return widest >= 4 ? LEAST_WORDS : form->element == 1 ? LEAST_BYTES : LEAST_HALVES;
}

static bool takes(const struct permute_form *form)
{
	const int last = form->rank - 1;
	uint32_t widest;

	if (form->huge || form->rank < 2 || form->element > 4 || form->dim[last].from != 1 ||
		form->align_y < WIDTH || form->count > MOST_COUNT ||
		form->dim[last].size * form->element < WIDTH ||
		form->dim[last].size * form->element > MOST_BYTES)
		return false;
	/* Rows that do not overlap: what is read before a row's first element is the tensor's. */
	for (int k = 0; k < last; k++)
		if (form->dim[k].from < form->dim[last].size)
			return false;
	widest = permute_width(form, true, form->dim[last].size, 1u << last);
	return widest < 8 && form->dim[last].size * form->element >= least_row(form, widest);
}

static bool make_rows(const struct permute_form *form, const struct kernel_limits *limits,
					  const struct permute_choice *c, struct kernel_plan *out,
					  struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const int last = form->rank - 1;
	const uint32_t outer = (1u << last) - 1;
	bool loop;

	if (!takes(form)) {
		plan_print(why, "not rows: no rows stay that are long and begin between vectors; ");
		return false;
	}
	if (c->block < 1 || c->block > 4 || c->threads < 32 || c->threads % 32 ||
		c->threads > limits->max_threads) {
		plan_print(why, "a thread has 1 to 4 vectors, and threads are whole warps");
		return false;
	}
	loop = plan_launch(out, limits,
					   permute_tiles((uint64_t)form->count * form->element,
									 (uint64_t)c->threads * c->block * WIDTH),
					   c->threads);
	plan_print(&id, "permute_rows<%u, %u, %u, %lld", form->element, c->block, c->threads,
			   (long long)form->dim[last].size);
	permute_print_list(&id, form, outer & ~1u, PERMUTE_SIZE);
	permute_print_list(&id, form, outer, PERMUTE_FROM);
	plan_print(&id, ", %s, %s>", permute_offset_type_bytes(form, -1), loop ? "true" : "false");
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 8, (uint64_t)form->count);
	out->extents[0].alignment = form->element;
	out->extents[1].alignment = WIDTH;
	plan_print(why, "rows of %lld elements begin anywhere, and aligned vectors are cut out of them",
			   (long long)form->dim[last].size);
	return !id.full;
}

static void suggest_rows(struct permute_list *list, struct plan_text *why)
{
	static const uint32_t threads[] = {128, 256};
	const struct permute_form *form = list->form;
	struct permute_choice c = {.load = WIDTH, .threads = 128};

	(void)why; /* the note of another variant does not mention this one */
	if (!takes(form))
		return;
	/* A lane whose vector has two rows holds its warp up: then a thread has two under way. */
	c.block = form->dim[form->rank - 1].size * form->element < LEAST_WORDS ? 2 : 1;
	permute_suggest(list, &c);
	for (int i = 0; i < 2; i++)
		for (c.threads = threads[i], c.block = 1; c.block <= 2; c.block++)
			permute_suggest(list, &c);
}

const struct permute_variant permute_rows = {
	.name = "rows",
	.source = "ops/permute.cuh",
	.fields = "wkt",
	.suggest = suggest_rows,
	.make = make_rows,
};
