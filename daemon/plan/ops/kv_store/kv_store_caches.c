/*
 * kv_store_caches.c: checks paged caches, the slots that name their rows, and the scales that
 * divide keys and values; and passes them to kernels.
 */
#include "kv_store.h"
#include "daemon/plan/ops/quantize/quantize.h"

/* ---- What a request must satisfy ---- */

/* There is a slot for each token: slots have the dimensions of k but heads and the last. */
static int check_slots(const struct kernel_problem *problem, const struct kv_operands *operands,
					   int head, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *slots = &problem->tensors[operands->slots];
	const struct kernel_tensor *k = &problem->tensors[operands->from[0]];
	int at = 0;

	if (slots->dtype != KILN_I32 && slots->dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: slots is %s; it must be i32 or i64",
						   problem->op, plan_dtype_name(slots->dtype));
	if (slots->rank != k->rank - 2)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: slots has rank %d; with k of rank %d it must be %d", problem->op,
						   slots->rank, k->rank, k->rank - 2);
	for (int i = 0; i < k->rank - 1; i++)
		if (i != head && k->shape[i] != slots->shape[at++])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of k has size %lld and dimension %d of slots "
							   "%lld; they must agree",
							   problem->op, i, (long long)k->shape[i], at - 1,
							   (long long)slots->shape[at - 1]);
	return rows_check_aligned(problem, operands->slots, error);
}

/* One number, or one for each head. */
static int check_scale(const struct kernel_problem *problem, int operand, int cache,
					   struct kv_caches *out, int64_t *step, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *scale = &problem->tensors[operand];
	bool each = scale->rank == 1 && scale->shape[0] == out->heads;
	char name[16], where[16];
	int64_t count;

	*step = 0;
	if (!plan_has(problem, operand))
		return KILN_OK;
	plan_operand_name(problem->operands, operand, name);
	plan_operand_name(problem->operands, cache, where);
	plan_elements(scale, &count);
	if (out->copy)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s, as k is; %s must be left out",
						   problem->op, where, plan_dtype_name(out->to), name);
	if (scale->dtype != KILN_F32)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be f32", problem->op, name,
						   plan_dtype_name(scale->dtype));
	if (!each && count != 1)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: %s has rank %d and %lld elements; it must have one element, or rank "
			"1 and %lld, one for each head",
			problem->op, name, scale->rank, (long long)count, (long long)out->heads);
	*step = each && out->heads > 1 ? scale->stride[0] : 0;
	return rows_check_aligned(problem, operand, error);
}

static int check_types(const struct kernel_problem *problem, const struct kv_operands *operands,
					   struct kv_caches *out, char error[KERNEL_ERROR_MAX])
{
	bool wide = out->from == KILN_F16 || out->from == KILN_BF16 || out->from == KILN_F32;
	char name[16], first[16];

	plan_operand_name(problem->operands, operands->cache[0], first);
	plan_operand_name(problem->operands, operands->cache[1], name);
	if (problem->tensors[operands->cache[1]].dtype != out->to)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s and %s is %s; they must agree",
						   problem->op, first, plan_dtype_name(out->to), name,
						   plan_dtype_name(problem->tensors[operands->cache[1]].dtype));
	if (!out->copy &&
		!(wide && (out->to == KILN_F8E4M3 || out->to == KILN_F8E5M2 || out->to == KILN_I8)))
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; with k of %s it must be %s%s",
						   problem->op, first, plan_dtype_name(out->to), plan_dtype_name(out->from),
						   plan_dtype_name(out->from), wide ? ", f8e4m3, f8e5m2 or i8" : "");
	return KILN_OK;
}

/* The cache of keys (0) or values (1).  place, head: the dimensions of these. */
static int check_cache(const struct kernel_problem *problem, const struct kv_operands *operands,
					   int side, int place, const struct kv_caches *out,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *from = &problem->tensors[operands->from[side]];
	const struct kernel_tensor *cache = &problem->tensors[operands->cache[side]];
	const struct kernel_tensor *first = &problem->tensors[operands->cache[0]];
	int64_t wanted[4] = {first->shape[0], out->heads, out->heads, from->shape[from->rank - 1]};
	char name[16];

	plan_operand_name(problem->operands, operands->cache[side], name);
	if (cache->rank != 4)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; it must be 4", problem->op,
						   name, cache->rank);
	wanted[place] = first->shape[place];
	for (int i = 0; i < 4; i++)
		if (cache->shape[i] != wanted[i])
			return plan_refuse(
				error, KILN_EINVAL, "%s: dimension %d of %s has size %lld; it must be %lld, %s",
				problem->op, i, name, (long long)cache->shape[i], (long long)wanted[i],
				i == 3 - place ? "the heads of k"
				: i < 3        ? "as in k_cache"
				: side         ? "the size of v's heads"
							   : "the size of k's heads");
	if (!plan_is_distinct(cache))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: elements of %s share their place; an output's must lie apart",
						   problem->op, name);
	return rows_check_inner(problem, operands->cache[side], error);
}

int kv_check_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					int head, struct kv_caches *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *k = &problem->tensors[operands->from[0]];
	const struct kernel_tensor *cache = &problem->tensors[operands->cache[0]];
	int place = plan_word(problem, "kv_layout") == 0 ? 1 : 2;
	int status = check_slots(problem, operands, head, error);

	*out = (struct kv_caches){.from = k->dtype, .to = cache->dtype, .heads = k->shape[head]};
	out->copy = out->from == out->to;
	if (!status)
		status = check_types(problem, operands, out, error);
	for (int i = 0; i < 2 && !status; i++) {
		const struct kernel_tensor *at = &problem->tensors[operands->cache[i]];
		status = check_cache(problem, operands, i, place, out, error);
		if (!status)
			status = check_scale(problem, operands->scale[i], operands->cache[i], out,
								 &out->scale_step[i], error);
		out->strides[i] =
			(struct kv_strides){at->stride[0], at->stride[place], at->stride[3 - place]};
	}
	if (status)
		return status;
	out->block_size = cache->shape[place];
	out->slots = cache->shape[0] * out->block_size;
	out->slot_bytes = kernel_dtype_bytes(problem->tensors[operands->slots].dtype);
	out->bounds = plan_bounds(problem);
	return KILN_OK;
}

/* ---- What kernels are told ---- */

bool kv_stores_vectors(const struct kernel_problem *problem, const struct kv_operands *operands,
					   const struct kv_caches *caches, uint32_t bytes)
{
	uint64_t element = kernel_dtype_bytes(caches->to);

	for (int i = 0; i < 2; i++) {
		const struct kv_strides *strides = &caches->strides[i];
		if (problem->tensors[operands->cache[i]].alignment < bytes ||
			(uint64_t)strides->block * element % bytes ||
			(uint64_t)strides->place * element % bytes || (uint64_t)strides->head * element % bytes)
			return false;
	}
	return true;
}

void kv_pass_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					const struct kv_caches *caches, uint32_t unit, struct kernel_plan *out)
{
	uint64_t each = kernel_dtype_bytes(caches->to) / unit;
	const struct kernel_tensor *slots = &problem->tensors[operands->slots];

	plan_arg_pointer(out, operands->slots);
	for (int i = 0; i < 2; i++) {
		plan_arg_pointer(out, operands->cache[i]);
		plan_arg_pointer(out, operands->scale[i]);
		plan_arg_scalar(out, 8, (uint64_t)caches->scale_step[i]);
		plan_arg_scalar(out, 8, (uint64_t)caches->strides[i].block * each);
		plan_arg_scalar(out, 8, (uint64_t)caches->strides[i].place * each);
		plan_arg_scalar(out, 8, (uint64_t)caches->strides[i].head * each);
	}
	plan_arg_scalar(out, 8, (uint64_t)caches->slots);
	plan_arg_scalar(out, 8, (uint64_t)slots->stride[slots->rank - 1]);
	plan_arg_scalar(out, 8, (uint64_t)(slots->rank > 1 ? slots->stride[0] : 0));
}

void kv_touch_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					 const struct kv_caches *caches, uint32_t store, int64_t moved,
					 struct kernel_plan *out)
{
	plan_touch(problem, operands->slots, caches->slot_bytes, out);
	for (int i = 0; i < 2; i++) {
		uint64_t before;
		if (plan_has(problem, operands->scale[i]))
			plan_touch(problem, operands->scale[i], 4, out);
		before = out->bytes_moved;
		plan_touch(problem, operands->cache[i], store, out);
		out->bytes_moved = before;
	}
	out->bytes_moved += (uint64_t)moved * kernel_dtype_bytes(caches->to);
}
