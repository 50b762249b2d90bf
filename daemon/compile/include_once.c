/*
 * include_once: finds the headers of a user that have an effect only where they are included
 * first: those with #pragma once, and those that lie between #ifndef NAME, #define NAME and
 * #endif.  The #define stands on the next line, and no other text of the job defines NAME: a
 * condition that depends on other files is no guard.
 */
#include "backend.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct guard {
	struct lex_token name;
	int file;
	int changes; /* lines that define the macro; one that undefines it counts as many */
};

struct guards {
	struct guard *all;
	int count;
};

/* The macro that a #ifndef, #define or #undef is about. */
static struct lex_token macro_of(const struct scan_line *line)
{
	struct lex rest = line->rest;

	return lex_in_line(&rest);
}

/* Compilers, the headers of the system and the beginning of the unit may define these. */
static bool is_reserved(const struct lex_token *name)
{
	static const char feature[] = "_SOURCE", ours[] = "KILN_";
	size_t last = sizeof(feature) - 1, first = sizeof(ours) - 1;
	const char *text = name->text;

	if (name->bytes >= first && memcmp(text, ours, first) == 0)
		return true;
	if (name->bytes >= 2 && text[0] == '_' && text[1] == '_')
		return true;
	return name->bytes >= last && text[0] == '_' &&
		   memcmp(text + name->bytes - last, feature, last) == 0;
}

/* Reads on to the next line that is not empty. */
static enum scan_kind next_line(struct scan *scan, struct scan_line *line)
{
	enum scan_kind kind;

	do
		kind = scan_next(scan, line);
	while (kind != SCAN_END && line->is_empty);
	return kind;
}

/* Is all of the file between #ifndef NAME, #define NAME and #endif, without #else? */
static bool find_guard(const struct compile_file *file, struct guard *out)
{
	struct scan scan;
	struct scan_line line;
	struct lex_token again;
	int depth = 1;

	scan_begin(&scan, file);
	next_line(&scan, &line);
	if (!lex_is(&line.word, "ifndef"))
		return false;
	out->name = macro_of(&line);
	if (out->name.kind != LEX_WORD || memchr(out->name.text, '\\', out->name.bytes) ||
		is_reserved(&out->name))
		return false;
	next_line(&scan, &line);
	again = macro_of(&line);
	if (!lex_is(&line.word, "define") || again.bytes != out->name.bytes ||
		memcmp(again.text, out->name.text, again.bytes) != 0)
		return false;
	while (depth > 0) {
		if (next_line(&scan, &line) == SCAN_END || (depth == 1 && line.is_else))
			return false;
		depth += line.nesting;
	}
	return next_line(&scan, &line) == SCAN_END;
}

static int by_name(const void *a, const void *b)
{
	const struct lex_token *one = &((const struct guard *)a)->name,
						   *other = &((const struct guard *)b)->name;
	size_t bytes = one->bytes < other->bytes ? one->bytes : other->bytes;
	int order = memcmp(one->text, other->text, bytes);

	return order ? order : (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

static void count_change(const struct guards *guards, const char *name, size_t bytes, int weight)
{
	const struct guard key = {.name = {LEX_WORD, name, bytes}};
	struct guard *guard = bsearch(&key, guards->all, (size_t)guards->count, sizeof(key), by_name);

	if (guard)
		guard->changes += weight;
}

/* A pragma may stand in a macro, and its text in a literal: all words behind pop_macro count. */
static void count_popped(const struct guards *guards, const struct scan_line *line)
{
	static const char pop[] = "pop_macro";
	const char *end = line->text + line->bytes;
	const char *at = memmem(line->text, line->bytes, pop, strlen(pop));

	for (; at && at < end; at++) {
		const char *begin = at;
		while (at < end && (*at == '_' || isalnum((unsigned char)*at)))
			at++;
		count_change(guards, begin, (size_t)(at - begin), 2);
	}
}

/* Counts the lines of a text that change a guard. */
static void count_changes(const struct guards *guards, const struct compile_file *file)
{
	bool pops = memmem(file->text, file->bytes, "pop_macro", strlen("pop_macro")) != NULL;
	struct scan scan;
	struct scan_line line;

	scan_begin(&scan, file);
	while (scan_next(&scan, &line) != SCAN_END) {
		int weight = lex_is(&line.word, "define") ? 1 : lex_is(&line.word, "undef") ? 2 : 0;
		struct lex_token name = macro_of(&line);
		if (pops)
			count_popped(guards, &line);
		if (!weight)
			continue;
		count_change(guards, name.text, name.bytes, weight);
		/* A name on two lines may be that of any. */
		for (int i = 0; i < guards->count && memchr(name.text, '\\', name.bytes); i++)
			guards->all[i].changes += weight;
	}
}

static bool has_pragma(const struct compile_file *file)
{
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;

	scan_begin(&scan, file);
	while ((kind = scan_next(&scan, &line)) != SCAN_END)
		if (kind == SCAN_ONCE)
			return true;
	return false;
}

/* Two headers with one guard are one another's: neither is sure to have an effect. */
static bool is_sure(const struct guards *guards, int i)
{
	const struct guard *guard = &guards->all[i];

	return guard->changes == 1 && (i == 0 || by_name(guard - 1, guard) != 0) &&
		   (i + 1 == guards->count || by_name(guard, guard + 1) != 0);
}

void once_find(const struct compile_job *job, const struct compile_file *files, int count,
			   enum once *out)
{
	struct guards guards = {.all = calloc((size_t)count, sizeof(*guards.all))};
	int ours = job->file_count - job->user_files;

	for (int i = 1; i < count; i++) {
		struct guard *guard = guards.all ? &guards.all[guards.count] : NULL;
		out[i] = has_pragma(&files[i]) ? ONCE_PRAGMA : ONCE_NOT;
		if (guard && out[i] == ONCE_NOT && find_guard(&files[i], guard)) {
			guard->file = i;
			guards.count++;
		}
	}
	if (guards.count > 0) {
		qsort(guards.all, (size_t)guards.count, sizeof(*guards.all), by_name);
		for (int i = 0; i < ours + count; i++)
			count_changes(&guards, i < ours ? &job->files[i] : &files[i - ours]);
		for (int i = 0; i < job->macro_count; i++)
			count_change(&guards, job->macros[i].name, strcspn(job->macros[i].name, "("), 1);
	}
	for (int i = 0; i < guards.count; i++)
		if (is_sure(&guards, i))
			out[guards.all[i].file] = ONCE_GUARD;
	free(guards.all);
}
