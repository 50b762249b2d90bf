/* bytes.h: writes and reads numbers as files have them: 8 bytes, little endian. */
#ifndef KILN_DAEMON_UTIL_BYTES_H
#define KILN_DAEMON_UTIL_BYTES_H

#include <stdint.h>

static inline void util_put_u64(unsigned char *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t util_get_u64(const unsigned char *at)
{
	uint64_t value = 0;
	for (int i = 0; i < 8; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

#endif
