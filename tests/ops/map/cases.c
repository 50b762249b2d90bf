/*
 * cases.c: statements of map.  The interpreter beside this file works out their values from their
 * text: it knows nothing of the planner and reads docs/map.md.
 *
 * A case is a row of a table: the statement, the operands' names, and what each of them is:
 * "f32 8x16", "i32 16 %40" (indices below 40), "u8 16 !40" (some of them beyond), "f16 8x16 @2"
 * (begins 2 bytes into its memory), "f32 8x16 ^32,1" (strides), "f32 8195 #" (what rounds to 8 bits
 * with difficulty), "f32 8x16 ~" (NaN and infinities).
 */
#include "value.h"
#include "map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The reference ---- */

static const char *text_of(const struct cases_case *c, const char *name, const char *otherwise)
{
	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(c->attr[i].name, name) == 0)
			return c->attr[i].s;
	return otherwise;
}

static void take_names(const struct cases_case *c, struct eval *eval)
{
	const char *at = text_of(c, "names", "");

	for (int i = 0; i < c->operand_count; i++) {
		int bytes = (int)strcspn(at, ",");
		snprintf(eval->operand[i].name, EVAL_NAME, "%.*s", bytes, at);
		at += bytes + (at[bytes] == ',');
	}
}

static bool is_scalar(const kiln_attr *attr)
{
	return attr->kind != KILN_ATTR_STRING && strcmp(attr->name, "checked") != 0;
}

static struct eval *open_eval(const struct cases_case *c, const void *const memory[])
{
	struct eval *eval = reference_memory(1, sizeof(*eval));

	eval->statement = text_of(c, "statement", "");
	eval->bounds = text_of(c, "bounds", "check");
	eval->operands = c->operand_count;
	take_names(c, eval);
	for (int i = 0; i < c->operand_count; i++) {
		struct eval_operand *to = &eval->operand[i];
		to->dtype = c->operand[i].dtype;
		to->rank = c->operand[i].rank;
		to->data = memory[i];
		memcpy(to->shape, c->operand[i].shape, sizeof(to->shape));
		memcpy(to->stride, c->operand[i].stride, sizeof(to->stride));
	}
	for (int i = 0; i < c->attr_count; i++) {
		struct eval_scalar *to = &eval->scalar[eval->scalars];
		if (!is_scalar(&c->attr[i]))
			continue;
		snprintf(to->name, EVAL_NAME, "%s", c->attr[i].name);
		to->real = c->attr[i].kind == KILN_ATTR_REAL;
		to->f = c->attr[i].f;
		to->i = c->attr[i].i;
		eval->scalars++;
	}
	return eval;
}

static int output_of(const struct cases_case *c)
{
	for (int i = 0; i < c->operand_count; i++)
		if (c->operand[i].output)
			return i;
	return 0;
}

static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[output_of(c)]);
}

static void answer(const struct reference *r, int output, int64_t element,
				   const struct eval_value *value)
{
	kiln_dtype dtype = r->c->operand[output].dtype;
	struct eval_value rounded;
	uint8_t bits;
	double number;

	if (eval_is_real(dtype)) {
		rounded = eval_rounded(dtype, eval_as_real(*value));
		number = rounded.value;
		if (isinf(rounded.error))
			reference_value(r, output, element, number, REFERENCE_OPEN);
		else if (cases_element(&r->c->operand[output]) > 1 || rounded.error > 0)
			reference_value(r, output, element, number, rounded.error);
		else { /* also the bits of a NaN are known */
			cases_put(dtype, &bits, 0, isnan(number) ? (double)NAN : number);
			reference_bytes(r, output, element, &bits);
		}
	} else if (value->real && isinf(value->error)) {
		reference_value(r, output, element, value->value, REFERENCE_OPEN);
	} else {
		/* The low bytes come first; beyond 2^53 a double does not tell neighbours apart, and of a
		 * bool it tells no 1 from other bytes that are not 0. */
		bits = value->whole != 0;
		number = cases_get(dtype, &value->whole, 0);
		if (dtype == KILN_BOOL)
			reference_bytes(r, output, element, &bits);
		else if (fabs(number) < 0x1p53)
			reference_value(r, output, element, number, 0);
		else
			reference_bytes(r, output, element, &value->whole);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	struct eval *eval = open_eval(r->c, r->memory);
	const char *wrong = eval_open(eval);
	int output = output_of(r->c);
	int64_t terms = 1, step = 1;

	if (wrong) /* a case that nobody can judge is wrong */
		reference_invalid(r, output, 0, "not known", wrong);
	for (int k = eval->output_rank; k < eval->indices && !wrong; k++) {
		int64_t extent = eval->extent[k] > 0 ? eval->extent[k] : 1;
		/* Reductions are worked out one after the other, once for a row. */
		terms = eval->reductions == 0 ? terms * extent : extent > terms ? extent : terms;
	}
	if (r->most) /* odd steps meet every column */
		step = (last - first) / (r->most / (terms < r->most ? terms : r->most) + 1) | 1;
	for (int64_t i = first; i < last && !wrong; i += step) {
		struct eval_value value = eval_element(eval, i);
		answer(r, output, i, &value);
	}
	free(eval);
}

const struct cases_op map_op = {"map", units, reference};

/* ---- Rows of tables ---- */

static kiln_dtype dtype_of(const char *text)
{
	static const struct {
		const char *name;
		kiln_dtype dtype;
	} known[] = {
#define KNOWN(NAME, name, value, bytes) {#name " ", KILN_##NAME},
		KILN_DTYPE_LIST(KNOWN)
#undef KNOWN
	};

	for (int i = 0; i < MAKE_COUNT(known); i++)
		if (strncmp(known[i].name, text, strlen(known[i].name)) == 0)
			return known[i].dtype;
	return KILN_DTYPE_NONE;
}

static const char *read_list(const char *at, char separator, int64_t *values, int *count)
{
	char *end;

	for (*count = 0; *count < KILN_MAX_RANK;) {
		values[(*count)++] = strtoll(at, &end, 10);
		at = end;
		if (*at != separator)
			break;
		at++;
	}
	return at;
}

static const char *read_operand(struct cases_case *c, int i, const char *at, bool output)
{
	kiln_dtype dtype = dtype_of(at);
	struct make_shape shape = {0, {0}};
	struct cases_operand *operand;
	int count;

	at += strcspn(at, " ") + 1;
	if (*at >= '0' && *at <= '9')
		at = read_list(at, 'x', shape.size, &shape.rank);
	operand = output ? make_output(c, i, dtype, &shape) : make_input(c, i, dtype, &shape);
	if (!output)
		operand->fill = eval_is_real(dtype) ? CASES_NORMAL : CASES_BITS;
	for (at += *at == ' '; *at && *at != ';'; at += *at == ' ') {
		char mark = *at++;
		int64_t values[KILN_MAX_RANK];
		if (mark == '~') {
			operand->fill = CASES_UNUSUAL;
			continue;
		}
		at = read_list(at, ',', values, &count);
		if (mark == '@')
			operand->offset = (uint32_t)values[0];
		else if (mark == '^')
			make_strided(operand, values);
		else if (mark == '#')
			operand->fill = CASES_EDGES;
		else
			operand->fill = mark == '!' ? CASES_STRAY : CASES_INDICES;
		operand->most = values[0];
	}
	return *at ? at + 2 : at;
}

/* Attributes are kept as long as the list: their names and texts are here. */
static void read_more(struct cases_case *c, const char *more)
{
	static const char *const scalars[] = {"s", "t", "n", "checked"};
	static const char *const words[] = {"check", "clamp", "zero"};

	for (const char *at = more; at && *at; at += strcspn(at, " "), at += *at == ' ') {
		const char *value = strchr(at, '=') + 1;
		bool real = memchr(value, '.', strcspn(value, " ")) != NULL;
		for (int i = 0; i < MAKE_COUNT(words); i++)
			if (strncmp(at, "bounds=", 7) == 0 && strncmp(value, words[i], 5 - (i == 2)) == 0)
				make_word(c, "bounds", words[i]);
		for (int i = 0; i < MAKE_COUNT(scalars); i++) {
			if (strncmp(at, scalars[i], (size_t)(value - at - 1)) != 0 ||
				strlen(scalars[i]) != (size_t)(value - at - 1))
				continue;
			if (real)
				make_real(c, scalars[i], strtod(value, NULL));
			else
				make_int(c, scalars[i], strtoll(value, NULL, 10));
		}
	}
}

static void fill_case(struct cases_case *c, const struct map_row *row)
{
	const char *name = row->names, *at = row->operands;
	size_t left = strcspn(row->statement, "[ =+*");

	make_word(c, "statement", row->statement);
	make_word(c, "names", row->names);
	for (int i = 0; *at; i++) {
		size_t bytes = strcspn(name, ",");
		bool output = bytes == left && strncmp(name, row->statement, left) == 0;
		at = read_operand(c, i, at, output);
		name += bytes + (name[bytes] == ',');
	}
	read_more(c, row->more);
	c->name[0] = 0;
	cases_name(c, "map %s :", row->statement);
	for (int i = 0; i < c->operand_count; i++)
		cases_name_operand(c, i);
	for (int i = 2; i < c->attr_count; i++) {
		const kiln_attr *attr = &c->attr[i];
		if (attr->kind == KILN_ATTR_STRING)
			cases_name(c, " %s", attr->s);
		else
			cases_name(c, " %s=%g", attr->name,
					   attr->kind == KILN_ATTR_REAL ? attr->f : (double)attr->i);
	}
	for (int i = 0; i < c->operand_count; i++)
		if (c->operand[i].fill == CASES_STRAY)
			cases_name(c, " stray");
	c->flags |= row->flags;
}

static const struct map_row rows[] = {
	/* Element by element: whole vectors, tails, addresses, strides. */
	{"y[i] = x[i]", "x,y", "f32 4096; f32 4096", NULL, 0},
	{"y[i] = x[i]", "x,y", "f16 4099; f16 4099", NULL, 0},
	{"y[i] = x[i]", "x,y", "i8 4099; i8 4099", NULL, 0},
	{"y[i] = x[i]", "x,y", "u64 33; u64 33", NULL, 0},
	{"y[i] = x[i]", "x,y", "f32 3; f32 3", NULL, 0},
	{"y[i] = x[i]", "x,y", "bool 77; bool 77", NULL, 0},
	{"y[i] = x[i] * 2", "x,y", "f32 4096 @4; f32 4096", NULL, 0},
	{"y[i] = x[i] * 2", "x,y", "f16 4096 @2; f16 4096 @8", NULL, 0},
	{"y[i] = x[i] + 1", "x,y", "u8 4096 @3; u8 4096 @2", NULL, 0},
	{"y[i] = x[i] * 2", "x,y", "f64 100; f64 100", NULL, 0},
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f32 60x100; f32 100; f32 60x100", "s=2.5", 0},
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f16 60x96; f32 96; f16 60x96", "s=2.5", 0},
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f64 7x33; f64 33; f64 7x33", "s=0.1", 0},
	{"y[i,j] = x[i,j] * s + b[i]", "x,b,y", "bf16 9x64; bf16 9; bf16 9x64", "s=3", 0},
	{"y[i,j] = x[i,j] * s + t", "x,y", "f32 31x17; f32 31x17", "s=-1.5 t=4", 0},
	{"y[i,j] = x[j,i]", "x,y", "f32 40x60; f32 60x40", NULL, 0},
	/* Floats of 8 bits: whatever rounds to them with difficulty, and each of them back. */
	{"y[i] = x[i]", "x,y", "f32 8195 #; f8e4m3 8195", NULL, 0},
	{"y[i] = x[i]", "x,y", "f32 8195 #; f8e5m2 8195", NULL, 0},
	{"y[i] = x[i]", "x,y", "f64 8195 #; f8e4m3 8195", NULL, 0},
	{"y[i] = x[i]", "x,y", "f64 8195 #; f8e5m2 8195", NULL, 0},
	{"y[i] = x[i]", "x,y", "f16 65536 #; f8e4m3 65536", NULL, 0},
	{"y[i] = x[i]", "x,y", "f16 65536 #; f8e5m2 65536", NULL, 0},
	{"y[i] = x[i]", "x,y", "bf16 65536 #; f8e4m3 65536", NULL, 0},
	{"y[i] = x[i]", "x,y", "bf16 65536 #; f8e5m2 65536", NULL, 0},
	{"y[i] = sat_f8e4m3(x[i])", "x,y", "f32 8195 #; f8e4m3 8195", NULL, 0},
	{"y[i] = sat_f8e5m2(x[i])", "x,y", "f32 8195 #; f8e5m2 8195", NULL, 0},
	{"y[i] = sat_f8e4m3(x[i])", "x,y", "f64 8195 #; f8e4m3 8195", NULL, 0},
	{"y[i] = sat_f8e5m2(x[i])", "x,y", "f16 65536 #; f8e5m2 65536", NULL, 0},
	{"y[i] = x[i]", "x,y", "f8e4m3 256 #; f32 256", NULL, 0},
	{"y[i] = x[i]", "x,y", "f8e5m2 259 #; f32 259", NULL, 0},
	{"y[i] = x[i]", "x,y", "f8e4m3 4099 # @3; f8e4m3 4099 @1", NULL, 0},
	{"y[i] = x[i]", "x,y", "f8e5m2 256 #; f8e4m3 256", NULL, 0},
	{"y[i] = f8e4m3(x[i]) - x[i]", "x,y", "f32 8195 #; f32 8195", NULL, 0},
	{"y[i] = sat_f8e5m2(x[i]) + f8e4m3(x[i])", "x,y", "f16 300; f64 300", NULL, 0},
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f8e4m3 60x96; f8e5m2 96; f8e4m3 60x96", "s=2.5", 0},
	{"y[i,j] = x[j,i] * s", "x,y", "f8e5m2 40x60; bf16 60x40", "s=0.5", 0},
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f8e4m3 9x1000; f8e4m3 1000; f8e5m2 9", NULL, 0},
	{"y[i,j] = sat_f8e4m3(x[i,j] * (448 / max[k](abs(x[i,k]))))", "x,y",
	 "bf16 9x1000; f8e4m3 9x1000", NULL, 0},
	{"y[i] = f16(x[i])", "x,y", "f64 8195 #; f16 8195", NULL, 0},
	{"y[i] = x[i]", "x,y", "f64 8195 #; bf16 8195", NULL, 0},
	{"y[i,j] = x[i,j] + b[i,j]", "x,b,y", "f32 8x16 ^32,1; f32 8x16 ^1,8; f32 8x16", NULL, 0},
	{"y[i,j] = x[i,j] + b[i,j]", "x,b,y", "f32 8x16 ^0,1; f32 8x1; f32 8x16", NULL, 0},
	{"y[i,j] = x[i,j] - b[i,j]", "x,b,y", "f32 1x16; f16 8x1; f32 8x16", NULL, 0},
	{"y[i,j,k,l] = x[i,j,k,l] + b[k,l]", "x,b,y", "f32 3x4x5x8; f32 5x8; f32 3x4x5x8", NULL, 0},
	{"y[] = x * 2", "x,y", "f32 ; f32 ", NULL, 0},
	{"y = x[0] + x[3]", "x,y", "f32 8; f32 ", NULL, 0},
	{"y[i] = 7", "y", "i32 50", NULL, 0},
	{"y[i,j] = s", "y", "f64 9x7", "s=0.1", 0},
	{"y[i,j] = x[i,j] * 2", "x,y", "f32 0x4; f32 0x4", NULL, 0},
	/* Types. */
	{"y[i] = exp(x[i]) * f32(k[i])", "x,k,y", "f32 100; i32 100 %9; f32 100", NULL, 0},
	{"y[i] = x[i] + k[i]", "x,k,y", "f16 100; i64 100 %99; f32 100", NULL, 0},
	{"y[i] = x[i] * k[i]", "x,k,y", "i32 100; i16 100; i32 100", NULL, 0},
	{"y[i] = x[i] * k[i] - 3", "x,k,y", "u32 100; u8 100; u32 100", NULL, 0},
	{"y[i] = x[i] / k[i] + x[i] % k[i]", "x,k,y", "i64 100; i8 100; i64 100", NULL, 0},
	{"y[i] = x[i] / 0", "x,y", "i32 10; i32 10", NULL, 0},
	{"y[i] = i32(x[i] * 1000)", "x,y", "f32 300; i32 300", NULL, 0},
	{"y[i] = u8(x[i] * 300)", "x,y", "f32 300; u8 300", NULL, 0},
	{"y[i] = i8(k[i])", "k,y", "i32 300; i8 300", NULL, 0},
	{"y[i] = f16(x[i]) - x[i]", "x,y", "f32 300; f32 300", NULL, 0},
	{"y[i] = bool(x[i])", "x,y", "u8 64 %2; bool 64", NULL, 0},
	{"y[i] = x[i] > 0 && k[i] != 3 || i == 5", "x,k,y", "f32 64; u8 64 %5; bool 64", NULL, 0},
	{"y[i] = !b[i] ? x[i] : -x[i]", "b,x,y", "bool 64 %2; f16 64; f16 64", NULL, 0},
	{"y[i] = (x[i] & 15) << 2 | x[i] >> 3 ^ ~x[i]", "x,y", "i32 99 %9999; i32 99", NULL, 0},
	{"y[i] = k[i] ? 1 : 0", "k,y", "i64 99 %3; i8 99", NULL, 0},
	/* Whole numbers that an f32 would round to the middle of two of bf16. */
	{"y[i] = k[i] * 65536 + 1", "k,y", "i32 900 %512; bf16 900", NULL, 0},
	{"y[i] = bf16(3 - k[i] * 8796093022208)", "k,y", "i64 900 %512; f32 900", NULL, 0},
	{"y[i,j] = i * 100 + j", "y", "i32 30x40", NULL, 0},
	{"y[i,j] = f32(i) / 7 - j * 0.5", "y", "f32 30x41", NULL, 0},
	{"y[i] = n - 1 - i", "y", "i64 77", "n=77", 0},
	/* Functions. */
	{"y[i] = max(min(x[i], 1, s), -1)", "x,y", "f32 200; f32 200", "s=0.5", 0},
	{"y[i] = clamp(x[i], -0.5, 0.5) + abs(x[i])", "x,y", "f16 200; f16 200", NULL, 0},
	{"y[i] = sqrt(abs(x[i])) + rsqrt(1 + x[i] * x[i])", "x,y", "f32 200; f32 200", NULL, 0},
	{"y[i] = x[i] * 0.5 * (1 + erf(x[i] * 0.70710678118654752))", "x,y", "f32 200; f32 200", NULL,
	 0},
	{"y[i] = tanh(x[i]) + log(1 + exp(x[i]))", "x,y", "f64 200; f64 200", NULL, 0},
	{"y[i] = pow(abs(x[i]), 1.5) + floor(x[i] * 4)", "x,y", "f32 200; f32 200", NULL, 0},
	{"y[i] = x[i] / (1 + exp(-x[i]))", "x,y", "bf16 1000; bf16 1000", NULL, 0},
	{"y[i] = isnan(x[i]) || isinf(x[i]) ? 0 : x[i]", "x,y", "f32 200; f32 200", NULL, 0},
	{"y[i] = fma(x[i], s, atan2(x[i], 2)) + hypot(x[i], 1)", "x,y", "f32 200; f32 200", "s=3", 0},
	{"y[i] = min(k[i], 100) + abs(k[i])", "k,y", "i16 200; i32 200", NULL, 0},
	/* Subscripts that are worked out. */
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x64; u8 5x96 %64; f32 6x5x96", NULL,
	 0},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f16 6x5x256; u8 5x96; f16 6x5x96", NULL, 0},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f16 6x5x40; i64 5x33 %40; f16 6x5x33", NULL,
	 0},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x40; i32 5x96 !40; f32 6x5x96", NULL,
	 CASES_STRAYS},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x40; i32 5x96 !40; f32 6x5x96",
	 "bounds=clamp", 0},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x40; i64 5x96 !40; f32 6x5x96",
	 "bounds=zero", 0},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x40; i64 5x96 !40; f32 6x5x96",
	 "checked=1", CASES_STRAYS},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 6x5x40; i32 5x96 %40; f32 6x5x96",
	 "checked=1", 0},
	{"y[i,j] = table[idx[i],j]", "table,idx,y", "f16 50x64; i32 30 %50; f16 30x64", NULL, 0},
	{"y[i,j] = table[idx[i],j]", "table,idx,y", "f16 0x64; i32 30 %1; f16 30x64", NULL,
	 CASES_STRAYS},
	{"y[i] = x[n - 1 - i]", "x,y", "f32 77; f32 77", "n=77", 0},
	{"y[i] = x[76 - i]", "x,y", "f32 77; f32 77", NULL, 0},
	{"y[i] = x[2 * i + 1]", "x,y", "f32 80; f32 40", NULL, 0},
	{"y[i,j] = x[i,j+1] - x[i,j+0]", "x,y", "f32 8x65; f32 8x64", NULL, 0},
	{"y[i] = x[i-1] + 2 * x[i] + x[i+1]", "x,y", "f32 100; f32 100", "bounds=zero", 0},
	{"y[i] = x[i-1] + 2 * x[i] + x[i+1]", "x,y", "f16 100; f16 100", "bounds=clamp", 0},
	{"y[i] = x[i-1] + 2 * x[i] + x[i+1]", "x,y", "f32 100; f32 100", NULL, CASES_STRAYS},
	{"y[i] = i > 0 ? x[i] - x[i-1] : x[0]", "x,y", "f32 100; f32 100", NULL, 0},
	{"y[i] = i > 0 ? x[i] - x[i-1] : x[0]", "x,y", "f32 100; f32 100", "checked=1", 0},
	{"y[i] = x[(i * 7 + 3) % 50]", "x,y", "i32 50; i32 64", NULL, 0},
	{"y[i] = x[clamp(k[i], 0, 9)]", "x,k,y", "f32 10; i32 64; f32 64", NULL, 0},
	{"y[i] = a[b[c[i]]]", "a,b,c,y", "f32 9; u8 7 %9; i32 64 %7; f32 64", NULL, 0},
	/* Sums and the like. */
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f32 30x100; f32 100; f32 30", NULL, 0},
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f16 5x2048; f16 2048; f16 5", NULL, 0},
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f64 3x77; f64 77; f64 3", NULL, 0},
	{"y[j] += x[i,j]", "x,y", "f32 300x64; f32 64", NULL, 0},
	{"y[j] += x[i,j]", "x,y", "bf16 700x33; f32 33", NULL, 0},
	{"y += x[i]", "x,y", "f32 10000; f32 ", NULL, 0},
	{"y += x[i] > 0", "x,y", "f32 1000; i64 ", NULL, 0},
	{"y[i] += x[i,j]", "x,y", "u8 9x1000; i32 9", NULL, 0},
	{"y[i] += x[i,j]", "x,y", "i32 9x100; i32 9", NULL, 0},
	{"y[i] max= x[i,j]", "x,y", "f32 9x1000; f32 9", NULL, 0},
	{"y[i] min= abs(x[i,j])", "x,y", "i16 9x100; i32 9", NULL, 0},
	{"y[j] max= x[i,j]", "x,y", "u32 90x32 %99; u32 32", NULL, 0},
	{"y[i] *= x[i,j]", "x,y", "f32 9x7; f32 9", NULL, 0},
	{"c[i,j] += a[i,k] * b[k,j]", "a,b,c", "f32 20x30; f32 30x40; f32 20x40", NULL, 0},
	{"c[i,j] += a[i,k] * b[j,k]", "a,b,c", "f16 20x64; f16 24x64; f32 20x24", NULL, 0},
	{"y[i] += x[i,j,k] * w[k]", "x,w,y", "f32 5x6x9; f32 9; f32 5", NULL, 0},
	/* In pieces. */
	{"y += x[i]", "x,y", "f32 100000; f32 ", NULL, 0},
	{"y[j] += x[i,j]", "x,y", "f16 3000x33; f32 33", NULL, 0},
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f64 3x70000; f64 70000; f64 3", NULL, 0},
	{"y max= x[i,j]", "x,y", "i16 300x1001; i16 ", NULL, 0},
	{"y[i] += x[i,j]", "x,y", "f32 5x0; f32 5", NULL, 0},
	{"y[i] max= x[i,j]", "x,y", "i32 5x0; i32 5", NULL, 0},
	{"y[i] += x[i,j]", "x,y", "f32 5x1; f32 5", NULL, 0},
	{"y[i] += w[idx[i,j]]", "w,idx,y", "f32 40; i32 5x33 %40; f32 5", NULL, 0},
	{"y[i] += w[idx[i,j]]", "w,idx,y", "f32 40; i32 5x33 !40; f32 5", NULL, CASES_STRAYS},
	{"y[i] += w[idx[i,j]]", "w,idx,y", "f32 40; i32 5x33 !40; f32 5", "checked=1", CASES_STRAYS},
	{"y[i] += x[i+j] * w[j]", "x,w,y", "f32 105; f32 6; f32 100", NULL, 0},
	/* Timed. */
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f32 8192x8192; f32 8192; f32 8192x8192", "s=2.5",
	 CASES_BENCH | CASES_BIG},
	{"y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f16 8192x8192; f16 8192; f16 8192x8192", "s=2.5",
	 CASES_BENCH | CASES_BIG},
	{"y[i] = x[i] / (1 + exp(-x[i]))", "x,y", "f32 67108864; f32 67108864", NULL,
	 CASES_BENCH | CASES_BIG},
	{"y[i] = a[i] + b[i]", "a,b,y", "f32 67108867; f32 67108867; f32 67108867", NULL,
	 CASES_BENCH | CASES_BIG},
	{"y[i] = u8(clamp(x[i] * 127 + 128, 0, 255))", "x,y", "f32 67108864; u8 67108864", NULL,
	 CASES_BENCH | CASES_BIG},
	{"y[i,j] = sat_f8e4m3(x[i,j] * s)", "x,y", "bf16 16384x8192; f8e4m3 16384x8192", "s=0.5",
	 CASES_BENCH | CASES_BIG},
	{"y[i,j] = x[i,j] * s[i]", "x,s,y", "f8e4m3 16384x8192; f32 16384; bf16 16384x8192", NULL,
	 CASES_BENCH | CASES_BIG},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst", "f32 512x64x256; u8 64x512; f32 512x64x512",
	 NULL, CASES_BENCH | CASES_BIG},
	{"dst[i,j,k] = src[i,j,idx[j,k]]", "src,idx,dst",
	 "f16 512x64x256; i32 64x512 %256; f16 512x64x512", NULL, CASES_BENCH | CASES_BIG},
	{"y[i] += x[i,j] * w[j]", "x,w,y", "f32 16384x4096; f32 4096; f32 16384", NULL,
	 CASES_BENCH | CASES_BIG},
	{"y[j] += x[i,j]", "x,y", "f32 4096x16384; f32 16384", NULL, CASES_BENCH | CASES_BIG},
	{"y += x[i]", "x,y", "f32 268435456; f32 ", NULL, CASES_BENCH | CASES_BIG},
	/* Beyond 2^31 elements. */
	{"y[i] = 255 - x[i]", "x,y", "u8 2147483725; u8 2147483725", NULL, CASES_BIG | CASES_HUGE},
	{"y[i] += x[i,j]", "x,y", "u8 2147490x1001; i32 2147490", NULL, CASES_BIG | CASES_HUGE},
};

static void add_all(void)
{
	for (int i = 0; i < MAKE_COUNT(rows); i++)
		fill_case(cases_add(&map_op, 0), &rows[i]);
	for (const struct map_row *row = map_rows; row->statement; row++)
		fill_case(cases_add(&map_op, 0), row);
}

const struct cases_op *const map_ops[] = {&map_op, NULL};
const struct cases_family map_family = {.name = "map", .add = add_all, .random = map_random};
