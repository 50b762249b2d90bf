/*
 * store: calls the cache off the loop, one call at a time; results come back on the loop.  The
 * daemon's own calls go first, in order, so that a compiled kernel is kept before anybody looks for
 * it.  There are no more of these calls than compiles and faults.  Those of sessions take turns
 * (base/turns.h).  A disk that takes its time holds nobody: each call of store_wait() has a
 * deadline, and goes on without the cache.
 */
#ifndef KILN_DAEMON_STORE_H
#define KILN_DAEMON_STORE_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct store_item;

/* Opens the cache (blocking: before the loop runs). */
int store_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes the cache off the loop, once all calls have ended.  False: not done yet, call it again. */
bool store_end(struct broker *broker);
/* Frees the rest, and closes the cache if store_end() did not. */
void store_close(struct broker *broker);

/* work runs on the store's thread, then done on the loop; done may be NULL. */
typedef void (*store_work)(struct cache *cache, void *arg);
typedef void (*store_done)(struct broker *broker, void *arg);
/* why: a sentence that says what keeps the store. */
typedef void (*store_late)(struct broker *broker, void *arg, const char *why);
/* A call of the daemon itself.  All of these return KILN_OK or KILN_ENOMEM. */
int store_run(struct broker *broker, store_work work, store_done done, void *arg);
/*
 * Like store_run(), when the owner has its turn.  With late, which may be NULL, the call has a
 * deadline: late() is called after DEADLINE_STORE_MS, or at once when the call in flight has taken
 * as long already, and before done().  Work that had not begun by then is left out.  *item, unless
 * item is NULL, is for store_join() until late() or done() is called.
 */
int store_wait(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
			   store_late late, void *arg, struct store_item **item);
/* Has another owner wait for a call of store_wait(): the first of its owners' turns begins it. */
void store_join(struct store_item *item, struct turn_owner owner, struct turn_place *place);
/* Like store_run(), for work that takes its time and needs no disk: it gets no cache, and does not
 * wait for calls that do. */
int store_aside(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
				void *arg);

/* Takes a row out of the cache's memory, at once: no call that the disk holds is waited for, and
 * nothing is copied.  False: the key is for store_wait(). */
bool store_take(struct broker *broker, const char *key, struct cache_row *row);

/* Says whether a call of either kind is queued or in flight. */
bool store_busy(const struct broker *broker);
/* Says whether so many calls wait for a disk that does not answer that a caller does better to
 * leave out a write. */
bool store_is_crowded(const struct broker *broker);
/* Figures as of the last call that ended. */
const struct cache_stats *store_stats(const struct broker *broker);
/* Writes and returns what is wrong with the cache and what helps: its disk does not answer, or the
 * cache's own trouble; "" without trouble. */
const char *store_trouble(const struct broker *broker, char text[KERNEL_ERROR_MAX]);
void store_waits(const struct broker *broker, waits_visit visit, void *arg);

#endif
