/*
 * template_diff: what two template-ids differ in, argument by argument.  A parameter's name is
 * looked up where the template is written; no more C++ is understood than that takes.
 */
#include "key_diff.h"

#include <ctype.h>
#include <string.h>

#define ARGUMENTS_MAX 64
#define HEAD_MAX 600 /* bytes between a template's parameters and its name */

struct template_id {
	struct span name;
	struct span arguments[ARGUMENTS_MAX];
	int count; /* -1: it is no template-id */
};

static struct span trim(struct span text)
{
	while (text.bytes && isspace((unsigned char)text.at[0])) {
		text.at++;
		text.bytes--;
	}
	while (text.bytes && isspace((unsigned char)text.at[text.bytes - 1]))
		text.bytes--;
	return text;
}

/* Cuts a list at its commas, but not inside of brackets; more than there is room for stay in the
 * last. */
static int split(struct span list, struct span parts[ARGUMENTS_MAX])
{
	int count = 0, depth = 0;
	size_t from = 0;
	for (size_t i = 0; i <= list.bytes; i++) {
		char c = i < list.bytes ? list.at[i] : ',';
		depth += c == '<' || c == '(';
		depth -= c == '>' || c == ')';
		bool last = i == list.bytes;
		if (last || (c == ',' && depth == 0 && count < ARGUMENTS_MAX - 1)) {
			parts[count++] = trim((struct span){list.at + from, i - from});
			from = i + 1;
		}
	}
	return count == 1 && parts[0].bytes == 0 ? 0 : count;
}

static void read_id(struct span text, struct template_id *id)
{
	const char *open = memchr(text.at, '<', text.bytes);
	id->name = text;
	id->count = -1;
	if (!open || text.at[text.bytes - 1] != '>')
		return;
	id->name = trim((struct span){text.at, (size_t)(open - text.at)});
	id->count = split((struct span){open + 1, (size_t)(text.at + text.bytes - 1 - open - 1)},
					  id->arguments);
}

/* ---- Names of parameters ---- */

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static bool has_word(struct span text, struct span word)
{
	const char *end = text.at + text.bytes;
	if (word.bytes == 0)
		return false;
	for (const char *at = text.at; (at = memmem(at, (size_t)(end - at), word.at, word.bytes)); at++)
		if ((at == text.at || !is_word(at[-1])) &&
			(at + word.bytes == end || !is_word(at[word.bytes])))
			return true;
	return false;
}

/* The end of what "template <" begins: its '>'; NULL if there is none. */
static const char *parameters_end(const char *at, const char *end)
{
	int depth = 1;
	for (; at < end; at++) {
		depth += *at == '<';
		depth -= *at == '>';
		if (depth == 0)
			return at;
	}
	return NULL;
}

/* The parameters of the first template of this name in a file; false if there is none. */
static bool find_parameters(const struct compile_file *file, struct span name, struct span *out)
{
	static const char word[] = "template <";
	const char *at = file->text, *end = file->text ? file->text + file->bytes : NULL;
	while (at < end && (at = memmem(at, (size_t)(end - at), word, sizeof(word) - 1))) {
		const char *first = at + sizeof(word) - 1, *last = parameters_end(first, end);
		if (!last)
			return false;
		struct span head = {last + 1, (size_t)(end - last - 1)};
		const char *body = memchr(head.at, '{', head.bytes);
		if (body)
			head.bytes = (size_t)(body - head.at);
		if (head.bytes > HEAD_MAX)
			head.bytes = HEAD_MAX;
		*out = (struct span){first, (size_t)(last - first)};
		if (has_word(head, name))
			return true;
		at = last;
	}
	return false;
}

/* "i64 R = 1": R.  Empty for one without a name, and for a pack, which has many arguments. */
static struct span parameter_name(struct span parameter)
{
	const char *equals = memchr(parameter.at, '=', parameter.bytes);
	struct span text = parameter;
	if (equals)
		text.bytes = (size_t)(equals - text.at);
	text = trim(text);
	size_t from = text.bytes;
	while (from && is_word(text.at[from - 1]))
		from--;
	bool pack = memmem(text.at, text.bytes, "...", 3) != NULL;
	return (struct span){text.at + from, pack || from == 0 ? 0 : text.bytes - from};
}

static struct span argument_name(const struct template_id *id, int argument,
								 const struct compile_file *files, int file_count)
{
	struct span parameters, names[ARGUMENTS_MAX];
	for (int i = 0; i < file_count; i++)
		if (find_parameters(&files[i], id->name, &parameters)) {
			int count = split(parameters, names);
			return count >= id->count ? parameter_name(names[argument]) : (struct span){"", 0};
		}
	return (struct span){"", 0};
}

/* ---- Comparing ---- */

#define DEPTH_MAX 8 /* of template-ids within one another */

static void compare_templates(struct span asked, struct span other, int depth,
							  const struct compile_file *files, int file_count,
							  struct compile_differences *out);

static void compare_argument(const struct template_id *a, const struct template_id *b, int i,
							 int depth, const struct compile_file *files, int file_count,
							 struct compile_differences *out)
{
	struct span now = a->arguments[i], then = b->arguments[i];
	struct template_id inner_now, inner_then;
	if (span_is(now, then))
		return;
	read_id(now, &inner_now);
	read_id(then, &inner_then);
	if (inner_now.count > 0 && inner_now.count == inner_then.count && depth < DEPTH_MAX &&
		span_is(inner_now.name, inner_then.name) &&
		argument_name(&inner_now, 0, files, file_count).bytes) {
		compare_templates(now, then, depth + 1, files, file_count, out);
		return;
	}
	struct span name = argument_name(a, i, files, file_count);
	if (name.bytes)
		difference_add(out, "argument", 1, "%.*s of %.*s is %.*s instead of %.*s", SPAN(name),
					   SPAN(a->name), SPAN(now), SPAN(then));
	else
		difference_add(out, "argument", 1, "argument %d of %.*s is %.*s instead of %.*s", i + 1,
					   SPAN(a->name), SPAN(now), SPAN(then));
}

static void compare_templates(struct span asked, struct span other, int depth,
							  const struct compile_file *files, int file_count,
							  struct compile_differences *out)
{
	struct template_id a, b;
	if (span_is(asked, other))
		return;
	read_id(asked, &a);
	read_id(other, &b);
	if (!span_is(a.name, b.name)) {
		difference_add(out, "kernel", 20, "kernel %.*s instead of %.*s", SPAN(a.name),
					   SPAN(b.name));
	} else if (a.count != b.count) {
		difference_add(out, "kernel", 10, "%.*s instead of %.*s", SPAN(asked), SPAN(other));
	} else {
		for (int i = 0; i < a.count; i++)
			compare_argument(&a, &b, i, depth, files, file_count, out);
	}
}

void template_differences(struct span asked, struct span other, const struct compile_file *files,
						  int file_count, struct compile_differences *out)
{
	compare_templates(asked, other, 0, files, file_count, out);
}
