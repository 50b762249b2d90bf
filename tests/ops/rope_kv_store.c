/*
 * rope_kv_store.c: rope of q and k, and k and v put into paged caches: what rope.c and kv_store.c
 * say, one after the other, but that k is rounded once, to the type of its cache.
 *
 * An element of k is off by three roundings of the products before it is divided by its scale.  A
 * position out of range: bounds check, zeros in q_out, and nothing in the caches.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

enum { Q, COS, SIN, K, V, SLOTS, POSITIONS, K_SCALE, V_SCALE, Q_OUT, K_CACHE, V_CACHE, OPERANDS };

#define NO KILN_DTYPE_NONE

/* The dimensions of q, k, v and q_out; of slots and positions, batch and token. */
struct dims {
	int batched, token, head;
};

static struct dims dims_of(const struct cases_case *c)
{
	int batched = c->operand[Q].rank == 4, inside = reference_is(c, "layout", "bhsd");

	return (struct dims){batched, batched + inside, batched + !inside};
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[SLOTS]) + reference_chunks(c, K_CACHE);
}

/* The row of the tables for a token; below 0: none. */
static int64_t row_of(const struct reference *r, int64_t token)
{
	const struct cases_operand *positions = &r->c->operand[POSITIONS];
	int64_t rows = r->c->operand[COS].shape[0], tokens, position;

	tokens = r->c->operand[Q].shape[dims_of(r->c).token];
	if (positions->dtype == NO)
		return reference_int(r->c, "start", 0) + token % tokens;
	position = reference_index(positions, r->memory[POSITIONS], token % tokens);
	if (position >= 0 && position < rows)
		return position;
	return !reference_is(r->c, "bounds", "clamp") ? -1 : position < 0 ? 0 : rows - 1;
}

/* The slot of a token; -1: nothing of it is stored. */
static int64_t slot_of(const struct reference *r, int64_t token)
{
	int64_t slot = reference_index(&r->c->operand[SLOTS], r->memory[SLOTS], token);

	return slot >= 0 && slot < reference_slots(r->c, K_CACHE) && row_of(r, token) >= 0 ? slot : -1;
}

static int64_t head_at(const struct cases_case *c, int operand, int64_t token, int64_t head)
{
	const struct cases_operand *o = &c->operand[operand];
	struct dims dims = dims_of(c);
	int64_t tokens = o->shape[dims.token];

	return (dims.batched ? token / tokens * o->stride[0] : 0) +
		   token % tokens * o->stride[dims.token] + head * o->stride[dims.head];
}

static double at_of(const struct reference *r, int operand, int64_t at)
{
	return cases_get(r->c->operand[operand].dtype, r->memory[operand], at);
}

/* Element i of a head that begins at `at`, turned by a row; *size: the magnitude of its terms. */
static double turned(const struct reference *r, int operand, int64_t at, int64_t i, int64_t row,
					 double *size)
{
	const struct cases_operand *cos = &r->c->operand[COS];
	int64_t half = cos->shape[1], pair, first, second;
	bool pairs = reference_int(r->c, "interleaved", 0) != 0;
	double c, s, a, b;

	*size = 0;
	if (i >= 2 * half)
		return at_of(r, operand, at + i);
	pair = pairs ? i / 2 : i % half;
	first = pairs ? 2 * pair : pair;
	second = pairs ? first + 1 : pair + half;
	c = at_of(r, COS, row * cos->stride[0] + pair);
	s = at_of(r, SIN, row * r->c->operand[SIN].stride[0] + pair);
	a = at_of(r, operand, at + first);
	b = at_of(r, operand, at + second);
	*size = i == first ? fabs(a * c) + fabs(b * s) : fabs(b * c) + fabs(a * s);
	return i == first ? a * c - b * s : b * c + a * s;
}

static void query(const struct reference *r, int64_t token)
{
	const struct cases_operand *q = &r->c->operand[Q];
	int64_t heads = q->shape[dims_of(r->c).head], row = row_of(r, token);

	for (int64_t head = 0; head < heads; head++)
		for (int64_t i = 0; i < q->shape[q->rank - 1]; i++) {
			double size = 0, value = 0, allowed = 0;
			if (row >= 0)
				value = turned(r, Q, head_at(r->c, Q, token, head), i, row, &size);
			if (size != 0)
				allowed = 3 * reference_unit(q->dtype) * size +
						  reference_rounding(q->dtype, value) + reference_floor(q->dtype);
			reference_value(r, Q_OUT, head_at(r->c, Q_OUT, token, head) + i, value, allowed);
		}
}

static void store(const struct reference *r, int from, int64_t token, int64_t slot, int64_t head)
{
	const struct cases_operand *x = &r->c->operand[from];
	int cache = from - K + K_CACHE, scales = from - K + K_SCALE;
	int64_t in = head_at(r->c, from, token, head), out = reference_slot_at(r->c, cache, slot, head);
	kiln_dtype to = r->c->operand[cache].dtype;
	double scale = 1, unit = reference_unit(x->dtype);

	if (r->c->operand[scales].dtype != NO)
		scale = at_of(r, scales, cases_elements(&r->c->operand[scales]) > 1 ? head : 0);
	for (int64_t i = 0; i < x->shape[x->rank - 1]; i++) {
		double size = 0, value = at_of(r, from, in + i);
		if (from == K)
			value = turned(r, K, in, i, row_of(r, token), &size);
		if (to != x->dtype)
			reference_quotient(r, cache, out + i, value / scale,
							   3 * unit * size / fabs(scale) + fabs(value / scale) * 0x1p-22);
		else
			reference_value(r, cache, out + i, value,
							size == 0 ? 0
									  : 3 * unit * size + reference_rounding(to, value) +
											reference_floor(to));
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	int64_t tokens = cases_elements(&r->c->operand[SLOTS]);
	int64_t heads = r->c->operand[K].shape[dims_of(r->c).head];

	for (int64_t unit = first; unit < last; unit++) {
		int64_t slot;
		if (unit >= tokens) {
			reference_chunk(r, K_CACHE, unit - tokens, tokens, slot_of);
			continue;
		}
		query(r, unit);
		slot = slot_of(r, unit);
		for (int64_t head = 0; slot >= 0 && head < heads; head++) {
			store(r, K, unit, slot, head);
			store(r, V, unit, slot, head);
		}
	}
}

static const struct cases_op rope_kv_store = {"rope_kv_store", units, reference};

/* ---- The cases ---- */

#define INTERLEAVED 1u
#define INSIDE 2u /* layout bhsd */
#define HND 4u
#define QKV 8u /* q, k and v are parts of one tensor */
#define SCALE 16u
#define EACH 32u
#define START 64u
#define STRAY 128u /* positions are out of range */
#define AWAY 256u  /* slots are */
#define CLAMP 512u

struct spec {
	kiln_dtype dtype, table, to;
	int64_t batch, tokens, q_heads, kv_heads, dim, half, blocks, size;
	kiln_dtype positions, slots;
	unsigned flags;
};

static void add_heads(struct cases_case *c, const struct spec *s, int operand)
{
	bool inside = s->flags & INSIDE, batched = s->batch > 0;
	int64_t heads = operand == Q || operand == Q_OUT ? s->q_heads : s->kv_heads;
	int64_t pitch = (s->q_heads + 2 * s->kv_heads) * s->dim, stride[4];
	struct make_shape shape = {3 + batched, {s->batch}};

	shape.size[batched + inside] = s->tokens;
	shape.size[batched + !inside] = heads;
	shape.size[batched + 2] = s->dim;
	if (operand == Q_OUT) {
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
}

static void fill(struct cases_case *c, const struct spec *s)
{
	int64_t rows = s->tokens + (s->flags & START ? 3 : 0);
	struct make_shape table = {2, {rows, s->half}}, slots = {1, {s->tokens}}, positions = slots;
	struct make_shape scale = {s->flags & EACH ? 1 : 0, {s->kv_heads}};
	struct make_shape cache = {4, {s->blocks, s->size, s->kv_heads, s->dim}};

	if (s->batch)
		slots = (struct make_shape){2, {s->batch, s->tokens}};
	if (s->flags & HND) {
		cache.size[1] = s->kv_heads;
		cache.size[2] = s->size;
	}
	for (int i = Q; i <= V; i++)
		if (i == COS || i == SIN)
			make_input(c, i, s->table, &table);
		else
			add_heads(c, s, i);
	make_input(c, SLOTS, s->slots, &slots)->fill = CASES_SLOTS;
	c->operand[SLOTS].most = s->blocks * s->size * (s->flags & AWAY ? 3 : 1);
	make_none(c, POSITIONS);
	if (s->positions != NO) {
		make_input(c, POSITIONS, s->positions, &positions)->fill =
			s->flags & STRAY ? CASES_STRAY : CASES_INDICES;
		c->operand[POSITIONS].most = rows;
	}
	for (int i = K_SCALE; i <= V_SCALE; i++) {
		make_none(c, i);
		if (s->flags & (SCALE | EACH))
			make_input(c, i, KILN_F32, &scale)->mean = 0.5;
		c->operand[i].deviation = 0.05;
	}
	add_heads(c, s, Q_OUT);
	make_kept(c, K_CACHE, s->to, &cache);
	make_kept(c, V_CACHE, s->to, &cache);
	if (s->flags & INTERLEAVED)
		make_int(c, "interleaved", 1);
	if (s->flags & START)
		make_int(c, "start", 3);
	if (s->flags & INSIDE)
		make_word(c, "layout", "bhsd");
	if (s->flags & HND)
		make_word(c, "kv_layout", "hnd");
	if (s->flags & CLAMP)
		make_word(c, "bounds", "clamp");
	else if (s->flags & (STRAY | AWAY) && s->tokens > 0)
		c->flags |= CASES_STRAYS;
}

static void name(struct cases_case *c)
{
	static const char *const names[] = {"",           " cos",   "", " k", "",   " slots",
										" positions", " scale", "", "",   " in"};

	c->name[0] = 0;
	cases_name(c, "rope_kv_store");
	for (int i = Q; i <= K_CACHE; i++) {
		if (c->operand[i].dtype == NO || (i && !names[i][0]))
			continue;
		cases_name(c, "%s", names[i]);
		cases_name_operand(c, i);
		if (c->operand[i].fill == CASES_STRAY)
			cases_name(c, " stray");
	}
	for (int i = 0; i < c->attr_count; i++)
		if (c->attr[i].kind == KILN_ATTR_STRING)
			cases_name(c, " %s", c->attr[i].s);
		else
			cases_name(c, " %s", c->attr[i].name);
}

static struct cases_case *add(const struct spec *s, unsigned flags)
{
	struct cases_case *c = cases_add(&rope_kv_store, flags);

	fill(c, s);
	name(c);
	return c;
}

static void add_all(void)
{
	static const struct spec specs[] = {
		{KILN_BF16, KILN_F32, KILN_BF16, 0, 7, 4, 2, 64, 32, 2, 8, KILN_I64, KILN_I64, 0},
		{KILN_F16, KILN_F16, KILN_F8E4M3, 2, 5, 3, 1, 32, 12, 3, 4, NO, KILN_I32, SCALE | START},
		{KILN_F32, KILN_F32, KILN_F32, 0, 5, 2, 2, 7, 2, 2, 4, KILN_I32, KILN_I32, INTERLEAVED},
		{KILN_BF16, KILN_BF16, KILN_I8, 2, 4, 2, 1, 16, 8, 3, 4, NO, KILN_I64,
		 EACH | HND | INSIDE | QKV | INTERLEAVED},
		{KILN_F64, KILN_F64, KILN_F64, 0, 4, 1, 1, 6, 2, 2, 3, NO, KILN_I32, AWAY},
		{KILN_F16, KILN_F32, KILN_F8E5M2, 0, 9, 2, 1, 16, 8, 3, 4, KILN_I64, KILN_I64, STRAY},
		{KILN_F32, KILN_F32, KILN_F32, 0, 9, 2, 1, 8, 4, 3, 4, KILN_I32, KILN_I64, STRAY | CLAMP},
		{KILN_F16, KILN_F16, KILN_F16, 0, 0, 2, 1, 8, 4, 3, 4, NO, KILN_I32, 0},
	};
	static const struct spec timed[] = {
		{KILN_BF16, KILN_F32, KILN_BF16, 0, 65536, 32, 8, 128, 64, 4096, 16, KILN_I64, KILN_I64,
		 QKV},
		{KILN_BF16, KILN_F32, KILN_F8E4M3, 0, 65536, 32, 8, 128, 64, 4096, 16, KILN_I64, KILN_I64,
		 SCALE},
		{KILN_F16, KILN_F16, KILN_F16, 8, 4096, 32, 8, 128, 64, 2048, 16, NO, KILN_I32,
		 INTERLEAVED | HND},
	};

	for (int i = 0; i < MAKE_COUNT(specs); i++)
		add(&specs[i], 0);
	for (int i = 0; i < MAKE_COUNT(timed); i++)
		add(&timed[i], CASES_BENCH | CASES_BIG);
	/* More than 2^31 elements. */
	add(&(struct spec){KILN_F16, KILN_F32, KILN_F8E4M3, 8, 16385, 128, 8, 128, 64, 8200, 16, NO,
					   KILN_I64, SCALE},
		CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	static const kiln_dtype narrow[] = {KILN_F8E4M3, KILN_F8E5M2, KILN_I8};
	kiln_dtype dtype = make_float(make_below(state, 3));
	struct spec s = {.dtype = dtype,
					 .table = make_chance(state, 2) ? dtype : KILN_F32,
					 .to = make_chance(state, 2) ? dtype : narrow[make_below(state, 3)],
					 .batch = make_below(state, 3),
					 .tokens = 1 + make_below(state, 8),
					 .q_heads = 1 + make_below(state, 3),
					 .kv_heads = 1 + make_below(state, 3),
					 .dim = 1 + make_below(state, 36),
					 .size = 1 + make_below(state, 6),
					 .positions = make_chance(state, 2) ? NO : KILN_I32,
					 .slots = KILN_I64,
					 .flags = (unsigned)make_below(state, 16)};

	memset(out, 0, sizeof(*out));
	out->op = &rope_kv_store;
	s.half = make_chance(state, 2) ? s.dim / 2 : make_below(state, s.dim / 2 + 1);
	s.blocks = 3 * s.tokens / s.size + 1;
	if (s.to != s.dtype)
		s.flags |= (unsigned)make_below(state, 3) * SCALE;
	s.flags |= make_chance(state, 4) ? AWAY : 0;
	fill(out, &s);
	for (int i = 0; i < OPERANDS; i++)
		if (out->operand[i].dtype != NO && make_chance(state, 5))
			out->operand[i].offset = cases_element(&out->operand[i]);
	name(out);
}

/* ---- What the planner refuses ---- */

static void make_plain(struct cases_case *c)
{
	static const struct spec plain = {KILN_F16, KILN_F32, KILN_I8, 2, 5,        4,        2,
									  16,       8,        3,       4, KILN_I32, KILN_I32, SCALE};

	c->op = &rope_kv_store;
	fill(c, &plain);
}

static void bad_q(struct cases_case *c)
{
	make_plain(c);
	c->operand[Q].dtype = KILN_I32;
}

static void bad_v(struct cases_case *c)
{
	make_plain(c);
	c->operand[V].dtype = KILN_F32;
}

static void bad_shape(struct cases_case *c)
{
	make_plain(c);
	c->operand[V].shape[2] = 1;
}

static void bad_slots(struct cases_case *c)
{
	make_plain(c);
	c->operand[SLOTS].shape[0] = 3;
}

static const struct cases_refusal refusals[] = {
	{"rope_kv_store: q is i32; it must be f16, bf16, f32 or f64", bad_q},
	{"rope_kv_store: k is f16 and v is f32; they must agree", bad_v},
	{"rope_kv_store: k and v must have the same dimensions", bad_shape},
	{"rope_kv_store: dimension 0 of k has size 2 and dimension 0 of slots 3; they must agree",
	 bad_slots},
	{NULL, NULL},
};

const struct cases_op *const rope_kv_store_ops[] = {&rope_kv_store, NULL};
const struct cases_family rope_kv_store_family = {
	.name = "rope_kv_store", .add = add_all, .random = add_random, .refusals = refusals};
