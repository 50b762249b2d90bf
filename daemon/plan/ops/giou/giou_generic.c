/*
 * giou_generic.c: which generic kernels giou, giou_loss and their backward have: one for each pair
 * of types.  Offsets, or none, are an argument.
 */
#include "giou.h"

static const kiln_dtype preds[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
static const kiln_dtype targets[] = {KILN_F32, KILN_U8, KILN_F16, KILN_BF16, KILN_F64};
#define COUNT 20

static const int64_t boxes[] = {5, 4};

static kiln_dtype made_boxes(int index, struct kernel_problem *out)
{
	kiln_dtype pred = preds[index / 5];

	plan_made_tensor(out, 0, pred, 2, boxes);
	plan_made_tensor(out, 1, targets[index % 5], 2, boxes);
	return pred;
}

int giou_generics(int index, struct kernel_problem *out)
{
	if (index >= COUNT)
		return KILN_ENOENT;
	plan_made_tensor(out, 2, made_boxes(index, out), 1, boxes);
	return KILN_OK;
}

int giou_backward_generics(int index, struct kernel_problem *out)
{
	kiln_dtype pred;

	if (index >= COUNT)
		return KILN_ENOENT;
	pred = made_boxes(index, out);
	plan_made_tensor(out, 2, pred, 1, boxes);
	plan_made_tensor(out, 3, pred, 2, boxes);
	return KILN_OK;
}

int giou_loss_generics(int index, struct kernel_problem *out)
{
	if (index >= COUNT)
		return KILN_ENOENT;
	plan_made_tensor(out, 3, giou_computed(made_boxes(index, out)), 0, NULL);
	return KILN_OK;
}

int giou_loss_backward_generics(int index, struct kernel_problem *out)
{
	kiln_dtype pred;

	if (index >= COUNT)
		return KILN_ENOENT;
	pred = made_boxes(index, out);
	plan_made_tensor(out, 3, KILN_I64, 0, NULL);
	plan_made_tensor(out, 4, giou_computed(pred), 0, NULL);
	plan_made_tensor(out, 5, pred, 2, boxes);
	return KILN_OK;
}
