/*
 * executor_desk: plans the first call of a shape at the desk of a lane (client/wire/lane_memory.h),
 * and binds it to the lane, as the broker does for a call that comes by message.  The way through
 * the broker wakes two threads more, each of which may have to wait for a CPU.
 *
 * The generic kernel alone is planned here, and must be loaded.  All else is refused without a
 * sentence: it goes by message, and the broker says what is wrong.  The client tells the broker of
 * a call that was bound here.
 *
 * The thread that serves the lane plans.  The planner has no state; the tables of buffers and
 * kernels stay as they are until the main thread stops this one.
 */
#include "daemon/base/util.h"
#include "daemon/plan/decode.h"
#include "daemon/plan/plan.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_lane.h"
#include "executor_module.h"

#include <stdlib.h>
#include <string.h>

#define GRANULE 16 /* operators read whole vectors (kernel_src/common/row.cuh) */

bool exec_desk_asked(const struct exec_lane *lane)
{
	return atomic_load_explicit(&lane->memory->desk.asked, memory_order_relaxed) !=
		   lane->desk_asked;
}

/* ---- The problem ---- */

/* The client may write there at any time: its bytes are copied before anything looks at them. */
static bool read_desk(const struct lane_desk *desk, struct kernel_problem *problem,
					  uint64_t buffers[KERNEL_MAX_OPERANDS], uint64_t offsets[KERNEL_MAX_OPERANDS])
{
	unsigned char bytes[LANE_PROBLEM_BYTES];
	char error[KERNEL_ERROR_MAX];
	struct wire_in message;
	uint32_t size = atomic_load_explicit(&desk->bytes, memory_order_relaxed);
	if (size > sizeof(bytes))
		return false;
	memcpy(bytes, desk->problem, size);
	bool good = wire_parse_asked(&message, bytes, size) == KILN_OK &&
				plan_decode(&message, problem, buffers, offsets, error) == KILN_OK;
	wire_in_free(&message);
	return good;
}

/* Sets the alignments; false where a tensor lies in no buffer of the lane's session. */
static bool find_alignments(const struct launcher *launcher, const struct exec_lane *lane,
							struct kernel_problem *problem,
							const uint64_t buffers[KERNEL_MAX_OPERANDS],
							const uint64_t offsets[KERNEL_MAX_OPERANDS])
{
	for (int i = 0; i < problem->tensor_count; i++) {
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			continue;
		const struct exec_buffer *buffer = map_get_id(&launcher->executor->buffers, buffers[i]);
		uint32_t alignment = 16;
		if (!buffer || buffer->owner != lane->id)
			return false;
		while ((buffer->misaligned + offsets[i]) % alignment)
			alignment /= 2;
		problem->tensors[i].alignment = alignment;
	}
	return true;
}

/* A first call of this shape takes the exact kernel, which is here. */
static bool has_exact(const struct launcher *launcher, const struct kernel_problem *problem)
{
	const uint64_t shape = plan_problem_hash(problem);
	return *plan_hash_place(launcher->executor->shapes, shape) == shape;
}

/* Plans the generic kernel.  A problem whose operands have names of its own has a kernel of its
 * own, too. */
static struct exec_module *plan_call(struct launcher *launcher, const struct exec_lane *lane,
									 struct kernel_problem *problem, struct kernel_plan *plan)
{
	uint64_t buffers[KERNEL_MAX_OPERANDS], offsets[KERNEL_MAX_OPERANDS];
	char error[KERNEL_ERROR_MAX];
	if (!read_desk(&lane->memory->desk, problem, buffers, offsets) ||
		plan_find(problem->op)->names || plan_attr(problem, PLAN_CHOICE) ||
		!find_alignments(launcher, lane, problem, buffers, offsets) ||
		plan_required(problem, error) != KILN_OK || has_exact(launcher, problem) ||
		plan_as_generic(problem, &launcher->executor->info.limits, plan, error) != KILN_OK ||
		plan->kind != KERNEL_LAUNCH || plan->generated[0] || plan->report.end == UINT64_MAX)
		return NULL;
	return exec_find_generic(launcher, plan);
}

/* ---- Binding ---- */

static void fill_in(struct exec_template *bound, const struct kernel_plan *plan)
{
	memcpy(bound->op, plan->op, sizeof(bound->op));
	for (int i = 0; i < 3; i++) {
		bound->grid[i] = plan->grid[i];
		bound->block[i] = plan->block[i];
	}
	bound->shared_bytes = plan->shared_bytes;
	bound->arg_count = plan->arg_count;
	memcpy(bound->args, plan->args, (size_t)plan->arg_count * sizeof(plan->args[0]));
	bound->scratch = plan->scratch;
	bound->report = plan->report;
	bound->granule = GRANULE;
	bound->operand_count = plan->operand_count;
	for (int i = 0; i < plan->operand_count; i++) {
		const struct kernel_extent *extent = &plan->extents[i];
		struct exec_operand *operand = &bound->operands[i];
		operand->bytes = extent->bytes;
		operand->period = extent->period;
		operand->width = extent->width;
		operand->alignment = extent->alignment ? extent->alignment : 1;
		operand->over = extent->over;
		operand->written = extent->written;
		plan_operand_name(plan->operands, i, operand->name);
	}
}

/* NULL: the lane may have no further call. */
static const struct exec_template *bind_call(struct exec_lane *lane, const struct kernel_plan *plan,
											 struct exec_module *module)
{
	const uint64_t most = atomic_load_explicit(&lane->counts->desk_most, memory_order_relaxed);
	/* Half stay free for those that the broker binds. */
	if (lane->calls.count >= LANE_CALLS / 2 || lane->desk_calls >= most)
		return NULL;
	struct exec_template *bound = calloc(1, sizeof(*bound));
	if (!bound)
		return NULL;
	fill_in(bound, plan);
	bound->id = bound->of = lane->desk + lane->desk_calls;
	bound->notice = bound->left = lane->desk_notice;
	if (map_put_id(&lane->calls, bound->id, bound) < 0) {
		free(bound);
		return NULL;
	}
	/* The broker reads it when the client tells of the call. */
	atomic_store_explicit(&lane->counts->desk_bound, ++lane->desk_calls, memory_order_release);
	bound->module = module;
	exec_hold_module(module);
	return bound;
}

/* ---- The answer ---- */

static void answer(struct lane_desk *desk, const struct exec_template *bound,
				   const struct kernel_problem *problem)
{
	desk->call = bound ? bound->id : 0;
	for (int i = 0; bound && i < bound->operand_count; i++) {
		const struct exec_operand *operand = &bound->operands[i];
		/* The exact kernel, which is planned later, asks for no more than its problem has. */
		const bool there = problem->tensors[i].dtype != KILN_DTYPE_NONE;
		desk->extents[i] = (struct lane_extent){
			.bytes = operand->bytes,
			.period = operand->period,
			.width = operand->width,
			.alignment = there ? problem->tensors[i].alignment : 1,
			.over = operand->over,
		};
	}
	desk->operand_count = bound ? (uint32_t)bound->operand_count : 0;
	desk->reports = bound && bound->report.indices > 0;
}

void exec_desk_serve(struct launcher *launcher, struct exec_lane *lane)
{
	struct lane_desk *desk = &lane->memory->desk;
	struct kernel_problem problem;
	struct kernel_plan plan;
	lane->desk_asked = atomic_load_explicit(&desk->asked, memory_order_relaxed);
	exec_misdeed(launcher, "desk", 0);
	struct exec_module *module = plan_call(launcher, lane, &problem, &plan);
	answer(desk, module ? bind_call(lane, &plan, module) : NULL, &problem);
	atomic_store_explicit(&desk->answered, lane->desk_asked, memory_order_release);
	launcher->lane_active_us = launcher->now_us;
	exec_lane_wake_client(lane);
}
