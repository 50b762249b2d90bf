/*
 * norm_backward_kernel.c: the kernels of layer_norm_backward and rms_norm_backward: their names,
 * what they are launched with, and what of it a person is told.
 */
#include "norm_backward.h"

#include <stdio.h>

/* Bytes of x and dy that are still near after a chunk's rows: a part of the smallest of the large
 * L2 caches. */
#define NEAR_BYTES (12u << 20)
#define MOST_CHUNKS 4096
#define PARTS_AT_ONCE 16 /* columns_finish() in kernel_src/common/columns.cuh */
#define LEAST_STEPS 4

static const char *type_of(const struct norm_backward_problem *norm, int operand)
{
	if (operand < 0 || !(norm->touched & 1u << operand))
		return "void";
	return plan_dtype_name(norm->problem->tensors[operand].dtype);
}

/* ", NormBackwardWith<f16, void, f32, 16, false>" */
static void print_with(const struct norm_backward_problem *norm, bool skewed, struct plan_text *id)
{
	plan_print(id, ", NormBackwardWith<%s, %s, %s, %u, %s>", type_of(norm, norm->at.gamma),
			   type_of(norm, norm->at.dgamma), type_of(norm, norm->at.dbeta),
			   skewed ? 0 : norm->affine, norm->rms ? "true" : "false");
}

static void print_place(const struct norm_backward_problem *norm, struct plan_text *id)
{
	const struct norm_place place = {.problem = norm->problem,
									 .form = &norm->form,
									 .pieces = norm->pieces,
									 .axes = norm->axes,
									 .operand = {norm->at.x, norm->at.dy},
									 .number = {0, 1}};

	norm_print_place(id, &place);
}

static void add_pointer(const struct norm_backward_problem *norm, int operand,
						struct kernel_plan *out)
{
	if (operand >= 0 && norm->touched & 1u << operand)
		plan_arg_pointer(out, operand);
	else
		plan_arg_scalar(out, 8, 0);
}

static void add_inputs(const struct norm_backward_problem *norm, struct kernel_plan *out)
{
	const struct norm_backward_operands *at = &norm->at;
	const int inputs[] = {at->x, at->dy, at->gamma, at->mean, at->rstd, at->dx};

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
		add_pointer(norm, inputs[i], out);
}

/* The sums over the rows, and the scratch memory that they take. */
static void add_sums(const struct norm_backward_problem *norm, struct kernel_plan *out)
{
	add_pointer(norm, norm->at.dgamma, out);
	add_pointer(norm, norm->at.dbeta, out);
	if (out->scratch.bytes)
		plan_arg_scratch(out);
	else
		plan_arg_scalar(out, 8, 0);
}

void norm_backward_pass_operands(const struct norm_backward_problem *norm, struct kernel_plan *out)
{
	add_inputs(norm, out);
	add_sums(norm, out);
}

/* dx alone. */
static void add_rows(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					 const struct kernel_limits *limits, struct plan_text *id,
					 struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;
	struct rows_need need = norm_backward_need(norm);
	bool loop = rows_launch(&norm->form, &need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/norm_backward.cuh");
	plan_print(id, "norm_backward_%s<",
			   shape->stream        ? "stream"
			   : shape->cluster > 1 ? "cluster"
									: "rows");
	rows_print_shape(id, norm->dtype, &norm->form, shape);
	print_with(norm, shape->skewed, id);
	print_place(norm, id);
	plan_print(id, ", %s>", loop ? "true" : "false");
	add_inputs(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements; threads a row: %u; vectors a thread: %u of %u bytes",
			 (long long)norm->form.columns, shape->size * shape->cluster, shape->held,
			 shape->vector * norm->need.element);
}

/* "ColumnsShape<f16, 1024, 8, 32, 32, 1, false, false>" */
static void print_strips(const struct norm_backward_problem *norm,
						 const struct norm_backward_strips *strips, struct plan_text *id)
{
	plan_print(id, "ColumnsShape<%s, %lld, %u, %u, %u, %u, %s, %s>", plan_dtype_name(norm->dtype),
			   (long long)norm->form.columns, strips->vector, strips->size, strips->rows,
			   strips->unroll, strips->skewed ? "true" : "false", strips->alone ? "true" : "false");
}

/* dgamma and dbeta alone. */
static void add_columns(const struct norm_backward_problem *norm,
						const struct norm_backward_way *way, const struct kernel_limits *limits,
						struct plan_text *id, struct kernel_plan *out)
{
	const struct norm_backward_operands *at = &norm->at;
	const int pointers[] = {at->x, at->dy, at->mean, at->rstd};
	const struct norm_backward_strips *strips = &way->strips;
	uint32_t chunks = norm_backward_chunk_count(norm, strips, limits);
	uint64_t chunk = ((uint64_t)norm->form.rows + chunks - 1) / chunks;
	uint64_t items = (uint64_t)norm_backward_strip_count(norm, strips) * chunks;

	plan_launch(out, limits, items, strips->size * strips->rows);
	out->shared_bytes = norm_backward_strip_shared(norm, strips);
	out->scratch = norm_backward_strip_scratch(norm, strips, chunks);
	snprintf(out->source, sizeof(out->source), "ops/norm_backward_columns.cuh");
	plan_print(id, "norm_backward_columns<");
	print_strips(norm, strips, id);
	print_with(norm, false, id);
	print_place(norm, id);
	plan_print(id, ", %s>", items > limits->grid_x ? "true" : "false");
	for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++)
		add_pointer(norm, pointers[i], out);
	add_sums(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	plan_arg_scalar(out, 8, chunk);
	plan_arg_scalar(out, 4, chunks);
	snprintf(out->note, sizeof(out->note),
			 "strips of %u columns, %u rows at a time, in %u chunks of %llu rows",
			 strips->size * strips->vector, strips->rows * strips->unroll, chunks,
			 (unsigned long long)chunk);
}

/*
 * Rows of a chunk: so few that x and dy are still near when its columns are taken.  The columns of
 * the last chunk have nobody beside them: they take the time of its steps, and then of a step for
 * each PARTS_AT_ONCE chunks whose sums are added up.  Both are least where they are equal.
 */
static uint64_t chunk_rows(const struct norm_backward_problem *norm,
						   const struct norm_backward_strips *strips)
{
	uint64_t step = (uint64_t)strips->rows * strips->unroll, steps = LEAST_STEPS;
	uint64_t bytes = 2 * (uint64_t)norm->form.columns * norm->need.element;
	uint64_t all = plan_divide_up((uint64_t)norm->form.rows, step) * (uint64_t)norm->sums;
	uint64_t near = NEAR_BYTES / bytes / step;

	while (steps * steps * PARTS_AT_ONCE < all)
		steps++;
	steps = steps < near ? steps : near;
	return (steps > 2 ? steps : 2) * step;
}

/* No more chunks than there is scratch memory for. */
static uint32_t both_chunks(const struct norm_backward_problem *norm,
							const struct norm_backward_strips *strips)
{
	uint64_t chunks = plan_divide_up((uint64_t)norm->form.rows, chunk_rows(norm, strips));

	if (strips->alone)
		return 1;
	while (chunks > MOST_CHUNKS ||
		   norm_backward_strip_scratch(norm, strips, (uint32_t)chunks).bytes > KERNEL_SCRATCH_MAX)
		chunks = (chunks + 1) / 2;
	return chunks ? (uint32_t)chunks : 1;
}

/* All three, rows and columns by different blocks. */
static void add_both(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					 const struct kernel_limits *limits, struct plan_text *id,
					 struct kernel_plan *out)
{
	const struct norm_backward_strips *strips = &way->strips;
	struct rows_need need = norm_backward_need(norm);
	uint32_t chunks = both_chunks(norm, strips), shared = norm_backward_strip_shared(norm, strips);
	uint64_t chunk = ((uint64_t)norm->form.rows + chunks - 1) / chunks, items;

	items = (chunk + way->shape.rows - 1) / way->shape.rows;
	items = (items + (uint64_t)norm_backward_strip_count(norm, strips)) * chunks;
	rows_launch(&norm->form, &need, &way->shape, limits, out);
	plan_launch(out, limits, items, out->block[0]);
	out->shared_bytes = shared > out->shared_bytes ? shared : out->shared_bytes;
	out->scratch = norm_backward_strip_scratch(norm, strips, chunks);
	snprintf(out->source, sizeof(out->source), "ops/norm_backward_both.cuh");
	plan_print(id, "norm_backward_both<");
	rows_print_shape(id, norm->dtype, &norm->form, &way->shape);
	plan_print(id, ", %s, ", way->shape.stream ? "true" : "false");
	print_strips(norm, strips, id);
	print_with(norm, way->shape.skewed, id);
	print_place(norm, id);
	plan_print(id, ", %s>", items > limits->grid_x ? "true" : "false");
	norm_backward_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	plan_arg_scalar(out, 8, chunk);
	plan_arg_scalar(out, 4, chunks);
	snprintf(
		out->note, sizeof(out->note),
		"rows of %lld elements by some blocks, strips of %u columns by others, in %u chunks of "
		"%llu rows",
		(long long)norm->form.columns, strips->size * strips->vector, chunks,
		(unsigned long long)chunk);
}

/* All three, by threads that hold rows and sums. */
static void add_all(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					const struct kernel_limits *limits, struct plan_text *id,
					struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;

	norm_backward_all_launch(norm, way, limits, out);
	snprintf(out->source, sizeof(out->source), "ops/norm_backward_all.cuh");
	plan_print(id, "norm_backward_all<");
	rows_print_shape(id, norm->dtype, &norm->form, shape);
	print_with(norm, shape->skewed, id);
	print_place(norm, id);
	plan_print(id, ", %u, %u", way->blocks, way->ahead);
	if (shape->skewed)
		plan_print(id, ", %s, %u>", way->pairs ? "true" : "false", norm_backward_period(norm, way));
	else
		plan_print(id, "%s>", way->pairs ? ", true" : "");
	norm_backward_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	snprintf(
		out->note, sizeof(out->note),
		"rows of %lld elements; threads a row: %u; vectors a thread: %u of %u bytes; %u rows at a "
		"time in each of %u blocks, with the sums of their columns",
		(long long)norm->form.columns, shape->size, shape->held, shape->vector * norm->need.element,
		shape->rows, out->grid[0]);
}

/* All three, of rows that come into shared memory. */
static void add_ring(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					 const struct kernel_limits *limits, struct plan_text *id,
					 struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;

	norm_backward_ring_launch(norm, way, limits, out);
	snprintf(out->source, sizeof(out->source), "ops/norm_backward_ring.cuh");
	plan_print(id, "norm_backward_ring<BackwardRingShape<%s, %lld, %u, %u, %u, %u, %u, %u>",
			   plan_dtype_name(norm->dtype), (long long)norm->form.columns, shape->vector,
			   shape->held, shape->size, shape->cluster, way->stages,
			   norm_backward_period(norm, way));
	print_with(norm, shape->skewed, id);
	print_place(norm, id);
	plan_print(id, ">");
	norm_backward_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements; blocks a row: %u, of %u threads with %u vectors of %u bytes; "
			 "%u rows in shared memory",
			 (long long)norm->form.columns, shape->cluster, shape->size, shape->held,
			 shape->vector * norm->need.element, way->stages);
}

/* All three, of rows that come into shared memory of each warp. */
static void add_warps(const struct norm_backward_problem *norm, const struct norm_backward_way *way,
					  const struct kernel_limits *limits, struct plan_text *id,
					  struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;

	norm_backward_warps_launch(norm, way, limits, out);
	snprintf(out->source, sizeof(out->source), "ops/norm_backward_warps.cuh");
	plan_print(id, "norm_backward_warps<BackwardWarpsShape<%s, %lld, %u, %u, %u, %u, %u, %u>",
			   plan_dtype_name(norm->dtype), (long long)norm->form.columns, shape->vector,
			   shape->held, shape->size, way->blocks, shape->rows, way->stages);
	print_with(norm, false, id);
	plan_print(id, ", %s>",
			   (uint64_t)norm->form.rows * (uint64_t)norm->form.columns > INT32_MAX ? "i64"
																					: "u32");
	norm_backward_pass_operands(norm, out);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements; lanes a row: %u; vectors a lane: %u of %u bytes; %u pieces of "
			 "%u rows in shared memory for each warp or team, %u warps a block",
			 (long long)norm->form.columns, shape->size, shape->held,
			 shape->vector * norm->need.element, way->stages, shape->rows, way->blocks);
}

int norm_backward_kernel(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	static void (*const add[])(const struct norm_backward_problem *,
							   const struct norm_backward_way *, const struct kernel_limits *,
							   struct plan_text *, struct kernel_plan *) = {
		[NORM_BACKWARD_ROWS] = add_rows,   [NORM_BACKWARD_COLUMNS] = add_columns,
		[NORM_BACKWARD_ALL] = add_all,     [NORM_BACKWARD_RING] = add_ring,
		[NORM_BACKWARD_WARPS] = add_warps, [NORM_BACKWARD_BOTH] = add_both,
	};
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	add[way->kind](norm, way, limits, &id, out);
	return plan_check_name(&id, out, error);
}
