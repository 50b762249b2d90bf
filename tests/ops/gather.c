/*
 * gather.c: gather and its backward: the answers by the definition, and what is on the list.
 *
 *   gather           dst[i, j, k] = src[i, j, idx[j, k]], bit for bit
 *   gather_backward  dsrc[i, j, p] = the sum of ddst[i, j, k] over the k with idx[j, k] = p
 *
 * An index out of range: bounds check, 0 in dst, and no part in a sum; bounds clamp, the nearest.
 *
 * A sum of n floats, one after another in the computing type, is off by n roundings of the sum of
 * magnitudes, and is rounded once more; of integers it is exact, and wraps.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op gather_op, gather_backward_op;

static bool is_backward(const struct cases_case *c)
{
	return c->op == &gather_backward_op;
}

/* ---- The reference ---- */

/* Returns which of `few` elements index k of a list names; -1: none. */
static int64_t place_of(const struct reference *r, int64_t list, int64_t k, int64_t few)
{
	const struct cases_operand *idx = &r->c->operand[1];
	int64_t index = reference_index(idx, r->memory[1], list * idx->stride[0] + k * idx->stride[1]);

	if (index >= 0 && index < few)
		return index;
	if (reference_is(r->c, "bounds", "clamp"))
		return index < 0 ? 0 : few - 1;
	if (reference_is(r->c, "bounds", "trust"))
		reference_invalid(r, 1, list * r->c->operand[1].shape[1] + k, "out of range",
						  "in it: --bounds trust relies on that");
	return -1;
}

static int64_t units(const struct cases_case *c)
{
	const struct cases_operand *output = &c->operand[2];

	return reference_product(output, 0, output->rank - 1);
}

static void answer_row(const struct reference *r, int64_t row)
{
	static const char zero[16];
	const struct cases_operand *src = &r->c->operand[0], *idx = &r->c->operand[1];
	int64_t few = src->shape[src->rank - 1], many = idx->shape[1], list = row % idx->shape[0];
	int64_t from = reference_at(src, 0, src->rank - 1, row);
	uint32_t bytes = cases_element(src);

	for (int64_t k = 0; k < many; k++) {
		int64_t place = place_of(r, list, k, few);
		reference_bytes(r, 2, row * many + k,
						place < 0 ? zero
								  : (const char *)r->memory[0] +
										(from + place * src->stride[src->rank - 1]) * bytes);
	}
}

/* Integers of up to 64 bits: what is above the output's width falls off. */
static uint64_t bits_at(uint32_t bytes, const void *memory, int64_t i)
{
	uint64_t bits = 0;

	memcpy(&bits, (const char *)memory + i * bytes, bytes);
	return bits;
}

struct sums {
	double *sum, *magnitude, *count;
	uint64_t *bits;
};

static bool is_real(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

static void answer_sums(const struct reference *r, int64_t row, const struct sums *sums)
{
	const struct cases_operand *dsrc = &r->c->operand[2];
	int64_t few = dsrc->shape[dsrc->rank - 1];

	for (int64_t p = 0; p < few; p++) {
		double value = sums->sum[p], unit = reference_unit(dsrc->dtype);
		if (is_real(dsrc->dtype))
			reference_value(r, 2, row * few + p, value,
							sums->count[p] * unit * sums->magnitude[p] +
								reference_rounding(dsrc->dtype, value));
		else
			reference_bytes(r, 2, row * few + p, &sums->bits[p]);
	}
}

static void answer_sum_rows(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *ddst = &r->c->operand[0], *idx = &r->c->operand[1];
	int64_t few = r->c->operand[2].shape[ddst->rank - 1], many = idx->shape[1];
	double *numbers = reference_memory(3 * few, sizeof(*numbers));
	struct sums sums = {numbers, numbers + few, numbers + 2 * few,
						reference_memory(few, sizeof(uint64_t))};
	bool real = is_real(ddst->dtype);

	for (int64_t row = first; row < last; row++) {
		int64_t from = reference_at(ddst, 0, ddst->rank - 1, row), list = row % idx->shape[0];
		memset(numbers, 0, (size_t)few * 3 * sizeof(*numbers));
		memset(sums.bits, 0, (size_t)few * sizeof(uint64_t));
		for (int64_t k = 0; k < many; k++) {
			int64_t p = place_of(r, list, k, few);
			int64_t at = from + k * ddst->stride[ddst->rank - 1];
			double value = real ? cases_get(ddst->dtype, r->memory[0], at) : 0;
			if (p < 0)
				continue;
			sums.sum[p] += value;
			sums.magnitude[p] += fabs(value);
			sums.count[p]++;
			if (!real)
				sums.bits[p] += bits_at(cases_element(ddst), r->memory[0], at);
		}
		answer_sums(r, row, &sums);
	}
	free(numbers);
	free(sums.bits);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	if (is_backward(r->c))
		answer_sum_rows(r, first, last);
	for (int64_t row = first; row < last && !is_backward(r->c); row++)
		answer_row(r, row);
}

static const struct cases_op gather_op = {"gather", units, reference};
static const struct cases_op gather_backward_op = {"gather_backward", units, reference};

/* ---- The list ---- */

static const kiln_dtype indices[] = {KILN_U8, KILN_I32, KILN_U16, KILN_I64};
/* One of each size. */
static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_F8E5M2, KILN_F64, KILN_C128};
static const kiln_dtype summands[] = {KILN_F32, KILN_F16, KILN_F64, KILN_BF16,
									  KILN_I32, KILN_U8,  KILN_I64, KILN_I16};

#define SLOW_ELEMENTS 1200000

/* Names a case when all else is done. */
static void name(struct cases_case *c)
{
	int few = is_backward(c) ? 2 : 0;

	make_name_indices(c, few, c->operand[few].rank - 1, SLOW_ELEMENTS,
					  units(c) > 0 && cases_elements(&c->operand[1]) > 0);
}

/* leading: rows before the lists; the last three sizes are lists, few, many. */
static void operands(struct cases_case *c, kiln_dtype dtype, kiln_dtype index,
					 const struct make_shape *leading, int64_t lists, int64_t few, int64_t many)
{
	struct make_shape shape = *leading;
	int last = shape.rank + 1;

	shape.rank += 2;
	shape.size[last - 1] = lists;
	shape.size[last] = is_backward(c) ? many : few;
	make_input(c, 0, dtype, &shape)->fill =
		is_real(dtype) && is_backward(c) ? CASES_NORMAL : CASES_BITS;
	make_input(c, 1, index, &(struct make_shape){2, {lists, many}})->fill = CASES_INDICES;
	c->operand[1].most = few;
	shape.size[last] = is_backward(c) ? few : many;
	make_output(c, 2, dtype, &shape);
}

static struct cases_case *add(const struct cases_op *op, kiln_dtype dtype, kiln_dtype index,
							  int64_t outer, int64_t lists, int64_t few, int64_t many,
							  unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	operands(c, dtype, index, &(struct make_shape){1, {outer}}, lists, few, many);
	name(c);
	return c;
}

/* Every size of element with every type of index, whole vectors and none. */
static void add_types(void)
{
	for (int e = 0; e < MAKE_COUNT(elements); e++) {
		for (int i = 0; i < MAKE_COUNT(indices); i++) {
			add(&gather_op, elements[e], indices[i], 3, 5, 64, 96, 0);
			add(&gather_op, elements[e], indices[i], 3, 5, 33, 71, 0);
			add(&gather_op, elements[e], indices[i], 2, 3, 300 + 7 * e, 210, 0);
		}
	}
	for (int e = 0; e < MAKE_COUNT(summands); e++) {
		add(&gather_backward_op, summands[e], indices[e % 4], 5, 3, 64, 96, 0);
		add(&gather_backward_op, summands[e], indices[(e + 1) % 4], 3, 5, 33, 71, 0);
	}
}

static void add_sizes(void)
{
	static const struct {
		int64_t outer, lists, few, many;
	} sizes[] = {
		{1, 1, 1, 1},       {1, 1, 1, 2},       {7, 1, 2, 1},       {5, 7, 3, 3},
		{1, 64, 256, 512},  {3, 2, 256, 512},   {17, 3, 31, 1024},  {5, 3, 17, 4098},
		{1, 2, 100, 40000}, {2, 1, 99, 33333},  {1, 3, 20000, 16},  {2, 2, 20001, 33},
		{1, 2, 5000, 9000}, {2, 1, 12288, 64},  {1, 1, 60000, 777}, {1, 2, 70001, 5},
		{70000, 1, 5, 3},   {700, 101, 3, 2},   {40, 64, 16, 32},   {3, 5, 1000, 1},
		{300, 9, 40, 24},   {1, 2, 3000, 3000},
	};
	static const struct make_shape leadings[] = {{0, {0}}, {2, {3, 2}}, {4, {2, 1, 3, 2}}};

	for (int i = 0; i < MAKE_COUNT(sizes); i++) {
		add(&gather_op, elements[i % 5], indices[i % 4 ? 1 : 3], sizes[i].outer, sizes[i].lists,
			sizes[i].few, sizes[i].many, 0);
		add(&gather_op, elements[(i + 2) % 5], indices[1 + i % 2], sizes[i].outer, sizes[i].lists,
			sizes[i].few < 65536 ? sizes[i].few : 65536, sizes[i].many, 0);
		add(&gather_backward_op, summands[i % 8], indices[i % 3 ? 1 : 3], sizes[i].outer,
			sizes[i].lists, sizes[i].few, sizes[i].many, 0);
	}
	for (int i = 0; i < 2 * MAKE_COUNT(leadings); i++) {
		struct cases_case *c = cases_add(i % 2 ? &gather_backward_op : &gather_op, 0);
		operands(c, i % 2 ? summands[i] : elements[i / 2], indices[i % 4], &leadings[i / 2], 5, 40,
				 52);
		name(c);
	}
}

static void add_nothing(void)
{
	static const struct {
		int64_t outer, lists, few, many;
	} sizes[] = {{0, 3, 4, 5}, {2, 0, 4, 5}, {2, 3, 4, 0}, {2, 3, 0, 5}, {2, 3, 0, 0}};

	for (int i = 0; i < 2 * MAKE_COUNT(sizes); i++) {
		int k = i / 2;
		struct cases_case *c =
			add(i % 2 ? &gather_backward_op : &gather_op, KILN_F32, indices[k % 4], sizes[k].outer,
				sizes[k].lists, sizes[k].few, sizes[k].many, 0);
		if (sizes[k].few == 0) /* there is nothing to name */
			c->operand[1].fill = CASES_STRAY;
		/* Nothing is written, and nobody looks. */
		if (i % 2 && sizes[k].few == 0)
			c->operand[1].fill = CASES_INDICES;
		name(c);
	}
}

static void add_strays(void)
{
	for (int i = 0; i < 16; i++) {
		for (int clamp = 0; clamp < 2; clamp++) {
			const struct cases_op *op = i % 2 ? &gather_backward_op : &gather_op;
			int64_t few = i < 8 ? 100 : i < 12 ? 33 : 9000, many = i % 3 ? 64 : 71;
			struct cases_case *c =
				add(op, i % 2 ? summands[i / 2] : elements[i / 2 % 5],
					indices[i < 12 ? i / 2 % 4 : 1 + i % 2], 1 + i % 5, 5, few, many, 0);
			c->operand[1].fill = CASES_STRAY;
			if (clamp)
				make_word(c, "bounds", "clamp");
			name(c);
		}
	}
	for (int i = 0; i < 4; i++) {
		bool back = i % 2 == 1;
		struct cases_case *c = add(back ? &gather_backward_op : &gather_op, KILN_F16, indices[i],
								   back ? 3 : 9, 5, 40, back ? 48 : 192, 0);
		make_word(c, "bounds", i < 2 ? "trust" : "check");
		if (i == 2)
			c->operand[1].fill = CASES_STRAY;
		name(c);
	}
	/* No index of these can be out of range. */
	for (int i = 0; i < 2; i++) {
		struct cases_case *c =
			add(i ? &gather_backward_op : &gather_op, KILN_F32, KILN_U8, 3, 2, 256, 96, 0);
		c->operand[1].fill = CASES_STRAY;
		name(c);
	}
}

/* Lists that many rows share: rows of dst that begin anywhere, parts of long lists, short lists,
 * rows of src between vectors, and more groups of rows than one. */
static void add_shared(void)
{
	static const struct {
		kiln_dtype dtype, index;
		int64_t outer, lists, few, many;
	} shared[] = {
		{KILN_F16, KILN_I64, 19, 3, 403, 1201},  {KILN_BF16, KILN_I32, 37, 2, 400, 1202},
		{KILN_F16, KILN_U16, 11, 3, 1030, 1236}, {KILN_F16, KILN_I64, 9, 2, 340, 12008},
		{KILN_F32, KILN_I64, 7, 3, 301, 1204},   {KILN_F32, KILN_U16, 10, 2, 1000, 5120},
		{KILN_F16, KILN_U8, 23, 1, 256, 3779},   {KILN_F16, KILN_I64, 8, 3, 9000, 1333},
		{KILN_F16, KILN_I32, 21, 3, 120, 125},   {KILN_BF16, KILN_U16, 70, 2, 47, 503},
		{KILN_F16, KILN_I64, 37, 2, 112, 436},   {KILN_BF16, KILN_U8, 19, 3, 64, 983},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(shared); i++) {
		int k = i / 2;
		struct cases_case *c = add(&gather_op, shared[k].dtype, shared[k].index, shared[k].outer,
								   shared[k].lists, shared[k].few, shared[k].many, 0);
		if (i % 2) {
			c->operand[1].fill = CASES_STRAY;
			c->operand[k % 2 ? 0 : 2].offset = 2 * cases_element(&c->operand[0]);
			if (k % 4 == 3)
				make_word(c, "bounds", "clamp");
		}
		name(c);
	}
	add(&gather_backward_op, KILN_F32, KILN_U8, 130, 40, 30, 64, 0);
	add(&gather_backward_op, KILN_F16, KILN_I32, 203, 40, 32, 63, 0);
}

/* Strides and addresses. */
static void add_layouts(void)
{
	static const int64_t src[][3] = {{5 * 72, 72, 1}, {5 * 67, 67, 1}, {0, 64, 1}, {64, 192, 1},
									 {640, 128, 2},   {1, 3, 15},      {0, 0, 1},  {320, 64, 0}};
	static const int64_t idx[][2] = {{64, 1}, {67, 1}, {0, 1}, {1, 5}, {96, 2}, {48, 0}};
	static const uint32_t places[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {2, 2, 2}, {4, 3, 2}};

	for (int i = 0; i < 2 * MAKE_COUNT(src); i++) {
		const struct cases_op *op = i % 2 ? &gather_backward_op : &gather_op;
		struct cases_case *c = add(op, i % 2 ? summands[i / 2] : elements[i / 2 % 5],
								   indices[i / 2 % 4], 3, 5, i % 2 ? 48 : 64, i % 2 ? 64 : 48, 0);
		make_strided(&c->operand[0], src[i / 2]);
		name(c);
	}
	for (int i = 0; i < 2 * MAKE_COUNT(idx); i++) {
		const struct cases_op *op = i % 2 ? &gather_backward_op : &gather_op;
		struct cases_case *c = add(op, i % 2 ? summands[i / 2] : elements[i / 2 % 5],
								   indices[i / 2 % 4], 3, 5, 40, 48, 0);
		make_strided(&c->operand[1], idx[i / 2]);
		name(c);
	}
	for (int i = 0; i < 4 * MAKE_COUNT(places); i++) {
		const struct cases_op *op = i % 2 ? &gather_backward_op : &gather_op;
		struct cases_case *c = add(op, i % 2 ? summands[i / 4] : elements[i / 4 % 5],
								   indices[i / 2 % 4], 3, 6, 40, 48, 0);
		for (int k = 0; k < 3; k++)
			c->operand[k].offset = places[i / 4][k] * cases_element(&c->operand[k]) % 16;
		name(c);
	}
}

static void add_timed(void)
{
	const unsigned flags = CASES_BENCH | CASES_BIG;

	add(&gather_op, KILN_F32, KILN_U8, 512, 64, 256, 512, flags);
	add(&gather_op, KILN_F16, KILN_I32, 512, 64, 256, 512, flags);
	add(&gather_op, KILN_F32, KILN_I64, 512, 64, 256, 512, flags);
	add(&gather_op, KILN_F16, KILN_I32, 512, 63, 255, 511, flags);
	add(&gather_op, KILN_F32, KILN_I32, 4, 256, 50000, 12288, flags);
	add(&gather_backward_op, KILN_F32, KILN_U8, 512, 64, 256, 512, flags);
	add(&gather_backward_op, KILN_F16, KILN_I32, 512, 64, 256, 512, flags);
}

static void add_all(void)
{
	add_types();
	add_sizes();
	add_nothing();
	add_strays();
	add_shared();
	add_layouts();
	add_timed();
	/* Beyond 2^31 elements. */
	add(&gather_op, KILN_U8, KILN_I32, (INT64_C(1) << 19) + 3, 64, 32, 64, CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape leading = {(int)make_below(state, 3), {0}};
	int64_t few = make_random_size(state);
	bool back = make_chance(state, 2);

	memset(out, 0, sizeof(*out));
	out->op = back ? &gather_backward_op : &gather_op;
	for (int k = 0; k < leading.rank; k++)
		leading.size[k] = 1 + make_below(state, 6);
	operands(out, back ? summands[make_below(state, 8)] : elements[make_below(state, 5)],
			 indices[make_below(state, 4)], &leading, 1 + make_below(state, 7), few,
			 make_random_size(state));
	for (int i = 0; i < 3; i++)
		make_random_layout(state, &out->operand[i]);
	out->operand[0].fill =
		out->operand[0].fill == CASES_UNUSUAL ? CASES_NORMAL : out->operand[0].fill;
	if (make_chance(state, 3))
		out->operand[1].fill = CASES_STRAY;
	if (make_chance(state, 3))
		make_word(out, "bounds", "clamp");
	name(out);
}

const struct cases_op *const gather_ops[] = {&gather_op, &gather_backward_op, NULL};
const struct cases_family gather_family = {.name = "gather", .add = add_all, .random = add_random};
