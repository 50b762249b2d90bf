/*
 * histogram.h: counts values in buckets: a bucket for each value below HISTOGRAM_STEPS, and so many
 * to each power of two above.  Its size is constant; to note a value costs a few instructions.
 */
#ifndef KILN_DAEMON_UTIL_HISTOGRAM_H
#define KILN_DAEMON_UTIL_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 8    /* a quantile is at most an eighth too large, and never too small */
#define HISTOGRAM_OCTAVES 33 /* larger values than 2^36 - 1 share the last bucket */
#define HISTOGRAM_BUCKETS (HISTOGRAM_STEPS * (HISTOGRAM_OCTAVES + 1))

struct histogram {
	uint64_t count, most;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_note(struct histogram *histogram, uint64_t value);
void histogram_add(struct histogram *sum, const struct histogram *other);
/* Returns the value that so many of a thousand do not pass: the upper end of its bucket, and at
 * most the largest value; 0 of an empty histogram. */
uint64_t histogram_quantile(const struct histogram *histogram, unsigned per_mille);

#endif
