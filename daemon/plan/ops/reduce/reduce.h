/*
 * reduce.h: what the planners of the reductions share: sum, mean, prod, amax, amin, argmax, argmin,
 * any, all, vector_norm, logsumexp and var.  Shared by the reduce*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_REDUCE_H
#define KILN_DAEMON_PLAN_REDUCE_H

#include "daemon/plan/ops/rows/rows.h"

enum reduce_kind {
	REDUCE_SUM,
	REDUCE_MEAN,
	REDUCE_PROD,
	REDUCE_AMAX,
	REDUCE_AMIN,
	REDUCE_ARGMAX,
	REDUCE_ARGMIN,
	REDUCE_ANY,
	REDUCE_ALL,
	REDUCE_NORM,
	REDUCE_LOGSUMEXP,
	REDUCE_VAR
};

/*
 * A problem as rows, one for each result: the dimensions that number them, and those of a row,
 * merged where x runs on, slowest first.  The order in which a row's dimensions are gone through is
 * x's own in memory, but for argmax and argmin, whose results are numbers in it.
 */
struct reduce_form {
	enum reduce_kind kind;
	kiln_dtype dtype, y_dtype;
	uint32_t element;      /* bytes, of x */
	struct rows_form kept; /* operand 0: x, 1: y */
	int rank;              /* of a row */
	int64_t size[KILN_MAX_RANK], stride[KILN_MAX_RANK];
	int64_t columns; /* of a row, all together */
	bool strided;    /* rows lie side by side, and not the elements of a row */
	bool skewed;     /* rows begin between two vectors */
	bool open;       /* the first dimension of x, the batch, is one of a row's */
	uint32_t vector; /* elements that move at once */
	double real;     /* the number that the kernel takes */
	int64_t inner;   /* rows that lie side by side */
};

/* A way to spread the work; columns have side 0. */
struct reduce_shape {
	uint32_t vector, held;
	uint32_t size, side, times; /* threads a row, rows of a block, and of a thread at once */
	uint32_t lanes, split;
	uint32_t unroll; /* columns at a time of each value that a thread holds of a row */
	int64_t chunk;   /* vectors, or columns, of a block; 0: all of a row */
};

#define REDUCE_SHAPES 16

/* Everything that is asked of a request; fills in all of out. */
int reduce_check(const struct kernel_problem *problem, struct reduce_form *out,
				 char error[KERNEL_ERROR_MAX]);
/* The shapes for a form, the planner's own first; how many. */
int reduce_shapes(const struct reduce_form *form, const struct kernel_limits *limits,
				  struct reduce_shape shapes[REDUCE_SHAPES]);
/* The shape of the generic kernel. */
struct reduce_shape reduce_generic_shape(const struct reduce_form *form,
										 const struct kernel_limits *limits);
void reduce_shape_name(const struct reduce_shape *shape, char name[KERNEL_CHOICE_MAX]);
/* Blocks of a shape that share a row. */
int64_t reduce_chunks(const struct reduce_form *form, const struct reduce_shape *shape);
/* Vectors that cover a row. */
int64_t reduce_vectors(const struct reduce_form *form, uint32_t vector);
/* Is the length of a row, where it is one of rows, an argument of the kernel?  It is one of columns
 * in any case. */
bool reduce_is_long(const struct reduce_form *form, const struct reduce_shape *shape);
/* Scratch memory of a shape. */
struct kernel_scratch reduce_scratch(const struct reduce_form *form,
									 const struct reduce_shape *shape);
/* Bytes of what a thread keeps of a row. */
uint32_t reduce_value_bytes(const struct reduce_form *form);

/* ---- For the rows (reduce_ops.c) ---- */

int reduce_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int reduce_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int reduce_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);

#endif
