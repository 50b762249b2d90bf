/*
 * disk_fault.h: simulates, below SQLite, a disk that is full, failing, read-only or slow.  The
 * broker installs it with --test-requests; without it SQLite calls the system.  A build without
 * tests has nothing of it.
 */
#ifndef KILN_DAEMON_CACHE_DISK_FAULT_H
#define KILN_DAEMON_CACHE_DISK_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#ifdef KILN_TEST_HOOKS
/* Sends the system calls of SQLite on its files through disk_fault.c from here on. */
void cache_fault_install(void);
/*
 * Sets the fault: "none", "full" (calls that need room fail), "readonly" (calls that write fail),
 * "failing" (calls that read or write fail) or "slow" (each of these takes ms; "none" ends also the
 * one under way).  The first `after` of these calls go well, the next `count` (0: all) fail.  Any
 * thread may call this.  False: no such kind.
 */
bool cache_fault_set(const char *kind, uint32_t ms, uint32_t after, uint32_t count);
/* Calls lstat(2), or fails as a failing disk does. */
int cache_fault_lstat(const char *path, struct stat *status);
/* Counts the calls that the fault has met since it was set. */
uint32_t cache_fault_met(void);
#else
static inline void cache_fault_install(void)
{
}
static inline int cache_fault_lstat(const char *path, struct stat *status)
{
	return lstat(path, status);
}
#endif

#endif
