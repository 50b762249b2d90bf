/*
 * sources: the kernel sources as named texts, from inside the binary or from a directory, and the
 * list of files that one of them needs.  Does not know what is in them but for their #include
 * lines.
 */
#include "backend.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SOURCES_MAX_FILES 1024
#define SOURCES_MAX_DEPTH 8
#define SOURCES_MAX_BYTES (4u << 20) /* of one file */
#define SOURCES_SHIM "cpu/shim.cuh"

/* Made by the build from kernel_src: see its CMakeLists.txt. */
extern const struct compile_file kernel_src_files[];
extern const size_t kernel_src_count;

/* The files that a root needs for a kind of target.  They never change and finding them takes
 * long, so this process keeps them. */
struct known_closure {
	const struct compile_file *root;
	bool cpu;
	int count;
	struct known_closure *next;
	const struct compile_file *files[];
};

/* The files that a file includes itself, once it was scanned.  A root shares most of its files with
 * others, and to scan them all for each would stop the loop for a millisecond. */
struct known_needs {
	bool known;
	int count;
	const struct compile_file **files;
};

struct compile_sources {
	struct compile_file *files;    /* in the order of names */
	char (*hashes)[UTIL_HASH_HEX]; /* of them: a key needs those of dozens of files */
	struct known_needs *needs;     /* of them */
	size_t count;
	bool embedded; /* names and texts are the binary's */
	struct known_closure *closures;
};

static bool is_source(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
}

static int closure_add(struct compile_sources *sources, const char *path, const char *name,
					   char error[KERNEL_ERROR_MAX])
{
	struct compile_file *grown;
	size_t bytes;
	char *text;

	if (sources->count == SOURCES_MAX_FILES)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "%s: more than %d kernel sources under one directory", path,
						 SOURCES_MAX_FILES);
	if (!scan_name_ok(name))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "%s: the name of a kernel source has only letters, digits and _-+.", path);
	text = util_read_file(path, SOURCES_MAX_BYTES, &bytes);
	if (!text)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "cannot read kernel source %s: %s",
						 path, strerror(errno));
	if (strlen(text) != bytes) {
		free(text);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "kernel source %s has a zero byte in it", path);
	}
	grown = realloc(sources->files, (sources->count + 1) * sizeof(*grown));
	if (!grown) {
		free(text);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "no memory for kernel source %s",
						 path);
	}
	sources->files = grown;
	grown[sources->count++] =
		(struct compile_file){.name = util_strdup(name), .text = text, .bytes = bytes};
	return KILN_OK;
}

/* root_bytes: how much of path is the root and its slash. */
static int add_directory(struct compile_sources *sources, const char *path, size_t root_bytes,
						 int depth, char error[KERNEL_ERROR_MAX])
{
	struct dirent *entry;
	int status = KILN_OK;
	DIR *dir = opendir(path);

	if (!dir)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "cannot read kernel directory %s: %s",
						 path, strerror(errno));
	while (status == KILN_OK && (entry = readdir(dir))) {
		char below[1024];
		struct stat st;

		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= (int)sizeof(below))
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "%.100s...: the path is too long",
							   path);
		else if (stat(below, &st) != 0)
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "cannot look at %s: %s", below,
							   strerror(errno));
		else if (S_ISDIR(st.st_mode) && depth == SOURCES_MAX_DEPTH)
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
							   "%s: kernel directories go %d levels deep at most", below,
							   SOURCES_MAX_DEPTH);
		else if (S_ISDIR(st.st_mode))
			status = add_directory(sources, below, root_bytes, depth + 1, error);
		else if (S_ISREG(st.st_mode) && is_source(entry->d_name))
			status = closure_add(sources, below, below + root_bytes, error);
	}
	closedir(dir);
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct compile_file *)a)->name, ((const struct compile_file *)b)->name);
}

static void sum_all(struct compile_sources *sources)
{
	sources->hashes = util_alloc(sources->count * sizeof(*sources->hashes));
	for (size_t i = 0; i < sources->count; i++) {
		struct compile_file *file = &sources->files[i];

		util_hash_hex(file->text, file->bytes, sources->hashes[i]);
		file->hash = sources->hashes[i];
	}
	sources->needs = util_alloc(sources->count * sizeof(*sources->needs));
}

int compile_sources_open(const char *directory, struct compile_sources **out,
						 char error[KERNEL_ERROR_MAX])
{
	struct compile_sources *sources = util_alloc(sizeof(*sources));
	int status;

	if (!directory) {
		sources->embedded = true;
		sources->count = kernel_src_count;
		sources->files = util_alloc(sources->count * sizeof(*sources->files));
		memcpy(sources->files, kernel_src_files, sources->count * sizeof(*sources->files));
		sum_all(sources);
		*out = sources;
		return KILN_OK;
	}
	status = add_directory(sources, directory, strlen(directory) + 1, 0, error);
	if (status == KILN_OK && sources->count == 0)
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						   "kernel directory %s has no .cuh file under it", directory);
	if (status != KILN_OK) {
		compile_sources_close(sources);
		return status;
	}
	qsort(sources->files, sources->count, sizeof(*sources->files), by_name);
	sum_all(sources);
	*out = sources;
	return KILN_OK;
}

void compile_sources_close(struct compile_sources *sources)
{
	if (!sources)
		return;
	while (sources->closures) {
		struct known_closure *next = sources->closures->next;
		free(sources->closures);
		sources->closures = next;
	}
	for (size_t i = 0; !sources->embedded && i < sources->count; i++) {
		free((char *)sources->files[i].name);
		free((char *)sources->files[i].text);
	}
	for (size_t i = 0; sources->needs && i < sources->count; i++)
		free(sources->needs[i].files);
	free(sources->needs);
	free(sources->hashes);
	free(sources->files);
	free(sources);
}

const struct compile_file *compile_sources_at(const struct compile_sources *sources, size_t i)
{
	return i < sources->count ? &sources->files[i] : NULL;
}

const struct compile_file *compile_sources_find(const struct compile_sources *sources,
												const char *name)
{
	for (size_t i = 0; i < sources->count; i++)
		if (strcmp(sources->files[i].name, name) == 0)
			return &sources->files[i];
	return NULL;
}

/* ---- What a file needs ---- */

struct closure {
	struct compile_sources *sources;
	const struct compile_file **files; /* finished, headers before users */
	int count;
	const struct compile_file *open[COMPILE_MAX_HEADERS]; /* from the first file to this one */
	int depth;
	char *error;
};

static bool among(const struct compile_file *const *files, int count,
				  const struct compile_file *file)
{
	for (int i = 0; i < count; i++)
		if (files[i] == file)
			return true;
	return false;
}

static int visit(struct closure *closure, const struct compile_file *file);

static int visit_include(struct closure *closure, const struct compile_file *user, int line,
						 const struct compile_file *file, const char *name)
{
	if (!file)
		return util_fail(
			closure->error, KERNEL_ERROR_MAX, KILN_ENOENT,
			"%s:%d includes \"%s\", which is no kernel source (names start at the root "
			"of kernel_src)",
			user->name, line, name);
	if (among(closure->open, closure->depth, file))
		return util_fail(
			closure->error, KERNEL_ERROR_MAX, KILN_EINVAL,
			"%s:%d includes \"%s\", which includes %s: includes must not go in a circle",
			user->name, line, name, file == user ? "itself" : user->name);
	return visit(closure, file);
}

/* Keeps what a file includes; without memory the next root scans the file again. */
static void remember_needs(struct known_needs *needs, const struct compile_file *const *files,
						   int count)
{
	if (count && !(needs->files = malloc((size_t)count * sizeof(*files))))
		return;
	if (count)
		memcpy(needs->files, files, (size_t)count * sizeof(*files));
	needs->count = count;
	needs->known = true;
}

static int scan_needs(struct closure *closure, const struct compile_file *file,
					  struct known_needs *needs)
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;
	int status = KILN_OK, count = 0;

	scan_begin(&scan, file);
	while (status == KILN_OK && (kind = scan_next(&scan, &line)) != SCAN_END) {
		if (kind == SCAN_INCLUDE) {
			const struct compile_file *need = compile_sources_find(closure->sources, line.name);
			status = visit_include(closure, file, line.number, need, line.name);
			if (!among(found, count, need) && count < COMPILE_MAX_HEADERS)
				found[count++] = need;
		} else if (kind == SCAN_FOREIGN) {
			status = util_fail(closure->error, KERNEL_ERROR_MAX, KILN_EINVAL,
							   "%s:%d: kernel sources include only each other, as #include "
							   "\"directory/name.cuh\"",
							   file->name, line.number);
		}
	}
	if (status == KILN_OK)
		remember_needs(needs, found, count);
	return status;
}

static int visit(struct closure *closure, const struct compile_file *file)
{
	struct known_needs *needs = &closure->sources->needs[file - closure->sources->files];
	int status = KILN_OK;

	if (among(closure->files, closure->count, file))
		return KILN_OK;
	if (closure->depth == COMPILE_MAX_HEADERS || closure->count == COMPILE_MAX_HEADERS)
		return util_fail(closure->error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%s: a kernel has %d source files at most", file->name,
						 COMPILE_MAX_HEADERS);
	closure->open[closure->depth++] = file;
	if (!needs->known)
		status = scan_needs(closure, file, needs);
	else
		for (int i = 0; i < needs->count && status == KILN_OK; i++)
			status = visit(closure, needs->files[i]);
	closure->depth--;
	if (status != KILN_OK)
		return status;
	if (closure->count == COMPILE_MAX_HEADERS)
		return util_fail(closure->error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%s: a kernel has %d source files at most", file->name,
						 COMPILE_MAX_HEADERS);
	closure->files[closure->count++] = file;
	return KILN_OK;
}

static int visit_root(struct closure *closure, const char *name)
{
	const struct compile_file *file = compile_sources_find(closure->sources, name);

	if (!file)
		return util_fail(closure->error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "there is no kernel source %s", name);
	return visit(closure, file);
}

/* Keeps the answer for the next request, which looks again if there was no memory. */
static void remember(struct compile_sources *sources, const struct compile_file *root, bool cpu,
					 const struct compile_file *const *files, int count)
{
	size_t bytes = (size_t)count * sizeof(*files);
	struct known_closure *known = malloc(sizeof(*known) + bytes);

	if (!known)
		return;
	*known = (struct known_closure){root, cpu, count, sources->closures};
	memcpy(known->files, files, bytes);
	sources->closures = known;
}

/* The file asked for last stands first: programs ask for few files, and for them again. */
static const struct known_closure *recall(struct compile_sources *sources, const char *name,
										  bool cpu)
{
	struct known_closure **link = &sources->closures, *known;

	while ((known = *link) && (known->cpu != cpu || strcmp(known->root->name, name) != 0))
		link = &known->next;
	if (known) {
		*link = known->next;
		known->next = sources->closures;
		sources->closures = known;
	}
	return known;
}

int compile_sources_closure(struct compile_sources *sources, const char *name, const char *target,
							const struct compile_file **files, int *count,
							char error[KERNEL_ERROR_MAX])
{
	struct closure closure = {.sources = sources, .files = files, .error = error};
	bool cpu = options_is_cpu(target);
	const struct known_closure *known = recall(sources, name, cpu);
	int status = KILN_OK;

	if (known) {
		memcpy(files, known->files, (size_t)known->count * sizeof(*files));
		*count = known->count;
		return KILN_OK;
	}
	if (cpu)
		status = visit_root(&closure, SOURCES_SHIM);
	if (status == KILN_OK)
		status = visit_root(&closure, name);
	if (status != KILN_OK)
		return status;
	*count = closure.count;
	remember(sources, compile_sources_find(sources, name), cpu, files, closure.count);
	return KILN_OK;
}

int compile_sources_of_plan(struct compile_sources *sources, const struct kernel_plan *plan,
							const char *target, struct compile_file *files, int *count,
							char error[KERNEL_ERROR_MAX])
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	int status = compile_sources_closure(sources, plan->source, target, found, count, error);

	if (status != KILN_OK)
		return status;
	if (*count + (plan->generated[0] != 0) > COMPILE_MAX_HEADERS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "%s needs %d files, and what is generated is one more; the most are %d",
						 plan->source, *count, COMPILE_MAX_HEADERS);
	for (int i = 0; i < *count; i++)
		files[i] = *found[i];
	if (plan->generated[0])
		files[(*count)++] =
			(struct compile_file){COMPILE_GENERATED, plan->generated, strlen(plan->generated)};
	return KILN_OK;
}
