/*
 * index_add.c: sums by indices, which are the gradients of selections, too.
 *
 *   index_add                 y[o, p, i] = x[o, p, i] + alpha * the sum of src[o, k, i] over the k
 *                             with idx[k] = p
 *   scatter_add               the same with idx[o, k, i] = p, without alpha
 *   index_select_backward     the same sums of ddst, which begin at 0
 *   embedding_backward        those of rows, with indices of any shape; none for padding_idx
 *
 * An index out of range: bounds check, no part in a sum; bounds clamp, the nearest.
 *
 * A sum of n floats, one after another in the computing type, is off by n roundings of the sum of
 * magnitudes, alpha by one of each product, and the result is rounded once more; sums of integers
 * are exact, and wrap.  With deterministic 0 elements of 16 bits, and their products with alpha,
 * may be rounded to their own type each time.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op add_op, scatter_op, select_op, embedding_op;

static bool is_each(const struct cases_op *op)
{
	return op == &scatter_op;
}

static bool has_base(const struct cases_op *op)
{
	return op == &add_op || op == &scatter_op;
}

/* The operands by what they are: base is -1 where sums begin at 0. */
struct sides {
	int axis, few, many, base;
};

static struct sides sides_of(const struct cases_case *c)
{
	bool base = has_base(c->op);
	struct sides sides = {0, base ? 3 : 2, base ? 2 : 0, base ? 0 : -1};

	if (c->op != &embedding_op)
		sides.axis = (int)reference_int(c, "axis", is_each(c->op) ? -1 : 0);
	if (sides.axis < 0)
		sides.axis += c->operand[sides.few].rank;
	return sides;
}

static bool is_real(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

/* ---- The reference ---- */

/* Places that are summed up for each unit: all but the axis number the units. */
static int64_t units(const struct cases_case *c)
{
	struct sides sides = sides_of(c);
	const struct cases_operand *few = &c->operand[sides.few];

	return reference_product(few, 0, sides.axis) *
		   reference_product(few, sides.axis + 1, few->rank);
}

/* Where element k along the axis of a unit is. */
static int64_t offset_of(const struct cases_operand *operand, int axis, int64_t unit, int64_t k)
{
	int64_t inner = reference_product(operand, axis + 1, operand->rank);

	return reference_at(operand, 0, axis, unit / inner) +
		   reference_at(operand, axis + 1, operand->rank, unit % inner) + k * operand->stride[axis];
}

/* The same in the side with an element for each index. */
static int64_t many_offset(const struct reference *r, const struct sides *sides, int64_t unit,
						   int64_t k)
{
	const struct cases_operand *many = &r->c->operand[sides->many];

	if (r->c->op != &embedding_op)
		return offset_of(many, sides->axis, unit, k);
	return reference_at(many, 0, many->rank - 1, k) + unit * many->stride[many->rank - 1];
}

/* Returns which of `few` places index k of a unit names; -1: none. */
static int64_t place_of(const struct reference *r, const struct sides *sides, int64_t unit,
						int64_t k, int64_t few)
{
	const struct cases_operand *idx = &r->c->operand[1];
	int64_t padding = reference_int(r->c, "padding_idx", INT64_MAX), offset, index;

	if (is_each(r->c->op))
		offset = offset_of(idx, sides->axis, unit, k);
	else
		offset = reference_at(idx, 0, idx->rank, k);
	index = reference_index(idx, r->memory[1], offset);
	if (padding != INT64_MAX && index == (padding < 0 ? padding + few : padding))
		return -1;
	if (index >= 0 && index < few)
		return index;
	if (reference_is(r->c, "bounds", "clamp"))
		return index < 0 ? 0 : few - 1;
	if (reference_is(r->c, "bounds", "trust"))
		reference_invalid(r, 1, k, "out of range", "in it: --bounds trust relies on that");
	return -1;
}

/* Integers of up to 64 bits: what is above the output's width falls off. */
static uint64_t bits_at(uint32_t bytes, const void *memory, int64_t i)
{
	uint64_t bits = 0;

	memcpy(&bits, (const char *)memory + i * bytes, bytes);
	return bits;
}

struct sum {
	double value, magnitude, count;
	uint64_t bits;
};

static void add_element(const struct reference *r, int operand, int64_t at, double alpha,
						struct sum *sum)
{
	kiln_dtype dtype = r->c->operand[operand].dtype;
	double value;

	if (!is_real(dtype)) {
		sum->bits += (uint64_t)(int64_t)alpha *
					 bits_at(cases_element(&r->c->operand[operand]), r->memory[operand], at);
		return;
	}
	value = alpha * cases_get(dtype, r->memory[operand], at);
	sum->value += value;
	sum->magnitude += fabs(value);
	sum->count++;
}

static void answer_unit(const struct reference *r, const struct sides *sides, int64_t unit,
						struct sum *sums)
{
	const struct cases_operand *few = &r->c->operand[sides->few];
	const struct cases_operand *many = &r->c->operand[sides->many];
	int64_t places = few->shape[sides->axis], inner;
	int64_t count = r->c->op == &embedding_op ? reference_product(many, 0, many->rank - 1)
											  : many->shape[sides->axis];
	double alpha = reference_real(r->c, "alpha", 1), rounding = reference_unit(few->dtype);
	bool ordered = reference_int(r->c, "deterministic", 1) != 0;

	/* One rounding of 16 bits is off by half of the distance of numbers. */
	if (!ordered && is_real(few->dtype) && cases_element(few) == 2)
		rounding = reference_ulp(few->dtype, 1) / 2;

	memset(sums, 0, (size_t)places * sizeof(*sums));
	for (int64_t p = 0; p < places && sides->base >= 0; p++)
		add_element(r, sides->base, offset_of(&r->c->operand[sides->base], sides->axis, unit, p), 1,
					&sums[p]);
	for (int64_t k = 0; k < count; k++) {
		int64_t p = place_of(r, sides, unit, k, places);
		if (p >= 0)
			add_element(r, sides->many, many_offset(r, sides, unit, k), alpha, &sums[p]);
	}
	inner = reference_product(few, sides->axis + 1, few->rank);
	for (int64_t p = 0; p < places; p++) {
		int64_t element = (unit / inner * places + p) * inner + unit % inner;
		if (is_real(few->dtype))
			reference_value(r, sides->few, element, sums[p].value,
							(sums[p].count + (alpha != 1)) * rounding * sums[p].magnitude +
								reference_rounding(few->dtype, sums[p].value));
		else
			reference_bytes(r, sides->few, element, &sums[p].bits);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	struct sides sides = sides_of(r->c);
	struct sum *sums = reference_memory(r->c->operand[sides.few].shape[sides.axis], sizeof(*sums));

	for (int64_t unit = first; unit < last; unit++)
		answer_unit(r, &sides, unit, sums);
	free(sums);
}

static const struct cases_op add_op = {"index_add", units, reference};
static const struct cases_op scatter_op = {"scatter_add", units, reference};
static const struct cases_op select_op = {"index_select_backward", units, reference};
static const struct cases_op embedding_op = {"embedding_backward", units, reference};

/* ---- The list ---- */

static const struct cases_op *const ops[] = {&add_op, &scatter_op, &select_op, &embedding_op};
static const kiln_dtype indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_U16};
static const kiln_dtype summands[] = {KILN_F32, KILN_F16, KILN_F64, KILN_BF16,
									  KILN_I32, KILN_U8,  KILN_I64, KILN_I16};

#define SLOW_ELEMENTS 12000

/* Names a case when all else is done. */
static void name(struct cases_case *c)
{
	struct sides sides = sides_of(c);

	make_name_indices(c, sides.few, sides.axis, SLOW_ELEMENTS,
					  cases_elements(&c->operand[sides.few]) > 0 &&
						  cases_elements(&c->operand[1]) > 0);
}

/* shape: of the sums; count: the size along the axis of what is summed up. */
static void operands(struct cases_case *c, kiln_dtype dtype, kiln_dtype index,
					 const struct make_shape *shape, int64_t count)
{
	struct sides sides = sides_of(c);
	struct make_shape many = *shape, list = {1, {count}};

	make_output(c, sides.few, dtype, shape);
	sides = sides_of(c);
	many.size[sides.axis] = count;
	make_input(c, sides.many, dtype, &many);
	if (sides.base >= 0)
		make_input(c, sides.base, dtype, shape);
	make_input(c, 1, index, is_each(c->op) ? &many : &list)->fill = CASES_INDICES;
	c->operand[1].most = shape->size[sides.axis];
}

static struct cases_case *add(const struct cases_op *op, kiln_dtype dtype, kiln_dtype index,
							  const struct make_shape *shape, int axis, int64_t count,
							  unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	if (op != &embedding_op && axis != (is_each(op) ? -1 : 0))
		make_int(c, "axis", axis);
	operands(c, dtype, index, shape, count);
	name(c);
	return c;
}

static void add_types(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t count;
	} shapes[] = {
		{{2, {37, 64}}, 0, 50},   {{2, {37, 33}}, 0, 700}, {{3, {3, 11, 40}}, 1, 9},
		{{3, {3, 40, 2}}, 1, 52}, {{2, {9, 130}}, 1, 70},  {{1, {300}}, 0, 177},
	};

	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		for (int e = i % 2; e < MAKE_COUNT(summands); e += 2) {
			struct cases_case *c = add(ops[(i + e) % 3], summands[e], indices[(i + e / 2) % 4],
									   &shapes[i].shape, shapes[i].axis, shapes[i].count, 0);
			if (c->op == &add_op && i + e > 1)
				make_real(c, "alpha", is_real(summands[e]) ? 0.75 : -3);
			name(c);
		}
}

/* Few places, to one, of which each has many elements: of all types, for several slices, of columns
 * that are no whole warps; some or all of the indices name one place, padding, or nothing. */
static void add_many_each(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t count;
	} shapes[] = {
		{{2, {5, 33}}, 0, 2000},     {{2, {64, 160}}, 0, 5000}, {{3, {3, 2, 72}}, 1, 700},
		{{2, {1, 264}}, 0, 9001},    {{3, {2, 7, 20}}, 1, 600}, {{2, {100, 48}}, 0, 9000},
		{{3, {5, 3, 130}}, 0, 999},  {{2, {9, 1024}}, 0, 640},  {{2, {300, 40}}, 0, 20000},
		{{3, {70, 3, 33}}, 0, 4100}, {{2, {220, 6}}, 0, 140000}};

	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++) {
		int shape = i % MAKE_COUNT(shapes);
		const struct cases_op *op =
			i % 3 == 1 && shapes[shape].axis == 0 && shapes[shape].shape.rank == 2 ? &embedding_op
																				   : ops[i % 2 * 2];
		struct cases_case *c = add(op, summands[i % 8], indices[i % 4], &shapes[shape].shape,
								   shapes[shape].axis, shapes[shape].count, 0);
		struct sides sides = sides_of(c);
		if (op == &add_op)
			make_real(c, "alpha", is_real(summands[i % 8]) ? 0.75 : 3);
		if (op == &embedding_op)
			make_int(c, "padding_idx", 0);
		if (i % 5 == 3)
			c->operand[1].fill = CASES_STRAY;
		if (i % 5 == 2)
			c->operand[1].most = 1;
		if (i == 8)
			c->operand[sides.many].fill = CASES_UNUSUAL;
		if (i % 7 == 6)
			make_word(c, "bounds", "clamp");
		if (i == 9)
			make_int(c, "deterministic", 0);
		name(c);
	}
}

static void add_sizes(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t count;
	} shapes[] = {
		{{2, {1, 1}}, 0, 1},       {{2, {3, 1}}, 0, 7000},   {{2, {5, 4100}}, 0, 7},
		{{2, {9000, 4}}, 0, 9000}, {{2, {2, 16}}, 0, 20000}, {{2, {5, 6000}}, 1, 5000},
		{{2, {100, 3}}, 1, 300},   {{3, {2, 0, 3}}, 1, 4},   {{3, {2, 4, 3}}, 1, 0},
		{{3, {2, 4, 0}}, 1, 5},    {{3, {3, 5, 4}}, -1, 6},  {{2, {300, 520}}, 0, 3000},
	};
	static const struct make_shape lists[] = {{0, {0}}, {3, {2, 3, 5}}, {2, {4, 7}}};

	for (int i = 0; i < MAKE_COUNT(shapes); i++) {
		struct cases_case *c = add(ops[i % 3], summands[i % 8], indices[i % 2], &shapes[i].shape,
								   shapes[i].axis, shapes[i].count, 0);
		if (c->operand[1].most == 0) /* nothing is written, and nobody looks */
			c->operand[1].most = 1;
		name(c);
	}
	/* Few places are named, by many indices each. */
	for (int i = 0; i < 2; i++) {
		struct cases_case *c = add(i ? &select_op : &add_op, i ? KILN_BF16 : KILN_F32, KILN_I32,
								   &(struct make_shape){2, {400, i ? 40 : 33}}, 0, 20000, 0);
		c->operand[1].most = 1 + 2 * i;
		name(c);
	}
	add_many_each();
	/* Indices of any rank, with and without padding. */
	for (int i = 0; i < 2 * MAKE_COUNT(lists); i++) {
		struct make_shape ddst = lists[i % 3], table = {2, {5 + i, 24}};
		struct cases_case *c = cases_add(&embedding_op, 0);
		make_input(c, 1, indices[i % 4], &ddst)->fill = CASES_INDICES;
		c->operand[1].most = table.size[0];
		ddst.size[ddst.rank++] = table.size[1];
		make_input(c, 0, summands[i], &ddst);
		make_output(c, 2, summands[i], &table);
		if (i % 3)
			make_int(c, "padding_idx", i % 2 ? 3 : -2);
		name(c);
	}
}

static void add_strays(void)
{
	for (int i = 0; i < 9; i++) {
		const struct make_shape shape = {3, {3, 33, 8}};
		struct cases_case *c = add(ops[i % 3], summands[i % 8], indices[(i + i / 4) % 4], &shape,
								   i < 6 ? 1 : -1, 29, 0);
		c->operand[1].fill = CASES_STRAY;
		if (i % 3 == 2)
			make_word(c, "bounds", "clamp");
		name(c);
	}
	for (int i = 0; i < 2; i++) {
		struct cases_case *c =
			add(ops[i], KILN_F32, indices[i], &(struct make_shape){2, {33, 8}}, 0, 29, 0);
		make_word(c, "bounds", "trust");
		name(c);
	}
}

/* Strides and addresses; values that are no numbers. */
static void add_layouts(void)
{
	static const int64_t many[][3] = {
		{1000, 40, 1}, {0, 32, 1}, {2000, 64, 2}, {1, 3, 60}, {600, 1, 20}};

	for (int i = 0; i < MAKE_COUNT(many); i++) {
		struct cases_case *c = add(ops[i % 3], summands[i % 8], indices[i % 4],
								   &(struct make_shape){3, {3, 20, 32}}, 1, 17, 0);
		struct sides sides = sides_of(c);
		make_strided(&c->operand[sides.many], many[i]);
		if (sides.base >= 0 && i % 3 == 0)
			make_strided(&c->operand[0], (const int64_t[]){2000, 66, 1});
		if (is_each(c->op))
			make_strided(&c->operand[1], (const int64_t[]){17, 1, i < 3 ? 51 : 0});
		name(c);
	}
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = add(ops[i % 3], summands[i / 2], indices[i / 2 % 2],
								   &(struct make_shape){2, {20, 48}}, 0, 16, 0);
		int operand = i / 2 % 4 < c->operand_count ? i / 2 % 4 : 0;
		c->operand[operand].offset = cases_element(&c->operand[operand]) % 16;
		if (i > 5)
			c->operand[sides_of(c).many].fill = CASES_UNUSUAL;
		name(c);
	}
}

/* Sums in any order: of each type that is added in memory, and of one that is not. */
static void add_any_order(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t count;
	} shapes[] = {{{2, {7, 64}}, 0, 90},
				  {{3, {3, 5, 9}}, 1, 40},
				  {{2, {6, 34}}, -1, 200},
				  {{2, {3, 8}}, 0, 0}};

	for (int i = 0; i < 14; i++) {
		const struct cases_op *op = ops[(i + i / 4) % 4];
		kiln_dtype dtype = summands[(i + i / 8) % 8];
		int shape = op == &scatter_op ? 2 : op == &embedding_op ? 0 : i / 2 % 4;
		struct cases_case *c = add(op, dtype, indices[i % 4], &shapes[shape].shape,
								   shapes[shape].axis, shapes[shape].count, 0);
		make_int(c, "deterministic", 0);
		if (op == &add_op && i % 3)
			make_real(c, "alpha", is_real(dtype) ? 0.75 : 3);
		if (op == &embedding_op)
			make_int(c, "padding_idx", 3);
		if (i % 5 == 4)
			c->operand[1].fill = CASES_STRAY;
		if (i % 7 == 3)
			c->operand[sides_of(c).many].fill = CASES_UNUSUAL;
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {256, 1024, 4096, 131072};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < MAKE_COUNT(columns); i++) {
		int64_t rows = (1 << (i % 2 ? 27 : 26)) / columns[i];
		add(&add_op, i % 2 ? KILN_F16 : KILN_F32, i % 3 ? KILN_I32 : KILN_I64,
			&(struct make_shape){2, {rows, columns[i]}}, 0, rows, flags);
	}
	add(&embedding_op, KILN_BF16, KILN_I64, &(struct make_shape){2, {128256, 4096}}, 0, 16384,
		flags);
	add(&scatter_op, KILN_F32, KILN_I32, &(struct make_shape){2, {16384, 4096}}, -1, 4096, flags);
	add(&scatter_op, KILN_F32, KILN_I64, &(struct make_shape){3, {64, 1024, 1024}}, 1, 1024, flags);
	/* Sums of many: the nodes of a graph, few segments, and what is between. */
	for (int i = 0; i < 7; i++) {
		static const int64_t sums[][3] = {
			{131072, 128, 1048576}, {64, 1024, 131072}, {8192, 1024, 131072}, {4096, 2048, 131072}};
		struct cases_case *c = add(&add_op, i / 2 % 2 ? KILN_BF16 : KILN_F32, KILN_I64,
								   &(struct make_shape){2, {sums[i / 2][0], sums[i / 2][1]}}, 0,
								   sums[i / 2][2], flags);
		if (i % 2 || i == 6)
			make_int(c, "deterministic", 0);
		name(c);
	}
	add(&add_op, KILN_BF16, KILN_I64, &(struct make_shape){2, {512, 1024}}, 0, 131072, flags);
}

static void add_all(void)
{
	add_types();
	add_sizes();
	add_strays();
	add_layouts();
	add_any_order();
	add_timed();
	/* Beyond 2^31 elements. */
	add(&add_op, KILN_F16, KILN_I64, &(struct make_shape){2, {(INT64_C(1) << 25) + 5, 64}}, 0, 1000,
		CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	struct sides sides;

	memset(out, 0, sizeof(*out));
	out->op = ops[make_below(state, 4)];
	make_random_shape(state, out->op == &embedding_op ? 2 : 5, &shape);
	if (out->op == &embedding_op && shape.rank == 1)
		shape = (struct make_shape){2, {shape.size[0], 1 + make_below(state, 9)}};
	if (out->op != &embedding_op)
		make_int(out, "axis", make_below(state, 2 * shape.rank) - shape.rank);
	operands(out, summands[make_below(state, 8)], indices[make_below(state, 4)], &shape,
			 make_below(state, 60));
	sides = sides_of(out);
	for (int i = 0; i < out->operand_count; i++)
		make_random_layout(state, &out->operand[i]);
	out->operand[1].fill = CASES_INDICES;
	if (make_chance(state, 3) || out->operand[1].most == 0)
		out->operand[1].fill = CASES_STRAY;
	if (make_chance(state, 3))
		make_word(out, "bounds", "clamp");
	if (make_chance(state, 3))
		make_int(out, "deterministic", 0);
	out->operand[sides.many].fill = CASES_NORMAL;
	name(out);
}

/* ---- What the planner refuses ---- */

static struct cases_case *usual(struct cases_case *c, const struct cases_op *op, kiln_dtype dtype)
{
	c->op = op;
	operands(c, dtype, KILN_I32, &(struct make_shape){2, {3, 4}}, 3);
	return c;
}

static void bad_dtype(struct cases_case *c)
{
	usual(c, &add_op, KILN_BOOL);
}

static void bad_mix(struct cases_case *c)
{
	usual(c, &scatter_op, KILN_F32)->operand[2].dtype = KILN_F16;
}

static void bad_alpha(struct cases_case *c)
{
	usual(c, &add_op, KILN_I32);
	make_real(c, "alpha", 0.5);
}

static void bad_padding(struct cases_case *c)
{
	usual(c, &embedding_op, KILN_F32);
	make_int(c, "padding_idx", 3);
}

static void bad_sum(struct cases_case *c)
{
	usual(c, &add_op, KILN_F32);
	make_output(c, 3, KILN_F32, &(struct make_shape){2, {5, 4}});
}

static void bad_rank(struct cases_case *c)
{
	usual(c, &select_op, KILN_F32);
	make_output(c, 2, KILN_F32, &(struct make_shape){1, {5}});
}

static void bad_rows(struct cases_case *c)
{
	usual(c, &embedding_op, KILN_F32);
	make_input(c, 1, KILN_I32, &(struct make_shape){2, {2, 3}});
	make_input(c, 0, KILN_F32, &(struct make_shape){3, {2, 3, 4}});
	make_strided(&c->operand[0], (const int64_t[]){13, 4, 1});
}

static const struct cases_refusal refusals[] = {
	{"index_add: x is bool; it must be an integer or a float of 16 bits or more, which can be "
	 "added up",
	 bad_dtype},
	{"scatter_add: x is f32 and src is f16; they must agree", bad_mix},
	{"index_add: alpha is 0.5; with elements of i32 it must be an integer, -2^53 to 2^53",
	 bad_alpha},
	{"embedding_backward: padding_idx is 3; it may be -3 to 2", bad_padding},
	{"index_add: dimension 0 of y has size 5; it must be that of dimension 0 of x, 3", bad_sum},
	{"index_select_backward: ddst has rank 2; it must have rank 1, as the side that is indexed",
	 bad_rank},
	{"embedding_backward: the leading dimensions of ddst do not lie one after another: its rows "
	 "must be evenly spaced",
	 bad_rows},
	{NULL, NULL},
};

const struct cases_op *const index_add_ops[] = {&add_op, &scatter_op, &select_op, &embedding_op,
												NULL};
const struct cases_family index_add_family = {
	.name = "index_add", .add = add_all, .random = add_random, .refusals = refusals};
