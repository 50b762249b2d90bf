/*
 * index_add_panel.c: scatter_add along another axis than the last: which columns a block holds the
 * sums of in shared memory.
 */
#include "index.h"

#include <stdio.h>

#define USUAL_BYTES 75776 /* of shared memory: a multiprocessor has three blocks */
#define MOST_WIDE 128u    /* columns */
#define LEAST_WIDE 4
#define BRINGERS 256u /* threads that fill stages */
#define EACH 2u       /* elements of a stage for each of these */
#define WARP 32u

enum { MANY, BASE, IDX };

/* Slices are the dimensions before the axis, of which there is one at least.  false: the columns of
 * an operand do not merge. */
static bool form_of(const struct index_problem *index, struct rows_form *out)
{
	const struct kernel_tensor *many = &index->many;
	int64_t shape[KILN_MAX_RANK], strides[3][KILN_MAX_RANK];
	const int64_t *stride[] = {strides[MANY], strides[BASE], strides[IDX]};
	int rank = 0, culprit;

	for (int k = 0; k < many->rank; k++) {
		if (k == index->axis)
			continue;
		shape[rank] = many->shape[k];
		strides[MANY][rank] = many->stride[k];
		strides[BASE][rank] = index->base.stride[k];
		strides[IDX][rank++] = index->idx_stride[k];
	}
	return index->axis > 0 && rank > index->axis &&
		   rows_form(out, rank, shape, 3, stride, index->axis, rank - index->axis, &culprit) &&
		   out->columns > 1;
}

/* Elements of a column in a stage. */
static uint32_t panel_near(uint32_t wide)
{
	return BRINGERS * EACH / wide;
}

/* Bytes of two stages, of the sums, and of those of what names nothing; ops/index_add_panel.cuh
 * computes the same. */
static uint64_t panel_bytes(int64_t places, uint32_t wide, uint32_t compute)
{
	return 4ull * BRINGERS * EACH * compute + ((uint64_t)places + 1) * wide * compute;
}

bool index_add_panel(const struct index_problem *index, const struct kernel_limits *limits,
					 struct index_panel *out)
{
	uint32_t compute = index->element == 8 ? 8 : 4;
	int64_t places = index->few.shape[index->axis];
	struct rows_form form;

	if (!index->op.each || index->op.base < 0 || !form_of(index, &form) || places < 1 ||
		places > INT32_MAX)
		return false;
	*out = (struct index_panel){.wide = MOST_WIDE, .load = index->element};
	while (out->wide > LEAST_WIDE &&
		   (panel_bytes(places, out->wide, compute) > USUAL_BYTES || out->wide / 2 >= form.columns))
		out->wide /= 2;
	out->threads = BRINGERS + (out->wide < WARP ? WARP : out->wide);
	if (panel_bytes(places, out->wide, compute) > limits->shared_optin ||
		out->threads > limits->max_threads)
		return false;
	out->shared = (uint32_t)panel_bytes(places, out->wide, compute);
	/* Fewer blocks than multiprocessors leave some without work. */
	out->usual = out->shared <= USUAL_BYTES &&
				 form.rows >= plan_divide_up(2 * (int64_t)limits->multiprocessors,
											 plan_divide_up(form.columns, out->wide));
	snprintf(out->name, sizeof(out->name), "panel %ux%u", out->wide, out->threads);
	return true;
}

/* Columns of the sums that lie side by side and are aligned, in all panels. */
static uint32_t panel_vector(const struct kernel_problem *problem,
							 const struct index_problem *index, const struct rows_form *form,
							 uint32_t wide)
{
	uint32_t element = index->element, vector = element > 4 ? 16 / element : 4, base;

	if (form->step[BASE] != 1)
		return 1;
	base = rows_narrow(form, BASE, element, 16) / element;
	while (vector > 1 && (wide % vector || form->columns % vector || vector > base ||
						  index->base.stride[index->axis] % vector ||
						  problem->tensors[index->op.base].alignment < vector * element ||
						  problem->tensors[index->op.few].alignment < vector * element))
		vector /= 2;
	return vector;
}

static void print_side(const struct rows_form *form, int operand, int64_t axis,
					   struct plan_text *id)
{
	plan_print(id, ", IndexAddSide<%lld, %lld", (long long)axis, (long long)form->step[operand]);
	rows_print_sizes(id, form);
	rows_print_strides(id, form, operand);
	plan_print(id, ">");
}

int index_add_panel_plan(const struct kernel_problem *problem, const struct index_problem *index,
						 const struct index_panel *panel, const char *element,
						 const struct kernel_limits *limits, struct kernel_plan *out,
						 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int axis = index->axis;
	struct rows_form form;
	uint32_t vector;
	int64_t items;
	bool loop;

	(void)form_of(index, &form);
	vector = panel_vector(problem, index, &form, panel->wide);
	if (__builtin_mul_overflow(form.rows, plan_divide_up(form.columns, panel->wide), &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many sums", problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, panel->threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add_panel.cuh");
	snprintf(out->choice, sizeof(out->choice), "%s", panel->name);
	out->shared_bytes = (uint32_t)plan_divide_up(panel->shared, 16) * 16;
	plan_print(&id, "index_add_panel<IndexAddPanel<%s, %s, %s, %lld, %lld, %lld, %u, %u, %u, %u>",
			   element, plan_dtype_name(index->index), plan_bounds_name(index->bounds),
			   (long long)index->few.shape[axis], (long long)index->many.shape[axis],
			   (long long)form.columns, panel->wide, panel->threads, vector,
			   panel_near(panel->wide));
	print_side(&form, MANY, index->many.stride[axis], &id);
	print_side(&form, BASE, index->base.stride[axis], &id);
	print_side(&form, IDX, index->idx_stride[axis], &id);
	plan_print(&id, ", %s>", loop ? "true" : "false");
	plan_arg_pointer(out, index->op.many);
	plan_arg_pointer(out, 1);
	plan_arg_pointer(out, index->op.base);
	plan_arg_pointer(out, index->op.few);
	plan_arg_scalar(out, 8, (uint64_t)items);
	index_report_arg(index, out);
	for (int i = 0; i < problem->tensor_count; i++)
		plan_touch(problem, i,
				   i == 1                ? index->index_bytes
				   : i == index->op.many ? index->element
										 : vector * index->element,
				   out);
	plan_over(problem, index->op.few, index->op.base, out);
	snprintf(out->note, sizeof(out->note),
			 "a block holds the sums of %u of %lld columns in shared memory, %u bytes", panel->wide,
			 (long long)form.columns, panel->shared);
	return plan_check_name(&id, out, error);
}
