/*
 * cases_masked_softmax.c: what is on the list of masked_softmax and its backward; their reference
 * is in cases_masked_reference.c.
 */
#include "cases_reference.h"

#include <string.h>

static bool is_backward(const struct cases_case *c)
{
	return c->op == &masked_softmax_backward_op;
}

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

/* Which of a mask's dimensions are of size 1: all possibilities. */
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

void cases_add_masked_softmax(void)
{
	add_widths();
	add_broadcasts();
	add_ranks();
	add_causal();
	add_layouts();
	add_narrow_masks();
	add_values();
	add_timed();
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

void cases_random_masked_softmax(uint64_t *state, struct cases_case *out)
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
