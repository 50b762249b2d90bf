/* pack_format.h: the numbers of the format, for pack_write.c and pack_read.c. */
#ifndef KILN_DAEMON_CACHE_PACK_FORMAT_H
#define KILN_DAEMON_CACHE_PACK_FORMAT_H

#include "daemon/base/bytes.h"
#include "internal.h"

#define PACK_MAGIC "KILNPACK"
#define PACK_VERSION 1
#define PACK_HEAD_BYTES 16
#define PACK_END_NUMBERS 3
#define PACK_LEAST_BYTES (PACK_HEAD_BYTES + 8 * PACK_END_NUMBERS + SEAL_BYTES)
/* One piece has so few rows that others wait for the cache for milliseconds only. */
#define PACK_PIECE_ROWS 64
#define PACK_PIECE_BYTES ((uint64_t)4 << 20)

#endif
