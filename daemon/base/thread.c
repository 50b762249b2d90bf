/* thread.c: see thread.h. */
#include "thread.h"

#include <signal.h>

bool thread_start(size_t stack_bytes, void *(*body)(void *arg), void *arg)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setstacksize(&attributes, stack_bytes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = pthread_create(&thread, &attributes, body, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

void thread_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

struct timespec thread_after_us(uint64_t micros)
{
	struct timespec end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	micros += (uint64_t)end.tv_nsec / 1000;
	end.tv_sec += (time_t)(micros / 1000000);
	end.tv_nsec = (long)(micros % 1000000 * 1000);
	return end;
}
