/*
 * errand.c: a thread for each long call of the main thread.  It costs some ten microseconds where a
 * compile or a connection costs hundreds.
 */
#include "errand.h"
#include "deadlines.h"
#include "errors.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum errand_state { ERRAND_WAITING, ERRAND_DONE, ERRAND_LEFT };

struct errand_thread {
	pthread_mutex_t lock;
	pthread_cond_t news;
	enum errand_state state;
	int refs; /* the thread and the caller */
};

void errand_end(struct errand *errand)
{
	free(errand->sentence);
	free(errand->log);
}

int errand_raise(const struct errand *errand)
{
	error_raise_text(errand->status, errand->sentence ? errand->sentence : "", errand->log);
	return RAISED;
}

/* Messages belong to the thread that failed, so they are copied here. */
static void work(struct errand *errand)
{
	errand->status = errand->work(errand);
	if (errand->status < 0) {
		const char *sentence = kiln_errmsg(), *log = kiln_errlog();
		errand->sentence = strdup(sentence[0] ? sentence : kiln_status_text(errand->status));
		errand->log = log[0] ? strdup(log) : NULL;
	}
}

/* Drops a reference; the lock is held, and is gone afterwards. */
static void unref(struct errand_thread *thread)
{
	bool last = --thread->refs == 0;
	pthread_mutex_unlock(&thread->lock);
	if (last) {
		pthread_mutex_destroy(&thread->lock);
		pthread_cond_destroy(&thread->news);
		free(thread);
	}
}

static void *run(void *argument)
{
	struct errand *errand = argument;
	struct errand_thread *thread = errand->thread;

	work(errand);
	pthread_mutex_lock(&thread->lock);
	bool left = thread->state == ERRAND_LEFT;
	thread->state = ERRAND_DONE;
	pthread_cond_signal(&thread->news);
	unref(thread);
	if (left)
		errand->drop(errand);
	return NULL;
}

/* Waits for at most PAUSE_SIGNALS_MS; the lock is held. */
static void wait_some(struct errand_thread *thread)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PAUSE_SIGNALS_MS * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&thread->news, &thread->lock, &until);
}

/* Starts the thread with all signals blocked: they are the main thread's. */
static bool start(struct errand *errand)
{
	struct errand_thread *thread = calloc(1, sizeof(*thread));
	pthread_condattr_t clock;
	pthread_attr_t detached;
	sigset_t all, before;
	pthread_t id;

	if (!thread)
		return false;
	pthread_mutex_init(&thread->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&thread->news, &clock);
	pthread_condattr_destroy(&clock);
	thread->refs = 2;
	errand->thread = thread;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = pthread_create(&id, &detached, run, errand) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	if (!started) {
		thread->refs = 1;
		pthread_mutex_lock(&thread->lock);
		unref(thread);
	}
	return started;
}

int errand_run(struct errand *errand)
{
	bool main_thread = syscall(SYS_gettid) == getpid();
	errand->sentence = errand->log = NULL;
	if (!main_thread || !start(errand)) {
		Py_BEGIN_ALLOW_THREADS;
		work(errand);
		Py_END_ALLOW_THREADS;
		return errand->status;
	}
	struct errand_thread *thread = errand->thread;
	for (;;) {
		Py_BEGIN_ALLOW_THREADS;
		pthread_mutex_lock(&thread->lock);
		if (thread->state == ERRAND_WAITING)
			wait_some(thread);
		pthread_mutex_unlock(&thread->lock);
		Py_END_ALLOW_THREADS;
		bool raised = PyErr_CheckSignals() != 0;
		pthread_mutex_lock(&thread->lock);
		bool done = thread->state == ERRAND_DONE;
		if (raised && !done)
			thread->state = ERRAND_LEFT;
		if (!raised && !done) {
			pthread_mutex_unlock(&thread->lock);
			continue;
		}
		unref(thread);
		if (raised && done)
			errand->drop(errand);
		return raised ? ERRAND_ABANDONED : errand->status;
	}
}
