/*
 * masked_softmax_mask.c: where the elements of a mask lie for each row of x, and how they come in.
 */
#include "masked_softmax.h"

#include <string.h>

/* Words that a thread needs for where a mask ends, or to put its elements together. */
#define AROUND 8
#define AROUND_PIECES 20

void masked_strides(const struct masked_problem *masked, int64_t stride[KILN_MAX_RANK])
{
	const struct kernel_tensor *mask =
		&masked->problem->tensors[masked->mask >= 0 ? masked->mask : 0];
	int rank = masked->problem->tensors[0].rank;
	int dims = masked->kind == MASKED_LENGTHS ? rank - 1 : rank;

	memset(stride, 0, sizeof(stride[0]) * KILN_MAX_RANK);
	if (masked->kind == MASKED_CAUSAL)
		stride[rank - 2] = 1; /* the query is the position in the second last dimension */
	for (int m = 0; masked->mask >= 0 && m < mask->rank; m++)
		if (mask->shape[m] != 1)
			stride[m + dims - mask->rank] = mask->stride[m];
	/* A batch of one has a mask of its own. */
	if (masked->mask >= 0 && mask->rank == dims && mask->rank > 0 && mask->shape[0] == 1 &&
		masked->problem->tensors[0].shape[0] == 1)
		stride[0] = plan_batch_stride(mask->rank, mask->shape, mask->stride);
}

/* Bytes that a thread keeps of the mask for each element. */
static uint32_t kept_bytes(const struct masked_problem *masked)
{
	if (masked->kind == MASKED_LENGTHS || masked->kind == MASKED_CAUSAL ||
		masked->rows.step[0] == 0)
		return 0;
	return kernel_dtype_bytes(masked->problem->tensors[masked->mask].dtype);
}

/* The mask elements of a vector come in so many bytes at once, or as mask.cuh says. */
enum { WAY_APART = -1, WAY_BETWEEN = 0 };

static int way_of(const struct masked_problem *masked, const struct rows_shape *shape)
{
	const struct kernel_tensor *mask = &masked->problem->tensors[masked->mask];
	const struct rows_form *form = &masked->rows;
	uint32_t element = kernel_dtype_bytes(mask->dtype), bytes = element * shape->vector;
	uint32_t aligned = mask->alignment < bytes ? mask->alignment : bytes;

	if (form->step[0] != 1 && form->columns > 1)
		return WAY_APART;
	aligned = shape->skewed ? element : rows_narrow(form, 0, element, aligned);
	if (aligned < bytes && bytes / aligned > 2 && bytes >= 4 && bytes <= 16)
		return WAY_BETWEEN;
	if (shape->skewed && aligned < bytes)
		return bytes >= 4 && bytes <= 16 ? WAY_BETWEEN : WAY_APART;
	return (int)aligned;
}

/* Do the mask elements of any 16 bytes of x come in at once?  A mask is fetched again for each pass
 * over slots, and all else is much code for that. */
static bool come_in_together(const struct masked_problem *masked)
{
	struct rows_shape shape = {.vector = rows_vector(&masked->form.rows, &masked->form.need)};

	return shape.vector * masked->form.need.element == 16 && way_of(masked, &shape) > 0;
}

void masked_form(struct masked_problem *masked)
{
	const struct kernel_tensor *x = &masked->problem->tensors[0];
	int64_t mask[KILN_MAX_RANK];
	const int64_t *stride[] = {mask};
	int culprit;

	softmax_form(masked->problem, masked->inputs, masked->count, x->rank - 1, &masked->form);
	masked->masks = masked->kind == MASKED_CAUSAL || masked->mask >= 0;
	masked->form.need.staged = masked->masks;
	if (!masked->masks)
		return;
	masked_strides(masked, mask);
	/* One axis always is one dimension. */
	(void)rows_form(&masked->rows, x->rank, x->shape, 1, stride, x->rank - 1, 1, &culprit);
	masked->form.need.beside = kept_bytes(masked);
	masked->form.need.slots = kept_bytes(masked) == 0 || come_in_together(masked);
	masked->form.need.around = masked->form.need.slots ? AROUND : AROUND_PIECES;
	if (masked->form.dtype == KILN_F64)
		masked->form.need.around += AROUND;
	masked->form.need.uneven = true;
	/* Few threads a row for those that end early. */
	masked->form.need.along = masked->kind == MASKED_LENGTHS || masked->kind == MASKED_CAUSAL;
	masked->form.need.staged = masked->form.rows.columns * masked->form.need.element % 16 != 0;
	masked->form.need.gapped = false;
	if (masked->form.need.staged && masked->form.need.beside && masked->rows.step[0] == 1)
		masked->form.need.aside =
			((uint32_t)masked->form.rows.columns * masked->form.need.beside + 30) / 16 * 16;
	/* The kernel of pairs knows flags alone, and makes zeros of a row of which they leave
	 * nothing. */
	masked->form.need.pairs = !masked->backward && masked->form.need.aside &&
							  masked->form.need.beside == 1 && masked->empty == 0;
}

uint32_t masked_alignment(const struct masked_problem *masked, const struct rows_shape *shape)
{
	int way = kept_bytes(masked) ? way_of(masked, shape) : 0;

	return way > 0 ? (uint32_t)way
				   : kernel_dtype_bytes(masked->problem->tensors[masked->mask].dtype);
}

void masked_print_mask(struct plan_text *text, const struct masked_problem *masked,
					   const struct rows_shape *shape)
{
	static const char *const empties[] = {"MASK_ZERO", "MASK_NAN", "MASK_UNIFORM"};
	bool each = kept_bytes(masked) > 0, added = masked->kind == MASKED_ADDITIVE;
	int way = each ? way_of(masked, shape) : 0;
	const char *name = masked->kind == MASKED_LENGTHS  ? "Lengths"
					   : masked->kind == MASKED_CAUSAL ? "Causal"
					   : added                         ? (each ? "Added" : "AddedRow")
													   : (each ? "Flags" : "Whole");

	plan_print(text, ", Mask%s<%s, %lld, %s", name, plan_dtype_name(masked->form.dtype),
			   (long long)masked->form.rows.columns, empties[masked->empty]);
	if (added)
		plan_print(text, ", %s", plan_dtype_name(masked->problem->tensors[masked->mask].dtype));
	else if (masked->kind == MASKED_BOOL)
		plan_print(text, ", %s", masked->keep ? "true" : "false");
	if (each && way > 0)
		plan_print(text, ", %d", way);
	else if (each)
		plan_print(text, ", %s", way == WAY_APART ? "MASK_APART" : "MASK_BETWEEN");
	if (each)
		plan_print(text, ", %s", shape->skewed ? "true" : "false");
	plan_print(text, ">");
	plan_print(text, ", MaskPlace<%lld", (long long)masked->rows.step[0]);
	rows_print_sizes(text, &masked->rows);
	rows_print_strides(text, &masked->rows, 0);
	plan_print(text, ">");
}
