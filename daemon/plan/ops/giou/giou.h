/*
 * giou.h: what the planners of giou, giou_loss and their backward share.  Shared by the giou*.c
 * files alone.
 */
#ifndef KILN_DAEMON_PLAN_GIOU_H
#define KILN_DAEMON_PLAN_GIOU_H

#include "daemon/plan/ops/rows/rows.h"

/* The number of each operand; -1: the operator does not have it. */
struct giou_op {
	bool loss, backward;
	int pred, target, offsets, y, dy, loss_out, count, dloss, dpred;
};

struct giou_problem {
	struct giou_op op;
	bool clamp, ragged;
	kiln_dtype pred, target;
	int64_t pairs; /* of predictions, with or without a target */
	int64_t most;  /* ragged: predictions of a sample */
	int64_t boxes; /* ragged: targets in all */
	/* Pairs as rows of four numbers: operand 0 the predictions, 1 the targets (if not ragged), 2 dy
	 * (if there is one). */
	struct rows_form form;
	struct rows_form targets; /* ragged: operand 0 the targets */
};

/* Everything that is asked of a request; fills in all of out. */
int giou_check(const struct kernel_problem *problem, struct giou_problem *out,
			   char error[KERNEL_ERROR_MAX]);
/* Completes the outputs that are left out. */
void giou_complete(struct kernel_problem *problem);
/* The type to compute in, which losses and their derivatives have. */
kiln_dtype giou_computed(kiln_dtype pred);

/* ---- For the rows (giou_ops.c) ---- */

int giou_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int giou_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int giou_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int giou_generics(int index, struct kernel_problem *out);
int giou_backward_generics(int index, struct kernel_problem *out);
int giou_loss_generics(int index, struct kernel_problem *out);
int giou_loss_backward_generics(int index, struct kernel_problem *out);

#endif
