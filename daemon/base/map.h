/*
 * map: a hash map from short byte strings (ids, keys) to pointers.  Knows nothing of what it holds.
 */
#ifndef KILN_DAEMON_UTIL_MAP_H
#define KILN_DAEMON_UTIL_MAP_H

#include <stddef.h>
#include <stdint.h>

#define MAP_KEY_MAX 64

struct map_slot;
struct map {
	struct map_slot *slots;
	size_t count, used, capacity; /* used: also those left behind by map_remove */
};

/* NULL if absent. */
void *map_get(const struct map *map, const void *key, size_t bytes);
/* Adds or replaces.  0, or -1 without memory. */
int map_put(struct map *map, const void *key, size_t bytes, void *value);
/* The value that was there, or NULL. */
void *map_remove(struct map *map, const void *key, size_t bytes);
/* Walks: *cursor starts at 0; NULL at the end.  Removing what was just returned is fine, adding is
 * not. */
void *map_next(const struct map *map, size_t *cursor);
/* Any one value, removed; NULL when empty.  For taking everything down. */
void *map_take(struct map *map);
void map_free(struct map *map);

static inline void *map_get_id(const struct map *map, uint64_t id)
{
	return map_get(map, &id, sizeof(id));
}
static inline int map_put_id(struct map *map, uint64_t id, void *value)
{
	return map_put(map, &id, sizeof(id), value);
}
static inline void *map_remove_id(struct map *map, uint64_t id)
{
	return map_remove(map, &id, sizeof(id));
}

#endif
