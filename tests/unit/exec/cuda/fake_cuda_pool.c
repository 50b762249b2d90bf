/*
 * fake_cuda_pool: the memory pools of the fake GPU (fake_cuda.c).  A pool that can be exported is a
 * memfd, and its descriptor is that memfd's; the data of an exported allocation says which pool it
 * is of, and where in it.
 *
 * The rules between processes are kept by open file description locks, which end with their holder:
 * who imports an allocation holds one on its first byte, and the exporter's free looks for it.
 */
#include "fake_cuda_state.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u

struct CUmemPoolHandle_st {
	int fd; /* -1: cannot be exported */
	bool imported, destroyed;
	uint64_t end; /* of what was allocated so far */
	int pointers; /* allocated or imported, and not freed */
};

/* An allocation of a pool. */
#define MAX_POOLED 256
static struct pooled {
	CUdeviceptr at;
	CUmemoryPool pool;
	uint64_t offset;
	int lock; /* imported: holds the lock */
} pooled[MAX_POOLED];

static uint64_t pool_number(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? status.st_ino : 0;
}

static CUmemoryPool new_pool(int fd, bool imported)
{
	CUmemoryPool pool = calloc(1, sizeof(*pool));
	pool->fd = fd;
	pool->imported = imported;
	fake_live[FAKE_LIVE_POOLS]++;
	return pool;
}

static void drop_unused(CUmemoryPool pool)
{
	if (!pool->destroyed || pool->pointers > 0)
		return;
	if (pool->fd >= 0)
		close(pool->fd);
	free(pool);
	fake_live[FAKE_LIVE_POOLS]--;
}

static struct pooled *find_pooled(CUdeviceptr at)
{
	for (int i = 0; i < MAX_POOLED; i++)
		if (pooled[i].pool && pooled[i].at == at)
			return &pooled[i];
	return NULL;
}

static struct pooled *new_pooled(CUmemoryPool pool, uint64_t offset)
{
	for (int i = 0; i < MAX_POOLED; i++) {
		if (pooled[i].pool)
			continue;
		pooled[i] = (struct pooled){.pool = pool, .offset = offset, .lock = -1};
		pool->pointers++;
		return &pooled[i];
	}
	return NULL;
}

static void drop_pooled(struct pooled *entry)
{
	CUmemoryPool pool = entry->pool;
	if (entry->lock >= 0)
		close(entry->lock);
	memset(entry, 0, sizeof(*entry));
	pool->pointers--;
	drop_unused(pool);
}

/* A descriptor of the same file that has locks of its own. */
static int reopen(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static bool lock_at(int fd, int command, struct flock *lock, short type, uint64_t offset)
{
	*lock =
		(struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
	return fcntl(fd, command, lock) == 0;
}

static bool is_exported(const struct pooled *entry)
{
	return entry->pool->fd >= 0 && !entry->pool->imported;
}

static bool is_imported_somewhere(const struct pooled *entry)
{
	struct flock lock;
	int fd = reopen(entry->pool->fd);
	bool free_of_it = fd >= 0 && lock_at(fd, F_OFD_GETLK, &lock, F_WRLCK, entry->offset) &&
					  lock.l_type == F_UNLCK;
	if (fd >= 0)
		close(fd);
	return !free_of_it;
}

CUmemoryPool fake_pool_of(CUdeviceptr base)
{
	struct pooled *entry = find_pooled(base);
	return entry ? entry->pool : NULL;
}

/* ---- Pools ---- */

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	ENTER();
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	*out = new_pool(
		props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? fake_memfd(0) : -1, false);
	return CUDA_SUCCESS;
}

/* The device's own pool, which cannot be exported; not counted, as nobody destroys it. */
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
	ENTER();
	static struct CUmemPoolHandle_st own = {.fd = -1};
	*out = &own;
	return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	LOCKED;
	pool->destroyed = true;
	drop_unused(pool);
	return fake_enter(__func__);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	ENTER();
	(void)pool, (void)value;
	return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	ENTER();
	(void)pool, (void)keep;
	return CUDA_SUCCESS;
}

static int access_granted = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

void fake_pool_access(int flags)
{
	access_granted = flags;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	ENTER();
	(void)pool;
	*flags = (CUmemAccess_flags)access_granted;
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == 0
			   ? CUDA_SUCCESS
			   : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	ENTER();
	(void)pool;
	if (count != 1 || map->location.type != CU_MEM_LOCATION_TYPE_DEVICE || map->location.id != 0)
		return CUDA_ERROR_INVALID_VALUE;
	access_granted = (int)map->flags;
	return CUDA_SUCCESS;
}

/* ---- Allocations ---- */

static CUresult alloc_from(CUdeviceptr *out, size_t bytes, CUmemoryPool pool)
{
	struct pooled *entry = new_pooled(pool, pool->end);
	uint64_t next = pool->end + (bytes + PAGE - 1) / PAGE * PAGE;
	if (!entry)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bool room = pool->fd < 0 || ftruncate(pool->fd, (off_t)next) == 0;
	CUresult result =
		room ? fake_block_at(out, bytes, pool->fd, entry->offset) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		drop_pooled(entry);
		return result;
	}
	entry->at = *out;
	pool->end = next;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	ENTER();
	if (stream && *fake_capture(stream))
		return fake_spoil(*fake_capture(stream));
	if (pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = alloc_from(out, bytes, pool);
	if (result == CUDA_SUCCESS)
		memset((void *)(uintptr_t)*out, 0xcd, bytes);
	return result;
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	ENTER();
	const struct pooled *entry = find_pooled(at);
	if (entry && is_exported(entry) && is_imported_somewhere(entry))
		return CUDA_ERROR_INVALID_VALUE;
	return fake_free_later(stream, at) ? CUDA_SUCCESS : fake_free_now(at);
}

CUresult fake_free_now(CUdeviceptr at)
{
	struct pooled *entry = find_pooled(at);
	CUresult result = entry && entry->pool->imported ? fake_drop_import(at) : fake_drop_block(at);
	if (result == CUDA_SUCCESS && entry)
		drop_pooled(entry);
	return result;
}

/* ---- Sharing ---- */

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool,
										  CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags || pool->fd < 0 || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)out = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
	return *(int *)out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr at)
{
	ENTER();
	const struct pooled *entry = find_pooled(at);
	size_t bytes = 0;
	CUdeviceptr base = 0;
	if (!entry || entry->pool->imported || cuMemGetAddressRange(&base, &bytes, at) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	struct fake_share share = {FAKE_SHARE_MAGIC, 0, pool_number(entry->pool->fd), entry->offset,
							   bytes};
	memset(out, 0, sizeof(*out));
	memcpy(out, &share, sizeof(share));
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
											CUmemAllocationHandleType type,
											unsigned long long flags)
{
	ENTER();
	int given = (int)(uintptr_t)handle;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags || !pool_number(given))
		return CUDA_ERROR_UNKNOWN;
	*out = new_pool(fcntl(given, F_DUPFD_CLOEXEC, 0), true);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	ENTER();
	struct fake_share share;
	memcpy(&share, data, sizeof(share));
	if (!pool->imported || share.magic != FAKE_SHARE_MAGIC || share.pool != pool_number(pool->fd))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < MAX_POOLED; i++)
		if (pooled[i].pool == pool && pooled[i].offset == share.offset)
			return CUDA_ERROR_ALREADY_MAPPED;
	struct pooled *entry = new_pooled(pool, share.offset);
	struct flock lock;
	if (!entry)
		return CUDA_ERROR_OUT_OF_MEMORY;
	entry->lock = reopen(pool->fd);
	if (entry->lock < 0 || !lock_at(entry->lock, F_OFD_SETLK, &lock, F_RDLCK, share.offset) ||
		fake_import_at(out, share.bytes, pool->fd, share.offset) != CUDA_SUCCESS) {
		drop_pooled(entry);
		return CUDA_ERROR_MAP_FAILED;
	}
	entry->at = *out;
	return CUDA_SUCCESS;
}

/* ---- The test's side ---- */

void fake_pools_reset(void)
{
	for (int i = 0; i < MAX_POOLED; i++)
		if (pooled[i].pool)
			drop_pooled(&pooled[i]);
	access_granted = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}
