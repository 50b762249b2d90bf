/*
 * job: the messages between broker and worker.  Both roles of the program use both directions'
 * functions, so that the members are named in one place.  Knows no socket.
 */
#include "backend.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <stdlib.h>
#include <string.h>

const char *const compile_phase_names[] = {"source and headers", "compiler", "log", "names",
										   "object"};

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

static void toolchain_write(struct wire_out *out, const char *key,
							const struct compile_toolchain *toolchain)
{
	wire_map_begin(out, key);
	wire_put_str(out, "id", toolchain->id);
	wire_put_str(out, "stamp", toolchain->stamp);
	wire_put_str(out, "reason", toolchain->reason);
	wire_put_str(out, "targets", toolchain->targets);
	wire_map_end(out);
}

void compile_ready_write(struct wire_out *out, const struct compile_toolchains *toolchains)
{
	wire_begin(out, "ready", 0);
	wire_put_str(out, "build", util_build());
	toolchain_write(out, "nvrtc", &toolchains->nvrtc);
	toolchain_write(out, "host", &toolchains->host);
	wire_put_str(out, "sandbox", toolchains->sandbox);
}

static bool toolchain_read(struct wire_in *in, const char *key, struct compile_toolchain *out)
{
	const msgpack_object *map = wire_get(&in->root, key);

	copy_text(out->id, sizeof(out->id), wire_get_str(in, map, "id"));
	copy_text(out->stamp, sizeof(out->stamp), wire_get_str(in, map, "stamp"));
	copy_text(out->reason, sizeof(out->reason), wire_get_str(in, map, "reason"));
	copy_text(out->targets, sizeof(out->targets), wire_get_str(in, map, "targets"));
	return map != NULL;
}

int compile_ready_read(struct wire_in *in, struct compile_toolchains *toolchains)
{
	struct compile_toolchains read = {0};

	if (strcmp(wire_type(in), "ready") != 0)
		return KILN_EPROTO;
	if (!toolchain_read(in, "nvrtc", &read.nvrtc) || !toolchain_read(in, "host", &read.host))
		return KILN_EPROTO;
	copy_text(read.sandbox, sizeof(read.sandbox), wire_get_str(in, &in->root, "sandbox"));
	*toolchains = read;
	return KILN_OK;
}

static void user_write(struct wire_out *out, const struct compile_job *job)
{
	wire_put_int(out, "user", job->user_files);
	wire_put_bool(out, "names", job->by_name);
	wire_list_begin(out, "macros");
	for (int i = 0; i < job->macro_count; i++)
		wire_put_macro(out, job->macros[i].name, job->macros[i].value);
	wire_list_end(out);
	wire_list_begin(out, "options");
	for (int i = 0; i < job->option_count; i++)
		wire_put_option(out, job->options[i]);
	wire_list_end(out);
}

void compile_job_write(struct wire_out *out, uint64_t id, const struct compile_job *job)
{
	wire_begin(out, "job", id);
	wire_put_str(out, "target", job->target);
	wire_put_str(out, "source", job->source);
	wire_put_str(out, "inst", job->instantiation);
	wire_list_begin(out, "files");
	for (int i = 0; i < job->file_count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "n", job->files[i].name);
		if (job->files[i].text)
			wire_put_bin(out, "b", job->files[i].text, job->files[i].bytes);
		else
			wire_put_uint(out, "c", job->files[i].bytes);
		wire_map_end(out);
	}
	wire_list_end(out);
	if (job->user_files)
		user_write(out, job);
	wire_put_bool(out, "check", job->check);
	wire_put_bool(out, "whole", job->whole);
	wire_put_uint(out, "delay", job->delay_ms);
	wire_put_int(out, "misdeed", job->test_misdeed);
}

static bool file_read(struct wire_in *in, const msgpack_object *map, struct compile_file *out)
{
	out->name = wire_get_str(in, map, "n");
	uint64_t bytes = wire_get_uint(map, "c", UINT64_MAX);
	out->text = wire_get_bin(map, "b", &out->bytes);
	if (!out->text) {
		bool aside = bytes <= COMPILE_MAX_TEXTS;
		out->text = aside ? NULL : "";
		out->bytes = aside ? (size_t)bytes : 0;
	}
	return out->name && out->name[0] && (wire_get(map, "b") || !out->text);
}

static bool user_read(struct wire_in *in, struct compile_job *job, struct compile_job_room *room)
{
	const msgpack_object *macros = wire_get(&in->root, "macros");
	const msgpack_object *options = wire_get(&in->root, "options");
	uint32_t macro_count = wire_count(macros), option_count = wire_count(options);
	int64_t files = wire_get_int(&in->root, "user", 0);

	if (files < 0 || files > job->file_count || macro_count > COMPILE_MAX_MACROS ||
		option_count > COMPILE_MAX_USER_OPTIONS)
		return false;
	for (uint32_t i = 0; i < macro_count; i++) {
		room->macros[i].name = wire_get_str(in, wire_at(macros, i), "n");
		room->macros[i].value = wire_get_str(in, wire_at(macros, i), "v");
		if (!room->macros[i].name || !room->macros[i].value)
			return false;
	}
	for (uint32_t i = 0; i < option_count; i++)
		if ((room->options[i] = wire_get_str(in, wire_at(options, i), "o")) == NULL)
			return false;
	job->user_files = (int)files;
	job->by_name = wire_get_bool(&in->root, "names", false);
	job->macros = room->macros;
	job->macro_count = (int)macro_count;
	job->options = room->options;
	job->option_count = (int)option_count;
	return true;
}

int compile_job_read(struct wire_in *in, uint64_t *id, struct compile_job *job,
					 struct compile_job_room *room)
{
	struct compile_file *files = room->files;
	const msgpack_object *list = wire_get(&in->root, "files");
	const char *target = wire_get_str(in, &in->root, "target");
	struct compile_job read = {.files = files};
	uint32_t count = wire_count(list);

	if (strcmp(wire_type(in), "job") != 0 || !list || list->type != MSGPACK_OBJECT_ARRAY)
		return KILN_EPROTO;
	if (!target || strlen(target) >= sizeof(read.target) || count > COMPILE_MAX_FILES)
		return KILN_EPROTO;
	copy_text(read.target, sizeof(read.target), target);
	read.source = wire_get_str(in, &in->root, "source");
	read.instantiation = wire_get_str(in, &in->root, "inst");
	if (!read.source || !read.instantiation)
		return KILN_EPROTO;
	for (uint32_t i = 0; i < count; i++)
		if (!file_read(in, wire_at(list, i), &files[i]))
			return KILN_EPROTO;
	read.file_count = (int)count;
	if (!user_read(in, &read, room))
		return KILN_EPROTO;
	read.check = wire_get_bool(&in->root, "check", false);
	read.whole = wire_get_bool(&in->root, "whole", false);
	read.delay_ms = (uint32_t)(wire_get_uint(&in->root, "delay", 0) & UINT32_MAX);
	read.test_misdeed = (int)(wire_get_uint(&in->root, "misdeed", 0) & 0xff);
	*id = wire_id(in);
	*job = read;
	return KILN_OK;
}

int compile_job_texts(int fd, struct compile_job *job, struct compile_job_room *room, char **texts)
{
	size_t all = 0, at = 0;
	bool aside = false;
	*texts = NULL;
	for (int i = 0; i < job->file_count; i++)
		if (!room->files[i].text) {
			aside = true;
			all += room->files[i].bytes;
		}
	if (!aside)
		return KILN_OK;
	if (all > COMPILE_MAX_TEXTS || !frame_fd_is_safe(fd, all))
		return KILN_EPROTO;
	*texts = malloc(all + 1);
	if (!*texts)
		return KILN_ENOMEM;
	if (!frame_read_fd(fd, *texts, all)) {
		free(*texts);
		*texts = NULL;
		return KILN_EPROTO;
	}
	for (int i = 0; i < job->file_count; i++)
		if (!room->files[i].text) {
			room->files[i].text = *texts + at;
			at += room->files[i].bytes;
		}
	return KILN_OK;
}

void compile_result_write(struct wire_out *out, uint64_t id, const struct compile_result *result)
{
	wire_begin(out, "result", id);
	wire_put_int(out, "st", result->status);
	wire_put_str(out, "err", result->error);
	wire_put_str(out, "entry", result->entry);
	wire_put_str(out, "source", result->source);
	wire_put_str(out, "log", result->log);
	if (result->object)
		wire_put_bin(out, "object", result->object, result->object_bytes);
	wire_put_int(out, "regs", result->registers);
	wire_put_int(out, "shared", result->shared_bytes);
	wire_put_int(out, "spill", result->spill_bytes);
	wire_put_int(out, "local", result->local_bytes);
	wire_put_int(out, "us", result->micros);
	wire_put_int(out, "grew", result->peak_bytes);
	wire_list_begin(out, "phases");
	for (int i = 0; i < COMPILE_PHASES; i++) {
		wire_put_uint(out, NULL, result->spans[i].begin_us);
		wire_put_uint(out, NULL, result->spans[i].end_us);
	}
	wire_list_end(out);
}

/* False without memory; an absent member stays NULL. */
static bool copy_member(struct wire_in *in, const char *key, char **out)
{
	const char *text = wire_get_str(in, &in->root, key);

	*out = text ? strdup(text) : NULL;
	return !text || *out;
}

static bool copy_object(struct wire_in *in, struct compile_result *out)
{
	size_t bytes;
	const void *object = wire_get_bin(&in->root, "object", &bytes);

	if (!object || bytes == 0)
		return true;
	out->object = malloc(bytes);
	if (!out->object)
		return false;
	memcpy(out->object, object, bytes);
	out->object_bytes = bytes;
	return true;
}

int compile_result_read(struct wire_in *in, uint64_t *id, struct compile_result *result)
{
	const msgpack_object *root = &in->root;
	struct compile_result read = {0};
	int64_t status = wire_get_int(root, "st", 1), phases[2 * COMPILE_PHASES];

	if (strcmp(wire_type(in), "result") != 0 || !kernel_status_is(status))
		return KILN_EPROTO;
	read.status = (int)status;
	copy_text(read.error, sizeof(read.error), wire_get_str(in, root, "err"));
	read.registers = wire_get_int(root, "regs", -1);
	read.shared_bytes = wire_get_int(root, "shared", -1);
	read.spill_bytes = wire_get_int(root, "spill", -1);
	read.local_bytes = wire_get_int(root, "local", -1);
	read.micros = wire_get_int(root, "us", 0);
	read.peak_bytes = wire_get_int(root, "grew", 0);
	if (wire_get_ints(root, "phases", phases, 2 * COMPILE_PHASES) == 2 * COMPILE_PHASES)
		for (int i = 0; i < COMPILE_PHASES; i++)
			read.spans[i] =
				(struct compile_span){(uint64_t)phases[2 * i], (uint64_t)phases[2 * i + 1]};
	if (!copy_member(in, "entry", &read.entry) || !copy_member(in, "source", &read.source) ||
		!copy_member(in, "log", &read.log) || !copy_object(in, &read)) {
		compile_result_free(&read);
		return KILN_ENOMEM;
	}
	/* Compilers for all targets make ELF files. */
	if (read.status == KILN_OK &&
		(read.object_bytes < 4 || memcmp(read.object, "\177ELF", 4) != 0 || !read.entry)) {
		compile_result_free(&read);
		return KILN_EPROTO;
	}
	*id = wire_id(in);
	*result = read;
	return KILN_OK;
}

void compile_result_begin(struct compile_result *result)
{
	*result = (struct compile_result){
		.registers = -1, .shared_bytes = -1, .spill_bytes = -1, .local_bytes = -1};
}

void compile_result_free(struct compile_result *result)
{
	free(result->entry);
	free(result->source);
	free(result->log);
	free(result->object);
	result->entry = result->source = result->log = NULL;
	result->object = NULL;
	result->object_bytes = 0;
}
