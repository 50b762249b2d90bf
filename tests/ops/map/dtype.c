/*
 * dtype.c: the dtypes of an expression's values, as docs/map.md has them: what two of them
 * meet in, and what an operator or a function makes of them.
 */
#include "value.h"

#include <string.h>

/* Is the type that this integer dtype is computed in i32? */
static bool is_narrow(kiln_dtype dtype)
{
	return dtype != KILN_U32 && dtype != KILN_I64 && dtype != KILN_U64;
}

static kiln_dtype meet(kiln_dtype a, kiln_dtype b)
{
	if (a == b || b == KILN_BOOL)
		return a;
	if (a == KILN_BOOL)
		return b;
	if (eval_is_real(a) != eval_is_real(b))
		return eval_is_real(a) ? a : b;
	if (eval_is_real(a))
		return a == KILN_F64 || b == KILN_F64 ? KILN_F64 : KILN_F32;
	if (is_narrow(a) && is_narrow(b))
		return KILN_I32;
	return a == KILN_U64 || b == KILN_U64 ? KILN_U64 : KILN_I64;
}

/* The dtype of a value that meets a number: i32 of a bool, f32 of an integer and 0.5. */
static kiln_dtype beside_number(kiln_dtype dtype, bool real)
{
	if (dtype == KILN_DTYPE_NONE || eval_is_real(dtype))
		return dtype;
	return real ? KILN_F32 : dtype == KILN_BOOL ? KILN_I32 : dtype;
}

kiln_dtype eval_meet(const struct eval_value *a, const struct eval_value *b)
{
	if (a->dtype == KILN_DTYPE_NONE)
		return beside_number(b->dtype, a->real);
	if (b->dtype == KILN_DTYPE_NONE)
		return beside_number(a->dtype, b->real);
	return meet(a->dtype, b->dtype);
}

unsigned eval_bits(kiln_dtype dtype)
{
	return dtype == KILN_U32 || (dtype != KILN_DTYPE_NONE && is_narrow(dtype)) ? 32 : 64;
}

struct eval_value eval_wrap(struct eval_value a, kiln_dtype dtype)
{
	if (!a.real && eval_bits(dtype) == 32)
		a.whole = dtype == KILN_U32 ? (int64_t)(uint32_t)a.whole : (int64_t)(int32_t)a.whole;
	return a;
}

static bool is_comparison(const char *sign)
{
	return !strcmp(sign, "==") || !strcmp(sign, "!=") ||
		   (strchr("<>", sign[0]) && strcmp(sign, "<<") && strcmp(sign, ">>"));
}

kiln_dtype eval_combined(const char *sign, const struct eval_value *a, const struct eval_value *b)
{
	kiln_dtype dtype = eval_meet(a, b);

	if (is_comparison(sign))
		return KILN_BOOL;
	return dtype == KILN_BOOL && !strchr("&|^", sign[0]) ? KILN_I32 : dtype;
}

kiln_dtype eval_called(const char *name, const struct eval_value *args, int count)
{
	struct eval_value all = args[0];

	if (!strcmp(name, "isnan") || !strcmp(name, "isinf") || !strcmp(name, "isfinite"))
		return KILN_BOOL;
	if (!strncmp(name, "sat_f8", 6))
		name += 4;
#define NAMED(NAME, type, value, bytes) \
	if (!strcmp(name, #type))           \
		return KILN_##NAME;
	KILN_DTYPE_LIST(NAMED)
#undef NAMED
	for (int k = 1; k < count; k++) {
		all.dtype = eval_meet(&all, &args[k]);
		all.real = all.real || args[k].real;
	}
	if (!strcmp(name, "abs") || !strcmp(name, "min") || !strcmp(name, "max") ||
		!strcmp(name, "clamp"))
		return all.dtype == KILN_BOOL ? KILN_I32 : all.dtype;
	return beside_number(all.dtype, true);
}

kiln_dtype eval_dtype(struct eval *eval)
{
	struct eval_value value = eval_unread(eval);

	if (value.dtype == KILN_DTYPE_NONE)
		return value.real ? KILN_F32 : KILN_I64;
	/* A sum or a product of truth values counts. */
	return value.dtype == KILN_BOOL && (eval->reduce == '+' || eval->reduce == '*') ? KILN_I64
																					: value.dtype;
}
