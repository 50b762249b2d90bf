/*
 * map_parse.h: what the files of the parser share: names (map_name.c) and expressions
 * (map_expression.c).
 */
#ifndef KILN_DAEMON_PLAN_MAP_PARSE_H
#define KILN_DAEMON_PLAN_MAP_PARSE_H

#include "map_word.h"

/* The number of an operand, an index or a scalar; -1: the name is none. */
int map_find_operand(const struct map *map, const char *name);
int map_find_index(const struct map *map, const char *name);
int map_find_scalar(const struct map *map, const char *name);
/* Returns the number of a new index; fails if there are too many. */
int map_add_index(struct map_parser *parser, const char *name, int column);
/* Refuses names and scalars that the statement does not use. */
int map_check_used(struct map *map);

/* Goes on behind an expression; returns its node. */
int map_expression(struct map_parser *parser);

#endif
