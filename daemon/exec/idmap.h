/*
 * idmap: from ids that the broker gives to what they name.  Knows nothing of what that is.
 */
#ifndef KILN_DAEMON_IDMAP_H
#define KILN_DAEMON_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap {
	struct idmap_slot *slots;
	size_t capacity, count;
};

/* id > 0, not yet there.  False when out of memory. */
bool idmap_put(struct idmap *map, uint64_t id, void *value);
/* NULL if there is none. */
void *idmap_get(const struct idmap *map, uint64_t id);
/* What was removed, or NULL. */
void *idmap_remove(struct idmap *map, uint64_t id);
/* Any one entry, removed; NULL when empty.  For taking everything down. */
void *idmap_take(struct idmap *map);
void idmap_free(struct idmap *map);

#endif
