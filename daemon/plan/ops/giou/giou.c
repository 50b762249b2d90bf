/*
 * giou.c: giou, giou_loss and their backward: which kernel takes a request.
 *
 * Figures of an H200 speak for one pair a thread, and for two pairs of a loss, whose boxes are read
 * at once.  For the loss of a quarter of a million pairs they speak for one pair again, in blocks
 * as large as they may be: then the last block has few sums to add up.
 */
#include "giou.h"

#include <stdio.h>
#include <string.h>

#define MAX_WAYS 8
#define COUNTER_BYTES 256 /* before the sums, in scratch memory; total.cuh has it, too */

struct giou_way {
	bool both;              /* predictions are read before it is known whether they count */
	uint32_t threads, each; /* pairs of a thread at once */
	char name[KERNEL_CHOICE_MAX];
};

/* The most bytes, to the four numbers of a box, that are aligned in all boxes; one number if they
 * lie apart. */
static uint32_t box_load(const struct rows_form *form, int operand, kiln_dtype dtype,
						 uint32_t address)
{
	uint32_t element = kernel_dtype_bytes(dtype), width = 4 * element;

	if (form->step[operand] != 1)
		return element;
	width = width < 16 ? width : 16;
	while (width > element && width > address)
		width /= 2;
	return rows_narrow(form, operand, element, width);
}

static uint32_t pred_load(const struct kernel_problem *problem, const struct giou_problem *giou)
{
	return box_load(&giou->form, 0, giou->pred, problem->tensors[0].alignment);
}

static uint32_t target_load(const struct kernel_problem *problem, const struct giou_problem *giou)
{
	return box_load(giou->ragged ? &giou->targets : &giou->form, giou->ragged ? 0 : 1, giou->target,
					problem->tensors[1].alignment);
}

static uint32_t dpred_store(const struct kernel_problem *problem, const struct giou_problem *giou)
{
	uint32_t element = kernel_dtype_bytes(giou->pred), width = 4 * element;
	uint32_t address = problem->tensors[giou->op.dpred].alignment;

	width = width < 16 ? width : 16;
	width = width < address ? width : address;
	return width < 4 ? element : width;
}

/* ---- Candidates ---- */

static void giou_add_way(const struct giou_problem *giou, const struct kernel_limits *limits,
						 uint32_t threads, uint32_t each, bool both, struct giou_way ways[MAX_WAYS],
						 int *count)
{
	struct giou_way way = {.both = both && giou->op.loss && !giou->ragged};

	while (threads > limits->max_threads)
		threads /= 2;
	way.threads = threads;
	way.each = way.both ? each : 1;
	snprintf(way.name, sizeof(way.name), way.each > 1 ? "%s %ux%u" : "%s %u",
			 way.both ? "both" : "pairs", threads, way.each);
	for (int i = 0; i < *count; i++)
		if (strcmp(ways[i].name, way.name) == 0)
			return;
	ways[(*count)++] = way;
}

/* The planner's own first. */
static int find_ways(const struct giou_problem *giou, const struct kernel_limits *limits,
					 struct giou_way ways[MAX_WAYS])
{
	int count = 0;

	memset(ways, 0, sizeof(*ways) * MAX_WAYS);
	/* Few pairs are one to a thread: then the last block has few sums to add up. */
	if (giou->op.loss && !giou->op.backward) {
		bool few = giou->ragged || giou->pairs <= 1 << 21;
		giou_add_way(giou, limits, few ? 1024 : 512, few ? 1 : 2, true, ways, &count);
	}
	if (giou->op.loss && giou->op.backward)
		giou_add_way(giou, limits, 256, 2, true, ways, &count);
	giou_add_way(giou, limits, 256, 1, false, ways, &count);
	giou_add_way(giou, limits, 256, 4, true, ways, &count);
	giou_add_way(giou, limits, 512, 2, true, ways, &count);
	giou_add_way(giou, limits, 1024, 1, false, ways, &count);
	return count;
}

/* ---- The plan ---- */

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static void print_boxes(struct plan_text *id, const struct rows_form *form, int operand,
						kiln_dtype dtype, uint32_t load)
{
	plan_print(id, "Boxes<%s, %u, %lld", plan_dtype_name(dtype), load,
			   (long long)form->step[operand]);
	rows_print_sizes(id, form);
	rows_print_strides(id, form, operand);
	plan_print(id, ">");
}

static void giou_print_kernel(const struct kernel_problem *problem, const struct giou_problem *giou,
							  const struct giou_way *way, bool loop, struct plan_text *id)
{
	const struct giou_op *op = &giou->op;
	/* A sample without predictions has no pairs to divide by their number. */
	long long most = giou->most > 0 ? (long long)giou->most : 1;

	plan_print(id, "%s<",
			   !op->loss      ? (op->backward ? "giou_pairs_backward" : "giou_pairs")
			   : op->backward ? "giou_loss_backward"
							  : "giou_loss");
	print_boxes(id, &giou->form, 0, giou->pred, pred_load(problem, giou));
	plan_print(id, ", ");
	print_boxes(id, giou->ragged ? &giou->targets : &giou->form, giou->ragged ? 0 : 1, giou->target,
				target_load(problem, giou));
	if (op->loss)
		plan_print(id, ", %s, %lld", truth(giou->ragged), most);
	plan_print(id, ", %s", truth(giou->clamp));
	if (op->loss)
		plan_print(id, ", %s, %u", truth(way->both), way->each);
	if (op->backward)
		plan_print(id, ", %u", dpred_store(problem, giou));
	if (op->dy >= 0) {
		rows_print_sizes(id, &giou->form);
		rows_print_strides(id, &giou->form, 2);
	}
	plan_print(id, ", %u", way->threads);
	plan_print(id, ", %s, %s>", rows_index_type(&giou->form), truth(loop));
}

static void giou_pass_args(const struct giou_problem *giou, struct kernel_plan *out)
{
	const struct giou_op *op = &giou->op;
	const int order[] = {
		op->pred, op->target, op->offsets,  op->backward ? op->count : -1, op->dloss,
		op->dy,   op->y,      op->loss_out, op->backward ? -1 : op->count, op->dpred};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (order[i] >= 0)
			plan_arg_pointer(out, order[i]);
	if (op->loss && !op->backward)
		plan_arg_scratch(out);
	plan_arg_scalar(out, 8, (uint64_t)giou->pairs);
}

static void set_extents(const struct kernel_problem *problem, const struct giou_problem *giou,
						struct kernel_plan *out)
{
	for (int i = 0; i < problem->tensor_count; i++)
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE)
			plan_touch(problem, i,
					   i == giou->op.pred     ? pred_load(problem, giou)
					   : i == giou->op.target ? target_load(problem, giou)
					   : i == giou->op.dpred  ? dpred_store(problem, giou)
											  : kernel_dtype_bytes(problem->tensors[i].dtype),
					   out);
}

/* A sum and a count for each block of a loss. */
static struct kernel_scratch scratch_for(const struct giou_problem *giou, uint64_t blocks)
{
	uint64_t bytes = COUNTER_BYTES + blocks * (giou->pred == KILN_F64 ? 16 : 8);

	return (struct kernel_scratch){.bytes = bytes, .counters = bytes};
}

static int giou_plan_way(const struct kernel_problem *problem, const struct giou_problem *giou,
						 const struct giou_way *way, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct giou_op *op = &giou->op;
	uint64_t blocks = plan_divide_up((uint64_t)giou->pairs, way->threads * way->each);
	bool loop = plan_launch(out, limits, blocks ? blocks : 1, way->threads);

	snprintf(out->source, sizeof(out->source), "ops/giou%s%s.cuh",
			 op->loss && !op->backward ? "_loss" : "", op->backward ? "_backward" : "");
	giou_print_kernel(problem, giou, way, loop, &id);
	if (op->loss && !op->backward)
		out->scratch = scratch_for(giou, out->grid[0]);
	giou_pass_args(giou, out);
	if (op->loss)
		plan_arg_scalar(out, 8, (uint64_t)giou->boxes);
	set_extents(problem, giou, out);
	memcpy(out->choice, way->name, sizeof(out->choice));
	snprintf(out->note, sizeof(out->note), "%u pair%s of boxes a thread%s%s", way->each,
			 way->each == 1 ? "" : "s", giou->ragged ? ", targets by offsets" : "",
			 way->both                   ? "; both are read at once, whether they count or not"
			 : op->loss && !op->backward ? "; predictions that count are read"
										 : "");
	return plan_check_name(&id, out, error);
}

/* ---- The generic plan ---- */

#define GENERIC_THREADS 256u
#define GENERIC_LOSS_THREADS 512u
#define CLAMP 1u /* flags of ops/giou_generic.cuh */
#define PRED 2u
#define TARGET 4u
#define DPRED 8u

static uint32_t whole_box(kiln_dtype dtype)
{
	return 4 * kernel_dtype_bytes(dtype) < 16 ? 4 * kernel_dtype_bytes(dtype) : 16;
}

static void pass_sizes(const struct kernel_problem *problem, const struct giou_problem *giou,
					   struct kernel_plan *out)
{
	const struct rows_form *targets = giou->ragged ? &giou->targets : &giou->form;
	uint32_t flags = giou->clamp ? CLAMP : 0;

	flags |= pred_load(problem, giou) == whole_box(giou->pred) ? PRED : 0;
	flags |= target_load(problem, giou) == whole_box(giou->target) ? TARGET : 0;
	if (giou->op.backward && dpred_store(problem, giou) == whole_box(giou->pred))
		flags |= DPRED;
	plan_arg_scalar(out, 8, (uint64_t)giou->boxes);
	plan_arg_scalar(out, 8, (uint64_t)giou->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)targets->step[giou->ragged ? 0 : 1]);
	plan_arg_scalar(out, 8, giou->ragged && targets->rank ? (uint64_t)targets->stride[0][0] : 0);
	plan_arg_divisor(out, 8, giou->most > 0 ? (uint64_t)giou->most : 1);
	plan_arg_scalar(out, 4, flags);
	rows_pass_sizes(out, &giou->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &giou->form, i);
}

/* Blocks are an argument here: of few pairs all multiprocessors have some. */
static uint32_t loss_threads(const struct giou_problem *giou, const struct kernel_limits *limits)
{
	uint32_t threads = GENERIC_LOSS_THREADS;

	while (threads > 128 && ((uint64_t)giou->pairs / threads < limits->multiprocessors ||
							 threads > limits->max_threads))
		threads /= 2;
	return threads;
}

static int giou_plan_generic(const struct kernel_problem *problem, const struct giou_problem *giou,
							 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct giou_op *op = &giou->op;
	bool loss = op->loss && !op->backward;

	plan_generic_spread(out, limits, "ops/giou_generic.cuh",
						giou->pairs > 0 ? (uint64_t)giou->pairs : 1,
						loss ? loss_threads(giou, limits) : GENERIC_THREADS);
	plan_print(&id, "%s_generic<%s, %s>", problem->op, plan_dtype_name(giou->pred),
			   plan_dtype_name(giou->target));
	if (loss)
		out->scratch = scratch_for(giou, out->grid[0]);
	giou_pass_args(giou, out);
	pass_sizes(problem, giou, out);
	set_extents(problem, giou, out);
	snprintf(out->note, sizeof(out->note), "one pair of boxes a thread%s; sizes are arguments",
			 giou->ragged ? ", targets by offsets" : "");
	return KILN_OK;
}

int giou_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct giou_problem giou;
	struct giou_way ways[MAX_WAYS];
	int status = giou_check(problem, &giou, error), count, chosen = 0;

	if (status)
		return status;
	/* The mean of no pairs is written. */
	if (giou.pairs == 0 && (!giou.op.loss || giou.op.backward)) {
		set_extents(problem, &giou, out);
		out->kind = KERNEL_NOTHING;
		out->bytes_moved = 0;
		snprintf(out->variant, sizeof(out->variant), "nothing");
		snprintf(out->note, sizeof(out->note), "there are no pairs");
		return KILN_OK;
	}
	count = find_ways(&giou, limits, ways);
	if (plan_is_generic(choice))
		return giou_plan_generic(problem, &giou, limits, out);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: there is no candidate \"%s\" for %lld pairs on %s", problem->op,
						   choice, (long long)giou.pairs, limits->target);
	return giou_plan_way(problem, &giou, &ways[chosen], limits, out, error);
}

int giou_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct giou_problem giou;
	struct giou_way ways[MAX_WAYS];
	char error[KERNEL_ERROR_MAX];
	int count;

	if (giou_check(problem, &giou, error))
		return 0;
	count = find_ways(&giou, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

int giou_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct giou_problem giou;

	giou_complete(problem);
	for (int i = 0; i < problem->tensor_count; i++) {
		char name[16];
		plan_operand_name(problem->operands, i, name);
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE &&
			!plan_operand_optional(problem->operands, i))
			return plan_refuse(error, KILN_EINVAL, "%s: %s is missing", problem->op, name);
	}
	return giou_check(problem, &giou, error);
}
