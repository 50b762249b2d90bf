/*
 * includes_text.c: what one text includes, asks for with __has_include, and defines.  It must not
 * know where headers lie.
 */
#include "client/wire/lex.h"
#include "includes_state.h"

#include <string.h>

/* Copies a token, its lines joined; NULL: it is too long to be a name. */
static const char *token_copy(struct includes *found, const struct lex_token *token)
{
	/* The function expects the characters that enclose a name. */
	const struct lex_token enclosed = {token->kind, token->text - 1, token->bytes + 2};
	char name[INCLUDES_NAME];
	return lex_header_text(&enclosed, name, sizeof(name)) ? includes_copy(found, name, strlen(name))
														  : NULL;
}

/* Adds a "name" or <name> that begins here; false: none does. */
static bool add_name(struct includes *found, struct lex *lex, struct include ***end)
{
	struct lex ahead = *lex;
	const struct lex_token token = lex_header_name(&ahead);
	char name[INCLUDES_NAME];
	if (token.kind != LEX_LITERAL || !lex_header_text(&token, name, sizeof(name)) || !name[0])
		return false;
	struct include *include = includes_keep(found, sizeof(*include));
	if (!include)
		return false;
	include->name = includes_copy(found, name, strlen(name));
	include->quoted = *token.text == '"';
	include->begin = token.text + 1;
	include->end = token.text + token.bytes - 1;
	**end = include;
	*end = &include->next;
	*lex = ahead;
	return true;
}

static bool ends_with(const struct lex_token *word, const char *end)
{
	size_t size = strlen(end);
	return word->bytes >= size && memcmp(word->text + word->bytes - size, end, size) == 0;
}

/* Programs call __has_include by macros of like names, too. */
static void read_test(struct includes *found, struct lex *lex, const struct lex_token *word,
					  struct include ***end)
{
	struct lex ahead = *lex;
	if (!lex_is(word, "__has_include") && !ends_with(word, "has_include") &&
		!ends_with(word, "HAS_INCLUDE"))
		return;
	const struct lex_token open = lex_in_line(&ahead);
	if (lex_is(&open, "(") && add_name(found, &ahead, end))
		*lex = ahead;
}

static void add_define(struct includes *found, struct define ***end, const char *name,
					   const char *value)
{
	struct define *define = name ? includes_keep(found, sizeof(*define)) : NULL;
	if (!define)
		return;
	*define = (struct define){NULL, name, value};
	**end = define;
	*end = &define->next;
}

struct text *text_scan(struct includes *found, const char *text, size_t bytes)
{
	struct text *out = includes_keep(found, sizeof(*out));
	struct include *tests = NULL, **tests_end = &tests, **end;
	struct lex lex = {text, text + bytes};
	bool begins = true; /* a line */
	if (!out)
		return NULL;
	struct define **words_end = &out->words;
	out->text = text;
	out->bytes = bytes;
	end = &out->includes;
	for (struct lex_token token; (token = lex_next(&lex)).kind != LEX_END;) {
		if (begins && token.kind == LEX_HASH) {
			token = lex_in_line(&lex);
			if (lex_is(&token, "include") && !add_name(found, &lex, &end)) {
				struct lex_token word = lex_in_line(&lex);
				if (word.kind == LEX_WORD)
					add_define(found, &words_end, token_copy(found, &word), NULL);
			}
		} else if (token.kind == LEX_WORD) {
			read_test(found, &lex, &token, &tests_end);
		}
		begins = token.kind == LEX_NEWLINE;
	}
	*end = tests;
	return out;
}

/* Reads a value that may be a part of a name: "x/y.h", <x/y.h>, or x/y.h without blanks. */
static const char *read_defined(struct includes *found, struct lex *lex)
{
	const struct lex_token name = lex_header_name(lex);
	struct lex_token value = {LEX_OTHER, NULL, 0}, token;
	if (name.kind == LEX_LITERAL) {
		token = lex_in_line(lex);
		value = (struct lex_token){LEX_LITERAL, name.text, name.bytes};
		return token.kind == LEX_NEWLINE || token.kind == LEX_END ? token_copy(found, &value)
																  : NULL;
	}
	while ((token = lex_in_line(lex)).kind == LEX_WORD ||
		   (token.kind == LEX_OTHER && strchr("./+-", *token.text)))
		if (!value.text)
			value = token;
		else if (value.text + value.bytes == token.text)
			value.bytes += token.bytes;
		else
			return NULL;
	return value.text && (token.kind == LEX_NEWLINE || token.kind == LEX_END)
			   ? token_copy(found, &value)
			   : NULL;
}

void text_defines(struct includes *found, struct text *text)
{
	struct lex lex = {text->text, text->text + text->bytes};
	struct define **end = &text->defines;
	bool begins = true;
	if (text->defined)
		return;
	text->defined = true;
	for (struct lex_token token; (token = lex_next(&lex)).kind != LEX_END;) {
		if (begins && token.kind == LEX_HASH) {
			token = lex_in_line(&lex);
			if (lex_is(&token, "define")) {
				struct lex_token name = lex_in_line(&lex);
				struct lex ahead = lex;
				const char *value = name.kind == LEX_WORD ? read_defined(found, &ahead) : NULL;
				if (value)
					add_define(found, &end, token_copy(found, &name), value);
			}
		}
		begins = token.kind == LEX_NEWLINE;
	}
}
