/*
 * norm_problems.h: problems of layer_norm and rms_norm for the tests of their plans.
 */
#ifndef KILN_TESTS_NORM_PROBLEMS_H
#define KILN_TESTS_NORM_PROBLEMS_H

#include "plan_problems.h"

enum { X, GAMMA, BETA, RESIDUAL, Y, MEAN, RSTD, SUM, ALL };

static inline struct kernel_tensor tensor(kiln_dtype dtype, int rank, const int64_t *shape)
{
	struct kernel_tensor out = {.dtype = dtype, .rank = rank, .alignment = 16};

	memcpy(out.shape, shape, sizeof(*shape) * (size_t)rank);
	plan_contiguous(&out);
	return out;
}

/* All operands, one axis, gamma and beta as x. */
static inline struct kernel_problem layer(kiln_dtype dtype, int rank, const int64_t *shape)
{
	struct kernel_problem p = {.op = "layer_norm", .tensor_count = ALL};
	kiln_dtype computing = dtype == KILN_F64 ? KILN_F64 : KILN_F32;

	for (int i = 0; i < ALL; i++)
		p.tensors[i] = tensor(dtype, rank, shape);
	p.tensors[GAMMA] = p.tensors[BETA] = tensor(dtype, 1, shape + rank - 1);
	p.tensors[MEAN] = p.tensors[RSTD] = tensor(computing, rank - 1, shape);
	return p;
}

static inline void leave_out(struct kernel_problem *p, int index)
{
	memset(&p->tensors[index], 0, sizeof(p->tensors[index]));
	p->tensors[index].dtype = KILN_DTYPE_NONE;
}

/* x, gamma, beta, y */
static inline struct kernel_problem plain(kiln_dtype dtype, int64_t rows, int64_t columns)
{
	struct kernel_problem p = layer(dtype, 2, SHAPE(rows, columns));

	for (int i = 0; i < ALL; i++)
		if (i != X && i != GAMMA && i != BETA && i != Y)
			leave_out(&p, i);
	return p;
}

/* As layer, without what rms_norm does not have. */
static inline struct kernel_problem rms(kiln_dtype dtype, int64_t rows, int64_t columns)
{
	struct kernel_problem p = layer(dtype, 2, SHAPE(rows, columns));

	set_text(p.op, sizeof(p.op), "rms_norm");
	p.tensors[5] = p.tensors[RSTD];
	p.tensors[6] = p.tensors[SUM];
	p.tensor_count = 7;
	return p;
}

static inline void set_eps(struct kernel_problem *p, double eps)
{
	p->attr_count = 0;
	add_attr(p, "eps", KILN_ATTR_REAL)->f = eps;
}

static inline void set_axes(struct kernel_problem *p, int64_t axes)
{
	p->attr_count = 0;
	add_attr(p, "axes", KILN_ATTR_INT)->i = axes;
}

#endif
