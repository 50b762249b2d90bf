/*
 * make.c: operands, attributes and names of the float operators' cases.
 */
#include "make.h"

#include <stdio.h>
#include <string.h>

#define SLOW_ELEMENTS 1200000 /* of all operands: from here on the cpu device takes its time */

const int64_t make_widths[] = {1,     2,     3,     31,    32,     33,    63,    64,
							   65,    127,   128,   129,   1023,   1024,  1025,  4095,
							   4096,  4097,  6144,  8192,  12288,  16385, 24576, 32768,
							   49152, 57344, 65536, 65537, 131072, 262144};
const int make_width_count = MAKE_COUNT(make_widths);

int64_t make_rows(int64_t width)
{
	return width < 256 ? 37 : width < 5000 ? 7 : width < 60000 ? 3 : 2;
}

kiln_dtype make_float(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};

	return dtypes[turn % 4];
}

struct cases_operand *make_input(struct cases_case *c, int i, kiln_dtype dtype,
								 const struct make_shape *shape)
{
	struct cases_operand *operand = &c->operand[i];

	memset(operand, 0, sizeof(*operand));
	operand->dtype = dtype;
	operand->fill = CASES_NORMAL;
	operand->rank = shape->rank;
	memcpy(operand->shape, shape->size, (size_t)shape->rank * sizeof(shape->size[0]));
	cases_contiguous(operand);
	if (c->operand_count <= i)
		c->operand_count = i + 1;
	return operand;
}

struct cases_operand *make_output(struct cases_case *c, int i, kiln_dtype dtype,
								  const struct make_shape *shape)
{
	struct cases_operand *operand = make_input(c, i, dtype, shape);

	operand->output = true;
	return operand;
}

struct cases_operand *make_kept(struct cases_case *c, int i, kiln_dtype dtype,
								const struct make_shape *shape)
{
	struct cases_operand *operand = make_output(c, i, dtype, shape);

	operand->kept = true;
	return operand;
}

void make_none(struct cases_case *c, int i)
{
	memset(&c->operand[i], 0, sizeof(c->operand[i]));
	if (c->operand_count <= i)
		c->operand_count = i + 1;
}

void make_strided(struct cases_operand *operand, const int64_t *stride)
{
	operand->contiguous = false;
	memcpy(operand->stride, stride, (size_t)operand->rank * sizeof(stride[0]));
}

void make_pitch(struct cases_operand *operand, int64_t pitch)
{
	operand->contiguous = false;
	for (int k = operand->rank - 2; k >= 0; k--) {
		operand->stride[k] = pitch;
		pitch *= operand->shape[k];
	}
}

static kiln_attr *add_attr(struct cases_case *c, const char *name, kiln_attr_kind kind)
{
	kiln_attr *attr = &c->attr[c->attr_count++];

	memset(attr, 0, sizeof(*attr));
	attr->name = name;
	attr->kind = kind;
	return attr;
}

void make_int(struct cases_case *c, const char *name, int64_t value)
{
	add_attr(c, name, KILN_ATTR_INT)->i = value;
}

void make_real(struct cases_case *c, const char *name, double value)
{
	add_attr(c, name, KILN_ATTR_REAL)->f = value;
}

void make_word(struct cases_case *c, const char *name, const char *value)
{
	add_attr(c, name, KILN_ATTR_STRING)->s = value;
}

/* ---- Names ---- */

static void name_attr(struct cases_case *c, const kiln_attr *attr)
{
	if (attr->kind == KILN_ATTR_STRING)
		cases_name(c, " %s", attr->s);
	else if (attr->kind == KILN_ATTR_REAL)
		cases_name(c, " %s %.4g", attr->name, attr->f);
	else if (attr->kind == KILN_ATTR_INTS)
		for (int k = 0; k < attr->count; k++)
			cases_name(c, "%s%lld", k ? "," : " over ", (long long)c->ints[k]);
	else
		cases_name(c, " %s %lld", attr->name, (long long)attr->i);
}

static void name_fill(struct cases_case *c, int i)
{
	const struct cases_operand *operand = &c->operand[i];

	if (operand->output)
		return;
	if (operand->fill == CASES_UNUSUAL)
		cases_name(c, " unusual");
	if (operand->fill == CASES_MISLEADING)
		cases_name(c, " misleading, %d NaN", (int)operand->most);
	if (operand->fill == CASES_STEPPED)
		cases_name(c, " stepped");
	if (i == 0 && (operand->mean != 0 || operand->deviation != 0))
		cases_name(c, " around %g+-%g", operand->mean, operand->deviation);
}

/* Names what of an operand after the first does not follow from the first. */
static void name_more(struct cases_case *c, int i, const char *name, int length, bool optional)
{
	const struct cases_operand *operand = &c->operand[i], *first = &c->operand[0];
	bool other = operand->dtype != first->dtype || operand->rank != first->rank ||
				 memcmp(operand->shape, first->shape, sizeof(first->shape)) != 0;

	if (operand->dtype == KILN_DTYPE_NONE)
		return;
	/* The shapes of mean, gamma and the like follow; a mask's does not. */
	if (optional || !operand->contiguous || operand->offset)
		cases_name(c, " %.*s", length, name);
	if (other && strncmp(name, "mask", 4) == 0) {
		cases_name_operand(c, i);
	} else {
		if (operand->dtype != first->dtype && optional)
			cases_name(c, " %s", cases_dtype_name(operand->dtype));
		for (int k = 0; !operand->contiguous && k < operand->rank; k++)
			cases_name(c, "%s%lld", k ? "," : " ", (long long)operand->stride[k]);
		if (operand->offset)
			cases_name(c, " at %u", operand->offset);
	}
}

static int64_t elements_of(const struct cases_case *c)
{
	int64_t elements = 0;

	for (int i = 0; i < c->operand_count; i++)
		elements += cases_elements(&c->operand[i]);
	return elements;
}

void make_name(struct cases_case *c, const char *operands)
{
	const char *at = operands;

	c->name[0] = 0;
	cases_name(c, "%s", c->op->name);
	for (int i = 0; i < c->operand_count && at; i++) {
		int length = (int)strcspn(at, "?,");
		if (i == 0)
			cases_name_operand(c, 0);
		else
			name_more(c, i, at, length, at[length] == '?');
		name_fill(c, i);
		at = strchr(at, ',');
		at = at ? at + 2 : NULL;
	}
	for (int i = 0; i < c->attr_count; i++)
		name_attr(c, &c->attr[i]);
	if (!(c->flags & CASES_BIG) && elements_of(c) > SLOW_ELEMENTS)
		c->flags |= CASES_SLOW;
}

void make_name_indices(struct cases_case *c, int few, int axis, int64_t slow, bool looked)
{
	const struct cases_operand *idx = &c->operand[1];
	int64_t end = c->operand[few].shape[axis];
	bool narrow = (idx->dtype == KILN_U8 && end >= 256) || (idx->dtype == KILN_U16 && end >= 65536);
	bool clamp = false;

	c->name[0] = 0;
	cases_name(c, "%s", c->op->name);
	for (int i = 0; i < c->operand_count; i++)
		cases_name_operand(c, i);
	if (idx->fill == CASES_STRAY)
		cases_name(c, " stray");
	if (idx->fill == CASES_INDICES && idx->most < end)
		cases_name(c, " below %d", (int)idx->most);
	for (int i = 0; i < c->attr_count; i++) {
		name_attr(c, &c->attr[i]);
		clamp = clamp || (c->attr[i].kind == KILN_ATTR_STRING && !strcmp(c->attr[i].s, "clamp"));
	}
	if (!(c->flags & CASES_BIG) && elements_of(c) > slow)
		c->flags |= CASES_SLOW;
	if (idx->fill == CASES_STRAY && !clamp && !narrow && looked)
		c->flags |= CASES_STRAYS;
}

/* ---- Random cases ---- */

int64_t make_below(uint64_t *state, int64_t limit)
{
	return (int64_t)(cases_word(state) % (uint64_t)limit);
}

bool make_chance(uint64_t *state, int one_in)
{
	return make_below(state, one_in) == 0;
}

int64_t make_random_size(uint64_t *state)
{
	static const int64_t sizes[] = {1,  1,  2,  2,  3,  4,  5,  7,   8,   9,   16,  17,
									31, 32, 33, 40, 64, 65, 96, 127, 130, 200, 513, 1030};

	return make_chance(state, 2) ? 1 + make_below(state, 70)
								 : sizes[make_below(state, MAKE_COUNT(sizes))];
}

void make_random_shape(uint64_t *state, int most, struct make_shape *shape)
{
	int64_t room = 1 << 14;

	memset(shape, 0, sizeof(*shape));
	shape->rank = 1 + (int)make_below(state, most);
	for (int k = shape->rank - 1; k >= 0; k--) {
		int64_t size = make_random_size(state);
		shape->size[k] = size <= room ? size : 1;
		room /= shape->size[k];
	}
	if (make_chance(state, 40))
		shape->size[0] = 0;
}

/* Gaps, another order in memory, repeats. */
static void random_strides(uint64_t *state, struct cases_operand *operand)
{
	int64_t order[KILN_MAX_RANK], stride = make_chance(state, 3) ? 2 : 1;
	int rank = operand->rank;

	for (int k = 0; k < rank; k++)
		order[k] = k;
	for (int k = rank - 1; k > 0 && make_chance(state, 2); k--) {
		int other = (int)make_below(state, k + 1);
		int64_t held = order[k];
		order[k] = order[other];
		order[other] = held;
	}
	for (int k = rank - 1; k >= 0; k--) {
		int64_t size = operand->shape[order[k]] ? operand->shape[order[k]] : 1;
		operand->stride[order[k]] = stride;
		stride = stride * size + make_below(state, 3) * make_below(state, 8);
		if (make_chance(state, 8))
			operand->stride[order[k]] = 0;
	}
	operand->contiguous = false;
}

void make_random_layout(uint64_t *state, struct cases_operand *operand)
{
	if (operand->dtype == KILN_DTYPE_NONE)
		return;
	if (!operand->output && make_chance(state, 4))
		random_strides(state, operand);
	if (make_chance(state, 3))
		operand->offset = (uint32_t)make_below(state, 16) & ~(cases_element(operand) - 1);
	if (!operand->output && operand->fill == CASES_NORMAL && make_chance(state, 8))
		operand->fill = CASES_UNUSUAL;
}

double make_random_scale(uint64_t *state)
{
	static const double scales[] = {0.125, 1, -1, 0.7, 2, -0.3};

	return scales[make_below(state, MAKE_COUNT(scales))];
}
