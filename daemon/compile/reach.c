/*
 * reach: which directories a compiler of the host needs to read, from where it lies.  Everything
 * else is kept from it: a source that names another file gets nothing of it.
 */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

/* Where distributions put programs, libraries and what the loader reads. */
static const char *const system_places[] = {
	"/usr",
	"/lib",
	"/lib64",
	"/lib32",
	"/libx32",
	"/bin",
	"/sbin",
	"/opt",
	"/nix/store",
	"/gnu/store",
	"/etc/ld.so.cache",
	"/etc/ld.so.preload",
	"/etc/alternatives",
	"/dev/urandom",
};

static void add(struct compile_reach *out, const char *path, size_t length)
{
	size_t room = sizeof out->text - out->used;

	if (out->count == COMPILE_REACH || length == 0 || path[0] != '/' || length >= room)
		return;
	memcpy(out->text + out->used, path, length);
	out->text[out->used + length] = 0;
	out->paths[out->count++] = out->text + out->used;
	out->used += length + 1;
}

/* Without its last part. */
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

/* PREFIX of PREFIX/bin/program, else the program's directory. */
static void add_prefix(struct compile_reach *out, const char *program)
{
	size_t directory = parent(program, strlen(program));
	size_t prefix = parent(program, directory);
	bool in_bin = directory > 4 && memcmp(program + directory - 4, "/bin", 4) == 0;

	add(out, program, in_bin && !holds_home(program, prefix) ? prefix : directory);
}

void compile_reach_of(const char *program, struct compile_reach *out)
{
	const char *at = getenv("LD_LIBRARY_PATH");
	char *real = realpath(program, NULL);

	*out = (struct compile_reach){0};
	for (size_t i = 0; i < sizeof system_places / sizeof *system_places; i++)
		add(out, system_places[i], strlen(system_places[i]));
	add_prefix(out, program);
	if (real)
		add_prefix(out, real);
	free(real);
	for (; at && *at; at += strcspn(at, ":"), at += *at == ':')
		add(out, at, strcspn(at, ":"));
}
