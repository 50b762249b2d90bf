/*
 * rope_kv_store.c: the plan of rope_kv_store: rope of q and k, whose k goes into a paged cache, as
 * does v.  The operands are read as rope's where it checks them and finds the items of threads.
 */
#include "rope.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/plan/ops/kv_store/kv_store.h"
#include "daemon/plan/ops/quantize/quantize.h"

#define SOURCE "ops/rope_kv_store.cuh"
#define THREADS 256u
#define GENERIC_PAIRS 4u /* of a thread; ops/rope_kv_store.cuh has it, too */

enum { Q, COS, SIN, K, V, SLOTS, POSITIONS, K_SCALE, V_SCALE, Q_OUT, K_CACHE, V_CACHE, OPERANDS };

static const struct kv_operands operands = {
	.from = {K, V}, .slots = SLOTS, .scale = {K_SCALE, V_SCALE}, .cache = {K_CACHE, V_CACHE}};
/* The operands of rope; that of k_out is v, which lies anywhere. */
static const int places[ROPE_OPERANDS] = {Q, COS, SIN, K, POSITIONS, Q_OUT, V};

#define THREADS_TRIED 3

struct form {
	struct kernel_problem as_rope;
	struct rope_problem rope; /* k_heads: those of k and v */
	struct rope_items items;
	struct kv_caches caches;
	uint32_t store; /* bytes that are stored in a cache at once */
	int64_t work;
};

/* ---- What a request must satisfy ---- */

static int check_values(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *k = &problem->tensors[K], *v = &problem->tensors[V];

	if (k->dtype != v->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: k is %s and v is %s; they must agree",
						   problem->op, plan_dtype_name(k->dtype), plan_dtype_name(v->dtype));
	if (k->rank != v->rank || memcmp(k->shape, v->shape, sizeof(k->shape[0]) * (size_t)k->rank))
		return plan_refuse(error, KILN_EINVAL, "%s: k and v must have the same dimensions",
						   problem->op);
	return rows_check_inner(problem, V, error);
}

/* Vectors, or else elements, if v and the caches have no such vectors. */
static bool find_items(const struct kernel_problem *problem, struct form *form)
{
	uint32_t from = kernel_dtype_bytes(form->caches.from), to = kernel_dtype_bytes(form->caches.to);
	const struct kernel_problem *rope = &form->as_rope;

	if (!rope_find_items(rope, &form->rope, &form->items))
		return false;
	if (!kv_stores_vectors(problem, &operands, &form->caches, form->items.access / from * to) &&
		!rope_narrow_items(rope, &form->rope, &form->items))
		return false;
	form->items.wide = form->items.wide || form->caches.slots > INT32_MAX / 2;
	form->store = form->items.access / from * to;
	form->work = rope_work(&form->rope, &form->items, 1);
	return form->work >= 0;
}

static int rope_kv_check(const struct kernel_problem *problem, struct form *out,
						 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *k = &problem->tensors[K];
	int head = k->rank - (plan_word(problem, "layout") == 0 ? 2 : 3), status;

	memset(out, 0, sizeof(*out));
	out->as_rope = *problem;
	out->as_rope.operands = "q, cos, sin, k, positions, q_out, k_out";
	out->as_rope.tensor_count = ROPE_OPERANDS;
	for (int i = 0; i < ROPE_OPERANDS; i++)
		out->as_rope.tensors[i] = problem->tensors[places[i]];
	/* As k in place, which any layout may be. */
	out->as_rope.tensors[ROPE_K_OUT] = *k;
	status = rope_check(&out->as_rope, &out->rope, error);
	if (!status)
		status = check_values(problem, error);
	if (!status)
		status = kv_check_caches(problem, &operands, head, &out->caches, error);
	if (status)
		return status;
	out->as_rope.tensors[ROPE_K_OUT] = problem->tensors[V];
	out->rope.strides[ROPE_K_OUT] = (struct rope_strides){
		.batch = k->rank == 4 && k->shape[0] > 1 ? problem->tensors[V].stride[0] : 0,
		.token = problem->tensors[V].stride[2 * k->rank - 5 - head],
		.head = problem->tensors[V].stride[head]};
	out->rope.k_heads *= 2;
	if (!find_items(problem, out))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many elements", problem->op);
	return KILN_OK;
}

int rope_kv_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct form form;

	rows_infer_like(problem, Q_OUT, Q);
	return rope_kv_check(problem, &form, error);
}

void rope_kv_report(const struct kernel_problem *problem, uint64_t reported,
					char error[KERNEL_ERROR_MAX])
{
	(void)problem;
	snprintf(error, KERNEL_ERROR_MAX, "%" PRIu64 " %s out of range", reported,
			 reported == 1 ? "position or slot is" : "positions or slots are");
}

/* ---- The plan ---- */

static void print_types(const struct form *form, struct plan_text *id)
{
	plan_print(id, "rope_kv_store<%s, %s, %s, %u, %u, %u, %s", plan_dtype_name(form->rope.dtype),
			   plan_dtype_name(form->rope.table), form->rope.interleaved ? "true" : "false",
			   form->items.vector, form->items.access, form->items.table_access,
			   form->caches.copy ? plan_dtype_name(form->caches.to)
								 : quantize_type(form->caches.to));
}

/* unit: bytes of what the kernel counts in caches. */
static void rope_kv_pass(const struct kernel_problem *problem, const struct form *form,
						 uint32_t unit, struct kernel_plan *out)
{
	for (int i = 0; i < ROPE_OPERANDS; i++)
		plan_arg_pointer(out, places[i]);
	if (form->rope.bounds == PLAN_CHECK)
		plan_arg_report(out, (uint64_t)(form->rope.tokens * form->rope.batch) * 2, UINT64_MAX);
	else
		plan_arg_scalar(out, 8, 0);
	rope_pass(&form->as_rope, &form->rope, &form->items, form->work, out);
	kv_pass_caches(problem, &operands, &form->caches, unit, out);
}

static void rope_kv_finish(const struct kernel_problem *problem, const struct form *form,
						   struct kernel_plan *out)
{
	int64_t moved = form->rope.batch * form->rope.tokens * form->rope.k_heads * form->rope.dim;

	plan_touch(problem, Q, form->items.access, out);
	plan_touch(problem, Q_OUT, form->items.access, out);
	plan_over(problem, Q_OUT, Q, out);
	plan_touch(problem, K, form->items.access, out);
	plan_touch(problem, V, form->items.access, out);
	for (int i = COS; i <= SIN; i++)
		plan_touch(problem, i, form->items.table_access, out);
	if (form->rope.position_bytes)
		plan_touch(problem, POSITIONS, form->rope.position_bytes, out);
	kv_touch_caches(problem, &operands, &form->caches, form->store, moved, out);
	snprintf(out->note, sizeof(out->note),
			 "%lld of %lld elements of a head are rotated; %u bytes at once, %u of the tables, %u "
			 "of the caches",
			 2 * (long long)form->rope.half, (long long)form->rope.dim, form->items.access,
			 form->items.table_access, form->store);
}

/* Threads of a block; how many choices of them there are. */
static int rope_kv_threads(const struct kernel_limits *limits, uint32_t threads[THREADS_TRIED])
{
	static const uint32_t all[THREADS_TRIED] = {128, 256, 32};
	int count = 0;

	for (int i = 0; i < THREADS_TRIED; i++)
		/* The fewest are for devices that have no more. */
		if (all[i] <= limits->max_threads && !(all[i] == 32 && count))
			threads[count++] = all[i];
	return count;
}

static void name_way(const struct form *form, uint32_t threads, char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %u", form->rope.interleaved ? "interleaved" : "halves",
			 threads);
}

int rope_kv_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	uint32_t threads[THREADS_TRIED];
	char error[KERNEL_ERROR_MAX];
	struct form form;
	int count;

	if (rope_kv_check(problem, &form, error))
		return 0;
	count = rope_kv_threads(limits, threads);
	for (int i = 0; i < count; i++)
		name_way(&form, threads[i], names[i]);
	return count;
}

static int rope_kv_exact(const struct kernel_problem *problem, const struct form *form,
						 uint32_t threads, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct rope_problem *rope = &form->rope;
	bool loop = plan_launch(out, limits, (uint64_t)plan_divide_up(form->work, threads), threads);

	snprintf(out->source, sizeof(out->source), SOURCE);
	name_way(form, threads, out->choice);
	print_types(form, &id);
	plan_print(&id, ", %lld, %lld, %lld, %lld, %lld, %lld, %lld, %u", (long long)rope->half,
			   (long long)rope->dim, (long long)rope->q_heads, (long long)rope->k_heads / 2,
			   (long long)form->items.rotated, (long long)form->items.all,
			   (long long)form->caches.block_size, threads);
	plan_print(&id, ", %u, %u, %s, %s, %s>", rope->position_bytes, form->caches.slot_bytes,
			   plan_bounds_name(rope->bounds), form->items.wide ? "u64" : "u32",
			   loop ? "true" : "false");
	rope_kv_pass(problem, form, kernel_dtype_bytes(form->caches.to), out);
	rope_kv_finish(problem, form, out);
	return plan_check_name(&id, out, error);
}

/* By pairs of elements: one kernel for each type of q and of the tables. */
static int rope_kv_generic(const struct kernel_problem *problem, struct form *form,
						   const struct kernel_limits *limits, struct kernel_plan *out,
						   char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	kiln_dtype to = form->caches.to;
	int64_t size = form->caches.block_size;
	uint32_t type = form->caches.copy ? 0 : to == KILN_F8E4M3 ? 1 : to == KILN_F8E5M2 ? 2 : 3;
	uint32_t each = GENERIC_PAIRS;

	(void)rope_narrow_items(&form->as_rope, &form->rope, &form->items);
	form->items.wide = true;
	form->store = kernel_dtype_bytes(to);
	form->work = rope_work(&form->rope, &form->items, 1);
	if (form->work < 0)
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many elements", problem->op);
	while (form->items.all % each)
		each /= 2;
	form->items.all /= each;
	form->work /= each;
	plan_generic_spread(out, limits, SOURCE, (uint64_t)form->work, THREADS);
	plan_print(&id, "rope_kv_store_generic<%s, %s>", plan_dtype_name(form->rope.dtype),
			   plan_dtype_name(form->rope.table));
	rope_kv_pass(problem, form, 1, out);
	plan_arg_divisor(out, 8, (uint64_t)(form->rope.q_heads + form->rope.k_heads));
	plan_arg_divisor(out, 8, (uint64_t)form->items.all);
	plan_arg_divisor(out, 8, (uint64_t)(size ? size : 1));
	plan_arg_scalar(out, 8, (uint64_t)form->rope.half);
	plan_arg_scalar(out, 8, (uint64_t)form->rope.dim);
	plan_arg_scalar(out, 8, (uint64_t)form->rope.q_heads);
	plan_arg_scalar(out, 4, form->rope.position_bytes | form->caches.slot_bytes << 16);
	plan_arg_scalar(out, 4,
					(uint32_t)form->rope.bounds | (uint32_t)form->rope.interleaved << 8 |
						type << 16 | each << 24);
	rope_kv_finish(problem, form, out);
	return plan_check_name(&id, out, error);
}

int rope_kv_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	uint32_t threads[THREADS_TRIED];
	struct form form;
	int status = rope_kv_check(problem, &form, error), count;

	if (status)
		return status;
	if (form.work == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		return rope_kv_generic(problem, &form, limits, out, error);
	count = rope_kv_threads(limits, threads);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_way(&form, threads[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return rope_kv_exact(problem, &form, threads[i], limits, out, error);
	}
	return plan_refuse(error, KILN_EINVAL, "%s: there is no candidate \"%s\" on %s", problem->op,
					   choice, limits->target);
}

/* Types of q and of the tables. */
int rope_kv_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype types[][2] = {{KILN_F32, KILN_F32},  {KILN_F16, KILN_F16},
										  {KILN_F16, KILN_F32},  {KILN_BF16, KILN_BF16},
										  {KILN_BF16, KILN_F32}, {KILN_F64, KILN_F64}};
	static const int heads[] = {Q, K, V, Q_OUT};

	if (index >= 6)
		return KILN_ENOENT;
	for (int i = 0; i < 4; i++)
		plan_made_tensor(out, heads[i], types[index][0], 3, (const int64_t[]){2, 3, 64});
	for (int i = COS; i <= SIN; i++)
		plan_made_tensor(out, i, types[index][1], 2, (const int64_t[]){2, 32});
	plan_made_tensor(out, SLOTS, KILN_I32, 1, (const int64_t[]){2});
	for (int i = K_CACHE; i <= V_CACHE; i++)
		plan_made_tensor(out, i, types[index][0], 4, (const int64_t[]){1, 2, 3, 64});
	return KILN_OK;
}
