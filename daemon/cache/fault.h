/*
 * fault.h: test-only: a disk that is full, failing, read-only or slow, below SQLite.  The broker
 * installs it with --test-requests only; without it nothing stands between SQLite and the system.
 */
#ifndef KILN_DAEMON_CACHE_FAULT_H
#define KILN_DAEMON_CACHE_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* From here on what SQLite asks of the system for its files goes by this file. */
void cache_fault_install(void);
/*
 * kind: "none", "full" (what needs room fails), "readonly" (what writes fails), "failing" (what
 * reads or writes fails) or "slow" (each of these takes ms; "none" ends also the one under way).
 * The first after of these calls go well, and then count of them are met; count 0: all.  Any thread
 * may call it.  False: no such kind.
 */
bool cache_fault_set(const char *kind, uint32_t ms, uint32_t after, uint32_t count);
/* lstat(2), which a disk that is failing refuses. */
int cache_fault_lstat(const char *path, struct stat *status);
/* How many calls a fault has met since it was set. */
uint32_t cache_fault_met(void);

#endif
