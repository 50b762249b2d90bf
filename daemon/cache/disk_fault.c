/* disk_fault.c: makes system calls of SQLite fail, or wait, as a test has asked. */
#include "disk_fault.h"
#include "daemon/base/deadlines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum fault_kind { FAULT_NONE, FAULT_FULL, FAULT_READONLY, FAULT_FAILING, FAULT_SLOW };

/* The effect of a system call on the file. */
enum deed { DEED_READ, DEED_WRITE, DEED_GROW, DEED_SHRINK, DEED_MAKE, DEED_REMOVE, DEED_LOOK };

static const struct {
	const char *name;
	int error;
	unsigned met; /* a bit for each deed that fails */
} kinds[] = {
	[FAULT_NONE] = {"none", 0, 0},
	[FAULT_FULL] = {"full", ENOSPC, 1u << DEED_WRITE | 1u << DEED_GROW | 1u << DEED_MAKE},
	[FAULT_READONLY] = {"readonly", EROFS, ~(1u << DEED_READ | 1u << DEED_LOOK)},
	[FAULT_FAILING] = {"failing", EIO,
					   1u << DEED_READ | 1u << DEED_WRITE | 1u << DEED_GROW | 1u << DEED_LOOK},
	[FAULT_SLOW] = {"slow", 0, ~(1u << DEED_LOOK)},
};

/* A test's thread sets these, and that of the cache obeys. */
static _Atomic int fault;
static _Atomic uint32_t delay_ms, spared, to_meet, met;

static bool is_met(enum deed deed)
{
	int kind = atomic_load(&fault);
	if (!(kinds[kind].met & 1u << deed))
		return false;
	if (atomic_load(&spared)) {
		atomic_fetch_sub(&spared, 1);
		return false;
	}
	atomic_fetch_add(&met, 1);
	if (atomic_load(&to_meet) && atomic_fetch_sub(&to_meet, 1) == 1)
		atomic_store(&fault, FAULT_NONE);
	if (kind != FAULT_SLOW) {
		errno = kinds[kind].error;
		return true;
	}
	for (uint32_t ms = 0; ms < atomic_load(&delay_ms); ms += PAUSE_FAULT_LOOK_MS)
		poll(NULL, 0, PAUSE_FAULT_LOOK_MS);
	return false;
}

static int fault_open(const char *path, int flags, int mode)
{
	bool writes = (flags & O_ACCMODE) != O_RDONLY;
	if (is_met(!writes ? DEED_READ : flags & O_CREAT ? DEED_MAKE : DEED_REMOVE))
		return -1;
	return open(path, flags, mode);
}

static ssize_t fault_pread(int fd, void *bytes, size_t size, off_t at)
{
	return is_met(DEED_READ) ? -1 : pread(fd, bytes, size, at);
}

static ssize_t fault_pwrite(int fd, const void *bytes, size_t size, off_t at)
{
	return is_met(DEED_WRITE) ? -1 : pwrite(fd, bytes, size, at);
}

static ssize_t fault_read(int fd, void *bytes, size_t size)
{
	return is_met(DEED_READ) ? -1 : read(fd, bytes, size);
}

static ssize_t fault_write(int fd, const void *bytes, size_t size)
{
	return is_met(DEED_WRITE) ? -1 : write(fd, bytes, size);
}

static int fault_ftruncate(int fd, off_t size)
{
	return is_met(DEED_SHRINK) ? -1 : ftruncate(fd, size);
}

static int fault_fallocate(int fd, off_t at, off_t size)
{
	return is_met(DEED_GROW) ? errno : posix_fallocate(fd, at, size);
}

static int fault_unlink(const char *path)
{
	return is_met(DEED_REMOVE) ? -1 : unlink(path);
}

int cache_fault_lstat(const char *path, struct stat *status)
{
	return is_met(DEED_LOOK) ? -1 : lstat(path, status);
}

void cache_fault_install(void)
{
	static const struct {
		const char *name;
		sqlite3_syscall_ptr call;
	} calls[] = {
		{"open", (sqlite3_syscall_ptr)fault_open},
		{"read", (sqlite3_syscall_ptr)fault_read},
		{"pread", (sqlite3_syscall_ptr)fault_pread},
		{"pread64", (sqlite3_syscall_ptr)fault_pread},
		{"write", (sqlite3_syscall_ptr)fault_write},
		{"pwrite", (sqlite3_syscall_ptr)fault_pwrite},
		{"pwrite64", (sqlite3_syscall_ptr)fault_pwrite},
		{"ftruncate", (sqlite3_syscall_ptr)fault_ftruncate},
		{"fallocate", (sqlite3_syscall_ptr)fault_fallocate},
		{"unlink", (sqlite3_syscall_ptr)fault_unlink},
	};
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	for (size_t i = 0; vfs && vfs->iVersion >= 3 && i < sizeof(calls) / sizeof(calls[0]); i++)
		vfs->xSetSystemCall(vfs, calls[i].name, calls[i].call);
}

bool cache_fault_set(const char *kind, uint32_t ms, uint32_t after, uint32_t count)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kind, kinds[i].name) == 0) {
			atomic_store(&fault, FAULT_NONE);
			atomic_store(&delay_ms, ms);
			atomic_store(&spared, after);
			atomic_store(&to_meet, count);
			atomic_store(&met, 0);
			atomic_store(&fault, (int)i);
			return true;
		}
	}
	return false;
}

uint32_t cache_fault_met(void)
{
	return atomic_load(&met);
}
