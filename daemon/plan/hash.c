/* hash.c: a hash of all that a problem's kernel is chosen by. */
#include "plan.h"

static uint64_t mix(uint64_t hash, const int64_t *values, int count)
{
	for (int i = 0; i < count; i++)
		hash = (hash ^ (hash >> 29) ^ (uint64_t)values[i]) * 0x9e3779b97f4a7c15u;
	return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 1099511628211u;
	return hash;
}

uint64_t plan_problem_hash(const struct kernel_problem *problem)
{
	uint64_t hash = hash_text(14695981039346656037u, problem->op);
	for (int i = 0; i < problem->tensor_count; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		const int64_t kind[] = {tensor->dtype, tensor->rank, tensor->alignment};
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		hash = mix(hash, kind, 3);
		hash = mix(hash, tensor->shape, tensor->rank);
		hash = mix(hash, tensor->stride, tensor->rank);
	}
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		int64_t real;
		hash = hash_text(hash, attr->name);
		memcpy(&real, &attr->f, sizeof(real));
		if (attr->kind == KILN_ATTR_STRING)
			hash = hash_text(hash, kernel_attr_text(problem, attr));
		else
			hash = mix(hash, attr->kind == KILN_ATTR_REAL ? &real : &attr->i, 1);
		hash = mix(hash, attr->ints, attr->kind == KILN_ATTR_INTS ? attr->count : 0);
	}
	return hash | 1; /* zero is no shape */
}
