/*
 * once: finds the headers of a user that have an effect only where they are included first: those
 * with #pragma once, and those that lie between #ifndef NAME, #define NAME and #endif.  The #define
 * stands on the next line, and no other text of the job defines NAME: a condition that depends on
 * other files is no guard.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

struct guard {
	const char *name;
	size_t bytes;
	int file;
	int changes; /* lines that define the macro; one that undefines it counts as many */
};

struct guards {
	struct guard *all;
	int count;
};

/* Past white space and comments. */
static const char *skip_gaps(const char *at, const char *end)
{
	for (;;) {
		while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r')))
			at++;
		if (end - at < 2 || at[0] != '/' || (at[1] != '/' && at[1] != '*'))
			return at;
		const char *close = at[1] == '/' ? memchr(at, '\n', (size_t)(end - at))
										 : memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
		at = !close ? end : close + (at[1] == '/' ? 1 : 2);
	}
}

/* The next word of a directive; its bytes, 0: there is none. */
static size_t next_word(const char *at, const char *end, const char **word)
{
	size_t bytes = 0;

	*word = at = scan_skip_blanks(at, end);
	while (at + bytes < end && scan_is_word(at[bytes]))
		bytes++;
	return bytes;
}

/* Does the conditional that the file begins with go on to its end, without #else? */
static bool is_enclosed(const struct compile_file *file)
{
	const char *end = file->text + file->bytes;
	struct scan scan;
	struct scan_line line;
	int depth = 0;

	scan_begin(&scan, file);
	while (scan_next(&scan, &line) != SCAN_END) {
		depth += line.nesting;
		if (depth == 1 && line.is_else)
			return false;
		if (depth == 0 && line.nesting < 0)
			return !scan.in_comment && skip_gaps(scan.at, end) == end;
	}
	return false;
}

/* Past `#directive` and blanks, if a directive of that name stands here; else NULL. */
static const char *skip_directive(const char *at, const char *end, const char *directive)
{
	const char *word;

	if (at == end || *at != '#')
		return NULL;
	size_t bytes = next_word(at + 1, end, &word);
	if (bytes != strlen(directive) || memcmp(word, directive, bytes) != 0)
		return NULL;
	return scan_skip_blanks(word + bytes, end);
}

/* Does at begin a line that does not continue the line above? */
static bool begins_line(const char *begin, const char *at)
{
	while (at > begin && (at[-1] == ' ' || at[-1] == '\t'))
		at--;
	if (at - begin < 2 || at[-1] != '\n')
		return false;
	return at[-2] != '\\' && (at[-2] != '\r' || at - begin < 3 || at[-3] != '\\');
}

/* Compilers, the headers of the system and the beginning of the unit may define these. */
static bool is_reserved(const char *name, size_t bytes)
{
	static const char feature[] = "_SOURCE", ours[] = "KILN_";
	size_t last = sizeof(feature) - 1, first = sizeof(ours) - 1;

	if (bytes >= first && memcmp(name, ours, first) == 0)
		return true;
	if (bytes >= 2 && name[0] == '_' && name[1] == '_')
		return true;
	return bytes >= last && name[0] == '_' && memcmp(name + bytes - last, feature, last) == 0;
}

static bool find_guard(const struct compile_file *file, struct guard *out)
{
	const char *end = file->text + file->bytes, *word;
	const char *at = skip_directive(skip_gaps(file->text, end), end, "ifndef");

	if (!at)
		return false;
	out->bytes = next_word(at, end, &out->name);
	if (!out->bytes || is_reserved(out->name, out->bytes))
		return false;
	at = skip_gaps(out->name + out->bytes, end);
	if (!begins_line(file->text, at) || !(at = skip_directive(at, end, "define")))
		return false;
	return next_word(at, end, &word) == out->bytes && memcmp(word, out->name, out->bytes) == 0 &&
		   is_enclosed(file);
}

static int by_name(const void *a, const void *b)
{
	const struct guard *one = a, *other = b;
	size_t bytes = one->bytes < other->bytes ? one->bytes : other->bytes;
	int order = memcmp(one->name, other->name, bytes);

	return order ? order : (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

/* Counts the lines of a text that may change a guard, comments included.  Blanks, quotes and line
 * ends may stand before the name. */
static void count_changes(const struct guards *guards, const struct compile_file *file,
						  const char *directive, int weight)
{
	const char *at = file->text, *end = file->text + file->bytes;
	size_t bytes = strlen(directive);

	while (at < end && (at = memmem(at, (size_t)(end - at), directive, bytes))) {
		struct guard key;
		for (at += bytes; at < end && !scan_is_word(*at);)
			at++;
		key.bytes = next_word(at, end, &key.name);
		struct guard *guard =
			bsearch(&key, guards->all, (size_t)guards->count, sizeof(key), by_name);
		if (key.bytes && guard)
			guard->changes += weight;
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
		for (int i = 0; i < ours + count; i++) {
			const struct compile_file *file = i < ours ? &job->files[i] : &files[i - ours];
			count_changes(&guards, file, "define", 1);
			count_changes(&guards, file, "undef", 2);
			count_changes(&guards, file, "pop_macro", 2);
		}
		for (int i = 0; i < job->macro_count; i++) {
			const struct guard key = {job->macros[i].name, strcspn(job->macros[i].name, "("), 0, 0};
			struct guard *guard =
				bsearch(&key, guards.all, (size_t)guards.count, sizeof(key), by_name);
			if (guard)
				guard->changes++;
		}
	}
	for (int i = 0; i < guards.count; i++)
		if (is_sure(&guards, i))
			out[guards.all[i].file] = ONCE_GUARD;
	free(guards.all);
}
