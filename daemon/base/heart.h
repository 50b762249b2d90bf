/*
 * heart: a thread that tells the broker every every_ms that its process lives.  It does so while a
 * working thread is busy, however long a call of that thread takes.  While all are idle, the heart
 * sleeps.
 */
#ifndef KILN_DAEMON_UTIL_HEART_H
#define KILN_DAEMON_UTIL_HEART_H

#include <stdbool.h>
#include <stdint.h>

struct heart;

/* The heart's thread calls it while the process is busy, and once when it is idle again.  False: it
 * could not be told, and is tried again. */
typedef bool (*heart_beat)(void *arg, bool busy);
/* Starts a heart, which lives as long as its process.  NULL: the system gives no thread, or
 * every_ms is 0. */
struct heart *heart_start(uint32_t every_ms, heart_beat beat, void *arg);
/* Tells whether the calling thread is busy; the process is while any thread is.  *was is that
 * thread's own, and false at first.  heart may be NULL. */
void heart_busy(struct heart *heart, bool *was, bool busy);

#endif
