/*
 * cross_entropy.h: what the planners of cross_entropy and its backward share.  Shared by the
 * cross_entropy*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_CROSS_ENTROPY_H
#define KILN_DAEMON_PLAN_CROSS_ENTROPY_H

#include "daemon/plan/ops/rows/rows.h"

enum {
	CROSS_ENTROPY_X,
	CROSS_ENTROPY_TARGET,
	/* forward */
	CROSS_ENTROPY_LOSS,
	CROSS_ENTROPY_LSE,
	CROSS_ENTROPY_COUNT,
	CROSS_ENTROPY_GRAD,
	CROSS_ENTROPY_OPERANDS,
	/* backward */
	CROSS_ENTROPY_BACK_LSE = 2,
	CROSS_ENTROPY_BACK_COUNT,
	CROSS_ENTROPY_BACK_DLOSS,
	CROSS_ENTROPY_BACK_DX
};

enum cross_entropy_reduction { CROSS_ENTROPY_MEAN, CROSS_ENTROPY_SUM, CROSS_ENTROPY_NONE };

struct cross_entropy {
	bool backward, grad;
	kiln_dtype dtype, target;
	uint32_t element;
	enum cross_entropy_reduction reduction;
	double smoothing, square, cap;
	int64_t ignore;
	int64_t rows, columns;
	/* Operand 0 is x; then, forward, target and, if it is there, grad; backward target, lse and
	 * dloss. */
	struct rows_form form;
	uint32_t alignment; /* of x and the gradient */
};

/* Everything that is asked of a request; fills in all of out. */
int cross_entropy_check(const struct kernel_problem *problem, struct cross_entropy *out,
						char error[KERNEL_ERROR_MAX]);
/* ignore, smoothing, square, cap and reduction, in the order of the kernels. */
void cross_entropy_pass(const struct cross_entropy *call, struct kernel_plan *out);
/* ", List<sizes>, List<strides>": the strides of all operands of the form from `first` on. */
void cross_entropy_print_rows(struct plan_text *id, const struct cross_entropy *call, int operands);

/* ---- For the rows (cross_entropy_ops.c) ---- */

int cross_entropy_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int cross_entropy_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int cross_entropy_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int cross_entropy_generics(int index, struct kernel_problem *out);
int cross_entropy_backward_plan(const struct kernel_problem *problem,
								const struct kernel_limits *limits, const char *choice,
								struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int cross_entropy_backward_choices(const struct kernel_problem *problem,
								   const struct kernel_limits *limits,
								   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int cross_entropy_backward_generics(int index, struct kernel_problem *out);

#endif
