/*
 * masked_softmax.h: what the planner of masked softmax and its backward read from a problem.
 * Shared by the masked_softmax*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_MASKED_SOFTMAX_H
#define KILN_DAEMON_PLAN_MASKED_SOFTMAX_H

#include "daemon/plan/ops/softmax/softmax.h"

enum masked_kind { MASKED_BOOL, MASKED_LENGTHS, MASKED_CAUSAL, MASKED_ADDITIVE };

struct masked_problem {
	const struct kernel_problem *problem;
	bool backward;
	int mask, output; /* operand numbers; -1: no mask is read */
	int inputs[3];    /* the operands that are rows, the output last ... */
	int count;        /* ... and how many */
	enum masked_kind kind;
	int empty; /* position in zero, nan, uniform */
	bool keep;
	int64_t diagonal;
	double scale;
	struct softmax_form form; /* of the operands that are rows */
	/* The same rows in the mask alone; for a causal mask the query is its element. */
	bool masks;
	struct rows_form rows;
};

/* ---- What is asked (masked_softmax_check.c) ---- */

/* Reads and checks a whole problem but for its form. */
int masked_read(const struct kernel_problem *problem, struct masked_problem *out,
				char error[KERNEL_ERROR_MAX]);

/* ---- The mask (masked_softmax_mask.c) ---- */

/* The strides of the mask in the dimensions of x, 0 where it is broadcast; for a causal one where
 * the query is its element. */
void masked_strides(const struct masked_problem *masked, int64_t stride[KILN_MAX_RANK]);
/* The form of a problem that was read. */
void masked_form(struct masked_problem *masked);
/* ", MaskFlags<f32, 512, MASK_ZERO, false, 4, false>, MaskPlace<1, List<4096>, List<0, 512>>" */
void masked_print_mask(struct plan_text *text, const struct masked_problem *masked,
					   const struct rows_shape *shape);
/* Returns the number that the mask's address must be a multiple of. */
uint32_t masked_alignment(const struct masked_problem *masked, const struct rows_shape *shape);

/* ---- Pieces of plans (masked_softmax.c) ---- */

/* The arguments for scale. */
void masked_scale_args(const struct masked_problem *masked, struct kernel_plan *out);
/* Extents of all operands, with these alignments, and what they move. */
void masked_extents(const struct masked_problem *masked, uint32_t rows, uint32_t mask,
					struct kernel_plan *out);

/* The generic plan of a problem with its form (masked_softmax_generic.c). */
void masked_generic(const struct masked_problem *masked, const struct kernel_limits *limits,
					struct kernel_plan *out);

/* ---- For the rows (masked_softmax_ops.c) ---- */

int masked_softmax_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int masked_softmax_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int masked_softmax_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int masked_softmax_generics(int index, struct kernel_problem *out);
int masked_softmax_backward_generics(int index, struct kernel_problem *out);

#endif
