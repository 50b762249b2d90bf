/* files.c: reads whole files and makes directories.  Errors are errno: the caller knows the file's
 * purpose. */
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads to the end; the size by fstat() is a hint only, for files of /proc have none. */
static char *read_all(int fd, size_t limit, size_t *bytes)
{
	struct stat status;
	size_t capacity = 4096;
	if (fstat(fd, &status) == 0 && status.st_size > 0 && (uint64_t)status.st_size <= limit)
		capacity = (size_t)status.st_size + 2;
	char *text = malloc(capacity);
	size_t used = 0;
	while (text) {
		ssize_t got = read(fd, text + used, capacity - used - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		used += (size_t)got;
		if (used > limit) {
			errno = EFBIG;
			break;
		}
		if (got == 0) {
			text[used] = 0;
			*bytes = used;
			return text;
		}
		if (capacity - used == 1) {
			char *grown = realloc(text, capacity * 2);
			if (!grown)
				break;
			text = grown;
			capacity *= 2;
		}
	}
	int saved = text ? errno : ENOMEM;
	free(text);
	errno = saved;
	return NULL;
}

char *util_read_file(const char *path, size_t limit, size_t *bytes)
{
	size_t ignored;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	char *text = read_all(fd, limit, bytes ? bytes : &ignored);
	int saved = errno;
	close(fd);
	errno = saved;
	return text;
}

/* Makes a directory, unless there is one; 0, or -1 with errno. */
static int make_one(const char *path, unsigned mode)
{
	struct stat status;
	if (mkdir(path, (mode_t)mode) == 0)
		return 0;
	if (stat(path, &status) < 0)
		return -1;
	if (!S_ISDIR(status.st_mode)) {
		errno = ENOTDIR;
		return -1;
	}
	return 0;
}

int util_make_directories(const char *path, unsigned mode)
{
	char part[PATH_MAX];
	size_t size = strlen(path);
	if (size == 0 || size >= sizeof(part)) {
		errno = size ? ENAMETOOLONG : ENOENT;
		return -1;
	}
	memcpy(part, path, size + 1);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (make_one(part, mode) < 0)
			return -1;
		*slash = '/';
	}
	return make_one(part, mode);
}
