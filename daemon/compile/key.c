/*
 * key: everything that can change the bits of an object, as a text for people and its hash for the
 * cache; and back to what was compiled.  Assembled here and nowhere else; no path, process number
 * or date goes in.
 *
 * A line each, and no value can hold the end of a line.  A change of what an unchanged job compiles
 * to (the order of the unit, its prefix, how an option is chosen) raises KEY_SCHEMA.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SCHEMA 3
#define KEY_FIRST_LINE "kiln-key %d\n"

static void add_value(struct util_text *text, const char *name, const char *value)
{
	util_text_bytes(text, name, strlen(name));
	util_text_bytes(text, " ", 1);
	while (*value) {
		size_t plain = 0;

		while ((unsigned char)value[plain] >= 0x20 && value[plain] != 0x7f && value[plain] != '\\')
			plain++;
		util_text_bytes(text, value, plain);
		value += plain;
		if (*value)
			util_text_add(text, "\\x%02x", (unsigned char)*value++);
	}
	util_text_bytes(text, "\n", 1);
}

static void add_options(struct util_text *text, const struct compile_job *job)
{
	const struct compile_option *option =
		options_is_cpu(job->target) ? options_host : options_nvrtc;

	util_text_bytes(text, "options", 7);
	for (; option->text; option++)
		if (options_for_job(option, job)) {
			util_text_bytes(text, " ", 1);
			util_text_bytes(text, option->text, strlen(option->text));
		}
	util_text_bytes(text, "\n", 1);
}

/* Only the job of a user has these. */
static void add_user(struct util_text *text, const struct compile_job *job)
{
	util_text_add(text, "user %d\n", job->user_files);
	if (job->by_name)
		util_text_add(text, "headers by name\n");
	for (int i = 0; i < job->option_count; i++)
		add_value(text, "option", job->options[i]);
	for (int i = 0; i < job->macro_count; i++) {
		add_value(text, "macro", job->macros[i].name);
		add_value(text, "is", job->macros[i].value);
	}
}

/* The hash of a text, which becomes the key's. */
static int finish_key(struct util_text *text, struct compile_key *out)
{
	if (text->failed) {
		util_text_free(text);
		return KILN_ENOMEM;
	}
	util_hash_hex(text->text, text->size, out->hex);
	out->text = text->text;
	return KILN_OK;
}

int compile_key_make(const struct compile_job *job, const char *toolchain_id,
					 struct compile_key *out)
{
	struct util_text text = {0};

	util_text_add(&text, KEY_FIRST_LINE, KEY_SCHEMA);
	add_value(&text, "target", job->target);
	add_value(&text, "toolchain", toolchain_id);
	add_options(&text, job);
	add_value(&text, "source", job->source);
	add_value(&text, "instantiation", job->instantiation);
	if (job->user_files)
		add_user(&text, job);
	for (int i = 0; i < job->file_count; i++) {
		const struct compile_file *file = &job->files[i];
		char hex[UTIL_HASH_HEX];
		if (!file->hash)
			util_hash_hex(file->text, file->bytes, hex);
		util_text_bytes(&text, "file ", 5);
		util_text_bytes(&text, file->hash ? file->hash : hex, UTIL_HASH_HEX - 1);
		add_value(&text, "", file->name);
	}
	return finish_key(&text, out);
}

int compile_key_again(const char *key_text, const char *target, const char *toolchain_id,
					  struct compile_key *out)
{
	static const char *const names[] = {"target", "toolchain"};
	const char *const values[] = {target, toolchain_id};
	struct util_text text = {0};
	const char *at = key_text;

	while (*at) {
		size_t size = strcspn(at, "\n");
		int changed = -1;

		for (int i = 0; i < 2; i++)
			if (strncmp(at, names[i], strlen(names[i])) == 0 && at[strlen(names[i])] == ' ')
				changed = i;
		if (changed >= 0)
			add_value(&text, names[changed], values[changed]);
		else
			util_text_add(&text, "%.*s\n", (int)size, at);
		at += size + (at[size] == '\n');
	}
	return finish_key(&text, out);
}

void compile_key_free(struct compile_key *key)
{
	free(key->text);
	*key = (struct compile_key){0};
}

/* ---- And back ---- */

/* Undoes what add_value did to a value, in place. */
static void read_value(char *text)
{
	char *to = text;

	while (*text) {
		unsigned code;

		if (text[0] == '\\' && sscanf(text, "\\x%2x", &code) == 1 && strlen(text) >= 4) {
			*to++ = (char)code;
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = 0;
}

/* The value of a line with this name, or NULL. */
static char *value_of(char *line, const char *name)
{
	size_t size = strlen(name);

	if (strncmp(line, name, size) != 0 || line[size] != ' ')
		return NULL;
	read_value(line + size + 1);
	return line + size + 1;
}

static void read_line(struct compile_again *out, char *line)
{
	struct compile_job *job = &out->job;
	char *value;

	if ((value = value_of(line, "target")))
		snprintf(job->target, sizeof(job->target), "%s", value);
	else if ((value = value_of(line, "toolchain")))
		snprintf(out->toolchain, sizeof(out->toolchain), "%s", value);
	else if ((value = value_of(line, "source")))
		job->source = value;
	else if ((value = value_of(line, "instantiation")))
		job->instantiation = value;
	else if (value_of(line, "user"))
		job->user_files = 1;
	else if (value_of(line, "headers"))
		job->by_name = true;
	else if ((value = value_of(line, "option")) && job->option_count < COMPILE_MAX_USER_OPTIONS)
		out->options[job->option_count++] = value;
}

/* Does the key have the options that the job would be compiled with? */
static bool has_options(const char *key_text, const struct compile_job *job)
{
	struct util_text text = {0};
	bool has;

	util_text_add(&text, "\n");
	add_options(&text, job);
	has = !text.failed && strstr(key_text, text.text);
	util_text_free(&text);
	return has;
}

int compile_again_open(const char *key_text, const char *unit, struct compile_again *out,
					   char error[KERNEL_ERROR_MAX])
{
	struct compile_job *job = &out->job;
	char first[32], *save = NULL;

	*out = (struct compile_again){.unit = {"unit", unit, strlen(unit)}};
	snprintf(first, sizeof(first), KEY_FIRST_LINE, KEY_SCHEMA);
	out->text = strdup(key_text);
	if (!out->text)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "no memory for a compile job");
	if (strncmp(key_text, first, strlen(first)) == 0)
		for (char *line = strtok_r(out->text, "\n", &save); line;
			 line = strtok_r(NULL, "\n", &save))
			read_line(out, line);
	job->whole = true;
	job->files = &out->unit;
	job->file_count = 1;
	job->options = out->options;
	if (job->source && job->instantiation) {
		job->check = !has_options(key_text, job);
		if (has_options(key_text, job))
			return KILN_OK;
	}
	compile_again_close(out);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "it was made by a kilnd that gave the compiler other options");
}

void compile_again_close(struct compile_again *again)
{
	free(again->text);
	*again = (struct compile_again){0};
}
