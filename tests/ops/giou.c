/*
 * giou.c: the generalized intersection over union of boxes, its mean, and the backward of
 * both: the reference, and what is on the list.
 *
 *   giou = inter / max(union, 1e-5) - (enclosing - union) / max(enclosing, 1e-5), 0 unless the
 *   pair is valid: it has a target, and its y2 is not 0.  clamp: sides of inter are at least 0.
 *
 *   giou_loss           the sum over the valid pairs, divided by their number, 1 if there are none
 *   giou_backward       dpred = dy * the derivatives by pred's numbers
 *   giou_loss_backward  the same of dloss / max(count, 1)
 *
 * A derivative at a limit is that on the side where it passes; where both boxes have the same
 * number, it is halved.
 *
 * How far off a result may be: numbers are exact, a side is rounded once, an area three times, and
 * from there on errors add up as they come (struct value).  Where they reach the limits 1e-5 or the
 * whole of what is divided by, anything may come out.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cases_op giou_op, giou_loss_op, giou_backward_op, giou_loss_backward_op;

#define LEAST 1e-5

/* ---- Numbers with how far off they may be ---- */

struct value {
	double v, off;
};

struct math {
	double unit;
	bool vague; /* at a limit, or nothing left to divide by */
};

static struct value exact(double v)
{
	return (struct value){v, 0};
}

static struct value add(const struct math *math, struct value a, struct value b)
{
	double v = a.v + b.v;

	return (struct value){v, a.off + b.off + math->unit * fabs(v)};
}

static struct value negative(struct value a)
{
	return (struct value){-a.v, a.off};
}

static struct value multiply(const struct math *math, struct value a, struct value b)
{
	double v = a.v * b.v;

	return (struct value){v, fabs(a.v) * b.off + fabs(b.v) * a.off + a.off * b.off +
								 math->unit * fabs(v)};
}

static struct value invert(struct math *math, struct value a)
{
	double v = 1 / a.v, left = fabs(a.v) - a.off;

	math->vague = math->vague || left <= a.off;
	return (struct value){v, a.off / (fabs(a.v) * fmax(left, LEAST)) + 2 * math->unit * fabs(v)};
}

/* At least 1e-5, which is rounded as well. */
static struct value limited(struct math *math, struct value a, bool *below)
{
	*below = a.v < LEAST;
	math->vague = math->vague || fabs(a.v - LEAST) <= a.off + math->unit * LEAST;
	return *below ? (struct value){LEAST, math->unit * LEAST} : a;
}

/* ---- A pair ---- */

struct pair {
	struct math math;
	double a[4], b[4];
	bool clamp;
	struct value wide, high, inner[2], outer[2];
	bool cut[2]; /* the side of the intersection was below 0 */
	struct value inter, joined, enclosing;
	bool joined_below, enclosing_below;
	struct value over, around; /* what is multiplied by instead of divided */
};

static struct value side(struct pair *p, int axis)
{
	struct value length = add(&p->math, exact(fmin(p->a[axis + 2], p->b[axis + 2])),
							  exact(-fmax(p->a[axis], p->b[axis])));

	p->cut[axis] = p->clamp && length.v < 0;
	return p->cut[axis] ? exact(0) : length;
}

static void look_at(struct pair *p)
{
	const struct math *m = &p->math;
	struct value other[2];

	p->wide = add(m, exact(p->a[2]), exact(-p->a[0]));
	p->high = add(m, exact(p->a[3]), exact(-p->a[1]));
	for (int i = 0; i < 2; i++) {
		p->inner[i] = side(p, i);
		p->outer[i] = add(m, exact(fmax(p->a[i + 2], p->b[i + 2])), exact(-fmin(p->a[i], p->b[i])));
		other[i] = add(m, exact(p->b[i + 2]), exact(-p->b[i]));
	}
	p->inter = multiply(m, p->inner[0], p->inner[1]);
	p->joined = add(m, multiply(m, p->wide, p->high), multiply(m, other[0], other[1]));
	p->joined = add(m, p->joined, negative(p->inter));
	p->enclosing = multiply(m, p->outer[0], p->outer[1]);
	p->over = invert(&p->math, limited(&p->math, p->joined, &p->joined_below));
	p->around = invert(&p->math, limited(&p->math, p->enclosing, &p->enclosing_below));
}

static struct value giou(const struct pair *p)
{
	const struct math *m = &p->math;
	struct value rest = add(m, p->enclosing, negative(p->joined));

	return add(m, multiply(m, p->inter, p->over), negative(multiply(m, rest, p->around)));
}

/* Returns the derivative of max(a, b) by a; half where they are equal. */
static struct value share(double a, double b)
{
	return exact(a > b ? 1 : a < b ? 0 : 0.5);
}

static void gradient(const struct pair *p, struct value factor, struct value out[4])
{
	const struct math *m = &p->math;
	const struct value none = exact(0), sides[2] = {p->high, p->wide};
	struct value of_joined = none, of_enclosing = none;

	if (!p->joined_below)
		of_joined = multiply(m, multiply(m, p->inter, p->over), p->over);
	if (!p->enclosing_below)
		of_enclosing = multiply(
			m, multiply(m, add(m, p->enclosing, negative(p->joined)), p->around), p->around);
	struct value by_joined = multiply(m, factor, add(m, p->around, negative(of_joined)));
	struct value by_inter = add(m, multiply(m, factor, p->over), negative(by_joined));
	struct value by_enclosing = multiply(m, factor, add(m, of_enclosing, negative(p->around)));
	for (int i = 0; i < 2; i++) {
		struct value own = multiply(m, by_joined, sides[i]);
		struct value inner = p->cut[i] ? none : multiply(m, by_inter, p->inner[1 - i]);
		struct value outer = multiply(m, by_enclosing, p->outer[1 - i]);
		struct value low = share(p->a[i], p->b[i]), top = share(p->a[i + 2], p->b[i + 2]);
		struct value both = add(m, multiply(m, low, inner), multiply(m, exact(1 - low.v), outer));
		out[i] = negative(add(m, own, both));
		both = add(m, multiply(m, exact(1 - top.v), inner), multiply(m, top, outer));
		out[i + 2] = add(m, own, both);
	}
}

/* ---- Operands ---- */

static bool is_loss(const struct cases_case *c)
{
	return c->op == &giou_loss_op || c->op == &giou_loss_backward_op;
}

static bool is_backward(const struct cases_case *c)
{
	return c->op == &giou_backward_op || c->op == &giou_loss_backward_op;
}

static bool is_ragged(const struct cases_case *c)
{
	return is_loss(c) && c->operand[2].dtype != KILN_DTYPE_NONE;
}

static int64_t pairs_of(const struct cases_case *c)
{
	return reference_product(&c->operand[0], 0, c->operand[0].rank - 1);
}

static void read_box(const struct reference *r, int operand, int64_t box, double out[4])
{
	const struct cases_operand *o = &r->c->operand[operand];
	int64_t at = reference_at(o, 0, o->rank - 1, box);

	for (int k = 0; k < 4; k++)
		out[k] = cases_get(o->dtype, r->memory[operand], at + k * o->stride[o->rank - 1]);
}

/* The number of the pair's target; -1: there is none. */
static int64_t target_of(const struct reference *r, int64_t pair)
{
	int64_t most = r->c->operand[0].shape[1], all = r->c->operand[1].shape[0], bounds[2];

	if (!is_ragged(r->c))
		return pair;
	for (int i = 0; i < 2; i++) {
		bounds[i] = (int64_t)cases_get(KILN_I32, r->memory[2], pair / most + i);
		bounds[i] = bounds[i] < 0 ? 0 : bounds[i] < all ? bounds[i] : all;
	}
	return pair % most < bounds[1] - bounds[0] ? bounds[0] + pair % most : -1;
}

/* false: it is not valid. */
static bool read_pair(const struct reference *r, int64_t number, struct pair *pair)
{
	kiln_dtype pred = r->c->operand[0].dtype, target = r->c->operand[1].dtype;
	int64_t other = target_of(r, number);

	if (other < 0)
		return false;
	*pair = (struct pair){.math.unit = reference_unit(pred),
						  .clamp = reference_int(r->c, "clamp", 1) != 0};
	read_box(r, 1, other, pair->b);
	/* Targets are taken in the type to compute in. */
	for (int k = 0; k < 4 && target == KILN_F64 && pred != KILN_F64; k++)
		pair->b[k] = (double)(float)pair->b[k];
	if (pair->b[3] == 0)
		return false;
	read_box(r, 0, number, pair->a);
	look_at(pair);
	return true;
}

/* ---- The reference ---- */

static void answer(const struct reference *r, int operand, int64_t element, struct value value,
				   bool vague)
{
	kiln_dtype dtype = r->c->operand[operand].dtype;
	double allowed = value.off + reference_rounding(dtype, value.v) + 4 * reference_floor(dtype);

	if (dtype == KILN_F16 && fabs(value.v) >= 65520)
		value.v = copysign(INFINITY, value.v);
	reference_value(r, operand, element, value.v, vague ? INFINITY : allowed);
}

static void one_loss(const struct reference *r)
{
	double off = 0, magnitude = 0, unit = reference_unit(r->c->operand[0].dtype);
	int64_t count = 0, pairs = pairs_of(r->c);
	long double sum = 0; /* beside one large loss the others are rounded one by one */
	bool vague = false;

	for (int64_t i = 0; i < pairs; i++) {
		struct pair pair;
		if (!read_pair(r, i, &pair))
			continue;
		struct value value = giou(&pair);
		sum += value.v;
		off += value.off;
		magnitude += fabs(value.v);
		vague = vague || pair.math.vague;
		count++;
	}
	/* A thread adds a few, then threads, warps and blocks meet by twos. */
	off += unit * (64 + fmin((double)pairs / 128, 64)) * magnitude;
	double by = count > 1 ? (double)count : 1;
	double mean = (double)(sum / by);
	answer(r, 3, 0, (struct value){mean, off / by + unit * fabs(mean)}, vague);
	if (r->c->operand[4].dtype != KILN_DTYPE_NONE)
		reference_value(r, 4, 0, (double)count, 0);
}

static struct value factor_of(const struct reference *r, int64_t pair)
{
	const struct cases_operand *operand = r->c->operand;
	double unit = reference_unit(operand[0].dtype), count, value;

	if (!is_loss(r->c))
		return exact(cases_get(operand[2].dtype, r->memory[2],
							   reference_at(&operand[2], 0, operand[2].rank, pair)));
	count = cases_get(KILN_I64, r->memory[3], 0);
	value = cases_get(operand[4].dtype, r->memory[4], 0) / (count > 1 ? count : 1);
	/* The count is rounded, its reciprocal is off by two units, and the product is rounded. */
	return (struct value){value, 4 * unit * fabs(value)};
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	int output = is_backward(r->c) ? r->c->operand_count - 1 : 2;

	if (is_loss(r->c) && !is_backward(r->c)) {
		if (first < last)
			one_loss(r);
		return;
	}
	for (int64_t i = first; i < last; i++) {
		struct value results[4] = {{0, 0}};
		struct pair pair = {.math.vague = false};
		bool valid = read_pair(r, i, &pair);
		if (valid && is_backward(r->c))
			gradient(&pair, factor_of(r, i), results);
		else if (valid)
			results[0] = giou(&pair);
		for (int k = 0; k < (is_backward(r->c) ? 4 : 1); k++) {
			int64_t element = is_backward(r->c) ? 4 * i + k : i;
			if (valid)
				answer(r, output, element, results[k], pair.math.vague);
			else
				reference_value(r, output, element, 0, 0);
		}
	}
}

static int64_t units(const struct cases_case *c)
{
	return is_loss(c) && !is_backward(c) ? 1 : pairs_of(c);
}

static const struct cases_op giou_op = {"giou", units, reference};
static const struct cases_op giou_loss_op = {"giou_loss", units, reference};
static const struct cases_op giou_backward_op = {"giou_backward", units, reference};
static const struct cases_op giou_loss_backward_op = {"giou_loss_backward", units, reference};

/* ---- The list ---- */

static const struct cases_op *const ops[] = {&giou_op, &giou_loss_op, &giou_backward_op,
											 &giou_loss_backward_op};
static const kiln_dtype targets[] = {KILN_F32, KILN_U8, KILN_F16, KILN_BF16, KILN_F64};

#define SLOW_ELEMENTS 1200000

/* Names a case when all else is done. */
static void name(struct cases_case *c)
{
	int64_t all = 0;

	c->name[0] = 0;
	cases_name(c, "%s", c->op->name);
	for (int i = 0; i < c->operand_count; i++) {
		/* Results and the like follow from the boxes. */
		if (i < 2 || !c->operand[i].contiguous || c->operand[i].offset)
			cases_name_operand(c, i);
		all += cases_elements(&c->operand[i]);
	}
	if (is_ragged(c))
		cases_name(c, " ragged");
	if (c->op == &giou_loss_op && c->operand[4].dtype)
		cases_name(c, " count");
	for (int i = 0; i < c->attr_count; i++)
		cases_name(c, " %s %lld", c->attr[i].name, (long long)c->attr[i].i);
	if (!(c->flags & CASES_BIG) && all > SLOW_ELEMENTS)
		c->flags |= CASES_SLOW;
}

static void results(struct cases_case *c, kiln_dtype pred, const struct make_shape *shape)
{
	const struct make_shape one = {0, {0}};
	struct make_shape pairs = *shape;
	kiln_dtype computed = pred == KILN_F64 ? KILN_F64 : KILN_F32;

	pairs.rank--;
	if (c->op == &giou_op) {
		make_output(c, 2, pred, &pairs);
	} else if (c->op == &giou_backward_op) {
		make_input(c, 2, pred, &pairs);
		make_output(c, 3, pred, shape);
	} else if (c->op == &giou_loss_op) {
		make_output(c, 3, computed, &one);
		make_none(c, 4);
	} else {
		struct cases_operand *count = make_input(c, 3, KILN_I64, &one);
		count->fill = CASES_INDICES;
		count->most = 50;
		make_input(c, 4, computed, &one);
		make_output(c, 5, pred, shape);
	}
}

/* shape: of the predictions, with the last dimension of 4. */
static void operands(struct cases_case *c, kiln_dtype pred, kiln_dtype target,
					 const struct make_shape *shape)
{
	struct cases_operand *boxes = make_input(c, 0, pred, shape);

	boxes->fill = CASES_BOXES;
	boxes->most = 1; /* with what must not be looked at in padding */
	make_input(c, 1, target, shape)->fill = CASES_TARGETS;
	if (is_loss(c))
		make_none(c, 2);
	results(c, pred, shape);
}

static void make_ragged(struct cases_case *c, int64_t boxes)
{
	const struct make_shape shape = {2, {boxes, 4}}, offsets = {1, {c->operand[0].shape[0] + 1}};
	int count = c->operand_count;

	c->operand[0].most = 0; /* which are padding does not follow from their numbers */
	make_input(c, 1, c->operand[1].dtype, &shape)->fill = CASES_TARGETS;
	make_input(c, 2, KILN_I32, &offsets)->fill = CASES_OFFSETS;
	c->operand[2].most = boxes;
	c->operand_count = count;
}

static struct cases_case *add_case(const struct cases_op *op, kiln_dtype pred, kiln_dtype target,
								   int64_t samples, int64_t most, unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	operands(c, pred, target, &(struct make_shape){3, {samples, most, 4}});
	name(c);
	return c;
}

static void make_count(struct cases_case *c)
{
	make_output(c, 4, KILN_I64, &(struct make_shape){0, {0}});
}

static void add_types(void)
{
	for (int p = 0; p < 4; p++) {
		for (int t = 0; t < MAKE_COUNT(targets); t++) {
			for (int o = 0; o < 4; o++) {
				struct cases_case *c = add_case(ops[o], make_float(p), targets[t], 6, 33, 0);
				if ((p + t + o) % 3 == 0)
					make_int(c, "clamp", 0);
				name(c);
			}
		}
	}
}

static void add_sizes(void)
{
	static const struct make_shape shapes[] = {
		{1, {4}},          {2, {1, 4}},        {2, {257, 4}},     {3, {0, 5, 4}},
		{3, {5, 0, 4}},    {3, {1, 1024, 4}},  {3, {1000, 3, 4}}, {4, {3, 2, 50, 4}},
		{3, {70, 130, 4}}, {3, {1024, 33, 4}}, {2, {70000, 4}},   {8, {2, 1, 3, 1, 2, 2, 1, 4}}};

	for (int i = 0; i < MAKE_COUNT(shapes); i++) {
		for (int o = 0; o < 4; o++) {
			struct cases_case *c = cases_add(ops[o], 0);
			operands(c, make_float(i + o), targets[(i + 2 * o) % 5], &shapes[i]);
			if (o == 1 && i % 2)
				make_count(c);
			if (i % 5 == 4)
				make_int(c, "clamp", i % 2);
			name(c);
		}
	}
}

static void add_ragged(void)
{
	static const struct {
		int64_t samples, most, boxes;
	} sizes[] = {{1, 5, 3},  {5, 8, 20}, {40, 256, 300}, {7, 3, 30},   {300, 4, 11},
				 {6, 10, 0}, {0, 4, 5},  {3, 0, 9},      {64, 17, 600}};

	for (int i = 0; i < MAKE_COUNT(sizes); i++) {
		for (int o = 1; o < 4; o += 2) {
			struct cases_case *c = add_case(ops[o], make_float(i), targets[(i + o) % 5],
											sizes[i].samples, sizes[i].most, 0);
			make_ragged(c, sizes[i].boxes);
			if (o == 1 && i % 2 == 0)
				make_count(c);
			if (i == 4) /* offsets beyond the targets */
				c->operand[2].most = 30;
			name(c);
		}
	}
}

/* Strides and addresses: boxes in wider rows, numbers apart, repeats, and no vector that fits. */
static void add_layouts(void)
{
	static const int64_t strides[][3] = {{40, 8, 1}, {33, 6, 1}, {60, 10, 2}, {4, 24, 1},
										 {1, 6, 30}, {5, 35, 1}, {56, 8, 1}};
	static const uint32_t places[][2] = {{1, 0}, {0, 1}, {2, 3}, {3, 2}};

	for (int i = 0; i < MAKE_COUNT(strides); i++) {
		for (int o = 0; o < 4; o++) {
			struct cases_case *c =
				add_case(ops[o], make_float(i + o), targets[(i + o) % 5], 6, 5, 0);
			make_strided(&c->operand[(i + o) % 2], strides[i]);
			if (o == 2)
				make_strided(&c->operand[2], strides[i]);
			if (o % 2 && i == 2) {
				make_ragged(c, 30);
				make_strided(&c->operand[1], (const int64_t[]){5, 1});
			}
			name(c);
		}
	}
	for (int i = 0; i < MAKE_COUNT(places); i++) {
		for (int o = 0; o < 4; o++) {
			struct cases_case *c =
				add_case(ops[o], make_float(i + o), targets[(i / 2 + o) % 5], 6, 9, 0);
			for (int k = 0; k < 2; k++)
				c->operand[k].offset = places[i][k] * cases_element(&c->operand[k]) % 16;
			if (is_backward(c))
				c->operand[c->operand_count - 1].offset = 8 * (uint32_t)(i % 2);
			name(c);
		}
	}
	/* One prediction for all targets of a sample. */
	struct cases_case *c = add_case(&giou_op, KILN_F32, KILN_U8, 6, 9, 0);
	make_strided(&c->operand[0], (const int64_t[]){4, 0, 1});
	c->operand[0].most = 0;
	name(c);
}

static void add_timed(void)
{
	add_case(&giou_loss_op, KILN_F32, KILN_F32, 1024, 256, CASES_BENCH);
	add_case(&giou_loss_op, KILN_F16, KILN_U8, 1024, 256, CASES_BENCH);
	add_case(&giou_loss_op, KILN_F32, KILN_F32, 65536, 256, CASES_BENCH | CASES_BIG);
	add_case(&giou_op, KILN_F32, KILN_F32, 65536, 256, CASES_BENCH | CASES_BIG);
	add_case(&giou_backward_op, KILN_F32, KILN_F32, 65536, 256, CASES_BENCH | CASES_BIG);
	add_case(&giou_loss_backward_op, KILN_F16, KILN_U8, 65536, 256, CASES_BENCH | CASES_BIG);
	/* More than 2^31 elements. */
	add_case(&giou_op, KILN_F16, KILN_U8, 524289, 1024, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_types();
	add_sizes();
	add_ragged();
	add_layouts();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape = {3, {1 + make_below(state, 40), 1 + make_below(state, 70), 4}};

	memset(out, 0, sizeof(*out));
	out->op = ops[make_below(state, 4)];
	operands(out, make_float(make_below(state, 4)), targets[make_below(state, 5)], &shape);
	if (out->op == &giou_loss_op && make_chance(state, 2))
		make_count(out);
	if (is_loss(out) && make_chance(state, 3))
		make_ragged(out, make_below(state, 1 + shape.size[0] * shape.size[1]));
	for (int i = 0; i < 2 && make_chance(state, 2); i++)
		out->operand[i].offset =
			(uint32_t)make_below(state, 16) & ~(cases_element(&out->operand[i]) - 1);
	if (make_chance(state, 3))
		make_int(out, "clamp", make_below(state, 2));
	name(out);
}

const struct cases_op *const giou_ops[] = {&giou_op, &giou_loss_op, &giou_backward_op,
										   &giou_loss_backward_op, NULL};
const struct cases_family giou_family = {.name = "giou", .add = add_all, .random = add_random};
