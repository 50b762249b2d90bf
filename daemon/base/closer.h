/*
 * closer: closes descriptors that came from other programs, on threads of its own.
 *
 * close() of such a descriptor takes as long as its sender likes: a TCP socket lingers, a file of a
 * FUSE file system waits for its server without end, the last reference to gigabytes of memory
 * frees them page by page, and a socket closes the descriptors that are queued in it.  The loop
 * must never do that: it hands over the descriptor, and the uid that answers for it.
 *
 * A descriptor that waits here is still open, so a child that starts has a copy of it.  The child
 * closes its copy while the loop waits for the child.  So nothing waits for long: where a thread is
 * slow, others help the same uid until each descriptor has a thread; close() takes the descriptor
 * out of the process at its beginning.  child.c starts a child when closer_settle() says that none
 * waits.
 *
 * Bounds.  When CLOSER_SLOW threads are slow for a uid, or CLOSER_FULL descriptors of it wait,
 * closer_is_full() tells the sessions of that uid to read no more.  The uid then has at most those
 * threads, and others for the descriptors of the messages that were being read.  All uids together
 * have at most CLOSER_THREADS.  CLOSER_SOCKETS leaves half of them to others where a kernel without
 * SO_PASSRIGHTS lets descriptors into the sockets of strangers.
 *
 * Life.  closer_open() starts the first threads.  They end with the process, which does not wait
 * for them: exit(3) and _exit(2) never do.  A descriptor that others must see closed by then is
 * closed, or shut down, before.
 *
 * The loop's thread calls these functions.
 */
#ifndef KILN_DAEMON_CLOSER_H
#define KILN_DAEMON_CLOSER_H

#include <client/wire/frame.h>
#include <stdbool.h>
#include <stdint.h>

#define CLOSER_THREADS 1024
#define CLOSER_SLOW 8
#define CLOSER_FULL 256
#define CLOSER_SOCKETS 512
#define CLOSER_PASSRIGHTS 83 /* SO_PASSRIGHTS, Linux 6.16 */

/* A thread calls relieved when a uid that was full is so no longer; relieved does no more than to
 * wake the loop.  False: the system gives no thread. */
bool closer_open(void (*relieved)(void *arg), void *arg);
/* No thread calls relieved any more. */
void closer_detach(void);
/* Takes the descriptor over and closes it, at once without closer_open(); -1 is fine. */
void closer_put(uint32_t uid, int fd);
/* Takes a client's socket over, shuts it down at once, and closes it.  The client's uid answers for
 * the descriptors queued in it; where the kernel lets none in, it is closed here. */
void closer_put_socket(int sock);
/* Whether the sessions of this uid are to read no more, until relieved() is called. */
bool closer_is_full(uint32_t uid);
/* Waits until none of the descriptors is in the process's table, so that a child inherits none; for
 * DEADLINE_CLOSER_SETTLE_US at most.  False: some are. */
bool closer_settle(void);
/* Whether close() of the descriptor waits for nobody: it is memory of the kernel, or a device of
 * NVIDIA's driver.  The question itself never waits. */
bool closer_is_harmless(int fd);
/* Leaves a message its harmless descriptors, and takes the others over: their places become -1. */
void closer_sift(uint32_t uid, struct frame *frame);
/* Whether so many sockets are being closed that the daemon should accept none: a stranger's socket
 * may hold descriptors that nobody reads and that closing has to wait for.  uid becomes the one
 * with the most of them. */
bool closer_is_crowded(uint32_t *uid);
#ifdef KILN_TEST_HOOKS
/* Lowers the limit of closer_is_crowded() to this many sockets; 0: CLOSER_SOCKETS again. */
void closer_crowd(int sockets);
/* Makes threads use the processor for so long just before they close. */
void closer_spin(uint64_t micros);
#endif

/* Closes descriptors of queues that the daemon made itself and others may have filled. */
extern const struct frame_closer closer_ours;

#endif
