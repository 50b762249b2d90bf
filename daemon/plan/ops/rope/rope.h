/*
 * rope.h: what the planner's files of rope share: the problem as sizes and strides.
 */
#ifndef KILN_DAEMON_PLAN_ROPE_H
#define KILN_DAEMON_PLAN_ROPE_H

#include "daemon/plan/ops/rows/rows.h"

/* The operands, in the order of the row. */
enum rope_operand {
	ROPE_Q,
	ROPE_COS,
	ROPE_SIN,
	ROPE_K,
	ROPE_POSITIONS,
	ROPE_Q_OUT,
	ROPE_K_OUT,
	ROPE_OPERANDS
};

/* Strides of an operand: from batch to batch, token to token (of tables, from row to row), head to
 * head; 0 where it has no such dimension. */
struct rope_strides {
	int64_t batch, token, head;
};

struct rope_problem {
	kiln_dtype dtype, table;
	bool interleaved;
	double sign; /* of the angles */
	int64_t batch, tokens, q_heads, k_heads;
	int64_t dim, half;       /* of a head; of its elements that are rotated, half of them */
	int64_t rows;            /* of a table */
	uint32_t position_bytes; /* 0: none are given */
	enum plan_bounds bounds;
	struct rope_strides strides[ROPE_OPERANDS];
};

/* Threads of a head: each has one item, of one vector or, if halves are rotated, one in each. */
struct rope_items {
	uint32_t vector;               /* elements that an item has side by side */
	uint32_t access, table_access; /* bytes that are read or written at once */
	int64_t rotated, all;
	bool wide; /* 31 bits number neither the items nor the elements */
};

int rope_check(const struct kernel_problem *problem, struct rope_problem *out,
			   char error[KERNEL_ERROR_MAX]);
/* Finds the widest items.  False: there are more than 63 bits can number. */
bool rope_find_items(const struct kernel_problem *problem, const struct rope_problem *rope,
					 struct rope_items *out);
/* Items of one element, or of one pair. */
bool rope_narrow_items(const struct kernel_problem *problem, const struct rope_problem *rope,
					   struct rope_items *out);
/* Threads, of which each has an item in `held` heads. */
int64_t rope_work(const struct rope_problem *rope, const struct rope_items *items, int64_t held);

/* The arguments of ROPE_PARAMS behind the report. */
void rope_pass(const struct kernel_problem *problem, const struct rope_problem *rope,
			   const struct rope_items *items, int64_t work, struct kernel_plan *out);

/* ---- The row of rope_kv_store (rope_kv_store.c) ---- */

int rope_kv_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int rope_kv_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int rope_kv_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int rope_kv_generics(int index, struct kernel_problem *out);
void rope_kv_report(const struct kernel_problem *problem, uint64_t reported,
					char error[KERNEL_ERROR_MAX]);

/* ---- The row of the operator (rope.c) ---- */

int rope_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int rope_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int rope_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int rope_generics(int index, struct kernel_problem *out);

#endif
