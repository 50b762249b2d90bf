/*
 * key: everything that can change the bits of an object, as a text for people and its hash for the
 * cache.  Assembled here and nowhere else; no path, process number or date goes in.
 *
 * A line each, and no value can hold the end of a line.  Whoever changes what an unchanged job
 * compiles to (the order of the unit, its prefix, how an option is chosen) raises KEY_SCHEMA.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

#define KEY_SCHEMA 1

static void add_value(struct util_text *text, const char *name, const char *value)
{
	util_text_add(text, "%s ", name);
	for (const char *at = value; *at; at++) {
		unsigned char c = (unsigned char)*at;

		if (c < 0x20 || c == 0x7f || c == '\\')
			util_text_add(text, "\\x%02x", c);
		else
			util_text_bytes(text, at, 1);
	}
	util_text_add(text, "\n");
}

static void add_options(struct util_text *text, const struct compile_job *job)
{
	const struct compile_option *option =
		options_is_cpu(job->target) ? options_host : options_nvrtc;

	util_text_add(text, "options");
	for (; option->text; option++)
		if (options_for_job(option, job))
			util_text_add(text, " %s", option->text);
	util_text_add(text, "\n");
}

/* What only a user's job has. */
static void add_user(struct util_text *text, const struct compile_job *job)
{
	util_text_add(text, "user %d\n", job->user_files);
	for (int i = 0; i < job->option_count; i++)
		add_value(text, "option", job->options[i]);
	for (int i = 0; i < job->macro_count; i++) {
		add_value(text, "macro", job->macros[i].name);
		add_value(text, "is", job->macros[i].value);
	}
}

static void add_file(struct util_text *text, const struct compile_file *file)
{
	unsigned char digest[32];
	struct util_hash hash;
	char hex[KERNEL_KEY_HEX];

	util_hash_begin(&hash);
	util_hash_add(&hash, file->text, file->bytes);
	util_hash_end(&hash, digest);
	util_hex(digest, sizeof digest, hex);
	util_text_add(text, "file %s", hex);
	add_value(text, "", file->name);
}

int compile_key_make(const struct compile_job *job, const char *toolchain_id,
					 struct compile_key *out)
{
	struct util_text text = {0};
	unsigned char digest[32];
	struct util_hash hash;

	util_text_add(&text, "kiln-key %d\n", KEY_SCHEMA);
	add_value(&text, "target", job->target);
	add_value(&text, "toolchain", toolchain_id);
	add_options(&text, job);
	add_value(&text, "source", job->source);
	add_value(&text, "instantiation", job->instantiation);
	if (job->user_files)
		add_user(&text, job);
	for (int i = 0; i < job->file_count; i++)
		add_file(&text, &job->files[i]);
	if (text.failed) {
		util_text_free(&text);
		return KILN_ENOMEM;
	}
	util_hash_begin(&hash);
	util_hash_add(&hash, text.text, text.size);
	util_hash_end(&hash, digest);
	util_hex(digest, sizeof digest, out->hex);
	out->text = text.text;
	return KILN_OK;
}

void compile_key_free(struct compile_key *key)
{
	free(key->text);
	*key = (struct compile_key){0};
}
