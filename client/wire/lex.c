/*
 * lex: the tokens of C++ before its preprocessor has run.  Comments are blanks, a backslash at the
 * end of a line joins it with the next one, and neither counts inside a raw string.  Knows no
 * directive.
 */
#include "lex.h"

#include <string.h>

/* Letters of any language are UTF-8's bytes from 128 on. */
static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
		   (unsigned char)c >= 128;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Past the ends of joined lines. */
static const char *skip_splices(const char *at, const char *end)
{
	while (at < end && *at == '\\') {
		const char *next = at + 1;
		while (next < end && is_blank(*next))
			next++;
		if (next == end || *next != '\n')
			return at;
		at = next + 1;
	}
	return at;
}

/* The character behind at[0], where it stands; end: there is none. */
static const char *next_of(const char *at, const char *end)
{
	return at + 1 < end ? skip_splices(at + 1, end) : end;
}

static bool has(const char *at, const char *end, char c)
{
	return at < end && *at == c;
}

/* Past the comment whose second character stands at at: a line's goes up to its newline. */
static const char *skip_comment(const char *at, const char *end)
{
	bool line = *at == '/';

	while ((at = next_of(at, end)) < end)
		if (line && *at == '\n')
			return at;
		else if (!line && *at == '*' && has(next_of(at, end), end, '/'))
			return next_of(at, end) + 1;
	return end;
}

/* Past the quote that ends the literal, or up to the newline that cuts it off. */
static const char *skip_quoted(const char *at, const char *end, char quote)
{
	while ((at = skip_splices(at, end)) < end && *at != '\n') {
		char c = *at++;

		if (c == quote)
			return at;
		if (c == '\\' && (at = skip_splices(at, end)) < end && *at != '\n')
			at++;
	}
	return at < end ? at : end;
}

/* Past R"x( ... )x", of which at is behind the first quote; NULL: it is no raw string. */
static const char *skip_raw(const char *at, const char *end)
{
	char closing[LEX_RAW_MARK + 3] = ")";
	size_t size = 0;

	while (at + size < end && size <= LEX_RAW_MARK && at[size] != '(')
		size++;
	if (at + size >= end || size > LEX_RAW_MARK || memchr(at, '\n', size))
		return NULL;
	for (size_t i = 0; i < size; i++)
		if (is_blank(at[i]) || at[i] == ')' || at[i] == '\\' || at[i] == '"')
			return NULL;
	memcpy(closing + 1, at, size);
	closing[1 + size] = '"';
	at = memmem(at + size, (size_t)(end - at) - size, closing, size + 2);
	return at ? at + size + 2 : end;
}

/* Past a name; past a number with the quotes between its digits. */
static const char *skip_word(const char *at, const char *end)
{
	bool number = is_digit(*at);

	for (;;) {
		const char *next = next_of(at, end);

		if (number && has(next, end, '\'') && next_of(next, end) < end &&
			is_word(*next_of(next, end)))
			next = next_of(next, end);
		if (next >= end || !is_word(*next))
			return at + 1;
		at = next;
	}
}

static bool is_raw_prefix(const struct lex_token *word)
{
	static const char *const prefixes[] = {"R", "LR", "uR", "UR", "u8R"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (lex_is(word, prefixes[i]))
			return true;
	return false;
}

/* Past blanks, splices and comments. */
static const char *skip_gaps(const char *at, const char *end)
{
	while ((at = skip_splices(at, end)) < end) {
		const char *next = *at == '/' ? next_of(at, end) : end;

		if (is_blank(*at))
			at++;
		else if (has(next, end, '/') || has(next, end, '*'))
			at = skip_comment(next, end);
		else
			break;
	}
	return at < end ? at : end;
}

struct lex_token lex_next(struct lex *lex)
{
	const char *at = skip_gaps(lex->at, lex->end), *end = lex->end, *next, *raw;
	struct lex_token token = {LEX_END, at, 0};

	if (at == end) {
		lex->at = end;
		return token;
	}
	if (*at == '\n') {
		token.kind = LEX_NEWLINE;
		at++;
	} else if (*at == '"' || *at == '\'') {
		token.kind = LEX_LITERAL;
		at = skip_quoted(at + 1, end, *at);
	} else if (is_word(*at)) {
		token.kind = LEX_WORD;
		at = skip_word(at, end);
		token.bytes = (size_t)(at - token.text);
		next = skip_splices(at, end);
		if (has(next, end, '"') && is_raw_prefix(&token) && (raw = skip_raw(next + 1, end))) {
			token.kind = LEX_LITERAL;
			at = raw;
		}
	} else {
		next = *at == '%' ? next_of(at, end) : end;
		token.kind = *at == '#' || has(next, end, ':') ? LEX_HASH : LEX_OTHER;
		at = token.kind == LEX_HASH && *at == '%' ? next + 1 : at + 1;
	}
	token.bytes = (size_t)(at - token.text);
	lex->at = at;
	return token;
}

struct lex_token lex_in_line(struct lex *lex)
{
	struct lex ahead = *lex;
	struct lex_token token = lex_next(&ahead);

	if (token.kind != LEX_NEWLINE)
		*lex = ahead;
	return token;
}

bool lex_is(const struct lex_token *token, const char *text)
{
	const char *at = token->text, *end = at + token->bytes;

	while ((at = skip_splices(at, end)) < end && *text && *at == *text)
		at++, text++;
	return at == end && !*text;
}

struct lex_token lex_header_name(struct lex *lex)
{
	const char *begin = skip_gaps(lex->at, lex->end), *at = begin;
	struct lex_token name = {LEX_OTHER, begin, 0};
	char close = has(at, lex->end, '<') ? '>' : '"';

	lex->at = begin;
	if (at == lex->end || (*at != '<' && *at != '"'))
		return name;
	while ((at = next_of(at, lex->end)) < lex->end && *at != close && *at != '\n')
		continue;
	if (!has(at, lex->end, close))
		return name;
	name = (struct lex_token){LEX_LITERAL, begin, (size_t)(at + 1 - begin)};
	lex->at = at + 1;
	return name;
}

bool lex_header_text(const struct lex_token *name, char *out, size_t size)
{
	const char *at = name->text + 1, *end = name->text + name->bytes - 1;
	size_t used = 0;

	for (; (at = skip_splices(at, end)) < end && used < size; at++)
		out[used++] = *at;
	if (used == size)
		used = 0;
	out[used] = 0;
	return at == end;
}
