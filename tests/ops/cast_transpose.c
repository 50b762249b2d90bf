/*
 * cast_transpose.c: matrices divided by a scale into 8 bits, as they lie and transposed: the
 * reference, and what is on the list.
 *
 *   y = x / scale, or x without a scale; transposed[.., j, i] = y[.., i, j]
 *
 * Both are rounded to nearest, ties to even, and saturate; NaN becomes 0 in i8.
 *
 * How far off a result may be: without a scale it is right to the bit.  A quotient may be off by
 * two roundings of f32, so the result is one of the numbers of its type to which such a quotient
 * rounds.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

enum { X, SCALE, Y, TRANSPOSED };

static bool has(const struct cases_case *c, int operand)
{
	return c->operand[operand].dtype != KILN_DTYPE_NONE;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[X]);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[X];
	int64_t columns = x->shape[x->rank - 1], rows = x->shape[x->rank - 2];

	for (int64_t i = first; i < last; i++) {
		double value = cases_get(x->dtype, r->memory[X], reference_at(x, 0, x->rank, i)), off = 0;
		int64_t column = i % columns, row = i / columns % rows, matrix = i / columns / rows;
		if (has(r->c, SCALE)) {
			value /= cases_get(KILN_F32, r->memory[SCALE], 0);
			off = isinf(value) ? 0 : fabs(value) * 0x1p-22;
		}
		reference_quotient(r, Y, i, value, off);
		if (has(r->c, TRANSPOSED))
			reference_quotient(r, TRANSPOSED, (matrix * columns + column) * rows + row, value, off);
	}
}

static const struct cases_op cast_transpose = {"cast_transpose", units, reference};

/* ---- The cases ---- */

static void operands(struct cases_case *c, int64_t turn, const struct make_shape *shape,
					 bool scaled)
{
	static const kiln_dtype wide[] = {KILN_BF16, KILN_F32, KILN_F16},
							narrow[] = {KILN_F8E4M3, KILN_I8, KILN_F8E5M2};
	static const char *const words[] = {"f8e4m3", "i8", "f8e5m2"};
	struct make_shape turned = *shape;
	int to = (int)(turn / 3 % 3), last = shape->rank - 1;

	turned.size[last] = shape->size[last - 1];
	turned.size[last - 1] = shape->size[last];
	make_input(c, X, wide[turn % 3], shape)->deviation = 100;
	make_none(c, SCALE);
	if (scaled)
		make_input(c, SCALE, KILN_F32, &(struct make_shape){0, {0}})->mean = 3;
	make_output(c, Y, narrow[to], shape);
	make_output(c, TRANSPOSED, narrow[to], &turned);
	make_word(c, "to", words[to]);
}

static void name(struct cases_case *c)
{
	make_name(c, "x, scale?, y, transposed?");
}

static void add(int64_t turn, const struct make_shape *shape, bool scaled, unsigned flags)
{
	struct cases_case *c = cases_add(&cast_transpose, flags);

	operands(c, turn, shape, scaled);
	name(c);
}

/* Each pair of types; edges of tiles, narrower vectors of rows and of columns, and nothing. */
static void add_shapes(void)
{
	static const struct make_shape shapes[] = {
		{2, {48, 160}}, {2, {33, 65}},      {2, {300, 144}}, {2, {1, 7}}, {3, {3, 24, 40}},
		{2, {70, 12}},  {4, {2, 3, 20, 8}}, {2, {0, 8}},     {2, {8, 0}}};

	for (int i = 0; i < 9; i++)
		add(i, &shapes[0], i % 2, 0);
	for (int i = 1; i < MAKE_COUNT(shapes); i++)
		add(i, &shapes[i], i % 2, 0);
	add(0, &(struct make_shape){2, {16 * 128 + 8, 18 * 128 + 32}}, true, CASES_SLOW);
}

/* Matrices that lie transposed, gaps, repeats, addresses that are aligned to elements alone, one
 * result without the other, and unusual numbers. */
static void add_layouts(void)
{
	static const struct {
		int64_t stride[3];
		int operand; /* that is moved */
	} layouts[] = {{{16 * 40, 1, 16}, X},
				   {{16 * 48, 48, 1}, Y},
				   {{16 * 40, 2, 33}, TRANSPOSED},
				   {{0, 41, 1}, TRANSPOSED},
				   {{48, 3 * 48, 1}, X}};

	for (int i = 0; i < MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(&cast_transpose, 0);
		operands(c, i, &(struct make_shape){3, {3, 16, 40}}, true);
		make_strided(&c->operand[X], layouts[i].stride);
		c->operand[layouts[i].operand].offset = cases_element(&c->operand[layouts[i].operand]);
		name(c);
	}
	for (int i = 0; i < 2; i++) {
		struct cases_case *c = cases_add(&cast_transpose, 0);
		operands(c, i, &(struct make_shape){2, {16, 48}}, i);
		if (i)
			make_strided(&c->operand[X], (const int64_t[]){1, 16});
		make_none(c, TRANSPOSED);
		name(c);
	}
	for (int i = 0; i < 6; i++) {
		struct cases_case *c = cases_add(&cast_transpose, 0);
		operands(c, 1 + 3 * (i % 3), &(struct make_shape){2, {16, 1600}}, i < 3);
		c->operand[X].fill = i < 3 ? CASES_UNUSUAL : CASES_EDGES;
		name(c);
	}
}

static void add_timed(void)
{
	const unsigned flags = CASES_BENCH | CASES_BIG;

	add(0, &(struct make_shape){2, {8192, 8192}}, true, flags);
	add(0, &(struct make_shape){2, {16384, 4096}}, true, flags);
	add(0, &(struct make_shape){2, {16384, 14336}}, true, flags);
	add(1, &(struct make_shape){2, {8192, 8192}}, true, flags);
	add(0, &(struct make_shape){3, {2, 40000, 28672}}, true, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_shapes();
	add_layouts();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;

	memset(out, 0, sizeof(*out));
	out->op = &cast_transpose;
	do
		make_random_shape(state, 4, &shape);
	while (shape.rank < 2);
	operands(out, make_below(state, 9), &shape, make_chance(state, 2));
	make_random_layout(state, &out->operand[X]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_rank(struct cases_case *c)
{
	c->op = &cast_transpose;
	operands(c, 0, &small, false);
	make_input(c, X, KILN_F16, &(struct make_shape){1, {4}});
}

static void bad_transposed(struct cases_case *c)
{
	c->op = &cast_transpose;
	operands(c, 0, &small, false);
	make_output(c, TRANSPOSED, KILN_F8E4M3, &small);
}

static void bad_type(struct cases_case *c)
{
	c->op = &cast_transpose;
	operands(c, 0, &small, false);
	c->operand[TRANSPOSED].dtype = KILN_I8;
}

static void bad_scale(struct cases_case *c)
{
	c->op = &cast_transpose;
	operands(c, 0, &small, true);
	make_input(c, SCALE, KILN_F32, &(struct make_shape){1, {3}});
}

static const struct cases_refusal refusals[] = {
	{"cast_transpose: x has rank 1; it needs two dimensions", bad_rank},
	{"cast_transpose: dimension 0 of transposed has size 3; it must be 4, for the last two "
	 "dimensions are x's swapped",
	 bad_transposed},
	{"cast_transpose: to is \"f8e4m3\" and transposed is i8; they must agree", bad_type},
	{"cast_transpose: scale has 3 elements; it must have one", bad_scale},
	{NULL, NULL},
};

const struct cases_op *const cast_transpose_ops[] = {&cast_transpose, NULL};
const struct cases_family cast_transpose_family = {
	.name = "cast_transpose", .add = add_all, .random = add_random, .refusals = refusals};
