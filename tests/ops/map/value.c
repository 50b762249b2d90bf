/*
 * value.c: the value of an expression, by descent over its words: integers exactly, floats
 * in f64 with a bound of how far the device's may be from them.
 */
#include "value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct eval_value whole(int64_t i)
{
	return (struct eval_value){.whole = i};
}

static struct eval_value truth_of(bool is)
{
	return (struct eval_value){.whole = is, .dtype = KILN_BOOL};
}

static struct eval_value real(const struct eval *eval, double value, double error)
{
	double floor = eval->unit < 0x1p-30 ? 0x1p-1022 : 0x1p-126;

	return (struct eval_value){
		.real = true, .value = value, .error = error + eval->unit * fabs(value) + floor};
}

struct eval_value eval_as_real(struct eval_value a)
{
	if (!a.real)
		a.value = a.dtype == KILN_U64 ? (double)(uint64_t)a.whole : (double)a.whole;
	a.real = true;
	return a;
}

bool eval_truth(struct eval_value a, bool *unsure)
{
	*unsure = *unsure || (a.real && a.error > 0 && fabs(a.value) <= a.error);
	return a.real ? a.value != 0 : a.whole != 0;
}

/* Compares integers. */
static bool is_less(struct eval_value a, struct eval_value b)
{
	return a.dtype == KILN_U64 || b.dtype == KILN_U64 ? (uint64_t)a.whole < (uint64_t)b.whole
													  : a.whole < b.whole;
}

static struct eval_value unsure_if(bool unsure, struct eval_value a)
{
	if (unsure) {
		a.real = true;
		a.error = INFINITY;
	}
	return a;
}

bool eval_take(struct eval *eval, const char *sign)
{
	if (!eval_is_sign(&eval->token[eval->at], sign))
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
		args[k] = eval_as_real(args[k]);
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

struct eval_value eval_smaller(struct eval_value a, struct eval_value b, bool less)
{
	struct eval_value out;

	if (!a.real && !b.real)
		return is_less(a, b) == less ? a : b;
	a = eval_as_real(a);
	b = eval_as_real(b);
	if (isnan(a.value) || isnan(b.value))
		return isnan(a.value) ? b : a;
	out = (a.value < b.value) == less ? a : b;
	out.error = a.error > b.error ? a.error : b.error;
	return out;
}

static struct eval_value cast(const char *name, struct eval_value a)
{
	static const struct {
		const char *name;
		int bits;
		bool sign;
	} types[] = {{"i8", 8, true},   {"u8", 8, false},   {"i16", 16, true}, {"u16", 16, false},
				 {"i32", 32, true}, {"u32", 32, false}, {"i64", 64, true}, {"u64", 64, false}};
	bool unsure = false;

	if (!strcmp(name, "bool"))
		return unsure_if(unsure, whole(eval_truth(a, &unsure)));
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
	a = eval_as_real(a);
	if (!strncmp(name, "sat_", 4)) {
		double most = strcmp(name, "sat_f8e4m3") ? 57344 : 448;
		a.value = a.value > most ? most : a.value < -most ? -most : a.value;
	}
	return eval_rounded(eval_called(name, &a, 1), a);
}

static bool is_type(const char *name)
{
	if (!strncmp(name, "sat_f8", 6))
		return true;
#define IS_TYPE(NAME, type, value, bytes) \
	if (!strcmp(name, #type))             \
		return true;
	KILN_DTYPE_LIST(IS_TYPE)
#undef IS_TYPE
	return false;
}

static struct eval_value result_of(struct eval *eval, const char *name, struct eval_value *args,
								   int count)
{
	if (!strcmp(name, "abs")) {
		if (args[0].whole < 0 && args[0].dtype != KILN_U64)
			args[0].whole = (int64_t)(0 - (uint64_t)args[0].whole);
		args[0].value = fabs(args[0].value);
		return args[0];
	}
	if (!strcmp(name, "min") || !strcmp(name, "max")) {
		for (int k = 1; k < count; k++)
			args[0] = eval_smaller(args[0], args[k], name[1] == 'i');
		return args[0];
	}
	if (!strcmp(name, "clamp"))
		return eval_smaller(eval_smaller(args[0], args[1], false), args[2], true);
	if (!strcmp(name, "isnan"))
		return whole(isnan(eval_as_real(args[0]).value));
	if (!strcmp(name, "isinf"))
		return whole(isinf(eval_as_real(args[0]).value) != 0);
	if (!strcmp(name, "isfinite"))
		return whole(isfinite(eval_as_real(args[0]).value) != 0);
	if (is_type(name))
		return cast(name, args[0]);
	return call_real(eval, name, args, count);
}

static struct eval_value call(struct eval *eval, const char *name)
{
	struct eval_value args[8] = {{0}}, out;
	kiln_dtype dtype;
	int count = 0;

	eval_take(eval, "(");
	do
		args[count++] = eval_expression(eval);
	while (count < 8 && eval_take(eval, ","));
	eval_take(eval, ")");
	dtype = eval_called(name, args, count);
	if (!strcmp(name, "abs") || !strcmp(name, "min") || !strcmp(name, "max") ||
		!strcmp(name, "clamp"))
		for (int k = 0; k < count; k++) {
			args[k] = eval_wrap(args[k], dtype);
			args[k].dtype = dtype;
		}
	out = eval_wrap(result_of(eval, name, args, count), dtype);
	out.dtype = dtype;
	return out;
}

static struct eval_value access(struct eval *eval, const struct eval_operand *operand)
{
	struct eval_value subscript;
	int64_t offset = 0;
	bool within = true;
	int k = 0;

	if (eval_take(eval, "[")) {
		for (; k < operand->rank; k++) {
			const struct eval_token *token = &eval->token[eval->at];
			bool plain = token->kind == EVAL_INDEX &&
						 (eval_is_sign(token + 1, ",") || eval_is_sign(token + 1, "]"));
			int64_t size = operand->shape[k], at;
			subscript = eval_expression(eval);
			eval_take(eval, ",");
			at = plain && size == 1 ? 0 : subscript.whole;
			if (!strcmp(eval->bounds, "clamp"))
				at = at < 0 ? 0 : at < size ? at : size - 1;
			within = within && at >= 0 && at < size;
			offset += within ? at * operand->stride[k] : 0;
		}
		eval_take(eval, "]");
	}
	eval->strays += eval->live && !within;
	if (!eval->live || !within)
		return (struct eval_value){.real = eval_is_real(operand->dtype), .dtype = operand->dtype};
	return eval_load(operand->dtype, operand->data, offset);
}

static struct eval_value primary(struct eval *eval)
{
	const struct eval_token *token = &eval->token[eval->at];
	struct eval_value out;
	const struct eval_scalar *scalar;

	if (token->kind == EVAL_END)
		return whole(0);
	eval->at++;
	switch (token->kind) {
	case EVAL_WHOLE:
		return whole(token->i);
	case EVAL_REAL:
		return real(eval, token->f, 0);
	case EVAL_INDEX:
		return whole(token->which < 0 ? 0 : eval->place[token->which]);
	case EVAL_SCALAR:
		scalar = &eval->scalar[token->which];
		return scalar->real ? real(eval, scalar->f, 0) : whole(scalar->i);
	case EVAL_OPERAND:
		return access(eval, &eval->operand[token->which]);
	case EVAL_FUNCTION:
		return call(eval, token->text);
	case EVAL_REDUCTION:
		return eval_reduction(eval, token);
	default:
		out = eval_expression(eval);
		eval_take(eval, ")");
		return out;
	}
}

static struct eval_value unary(struct eval *eval)
{
	struct eval_value a;
	bool unsure = false;

	if (eval_take(eval, "-")) {
		a = unary(eval);
		a.whole = (int64_t)(0 - (uint64_t)a.whole);
		a.value = -a.value;
		a.dtype = a.dtype == KILN_BOOL ? KILN_I32 : a.dtype;
		return eval_wrap(a, a.dtype);
	}
	if (eval_take(eval, "!")) {
		a = unary(eval);
		a.whole = !eval_truth(a, &unsure);
		return unsure_if(unsure, truth_of(a.whole));
	}
	if (eval_take(eval, "~")) {
		a = unary(eval);
		a.whole = ~a.whole;
		a.dtype = a.dtype == KILN_BOOL ? KILN_I32 : a.dtype;
		return eval_wrap(a, a.dtype);
	}
	return primary(eval);
}

struct eval_value eval_arithmetic(struct eval *eval, char sign, struct eval_value a,
								  struct eval_value b)
{
	uint64_t x = (uint64_t)a.whole, y = (uint64_t)b.whole;

	if (!a.real && !b.real && y && (a.dtype == KILN_U64 || b.dtype == KILN_U64) &&
		(sign == '/' || sign == '%'))
		return whole((int64_t)(sign == '/' ? x / y : x % y));
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
	a = eval_as_real(a);
	b = eval_as_real(b);
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
		a = eval_as_real(a);
		b = eval_as_real(b);
		unsure = a.error + b.error > 0 && fabs(a.value - b.value) <= a.error + b.error;
		less = a.value < b.value;
		equal = a.value == b.value;
		if (isnan(a.value) || isnan(b.value))
			return whole(!strcmp(sign, "!="));
	} else {
		less = is_less(a, b);
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

static struct eval_value bitwise(const char *sign, struct eval_value a, struct eval_value b,
								 kiln_dtype dtype)
{
	int64_t by = b.whole & (eval_bits(dtype) - 1);

	switch (sign[0]) {
	case '&':
		return whole(a.whole & b.whole);
	case '|':
		return whole(a.whole | b.whole);
	case '^':
		return whole(a.whole ^ b.whole);
	case '<':
		return whole((int64_t)((uint64_t)a.whole << by));
	default:
		return whole(dtype == KILN_U64 ? (int64_t)((uint64_t)a.whole >> by) : a.whole >> by);
	}
}

static struct eval_value join(struct eval *eval, const char *sign, struct eval_value a,
							  struct eval_value b)
{
	kiln_dtype common = eval_meet(&a, &b);
	struct eval_value out;

	a = eval_wrap(a, common);
	b = eval_wrap(b, common);
	if (strchr("+-*/%", sign[0]))
		out = eval_arithmetic(eval, sign[0], a, b);
	else if (!strcmp(sign, "==") || !strcmp(sign, "!=") ||
			 (strchr("<>", sign[0]) && strcmp(sign, "<<") && strcmp(sign, ">>")))
		out = compare(sign, a, b);
	else
		out = bitwise(sign, a, b, common);
	out = eval_wrap(out, eval_combined(sign, &a, &b));
	out.dtype = eval_combined(sign, &a, &b);
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
	bool unsure = false, first = eval_truth(a, &unsure), dead = first != both;
	int live = eval->live;
	struct eval_value b;

	eval->live = live && !dead;
	b = binary(eval, level + 1);
	eval->live = live;
	if (!dead)
		first = eval_truth(b, &unsure);
	return unsure_if(unsure || (a.real && isinf(a.error)), truth_of(first));
}

struct eval_value eval_expression(struct eval *eval)
{
	struct eval_value condition = binary(eval, 0), yes, no;
	int live = eval->live;
	bool unsure = false, first;

	if (!eval_take(eval, "?"))
		return condition;
	first = eval_truth(condition, &unsure);
	eval->live = live && first;
	yes = eval_expression(eval);
	eval_take(eval, ":");
	eval->live = live && !first;
	no = eval_expression(eval);
	eval->live = live;
	/* Both have the type that they meet in. */
	yes.dtype = no.dtype = eval_meet(&yes, &no);
	yes = eval_wrap(yes, yes.dtype);
	no = eval_wrap(no, no.dtype);
	if (yes.real || no.real) {
		yes = eval_as_real(yes);
		no = eval_as_real(no);
	}
	return unsure_if(unsure, first ? yes : no);
}

struct eval_value eval_right(struct eval *eval)
{
	eval->at = eval->right;
	eval->live = 1;
	return eval_expression(eval);
}

struct eval_value eval_unread(struct eval *eval)
{
	memset(eval->place, 0, sizeof(eval->place));
	eval->at = eval->right;
	eval->live = 0;
	return eval_expression(eval);
}
