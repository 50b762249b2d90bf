/*
 * waker: a thread that wakes clients for the thread that launches, by a byte in the client's pipe.
 * To wake a client takes a system call of some microseconds, as long as a launch.  With so many
 * clients that each sleeps before its turn, every launch would cost one.
 *
 * All functions are called by the launching thread.
 */
#ifndef KILN_DAEMON_WAKER_H
#define KILN_DAEMON_WAKER_H

struct waker;

/* NULL: there is none (no memory, no thread); then waker_wake() writes itself. */
struct waker *waker_start(void);
/* Soon writes a byte to fd, unless that would block.  fd stays the caller's.  waker may be NULL. */
void waker_wake(struct waker *waker, int fd);
/* Returns when the thread has written all bytes: then the descriptors may be closed.  waker may be
 * NULL. */
void waker_drain(struct waker *waker);
/* Ends the thread and frees the waker; NULL does nothing. */
void waker_stop(struct waker *waker);

#endif
