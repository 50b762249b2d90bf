/*
 * lex: the tokens of C++ before its preprocessor has run.  libkiln finds by them the headers that a
 * source includes, and the daemon puts these in place.
 */
#ifndef KILN_WIRE_LEX_H
#define KILN_WIRE_LEX_H

#include <stdbool.h>
#include <stddef.h>

#define LEX_RAW_MARK 16 /* characters between R" and ( */

/* A literal is a string, raw or not, or a character; # may be spelled %: */
enum lex_kind { LEX_END, LEX_NEWLINE, LEX_WORD, LEX_LITERAL, LEX_HASH, LEX_OTHER };

struct lex {
	const char *at, *end;
};

struct lex_token {
	enum lex_kind kind;
	const char *text; /* as it stands in the source: a line may end within a token */
	size_t bytes;
};

/* Returns the next token, behind blanks and comments. */
struct lex_token lex_next(struct lex *lex);
/* Like lex_next(), but stays before a newline. */
struct lex_token lex_in_line(struct lex *lex);
/* Reads the "name" or <name> of an #include, a LEX_LITERAL; LEX_OTHER: none begins here. */
struct lex_token lex_header_name(struct lex *lex);
/* Compares the token, its lines joined, with a text. */
bool lex_is(const struct lex_token *token, const char *text);
/* Copies the name without what encloses it, its lines joined.  False: it is longer, out is "". */
bool lex_header_text(const struct lex_token *name, char *out, size_t size);

#endif
