/*
 * norm_backward.c: layer_norm_backward and rms_norm_backward: the reference, and what is on
 * the list.
 *
 *   xhat = (x - mean) * rstd, g = dy * gamma; over a row of `columns`:
 *   dx = rstd * (g - sum(g) / columns - xhat * sum(g * xhat) / columns)
 *   over the rows: dgamma = sum(dy * xhat), dbeta = sum(dy)
 *   rms_norm_backward: mean is 0, and sum(g) has no part in dx.
 *
 * mean and rstd are operands: whatever they hold is taken as it is.
 *
 * How far off a result may be: terms may cancel, so everything is relative to the terms.  dx: 1e-5
 * of rstd * (|g| + mean|g| + |xhat| * mean|g * xhat|); that is 1e-4 of a result that is a tenth of
 * its terms.  dgamma, dbeta: 5e-6 of sqrt(sum(term^2)), which is sqrt(rows) for terms about 1, and
 * as much of the result, for terms of one sign.  f64: 1e-12 for both.  f16 and bf16: one ulp
 * besides.
 *
 * Units: the rows (dx), then the columns (dgamma, dbeta).
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op layer_norm_backward_op, rms_norm_backward_op;

enum operand { X, DY, GAMMA, MEAN, RSTD, DX, DGAMMA, DBETA };

static bool is_rms(const struct cases_case *c)
{
	return c->op == &rms_norm_backward_op;
}

/* The place of an operand: rms_norm_backward has no mean. */
static int place(const struct cases_case *c, enum operand operand)
{
	return (int)operand - (is_rms(c) && operand > MEAN);
}

static bool has(const struct cases_case *c, enum operand operand)
{
	return !(operand == MEAN && is_rms(c)) &&
		   c->operand[place(c, operand)].dtype != KILN_DTYPE_NONE;
}

/* ---- The reference ---- */

/* The form of a problem: dimensions before `split` count rows, the others columns. */
struct form {
	int split;
	int64_t rows, columns;
};

static struct form form_of(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[X];
	struct form form = {.split = x->rank - (int)reference_int(c, "axes", 1)};

	form.rows = reference_product(x, 0, form.split);
	form.columns = reference_product(x, form.split, x->rank);
	return form;
}

static double get(const struct reference *r, enum operand operand, int64_t i)
{
	int at = place(r->c, operand);

	return cases_get(r->c->operand[at].dtype, r->memory[at], i);
}

/* A row: where it begins in x and dy, and its mean (0 for rms) and rstd. */
struct row {
	int64_t x, dy;
	double mean, rstd;
};

static struct row row_of(const struct reference *r, const struct form *form, int64_t number)
{
	return (struct row){.x = reference_at(&r->c->operand[X], 0, form->split, number),
						.dy = reference_at(&r->c->operand[DY], 0, form->split, number),
						.mean = is_rms(r->c) ? 0 : get(r, MEAN, number),
						.rstd = get(r, RSTD, number)};
}

static double dy_of(const struct reference *r, const struct form *form, const struct row *row,
					int64_t column)
{
	const struct cases_operand *dy = &r->c->operand[DY];

	return get(r, DY, row->dy + reference_at(dy, form->split, dy->rank, column));
}

static double xhat_of(const struct reference *r, const struct form *form, const struct row *row,
					  int64_t column)
{
	const struct cases_operand *x = &r->c->operand[X];

	return (get(r, X, row->x + reference_at(x, form->split, x->rank, column)) - row->mean) *
		   row->rstd;
}

/* g and xhat have room for a row. */
static void answer_row(const struct reference *r, const struct form *form, int64_t number,
					   double *g, double *xhat)
{
	struct row row = row_of(r, form, number);
	kiln_dtype dtype = r->c->operand[X].dtype;
	double rtol = reference_relative(dtype, 1e-5), count = (double)form->columns;
	long double sum = 0, product = 0, magnitude = 0, product_magnitude = 0;

	for (int64_t k = 0; k < form->columns; k++) {
		g[k] = dy_of(r, form, &row, k) * (has(r->c, GAMMA) ? get(r, GAMMA, k) : 1);
		xhat[k] = xhat_of(r, form, &row, k);
		sum += g[k];
		product += (long double)g[k] * xhat[k];
		magnitude += fabs(g[k]);
		product_magnitude += fabs(g[k] * xhat[k]);
	}
	if (is_rms(r->c))
		sum = magnitude = 0;
	for (int64_t k = 0; k < form->columns; k++) {
		double value = (double)(row.rstd * (g[k] - sum / count - xhat[k] * (product / count)));
		double terms =
			(double)(fabs(g[k]) + magnitude / count + fabs(xhat[k]) * (product_magnitude / count));
		reference_value(r, place(r->c, DX), number * form->columns + k, value,
						rtol * fabs(row.rstd) * terms + reference_rounding(dtype, value) +
							reference_floor(dtype));
	}
}

static void answer_sum(const struct reference *r, enum operand operand, int64_t column,
					   long double sum, long double squares)
{
	kiln_dtype dtype = r->c->operand[place(r->c, operand)].dtype;
	kiln_dtype computing = r->c->operand[X].dtype;
	double value = (double)sum;
	double allowed = reference_relative(computing, 5e-6) * ((double)sqrtl(squares) + fabs(value));

	/* A result computed in f64 may be asked for in f32. */
	if (dtype == KILN_F32 && computing == KILN_F64)
		allowed += reference_ulp(dtype, value);
	reference_value(r, place(r->c, operand), column, value,
					allowed + reference_rounding(dtype, value));
}

#define BLOCK 64

/* Columns [first, last), at most BLOCK: row after row, as memory lies. */
static void answer_columns(const struct reference *r, const struct form *form, int64_t first,
						   int64_t last)
{
	long double gamma[BLOCK] = {0}, gamma_squares[BLOCK] = {0};
	long double beta[BLOCK] = {0}, beta_squares[BLOCK] = {0};

	for (int64_t number = 0; number < form->rows; number++) {
		struct row row = row_of(r, form, number);
		for (int64_t k = first; k < last; k++) {
			long double dy = dy_of(r, form, &row, k);
			long double term = has(r->c, DGAMMA) ? dy * xhat_of(r, form, &row, k) : 0;
			gamma[k - first] += term;
			gamma_squares[k - first] += term * term;
			beta[k - first] += dy;
			beta_squares[k - first] += dy * dy;
		}
	}
	for (int64_t k = first; k < last; k++) {
		if (has(r->c, DGAMMA))
			answer_sum(r, DGAMMA, k, gamma[k - first], gamma_squares[k - first]);
		if (has(r->c, DBETA))
			answer_sum(r, DBETA, k, beta[k - first], beta_squares[k - first]);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	struct form form = form_of(r->c);
	double *two = reference_memory(2 * form.columns, sizeof(*two));

	for (int64_t row = first; row < last && row < form.rows && has(r->c, DX); row++)
		answer_row(r, &form, row, two, two + form.columns);
	for (int64_t k = first > form.rows ? first - form.rows : 0; k < last - form.rows; k += BLOCK)
		answer_columns(r, &form, k, k + BLOCK < last - form.rows ? k + BLOCK : last - form.rows);
	free(two);
}

static int64_t units(const struct cases_case *c)
{
	struct form form = form_of(c);

	return form.rows + form.columns;
}

static const struct cases_op layer_norm_backward_op = {"layer_norm_backward", units, reference};
static const struct cases_op rms_norm_backward_op = {"rms_norm_backward", units, reference};

/* ---- The list ---- */

/* The set of optional operands that are there has a bit for each. */
#define WITH(operand) (1u << (operand))
#define SUMS (WITH(DGAMMA) | WITH(DBETA))
#define ALL (WITH(GAMMA) | WITH(DX) | SUMS)

static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape,
					 int axes, unsigned with)
{
	kiln_dtype computing = dtype == KILN_F64 ? KILN_F64 : KILN_F32;
	struct make_shape leading = *shape, trailing = {.rank = axes};
	struct cases_operand *operand;

	leading.rank -= axes;
	memcpy(trailing.size, &shape->size[leading.rank], (size_t)axes * sizeof(shape->size[0]));
	for (int i = 0; i <= place(c, DBETA); i++)
		make_none(c, i);
	make_input(c, X, dtype, shape);
	make_input(c, DY, dtype, shape);
	if (with & WITH(GAMMA)) {
		operand = make_input(c, GAMMA, dtype, &trailing);
		operand->mean = 1;
		operand->deviation = 0.5;
	}
	if (!is_rms(c))
		make_input(c, MEAN, computing, &leading)->deviation = 0.1;
	operand = make_input(c, place(c, RSTD), computing, &leading);
	operand->mean = 1;
	operand->deviation = 0.1;
	if (with & WITH(DX))
		make_output(c, place(c, DX), dtype, shape);
	for (enum operand sum = DGAMMA; sum <= DBETA; sum++)
		if (with & WITH(sum))
			make_output(c, place(c, sum), dtype, &trailing);
	if (axes != 1)
		make_int(c, "axes", axes);
}

static void name(struct cases_case *c)
{
	make_name(c, is_rms(c) ? "x, dy, gamma?, rstd, dx?, dgamma?, dbeta?"
						   : "x, dy, gamma?, mean, rstd, dx?, dgamma?, dbeta?");
}

static struct cases_case *add(bool rms, kiln_dtype dtype, const struct make_shape *shape, int axes,
							  unsigned with, unsigned flags)
{
	struct cases_case *c = cases_add(rms ? &rms_norm_backward_op : &layer_norm_backward_op, flags);

	operands(c, dtype, shape, axes, with);
	name(c);
	return c;
}

static struct cases_case *add_rows(bool rms, kiln_dtype dtype, int64_t rows, int64_t columns,
								   unsigned with, unsigned flags)
{
	const struct make_shape shape = {2, {rows, columns}};

	return add(rms, dtype, &shape, 1, with, flags);
}

static void add_widths(void)
{
	for (int i = 0; i < make_width_count; i++) {
		int64_t width = make_widths[i], rows = make_rows(width);
		add_rows(i % 4 == 3, KILN_F32, rows, width, i % 3 == 2 ? ALL & ~WITH(DBETA) : ALL, 0);
		add_rows(i % 4 == 1, i % 5 == 4 ? make_float(2 + i % 2) : KILN_F16, rows, width,
				 i % 3 == 0   ? WITH(GAMMA) | WITH(DX)
				 : i % 3 == 1 ? ALL
							  : SUMS,
				 0);
	}
}

/* Rows that come into shared memory, more of them than blocks or clusters have at once. */
static void add_long(void)
{
	static const struct {
		bool rms;
		kiln_dtype dtype;
		int64_t rows, columns;
	} sizes[] = {{true, KILN_BF16, 137, 5632}, {true, KILN_F32, 265, 2688},
				 {false, KILN_F16, 70, 12001}, {false, KILN_F32, 70, 9000},
				 {true, KILN_F16, 61, 29568},  {false, KILN_F32, 31, 28672}};

	for (int i = 0; i < MAKE_COUNT(sizes); i++)
		add_rows(sizes[i].rms, sizes[i].dtype, sizes[i].rows, sizes[i].columns, ALL, 0);
}

/* Every choice of outputs, with and without gamma. */
static void add_subsets(void)
{
	for (int i = 2; i < 32; i++) {
		unsigned with = (i & 1 ? WITH(GAMMA) : 0) | (i & 2 ? WITH(DX) : 0) |
						(i & 4 ? WITH(DGAMMA) : 0) | (i & 8 ? WITH(DBETA) : 0);
		if (i & 14)
			add_rows(i >= 16, make_float(i + i / 4), 50, i % 3 ? 100 : 72, with, 0);
	}
}

/* gamma, dgamma and dbeta of other types than x. */
static void add_mixed(void)
{
	static const kiln_dtype types[][4] = {
		{KILN_F16, KILN_F32, KILN_F32, KILN_F32},    {KILN_BF16, KILN_F32, KILN_F32, KILN_F32},
		{KILN_F16, KILN_F16, KILN_F32, KILN_F32},    {KILN_F16, KILN_F32, KILN_F16, KILN_F32},
		{KILN_BF16, KILN_BF16, KILN_F16, KILN_BF16}, {KILN_F32, KILN_F16, KILN_F16, KILN_F64},
		{KILN_F64, KILN_F32, KILN_F32, KILN_F16},    {KILN_F32, KILN_F64, KILN_F64, KILN_BF16}};
	static const int64_t columns[] = {1024, 96, 1023, 4096};

	for (int i = 0; i < MAKE_COUNT(types); i++) {
		struct cases_case *c = add_rows(i % 4 == 3, types[i][0], 33, columns[i % 4], ALL, 0);
		c->operand[GAMMA].dtype = types[i][1];
		c->operand[place(c, DGAMMA)].dtype = types[i][2];
		c->operand[place(c, DBETA)].dtype = types[i][3];
		name(c);
	}
}

/* None, few and many rows: column sums are their business; no columns; more dimensions. */
static void add_shapes(void)
{
	static const int64_t counts[] = {0, 1, 2, 3, 31, 129, 1000, 4099, 65535, 65536, 70000};
	static const struct {
		struct make_shape shape;
		int axes;
	} shapes[] = {{{3, {5, 6, 33}}, 1},         {{3, {5, 6, 33}}, 2}, {{4, {20, 3, 16, 8}}, 3},
				  {{4, {2, 3, 8, 9}}, 2},       {{2, {6, 50}}, 2},    {{1, {300}}, 1},
				  {{6, {2, 3, 2, 3, 2, 9}}, 3}, {{3, {0, 3, 40}}, 2}, {{2, {5, 0}}, 1},
				  {{3, {4, 1, 65}}, 1},         {{3, {2, 3, 0}}, 2}};

	/* Teams of warps, and parts of warps. */
	static const struct {
		kiln_dtype dtype;
		int64_t rows, columns;
	} warps[] = {{KILN_F16, 401, 2880}, {KILN_BF16, 807, 1536}, {KILN_F32, 271, 576},
				 {KILN_F16, 1003, 172}, {KILN_F32, 77, 3200},   {KILN_F16, 1001, 160},
				 {KILN_F16, 26001, 65}, {KILN_BF16, 33003, 127}};

	for (int i = 0; i < MAKE_COUNT(counts); i++) {
		int64_t columns = counts[i] < 3000 ? 130 - i : 5;
		add_rows(false, make_float(i), counts[i], columns, ALL, 0);
		add_rows(i % 2, make_float(i + 1), counts[i], columns + 1, SUMS, 0);
	}
	add_rows(false, KILN_F32, 70000, 40, ALL, 0);
	add_rows(true, KILN_F16, 20011, 64, ALL, 0);
	for (int i = 0; i < MAKE_COUNT(warps); i++)
		add_rows(i % 2, warps[i].dtype, warps[i].rows, warps[i].columns, ALL, 0);
	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		add(i % 3 == 2, make_float(i), &shapes[i].shape, shapes[i].axes,
			i % 4 == 1 ? ALL & ~WITH(GAMMA) : ALL, 0);
}

static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int axes;
		int64_t stride[4];
	} sources[] = {
		{{2, {9, 1000}}, 1, {1024, 1}},     {{2, {9, 1000}}, 1, {1003, 1}},
		{{2, {9, 500}}, 1, {1001, 2}},      {{2, {40, 70}}, 1, {1, 40}},
		{{2, {11, 129}}, 1, {0, 1}},        {{3, {5, 6, 64}}, 1, {64, 320, 1}},
		{{3, {5, 6, 40}}, 2, {300, 48, 1}}, {{3, {5, 6, 40}}, 2, {240, 1, 6}},
		{{2, {3, 20000}}, 1, {20001, 1}},
	};
	static const int64_t columns[] = {1024, 1022, 1023, 96, 6144};

	for (int i = 0; i < MAKE_COUNT(sources); i++) {
		struct cases_case *c =
			add(i % 3 == 1, make_float(i), &sources[i].shape, sources[i].axes, ALL, 0);
		make_strided(&c->operand[i % 2 ? DY : X], sources[i].stride);
		if (i % 4 == 2)
			make_strided(&c->operand[DY], sources[i].stride);
		name(c);
	}
	/* x, whose columns are not evenly spaced, has no part in dbeta. */
	for (int i = 0; i < 2; i++) {
		static const struct make_shape shape = {5, {1, 2, 32, 8, 2}};
		static const int64_t stride[] = {1, 0, 8, 0, 524};
		struct cases_case *c = add(i, i ? KILN_F16 : KILN_F64, &shape, 3, WITH(DBETA), 0);
		make_strided(&c->operand[X], stride);
		name(c);
	}
	for (int i = 0; i < 2 * MAKE_COUNT(columns); i++) {
		struct cases_case *c =
			add_rows(i % 4 == 3, make_float(i + i / 4), 13, columns[i / 2], ALL, 0);
		for (int k = 0; k < c->operand_count; k++)
			if (c->operand[k].dtype && (i + k) % 3 == 0)
				c->operand[k].offset = k % 2 ? 8 : cases_element(&c->operand[k]);
		if (i % 2)
			c->operand[X].offset = cases_element(&c->operand[X]);
		name(c);
	}
}

static void add_values(void)
{
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = add_rows(i % 4 == 3, make_float(i), 15, i < 4 ? 96 : 1023, ALL, 0);
		c->operand[i % 2 ? DY : X].fill = CASES_UNUSUAL;
		name(c);
	}
	/* x far from 0, and dy that does not sum to about 0. */
	for (int i = 0; i < 4; i++) {
		struct cases_case *c =
			add_rows(i == 3, i == 2 ? KILN_F64 : KILN_F32, 300, i % 2 ? 768 : 129, ALL, 0);
		c->operand[X].mean = i == 3 ? 10 : 1e4;
		c->operand[X].deviation = 1;
		c->operand[DY].mean = 3;
		c->operand[DY].deviation = 1;
		if (i < 3) {
			c->operand[MEAN].mean = 1e4;
			c->operand[MEAN].deviation = 0.05;
		}
		name(c);
	}
}

static void add_timed(void)
{
	const unsigned flags = CASES_BENCH | CASES_BIG;

	add_rows(false, KILN_F16, 49152, 1024, ALL, flags);
	add_rows(false, KILN_F16, 4096, 8192, ALL, flags);
	add_rows(false, KILN_F16, 49152, 1024, SUMS, flags);
	add_rows(false, KILN_F16, 4096, 8192, SUMS, flags);
	add_rows(true, KILN_F16, 4096, 8192, ALL & ~WITH(DBETA), flags);
	add_rows(false, KILN_F32, 16384, 4096, ALL, flags);
}

static void add_all(void)
{
	add_widths();
	add_long();
	add_subsets();
	add_mixed();
	add_shapes();
	add_layouts();
	add_values();
	add_timed();
	/* Beyond 2^31 elements. */
	add_rows(true, KILN_F16, (INT64_C(1) << 25) + 5, 64, ALL & ~WITH(DBETA),
			 CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	unsigned with = (unsigned)make_below(state, 256) & ALL;

	memset(out, 0, sizeof(*out));
	out->op = make_chance(state, 2) ? &rms_norm_backward_op : &layer_norm_backward_op;
	make_random_shape(state, 5, &shape);
	if (!(with & ~WITH(GAMMA)))
		with |= WITH(DX);
	operands(out, make_float(make_below(state, 4)), &shape,
			 1 + (int)make_below(state, shape.rank < 3 ? shape.rank : 3), with);
	make_random_layout(state, &out->operand[X]);
	make_random_layout(state, &out->operand[DY]);
	if (has(out, DX))
		make_random_layout(state, &out->operand[place(out, DX)]);
	for (enum operand i = GAMMA; i <= DBETA; i++)
		if (i != MEAN && i != RSTD && i != DX && has(out, i) && make_chance(state, 2))
			out->operand[place(out, i)].dtype = make_float(make_below(state, 4));
	name(out);
}

const struct cases_op *const norm_backward_ops[] = {&layer_norm_backward_op, &rms_norm_backward_op,
													NULL};
const struct cases_family norm_backward_family = {
	.name = "norm_backward", .add = add_all, .random = add_random};
