/*
 * scan: finds the #include "..." and #pragma once lines of a source, passing over comments, and the
 * lines that begin and end conditions, behind comments, too.  Not a preprocessor: it does not
 * evaluate #if, and does not know raw strings.
 */
#include "backend.h"

#include <string.h>

void scan_begin(struct scan *scan, const struct compile_file *file)
{
	*scan = (struct scan){.at = file->text, .end = file->text + file->bytes};
}

bool scan_is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const char *scan_skip_blanks(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	return at;
}

/* Past blanks and the comments that end on this line. */
static const char *skip_comments(const char *at, const char *end)
{
	const char *close;

	for (;;) {
		at = scan_skip_blanks(at, end);
		if (end - at < 4 || at[0] != '/' || at[1] != '*' ||
			!(close = memmem(at + 2, (size_t)(end - at - 2), "*/", 2)))
			return at;
		at = close + 2;
	}
}

/* Past the word, if it stands here and ends here; else NULL. */
static const char *skip_word(const char *at, const char *end, const char *word)
{
	size_t size = strlen(word);

	if ((size_t)(end - at) < size || memcmp(at, word, size) != 0)
		return NULL;
	at += size;
	return at < end && scan_is_word(*at) ? NULL : at;
}

/* Past a string or character literal that begins at at; a quote between digits separates them. */
static const char *skip_literal(const char *begin, const char *at, const char *end)
{
	char quote = *at;

	if (quote == '\'' && at > begin && scan_is_word(at[-1]) && at + 1 < end &&
		scan_is_word(at[1]) && at[-1] >= '0' && at[-1] <= '9')
		return at + 1;
	for (at++; at < end && *at != quote; at++)
		if (*at == '\\' && at + 1 < end)
			at++;
	return at < end ? at + 1 : end;
}

/* Is a comment open at the end of the line? */
static bool comment_after(const char *begin, const char *end, bool inside)
{
	const char *at = begin;

	while (at < end) {
		if (inside) {
			if (*at == '*' && at + 1 < end && at[1] == '/') {
				inside = false;
				at++;
			}
			at++;
		} else if (*at == '"' || *at == '\'') {
			at = skip_literal(begin, at, end);
		} else if (*at == '/' && at + 1 < end && at[1] == '/') {
			return false;
		} else if (*at == '/' && at + 1 < end && at[1] == '*') {
			inside = true;
			at += 2;
		} else {
			at++;
		}
	}
	return inside;
}

static enum scan_kind read_include(const char *at, const char *end, struct scan_line *line)
{
	const char *close;

	at = scan_skip_blanks(at, end);
	if (at == end || (*at != '"' && *at != '<'))
		return SCAN_FOREIGN;
	close = memchr(at + 1, *at == '<' ? '>' : '"', (size_t)(end - at - 1));
	if (!close || (size_t)(close - at - 1) >= sizeof(line->name))
		return SCAN_FOREIGN;
	memcpy(line->name, at + 1, (size_t)(close - at - 1));
	line->name[close - at - 1] = 0;
	line->mark_bytes = (size_t)(close + 1 - line->text) - line->mark;
	return *at == '<' ? SCAN_FOREIGN : SCAN_INCLUDE;
}

/* Reads the directives of conditions, and no others. */
static enum scan_kind read_condition(const char *at, const char *end, struct scan_line *line)
{
	line->is_test = skip_word(at, end, "if") || skip_word(at, end, "elif");
	line->is_else = skip_word(at, end, "else") || skip_word(at, end, "elif") ||
					skip_word(at, end, "elifdef") || skip_word(at, end, "elifndef");
	line->nesting =
		skip_word(at, end, "if") || skip_word(at, end, "ifdef") || skip_word(at, end, "ifndef");
	line->nesting -= skip_word(at, end, "endif") != NULL;
	return line->is_else || line->nesting < 0 ? SCAN_BRANCH : SCAN_PLAIN;
}

static enum scan_kind read_directive(const char *end, struct scan_line *line)
{
	const char *at = scan_skip_blanks(line->text, end), *next;

	if (at == end || *at != '#')
		return SCAN_PLAIN;
	line->mark = (size_t)(at - line->text);
	at = scan_skip_blanks(at + 1, end);
	if ((next = skip_word(at, end, "include")))
		return read_include(next, end, line);
	if (skip_word(at, end, "include_next") || skip_word(at, end, "import") ||
		skip_word(at, end, "embed"))
		return SCAN_FOREIGN;
	if ((next = skip_word(at, end, "pragma")) &&
		(next = skip_word(scan_skip_blanks(next, end), end, "once"))) {
		line->mark_bytes = (size_t)(next - line->text) - line->mark;
		return SCAN_ONCE;
	}
	return SCAN_PLAIN;
}

/* Conditions count behind a comment, too; includes there are left to the compiler. */
static enum scan_kind read_line(const char *end, bool in_comment, struct scan_line *line)
{
	const char *at = in_comment ? memmem(line->text, (size_t)(end - line->text), "*/", 2) : NULL;
	enum scan_kind kind = in_comment ? SCAN_PLAIN : read_directive(end, line);

	if (kind != SCAN_PLAIN || (in_comment && !at))
		return kind;
	at = skip_comments(at ? at + 2 : line->text, end);
	if (at == end || *at != '#')
		return SCAN_PLAIN;
	return read_condition(skip_comments(at + 1, end), end, line);
}

enum scan_kind scan_next(struct scan *scan, struct scan_line *line)
{
	enum scan_kind kind;
	const char *end;

	*line = (struct scan_line){.text = scan->at};
	if (scan->at == scan->end)
		return SCAN_END;
	end = memchr(scan->at, '\n', (size_t)(scan->end - scan->at));
	if (!end)
		end = scan->end;
	scan->line++;
	kind = read_line(end, scan->in_comment, line);
	scan->in_comment = comment_after(line->text, end, scan->in_comment);
	scan->at = end < scan->end ? end + 1 : end;
	line->bytes = (size_t)(scan->at - line->text);
	return kind;
}

bool scan_name_ok(const char *name)
{
	const char *at;

	for (at = name; *at; at++) {
		bool starts = at == name || at[-1] == '/';

		if (!scan_is_word(*at) && !strchr("-+./", *at))
			return false;
		if (starts && (*at == '/' || *at == '.'))
			return false;
	}
	return at > name && at[-1] != '/';
}
