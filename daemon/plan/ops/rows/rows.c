/*
 * rows.c: from shapes and strides to rows of columns.
 */
#include "rows.h"

#include <stdio.h>
#include <string.h>

/* Can the dimension `inner` be joined to `outer`, in all operands? */
static bool joins(const struct rows_form *form, const int64_t outer[ROWS_MAX_OPERANDS],
				  const int64_t inner[ROWS_MAX_OPERANDS], int64_t inner_size, int *culprit)
{
	for (int i = 0; i < form->operands; i++) {
		int64_t span;
		if (__builtin_mul_overflow(inner[i], inner_size, &span) || span != outer[i]) {
			*culprit = i;
			return false;
		}
	}
	return true;
}

static bool merge_columns(struct rows_form *form, const int64_t *shape,
						  const int64_t *const stride[], int axis, int axes, int *culprit)
{
	bool first = true;

	form->columns = 1;
	for (int i = 0; i < form->operands; i++)
		form->step[i] = 1;
	for (int k = axis + axes - 1; k >= axis; k--) {
		int64_t here[ROWS_MAX_OPERANDS];
		for (int i = 0; i < form->operands; i++)
			here[i] = stride[i][k];
		if (shape[k] == 1)
			continue;
		if (first)
			memcpy(form->step, here, sizeof(here[0]) * (size_t)form->operands);
		/* Columns of no elements lie nowhere. */
		else if (form->columns > 0 && !joins(form, here, form->step, form->columns, culprit))
			return false;
		first = false;
		form->columns *= shape[k];
	}
	return true;
}

/* Goes from the fast end, so that one pass is enough. */
static void merge_rows(struct rows_form *form, int rank, const int64_t *shape,
					   const int64_t *const stride[], int axis, int axes)
{
	int64_t size[KILN_MAX_RANK], kept[KILN_MAX_RANK][ROWS_MAX_OPERANDS];
	int count = 0, culprit;

	form->rows = 1;
	for (int k = rank - 1; k >= 0; k--) {
		int64_t here[ROWS_MAX_OPERANDS];
		if ((k >= axis && k < axis + axes) || (shape[k] == 1 && k > 0))
			continue;
		for (int i = 0; i < form->operands; i++)
			here[i] = k == 0 ? plan_batch_stride(rank, shape, stride[i]) : stride[i][k];
		form->rows *= shape[k];
		if (count && joins(form, here, kept[count - 1], size[count - 1], &culprit)) {
			size[count - 1] *= shape[k];
			continue;
		}
		memcpy(kept[count], here, sizeof(here[0]) * (size_t)form->operands);
		size[count++] = shape[k];
	}
	form->rank = count;
	for (int k = 0; k < count; k++) {
		form->size[k] = size[count - 1 - k];
		for (int i = 0; i < form->operands; i++)
			form->stride[i][k] = kept[count - 1 - k][i];
	}
}

bool rows_form(struct rows_form *form, int rank, const int64_t *shape, int operands,
			   const int64_t *const stride[], int axis, int axes, int *culprit)
{
	memset(form, 0, sizeof(*form));
	form->operands = operands;
	if (!merge_columns(form, shape, stride, axis, axes, culprit))
		return false;
	merge_rows(form, rank, shape, stride, axis, axes);
	return true;
}

void rows_print_sizes(struct plan_text *text, const struct rows_form *form)
{
	plan_print(text, ", List<");
	for (int k = form->rank - 1; k > 0; k--)
		plan_print(text, "%s%lld", k < form->rank - 1 ? ", " : "", (long long)form->size[k]);
	plan_print(text, ">");
}

void rows_print_strides(struct plan_text *text, const struct rows_form *form, int operand)
{
	plan_print(text, ", List<");
	for (int k = form->rank - 1; k >= 0; k--)
		plan_print(text, "%s%lld", k < form->rank - 1 ? ", " : "",
				   (long long)form->stride[operand][k]);
	/* One row: it begins where the operand does. */
	plan_print(text, form->rank ? ">" : "0>");
}

void rows_print_step(struct plan_text *text, const struct rows_form *form, int operand)
{
	plan_print(text, ", %lld", (long long)form->step[operand]);
}

const char *rows_index_type(const struct rows_form *form)
{
	return form->rows > INT32_MAX ? "i64" : "u32";
}

#define SPACE_SIZES 6 /* of common/space.cuh */

void rows_pass_sizes(struct kernel_plan *plan, const struct rows_form *form, uint32_t bytes)
{
	plan_arg_scalar(plan, 4, (uint64_t)(form->rank ? form->rank : 1));
	for (int i = 0; i < SPACE_SIZES; i++) {
		int k = form->rank - 1 - i;
		plan_arg_divisor(plan, bytes, k > 0 ? (uint64_t)form->size[k] : 1);
	}
}

void rows_pass_strides(struct kernel_plan *plan, const struct rows_form *form, int operand)
{
	for (int i = 0; i < SPACE_SIZES; i++) {
		int k = form->rank - 1 - i;
		plan_arg_scalar(plan, 8, k > 0 ? (uint64_t)form->stride[operand][k] : 0);
	}
	plan_arg_scalar(plan, 8, form->rank ? (uint64_t)form->stride[operand][0] : 0);
}

void rows_describe(const struct rows_form *form, const struct rows_need *need,
				   const struct rows_shape *shape, const char *more, struct kernel_plan *out)
{
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements; threads a row: %u; vectors a thread: %u of %u bytes%s",
			 (long long)form->columns, shape->size * shape->cluster, shape->held,
			 shape->vector * need->element, more);
}
