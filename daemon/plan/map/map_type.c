/*
 * map_type.c: the types of a statement's parts.  First from the leaves to the root, where numbers
 * and indices have no type of their own; these then take that of what they meet, from there down.
 */
#include "map.h"

#include <float.h>

enum map_type map_type_of(kiln_dtype dtype)
{
	switch (dtype) {
	case KILN_F8E4M3:
	case KILN_F8E5M2:
	case KILN_F16:
	case KILN_BF16:
	case KILN_F32:
		return MAP_F32;
	case KILN_F64:
		return MAP_F64;
	case KILN_U32:
		return MAP_U32;
	case KILN_I64:
		return MAP_I64;
	case KILN_U64:
		return MAP_U64;
	case KILN_BOOL:
		return MAP_BOOL;
	default:
		return MAP_I32;
	}
}

static const char *map_type_name(enum map_type type)
{
	static const char *const names[] = {
		"bool", "i32", "u32", "i64", "u64", "f32", "f64", "a whole number", "a number"};

	return names[type];
}

static bool is_open(enum map_type type)
{
	return type == MAP_WHOLE || type == MAP_REAL;
}

/* Gives an open node, and what is open below it, a type. */
static int settle(struct map *map, int number, enum map_type type)
{
	struct map_node *node = &map->node[number];
	int status = KILN_OK;

	if (!is_open(node->type))
		return KILN_OK;
	if (node->kind == MAP_NUMBER && node->type == MAP_WHOLE &&
		((type == MAP_I32 && node->i > INT32_MAX) || (type == MAP_U32 && node->i > UINT32_MAX)))
		return map_refuse(map, node->column, "%lld does not fit %s, the type of what it meets",
						  (long long)node->i, map_type_name(type));
	if (node->kind == MAP_NUMBER && type == MAP_F32 && node->f > FLT_MAX)
		return map_refuse(map, node->column, "%g does not fit f32, the type of what it meets",
						  node->f);
	if (node->kind == MAP_SCALAR && node->type == MAP_WHOLE) {
		int64_t value = map->problem->attrs[node->which].i;
		if ((type == MAP_I32 && (value > INT32_MAX || value < INT32_MIN)) ||
			(type == MAP_U32 && (value > UINT32_MAX || value < 0)) ||
			(type == MAP_U64 && value < 0))
			return map_refuse(map, node->column,
							  "scalar %s is %lld, which does not fit %s, the type of what it meets",
							  map->problem->attrs[node->which].name, (long long)value,
							  map_type_name(type));
	}
	node->type = type;
	node->common = type;
	node->untyped = true;
	for (int k = node->kind == MAP_CHOICE; k < node->kids && !status; k++)
		status = settle(map, node->kid[k], type);
	return status;
}

/* A node that is still open becomes 64-bit, or f32. */
static int settle_alone(struct map *map, int number, enum map_type real)
{
	enum map_type type = map->node[number].type;

	return settle(map, number, type == MAP_REAL ? real : MAP_I64);
}

/* The type that two meet in. */
static int meet(struct map *map, int column, enum map_type a, enum map_type b, enum map_type *out)
{
	if (is_open(a) && !is_open(b))
		return meet(map, column, b, a, out);
	if (is_open(b)) { /* and perhaps a */
		if (is_open(a))
			*out = a == MAP_REAL || b == MAP_REAL ? MAP_REAL : MAP_WHOLE;
		else if (b == MAP_REAL)
			*out = map_is_float(a) ? a : MAP_F32;
		else
			*out = a == MAP_BOOL ? MAP_I32 : a;
	} else if (map_is_float(a) || map_is_float(b)) {
		*out = a == MAP_F64 || b == MAP_F64 ? MAP_F64 : MAP_F32;
	} else if (a == b) {
		*out = a;
	} else if (a == MAP_BOOL || b == MAP_BOOL) {
		*out = a == MAP_BOOL ? b : a;
	} else if (a == MAP_U64 || b == MAP_U64) {
		enum map_type other = a == MAP_U64 ? b : a;
		if (other != MAP_U32)
			return map_refuse(map, column, "%s and %s have no type in common; cast one of them",
							  map_type_name(a), map_type_name(b));
		*out = MAP_U64;
	} else {
		*out = MAP_I64; /* two of i32, u32 and i64 */
	}
	return KILN_OK;
}

/* The kids meet, from kid `first` on; what is open among them takes the type, if it is one. */
static int meet_kids(struct map *map, int number, int first)
{
	struct map_node *node = &map->node[number];
	enum map_type type = map->node[node->kid[first]].type;
	int status = KILN_OK;

	for (int k = first + 1; k < node->kids && !status; k++)
		status = meet(map, node->column, type, map->node[node->kid[k]].type, &type);
	node->common = type;
	for (int k = first; k < node->kids && !status && !is_open(type); k++) {
		struct map_node *kid = &map->node[node->kid[k]];
		/* A whole number among floats is one of them; a real one among integers makes all f32. */
		status =
			settle(map, node->kid[k], kid->type == MAP_WHOLE && type == MAP_BOOL ? MAP_I32 : type);
	}
	return status;
}

static int need_integers(struct map *map, const struct map_node *node, const char *sign)
{
	for (int k = 0; k < node->kids; k++)
		if (map_is_float(map->node[node->kid[k]].type))
			return map_refuse(map, node->column, "%s is of integers, and this is %s%s", sign,
							  map_type_name(map->node[node->kid[k]].type),
							  node->op == MAP_MOD ? "; fmod is of floats" : "");
	return KILN_OK;
}

static int type_operator(struct map *map, int number)
{
	static const char *const signs[] = {
		[MAP_MOD] = "%",  [MAP_AND] = "&",  [MAP_OR] = "|",  [MAP_XOR] = "^",
		[MAP_SHL] = "<<", [MAP_SHR] = ">>", [MAP_FLIP] = "~"};
	struct map_node *node = &map->node[number];
	int status = KILN_OK;

	if ((node->op >= MAP_MOD && node->op <= MAP_SHR) || node->op == MAP_FLIP)
		status = need_integers(map, node, signs[node->op]);
	if (!status && (node->op == MAP_BOTH || node->op == MAP_EITHER || node->op == MAP_NOT)) {
		node->type = node->common = MAP_BOOL;
		for (int k = 0; k < node->kids && !status; k++)
			status = settle_alone(map, node->kid[k], MAP_F32);
		return status;
	}
	if (!status)
		status = meet_kids(map, number, 0);
	if (status)
		return status;
	node->type = node->common;
	if (node->op >= MAP_LT && node->op <= MAP_NE) {
		node->type = MAP_BOOL;
		if (is_open(node->common))
			node->common = node->common == MAP_REAL ? MAP_F64 : MAP_I64;
		for (int k = 0; k < node->kids && !status; k++)
			status = settle(map, node->kid[k], node->common);
		return status;
	}
	/* Arithmetic of truth values is of integers; & | ^ of them gives one. */
	if (node->type == MAP_BOOL && !(node->op >= MAP_AND && node->op <= MAP_XOR))
		node->type = node->common = MAP_I32;
	return KILN_OK;
}

static int type_call(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	const struct map_function *function = &map_functions[node->which];
	int status = meet_kids(map, number, 0);

	if (status)
		return status;
	if (function->takes != MAP_SAME) {
		if (node->common == MAP_WHOLE)
			node->common = MAP_REAL;
		else if (!map_is_float(node->common))
			node->common = MAP_F32;
	} else if (node->common == MAP_BOOL) {
		node->common = MAP_I32;
	}
	node->type = node->common;
	if (function->takes != MAP_ASKS)
		return KILN_OK;
	node->type = MAP_BOOL;
	if (is_open(node->common))
		node->common = MAP_F64;
	return settle(map, node->kid[0], node->common);
}

/* Terms of a sum have their type before the sum has one, whatever the result meets. */
static int type_reduction(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	int status = settle_alone(map, node->kid[0], MAP_F32);

	node->common = map->node[node->kid[0]].type;
	node->type = map_reduce_type((enum map_reduce)node->which, node->common);
	if (node->which == MAP_ANY || node->which == MAP_ALL)
		node->common = MAP_BOOL;
	else
		node->common = node->type;
	return status;
}

static int type_access(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	const struct kernel_tensor *tensor = &map->problem->tensors[node->which];
	int status = KILN_OK;

	if (node->kids != tensor->rank)
		return map_refuse(map, node->column, "%s has %d subscript%s here and rank %d",
						  map->name[node->which], node->kids, node->kids == 1 ? "" : "s",
						  tensor->rank);
	node->type = map_type_of(tensor->dtype);
	for (int k = 0; k < node->kids && !status; k++) {
		struct map_node *kid = &map->node[node->kid[k]];
		if (map_is_float(kid->type) || kid->type == MAP_BOOL)
			return map_refuse(map, map_column(map, node->kid[k]),
							  "subscript %d of %s is %s; it must be an integer", k,
							  map->name[node->which], map_type_name(kid->type));
		status = settle_alone(map, node->kid[k], MAP_F32);
	}
	return status;
}

static int type_node(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	int status = KILN_OK;

	for (int k = 0; k < node->kids && !status; k++)
		status = type_node(map, node->kid[k]);
	if (status)
		return status;
	switch (node->kind) {
	case MAP_NUMBER:
		return KILN_OK;
	case MAP_INDEX:
		node->type = MAP_WHOLE;
		return KILN_OK;
	case MAP_SCALAR:
		node->type = map->problem->attrs[node->which].kind == KILN_ATTR_INT ? MAP_WHOLE : MAP_REAL;
		return KILN_OK;
	case MAP_ACCESS:
		return type_access(map, number);
	case MAP_UNARY:
	case MAP_BINARY:
		return type_operator(map, number);
	case MAP_CHOICE:
		status = settle_alone(map, node->kid[0], MAP_F32);
		if (!status)
			status = meet_kids(map, number, 1);
		node->type = node->common;
		return status;
	case MAP_CALL:
		return type_call(map, number);
	case MAP_CAST:
		node->type = map_type_of((kiln_dtype)node->which);
		return settle_alone(map, node->kid[0], node->type == MAP_F32 ? MAP_F32 : MAP_F64);
	case MAP_REDUCE:
		return type_reduction(map, number);
	}
	return KILN_OK;
}

static int check_dtypes(struct map *map)
{
	for (int i = 0; i < map->operand_count; i++) {
		kiln_dtype dtype = map->problem->tensors[i].dtype;
		if (dtype == KILN_C64 || dtype == KILN_C128)
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: %s is %s; statements are of floats, integers and bool",
							   map->name[i], plan_dtype_name(dtype));
	}
	return KILN_OK;
}

enum map_type map_reduce_type(enum map_reduce reduce, enum map_type type)
{
	bool counts = reduce == MAP_SUM || reduce == MAP_PRODUCT;

	if (reduce == MAP_ANY || reduce == MAP_ALL)
		return MAP_BOOL;
	if (type == MAP_BOOL)
		return counts ? MAP_I64 : MAP_I32;
	return counts && (type == MAP_I32 || type == MAP_U32) ? MAP_I64 : type;
}

enum map_type map_sum_type(const struct map *map)
{
	return map_reduce_type(map->reduce, map->node[map->term].type);
}

int map_types(struct map *map)
{
	kiln_dtype dtype = map->problem->tensors[map->output].dtype;
	enum map_type wanted = map_type_of(dtype);
	struct map_node *value = &map->node[map->value];
	int status = check_dtypes(map);

	if (!status)
		status = type_node(map, map->value);
	if (!status && is_open(value->type) && map_is_float(wanted))
		status = settle(map, map->value, wanted);
	if (!status)
		status = settle_alone(map, map->value, MAP_F32);
	if (status)
		return status;
	map->result = value->type;
	if (map_is_float(value->type) && !map_is_float(wanted))
		return map_refuse(map, map_column(map, map->value),
						  "the right side is %s and %s is %s; write %s(...) around it",
						  map_type_name(value->type), map->name[map->output],
						  plan_dtype_name(dtype), plan_dtype_name(dtype));
	if (wanted == MAP_BOOL && value->type != MAP_BOOL)
		return map_refuse(map, map_column(map, map->value),
						  "the right side is %s and %s is bool; write bool(...) around it, or a "
						  "comparison",
						  map_type_name(value->type), map->name[map->output]);
	/* A cast of all to the output's dtype is the rounding of the store. */
	if (map->reduce == MAP_PLAIN && value->kind == MAP_CAST && value->which == (int)dtype &&
		map_is_float(value->type) && map_is_float(map->node[value->kid[0]].type)) {
		map->saturates = value->i != 0;
		map->value = value->kid[0];
		map->result = map->node[map->value].type;
	}
	return KILN_OK;
}
