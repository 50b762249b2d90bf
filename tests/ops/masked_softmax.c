/*
 * masked_softmax.c: softmax over the elements of a row that are not masked, and its backward: the
 * reference, and the list of cases.
 *
 *   y = 0 where masked, else the softmax of scale * x over the others; whatever a masked element
 *   holds is not looked at.  A row with nothing left: zeros, NaN or 1 / columns everywhere, by the
 *   attribute `empty`.  dx = scale * y * (dy - sum(dy * y)), the sum over the others; 0 where
 *   masked.
 *
 * These elements are masked, by kind: bool: where the mask is not 0 (keep 1: where it is 0).
 * lengths: columns from the length on.  causal: columns beyond query + diagonal.  additive: the
 * mask is added to scale * x, and -inf masks, as nothing can be added that would bring the element
 * back; backward knows no additive mask and looks at y and dy everywhere.
 *
 * Errors are softmax's; masked elements are exactly 0.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op masked_softmax_op, masked_softmax_backward_op;

static bool is_backward(const struct cases_case *c)
{
	return c->op == &masked_softmax_backward_op;
}

/* ---- The reference ---- */

static const struct cases_operand *mask_of(const struct cases_case *c)
{
	return &c->operand[is_backward(c) ? 2 : 1];
}

/* The offset of the mask's element for row number `row` of x, in the mask's first `dims`
 * dimensions, which are aligned with x's leading dimensions from the last of them on. */
static int64_t mask_row(const struct cases_case *c, int dims, int64_t row)
{
	const struct cases_operand *x = &c->operand[0], *mask = mask_of(c);
	int64_t at = 0;

	for (int k = x->rank - 2, m = dims - 1; m >= 0; k--, m--) {
		if (mask->shape[m] != 1)
			at += row % x->shape[k] * mask->stride[m];
		row /= x->shape[k];
	}
	return at;
}

static void live_bool(const struct cases_case *c, const void *memory, int64_t row, int64_t columns,
					  bool *live)
{
	const struct cases_operand *mask = mask_of(c);
	bool keep = reference_int(c, "keep", 0) != 0;
	int64_t at = mask_row(c, mask->rank - 1, row), step = 0;

	if (mask->rank && mask->shape[mask->rank - 1] != 1)
		step = mask->stride[mask->rank - 1];
	for (int64_t k = 0; k < columns; k++)
		live[k] = (cases_get(mask->dtype, memory, at + k * step) != 0) == keep;
}

/* Marks the elements of a row that are not masked; finds what additive masks add. */
static void live_elements(const struct reference *r, int64_t row, int64_t columns, bool *live,
						  double *added)
{
	const struct cases_case *c = r->c;
	const struct cases_operand *x = &c->operand[0], *mask = mask_of(c);
	const void *memory = r->memory[is_backward(c) ? 2 : 1];

	if (reference_is(c, "kind", "bool")) {
		live_bool(c, memory, row, columns, live);
	} else if (reference_is(c, "kind", "lengths")) {
		double length = cases_get(mask->dtype, memory, mask_row(c, mask->rank, row));
		for (int64_t k = 0; k < columns; k++)
			live[k] = (double)k < length;
	} else if (reference_is(c, "kind", "causal")) {
		int64_t query = x->rank > 1 ? row % x->shape[x->rank - 2] : 0;
		for (int64_t k = 0; k < columns; k++)
			live[k] = k <= query + reference_int(c, "diagonal", 0);
	} else if (is_backward(c)) {
		for (int64_t k = 0; k < columns; k++)
			live[k] = true;
	} else {
		int64_t at = mask_row(c, mask->rank - 1, row), step = 0;
		if (mask->rank && mask->shape[mask->rank - 1] != 1)
			step = mask->stride[mask->rank - 1];
		for (int64_t k = 0; k < columns; k++) {
			added[k] = cases_get(mask->dtype, memory, at + k * step);
			live[k] = !(isinf(added[k]) && added[k] < 0);
		}
	}
}

/* The row's place in an operand of x's shape. */
static int64_t row_at(const struct cases_operand *operand, int64_t row)
{
	return reference_at(operand, 0, operand->rank - 1, row);
}

static void forward(const struct reference *r, int64_t row, struct reference_row *work, bool *live,
					double *added)
{
	const struct cases_operand *x = &r->c->operand[0];
	int64_t at = row_at(x, row), step = x->stride[x->rank - 1], to = row * work->count;
	bool additive = reference_is(r->c, "kind", "additive");
	double empty = reference_is(r->c, "empty", "nan")       ? NAN
				   : reference_is(r->c, "empty", "uniform") ? 1 / (double)work->count
															: 0;

	live_elements(r, row, work->count, live, added);
	for (int64_t k = 0; k < work->count; k++) {
		double value = cases_get(x->dtype, r->memory[0], at + k * step);
		work->z[k] = (long double)work->scale * value;
		if (additive) {
			work->z[k] += added[k];
			added[k] = fabs(added[k]) + fabs(work->scale * value);
		}
	}
	work->live = live;
	work->added = additive ? added : NULL;
	reference_softmax(work);
	for (int64_t k = 0; k < work->count; k++) {
		double allowed, value = reference_softmax_value(work, x->dtype, k, &allowed);
		if (work->lives == 0) {
			value = empty;
			allowed = empty > 0 ? reference_relative(x->dtype, 2e-6) * empty +
									  reference_rounding(x->dtype, empty)
								: 0;
		}
		reference_value(r, 2, to + k, value, allowed);
	}
}

/* y and dy have room for a row. */
static void backward(const struct reference *r, int64_t row, int64_t columns, bool *live, double *y,
					 double *dy)
{
	const struct cases_operand *operand = r->c->operand;
	kiln_dtype dtype = operand[0].dtype;
	int64_t y_at = row_at(&operand[0], row), dy_at = row_at(&operand[1], row);
	int64_t y_step = operand[0].stride[operand[0].rank - 1];
	int64_t dy_step = operand[1].stride[operand[1].rank - 1];
	double scale = reference_real(r->c, "scale", 1), rtol = reference_relative(dtype, 1e-5);
	long double sum = 0, magnitude = 0;

	live_elements(r, row, columns, live, NULL);
	for (int64_t k = 0; k < columns; k++) {
		y[k] = cases_get(dtype, r->memory[0], y_at + k * y_step);
		dy[k] = cases_get(dtype, r->memory[1], dy_at + k * dy_step);
		if (!live[k])
			continue;
		sum += (long double)dy[k] * y[k];
		magnitude += fabs(dy[k] * y[k]);
	}
	for (int64_t k = 0; k < columns; k++) {
		double value = 0, allowed = 0;
		if (live[k]) {
			value = (double)(scale * y[k] * (dy[k] - sum));
			allowed = rtol * fabs(scale * y[k]) * (fabs(dy[k]) + (double)magnitude) +
					  reference_rounding(dtype, value) + reference_floor(dtype);
		}
		reference_value(r, 3, row * columns + k, value, allowed);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[0];
	struct reference_row row = {.count = x->shape[x->rank - 1],
								.scale = reference_real(r->c, "scale", 1)};
	bool *live = reference_memory(row.count, sizeof(*live));
	double *two = reference_memory(2 * row.count, sizeof(*two));

	row.z = reference_memory(row.count, sizeof(*row.z));
	for (int64_t unit = first; unit < last; unit++)
		if (is_backward(r->c))
			backward(r, unit, row.count, live, two, two + row.count);
		else
			forward(r, unit, &row, live, two);
	free(live);
	free(two);
	free(row.z);
}

static int64_t units(const struct cases_case *c)
{
	return reference_product(&c->operand[0], 0, c->operand[0].rank - 1);
}

static const struct cases_op masked_softmax_op = {"masked_softmax", units, reference};
static const struct cases_op masked_softmax_backward_op = {"masked_softmax_backward", units,
														   reference};

/* ---- The list ---- */

enum kind { BOOL, LENGTHS, CAUSAL, ADDITIVE, KINDS };

/* A case without attributes but its kind; mask: NULL where there is none. */
static struct cases_case *begin(struct cases_case *c, enum kind kind, kiln_dtype dtype,
								const struct make_shape *shape, kiln_dtype mask_dtype,
								const struct make_shape *mask)
{
	static const char *const words[] = {"bool", "lengths", "causal", "additive"};
	static const enum cases_fill fills[] = {CASES_FLAGS, CASES_LENGTHS, CASES_BITS, CASES_UNUSUAL};
	int place = is_backward(c) ? 2 : 1;

	make_input(c, 0, dtype, shape);
	if (is_backward(c)) {
		c->operand[0].fill = CASES_PROBABLE;
		make_input(c, 1, dtype, shape);
	}
	make_none(c, place);
	if (mask) {
		struct cases_operand *operand = make_input(c, place, mask_dtype, mask);
		operand->fill = fills[kind];
		operand->most = shape->size[shape->rank - 1];
	}
	make_output(c, place + 1, dtype, shape);
	make_word(c, "kind", words[kind]);
	return c;
}

static void name(struct cases_case *c)
{
	make_name(c, is_backward(c) ? "y, dy, mask?, dx" : "x, mask?, y");
}

static const struct cases_op *op_of(bool back)
{
	return back ? &masked_softmax_backward_op : &masked_softmax_op;
}

/* `empty` for the forward operator, in turn; 0: not given. */
static void give_empty(struct cases_case *c, int64_t turn)
{
	static const char *const words[] = {NULL, "nan", "uniform", "zero"};

	if (words[turn % 4] && !is_backward(c))
		make_word(c, "empty", words[turn % 4]);
}

/* The mask of a kind that is not broadcast over the rows of a matrix. */
static struct cases_case *add_matrix(bool back, enum kind kind, kiln_dtype dtype, int64_t rows,
									 int64_t columns, unsigned flags)
{
	struct cases_case *c = cases_add(op_of(back), flags);
	const struct make_shape shape = {2, {rows, columns}}, lengths = {1, {rows}};
	const kiln_dtype dtypes[] = {KILN_BOOL, KILN_I32, KILN_DTYPE_NONE,
								 columns % 2 ? KILN_F32 : KILN_F16};
	bool none = kind == CAUSAL || (kind == ADDITIVE && back);

	begin(c, kind, dtype, &shape, dtypes[kind], none ? NULL : kind == LENGTHS ? &lengths : &shape);
	if (kind == CAUSAL)
		make_int(c, "diagonal", columns - rows);
	name(c);
	return c;
}

static void add_widths(void)
{
	for (int i = 0; i < make_width_count; i++) {
		int64_t width = make_widths[i], rows = make_rows(width);
		enum kind kind = (enum kind)(i % KINDS);
		add_matrix(false, kind, KILN_F32, rows, width, 0);
		add_matrix(false, (kind + 1) % KINDS, KILN_F16, rows, width, 0);
		if (i % 2)
			add_matrix(false, (kind + i / 2) % KINDS, make_float(2 + i / 2 % 2), rows, width, 0);
		add_matrix(true, (enum kind)(i / 2 % KINDS), make_float(i), rows, width, 0);
	}
}

/* Adds masks with each choice of dimensions of size 1. */
static void add_broadcasts(void)
{
	static const struct make_shape shape = {4, {2, 3, 5, 37}}, wide = {4, {2, 3, 6, 160}};

	for (int i = 0; i < 16; i++) {
		for (int k = 0; k < 3; k++) {
			struct make_shape mask = i % 3 == 1 ? wide : shape, x = mask;
			struct cases_case *c = cases_add(op_of(k == 1), 0);
			for (int d = 0; d < 4; d++)
				mask.size[d] = i >> d & 1 ? 1 : mask.size[d];
			if (k < 2)
				begin(c, BOOL, make_float(i + i / 4 + k), &x, i % 4 == k ? KILN_U8 : KILN_BOOL,
					  &mask);
			else
				begin(c, ADDITIVE, make_float(i), &x, i % 2 ? KILN_F32 : make_float(i), &mask);
			if (k < 2 && i / 2 % 2 == k)
				make_int(c, "keep", 1);
			give_empty(c, i + k);
			name(c);
		}
	}
	for (int i = 0; i < 8; i++) {
		struct make_shape mask = {3, {2, 3, 5}};
		struct cases_case *c = cases_add(op_of(i % 3 == 2), 0);
		for (int d = 0; d < 3; d++)
			mask.size[d] = i >> d & 1 ? 1 : mask.size[d];
		begin(c, LENGTHS, make_float(i), &shape, KILN_I32, &mask);
		give_empty(c, i);
		name(c);
	}
}

/* Masks of fewer dimensions, ranks, sizes of 1 and 0. */
static void add_ranks(void)
{
	static const struct {
		enum kind kind;
		struct make_shape shape, mask;
	} ranks[] = {
		{BOOL, {4, {2, 3, 5, 40}}, {1, {40}}},
		{BOOL, {4, {2, 3, 5, 40}}, {1, {1}}},
		{BOOL, {4, {2, 3, 5, 40}}, {2, {5, 40}}},
		{BOOL, {4, {2, 3, 5, 40}}, {2, {5, 1}}},
		{BOOL, {4, {2, 3, 5, 40}}, {3, {3, 1, 40}}},
		{BOOL, {4, {2, 3, 5, 40}}, {3, {1, 5, 40}}},
		{BOOL, {2, {6, 33}}, {0, {0}}},
		{BOOL, {1, {77}}, {1, {77}}},
		{BOOL, {6, {2, 2, 3, 2, 3, 17}}, {6, {2, 1, 3, 1, 3, 17}}},
		{BOOL, {5, {2, 3, 2, 3, 64}}, {4, {3, 1, 3, 64}}},
		{BOOL, {3, {4, 1, 1}}, {3, {4, 1, 1}}},
		{BOOL, {2, {5, 0}}, {2, {5, 0}}},
		{BOOL, {3, {0, 5, 8}}, {2, {5, 8}}},
		{LENGTHS, {4, {2, 3, 5, 40}}, {1, {5}}},
		{LENGTHS, {4, {2, 3, 5, 40}}, {2, {3, 1}}},
		{LENGTHS, {4, {2, 3, 5, 40}}, {0, {0}}},
		{LENGTHS, {1, {50}}, {0, {0}}},
		{LENGTHS, {2, {9, 1}}, {1, {9}}},
		{LENGTHS, {6, {2, 2, 3, 2, 3, 17}}, {5, {2, 1, 3, 1, 3}}},
		{LENGTHS, {3, {0, 5, 8}}, {2, {1, 5}}},
		{ADDITIVE, {4, {2, 3, 5, 40}}, {2, {5, 40}}},
		{ADDITIVE, {3, {7, 5, 33}}, {1, {33}}},
		{ADDITIVE, {3, {7, 5, 33}}, {2, {5, 1}}},
		{ADDITIVE, {1, {100}}, {1, {100}}},
	};

	for (int i = 0; i < MAKE_COUNT(ranks); i++) {
		struct cases_case *c = cases_add(op_of(i % 4 == 3 && ranks[i].kind != ADDITIVE), 0);
		kiln_dtype dtypes[] = {i % 3 ? KILN_BOOL : KILN_U8, KILN_I32, 0, make_float(i / 2)};
		begin(c, ranks[i].kind, make_float(i), &ranks[i].shape, dtypes[ranks[i].kind],
			  &ranks[i].mask);
		give_empty(c, i);
		name(c);
	}
}

static void add_causal(void)
{
	static const struct make_shape shapes[] = {{2, {33, 65}},      {3, {3, 40, 40}},
											   {4, {2, 3, 17, 9}}, {4, {2, 2, 5, 200}},
											   {2, {130, 129}},    {3, {2, 1, 30}}};

	for (int i = 0; i < MAKE_COUNT(shapes); i++) {
		const int64_t *size = &shapes[i].size[shapes[i].rank - 2];
		const int64_t diagonals[] = {0, -3, 5, size[1] - size[0]};
		for (int k = 0; k < 4; k++) {
			struct cases_case *c = cases_add(op_of((i + k) % 4 == 3), 0);
			begin(c, CAUSAL, make_float(i + k), &shapes[i], 0, NULL);
			if (k)
				make_int(c, "diagonal", diagonals[k]);
			give_empty(c, i + 2 * k);
			name(c);
		}
	}
}

/* Strides, offsets, many rows, other scales, strange contents. */
static void add_layouts(void)
{
	static const struct make_shape shape = {3, {4, 6, 100}};
	static const int64_t x_stride[][3] = {
		{624, 104, 1}, {103, 412, 1}, {0, 100, 1}, {1800, 300, 3}};
	static const int64_t mask_stride[][3] = {{0, 0, 1}, {606, 101, 1}, {1, 4, 24}, {200, 0, 2}};

	for (int i = 0; i < 12; i++) {
		enum kind kind = i % 3 == 0 ? BOOL : i % 3 == 1 ? ADDITIVE : LENGTHS;
		bool back = i % 4 == 2 && kind != ADDITIVE;
		const kiln_dtype dtypes[] = {i % 2 ? KILN_BOOL : KILN_U8, KILN_I32, 0, KILN_F32};
		struct cases_case *c = cases_add(op_of(back), 0);
		begin(c, kind, make_float(i), &shape, dtypes[kind],
			  kind == LENGTHS ? &(struct make_shape){2, {4, 6}} : &shape);
		make_strided(&c->operand[back ? 2 : 1], mask_stride[i / 3]);
		if (i % 2)
			make_strided(&c->operand[0], x_stride[i / 2 % 4]);
		name(c);
	}
	for (int i = 0; i < 12; i++) {
		struct cases_case *c =
			add_matrix(i % 3 == 1, (enum kind)(i / 3), make_float(i), 7, i % 2 ? 1024 : 1021, 0);
		uint32_t element = cases_element(&c->operand[0]);
		for (int k = 0; k < c->operand_count; k++)
			if (c->operand[k].dtype && (i + k) % 3)
				c->operand[k].offset = k && cases_element(&c->operand[k]) == 1 ? (uint32_t)i + 1
									   : element < 4 && k % 2                  ? 4
																			   : 8;
		if (i % 4 == 0)
			c->operand[0].offset = element;
		name(c);
	}
}

/* Masks that begin less aligned than so many of their elements want, beside x of each width. */
static void add_narrow_masks(void)
{
	static const uint32_t beside_x[] = {0, 8, 4};

	for (int i = 0; i < 12; i++) {
		bool back = i % 3 == 1;
		enum kind kind = i % 4 == 3 && !back ? ADDITIVE : BOOL;
		struct cases_case *c =
			add_matrix(back, kind, i % 2 ? KILN_F16 : KILN_F32, 9, i < 6 ? 104 : 136, 0);
		struct cases_operand *mask = &c->operand[back ? 2 : 1];
		uint32_t element = cases_element(mask);
		for (int k = 0; k < c->operand_count; k++)
			c->operand[k].offset = beside_x[i / 2 % 3];
		mask->offset = (uint32_t)(i % 3 + 1) * element;
		name(c);
	}
}

static void add_values(void)
{
	static const double scales[] = {0.125, -2, 0, 3.7, 1. / 3};
	static const int64_t counts[] = {0, 1, 65535, 65536, 70000};

	for (int i = 0; i < 12; i++) {
		struct cases_case *c = add_matrix(i % 4 == 3, (enum kind)(i % 4 == 3 ? i / 4 : i % 4),
										  make_float(i + i / 4), 35, i < 6 ? 96 : 1023, 0);
		c->operand[is_backward(c)].fill = CASES_UNUSUAL;
		give_empty(c, i + i / 4);
		name(c);
	}
	for (int i = 0; i < 10; i++) {
		struct cases_case *c =
			add_matrix(i % 3 == 2, (enum kind)(i % KINDS), i % 5 == 4 ? KILN_F64 : make_float(i),
					   11, i % 2 ? 130 : 1000, 0);
		make_real(c, "scale", scales[i % 5]);
		name(c);
	}
	for (int i = 0; i < 5; i++) {
		add_matrix(false, (enum kind)(i % 3), make_float(i), counts[i], 5, 0);
		add_matrix(true, (enum kind)((i + 1) % 3), make_float(i + 1), counts[i], 4, 0);
	}
	/* Live numbers far below what a fill value of a mask might be, or far above. */
	for (int i = 0; i < 4; i++) {
		struct cases_case *c =
			add_matrix(false, (enum kind)(i % 2), i < 2 ? KILN_F32 : KILN_BF16, 21, 300, 0);
		c->operand[0].mean = i < 2 ? -20000 : 1e30;
		c->operand[0].deviation = i < 2 ? 3 : 1e29;
		name(c);
	}
	add_matrix(false, BOOL, KILN_F32, 70000, 40, 0);
}

static void add_timed(void)
{
	static const struct make_shape padding = {4, {64, 1, 1, 512}}, lengths = {3, {64, 1, 1}};
	static const struct make_shape wide_padding = {4, {64, 1, 1, 1024}};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < 2; i++) {
		const struct make_shape x = {4, {64, 8, i ? 1024 : 512, i ? 1024 : 512}};
		kiln_dtype dtype = i ? KILN_F16 : KILN_F32;
		name(begin(cases_add(op_of(false), flags), BOOL, dtype, &x, KILN_BOOL,
				   i ? &wide_padding : &padding));
		name(begin(cases_add(op_of(false), flags), LENGTHS, dtype, &x, KILN_I32, &lengths));
		name(begin(cases_add(op_of(false), flags), CAUSAL, dtype, &x, 0, NULL));
		if (i == 0)
			name(begin(cases_add(op_of(true), flags), BOOL, dtype, &x, KILN_BOOL, &padding));
	}
}

/* Beyond 2^31 elements, and beyond 2^31 bytes of a row whose mask begins between two vectors. */
static void add_huge(void)
{
	const struct make_shape row = {2, {1, (INT64_C(1) << 29) + 4096}};
	struct cases_case *c;

	add_matrix(false, LENGTHS, KILN_F16, (INT64_C(1) << 25) + 5, 64, CASES_BIG | CASES_HUGE);
	c = begin(cases_add(op_of(false), CASES_BIG | CASES_HUGE), ADDITIVE, KILN_F32, &row, KILN_F32,
			  &row);
	c->operand[1].offset = 4;
	name(c);
}

static void add_all(void)
{
	add_widths();
	add_broadcasts();
	add_ranks();
	add_causal();
	add_layouts();
	add_narrow_masks();
	add_values();
	add_timed();
	add_huge();
}

/* A mask's shape: x's with some dimensions 1 and some leading ones left out. */
static void random_mask(uint64_t *state, const struct make_shape *x, int dims,
						struct make_shape *mask)
{
	int left_out = make_chance(state, 3) ? (int)make_below(state, dims + 1) : 0;

	memset(mask, 0, sizeof(*mask));
	mask->rank = dims - left_out;
	for (int d = 0; d < mask->rank; d++)
		mask->size[d] = make_chance(state, 3) ? 1 : x->size[d + left_out];
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape x, mask;
	enum kind kind = (enum kind)make_below(state, KINDS);
	bool back = make_chance(state, 3);
	const kiln_dtype dtypes[] = {make_chance(state, 2) ? KILN_BOOL : KILN_U8, KILN_I32, 0,
								 make_float(make_below(state, 4))};

	memset(out, 0, sizeof(*out));
	out->op = op_of(back);
	make_random_shape(state, 5, &x);
	if (kind == CAUSAL && x.rank == 1)
		kind = LENGTHS;
	random_mask(state, &x, kind == LENGTHS ? x.rank - 1 : x.rank, &mask);
	begin(out, kind, make_float(make_below(state, 4)), &x, dtypes[kind],
		  kind == CAUSAL || (kind == ADDITIVE && back) ? NULL : &mask);
	for (int i = 0; i < out->operand_count; i++)
		make_random_layout(state, &out->operand[i]);
	if (make_chance(state, 2))
		make_real(out, "scale", make_random_scale(state));
	if (kind == BOOL && make_chance(state, 2))
		make_int(out, "keep", make_below(state, 2));
	if (kind == CAUSAL && make_chance(state, 2))
		make_int(out, "diagonal", make_below(state, 40) - 20);
	give_empty(out, make_below(state, 4));
	name(out);
}

const struct cases_op *const masked_softmax_ops[] = {&masked_softmax_op,
													 &masked_softmax_backward_op, NULL};
const struct cases_family masked_softmax_family = {
	.name = "masked_softmax", .add = add_all, .random = add_random};
