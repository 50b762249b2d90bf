/*
 * permute.c: y = x with its dimensions reordered: what a request must satisfy, and which variant
 * takes it.  The canonical form is in permute_form.c, the matrix of a transpose in
 * permute_matrix.c, names of choices in permute_choice.c; the variants are in permute_move.c
 * (vector, braid, strided), permute_near.c, permute_rows.c, permute_interleave.c, permute_tile.c,
 * permute_shift.c, permute_stage.c and permute_box.c; kernels that know no size are in
 * permute_generic.c and permute_tile_generic.c.
 */
#include "permute.h"

#include <stdio.h>
#include <string.h>

/* The attribute perm, checked against x. */
static int read_perm(const struct kernel_problem *problem, int64_t perm[KILN_MAX_RANK],
					 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0];
	const struct kernel_attr *attr = plan_attr(problem, "perm");
	uint32_t seen = 0;

	if (!attr)
		return plan_refuse(error, KILN_EINVAL,
						   "permute: perm is missing: which of x's %d dimensions each one of y is",
						   x->rank);
	if (attr->kind != KILN_ATTR_INTS)
		return plan_refuse(error, KILN_EINVAL, "permute: perm must be a list of integers");
	if (attr->count != x->rank)
		return plan_refuse(error, KILN_EINVAL,
						   "permute: perm has %d entries, x has %d dimensions: they must agree",
						   attr->count, x->rank);
	for (int k = 0; k < x->rank; k++) {
		perm[k] = attr->ints[k];
		if (perm[k] < 0 || perm[k] >= x->rank)
			return plan_refuse(error, KILN_EINVAL,
							   "permute: perm[%d] is %lld; the dimensions of x are 0 to %d", k,
							   (long long)perm[k], x->rank - 1);
		if (seen & 1u << perm[k])
			return plan_refuse(error, KILN_EINVAL,
							   "permute: perm names dimension %lld twice; each comes once",
							   (long long)perm[k]);
		seen |= 1u << perm[k];
	}
	return KILN_OK;
}

static int check_y(const struct kernel_tensor *x, const struct kernel_tensor *y,
				   const int64_t *perm, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor dense = *y;
	int64_t count;

	if (y->dtype != x->dtype)
		return plan_refuse(error, KILN_EINVAL,
						   "permute: x is %s and y is %s; permute does not convert",
						   plan_dtype_name(x->dtype), plan_dtype_name(y->dtype));
	if (y->rank != x->rank)
		return plan_refuse(error, KILN_EINVAL,
						   "permute: x has rank %d and y rank %d; they must agree", x->rank,
						   y->rank);
	for (int k = 0; k < y->rank; k++)
		if (y->shape[k] != x->shape[perm[k]])
			return plan_refuse(
				error, KILN_EINVAL,
				"permute: dimension %d of y has size %lld, but perm makes it dimension "
				"%lld of x, of size %lld",
				k, (long long)y->shape[k], (long long)perm[k], (long long)x->shape[perm[k]]);
	plan_contiguous(&dense);
	plan_elements(y, &count);
	for (int k = 0; k < y->rank && count; k++)
		if (y->shape[k] > 1 && y->stride[k] != dense.stride[k])
			return plan_refuse(error, KILN_EINVAL,
							   "permute: dimension %d of y has stride %lld; y must be contiguous, "
							   "which is stride %lld there",
							   k, (long long)y->stride[k], (long long)dense.stride[k]);
	return KILN_OK;
}

int permute_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *x = &problem->tensors[0], *y = &problem->tensors[1];
	int64_t perm[KILN_MAX_RANK];
	int status;

	status = read_perm(problem, perm, error);
	if (status)
		return status;
	if (y->dtype == KILN_DTYPE_NONE) {
		memset(y, 0, sizeof(*y));
		y->dtype = x->dtype;
		y->rank = x->rank;
		y->alignment = 16;
		for (int k = 0; k < x->rank; k++)
			y->shape[k] = x->shape[perm[k]];
		plan_contiguous(y);
	}
	return check_y(x, y, perm, error);
}

/* ---- Choosing ---- */

#define VARIANTS 11

/* The variants in the order in which they are asked; the last one takes all. */
static const struct permute_variant *const order[VARIANTS] = {
	&permute_near,       &permute_rows,  &permute_vector, &permute_braid,
	&permute_interleave, &permute_shift, &permute_step,   &permute_stage,
	&permute_tile,       &permute_box,   &permute_strided};

static void set_launch(struct kernel_plan *out, const struct permute_variant *variant,
					   const struct permute_choice *choice)
{
	memcpy(out->variant, variant->name, strlen(variant->name) + 1);
	memcpy(out->source, variant->source, strlen(variant->source) + 1);
	permute_choice_print(variant, choice, out->choice);
}

static int choose_named(const struct permute_form *form, const struct kernel_limits *limits,
						const char *name, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	size_t length = strcspn(name, " ");

	for (int i = 0; i < VARIANTS; i++) {
		const struct permute_variant *variant = order[i];
		struct plan_text why = {.text = out->note, .size = sizeof(out->note)};
		struct permute_choice choice;
		if (strlen(variant->name) != length || strncmp(variant->name, name, length) != 0 ||
			!permute_choice_read(variant, name, &choice))
			continue;
		if (!variant->make(form, limits, &choice, out, &why))
			return plan_refuse(error, KILN_EINVAL,
							   "permute: choice \"%s\" does not suit this problem: %s", name,
							   out->note);
		set_launch(out, variant, &choice);
		return KILN_OK;
	}
	return plan_refuse(error, KILN_EINVAL,
					   "permute: choice \"%s\" names no candidate; a name is such as "
					   "\"tile 64x64 k4 l16 s16 t256 r\"",
					   name);
}

/* Bytes of the shorter side of a tile of rows that begin anywhere, of which a box makes more. */
#define NARROW_TILE 64

/* Vectors that speak for the choice, or against it in favour of a box. */
static uint32_t worth_of(const struct permute_form *form, const struct permute_variant *variant,
						 const struct permute_choice *choice)
{
	uint32_t element = form->element, side = choice->rows;

	if (variant == &permute_shift || variant == &permute_step) { /* as narrow as its tile */
		if (choice->band != 1 && !(element == 1 && permute_shift_slim(form)) &&
			(permute_box_crumbled(form) || permute_shift_low(form)))
			return element;
		if (choice->band != 1 && choice->columns < side)
			side = choice->columns;
		return side * element < NARROW_TILE && choice->columns * element > 16 &&
					   permute_box_many(form)
				   ? element
				   : 16;
	}
	if (variant == &permute_vector && permute_vector_short(form, choice))
		return 4;
	/* Several of 4 bytes under way are as good as wider ones. */
	return (variant == &permute_vector || variant == &permute_braid) && choice->load >= 4
			   ? 16
			   : choice->load;
}

/* Does a choice stay, though its vectors are narrow?  Words on one side and more on the other keep
 * clear of the banks in which a box's elements meet. */
static bool is_wide_enough(const struct permute_form *form, const struct permute_variant *variant,
						   const struct permute_choice *choice)
{
	if (variant == &permute_interleave)
		return choice->load >= 4 && permute_interleave_many(form);
	return variant == &permute_tile && form->element < 4 && choice->load >= 4 &&
		   choice->store >= 4 && choice->load + choice->store >= (form->element == 1 ? 12 : 16) &&
		   permute_tile_full(form, choice);
}

/* The first that takes the form; a box if that one's vectors are narrow. */
static const struct permute_variant *find_variant(const struct permute_form *form,
												  const struct kernel_limits *limits,
												  struct plan_text *why)
{
	struct permute_list list = {.form = form, .limits = limits, .most = 1};
	const struct permute_choice *first = &list.choice[0];
	uint32_t load, store;

	for (int i = 0; i < VARIANTS && list.count == 0; i++) {
		list.variant = order[i];
		list.variant->suggest(&list, why);
		/* Planes that begin anywhere are columns of a tile rather than bytes one by one. */
		if (list.variant == &permute_interleave && list.count && first->load < 4 &&
			permute_shift_slim(form))
			list.count = 0;
	}
	if (list.variant == &permute_shift && list.count && permute_step_better(form, first)) {
		struct permute_list steps = {
			.form = form, .limits = limits, .most = 1, .variant = &permute_step};
		permute_step.suggest(&steps, why);
		if (steps.count)
			list = steps;
	}
	load = worth_of(form, list.variant, first);
	store = list.variant == &permute_tile ? first->store : load;
	/* Elements of 8 bytes that are read one by one count as narrow: a box goes over the gaps
	 * between them. */
	if ((list.variant == &permute_tile && form->element == 4 && permute_box_crumbled(form)) ||
		(list.variant == &permute_strided && form->element == 8))
		load = store = 4;
	if (list.variant == &permute_stage || is_wide_enough(form, list.variant, first) ||
		!permute_box_better(form, limits, load, store))
		return list.variant;
	/* A box may decline what has narrow vectors. */
	struct permute_list boxes = {
		.form = form, .limits = limits, .most = 1, .variant = &permute_box};
	permute_box.suggest(&boxes, why);
	if (boxes.count == 0)
		return list.variant;
	plan_print(why, "not %s: its vectors are narrow; ", list.variant->name);
	return &permute_box;
}

/* The planner's own choice, unless another is named. */
static int choose(const struct permute_form *form, const struct kernel_limits *limits,
				  const char *name, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text why = {.text = out->note, .size = sizeof(out->note)};
	struct permute_list list = {.form = form, .limits = limits, .most = 1};
	char own[KERNEL_CHOICE_MAX] = "";

	list.variant = find_variant(form, limits, &why);
	list.variant->suggest(&list, &why);
	if (list.count)
		permute_choice_print(list.variant, &list.choice[0], own);
	if (name && strcmp(name, own) != 0) {
		out->note[0] = 0;
		return choose_named(form, limits, name, out, error);
	}
	if (list.count && list.variant->make(form, limits, &list.choice[0], out, &why)) {
		set_launch(out, list.variant, &list.choice[0]);
		return KILN_OK;
	}
	return plan_refuse(error, KILN_ENOTSUP,
					   "permute: the name of the kernel would be longer than %d characters",
					   KERNEL_INSTANTIATION_MAX);
}

static int no_launch(struct kernel_plan *out, enum kernel_launch_kind kind, const char *variant,
					 const char *note)
{
	out->kind = kind;
	snprintf(out->variant, sizeof(out->variant), "%s", variant);
	snprintf(out->note, sizeof(out->note), "%s", note);
	return KILN_OK;
}

int permute_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0], *y = &problem->tensors[1];
	int64_t perm[KILN_MAX_RANK], count;
	struct permute_form form;
	int status = read_perm(problem, perm, error);

	if (!status)
		status = check_y(x, y, perm, error);
	if (status)
		return status;

	plan_elements(y, &count);
	if (count == 0)
		return no_launch(out, KERNEL_NOTHING, "nothing", "there are no elements");
	plan_touch(problem, 0, 1, out);
	plan_touch(problem, 1, 1, out);
	permute_canonical(problem, perm, INT64_MAX, &form);
	if (permute_is_copy(&form)) {
		out->copy_bytes = out->extents[1].bytes;
		return no_launch(out, KERNEL_COPY, "copy", "the order of the elements does not change");
	}
	if (plan_is_generic(choice)) {
		permute_generic(problem, perm, limits, out);
		return KILN_OK;
	}
	permute_canonical(problem, perm, INT32_MAX, &form);
	permute_refine(&form);
	return choose(&form, limits, choice, out, error);
}

int permute_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	char unused[KERNEL_ERROR_MAX];
	struct plan_text why = {.text = unused, .size = sizeof(unused)};
	const struct permute_variant *own;
	int64_t perm[KILN_MAX_RANK];
	struct permute_form form;
	int count = 0;

	read_perm(problem, perm, unused);
	permute_canonical(problem, perm, INT32_MAX, &form);
	permute_refine(&form);
	own = find_variant(&form, limits, &why);
	for (int i = -1; i < VARIANTS && count < PLAN_MAX_CHOICES; i++) {
		struct permute_list list = {.variant = i < 0 ? own : order[i],
									.form = &form,
									.limits = limits,
									.most = PLAN_MAX_CHOICES - count};
		if (i >= 0 && order[i] == own)
			continue;
		/* The variant that takes any form is worth one try, and so is the one that seldom wins. */
		if (count && (i == VARIANTS - 1 || order[i] == &permute_stage))
			list.most = list.most < 1 ? list.most : 1;
		list.variant->suggest(&list, &why);
		for (int k = 0; k < list.count; k++)
			permute_choice_print(list.variant, &list.choice[k], names[count++]);
	}
	return count;
}
