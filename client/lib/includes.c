/*
 * includes.c: walks over all that a source includes, and names each header.
 */
#include "includes_state.h"
#include "error.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static int by_header_name(const void *a, const void *b)
{
	return strcmp(((const struct header *)a)->name, ((const struct header *)b)->name);
}

static struct header *header_of(const struct includes *found, const char *name)
{
	const struct header key = {.name = name};
	struct header **at = tfind(&key, &found->names, by_header_name);
	return at ? *at : NULL;
}

static const kiln_text *given_of(const kiln_raw *raw, const char *name)
{
	for (int i = 0; i < raw->header_count; i++)
		if (strcmp(raw->headers[i].name, name) == 0)
			return &raw->headers[i];
	return NULL;
}

static struct header *add_header(struct includes *found, const struct header *what)
{
	struct header *header = includes_keep(found, sizeof(*header));
	if (!header)
		return NULL;
	*header = (struct header){.name = what->name,
							  .folder = what->folder,
							  .label = what->label,
							  .text = what->text,
							  .waiting = found->waiting};
	*found->headers_end = found->waiting = header;
	found->headers_end = &header->next;
	if (!tsearch(header, &found->names, by_header_name))
		includes_fail(found, KILN_ENOMEM, "no memory for the headers of a source");
	found->bytes += header->text->bytes;
	if (++found->header_count > INCLUDES_HEADERS || found->bytes > INCLUDES_BYTES)
		includes_fail(found, KILN_ELIMIT,
					  "the source includes more than %d headers or %zu MiB of them, beginning with "
					  "%s: include less, or one header that has it all",
					  INCLUDES_HEADERS, INCLUDES_BYTES >> 20, found->headers->label);
	return header;
}

/* The name of a file that has none yet. */
static const char *name_file(struct includes *found, const struct place *place, const char *spelled,
							 const char *includer)
{
	const char *name = spelled;
	if (place->where == WHERE_BESIDE) {
		const char *below = find_below(found, place);
		name = below ? below : find_joined(found, find_parent(found, includer), spelled);
	}
	const char *unique = name;
	for (int number = 2;
		 name && unique && (header_of(found, unique) || given_of(&found->raw, unique)); number++) {
		char text[INCLUDES_NAME + 16];
		int size = snprintf(text, sizeof(text), "%s@%d", name, number);
		unique = includes_copy(found, text, (size_t)size < sizeof(text) ? (size_t)size : 0);
	}
	return unique;
}

static bool is_one_folder(const char *a, const char *b)
{
	struct stat one, other;
	return strcmp(a, b) == 0 ||
		   (stat(a[0] ? a : ".", &one) == 0 && stat(b[0] ? b : ".", &other) == 0 &&
			one.st_dev == other.st_dev && one.st_ino == other.st_ino);
}

/* Pairs of files that are being compared. */
struct pair {
	const struct pair *outer;
	const struct place *one, *other;
	int depth;
};

/* Does a text that is in two folders include the same from both? */
static bool means_one(struct includes *found, const struct text *text, const char *folder,
					  const char *other, const struct pair *pairs)
{
	if (is_one_folder(folder, other))
		return true;
	if (pairs && pairs->depth > 100)
		return false;
	for (const struct include *include = text->includes; include; include = include->next) {
		if (!include->quoted)
			continue;
		const struct place *a = find_place(found, include->name, folder);
		const struct place *b = find_place(found, include->name, other);
		bool seen = false;
		if (!a || !b || !a->path != !b->path ||
			(a->path && (a->device != b->device || a->inode != b->inode)))
			return false;
		for (const struct pair *pair = pairs; pair; pair = pair->outer)
			seen = seen || (pair->one == a && pair->other == b);
		if (!a->path || seen)
			continue;
		const struct file *file = find_file(found, a);
		const struct pair inner = {pairs, a, b, pairs ? pairs->depth + 1 : 0};
		if (!file || !means_one(found, file->text, find_parent(found, a->path),
								find_parent(found, b->path), &inner))
			return false;
	}
	return true;
}

static struct header *resolve_given(struct includes *found, const char *name, const char *includer)
{
	const char *names[] = {find_joined(found, find_parent(found, includer), name), name};
	for (int i = 0; i < 2; i++) {
		const kiln_text *given = names[i] ? given_of(&found->raw, names[i]) : NULL;
		struct header *header = given ? header_of(found, names[i]) : NULL;
		if (header)
			return header;
		if (!given)
			continue;
		size_t bytes = given->bytes ? given->bytes : strlen(given->text);
		const struct header what = {.name = given->name,
									.label = given->name,
									.text = text_scan(found, given->text, bytes)};
		return what.text ? add_header(found, &what) : NULL;
	}
	return NULL;
}

/* The header that an include finds, which is among the others then; NULL: none, or a failure. */
static struct header *resolve(struct includes *found, const char *name, const char *folder,
							  const char *includer)
{
	struct header *header = resolve_given(found, name, includer);
	if (header || found->status != KILN_OK)
		return header;
	const struct place *place = find_place(found, name, folder);
	if (!place || !place->path)
		return NULL;
	found->has_toolkit = found->has_toolkit || place->where == WHERE_TOOLKIT;
	struct file *file = find_file(found, place);
	const char *lies = file ? find_parent(found, place->path) : NULL;
	if (!lies)
		return NULL;
	for (const struct known *known = file->known; known; known = known->next)
		if (strcmp(known->folder, lies) == 0)
			return known->header;
	for (const struct known *known = file->known; known && !header; known = known->next)
		if (means_one(found, file->text, lies, known->folder, NULL))
			header = known->header;
	if (!header) {
		const struct header what = {.name = name_file(found, place, name, includer),
									.folder = lies,
									.label = place->path,
									.text = file->text};
		header = what.name ? add_header(found, &what) : NULL;
	}
	struct known *known = header ? includes_keep(found, sizeof(*known)) : NULL;
	if (known) {
		*known = (struct known){file->known, lies, header};
		file->known = known;
	}
	return found->status == KILN_OK ? header : NULL;
}

/* ---- The walk ---- */

static void miss(struct includes *found, const char *name, const char *label)
{
	for (const struct missing *missing = found->missing; missing; missing = missing->next)
		if (strcmp(missing->name, name) == 0)
			return;
	struct missing *missing = includes_keep(found, sizeof(*missing));
	if (!missing)
		return;
	*missing = (struct missing){found->missing, name, label};
	found->missing = missing;
}

static void add_includes(struct includes *found, struct header *header)
{
	for (const struct include *include = header->text->includes;
		 include && found->status == KILN_OK; include = include->next) {
		const struct header *is =
			resolve(found, include->name, include->quoted ? header->folder : NULL,
					include->quoted && header->name ? header->name : "");
		if (!is) {
			miss(found, include->name, header->label);
		} else if (strcmp(is->name, include->name) != 0) {
			struct rename *rename = includes_keep(found, sizeof(*rename));
			if (!rename)
				return;
			*rename = (struct rename){header->renames, include, is->name};
			header->renames = rename;
		}
	}
}

/* Adds what an include by a macro may find.  No directive can be changed, so that header has the
 * name as well. */
static void add_macro_header(struct includes *found, const char *value, const char *beside)
{
	size_t size = strlen(value);
	bool quoted = value[0] == '"';
	if (size < 3 || !(quoted ? value[size - 1] == '"' : value[0] == '<' && value[size - 1] == '>'))
		return;
	const char *name = includes_copy(found, value + 1, size - 2);
	const char *folder = quoted ? beside : NULL;
	for (const struct asked *asked = found->asked; asked; asked = asked->next)
		if (name && strcmp(asked->name, name) == 0 &&
			(asked->folder == folder ||
			 (asked->folder && folder && strcmp(asked->folder, folder) == 0)))
			return;
	struct asked *asked = name ? includes_keep(found, sizeof(*asked)) : NULL;
	if (!asked)
		return;
	*asked = (struct asked){found->asked, name, folder};
	found->asked = asked;
	const struct header *is = resolve(found, name, folder, "");
	if (is && strcmp(is->name, name) != 0 && !header_of(found, name)) {
		const struct header what = {
			.name = name, .folder = is->folder, .label = is->label, .text = is->text};
		add_header(found, &what);
	}
}

static void add_values(struct includes *found, const struct header *header)
{
	const char *values[INCLUDES_VALUES];
	for (const struct define *word = header->text->words; word; word = word->next) {
		int count = macro_values(found, word->name, values);
		for (int i = 0; i < count && found->status == KILN_OK; i++)
			add_macro_header(found, values[i], header->folder);
	}
}

static bool has_words(const struct includes *found)
{
	bool any = found->main.text->words != NULL;
	for (const struct header *header = found->headers; header && !any; header = header->next)
		any = header->text->words != NULL;
	return any;
}

static void walk(struct includes *found)
{
	found->waiting = &found->main;
	while (found->waiting && found->status == KILN_OK) {
		while (found->waiting && found->status == KILN_OK) {
			struct header *header = found->waiting;
			found->waiting = header->waiting;
			add_includes(found, header);
		}
		if (found->status != KILN_OK || !has_words(found))
			return;
		const struct header *last = NULL;
		macro_learn(found);
		add_values(found, &found->main);
		/* Those that come meanwhile have their turn in the next round. */
		for (const struct header *header = found->headers; header; header = header->next)
			last = header;
		for (const struct header *header = found->headers; header; header = header->next) {
			add_values(found, header);
			if (header == last)
				break;
		}
		macro_forget(found);
	}
}

static void leave(void *what)
{
	(void)what;
}

static void forget_known(const void *node, VISIT which, int depth)
{
	(void)depth;
	if (which == preorder || which == leaf)
		(*(struct file *const *)node)->known = NULL;
}

static void walk_begin(struct includes *found, bool whole)
{
	tdestroy(found->places, leave);
	tdestroy(found->names, leave);
	twalk(found->files, forget_known);
	found->places = found->names = NULL;
	found->whole = whole;
	found->has_toolkit = found->has_short = false;
	found->headers = NULL;
	found->headers_end = &found->headers;
	found->header_count = 0;
	found->bytes = 0;
	found->missing = NULL;
	found->asked = NULL;
	found->main.renames = NULL;
	found->main.waiting = NULL;
}

/* ---- What is sent ---- */

/* Returns the text with other names in its directives. */
static const char *renamed(struct includes *found, const struct header *header, size_t *bytes)
{
	const struct text *text = header->text;
	const char *copied = text->text;
	size_t size = text->bytes;
	*bytes = size;
	if (!header->renames)
		return text->text;
	/* The newest stands first; tests with __has_include come behind all directives. */
	for (const struct rename *rename = header->renames; rename; rename = rename->next)
		size += strlen(rename->name);
	char *out = includes_keep(found, size + 1), *at = out;
	while (out && copied) {
		const struct rename *next = NULL;
		for (const struct rename *rename = header->renames; rename; rename = rename->next)
			if (rename->include->begin >= copied &&
				(!next || rename->include->begin < next->include->begin))
				next = rename;
		const char *end = next ? next->include->begin : text->text + text->bytes;
		memcpy(at, copied, (size_t)(end - copied));
		at += end - copied;
		if (next) {
			memcpy(at, next->name, strlen(next->name));
			at += strlen(next->name);
		}
		copied = next ? next->include->end : NULL;
	}
	*bytes = out ? (size_t)(at - out) : 0;
	return out;
}

static void put_together(struct includes *found)
{
	kiln_text *headers = includes_keep(found, ((size_t)found->header_count + 1) * sizeof(*headers));
	if (!headers)
		return;
	int count = 0;
	for (const struct header *header = found->headers; header; header = header->next) {
		kiln_text *text = &headers[count++];
		text->name = header->name;
		text->text = renamed(found, header, &text->bytes);
		if (text->bytes == 0)
			text->text = "";
	}
	found->raw.source = renamed(found, &found->main, &found->raw.source_bytes);
	found->raw.headers = headers;
	found->raw.header_count = count;
}

int includes_find(const kiln_raw *raw, struct includes **out)
{
	struct includes *found = calloc(1, sizeof(*found));
	if (!found)
		return error_set(KILN_ENOMEM, "no memory for the headers of a source");
	/* An earlier release has a shorter one. */
	memcpy(&found->raw, raw, raw->size < sizeof(*raw) ? raw->size : sizeof(*raw));
	found->main.label = raw->name ? raw->name : "raw.cu";
	if (find_folders(found, &found->raw) == KILN_OK)
		found->main.text = text_scan(found, raw->source,
									 raw->source_bytes ? raw->source_bytes : strlen(raw->source));
	for (int whole = 0; found->status == KILN_OK && whole < 2; whole++) {
		walk_begin(found, whole);
		walk(found);
		if (!found->has_toolkit || !found->has_short)
			break;
	}
	if (found->status == KILN_OK)
		put_together(found);
	int status = found->status;
	if (status == KILN_OK)
		*out = found;
	else
		includes_free(found);
	return status;
}

const kiln_raw *includes_raw(const struct includes *found)
{
	return &found->raw;
}

/* ---- A source that does not compile ---- */

/* The name between quotes that ends before, or begins behind, what compilers say of it. */
static bool missed(const char *log, const char *name)
{
	static const char *const forms[] = {"open source file \"%s\"",
										"\"%s\" is not among the headers"};
	char text[INCLUDES_NAME + 64];
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), i ? forms[1] : forms[0], name);
		if (strstr(log, text))
			return true;
	}
	return false;
}

void includes_explain(const struct includes *found)
{
	char said[ERROR_MAX], folders[128] = "";
	const char *log = kiln_errlog();
	size_t used = 0;
	for (const struct missing *missing = found->missing; missing; missing = missing->next) {
		if (!missed(log, missing->name) && !missed(kiln_errmsg(), missing->name))
			continue;
		for (int i = 0; i < found->folder_count + found->toolkit_count; i++) {
			const char *folder = i < found->folder_count ? found->folders[i]
														 : found->toolkit[i - found->folder_count];
			if (used < sizeof(folders))
				used += (size_t)snprintf(folders + used, sizeof(folders) - used, "%s%s",
										 used ? ", " : "", folder ? folder : "");
		}
		snprintf(said, sizeof(said), "%.240s: %.140s includes %.80s, which is in none of %s",
				 kiln_errmsg(), missing->label, missing->name,
				 used ? folders : "the headers, and there are no folders");
		char *copy = strdup(log);
		error_set_peer(KILN_ECOMPILE, said, copy && copy[0] ? copy : NULL);
		free(copy);
		return;
	}
}

void includes_free(struct includes *found)
{
	if (!found)
		return;
	tdestroy(found->places, leave);
	tdestroy(found->names, leave);
	tdestroy(found->files, leave);
	tdestroy(found->macros, leave);
	includes_let_go(found);
	free(found);
}
