/*
 * permute_near.c: vectors along a fastest dimension that stays, where rows that are neighbours in
 * x lie far apart in y, such as the heads of attention: blocks take pieces of a few runs of y in
 * turn.
 */
#include "permute_box.h"

#define WIDTH 16
#define LEAST_RUN 8192 /* bytes of a run of y; those of shorter ones are near anyway */
#define MOST_ROW 240   /* bytes of a row: longer ones share few sectors with their neighbours */
#define MOST_NEAR 16

struct near {
	struct permute_form steps;  /* the form in vectors */
	uint32_t run_mask;          /* the dimensions of a run of y */
	int first;                  /* the slowest of them */
	int64_t run;                /* vectors */
	int nearest;                /* of the others the one whose rows are nearest in x */
	struct permute_batch batch; /* the rest */
};

static bool find(const struct permute_form *form, struct near *near)
{
	const int last = form->rank - 1;
	const struct permute_dim *dim = form->dim;

	*near = (struct near){.steps = *form, .first = last, .nearest = -1};
	if (form->huge || form->element > WIDTH || form->rank < 3 || dim[last].from != 1 ||
		dim[last].size * form->element > MOST_ROW || form->align_y < WIDTH ||
		permute_width(form, true, dim[last].size, 1u << last) < WIDTH)
		return false;
	permute_join(&near->steps, WIDTH);
	dim = near->steps.dim;
	near->run = dim[last].size;
	near->run_mask = 1u << last;
	while (near->run * WIDTH < LEAST_RUN || near->first == last) {
		if (near->first == 0 || permute_box_is_batch(form, near->first - 1))
			return false;
		near->first--;
		near->run *= dim[near->first].size;
		near->run_mask |= 1u << near->first;
	}
	if (near->run > INT32_MAX / 2)
		return false;
	for (int k = 0; k < near->first; k++)
		if (dim[k].from < dim[near->first].from &&
			(near->nearest < 0 || dim[k].from < dim[near->nearest].from))
			near->nearest = k;
	if (near->nearest < 0)
		return false;
	permute_batch(&near->steps, near->run_mask | 1u << near->nearest, false, &near->batch);
	return true;
}

static bool make_near(const struct permute_form *form, const struct kernel_limits *limits,
					  const struct permute_choice *c, struct kernel_plan *out,
					  struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct permute_dim *nearest;
	struct near near;
	int64_t line;
	uint64_t blocks;
	bool loop;

	if (!find(form, &near)) {
		plan_print(why, "not near: no rows are neighbours in x and far apart in y; ");
		return false;
	}
	nearest = &near.steps.dim[near.nearest];
	if (c->load != WIDTH || c->band < 2 || c->band > 1024 || c->threads < 32 || c->threads % 32 ||
		c->threads > limits->max_threads) {
		plan_print(why, "vectors are 16 bytes, of 2 to 1024 runs, and threads are whole warps");
		return false;
	}
	line = near.run * WIDTH % 128 ? 128 / WIDTH - 1 : 0;
	blocks = (uint64_t)near.batch.items * c->band *
			 permute_tiles((uint64_t)nearest->size, c->band) *
			 permute_tiles((uint64_t)(near.run + line), c->threads);
	loop = plan_launch(out, limits, blocks, c->threads);
	plan_print(&id, "permute_near<%d, %u, %lld", WIDTH, c->threads, (long long)near.run);
	permute_print_list(&id, &near.steps, near.run_mask & ~(1u << near.first), PERMUTE_SIZE);
	permute_print_list(&id, &near.steps, near.run_mask, PERMUTE_FROM);
	plan_print(&id, ", %u, %lld, %lld, %lld", c->band, (long long)nearest->size,
			   (long long)nearest->from, (long long)nearest->to);
	permute_print_batch(&id, &near.steps, &near.batch);
	plan_print(&id, ", %s, %s>", permute_offset_type(form, near.batch.outer),
			   loop ? "true" : "false");
	permute_batch_args(out, &near.steps, &near.batch, blocks);
	out->extents[0].alignment = out->extents[1].alignment = WIDTH;
	plan_print(why, "runs of %lld bytes of y, pieces of %u of them in turn",
			   (long long)near.run * WIDTH, c->band);
	return !id.full;
}

static void suggest_near(struct permute_list *list, struct plan_text *why)
{
	static const uint32_t most[] = {MOST_NEAR, 4, 8, 32, 64};
	struct near near;

	(void)why; /* the note of another variant does not mention this one */
	if (!find(list->form, &near))
		return;
	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		const uint64_t size = (uint64_t)near.steps.dim[near.nearest].size;
		struct permute_choice c = {.load = WIDTH, .threads = 128};
		c.band = (uint32_t)permute_tiles(size, permute_tiles(size, most[i]));
		permute_suggest(list, &c);
	}
}

const struct permute_variant permute_near = {
	.name = "near",
	.source = "ops/permute.cuh",
	.fields = "wto",
	.suggest = suggest_near,
	.make = make_near,
};
