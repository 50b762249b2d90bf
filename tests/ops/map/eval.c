/*
 * eval.c: the statement's words, once; then, for each element, the words again by
 * descent, with a value instead of a tree.
 */
#include "value.h"
#include "tests/ops/common/cases.h"

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

bool eval_is_real(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3 || dtype == KILN_F8E5M2 || dtype == KILN_F16 ||
		   dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

static double stored(kiln_dtype dtype, double value)
{
	uint64_t bits = 0;

	cases_put(dtype, &bits, 0, value);
	return cases_get(dtype, &bits, 0);
}

/* A rounding to so few bits is worked out at both ends, and that of an exact value is exact. */
struct eval_value eval_rounded(kiln_dtype dtype, struct eval_value a)
{
	double low = stored(dtype, a.value - a.error), high = stored(dtype, a.value + a.error);
	bool ends = isfinite(low) || isfinite(high);

	if (isinf(a.error))
		return a;
	if (bytes_of(dtype) > 1 && a.error > 0) {
		a.error += eval_rounding(dtype, a.value);
		return a;
	}
	a.value = stored(dtype, a.value);
	a.error = 0;
	if (isfinite(low) && isfinite(high))
		a.error = fmax(high - a.value, a.value - low);
	else if (ends || isfinite(a.value))
		a.error = INFINITY;
	return a;
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
struct eval_value eval_load(kiln_dtype dtype, const void *memory, int64_t i)
{
	const char *from = (const char *)memory + i * (int64_t)bytes_of(dtype);
	struct eval_value out = {.real = eval_is_real(dtype), .dtype = dtype};
	uint64_t bits = 0;
	uint32_t word;
	float single;

	memcpy(&bits, from, bytes_of(dtype));
	switch (dtype) {
	case KILN_F8E4M3:
	case KILN_F8E5M2:
		out.value = cases_get(dtype, memory, i);
		break;
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

/* Returns the error that one rounding to a type may add. */
double eval_rounding(kiln_dtype dtype, double value)
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

static void name_token(const struct eval *eval, struct eval_token *token, char behind)
{
	int operand =
		find_name(eval->operand[0].name, sizeof(eval->operand[0]), eval->operands, token->text);
	int scalar =
		find_name(eval->scalar[0].name, sizeof(eval->scalar[0]), eval->scalars, token->text);

	token->kind = EVAL_INDEX;
	token->which = -1;
	if (behind == '(') {
		token->kind = EVAL_FUNCTION;
	} else if (operand >= 0) {
		token->kind = EVAL_OPERAND;
		token->which = operand;
	} else if (scalar >= 0) {
		token->kind = EVAL_SCALAR;
		token->which = scalar;
	} else if (behind == '[' && eval_is_reduction(token->text)) {
		token->kind = EVAL_REDUCTION;
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
		name_token(eval, token, *after);
		return at + size;
	}
	for (int i = 0; doubles[i]; i++)
		if (!strncmp(at, doubles[i], 2))
			size = 2;
	memcpy(token->text, at, size);
	return at + size;
}

bool eval_is_sign(const struct eval_token *token, const char *sign)
{
	return token->kind == EVAL_SIGN && !strcmp(token->text, sign);
}

/* An index that is not known yet is one of the sum's. */
static bool find_indices(struct eval *eval, int first, int last)
{
	for (int i = first; i < last; i++) {
		struct eval_token *token = &eval->token[i];
		if (token->kind != EVAL_INDEX || token->which >= 0 ||
			(i + 1 == eval->right - 1 && eval->reduce))
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

	while (i < eval->tokens && !eval_is_sign(&eval->token[i], "=") &&
		   !eval_is_sign(&eval->token[i], "+=") && !eval_is_sign(&eval->token[i], "*="))
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
	int operand[32] = {-1}, dimension[32] = {0}, depth = 0;

	for (int i = 0; i < eval->tokens; i++) {
		const struct eval_token *token = &eval->token[i], *before = i ? token - 1 : NULL;
		if (eval_is_sign(token, "[") || eval_is_sign(token, "(")) {
			depth++;
			operand[depth % 32] = before && before->kind == EVAL_OPERAND ? before->which : -1;
			dimension[depth % 32] = 0;
		} else if (eval_is_sign(token, "]") || eval_is_sign(token, ")")) {
			depth -= depth > 0;
		} else if (eval_is_sign(token, ",")) {
			dimension[depth % 32]++;
		} else if (token->kind == EVAL_INDEX && token->which >= 0 && depth &&
				   operand[depth % 32] >= 0 &&
				   dimension[depth % 32] < eval->operand[operand[depth % 32]].rank &&
				   (eval_is_sign(before, "[") || eval_is_sign(before, ",")) &&
				   (eval_is_sign(token + 1, "]") || eval_is_sign(token + 1, ","))) {
			int64_t size = eval->operand[operand[depth % 32]].shape[dimension[depth % 32]];
			int64_t *extent = &eval->extent[token->which];
			bool left = i < eval->right;
			bool said = token->which < eval->output_rank &&
						eval->operand[eval->output].rank == eval->output_rank;
			/* A dimension of size 1 goes with any, but the output's. */
			if (left || *extent < 0 || (*extent == 1 && !said))
				*extent = size;
		}
	}
}

const char *eval_open(struct eval *eval)
{
	const char *at = eval->statement;
	bool all_f64 = true, any = false;

	eval->tokens = eval->indices = eval->output_rank = eval->reductions = 0;
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
	if (!find_sides(eval))
		return "the statement has no left side";
	if (!find_indices(eval, 0, eval->right) || !eval_find_own(eval) ||
		!find_indices(eval, eval->right, eval->tokens))
		return "a reduction does not end, or there are too many indices";
	eval_find_depends(eval);
	if (eval->output_rank < 0 || eval->output_rank > eval->indices)
		return "each index stands once on its left side";
	find_extents(eval);
	for (int i = 0; i < eval->operands; i++) {
		all_f64 = all_f64 &&
				  (!eval_is_real(eval->operand[i].dtype) || eval->operand[i].dtype == KILN_F64);
		any = any || eval_is_real(eval->operand[i].dtype);
	}
	eval->unit = any && all_f64 ? 0x1p-53 : 0x1p-24;
	return NULL;
}

/* ---- All elements ---- */

static struct eval_value whole(int64_t i)
{
	return (struct eval_value){.whole = i};
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
	kiln_dtype dtype = eval->operand[eval->output].dtype;
	bool wide = bytes_of(dtype) == 8;
	int64_t end =
		eval->reduce == 'm' ? (wide ? INT64_MAX : INT32_MAX) : (wide ? INT64_MIN : INT32_MIN);

	if (eval->reduce == '+' || eval->reduce == '*')
		return is_float ? (struct eval_value){.real = true, .value = eval->reduce == '*'}
						: whole(eval->reduce == '*');
	if (dtype == KILN_U64)
		return (struct eval_value){.whole = eval->reduce == 'm' ? -1 : 0, .dtype = dtype};
	return is_float ? (struct eval_value){.real = true,
										  .value = eval->reduce == 'm' ? INFINITY : -INFINITY}
					: whole(end);
}

static struct eval_value sum_up(struct eval *eval)
{
	struct eval_value sum = {0}, term;
	double magnitude = 0, error = 0, relative = 0;
	int64_t terms = 0;
	bool is_float = eval_is_real(eval->operand[eval->output].dtype);

	for (int k = eval->output_rank; k < eval->indices; k++)
		if (eval->extent[k] == 0)
			return identity(eval, is_float);
	do {
		term = eval_right(eval);
		if (eval->reduce == 'm' || eval->reduce == 'M') {
			/* The output's type may not hold the terms, which are compared in their own. */
			bool first = terms++ == 0;
			if (first && term.real)
				sum = identity(eval, true);
			sum = first && !term.real ? term : eval_smaller(sum, term, eval->reduce == 'm');
			continue;
		}
		if (terms++ == 0)
			sum = identity(eval, term.real);
		error += term.error;
		magnitude += fabs(eval_as_real(term).value);
		relative += term.error / fabs(eval_as_real(term).value);
		sum = eval_arithmetic(eval, eval->reduce, sum, term);
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
	return eval->reduce ? sum_up(eval) : eval_right(eval);
}

bool eval_fits(kiln_dtype dtype, const void *memory, int64_t element,
			   const struct eval_value *expected, double *got, double *allowed)
{
	struct eval_value is = eval_load(dtype, memory, element), wanted = *expected;
	uint64_t mask = bytes_of(dtype) == 8 ? UINT64_MAX : (UINT64_C(1) << bytes_of(dtype) * 8) - 1;

	*got = eval_as_real(is).value;
	*allowed = 0;
	if (wanted.real && isinf(wanted.error))
		return true;
	if (!eval_is_real(dtype) && dtype == KILN_BOOL)
		return (is.whole != 0) == (wanted.whole != 0);
	if (!eval_is_real(dtype))
		return ((uint64_t)is.whole & mask) == ((uint64_t)wanted.whole & mask);
	wanted = eval_rounded(dtype, eval_as_real(wanted));
	*allowed = wanted.error;
	return (isnan(*got) && isnan(wanted.value)) || *got == wanted.value ||
		   fabs(*got - wanted.value) <= *allowed;
}
