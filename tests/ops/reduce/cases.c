/*
 * cases.c: reductions of all kinds over some dimensions, and what the planner refuses of them.
 */
#include "reduce.h"

#include <math.h>
#include <string.h>

static const struct cases_op ops[] = {
	{"sum", reduce_units, reduce_reference},       {"mean", reduce_units, reduce_reference},
	{"prod", reduce_units, reduce_reference},      {"amax", reduce_units, reduce_reference},
	{"amin", reduce_units, reduce_reference},      {"argmax", reduce_units, reduce_reference},
	{"argmin", reduce_units, reduce_reference},    {"any", reduce_units, reduce_reference},
	{"all", reduce_units, reduce_reference},       {"vector_norm", reduce_units, reduce_reference},
	{"logsumexp", reduce_units, reduce_reference}, {"var", reduce_units, reduce_reference},
};
#define SUM (&ops[0])
#define MEAN (&ops[1])
#define PROD (&ops[2])
#define AMAX (&ops[3])
#define ARGMAX (&ops[5])
#define ANY (&ops[7])
#define NORM (&ops[9])
#define LOGSUMEXP (&ops[10])
#define VAR (&ops[11])

static bool takes_integers(const struct cases_op *op)
{
	return op != MEAN && op < NORM;
}

static kiln_dtype integer_of(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_I32, KILN_BOOL, KILN_I64, KILN_U8, KILN_I16, KILN_I8};

	return dtypes[turn % MAKE_COUNT(dtypes)];
}

static kiln_dtype result_of(const struct cases_op *op, kiln_dtype dtype)
{
	if (strncmp(op->name, "arg", 3) == 0)
		return KILN_I64;
	if (op == ANY || op == ANY + 1)
		return KILN_BOOL;
	return (op == SUM || op == PROD) && !cases_is_float(dtype) ? KILN_I64 : dtype;
}

/* over: the dimensions' bits; 0: all, and the attribute is left out. */
static struct cases_case *begin(struct cases_case *c, kiln_dtype dtype,
								const struct make_shape *shape, unsigned over, bool keep)
{
	struct make_shape y = {0};
	kiln_attr *attr;

	make_input(c, 0, dtype, shape);
	if (c->op == PROD && cases_is_float(dtype)) {
		c->operand[0].mean = 1;
		c->operand[0].deviation = 0.1;
	}
	if (c->op == ANY || c->op == ANY + 1) /* rows of zeros, and with none, too */
		c->operand[0].fill = dtype == KILN_BOOL || dtype == KILN_U8 ? CASES_FLAGS : CASES_NORMAL;
	if (over) {
		attr = &c->attr[c->attr_count++];
		*attr = (kiln_attr){.name = "over", .kind = KILN_ATTR_INTS};
		for (int k = 0; k < shape->rank; k++)
			if (over >> k & 1)
				c->ints[attr->count++] = k % 2 ? k - shape->rank : k;
	}
	if (keep)
		make_int(c, "keepdim", 1);
	over = over ? over : ~0u;
	for (int k = 0; k < shape->rank; k++)
		if (keep || !(over >> k & 1))
			y.size[y.rank++] = over >> k & 1 ? 1 : shape->size[k];
	make_output(c, 1, result_of(c->op, dtype), &y);
	return c;
}

static void name(struct cases_case *c)
{
	make_name(c, "x, y");
}

static void add(const struct cases_op *op, kiln_dtype dtype, const struct make_shape *shape,
				unsigned over, unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	begin(c, dtype, shape, over, false);
	name(c);
}

static void add_widths(void)
{
	int turn = 0;

	for (int i = 0; i < make_width_count; i++) {
		const struct make_shape shape = {2, {make_rows(make_widths[i]), make_widths[i]}};
		for (int k = 0; k < 2; k++, turn++) {
			const struct cases_op *op = &ops[(turn * 5) % MAKE_COUNT(ops)];
			bool whole = k && takes_integers(op);
			add(op, whole ? integer_of(turn) : make_float(turn + turn / 4), &shape, 2, 0);
		}
	}
}

/* Every operator, on rows and on columns, long and short. */
static void add_kinds(void)
{
	static const struct {
		struct make_shape shape;
		unsigned over;
	} shapes[] = {
		{{2, {9, 520}}, 2},
		{{2, {600, 12}}, 1},
	};

	for (int i = 0; i < MAKE_COUNT(ops); i++)
		for (int k = 0; k < MAKE_COUNT(shapes); k++) {
			struct cases_case *c = cases_add(&ops[i], 0);
			begin(c, make_float(i + k), &shapes[k].shape, shapes[k].over, i % 2);
			c->operand[0].fill = CASES_UNUSUAL;
			name(c);
			if (takes_integers(&ops[i]))
				add(&ops[i], integer_of(i + k), &shapes[k].shape, shapes[k].over, 0);
		}
}

static void add_axes(void)
{
	static const struct {
		struct make_shape shape;
		unsigned over;
	} axes[] = {
		{{0, {0}}, 0},
		{{1, {777}}, 0},
		{{1, {200000}}, 0},
		{{2, {40, 1}}, 2},
		{{2, {1, 40}}, 1},
		{{2, {1000, 2}}, 1},
		{{2, {70000, 3}}, 2},
		{{2, {20000, 3}}, 1},
		{{2, {5000, 100}}, 1},
		{{3, {5, 7, 33}}, 2},
		{{3, {40, 4, 64}}, 2},
		{{3, {3, 1030, 48}}, 2},
		{{3, {40, 3, 56}}, 5},
		{{4, {6, 5, 7, 9}}, 10},
		{{4, {6, 5, 7, 8}}, 5},
		{{4, {3, 12, 9, 16}}, 12},
		{{8, {2, 3, 2, 3, 2, 3, 2, 5}}, 0x55},
		{{8, {2, 3, 2, 3, 2, 3, 2, 5}}, 0xaa},
		{{3, {4, 0, 3}}, 1},
		{{2, {0, 6}}, 2},
	};

	for (int i = 0; i < MAKE_COUNT(axes); i++)
		for (int k = 0; k < 2; k++)
			add(&ops[(i * 7 + k * 5) % MAKE_COUNT(ops)], make_float(i + k), &axes[i].shape,
				axes[i].over, axes[i].shape.size[0] == 70000 ? CASES_SLOW : 0);
}

/* Nothing to reduce: what has a result gives it. */
static void add_nothing(void)
{
	static const int with[] = {0, 1, 2, 7, 8, 9, 10, 11};

	for (int i = 0; i < MAKE_COUNT(with); i++)
		add(&ops[with[i]], make_float(i), &(struct make_shape){3, {4, 0, 3}}, 2, 0);
	/* No magnitude is larger than 0. */
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(NORM, 0);
		const struct make_shape shape = {2, {i % 2 ? 0 : 5, i % 2 ? 5 : 0}};
		begin(c, make_float(i / 2), &shape, i % 2 ? 1 : 2, false);
		make_real(c, "ord", INFINITY);
		name(c);
	}
}

/* Gaps, repeats, another order, and addresses that are aligned to elements alone. */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[4];
		unsigned over;
	} layouts[] = {
		{{2, {5, 640}}, {1, 5}, 2},
		{{2, {33, 40}}, {0, 1}, 2},
		{{2, {33, 40}}, {1, 0}, 2},
		{{2, {9, 1024}}, {1032, 1}, 2},
		{{2, {70, 90}}, {1, 70}, 0},
		{{3, {5, 6, 64}}, {64, 320, 1}, 5},
		{{3, {3, 40, 24}}, {2000, 48, 2}, 2},
		{{3, {3, 40, 24}}, {0, 24, 1}, 3},
		{{4, {6, 3, 4, 5}}, {1, 24, 6, 72}, 1},
		{{4, {2, 3, 4, 5}}, {1, 8, 2, 24}, 1},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(&ops[(i * 5 + 3) % MAKE_COUNT(ops)], 0);
		begin(c, make_float(i + i / 8), &layouts[i / 2].shape, layouts[i / 2].over, false);
		make_strided(&c->operand[0], layouts[i / 2].stride);
		if (i % 2)
			c->operand[0].offset = cases_element(&c->operand[0]) % 16;
		name(c);
	}
}

/* Orders of norms, corrections of variances, and a variance far from 0. */
static void add_numbers(void)
{
	static const double orders[] = {1, 0, 3, -1.5, INFINITY, -INFINITY}, less[] = {0, 2.5, 600};
	const struct make_shape rows = {2, {9, 520}}, columns = {2, {520, 9}};

	for (int i = 0; i < MAKE_COUNT(orders); i++) {
		struct cases_case *c = cases_add(NORM, 0);
		begin(c, make_float(i), i % 2 ? &rows : &columns, i % 2 ? 2 : 1, false);
		make_real(c, "ord", orders[i]);
		name(c);
	}
	for (int i = 0; i < 2 * MAKE_COUNT(less); i++) {
		struct cases_case *c = cases_add(VAR, 0);
		begin(c, make_float(i + i / 2), i % 2 ? &rows : &columns, i % 2 ? 2 : 1, false);
		c->operand[0].mean = 1e4;
		c->operand[0].deviation = 1;
		make_real(c, "correction", less[i / 2]);
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {64, 1024, 1023, 8192, 131072};
	static const int others[] = {3, 5, 9, 10, 11};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int k = 0; k < 2; k++) {
		const int64_t all = INT64_C(1) << (26 + k);
		for (int i = 0; i < MAKE_COUNT(columns); i++)
			add(SUM, make_float(k), &(struct make_shape){2, {all / columns[i], columns[i]}}, 2,
				flags);
		for (int i = 0; i < MAKE_COUNT(others); i++)
			add(&ops[others[i]], make_float(k), &(struct make_shape){2, {all / 4096, 4096}}, 2,
				flags);
		add(SUM, make_float(k), &(struct make_shape){1, {all}}, 0, flags);
		add(SUM, make_float(k), &(struct make_shape){2, {all / 4096, 4096}}, 1, flags);
		add(VAR, make_float(k), &(struct make_shape){2, {all / 4096, 4096}}, 1, flags);
		add(SUM, make_float(k), &(struct make_shape){3, {all / 1024 / 512, 1024, 512}}, 2, flags);
		add(MEAN, make_float(k), &(struct make_shape){4, {all / 256 / 3136, 256, 56, 56}}, 13,
			flags);
	}
}

/* Numbers of elements beyond 2^31. */
static void add_huge(void)
{
	add(SUM, KILN_U8, &(struct make_shape){1, {(INT64_C(1) << 31) + 77}}, 0,
		CASES_BIG | CASES_HUGE);
	add(ARGMAX, KILN_I8, &(struct make_shape){2, {(INT64_C(1) << 31) + 6, 2}}, 1,
		CASES_BIG | CASES_HUGE);
	add(AMAX, KILN_U8, &(struct make_shape){2, {(INT64_C(1) << 30) + 39, 2}}, 2,
		CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_widths();
	add_kinds();
	add_axes();
	add_nothing();
	add_layouts();
	add_numbers();
	add_timed();
	add_huge();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	const struct cases_op *op = &ops[make_below(state, MAKE_COUNT(ops))];
	bool whole = takes_integers(op) && make_chance(state, 3), empty = false;
	kiln_dtype dtype;
	struct make_shape shape;
	unsigned over;

	memset(out, 0, sizeof(*out));
	out->op = op;
	make_random_shape(state, 5, &shape);
	dtype = whole ? integer_of(make_below(state, 6)) : make_float(make_below(state, 4));
	over = (unsigned)make_below(state, INT64_C(1) << shape.rank);
	for (int k = 0; k < shape.rank; k++)
		empty = empty || shape.size[k] == 0;
	if (empty && (op == AMAX || op == AMAX + 1 || op == ARGMAX || op == ARGMAX + 1))
		out->op = SUM;
	begin(out, dtype, &shape, over, make_chance(state, 3));
	if (cases_is_float(dtype) && op != PROD)
		make_random_layout(state, &out->operand[0]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_dtype(struct cases_case *c)
{
	c->op = SUM;
	begin(c, KILN_U16, &small, 0, false);
}

static void bad_float(struct cases_case *c)
{
	c->op = MEAN;
	begin(c, KILN_I32, &small, 0, false);
}

static void bad_axis(struct cases_case *c)
{
	c->op = VAR;
	begin(c, KILN_F32, &small, 1, false);
	c->ints[0] = 2;
}

static void bad_twice(struct cases_case *c)
{
	c->op = SUM;
	begin(c, KILN_F32, &small, 3, false);
	c->ints[1] = 0;
}

static void bad_kind(struct cases_case *c)
{
	c->op = SUM;
	begin(c, KILN_F32, &small, 0, false);
	make_int(c, "over", 1);
}

static void bad_result(struct cases_case *c)
{
	c->op = ARGMAX;
	begin(c, KILN_F32, &small, 2, false);
	c->operand[1].dtype = KILN_F32;
}

static void bad_rank(struct cases_case *c)
{
	c->op = SUM;
	begin(c, KILN_F32, &small, 2, true);
	c->attr_count--;
}

static void bad_size(struct cases_case *c)
{
	c->op = SUM;
	begin(c, KILN_F32, &small, 2, true);
	c->operand[1].shape[1] = 4;
}

static void bad_nothing(struct cases_case *c)
{
	c->op = AMAX;
	begin(c, KILN_F32, &(struct make_shape){2, {3, 0}}, 2, false);
}

static void bad_order(struct cases_case *c)
{
	c->op = NORM;
	begin(c, KILN_F32, &small, 2, false);
	make_real(c, "ord", NAN);
}

static void bad_negative(struct cases_case *c)
{
	c->op = NORM;
	begin(c, KILN_F32, &(struct make_shape){2, {3, 0}}, 2, false);
	make_real(c, "ord", -1);
}

static const struct cases_refusal refusals[] = {
	{"sum: x is u16; it must be f16, bf16, f32, f64, i8, u8, i16, i32, i64 or bool", bad_dtype},
	{"mean: x is i32; it must be f16, bf16, f32 or f64", bad_float},
	{"var: over names dimension 2; it may name -2 to 1", bad_axis},
	{"sum: over names dimension 0 twice; each comes once", bad_twice},
	{"sum: over is not a list of integers", bad_kind},
	{"argmax: y is f32; of x in f32 it must be i64", bad_result},
	{"sum: y has rank 2; it must have rank 1", bad_rank},
	{"sum: dimension 1 of y has size 4; it must be 1", bad_size},
	{"amax: dimension 1 of x has size 0; there is nothing to choose from", bad_nothing},
	{"vector_norm: ord is nan; it must be a number", bad_order},
	{"vector_norm: x has no elements to reduce, and the norm of order -1 of nothing is no number",
	 bad_negative},
	{NULL, NULL},
};

const struct cases_op *const reduce_ops[] = {&ops[0],  &ops[1],  &ops[2], &ops[3], &ops[4],
											 &ops[5],  &ops[6],  &ops[7], &ops[8], &ops[9],
											 &ops[10], &ops[11], NULL};
const struct cases_family reduce_family = {
	.name = "reduce", .add = add_all, .random = add_random, .refusals = refusals};
