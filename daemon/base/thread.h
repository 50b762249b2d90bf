/*
 * thread.h: how a thread beside the loop begins and waits.  It takes no signals, for the loop has
 * them.  Nobody joins it, for a call of the system may hold it for ever; its owner keeps what it
 * uses for as long as it runs.
 */
#ifndef KILN_DAEMON_BASE_THREAD_H
#define KILN_DAEMON_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Runs body(arg) on a thread with a stack of this size.  False: the system gives no thread. */
bool thread_start(size_t stack_bytes, void *(*body)(void *arg), void *arg);
/* Initialises a condition for times of the monotonic clock, as thread_after_us() returns them. */
void thread_condition(pthread_cond_t *condition);
struct timespec thread_after_us(uint64_t micros);

#endif
