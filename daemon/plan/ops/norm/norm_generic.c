/*
 * norm_generic.c: layer_norm and rms_norm by kernels that know no size: what is passed to them, and
 * which kernels there are.
 */
#include "norm.h"

#include <stdio.h>

bool norm_any_usual(kiln_dtype dtype, kiln_dtype of)
{
	return of == dtype || (of == KILN_F32 && dtype != KILN_F64);
}

void norm_any_print(struct plan_text *id, uint32_t vector, kiln_dtype dtype)
{
	plan_print(id, ", %u, %s", vector, vector > 1 ? plan_dtype_name(dtype) : "void");
}

int norm_any_space(const struct norm_place *place, struct kernel_plan *out,
				   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensors = place->problem->tensors, *x = &tensors[place->operand[0]];
	const struct kernel_tensor *other = &tensors[place->operand[place->operand[1] >= 0 ? 1 : 0]];
	const int64_t *stride[] = {x->stride, other->stride};
	struct rows_form all, rows = *place->form;
	int culprit;

	if (!place->pieces) {
		rows_pass_sizes(out, &rows, 8);
		rows_pass_strides(out, &rows, place->number[0]);
		rows_pass_strides(out, &rows, place->number[place->operand[1] >= 0 ? 1 : 0]);
		return KILN_OK;
	}
	/* No axis: every element is a row. */
	(void)rows_form(&all, x->rank, x->shape, 2, stride, x->rank, 0, &culprit);
	if (all.rank == KILN_MAX_RANK)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: the generic kernel takes inputs of %d dimensions that do not merge "
						   "only if the normalized ones lie evenly",
						   place->problem->op, KILN_MAX_RANK);
	rows_pass_sizes(out, &all, 8);
	rows_pass_strides(out, &all, 0);
	rows_pass_strides(out, &all, 1);
	return KILN_OK;
}

/* The type of gamma and beta if vectors of both can be taken, or KILN_DTYPE_NONE. */
static kiln_dtype affine_of(const struct norm_problem *norm)
{
	const struct kernel_tensor *tensors = norm->problem->tensors;
	const int at[] = {norm->at.gamma, norm->at.beta};
	kiln_dtype found = KILN_DTYPE_NONE;

	for (int i = 0; i < 2; i++) {
		if (at[i] < 0)
			continue;
		if ((found != KILN_DTYPE_NONE && tensors[at[i]].dtype != found) ||
			!norm_any_usual(norm->dtype, tensors[at[i]].dtype))
			return KILN_DTYPE_NONE;
		found = tensors[at[i]].dtype;
	}
	return found == KILN_DTYPE_NONE ? norm->dtype : found;
}

static void norm_generic_pass_args(const struct norm_problem *norm, uint32_t shift, uint32_t places,
								   struct kernel_plan *out)
{
	const struct kernel_tensor *tensors = norm->problem->tensors;
	const int affine[] = {norm->at.gamma, norm->at.beta};

	norm_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.columns);
	plan_arg_scalar(out, 4, shift);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.step[0]);
	plan_arg_scalar(out, 8, norm->residual >= 0 ? (uint64_t)norm->form.step[norm->residual] : 0);
	plan_arg_scalar(out, 4, norm->pieces != 0);
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 4, affine[i] >= 0 ? rows_any_type(tensors[affine[i]].dtype) : 0);
	plan_arg_scalar(out, 4, places);
}

static void plan_held(const struct norm_problem *norm, const struct rows_shape *shape,
					  const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	rows_held_launch(&norm->form, shape, limits, "ops/norm_held_generic.cuh", out);
	plan_print(&id, "norm_held_generic<");
	rows_held_print(&id, norm->dtype, shape);
	plan_print(&id, ", %s>", norm->rms ? "true" : "false");
	norm_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.columns);
	rows_pass_sizes(out, &norm->form, 8);
	rows_pass_strides(out, &norm->form, 0);
}

int norm_generic(const struct norm_problem *norm, const struct kernel_limits *limits,
				 uint32_t *alignment, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct norm_place place = norm_place(norm);
	kiln_dtype affine = affine_of(norm);
	uint32_t count = norm->need.element == 2 ? 1 : 2, places;
	bool residual = norm->residual >= 0;
	struct rows_shape shape;
	struct rows_any any;

	if (!residual && norm->at.sum < 0 && !norm->pieces && affine == norm->dtype &&
		(rows_held(&norm->form, &norm->need, false, limits, &shape) ||
		 rows_held(&norm->form, &norm->need, true, limits, &shape))) {
		*alignment = 16;
		plan_held(norm, &shape, limits, out);
		return KILN_OK;
	}
	/* Halves take the registers of three blocks of 256 threads, but of one of 512. */
	rows_any(&norm->form, &norm->need, count, count * (ROWS_ANY_THREADS / 2), limits, &any);
	if (affine == KILN_DTYPE_NONE)
		any.vector = 1;
	places = rows_any_ring(&norm->form, norm->need.element, residual ? 2 : 1, count, limits, &any,
						   &out->shared_bytes);
	*alignment = any.vector * norm->need.element;
	plan_generic_launch(out, limits, "ops/norm_generic.cuh", any.blocks, any.threads);
	plan_print(&id, "norm_generic<%s", plan_dtype_name(norm->dtype));
	norm_any_print(&id, any.vector, affine);
	plan_print(&id, ", %s, %s>", norm->rms ? "true" : "false", residual ? "true" : "false");
	norm_generic_pass_args(norm, any.shift, places, out);
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u; vectors of %u bytes; sizes and strides are arguments",
			 any.shift < 31 ? 1u << any.shift : any.threads, *alignment);
	return norm_any_space(&place, out, error);
}

/* ---- Which kernels there are: types, vectors or not, with residual or not ---- */

int norm_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
	/* Four kernels of each type come first; then those for gamma of f32 with halves; then those for
	 * rows that are held, and begin with a vector, and between two. */
	int held = index - 20, which = held < 0 ? ROWS_HELD_SHAPES : held % ROWS_HELD_SHAPES;
	kiln_dtype dtype = dtypes[index < 16 ? index / 4
							  : held < 0 ? index / 2 - 7
										 : held / ROWS_HELD_SHAPES % 3];
	uint32_t element = kernel_dtype_bytes(dtype);
	int64_t between = held >= 3 * ROWS_HELD_SHAPES ? 32 / element - 1 : 0;
	const int64_t shape[] = {
		2, index < 16 && index & 2 ? 3 : rows_held_columns(which, element) - between};

	if (held >= 6 * ROWS_HELD_SHAPES)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, dtype, 2, shape);
	if (held < 0 && index >= 16)
		plan_made_tensor(out, 1, KILN_F32, 1, shape + 1);
	if (held < 0 && index & 1)
		plan_made_tensor(out, 3, dtype, 2, shape);
	plan_made_tensor(out, 4, dtype, 2, shape);
	return KILN_OK;
}
