/*
 * compiler_folders: which directories a compiler of the host needs to read, from where it
 * lies.  Everything else is kept from it: a source that names another file gets nothing of it.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Distributions put programs, libraries, headers and the loader's files here. */
static const char *const parts[] = {"bin",   "sbin",   "lib",     "lib32",
									"lib64", "libx32", "libexec", "include"};
static const char *const shared_prefixes[] = {"", "/usr", "/usr/local"};
static const char *const system_places[] = {
	"/nix/store",         "/gnu/store",        "/etc/ld.so.cache",
	"/etc/ld.so.preload", "/etc/alternatives", "/dev/urandom",
};

static void add_path(struct compile_reach *out, const char *path, size_t length)
{
	size_t room = sizeof(out->text) - out->used;

	if (out->count == COMPILE_REACH || length == 0 || path[0] != '/' || length >= room)
		return;
	memcpy(out->text + out->used, path, length);
	out->text[out->used + length] = 0;
	out->paths[out->count++] = out->text + out->used;
	out->used += length + 1;
}

/* Returns the length without the last part. */
static size_t parent(const char *path, size_t length)
{
	while (length > 0 && path[length - 1] != '/')
		length--;
	while (length > 1 && path[length - 1] == '/')
		length--;
	return length;
}

/* All of the user's own files are below it. */
static bool holds_home(const char *path, size_t length)
{
	const char *home = getenv("HOME");

	return length <= 1 ||
		   (home && strncmp(home, path, length) == 0 && (home[length] == 0 || home[length] == '/'));
}

/* Other things lie there as well: manuals, data of programs, sources. */
static bool is_shared(const char *path, size_t length)
{
	for (size_t i = 0; i < sizeof(shared_prefixes) / sizeof(*shared_prefixes); i++)
		if (strlen(shared_prefixes[i]) == length && !memcmp(shared_prefixes[i], path, length))
			return true;
	return false;
}

/* PREFIX of PREFIX/bin/program where that is the compiler's own, else the program's directory. */
static void add_prefix(struct compile_reach *out, const char *program)
{
	size_t directory = parent(program, strlen(program));
	size_t prefix = parent(program, directory);
	bool in_bin = directory > 4 && memcmp(program + directory - 4, "/bin", 4) == 0;

	bool own = in_bin && !holds_home(program, prefix) && !is_shared(program, prefix);
	add_path(out, program, own ? prefix : directory);
}

void compile_reach_of(const char *program, struct compile_reach *out)
{
	const char *at = getenv("LD_LIBRARY_PATH");
	char *real = realpath(program, NULL), path[64];

	*out = (struct compile_reach){0};
	for (size_t i = 0; i < sizeof(shared_prefixes) / sizeof(*shared_prefixes); i++)
		for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++) {
			int length = snprintf(path, sizeof(path), "%s/%s", shared_prefixes[i], parts[k]);
			add_path(out, path, (size_t)length);
		}
	for (size_t i = 0; i < sizeof(system_places) / sizeof(*system_places); i++)
		add_path(out, system_places[i], strlen(system_places[i]));
	add_prefix(out, program);
	if (real)
		add_prefix(out, real);
	free(real);
	for (; at && *at; at += strcspn(at, ":"), at += *at == ':')
		add_path(out, at, strcspn(at, ":"));
}
