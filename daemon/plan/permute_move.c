/*
 * permute_move.c: the variants without shared memory: vectors along a fastest dimension that stays,
 * and the gather that takes everything.
 */
#include "permute.h"

#define MOVE_THREADS 256u

static uint32_t move_threads(const struct kernel_limits *limits)
{
	uint32_t threads = MOVE_THREADS;

	while (threads > limits->max_threads)
		threads /= 2;
	return threads;
}

/*
 * Work numbered through in y's order, each thread one number; the last dimension counts in steps of
 * `each` elements.  Prints what is common to both kernels' template-ids and makes the launch.
 */
static void number_through(const struct permute_form *form, const struct kernel_limits *limits,
						   int64_t each, int64_t unit, struct plan_text *id,
						   struct kernel_plan *out)
{
	struct permute_form steps = *form;
	int last = form->rank - 1;
	uint32_t all = (1u << form->rank) - 1, threads = move_threads(limits);
	uint64_t count;
	bool loop;

	/* A vector kernel counts offsets in vectors (unit = each), a gather in elements (unit = 1). */
	steps.dim[last].size /= each;
	steps.dim[last].from *= each;
	for (int k = 0; k < form->rank; k++)
		steps.dim[k].from /= unit;
	count = (uint64_t)(form->count / each);
	loop = permute_grid(out, limits, count, threads, threads);
	if (steps.dim[last].size == 1 && last > 0) {
		steps.rank--;
		all >>= 1;
	}
	plan_print(id, ", %u", threads);
	permute_print_list(id, &steps, all & ~1u, PERMUTE_SIZE);
	permute_print_list(id, &steps, all, PERMUTE_FROM);
	plan_print(id, ", %s, %s, %s>", count <= INT32_MAX ? "u32" : "u64",
			   permute_offset_type(form, -1), loop ? "true" : "false");
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 8, count);
}

bool permute_vector(const struct permute_form *form, const struct kernel_limits *limits,
					struct kernel_plan *out, struct plan_text *why)
{
	int last = form->rank - 1;
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint32_t width;

	if (form->dim[last].from != 1) {
		plan_print(why, "not vector: the fastest dimension moves; ");
		return false;
	}
	width = permute_width(form, true, form->dim[last].size, 1u << last);
	if (width > form->align_y)
		width = form->align_y;
	plan_print(&id, "permute_vector<%u", width);
	number_through(form, limits, width / form->element, width / form->element, &id, out);
	out->extents[0].alignment = out->extents[1].alignment = width;
	plan_print(why, "runs of %lld bytes stay together and move %u bytes at a time",
			   (long long)form->dim[last].size * form->element, width);
	return !id.full;
}

bool permute_strided(const struct permute_form *form, const struct kernel_limits *limits,
					 struct kernel_plan *out, struct plan_text *why)
{
	int last = form->rank - 1;
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint32_t width = permute_width(form, false, form->dim[last].size, (1u << form->rank) - 1);

	plan_print(&id, "permute_strided<%u, %u, %lld", form->element, width / form->element,
			   (long long)form->dim[last].from);
	number_through(form, limits, width / form->element, 1, &id, out);
	out->extents[0].alignment = form->element;
	out->extents[1].alignment = width;
	plan_print(why, "each thread gathers %u elements of %u bytes", width / form->element,
			   form->element);
	return !id.full;
}
