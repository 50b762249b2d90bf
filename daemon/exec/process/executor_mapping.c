/*
 * exec_mapping: maps the memory that a client sent with a copy.  The last mapping is kept while
 * the same memory comes again, because mapping costs more than a small copy.
 */
#include "daemon/base/util.h"
#include "executor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* A larger mapping goes after its use, because to keep it would hold the client's memory. */
#define KEPT_BYTES (64u << 20)

/* A client's memfd, mapped.  Its flights and launcher->kept hold it; the last of them unmaps and
 * frees it. */
struct exec_mapping {
	dev_t dev;
	ino_t ino;
	void *address;
	size_t bytes;
	bool writable;
	int uses;
};

static void unmap_file(struct exec_mapping *mapping)
{
	if (mapping->bytes > 0 && munmap(mapping->address, mapping->bytes) != 0)
		util_log(UTIL_ERROR, "the %zu bytes of a copy cannot be unmapped: %s", mapping->bytes,
				 strerror(errno));
	free(mapping);
}

static void *map_file(int fd, size_t bytes, bool *writable)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (address != MAP_FAILED) {
		*writable = true;
		return address;
	}
	/* A memfd that is sealed against writing can still be read, by a private mapping. */
	if (errno == EPERM && !*writable)
		return mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	return MAP_FAILED;
}

int exec_map(struct launcher *launcher, int fd, uint64_t bytes, bool writable,
			 struct exec_mapping **out, void **address, char error[KERNEL_ERROR_MAX])
{
	struct stat file;
	if (!frame_fd_is_safe(fd, bytes) || fstat(fd, &file) != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the descriptor of a copy is no memfd of ordinary pages, of at least "
						 "%" PRIu64 " bytes, that is sealed against shrinking",
						 bytes);
	struct exec_mapping *mapping = launcher->kept;
	/* A mapped file keeps its number, so the same number is the same file. */
	if (mapping && mapping->dev == file.st_dev && mapping->ino == file.st_ino &&
		mapping->bytes >= bytes && (mapping->writable || !writable)) {
		mapping->uses++;
		*out = mapping;
		*address = mapping->address;
		return KILN_OK;
	}
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for a mapping's record");
	mapping->dev = file.st_dev;
	mapping->ino = file.st_ino;
	mapping->writable = writable;
	mapping->uses = 1;
	mapping->bytes = (size_t)file.st_size;
	if (mapping->bytes > 0)
		mapping->address = map_file(fd, mapping->bytes, &mapping->writable);
	if (mapping->address == MAP_FAILED) {
		int why = errno;
		free(mapping);
		return util_fail(error, KERNEL_ERROR_MAX, why == ENOMEM ? KILN_ENOMEM : KILN_EINVAL,
						 "the memfd of a copy cannot be mapped for %s: %s",
						 writable ? "writing" : "reading", strerror(why));
	}
	exec_unmap_kept(launcher);
	if (mapping->bytes <= KEPT_BYTES)
		launcher->kept = mapping;
	*out = mapping;
	*address = mapping->address;
	return KILN_OK;
}

void exec_unmap(struct launcher *launcher, struct exec_mapping *mapping)
{
	if (mapping && --mapping->uses == 0 && mapping != launcher->kept)
		unmap_file(mapping);
}

void exec_unmap_kept(struct launcher *launcher)
{
	struct exec_mapping *kept = launcher->kept;
	launcher->kept = NULL;
	if (kept && kept->uses == 0)
		unmap_file(kept);
}
