/*
 * timing.h: a clock, and times in order, for commands that time something.
 */
#ifndef KILN_CLI_TIMING_H
#define KILN_CLI_TIMING_H

#include <stdint.h>

#define TIME_CALLS 100 /* calls of --time without N, unless TIME_ENOUGH_US end them before */
#define TIME_ENOUGH_US 10e6

double time_us(void); /* since some fixed moment */
void time_sort(double *times, int64_t count);

#endif
