/*
 * pack_bytes.h: reads the file of a pack more than once: bytes that were read before are the same,
 * or reading fails.  pack_read.c alone uses it.
 */
#ifndef KILN_DAEMON_CACHE_PACK_BYTES_H
#define KILN_DAEMON_CACHE_PACK_BYTES_H

#include "daemon/plan/kernel.h"

#define PACK_CHUNK_BYTES 65536

struct pack_bytes {
	int fd;
	char what[160]; /* how sentences call it */
	uint64_t size;
	unsigned char (*digests)[32]; /* of the chunks that were read */
	uint64_t known, loaded;       /* digests that are known; index of the chunk in memory */
	unsigned char *chunk;
};

/* Opens a file.  KILN_OK, KILN_EIO, KILN_ENOMEM; the caller calls pack_bytes_close() in each case.
 * */
int pack_bytes_open(const char *path, struct pack_bytes *out, char error[KERNEL_ERROR_MAX]);
/* Reads bytes, for the first time in order.  KILN_EPERM: they have changed since. */
int pack_bytes_get(struct pack_bytes *file, uint64_t at, void *bytes, size_t size,
				   char error[KERNEL_ERROR_MAX]);
void pack_bytes_close(struct pack_bytes *file);

#endif
