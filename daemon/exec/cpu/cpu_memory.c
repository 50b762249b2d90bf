/*
 * cpu_memory: buffers.  Each lies between guards that nobody may touch, and an allocated one ends
 * at its guard (but for up to 15 bytes, so that it begins aligned): a kernel that runs out of
 * bounds faults instead of reading its neighbour.  Knows nothing of streams or kernels.
 */
#include "client/wire/frame.h"
#include "cpu_memory.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGNMENT 16u

static uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Reserves address space for inner bytes (whole pages) between two guards, none of it accessible.
 */
static struct device_memory *reserve_buffer(uint64_t inner, char error[KERNEL_ERROR_MAX])
{
	struct device_memory *memory = calloc(1, sizeof(*memory));
	if (!memory) {
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a buffer's record");
		return NULL;
	}
	memory->map_bytes = (size_t)inner + 2 * (size_t)CPU_GUARD_BYTES;
	memory->map = mmap(NULL, memory->map_bytes, PROT_NONE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory->map == MAP_FAILED) {
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
				  "no address space for a buffer of %" PRIu64 " bytes: %s", inner, strerror(errno));
		free(memory);
		return NULL;
	}
	return memory;
}

/* The limit is far below what would overflow, and above any machine's memory. */
static bool size_is_sane(uint64_t bytes)
{
	return bytes <= UINT64_C(1) << 46;
}

int cpu_alloc(struct device *device, uint64_t bytes, struct device_memory **out,
			  char error[KERNEL_ERROR_MAX])
{
	(void)device;
	uint64_t page = page_bytes();
	if (!size_is_sane(bytes))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "a buffer of %" PRIu64 " bytes is more than a host can have", bytes);
	uint64_t inner = (bytes + page - 1) / page * page;
	struct device_memory *memory = reserve_buffer(inner, error);
	if (!memory)
		return KILN_ENOMEM;
	uint8_t *pages = memory->map + CPU_GUARD_BYTES;
	/* The kernel accounts for a mapping of its own, and may refuse it; it would not for mprotect.
	 */
	if (inner > 0 && mmap(pages, inner, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		int why = errno;
		cpu_free(device, memory);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "the host has no memory for a buffer of %" PRIu64 " bytes: %s", bytes,
						 strerror(why));
	}
	memory->bytes = bytes;
	memory->base = pages + inner - (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	*out = memory;
	return KILN_OK;
}

/* Refuses what would let a client pull pages away from under a kernel. */
static int check_descriptor(const struct device_import *what, char error[KERNEL_ERROR_MAX])
{
	struct stat info;
	int seals = fcntl(what->fd, F_GET_SEALS);
	if (seals < 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the descriptor lent is no memfd: make it with memfd_create and "
						 "MFD_ALLOW_SEALING");
	if (!(seals & F_SEAL_SHRINK))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the memfd lent can shrink: add F_SEAL_SHRINK before lending it");
	if (!frame_fd_is_safe(what->fd, 0) || fstat(what->fd, &info) != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the memfd lent has huge pages, which can vanish while they are mapped: "
						 "make it without MFD_HUGETLB");
	uint64_t size = (uint64_t)info.st_size;
	if (what->offset > size || what->bytes > size - what->offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "bytes %" PRIu64 " to %" PRIu64 " of a memfd of %" PRIu64
						 " bytes cannot be lent",
						 what->offset, what->offset + what->bytes, size);
	return KILN_OK;
}

int cpu_import(struct device *device, const struct device_import *what, struct device_memory **out,
			   char error[KERNEL_ERROR_MAX])
{
	if (what->kind != DEVICE_IMPORT_FD)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "device cpu cannot use CUDA memory: lend a sealed memfd, or write and "
						 "read buffers of the daemon");
	if (!size_is_sane(what->bytes) || !size_is_sane(what->offset))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a part of %" PRIu64 " bytes at %" PRIu64 " is more than a memfd can have",
						 what->bytes, what->offset);
	int status = check_descriptor(what, error);
	if (status != KILN_OK)
		return status;
	uint64_t page = page_bytes();
	uint64_t skip = what->offset % page;
	uint64_t inner = what->bytes == 0 ? 0 : (skip + what->bytes + page - 1) / page * page;
	struct device_memory *memory = reserve_buffer(inner, error);
	if (!memory)
		return KILN_ENOMEM;
	uint8_t *pages = memory->map + CPU_GUARD_BYTES;
	if (inner > 0 && mmap(pages, inner, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, what->fd,
						  (off_t)(what->offset - skip)) == MAP_FAILED) {
		int why = errno;
		cpu_free(device, memory);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the memfd lent cannot be mapped for reading and writing: %s",
						 strerror(why));
	}
	memory->base = pages + (inner > 0 ? skip : 0);
	memory->bytes = what->bytes;
	*out = memory;
	return KILN_OK;
}

/* The new pages take the place of the old ones, so pointers to the memory stay right. */
int cpu_share(struct device *device, struct device_memory *memory, struct device_shared *out,
			  char error[KERNEL_ERROR_MAX])
{
	uint8_t *pages = memory->map + CPU_GUARD_BYTES;
	size_t inner = memory->map_bytes - 2 * (size_t)CPU_GUARD_BYTES;
	(void)device;
	int fd = frame_memfd("kiln-held", inner);
	uint8_t *copy =
		fd >= 0 ? mmap(NULL, inner, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (copy != MAP_FAILED) {
		memcpy(copy, pages, inner);
		munmap(copy, inner);
	}
	if (copy == MAP_FAILED ||
		mmap(pages, inner, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int why = errno;
		if (fd >= 0)
			close(fd);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "the host has no memory for a buffer of %" PRIu64
						 " bytes of two processes: %s",
						 memory->bytes, strerror(why));
	}
	*out = (struct device_shared){fd, inner, (uint64_t)(memory->base - pages)};
	return KILN_OK;
}

void cpu_free(struct device *device, struct device_memory *memory)
{
	(void)device;
	if (!memory)
		return;
	if (munmap(memory->map, memory->map_bytes) != 0)
		util_log(UTIL_ERROR, "a buffer of %" PRIu64 " bytes cannot be unmapped: %s", memory->bytes,
				 strerror(errno));
	free(memory);
}
