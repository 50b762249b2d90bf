/*
 * map_word.h: a statement's words, for the parser: map_word.c finds them, map_parse.c and
 * map_expression.c put them together.
 */
#ifndef KILN_DAEMON_PLAN_MAP_WORD_H
#define KILN_DAEMON_PLAN_MAP_WORD_H

#include "map.h"

enum map_word { WORD_END, WORD_NAME, WORD_NUMBER, WORD_SIGN };

struct map_parser {
	struct map *map;
	const char *at; /* behind the word */
	enum map_word word;
	int column;
	char text[40]; /* a name, or a sign */
	bool real;
	int64_t i;
	double f;
	int status;
};

/* The first failure is the one that is told. */
#define FAIL(parser, column, ...) \
	((parser)->status =           \
		 (parser)->status ? (parser)->status : map_refuse((parser)->map, column, __VA_ARGS__))

/* Goes on to the next word; at a failure to the end. */
void word_next(struct map_parser *parser);
bool word_is_sign(const struct map_parser *parser, const char *sign);
/* Goes on behind the sign if it is here. */
bool word_take_sign(struct map_parser *parser, const char *sign);
/* Like that, but fails if the word is another; where: "or ','". */
void word_need_sign(struct map_parser *parser, const char *sign, const char *where);

#endif
