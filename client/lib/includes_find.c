/*
 * includes_find.c: looks for headers in folders, and reads them.  Only ordinary files are read, and
 * no more of them than can be sent: whatever else has the name of a header is refused.
 */
#include "client/wire/plain.h"
#include "includes_state.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Paths ---- */

static const char *path_join(struct includes *found, const char *folder, const char *name)
{
	size_t first = strlen(folder), second = strlen(name) + 1;
	if (name[0] == '/' || first == 0)
		return includes_copy(found, name, second - 1);
	bool slash = folder[first - 1] != '/';
	char *path = includes_keep(found, first + slash + second);
	if (path) {
		memcpy(path, folder, first);
		path[first] = '/';
		memcpy(path + first + slash, name, second);
	}
	return path;
}

const char *find_parent(struct includes *found, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!slash)
		return "";
	return includes_copy(found, path, slash > path ? (size_t)(slash - path) : 1);
}

const char *find_joined(struct includes *found, const char *folder, const char *name)
{
	const char *joined = path_join(found, folder, name);
	char *out = joined ? includes_keep(found, strlen(joined) + 2) : NULL;
	size_t used = 0, root = joined && joined[0] == '/';
	int parts = 0; /* that a ".." can take away */
	if (!out)
		return NULL;
	if (root)
		out[used++] = '/';
	for (const char *at = joined; *at; at += *at == '/') {
		size_t size = strcspn(at, "/");
		bool up = size == 2 && memcmp(at, "..", 2) == 0;
		if (up && parts > 0) {
			while (used > root && out[used - 1] != '/')
				used--;
			used -= used > root;
			parts--;
		} else if (size > 0 && !(size == 1 && *at == '.') && !(up && root)) {
			if (used > root)
				out[used++] = '/';
			memcpy(out + used, at, size);
			used += size;
			parts += !up;
		}
		at += size;
	}
	out[used] = 0;
	return out;
}

static const char *absolute(struct includes *found, const char *path)
{
	char here[4096];
	return path[0] == '/' || !getcwd(here, sizeof(here)) ? find_joined(found, "", path)
														 : find_joined(found, here, path);
}

/* ---- Folders ---- */

static bool has_file(struct includes *found, const char *folder, const char *name)
{
	struct stat status;
	const char *path = path_join(found, folder, name);
	return path && stat(path, &status) == 0;
}

int find_folders(struct includes *found, const kiln_raw *raw)
{
	if (raw->folder_count > INCLUDES_FOLDERS)
		return includes_fail(found, KILN_ELIMIT, "raw has %d folders; the most is %d",
							 raw->folder_count, INCLUDES_FOLDERS);
	for (int i = 0; i < raw->folder_count; i++) {
		const char *folder = raw->folders[i];
		struct stat status;
		if (!folder || !folder[0])
			return includes_fail(found, KILN_EINVAL, "folder %d of raw is %s", i,
								 folder ? "empty" : "NULL");
		if (stat(folder, &status) != 0)
			return includes_fail(found, errno == ENOENT ? KILN_ENOENT : KILN_EIO,
								 "the folder %s to include from cannot be read: %s", folder,
								 strerror(errno));
		if (!S_ISDIR(status.st_mode))
			return includes_fail(found, KILN_EINVAL, "%s is no folder to include from", folder);
		found->folders[found->folder_count++] = folder;
	}
	for (int i = 0; i < raw->toolkit_count; i++)
		if (!raw->toolkits[i])
			return includes_fail(found, KILN_EINVAL, "toolkit %d of raw is NULL", i);
	found->toolkit_count = -1;
	return KILN_OK;
}

/* Finds CUB where Python's packages for CUDA 12 have it: nvidia/cuda_cccl/include beside
 * nvidia/cuda_runtime/include. */
static const char *cub_apart(struct includes *found, const char *include)
{
	return find_joined(found, include, "../../cuda_cccl/include");
}

/* Takes the folders of a toolkit whose headers lie in include; false: there is none. */
static bool take_toolkit(struct includes *found, const char *include)
{
	if (!include || !has_file(found, include, "cuda.h"))
		return false;
	found->toolkit[found->toolkit_count++] = include;
	found->toolkit[found->toolkit_count++] = path_join(found, include, "cccl");
	const char *apart = cub_apart(found, include);
	if (apart && has_file(found, apart, ""))
		found->toolkit[found->toolkit_count++] = apart;
	return true;
}

static bool has_cub(struct includes *found, const char *include)
{
	const char *apart = cub_apart(found, include);
	return has_file(found, include, "cub") || has_file(found, include, "cccl/cub") ||
		   (apart && has_file(found, apart, "cub"));
}

/* A folder of the caller's that is a toolkit's has the others beside it. */
static void find_toolkit(struct includes *found)
{
	static const char *const variables[] = {"KILN_CUDA_DIR", "CUDA_HOME", "CUDA_PATH"};
	const kiln_raw *raw = &found->raw;
	bool taken = false;
	found->toolkit_count = 0;
	for (int i = 0; i < found->folder_count && !taken; i++)
		taken = take_toolkit(found, found->folders[i]);
	for (int i = 0; i < 3 && !taken; i++) {
		const char *root = getenv(variables[i]);
		taken = root && root[0] && take_toolkit(found, path_join(found, root, "include"));
	}
	for (int round = 0; round < 2 && !taken; round++)
		for (int i = 0; i <= raw->toolkit_count && !taken; i++) {
			const char *include =
				i < raw->toolkit_count ? raw->toolkits[i] : "/usr/local/cuda/include";
			taken = (round > 0 || has_cub(found, include)) && take_toolkit(found, include);
		}
}

/* ---- Files ---- */

/* The daemon has these itself, in a short form, unless a folder has them. */
static bool is_standard(const char *name)
{
	static const char *const names[] = {"stdint.h", "cstdint", "stddef.h",      "cstddef",
										"float.h",  "cfloat",  "limits.h",      "climits",
										"math.h",   "cmath",   "stdio.h",       "cstdio",
										"assert.h", "cassert", "cuda_runtime.h"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* Likewise, but other headers of the toolkit need the toolkit's. */
static bool is_short(const char *name)
{
	return strcmp(name, "cuda_fp16.h") == 0 || strcmp(name, "cuda_bf16.h") == 0;
}

/* True: the place has the file, or the search has failed. */
static bool look_in(struct includes *found, const char *folder, enum where where,
					struct place *place)
{
	const char *path = path_join(found, folder, place->name);
	struct stat status;
	if (!path)
		return true;
	if (stat(path, &status) != 0 || S_ISDIR(status.st_mode))
		return false;
	if (!S_ISREG(status.st_mode)) {
		includes_fail(found, KILN_EINVAL, "the header %s is a %s; only ordinary files are read",
					  path,
					  S_ISFIFO(status.st_mode)   ? "FIFO"
					  : S_ISSOCK(status.st_mode) ? "socket"
												 : "device");
		return true;
	}
	place->path = path;
	place->where = where;
	place->device = status.st_dev;
	place->inode = status.st_ino;
	place->size = status.st_size;
	return true;
}

static void look_for(struct includes *found, struct place *place)
{
	if (place->folder && look_in(found, place->folder, WHERE_BESIDE, place))
		return;
	for (int i = 0; i < found->folder_count; i++)
		if (look_in(found, found->folders[i], WHERE_FOLDER, place))
			return;
	if (is_standard(place->name))
		return;
	if (is_short(place->name) && !found->whole) {
		found->has_short = true;
		return;
	}
	if (found->toolkit_count < 0)
		find_toolkit(found);
	for (int i = 0; i < found->toolkit_count && found->toolkit[i]; i++)
		if (look_in(found, found->toolkit[i], WHERE_TOOLKIT, place))
			return;
}

static int by_folder_and_name(const void *a, const void *b)
{
	const struct place *one = a, *other = b;
	int order = strcmp(one->name, other->name);
	if (order != 0 || one->folder == other->folder)
		return order;
	if (!one->folder || !other->folder)
		return one->folder ? 1 : -1;
	return strcmp(one->folder, other->folder);
}

const struct place *find_place(struct includes *found, const char *name, const char *folder)
{
	const struct place key = {.folder = folder, .name = name};
	struct place **at = tfind(&key, &found->places, by_folder_and_name);
	if (at)
		return *at;
	struct place *place = includes_keep(found, sizeof(*place));
	if (!place)
		return NULL;
	*place = key;
	look_for(found, place);
	if (!tsearch(place, &found->places, by_folder_and_name))
		includes_fail(found, KILN_ENOMEM, "no memory to look for headers");
	return found->status == KILN_OK ? place : NULL;
}

const char *find_below(struct includes *found, const struct place *place)
{
	const char *path = absolute(found, place->path);
	for (int i = 0; path && i < found->folder_count + found->toolkit_count; i++) {
		const char *folder =
			i < found->folder_count ? found->folders[i] : found->toolkit[i - found->folder_count];
		folder = folder ? absolute(found, folder) : NULL;
		size_t size = folder ? strlen(folder) : 0;
		if (size == 0 || strncmp(path, folder, size) != 0 || (path[size] != '/' && size > 1))
			continue;
		const char *below = path + size + (path[size] == '/');
		/* A folder may have any name, a header has not. */
		if (!plain_is(below, strlen(below), PLAIN_LINE))
			continue;
		const struct place *same = find_place(found, below, NULL);
		if (same && same->path && same->device == place->device && same->inode == place->inode)
			return below;
	}
	return NULL;
}

/* ---- Reading ---- */

static int by_inode(const void *a, const void *b)
{
	const struct file *one = a, *other = b;
	if (one->device != other->device)
		return one->device < other->device ? -1 : 1;
	return (one->inode > other->inode) - (one->inode < other->inode);
}

/* Reads up to room bytes; -1 with errno. */
static ssize_t read_whole(int fd, char *text, size_t room)
{
	size_t used = 0;
	while (used < room) {
		ssize_t got = read(fd, text + used, room - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -1 : (ssize_t)used;
		used += (size_t)got;
	}
	return (ssize_t)used;
}

static struct text *read_header(struct includes *found, const struct place *place)
{
	/* It may be another file since, one that opening would wait for. */
	int fd = open(place->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat status;
	if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		includes_fail(found, KILN_EIO, "the header %s cannot be read: %s", place->path,
					  fd < 0 ? strerror(errno) : "it is no ordinary file any more");
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	/* A file of /proc has no size, either, and yet it has text. */
	char first;
	bool empty = status.st_size == 0 && pread(fd, &first, 1, 0) == 0;
	size_t room = empty || (status.st_size > 0 && (size_t)status.st_size <= INCLUDES_BYTES)
					  ? (size_t)status.st_size
					  : INCLUDES_BYTES;
	char *text = includes_keep(found, room + 1);
	ssize_t bytes = text ? read_whole(fd, text, room + 1) : -1;
	if (text && bytes < 0)
		includes_fail(found, KILN_EIO, "the header %s cannot be read: %s", place->path,
					  strerror(errno));
	else if (text && (size_t)bytes > room)
		includes_fail(found, (size_t)bytes > INCLUDES_BYTES ? KILN_ELIMIT : KILN_EIO,
					  "the header %s %s", place->path,
					  (size_t)bytes > INCLUDES_BYTES ? "has over 16 MiB"
													 : "grew while it was read");
	close(fd);
	return found->status == KILN_OK ? text_scan(found, text, (size_t)bytes) : NULL;
}

struct file *find_file(struct includes *found, const struct place *place)
{
	const struct file key = {.device = place->device, .inode = place->inode};
	struct file **at = tfind(&key, &found->files, by_inode);
	struct file *file = at ? *at : includes_keep(found, sizeof(*file));
	if (!file || at)
		return file;
	*file = key;
	file->text = read_header(found, place);
	if (file->text && !tsearch(file, &found->files, by_inode))
		includes_fail(found, KILN_ENOMEM, "no memory for a header");
	return found->status == KILN_OK ? file : NULL;
}
