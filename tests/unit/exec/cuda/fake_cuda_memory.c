/*
 * fake_cuda_memory: the memory of the fake GPU (fake_cuda.c): blocks, handles, descriptors and
 * mapped ranges, all of them this machine's memory.
 */
#include "fake_cuda_state.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RANGES 1024

enum range_kind { RANGE_FREE, RANGE_BLOCK, RANGE_IMPORT, RANGE_RESERVED };
static struct {
	enum range_kind kind;
	char *base;
	size_t bytes;
	int fd; /* behind it; -1: none */
	uint64_t id;
	bool mapped, accessible;
} ranges[MAX_RANGES];

static uint64_t block_bytes, next_id = 1, span_told;

/* ---- Memory ---- */

/* Takes over fd, of which the range is the part from offset on. */
static int new_range(enum range_kind kind, size_t bytes, int fd, uint64_t offset)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		if (ranges[i].kind != RANGE_FREE)
			continue;
		int protection = kind == RANGE_RESERVED ? PROT_NONE : PROT_READ | PROT_WRITE;
		int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		void *base = mmap(NULL, bytes, protection, flags, fd, (off_t)offset);
		if (base == MAP_FAILED)
			return -1;
		ranges[i].kind = kind;
		ranges[i].base = base;
		ranges[i].bytes = bytes;
		ranges[i].fd = fd;
		ranges[i].id = next_id++;
		ranges[i].mapped = ranges[i].accessible = false;
		return i;
	}
	return -1;
}

static int find_range(CUdeviceptr at)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (ranges[i].kind != RANGE_FREE && at >= (uintptr_t)ranges[i].base &&
			at < (uintptr_t)ranges[i].base + ranges[i].bytes)
			return i;
	return -1;
}

static int find_start(CUdeviceptr at, enum range_kind kind)
{
	int i = find_range(at);
	return i >= 0 && ranges[i].kind == kind && (uintptr_t)ranges[i].base == at ? i : -1;
}

static void drop_range(int i)
{
	munmap(ranges[i].base, ranges[i].bytes);
	if (ranges[i].fd >= 0)
		close(ranges[i].fd);
	memset(&ranges[i], 0, sizeof(ranges[i]));
}

static CUresult new_block(CUdeviceptr *out, size_t bytes, int fd, uint64_t offset)
{
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > FAKE_MEMORY - block_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	int i = new_range(RANGE_BLOCK, bytes, fd, offset);
	if (i < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block_bytes += bytes;
	fake_live[FAKE_LIVE_BLOCKS]++;
	*out = (uintptr_t)ranges[i].base;
	return CUDA_SUCCESS;
}

CUresult fake_drop_block(CUdeviceptr at)
{
	int i = find_start(at, RANGE_BLOCK);
	if (i < 0)
		return CUDA_ERROR_INVALID_VALUE;
	block_bytes -= ranges[i].bytes;
	fake_live[FAKE_LIVE_BLOCKS]--;
	drop_range(i);
	return CUDA_SUCCESS;
}

int fake_memfd(size_t bytes)
{
	int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

CUresult fake_block_at(CUdeviceptr *out, size_t bytes, int fd, uint64_t offset)
{
	int own = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	CUresult result = new_block(out, bytes, own, offset);
	if (result != CUDA_SUCCESS && own >= 0)
		close(own);
	return result;
}

CUresult fake_import_at(CUdeviceptr *out, size_t bytes, int fd, uint64_t offset)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int i = own >= 0 ? new_range(RANGE_IMPORT, bytes, own, offset) : -1;
	if (i < 0) {
		if (own >= 0)
			close(own);
		return CUDA_ERROR_MAP_FAILED;
	}
	fake_live[FAKE_LIVE_IMPORTS]++;
	*out = (uintptr_t)ranges[i].base;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *unused, size_t *total)
{
	ENTER();
	*unused = FAKE_MEMORY - block_bytes;
	*total = FAKE_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
	ENTER();
	int fd = fake_memfd(bytes);
	CUresult result = new_block(out, bytes, fd, 0);
	if (result != CUDA_SUCCESS && fd >= 0)
		close(fd);
	if (result == CUDA_SUCCESS)
		memset((void *)(uintptr_t)*out, 0xcd, bytes);
	return result;
}

CUresult cuMemFree(CUdeviceptr at)
{
	ENTER();
	return fake_drop_block(at);
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
	ENTER();
	int i = find_range(at);
	if (i < 0)
		return CUDA_ERROR_NOT_FOUND;
	*base = (uintptr_t)ranges[i].base;
	*bytes = ranges[i].kind == RANGE_IMPORT && span_told ? span_told : ranges[i].bytes;
	return CUDA_SUCCESS;
}

static CUresult put_attribute(void *data, CUpointer_attribute attribute, int i)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = fake_context();
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = ranges[i].id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = fake_used_gpu() < 0 ? 0 : fake_used_gpu();
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = fake_pool_of((uintptr_t)ranges[i].base);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = ranges[i].kind == RANGE_BLOCK && ranges[i].fd >= 0 &&
							!fake_pool_of((uintptr_t)ranges[i].base);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = (uintptr_t)ranges[i].base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = ranges[i].bytes;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
	ENTER();
	int i = find_range(at);
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : put_attribute(data, attribute, i);
}

/* The driver says nothing of an address that is not CUDA's, and that is no error. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
								CUdeviceptr at)
{
	ENTER();
	int i = find_range(at);
	CUresult result = CUDA_SUCCESS;
	for (unsigned k = 0; k < count && i >= 0 && result == CUDA_SUCCESS; k++)
		result = put_attribute(data[k], attributes[k], i);
	return result;
}

/* ---- Sharing ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at)
{
	ENTER();
	int i = find_range(at);
	if (i < 0 || ranges[i].kind != RANGE_BLOCK || ranges[i].fd < 0 ||
		fake_pool_of((uintptr_t)ranges[i].base))
		return CUDA_ERROR_INVALID_VALUE;
	struct fake_handle handle = {FAKE_HANDLE_MAGIC, getpid(), ranges[i].fd, 0, ranges[i].bytes};
	memset(out, 0, sizeof(*out));
	memcpy(out, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle opaque, unsigned flags)
{
	ENTER();
	struct fake_handle handle;
	char path[64];
	(void)flags;
	memcpy(&handle, &opaque, sizeof(handle));
	if (handle.magic != FAKE_HANDLE_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int i = fd >= 0 ? new_range(RANGE_IMPORT, handle.bytes, fd, 0) : -1;
	if (i < 0) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_MAP_FAILED;
	}
	fake_live[FAKE_LIVE_IMPORTS]++;
	*out = (uintptr_t)ranges[i].base;
	return CUDA_SUCCESS;
}

CUresult fake_drop_import(CUdeviceptr at)
{
	int i = find_start(at, RANGE_IMPORT);
	if (i < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fake_live[FAKE_LIVE_IMPORTS]--;
	drop_range(i);
	return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr at)
{
	ENTER();
	return fake_pool_of(at) ? CUDA_ERROR_INVALID_VALUE : fake_drop_import(at);
}

/* An allocation handle of the fake is its memfd. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
					 const CUmemAllocationProp *prop, unsigned long long flags)
{
	ENTER();
	(void)prop, (void)flags;
	int fd = bytes % FAKE_GRANULARITY ? -1 : fake_memfd(bytes);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fake_live[FAKE_LIVE_HANDLES]++;
	*out = (unsigned)fd;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
									  CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER();
	(void)flags;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)out = fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
	return *(int *)out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	ENTER();
	int i = find_range((uintptr_t)at);
	if (i < 0 || ranges[i].kind != RANGE_RESERVED || !ranges[i].mapped)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (unsigned)fcntl(ranges[i].fd, F_DUPFD_CLOEXEC, 0);
	fake_live[FAKE_LIVE_HANDLES]++;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
										CUmemAllocationHandleType type)
{
	ENTER();
	struct stat status;
	int given = (int)(uintptr_t)handle;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(given, &status) != 0 ||
		!S_ISREG(status.st_mode))
		return CUDA_ERROR_UNKNOWN;
	*out = (unsigned)fcntl(given, F_DUPFD_CLOEXEC, 0);
	fake_live[FAKE_LIVE_HANDLES]++;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
												CUmemGenericAllocationHandle handle)
{
	ENTER();
	(void)handle;
	memset(prop, 0, sizeof(*prop));
	prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
									   CUmemAllocationGranularity_flags which)
{
	ENTER();
	(void)prop, (void)which;
	*out = FAKE_GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,
							 unsigned long long flags)
{
	ENTER();
	(void)alignment, (void)hint, (void)flags;
	int i = bytes % FAKE_GRANULARITY ? -1 : new_range(RANGE_RESERVED, bytes, -1, 0);
	if (i < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fake_live[FAKE_LIVE_RANGES]++;
	*out = (uintptr_t)ranges[i].base;
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
				  unsigned long long flags)
{
	ENTER();
	(void)flags;
	struct stat status;
	int i = find_start(at, RANGE_RESERVED);
	if (i < 0 || ranges[i].mapped || bytes != ranges[i].bytes || offset != 0 ||
		fstat((int)handle, &status) != 0 || (uint64_t)status.st_size < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap(ranges[i].base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0) ==
		MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	ranges[i].fd = fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
	ranges[i].mapped = true;
	fake_live[FAKE_LIVE_MAPPINGS]++;
	return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	ENTER();
	int i = find_start(at, RANGE_RESERVED);
	if (i < 0 || !ranges[i].mapped || bytes != ranges[i].bytes || count != 1 ||
		access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	ranges[i].accessible = mprotect(ranges[i].base, bytes, PROT_READ | PROT_WRITE) == 0;
	return ranges[i].accessible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
	ENTER();
	int i = find_start(at, RANGE_RESERVED);
	if (i < 0 || !ranges[i].mapped || bytes != ranges[i].bytes)
		return CUDA_ERROR_INVALID_VALUE;
	mmap(ranges[i].base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	close(ranges[i].fd);
	ranges[i].fd = -1;
	ranges[i].mapped = ranges[i].accessible = false;
	fake_live[FAKE_LIVE_MAPPINGS]--;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
	ENTER();
	int i = find_start(at, RANGE_RESERVED);
	if (i < 0 || ranges[i].mapped || bytes != ranges[i].bytes)
		return CUDA_ERROR_INVALID_VALUE;
	fake_live[FAKE_LIVE_RANGES]--;
	drop_range(i);
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER();
	fake_live[FAKE_LIVE_HANDLES]--;
	return close((int)handle) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Host memory that the GPU sees: at the same address ---- */

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
	ENTER();
	(void)flags;
	*out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); /* whole pages, as the driver */
	memset(*out, 0xee, bytes);
	fake_live[FAKE_LIVE_HOST]++;
	return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *at)
{
	LOCKED;
	free(at);
	fake_live[FAKE_LIVE_HOST]--;
	return fake_enter(__func__);
}

#define MAX_REGISTERED 512
static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char *at;
	size_t bytes;
} registered[MAX_REGISTERED];

/* Returns the place of the registered range that has these bytes; at NULL: a free place. */
static int find_registered(const char *at, size_t bytes)
{
	for (int i = 0; i < MAX_REGISTERED; i++)
		if (at ? registered[i].at && at >= registered[i].at &&
					 at + bytes <= registered[i].at + registered[i].bytes
			   : !registered[i].at)
			return i;
	return -1;
}

bool fake_is_registered(const void *at, size_t bytes)
{
	pthread_mutex_lock(&registered_lock);
	bool found = find_registered(at, bytes) >= 0;
	pthread_mutex_unlock(&registered_lock);
	return found;
}

CUresult cuMemHostRegister(void *at, size_t bytes, unsigned flags)
{
	ENTER();
	(void)flags;
	pthread_mutex_lock(&registered_lock);
	int i = find_registered(NULL, 0);
	bool twice = find_registered(at, bytes) >= 0;
	if (i >= 0 && !twice) {
		registered[i].at = at;
		registered[i].bytes = bytes;
		fake_live[FAKE_LIVE_HOST]++;
	}
	pthread_mutex_unlock(&registered_lock);
	return twice   ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
		   : i < 0 ? CUDA_ERROR_OUT_OF_MEMORY
				   : CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *at)
{
	pthread_mutex_lock(&registered_lock);
	int i = find_registered(at, 1);
	bool found = i >= 0 && registered[i].at == at;
	if (found) {
		registered[i].at = NULL;
		fake_live[FAKE_LIVE_HOST]--;
	}
	pthread_mutex_unlock(&registered_lock);
	ENTER();
	return found ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *at, unsigned flags)
{
	ENTER();
	(void)flags;
	*out = (uintptr_t)at;
	return fake_is_registered(at, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- The test's side ---- */

void fake_memory_reset(void)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (ranges[i].kind != RANGE_FREE)
			drop_range(i);
	memset(registered, 0, sizeof(registered));
	block_bytes = span_told = 0;
	fake_pools_reset();
}

void fake_memory_span(uint64_t bytes)
{
	span_told = bytes;
}
