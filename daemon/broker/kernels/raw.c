/* raw.c: makes a planned kernel of the source that a user sends. */
#include "raw.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "cli_line.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"

#define SHIM "cpu/shim.cuh"
#define STRINGS_MOST (RAW_MAX_HEADERS + 2 * COMPILE_MAX_MACROS + COMPILE_MAX_USER_OPTIONS + 2)

#define ERROR(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

struct raw_source {
	int fd; /* the client's memfd with the texts; -1: none */
	uint64_t bytes;
	char *texts; /* source and headers, one after another */
	int first;   /* index of the source among the job's files; its headers follow */
	struct compile_macro macros[COMPILE_MAX_MACROS];
	const char *options[COMPILE_MAX_USER_OPTIONS];
	char *strings[STRINGS_MOST];
	int string_count;
	int standard; /* how many of the job's files, at the end, come with kilnd */
};

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
	{"cuda_fp16.h", "std/float16.cuh"},  {"cuda_bf16.h", "std/float16.cuh"},
	{"cuda_runtime.h", "std/empty.cuh"},
};

void raw_source_free(struct raw_source *source)
{
	if (!source)
		return;
	for (int i = 0; i < source->string_count; i++)
		free(source->strings[i]);
	closer_put(getuid(), source->fd);
	free(source->texts);
	free(source);
}

static const char *raw_keep(struct raw_source *source, const char *text)
{
	char *copy = util_strdup(text);
	source->strings[source->string_count++] = copy;
	return copy;
}

/* ---- The texts ---- */

static int take_texts(struct frame *frame, uint64_t bytes, struct raw_source *source,
					  char error[KERNEL_ERROR_MAX])
{
	int fd = frame->fd_count > 0 ? frame->fds[0] : -1;
	if (fd < 0 || !frame_fd_is_safe(fd, bytes))
		return ERROR(KILN_EPROTO,
					 "the source must come in a memfd sealed against shrinking, without huge "
					 "pages, of at least %llu bytes",
					 (unsigned long long)bytes);
	source->fd = frame_take_fd(frame, 0);
	source->bytes = bytes;
	return KILN_OK;
}

/* Copies the texts first, for the client can still write to its memfd. */
static int read_texts(struct raw_source *source, char error[KERNEL_ERROR_MAX])
{
	source->texts = malloc(source->bytes + 1);
	if (!source->texts)
		return ERROR(KILN_ENOMEM, "out of memory for a source of %llu bytes",
					 (unsigned long long)source->bytes);
	if (!frame_read_fd(source->fd, source->texts, source->bytes))
		return ERROR(KILN_EPROTO, "the memfd of the source cannot be read");
	source->texts[source->bytes] = 0;
	return KILN_OK;
}

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

/* An #include names the header, so it needs a name. */
static bool is_named(const struct kernel_ref *ref, int first, int end, const char *name)
{
	for (int i = first; i < end; i++)
		if (memmem(ref->files[i].text, ref->files[i].bytes, name, strlen(name)))
			return true;
	return false;
}

/* Lists the source and its headers, without their texts. */
static int add_user_files(struct wire_in *message, struct kernel_ref *ref,
						  char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *raw = wire_get(&message->root, "raw"),
						 *headers = wire_get(raw, "headers");
	ref->raw->first = ref->job.file_count;
	add_file(ref, raw_keep(ref->raw, ref->plan.source), NULL, wire_get_uint(raw, "bytes", 0));
	for (uint32_t i = 0; i < wire_count(headers); i++) {
		const char *header = wire_get_str(message, wire_at(headers, i), "n");
		if (!header)
			return ERROR(KILN_EINVAL, "header %u has no name", i);
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
	for (size_t i = 0; i < sizeof(standard) / sizeof(*standard); i++) {
		const struct compile_file *file = compile_sources_find(sources, standard[i].file);
		const char *wanted = standard[i].name;
		if (file && is_named(ref, first, own, wanted) && !has_header(ref, first + 1, own, wanted))
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
	if (status == KILN_OK &&
		(size_t)count + 1 + RAW_MAX_HEADERS + sizeof(standard) / sizeof(*standard) >
			COMPILE_MAX_HEADERS)
		status = ERROR(KILN_EINTERNAL, "%s includes too many files", SHIM);
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

static int fill_raw_job(struct broker *broker, struct wire_in *message, struct frame *frame,
						struct kernel_ref *ref, char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = 0;
	int status = count_texts(wire_get(&message->root, "raw"), &bytes, error);
	if (status == KILN_OK)
		status = take_texts(frame, bytes, ref->raw, error);
	if (status == KILN_OK)
		status = add_shim(broker, ref, error);
	if (status == KILN_OK)
		status = add_user_files(message, ref, error);
	return status == KILN_OK ? add_settings(message, ref, error) : status;
}

int raw_open(struct broker *broker, struct wire_in *message, struct frame *frame,
			 const struct kernel_limits *limits, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *raw = wire_get(&message->root, "raw");
	const char *name = wire_get_str(message, raw, "name");
	const char *entry = wire_get_str(message, raw, "entry");
	struct kernel_plan plan;
	int status = plan_raw(name && *name ? name : "raw.cu", entry ? entry : "", &plan, error);
	if (status != KILN_OK)
		return status;
	struct kernel_ref *ref = kernel_new(&plan, limits);
	if (!ref || !(ref->raw = calloc(1, sizeof(*ref->raw))) ||
		!(ref->files = calloc(COMPILE_MAX_HEADERS, sizeof(*ref->files)))) {
		kernel_drop(ref);
		return ERROR(KILN_ENOMEM, "out of memory for a kernel");
	}
	ref->raw->fd = -1;
	ref->job.files = ref->files;
	ref->job.check = broker->options.memcheck && !strcmp(limits->target, "cpu");
	status = fill_raw_job(broker, message, frame, ref, error);
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
	int status = read_texts(ref->raw, error);
	if (status != KILN_OK)
		return status;
	place_texts(sources, ref);
	status = compile_check_user(&ref->job, error);
	if (status == KILN_OK)
		ref->line = line_of_raw(&ref->job, ref->raw->standard);
	return status;
}

const char *raw_label(const struct kernel_plan *plan, char label[160])
{
	snprintf(label, 160, "kernel %.*s of %s", PLAIN_CUT(plan->instantiation, 80), plan->source);
	return label;
}
