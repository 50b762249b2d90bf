/*
 * disk_fault.h: a disk that is full, failing, read-only or slow, below SQLite, for tests.  The
 * broker installs it with --test-requests; without it nothing stands between SQLite and the system.
 * A build without tests has nothing of it.
 */
#ifndef KILN_DAEMON_CACHE_DISK_FAULT_H
#define KILN_DAEMON_CACHE_DISK_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#ifdef KILN_TEST_HOOKS
/* From here on the system calls of SQLite on its files go through disk_fault.c. */
void cache_fault_install(void);
/*
 * kind: "none", "full" (what needs room fails), "readonly" (what writes fails), "failing" (what
 * reads or writes fails) or "slow" (each of these takes ms; "none" ends also the one under way).
 * The first `after` of these calls go well, the next `count` (0: all) fail.  Any thread may call
 * this.  False: no such kind.
 */
bool cache_fault_set(const char *kind, uint32_t ms, uint32_t after, uint32_t count);
/* lstat(2), which a disk that is failing refuses. */
int cache_fault_lstat(const char *path, struct stat *status);
/* How many calls a fault has met since it was set. */
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
