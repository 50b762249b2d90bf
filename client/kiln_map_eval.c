/*
 * kiln_map_eval.c: the statement's words, once; then, for each element, the words again by
 * descent, with a value instead of a tree.
 */
#include "kiln_map_eval.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Elements ---- */

static unsigned bytes_of(kiln_dtype dtype)
{
	switch (dtype) {
#define BYTES(NAME, name, value, bytes) \
	case KILN_##NAME:                   \
		return bytes;
		KILN_DTYPE_LIST(BYTES)
#undef BYTES
	default:
		return 0;
	}
}

static bool is_real(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

static double half_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31, fraction = bits & 1023;
	double value = exponent == 31  ? (fraction ? NAN : INFINITY)
				   : exponent == 0 ? ldexp(fraction, -24)
								   : ldexp(fraction + 1024, exponent - 25);

	return bits & 0x8000 ? -value : value;
}

/* Element number i, counted in elements from the first. */
static struct eval_value load(kiln_dtype dtype, const void *memory, int64_t i)
{
	const char *from = (const char *)memory + i * (int64_t)bytes_of(dtype);
	struct eval_value out = {.real = is_real(dtype)};
	uint64_t bits = 0;
	uint32_t word;
	float single;

	memcpy(&bits, from, bytes_of(dtype));
	switch (dtype) {
	case KILN_F16:
		out.value = half_value((uint16_t)bits);
		break;
	case KILN_BF16:
	case KILN_F32:
		word = (uint32_t)(dtype == KILN_BF16 ? bits << 16 : bits);
		memcpy(&single, &word, sizeof(single));
		out.value = single;
		break;
	case KILN_F64:
		memcpy(&out.value, &bits, sizeof(bits));
		break;
	case KILN_I8:
		out.whole = (int8_t)bits;
		break;
	case KILN_I16:
		out.whole = (int16_t)bits;
		break;
	case KILN_I32:
		out.whole = (int32_t)bits;
		break;
	case KILN_BOOL:
		out.whole = bits != 0;
		break;
	default:
		out.whole = (int64_t)bits;
	}
	return out;
}

/* What one rounding to a type may add. */
static double rounding(kiln_dtype dtype, double value)
{
	switch (dtype) {
	case KILN_F16:
		return fabs(value) * 0x1p-10 + 0x1p-24;
	case KILN_BF16:
		return fabs(value) * 0x1p-7 + 0x1p-133;
	case KILN_F32:
		return fabs(value) * 0x1p-23 + 0x1p-126;
	default:
		return fabs(value) * 0x1p-52 + 0x1p-1022;
	}
}

/* ---- Words ---- */

static int find_name(const char *list, size_t size, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(list + (size_t)i * size, name))
			return i;
	return -1;
}

static void name_token(const struct eval *eval, struct eval_token *token, bool called)
{
	int operand =
		find_name(eval->operand[0].name, sizeof(eval->operand[0]), eval->operands, token->text);
	int scalar =
		find_name(eval->scalar[0].name, sizeof(eval->scalar[0]), eval->scalars, token->text);

	token->kind = EVAL_INDEX;
	token->which = -1;
	if (called) {
		token->kind = EVAL_FUNCTION;
	} else if (operand >= 0) {
		token->kind = EVAL_OPERAND;
		token->which = operand;
	} else if (scalar >= 0) {
		token->kind = EVAL_SCALAR;
		token->which = scalar;
	}
}

static const char *read_token(struct eval *eval, const char *at)
{
	struct eval_token *token = &eval->token[eval->tokens++];
	static const char *const doubles[] = {
		"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "*=", NULL};
	size_t size = 1;

	*token = (struct eval_token){.kind = EVAL_SIGN};
	if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
		char *end, *whole_end;
		token->f = strtod(at, &end);
		token->i = strtoll(at, &whole_end, 10);
		token->kind = end == whole_end ? EVAL_WHOLE : EVAL_REAL;
		return end;
	}
	if (isalpha((unsigned char)*at) || *at == '_') {
		const char *after;
		for (size = 0; isalnum((unsigned char)at[size]) || at[size] == '_';)
			size++;
		if (size >= EVAL_NAME)
			return NULL;
		memcpy(token->text, at, size);
		for (after = at + size; *after == ' ';)
			after++;
		name_token(eval, token, *after == '(');
		return at + size;
	}
	for (int i = 0; doubles[i]; i++)
		if (!strncmp(at, doubles[i], 2))
			size = 2;
	memcpy(token->text, at, size);
	return at + size;
}

static bool is_sign(const struct eval_token *token, const char *sign)
{
	return token->kind == EVAL_SIGN && !strcmp(token->text, sign);
}

/* An index that is not known yet is one of the sum's. */
static bool find_indices(struct eval *eval)
{
	for (int i = 0; i < eval->tokens; i++) {
		struct eval_token *token = &eval->token[i];
		if (token->kind != EVAL_INDEX || (i + 1 == eval->right - 1 && eval->reduce))
			continue;
		token->which = find_name(eval->index[0], EVAL_NAME, eval->indices, token->text);
		if (token->which >= 0)
			continue;
		if (eval->indices == EVAL_INDICES)
			return false;
		memcpy(eval->index[eval->indices], token->text, EVAL_NAME);
		eval->extent[eval->indices] = -1;
		token->which = eval->indices++;
	}
	return true;
}

/* Where the right side begins, and what stands before it. */
static bool find_sides(struct eval *eval)
{
	int i = 0;

	while (i < eval->tokens && !is_sign(&eval->token[i], "=") && !is_sign(&eval->token[i], "+=") &&
		   !is_sign(&eval->token[i], "*="))
		i++;
	if (i == eval->tokens || i == 0 || eval->token[0].kind != EVAL_OPERAND)
		return false;
	eval->right = i + 1;
	eval->output = eval->token[0].which;
	eval->reduce = eval->token[i].text[0] == '=' ? 0 : eval->token[i].text[0];
	if (!strcmp(eval->token[i - 1].text, "min"))
		eval->reduce = 'm';
	if (!strcmp(eval->token[i - 1].text, "max"))
		eval->reduce = 'M';
	for (int k = 0; k < i; k++)
		eval->output_rank += eval->token[k].kind == EVAL_INDEX;
	eval->output_rank -= eval->reduce == 'm' || eval->reduce == 'M';
	return true;
}

/* Subscripts that are an index by themselves. */
static void find_extents(struct eval *eval)
{
	int operand[32], dimension[32], depth = 0;

	for (int i = 0; i < eval->tokens; i++) {
		const struct eval_token *token = &eval->token[i], *before = i ? token - 1 : NULL;
		if (is_sign(token, "[") || is_sign(token, "(")) {
			depth++;
			operand[depth % 32] = before && before->kind == EVAL_OPERAND ? before->which : -1;
			dimension[depth % 32] = 0;
		} else if (is_sign(token, "]") || is_sign(token, ")")) {
			depth--;
		} else if (is_sign(token, ",")) {
			dimension[depth % 32]++;
		} else if (token->kind == EVAL_INDEX && token->which >= 0 && depth &&
				   operand[depth % 32] >= 0 && eval->operand[operand[depth % 32]].rank >= 0 &&
				   (is_sign(before, "[") || is_sign(before, ",")) &&
				   (is_sign(token + 1, "]") || is_sign(token + 1, ","))) {
			int64_t size = eval->operand[operand[depth % 32]].shape[dimension[depth % 32]];
			int64_t *extent = &eval->extent[token->which];
			bool left = i < eval->right;
			if (left || *extent < 0 || (*extent == 1 && token->which >= eval->output_rank))
				*extent = size;
		}
	}
}

const char *eval_open(struct eval *eval)
{
	const char *at = eval->statement;
	bool all_f64 = true, any = false;

	eval->tokens = eval->indices = eval->output_rank = 0;
	for (;;) {
		at += strspn(at, " \t\n");
		if (*at == 0)
			break;
		if (eval->tokens == EVAL_TOKENS - 1)
			return "the statement is too long for the reference";
		at = read_token(eval, at);
		if (!at)
			return "a name is too long";
	}
	eval->token[eval->tokens] = (struct eval_token){.kind = EVAL_END};
	if (!find_sides(eval) || !find_indices(eval))
		return "the statement has no left side";
	find_extents(eval);
	for (int i = 0; i < eval->operands; i++) {
		all_f64 =
			all_f64 && (!is_real(eval->operand[i].dtype) || eval->operand[i].dtype == KILN_F64);
		any = any || is_real(eval->operand[i].dtype);
	}
	eval->unit = any && all_f64 ? 0x1p-53 : 0x1p-24;
	return NULL;
}

/* ---- Values ---- */

static struct eval_value whole(int64_t i)
{
	return (struct eval_value){.whole = i};
}

static struct eval_value real(const struct eval *eval, double value, double error)
{
	double floor = eval->unit < 0x1p-30 ? 0x1p-1022 : 0x1p-126;

	return (struct eval_value){
		.real = true, .value = value, .error = error + eval->unit * fabs(value) + floor};
}

static struct eval_value as_real(struct eval_value a)
{
	if (!a.real)
		a.value = (double)a.whole;
	a.real = true;
	return a;
}

static bool truth(struct eval_value a, bool *unsure)
{
	*unsure = *unsure || (a.real && a.error > 0 && fabs(a.value) <= a.error);
	return a.real ? a.value != 0 : a.whole != 0;
}

static struct eval_value unsure_if(bool unsure, struct eval_value a)
{
	if (unsure) {
		a.real = true;
		a.error = INFINITY;
	}
	return a;
}

static struct eval_value expression(struct eval *eval);

static bool take(struct eval *eval, const char *sign)
{
	if (!is_sign(&eval->token[eval->at], sign))
		return false;
	eval->at++;
	return true;
}

static double reciprocal_root(double x)
{
	return 1 / sqrt(x);
}

static double function_of(const char *name, const double *x)
{
	static const struct {
		const char *name;
		double (*one)(double);
		double (*two)(double, double);
	} known[] = {
		{"exp", exp, NULL},     {"exp2", exp2, NULL},   {"expm1", expm1, NULL},
		{"log", log, NULL},     {"log2", log2, NULL},   {"log10", log10, NULL},
		{"log1p", log1p, NULL}, {"sqrt", sqrt, NULL},   {"rsqrt", reciprocal_root, NULL},
		{"cbrt", cbrt, NULL},   {"sin", sin, NULL},     {"cos", cos, NULL},
		{"tan", tan, NULL},     {"asin", asin, NULL},   {"acos", acos, NULL},
		{"atan", atan, NULL},   {"sinh", sinh, NULL},   {"cosh", cosh, NULL},
		{"tanh", tanh, NULL},   {"erf", erf, NULL},     {"erfc", erfc, NULL},
		{"floor", floor, NULL}, {"ceil", ceil, NULL},   {"trunc", trunc, NULL},
		{"rint", rint, NULL},   {"pow", NULL, pow},     {"atan2", NULL, atan2},
		{"fmod", NULL, fmod},   {"hypot", NULL, hypot},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return known[i].one ? known[i].one(x[0]) : known[i].two(x[0], x[1]);
	return x[0] * x[1] + x[2]; /* fma */
}

/* How far the result is off when the arguments are. */
static struct eval_value call_real(struct eval *eval, const char *name, struct eval_value *args,
								   int count)
{
	double x[3] = {0}, value, error = 0;

	for (int k = 0; k < count; k++) {
		args[k] = as_real(args[k]);
		x[k] = args[k].value;
	}
	value = function_of(name, x);
	for (int k = 0; k < count; k++) {
		double up, down;
		x[k] = args[k].value + args[k].error;
		up = fabs(function_of(name, x) - value);
		x[k] = args[k].value - args[k].error;
		down = fabs(function_of(name, x) - value);
		x[k] = args[k].value;
		if (args[k].error > 0)
			error += up > down || isnan(down) ? up : down;
	}
	if (isfinite(value) && isnan(error))
		error = INFINITY;
	return real(eval, value, error + 16 * eval->unit * fabs(value));
}

static struct eval_value smaller(struct eval_value a, struct eval_value b, bool less)
{
	struct eval_value out;

	if (!a.real && !b.real)
		return (a.whole < b.whole) == less ? a : b;
	a = as_real(a);
	b = as_real(b);
	if (isnan(a.value) || isnan(b.value))
		return isnan(a.value) ? b : a;
	out = (a.value < b.value) == less ? a : b;
	out.error = a.error > b.error ? a.error : b.error;
	return out;
}

static struct eval_value cast(struct eval *eval, const char *name, struct eval_value a)
{
	static const struct {
		const char *name;
		int bits;
		bool sign;
	} types[] = {{"i8", 8, true},   {"u8", 8, false},   {"i16", 16, true}, {"u16", 16, false},
				 {"i32", 32, true}, {"u32", 32, false}, {"i64", 64, true}, {"u64", 64, false}};
	bool unsure = false;

	if (!strcmp(name, "bool"))
		return unsure_if(unsure, whole(truth(a, &unsure)));
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		double end = ldexp(1, types[t].bits - types[t].sign), low = types[t].sign ? -end : 0;
		int shift = 64 - types[t].bits;
		if (strcmp(types[t].name, name))
			continue;
		if (!a.real)
			return whole(types[t].sign ? (int64_t)((uint64_t)a.whole << shift) >> shift
									   : (int64_t)((uint64_t)a.whole << shift >> shift));
		if (isnan(a.value))
			return whole(0);
		unsure = trunc(a.value - a.error) != trunc(a.value + a.error);
		if (a.value >= end)
			return unsure_if(unsure, whole(types[t].bits == 64 ? (types[t].sign ? INT64_MAX : -1)
															   : (int64_t)end - 1));
		if (a.value < low)
			return unsure_if(unsure, whole(types[t].sign ? (int64_t)-end : 0));
		return unsure_if(unsure,
						 whole(a.value >= 0x1p63 ? (int64_t)(uint64_t)a.value : (int64_t)a.value));
	}
	a = as_real(a);
	if (!strcmp(name, "f16"))
		return real(eval, a.value, a.error + rounding(KILN_F16, a.value));
	if (!strcmp(name, "bf16"))
		return real(eval, a.value, a.error + rounding(KILN_BF16, a.value));
	return real(eval, a.value, a.error + rounding(name[1] == '3' ? KILN_F32 : KILN_F64, a.value));
}

static bool is_type(const char *name)
{
#define IS_TYPE(NAME, type, value, bytes) \
	if (!strcmp(name, #type))             \
		return true;
	KILN_DTYPE_LIST(IS_TYPE)
#undef IS_TYPE
	return false;
}

static struct eval_value call(struct eval *eval, const char *name)
{
	struct eval_value args[8] = {{0}};
	int count = 0;

	eval->at++; /* ( */
	do
		args[count++] = expression(eval);
	while (count < 8 && take(eval, ","));
	take(eval, ")");
	if (!strcmp(name, "abs")) {
		args[0].whole = args[0].whole < 0 ? (int64_t)(0 - (uint64_t)args[0].whole) : args[0].whole;
		args[0].value = fabs(args[0].value);
		return args[0];
	}
	if (!strcmp(name, "min") || !strcmp(name, "max")) {
		for (int k = 1; k < count; k++)
			args[0] = smaller(args[0], args[k], name[1] == 'i');
		return args[0];
	}
	if (!strcmp(name, "clamp"))
		return smaller(smaller(args[0], args[1], false), args[2], true);
	if (!strcmp(name, "isnan"))
		return whole(isnan(as_real(args[0]).value));
	if (!strcmp(name, "isinf"))
		return whole(isinf(as_real(args[0]).value) != 0);
	if (!strcmp(name, "isfinite"))
		return whole(isfinite(as_real(args[0]).value) != 0);
	if (is_type(name))
		return cast(eval, name, args[0]);
	return call_real(eval, name, args, count);
}

static struct eval_value access(struct eval *eval, const struct eval_operand *operand)
{
	struct eval_value subscript;
	int64_t offset = 0;
	bool within = true;
	int k = 0;

	if (operand->rank || is_sign(&eval->token[eval->at], "[")) {
		eval->at++;
		for (; k < operand->rank; k++) {
			const struct eval_token *token = &eval->token[eval->at];
			bool plain =
				token->kind == EVAL_INDEX && (is_sign(token + 1, ",") || is_sign(token + 1, "]"));
			int64_t size = operand->shape[k], at;
			subscript = expression(eval);
			take(eval, ",");
			at = plain && size == 1 ? 0 : subscript.whole;
			if (!strcmp(eval->bounds, "clamp"))
				at = at < 0 ? 0 : at < size ? at : size - 1;
			within = within && at >= 0 && at < size;
			offset += within ? at * operand->stride[k] : 0;
		}
		take(eval, "]");
	}
	if (!eval->live)
		return whole(0);
	eval->strays += !within;
	if (!within)
		return is_real(operand->dtype) ? (struct eval_value){.real = true} : whole(0);
	return load(operand->dtype, operand->data, offset);
}

static struct eval_value primary(struct eval *eval)
{
	const struct eval_token *token = &eval->token[eval->at++];
	struct eval_value out;
	const struct eval_scalar *scalar;

	switch (token->kind) {
	case EVAL_WHOLE:
		return whole(token->i);
	case EVAL_REAL:
		return real(eval, token->f, 0);
	case EVAL_INDEX:
		return whole(eval->place[token->which]);
	case EVAL_SCALAR:
		scalar = &eval->scalar[token->which];
		return scalar->real ? real(eval, scalar->f, 0) : whole(scalar->i);
	case EVAL_OPERAND:
		return access(eval, &eval->operand[token->which]);
	case EVAL_FUNCTION:
		return call(eval, token->text);
	default:
		out = expression(eval);
		take(eval, ")");
		return out;
	}
}

static struct eval_value unary(struct eval *eval)
{
	struct eval_value a;
	bool unsure = false;

	if (take(eval, "-")) {
		a = unary(eval);
		a.whole = (int64_t)(0 - (uint64_t)a.whole);
		a.value = -a.value;
		return a;
	}
	if (take(eval, "!")) {
		a = unary(eval);
		return unsure_if(unsure, whole(!truth(a, &unsure)));
	}
	if (take(eval, "~")) {
		a = unary(eval);
		return whole(~a.whole);
	}
	return primary(eval);
}

static struct eval_value arithmetic(struct eval *eval, char sign, struct eval_value a,
									struct eval_value b)
{
	uint64_t x = (uint64_t)a.whole, y = (uint64_t)b.whole;

	if (!a.real && !b.real) {
		switch (sign) {
		case '+':
			return whole((int64_t)(x + y));
		case '-':
			return whole((int64_t)(x - y));
		case '*':
			return whole((int64_t)(x * y));
		case '/':
			return whole(b.whole == 0 ? 0 : b.whole == -1 ? (int64_t)(0 - x) : a.whole / b.whole);
		default:
			return whole(b.whole == 0 || b.whole == -1 ? 0 : a.whole % b.whole);
		}
	}
	a = as_real(a);
	b = as_real(b);
	if (sign == '+')
		return real(eval, a.value + b.value, a.error + b.error);
	if (sign == '-')
		return real(eval, a.value - b.value, a.error + b.error);
	if (sign == '*')
		return real(eval, a.value * b.value,
					a.error * fabs(b.value) + b.error * fabs(a.value) + a.error * b.error);
	if (fabs(b.value) <= b.error)
		return real(eval, a.value / b.value, INFINITY);
	return real(eval, a.value / b.value,
				(a.error + fabs(a.value / b.value) * b.error) / (fabs(b.value) - b.error) +
					2 * eval->unit * fabs(a.value / b.value));
}

static struct eval_value compare(const char *sign, struct eval_value a, struct eval_value b)
{
	bool unsure = false, less, equal;

	if (a.real || b.real) {
		a = as_real(a);
		b = as_real(b);
		unsure = a.error + b.error > 0 && fabs(a.value - b.value) <= a.error + b.error;
		less = a.value < b.value;
		equal = a.value == b.value;
		if (isnan(a.value) || isnan(b.value))
			return whole(!strcmp(sign, "!="));
	} else {
		less = a.whole < b.whole;
		equal = a.whole == b.whole;
	}
	if (!strcmp(sign, "=="))
		return unsure_if(unsure, whole(equal));
	if (!strcmp(sign, "!="))
		return unsure_if(unsure, whole(!equal));
	if (sign[0] == '<')
		return unsure_if(unsure, whole(less || (sign[1] && equal)));
	return unsure_if(unsure, whole(!less && (sign[1] || !equal)));
}

static struct eval_value bitwise(const char *sign, struct eval_value a, struct eval_value b)
{
	switch (sign[0]) {
	case '&':
		return whole(a.whole & b.whole);
	case '|':
		return whole(a.whole | b.whole);
	case '^':
		return whole(a.whole ^ b.whole);
	case '<':
		return whole((int64_t)((uint64_t)a.whole << (b.whole & 63)));
	default:
		return whole(a.whole >> (b.whole & 63));
	}
}

static struct eval_value join(struct eval *eval, const char *sign, struct eval_value a,
							  struct eval_value b)
{
	struct eval_value out;

	if (strchr("+-*/%", sign[0]))
		out = arithmetic(eval, sign[0], a, b);
	else if (!strcmp(sign, "==") || !strcmp(sign, "!=") ||
			 (strchr("<>", sign[0]) && strcmp(sign, "<<") && strcmp(sign, ">>")))
		out = compare(sign, a, b);
	else
		out = bitwise(sign, a, b);
	if ((a.real && isinf(a.error)) || (b.real && isinf(b.error)))
		out = unsure_if(true, out);
	return out;
}

static int level_of(const struct eval_token *token)
{
	static const char *const levels[] = {" || ",    " && ",        " | ",     " ^ ",   " & ",
										 " == != ", " < <= > >= ", " << >> ", " + - ", " * / % "};
	char padded[EVAL_NAME + 4];

	if (token->kind != EVAL_SIGN)
		return -1;
	snprintf(padded, sizeof(padded), " %s ", token->text);
	for (int i = 0; i < 10; i++)
		if (strstr(levels[i], padded))
			return i;
	return -1;
}

/* && and || look at their right side only where it counts. */
static struct eval_value logic(struct eval *eval, bool both, struct eval_value a, int level);

static struct eval_value binary(struct eval *eval, int least)
{
	struct eval_value a = unary(eval);
	int level;

	while ((level = level_of(&eval->token[eval->at])) >= least) {
		const char *sign = eval->token[eval->at++].text;
		if (level <= 1)
			a = logic(eval, level == 1, a, level);
		else
			a = join(eval, sign, a, binary(eval, level + 1));
	}
	return a;
}

static struct eval_value logic(struct eval *eval, bool both, struct eval_value a, int level)
{
	bool unsure = false, first = truth(a, &unsure), dead = first != both;
	int live = eval->live;
	struct eval_value b;

	eval->live = live && !dead;
	b = binary(eval, level + 1);
	eval->live = live;
	return unsure_if(unsure || (a.real && isinf(a.error)),
					 dead ? whole(first) : whole(truth(b, &unsure)));
}

static struct eval_value expression(struct eval *eval)
{
	struct eval_value condition = binary(eval, 0), yes, no;
	int live = eval->live;
	bool unsure = false, first;

	if (!take(eval, "?"))
		return condition;
	first = truth(condition, &unsure);
	eval->live = live && first;
	yes = expression(eval);
	take(eval, ":");
	eval->live = live && !first;
	no = expression(eval);
	eval->live = live;
	/* Both have the type that they meet in. */
	if (yes.real || no.real) {
		yes = as_real(yes);
		no = as_real(no);
	}
	return unsure_if(unsure, first ? yes : no);
}

/* ---- Elements ---- */

static struct eval_value once(struct eval *eval)
{
	eval->at = eval->right;
	eval->live = 1;
	return expression(eval);
}

/* The next place of the sum's own indices; false after the last. */
static bool advance(struct eval *eval)
{
	for (int k = eval->indices - 1; k >= eval->output_rank; k--) {
		if (++eval->place[k] < eval->extent[k])
			return true;
		eval->place[k] = 0;
	}
	return false;
}

static struct eval_value identity(const struct eval *eval, bool is_float)
{
	bool wide = bytes_of(eval->operand[eval->output].dtype) == 8;
	int64_t end =
		eval->reduce == 'm' ? (wide ? INT64_MAX : INT32_MAX) : (wide ? INT64_MIN : INT32_MIN);

	if (eval->reduce == '+' || eval->reduce == '*')
		return is_float ? (struct eval_value){.real = true, .value = eval->reduce == '*'}
						: whole(eval->reduce == '*');
	return is_float ? (struct eval_value){.real = true,
										  .value = eval->reduce == 'm' ? INFINITY : -INFINITY}
					: whole(end);
}

static struct eval_value sum_up(struct eval *eval)
{
	struct eval_value sum = {0}, term;
	double magnitude = 0, error = 0, relative = 0;
	int64_t terms = 0;
	bool is_float = is_real(eval->operand[eval->output].dtype);

	for (int k = eval->output_rank; k < eval->indices; k++)
		if (eval->extent[k] == 0)
			return identity(eval, is_float);
	do {
		term = once(eval);
		if (terms++ == 0)
			sum = identity(eval, term.real);
		if (eval->reduce == 'm' || eval->reduce == 'M') {
			sum = smaller(sum, term, eval->reduce == 'm');
			continue;
		}
		error += term.error;
		magnitude += fabs(as_real(term).value);
		relative += term.error / fabs(as_real(term).value);
		sum = arithmetic(eval, eval->reduce, sum, term);
	} while (advance(eval));
	if (!sum.real || eval->reduce == 'm' || eval->reduce == 'M')
		return sum;
	sum.error = eval->reduce == '+' ? error + (double)terms * eval->unit * magnitude
									: fabs(sum.value) * (relative + (double)terms * eval->unit);
	return sum;
}

struct eval_value eval_element(struct eval *eval, int64_t element)
{
	memset(eval->place, 0, sizeof(eval->place));
	for (int k = eval->output_rank - 1; k >= 0; k--) {
		eval->place[k] = element % eval->extent[k];
		element /= eval->extent[k];
	}
	return eval->reduce ? sum_up(eval) : once(eval);
}

bool eval_fits(kiln_dtype dtype, const void *memory, int64_t element,
			   const struct eval_value *expected, double *got, double *allowed)
{
	struct eval_value is = load(dtype, memory, element), wanted = *expected;
	uint64_t mask = bytes_of(dtype) == 8 ? UINT64_MAX : (UINT64_C(1) << bytes_of(dtype) * 8) - 1;

	*got = as_real(is).value;
	*allowed = 0;
	if (wanted.real && isinf(wanted.error))
		return true;
	if (!is_real(dtype) && dtype == KILN_BOOL)
		return (is.whole != 0) == (wanted.whole != 0);
	if (!is_real(dtype))
		return ((uint64_t)is.whole & mask) == ((uint64_t)wanted.whole & mask);
	wanted = as_real(wanted);
	*allowed = wanted.error + rounding(dtype, wanted.value);
	return (isnan(*got) && isnan(wanted.value)) || *got == wanted.value ||
		   fabs(*got - wanted.value) <= *allowed;
}
