/*
 * masked_softmax_generic.c: masked softmax and its backward by kernels that know no size: what is
 * passed to them, and which kernels there are.
 */
#include "masked_softmax.h"

#include <stdio.h>

/* Numbers of kernel_src/common/mask_any.cuh. */
enum { ANY_FLAGS, ANY_LENGTHS, ANY_CAUSAL, ANY_ADDED };

/* The rows of all inputs and of the mask, which stands last. */
static void masked_softmax_generic_find_rows(const struct masked_problem *masked,
											 struct rows_form *form)
{
	const struct kernel_tensor *x = &masked->problem->tensors[0];
	const int64_t *stride[ROWS_MAX_OPERANDS];
	int64_t mask[KILN_MAX_RANK];
	int count = 0, culprit;

	for (; count < masked->count - 1; count++)
		stride[count] = masked->problem->tensors[masked->inputs[count]].stride;
	masked_strides(masked, mask);
	stride[count++] = mask;
	/* One axis always is one dimension. */
	(void)rows_form(form, x->rank, x->shape, count, stride, x->rank - 1, 1, &culprit);
}

static kiln_dtype mask_dtype(const struct masked_problem *masked)
{
	return masked->mask >= 0 ? masked->problem->tensors[masked->mask].dtype : KILN_DTYPE_NONE;
}

/* Is the mask of the type of x, or f32 with one that is computed in that?  There are vectors for
 * these. */
static bool is_usual(const struct masked_problem *masked)
{
	kiln_dtype dtype = mask_dtype(masked);

	return dtype == masked->form.dtype || (dtype == KILN_F32 && masked->form.dtype != KILN_F64);
}

static void pass_mask(const struct masked_problem *masked, int64_t step, struct kernel_plan *out)
{
	static const uint32_t kinds[] = {[MASKED_BOOL] = ANY_FLAGS,
									 [MASKED_LENGTHS] = ANY_LENGTHS,
									 [MASKED_CAUSAL] = ANY_CAUSAL,
									 [MASKED_ADDITIVE] = ANY_ADDED};
	if (masked->mask >= 0)
		plan_arg_pointer(out, masked->mask);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, (uint64_t)step);
	plan_arg_scalar(out, 8, (uint64_t)masked->diagonal);
	plan_arg_scalar(out, 4, kinds[masked->kind]);
	plan_arg_scalar(out, 4, masked->keep);
	plan_arg_scalar(out, 4, (uint64_t)masked->empty);
	plan_arg_scalar(out, 4, rows_any_type(mask_dtype(masked)));
}

/* shift: of rows in steps; NULL: threads hold the rows, whose columns are 1 apart. */
static void masked_softmax_generic_pass_args(const struct masked_problem *masked,
											 const struct rows_form *form, const uint32_t *shift,
											 struct kernel_plan *out)
{
	for (int i = 0; i < masked->count; i++)
		plan_arg_pointer(out, masked->inputs[i]);
	pass_mask(masked, form->step[form->operands - 1], out);
	masked_scale_args(masked, out);
	plan_arg_scalar(out, 8, (uint64_t)form->rows);
	plan_arg_scalar(out, 8, (uint64_t)form->columns);
	if (shift)
		plan_arg_scalar(out, 4, *shift);
	for (int i = 0; shift && i < form->operands - 1; i++)
		plan_arg_scalar(out, 8, (uint64_t)form->step[i]);
	rows_pass_sizes(out, form, 8);
	for (int i = 0; i < form->operands; i++)
		rows_pass_strides(out, form, i);
}

static uint32_t mask_bytes(const struct masked_problem *masked)
{
	return masked->mask >= 0 ? kernel_dtype_bytes(mask_dtype(masked)) : 0;
}

/* false: threads cannot hold these rows. */
static bool plan_held(const struct masked_problem *masked, const struct kernel_limits *limits,
					  struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct rows_shape shape;
	struct rows_form form;

	if (masked->backward || masked->kind == MASKED_ADDITIVE ||
		!rows_held(&masked->form.rows, &masked->form.need, true, limits, &shape))
		return false;
	masked_softmax_generic_find_rows(masked, &form);
	rows_held_launch(&form, &shape, limits, "ops/masked_softmax_held_generic.cuh", out);
	plan_print(&id, "masked_softmax_held_generic<");
	rows_held_print(&id, masked->form.dtype, &shape);
	plan_print(&id, ">");
	masked_softmax_generic_pass_args(masked, &form, NULL, out);
	masked_extents(masked, shape.vector * masked->form.need.element, mask_bytes(masked), out);
	return true;
}

void masked_generic(const struct masked_problem *masked, const struct kernel_limits *limits,
					struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const char *name = plan_dtype_name(masked->form.dtype);
	uint32_t element = masked->form.need.element;
	bool added = masked->kind == MASKED_ADDITIVE && !masked->backward;
	struct rows_form form;
	struct rows_any any;

	if (plan_held(masked, limits, out))
		return;
	rows_any(&masked->form.rows, &masked->form.need, 2, ROWS_ANY_THREADS / 2, limits, &any);
	masked_softmax_generic_find_rows(masked, &form);
	if (added && !is_usual(masked))
		any.vector = 1;
	plan_generic_launch(out, limits, "ops/masked_softmax_generic.cuh", any.blocks, any.threads);
	plan_print(&id, "masked_softmax%s_generic<%s, %u, MaskAny%s<%s",
			   masked->backward ? "_backward" : "", name, any.vector, added ? "Added" : "Flags",
			   name);
	if (added)
		plan_print(&id, ", %s", any.vector > 1 ? plan_dtype_name(mask_dtype(masked)) : "void");
	plan_print(&id, ">>");
	masked_softmax_generic_pass_args(masked, &form, &any.shift, out);
	masked_extents(masked, any.vector * element, mask_bytes(masked), out);
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u; vectors of %u bytes; sizes, strides and the kind of mask are "
			 "arguments",
			 any.shift < 31 ? 1u << any.shift : any.threads, any.vector * element);
}

/* ---- Which kernels there are: types, vectors or not, flags or numbers to add ---- */

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};

int masked_softmax_generics(int index, struct kernel_problem *out)
{
	/* Four kernels of each type come first; then those that add an f32 to vectors of halves; then
	 * those for rows that are held. */
	int held = index - 18, which = held < 0 ? ROWS_HELD_SHAPES : held % ROWS_HELD_SHAPES;
	kiln_dtype dtype = dtypes[index < 16 ? index / 4
							  : held < 0 ? index - 15
										 : held / ROWS_HELD_SHAPES];
	bool added = held < 0 && (index >= 16 || index & 2);
	const int64_t shape[] = {
		2, index < 16 && index & 1 ? 3 : rows_held_columns(which, kernel_dtype_bytes(dtype))};

	if (held >= 3 * ROWS_HELD_SHAPES)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, dtype, 2, shape);
	plan_made_tensor(out, 1, added && index >= 16 ? KILN_F32 : added ? dtype : KILN_BOOL, 2, shape);
	plan_made_tensor(out, 2, dtype, 2, shape);
	plan_made_word(out, "kind", added ? "additive" : "bool");
	return KILN_OK;
}

int masked_softmax_backward_generics(int index, struct kernel_problem *out)
{
	const int64_t shape[] = {2, index & 1 ? 3 : 64};

	if (index >= 4 * 2)
		return KILN_ENOENT;
	for (int i = 0; i < 4; i++)
		plan_made_tensor(out, i, i == 2 ? KILN_BOOL : dtypes[index / 2], 2, shape);
	plan_made_word(out, "kind", "bool");
	return KILN_OK;
}
