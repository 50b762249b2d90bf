/*
 * kv_store.c: the plan of kv_store: the vectors by which keys and values move, how threads share
 * them, and the arguments.
 */
#include "kv_store.h"

#include <stdio.h>
#include <string.h>

#include "daemon/plan/ops/quantize/quantize.h"

#define SOURCE "ops/kv_store.cuh"
#define GENERIC_THREADS 256u

enum { K, V, SLOTS, K_SCALE, V_SCALE, K_CACHE, V_CACHE };

static const struct kv_operands operands = {
	.from = {K, V}, .slots = SLOTS, .scale = {K_SCALE, V_SCALE}, .cache = {K_CACHE, V_CACHE}};
#define WAYS_MOST 12

#define FULL_THREADS 2048 /* of a multiprocessor */

/* Threads of a block; units of a vector; vectors of a thread. */
struct way {
	uint32_t threads, vector, held;
};

/* A kernel counts bytes where elements stay as they are, else elements. */
struct form {
	struct kv_caches caches;
	int64_t tokens, dim[2]; /* dim: elements of a head */
	int64_t stride[2][2];   /* of k and v: from token to token, from head to head */
	uint32_t element, unit; /* bytes: of k's elements, of what the kernel counts */
	uint32_t vector;        /* units that move at once */
	int64_t vectors[2];     /* of a head */
	uint64_t work;
	bool wide; /* 31 bits do not number vectors or slots */
};

/* ---- What a request must satisfy ---- */

static int check_values(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *k = &problem->tensors[K], *v = &problem->tensors[V];

	if (k->dtype != v->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: k is %s and v is %s; they must agree",
						   problem->op, plan_dtype_name(k->dtype), plan_dtype_name(v->dtype));
	for (int i = K; i <= V; i++)
		if (problem->tensors[i].rank != 3)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: %s has rank %d; it must be 3, [tokens, heads, dim]",
							   problem->op, i == K ? "k" : "v", problem->tensors[i].rank);
	for (int i = 0; i < 2; i++)
		if (k->shape[i] != v->shape[i])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d has size %lld in k and %lld in v; they must agree",
							   problem->op, i, (long long)k->shape[i], (long long)v->shape[i]);
	return KILN_OK;
}

/* Can vectors of so many elements be read and stored? */
static bool moves_vectors(const struct kernel_problem *problem, const struct form *form,
						  uint32_t elements)
{
	uint64_t bytes = (uint64_t)elements * form->element;

	for (int i = 0; i < 2; i++)
		if (problem->tensors[operands.from[i]].alignment < bytes || form->dim[i] % elements ||
			(uint64_t)form->stride[i][0] * form->element % bytes ||
			(uint64_t)form->stride[i][1] * form->element % bytes)
			return false;
	return kv_stores_vectors(problem, &operands, &form->caches,
							 elements * kernel_dtype_bytes(form->caches.to));
}

static int kv_store_check(const struct kernel_problem *problem, struct form *out,
						  char error[KERNEL_ERROR_MAX])
{
	int status = check_values(problem, error);
	uint32_t elements;

	memset(out, 0, sizeof(*out));
	for (int i = 0; i < 2 && !status; i++)
		status = rows_check_inner(problem, operands.from[i], error);
	if (!status)
		status = kv_check_caches(problem, &operands, 1, &out->caches, error);
	if (status)
		return status;
	out->tokens = problem->tensors[K].shape[0];
	out->element = kernel_dtype_bytes(out->caches.from);
	for (int i = 0; i < 2; i++) {
		const struct kernel_tensor *from = &problem->tensors[operands.from[i]];
		out->dim[i] = from->shape[2];
		out->stride[i][0] = from->stride[0];
		out->stride[i][1] = from->stride[1];
	}
	elements = 16 / out->element;
	while (elements > 1 && !moves_vectors(problem, out, elements))
		elements /= 2;
	out->unit = out->caches.copy ? 1 : out->element;
	out->vector = elements * out->element / out->unit;
	for (int i = 0; i < 2; i++)
		out->vectors[i] = out->dim[i] / elements;
	out->work = (uint64_t)(out->tokens * out->caches.heads * (out->vectors[0] + out->vectors[1]));
	out->wide = out->work > INT32_MAX / 2 || out->caches.slots > INT32_MAX / 2;
	return KILN_OK;
}

/* ---- The plan ---- */

/* Vectors that become 8 bits may be read 16 bytes at a time, up to those that are stored so. */
static bool has_vectors(const struct kernel_problem *problem, const struct form *form,
						uint32_t times)
{
	uint32_t vector = form->vector * times;

	return times == 1 || (!form->caches.copy && form->vector * form->unit == 16 && vector <= 16 &&
						  form->dim[0] % vector == 0 && form->dim[1] % vector == 0 &&
						  kv_stores_vectors(problem, &operands, &form->caches, vector));
}

/* Threads have more to do where there are enough of them. */
static int kv_store_ways(const struct kernel_problem *problem, const struct form *form,
						 const struct kernel_limits *limits, struct way ways[WAYS_MOST])
{
	/* vector: times the least. */
	static const struct way all[] = {
		{256, 4, 1}, {256, 2, 1}, {256, 1, 1}, {256, 2, 2}, {128, 4, 1}, {128, 2, 1}, {128, 2, 2},
		{512, 2, 1}, {256, 1, 2}, {128, 1, 1}, {128, 1, 2}, {512, 1, 1}, {256, 1, 4}, {32, 1, 1}};
	bool many = form->work >= (uint64_t)8 * limits->multiprocessors * FULL_THREADS;
	int count = 0, first = many ? 0 : 2;

	for (int i = first; i < 14 && count < WAYS_MOST; i++) {
		struct way way = all[i];
		/* The smallest is for devices that have no other. */
		if (way.threads > limits->max_threads || (way.threads == 32 && count) ||
			!has_vectors(problem, form, way.vector))
			continue;
		way.vector *= form->vector;
		ways[count++] = way;
	}
	return count;
}

static void kv_store_name_way(const struct form *form, const struct way *way,
							  char name[KERNEL_CHOICE_MAX])
{
	if (form->caches.copy)
		snprintf(name, KERNEL_CHOICE_MAX, "copy %ux%u", way->threads, way->held);
	else
		snprintf(name, KERNEL_CHOICE_MAX, "quantize %ux%u v%u", way->threads, way->held,
				 way->vector);
}

int kv_store_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct way ways[WAYS_MOST];
	char error[KERNEL_ERROR_MAX];
	struct form form;
	int count;

	if (kv_store_check(problem, &form, error))
		return 0;
	count = kv_store_ways(problem, &form, limits, ways);
	for (int i = 0; i < count; i++)
		kv_store_name_way(&form, &ways[i], names[i]);
	return count;
}

static void print_types(const struct form *form, bool generic, uint32_t vector,
						struct plan_text *id)
{
	plan_print(id, "kv_store%s<%s, %s, %u", generic ? "_generic" : "",
			   form->caches.copy ? "u8" : plan_dtype_name(form->caches.from),
			   form->caches.copy ? "u8" : quantize_type(form->caches.to), vector);
}

/* KV_PARAMS of the kernels. */
static void pass_call(const struct kernel_problem *problem, const struct form *form, uint64_t work,
					  struct kernel_plan *out)
{
	int64_t each = form->element / form->unit;

	plan_arg_pointer(out, K);
	plan_arg_pointer(out, V);
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			plan_arg_scalar(out, 8, (uint64_t)(form->stride[i][j] * each));
	if (form->caches.bounds == PLAN_CHECK)
		plan_arg_report(out, (uint64_t)form->tokens, (uint64_t)form->caches.slots);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, work);
	kv_pass_caches(problem, &operands, &form->caches, 1, out);
}

static void kv_store_finish(const struct kernel_problem *problem, const struct form *form,
							uint32_t vector, struct kernel_plan *out)
{
	uint32_t load = form->vector * form->unit;

	plan_touch(problem, K, load, out);
	plan_touch(problem, V, load, out);
	kv_touch_caches(problem, &operands, &form->caches, vector,
					form->tokens * form->caches.heads * (form->dim[0] + form->dim[1]), out);
}

static int kv_store_exact(const struct kernel_problem *problem, const struct form *form,
						  const struct way *way, const struct kernel_limits *limits,
						  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t times = way->vector / form->vector, share = (int64_t)way->threads * way->held;
	int64_t blocks = 0;
	bool loop;

	for (int i = 0; i < 2; i++)
		blocks +=
			plan_divide_up(form->tokens * form->caches.heads * (form->vectors[i] / times), share);
	loop = plan_launch(out, limits, (uint64_t)blocks, way->threads);
	snprintf(out->source, sizeof(out->source), SOURCE);
	print_types(form, false, way->vector, &id);
	plan_print(&id, ", %lld, %lld, %lld, %lld, %u, %s, %u, %u, %s, %s>",
			   (long long)form->caches.heads, (long long)(form->vectors[0] / times),
			   (long long)(form->vectors[1] / times), (long long)form->caches.block_size,
			   form->caches.slot_bytes, plan_bounds_name(form->caches.bounds), way->threads,
			   way->held, form->wide ? "u64" : "u32", loop ? "true" : "false");
	pass_call(problem, form, (uint64_t)form->tokens, out);
	kv_store_name_way(form, way, out->choice);
	kv_store_finish(problem, form, way->vector, out);
	snprintf(out->note, sizeof(out->note), "vectors a thread: %u, of %u bytes; %u threads a block",
			 way->held, way->vector * form->unit, way->threads);
	return plan_check_name(&id, out, error);
}

static void kv_store_generic(const struct kernel_problem *problem, const struct form *form,
							 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t heads = form->caches.heads, size = form->caches.block_size;

	plan_generic_spread(out, limits, SOURCE, form->work, GENERIC_THREADS);
	print_types(form, true, form->vector, &id);
	plan_print(&id, ">");
	pass_call(problem, form, form->work, out);
	plan_arg_divisor(out, 8, (uint64_t)(heads * (form->vectors[0] + form->vectors[1])));
	for (int i = 0; i < 2; i++)
		plan_arg_divisor(out, 8, (uint64_t)(form->vectors[i] ? form->vectors[i] : 1));
	plan_arg_divisor(out, 8, (uint64_t)(size ? size : 1));
	plan_arg_scalar(out, 8, (uint64_t)(heads * form->vectors[0]));
	plan_arg_scalar(out, 4, form->caches.slot_bytes);
	plan_arg_scalar(out, 4, form->caches.bounds);
	kv_store_finish(problem, form, form->vector, out);
	snprintf(out->note, sizeof(out->note),
			 "a vector of %u bytes a thread; sizes and strides are arguments",
			 form->vector * form->unit);
}

int kv_store_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct way ways[WAYS_MOST];
	struct form form;
	int status = kv_store_check(problem, &form, error), count;

	if (status)
		return status;
	if (form.work == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice)) {
		/* There are kernels of the widest vectors and of elements. */
		if (!form.caches.copy && form.vector * form.unit < 16) {
			form.work *= form.vector;
			form.vector = 1;
			memcpy(form.vectors, form.dim, sizeof(form.vectors));
		}
		kv_store_generic(problem, &form, limits, out);
		return KILN_OK;
	}
	count = kv_store_ways(problem, &form, limits, ways);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		kv_store_name_way(&form, &ways[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return kv_store_exact(problem, &form, &ways[i], limits, out, error);
	}
	return plan_refuse(error, KILN_EINVAL, "%s: there is no candidate \"%s\" on %s", problem->op,
					   choice, limits->target);
}

int kv_store_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct form form;

	return kv_store_check(problem, &form, error);
}

/* Vectors of bytes, and each pair of types by vectors and by elements. */
int kv_store_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype wide[] = {KILN_F32, KILN_F16, KILN_BF16};
	static const kiln_dtype narrow[] = {KILN_F8E4M3, KILN_F8E5M2, KILN_I8};
	bool copy = index < 5;
	int pair = (index - 5) / 2;

	if (index >= 5 + 18)
		return KILN_ENOENT;
	kiln_dtype from = copy ? KILN_U8 : wide[pair / 3], to = copy ? KILN_U8 : narrow[pair % 3];
	uint32_t alignment = copy ? 16u >> index : (index - 5) % 2 ? kernel_dtype_bytes(from) : 16;
	for (int i = K; i <= V; i++) {
		plan_made_tensor(out, i, from, 3, (const int64_t[]){2, 2, 16});
		out->tensors[i].alignment = alignment;
		plan_made_tensor(out, K_CACHE + i, to, 4, (const int64_t[]){2, 2, 2, 16});
	}
	plan_made_tensor(out, SLOTS, KILN_I32, 1, (const int64_t[]){2});
	return KILN_OK;
}
