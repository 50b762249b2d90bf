/*
 * key_diff: what two keys differ in, in words, from the texts that were hashed.  The counterpart of
 * key.c, and the only other file that knows their lines; template_diff.c takes template-ids apart.
 */
#include "key_diff.h"

#include <stdlib.h>
#include <string.h>

#define LINES_MAX 512

struct line {
	struct span name, value;
};

/* A key's text as lines, and the words of all its options. */
struct keyed {
	struct line lines[LINES_MAX];
	struct span options[LINES_MAX];
	int count, option_count;
	struct span source; /* its name */
};

void difference_add(struct compile_differences *out, const char *what, int weight,
					const char *format, ...)
{
	va_list list;
	out->distance += weight;
	if (out->count == COMPILE_DIFFERENCES) {
		out->left_out++;
		return;
	}
	struct compile_difference *item = &out->items[out->count++];
	item->what = what;
	va_start(list, format);
	vsnprintf(item->text, sizeof(item->text), format, list);
	va_end(list);
}

bool span_is(struct span a, struct span b)
{
	return a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0;
}

static bool named(const struct line *line, const char *name)
{
	return span_is(line->name, (struct span){name, strlen(name)});
}

/* The part before the first end, which is left behind it. */
static struct span cut_line(struct span *rest, char end)
{
	const char *at = memchr(rest->at, end, rest->bytes);
	struct span part = {rest->at, at ? (size_t)(at - rest->at) : rest->bytes};
	size_t used = part.bytes + (at != NULL);
	rest->at += used;
	rest->bytes -= used;
	return part;
}

static void read_key(const char *text, struct keyed *key)
{
	struct span rest = {text, strlen(text)}, words;

	key->count = key->option_count = 0;
	key->source = (struct span){"", 0};
	while (rest.bytes && key->count < LINES_MAX) {
		struct line *line = &key->lines[key->count++];
		line->value = cut_line(&rest, '\n');
		line->name = cut_line(&line->value, ' ');
		if (named(line, "options") || named(line, "option"))
			for (words = line->value; words.bytes && key->option_count < LINES_MAX;)
				key->options[key->option_count++] = cut_line(&words, ' ');
		if (named(line, "source"))
			key->source = line->value;
	}
}

/* The value of the first line of a name; empty where there is none. */
static struct span value_of(const struct keyed *key, const char *name)
{
	for (int i = 0; i < key->count; i++)
		if (named(&key->lines[i], name))
			return key->lines[i].value;
	return (struct span){"", 0};
}

/* ---- Single values ---- */

static void compare_value(const struct keyed *asked, const struct keyed *other, const char *name,
						  const char *words, int weight, struct compile_differences *out)
{
	struct span a = value_of(asked, name), b = value_of(other, name);
	if (!span_is(a, b))
		difference_add(out, words, weight, "%s %.*s instead of %.*s", words, SPAN(a), SPAN(b));
}

/* A compiler's id with its hash cut short. */
static void shorten(struct span id, char *text, size_t size)
{
	size_t used = 0;
	text[0] = 0;
	while (id.bytes) {
		struct span word = cut_line(&id, ' ');
		bool hash = word.bytes >= 32;
		used = util_append(text, size, used, "%s%.*s", used ? " " : "",
						   (int)(hash ? 12 : word.bytes), word.at);
	}
}

/* ---- Options ---- */

/* -std=c++17 and -std=c++20 are one option with two values. */
static bool same_option(struct span a, struct span b)
{
	const char *end = memchr(a.at, '=', a.bytes);
	size_t bytes = end ? (size_t)(end - a.at) + 1 : a.bytes;
	return end ? b.bytes >= bytes && memcmp(a.at, b.at, bytes) == 0 : span_is(a, b);
}

static bool has_option(const struct keyed *key, struct span option)
{
	for (int i = 0; i < key->option_count; i++)
		if (span_is(key->options[i], option))
			return true;
	return false;
}

static const struct span *other_value(const struct keyed *key, const struct keyed *without,
									  struct span option)
{
	for (int i = 0; i < key->option_count; i++)
		if (same_option(option, key->options[i]) && !has_option(without, key->options[i]))
			return &key->options[i];
	return NULL;
}

static void compare_options(const struct keyed *asked, const struct keyed *other,
							struct compile_differences *out)
{
	for (int i = 0; i < asked->option_count; i++) {
		struct span option = asked->options[i];
		const struct span *value = other_value(other, asked, option);
		if (has_option(other, option))
			continue;
		if (value)
			difference_add(out, "option", 1, "option %.*s instead of %.*s", SPAN(option),
						   SPAN(*value));
		else
			difference_add(out, "option", 1, "option %.*s added", SPAN(option));
	}
	for (int i = 0; i < other->option_count; i++) {
		struct span option = other->options[i];
		if (!has_option(asked, option) && !other_value(asked, other, option))
			difference_add(out, "option", 1, "option %.*s left out", SPAN(option));
	}
}

/* ---- Macros: a line with the name, and one with the value ---- */

/* Returns the value of the first macro of this name, with this value if one is asked for: names may
 * come more than once. */
static const struct span *macro_value(const struct keyed *key, struct span name,
									  const struct span *wanted)
{
	for (int i = 0; i + 1 < key->count; i++)
		if (named(&key->lines[i], "macro") && span_is(key->lines[i].value, name) &&
			(!wanted || span_is(key->lines[i + 1].value, *wanted)))
			return &key->lines[i + 1].value;
	return NULL;
}

static void compare_macros(const struct keyed *asked, const struct keyed *other,
						   struct compile_differences *out)
{
	for (int i = 0; i + 1 < asked->count; i++) {
		if (!named(&asked->lines[i], "macro"))
			continue;
		struct span name = asked->lines[i].value, value = asked->lines[i + 1].value;
		const struct span *then = macro_value(other, name, NULL);
		if (macro_value(other, name, &value))
			continue;
		if (!then)
			difference_add(out, "macro", 1, "macro %.*s=%.*s added", SPAN(name), SPAN(value));
		else
			difference_add(out, "macro", 1, "macro %.*s=%.*s instead of %.*s", SPAN(name),
						   SPAN(value), SPAN(*then));
	}
	for (int i = 0; i + 1 < other->count; i++)
		if (named(&other->lines[i], "macro") && !macro_value(asked, other->lines[i].value, NULL))
			difference_add(out, "macro", 1, "macro %.*s left out", SPAN(other->lines[i].value));
}

/* ---- Files: "file HASH NAME" ---- */

static struct span file_name(const struct line *line, struct span *hash)
{
	struct span rest = line->value;
	*hash = cut_line(&rest, ' ');
	return rest;
}

/* A source and a header may have the same name. */
static bool has_file(const struct keyed *key, const struct line *line)
{
	for (int i = 0; i < key->count; i++)
		if (named(&key->lines[i], "file") && span_is(key->lines[i].value, line->value))
			return true;
	return false;
}

/* False: there is none of that name. */
static bool file_hash(const struct keyed *key, struct span name, struct span *hash)
{
	for (int i = 0; i < key->count; i++)
		if (named(&key->lines[i], "file") && span_is(file_name(&key->lines[i], hash), name))
			return true;
	return false;
}

static const char *file_kind(const struct keyed *key, struct span name)
{
	if (span_is(name, key->source))
		return "source";
	return span_is(name, (struct span){COMPILE_GENERATED, sizeof(COMPILE_GENERATED) - 1})
			   ? "generated code"
			   : "header";
}

static void compare_files(const struct keyed *asked, const struct keyed *other, bool targets_fit,
						  struct compile_differences *out)
{
	/* Another source is said already, and for target cpu what stands for the device is added. */
	bool only_changed = !targets_fit || !span_is(asked->source, other->source);
	struct span hash, then;
	for (int i = 0; i < asked->count; i++) {
		if (!named(&asked->lines[i], "file") || has_file(other, &asked->lines[i]))
			continue;
		struct span name = file_name(&asked->lines[i], &hash);
		const char *kind = file_kind(asked, name);
		bool there = file_hash(other, name, &then);
		if (there)
			difference_add(out, kind, 1, "%s %.*s changed", kind, SPAN(name));
		else if (!there && !only_changed)
			difference_add(out, kind, 1, "%s %.*s added", kind, SPAN(name));
	}
	for (int i = 0; i < other->count && !only_changed; i++) {
		if (!named(&other->lines[i], "file"))
			continue;
		struct span name = file_name(&other->lines[i], &hash);
		if (!file_hash(asked, name, &then))
			difference_add(out, "header", 1, "header %.*s left out", SPAN(name));
	}
}

void compile_key_differences(const char *asked, const char *other, const struct compile_file *files,
							 int file_count, struct compile_differences *out)
{
	struct keyed *keys = calloc(2, sizeof(*keys));
	struct keyed *a = keys, *b = keys + 1;
	char now[96], then[96];

	*out = (struct compile_differences){.count = 0};
	if (!keys)
		return;
	read_key(asked, a);
	read_key(other, b);
	bool targets_fit = span_is(value_of(a, "target"), value_of(b, "target")) ||
					   (!span_is(value_of(a, "target"), (struct span){"cpu", 3}) &&
						!span_is(value_of(b, "target"), (struct span){"cpu", 3}));
	compare_value(a, b, "kiln-key", "key schema", 1, out);
	compare_value(a, b, "target", "target", 2, out);
	/* Another target may have another compiler with options of its own. */
	if (targets_fit) {
		struct span compiler = value_of(a, "toolchain"), before = value_of(b, "toolchain");
		shorten(compiler, now, sizeof(now));
		shorten(before, then, sizeof(then));
		if (!span_is(compiler, before))
			difference_add(out, "compiler", 1, "compiler changed: %s instead of %s", now, then);
		compare_options(a, b, out);
	}
	compare_value(a, b, "source", "source", 20, out);
	template_differences(value_of(a, "instantiation"), value_of(b, "instantiation"), files,
						 file_count, out);
	compare_macros(a, b, out);
	compare_files(a, b, targets_fit, out);
	if (out->count == 0 && strcmp(asked, other) != 0)
		difference_add(out, "order", 1,
					   a->count < LINES_MAX ? "options, macros or headers in another order"
											: "one of many headers changed");
	free(keys);
}
