/*
 * index.c: operators with a list of indices, or with an index for each element.
 *
 *   index_select     dst[o, k, i] = src[o, idx[k], i], bit for bit
 *   embedding        the same of rows, with indices of any shape
 *   take_along_axis  dst[o, k, i] = src[o, idx[o, k, i], i], bit for bit
 *
 * An index out of range: bounds check, 0 in dst; bounds clamp, the nearest.
 */
#include "common/reference.h"

#include <string.h>

static const struct cases_op select_op, embedding_op, along_op;

/* ---- Shapes, as the definition has them ---- */

/* The axis, and the numbers of the operands with the indexed side and with one for each index. */
struct sides {
	int axis, few, many, output;
	bool flat, each;
};

static struct sides sides_of(const struct cases_case *c)
{
	struct sides sides = {.few = 0, .many = 2, .output = 2};

	sides.flat = c->op == &embedding_op;
	sides.each = c->op == &along_op;
	if (!sides.flat)
		sides.axis = (int)reference_int(c, "axis", sides.each ? -1 : 0);
	if (sides.axis < 0)
		sides.axis += c->operand[0].rank;
	return sides;
}

/* Returns which of `few` the index at an offset of idx names; -1: none. */
static int64_t place_of(const struct reference *r, int64_t offset, int64_t number, int64_t few)
{
	int64_t index = reference_index(&r->c->operand[1], r->memory[1], offset);

	if (index >= 0 && index < few)
		return index;
	if (reference_is(r->c, "bounds", "clamp"))
		return index < 0 ? 0 : few - 1;
	if (reference_is(r->c, "bounds", "trust"))
		reference_invalid(r, 1, number, "out of range", "in it: --bounds trust relies on that");
	return -1;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	const struct cases_operand *output = &c->operand[sides_of(c).output];

	return reference_product(output, 0, output->rank);
}

/* Element number `unit` of dst: where it is in the side that is indexed. */
static void answer_element(const struct reference *r, const struct sides *sides, int64_t unit)
{
	static const char zero[16];
	const struct cases_operand *src = &r->c->operand[sides->few], *idx = &r->c->operand[1];
	const struct cases_operand *dst = &r->c->operand[sides->many];
	int64_t from = 0, number = 0, rest = unit, index_offset, place;
	uint32_t bytes = cases_element(src);

	if (sides->flat) {
		int64_t row = src->shape[1];
		number = unit / row;
		from = unit % row * src->stride[1];
		index_offset = reference_at(idx, 0, idx->rank, number);
	} else {
		index_offset = 0;
		for (int k = dst->rank - 1; k >= 0; k--) {
			int64_t at = rest % dst->shape[k];
			rest /= dst->shape[k];
			if (k != sides->axis)
				from += at * src->stride[k];
			else if (!sides->each)
				index_offset = (number = at) * idx->stride[0];
			if (sides->each)
				index_offset += at * idx->stride[k];
		}
		number = sides->each ? unit : number;
	}
	place = place_of(r, index_offset, number, src->shape[sides->axis]);
	reference_bytes(r, sides->output, unit,
					place < 0 ? zero
							  : (const char *)r->memory[sides->few] +
									(from + place * src->stride[sides->axis]) * bytes);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	struct sides sides = sides_of(r->c);

	for (int64_t unit = first; unit < last; unit++)
		answer_element(r, &sides, unit);
}

static const struct cases_op select_op = {"index_select", units, reference};
static const struct cases_op embedding_op = {"embedding", units, reference};
static const struct cases_op along_op = {"take_along_axis", units, reference};

/* ---- The list ---- */

static const kiln_dtype indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_U16};
/* One of each size. */
static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_I8, KILN_F64, KILN_C128};

#define SLOW_ELEMENTS 12000

/* Names a case when all else is done. */
static void name(struct cases_case *c)
{
	struct sides sides = sides_of(c);

	make_name_indices(c, sides.few, sides.axis, SLOW_ELEMENTS, units(c) > 0);
}

/* shape: of the side that is indexed; count: its size along the axis on the other side. */
static struct cases_case *add(const struct cases_op *op, kiln_dtype dtype, kiln_dtype index,
							  const struct make_shape *shape, int axis, int64_t count,
							  unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);
	struct make_shape many = *shape, list = {1, {count}};
	struct sides sides;

	make_input(c, 0, dtype, shape);
	if (op != &embedding_op && axis != (op == &along_op ? -1 : 0))
		make_int(c, "axis", axis);
	sides = sides_of(c);
	many.size[sides.axis] = count;
	c->operand[0].fill = CASES_BITS;
	make_input(c, 1, index, sides.each ? &many : &list)->fill = CASES_INDICES;
	c->operand[1].most = shape->size[sides.axis];
	make_output(c, 2, dtype, &many);
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
		{{2, {37, 64}}, 0, 50},     {{2, {37, 65}}, 0, 50},   {{3, {3, 11, 40}}, 1, 9},
		{{3, {3, 40, 2}}, 1, 52},   {{2, {9, 130}}, 1, 70},   {{1, {300}}, 0, 77},
		{{4, {2, 3, 7, 33}}, 1, 5}, {{3, {40, 5, 3}}, 0, 33},
	};

	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		for (int e = 0; e < MAKE_COUNT(elements); e++)
			add((i + e) % 2 ? &along_op : &select_op, elements[(e + i / 2) % 5],
				indices[(i + e) % 4], &shapes[i].shape, shapes[i].axis, shapes[i].count + e, 0);
}

static void add_sizes(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t count;
	} shapes[] = {
		{{2, {1, 1}}, 0, 1},
		{{2, {3, 1}}, 0, 70},
		{{2, {5, 4097}}, 0, 7},
		{{2, {3, 20000}}, 0, 4},
		{{3, {2, 3, 1}}, 1, 5},
		{{3, {1, 70, 8}}, -2, 3},
		{{2, {300, 16}}, 0, 20000},
		{{3, {9000, 2, 5}}, 1, 3},
		{{3, {2, 0, 3}}, 1, 4},
		{{3, {0, 4, 3}}, 1, 4},
		{{3, {2, 4, 3}}, 1, 0},
		{{3, {2, 4, 0}}, 1, 5},
		{{8, {2, 1, 2, 3, 2, 1, 2, 3}}, 3, 4},
		{{3, {3, 5, 4}}, -1, 6},
		{{2, {1, 6}}, 0, 9},
	};
	static const struct make_shape tables[] = {{2, {5, 3}}, {2, {2, 3}}, {2, {100, 48}}};

	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++) {
		struct cases_case *c =
			add(i % 2 ? &along_op : &select_op, elements[i / 2 % 5], indices[i / 2 % 2],
				&shapes[i / 2].shape, shapes[i / 2].axis, shapes[i / 2].count, 0);
		if (c->operand[1].most == 0) /* there is nothing to name */
			c->operand[1].fill = CASES_STRAY;
		name(c);
	}
	/* Indices of any rank. */
	for (int i = 0; i < MAKE_COUNT(tables) * 2; i++) {
		static const struct make_shape lists[] = {{0, {0}}, {3, {2, 3, 5}}, {2, {4, 7}}};
		struct make_shape dst = lists[i % 3];
		struct cases_case *c = cases_add(&embedding_op, 0);
		make_input(c, 0, elements[i % 5], &tables[i / 2])->fill = CASES_BITS;
		make_input(c, 1, indices[i % 4], &dst)->fill = CASES_INDICES;
		c->operand[1].most = tables[i / 2].size[0];
		dst.size[dst.rank++] = tables[i / 2].size[1];
		make_output(c, 2, elements[i % 5], &dst);
		name(c);
	}
}

static void add_strays(void)
{
	for (int i = 0; i < 18; i++) {
		static const struct make_shape shapes[] = {
			{3, {3, 33, 20}}, {3, {2, 33, 67}}, {2, {5, 33}}};
		const struct cases_op *op = i % 2 ? &along_op : &select_op;
		const struct make_shape *shape = &shapes[i / 6];
		struct cases_case *c = add(op, elements[i % 5], indices[(i + i / 4) % 4], shape, 1, 29, 0);
		c->operand[1].fill = i % 6 < 4 ? CASES_STRAY : CASES_INDICES;
		if (i % 6 > 1)
			make_word(c, "bounds", i % 6 < 4 ? "clamp" : "trust");
		name(c);
	}
}

/* Strides and addresses. */
static void add_layouts(void)
{
	static const int64_t src[][3] = {{1000, 40, 1}, {0, 32, 1}, {32, 96, 1}, {999, 33, 1},
									 {2000, 64, 2}, {1, 3, 40}, {32, 0, 1},  {600, 1, 20}};
	static const uint32_t places[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {2, 2, 2}};

	for (int i = 0; i < 2 * MAKE_COUNT(src); i++) {
		struct cases_case *c =
			add(i % 2 ? &along_op : &select_op, elements[i / 2 % 5], indices[i / 2 % 4],
				&(struct make_shape){3, {3, 20, 32}}, 1, 17, 0);
		make_strided(&c->operand[0], src[i / 2]);
		if (i % 4 == 0)
			make_strided(&c->operand[1], (const int64_t[]){i % 8 ? 3 : 0});
		if (i % 4 == 1)
			make_strided(&c->operand[1], (const int64_t[]){0, 32, 1});
		if (i % 4 == 3)
			make_strided(&c->operand[1], (const int64_t[]){17, 1, 51});
		name(c);
	}
	for (int i = 0; i < 3 * MAKE_COUNT(places); i++) {
		const struct make_shape shape = {3, {3, 20, i < 8 ? 48 : 1}};
		struct cases_case *c =
			add(i % 3 ? &select_op : &along_op, elements[i % 5], indices[i % 4], &shape, 1, 16, 0);
		for (int k = 0; k < 3; k++)
			c->operand[k].offset = places[i / 3][k] * cases_element(&c->operand[k]) % 16;
		name(c);
	}
}

/* Indices of rows that do not lie one after another: parts of longer lists, turned, repeated. */
static void add_spread(void)
{
	static const struct {
		struct make_shape list;
		int64_t stride[3];
	} lists[] = {{{2, {4, 7}}, {9, 1}},
				 {{2, {4, 7}}, {1, 4}},
				 {{2, {4, 7}}, {0, 1}},
				 {{3, {5, 2, 3}}, {1, 15, 5}},
				 {{3, {3, 4, 2}}, {16, 3, 0}}};
	static const int64_t columns[] = {1, 3, 4, 33, 48};

	for (int i = 0; i < 5 * MAKE_COUNT(lists); i++) {
		struct make_shape dst = lists[i / 5].list;
		struct cases_case *c = cases_add(&embedding_op, 0);
		make_input(c, 0, elements[(i + i / 5) % 5], &(struct make_shape){2, {9, columns[i % 5]}});
		make_input(c, 1, indices[i % 4], &dst)->fill = i % 3 ? CASES_INDICES : CASES_STRAY;
		c->operand[1].most = 9;
		if (i % 6 == 3)
			make_word(c, "bounds", "clamp");
		make_strided(&c->operand[1], lists[i / 5].stride);
		if (i % 7 == 5)
			make_strided(&c->operand[0], (const int64_t[]){1, 9});
		c->operand[0].fill = CASES_BITS;
		dst.size[dst.rank++] = columns[i % 5];
		make_output(c, 2, c->operand[0].dtype, &dst);
		name(c);
	}
}

/* Indices for a part of src alone. */
static void add_parts(void)
{
	static const struct {
		struct make_shape src, part;
		int axis;
	} shapes[] = {{{2, {9, 40}}, {2, {4, 70}}, 1},
				  {{3, {3, 20, 32}}, {3, {2, 17, 9}}, 1},
				  {{3, {3, 20, 32}}, {3, {3, 17, 1}}, 1},
				  {{3, {5, 4, 6}}, {3, {7, 1, 6}}, 0},
				  {{3, {64, 7, 160}}, {3, {33, 12, 100}}, 1}};

	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++) {
		int at = i / 2;
		struct cases_case *c = cases_add(&along_op, 0);
		make_input(c, 0, elements[i % 5], &shapes[at].src)->fill = CASES_BITS;
		if (shapes[at].axis != shapes[at].src.rank - 1)
			make_int(c, "axis", shapes[at].axis);
		make_input(c, 1, indices[(i + at) % 4], &shapes[at].part)->fill = CASES_INDICES;
		c->operand[1].most = shapes[at].src.size[shapes[at].axis];
		make_output(c, 2, elements[i % 5], &shapes[at].part);
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {64, 1024, 4096, 131072, 1023};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < MAKE_COUNT(columns); i++) {
		int64_t rows = (1 << (i % 2 ? 27 : 26)) / columns[i];
		add(&embedding_op, i % 2 ? KILN_F16 : KILN_F32, i % 3 ? KILN_I32 : KILN_I64,
			&(struct make_shape){2, {rows, columns[i]}}, 0, rows, flags);
	}
	/* Vocabularies: few rows are named, each some times, each often. */
	for (int i = 0; i < 3; i++)
		add(&embedding_op, KILN_BF16, KILN_I64,
			&(struct make_shape){2, {i ? 32000 : 128256, i < 2 ? 4096 : 1024}}, 0, 16384 << 2 * i,
			flags);
	add(&select_op, KILN_F16, KILN_I64, &(struct make_shape){3, {32, 2048, 2048}}, 1, 2048, flags);
	add(&select_op, KILN_F32, KILN_I32, &(struct make_shape){2, {16384, 4096}}, 1, 4096, flags);
	add(&along_op, KILN_F32, KILN_I32, &(struct make_shape){2, {16384, 4096}}, 1, 4096, flags);
	add(&along_op, KILN_F32, KILN_I64, &(struct make_shape){3, {64, 1024, 1024}}, 1, 1024, flags);
}

static void add_all(void)
{
	add_types();
	add_sizes();
	add_strays();
	add_layouts();
	add_spread();
	add_parts();
	add_timed();
	/* Beyond 2^31 elements. */
	add(&select_op, KILN_U8, KILN_I64, &(struct make_shape){2, {(INT64_C(1) << 25) + 5, 64}}, 1, 64,
		CASES_BIG | CASES_HUGE);
	add(&embedding_op, KILN_I8, KILN_I32, &(struct make_shape){2, {1000, 64}}, 0,
		(INT64_C(1) << 25) + 5, CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	static const struct cases_op *const ops[] = {&select_op, &along_op, &embedding_op};
	const struct cases_op *op = ops[make_below(state, 3)];
	struct make_shape shape, many, list;
	struct sides sides;

	memset(out, 0, sizeof(*out));
	out->op = op;
	make_random_shape(state, op == &embedding_op ? 2 : 5, &shape);
	if (op == &embedding_op && shape.rank == 1)
		shape = (struct make_shape){2, {shape.size[0], 1 + make_below(state, 9)}};
	make_input(out, 0, elements[make_below(state, 5)], &shape)->fill = CASES_BITS;
	if (op != &embedding_op)
		make_int(out, "axis", make_below(state, 2 * shape.rank) - shape.rank);
	sides = sides_of(out);
	many = shape;
	many.size[sides.axis] = make_below(state, 40);
	list = (struct make_shape){1, {many.size[sides.axis]}};
	make_input(out, 1, indices[make_below(state, 4)], sides.each ? &many : &list)->fill =
		CASES_INDICES;
	out->operand[1].most = shape.size[sides.axis];
	make_output(out, 2, out->operand[0].dtype, &many);
	for (int i = 0; i < 3; i++)
		make_random_layout(state, &out->operand[i]);
	out->operand[0].fill = CASES_BITS;
	if (make_chance(state, 3) || out->operand[1].most == 0)
		out->operand[1].fill = CASES_STRAY;
	if (make_chance(state, 3) && out->operand[1].most > 0)
		make_word(out, "bounds", "clamp");
	name(out);
}

/* ---- What the planner refuses ---- */

static struct cases_case *usual(struct cases_case *c, const struct cases_op *op)
{
	const struct make_shape two = {2, {3, 4}}, list = {1, {3}};

	c->op = op;
	make_input(c, 0, KILN_F32, &two);
	make_input(c, 1, KILN_I32, op == &along_op ? &two : &list);
	make_output(c, 2, KILN_F32, &two);
	return c;
}

static void bad_index(struct cases_case *c)
{
	usual(c, &select_op)->operand[1].dtype = KILN_I8;
}

static void bad_dtype(struct cases_case *c)
{
	usual(c, &embedding_op)->operand[2].dtype = KILN_F16;
}

static void bad_rank(struct cases_case *c)
{
	usual(c, &select_op);
	make_input(c, 1, KILN_I32, &(struct make_shape){2, {3, 1}});
}

static void bad_scalar(struct cases_case *c)
{
	usual(c, &along_op);
	make_input(c, 0, KILN_F32, &(struct make_shape){0, {0}});
}

static void bad_count(struct cases_case *c)
{
	usual(c, &select_op);
	make_input(c, 1, KILN_I32, &(struct make_shape){1, {5}});
}

static void bad_size(struct cases_case *c)
{
	usual(c, &along_op)->operand[1].shape[0] = 2;
}

static void bad_table(struct cases_case *c)
{
	usual(c, &embedding_op);
	make_input(c, 0, KILN_F32, &(struct make_shape){1, {4}});
}

static void bad_rows(struct cases_case *c)
{
	usual(c, &embedding_op);
	make_output(c, 2, KILN_F32, &(struct make_shape){1, {3}});
}

static void bad_cover(struct cases_case *c)
{
	usual(c, &along_op)->operand[1].shape[0] = 5;
}

static void bad_output(struct cases_case *c)
{
	usual(c, &select_op);
	make_strided(&c->operand[2], (const int64_t[]){5, 1});
}

static void bad_end(struct cases_case *c)
{
	usual(c, &select_op)->operand[0].shape[0] = 0;
	make_word(c, "bounds", "clamp");
}

static const struct cases_refusal refusals[] = {
	{"index_select: idx is i8; it must be u8, u16, i32 or i64", bad_index},
	{"embedding: weight is f32 and dst is f16; they must agree", bad_dtype},
	{"index_select: idx has rank 2; it must have rank 1", bad_rank},
	{"take_along_axis: src has rank 0; it needs a dimension to go along", bad_scalar},
	{"index_select: dimension 0 of dst has size 3; it must be that of dimension 0 of idx, 5",
	 bad_count},
	{"take_along_axis: dimension 0 of dst has size 3; it must be that of dimension 0 of idx, 2",
	 bad_size},
	{"embedding: weight has rank 1; it must have rank 2", bad_table},
	{"embedding: dst has rank 1; it must have rank 2, one more than idx", bad_rows},
	{"take_along_axis: dimension 0 of idx has size 5; it may be no larger than that of src, 3",
	 bad_cover},
	{"index_select: dimension 0 of dst has stride 5; dst must be contiguous, which is stride 4 "
	 "there",
	 bad_output},
	{"index_select: dimension 0 of src has size 0; with bounds clamp it needs an element to take",
	 bad_end},
	{NULL, NULL},
};

const struct cases_op *const index_ops[] = {&select_op, &embedding_op, &along_op, NULL};
const struct cases_family index_family = {
	.name = "index", .add = add_all, .random = add_random, .refusals = refusals};
