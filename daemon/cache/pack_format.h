/* pack_format.h: the numbers of the format, for pack_write.c and pack_read.c. */
#ifndef KILN_DAEMON_CACHE_PACK_FORMAT_H
#define KILN_DAEMON_CACHE_PACK_FORMAT_H

#include "daemon/base/bytes.h"
#include "internal.h"

#define PACK_MAGIC "KILNPACK"
#define BACKUP_MAGIC "KILNKEEP"
#define PACK_VERSION 2   /* 1 without winners of tuning, so that older releases read it */
#define BACKUP_VERSION 2 /* 1 had no winners of tuning; it is read, too */
/* With the length: a pinned row, in a backup; a winner of tuning instead of a row. */
#define PACK_PINNED ((uint64_t)1 << 63)
#define PACK_WINNER ((uint64_t)1 << 62)
#define PACK_HEAD_BYTES 16
#define PACK_END_NUMBERS 3
#define BACKUP_DIGEST_BYTES 32
/* One piece has so few rows that others wait for the cache for milliseconds only. */
#define PACK_PIECE_ROWS 64
#define PACK_PIECE_BYTES ((uint64_t)4 << 20)

#endif
