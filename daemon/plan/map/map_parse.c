/*
 * map_parse.c: from a statement to a tree: the left side, the assignment, and the expression on the
 * right.
 */
#include "map_parse.h"

#include <string.h>

static void left_index(struct map_parser *parser)
{
	struct map *map = parser->map;

	if (parser->word != WORD_NAME)
		FAIL(parser, parser->column,
			 "expected the name of an index, not %s: on the left side each subscript is one",
			 parser->text);
	else if (map_find_operand(map, parser->text) >= 0 || map_find_scalar(map, parser->text) >= 0)
		FAIL(parser, parser->column, "%s is %s and cannot be an index", parser->text,
			 map_find_operand(map, parser->text) >= 0 ? "an operand" : "a scalar");
	else if (map_find_index(map, parser->text) >= 0)
		FAIL(parser, parser->column, "index %s stands twice on the left side", parser->text);
	else
		map_add_index(parser, parser->text, parser->column);
	word_next(parser);
}

static void left_side(struct map_parser *parser)
{
	struct map *map = parser->map;

	map->output_column = parser->column;
	map->output = parser->word == WORD_NAME ? map_find_operand(map, parser->text) : -1;
	if (map->output < 0) {
		FAIL(parser, parser->column, "expected an operand of names (%s) on the left side, not %s",
			 plan_attr_text(map->problem, "names"), parser->text);
		return;
	}
	map->operand_used[map->output] = true;
	word_next(parser);
	if (word_take_sign(parser, "[") && !word_take_sign(parser, "]")) {
		do
			left_index(parser);
		while (!parser->status && word_take_sign(parser, ","));
		word_need_sign(parser, "]", "or ','");
	}
	map->output_rank = map->index_count;
}

/* "=", "+=", "*=", "min=", "max=" */
static void assignment(struct map_parser *parser)
{
	struct map *map = parser->map;
	bool word = parser->word == WORD_NAME;

	if (word_take_sign(parser, "+=")) {
		map->reduce = MAP_SUM;
	} else if (word_take_sign(parser, "*=")) {
		map->reduce = MAP_PRODUCT;
	} else if (word && (!strcmp(parser->text, "min") || !strcmp(parser->text, "max"))) {
		map->reduce = strcmp(parser->text, "min") ? MAP_MOST : MAP_LEAST;
		word_next(parser);
		word_need_sign(parser, "=", "behind min or max");
	} else {
		word_need_sign(parser, "=", "(or +=, *=, min=, max=)");
	}
}

int map_parse(const struct kernel_problem *problem, struct map *map, char error[KERNEL_ERROR_MAX])
{
	struct map_parser parser = {.map = map};
	int status;

	memset(map, 0, sizeof(*map));
	map->problem = problem;
	map->error = error;
	map->text = plan_attr_text(problem, "statement");
	status = map_parse_names(problem, map);
	if (!status && !map->text)
		status = plan_refuse(error, KILN_EINVAL,
							 "map: statement is missing, \"y[i,j] = x[i,j] * s + b[j]\"");
	if (status)
		return status;
	map->bounds = (enum map_bounds)plan_word(problem, "bounds");
	map->checked = plan_int(problem, "checked");
	parser.at = map->text;
	word_next(&parser);
	left_side(&parser);
	if (!parser.status)
		assignment(&parser);
	if (!parser.status)
		map->value = map_expression(&parser);
	if (!parser.status && parser.word != WORD_END)
		FAIL(&parser, parser.column, "expected the end of the statement, not %s", parser.text);
	map->term = map->value;
	return parser.status ? parser.status : map_check_used(map);
}
