/*
 * permute_box.c: permutations whose vectors would be narrow: boxes of elements through shared
 * memory, loaded by whole pieces of x and stored by whole words of y
 * (kernel_src/ops/permute_box.cuh).  permute_box_find.c finds boxes, permute_box_pick.c chooses
 * among them.
 */
#include "permute_box.h"

/* ", BoxPart<32, 100, 1, 700>" */
static void print_part(const struct box *box, int dim, struct plan_text *id)
{
	const struct permute_dim *d = dim < 0 ? NULL : &box->form->dim[dim];

	if (d)
		plan_print(id, ", BoxPart<%lld, %lld, %lld, %lld>", (long long)box->extent[dim],
				   permute_box_is_batch(box->form, dim) ? 0ll : (long long)d->size,
				   (long long)d->from, (long long)d->to);
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
static void print_runs(const struct box *box, enum box_side side, struct plan_text *id)
{
	int64_t size[PERMUTE_MAX_DIMS], far[PERMUTE_MAX_DIMS], near[PERMUTE_MAX_DIMS], runs = 1;
	int dims[PERMUTE_MAX_DIMS], count = permute_box_numbering(box, side, dims);

	for (int i = 0; i < count; i++) {
		const struct permute_dim *dim = &box->form->dim[dims[i]];
		size[i] = box->extent[dims[i]];
		far[i] = side == SIDE_X ? dim->from : dim->to;
		near[i] = box->near[dims[i]];
		runs *= permute_box_is_part(box, dims[i]) ? 1 : size[i];
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
		if (permute_box_is_part(box, k))
			tiles *= plan_divide_up((uint64_t)box->form->dim[k].size, (uint64_t)box->extent[k]);
	permute_box_batch(box, batch);
	permute_print_batch(id, box->form, batch);
	return tiles * (uint64_t)batch->items;
}

static bool permute_box_fits(const struct permute_choice *c, const struct kernel_limits *limits,
							 const struct box *box, struct plan_text *why)
{
	const char *rule = NULL;

	if ((c->store != 4 && c->store != 8 && c->store != 16) || c->store < box->form->element)
		rule = "stores are 4, 8 or 16 bytes, and have an element";
	else if (!c->rows || c->rows % 64 || c->rows > 512 ||
			 (c->columns != 32 && c->columns != 64 && c->columns != 128))
		rule = "runs are 64 to 512 bytes, 32, 64 or 128 of them side by side";
	else if (c->threads < 32 || c->threads % 32 || c->threads > limits->max_threads)
		rule = "threads are whole warps, as many as a block may have";
	else if (!c->block || c->block > 64 || box->shared > limits->shared_optin)
		rule = "a box is 1 to 64 KiB, which shared memory holds";
	if (rule)
		plan_print(why, "%s", rule);
	return !rule;
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

	if (!c->block || c->block > 64 || !c->resident || !permute_box_find(form, c, &box, why))
		return false;
	form = box.form;
	if (!permute_box_notes(&box, &notes)) {
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
	plan_print(&id, ", %s, %s", permute_offset_type_bytes(form, batch.outer),
			   loop ? "true" : "false");
	if (box.hole || c->turn || box.next)
		plan_print(&id, ", %lld", (long long)box.hole);
	if (c->turn || box.next)
		plan_print(&id, c->turn ? ", true" : ", false");
	if (box.next)
		plan_print(&id, ", true");
	plan_print(&id, ">");
	permute_batch_args(out, form, &batch, blocks);
	outer = permute_box_is_batch(form, 0) && permute_box_is_part(&box, 0);
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

const struct permute_variant permute_box = {
	.name = "box",
	.source = "ops/permute_box.cuh",
	.fields = "xkstmz",
	.suggest = permute_box_suggest,
	.make = permute_box_make,
};
