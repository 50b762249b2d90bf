/*
 * index_panel.c: take_along_axis along another axis than the last: which columns of src a block
 * holds in shared memory.
 *
 * Wider panels are longer runs of memory, narrower ones are more blocks that take turns in loading
 * and storing.  A panel of whole lines of memory is worth a multiprocessor.
 */
#include "index.h"

#include <stdio.h>

#define USUAL_BYTES 73728 /* of shared memory: a multiprocessor has three blocks */
#define LINE_BYTES 131072 /* the same for panels of whole lines: it has one */
#define LINE 128u
#define LEAST_PITCH 32u

/* Slices are the dimensions before the axis, of which there is one at least; operands: src, idx.
 * false: the columns of one do not merge, or do not lie side by side in src. */
static bool panel_form(const struct index_problem *index, struct rows_form *out)
{
	const struct kernel_tensor *dst = &index->many;
	int64_t shape[KILN_MAX_RANK], strides[2][KILN_MAX_RANK];
	const int64_t *stride[] = {strides[0], strides[1]};
	int rank = 0, culprit;

	for (int k = 0; k < dst->rank; k++) {
		if (k == index->axis)
			continue;
		shape[rank] = dst->shape[k];
		strides[0][rank] = index->few.stride[k];
		strides[1][rank++] = index->idx_stride[k];
	}
	return index->axis > 0 && rank > index->axis &&
		   rows_form(out, rank, shape, 2, stride, index->axis, rank - index->axis, &culprit) &&
		   out->columns > 1 && out->step[0] == 1;
}

/* Bytes with which every row of every panel is aligned. */
static uint32_t panel_load(const struct kernel_problem *problem, const struct index_problem *index,
						   const struct rows_form *form, uint32_t pitch)
{
	uint32_t element = index->element, width = problem->tensors[index->op.few].alignment;
	uint64_t axis = (uint64_t)index->few.stride[index->axis] * element;

	width = width < 16 ? width : 16;
	width = width < pitch ? width : pitch;
	while (width > element && (axis % width || (uint64_t)form->columns * element % width))
		width /= 2;
	return rows_narrow(form, 0, element, width);
}

static bool make_panel(const struct kernel_problem *problem, const struct index_problem *index,
					   const struct kernel_limits *limits, const struct rows_form *form,
					   uint32_t pitch, struct index_panel *out)
{
	int64_t few = index->few.shape[index->axis], many = index->many.shape[index->axis];

	while (pitch > index->element && pitch / 2 >= form->columns * index->element)
		pitch /= 2;
	if (pitch < index->element || few < 1 || few > limits->shared_optin / pitch)
		return false;
	*out = (struct index_panel){.wide = pitch / index->element, .threads = 32};
	out->shared = (uint32_t)few * pitch;
	out->load = panel_load(problem, index, form, pitch);
	while (out->threads < (out->shared > USUAL_BYTES ? 1024 : 512) &&
		   (out->threads < out->wide || out->threads * 8 < many * out->wide) &&
		   2 * out->threads <= limits->max_threads)
		out->threads *= 2;
	snprintf(out->name, sizeof(out->name), "panel %ux%u", out->wide, out->threads);
	return out->wide <= out->threads;
}

int index_panels(const struct kernel_problem *problem, const struct index_problem *index,
				 const struct kernel_limits *limits, struct index_panel out[INDEX_PANELS])
{
	static const uint32_t pitches[INDEX_PANELS] = {LINE, LINE / 2, LEAST_PITCH};
	struct rows_form form;
	int count = 0;

	if (!index->op.each || index->op.adds || !panel_form(index, &form))
		return 0;
	for (int i = 0; i < INDEX_PANELS; i++) {
		int64_t panels;
		struct index_panel *panel = &out[count];
		if (!make_panel(problem, index, limits, &form, pitches[i], panel) ||
			(count && panel->wide == out[0].wide))
			continue;
		panels = plan_divide_up(form.columns, panel->wide);
		/* Fewer blocks than multiprocessors leave some without work. */
		panel->usual = panel->shared <= (pitches[i] == LINE ? LINE_BYTES : USUAL_BYTES) ||
					   pitches[i] == LEAST_PITCH;
		panel->usual =
			panel->usual && form.rows >= plan_divide_up(2 * limits->multiprocessors, panels);
		count++;
	}
	return count;
}

int index_panel_plan(const struct kernel_problem *problem, const struct index_problem *index,
					 const struct index_panel *panel, const struct kernel_limits *limits,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct rows_form form;
	int64_t items;
	bool loop;

	(void)panel_form(index, &form);
	if (__builtin_mul_overflow(form.rows, plan_divide_up(form.columns, panel->wide), &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many elements", problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, panel->threads);
	snprintf(out->source, sizeof(out->source), "ops/index_panel.cuh");
	snprintf(out->choice, sizeof(out->choice), "%s", panel->name);
	out->shared_bytes = plan_divide_up(panel->shared, 16) * 16;
	plan_print(&id, "index_panel<IndexPanel<%u, %s, %s, %lld, %lld, %lld, %u, %u, %u>",
			   index->element, plan_dtype_name(index->index), plan_bounds_name(index->bounds),
			   (long long)index->few.shape[index->axis], (long long)index->many.shape[index->axis],
			   (long long)form.columns, panel->wide, panel->threads, panel->load);
	plan_print(&id, ", IndexPanelPlaces<%lld, %lld, %lld",
			   (long long)index->few.stride[index->axis], (long long)index->idx_stride[index->axis],
			   (long long)form.step[1]);
	rows_print_sizes(&id, &form);
	rows_print_strides(&id, &form, 0);
	rows_print_strides(&id, &form, 1);
	plan_print(&id, ">, %s>", loop ? "true" : "false");
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)items);
	index_report_arg(index, out);
	plan_touch(problem, 0, panel->load, out);
	plan_touch(problem, 1, index->index_bytes, out);
	plan_touch(problem, 2, index->element, out);
	snprintf(out->note, sizeof(out->note),
			 "a block holds %u of %lld columns of src in shared memory, %u bytes", panel->wide,
			 (long long)form.columns, panel->shared);
	return plan_check_name(&id, out, error);
}
