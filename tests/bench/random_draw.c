/*
 * random_draw.c: problems drawn by seed from the classes of sizes that models, images and accidents
 * have: an operator, a dtype, a shape, now and then a strided source.  Their kernels move 32 MB to
 * 1 GB.
 */
#include "random.h"

#include "daemon/plan/op.h"
#include "listed.h"
#include "random_sizes.h"
#include "tests/ops/common/make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES (32 << 20)
#define MOST_BYTES (1 << 30)

struct draw {
	uint64_t *state;
	struct cases_case *c;
	const struct plan_op *op;
	kiln_dtype dtype;
	int64_t bytes; /* that the kernel is to move, about */
};

static int64_t below(struct draw *d, int64_t limit)
{
	return make_below(d->state, limit);
}

static bool one_in(struct draw *d, int many)
{
	return make_chance(d->state, many);
}

/* ---- Operands by their names ---- */

static int place(const struct draw *d, const char *name)
{
	int i = 0;

	while (strcmp(d->op->operands[i].name, name) != 0)
		i++;
	return i;
}

static struct cases_operand *input(struct draw *d, const char *name, kiln_dtype dtype,
								   const struct make_shape *shape)
{
	return make_input(d->c, place(d, name), dtype, shape);
}

static void output(struct draw *d, const char *name, kiln_dtype dtype,
				   const struct make_shape *shape)
{
	make_output(d->c, place(d, name), dtype, shape);
}

/* ---- Rows ---- */

/* A matrix of which `streams` tensors move d->bytes; now and then its rows are numbered by two. */
static struct make_shape matrix(struct draw *d, int64_t columns, int streams)
{
	int64_t elements = d->bytes / streams / kernel_dtype_bytes(d->dtype);
	int64_t rows = elements / columns ? elements / columns : 1, batch = 1 + below(d, 16);

	if (one_in(d, 2) && rows > 64)
		rows -= rows % 64;
	if (one_in(d, 3) && rows > 2 * batch)
		return (struct make_shape){3, {batch, rows / batch, columns}};
	return (struct make_shape){2, {rows, columns}};
}

/* Leaves an input as it is, or makes it a part of the columns of a wider tensor. */
static void stride(struct draw *d, struct cases_operand *x)
{
	int64_t columns = x->shape[x->rank - 1];
	const int64_t more[] = {8, 64, columns, 2 * columns, 1 + below(d, 15)};

	if (one_in(d, 8))
		make_pitch(x, columns + more[below(d, columns < 4096 ? 5 : 2)]);
}

static void softmax(struct draw *d)
{
	struct make_shape shape = matrix(d, sizes_columns(d->state), 2);

	/* One in eight along another axis. */
	if (one_in(d, 8)) {
		int64_t length = sizes_sequence(d->state), inner = sizes_hidden(d->state);
		shape = matrix(d, length * inner, 2);
		shape.size[shape.rank - 1] = length;
		shape.size[shape.rank++] = inner;
		make_int(d->c, "axis", shape.rank - 2);
	}
	stride(d, input(d, "x", d->dtype, &shape));
	output(d, "y", d->dtype, &shape);
}

static void softmax_backward(struct draw *d)
{
	struct make_shape shape = matrix(d, sizes_columns(d->state), 3);

	input(d, "y", d->dtype, &shape)->fill = CASES_PROBABLE;
	input(d, "dy", d->dtype, &shape);
	output(d, "dx", d->dtype, &shape);
}

static void masked_softmax(struct draw *d)
{
	static const char *const kinds[] = {"bool", "bool", "bool", "additive", "lengths", "causal"};
	const char *kind = kinds[below(d, MAKE_COUNT(kinds))];
	int64_t columns = sizes_sequence(d->state), heads = 1 + below(d, 32);
	int64_t elements = d->bytes / 2 / kernel_dtype_bytes(d->dtype), rows = columns;
	struct make_shape shape, mask;

	if (heads * rows * columns > elements)
		rows = elements / heads / columns;
	shape = (struct make_shape){4, {elements / (heads * rows * columns), heads, rows, columns}};
	mask = shape;
	mask.size[1] = 1;
	if (one_in(d, 2))
		mask.size[2] = 1;
	else if (one_in(d, 2))
		mask.size[0] = 1;
	input(d, "x", d->dtype, &shape);
	if (strcmp(kind, "bool") == 0)
		input(d, "mask", KILN_BOOL, &mask)->fill = CASES_FLAGS;
	if (strcmp(kind, "additive") == 0)
		input(d, "mask", d->dtype, &mask);
	if (strcmp(kind, "lengths") == 0) {
		mask.rank = 3;
		mask.size[2] = 1;
		input(d, "mask", KILN_I32, &mask)->fill = CASES_LENGTHS;
		d->c->operand[1].most = columns;
	}
	output(d, "y", d->dtype, &shape);
	make_word(d->c, "kind", kind);
}

static bool is_layer(const struct draw *d)
{
	return strncmp(d->op->name, "layer", 5) == 0;
}

static void norm(struct draw *d)
{
	bool fused = one_in(d, 4);
	struct make_shape shape = matrix(d, sizes_hidden(d->state), fused ? 4 : 2);
	struct make_shape columns = {1, {shape.size[shape.rank - 1]}};

	struct cases_operand *x = input(d, "x", d->dtype, &shape);
	if (!fused)
		stride(d, x);
	input(d, "gamma", d->dtype, &columns)->mean = 1;
	d->c->operand[place(d, "gamma")].deviation = 0.5;
	if (is_layer(d))
		input(d, "beta", d->dtype, &columns);
	if (fused) {
		input(d, "residual", d->dtype, &shape);
		output(d, "sum", d->dtype, &shape);
	}
	output(d, "y", d->dtype, &shape);
}

static void norm_backward(struct draw *d)
{
	struct make_shape shape = matrix(d, sizes_hidden(d->state), 3), rows = shape;
	struct make_shape columns = {1, {shape.size[shape.rank - 1]}};

	rows.rank--;
	input(d, "x", d->dtype, &shape);
	input(d, "dy", d->dtype, &shape);
	input(d, "gamma", d->dtype, &columns)->mean = 1;
	if (is_layer(d)) {
		input(d, "mean", KILN_F32, &rows)->deviation = 0.1;
		output(d, "dbeta", d->dtype, &columns);
	}
	input(d, "rstd", KILN_F32, &rows)->mean = 1;
	d->c->operand[place(d, "gamma")].deviation = 0.5;
	d->c->operand[place(d, "rstd")].deviation = 0.1;
	output(d, "dx", d->dtype, &shape);
	output(d, "dgamma", d->dtype, &columns);
}

static void gather(struct draw *d)
{
	static const kiln_dtype indices[] = {KILN_I64, KILN_I64, KILN_I32, KILN_U16, KILN_U8};
	kiln_dtype index = indices[below(d, MAKE_COUNT(indices))];
	int64_t lists = 1 + below(d, 128), few = sizes_hidden(d->state), many = sizes_hidden(d->state);

	if (index == KILN_U8 && few > 256)
		few = 256;
	int64_t outer = d->bytes / kernel_dtype_bytes(d->dtype) / (lists * (few + many)) + 1;
	struct make_shape src = {3, {outer, lists, few}}, list = {2, {lists, many}};
	input(d, "src", d->dtype, &src)->fill = CASES_BITS;
	input(d, "idx", index, &list)->fill = CASES_INDICES;
	d->c->operand[1].most = few;
	output(d, "dst", d->dtype, &(struct make_shape){3, {outer, lists, many}});
}

static void map(struct draw *d)
{
	static const struct {
		const char *statement, *names;
		int streams; /* of as many elements as y; another input is spread over them */
	} forms[] = {{"y[i] = x[i] / (1 + exp(-x[i]))", "x,y", 1},
				 {"y[i] = a[i] + b[i]", "a,b,y", 2},
				 {"y[i,j] = x[i,j] * s + b[j]", "x,b,y", 1},
				 {"y[i,j] = x[i,j] / (1 + exp(-x[i,j])) * g[i,j]", "x,g,y", 2}};
	int form = (int)below(d, MAKE_COUNT(forms)), streams = forms[form].streams;
	struct make_shape shape = matrix(d, sizes_columns(d->state), streams + 1);

	if (shape.rank == 3)
		shape = (struct make_shape){2, {shape.size[0] * shape.size[1], shape.size[2]}};
	struct make_shape columns = {1, {shape.size[1]}};
	if (form < 2)
		shape = (struct make_shape){1, {shape.size[0] * shape.size[1]}};
	for (int i = 0; i < streams; i++)
		make_input(d->c, i, d->dtype, &shape);
	if (form == 2) {
		make_input(d->c, streams++, d->dtype, &columns);
		make_real(d->c, "s", 2.5);
	}
	make_output(d->c, streams, d->dtype, &shape);
	make_word(d->c, "statement", forms[form].statement);
	make_word(d->c, "names", forms[form].names);
}

/* ---- Permutations ---- */

static void permute(struct draw *d)
{
	static const kiln_dtype others[] = {KILN_I8,  KILN_U8,  KILN_I16, KILN_I32,
										KILN_I64, KILN_F64, KILN_C64, KILN_C128};
	struct make_shape from, to;
	int64_t *perm = d->c->ints;

	if (one_in(d, 5))
		d->dtype = others[below(d, MAKE_COUNT(others))];
	sizes_permutation(d->state, d->bytes / 2 / kernel_dtype_bytes(d->dtype), &from, perm);
	to.rank = from.rank;
	for (int k = 0; k < from.rank; k++)
		to.size[k] = from.size[perm[k]];
	struct cases_operand *x = input(d, "x", d->dtype, &from);
	x->fill = CASES_BITS;
	stride(d, x);
	output(d, "y", d->dtype, &to);
	d->c->attr[d->c->attr_count++] =
		(kiln_attr){.name = "perm", .kind = KILN_ATTR_INTS, .count = from.rank};
}

/* ---- All ---- */

static const struct kind {
	const char *op;
	int weight;
	void (*draw)(struct draw *d);
} kinds[] = {
	{"permute", 30, permute},
	{"softmax", 12, softmax},
	{"log_softmax", 4, softmax},
	{"softmax_backward", 8, softmax_backward},
	{"masked_softmax", 10, masked_softmax},
	{"layer_norm", 10, norm},
	{"rms_norm", 8, norm},
	{"layer_norm_backward", 5, norm_backward},
	{"rms_norm_backward", 3, norm_backward},
	{"gather", 5, gather},
	{"map", 5, map},
};

/* A name has all that makes the problem: the list of a permutation, all shapes where they do not
 * follow from the first. */
static void name(struct draw *d)
{
	char operands[KERNEL_OPERANDS_MAX];
	struct cases_case *c = d->c;

	plan_operands(d->op, operands);
	if (strcmp(d->op->name, "permute") == 0) {
		int count = c->attr_count;
		c->attr_count = 0;
		make_name(c, operands);
		c->attr_count = count;
		for (int k = 0; k < c->operand[0].rank; k++)
			cases_name(c, "%s%d", k ? "," : " (", (int)c->ints[k]);
		cases_name(c, ")");
	} else if (d->op->names || strcmp(d->op->name, "gather") == 0) {
		cases_name(c, "%s", d->op->name);
		if (d->op->names)
			cases_name(c, " %s :", c->attr[c->attr_count - 2].s);
		for (int i = 0; i < c->operand_count; i++)
			cases_name_operand(c, i);
	} else {
		make_name(c, operands);
	}
}

static const struct cases_op *find_op(const char *name)
{
	int listed;
	const struct cases_case *list = cases_all(&listed);

	for (int i = 0; i < listed; i++)
		if (strcmp(list[i].op->name, name) == 0)
			return list[i].op;
	return NULL;
}

static void draw_case(uint64_t seed, uint64_t i, struct cases_case *c)
{
	static const kiln_dtype floats[] = {KILN_F16, KILN_BF16, KILN_F32};
	uint64_t first = seed, second = cases_word(&first) + i, state = cases_word(&second);
	struct draw d = {.state = &state, .c = c};
	const struct kind *kind = kinds;
	int64_t at = make_below(&state, 100);

	memset(c, 0, sizeof(*c));
	for (; at >= kind->weight; kind++)
		at -= kind->weight;
	d.op = plan_find(kind->op);
	d.dtype = floats[below(&d, 3)];
	d.bytes = sizes_between(&state, LEAST_BYTES, MOST_BYTES);
	c->op = find_op(kind->op);
	c->flags = CASES_BENCH | CASES_BIG;
	for (int k = 0; !d.op->names && d.op->operands[k].name; k++)
		make_none(c, k);
	kind->draw(&d);
	name(&d);
}

static bool is_drawn(const char *ops)
{
	for (int k = 0; k < MAKE_COUNT(kinds); k++)
		if (is_listed(ops, kinds[k].op))
			return true;
	return false;
}

struct cases_case *random_draw(uint64_t seed, const char *ops, int count)
{
	struct cases_case *list = is_drawn(ops) ? calloc((size_t)count, sizeof(*list)) : NULL;
	int drawn = 0;

	for (uint64_t i = 0; list && drawn < count; i++) {
		struct cases_case *c = &list[drawn];
		bool again = false;
		draw_case(seed, i, c);
		for (int k = 0; k < drawn; k++)
			again = again || strcmp(list[k].name, c->name) == 0;
		drawn += is_listed(ops, c->op->name) && !again;
	}
	return list;
}
