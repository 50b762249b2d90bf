/*
 * cross_entropy.c: the loss of rows of logits against the number of a class, and its gradient, in
 * one launch and as an operator of its own.
 *
 *   z     x, or softcap * tanh(x / softcap)
 *   lse   log(sum of exp(z))
 *   loss  (1 - label_smoothing) * (lse - z[target]) + label_smoothing * (lse - mean of z)
 *         + lse_square_scale * lse^2
 *   grad  (exp(z - lse) * (1 + 2 * lse_square_scale * lse) - label_smoothing / columns
 *         - (1 - label_smoothing at the target)) * (1 - (z / softcap)^2)
 *   dx    the same, with the lse that is given, times dloss
 *
 * Rows whose target is ignore_index have 0 in all results; a target that names no class makes them
 * NaN.  mean: of the losses of the other rows, gradients divided by their count.
 *
 * How far off a result may be: the sum of exp(z) as softmax's, rtol of itself, which is absolute in
 * its logarithm; differences of z a rounding each; a power rtol and four roundings of its
 * argument; z under a soft cap eight roundings of the cap.  Factors add a few roundings of what
 * they multiply.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

static bool is_backward(const struct cases_case *c)
{
	return strcmp(c->op->name, "cross_entropy_backward") == 0;
}

enum { LOSS = 2, LSE, COUNT, GRAD, BACK_LSE = 2, BACK_COUNT, BACK_DLOSS, BACK_DX };

static bool is_mean(const struct cases_case *c)
{
	return !reference_is(c, "reduction", "sum") && !reference_is(c, "reduction", "none");
}

/* ---- The reference ---- */

/* The contents of a row, and what they come to. */
struct row {
	const struct reference *r;
	int64_t number, columns, target;
	bool live, stray;
	double smoothing, square, cap, unit, rtol;
	long double most, lse, log_sum, sum_z, sum_abs;
	double lse_off;
};

static double z_of(const struct row *row, int64_t k)
{
	const struct cases_operand *x = &row->r->c->operand[0];
	int last = x->rank - 1;
	double value = cases_get(x->dtype, row->r->memory[0],
							 reference_at(x, 0, last, row->number) + k * x->stride[last]);

	return row->cap != 0 ? row->cap * tanh(value / row->cap) : value;
}

static int64_t rows_of(const struct cases_case *c)
{
	return reference_product(&c->operand[0], 0, c->operand[0].rank - 1);
}

static void open_row(const struct reference *r, int64_t number, struct row *row)
{
	const struct cases_operand *x = &r->c->operand[0], *target = &r->c->operand[1];
	int64_t at = reference_at(target, 0, target->rank, number), value;

	*row = (struct row){.r = r, .number = number, .columns = x->shape[x->rank - 1]};
	value = target->dtype == KILN_I64 ? ((const int64_t *)r->memory[1])[at]
									  : ((const int32_t *)r->memory[1])[at];
	row->live = value != reference_int(r->c, "ignore_index", -100);
	row->stray = row->live && (value < 0 || value >= row->columns);
	row->target = value;
	row->smoothing = reference_real(r->c, "label_smoothing", 0);
	row->square = reference_real(r->c, "lse_square_scale", 0);
	row->cap = reference_real(r->c, "softcap", 0);
	row->unit = reference_unit(x->dtype);
	row->rtol = reference_relative(x->dtype, row->columns > 4096 ? 1e-5 : 2e-6);
}

static void sum_row(struct row *row)
{
	long double sum = 0;
	bool nan = false;

	row->most = -INFINITY;
	for (int64_t k = 0; k < row->columns; k++) {
		double z = z_of(row, k);
		nan = nan || isnan(z) || z == INFINITY;
		row->most = z > row->most ? z : row->most;
		row->sum_z += z;
		row->sum_abs += fabs(z);
	}
	for (int64_t k = 0; k < row->columns && !nan && row->most > -INFINITY; k++)
		sum += expl(z_of(row, k) - row->most);
	row->log_sum = nan ? NAN : logl(sum);
	row->lse = row->log_sum + (row->most > -INFINITY ? row->most : 0);
	row->lse_off = row->rtol * fmax(1, fabs((double)row->log_sum)) +
				   row->unit * (2 * fabs((double)row->most) + 8 * row->cap);
}

/* The loss of a row, and how far from it is right. */
static double loss_of(const struct row *row, double *off)
{
	long double hit, mean = row->sum_z / row->columns, lse = row->lse, found;
	double u = row->unit, magnitude = (double)(row->sum_abs / row->columns);

	*off = 0;
	if (!row->live)
		return 0;
	if (row->stray)
		return NAN;
	hit = z_of(row, row->target);
	if (row->most == -INFINITY)
		return NAN;
	found = (1 - row->smoothing) * (row->log_sum - (hit - row->most));
	if (row->smoothing != 0)
		found += row->smoothing * (row->log_sum + (row->most - mean));
	if (row->square != 0)
		found += row->square * lse * lse;
	*off = row->lse_off + u * (4 * fabs((double)(hit - row->most)) + 8 * row->cap) +
		   4 * u * fabs((double)found);
	if (row->smoothing != 0)
		*off += row->smoothing * (row->rtol * magnitude + 4 * u * fabs((double)(row->most - mean)));
	if (row->square != 0)
		*off += fabs(row->square) *
				(2 * row->lse_off * fabs((double)lse) + 4 * u * (double)(lse * lse));
	return (double)found;
}

/* Hands on the gradient of a row: `by` times that of its loss. */
static void answer_slope(const struct row *row, int operand, double by)
{
	kiln_dtype dtype = row->r->c->operand[0].dtype;
	double a = 1 + 2 * row->square * (double)row->lse, u = row->unit;
	double each = row->smoothing / (double)row->columns;

	for (int64_t k = 0; k < row->columns; k++) {
		int64_t at = row->number * row->columns + k;
		if (!row->live) {
			reference_value(row->r, operand, at, 0, 0);
			continue;
		}
		double z = z_of(row, k), hot = k == row->target ? 1 - row->smoothing : 0;
		double p = (double)expl(z - row->lse), argument = fabs(z - (double)row->lse);
		double slope = row->cap != 0 ? 1 - (z / row->cap) * (z / row->cap) : 1;
		double value = row->stray || row->most == -INFINITY || isnan((double)row->lse)
						   ? NAN
						   : (p * a - each - hot) * by * slope;
		double off = p * fabs(a) * (row->rtol + u * (4 * fmin(argument, 1e4) + 16 * row->cap)) +
					 p * 2 * fabs(row->square) * row->lse_off + 8 * u * (each + hot + p * fabs(a));
		double allowed = off * fabs(by) + reference_rounding(dtype, value) +
						 4 * reference_floor(dtype) * fmax(1, fabs(by));
		/* An infinite factor times what may be rounded to 0, or to either side of it. */
		reference_value(row->r, operand, at, value, isinf(by) ? REFERENCE_NO_NUMBER : allowed);
	}
}

static void forward(const struct reference *r, int64_t first, int64_t last, double count,
					double *sum, double *off)
{
	const struct cases_operand *operand = r->c->operand;

	for (int64_t i = first; i < last; i++) {
		double loss, loss_off;
		struct row row;
		open_row(r, i, &row);
		if (row.live)
			sum_row(&row);
		loss = loss_of(&row, &loss_off);
		*sum += loss;
		*off += loss_off + 64 * row.unit * fabs(loss);
		if (reference_is(r->c, "reduction", "none"))
			reference_value(r, LOSS, i, loss, loss_off);
		if (operand[LSE].dtype != KILN_DTYPE_NONE)
			reference_value(r, LSE, i, row.live ? (double)row.lse : 0, row.live ? row.lse_off : 0);
		if (operand[GRAD].dtype != KILN_DTYPE_NONE)
			answer_slope(&row, GRAD, is_mean(r->c) ? 1 / count : 1);
	}
}

static void backward(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *operand = r->c->operand;
	bool one = !reference_is(r->c, "reduction", "none");
	double count = cases_get(KILN_I64, r->memory[BACK_COUNT], 0);

	for (int64_t i = first; i < last; i++) {
		const struct cases_operand *lse = &operand[BACK_LSE], *dloss = &operand[BACK_DLOSS];
		double by = cases_get(dloss->dtype, r->memory[BACK_DLOSS],
							  one ? 0 : reference_at(dloss, 0, dloss->rank, i));
		struct row row;
		open_row(r, i, &row);
		row.lse = cases_get(lse->dtype, r->memory[BACK_LSE], reference_at(lse, 0, lse->rank, i));
		answer_slope(&row, BACK_DX, is_mean(r->c) ? by / count : by);
	}
}

static int64_t counted(const struct reference *r)
{
	int64_t count = 0;

	for (int64_t i = 0; i < rows_of(r->c); i++) {
		struct row row;
		open_row(r, i, &row);
		count += row.live;
	}
	return count;
}

/* Sums are of all rows. */
static bool is_summed(const struct cases_case *c)
{
	return !is_backward(c) &&
		   (!reference_is(c, "reduction", "none") || c->operand[COUNT].dtype != KILN_DTYPE_NONE);
}

static int64_t units(const struct cases_case *c)
{
	return is_summed(c) ? 1 : rows_of(c);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	double count, sum = 0, off = 0;

	if (is_backward(r->c)) {
		backward(r, first, last);
		return;
	}
	if (!is_summed(r->c)) {
		forward(r, first, last, 0, &sum, &off);
		return;
	}
	if (first == last)
		return;
	count = (double)counted(r);
	forward(r, 0, rows_of(r->c), count, &sum, &off);
	if (is_mean(r->c))
		reference_value(r, LOSS, 0, sum / count, off / count);
	else if (reference_is(r->c, "reduction", "sum"))
		reference_value(r, LOSS, 0, sum, off);
	if (r->c->operand[COUNT].dtype != KILN_DTYPE_NONE)
		reference_value(r, COUNT, 0, count, 0);
}

static const struct cases_op forward_op = {"cross_entropy", units, reference};
static const struct cases_op backward_op = {"cross_entropy_backward", units, reference};

/* ---- The cases ---- */

/* A case has these besides its shape. */
enum {
	SUM = 1,
	NONE = 2,
	WITH_GRAD = 4,
	WITH_LSE = 8,
	SMOOTH = 16,
	SQUARE = 32,
	CAP = 64,
	FEW = 128, /* targets are below 4, and those that are 1 are ignored */
	WIDE = 256 /* targets have 64 bits */
};

static const struct make_shape one = {0, {0}};

static void name(struct cases_case *c)
{
	make_name(c, is_backward(c) ? "x, target, lse, count, dloss, dx"
								: "x, target, loss, lse?, count?, grad?");
	if (c->operand[1].dtype == KILN_I64)
		cases_name(c, " i64");
	if (c->operand[1].fill == CASES_STRAY)
		cases_name(c, " stray");
	if (c->operand[1].fill == CASES_STRAY && rows_of(c) > 0)
		c->flags |= CASES_STRAYS;
}

static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape,
					 unsigned with)
{
	kiln_dtype computed = dtype == KILN_F64 ? KILN_F64 : KILN_F32;
	struct make_shape leading = *shape;
	int64_t columns = shape->size[shape->rank - 1];
	const struct make_shape *loss = with & NONE ? &leading : &one;
	struct cases_operand *target, *made;

	leading.rank--;
	make_input(c, 0, dtype, shape)->deviation = 3;
	target = make_input(c, 1, with & WIDE ? KILN_I64 : KILN_I32, &leading);
	target->fill = CASES_INDICES;
	target->most = with & FEW && columns > 4 ? 4 : columns > 0 ? columns : 1;
	if (is_backward(c)) {
		made = make_input(c, BACK_LSE, computed, &leading);
		made->mean = log((double)columns) + 4;
		made->deviation = 1;
		made = make_input(c, BACK_COUNT, KILN_I64, &one);
		made->fill = CASES_INDICES;
		made->most = 50;
		make_input(c, BACK_DLOSS, computed, loss);
		make_output(c, BACK_DX, dtype, shape);
	} else {
		make_output(c, LOSS, computed, loss);
		make_none(c, LSE);
		make_none(c, COUNT);
		make_none(c, GRAD);
		if (with & WITH_LSE) {
			make_output(c, LSE, computed, &leading);
			make_output(c, COUNT, KILN_I64, &one);
		}
		if (with & WITH_GRAD)
			make_output(c, GRAD, dtype, shape);
	}
	if (with & (SUM | NONE))
		make_word(c, "reduction", with & SUM ? "sum" : "none");
	if (with & FEW)
		make_int(c, "ignore_index", 1);
	if (with & SMOOTH)
		make_real(c, "label_smoothing", 0.1);
	if (with & SQUARE)
		make_real(c, "lse_square_scale", 0.01);
	if (with & CAP)
		make_real(c, "softcap", 5);
}

static struct cases_case *add(const struct cases_op *op, kiln_dtype dtype,
							  const struct make_shape *shape, unsigned with, unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	operands(c, dtype, shape, with);
	name(c);
	return c;
}

/* The first of each kind of kernel has most of what there is. */
static void add_features(void)
{
	static const unsigned withs[] = {WITH_GRAD | SMOOTH | FEW | WITH_LSE,
									 WITH_GRAD | SQUARE | SUM | WIDE,
									 SMOOTH | SQUARE | FEW | WITH_LSE | NONE | WIDE,
									 WITH_GRAD | CAP | SMOOTH,
									 WITH_GRAD | NONE | FEW,
									 CAP | FEW | NONE | WITH_LSE,
									 WITH_LSE,
									 SUM | FEW};
	static const int64_t columns[] = {100, 1023, 33000};

	for (int i = 0; i < MAKE_COUNT(columns); i++)
		for (int k = 0; k < MAKE_COUNT(withs); k++)
			for (int o = 0; o < (k % 2 ? 1 : 2); o++)
				add(o ? &backward_op : &forward_op, make_float(i + k),
					&(struct make_shape){2, {columns[i] > 4096 ? 3 : 13, columns[i]}},
					o ? withs[k] & ~(unsigned)(WITH_GRAD | WITH_LSE) : withs[k], 0);
}

/* Long rows of bf16 under a soft cap, whose powers blocks look up: more rows than blocks, and
 * elements of any size. */
static void add_listed(void)
{
	static const unsigned withs[] = {CAP | WITH_LSE | FEW, CAP | NONE | WIDE, CAP | SUM | SQUARE};
	static const struct make_shape shapes[] = {{2, {5, 33000}}, {2, {600, 32768}}, {1, {65544}}};

	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++) {
		struct cases_case *c = cases_add(&forward_op, 0);
		operands(c, KILN_BF16, &shapes[i / 2], withs[i / 2]);
		if (i % 2)
			c->operand[0].deviation = 40;
		if (i == 1)
			c->operand[0].fill = CASES_UNUSUAL;
		name(c);
	}
}

static void add_shapes(void)
{
	static const struct make_shape shapes[] = {
		{1, {10}},       {2, {5, 1}},     {2, {1, 7}},     {2, {200, 3}},    {2, {0, 5}},
		{3, {2, 3, 65}}, {2, {6, 32000}}, {2, {3, 50257}}, {2, {2, 131072}}, {2, {2, 65537}},
		{2, {7, 8192}},  {2, {40, 513}},  {2, {3, 20001}}, {2, {1100, 40}}};

	for (int i = 0; i < MAKE_COUNT(shapes); i++) {
		add(&forward_op, make_float(i % 3), &shapes[i], i % 2 ? WITH_LSE | WITH_GRAD : FEW, 0);
		add(&forward_op, make_float(i % 3 + 1), &shapes[i], i % 2 ? SUM : WITH_GRAD | NONE, 0);
		add(&backward_op, make_float(i % 3), &shapes[i], i % 2 ? NONE : FEW, 0);
	}
}

/* Rows with gaps, in another order and repeated, columns that lie apart, and addresses that are
 * aligned to elements alone. */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[3], target[2];
	} layouts[] = {
		{{2, {9, 200}}, {208, 1}, {2}},        {{2, {9, 77}}, {83, 1}, {1}},
		{{2, {33, 40}}, {1, 33}, {1}},         {{3, {4, 5, 96}}, {576, 96, 1}, {6, 1}},
		{{3, {4, 5, 96}}, {0, 96, 1}, {1, 4}},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(i % 2 ? &backward_op : &forward_op, 0);
		operands(c, make_float(i / 2 + i), &layouts[i / 2].shape,
				 i % 2   ? NONE
				 : i % 4 ? WITH_GRAD
						 : WITH_LSE | NONE);
		make_strided(&c->operand[0], layouts[i / 2].stride);
		make_strided(&c->operand[1], layouts[i / 2].target);
		name(c);
	}
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(i % 2 ? &backward_op : &forward_op, 0);
		int moved = i / 2 % 2 ? 0 : i % 2 ? BACK_DX : GRAD;
		operands(c, make_float(i / 2), &(struct make_shape){2, {6, 328}}, WITH_GRAD);
		c->operand[moved].offset = cases_element(&c->operand[moved]) % 16;
		name(c);
	}
}

/* NaN and infinities stay in their rows, and out of those that are ignored; targets that name no
 * class are reported. */
static void add_values(void)
{
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(i == 5 ? &backward_op : &forward_op, 0);
		operands(c, make_float(i), &(struct make_shape){2, {40, i % 2 ? 1023 : 96}},
				 NONE | FEW | (i % 4 < 2 ? WITH_GRAD : WITH_LSE) | (i % 3 == 0 ? SMOOTH : 0) |
					 (i == 6 ? CAP : 0));
		c->operand[0].fill = CASES_UNUSUAL;
		name(c);
	}
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(i == 1 ? &backward_op : &forward_op, 0);
		operands(c, make_float(i), &(struct make_shape){2, {40, 130}},
				 i == 2 ? WITH_LSE | WIDE : NONE | WITH_GRAD);
		c->operand[1].fill = CASES_STRAY;
		name(c);
	}
}

static void add_timed(void)
{
	static const struct {
		kiln_dtype dtype;
		int64_t rows, columns;
		unsigned with;
	} timed[] = {
		{KILN_BF16, 8192, 32000, NONE},
		{KILN_BF16, 4096, 128256, NONE},
		{KILN_BF16, 4096, 151936, NONE | WITH_LSE},
		{KILN_F32, 4096, 128256, NONE},
		{KILN_F32, 4096, 50257, NONE},
		{KILN_BF16, 2048, 256000, NONE | CAP},
		{KILN_BF16, 8192, 32000, NONE | WITH_GRAD},
		/* The mean's reference works out all rows, which takes it seconds. */
		{KILN_BF16, 1024, 32000, WITH_GRAD},
		{KILN_BF16, 1024, 50304, WITH_LSE},
		{KILN_BF16, 4096, 128256, WITH_GRAD | NONE},
		{KILN_F32, 4096, 128256, WITH_GRAD | NONE},
		{KILN_F32, 1 << 18, 1000, NONE},
	};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < MAKE_COUNT(timed); i++)
		add(&forward_op, timed[i].dtype, &(struct make_shape){2, {timed[i].rows, timed[i].columns}},
			timed[i].with | WIDE, flags);
	add(&backward_op, KILN_BF16, &(struct make_shape){2, {4096, 128256}}, WIDE, flags);
	add(&backward_op, KILN_F32, &(struct make_shape){2, {4096, 50257}}, WIDE, flags);
	add(&forward_op, KILN_BF16, &(struct make_shape){2, {17000, 128256}}, WITH_GRAD | NONE,
		CASES_BIG | CASES_HUGE);
	add(&backward_op, KILN_BF16, &(struct make_shape){2, {17000, 128256}}, NONE,
		CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_features();
	add_listed();
	add_shapes();
	add_layouts();
	add_values();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	unsigned with;

	memset(out, 0, sizeof(*out));
	out->op = make_chance(state, 3) ? &backward_op : &forward_op;
	do
		make_random_shape(state, 3, &shape);
	while (shape.size[shape.rank - 1] == 0);
	with = (unsigned)make_below(state, 512);
	operands(out, make_float(make_below(state, 4)), &shape,
			 with & NONE ? with & ~(unsigned)SUM : with);
	for (int i = 0; i < out->operand_count; i++)
		if (i != 1 && out->operand[i].dtype != KILN_DTYPE_NONE && out->operand[i].dtype != KILN_I64)
			make_random_layout(state, &out->operand[i]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_dtype(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_I32, &small, 0);
}

static void bad_target(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_F16, &small, 0);
	c->operand[1].dtype = KILN_F32;
}

static void bad_rows(struct cases_case *c)
{
	c->op = &backward_op;
	operands(c, KILN_F16, &small, 0);
	c->operand[1].shape[0] = 4;
}

static void bad_loss(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_F16, &small, 0);
	make_output(c, LOSS, KILN_F32, &(struct make_shape){1, {3}});
}

static void bad_type(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_BF16, &small, NONE);
	make_output(c, LOSS, KILN_BF16, &(struct make_shape){1, {3}});
}

static void bad_rank(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_F32, &small, NONE);
	make_output(c, LOSS, KILN_F32, &small);
}

static void bad_smoothing(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_F32, &small, 0);
	make_real(c, "label_smoothing", 1.5);
}

static void bad_cap(struct cases_case *c)
{
	c->op = &backward_op;
	operands(c, KILN_F32, &small, 0);
	make_real(c, "softcap", -1);
}

static void bad_width(struct cases_case *c)
{
	c->op = &forward_op;
	operands(c, KILN_F32, &(struct make_shape){2, {3, 0}}, 0);
}

static const struct cases_refusal refusals[] = {
	{"cross_entropy: x is i32; it must be f16, bf16, f32 or f64", bad_dtype},
	{"cross_entropy: target is f32; it must be i32 or i64", bad_target},
	{"cross_entropy_backward: dimension 0 has size 3 in x and 4 in target; they must agree, and "
	 "the last dimension of x has the classes",
	 bad_rows},
	{"cross_entropy: dimension 0 of loss has size 3; loss is one number", bad_loss},
	{"cross_entropy: loss is bf16; it must be f32", bad_type},
	{"cross_entropy: loss has rank 2; with x of rank 2 it must have rank 1", bad_rank},
	{"cross_entropy: label_smoothing is 1.5; it may be 0 to 1", bad_smoothing},
	{"cross_entropy_backward: softcap is -1; it must be 0 or more", bad_cap},
	{"cross_entropy: dimension 1 of x has size 0; a row needs a class", bad_width},
	{NULL, NULL},
};

const struct cases_op *const cross_entropy_ops[] = {&forward_op, &backward_op, NULL};
const struct cases_family cross_entropy_family = {
	.name = "cross_entropy", .add = add_all, .random = add_random, .refusals = refusals};
