/*
 * cases_data.c: data, answers, names and random members for the list of cases.  The answers are
 * made by counting through y's index, and by nothing cleverer: they check everything else.
 */
#include "cases_build.h"

#include <stdio.h>
#include <string.h>

uint32_t cases_element(const struct cases_case *c)
{
	switch (c->dtype) {
#define SIZE(NAME, name, value, bytes) \
	case KILN_##NAME:                  \
		return bytes;
		KILN_DTYPE_LIST(SIZE)
#undef SIZE
	default:
		return 0;
	}
}

static const char *dtype_name(kiln_dtype dtype)
{
	switch (dtype) {
#define TEXT(NAME, name, value, bytes) \
	case KILN_##NAME:                  \
		return #name;
		KILN_DTYPE_LIST(TEXT)
#undef TEXT
	default:
		return "?";
	}
}

void cases_contiguous(struct cases_case *c)
{
	int64_t stride = 1;

	c->contiguous = true;
	for (int k = c->rank - 1; k >= 0; k--) {
		c->stride[k] = stride;
		stride *= c->shape[k] ? c->shape[k] : 1;
	}
}

void cases_name(struct cases_case *c)
{
	size_t used = 0, size = sizeof(c->name);
	char *name = c->name;

	used += (size_t)snprintf(name, size, "%s ", dtype_name(c->dtype));
	for (int k = 0; k < c->rank; k++)
		used += (size_t)snprintf(name + used, size - used, "%s%lld", k ? "x" : "",
								 (long long)c->shape[k]);
	used += (size_t)snprintf(name + used, size - used, "%s(", c->rank ? " " : "scalar ");
	for (int k = 0; k < c->rank; k++)
		used += (size_t)snprintf(name + used, size - used, "%s%d", k ? "," : "", (int)c->perm[k]);
	used += (size_t)snprintf(name + used, size - used, ")");
	for (int k = 0; !c->contiguous && k < c->rank; k++)
		used += (size_t)snprintf(name + used, size - used, "%s%lld", k ? "," : " strides ",
								 (long long)c->stride[k]);
	if (c->x_offset || c->y_offset)
		snprintf(name + used, size - used, " at %u,%u", c->x_offset, c->y_offset);
}

int64_t cases_elements(const struct cases_case *c)
{
	int64_t count = 1;

	for (int k = 0; k < c->rank; k++)
		count *= c->shape[k];
	return count;
}

uint64_t cases_x_bytes(const struct cases_case *c)
{
	int64_t last = 0;

	if (cases_elements(c) == 0)
		return 0;
	for (int k = 0; k < c->rank; k++)
		last += (c->shape[k] - 1) * c->stride[k];
	return (uint64_t)(last + 1) * cases_element(c);
}

uint64_t cases_y_bytes(const struct cases_case *c)
{
	return (uint64_t)cases_elements(c) * cases_element(c);
}

void cases_tensors(const struct cases_case *c, kiln_tensor tensors[2])
{
	memset(tensors, 0, 2 * sizeof(tensors[0]));
	tensors[0].dtype = tensors[1].dtype = c->dtype;
	tensors[0].rank = tensors[1].rank = c->rank;
	tensors[0].contiguous = c->contiguous;
	tensors[1].contiguous = 1;
	tensors[0].offset = c->x_offset;
	tensors[1].offset = c->y_offset;
	for (int k = 0; k < c->rank; k++) {
		tensors[0].shape[k] = c->shape[k];
		tensors[0].stride[k] = c->stride[k];
		tensors[1].shape[k] = c->shape[c->perm[k]];
	}
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t cases_word(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return mix(*state);
}

void cases_fill(void *bytes, uint64_t first, uint64_t count, uint64_t seed)
{
	unsigned char *at = bytes;
	uint64_t state = mix(seed) + first / 8 * 0x9e3779b97f4a7c15u;

	for (; count >= 8; count -= 8, at += 8) {
		uint64_t word = cases_word(&state);
		memcpy(at, &word, 8);
	}
	if (count) {
		uint64_t word = cases_word(&state);
		memcpy(at, &word, count);
	}
}

void cases_reference(const struct cases_case *c, const void *x, void *y, int64_t first,
					 int64_t last)
{
	int64_t index[KILN_MAX_RANK] = {0}, rest = first;
	uint32_t element = cases_element(c);

	for (int k = c->rank - 1; k >= 0 && last > first; k--) {
		index[k] = rest % c->shape[c->perm[k]];
		rest /= c->shape[c->perm[k]];
	}
	for (int64_t i = first; i < last; i++) {
		int64_t from = 0;
		for (int k = 0; k < c->rank; k++)
			from += index[k] * c->stride[c->perm[k]];
		memcpy((char *)y + i * element, (const char *)x + from * element, element);
		for (int k = c->rank - 1; k >= 0; k--) {
			if (++index[k] < c->shape[c->perm[k]])
				break;
			index[k] = 0;
		}
	}
}

static int64_t below(uint64_t *state, int64_t limit)
{
	return (int64_t)(cases_word(state) % (uint64_t)limit);
}

static void shuffle(uint64_t *state, int64_t *order, int count)
{
	for (int k = 0; k < count; k++)
		order[k] = k;
	for (int k = count - 1; k > 0; k--) {
		int other = (int)below(state, k + 1);
		int64_t t = order[k];
		order[k] = order[other];
		order[other] = t;
	}
}

/* Gaps, another order in memory, and repeats. */
static void random_strides(uint64_t *state, struct cases_case *c)
{
	int64_t order[KILN_MAX_RANK], stride = 1 + (below(state, 4) == 0);

	shuffle(state, order, c->rank);
	for (int k = c->rank - 1; k >= 0; k--) {
		c->stride[order[k]] = stride;
		stride = stride * c->shape[order[k]] + below(state, 3) * (below(state, 2) * 7);
		if (below(state, 6) == 0)
			c->stride[order[k]] = 0;
	}
	c->contiguous = false;
}

void cases_random(uint64_t seed, uint64_t i, struct cases_case *out)
{
	static const kiln_dtype dtypes[] = {KILN_I8,  KILN_F16, KILN_BF16, KILN_F32,  KILN_U32,
										KILN_F64, KILN_I64, KILN_C64,  KILN_C128, KILN_U8};
	static const int64_t sizes[] = {1,  2,  2,  3,  3,  4,  5,  7,  8,   12, 16,
									24, 31, 32, 33, 48, 64, 65, 96, 128, 130};
	uint64_t state = mix(seed) ^ mix(i + 1);
	int64_t room = 1 << 16;

	memset(out, 0, sizeof(*out));
	out->op = "permute";
	out->dtype = dtypes[below(&state, 10)];
	out->rank = 1 + (int)below(&state, KILN_MAX_RANK);
	for (int k = 0; k < out->rank; k++) {
		int64_t size = sizes[below(&state, sizeof(sizes) / sizeof(sizes[0]))];
		out->shape[k] = size <= room ? size : 1;
		room /= out->shape[k];
	}
	shuffle(&state, out->perm, out->rank);
	cases_contiguous(out);
	if (below(&state, 3) == 0)
		random_strides(&state, out);
	if (below(&state, 3) == 0)
		out->x_offset = (uint32_t)below(&state, 16);
	if (below(&state, 4) == 0)
		out->y_offset = (uint32_t)below(&state, 16);
	cases_name(out);
}
