/*
 * rope.c: the plan of rope: which kernel, how many threads and heads a thread, and its arguments.
 */
#include "rope.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/rope.cuh"
#define WAYS_MOST 5
#define FULL_THREADS 2048 /* of a multiprocessor */

struct way {
	uint32_t threads, held; /* of a block; heads that a thread has */
};

/* ---- How threads share the work ---- */

/* A thread has one vector a head of interleaved pairs, and two of halves.  So it takes two heads of
 * interleaved pairs, where threads are enough for that. */
static int rope_find_ways(const struct rope_problem *rope, const struct rope_items *items,
						  const struct kernel_limits *limits, struct way ways[WAYS_MOST])
{
	static const struct way all[] = {{128, 1}, {128, 2}, {256, 1}, {256, 2}, {32, 1}};
	bool many = rope_work(rope, items, 2) >= 2 * (int64_t)limits->multiprocessors * FULL_THREADS;
	bool second = rope->interleaved && many && limits->max_threads >= 128 &&
				  rope->q_heads + rope->k_heads > 1;
	int count = 0;

	if (second)
		ways[count++] = all[1];
	for (int i = 0; i < 5; i++) {
		bool fits = all[i].threads <= limits->max_threads &&
					(all[i].held == 1 || all[i].held <= rope->q_heads + rope->k_heads);
		/* The smallest is for devices that have no other. */
		if (fits && !(second && i == 1) && !(all[i].threads == 32 && count))
			ways[count++] = all[i];
	}
	return count;
}

static void name_way(const struct rope_problem *rope, const struct way *way,
					 char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%u", rope->interleaved ? "interleaved" : "halves",
			 way->threads, way->held);
}

int rope_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct way ways[WAYS_MOST];
	struct rope_problem rope;
	struct rope_items items;
	char error[KERNEL_ERROR_MAX];
	int count;

	if (rope_check(problem, &rope, error) || !rope_find_items(problem, &rope, &items))
		return 0;
	count = rope_find_ways(&rope, &items, limits, ways);
	for (int i = 0; i < count; i++)
		name_way(&rope, &ways[i], names[i]);
	return count;
}

/* ---- Arguments ---- */

static void pass_strides(const struct rope_problem *rope, int operand, struct kernel_plan *out)
{
	bool heads = operand != ROPE_COS && operand != ROPE_SIN && operand != ROPE_POSITIONS;
	const struct rope_strides *strides = &rope->strides[operand];

	plan_arg_scalar(out, 8, (uint64_t)strides->batch);
	plan_arg_scalar(out, 8, (uint64_t)strides->token);
	if (heads)
		plan_arg_scalar(out, 8, (uint64_t)strides->head);
}

static void pass_report(const struct kernel_problem *problem, const struct rope_problem *rope,
						struct kernel_plan *out)
{
	if (rope->position_bytes && rope->bounds == PLAN_CHECK)
		plan_arg_report(out,
						plan_distinct_bytes(&problem->tensors[ROPE_POSITIONS]) /
							rope->position_bytes * (uint64_t)rope->batch,
						(uint64_t)rope->rows);
	else
		plan_arg_scalar(out, 8, 0);
}

void rope_pass(const struct kernel_problem *problem, const struct rope_problem *rope,
			   const struct rope_items *items, int64_t work, struct kernel_plan *out)
{
	plan_arg_scalar(out, 8, (uint64_t)work);
	plan_arg_divisor(out, items->wide ? 8 : 4, (uint64_t)rope->tokens);
	plan_arg_scalar(out, 8, (uint64_t)plan_int(problem, "start"));
	plan_arg_scalar(out, 8, (uint64_t)rope->rows);
	plan_arg_real(out, rope->dtype, rope->sign);
	for (int i = 0; i < ROPE_OPERANDS; i++)
		pass_strides(rope, i, out);
}

/* ROPE_PARAMS of the kernels. */
static void pass_call(const struct kernel_problem *problem, const struct rope_problem *rope,
					  const struct rope_items *items, int64_t work, struct kernel_plan *out)
{
	for (int i = 0; i < ROPE_OPERANDS; i++)
		plan_arg_pointer(out, i);
	pass_report(problem, rope, out);
	rope_pass(problem, rope, items, work, out);
}

/* The rows of the tables that tokens name are read, and no others. */
static void touch(const struct kernel_problem *problem, const struct rope_problem *rope,
				  const struct rope_items *items, struct kernel_plan *out)
{
	for (int i = 0; i < ROPE_OPERANDS; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		bool table = i == ROPE_COS || i == ROPE_SIN;
		uint32_t alignment = table                 ? items->table_access
							 : i == ROPE_POSITIONS ? rope->position_bytes
												   : items->access;
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		plan_touch(problem, i, alignment, out);
		if (i == ROPE_Q_OUT || i == ROPE_K_OUT)
			plan_over(problem, i, i == ROPE_Q_OUT ? ROPE_Q : ROPE_K, out);
		if (table) {
			uint64_t whole = plan_distinct_bytes(tensor);
			uint64_t named = (uint64_t)(rope->tokens * rope->batch * rope->half) *
							 kernel_dtype_bytes(tensor->dtype);
			out->bytes_moved -= named < whole ? whole - named : 0;
		}
	}
}

/* ---- The plan ---- */

static void print_shape(const struct rope_problem *rope, const struct rope_items *items,
						bool generic, struct plan_text *id)
{
	plan_print(id, "rope%s<%s, %s, %s, %u, %u, %u", generic ? "_generic" : "",
			   plan_dtype_name(rope->dtype), plan_dtype_name(rope->table),
			   rope->interleaved ? "true" : "false", items->vector, items->access,
			   items->table_access);
}

static int plan_way(const struct kernel_problem *problem, const struct rope_problem *rope,
					const struct rope_items *items, const struct way *way,
					const struct kernel_limits *limits, struct kernel_plan *out,
					char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t work = rope_work(rope, items, way->held);
	bool loop =
		plan_launch(out, limits, (uint64_t)plan_divide_up(work, way->threads), way->threads);

	snprintf(out->source, sizeof(out->source), SOURCE);
	print_shape(rope, items, false, &id);
	plan_print(&id, ", %lld, %lld, %lld, %lld, %lld, %lld, %u, %u", (long long)rope->half,
			   (long long)rope->dim, (long long)rope->q_heads, (long long)rope->k_heads,
			   (long long)items->rotated, (long long)items->all, way->held, way->threads);
	plan_print(&id, ", %u, %s, %s, %s>", rope->position_bytes,
			   rope->position_bytes ? plan_bounds_name(rope->bounds) : "INDICES_TRUST",
			   items->wide ? "u64" : "u32", loop ? "true" : "false");
	pass_call(problem, rope, items, work, out);
	touch(problem, rope, items, out);
	name_way(rope, way, out->choice);
	snprintf(out->note, sizeof(out->note),
			 "%lld of %lld elements of a head are rotated; heads a thread: %u; %u bytes at once, "
			 "%u of the tables",
			 2 * (long long)rope->half, (long long)rope->dim, way->held, items->access,
			 items->table_access);
	return plan_check_name(&id, out, error);
}

/* Whole vectors that 31 bits number have a kernel; all else goes by elements or pairs. */
static int plan_generic(const struct kernel_problem *problem, const struct rope_problem *rope,
						struct rope_items *items, const struct kernel_limits *limits,
						struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint32_t angles = rope->interleaved ? items->vector / 2 : items->vector;
	uint32_t bytes = angles * kernel_dtype_bytes(rope->table), width;
	int64_t work;

	if (items->wide || items->access < 16 || items->table_access < (bytes < 16 ? bytes : 16)) {
		(void)rope_narrow_items(problem, rope, items);
		items->wide = true;
	}
	work = rope_work(rope, items, 1);
	if (work < 0)
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many elements", problem->op);
	width = items->wide ? 8 : 4;
	plan_generic_spread(out, limits, SOURCE, (uint64_t)work, 256);
	print_shape(rope, items, true, &id);
	plan_print(&id, ", %s>", items->wide ? "u64" : "u32");
	pass_call(problem, rope, items, work, out);
	plan_arg_divisor(out, width, (uint64_t)(rope->q_heads + rope->k_heads));
	plan_arg_divisor(out, width, (uint64_t)items->all);
	plan_arg_scalar(out, width, (uint64_t)rope->half);
	plan_arg_scalar(out, width, (uint64_t)rope->dim);
	plan_arg_scalar(out, width, (uint64_t)rope->q_heads);
	plan_arg_scalar(out, width, (uint64_t)items->rotated);
	plan_arg_scalar(out, 4, rope->position_bytes);
	plan_arg_scalar(out, 4, rope->bounds);
	touch(problem, rope, items, out);
	snprintf(out->note, sizeof(out->note),
			 "%u bytes at once, %u of the tables; sizes and strides are arguments", items->access,
			 items->table_access);
	return plan_check_name(&id, out, error);
}

int rope_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct way ways[WAYS_MOST];
	struct rope_problem rope;
	struct rope_items items;
	int status = rope_check(problem, &rope, error), count;

	if (status)
		return status;
	if (rope.batch * rope.tokens == 0 || rope.dim == 0 || rope.q_heads + rope.k_heads == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (!rope_find_items(problem, &rope, &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many elements", problem->op);
	if (plan_is_generic(choice))
		return plan_generic(problem, &rope, &items, limits, out, error);
	count = rope_find_ways(&rope, &items, limits, ways);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_way(&rope, &ways[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_way(problem, &rope, &items, &ways[i], limits, out, error);
	}
	return plan_refuse(error, KILN_EINVAL,
					   "rope: there is no candidate \"%s\" for heads of %lld elements on %s",
					   choice, (long long)rope.dim, limits->target);
}

int rope_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct rope_problem rope;

	rows_infer_like(problem, ROPE_Q_OUT, ROPE_Q);
	if (plan_has(problem, ROPE_K))
		rows_infer_like(problem, ROPE_K_OUT, ROPE_K);
	return rope_check(problem, &rope, error);
}

/* Types of q and of the tables; halves and pairs; whole vectors and, where q is aligned to no more
 * than an element, elements. */
int rope_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype types[][2] = {{KILN_F32, KILN_F32},  {KILN_F16, KILN_F16},
										  {KILN_F16, KILN_F32},  {KILN_BF16, KILN_BF16},
										  {KILN_BF16, KILN_F32}, {KILN_F64, KILN_F64}};

	if (index >= 6 * 4)
		return KILN_ENOENT;
	plan_made_tensor(out, ROPE_Q, types[index / 4][0], 3, (const int64_t[]){2, 3, 64});
	for (int i = ROPE_COS; i <= ROPE_SIN; i++)
		plan_made_tensor(out, i, types[index / 4][1], 2, (const int64_t[]){2, 32});
	plan_made_tensor(out, ROPE_Q_OUT, types[index / 4][0], 3, (const int64_t[]){2, 3, 64});
	plan_made_int(out, "interleaved", index / 2 % 2);
	if (index % 2)
		out->tensors[ROPE_Q].alignment = kernel_dtype_bytes(types[index / 4][0]);
	return KILN_OK;
}
