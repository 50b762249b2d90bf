/*
 * clock.c: deadlines on the monotonic clock.
 */
#include "clock.h"

#include <time.h>

int64_t time_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t time_now_ms(void)
{
	return time_now_us() / 1000;
}

int64_t time_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? TIME_NEVER : time_now_ms() + timeout_ms;
}

int time_left(int64_t deadline)
{
	if (deadline == TIME_NEVER)
		return -1;
	int64_t left = deadline - time_now_ms();
	return left <= 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}
