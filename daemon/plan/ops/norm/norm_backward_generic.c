/*
 * norm_backward_generic.c: the backward of layer_norm and rms_norm by kernels that know no size:
 * what is passed to them, and which kernels there are.
 */
#include "norm_backward.h"

#include <stdio.h>

#define LANES 5 /* 2^LANES threads share a row of a strip, at most */
/* Bytes of x and dy of a chunk that are still near when its strips are taken. */
#define NEAR_BYTES (12u << 20)
#define MOST_CHUNKS 4096
/* Blocks for sums alone that each multiprocessor is to have. */
#define BLOCKS 3
#define THREADS 256u /* NORM_BACKWARD_ANY_THREADS */
/* Rows of a chunk that one thread of a strip adds up, at most: some strip is the last. */
#define STRIP_ROWS 64

/* A launch cuts rows and columns like this. */
struct cut {
	struct rows_any rows;
	uint32_t lanes; /* of a strip, as a power of two */
	uint64_t strips, chunks, chunk, sets;
	struct kernel_scratch scratch;
};

static struct kernel_scratch scratch_for(const struct norm_backward_problem *norm,
										 const struct cut *cut, uint64_t chunks)
{
	uint64_t counters = plan_divide_up(cut->strips * 4, 256) * 256;
	uint64_t sums = 2 * ((uint64_t)cut->rows.vector << cut->lanes);

	sums *= norm->dtype == KILN_F64 ? 8 : 4;
	if (!cut->strips)
		return (struct kernel_scratch){0};
	return (struct kernel_scratch){counters + cut->strips * chunks * sums, counters};
}

/* Sums alone are read from between two vectors, wherever rows begin. */
static void find_cut_vector(const struct norm_backward_problem *norm, struct cut *cut)
{
	uint32_t wide = 16 / norm->need.element;

	for (int i = 0; i < norm->form.operands; i++)
		if (norm->need.held & 1u << i && norm->form.step[i] != 1)
			return;
	if (norm->at.dx < 0 && norm->form.columns >= wide)
		cut->rows.vector = wide;
}

static uint32_t most_threads(const struct kernel_limits *limits)
{
	return limits->max_threads < THREADS ? limits->max_threads / 32 * 32 : THREADS;
}

/* More rows side by side, for the threads that a strip is to have. */
static void fill_block(const struct kernel_limits *limits, struct cut *cut)
{
	uint32_t threads = cut->rows.threads, shift = 0;

	if (threads & (threads - 1) || threads * 2 > most_threads(limits))
		return;
	while (1u << shift < threads)
		shift++;
	if (cut->rows.shift > shift)
		cut->rows.shift = shift;
	while (cut->rows.threads * 2 <= most_threads(limits))
		cut->rows.threads *= 2;
}

static void find_chunks(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, struct cut *cut)
{
	uint64_t rows = (uint64_t)norm->form.rows, parts = cut->rows.threads >> cut->lanes, wanted;
	uint64_t near = NEAR_BYTES / (2 * (uint64_t)norm->form.columns * norm->need.element);

	near = near < STRIP_ROWS * parts ? near : STRIP_ROWS * parts;
	if (!cut->strips)
		wanted = 1;
	else if (norm->at.dx < 0)
		wanted = plan_divide_up((uint64_t)limits->multiprocessors * BLOCKS, cut->strips);
	else
		wanted = plan_divide_up(rows, near > 2 * parts ? near : 2 * parts);
	wanted = wanted < MOST_CHUNKS ? wanted : MOST_CHUNKS;
	uint64_t most = plan_divide_up(rows, parts);
	wanted = wanted < most ? wanted : most;
	wanted = wanted ? wanted : 1;
	while (wanted > 1 && scratch_for(norm, cut, wanted).bytes > KERNEL_SCRATCH_MAX)
		wanted /= 2;
	cut->chunk = plan_divide_up(rows, wanted);
	cut->chunks = cut->chunk ? plan_divide_up(rows, cut->chunk) : 1;
	cut->scratch = scratch_for(norm, cut, cut->chunks);
}

static void find_cut(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					 struct cut *cut)
{
	const struct rows_form *form = &norm->form;
	bool dx = norm->at.dx >= 0;
	uint64_t side;

	*cut = (struct cut){0};
	rows_any(form, &norm->need, norm->need.element == 2 ? 1 : 2, THREADS, limits, &cut->rows);
	fill_block(limits, cut);
	find_cut_vector(norm, cut);
	if (norm->at.gamma >= 0 && dx &&
		!norm_any_usual(norm->dtype, norm->problem->tensors[norm->at.gamma].dtype))
		cut->rows.vector = 1;
	if (!dx)
		cut->rows.threads = most_threads(limits);
	while (cut->lanes < LANES && (int64_t)cut->rows.vector << cut->lanes < form->columns)
		cut->lanes++;
	if (norm->sums)
		cut->strips =
			plan_divide_up((uint64_t)form->columns, (uint64_t)cut->rows.vector << cut->lanes);
	find_chunks(norm, limits, cut);
	side = cut->rows.shift < 31 ? cut->rows.threads >> cut->rows.shift : 1;
	cut->sets = dx ? plan_divide_up(cut->chunk, side) : 0;
}

/* An operand that is not read says nothing about the places of the others. */
static uint32_t pieces_of(const struct norm_backward_problem *norm)
{
	return norm->pieces & norm->need.held;
}

static void norm_backward_generic_pass_args(const struct norm_backward_problem *norm,
											const struct cut *cut, struct kernel_plan *out)
{
	const int typed[] = {norm->at.gamma, norm->at.dgamma, norm->at.dbeta};

	norm_backward_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.columns);
	plan_arg_scalar(out, 8, cut->chunk);
	plan_arg_scalar(out, 4, cut->chunks);
	plan_arg_scalar(out, 4, cut->strips);
	plan_arg_scalar(out, 8, cut->sets);
	plan_arg_scalar(out, 4, cut->lanes);
	plan_arg_scalar(out, 4, cut->rows.shift);
	plan_arg_divisor(out, 8, cut->sets + cut->strips);
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 8, (uint64_t)norm->form.step[i]);
	plan_arg_scalar(out, 4, pieces_of(norm) != 0);
	for (int i = 0; i < 3; i++)
		plan_arg_scalar(out, 4,
						typed[i] >= 0 ? rows_any_type(norm->problem->tensors[typed[i]].dtype) : 0);
}

int norm_backward_generic(const struct norm_backward_problem *norm,
						  const struct kernel_limits *limits, uint32_t *alignment,
						  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct norm_place place = {.problem = norm->problem,
									 .form = &norm->form,
									 .pieces = pieces_of(norm),
									 .axes = norm->axes,
									 .operand = {norm->at.x, norm->at.dy},
									 .number = {0, 1}};
	bool gamma = norm->at.gamma >= 0 && norm->at.dx >= 0;
	struct cut cut;

	find_cut(norm, limits, &cut);
	*alignment = norm->need.element * (norm->at.dx >= 0 ? cut.rows.vector : 1);
	plan_generic_launch(out, limits, "ops/norm_backward_generic.cuh",
						(cut.sets + cut.strips) * cut.chunks, cut.rows.threads);
	plan_print(&id, "norm_backward_generic<%s", plan_dtype_name(norm->dtype));
	norm_any_print(&id, cut.rows.vector,
				   gamma ? norm->problem->tensors[norm->at.gamma].dtype : norm->dtype);
	plan_print(&id, ", %s>", norm->rms ? "true" : "false");
	out->scratch = cut.scratch;
	norm_backward_generic_pass_args(norm, &cut, out);
	snprintf(out->note, sizeof(out->note),
			 "threads a row: %u; strips of %u columns, in %llu chunks of %llu rows; vectors of %u "
			 "bytes; sizes and strides are arguments",
			 cut.rows.shift < 31 ? 1u << cut.rows.shift : cut.rows.threads,
			 cut.rows.vector << cut.lanes, (unsigned long long)cut.chunks,
			 (unsigned long long)cut.chunk, cut.rows.vector * norm->need.element);
	return norm_any_space(&place, out, error);
}

/* ---- Which kernels there are: types, vectors or not ---- */

static int generics(int index, bool rms, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
	/* Two kernels of each type come first; then those for gamma of f32 with halves. */
	kiln_dtype dtype = dtypes[index < 8 ? index / 2 : index - 7];
	const int64_t shape[] = {2, index < 8 && index & 1 ? 3 : 64};
	int dx = rms ? 4 : 5;

	if (index >= 10)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, dtype, 2, shape);
	plan_made_tensor(out, 1, dtype, 2, shape);
	if (index >= 8)
		plan_made_tensor(out, 2, KILN_F32, 1, shape + 1);
	for (int i = 3; i < dx; i++)
		plan_made_tensor(out, i, dtype == KILN_F64 ? KILN_F64 : KILN_F32, 1, shape);
	plan_made_tensor(out, dx, dtype, 2, shape);
	return KILN_OK;
}

int layer_norm_backward_generics(int index, struct kernel_problem *out)
{
	return generics(index, false, out);
}

int rms_norm_backward_generics(int index, struct kernel_problem *out)
{
	return generics(index, true, out);
}
