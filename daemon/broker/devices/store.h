/*
 * store: the cache, called off the loop.  One call at a time; results come back on the loop.  The
 * daemon's own calls come first, in order: they keep what was compiled, which nobody may look for
 * before, and are no more than compiles and faults give.  Those of sessions take turns
 * (util/turns.h).  A disk that takes its time holds nobody: whoever waits is told so after a while,
 * and goes on without.
 */
#ifndef KILN_DAEMON_STORE_H
#define KILN_DAEMON_STORE_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"
#include "daemon/base/turns.h"

struct store_item;

/* Opens the cache (blocking: before the loop runs). */
int store_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes it off the loop, once everything asked for has been answered.  True: that is done; else it
 * is to be asked again. */
bool store_end(struct broker *broker);
/* Frees the rest, and closes the cache if it was not. */
void store_close(struct broker *broker);

/* work runs on the store's thread, then done on the loop.  The daemon's own. */
typedef void (*store_work)(struct cache *cache, void *arg);
typedef void (*store_done)(struct broker *broker, void *arg);
/* why: a sentence that tells what keeps the store. */
typedef void (*store_late)(struct broker *broker, void *arg, const char *why);
int store_run(struct broker *broker, store_work work, store_done done, void *arg);
/* The same when the owner has its turn. */
int store_run_for(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
				  void *arg);
/*
 * The same for somebody who waits: after DEADLINE_STORE_MS, or at once where the call under way has
 * taken so long already, late is called, on the loop and before done.  Where the work had not begun
 * it is then left out.  *item is for store_join(), until late or done is called.
 */
int store_wait(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
			   store_late late, void *arg, struct store_item **item);
/* One more waits for this call, which is next when the first of them has its turn. */
void store_join(struct store_item *item, struct turn_owner owner, struct turn_place *place);
/* What takes its time and has nothing to do with the disk: its work is given no cache, and does not
 * wait for those that are. */
int store_aside(struct broker *broker, store_work work, store_done done, void *arg);
int store_aside_for(struct broker *broker, struct turn_owner owner, store_work work,
					store_done done, void *arg);

/* A call is in flight, of either kind. */
bool store_busy(const struct broker *broker);
/* So many calls wait for a disk that does not answer that what nobody waits for is better left
 * out. */
bool store_is_crowded(const struct broker *broker);
/* A snapshot as of the last finished call. */
const struct cache_stats *store_stats(const struct broker *broker);
/* What is wrong with the cache and what helps: that its disk does not answer, or the cache's own
 * trouble; "" if nothing is. */
const char *store_trouble(const struct broker *broker, char text[KERNEL_ERROR_MAX]);
void store_waits(const struct broker *broker, waits_visit visit, void *arg);

#endif
