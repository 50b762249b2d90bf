/*
 * map_dtype.c: the dtype of an output that is left out is the right side's.  It is f16 where
 * map_type.c says f32, the type that f16 is computed in.
 */
#include "map.h"

/* A dtype, or none yet: a number, real or whole, that takes the type of what it meets. */
struct natural {
	kiln_dtype dtype;
	bool real;
};

static bool is_float_dtype(kiln_dtype dtype)
{
	return map_is_float(map_type_of(dtype));
}

static kiln_dtype meet_dtypes(kiln_dtype a, kiln_dtype b)
{
	if (a == b || b == KILN_BOOL)
		return a;
	if (a == KILN_BOOL)
		return b;
	if (is_float_dtype(a) != is_float_dtype(b))
		return is_float_dtype(a) ? a : b;
	if (is_float_dtype(a))
		return a == KILN_F64 || b == KILN_F64 ? KILN_F64 : KILN_F32;
	if (map_type_of(a) == MAP_I32 && map_type_of(b) == MAP_I32)
		return KILN_I32;
	return a == KILN_U64 || b == KILN_U64 ? KILN_U64 : KILN_I64;
}

static struct natural meet_natural(struct natural a, struct natural b)
{
	struct natural out = {.real = a.real || b.real};

	if (a.dtype == KILN_DTYPE_NONE)
		a.dtype = b.dtype == KILN_BOOL ? KILN_I32 : b.dtype;
	if (b.dtype == KILN_DTYPE_NONE)
		b.dtype = a.dtype == KILN_BOOL ? KILN_I32 : a.dtype;
	if (a.dtype == KILN_DTYPE_NONE)
		return out;
	out.dtype = meet_dtypes(a.dtype, b.dtype);
	if (out.real && !is_float_dtype(out.dtype))
		out.dtype = KILN_F32;
	out.real = false;
	return out;
}

static bool is_truth(const struct map_node *node)
{
	if (node->kind == MAP_CALL)
		return map_functions[node->which].takes == MAP_ASKS;
	return (node->kind == MAP_UNARY || node->kind == MAP_BINARY) &&
		   ((node->op >= MAP_LT && node->op <= MAP_NE) || node->op == MAP_BOTH ||
			node->op == MAP_EITHER || node->op == MAP_NOT);
}

/* Sums and products of integers are kept in 64 bits. */
static kiln_dtype reduced_dtype(enum map_reduce reduce, struct natural term)
{
	kiln_dtype dtype = term.dtype;

	if (reduce == MAP_ANY || reduce == MAP_ALL)
		return KILN_BOOL;
	if (dtype == KILN_DTYPE_NONE)
		return term.real ? KILN_F32 : KILN_I64;
	if (is_float_dtype(dtype) || dtype == KILN_U64)
		return dtype;
	if (reduce == MAP_SUM || reduce == MAP_PRODUCT)
		return KILN_I64;
	return dtype == KILN_BOOL ? KILN_I32 : dtype;
}

static struct natural natural_of(const struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	int first = node->kind == MAP_CHOICE;
	struct natural out = {.dtype = KILN_DTYPE_NONE};

	if (node->kind == MAP_ACCESS)
		out.dtype = map->problem->tensors[node->which].dtype;
	else if (node->kind == MAP_CAST)
		out.dtype = (kiln_dtype)node->which;
	else if (node->kind == MAP_SCALAR)
		out.real = map->problem->attrs[node->which].kind == KILN_ATTR_REAL;
	else if (node->kind == MAP_NUMBER)
		out.real = node->type == MAP_REAL;
	else if (node->kind == MAP_REDUCE)
		out.dtype = reduced_dtype((enum map_reduce)node->which, natural_of(map, node->kid[0]));
	else if (is_truth(node))
		out.dtype = KILN_BOOL;
	else
		for (int k = first; k < node->kids; k++)
			out = k == first ? natural_of(map, node->kid[k])
							 : meet_natural(out, natural_of(map, node->kid[k]));
	if (node->kind == MAP_CALL && map_functions[node->which].takes == MAP_FLOATS)
		out = meet_natural(out, (struct natural){.real = true});
	else if (out.dtype == KILN_BOOL && !is_truth(node) &&
			 (node->kind == MAP_CALL || node->kind == MAP_UNARY ||
			  (node->kind == MAP_BINARY && !(node->op >= MAP_AND && node->op <= MAP_XOR))))
		out.dtype = KILN_I32; /* arithmetic of truth values */
	return out;
}

kiln_dtype map_natural_dtype(const struct map *map)
{
	struct natural out = natural_of(map, map->value);

	if (out.dtype == KILN_DTYPE_NONE)
		return out.real ? KILN_F32 : KILN_I64;
	/* A sum or a product of truth values counts. */
	return out.dtype == KILN_BOOL && (map->reduce == MAP_SUM || map->reduce == MAP_PRODUCT)
			   ? KILN_I64
			   : out.dtype;
}
