/* heart.c: one thread, which sleeps for good once its process has had nothing to do for a while. */
#include "heart.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define STACK_BYTES ((size_t)256 << 10)
#define IDLE_BEATS 8 /* before it sleeps: waking it costs a system call */

struct heart {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	heart_beat beat;
	void *arg;
	uint32_t every_ms;
	bool was_busy; /* as the working thread knows it */
	atomic_bool busy, asleep;
};

static void wait_for_next(struct heart *heart)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(heart->every_ms % 1000) * 1000000;
	until.tv_sec += heart->every_ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (pthread_cond_timedwait(&heart->changed, &heart->mutex, &until) == 0) {
	}
}

/* One sees the other: who becomes busy says so and then looks whether this thread sleeps. */
static void sleep_until_busy(struct heart *heart)
{
	atomic_store(&heart->asleep, true);
	while (!atomic_load(&heart->busy))
		pthread_cond_wait(&heart->changed, &heart->mutex);
	atomic_store(&heart->asleep, false);
}

static void *heart_run(void *arg)
{
	struct heart *heart = arg;
	bool said = false;
	int idle = 0;
	pthread_mutex_lock(&heart->mutex);
	for (;;) {
		wait_for_next(heart);
		bool busy = atomic_load(&heart->busy);
		/* That it rests must be heard: the next beat may be long in coming. */
		if (busy || said)
			said = !heart->beat(heart->arg, busy) || busy;
		idle = busy || said ? 0 : idle + 1;
		if (idle > IDLE_BEATS)
			sleep_until_busy(heart);
	}
	return NULL;
}

static bool start_thread(struct heart *heart)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	/* Signals are the other thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = pthread_create(&thread, &attributes, heart_run, heart) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

struct heart *heart_start(uint32_t every_ms, heart_beat beat, void *arg)
{
	pthread_condattr_t attributes;
	struct heart *heart = every_ms ? calloc(1, sizeof(*heart)) : NULL;
	if (!heart)
		return NULL;
	heart->beat = beat;
	heart->arg = arg;
	heart->every_ms = every_ms;
	pthread_mutex_init(&heart->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&heart->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (start_thread(heart))
		return heart;
	free(heart);
	return NULL;
}

void heart_busy(struct heart *heart, bool busy)
{
	if (!heart || heart->was_busy == busy)
		return;
	heart->was_busy = busy;
	atomic_store(&heart->busy, busy);
	if (!busy || !atomic_load(&heart->asleep))
		return;
	pthread_mutex_lock(&heart->mutex);
	pthread_cond_signal(&heart->changed);
	pthread_mutex_unlock(&heart->mutex);
}
