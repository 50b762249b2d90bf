/*
 * pack_bytes.c: reads a file by chunks, and keeps the digest of each chunk from its first reading:
 * a seal that fitted then holds for all bytes that are read later.
 */
#include "pack_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define NO_CHUNK UINT64_MAX

int pack_bytes_open(const char *path, struct pack_bytes *out, char error[KERNEL_ERROR_MAX])
{
	const char *slash = strrchr(path, '/');
	struct stat status;
	*out = (struct pack_bytes){.loaded = NO_CHUNK};
	snprintf(out->what, sizeof(out->what), "the pack %.140s", slash ? slash + 1 : path);
	/* Without O_NONBLOCK a pipe without a writer would hold this thread. */
	out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (out->fd < 0)
		return FAIL(KILN_EIO, "%.200s: %s", path, strerror(errno));
	if (fstat(out->fd, &status) != 0 || !S_ISREG(status.st_mode))
		return FAIL(KILN_EIO, "%.200s is no file", path);
	out->size = (uint64_t)status.st_size;
	out->chunk = malloc(PACK_CHUNK_BYTES);
	out->digests = calloc(out->size / PACK_CHUNK_BYTES + 1, sizeof(*out->digests));
	return out->chunk && out->digests ? KILN_OK : FAIL(KILN_ENOMEM, "out of memory for a pack");
}

static int read_chunk(struct pack_bytes *file, uint64_t index, size_t size,
					  char error[KERNEL_ERROR_MAX])
{
	uint64_t begin = index * PACK_CHUNK_BYTES;
	size_t done = 0;
	while (done < size) {
		ssize_t got = pread(file->fd, file->chunk + done, size - done, (off_t)(begin + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			return FAIL(KILN_EIO, "%s cannot be read: %s", file->what,
						got < 0 ? strerror(errno) : "it became shorter");
		}
		done += (size_t)got;
	}
	return KILN_OK;
}

static int load_chunk(struct pack_bytes *file, uint64_t index, char error[KERNEL_ERROR_MAX])
{
	uint64_t left = file->size - index * PACK_CHUNK_BYTES;
	size_t size = left < PACK_CHUNK_BYTES ? (size_t)left : PACK_CHUNK_BYTES;
	unsigned char digest[32];
	file->loaded = NO_CHUNK;
	int status = read_chunk(file, index, size, error);
	if (status != KILN_OK)
		return status;
	util_hash_bytes(file->chunk, size, digest);
	if (index == file->known)
		memcpy(file->digests[file->known++], digest, sizeof(digest));
	else if (index > file->known || memcmp(file->digests[index], digest, sizeof(digest)) != 0)
		return FAIL(KILN_EPERM, "%s was changed while it was read", file->what);
	file->loaded = index;
	return KILN_OK;
}

int pack_bytes_get(struct pack_bytes *file, uint64_t at, void *bytes, size_t size,
				   char error[KERNEL_ERROR_MAX])
{
	unsigned char *out = bytes;
	if (at > file->size || size > file->size - at)
		return FAIL(KILN_EIO, "%s cannot be read: it ends too early", file->what);
	while (size) {
		uint64_t index = at / PACK_CHUNK_BYTES;
		size_t from = (size_t)(at % PACK_CHUNK_BYTES);
		size_t piece = size < PACK_CHUNK_BYTES - from ? size : PACK_CHUNK_BYTES - from;
		int status = index == file->loaded ? KILN_OK : load_chunk(file, index, error);
		if (status != KILN_OK)
			return status;
		memcpy(out, file->chunk + from, piece);
		out += piece;
		at += piece;
		size -= piece;
	}
	return KILN_OK;
}

void pack_bytes_close(struct pack_bytes *file)
{
	if (file->fd >= 0)
		close(file->fd);
	free(file->chunk);
	free(file->digests);
}
