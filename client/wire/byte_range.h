/*
 * byte_range.h: which bytes of memory an operand of a launch touches, and whether two operands
 * share one.  libkiln, the broker and the device processes ask alike.
 */
#ifndef KILN_CLIENT_BYTE_RANGE_H
#define KILN_CLIENT_BYTE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct byte_range {
	uint64_t at, bytes;
	/* The first `width` bytes of each period are touched, from `at` on; period 0: all are. */
	uint64_t period, width;
};

static inline bool byte_range_meets(const struct byte_range *a, const struct byte_range *b)
{
	uint64_t ahead;

	if (a->bytes == 0 || b->bytes == 0 || a->at >= b->at + b->bytes || b->at >= a->at + a->bytes)
		return false;
	if (a->period == 0 || a->period != b->period)
		return true;
	ahead = b->at >= a->at ? (b->at - a->at) % a->period
						   : (a->period - (a->at - b->at) % a->period) % a->period;
	return ahead < a->width || ahead + b->width > a->period;
}

static inline bool byte_range_is(const struct byte_range *a, const struct byte_range *b)
{
	return a->at == b->at && a->bytes == b->bytes;
}

#endif
