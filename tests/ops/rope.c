/*
 * rope.c: rotary position embedding of q, and of k beside it.
 *
 *   a' = a cos - b sin    b' = b cos + a sin
 *
 * of each pair (a, b) of a head, with the row of cos and sin that the token's position names: pairs
 * of two halves, (i, i + rotary_dim / 2), or of neighbours, (2i, 2i + 1).  Elements from rotary_dim
 * on stay as they are.  inverse negates sin.
 *
 * Two products and their difference round three times, each by no more than the unit times what
 * the products come to; f16 and bf16 are rounded once more.  A position out of range: bounds
 * check, zeros in the heads of its token; bounds clamp, the nearest row.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

enum { Q, COS, SIN, K, POSITIONS, Q_OUT, K_OUT, OPERANDS };

static bool is_inside(const struct cases_case *c)
{
	return reference_is(c, "layout", "bhsd");
}

/* The sizes of q or k: batch, tokens, heads; and where the dimensions are. */
struct sizes {
	int64_t batch, tokens, heads;
	int batched, token, head;
};

static struct sizes sizes_of(const struct cases_case *c, int operand)
{
	const struct cases_operand *x = &c->operand[operand];
	struct sizes sizes = {.batched = x->rank == 4};

	sizes.token = sizes.batched + is_inside(c);
	sizes.head = sizes.batched + !is_inside(c);
	sizes.batch = sizes.batched ? x->shape[0] : 1;
	sizes.tokens = x->shape[sizes.token];
	sizes.heads = x->shape[sizes.head];
	return sizes;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	struct sizes sizes = sizes_of(c, Q);

	return sizes.batch * sizes.tokens;
}

/* Where row `row` of a table or of positions is, for a batch. */
static int64_t row_of(const struct cases_operand *operand, int rank, int64_t batch, int64_t row)
{
	int batched = operand->rank > rank;

	return (batched && operand->shape[0] > 1 ? batch * operand->stride[0] : 0) +
		   row * operand->stride[batched];
}

/* The row that a token's position names; below 0: none. */
static int64_t position_of(const struct reference *r, int64_t batch, int64_t token)
{
	const struct cases_operand *positions = &r->c->operand[POSITIONS], *cos = &r->c->operand[COS];
	int64_t rows = cos->shape[cos->rank - 2], at, position;

	if (positions->dtype == KILN_DTYPE_NONE)
		return reference_int(r->c, "start", 0) + token;
	at = row_of(positions, 1, batch, token);
	position = (int64_t)cases_get(positions->dtype, r->memory[POSITIONS], at);
	if (position >= 0 && position < rows)
		return position;
	if (reference_is(r->c, "bounds", "trust"))
		reference_invalid(r, POSITIONS, at, "out of range", "in it");
	return !reference_is(r->c, "bounds", "clamp") ? -1 : position < 0 ? 0 : rows - 1;
}

static double at_of(const struct reference *r, int operand, int64_t at)
{
	return cases_get(r->c->operand[operand].dtype, r->memory[operand], at);
}

/* One head: of `from`, which begins at in, to `to`, which begins at out. */
static void rotate(const struct reference *r, int from, int to, int64_t in, int64_t out,
				   int64_t batch, int64_t row)
{
	const struct cases_operand *x = &r->c->operand[from], *cos = &r->c->operand[COS];
	int64_t dim = x->shape[x->rank - 1], half = cos->shape[cos->rank - 1];
	bool pairs = reference_int(r->c, "interleaved", 0) != 0;
	double sign = reference_int(r->c, "inverse", 0) ? -1 : 1;
	double unit = reference_unit(x->dtype);

	for (int64_t i = 0; i < half && row >= 0; i++) {
		int64_t first = pairs ? 2 * i : i, second = pairs ? 2 * i + 1 : half + i;
		double c = at_of(r, COS, row_of(cos, 2, batch, row) + i);
		double s = sign * at_of(r, SIN, row_of(&r->c->operand[SIN], 2, batch, row) + i);
		double a = at_of(r, from, in + first), b = at_of(r, from, in + second);
		double values[2] = {a * c - b * s, b * c + a * s};
		double sizes[2] = {fabs(a * c) + fabs(b * s), fabs(b * c) + fabs(a * s)};
		for (int k = 0; k < 2; k++)
			reference_value(r, to, out + (k ? second : first), values[k],
							3 * unit * sizes[k] + reference_rounding(x->dtype, values[k]) +
								reference_floor(x->dtype));
	}
	for (int64_t i = row < 0 ? 0 : 2 * half; i < dim; i++)
		reference_value(r, to, out + i, row < 0 ? 0 : at_of(r, from, in + i), 0);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	for (int64_t unit = first; unit < last; unit++)
		for (int from = Q; from <= K; from += K - Q) {
			const struct cases_operand *x = &r->c->operand[from];
			const struct cases_operand *y = &r->c->operand[from == Q ? Q_OUT : K_OUT];
			if (x->dtype == KILN_DTYPE_NONE)
				continue;
			struct sizes sizes = sizes_of(r->c, from);
			int64_t batch = unit / sizes.tokens, token = unit % sizes.tokens;
			int64_t row = position_of(r, batch, token), in, out;
			for (int64_t head = 0; head < sizes.heads; head++) {
				in = token * x->stride[sizes.token] + head * x->stride[sizes.head];
				out = token * y->stride[sizes.token] + head * y->stride[sizes.head];
				if (sizes.batched) {
					in += batch * x->stride[0];
					out += batch * y->stride[0];
				}
				rotate(r, from, from == Q ? Q_OUT : K_OUT, in, out, batch, row);
			}
		}
}

static const struct cases_op rope = {"rope", units, reference};

/* ---- The cases ---- */

#define NO KILN_DTYPE_NONE
#define INTERLEAVED 1u
#define INVERSE 2u
#define INSIDE 4u  /* layout bhsd */
#define BATCHED 8u /* tables and positions have a batch */
#define START 16u
#define STRAY 32u /* positions are out of range */
#define CLAMP 64u
#define TRUST 128u
#define QKV 256u /* q and k are parts of one tensor */

struct spec {
	kiln_dtype dtype, table;
	int64_t batch, tokens, q_heads, k_heads; /* batch 0: there is none; k_heads 0: there is no k */
	int64_t dim, half;
	kiln_dtype positions;
	unsigned flags;
};

static void add_heads(struct cases_case *c, const struct spec *s, int operand, int64_t heads)
{
	bool inside = s->flags & INSIDE;
	struct make_shape shape = {3, {inside ? heads : s->tokens, inside ? s->tokens : heads, s->dim}};
	int64_t pitch = (s->q_heads + 2 * s->k_heads) * s->dim, stride[KILN_MAX_RANK];
	int batched = s->batch > 0;

	if (batched) {
		memmove(shape.size + 1, shape.size, 3 * sizeof(shape.size[0]));
		shape.size[0] = s->batch;
		shape.rank = 4;
	}
	if (operand == Q_OUT || operand == K_OUT) {
		make_output(c, operand, s->dtype, &shape);
		return;
	}
	make_input(c, operand, s->dtype, &shape);
	if (!(s->flags & QKV))
		return;
	stride[0] = s->tokens * pitch;
	stride[batched + inside] = pitch;
	stride[batched + !inside] = s->dim;
	stride[batched + 2] = 1;
	make_strided(&c->operand[operand], stride);
	if (operand == K)
		c->operand[K].offset = (uint32_t)(s->q_heads * s->dim * cases_element(&c->operand[K]) % 16);
}

static void add_tables(struct cases_case *c, const struct spec *s)
{
	int64_t start = s->flags & START ? 5 : 0, rows = s->tokens + start;
	bool batched = s->batch > 0 && s->flags & BATCHED;
	struct make_shape table = {2, {rows, s->half}}, positions = {1, {s->tokens}};

	if (batched) {
		table = (struct make_shape){3, {s->batch, rows, s->half}};
		positions = (struct make_shape){2, {s->batch, s->tokens}};
	}
	make_input(c, COS, s->table, &table);
	make_input(c, SIN, s->table, &table);
	if (s->positions == NO) {
		make_none(c, POSITIONS);
	} else {
		make_input(c, POSITIONS, s->positions, &positions);
		c->operand[POSITIONS].fill = s->flags & STRAY ? CASES_STRAY : CASES_INDICES;
		c->operand[POSITIONS].most = rows;
	}
	if (start)
		make_int(c, "start", start);
}

static void name(struct cases_case *c)
{
	static const char *const names[] = {"", " cos", " sin", " k", " positions"};

	c->name[0] = 0;
	cases_name(c, "rope");
	for (int i = Q; i <= POSITIONS; i++) {
		const struct cases_operand *o = &c->operand[i];
		if (o->dtype == NO || (i == SIN && o->contiguous && !o->offset))
			continue;
		cases_name(c, "%s", names[i]);
		cases_name_operand(c, i);
		if (o->fill == CASES_UNUSUAL || o->fill == CASES_STRAY)
			cases_name(c, o->fill == CASES_STRAY ? " stray" : " unusual");
	}
	for (int i = 0; i < c->attr_count; i++)
		if (c->attr[i].kind == KILN_ATTR_STRING)
			cases_name(c, " %s", c->attr[i].s);
		else
			cases_name(c, " %s %lld", c->attr[i].name, (long long)c->attr[i].i);
}

static void fill(struct cases_case *c, const struct spec *s)
{
	add_heads(c, s, Q, s->q_heads);
	add_tables(c, s);
	if (s->k_heads)
		add_heads(c, s, K, s->k_heads);
	else
		make_none(c, K);
	add_heads(c, s, Q_OUT, s->q_heads);
	if (s->k_heads)
		add_heads(c, s, K_OUT, s->k_heads);
	else
		make_none(c, K_OUT);
	c->operand_count = OPERANDS;
	if (s->flags & INTERLEAVED)
		make_int(c, "interleaved", 1);
	if (s->flags & INVERSE)
		make_int(c, "inverse", 1);
	if (s->flags & INSIDE)
		make_word(c, "layout", "bhsd");
	if (s->flags & (CLAMP | TRUST))
		make_word(c, "bounds", s->flags & CLAMP ? "clamp" : "trust");
	else if (s->flags & STRAY && units(c) > 0)
		c->flags |= CASES_STRAYS;
}

static struct cases_case *add(const struct spec *s, unsigned flags)
{
	struct cases_case *c = cases_add(&rope, flags);

	fill(c, s);
	name(c);
	return c;
}

static void add_shapes(void)
{
	static const struct spec specs[] = {
		{KILN_F32, KILN_F32, 0, 5, 3, 0, 8, 4, NO, 0},
		{KILN_F16, KILN_F16, 2, 7, 4, 2, 64, 32, KILN_I32, 0},
		{KILN_BF16, KILN_F32, 2, 7, 4, 1, 128, 64, KILN_I64, BATCHED | INVERSE},
		{KILN_F64, KILN_F64, 2, 3, 3, 3, 12, 4, NO, INSIDE | START},
		{KILN_F32, KILN_F32, 2, 5, 3, 2, 20, 8, KILN_I64, INSIDE | BATCHED},
		{KILN_F16, KILN_F32, 2, 6, 3, 1, 24, 6, NO, BATCHED | START},
		{KILN_BF16, KILN_BF16, 0, 9, 2, 2, 7, 2, KILN_I32, 0},
		{KILN_F32, KILN_F32, 0, 4, 1, 0, 6, 0, NO, 0},
		{KILN_F16, KILN_F32, 3, 4, 4, 2, 32, 16, NO, QKV},
		{KILN_BF16, KILN_BF16, 0, 40, 5, 1, 16, 8, KILN_I64, QKV | INVERSE},
		{KILN_F32, KILN_F32, 2, 5, 3, 2, 12, 6, NO, QKV | INSIDE},
		{KILN_F32, KILN_F32, 0, 5, 3, 0, 8, 4, NO, INTERLEAVED},
		{KILN_F16, KILN_F16, 2, 7, 4, 2, 64, 32, KILN_I32, INTERLEAVED},
		{KILN_BF16, KILN_F32, 2, 7, 4, 1, 128, 64, KILN_I64, INTERLEAVED | BATCHED | INVERSE},
		{KILN_F64, KILN_F64, 2, 3, 3, 3, 12, 4, NO, INTERLEAVED | INSIDE | START},
		{KILN_F32, KILN_F32, 0, 9, 2, 1, 7, 2, KILN_I64, INTERLEAVED},
		{KILN_F16, KILN_F32, 3, 4, 4, 2, 32, 12, NO, INTERLEAVED | QKV},
		/* Positions out of range. */
		{KILN_F32, KILN_F32, 2, 5, 3, 2, 16, 6, KILN_I32, STRAY},
		{KILN_F16, KILN_F16, 2, 40, 3, 0, 16, 8, KILN_I64, STRAY | BATCHED | INTERLEAVED},
		{KILN_F32, KILN_F32, 2, 5, 3, 2, 16, 6, KILN_I32, STRAY | CLAMP},
		{KILN_BF16, KILN_F32, 0, 5, 2, 0, 16, 8, KILN_I64, STRAY | CLAMP | INTERLEAVED},
		{KILN_F32, KILN_F32, 0, 5, 2, 0, 16, 8, KILN_I64, TRUST},
		/* No tokens, no heads of q, no elements. */
		{KILN_F32, KILN_F32, 2, 0, 3, 2, 16, 8, NO, 0},
		{KILN_F16, KILN_F16, 2, 3, 0, 2, 16, 8, NO, 0},
		{KILN_BF16, KILN_BF16, 0, 3, 2, 0, 0, 0, NO, INTERLEAVED},
	};

	for (int i = 0; i < MAKE_COUNT(specs); i++)
		add(&specs[i], 0);
}

/* Addresses that are aligned to elements alone, rows of tables with gaps, and numbers that are
 * none. */
static void add_layouts(void)
{
	for (int i = 0; i < 4; i++) {
		const struct spec s = {make_float(i),
							   i % 2 ? make_float(i) : KILN_F32,
							   2,
							   6,
							   3,
							   1,
							   16,
							   6 + i / 2 * 2,
							   NO,
							   i % 2 ? INTERLEAVED : 0};
		struct cases_case *c = cases_add(&rope, 0);
		fill(c, &s);
		c->operand[Q].offset = cases_element(&c->operand[Q]);
		c->operand[Q].fill = CASES_UNUSUAL;
		make_strided(&c->operand[SIN], (const int64_t[]){s.half + 3, 1});
		name(c);
		c = cases_add(&rope, 0);
		fill(c, &s);
		make_strided(&c->operand[Q], (const int64_t[]){0, 64, 16, 1});
		make_strided(&c->operand[COS], (const int64_t[]){0, 1});
		c->operand[K].fill = CASES_UNUSUAL;
		name(c);
	}
}

static void add_timed(void)
{
	static const struct spec specs[] = {
		{KILN_BF16, KILN_F32, 8, 4096, 32, 8, 128, 64, KILN_I64, BATCHED | TRUST},
		{KILN_BF16, KILN_BF16, 8, 4096, 32, 8, 128, 64, NO, INSIDE},
		{KILN_F16, KILN_F16, 4, 4096, 32, 32, 128, 64, NO, INTERLEAVED},
		{KILN_BF16, KILN_BF16, 8, 4096, 32, 32, 80, 16, NO, 0},
		{KILN_F32, KILN_F32, 4, 4096, 32, 8, 128, 64, NO, 0},
		{KILN_BF16, KILN_F32, 0, 32768, 32, 8, 128, 64, KILN_I64, QKV | TRUST},
	};

	for (int i = 0; i < MAKE_COUNT(specs); i++)
		add(&specs[i], CASES_BENCH | CASES_BIG);
	/* More than 2^31 elements. */
	add(&(struct spec){KILN_F16, KILN_F32, 8, 16385, 128, 8, 128, 64, NO, 0}, CASES_HUGE);
}

static void add_all(void)
{
	add_shapes();
	add_layouts();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	kiln_dtype dtype = make_float(make_below(state, 4));
	bool same = dtype == KILN_F64 || make_chance(state, 2);
	struct spec s = {.dtype = dtype,
					 .table = same ? dtype : KILN_F32,
					 .batch = make_below(state, 4),
					 .tokens = make_below(state, 9),
					 .q_heads = make_below(state, 6),
					 .k_heads = make_below(state, 4),
					 .dim = 1 + make_below(state, 40),
					 .flags = (unsigned)make_below(state, 32)};

	memset(out, 0, sizeof(*out));
	out->op = &rope;
	s.half = make_chance(state, 3) ? s.dim / 2 : make_below(state, s.dim / 2 + 1);
	if (make_chance(state, 2)) {
		s.positions = make_chance(state, 2) ? KILN_I32 : KILN_I64;
		s.flags &= ~START;
		s.flags |= make_chance(state, 4) ? STRAY : 0;
		s.flags |= make_chance(state, 4) ? CLAMP : 0;
	}
	s.flags |= make_chance(state, 4) ? QKV : 0;
	/* An empty table has no nearest row, and without tokens or heads no stray is found. */
	if (s.tokens == 0 || s.q_heads + s.k_heads == 0)
		s.flags &= ~(STRAY | CLAMP);
	fill(out, &s);
	for (int i = 0; i < OPERANDS; i++)
		if (out->operand[i].dtype != NO && make_chance(state, 4))
			out->operand[i].offset =
				cases_element(&out->operand[i]) * (uint32_t)make_below(state, 2);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct spec plain = {KILN_F16, KILN_F32, 2, 5, 4, 2, 16, 8, KILN_I32, 0};

static void make_plain(struct cases_case *c)
{
	c->op = &rope;
	fill(c, &plain);
}

static void bad_dtype(struct cases_case *c)
{
	make_plain(c);
	c->operand[Q].dtype = KILN_I32;
}

static void bad_cos(struct cases_case *c)
{
	make_plain(c);
	c->operand[COS].dtype = KILN_BF16;
}

static void bad_sin(struct cases_case *c)
{
	make_plain(c);
	c->operand[SIN].dtype = KILN_F16;
}

static void bad_wide(struct cases_case *c)
{
	struct spec s = plain;

	s.dtype = KILN_F64;
	c->op = &rope;
	fill(c, &s);
}

static void bad_k(struct cases_case *c)
{
	make_plain(c);
	c->operand[K].dtype = KILN_BF16;
}

static void bad_positions(struct cases_case *c)
{
	make_plain(c);
	c->operand[POSITIONS].dtype = KILN_U8;
}

static void bad_rank(struct cases_case *c)
{
	make_plain(c);
	c->operand[Q].rank = 2;
}

static void bad_tokens(struct cases_case *c)
{
	make_plain(c);
	c->operand[K].shape[1] = 6;
}

static void bad_batch(struct cases_case *c)
{
	struct spec s = plain;

	s.flags = BATCHED;
	c->op = &rope;
	fill(c, &s);
	c->operand[POSITIONS].shape[0] = 3;
}

static void bad_table_rank(struct cases_case *c)
{
	make_plain(c);
	c->operand[COS].rank = c->operand[SIN].rank = 1;
}

static void bad_half(struct cases_case *c)
{
	struct spec s = plain;

	s.half = 9;
	c->op = &rope;
	fill(c, &s);
}

static void bad_start(struct cases_case *c)
{
	struct spec s = plain;

	s.positions = NO;
	c->op = &rope;
	fill(c, &s);
	make_int(c, "start", 1);
}

static void bad_both(struct cases_case *c)
{
	make_plain(c);
	make_int(c, "start", 1);
}

static void bad_count(struct cases_case *c)
{
	make_plain(c);
	c->operand[POSITIONS].shape[0] = 4;
}

static void bad_clamp(struct cases_case *c)
{
	make_plain(c);
	c->operand[COS].shape[0] = c->operand[SIN].shape[0] = 0;
	make_word(c, "bounds", "clamp");
}

static void bad_stride(struct cases_case *c)
{
	make_plain(c);
	make_strided(&c->operand[COS], (const int64_t[]){16, 2});
}

static void bad_output(struct cases_case *c)
{
	make_plain(c);
	make_none(c, K_OUT);
}

static void bad_alone(struct cases_case *c)
{
	make_plain(c);
	make_none(c, K);
}

static const struct cases_refusal refusals[] = {
	{"rope: q is i32; it must be f16, bf16, f32 or f64", bad_dtype},
	{"rope: cos is bf16; with q of f16 it must be f32 or f16", bad_cos},
	{"rope: cos is f32 and sin is f16; they must agree", bad_sin},
	{"rope: cos is f32; with q of f64 it must be f64", bad_wide},
	{"rope: q is f16 and k is bf16; they must agree", bad_k},
	{"rope: positions is u8; it must be i32 or i64", bad_positions},
	{"rope: q has rank 2; it must be 3, or 4 with a batch before", bad_rank},
	{"rope: dimension 1 has size 5 in q and 6 in k; they must agree", bad_tokens},
	{"rope: dimension 0 has size 2 in q and 3 in positions; they must agree, or positions have 1",
	 bad_batch},
	{"rope: cos has rank 1; it must be 2, or one more with a batch before", bad_table_rank},
	{"rope: the rows of cos have 9 numbers, for 18 elements of a head; heads have 16", bad_half},
	{"rope: cos has 5 rows; 5 tokens from position 1 on need more", bad_start},
	{"rope: start is 1, and positions say where tokens are; leave one out", bad_both},
	{"rope: there are 4 positions for 5 tokens; they must agree", bad_count},
	{"rope: cos has no rows; with bounds clamp it needs one to take", bad_clamp},
	{"rope: dimension 1 of cos has stride 2; it must be 1", bad_stride},
	{"rope: there is k and no k_out; it goes with its result", bad_output},
	{"rope: there is k_out and no k; it goes with what is rotated", bad_alone},
	{NULL, NULL},
};

const struct cases_op *const rope_ops[] = {&rope, NULL};
const struct cases_family rope_family = {
	.name = "rope", .add = add_all, .random = add_random, .refusals = refusals};
