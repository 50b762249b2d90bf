/*
 * scan: finds the #include "..." and #pragma once lines of a source, and the lines that begin and
 * end conditions.  A line goes on behind a backslash at its end, and as long as a comment or a raw
 * string in it.  Not a preprocessor: it does not evaluate #if.
 */
#include "backend.h"

#include <string.h>

void scan_begin(struct scan *scan, const struct compile_file *file)
{
	*scan = (struct scan){.at = file->text, .end = file->text + file->bytes};
}

int scan_newlines(const char *text, size_t bytes)
{
	const char *at = text, *end = text + bytes;
	int count = 0;

	while ((at = memchr(at, '\n', (size_t)(end - at)))) {
		count++;
		at++;
	}
	return count;
}

static bool is_any(const struct lex_token *word, const char *const *words)
{
	while (*words && !lex_is(word, *words))
		words++;
	return *words != NULL;
}

static enum scan_kind read_include(struct lex lex, struct scan_line *line)
{
	struct lex_token name = lex_header_name(&lex);

	if (name.kind != LEX_LITERAL || !lex_header_text(&name, line->name, sizeof(line->name)))
		return SCAN_FOREIGN;
	line->mark_bytes = (size_t)(lex.at - line->text) - line->mark;
	return *name.text == '"' ? SCAN_INCLUDE : SCAN_FOREIGN;
}

static enum scan_kind read_directive(struct scan_line *line)
{
	static const char *const foreign[] = {"include_next", "import", "embed", NULL};
	static const char *const tests[] = {"if", "elif", NULL};
	static const char *const elses[] = {"else", "elif", "elifdef", "elifndef", NULL};
	static const char *const begins[] = {"if", "ifdef", "ifndef", NULL};
	struct lex_token word = lex_in_line(&line->rest), once;

	line->word = word;
	if (lex_is(&word, "include"))
		return read_include(line->rest, line);
	if (is_any(&word, foreign))
		return SCAN_FOREIGN;
	if (lex_is(&word, "pragma")) {
		struct lex ahead = line->rest;
		once = lex_in_line(&ahead);
		if (!lex_is(&once, "once"))
			return SCAN_PLAIN;
		line->mark_bytes = (size_t)(ahead.at - line->text) - line->mark;
		return SCAN_ONCE;
	}
	line->is_test = is_any(&word, tests);
	line->is_else = is_any(&word, elses);
	line->nesting = is_any(&word, begins) - lex_is(&word, "endif");
	return line->is_else || line->nesting < 0 ? SCAN_BRANCH : SCAN_PLAIN;
}

enum scan_kind scan_next(struct scan *scan, struct scan_line *line)
{
	struct lex lex = {scan->at, scan->end};
	enum scan_kind kind = SCAN_PLAIN;

	*line = (struct scan_line){.text = scan->at, .number = scan->line + 1};
	if (scan->at == scan->end)
		return SCAN_END;
	struct lex_token token = lex_in_line(&lex);
	line->is_empty = token.kind == LEX_NEWLINE || token.kind == LEX_END;
	if (token.kind == LEX_HASH) {
		line->mark = (size_t)(token.text - line->text);
		line->number += scan_newlines(line->text, line->mark);
		line->rest = lex;
		kind = read_directive(line);
		/* A name may look like a comment or a literal. */
		if (line->mark_bytes)
			lex.at = line->text + line->mark + line->mark_bytes;
	}
	do
		token = lex_next(&lex);
	while (token.kind != LEX_NEWLINE && token.kind != LEX_END);
	line->bytes = (size_t)(lex.at - line->text);
	scan->at = lex.at;
	scan->line += scan_newlines(line->text, line->bytes) + (token.kind == LEX_END);
	return kind;
}

static bool is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool scan_name_ok(const char *name)
{
	const char *at;

	for (at = name; *at; at++) {
		bool starts = at == name || at[-1] == '/';

		if (!is_letter_or_digit(*at) && !strchr("_-+./", *at))
			return false;
		if (starts && (*at == '/' || *at == '.'))
			return false;
	}
	return at > name && at[-1] != '/';
}
