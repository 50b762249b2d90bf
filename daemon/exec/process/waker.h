/*
 * waker: a thread that writes pipes for the thread that launches.  To wake a client which sleeps
 * is a system call of some microseconds, as long as a launch; with more clients than have their
 * turn in the time that they look for it themselves, each launch would cost one.
 */
#ifndef KILN_DAEMON_WAKER_H
#define KILN_DAEMON_WAKER_H

struct waker;

/* NULL: there is none (no memory, no thread), and waker_wake() writes itself. */
struct waker *waker_start(void);
/* Writes a byte, soon, where that need not wait.  From one thread only.  waker may be NULL. */
void waker_wake(struct waker *waker, int fd);
/* All that waker_wake() was given is written: the descriptors may be closed. */
void waker_drain(struct waker *waker);
void waker_stop(struct waker *waker);

#endif
