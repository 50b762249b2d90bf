/*
 * closer: closes descriptors that came from other programs, on threads of its own.
 *
 * close() of such a descriptor takes as long as its sender likes: a TCP socket lingers, a file of a
 * FUSE file system waits for its server without end, the last reference to gigabytes of memory
 * frees them page by page, and a socket closes whatever is queued in it.  The loop must never do
 * that.  It hands over the descriptor, and the uid that answers for it.
 *
 * A descriptor that waits here is still one of the process, and a child that starts closes its copy
 * before it is anything else, while the loop waits for it.  So nothing waits for long: where a
 * thread is slow, others are called for the same uid until each has one of its own, which is then
 * no descriptor of the process any more, and children are started when closer_settle() says so.
 *
 * Bounds.  When CLOSER_SLOW threads are slow for a uid, or CLOSER_FULL descriptors of it wait,
 * closer_is_full() tells the sessions of that uid to read no more: it then has as many threads at
 * the most, and those for the descriptors of a message of each session that was being read.
 * CLOSER_THREADS are all that there can be.  CLOSER_SOCKETS leaves half of them to others where a
 * kernel without SO_PASSRIGHTS lets descriptors into the sockets of strangers.
 *
 * Life.  closer_open() starts the first threads.  None is ever joined: one may never return.  The
 * process ends with them, as exit(3) and _exit(2) do not wait for threads; what others must see
 * closed by then is closed, or shut down, before.
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

/* relieved is called when a uid that was full is so no longer: on one of the threads, to do no more
 * than to wake the loop.  False: there can be no thread. */
bool closer_open(void (*relieved)(void *arg), void *arg);
/* It is not called any more. */
void closer_detach(void);
/* Takes the descriptor over; -1 is fine.  Without closer_open() it is closed at once. */
void closer_put(uint32_t uid, int fd);
/* The same of a socket, whose peer is told at once, and answers for what is queued there: nothing,
 * where the kernel lets no descriptors in. */
void closer_put_socket(int sock);
bool closer_is_full(uint32_t uid);
/* Waits, for a moment, until no descriptor waits; false: some do. */
bool closer_settle(void);
/* Closing it waits for nobody: it is memory of the kernel, or a device of NVIDIA's driver.  Never
 * waits itself, whatever the descriptor is. */
bool closer_is_harmless(int fd);
/* Leaves a message those that are of use, and harmless also for a child that inherits them. */
void closer_sift(uint32_t uid, struct frame *frame);
/* So many sockets are being closed that the next may not be taken: a stranger's socket holds what
 * nobody may read, and has to be closed all the same.  uid: who has most of them. */
bool closer_is_crowded(uint32_t *uid);
#ifdef KILN_TEST_HOOKS
/* Lowers the limit of closer_is_crowded() to this many sockets; 0: CLOSER_SOCKETS again. */
void closer_crowd(int sockets);
#endif

/* For what the daemon made itself and others may have filled. */
extern const struct frame_closer closer_ours;

#endif
