/*
 * store: the cache, called off the loop.  One call at a time, in order; results come back on the
 * loop.
 */
#ifndef KILN_DAEMON_STORE_H
#define KILN_DAEMON_STORE_H

#include "broker.h"

/* Opens the cache (blocking: before the loop runs). */
int store_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes it; everything asked for must have been answered. */
void store_close(struct broker *broker);
bool store_busy(const struct broker *broker);

/* work runs on the store's thread, then done on the loop. */
typedef void (*store_work)(struct cache *cache, void *arg);
typedef void (*store_done)(struct broker *broker, void *arg);
int store_run(struct broker *broker, store_work work, store_done done, void *arg);

/* A snapshot as of the last finished call. */
const struct cache_stats *store_stats(const struct broker *broker);

#endif
