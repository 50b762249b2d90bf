/*
 * shared_arrays: `extern __shared__ T name[];` in a user's source, for the cpu device, where
 * dynamic shared memory is a pointer that the executor keeps and no declaration of C++ can say
 * that.  In a function it becomes a pointer; outside, an object that turns into one where it is
 * used.  Reads tokens, not C++: what it does not know stays as it is.
 */
#include "backend.h"

#include <ctype.h>
#include <string.h>

#define DECLARATION_TOKENS 64
#define DEPTH_MOST 256

static struct lex_token next(struct lex *lex)
{
	struct lex_token token;

	do
		token = lex_next(lex);
	while (token.kind == LEX_NEWLINE);
	return token;
}

/* Past ( ... ), if it stands here. */
static void skip_group(struct lex *lex)
{
	struct lex ahead = *lex;
	struct lex_token token = next(&ahead);
	int depth = 0;

	if (!lex_is(&token, "("))
		return;
	do {
		depth += lex_is(&token, "(") - lex_is(&token, ")");
		*lex = ahead;
		token = next(&ahead);
	} while (depth > 0 && token.kind != LEX_END);
}

struct declaration {
	struct lex_token parts[DECLARATION_TOKENS]; /* of the type, and the name last */
	int count;
	bool is_extern, is_shared;
	const char *end;
};

/* Reads a declaration from its first word on.  False: it is something else. */
static bool read_declaration(struct lex lex, struct declaration *out)
{
	struct lex_token token;

	*out = (struct declaration){.count = 0};
	while ((token = next(&lex)).kind != LEX_END && out->count < DECLARATION_TOKENS)
		if (lex_is(&token, "extern"))
			out->is_extern = true;
		else if (lex_is(&token, "__shared__"))
			out->is_shared = true;
		else if (lex_is(&token, "__align__") || lex_is(&token, "alignas") ||
				 lex_is(&token, "__attribute__"))
			skip_group(&lex);
		else if (lex_is(&token, "["))
			break;
		else if (token.kind == LEX_LITERAL || strchr(";{}()=", *token.text))
			return false;
		else
			out->parts[out->count++] = token;
	if (!lex_is(&token, "[") || out->count < 2 || out->parts[out->count - 1].kind != LEX_WORD)
		return false;
	token = next(&lex);
	if (!lex_is(&token, "]"))
		return false;
	token = next(&lex);
	out->end = lex.at;
	return lex_is(&token, ";") && out->is_extern && out->is_shared;
}

static void add_type(const struct declaration *declaration, struct util_text *out)
{
	for (int i = 0; i < declaration->count - 1; i++) {
		util_text_bytes(out, declaration->parts[i].text, declaration->parts[i].bytes);
		util_text_add(out, " ");
	}
}

static void add_declaration(const struct declaration *declaration, const char *begin,
							bool in_function, struct util_text *out)
{
	const struct lex_token *name = &declaration->parts[declaration->count - 1];

	if (!in_function)
		util_text_add(out, "static kiln_cpu::dynamic_shared<");
	add_type(declaration, out);
	util_text_add(out, in_function ? "*" : "> ");
	util_text_bytes(out, name->text, name->bytes);
	if (in_function) {
		util_text_add(out, " = (");
		add_type(declaration, out);
		util_text_add(out, "*)kiln_cpu_self->shared");
	}
	util_text_add(out, ";");
	for (const char *at = begin; at < declaration->end; at++)
		if (*at == '\n')
			util_text_add(out, "\n");
}

/* A mark for each brace of a namespace: all others hold a function, or a class that cannot declare
 * such memory. */
struct scopes {
	bool function[DEPTH_MOST];
	int depth;
	bool namespace_next, extern_last;
};

static void follow(struct scopes *scopes, const struct lex_token *token)
{
	if (lex_is(token, "{")) {
		bool outer =
			scopes->depth > 0 && scopes->depth <= DEPTH_MOST && scopes->function[scopes->depth - 1];
		if (scopes->depth < DEPTH_MOST)
			scopes->function[scopes->depth] = outer || !scopes->namespace_next;
		scopes->depth++;
		scopes->namespace_next = false;
	} else if (lex_is(token, "}") && scopes->depth > 0) {
		scopes->depth--;
	} else if (lex_is(token, "namespace") || (token->kind == LEX_LITERAL && scopes->extern_last)) {
		scopes->namespace_next = true;
	} else if (token->kind == LEX_OTHER && strchr(";(=", *token->text)) {
		scopes->namespace_next = false;
	}
	scopes->extern_last = lex_is(token, "extern");
}

static bool in_function(const struct scopes *scopes)
{
	return scopes->depth > DEPTH_MOST || (scopes->depth > 0 && scopes->function[scopes->depth - 1]);
}

void shared_rewrite(const struct compile_file *file, struct util_text *out)
{
	struct lex lex = {file->text, file->text + file->bytes};
	struct scopes scopes = {.depth = 0};
	const char *copied = file->text;
	struct declaration declaration;

	util_text_bytes(out, "", 0);
	for (;;) {
		struct lex before = lex;
		struct lex_token token = next(&lex);

		if (token.kind == LEX_END)
			break;
		before.at = token.text;
		if ((lex_is(&token, "extern") || lex_is(&token, "__shared__")) &&
			read_declaration(before, &declaration)) {
			util_text_bytes(out, copied, (size_t)(token.text - copied));
			add_declaration(&declaration, token.text, in_function(&scopes), out);
			copied = lex.at = declaration.end;
		} else {
			follow(&scopes, &token);
		}
	}
	util_text_bytes(out, copied, (size_t)(lex.end - copied));
}
