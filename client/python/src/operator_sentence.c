/*
 * operator_sentence.c: sentences of the planner and of libkiln have the planner's names of operands
 * and attributes; a function of Python has torch's.
 */
#include "errors.h"
#include "operator.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The name that the function has for a name of the planner, or the same. */
static const char *python_name(const struct operator_row *row, const char *word)
{
	for (int i = 0; i < row->parameter_count; i++) {
		const struct parameter *at = &row->parameters[i];
		const char *planned = at->attribute;
		if (at->kind <= PARAMETER_OUT)
			planned = row->operands[at->operand].name;
		if (planned && strcmp(planned, word) == 0)
			return at->name;
	}
	return word;
}

/* Does a sentence begin with an operand, as libkiln's do of a launch? */
static bool begins_with_operand(const struct operator_row *row, const char *sentence)
{
	size_t length = strcspn(sentence, " ");
	for (int i = 0; i < row->operand_count; i++)
		if (strlen(row->operands[i].name) == length &&
			strncmp(row->operands[i].name, sentence, length) == 0)
			return true;
	return false;
}

/* Puts the function's names for the planner's into a sentence of the planner, which begins with the
 * operator's name, or of libkiln.  Text in quotes is the caller's, and stays. */
static void write_python_names(const char *from, char *to, size_t size, const void *by)
{
	const struct operator_row *row = by;
	size_t length = strlen(row->name), used = 0;
	bool quoted = false;

	bool planned = strncmp(from, row->name, length) == 0 && from[length] == ':';
	if (!planned && !begins_with_operand(row, from)) {
		snprintf(to, size, "%s", from);
		return;
	}
	used = (size_t)snprintf(to, size, "%s()%s", row->name, planned ? "" : ": ");
	for (from += planned ? length : 0; *from && used < size; from += length) {
		char word[32];
		for (length = 0; isalnum((unsigned char)from[length]) || from[length] == '_';)
			length++;
		bool name = length > 0 && length < sizeof(word) && !quoted;
		quoted ^= *from == '"';
		length += length == 0;
		snprintf(word, sizeof(word), "%.*s", (int)length, from);
		used +=
			(size_t)snprintf(to + used, size - used, "%.*s", name ? (int)sizeof(word) : (int)length,
							 name ? python_name(row, word) : from);
	}
}

void operator_name_error(const struct operator_row *row)
{
	error_rewrite(write_python_names, row);
}
