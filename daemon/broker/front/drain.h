/*
 * drain: how the daemon ends.
 *
 *     RUNNING --drain_begin--> DRAINING --> CLOSING --> CLOSED
 *
 *   RUNNING   clients are served; the clock of --idle-exit runs while there is none
 *   DRAINING  nobody is taken in; what is under way may end for drain_timeout_ms
 *   CLOSING   sessions are closed; children, the second tier and the cache come to their ends
 *   CLOSED    the loop's handles are being closed, after which it ends
 */
#ifndef KILN_DAEMON_DRAIN_H
#define KILN_DAEMON_DRAIN_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/wait_note.h"

/* closed is called when CLOSED is reached: the owner of the loop closes its handles. */
void drain_open(struct broker *broker, void (*closed)(struct broker *broker));
void drain_free(struct broker *broker);
/* Begins to drain; the log says why. */
void drain_begin(struct broker *broker, const char *why);
/* Closes at once what was opened, where the daemon could not begin. */
void drain_now(struct broker *broker);
/* Something ended: a daemon that drains looks, from the loop, whether it is done. */
void drain_progress(struct broker *broker);
/* Goes on as far as it can.  From the loop only. */
void drain_look(struct broker *broker);
bool drain_is_done(const struct broker *broker);
/* Says that the disk of the cache did not answer: a thread is still in there. */
bool drain_has_left_disk(const struct broker *broker);
/* Sessions came or went: starts or stops the clock of --idle-exit. */
void drain_note_sessions(struct broker *broker);
void drain_waits(const struct broker *broker, waits_visit visit, void *arg);

#endif
