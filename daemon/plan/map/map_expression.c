/*
 * map_expression.c: from words to the tree of an expression.
 */
#include "map_parse.h"

#include <string.h>

const struct map_function map_functions[] = {
	{"abs", 1, 1, MAP_SAME},      {"min", 2, MAP_KIDS, MAP_SAME}, {"max", 2, MAP_KIDS, MAP_SAME},
	{"clamp", 3, 3, MAP_SAME},    {"exp", 1, 1, MAP_FLOATS},      {"exp2", 1, 1, MAP_FLOATS},
	{"expm1", 1, 1, MAP_FLOATS},  {"log", 1, 1, MAP_FLOATS},      {"log2", 1, 1, MAP_FLOATS},
	{"log10", 1, 1, MAP_FLOATS},  {"log1p", 1, 1, MAP_FLOATS},    {"sqrt", 1, 1, MAP_FLOATS},
	{"rsqrt", 1, 1, MAP_FLOATS},  {"cbrt", 1, 1, MAP_FLOATS},     {"sin", 1, 1, MAP_FLOATS},
	{"cos", 1, 1, MAP_FLOATS},    {"tan", 1, 1, MAP_FLOATS},      {"asin", 1, 1, MAP_FLOATS},
	{"acos", 1, 1, MAP_FLOATS},   {"atan", 1, 1, MAP_FLOATS},     {"sinh", 1, 1, MAP_FLOATS},
	{"cosh", 1, 1, MAP_FLOATS},   {"tanh", 1, 1, MAP_FLOATS},     {"erf", 1, 1, MAP_FLOATS},
	{"erfc", 1, 1, MAP_FLOATS},   {"floor", 1, 1, MAP_FLOATS},    {"ceil", 1, 1, MAP_FLOATS},
	{"trunc", 1, 1, MAP_FLOATS},  {"rint", 1, 1, MAP_FLOATS},     {"pow", 2, 2, MAP_FLOATS},
	{"atan2", 2, 2, MAP_FLOATS},  {"fmod", 2, 2, MAP_FLOATS},     {"hypot", 2, 2, MAP_FLOATS},
	{"fma", 3, 3, MAP_FLOATS},    {"isnan", 1, 1, MAP_ASKS},      {"isinf", 1, 1, MAP_ASKS},
	{"isfinite", 1, 1, MAP_ASKS}, {NULL, 0, 0, MAP_SAME},
};

/* An operator's own column is that of its sign. */
int map_column(const struct map *map, int node)
{
	while (map->node[node].kind == MAP_BINARY || map->node[node].kind == MAP_CHOICE)
		node = map->node[node].kid[0];
	return map->node[node].column;
}

static int add_node(struct map_parser *parser, enum map_kind kind, int column)
{
	struct map *map = parser->map;

	if (map->node_count == MAP_NODES) {
		FAIL(parser, column, "the statement has more than %d parts", MAP_NODES - 1);
		return 0;
	}
	map->node[map->node_count] = (struct map_node){.kind = kind, .column = column};
	return map->node_count++;
}

static void give_kid(struct map_parser *parser, int node, int kid)
{
	struct map_node *to = &parser->map->node[node];

	if (to->kids < MAP_KIDS)
		to->kid[to->kids++] = kid;
	else
		FAIL(parser, parser->column, "there are more than %d of these", MAP_KIDS);
}

static void list(struct map_parser *parser, int node, const char *close)
{
	if (word_take_sign(parser, close))
		return;
	do
		give_kid(parser, node, map_expression(parser));
	while (!parser->status && word_take_sign(parser, ","));
	word_need_sign(parser, close, "or ','");
}

static int call(struct map_parser *parser, const char *name, int column)
{
	static const struct {
		const char *name;
		kiln_dtype dtype;
	} casts[] = {
#define CAST(NAME, name, value, bytes) {#name, KILN_##NAME},
		KILN_DTYPE_LIST(CAST)
#undef CAST
	};
	int node = add_node(parser, MAP_CALL, column), which = -1;
	struct map_node *made = &parser->map->node[node];
	bool saturates = strncmp(name, "sat_f8", 6) == 0;
	const char *type = saturates ? name + 4 : name;

	for (size_t i = 0; i < sizeof(casts) / sizeof(casts[0]); i++) {
		if (strcmp(casts[i].name, type) == 0 && casts[i].dtype != KILN_C64 &&
			casts[i].dtype != KILN_C128) {
			made->kind = MAP_CAST;
			made->i = saturates;
			which = (int)casts[i].dtype;
		}
	}
	for (int i = 0; which < 0 && map_functions[i].name; i++)
		if (strcmp(map_functions[i].name, name) == 0)
			which = i;
	if (which < 0) {
		FAIL(parser, column, "there is no function %s; docs/map.md lists those there are", name);
		return node;
	}
	made->which = which;
	word_next(parser);
	list(parser, node, ")");
	int least = made->kind == MAP_CAST ? 1 : map_functions[which].least;
	int most = made->kind == MAP_CAST ? 1 : map_functions[which].most;
	if (made->kids < least || made->kids > most)
		FAIL(parser, column, "%s takes %d%s argument%s, not %d", name, least,
			 most > least ? " or more" : "", most == 1 ? "" : "s", made->kids);
	return node;
}

static int find_reduction(const char *name)
{
	static const char *const names[] = {
		[MAP_SUM] = "sum", [MAP_PRODUCT] = "prod", [MAP_MIN] = "min",
		[MAP_MAX] = "max", [MAP_ANY] = "any",      [MAP_ALL] = "all"};

	for (int i = 0; i <= MAP_ALL; i++)
		if (names[i] && strcmp(names[i], name) == 0)
			return i;
	return MAP_PLAIN;
}

/* An index of a reduction's own. */
static void own_index(struct map_parser *parser, int node)
{
	struct map *map = parser->map;
	int column = parser->column, kid;

	if (parser->word != WORD_NAME)
		FAIL(parser, column, "expected the name of an index of the reduction, not %s",
			 parser->text);
	else if (map_find_operand(map, parser->text) >= 0 || map_find_scalar(map, parser->text) >= 0)
		FAIL(parser, column, "%s is %s and cannot be an index", parser->text,
			 map_find_operand(map, parser->text) >= 0 ? "an operand" : "a scalar");
	else if (map_find_index(map, parser->text) >= 0)
		FAIL(parser, column, "%s is an index already; a reduction goes over indices of its own",
			 parser->text);
	if (parser->status)
		return;
	kid = add_node(parser, MAP_INDEX, column);
	map->node[kid].which = map_add_index(parser, parser->text, column);
	give_kid(parser, node, kid);
	word_next(parser);
}

/* sum[j,k](...) */
static int reduction(struct map_parser *parser, enum map_reduce reduce, int column)
{
	struct map *map = parser->map;
	int node = add_node(parser, MAP_REDUCE, column), term;

	if (map->reduce != MAP_PLAIN)
		FAIL(parser, column,
			 "a reduction stands in no sum; write '=' and a reduction around the right side");
	map->node[node].which = (int)reduce;
	give_kid(parser, node, 0); /* the term, once it is read */
	word_next(parser);
	do
		own_index(parser, node);
	while (!parser->status && word_take_sign(parser, ","));
	word_need_sign(parser, "]", "or ','");
	word_need_sign(parser, "(", "behind the indices of a reduction");
	if (parser->status)
		return node;
	term = map_expression(parser);
	word_need_sign(parser, ")", "to close a reduction");
	map->node[node].kid[0] = term;
	for (int k = 1; k < map->node[node].kids; k++)
		map->index[map->node[map->node[node].kid[k]].which].closed = true;
	return node;
}

/* An operand, with its subscripts or without. */
static int access(struct map_parser *parser, int operand, int column)
{
	struct map *map = parser->map;
	int node = add_node(parser, MAP_ACCESS, column);

	map->node[node].which = operand;
	map->operand_used[operand] = true;
	if (operand == map->output)
		FAIL(parser, column, "%s is what the statement writes and cannot be read",
			 map->name[operand]);
	if (word_take_sign(parser, "["))
		list(parser, node, "]");
	return node;
}

/* A name by itself: what it is may show later, where a sum may have indices of its own. */
static int bare_name(struct map_parser *parser, const char *name, int column)
{
	struct map *map = parser->map;
	int index = map_find_index(map, name), scalar = map_find_scalar(map, name), node;

	if (index < 0 && scalar >= 0) {
		const struct kernel_attr *attr = &map->problem->attrs[scalar];
		if (attr->kind != KILN_ATTR_INT && attr->kind != KILN_ATTR_REAL)
			FAIL(parser, column, "scalar %s is not a number", name);
		map->scalar_used[scalar] = true;
		node = add_node(parser, MAP_SCALAR, column);
		map->node[node].which = scalar;
		return node;
	}
	if (index < 0 && map->reduce == MAP_PLAIN)
		FAIL(parser, column,
			 "%s is no operand of names, no index of the left side and no scalar that was given",
			 name);
	else if (index < 0)
		index = map_add_index(parser, name, column);
	node = add_node(parser, MAP_INDEX, column);
	map->node[node].which = index;
	return node;
}

static int name(struct map_parser *parser)
{
	char text[sizeof(parser->text)];
	int column = parser->column, operand;

	memcpy(text, parser->text, sizeof(text));
	word_next(parser);
	if (word_is_sign(parser, "("))
		return call(parser, text, column);
	operand = map_find_operand(parser->map, text);
	if (operand >= 0)
		return access(parser, operand, column);
	if (word_is_sign(parser, "[") && find_reduction(text))
		return reduction(parser, (enum map_reduce)find_reduction(text), column);
	if (word_is_sign(parser, "["))
		FAIL(parser, column, "there is no operand %s; names has %s", text,
			 plan_attr_text(parser->map->problem, "names"));
	return bare_name(parser, text, column);
}

static int primary(struct map_parser *parser)
{
	int column = parser->column, node = 0;

	if (parser->word == WORD_NUMBER) {
		node = add_node(parser, MAP_NUMBER, column);
		parser->map->node[node].type = parser->real ? MAP_REAL : MAP_WHOLE;
		parser->map->node[node].i = parser->i;
		parser->map->node[node].f = parser->real ? parser->f : (double)parser->i;
		word_next(parser);
	} else if (parser->word == WORD_NAME) {
		node = name(parser);
	} else if (word_take_sign(parser, "(")) {
		node = map_expression(parser);
		word_need_sign(parser, ")", "to close a parenthesis");
	} else {
		FAIL(parser, column, "expected a value, not %s", parser->text);
	}
	return node;
}

static int unary(struct map_parser *parser)
{
	static const struct {
		const char *sign;
		enum map_operator op;
	} signs[] = {{"-", MAP_NEGATE}, {"!", MAP_NOT}, {"~", MAP_FLIP}};
	int column = parser->column, node;

	if (++parser->map->depth > MAP_DEPTH)
		FAIL(parser, column, "the statement is nested more than %d deep", MAP_DEPTH);
	if (parser->status)
		return 0;
	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
		if (!word_take_sign(parser, signs[i].sign))
			continue;
		node = add_node(parser, MAP_UNARY, column);
		parser->map->node[node].op = signs[i].op;
		give_kid(parser, node, unary(parser));
		parser->map->depth--;
		return node;
	}
	node = primary(parser);
	parser->map->depth--;
	return node;
}

/* C's levels, loosest first. */
static const struct {
	const char *sign;
	enum map_operator op;
	int level;
} binaries[] = {
	{"||", MAP_EITHER, 0}, {"&&", MAP_BOTH, 1}, {"|", MAP_OR, 2},  {"^", MAP_XOR, 3},
	{"&", MAP_AND, 4},     {"==", MAP_EQ, 5},   {"!=", MAP_NE, 5}, {"<", MAP_LT, 6},
	{"<=", MAP_LE, 6},     {">", MAP_GT, 6},    {">=", MAP_GE, 6}, {"<<", MAP_SHL, 7},
	{">>", MAP_SHR, 7},    {"+", MAP_ADD, 8},   {"-", MAP_SUB, 8}, {"*", MAP_MUL, 9},
	{"/", MAP_DIV, 9},     {"%", MAP_MOD, 9},
};

static int find_binary(const struct map_parser *parser, int level)
{
	for (int i = 0; i < (int)(sizeof(binaries) / sizeof(binaries[0])); i++)
		if (binaries[i].level >= level && word_is_sign(parser, binaries[i].sign))
			return i;
	return -1;
}

static int binary(struct map_parser *parser, int level)
{
	int left = unary(parser), found;

	while (!parser->status && (found = find_binary(parser, level)) >= 0) {
		int node = add_node(parser, MAP_BINARY, parser->column);
		parser->map->node[node].op = binaries[found].op;
		give_kid(parser, node, left);
		word_next(parser);
		give_kid(parser, node, binary(parser, binaries[found].level + 1));
		left = node;
	}
	return left;
}

int map_expression(struct map_parser *parser)
{
	int node, condition = 0;

	if (++parser->map->depth > MAP_DEPTH)
		FAIL(parser, parser->column, "the statement is nested more than %d deep", MAP_DEPTH);
	if (parser->status)
		return 0;
	condition = binary(parser, 0);
	if (word_is_sign(parser, "?")) {
		node = add_node(parser, MAP_CHOICE, parser->column);
		word_next(parser);
		give_kid(parser, node, condition);
		give_kid(parser, node, map_expression(parser));
		word_need_sign(parser, ":", "behind what follows '?'");
		give_kid(parser, node, map_expression(parser));
		condition = node;
	}
	parser->map->depth--;
	return condition;
}
