/*
 * quantize.h: what the planners of quantize, dequantize and dynamic_quantize share.  Operand 0 is
 * x.  The scale is operand 1 of the first two, an input, and operand 2 of the last, an output.
 */
#ifndef KILN_DAEMON_PLAN_QUANTIZE_H
#define KILN_DAEMON_PLAN_QUANTIZE_H

#include "daemon/plan/ops/rows/rows.h"

bool quantize_is_back(const struct kernel_problem *problem);
/* The dtype of y that attribute `to` names. */
kiln_dtype quantize_to(const struct kernel_problem *problem);
/* "sat<f8e4m3>": the kernels' name for what elements of y are stored as. */
const char *quantize_type(kiln_dtype dtype);

/* The arguments share, more and least of kernels that find scales (QuantizeLimits). */
void quantize_limits(struct kernel_plan *out, kiln_dtype to, bool group);

/* ---- Checks (quantize_check.c) ---- */

/* x, and y of the dtype that attribute `to` names. */
int quantize_check_input(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int quantize_check_output(const struct kernel_problem *problem, int index,
						  char error[KERNEL_ERROR_MAX]);
/* Refuses an x without a dimension for rows to go along. */
int quantize_check_rank(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);

/* Such a tensor, of one number, which is operand `scale`. */
int quantize_check_one(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX]);
/* Checks the scale that is given, attribute group, and scales for each row or each group, in any
 * order, against y, which is checked.  scale, y, scales: operands. */
int quantize_check_rows(const struct kernel_problem *problem, int scale, int y, int scales,
						char error[KERNEL_ERROR_MAX]);
/* Passes how far apart the scales of rows lie, and those of the groups of a row, if it has such. */
void quantize_pass_scales(const struct kernel_problem *problem, int scales, bool groups,
						  struct kernel_plan *out);

/* Do lanes that follow each other share each group, and no others? */
bool quantize_shares(const struct rows_shape *shape, int64_t group);
/* Are groups whole vectors of so many lanes of a generic kernel, 2^*lanes, that they can share one
 * by shuffling? */
bool quantize_whole_groups(const struct rows_form *form, const struct rows_need *need,
						   int64_t group, const struct rows_any *any, uint32_t *lanes);
/* Like rows_shapes(), those in which neighbouring lanes share each group: none if the generic
 * kernel alone takes such groups.  group 0: there are none. */
int quantize_shapes(const struct rows_form *form, const struct rows_need *need, int64_t group,
					const struct kernel_limits *limits, struct rows_shape *out, int most);
/* Brings the shape with these threads a row, rows a block and width of vectors to the front, if it
 * is there and threads hold all of it in registers. */
void quantize_prefer(struct rows_shape *shapes, int count, const struct rows_shape *like);
/* The candidates' names: those of the shapes, or without any that of the generic kernel. */
int quantize_shape_names(const struct rows_shape *shapes, int count,
						 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);

/* *group: how many elements of y that lie side by side share a scale; 0: all of them. */
int quantize_check(const struct kernel_problem *problem, int64_t *group,
				   char error[KERNEL_ERROR_MAX]);
int quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);

/* ---- For the rows ---- */

int quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int quantize_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int quantize_rows_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int quantize_rows_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int norm_quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int norm_quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int norm_quantize_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int cast_transpose_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int cast_transpose_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int cast_transpose_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int act_mul_quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  const char *choice, struct kernel_plan *out,
						  char error[KERNEL_ERROR_MAX]);
int act_mul_quantize_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int act_mul_quantize_choices(const struct kernel_problem *problem,
							 const struct kernel_limits *limits,
							 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);

#endif
