/*
 * timing.c: a clock, and times in order.
 */
#include "timing.h"

#include <stdlib.h>
#include <time.h>

double time_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int timing_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

void time_sort(double *times, int64_t count)
{
	qsort(times, (size_t)count, sizeof(*times), timing_compare);
}
