/*
 * plan: from a problem and a device's limits to a plan.  Pure: no state, no I/O, no clock, no
 * addresses.
 *
 * A family of operators is a file or a folder of ops/: its rows (op.h), its checks, its canonical
 * form and its choice of variant.  ops.c is the way into them; explain.c prints.
 */
#ifndef KILN_DAEMON_PLAN_H
#define KILN_DAEMON_PLAN_H

#include "op.h"

/*
 * The candidate that any operator has and none lists: a kernel that depends on dtypes, words among
 * the attributes and a small class of the problem, and on no size, stride or alignment as a number:
 * those are arguments.  The plan's variant has the same name.
 */
#define PLAN_GENERIC "generic"

/*
 * Checks and plans.  The same problem and limits give the same plan, byte for byte as far as it is
 * kept (kernel_plan_bytes()).  Rules common to all operators (rank, dtype, sizes, strides, overflow
 * of offsets, required operands) are checked here.  Tensors may end early: a tensor that is not
 * there counts as left out.
 */
int plan_problem(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
/* The names of the candidates for a problem, the planner's own first; their number, or
 * plan_problem's refusal. */
int plan_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX]);
/* Plans the generic kernel of a problem, in which it names that kernel: the caller's copy.
 * KILN_ENOTSUP, where the problem has no attribute left for the name. */
int plan_as_generic(struct kernel_problem *problem, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
/* The plan of an operator's generic kernel number index; KILN_ENOENT past the last. */
int plan_generic_at(const struct plan_op *op, int index, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
/* KILN_EINVAL names a required operand that is left out, also one that plan_infer() would complete.
 * Otherwise problem->tensor_count is the operator's operand count, as after plan_infer(). */
int plan_required(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
/* A hash of the problem, which is never 0. */
uint64_t plan_problem_hash(const struct kernel_problem *problem);
/* Tables of shapes: newer ones displace older ones.  Returns where this one would be. */
#define PLAN_HASHES 4096
static inline uint64_t *plan_hash_place(uint64_t shapes[PLAN_HASHES], uint64_t shape)
{
	return &shapes[shape >> 32 & (PLAN_HASHES - 1)];
}
/* Completes missing outputs: afterwards problem->tensor_count is the operator's operand count.
 * Optional operands that the caller left out stay so. */
int plan_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);

/* Puts the operator's own sentence for what a launch reported in the place of the device's. */
void plan_report(const struct kernel_problem *problem, uint64_t reported,
				 char error[KERNEL_ERROR_MAX]);

/*
 * The plan of a user's kernel: what it does is its author's affair, and its grid and arguments are
 * each launch's.  source: what the author calls it; entry: function or template-id.
 */
int plan_raw(const char *source, const char *entry, struct kernel_plan *out,
			 char error[KERNEL_ERROR_MAX]);

/* Limits of a target for which there is no device here: "cpu", "sm_75" .. "sm_121".  KILN_EINVAL
 * names the known ones.
 */
int plan_limits_for(const char *target, struct kernel_limits *out, char error[KERNEL_ERROR_MAX]);

/* Row-major strides. */
void plan_contiguous(struct kernel_tensor *tensor);
/* Bytes from the first element to one past the last touched; 0 when there are no elements; false on
 * overflow. */
bool plan_extent(const struct kernel_tensor *tensor, uint64_t *bytes);
/* false on overflow of int64_t */
bool plan_elements(const struct kernel_tensor *tensor, int64_t *count);
const struct kernel_attr *plan_attr(const struct kernel_problem *problem, const char *name);

/*
 * Returns how many times longer the generic kernel takes than this plan's exact one, as far as is
 * known.  *us: about the time of a launch of the exact one.
 */
double plan_gain(const struct kernel_plan *exact, const struct kernel_limits *limits, double *us);

/* The plan for people: a line each of op, variant, instantiation, grid x block, shared memory,
 * bytes, note. */
void plan_explain(const struct kernel_plan *plan, const struct kernel_limits *limits, char *text,
				  size_t size);

#endif
