/*
 * user: the part of a unit that a user wrote.  Includes are put in place here, from what came with
 * the source, so that no compiler looks for a file; each line keeps the name and number that its
 * author knows it by.  NVRTC gets many headers, and some others, by name instead.
 */
#include "backend.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- What may be in a job ---- */

/* Goes between quotes in #line. */
static bool is_quotable(const char *name)
{
	if (name[0] == 0)
		return false;
	for (const char *at = name; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '"' || *at == '\\')
			return false;
	return true;
}

static bool is_line(const char *text)
{
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < 0x20 && *at != '\t')
			return false;
	return text[0] == 0 || text[strlen(text) - 1] != '\\';
}

/* NAME or NAME(a, b) */
static bool is_macro(const char *name)
{
	if (!isalpha((unsigned char)name[0]) && name[0] != '_')
		return false;
	while (isalnum((unsigned char)*name) || *name == '_')
		name++;
	return *name == 0 || (*name == '(' && name[strlen(name) - 1] == ')' && is_line(name));
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Headers have names of their own; one may have that of the source. */
static int check_names(const struct compile_file *headers, int count, char error[KERNEL_ERROR_MAX])
{
	const char *names[COMPILE_MAX_FILES];

	for (int i = 0; i < count; i++)
		names[i] = headers[i].name;
	qsort(names, (size_t)(count > 0 ? count : 0), sizeof(*names), by_text);
	for (int i = 1; i < count; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "there are two headers %.*s; names differ", PLAIN_CUT(names[i], 80));
	return KILN_OK;
}

int compile_check_user(const struct compile_job *job, char error[KERNEL_ERROR_MAX])
{
	const struct compile_file *files = job->files + job->file_count - job->user_files;

	for (int i = 0; i < job->user_files; i++) {
		if (!is_quotable(files[i].name))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "the name of a source or header is not empty and has no quotes, "
							 "backslashes and control characters: %.*s",
							 PLAIN_CUT(files[i].name, 80));
		if (files[i].bytes && memchr(files[i].text, 0, files[i].bytes))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL, "%.*s has a zero byte in it",
							 PLAIN_CUT(files[i].name, 80));
	}
	if (check_names(files + 1, job->user_files - 1, error) != KILN_OK)
		return KILN_EINVAL;
	for (int i = 0; i < job->macro_count; i++)
		if (!is_macro(job->macros[i].name) || !is_line(job->macros[i].value))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "a macro is an identifier, perhaps with parameters, and its value one "
							 "line: %.*s",
							 PLAIN_CUT(job->macros[i].name, 80));
	for (int i = 0; i < job->option_count; i++)
		if (!options_user_allowed(job->options[i]))
			return util_fail(
				error, KERNEL_ERROR_MAX, KILN_EINVAL,
				"option %.*s is not allowed; allowed are -std=c++11|14|17|20, "
				"--use_fast_math, --fmad=, --ftz=, --prec-div=, --prec-sqrt=true|false, "
				"--maxrregcount=N, -lineinfo, -default-device, --restrict",
				PLAIN_CUT(job->options[i], 80));
	return KILN_OK;
}

/* ---- Includes ---- */

struct placing {
	const struct compile_file *files; /* the source, then the headers */
	int count;
	const struct compile_file *by_name[COMPILE_MAX_FILES]; /* the headers */
	enum once once[COMPILE_MAX_FILES];
	bool open[COMPILE_MAX_FILES]; /* is being placed */
	bool done[COMPILE_MAX_FILES]; /* is placed where no condition leaves it out, and counts once */
	int depth;                    /* of conditions around the place, guards left out */
	int includes;                 /* looked at */
	bool answers;                 /* __has_include */
	struct util_text *text;
};

static void place(struct placing *placing, int number);

static int by_file_name(const void *a, const void *b)
{
	return strcmp((*(const struct compile_file *const *)a)->name,
				  (*(const struct compile_file *const *)b)->name);
}

static int find_placed(const struct placing *placing, const char *name)
{
	const struct compile_file key = {.name = name}, *wanted = &key;
	const struct compile_file *const *found = bsearch(
		&wanted, placing->by_name, (size_t)placing->count - 1, sizeof(wanted), by_file_name);

	return found ? (int)(*found - placing->files) : -1;
}

/* Puts an #error where the compiler meets it: the line may stand in a branch that is left out. */
static void refuse_name(struct util_text *text, const char *name)
{
	if (name[0] && is_quotable(name))
		util_text_add(text, "#error \"%s\" is not among the headers that came with the source",
					  name);
	else
		util_text_add(text, "#error only #include of a name that came with the source is possible");
}

static void add_newlines(struct util_text *text, int count)
{
	while (count-- > 0)
		util_text_add(text, "\n");
}

/* Text before the end of the directive counts as lines alone. */
static void place_include(struct placing *placing, int number, const struct scan_line *line)
{
	struct util_text *text = placing->text;
	int header = line->name[0] ? find_placed(placing, line->name) : -1;
	size_t after = line->mark_bytes ? line->mark + line->mark_bytes : line->bytes;
	/* An include guard ends a circle of headers: the second time there is nothing. */
	bool placed = header >= 0 && !placing->open[header] && !placing->done[header];

	placing->includes++;
	if (placed) {
		placing->done[header] = placing->depth == 0 && placing->once[header] != ONCE_NOT;
		place(placing, header);
		util_text_add(text, "#line %d \"%s\"\n",
					  line->number + scan_newlines(line->text + line->mark, line->mark_bytes),
					  placing->files[number].name);
	} else if (line->mark_bytes) {
		add_newlines(text, scan_newlines(line->text, after));
	}
	if (header < 0)
		refuse_name(text, line->name);
	if (!line->mark_bytes)
		add_newlines(text, scan_newlines(line->text, after));
	util_text_bytes(text, line->text + after, line->bytes - after);
}

/* Answers __has_include(name) in a directive: the compiler would look for a file. */
static void add_directive(struct placing *placing, const struct scan_line *line)
{
	struct lex lex = line->rest;
	const char *copied = line->text, *end = line->text + line->bytes;
	struct lex_token token;

	while ((token = lex_in_line(&lex)).kind != LEX_NEWLINE && token.kind != LEX_END) {
		struct lex ahead = lex;
		struct lex_token open = lex_in_line(&ahead), name = lex_header_name(&ahead);
		char asked[sizeof(line->name)];

		if (!lex_is(&token, "__has_include") || !lex_is(&open, "(") || name.kind != LEX_LITERAL)
			continue;
		bool there =
			lex_header_text(&name, asked, sizeof(asked)) && find_placed(placing, asked) >= 0;
		util_text_bytes(placing->text, copied, (size_t)(token.text - copied));
		for (int n = scan_newlines(token.text, (size_t)(ahead.at - token.text)); n > 0; n--)
			util_text_add(placing->text, "\\\n");
		util_text_add(placing->text, "(%d", there);
		copied = lex.at = ahead.at;
	}
	util_text_bytes(placing->text, copied, (size_t)(end - copied));
}

/* A line of a branch that is left out may have been made longer, and the #line in it went with it:
 * said again after each branch. */
static void place(struct placing *placing, int number)
{
	const struct compile_file *file = &placing->files[number];
	struct util_text *text = placing->text;
	bool grown = false;
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;
	int depth = placing->depth;

	if (text->size > COMPILE_MAX_UNIT)
		return;
	placing->open[number] = true;
	placing->depth -= placing->once[number] == ONCE_GUARD;
	if (placing->once[number] == ONCE_PRAGMA)
		util_text_add(text, "#ifndef KILN_ONCE_%d\n#define KILN_ONCE_%d\n", number, number);
	util_text_add(text, "#line 1 \"%s\"\n", file->name);
	scan_begin(&scan, file);
	while (placing->includes <= COMPILE_MAX_INCLUDES &&
		   (kind = scan_next(&scan, &line)) != SCAN_END) {
		placing->depth += line.nesting;
		if (kind == SCAN_INCLUDE || kind == SCAN_FOREIGN) {
			place_include(placing, number, &line);
			grown = true;
		} else if (kind == SCAN_ONCE) {
			size_t after = line.mark + line.mark_bytes;
			add_newlines(text, scan_newlines(line.text, after));
			util_text_bytes(text, line.text + after, line.bytes - after);
		} else if (placing->answers && line.is_test) {
			add_directive(placing, &line);
		} else {
			util_text_bytes(text, line.text, line.bytes);
		}
		if (kind == SCAN_BRANCH && grown)
			util_text_add(text, "\n#line %d \"%s\"\n", scan.line + 1, file->name);
	}
	if (file->bytes && file->text[file->bytes - 1] != '\n')
		util_text_add(text, "\n");
	if (placing->once[number] == ONCE_PRAGMA)
		util_text_add(text, "#endif\n");
	placing->open[number] = false;
	placing->depth = depth;
}

/* Returns how many includes it has looked at; with more than COMPILE_MAX_INCLUDES it ends early. */
static int place_all(const struct compile_job *job, const struct compile_file *files,
					 struct util_text *text)
{
	struct placing placing = {
		.files = files, .count = job->user_files, .answers = job->by_name, .text = text};

	if (job->macro_count)
		util_text_add(text, "#line 1 \"macros\"\n");
	for (int i = 0; i < job->macro_count; i++)
		util_text_add(text, "#define %s %s\n", job->macros[i].name, job->macros[i].value);
	if (job->by_name && !options_is_cpu(job->target)) {
		util_text_add(text, "#line 1 \"%s\"\n", files[0].name);
		util_text_bytes(text, files[0].text, files[0].bytes);
		util_text_add(text, "\n");
	} else {
		for (int i = 1; i < placing.count; i++)
			placing.by_name[i - 1] = &files[i];
		qsort(placing.by_name, (size_t)placing.count - 1, sizeof(*placing.by_name), by_file_name);
		once_find(job, files, placing.count, placing.once);
		place(&placing, 0);
	}
	return placing.includes;
}

/* Is there an include that is neither "name" nor <name>? */
static bool includes_by_macro(const struct compile_file *file)
{
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;

	scan_begin(&scan, file);
	while ((kind = scan_next(&scan, &line)) != SCAN_END)
		if (kind == SCAN_FOREIGN && !line.name[0])
			return true;
	return false;
}

bool compile_wants_names(const struct compile_job *job)
{
	const struct compile_file *files = job->files + job->file_count - job->user_files;

	bool cpu = options_is_cpu(job->target);
	size_t bytes = 0;

	if (job->user_files < 2)
		return false;
	for (int i = 0; i < job->user_files; i++)
		bytes += files[i].bytes;
	if (!cpu && (job->user_files > COMPILE_PLACED_MOST || bytes > COMPILE_PLACED_BYTES))
		return true;
	for (int i = 0; i < job->user_files; i++)
		if (memmem(files[i].text, files[i].bytes, "__has_include", strlen("__has_include")) ||
			(!cpu && includes_by_macro(&files[i])))
			return true;
	return false;
}

int user_add(const struct compile_job *job, struct util_text *text, char error[KERNEL_ERROR_MAX])
{
	const struct compile_file *given = job->files + job->file_count - job->user_files;
	struct compile_file files[COMPILE_MAX_FILES];
	struct util_text rewritten[COMPILE_MAX_FILES] = {{0}};
	bool cpu = options_is_cpu(job->target);
	int status = KILN_OK, includes = 0;

	for (int i = 0; i < job->user_files; i++) {
		files[i] = given[i];
		if (!cpu)
			continue;
		shared_rewrite(&given[i], &rewritten[i]);
		text->failed = text->failed || rewritten[i].failed;
		files[i].text = rewritten[i].text;
		files[i].bytes = rewritten[i].size;
	}
	if (!text->failed)
		includes = place_all(job, files, text);
	for (int i = 0; i < job->user_files; i++)
		util_text_free(&rewritten[i]);
	if (text->size > COMPILE_MAX_UNIT)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						   "%.*s has more than %u bytes with all that it includes",
						   PLAIN_CUT(given[0].name, 80), COMPILE_MAX_UNIT);
	else if (includes > COMPILE_MAX_INCLUDES)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						   "%.*s has more than %d #include lines with all that it includes",
						   PLAIN_CUT(given[0].name, 80), COMPILE_MAX_INCLUDES);
	return status;
}
