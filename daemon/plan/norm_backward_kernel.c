/*
 * norm_backward_kernel.c: the kernels of layer_norm_backward and rms_norm_backward: their names, what
 * they are launched with, and what of it a person is told.
 */
#include "norm_backward.h"

#include <stdio.h>

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
			 "rows of %lld elements: %u threads a row, %u vectors of %u bytes each",
			 (long long)norm->form.columns, shape->size * shape->cluster, shape->held,
			 shape->vector * norm->need.element);
}

/* "ColumnsShape<f16, 1024, 8, 32, 32, 1, false>" */
static void print_strips(const struct norm_backward_problem *norm,
						 const struct norm_backward_strips *strips, struct plan_text *id)
{
	plan_print(id, "ColumnsShape<%s, %lld, %u, %u, %u, %u, %s>", plan_dtype_name(norm->dtype),
			   (long long)norm->form.columns, strips->vector, strips->size, strips->rows,
			   strips->unroll, strips->skewed ? "true" : "false");
}

/* dgamma and dbeta alone. */
static void add_columns(const struct norm_backward_problem *norm,
						const struct norm_backward_way *way, const struct kernel_limits *limits,
						struct plan_text *id, struct kernel_plan *out)
{
	const struct norm_backward_operands *at = &norm->at;
	const int pointers[] = {at->x, at->dy, at->mean, at->rstd, at->dgamma, at->dbeta};
	const struct norm_backward_strips *strips = &way->strips;
	uint32_t chunks = norm_backward_chunk_count(norm, strips, limits);
	uint64_t chunk = ((uint64_t)norm->form.rows + chunks - 1) / chunks;
	uint64_t items = (uint64_t)norm_backward_strip_count(norm, strips) * chunks;

	out->kind = KERNEL_LAUNCH;
	out->grid[0] = items < limits->grid_x ? (uint32_t)items : limits->grid_x;
	out->block[0] = strips->size * strips->rows;
	out->grid[1] = out->grid[2] = out->block[1] = out->block[2] = 1;
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
	if (out->scratch.bytes)
		plan_arg_scratch(out);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, (uint64_t)norm->form.rows);
	plan_arg_scalar(out, 8, chunk);
	plan_arg_scalar(out, 4, chunks);
	snprintf(out->note, sizeof(out->note),
			 "strips of %u columns, %u rows at a time, in %u chunks of %llu rows",
			 strips->size * strips->vector, strips->rows * strips->unroll, chunks,
			 (unsigned long long)chunk);
}

int norm_backward_kernel(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	if (norm->sums && norm->at.dx >= 0)
		return plan_refuse(error, KILN_ENOTSUP, "%s: dx with dgamma and dbeta is not there yet",
						   out->op);
	if (way->kind == NORM_BACKWARD_ROWS)
		add_rows(norm, way, limits, &id, out);
	else
		add_columns(norm, way, limits, &id, out);
	if (id.full)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: the name of the kernel would be longer than %d characters", out->op,
						   KERNEL_INSTANTIATION_MAX);
	return KILN_OK;
}
