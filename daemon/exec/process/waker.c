/*
 * waker: the thread, and the queue of descriptors for it: one gives, one takes.
 */
#include "waker.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROOM 1024u
/* The thread looks for more work for PAUSE_WAKER_SPIN_US after the last.  BUSY_WAKES wakes
 * within that time rouse it: the launching thread itself wakes a client that sleeps now and
 * then. */
#define BUSY_WAKES 4

struct waker {
	pthread_t thread;
	int bell; /* eventfd: it sleeps until this is written */
	int fds[ROOM];
	uint64_t since_us; /* the launching thread's: it has made so many wakes itself since then */
	int wakes;
	_Alignas(64) _Atomic uint32_t given;
	_Alignas(64) _Atomic uint32_t written;
	_Alignas(64) atomic_bool awake, ending;
};

static void write_one(int fd)
{
	/* A full pipe wakes its reader as well as one more byte would; a pipe without a reader wakes
	 * nobody. */
	if (write(fd, "", 1) < 0 && errno != EAGAIN && errno != EPIPE)
		util_log(UTIL_WARN, "the client of a lane cannot be woken: %s", strerror(errno));
}

static void ring_bell(struct waker *waker)
{
	const uint64_t one = 1;
	if (write(waker->bell, &one, sizeof(one)) < 0)
		util_log(UTIL_WARN, "the thread that wakes clients cannot be woken: %s", strerror(errno));
}

/* False: nothing was given. */
static bool write_given(struct waker *waker)
{
	uint32_t given = atomic_load_explicit(&waker->given, memory_order_acquire);
	uint32_t written = atomic_load_explicit(&waker->written, memory_order_relaxed);
	if (given == written)
		return false;
	while (written != given) {
		write_one(waker->fds[written % ROOM]);
		atomic_store_explicit(&waker->written, ++written, memory_order_release);
	}
	return true;
}

static void *waker_main(void *arg)
{
	struct waker *waker = arg;
	uint64_t rings;
	while (!atomic_load(&waker->ending)) {
		if (read(waker->bell, &rings, sizeof(rings)) < 0 && errno != EINTR)
			break;
		uint64_t until = util_now_us() + PAUSE_WAKER_SPIN_US;
		do {
			for (int i = 0; i < 64; i++)
				if (write_given(waker))
					until = util_now_us() + PAUSE_WAKER_SPIN_US;
		} while (!atomic_load(&waker->ending) && util_now_us() < until);
		/* waker_wake() may have given something before it could see that. */
		atomic_store(&waker->awake, false);
		write_given(waker);
	}
	return NULL;
}

struct waker *waker_start(void)
{
	sigset_t all, before;
	struct waker *waker = aligned_alloc(64, sizeof(*waker));
	if (!waker)
		return NULL;
	memset(waker, 0, sizeof(*waker));
	waker->bell = eventfd(0, EFD_CLOEXEC);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = waker->bell >= 0 && pthread_create(&waker->thread, NULL, waker_main, waker) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (started)
		return waker;
	if (waker->bell >= 0)
		close(waker->bell);
	free(waker);
	return NULL;
}

/* True: the launching thread wakes clients so often that the waker's thread pays. */
static bool is_busy(struct waker *waker)
{
	uint64_t now = util_now_us();
	if (now - waker->since_us > PAUSE_WAKER_SPIN_US) {
		waker->since_us = now;
		waker->wakes = 0;
	}
	return ++waker->wakes > BUSY_WAKES;
}

static void rouse(struct waker *waker)
{
	atomic_store(&waker->awake, true);
	ring_bell(waker);
}

void waker_wake(struct waker *waker, int fd)
{
	if (!waker) {
		write_one(fd);
		return;
	}
	uint32_t given = atomic_load_explicit(&waker->given, memory_order_relaxed);
	uint32_t written = atomic_load_explicit(&waker->written, memory_order_acquire);
	bool awake = atomic_load(&waker->awake);
	if (!awake || given - written >= ROOM) {
		write_one(fd);
		if (!awake && is_busy(waker))
			rouse(waker);
		return;
	}
	waker->fds[given % ROOM] = fd;
	atomic_store(&waker->given, given + 1);
	/* The thread may have gone to sleep meanwhile without having seen this. */
	if (!atomic_load(&waker->awake))
		rouse(waker);
}

void waker_drain(struct waker *waker)
{
	/* The thread is awake while there is something to write, and no write waits. */
	while (waker && atomic_load_explicit(&waker->written, memory_order_acquire) !=
						atomic_load_explicit(&waker->given, memory_order_relaxed))
		sched_yield();
}

void waker_stop(struct waker *waker)
{
	if (!waker)
		return;
	atomic_store(&waker->ending, true);
	ring_bell(waker);
	pthread_join(waker->thread, NULL);
	close(waker->bell);
	free(waker);
}
