/* pack_winners: winners of tuning as bytes, in packs (pack.h says how they lie in the file) and in
 * the second tier. */
#ifndef KILN_DAEMON_CACHE_PACK_WINNERS_H
#define KILN_DAEMON_CACHE_PACK_WINNERS_H

#include "cache.h"

#define WINNER_NUMBERS 4
#define PACK_WINNER_MOST (sizeof(struct cache_tuned) + 8 * WINNER_NUMBERS)

struct pack_winners {
	struct cache_tuned *rows; /* the caller frees them */
	size_t count, room;
};

/* Returns how many bytes the row has. */
size_t pack_winner_encode(const struct cache_tuned *row, unsigned char bytes[PACK_WINNER_MOST]);
/* False: these bytes are no row. */
bool pack_winner_decode(const void *bytes, size_t size, struct cache_tuned *out);
/* Adds the row that these bytes are; KILN_EPROTO: they are none. */
int pack_winners_add(struct pack_winners *winners, const void *bytes, size_t size, const char *what,
					 char error[KERNEL_ERROR_MAX]);
/* Puts those into the cache for which it has no row that is as new; the others leave the list. */
int pack_winners_take(struct pack_winners *winners, struct cache *cache,
					  char error[KERNEL_ERROR_MAX]);

#endif
