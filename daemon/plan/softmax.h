/*
 * softmax.h: what the planners of softmax, its backward and their masked forms share: the problem
 * as rows, and the candidates for it.  Shared by the softmax*.c and masked_softmax*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_SOFTMAX_H
#define KILN_DAEMON_PLAN_SOFTMAX_H

#include "rows.h"

#define SOFTMAX_MAX_WAYS PLAN_MAX_CHOICES

/* A softmax as rows.  The operands of the form are those whose elements are rows: the inputs that
 * are held, then the output. */
struct softmax_form {
	struct rows_form rows;
	struct rows_need need;
	kiln_dtype dtype;
};

/*
 * The rows of operands index[0 .. count), the last one of them the output, along an axis.  Their
 * shapes and dtypes agree: that was checked.
 */
void softmax_form(const struct kernel_problem *problem, const int *index, int count, int axis,
				  struct softmax_form *form);
/* The shapes for a form, the best first; how many. */
int softmax_shapes(const struct softmax_form *form, const struct kernel_limits *limits,
				   struct rows_shape out[SOFTMAX_MAX_WAYS]);
/* ", x step, y step, List<sizes>, List<x strides>, List<y strides>, u32": of all operands. */
void softmax_print_rows(struct plan_text *text, const struct softmax_form *form);
/* The arguments before, exponent and after of the kernels for scale * x, in the compute type. */
void softmax_scale_args(struct kernel_plan *out, kiln_dtype dtype, double scale);
/* One number of the compute type. */
void softmax_real_arg(struct kernel_plan *out, kiln_dtype dtype, double value);
/* Extents of the operands that are rows, and what they move. */
void softmax_extents(const struct kernel_problem *problem, const int *index, int count,
					 uint32_t alignment, struct kernel_plan *out);

#endif
