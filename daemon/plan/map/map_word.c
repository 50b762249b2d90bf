/*
 * map_word.c: the words of a statement: names, numbers and signs, each with its column.
 */
#include "map_word.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int map_refuse(struct map *map, int column, const char *format, ...)
{
	va_list args;
	int used = snprintf(map->error, KERNEL_ERROR_MAX, "map: column %d: ", column);

	va_start(args, format);
	vsnprintf(map->error + used, (size_t)(KERNEL_ERROR_MAX - used), format, args);
	va_end(args);
	return KILN_EINVAL;
}

static void read_number(struct map_parser *parser)
{
	const char *at = parser->at;
	char *end;

	parser->word = WORD_NUMBER;
	while (plan_is_digit(*at))
		at++;
	parser->real = *at == '.' || *at == 'e' || *at == 'E';
	errno = 0;
	if (parser->real)
		parser->f = strtod(parser->at, &end);
	else
		parser->i = strtoll(parser->at, &end, 10);
	snprintf(parser->text, sizeof(parser->text), "%.*s", (int)(end - parser->at), parser->at);
	if (errno == ERANGE)
		FAIL(parser, parser->column, "%s is no number of 64 bits", parser->text);
	parser->at = end;
	if (plan_is_letter(*parser->at) || plan_is_digit(*parser->at) || *parser->at == '.')
		FAIL(parser, parser->column, "a number ends in '%c'", *parser->at);
}

static void read_name(struct map_parser *parser)
{
	const char *at = parser->at;

	parser->word = WORD_NAME;
	while (plan_is_letter(*at) || plan_is_digit(*at))
		at++;
	snprintf(parser->text, sizeof(parser->text), "%.*s", (int)(at - parser->at), parser->at);
	if (at - parser->at >= MAP_NAME)
		FAIL(parser, parser->column, "the name %.30s is longer than %d characters", parser->text,
			 MAP_NAME - 1);
	parser->at = at;
}

static void read_sign(struct map_parser *parser)
{
	static const char *const signs[] = {
		"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "*=", NULL};
	int bytes = 1;

	parser->word = WORD_SIGN;
	for (int i = 0; signs[i]; i++)
		if (strncmp(parser->at, signs[i], 2) == 0)
			bytes = 2;
	if (!strchr("+-*/%&|^~!<>=?:,()[]", *parser->at))
		FAIL(parser, parser->column, "there is a '%c', which no statement has",
			 *parser->at >= 0x20 && *parser->at < 0x7f ? *parser->at : '?');
	snprintf(parser->text, sizeof(parser->text), "%.*s", bytes, parser->at);
	parser->at += bytes;
}

void word_next(struct map_parser *parser)
{
	while (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\n')
		parser->at++;
	parser->column = (int)(parser->at - parser->map->text) + 1;
	snprintf(parser->text, sizeof(parser->text), "the end");
	if (*parser->at == 0 || parser->status)
		parser->word = WORD_END;
	else if (plan_is_digit(*parser->at) || (*parser->at == '.' && plan_is_digit(parser->at[1])))
		read_number(parser);
	else if (plan_is_letter(*parser->at))
		read_name(parser);
	else
		read_sign(parser);
}

bool word_is_sign(const struct map_parser *parser, const char *sign)
{
	return !parser->status && parser->word == WORD_SIGN && strcmp(parser->text, sign) == 0;
}

bool word_take_sign(struct map_parser *parser, const char *sign)
{
	if (!word_is_sign(parser, sign))
		return false;
	word_next(parser);
	return true;
}

void word_need_sign(struct map_parser *parser, const char *sign, const char *where)
{
	if (!word_take_sign(parser, sign))
		FAIL(parser, parser->column, "expected '%s' %s, not %s", sign, where, parser->text);
}
