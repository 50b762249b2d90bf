/* frame_memory.c: makes memfds, and checks those that others send. */
#include "frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "frame_parts.h"

#define TMPFS 0x01021994 /* TMPFS_MAGIC of linux/magic.h */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int memfd_new(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* kernels before 6.3 */
	return fd;
}

int frame_sealed(const char *name, const void *data, size_t size)
{
	int fd = memfd_new(name);
	if (fd < 0)
		return -1;
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)data + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			goto fail;
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, BULK_SEALS | F_SEAL_SEAL) != 0)
		goto fail;
	return fd;
fail:;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

int frame_memfd(const char *name, uint64_t bytes)
{
	if (bytes > INT64_MAX) {
		errno = EFBIG;
		return -1;
	}
	int fd = memfd_new(name);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) != 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

/*
 * F_GET_SEALS comes first: it answers for memory files of the kernel only, so that fstat() and
 * fstatfs() never ask a file system whose answer another program may hold back.
 *
 * - A file of a tmpfs that somebody mounted has a size limit, and a page that the limit refuses is
 *   SIGBUS.  Such a file cannot be sealed against shrinking; a memfd is of the kernel's own tmpfs,
 *   which has no limit.
 * - A memfd of huge pages can be sealed, but a page that its owner punches out comes back only as
 *   long as the pool of huge pages has one; else it is SIGBUS.  munmap() refuses sizes that are no
 *   multiple of its pages.
 * - A hole that is punched into an ordinary memfd reads as zero bytes, and takes a page when it is
 *   written; where memory has run out, the kernel kills somebody, as for any other page.
 * - Userfaultfd binds a mapping of its own process, not the file.
 * - SIGBUS is left for a page whose memory or swap device fails, which nobody can bring about.
 */
int frame_fd_is_safe(int fd, uint64_t bytes)
{
	struct stat stat;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &system) == 0 &&
		   system.f_type == TMPFS && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) &&
		   stat.st_size >= 0 && (uint64_t)stat.st_size >= bytes;
}

bool frame_read_fd(int fd, void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(fd, (uint8_t *)data + done, size - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}
