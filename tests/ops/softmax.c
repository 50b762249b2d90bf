/*
 * softmax.c: softmax and log_softmax over one axis, and their backward: the reference, and
 * what is on the list.
 *
 *   softmax               y = exp(z - most) / sum, z = scale * x; no number when z holds NaN, +inf
 *                         or nothing but -inf
 *   log_softmax           y = z - most - log(sum)
 *   softmax_backward      dx = scale * y * (dy - sum(dy * y))
 *   log_softmax_backward  dx = scale * (dy - exp(y) * sum(dy))
 *
 * How far off a result may be: softmax as reference.c says.  log_softmax: both terms of y are
 * at most 0, so nothing cancels, and the sum's relative error is the logarithm's absolute one: rtol
 * times |y|, at least rtol.  Backward: what is subtracted may cancel, so f32's 1e-5 is relative to
 * the terms' magnitudes, |scale| * |y| * (|dy| + sum|dy * y|), log: |scale| * (|dy| + exp(y) *
 * sum|dy|), where the argument y of exp was rounded.  f64: 1e-12.  f16 and bf16: one ulp besides.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op softmax_op, log_softmax_op, softmax_backward_op,
	log_softmax_backward_op;

static bool is_log(const struct cases_case *c)
{
	return c->op == &log_softmax_op || c->op == &log_softmax_backward_op;
}

static bool is_backward(const struct cases_case *c)
{
	return c->op == &softmax_backward_op || c->op == &log_softmax_backward_op;
}

/* ---- The reference ---- */

/* A line of an operand: where it starts and how far apart its elements are. */
struct line {
	int64_t first, step;
};

static struct line line_of(const struct cases_operand *operand, int axis, int64_t unit)
{
	int64_t inner = reference_product(operand, axis + 1, operand->rank);
	struct line line = {.step = operand->stride[axis]};

	line.first = reference_at(operand, 0, axis, unit / inner) +
				 reference_at(operand, axis + 1, operand->rank, unit % inner);
	return line;
}

static void forward(const struct reference *r, int axis, int64_t unit, struct reference_row *row)
{
	const struct cases_operand *x = &r->c->operand[0], *y = &r->c->operand[1];
	struct line from = line_of(x, axis, unit), to = line_of(y, axis, unit);
	double rtol = reference_relative(x->dtype, row->count > 4096 ? 1e-5 : 2e-6);
	double value, allowed;

	for (int64_t k = 0; k < row->count; k++)
		row->z[k] =
			(long double)row->scale * cases_get(x->dtype, r->memory[0], from.first + k * from.step);
	reference_softmax(row);
	for (int64_t k = 0; k < row->count; k++) {
		if (!is_log(r->c)) {
			value = reference_softmax_value(row, x->dtype, k, &allowed);
		} else {
			value = row->nan ? NAN : (double)(row->z[k] - row->most - logl(row->sum));
			allowed = rtol * fmax(fabs(value), 1) + reference_rounding(x->dtype, value);
		}
		reference_value(r, 1, to.first + k * to.step, value, allowed);
	}
}

/* y and dy have room for a row. */
static void backward(const struct reference *r, int axis, int64_t unit, int64_t count, double *y,
					 double *dy)
{
	const struct cases_operand *operand = r->c->operand;
	struct line from = line_of(&operand[0], axis, unit), other = line_of(&operand[1], axis, unit);
	struct line to = line_of(&operand[2], axis, unit);
	kiln_dtype dtype = operand[0].dtype;
	double scale = reference_real(r->c, "scale", 1), rtol = reference_relative(dtype, 1e-5);
	double unit_error = reference_unit(dtype), value, terms, allowed;
	long double sum = 0, magnitude = 0;
	bool logarithm = is_log(r->c);

	for (int64_t k = 0; k < count; k++) {
		y[k] = cases_get(dtype, r->memory[0], from.first + k * from.step);
		dy[k] = cases_get(dtype, r->memory[1], other.first + k * other.step);
		sum += logarithm ? dy[k] : (long double)dy[k] * y[k];
		magnitude += fabs(logarithm ? dy[k] : dy[k] * y[k]);
	}
	for (int64_t k = 0; k < count; k++) {
		if (logarithm) {
			double p = exp(y[k]);
			value = (double)(scale * (dy[k] - p * sum));
			terms =
				rtol * fabs(dy[k]) + (rtol + 2 * unit_error * fabs(y[k])) * p * (double)magnitude;
		} else {
			value = (double)(scale * y[k] * (dy[k] - sum));
			terms = rtol * fabs(y[k]) * (fabs(dy[k]) + (double)magnitude);
		}
		allowed = fabs(scale) * terms + reference_rounding(dtype, value) + reference_floor(dtype);
		reference_value(r, 2, to.first + k * to.step, value, allowed);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	int axis = reference_axis(r->c);
	struct reference_row row = {.count = r->c->operand[0].shape[axis],
								.scale = reference_real(r->c, "scale", 1)};
	double *two = NULL;

	if (is_backward(r->c))
		two = reference_memory(2 * row.count, sizeof(*two));
	else
		row.z = reference_memory(row.count, sizeof(*row.z));
	for (int64_t unit = first; unit < last; unit++)
		if (two)
			backward(r, axis, unit, row.count, two, two + row.count);
		else
			forward(r, axis, unit, &row);
	free(two);
	free(row.z);
}

static const struct cases_op softmax_op = {"softmax", reference_lines, reference};
static const struct cases_op log_softmax_op = {"log_softmax", reference_lines, reference};
static const struct cases_op softmax_backward_op = {"softmax_backward", reference_lines, reference};
static const struct cases_op log_softmax_backward_op = {"log_softmax_backward", reference_lines,
														reference};

/* ---- The list ---- */

static const struct cases_op *const ops[] = {&softmax_op, &log_softmax_op, &softmax_backward_op,
											 &log_softmax_backward_op};

static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape)
{
	if (is_backward(c)) {
		make_input(c, 0, dtype, shape)->fill = is_log(c) ? CASES_LOGARITHM : CASES_PROBABLE;
		make_input(c, 1, dtype, shape);
		make_output(c, 2, dtype, shape);
	} else {
		make_input(c, 0, dtype, shape);
		make_output(c, 1, dtype, shape);
	}
}

static void name(struct cases_case *c)
{
	make_name(c, is_backward(c) ? "y, dy, dx" : "x, y");
}

static struct cases_case *add(const struct cases_op *op, kiln_dtype dtype,
							  const struct make_shape *shape, unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	operands(c, dtype, shape);
	name(c);
	return c;
}

static struct cases_case *add_rows(const struct cases_op *op, kiln_dtype dtype, int64_t rows,
								   int64_t columns, unsigned flags)
{
	const struct make_shape shape = {2, {rows, columns}};

	return add(op, dtype, &shape, flags);
}

static void add_widths(void)
{
	for (int i = 0; i < make_width_count; i++) {
		int64_t width = make_widths[i], rows = make_rows(width);
		add_rows(&softmax_op, KILN_F32, rows, width, 0);
		add_rows(&softmax_op, KILN_F16, rows, width, 0);
		add_rows(i % 3 ? &softmax_backward_op : &log_softmax_backward_op, make_float(i / 2), rows,
				 width, 0);
		if (i % 3 == 1)
			add_rows(i % 2 ? &log_softmax_op : &softmax_op, make_float(2 + i / 6 % 2), rows, width,
					 0);
	}
}

/* Around the ends of a grid's dimensions, and next to none. */
static void add_row_counts(void)
{
	static const int64_t counts[] = {0, 1, 2, 5, 65535, 65536, 70000};

	for (int i = 0; i < MAKE_COUNT(counts); i++)
		add_rows(ops[i % 3], make_float(i), counts[i], 5 - i / 3, 0);
	add_rows(&softmax_op, KILN_F32, 70000, 1, 0);
	add_rows(&log_softmax_backward_op, KILN_F16, 0, 3, 0);
	add_rows(&softmax_op, KILN_F16, 70000, 40, 0);
	add_rows(&softmax_backward_op, KILN_F32, 65537, 33, 0);
	add_rows(&softmax_op, KILN_F32, 1, 1023, 0);
	add_rows(&softmax_op, KILN_F16, 1, 20000, 0);
	for (int i = 0; i < 4; i++)
		add_rows(ops[i], make_float(i), 4, 0, 0);
}

static void add_offsets(void)
{
	static const struct {
		int64_t columns;
		uint32_t x, y; /* elements */
	} places[] = {{1024, 1, 0}, {1024, 0, 1}, {1022, 1, 1}, {1023, 1, 2},
				  {4096, 2, 2}, {96, 3, 1},   {6144, 1, 1}, {40000, 1, 0}};

	for (int i = 0; i < MAKE_COUNT(places); i++) {
		for (int k = 0; k < 2; k++) {
			const struct cases_op *op = ops[k ? (i % 3) + 1 : 0];
			kiln_dtype dtype = k ? make_float(i) : i % 2 ? KILN_F16 : KILN_F32;
			struct cases_case *c = add_rows(op, dtype, 5, places[i].columns, 0);
			uint32_t element = cases_element(&c->operand[0]), bytes = places[i].x * element;
			c->operand[0].offset = bytes % 16;
			c->operand[c->operand_count - 1].offset = places[i].y * element % 16;
			if (is_backward(c))
				c->operand[1].offset = i % 2 ? bytes % 16 : 8;
			name(c);
		}
	}
}

static void add_strided(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[4];
	} sources[] = {
		{{2, {9, 1000}}, {1024, 1}},                /* rows of a wider matrix */
		{{2, {9, 1000}}, {1003, 1}},                /* ... of an odd one */
		{{2, {9, 33}}, {35, 1}},                    /* */
		{{2, {9, 500}}, {1001, 2}},                 /* every other column */
		{{2, {40, 70}}, {1, 40}},                   /* columns of memory */
		{{2, {11, 129}}, {0, 1}},                   /* one row, repeated */
		{{2, {11, 129}}, {1, 0}},                   /* one number, repeated */
		{{3, {5, 6, 64}}, {64, 320, 1}},            /* outer dimensions permuted */
		{{3, {5, 6, 65}}, {0, 72, 1}},              /* planes repeated */
		{{4, {2, 3, 4, 130}}, {1584, 132, 396, 1}}, /* heads and rows permuted, pitched */
		{{2, {3, 9000}}, {9008, 1}},
		{{2, {2, 33000}}, {33001, 1}},
		{{3, {4, 1, 96}}, {128, 77, 1}}, /* the stride of a single row means nothing */
	};

	for (int i = 0; i < MAKE_COUNT(sources); i++) {
		for (int k = 0; k < 1 + i % 2; k++) {
			const struct cases_op *op = k ? ops[(i % 3) + 1] : &softmax_op;
			struct cases_case *c = cases_add(op, 0);
			operands(c, make_float(i + k), &sources[i].shape);
			make_strided(&c->operand[0], sources[i].stride);
			if (is_backward(c) && i % 2)
				make_strided(&c->operand[1], sources[i].stride);
			name(c);
		}
	}
}

/* Another axis, too long for the registers of the threads that share it. */
static void add_panels(void)
{
	static const struct {
		struct make_shape shape;
		int op;
		kiln_dtype dtype;
		enum cases_fill fill;
	} panels[] = {
		{{3, {2, 300, 40}}, 0, KILN_F16, CASES_UNUSUAL},
		{{3, {3, 49, 137}}, 0, KILN_F16, CASES_UNUSUAL},
		{{3, {2, 129, 45}}, 1, KILN_BF16, 0},
		{{3, {2, 150, 27}}, 2, KILN_F16, 0},
		{{3, {3, 301, 17}}, 3, KILN_F32, 0},
		{{3, {2, 4000, 8}}, 0, KILN_F16, 0},
		{{3, {2, 5000, 12}}, 2, KILN_F32, CASES_UNUSUAL},
		{{2, {9000, 33}}, 1, KILN_BF16, 0},
		/* Few columns. */
		{{3, {3, 49, 200}}, 0, KILN_BF16, CASES_UNUSUAL},
		{{3, {2, 19, 1104}}, 1, KILN_F16, 0},
		{{3, {5, 34, 64}}, 0, KILN_F32, 0},
		{{3, {2, 54, 1463}}, 1, KILN_BF16, 0},
		{{3, {2, 17, 2303}}, 0, KILN_F32, CASES_UNUSUAL},
		/* Rows that begin anywhere: one panel, or several; fewer columns than threads. */
		{{3, {3, 77, 1003}}, 1, KILN_F16, 0},
		{{3, {2, 70, 397}}, 0, KILN_F16, 0},
		{{3, {2, 65, 541}}, 2, KILN_F16, CASES_UNUSUAL},
		{{3, {2, 903, 403}}, 0, KILN_F16, CASES_UNUSUAL},
		{{3, {2, 100, 333}}, 0, KILN_F32, CASES_UNUSUAL},
		{{3, {5, 80, 260}}, 3, KILN_BF16, 0},
		{{2, {90, 35}}, 0, KILN_F64, 0},
		{{3, {3, 71, 129}}, 2, KILN_F64, 0},
		{{3, {2, 700, 77}}, 2, KILN_F32, 0},
		/* Matrices that lie in one piece each, one after another: more than all blocks have slots
		 * for; by clusters of blocks. */
		{{3, {670, 101, 83}}, 0, KILN_F32, 0},
		{{3, {40, 700, 93}}, 1, KILN_F16, CASES_UNUSUAL},
		{{3, {17, 1501, 117}}, 0, KILN_BF16, 0},
		{{3, {70, 301, 59}}, 0, KILN_F32, CASES_UNUSUAL},
		{{3, {9, 50, 531}}, 1, KILN_BF16, 0},
		/* Small ones. */
		{{3, {2300, 77, 57}}, 0, KILN_F16, CASES_UNUSUAL},
		{{3, {1100, 196, 47}}, 1, KILN_BF16, 0},
		{{3, {41, 197, 41}}, 0, KILN_F16, 0},
	};

	for (int i = 0; i < MAKE_COUNT(panels); i++) {
		struct cases_case *c = cases_add(ops[panels[i].op], 0);
		operands(c, panels[i].dtype, &panels[i].shape);
		if (panels[i].fill)
			c->operand[is_backward(c)].fill = panels[i].fill;
		make_int(c, "axis", panels[i].shape.rank - 2);
		name(c);
	}
}

/* Another axis of sources whose columns are further apart. */
static void add_pitched(void)
{
	/* Rows begin as far beyond a vector as results, and elsewhere. */
	static const struct {
		struct make_shape shape;
		int64_t pitch;
		enum cases_fill fill;
	} sources[] = {
		{{3, {3, 80, 45}}, 61, 0},     {{3, {3, 80, 45}}, 58, CASES_UNUSUAL},
		{{3, {2, 67, 1003}}, 1010, 0}, {{3, {2, 66, 397}}, 794, CASES_UNUSUAL},
		{{3, {5, 33, 76}}, 81, 0},     {{3, {2, 901, 397}}, 403, CASES_UNUSUAL},
	};

	for (int i = 0; i < 4 * MAKE_COUNT(sources); i++) {
		const struct make_shape *shape = &sources[i / 4].shape;
		const int64_t apart[] = {shape->size[1] * sources[i / 4].pitch, sources[i / 4].pitch, 1};
		struct cases_case *c = cases_add(ops[i % 4], 0);
		operands(c, make_float(i % 4 + i / 4), shape);
		make_strided(&c->operand[0], apart);
		if (sources[i / 4].fill)
			c->operand[is_backward(c)].fill = sources[i / 4].fill;
		make_int(c, "axis", 1);
		name(c);
	}
}

/* Another axis than the last, ranks, single sizes. */
static void add_axes(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
	} axes[] = {
		{{2, {1, 40}}, 0},
		{{2, {2, 40}}, 0},
		{{2, {7, 33}}, 0},
		{{2, {33, 7}}, -2},
		{{2, {128, 3}}, 0},
		{{2, {1000, 2}}, -2},
		{{2, {1000, 64}}, 0},
		{{2, {100, 1000}}, 0},
		{{3, {3, 33, 1}}, 1},
		{{3, {3, 128, 2}}, 1},
		{{3, {5, 7, 3}}, -2},
		{{3, {4, 33, 31}}, 1},
		{{3, {4, 128, 32}}, -2},
		{{3, {2, 1000, 33}}, 1},
		{{3, {2, 2, 1000}}, 1},
		{{3, {3, 128, 64}}, 0},
		{{3, {1, 5000, 3}}, 1},
		{{4, {2, 3, 5, 7}}, 1},
		{{4, {2, 19, 8, 8}}, 1},
		{{4, {3, 5, 16, 4}}, 2},
		{{5, {2, 3, 4, 5, 6}}, 2},
		{{6, {2, 3, 2, 3, 2, 9}}, 5},
		{{6, {2, 3, 2, 5, 2, 3}}, -4},
		{{1, {777}}, 0},
		{{1, {1}}, -1},
		{{4, {3, 1, 33, 1}}, 2},
		{{3, {4, 0, 3}}, 1},
		{{3, {0, 6, 3}}, 1},
		{{8, {2, 1, 3, 1, 2, 2, 1, 5}}, 2},
	};
	static const int64_t channels_last[] = {19 * 64, 1, 8 * 19, 19};

	for (int i = 0; i < MAKE_COUNT(axes); i++) {
		for (int k = 0; k < 1 + (i % 5 == 1); k++) {
			struct cases_case *c = cases_add(k ? ops[(i % 3) + 1] : &softmax_op, 0);
			operands(c, make_float(i + i / 4 + k), &axes[i].shape);
			make_int(c, "axis", axes[i].axis);
			name(c);
		}
	}
	for (int k = 0; k < 3; k++) {
		struct cases_case *c = cases_add(ops[k], 0);
		operands(c, make_float(k), &axes[18].shape);
		make_strided(&c->operand[0], channels_last);
		make_int(c, "axis", 1);
		name(c);
	}
	add_panels();
	add_pitched();
}

/* Contents of rows, scales, and numbers far from 0 or far apart. */
static void add_values(void)
{
	static const double scales[] = {0.125, -2, 0, 3.7, 1. / 3};
	static const struct {
		kiln_dtype dtype;
		double mean, deviation;
	} ranges[] = {{KILN_F32, 1e4, 1},   {KILN_F32, 0, 1e10}, {KILN_F32, 0, 1e30},
				  {KILN_BF16, 0, 1e30}, {KILN_F16, 0, 1e4},  {KILN_F64, 0, 1e200},
				  {KILN_F32, -300, 20}, {KILN_F64, 1e4, 1},  {KILN_F16, 1000, 2}};
	static const int64_t columns[] = {96, 1023, 5000, 3, 1024};

	for (int i = 0; i < MAKE_COUNT(scales); i++) {
		for (int k = 0; k < 4; k += 2 - i % 2) {
			struct cases_case *c = cases_add(ops[k], 0);
			const struct make_shape shape = {2, {13, columns[(i + k) % 5]}};
			operands(c, i == 4 ? KILN_F64 : make_float(i + k), &shape);
			make_real(c, "scale", scales[i]);
			name(c);
		}
	}
	for (int i = 0; i < 2 * MAKE_COUNT(ranges); i++) {
		struct cases_case *c = add_rows(ops[i % 2], ranges[i / 2].dtype, 9, columns[i % 5], 0);
		c->operand[0].mean = ranges[i / 2].mean;
		c->operand[0].deviation = ranges[i / 2].deviation;
		name(c);
	}
	/* Exponents that no sum of one operation holds. */
	for (int i = 0; i < 2; i++) {
		struct cases_case *c = add_rows(&softmax_op, KILN_F16, 9, 1023 + i, 0);
		c->operand[0].deviation = 1e4;
		make_real(c, "scale", i ? -40 : 40);
		name(c);
	}
	/* Factors of exponents of 2 beyond the largest number. */
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = add_rows(ops[i % 2], make_float(i / 2), 9, 101, 0);
		make_real(c, "scale", make_float(i / 2) == KILN_F64 ? 1.7e308 : i < 4 ? 3e38 : -3e38);
		name(c);
	}
	for (int i = 0; i < 16; i++) {
		struct cases_case *c = add_rows(ops[i % 4], make_float(i / 4 + i), 15, columns[i / 4], 0);
		c->operand[is_backward(c)].fill = CASES_UNUSUAL;
		if (i >= 14)
			make_real(c, "scale", -2);
		name(c);
	}
	struct cases_case *c = add(&softmax_op, KILN_F32, &(struct make_shape){3, {7, 10, 40}}, 0);
	c->operand[0].fill = CASES_UNUSUAL;
	make_int(c, "axis", 1);
	name(c);
}

static void add_timed(void)
{
	static const int64_t columns[] = {64, 256, 768, 1024, 4096, 8192, 32768, 131072};
	const unsigned flags = CASES_BENCH | CASES_BIG;
	const int64_t all = 1 << 28;

	for (int i = 0; i < MAKE_COUNT(columns); i++) {
		add_rows(&softmax_op, KILN_F32, all / columns[i], columns[i], flags);
		add_rows(&softmax_op, KILN_F16, all / columns[i], columns[i], flags);
	}
	add_rows(&softmax_op, KILN_F16, all / 1022, 1022, flags);
	add_rows(&softmax_op, KILN_F16, all / 1023, 1023, flags);
	add_rows(&log_softmax_op, KILN_F16, all / 1024, 1024, flags);
	add_rows(&log_softmax_op, KILN_F16, all / 32000, 32000, flags);
	for (int i = 0; i < 3; i++) {
		static const int64_t widths[] = {1024, 8192, 32768};
		add_rows(&softmax_backward_op, KILN_F16, all / widths[i], widths[i], flags);
		add_rows(&softmax_backward_op, KILN_F32, all / widths[i], widths[i], flags);
	}
	for (int i = 0; i < 6; i++) {
		static const struct make_shape shapes[] = {{3, {64, 1000, 4096}}, {3, {16, 4096, 4096}}};
		struct cases_case *c = cases_add(i < 4 ? &softmax_op : &softmax_backward_op, flags);
		operands(c, make_float(i % 2), &shapes[i / 2 % 2]);
		make_int(c, "axis", 1);
		name(c);
	}
}

static void add_all(void)
{
	add_widths();
	add_row_counts();
	add_offsets();
	add_strided();
	add_axes();
	add_values();
	add_timed();
	/* Beyond 2^31 elements. */
	add_rows(&softmax_op, KILN_F16, (INT64_C(1) << 25) + 5, 64, CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;

	memset(out, 0, sizeof(*out));
	out->op = ops[make_chance(state, 2) ? 0 : make_below(state, 4)];
	make_random_shape(state, 5, &shape);
	operands(out, make_float(make_below(state, 4)), &shape);
	for (int i = 0; i < out->operand_count; i++)
		make_random_layout(state, &out->operand[i]);
	if (make_chance(state, 2))
		make_int(out, "axis", make_below(state, 2 * shape.rank) - shape.rank);
	if (make_chance(state, 2))
		make_real(out, "scale", make_random_scale(state));
	name(out);
}

const struct cases_op *const softmax_ops[] = {&softmax_op, &log_softmax_op, &softmax_backward_op,
											  &log_softmax_backward_op, NULL};
const struct cases_family softmax_family = {
	.name = "softmax", .add = add_all, .random = add_random};
