/*
 * npy_file.c: .npy files on disk.  A file is read as a whole, and appears as a whole or not at all.
 */
#include "npy.h"
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 30) /* of one read */

static bool refuse_errno(char *why, const char *path, const char *what)
{
	int error = errno;

	snprintf(why, NPY_WHY_MAX, "%.300s cannot be %s: %s", path, what, strerror(error));
	return false;
}

/* ---- Reading ---- */

/* Reads up to `bytes` bytes; how many there were, or a negative number on an error. */
static ssize_t read_all(int fd, uint8_t *data, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		uint64_t left = bytes - done;
		ssize_t got = read(fd, data + done, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		done += (uint64_t)got;
	}
	return (ssize_t)done;
}

static bool read_elements(int fd, const char *path, struct npy *npy, uint64_t data_at, char *why)
{
	ssize_t got;

	npy->data = malloc(npy->bytes ? (size_t)npy->bytes : 1);
	if (!npy->data) {
		errno = ENOMEM;
		return refuse_errno(why, path, "read");
	}
	got = lseek(fd, (off_t)data_at, SEEK_SET) < 0 ? -1 : read_all(fd, npy->data, npy->bytes);
	if (got < 0)
		return refuse_errno(why, path, "read");
	if ((uint64_t)got < npy->bytes) {
		snprintf(why, NPY_WHY_MAX, "%.300s became shorter while it was read", path);
		return false;
	}
	return true;
}

static bool turn_elements(const char *path, struct npy *npy, char *why)
{
	uint8_t *turned = malloc(npy->bytes ? (size_t)npy->bytes : 1);

	if (!turned) {
		errno = ENOMEM;
		return refuse_errno(why, path, "read");
	}
	npy_turn(npy, npy->data, turned);
	free(npy->data);
	npy->data = turned;
	return true;
}

static bool read_open(int fd, const char *path, struct npy *npy, char *why)
{
	uint8_t *first = malloc(NPY_HEADER_MAX);
	char reason[NPY_WHY_MAX];
	uint64_t data_at = 0;
	struct stat found;
	bool fortran = false, good = false;
	ssize_t have = -1;

	if (!first)
		errno = ENOMEM;
	else if (fstat(fd, &found) == 0)
		have = S_ISREG(found.st_mode) ? read_all(fd, first, NPY_HEADER_MAX) : 0;
	if (have < 0)
		refuse_errno(why, path, "read");
	else if (!S_ISREG(found.st_mode))
		snprintf(why, NPY_WHY_MAX, "%.300s is no regular file", path);
	else if (!npy_parse(first, (size_t)have, (uint64_t)found.st_size, npy, &data_at, &fortran,
						reason))
		snprintf(why, NPY_WHY_MAX, "%.200s: %.300s", path, reason);
	else
		good = read_elements(fd, path, npy, data_at, why) &&
			   (!fortran || turn_elements(path, npy, why));
	free(first);
	return good;
}

bool npy_read(const char *path, struct npy *npy, char why[NPY_WHY_MAX])
{
	struct npy read = {.data = NULL};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool good;

	if (fd < 0)
		return refuse_errno(why, path, "opened");
	good = read_open(fd, path, &read, why);
	close(fd);
	if (good)
		*npy = read;
	else
		free(read.data);
	return good;
}

/* ---- Writing ---- */

/* Writes and closes the file: some file systems say only then that they are full. */
static bool write_file(int fd, const struct npy *npy)
{
	uint8_t header[NPY_WRITTEN_MAX];
	size_t length = npy_header(npy, header);
	bool good = write_all(fd, header, length) && write_all(fd, npy->data, npy->bytes);
	int error = errno;

	if (close(fd) != 0 && good)
		return false;
	errno = error;
	return good;
}

/* A temporary name in the same directory, within the 255 bytes of a file's name.  NULL: no memory.
 */
static char *make_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	int directory = slash ? (int)(slash + 1 - path) : 0;
	size_t length = strlen(path) + 32;
	char *name = malloc(length);

	if (name)
		snprintf(name, length, "%.*s%.200s.%ld.tmp", directory, path, path + directory,
				 (long)getpid());
	return name;
}

static bool replace(const char *path, const struct npy *npy, const char *other)
{
	int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), error;
	bool good = fd >= 0 && write_file(fd, npy) && rename(other, path) == 0;

	error = errno;
	if (!good && fd >= 0)
		unlink(other);
	errno = error;
	return good;
}

bool npy_write(const char *path, const struct npy *npy, char why[NPY_WHY_MAX])
{
	char *real, *other;
	struct stat found;
	bool good;

	/* A rename would replace a device or a pipe, so it is written in place. */
	if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
		snprintf(why, NPY_WHY_MAX, "%.300s is no regular file", path);
		return false;
	}
	/* A link stays, and its target is written. */
	real = realpath(path, NULL);
	other = make_name(real ? real : path);
	good = other && replace(real ? real : path, npy, other);
	if (!good)
		refuse_errno(why, path, "written");
	free(other);
	free(real);
	return good;
}
