/*
 * heart: a thread that says now and then that its process lives, while another works, however long
 * a call of that one takes.  It says nothing, and costs nothing, while there is nothing to do.
 */
#ifndef KILN_DAEMON_UTIL_HEART_H
#define KILN_DAEMON_UTIL_HEART_H

#include <stdbool.h>
#include <stdint.h>

struct heart;

/* On the heart's thread, while the process is busy, and once when it is so no more; again, if that
 * could not be said (false). */
typedef bool (*heart_beat)(void *arg, bool busy);
/* NULL: there is no thread to be had, or every_ms is 0.  It lasts as long as its process. */
struct heart *heart_start(uint32_t every_ms, heart_beat beat, void *arg);
/* Of one thread alone.  NULL is fine. */
void heart_busy(struct heart *heart, bool busy);

#endif
