/*
 * includes_macro.c: what an #include by a macro may name.  It must not know what is included
 * otherwise.
 */
#include "includes_state.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 32
#define STEPS_MOST 100000 /* of all includes by macros: macros of macros may grow without end */

struct macro {
	const char *name;
	struct define *values, **end;
};

/* The words that are being replaced: a macro does not replace itself. */
struct within {
	const struct within *outer;
	const char *word;
	int depth;
};

static int by_macro(const void *a, const void *b)
{
	return strcmp(((const struct macro *)a)->name, ((const struct macro *)b)->name);
}

static void learn(struct includes *found, const char *name, const char *value)
{
	const struct macro key = {.name = name};
	struct macro **at = tfind(&key, &found->macros, by_macro);
	struct macro *macro = at ? *at : includes_keep(found, sizeof(*macro));
	if (macro && !at) {
		macro->name = name;
		macro->end = &macro->values;
		if (!tsearch(macro, &found->macros, by_macro))
			return;
	}
	for (struct define *known = macro ? macro->values : NULL; known; known = known->next)
		if (strcmp(known->value, value) == 0)
			return;
	struct define *define = macro ? includes_keep(found, sizeof(*define)) : NULL;
	if (define) {
		*define = (struct define){NULL, name, value};
		*macro->end = define;
		macro->end = &define->next;
	}
}

static void learn_text(struct includes *found, struct text *text)
{
	text_defines(found, text);
	for (const struct define *define = text->defines; define; define = define->next)
		learn(found, define->name, define->value);
}

void macro_learn(struct includes *found)
{
	for (int i = 0; i < found->raw.macro_count; i++) {
		const kiln_text *macro = &found->raw.macros[i];
		if (macro->name)
			learn(found, macro->name, macro->text ? macro->text : "1");
	}
	learn_text(found, found->main.text);
	for (struct header *header = found->headers; header; header = header->next)
		learn_text(found, header->text);
}

static void leave(void *macro)
{
	(void)macro;
}

void macro_forget(struct includes *found)
{
	tdestroy(found->macros, leave);
	found->macros = NULL;
}

static bool begins_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static const char *glue(struct includes *found, const char *a, const char *b, size_t bytes)
{
	size_t first = strlen(a);
	char *both = includes_keep(found, first + bytes + 1);
	if (both) {
		memcpy(both, a, first);
		memcpy(both + first, b, bytes);
	}
	return both ? both : "";
}

static int replace(struct includes *found, const char *word, const struct within *within,
				   const char **out);

/* Puts all that the words of one value may become into out. */
static int replace_in(struct includes *found, const char *value, const struct within *within,
					  const char **out)
{
	const char *ends[INCLUDES_VALUES], *pieces[INCLUDES_VALUES];
	int count = 1;
	out[0] = "";
	for (const char *at = value; *at;) {
		const char *begin = at;
		bool word = begins_word(*at);
		int more = 1, made = 0;
		if (word)
			at += strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
		else
			while (*at && !begins_word(*at))
				at++;
		ends[0] = includes_copy(found, begin, (size_t)(at - begin));
		if (word && ends[0])
			more = replace(found, ends[0], within, ends);
		if (!ends[0])
			return 0;
		for (int i = 0; i < count; i++)
			for (int k = 0; k < more && made < INCLUDES_VALUES && found->steps++ < STEPS_MOST; k++)
				pieces[made++] = glue(found, out[i], ends[k], strlen(ends[k]));
		memcpy(out, pieces, (size_t)made * sizeof(*pieces));
		count = made;
	}
	return count;
}

/* out[0] may be the word itself. */
static int replace(struct includes *found, const char *word, const struct within *within,
				   const char **out)
{
	const struct macro key = {.name = word};
	struct macro **at = tfind(&key, &found->macros, by_macro);
	const struct within inner = {within, word, within ? within->depth + 1 : 0};
	const char *values[INCLUDES_VALUES];
	bool open = inner.depth >= DEPTH_MOST || found->steps >= STEPS_MOST;
	int count = 0;
	for (const struct within *outer = within; outer; outer = outer->outer)
		open = open || strcmp(outer->word, word) == 0;
	if (open || !at) {
		out[0] = word;
		return 1;
	}
	for (const struct define *define = (*at)->values; define; define = define->next) {
		int more = replace_in(found, define->value, &inner, values);
		for (int i = 0; i < more && count < INCLUDES_VALUES; i++)
			out[count++] = values[i];
	}
	return count;
}

int macro_values(struct includes *found, const char *word, const char *values[INCLUDES_VALUES])
{
	return replace(found, word, NULL, values);
}
