/*
 * norm.c: layer_norm and rms_norm over trailing axes: the reference, and what is on the list.
 *
 *   s = x + residual; y = (s - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + eps);
 *   rms_norm: mean is 0.  sum is s rounded once; what is normalized is s itself.
 *
 * How far off a result may be, u being 2^-24 (2^-53 for f64) and |s| the row's mean magnitude:
 *   the mean's own error is at most 16 u |s| (32 beyond 4096 columns): a tree of sums of a few
 *   dozen numbers each; so y is allowed |gamma| * rstd * that, which is what a large offset costs;
 *   rstd is off by 1e-5 at most and by what a wrong mean adds to the variance, its error squared
 *   over the variance; with a residual s was rounded too: by u |s| * rstd more;
 *   and y by 1e-5 * (|gamma * xhat| + |beta|), one ulp more for f16 and bf16.
 * The mean as a result: 1e-5 of |s|.  f64: 1e-12 for 1e-5.  sum: correctly rounded.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op layer_norm_op, rms_norm_op;

enum operand { X, GAMMA, BETA, RESIDUAL, Y, MEAN, RSTD, SUM };

static bool is_rms(const struct cases_case *c)
{
	return c->op == &rms_norm_op;
}

/* The place of an operand: rms_norm has no mean. */
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

struct row {
	int64_t number, columns;
	double *s;
	const double *gamma, *beta;    /* columns of each: ones and zeros where left out */
	double mean, rstd, magnitude;  /* of s: the mean of |s| */
	double mean_error, rstd_error; /* absolute, relative */
};

static double get(const struct reference *r, enum operand operand, int64_t i)
{
	int at = place(r->c, operand);

	return cases_get(r->c->operand[at].dtype, r->memory[at], i);
}

/* Fills row->s. */
static void load(const struct reference *r, int split, struct row *row)
{
	const struct cases_operand *x = &r->c->operand[X], *residual = &r->c->operand[RESIDUAL];
	int64_t at = reference_at(x, 0, split, row->number), other = 0;

	if (has(r->c, RESIDUAL))
		other = reference_at(residual, 0, split, row->number);
	for (int64_t k = 0; k < row->columns; k++) {
		row->s[k] = get(r, X, at + reference_at(x, split, x->rank, k));
		if (has(r->c, RESIDUAL))
			row->s[k] += get(r, RESIDUAL, other + reference_at(residual, split, x->rank, k));
	}
}

static void measure(const struct reference *r, struct row *row)
{
	long double sum = 0, magnitude = 0, squares = 0, mean = 0;
	kiln_dtype dtype = r->c->operand[X].dtype;
	double unit = reference_unit(dtype), count = (double)row->columns;

	for (int64_t k = 0; k < row->columns; k++) {
		sum += row->s[k];
		magnitude += fabs(row->s[k]);
	}
	if (!is_rms(r->c))
		mean = sum / count;
	for (int64_t k = 0; k < row->columns; k++)
		squares += (row->s[k] - mean) * (row->s[k] - mean);
	row->mean = (double)mean;
	row->rstd = (double)(1 / sqrtl(squares / count + reference_real(r->c, "eps", 1e-5)));
	row->magnitude = (double)(magnitude / count);
	row->mean_error = is_rms(r->c) ? 0 : (row->columns > 4096 ? 32 : 16) * unit * row->magnitude;
	row->rstd_error = reference_relative(dtype, 1e-5) +
					  row->mean_error * row->rstd * (row->mean_error * row->rstd);
	if (has(r->c, RESIDUAL) && isfinite(row->magnitude))
		row->rstd_error += unit * row->magnitude * row->rstd;
}

static void answer(const struct reference *r, const struct row *row)
{
	kiln_dtype dtype = r->c->operand[X].dtype;
	double rtol = reference_relative(dtype, 1e-5), unit = reference_unit(dtype);

	for (int64_t k = 0; k < row->columns; k++) {
		double gamma = row->gamma[k], beta = row->beta[k];
		double xhat = (row->s[k] - row->mean) * row->rstd, value = xhat * gamma + beta;
		double of_mean = row->rstd * row->mean_error;
		double of_sum = has(r->c, RESIDUAL) ? row->rstd * unit * fabs(row->s[k]) : 0;
		double allowed = fabs(gamma) * (fabs(xhat) * row->rstd_error + of_mean + of_sum) +
						 rtol * fabs(beta) + reference_rounding(dtype, value);
		reference_value(r, place(r->c, Y), row->number * row->columns + k, value,
						allowed + reference_floor(dtype));
		if (has(r->c, SUM)) /* a little over half an ulp: the reference's own rounding */
			reference_value(r, place(r->c, SUM), row->number * row->columns + k, row->s[k],
							0.5001 * reference_ulp(dtype, row->s[k]));
	}
	/* The definition leaves the mean of a row with an infinity open: infinite, or no number. */
	if (has(r->c, MEAN) &&
		(r->unwritten || !isinf(row->mean) || isfinite(get(r, MEAN, row->number))))
		reference_value(r, MEAN, row->number, row->mean, rtol * row->magnitude);
	if (has(r->c, RSTD))
		reference_value(r, place(r->c, RSTD), row->number, row->rstd, row->rstd * row->rstd_error);
}

static int split_of(const struct cases_case *c)
{
	return c->operand[X].rank - (int)reference_int(c, "axes", 1);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[X];
	int split = split_of(r->c);
	struct row row = {.columns = reference_product(x, split, x->rank)};

	row.s = reference_memory(3 * row.columns, sizeof(*row.s));
	row.gamma = row.s + row.columns;
	row.beta = row.gamma + row.columns;
	for (int64_t k = 0; k < row.columns && first < last; k++) {
		row.s[row.columns + k] = has(r->c, GAMMA) ? get(r, GAMMA, k) : 1;
		row.s[2 * row.columns + k] = has(r->c, BETA) ? get(r, BETA, k) : 0;
	}
	for (row.number = first; row.number < last; row.number++) {
		load(r, split, &row);
		measure(r, &row);
		answer(r, &row);
	}
	free(row.s);
}

static int64_t units(const struct cases_case *c)
{
	return reference_product(&c->operand[X], 0, split_of(c));
}

static const struct cases_op layer_norm_op = {"layer_norm", units, reference};
static const struct cases_op rms_norm_op = {"rms_norm", units, reference};

/* ---- The list ---- */

/* The set of optional operands that are there has a bit for each. */
#define WITH(operand) (1u << (operand))
#define AFFINE (WITH(GAMMA) | WITH(BETA))
#define FUSED (WITH(RESIDUAL) | WITH(SUM))
#define SAVED (WITH(MEAN) | WITH(RSTD))

static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape,
					 int axes, unsigned with)
{
	kiln_dtype computing = dtype == KILN_F64 ? KILN_F64 : KILN_F32;
	struct make_shape leading = *shape, trailing = {.rank = axes};
	int last = is_rms(c) ? SUM - 1 : SUM;

	leading.rank -= axes;
	memcpy(trailing.size, &shape->size[leading.rank], (size_t)axes * sizeof(shape->size[0]));
	for (int i = 0; i <= last; i++)
		make_none(c, i);
	make_input(c, X, dtype, shape);
	if (with & WITH(GAMMA)) {
		struct cases_operand *gamma = make_input(c, GAMMA, dtype, &trailing);
		gamma->mean = 1;
		gamma->deviation = 0.5;
	}
	if (with & WITH(BETA))
		make_input(c, BETA, dtype, &trailing);
	if (with & WITH(RESIDUAL))
		make_input(c, RESIDUAL, dtype, shape);
	make_output(c, Y, dtype, shape);
	if (with & WITH(MEAN) && !is_rms(c))
		make_output(c, MEAN, computing, &leading);
	if (with & WITH(RSTD))
		make_output(c, place(c, RSTD), computing, &leading);
	if (with & WITH(SUM))
		make_output(c, place(c, SUM), dtype, shape);
	if (axes != 1)
		make_int(c, "axes", axes);
}

static void name(struct cases_case *c)
{
	make_name(c, is_rms(c) ? "x, gamma?, beta?, residual?, y, rstd?, sum?"
						   : "x, gamma?, beta?, residual?, y, mean?, rstd?, sum?");
}

static const struct cases_op *op_of(bool rms)
{
	return rms ? &rms_norm_op : &layer_norm_op;
}

static struct cases_case *add(bool rms, kiln_dtype dtype, const struct make_shape *shape, int axes,
							  unsigned with, unsigned flags)
{
	struct cases_case *c = cases_add(op_of(rms), flags);

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
		add_rows(false, KILN_F32, rows, width, i % 3 ? AFFINE : AFFINE | SAVED, 0);
		add_rows(false, KILN_F16, rows, width, i % 4 == 3 ? AFFINE | FUSED : AFFINE, 0);
		add_rows(i % 5 != 4, make_float(i + i / 4), rows, width,
				 i % 3 == 0   ? WITH(GAMMA)
				 : i % 3 == 1 ? WITH(GAMMA) | FUSED
							  : WITH(RSTD),
				 0);
	}
}

/* Every choice of optional operands. */
static void add_subsets(void)
{
	for (int i = 0; i < 72; i++) {
		bool rms = i >= 48;
		unsigned with = (i & 1 ? WITH(GAMMA) : 0) | (i & 2 ? WITH(BETA) : 0) |
						(i & 4 ? WITH(RSTD) : 0) | (!rms && i & 8 ? WITH(MEAN) : 0);
		int fused = rms ? (i - 48) / 8 : i / 16;
		with |= fused == 2 ? FUSED : fused == 1 ? WITH(RESIDUAL) : 0;
		add_rows(rms, make_float(i + i / 4), 9, i % 3 ? 100 : 72, with, 0);
	}
}

/* gamma and beta of another type than x, or than one another. */
static void add_mixed(void)
{
	static const kiln_dtype types[][3] = {
		{KILN_F16, KILN_F32, KILN_F32},   {KILN_BF16, KILN_F32, KILN_F32},
		{KILN_F16, KILN_F32, KILN_F16},   {KILN_F16, KILN_BF16, KILN_F32},
		{KILN_BF16, KILN_BF16, KILN_F32}, {KILN_F32, KILN_F16, KILN_BF16},
		{KILN_F64, KILN_F32, KILN_F16},   {KILN_F32, KILN_F64, KILN_F64}};
	static const int64_t columns[] = {1024, 1023, 96, 6144};

	for (int i = 0; i < 2 * MAKE_COUNT(types); i++) {
		const kiln_dtype *type = types[i / 2];
		struct cases_case *c = add_rows(i % 4 == 3, type[0], 5, columns[(i + i / 4) % 4],
										i % 3 == 2   ? WITH(GAMMA)
										: i % 5 == 4 ? AFFINE | FUSED
													 : AFFINE,
										0);
		c->operand[GAMMA].dtype = type[1];
		if (has(c, BETA))
			c->operand[BETA].dtype = type[2];
		name(c);
	}
}

/* Around the ends of a grid's dimensions, no rows, no columns, more dimensions. */
static void add_shapes(void)
{
	static const int64_t counts[] = {0, 1, 2, 65535, 65536, 70000};
	static const struct {
		struct make_shape shape;
		int axes;
	} shapes[] = {
		{{3, {5, 6, 32}}, 1},
		{{3, {5, 6, 33}}, 2},
		{{3, {5, 16, 64}}, 2},
		{{4, {2, 3, 8, 9}}, 3},
		{{4, {2, 3, 8, 9}}, 2},
		{{4, {7, 3, 16, 16}}, 3},
		{{2, {6, 50}}, 2},
		{{1, {300}}, 1},
		{{3, {2, 3, 40}}, 3},
		{{6, {2, 3, 2, 3, 2, 9}}, 1},
		{{6, {2, 3, 2, 3, 2, 9}}, 3},
		{{3, {4, 1, 65}}, 2},
		{{2, {5, 0}}, 1},
		{{2, {5, 0}}, 2},
		{{3, {2, 3, 0}}, 2},
		{{3, {0, 3, 40}}, 2},
		{{1, {1}}, 1},
	};

	for (int i = 0; i < MAKE_COUNT(counts); i++) {
		add_rows(i % 2, make_float(i), counts[i], 5, i % 3 ? AFFINE : AFFINE | SAVED, 0);
		if (i > 2)
			add_rows(i % 2 == 0, make_float(i), counts[i], 3, WITH(GAMMA) | FUSED, 0);
	}
	add_rows(false, KILN_F16, 70000, 40, AFFINE, 0);
	add_rows(true, KILN_F32, 65537, 33, WITH(GAMMA), 0);
	for (int i = 0; i < MAKE_COUNT(shapes); i++) {
		/* The mean of nothing is nothing to ask for. */
		bool empty = shapes[i].shape.size[shapes[i].shape.rank - 1] == 0;
		add(i % 3 == 2, make_float(i + i / 4), &shapes[i].shape, shapes[i].axes,
			(empty ? 0 : SAVED) | (i % 4 ? AFFINE : 0), 0);
	}
}

static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int axes;
		int64_t stride[4];
	} sources[] = {
		{{2, {9, 1000}}, 1, {1024, 1}},
		{{2, {9, 1000}}, 1, {1003, 1}},
		{{2, {9, 500}}, 1, {1001, 2}},
		{{2, {40, 70}}, 1, {1, 40}},
		{{2, {11, 129}}, 1, {0, 1}},
		{{3, {5, 6, 64}}, 1, {64, 320, 1}},
		{{3, {5, 6, 65}}, 1, {0, 72, 1}},
		{{3, {5, 6, 40}}, 2, {300, 48, 1}}, /* columns in pieces */
		{{3, {5, 6, 40}}, 2, {240, 1, 6}},  /* ... turned */
		{{4, {2, 3, 4, 130}}, 1, {1584, 132, 396, 1}},
		{{2, {3, 9000}}, 1, {9008, 1}},
		{{2, {2, 33000}}, 1, {33001, 1}},
		{{2, {40, 263}}, 1, {268, 1}},
		{{2, {40, 449}}, 1, {898, 1}},
	};
	static const int64_t columns[] = {1024, 1022, 1023, 96, 6144, 40000, 129};
	static const int64_t whole[] = {128, 256, 768, 1024, 2048, 3072};

	/* Whole vectors whose gamma or beta begins within a word. */
	for (int i = 0; i < 2 * MAKE_COUNT(whole); i++) {
		struct cases_case *c =
			add_rows(false, i / 2 % 2 ? KILN_BF16 : KILN_F16, 9, whole[i / 2], AFFINE, 0);
		c->operand[i % 2 ? GAMMA : BETA].offset = 2;
		name(c);
	}
	for (int i = 0; i < MAKE_COUNT(sources); i++) {
		struct cases_case *c = add(i % 3 == 1, make_float(i), &sources[i].shape, sources[i].axes,
								   i % 2 ? AFFINE | FUSED : AFFINE, 0);
		make_strided(&c->operand[X], sources[i].stride);
		if (i % 4 == 3)
			make_strided(&c->operand[RESIDUAL], sources[i].stride);
		name(c);
	}
	for (int i = 0; i < 2 * MAKE_COUNT(columns); i++) {
		struct cases_case *c = add_rows(i % 4 == 3, make_float(i), 5, columns[i / 2],
										i % 3 ? AFFINE : AFFINE | FUSED | SAVED, 0);
		for (int k = 0; k < c->operand_count; k++)
			if (c->operand[k].dtype && (i + k) % 3 == 0)
				c->operand[k].offset = k % 2 ? 8 : cases_element(&c->operand[k]);
		if (i % 2)
			c->operand[X].offset = cases_element(&c->operand[X]);
		name(c);
	}
}

/* Values far from 0, constant rows, eps, NaN and infinities. */
static void add_values(void)
{
	static const struct {
		kiln_dtype dtype;
		int64_t columns;
		double mean, deviation, eps;
	} values[] = {
		{KILN_F32, 768, 1e4, 1, 1e-5},   {KILN_F32, 1023, 1e4, 1, 1e-12},
		{KILN_F32, 4096, 1e4, 1, 1e-5},  {KILN_F32, 40000, 1e4, 1, 1e-5},
		{KILN_F32, 64, -3e4, 0.5, 1e-5}, {KILN_F16, 1024, 1000, 2, 1e-5},
		{KILN_BF16, 513, 100, 1, 1e-5},  {KILN_F64, 1000, 1e8, 1, 1e-5},
		{KILN_F32, 1000, 3, 0, 1e-5},    {KILN_F16, 100, 0.1, 0, 1},
		{KILN_F32, 128, 0, 1e-4, 1e-5},  {KILN_F32, 128, 0, 1, 0},
		{KILN_F16, 96, 0, 1, 1e-12},     {KILN_F64, 65, 0, 1, 0},
		{KILN_BF16, 64, 0, 1, 1},        {KILN_F32, 33, 0, 1e-3, 1e-12},
		{KILN_F64, 500, 0, 1.2e-154, 0}, /* its variance is below the normal numbers */
	};

	for (int i = 0; i < 2 * MAKE_COUNT(values); i++) {
		bool rms = i % 2;
		if (rms && i / 2 % 3)
			continue;
		struct cases_case *c =
			add_rows(rms, values[i / 2].dtype, 6, values[i / 2].columns, AFFINE | SAVED, 0);
		c->operand[X].mean = values[i / 2].mean;
		c->operand[X].deviation = values[i / 2].deviation;
		if (values[i / 2].eps != 1e-5)
			make_real(c, "eps", values[i / 2].eps);
		name(c);
	}
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = add_rows(i % 3 == 2, make_float(i + i / 4), 15, i % 2 ? 1023 : 96,
										AFFINE | SAVED | (i % 4 == 1 ? FUSED : 0), 0);
		c->operand[X].fill = CASES_UNUSUAL;
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {64, 256, 768, 1024, 4096, 8192, 32768, 131072};
	const unsigned flags = CASES_BENCH | CASES_BIG;
	const int64_t all = 1 << 28;

	for (int i = 0; i < MAKE_COUNT(columns); i++) {
		add_rows(false, KILN_F32, all / columns[i], columns[i], AFFINE, flags);
		add_rows(false, KILN_F16, all / columns[i], columns[i], AFFINE, flags);
	}
	add_rows(false, KILN_F16, all / 1022, 1022, AFFINE, flags);
	add_rows(false, KILN_F16, all / 1023, 1023, AFFINE, flags);
	for (int i = 3; i < 6; i++)
		add_rows(true, KILN_F16, all / columns[i], columns[i], WITH(GAMMA), flags);
	add_rows(true, KILN_F16, all / 4096, 4096, WITH(GAMMA) | FUSED, flags);
}

static void add_all(void)
{
	add_widths();
	add_subsets();
	add_mixed();
	add_shapes();
	add_layouts();
	add_values();
	add_timed();
	/* Beyond 2^31 elements. */
	add_rows(true, KILN_F16, (INT64_C(1) << 25) + 5, 64, WITH(GAMMA), CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	unsigned with = (unsigned)make_below(state, 256) & (AFFINE | FUSED | SAVED);
	int axes;

	memset(out, 0, sizeof(*out));
	out->op = op_of(make_chance(state, 2));
	make_random_shape(state, 5, &shape);
	axes = 1 + (int)make_below(state, shape.rank < 3 ? shape.rank : 3);
	if (!(with & WITH(RESIDUAL)))
		with &= ~WITH(SUM);
	if (axes == shape.rank && shape.size[0] == 0)
		with &= ~SAVED;
	operands(out, make_float(make_below(state, 4)), &shape, axes, with);
	for (int i = 0; i < out->operand_count; i++) {
		struct cases_operand *operand = &out->operand[i];
		if (i == GAMMA || i == BETA) {
			if (operand->dtype && make_chance(state, 2))
				operand->dtype = make_float(make_below(state, 4));
		} else {
			make_random_layout(state, operand);
		}
	}
	if (make_chance(state, 3))
		make_real(out, "eps", make_chance(state, 2) ? 1e-3 : 1);
	name(out);
}

const struct cases_op *const norm_ops[] = {&layer_norm_op, &rms_norm_op, NULL};
const struct cases_family norm_family = {.name = "norm", .add = add_all, .random = add_random};
