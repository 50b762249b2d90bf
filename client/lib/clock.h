/*
 * clock.h: deadlines on the monotonic clock.
 */
#ifndef KILN_CLIENT_CLOCK_H
#define KILN_CLIENT_CLOCK_H

#include <kiln/kiln.h>
#include <stdint.h>

#define TIME_NEVER INT64_MAX

int64_t time_now_us(void);
/* A deadline from a timeout; TIME_NEVER for a negative timeout. */
int64_t time_deadline(int timeout_ms);
/* The timeout for poll(2): -1 for TIME_NEVER, 0 for a deadline that has passed. */
int time_left(int64_t deadline);

#endif
