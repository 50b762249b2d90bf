/* raw.c: makes a planned kernel of the source that a user sends. */
#include "raw_state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli_line.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"

#define SHIM "cpu/shim.cuh"
#define LINE_HEADERS 32 /* a command with more is not one that people type */

/* Short forms of the headers that nearly every kernel includes.  A user's header of the same name
 * takes precedence. */
static const struct {
	const char *name, *file;
} standard[] = {
	{"stdint.h", "std/stdint.cuh"},      {"cstdint", "std/stdint.cuh"},
	{"stddef.h", "std/stddef.cuh"},      {"cstddef", "std/stddef.cuh"},
	{"float.h", "std/float.cuh"},        {"cfloat", "std/float.cuh"},
	{"limits.h", "std/limits.cuh"},      {"climits", "std/limits.cuh"},
	{"math.h", "std/math.cuh"},          {"cmath", "std/math.cuh"},
	{"stdio.h", "std/empty.cuh"},        {"cstdio", "std/empty.cuh"},
	{"assert.h", "std/empty.cuh"},       {"cassert", "std/empty.cuh"},
	{"cuda_fp16.h", "std/float16.cuh"},  {"cuda_bf16.h", "std/float16.cuh"},
	{"cuda_runtime.h", "std/empty.cuh"},
};

/* A string is here, in the key's text, and in the command's line; a header has a hash besides. */
#define KEPT_COPIES 3
#define KEPT_STRING 200

static const char *raw_keep(struct raw_source *source, const char *text)
{
	char *copy = util_strdup(text);
	source->kept += KEPT_COPIES * strlen(text) + KEPT_STRING;
	source->strings[source->string_count++] = copy;
	return copy;
}

/* ---- The texts ---- */

static int count_texts(const msgpack_object *raw, uint64_t *all, char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *headers = wire_get(raw, "headers");
	uint64_t source = wire_get_uint(raw, "bytes", UINT64_MAX);
	if (wire_count(headers) > RAW_MAX_HEADERS)
		return ERROR(KILN_ELIMIT, "a kernel may come with %d headers, and this one has %u",
					 RAW_MAX_HEADERS, wire_count(headers));
	*all = source;
	for (uint32_t i = 0; i < wire_count(headers) && source <= RAW_MAX_SOURCE; i++) {
		uint64_t bytes = wire_get_uint(wire_at(headers, i), "c", UINT64_MAX);
		*all = bytes > RAW_MAX_TEXTS ? RAW_MAX_TEXTS + 1 : *all + bytes;
		if (*all > RAW_MAX_TEXTS)
			break;
	}
	if (source > RAW_MAX_SOURCE || *all > RAW_MAX_TEXTS)
		return ERROR(KILN_ELIMIT,
					 "a source may have %llu bytes, with its headers %llu, and this one has more",
					 (unsigned long long)RAW_MAX_SOURCE, (unsigned long long)RAW_MAX_TEXTS);
	return KILN_OK;
}

/* ---- The job ---- */

static void add_file(struct kernel_ref *ref, const char *name, const char *text, uint64_t bytes)
{
	ref->files[ref->job.file_count++] = (struct compile_file){name, text, bytes};
}

static bool has_header(const struct kernel_ref *ref, int first, int end, const char *name)
{
	for (int i = first; i < end; i++)
		if (!strcmp(ref->files[i].name, name))
			return true;
	return false;
}

#define STANDARDS (sizeof(standard) / sizeof(*standard))

/* Finds those of the standard headers that a text names, as bits, for an #include needs the name.
 */
static unsigned find_named(const struct compile_file *file)
{
	unsigned first[256] = {0}, second[256] = {0}, found = 0;
	for (unsigned k = 0; k < STANDARDS; k++) {
		first[(unsigned char)standard[k].name[0]] |= 1u << k;
		second[(unsigned char)standard[k].name[1]] |= 1u << k;
	}
	const unsigned char *at = (const unsigned char *)file->text;
	for (size_t i = 0; i + 1 < file->bytes; i++) {
		unsigned may = first[at[i]] & second[at[i + 1]] & ~found;
		for (; may; may &= may - 1) {
			unsigned k = (unsigned)__builtin_ctz(may);
			size_t bytes = strlen(standard[k].name);
			if (bytes <= file->bytes - i && !memcmp(at + i, standard[k].name, bytes))
				found |= 1u << k;
		}
	}
	return found;
}

/* Lists the source and its headers, without their texts. */
static int add_user_files(struct wire_in *message, struct kernel_ref *ref,
						  char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *raw = wire_get(&message->root, "raw"),
						 *headers = wire_get(raw, "headers");
	ref->raw->first = ref->job.file_count;
	ref->raw->own = 1 + (int)wire_count(headers);
	add_file(ref, raw_keep(ref->raw, ref->plan.source), NULL, wire_get_uint(raw, "bytes", 0));
	for (uint32_t i = 0; i < wire_count(headers); i++) {
		const char *header = wire_get_str(message, wire_at(headers, i), "n");
		if (!header)
			return ERROR(KILN_EINVAL, "header %u has no name", i);
		if (strlen(header) > RAW_MAX_NAME)
			return ERROR(
				KILN_ELIMIT,
				"the name of a header has at most %d bytes, and that of header %u has %zu: "
				"%.*s",
				RAW_MAX_NAME, i, strlen(header), PLAIN_CUT(header, 80));
		add_file(ref, raw_keep(ref->raw, header), NULL, wire_get_uint(wire_at(headers, i), "c", 0));
	}
	return KILN_OK;
}

/* Gives each file its text, and appends the headers that every source may include. */
static void place_texts(const struct compile_sources *sources, struct kernel_ref *ref)
{
	int first = ref->raw->first, own = ref->job.file_count;
	const char *text = ref->raw->texts;
	for (int i = first; i < own; i++) {
		ref->files[i].text = text;
		text += ref->files[i].bytes;
	}
	/* Many texts, and long ones, get all of them: looking for names would take longer. */
	bool all = own - first > LINE_HEADERS + 1 || ref->raw->bytes > COMPILE_PLACED_BYTES;
	unsigned named = all ? UINT_MAX : 0;
	for (int i = first; i < own && !all; i++)
		named |= find_named(&ref->files[i]);
	for (size_t i = 0; i < STANDARDS; i++) {
		const struct compile_file *file = compile_sources_find(sources, standard[i].file);
		const char *wanted = standard[i].name;
		if (file && (named >> i & 1) && !has_header(ref, first + 1, own, wanted))
			add_file(ref, wanted, file->text, file->bytes);
	}
	ref->job.user_files = ref->job.file_count - first;
	ref->raw->standard = ref->job.file_count - own;
}

static int add_settings(struct wire_in *message, struct kernel_ref *ref,
						char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *raw = wire_get(&message->root, "raw");
	const msgpack_object *macros = wire_get(raw, "macros"), *options = wire_get(raw, "options");
	struct raw_source *source = ref->raw;
	if (wire_count(macros) > COMPILE_MAX_MACROS || wire_count(options) > COMPILE_MAX_USER_OPTIONS)
		return ERROR(KILN_ELIMIT, "%u macros and %u options; the most are %d and %d",
					 wire_count(macros), wire_count(options), COMPILE_MAX_MACROS,
					 COMPILE_MAX_USER_OPTIONS);
	for (uint32_t i = 0; i < wire_count(macros); i++) {
		const char *name = wire_get_str(message, wire_at(macros, i), "n");
		const char *value = wire_get_str(message, wire_at(macros, i), "v");
		if (!name)
			return ERROR(KILN_EINVAL, "macro %u has no name", i);
		source->macros[i] =
			(struct compile_macro){raw_keep(source, name), raw_keep(source, value ? value : "1")};
	}
	for (uint32_t i = 0; i < wire_count(options); i++) {
		const char *option = wire_get_str(message, wire_at(options, i), "o");
		if (!option)
			return ERROR(KILN_EINVAL, "option %u is no text", i);
		source->options[i] = raw_keep(source, option);
	}
	ref->job.macros = source->macros;
	ref->job.macro_count = (int)wire_count(macros);
	ref->job.options = source->options;
	ref->job.option_count = (int)wire_count(options);
	return KILN_OK;
}

/* The header that stands for the device's built-ins on device cpu. */
static int add_shim(struct broker *broker, struct kernel_ref *ref, char error[KERNEL_ERROR_MAX])
{
	const struct compile_file *files[COMPILE_MAX_HEADERS];
	int count = 0;
	if (strcmp(ref->job.target, "cpu") != 0)
		return KILN_OK;
	int status =
		compile_sources_closure(broker->sources, SHIM, ref->job.target, files, &count, error);
	for (int i = 0; i < count && status == KILN_OK; i++)
		ref->files[ref->job.file_count++] = *files[i];
	return status;
}

void raw_explain(const struct kernel_ref *ref, char *text, size_t size)
{
	const struct compile_job *job = &ref->job;
	size_t used = 0;
	text[0] = 0;
	for (int i = 0; i < job->option_count; i++)
		used = util_append(text, size, used, "option         %s\n", job->options[i]);
	for (int i = 0; i < job->macro_count; i++)
		used = util_append(text, size, used, "macro          %s=%s\n", job->macros[i].name,
						   job->macros[i].value);
}

static int fill_raw_job(struct session *session, struct wire_in *message, struct kernel_ref *ref,
						char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = 0;
	int status = count_texts(wire_get(&message->root, "raw"), &bytes, error);
	if (status == KILN_OK)
		status = add_shim(session->broker, ref, error);
	if (status == KILN_OK)
		status = add_user_files(message, ref, error);
	if (status == KILN_OK)
		status = add_settings(message, ref, error);
	return status == KILN_OK ? raw_take_texts(session, bytes, ref->raw, error) : status;
}

static bool make_raw(struct kernel_ref *ref, const msgpack_object *raw)
{
	size_t headers = wire_count(wire_get(raw, "headers"));
	headers = headers < RAW_MAX_HEADERS ? headers : RAW_MAX_HEADERS;
	size_t strings = headers + 2 * (size_t)COMPILE_MAX_MACROS + COMPILE_MAX_USER_OPTIONS + 1;
	size_t files = COMPILE_MAX_HEADERS + 1 + headers + sizeof(standard) / sizeof(*standard);
	_Static_assert(COMPILE_MAX_HEADERS + 1 + RAW_MAX_HEADERS +
						   sizeof(standard) / sizeof(*standard) <=
					   COMPILE_MAX_FILES,
				   "a job has room for all");
	_Static_assert(RAW_MAX_TEXTS <= COMPILE_MAX_TEXTS, "a compiler takes them");
	size_t bytes = sizeof(*ref->raw) + strings * sizeof(*ref->raw->strings);
	ref->raw = calloc(1, bytes);
	ref->files = calloc(files, sizeof(*ref->files));
	if (!ref->raw)
		return false;
	ref->raw->fd = ref->raw->sealed = -1;
	ref->raw->kept = bytes + files * sizeof(*ref->files);
	return ref->files != NULL;
}

int raw_open(struct session *session, struct wire_in *message, const struct kernel_limits *limits,
			 struct kernel_ref **out, char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *raw = wire_get(&message->root, "raw");
	const char *name = wire_get_str(message, raw, "name");
	const char *entry = wire_get_str(message, raw, "entry");
	struct kernel_plan plan;
	int status = plan_raw(name && *name ? name : "raw.cu", entry ? entry : "", &plan, error);
	if (status != KILN_OK)
		return status;
	struct kernel_ref *ref = kernel_new(&plan, limits);
	if (!ref || !make_raw(ref, raw)) {
		kernel_drop(ref);
		return ERROR(KILN_ENOMEM, "out of memory for a kernel");
	}
	ref->job.files = ref->files;
	ref->job.check = session->broker->options.memcheck && !strcmp(limits->target, "cpu");
	status = fill_raw_job(session, message, ref, error);
	if (status != KILN_OK) {
		kernel_drop(ref);
		return status;
	}
	*out = ref;
	return KILN_OK;
}

int raw_fill(const struct compile_sources *sources, struct kernel_ref *ref,
			 char error[KERNEL_ERROR_MAX])
{
	int status = raw_read_texts(ref->raw, error);
	if (status != KILN_OK)
		return status;
	place_texts(sources, ref);
	status = compile_check_user(&ref->job, error);
	if (status == KILN_OK)
		status = raw_hash_texts(ref, error);
	if (status != KILN_OK)
		return status;
	ref->job.by_name = compile_wants_names(&ref->job);
	if (ref->raw->own <= LINE_HEADERS + 1)
		ref->line = line_of_raw(&ref->job, ref->raw->standard);
	return raw_put_aside(ref, error);
}

const char *raw_label(const struct kernel_plan *plan, char label[160])
{
	snprintf(label, 160, "kernel %.*s of %s", PLAIN_CUT(plan->instantiation, 80), plan->source);
	return label;
}
