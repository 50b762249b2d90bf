/*
 * permute_interleave.c: planes of few elements that become neighbours, or were.
 */
#include "permute.h"

#define MOST 16 /* planes */
#define MANY_PLANES 12
#define MOST_BYTES 128 /* of all planes, in the registers of a thread */
#define LEAST 32       /* of the long dimension */
#define THREADS 128u

/* The two dimensions of an interleave. */
struct interleave {
	bool split;    /* in turn in x, planes in y */
	int along;     /* the long dimension */
	int planes;    /* the short one */
	int64_t plane; /* distance of planes */
	int64_t length, count;
	uint32_t width; /* bytes at once, at most */
	struct permute_batch batch;
};

static bool find_pair(const struct permute_form *form, struct interleave *found)
{
	int last = form->rank - 1, fast = permute_fastest(form);
	const struct permute_dim *dim = form->dim;

	if (form->huge || form->rank < 2 || fast < 0 || fast == last || dim[fast].from != 1)
		return false;
	if (dim[last].size <= MOST && fast == last - 1 && dim[last].from >= dim[fast].size)
		*found = (struct interleave){
			.split = false, .along = fast, .planes = last, .plane = dim[last].from};
	else if (dim[fast].size <= MOST && dim[last].from == dim[fast].size)
		*found = (struct interleave){
			.split = true, .along = last, .planes = fast, .plane = dim[fast].to};
	else
		return false;
	found->length = dim[found->along].size;
	found->count = dim[found->planes].size;
	return found->length >= LEAST && found->count * form->element <= MOST_BYTES;
}

static bool permute_interleave_find(const struct permute_form *form, struct interleave *found,
									struct plan_text *why)
{
	uint32_t pair, other;

	if (!find_pair(form, found)) {
		plan_print(why, "not interleave: no %d to %d elements meet a long dimension; ", 2, MOST);
		return false;
	}
	pair = 1u << found->along | 1u << found->planes;
	permute_batch(form, pair, false, &found->batch);
	found->width = permute_width(form, true, found->length, pair);
	other = permute_width(form, false, found->length, pair);
	if (other < found->width)
		found->width = other;
	while (found->plane % (found->width / form->element) ||
		   (found->count * found->width > MOST_BYTES && found->width > form->element))
		found->width /= 2;
	return !permute_too_small(form, &found->batch, "interleave", why);
}

/* Bytes of shared memory a warp needs: as in the kernel. */
static uint32_t permute_interleave_shared_bytes(int64_t planes, uint32_t width)
{
	uint32_t slots = 32 * (uint32_t)planes;

	if (planes % 2 == 0)
		slots += slots / (128 / width);
	return (slots * width + 15) / 16 * 16;
}

static bool permute_interleave_fits(const struct permute_form *form,
									const struct kernel_limits *limits,
									const struct interleave *found, const struct permute_choice *c,
									struct plan_text *why)
{
	if (!c->load || (c->load & (c->load - 1)) || c->load < form->element ||
		c->load > found->width) {
		plan_print(why, "vectors are %u to %u bytes here", form->element, found->width);
		return false;
	}
	if (c->threads < 32 || c->threads % 32 || c->threads > limits->max_threads) {
		plan_print(why, "threads are whole warps, %u at most", limits->max_threads);
		return false;
	}
	if (c->threads / 32 * permute_interleave_shared_bytes(found->count, c->load) >
		limits->shared_default) {
		plan_print(why, "a block has %u bytes of shared memory", limits->shared_default);
		return false;
	}
	return true;
}

static bool permute_interleave_make(const struct permute_form *form,
									const struct kernel_limits *limits,
									const struct permute_choice *c, struct kernel_plan *out,
									struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct interleave found;
	uint64_t warps;
	bool loop;

	if (!permute_interleave_find(form, &found, why) ||
		!permute_interleave_fits(form, limits, &found, c, why))
		return false;
	warps = (uint64_t)found.batch.items *
			(uint64_t)((found.length * form->element + 32 * c->load - 1) / (32 * c->load));
	loop = plan_launch(out, limits, plan_divide_up(warps, c->threads / 32), c->threads) ||
		   warps > INT32_MAX;
	plan_print(&id, "permute_interleave<%u, %lld, %u, %u, %s, %lld, %lld", form->element,
			   (long long)found.count, c->load, c->threads, found.split ? "true" : "false",
			   (long long)found.length, (long long)found.plane);
	permute_print_batch(&id, form, &found.batch);
	plan_print(&id, ", %s, %s>", permute_offset_type(form, found.batch.outer),
			   loop ? "true" : "false");
	permute_batch_args(out, form, &found.batch, warps);
	out->shared_bytes = c->threads / 32 * permute_interleave_shared_bytes(found.count, c->load);
	out->extents[0].alignment = out->extents[1].alignment = c->load;
	plan_print(why, "%lld planes of %lld elements %s, %u bytes at a time through registers",
			   (long long)found.count, (long long)found.length,
			   found.split ? "are taken apart" : "are woven", c->load);
	return !id.full;
}

bool permute_interleave_many(const struct permute_form *form)
{
	struct interleave found;

	return find_pair(form, &found) && found.count >= MANY_PLANES;
}

static void permute_interleave_suggest(struct permute_list *list, struct plan_text *why)
{
	static const uint32_t others[] = {64, 256, 512};
	struct interleave found;
	struct permute_choice first, c;
	bool pair;

	if (!permute_interleave_find(list->form, &found, why))
		return;
	/* Vectors of 8 bytes leave a thread fewer to wait for than those of 16, which two planes of
	 * words do not fill anyway. */
	pair = list->form->element == 4 && found.count == 2;
	first = (struct permute_choice){
		.load = found.width < 8 || list->form->element > 4 || pair ? found.width : 8,
		.threads = THREADS};
	/* A plane that is shorter than the vectors of a warp leaves lanes idle: half at most. */
	while (first.load > list->form->element && first.load > 4 &&
		   32 * first.load > (pair ? 2 : 1) * found.length * list->form->element)
		first.load /= 2;
	while (first.threads > 32 &&
		   (first.threads > list->limits->max_threads ||
			first.threads / 32 * permute_interleave_shared_bytes(found.count, first.load) >
				list->limits->shared_default))
		first.threads /= 2;
	permute_suggest(list, &first);
	if (list->count == 0)
		plan_print(why, "not interleave: %u bytes of shared memory; ",
				   permute_interleave_shared_bytes(found.count, first.load));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		c = first;
		c.threads = others[i];
		permute_suggest(list, &c);
	}
	for (uint32_t width = found.width; width >= 4; width /= 2) {
		c = first;
		c.load = width;
		permute_suggest(list, &c);
	}
}

const struct permute_variant permute_interleave = {
	.name = "interleave",
	.source = "ops/permute.cuh",
	.fields = "wt",
	.suggest = permute_interleave_suggest,
	.make = permute_interleave_make,
};
