/*
 * shared: `extern __shared__ T name[];` in a user's source, for the cpu device, where dynamic
 * shared memory is a pointer that the executor keeps and no declaration of C++ can say that.  In a
 * function it becomes a pointer; outside, an object that turns into one where it is used.  Reads
 * tokens, not C++: what it does not know stays as it is.
 */
#include "backend.h"

#include <ctype.h>
#include <string.h>

#define DECLARATION_TOKENS 64
#define DEPTH_MOST 256

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_LITERAL, TOKEN_OTHER };

struct token {
	enum token_kind kind;
	const char *text;
	size_t bytes;
};

struct reader {
	const char *at, *end;
};

static bool is_word_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool starts(const struct reader *reader, const char *text)
{
	size_t bytes = strlen(text);

	return (size_t)(reader->end - reader->at) >= bytes && memcmp(reader->at, text, bytes) == 0;
}

static void skip_to(struct reader *reader, const char *text)
{
	const char *found = memmem(reader->at, (size_t)(reader->end - reader->at), text, strlen(text));

	reader->at = found ? found + strlen(text) : reader->end;
}

static void skip_blank(struct reader *reader)
{
	while (reader->at < reader->end)
		if (isspace((unsigned char)*reader->at))
			reader->at++;
		else if (starts(reader, "//"))
			skip_to(reader, "\n");
		else if (starts(reader, "/*"))
			skip_to(reader, "*/");
		else
			return;
}

/* R"x( ... )x" */
static void skip_raw_string(struct reader *reader)
{
	char closing[20] = ")";
	size_t size = 0;

	reader->at += 2;
	while (reader->at + size < reader->end && reader->at[size] != '(' && size < 16)
		size++;
	memcpy(closing + 1, reader->at, size);
	closing[1 + size] = '"';
	closing[2 + size] = 0;
	skip_to(reader, closing);
}

static void skip_quoted(struct reader *reader)
{
	char quote = *reader->at++;

	while (reader->at < reader->end && *reader->at != quote && *reader->at != '\n')
		reader->at += *reader->at == '\\' && reader->at + 1 < reader->end ? 2 : 1;
	if (reader->at < reader->end)
		reader->at++;
}

static struct token next(struct reader *reader)
{
	struct token token = {TOKEN_END, NULL, 0};

	skip_blank(reader);
	token.text = reader->at;
	if (reader->at == reader->end)
		return token;
	if (starts(reader, "R\"")) {
		token.kind = TOKEN_LITERAL;
		skip_raw_string(reader);
	} else if (*reader->at == '"' || *reader->at == '\'') {
		token.kind = TOKEN_LITERAL;
		skip_quoted(reader);
	} else if (is_word_char(*reader->at)) {
		token.kind = TOKEN_WORD;
		/* Numbers, too, with the quotes between their digits. */
		while (reader->at < reader->end &&
			   (is_word_char(*reader->at) ||
				(*reader->at == '\'' && isdigit((unsigned char)*token.text) &&
				 reader->at + 1 < reader->end && is_word_char(reader->at[1]))))
			reader->at++;
	} else {
		token.kind = TOKEN_OTHER;
		reader->at++;
	}
	token.bytes = (size_t)(reader->at - token.text);
	return token;
}

static bool is(const struct token *token, const char *text)
{
	return token->bytes == strlen(text) && memcmp(token->text, text, token->bytes) == 0;
}

/* Past ( ... ), if it stands here. */
static void skip_group(struct reader *reader)
{
	struct reader ahead = *reader;
	struct token token = next(&ahead);
	int depth = 0;

	if (!is(&token, "("))
		return;
	do {
		depth += is(&token, "(") - is(&token, ")");
		*reader = ahead;
		token = next(&ahead);
	} while (depth > 0 && token.kind != TOKEN_END);
}

struct declaration {
	struct token parts[DECLARATION_TOKENS]; /* of the type, and the name last */
	int count;
	bool is_extern, is_shared;
	const char *end;
};

/* Reads a declaration from its first word on.  False: it is something else. */
static bool read_declaration(struct reader reader, struct declaration *out)
{
	struct token token;

	*out = (struct declaration){.count = 0};
	while ((token = next(&reader)).kind != TOKEN_END && out->count < DECLARATION_TOKENS)
		if (is(&token, "extern"))
			out->is_extern = true;
		else if (is(&token, "__shared__"))
			out->is_shared = true;
		else if (is(&token, "__align__") || is(&token, "alignas") || is(&token, "__attribute__"))
			skip_group(&reader);
		else if (is(&token, "["))
			break;
		else if (token.kind == TOKEN_LITERAL || strchr(";{}()=", *token.text))
			return false;
		else
			out->parts[out->count++] = token;
	if (!is(&token, "[") || out->count < 2 || out->parts[out->count - 1].kind != TOKEN_WORD)
		return false;
	token = next(&reader);
	if (!is(&token, "]"))
		return false;
	token = next(&reader);
	out->end = reader.at;
	return is(&token, ";") && out->is_extern && out->is_shared;
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
	const struct token *name = &declaration->parts[declaration->count - 1];

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

static void follow(struct scopes *scopes, const struct token *token)
{
	if (is(token, "{")) {
		bool outer =
			scopes->depth > 0 && scopes->depth <= DEPTH_MOST && scopes->function[scopes->depth - 1];
		if (scopes->depth < DEPTH_MOST)
			scopes->function[scopes->depth] = outer || !scopes->namespace_next;
		scopes->depth++;
		scopes->namespace_next = false;
	} else if (is(token, "}") && scopes->depth > 0) {
		scopes->depth--;
	} else if (is(token, "namespace") || (token->kind == TOKEN_LITERAL && scopes->extern_last)) {
		scopes->namespace_next = true;
	} else if (token->kind == TOKEN_OTHER && strchr(";(=", *token->text)) {
		scopes->namespace_next = false;
	}
	scopes->extern_last = is(token, "extern");
}

static bool in_function(const struct scopes *scopes)
{
	return scopes->depth > DEPTH_MOST || (scopes->depth > 0 && scopes->function[scopes->depth - 1]);
}

void shared_rewrite(const struct compile_file *file, struct util_text *out)
{
	struct reader reader = {file->text, file->text + file->bytes};
	struct scopes scopes = {.depth = 0};
	const char *copied = file->text;
	struct declaration declaration;

	util_text_bytes(out, "", 0);
	for (;;) {
		struct reader before = reader;
		struct token token = next(&reader);

		if (token.kind == TOKEN_END)
			break;
		before.at = token.text;
		if ((is(&token, "extern") || is(&token, "__shared__")) &&
			read_declaration(before, &declaration)) {
			util_text_bytes(out, copied, (size_t)(token.text - copied));
			add_declaration(&declaration, token.text, in_function(&scopes), out);
			copied = reader.at = declaration.end;
		} else {
			follow(&scopes, &token);
		}
	}
	util_text_bytes(out, copied, (size_t)(reader.end - copied));
}
