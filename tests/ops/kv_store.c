/*
 * kv_store.c: keys and values of new tokens, stored into paged caches.
 *
 * Slot s is place s % block_size of block s / block_size; -1 is none, and one out of range
 * (bounds check) none that is reported.  The slots that no token names stay as they are.
 *
 * Elements stay as they are bit for bit; or they become x / scale, rounded to nearest into 8 bits,
 * ties to even; they saturate, and NaN becomes 0 in i8.  A quotient may be off by two roundings of
 * f32, so an element is one of the numbers to which such a quotient rounds.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

enum { K, V, SLOTS, K_SCALE, V_SCALE, K_CACHE, V_CACHE, OPERANDS };

/* ---- The reference ---- */

/* Tokens, and behind them the chunks of slots. */
static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[SLOTS]) + reference_chunks(c, K_CACHE);
}

/* The slot of a token; -1: it has none. */
static int64_t slot_of(const struct reference *r, int64_t token)
{
	const struct cases_operand *slots = &r->c->operand[SLOTS];
	int64_t slot = reference_index(slots, r->memory[SLOTS], token * slots->stride[0]);

	if (slot >= 0 && slot < reference_slots(r->c, K_CACHE))
		return slot;
	if (slot != -1 && reference_is(r->c, "bounds", "trust"))
		reference_invalid(r, SLOTS, token, "out of range", "in it, or -1");
	return -1;
}

static double scale_of(const struct reference *r, int operand, int64_t head)
{
	const struct cases_operand *scale = &r->c->operand[operand];

	if (scale->dtype == KILN_DTYPE_NONE)
		return 1;
	return cases_get(KILN_F32, r->memory[operand],
					 cases_elements(scale) > 1 ? head * scale->stride[0] : 0);
}

static void store(const struct reference *r, int from, int64_t token, int64_t slot, int64_t head)
{
	const struct cases_operand *x = &r->c->operand[from], *y = &r->c->operand[K_CACHE + from];
	int64_t in = token * x->stride[0] + head * x->stride[1];
	int64_t out = reference_slot_at(r->c, K_CACHE + from, slot, head);
	double scale = scale_of(r, K_SCALE + from, head);

	for (int64_t i = 0; i < x->shape[2]; i++) {
		double q;
		if (x->dtype == y->dtype) {
			reference_bytes(r, K_CACHE + from, out + i,
							(const char *)r->memory[from] + (in + i) * cases_element(x));
			continue;
		}
		q = cases_get(x->dtype, r->memory[from], in + i) / scale;
		reference_quotient(r, K_CACHE + from, out + i, q, fabs(q) * 0x1p-22);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *k = &r->c->operand[K];

	for (int64_t unit = first; unit < last; unit++) {
		int64_t slot;
		if (unit >= k->shape[0]) {
			reference_chunk(r, K_CACHE, unit - k->shape[0], k->shape[0], slot_of);
			continue;
		}
		slot = slot_of(r, unit);
		for (int64_t head = 0; slot >= 0 && head < k->shape[1]; head++) {
			store(r, K, unit, slot, head);
			store(r, V, unit, slot, head);
		}
	}
}

static const struct cases_op kv_store = {"kv_store", units, reference};

/* ---- The cases ---- */

#define NO KILN_DTYPE_NONE
#define HND 1u   /* kv_layout */
#define QKV 2u   /* k and v are parts of one tensor */
#define PAGED 4u /* a block of k and one of v lie side by side in one tensor */
#define SCALE 8u
#define EACH 16u  /* a scale for each head */
#define STRAY 32u /* slots are out of range */
#define TRUST 64u

struct spec {
	kiln_dtype from, to;
	int64_t tokens, heads, dim, v_dim;
	int64_t blocks, size; /* of slots */
	kiln_dtype slots;
	unsigned flags;
};

static void add_values(struct cases_case *c, const struct spec *s, int operand)
{
	int64_t dim = operand == K ? s->dim : s->v_dim, pitch = s->heads * (s->dim + s->v_dim);
	struct make_shape shape = {3, {s->tokens, s->heads, dim}};

	make_input(c, operand, s->from, &shape)->deviation = s->to == KILN_I8 ? 50 : 1;
	if (s->flags & QKV)
		make_strided(&c->operand[operand], (const int64_t[]){pitch, dim, 1});
}

static void add_cache(struct cases_case *c, const struct spec *s, int operand)
{
	int64_t dim = operand == K_CACHE ? s->dim : s->v_dim, pair = s->size * s->heads;
	struct make_shape shape = {4, {s->blocks, s->size, s->heads, dim}};

	if (s->flags & HND) {
		shape.size[1] = s->heads;
		shape.size[2] = s->size;
	}
	make_kept(c, operand, s->to, &shape);
	if (s->flags & PAGED)
		make_strided(&c->operand[operand],
					 (const int64_t[]){pair * (s->dim + s->v_dim), shape.size[2] * dim, dim, 1});
}

static void add_scale(struct cases_case *c, const struct spec *s, int operand)
{
	struct make_shape shape = {s->flags & EACH ? 1 : 0, {s->heads}};
	struct cases_operand *scale;

	if (!(s->flags & (SCALE | EACH))) {
		make_none(c, operand);
		return;
	}
	scale = make_input(c, operand, KILN_F32, &shape);
	scale->mean = 0.7;
	scale->deviation = 0.1;
}

static void name(struct cases_case *c)
{
	static const char *const names[] = {"", " v", " slots", " k_scale", " v_scale", " in"};

	c->name[0] = 0;
	cases_name(c, "kv_store");
	for (int i = K; i <= K_CACHE; i++) {
		const struct cases_operand *o = &c->operand[i];
		if (o->dtype == NO || i == V_SCALE ||
			(i == V && o->contiguous && !o->offset && o->shape[2] == c->operand[K].shape[2]))
			continue;
		cases_name(c, "%s", names[i]);
		cases_name_operand(c, i);
		if (o->fill == CASES_UNUSUAL)
			cases_name(c, " unusual");
	}
	if (c->flags & CASES_STRAYS)
		cases_name(c, " stray");
	for (int i = 0; i < c->attr_count; i++)
		cases_name(c, " %s", c->attr[i].s);
}

static void fill(struct cases_case *c, const struct spec *s)
{
	add_values(c, s, K);
	add_values(c, s, V);
	make_input(c, SLOTS, s->slots, &(struct make_shape){1, {s->tokens}});
	c->operand[SLOTS].fill = CASES_SLOTS;
	c->operand[SLOTS].most = s->blocks * s->size * (s->flags & STRAY ? 3 : 1);
	add_scale(c, s, K_SCALE);
	add_scale(c, s, V_SCALE);
	add_cache(c, s, K_CACHE);
	add_cache(c, s, V_CACHE);
	if (s->flags & HND)
		make_word(c, "kv_layout", "hnd");
	if (s->flags & TRUST)
		make_word(c, "bounds", "trust");
	if (s->flags & STRAY && s->tokens && s->heads)
		c->flags |= CASES_STRAYS;
}

static struct cases_case *add(const struct spec *s, unsigned flags)
{
	struct cases_case *c = cases_add(&kv_store, flags);

	fill(c, s);
	name(c);
	return c;
}

static void add_shapes(void)
{
	static const struct spec specs[] = {
		{KILN_BF16, KILN_BF16, 11, 2, 64, 64, 3, 16, KILN_I64, 0},
		{KILN_F16, KILN_F16, 5, 3, 64, 32, 4, 4, KILN_I32, HND | QKV},
		{KILN_F32, KILN_F32, 7, 2, 5, 5, 3, 3, KILN_I32, STRAY},
		{KILN_BF16, KILN_BF16, 9, 2, 12, 12, 2, 8, KILN_I64, PAGED},
		{KILN_F16, KILN_F16, 6, 2, 6, 6, 2, 4, KILN_I64, PAGED | HND | TRUST},
		{KILN_I8, KILN_I8, 6, 1, 7, 7, 2, 5, KILN_I32, TRUST},
		{KILN_F64, KILN_F64, 3, 2, 3, 3, 2, 4, KILN_I32, 0},
		{KILN_BF16, KILN_F8E4M3, 11, 4, 64, 64, 3, 16, KILN_I64, SCALE},
		{KILN_F16, KILN_F8E5M2, 9, 3, 16, 24, 4, 4, KILN_I32, EACH | HND | STRAY},
		{KILN_F32, KILN_I8, 9, 2, 16, 16, 3, 5, KILN_I64, EACH | QKV},
		{KILN_F16, KILN_F8E4M3, 7, 2, 5, 3, 3, 4, KILN_I32, 0},
		{KILN_BF16, KILN_I8, 7, 2, 16, 16, 3, 4, KILN_I32, PAGED | SCALE},
		{KILN_F32, KILN_F8E4M3, 6, 1, 4, 4, 2, 3, KILN_I64, SCALE | STRAY},
		{KILN_BF16, KILN_F8E5M2, 6, 1, 8, 8, 2, 3, KILN_I64, SCALE | TRUST},
		/* No tokens, no elements, and no slot. */
		{KILN_F16, KILN_F16, 0, 2, 8, 8, 2, 4, KILN_I32, 0},
		{KILN_F16, KILN_F16, 3, 2, 8, 0, 2, 4, KILN_I32, 0},
		{KILN_F16, KILN_F16, 3, 2, 0, 0, 2, 4, KILN_I32, 0},
		{KILN_F16, KILN_F16, 3, 2, 8, 8, 0, 4, KILN_I32, STRAY},
	};

	for (int i = 0; i < MAKE_COUNT(specs); i++)
		add(&specs[i], 0);
}

/* Addresses that are aligned to elements alone, gaps, and numbers that are none. */
static void add_layouts(void)
{
	for (int i = 0; i < 4; i++) {
		const kiln_dtype to = i == 0   ? KILN_F16
							  : i == 1 ? KILN_F8E4M3
							  : i == 2 ? KILN_I8
									   : KILN_F8E5M2;
		const struct spec s = {KILN_F16, to, 9, 2, 16, 16, 3, 4, KILN_I32, i ? SCALE : 0};
		struct cases_case *c = cases_add(&kv_store, 0);
		fill(c, &s);
		c->operand[i % 2 ? K_CACHE : K].offset = 2;
		c->operand[K].fill = CASES_UNUSUAL;
		make_strided(&c->operand[V], (const int64_t[]){48, 20, 1});
		make_strided(&c->operand[V_CACHE], (const int64_t[]){160, 36, 18, 1});
		name(c);
	}
}

/* Every slot is named once. */
static void add_timed(void)
{
	static const struct spec specs[] = {
		{KILN_BF16, KILN_BF16, 131072, 8, 128, 128, 8192, 16, KILN_I64, 0},
		{KILN_BF16, KILN_BF16, 131072, 8, 128, 128, 8192, 16, KILN_I32, HND | PAGED | QKV},
		{KILN_BF16, KILN_F8E4M3, 131072, 8, 128, 128, 8192, 16, KILN_I64, SCALE},
		{KILN_F16, KILN_I8, 131072, 8, 128, 128, 2048, 64, KILN_I64, EACH},
		{KILN_F16, KILN_F16, 65536, 32, 80, 80, 4096, 16, KILN_I64, 0},
	};

	for (int i = 0; i < MAKE_COUNT(specs); i++)
		add(&specs[i], CASES_BENCH | CASES_BIG);
	/* More than 2^31 elements. */
	add(&(struct spec){KILN_BF16, KILN_F8E4M3, 262144, 64, 130, 128, 16384, 16, KILN_I64, 0},
		CASES_HUGE);
}

static void add_all(void)
{
	add_shapes();
	add_layouts();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	static const kiln_dtype narrow[] = {KILN_F8E4M3, KILN_F8E5M2, KILN_I8};
	struct spec s = {.from = make_float(make_below(state, 3)),
					 .tokens = make_below(state, 30),
					 .heads = 1 + make_below(state, 4),
					 .dim = 1 + make_below(state, 40),
					 .size = 1 + make_below(state, 9),
					 .slots = make_chance(state, 2) ? KILN_I32 : KILN_I64,
					 .flags = (unsigned)make_below(state, 8)};

	memset(out, 0, sizeof(*out));
	out->op = &kv_store;
	s.to = make_chance(state, 2) ? s.from : narrow[make_below(state, 3)];
	s.v_dim = make_chance(state, 3) ? 1 + make_below(state, 40) : s.dim;
	s.blocks = s.tokens / s.size + 1 + make_below(state, 3);
	if (s.to != s.from)
		s.flags |= (unsigned)make_below(state, 4) * SCALE;
	s.flags |= make_chance(state, 4) ? STRAY : make_chance(state, 4) ? TRUST : 0;
	fill(out, &s);
	for (int i = 0; i < OPERANDS; i++)
		if (out->operand[i].dtype != NO && make_chance(state, 4))
			out->operand[i].offset = cases_element(&out->operand[i]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct spec plain = {KILN_F16, KILN_I8, 5, 2, 8, 8, 3, 4, KILN_I32, SCALE};

static void make_plain(struct cases_case *c)
{
	c->op = &kv_store;
	fill(c, &plain);
}

static void bad_v(struct cases_case *c)
{
	make_plain(c);
	c->operand[V].dtype = KILN_BF16;
}

static void bad_rank(struct cases_case *c)
{
	make_plain(c);
	c->operand[V].rank = 2;
}

static void bad_heads(struct cases_case *c)
{
	make_plain(c);
	c->operand[V].shape[1] = 3;
}

static void bad_inner(struct cases_case *c)
{
	make_plain(c);
	make_strided(&c->operand[K], (const int64_t[]){32, 16, 2});
}

static void bad_slots(struct cases_case *c)
{
	make_plain(c);
	c->operand[SLOTS].dtype = KILN_U8;
}

static void bad_slots_rank(struct cases_case *c)
{
	make_plain(c);
	c->operand[SLOTS].rank = 0;
}

static void bad_count(struct cases_case *c)
{
	make_plain(c);
	c->operand[SLOTS].shape[0] = 4;
}

static void bad_caches(struct cases_case *c)
{
	make_plain(c);
	c->operand[V_CACHE].dtype = KILN_F8E4M3;
}

static void bad_to(struct cases_case *c)
{
	make_plain(c);
	c->operand[K_CACHE].dtype = c->operand[V_CACHE].dtype = KILN_F32;
}

static void bad_from(struct cases_case *c)
{
	make_plain(c);
	c->operand[K].dtype = c->operand[V].dtype = KILN_F64;
}

static void bad_cache_rank(struct cases_case *c)
{
	make_plain(c);
	c->operand[K_CACHE].rank = 3;
}

static void bad_cache_heads(struct cases_case *c)
{
	make_plain(c);
	c->operand[K_CACHE].shape[2] = 3;
}

static void bad_blocks(struct cases_case *c)
{
	make_plain(c);
	c->operand[V_CACHE].shape[0] = 4;
}

static void bad_dim(struct cases_case *c)
{
	make_plain(c);
	c->operand[V_CACHE].shape[3] = 4;
}

static void bad_overlap(struct cases_case *c)
{
	make_plain(c);
	make_strided(&c->operand[K_CACHE], (const int64_t[]){0, 16, 8, 1});
}

static void bad_scale(struct cases_case *c)
{
	make_plain(c);
	c->operand[K_SCALE].dtype = KILN_F16;
}

static void bad_scale_size(struct cases_case *c)
{
	make_plain(c);
	make_input(c, V_SCALE, KILN_F32, &(struct make_shape){1, {3}});
}

static void bad_copy(struct cases_case *c)
{
	make_plain(c);
	c->operand[K_CACHE].dtype = c->operand[V_CACHE].dtype = KILN_F16;
}

static void bad_cache(struct cases_case *c)
{
	make_plain(c);
	make_none(c, V_CACHE);
}

static const struct cases_refusal refusals[] = {
	{"kv_store: k is f16 and v is bf16; they must agree", bad_v},
	{"kv_store: v has rank 2; it must be 3, [tokens, heads, dim]", bad_rank},
	{"kv_store: dimension 1 has size 2 in k and 3 in v; they must agree", bad_heads},
	{"kv_store: dimension 2 of k has stride 2; it must be 1", bad_inner},
	{"kv_store: slots is u8; it must be i32 or i64", bad_slots},
	{"kv_store: slots has rank 0; with k of rank 3 it must be 1", bad_slots_rank},
	{"kv_store: dimension 0 of k has size 5 and dimension 0 of slots 4; they must agree",
	 bad_count},
	{"kv_store: k_cache is i8 and v_cache is f8e4m3; they must agree", bad_caches},
	{"kv_store: k_cache is f32; with k of f16 it must be f16, f8e4m3, f8e5m2 or i8", bad_to},
	{"kv_store: k_cache is i8; with k of f64 it must be f64", bad_from},
	{"kv_store: k_cache has rank 3; it must be 4", bad_cache_rank},
	{"kv_store: dimension 2 of k_cache has size 3; it must be 2, the heads of k", bad_cache_heads},
	{"kv_store: dimension 0 of v_cache has size 4; it must be 3, as in k_cache", bad_blocks},
	{"kv_store: dimension 3 of v_cache has size 4; it must be 8, the size of v's heads", bad_dim},
	{"kv_store: elements of k_cache share their place; an output's must lie apart", bad_overlap},
	{"kv_store: k_scale is f16; it must be f32", bad_scale},
	{"kv_store: v_scale has rank 1 and 3 elements; it must have one element, or rank 1 and 2, one "
	 "for each head",
	 bad_scale_size},
	{"kv_store: k_cache is f16, as k is; k_scale must be left out", bad_copy},
	{"kv_store: v_cache is missing; its operands are: k, v, slots, k_scale?, v_scale?, k_cache, "
	 "v_cache (those with ? may be left out)",
	 bad_cache},
	{NULL, NULL},
};

const struct cases_op *const kv_store_ops[] = {&kv_store, NULL};
const struct cases_family kv_store_family = {
	.name = "kv_store", .add = add_all, .random = add_random, .refusals = refusals};
