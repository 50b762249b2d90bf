/*
 * permute_form.c: from shapes, strides and a permutation to the canonical form, in which problems
 * that need the same kernel are equal.  Knows no variant.
 */
#include "permute.h"

#include <string.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Joins neighbours in y that are neighbours in x too.  From the fast end one pass is enough. */
static void merge(struct permute_form *form, int64_t max_size)
{
	struct permute_dim kept[PERMUTE_MAX_DIMS];
	int count = 0;

	for (int k = form->rank - 1; k >= 0; k--) {
		const struct permute_dim *dim = &form->dim[k];
		struct permute_dim *fast = count ? &kept[count - 1] : NULL;
		int64_t span, size;

		if (dim->size == 1)
			continue;
		if (fast && !__builtin_mul_overflow(fast->from, fast->size, &span) && span == dim->from &&
			!__builtin_mul_overflow(fast->size, dim->size, &size) && size <= max_size)
			fast->size = size;
		else
			kept[count++] = *dim;
	}
	form->rank = count;
	for (int k = 0; k < count; k++)
		form->dim[k] = kept[count - 1 - k];
}

static void finish(struct permute_form *form)
{
	form->count = 1;
	form->huge = false;
	for (int k = form->rank - 1; k >= 0; k--) {
		form->dim[k].to = form->count;
		form->count *= form->dim[k].size;
		form->huge = form->huge || form->dim[k].size > INT32_MAX;
	}
}

void permute_canonical(const struct kernel_problem *problem, const int64_t *perm, int64_t max_size,
					   struct permute_form *form)
{
	const struct kernel_tensor *x = &problem->tensors[0], *y = &problem->tensors[1];
	uint32_t bytes = kernel_dtype_bytes(x->dtype);
	int64_t pieces;

	memset(form, 0, sizeof(*form));
	form->align_x = smaller(x->alignment, 16);
	form->align_y = smaller(y->alignment, 16);
	/* An address that is not aligned to its elements: they travel in pieces. */
	form->element = smaller(bytes, smaller(form->align_x, form->align_y));
	pieces = bytes / form->element;
	for (int k = 0; k < x->rank; k++) {
		struct permute_dim *dim = &form->dim[form->rank];
		if (x->shape[perm[k]] == 1)
			continue;
		dim->size = x->shape[perm[k]];
		dim->from = x->stride[perm[k]] * pieces;
		form->rank++;
	}
	if (pieces > 1)
		form->dim[form->rank++] = (struct permute_dim){.size = pieces, .from = 1};
	merge(form, max_size);
	finish(form);
}

/* A last dimension that stays, of 2 to 16 bytes in all, is one wider element. */
static void widen(struct permute_form *form)
{
	const struct permute_dim *last = &form->dim[form->rank - 1];
	int64_t bytes = last->size * (int64_t)form->element;

	if (form->rank == 0 || last->from != 1 || last->size > 16 || bytes > 16 ||
		(bytes & (bytes - 1)) || bytes > form->align_x || bytes > form->align_y)
		return;
	for (int k = 0; k < form->rank - 1; k++)
		if (form->dim[k].from % last->size)
			return;
	for (int k = 0; k < form->rank - 1; k++)
		form->dim[k].from /= last->size;
	form->element = (uint32_t)bytes;
	form->rank--;
}

/* A size beyond 31 bits with a small factor is two sizes. */
static void cut(struct permute_form *form)
{
	for (int k = 0; k < form->rank; k++) {
		struct permute_dim *dim = &form->dim[k];
		int64_t factor = 2;

		if (dim->size <= INT32_MAX || form->rank == PERMUTE_MAX_DIMS)
			continue;
		while (factor < 4096 && (dim->size % factor || dim->size / factor > INT32_MAX))
			factor++;
		if (factor == 4096)
			continue;
		memmove(dim + 1, dim, (size_t)(form->rank - k) * sizeof(*dim));
		form->rank++;
		dim[1].size /= factor;
		dim[0].size = factor;
		dim[0].from = dim[1].size * dim[1].from;
	}
}

void permute_join(struct permute_form *form, uint32_t width)
{
	const int last = form->rank - 1;
	const int64_t each = width / form->element;

	form->element = width;
	form->count /= each;
	form->dim[last].size /= each;
	for (int k = 0; k < last; k++) {
		form->dim[k].from /= each;
		form->dim[k].to /= each;
	}
}

void permute_widen(struct permute_form *form)
{
	widen(form);
	finish(form);
}

void permute_refine(struct permute_form *form)
{
	widen(form);
	cut(form);
	finish(form);
}

bool permute_is_copy(const struct permute_form *form)
{
	return form->rank == 0 || (form->rank == 1 && form->dim[0].from == 1);
}

int permute_fastest(const struct permute_form *form)
{
	int best = -1;

	for (int k = 0; k < form->rank; k++)
		if (form->dim[k].from && (best < 0 || form->dim[k].from < form->dim[best].from))
			best = k;
	return best;
}

static const char *offset_type(const struct permute_form *form, int without, int64_t unit)
{
	int64_t from = 0, to = 0;

	/* Extents were checked against 63 bits. */
	for (int k = 0; k < form->rank; k++) {
		if (k == without)
			continue;
		from += (form->dim[k].size - 1) * form->dim[k].from;
		to += (form->dim[k].size - 1) * form->dim[k].to;
	}
	return from <= INT32_MAX / 2 / unit && to <= INT32_MAX / 2 / unit ? "i32" : "i64";
}

const char *permute_offset_type(const struct permute_form *form, int without)
{
	return offset_type(form, without, 1);
}

const char *permute_offset_type_bytes(const struct permute_form *form, int without)
{
	return offset_type(form, without, form->element);
}

uint32_t permute_width(const struct permute_form *form, bool in_x, int64_t run, uint32_t skip)
{
	uint32_t width = in_x ? form->align_x : form->align_y;

	for (; width > form->element; width /= 2) {
		int64_t each = width / form->element;
		bool fits = run % each == 0;
		for (int k = 0; k < form->rank && fits; k++)
			if (!(skip & 1u << k))
				fits = (in_x ? form->dim[k].from : form->dim[k].to) % each == 0;
		if (fits)
			break;
	}
	return width;
}

void permute_print_list(struct plan_text *text, const struct permute_form *form, uint32_t mask,
						enum permute_field field)
{
	const char *comma = "";

	plan_print(text, ", List<");
	for (int k = form->rank - 1; k >= 0; k--) {
		const struct permute_dim *dim = &form->dim[k];
		if (!(mask & 1u << k))
			continue;
		plan_print(text, "%s%lld", comma,
				   (long long)(field == PERMUTE_SIZE   ? dim->size
							   : field == PERMUTE_FROM ? dim->from
													   : dim->to));
		comma = ", ";
	}
	plan_print(text, ">");
}

void permute_batch(const struct permute_form *form, uint32_t used, bool along_x,
				   struct permute_batch *batch)
{
	int count = 0;

	*batch = (struct permute_batch){.outer = -1, .items = 1};
	for (int k = form->rank - 1; k >= 0; k--) {
		int at = count;
		if (used & 1u << k)
			continue;
		while (along_x && at > 0 && form->dim[batch->dim[at - 1]].from > form->dim[k].from) {
			batch->dim[at] = batch->dim[at - 1];
			at--;
		}
		batch->dim[at] = k;
		batch->items *= form->dim[k].size;
		count++;
	}
	if (count) {
		batch->inner = count - 1;
		batch->outer = batch->dim[count - 1];
	}
}

void permute_print_batch(struct plan_text *text, const struct permute_form *form,
						 const struct permute_batch *batch)
{
	for (int list = 0; list < 3; list++) {
		plan_print(text, ", List<");
		for (int i = 0; i < batch->inner; i++) {
			const struct permute_dim *dim = &form->dim[batch->dim[i]];
			plan_print(text, "%s%lld", i ? ", " : "",
					   (long long)(list == 0   ? dim->size
								   : list == 1 ? dim->from
											   : dim->to));
		}
		plan_print(text, ">");
	}
}

void permute_batch_args(struct kernel_plan *out, const struct permute_form *form,
						const struct permute_batch *batch, uint64_t work)
{
	const struct permute_dim none = {0};
	const struct permute_dim *outer = batch->outer < 0 ? &none : &form->dim[batch->outer];

	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 8, (uint64_t)outer->from);
	plan_arg_scalar(out, 8, (uint64_t)outer->to);
	plan_arg_scalar(out, 8, work);
}

#define STAGED_LEAST 8192 /* half a tile of bytes */

bool permute_too_small(const struct permute_form *form, const struct permute_batch *batch,
					   const char *variant, struct plan_text *why)
{
	if (batch->outer >= 0 || form->count > STAGED_LEAST / (int64_t)form->element)
		return false;
	plan_print(why, "not %s: %lld bytes are too few; ", variant,
			   (long long)form->count * form->element);
	return true;
}
