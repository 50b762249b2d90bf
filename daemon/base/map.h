/*
 * map: a hash map from short byte strings (ids, keys) to pointers, which it neither owns nor knows.
 * Zeroed, it is empty.  One thread at a time uses a map.
 */
#ifndef KILN_DAEMON_UTIL_MAP_H
#define KILN_DAEMON_UTIL_MAP_H

#include <stddef.h>
#include <stdint.h>

#define MAP_KEY_MAX 64

struct map_slot;
struct map {
	struct map_slot *slots;
	size_t count, used, capacity; /* used: count, and the slots that map_remove() left behind */
	size_t width;                 /* bytes of the longest key so far, in whole words */
	size_t taken;                 /* map_take() goes on there, so taking all values is one walk */
};

/* Returns the value; NULL: there is none. */
void *map_get(const struct map *map, const void *key, size_t bytes);
/* Adds a value, or replaces one; the key is copied.  0, or -1 without memory. */
int map_put(struct map *map, const void *key, size_t bytes, void *value);
/* Removes a value and returns it; NULL: there was none. */
void *map_remove(struct map *map, const void *key, size_t bytes);
/* Walks through all values: *cursor starts at 0, and NULL ends the walk.  The caller may remove the
 * value that was just returned, and may add none. */
void *map_next(const struct map *map, size_t *cursor);
/* Removes any one value and returns it; NULL: the map is empty. */
void *map_take(struct map *map);
/* Frees the slots; the values are the owner's. */
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
