/*
 * idmap: open addressing with linear probing; a removal moves the entries behind it up, so there
 * are no tombstones.  Knows nothing of what the values are.
 */
#include "idmap.h"

#include <stdlib.h>

struct idmap_slot {
	uint64_t id; /* 0: free */
	void *value;
};

/* Ids rise by one: multiplying spreads them.  The capacity is a power of two. */
static size_t home(const struct idmap *map, uint64_t id)
{
	return (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (map->capacity - 1);
}

static struct idmap_slot *find(const struct idmap *map, uint64_t id)
{
	if (map->capacity == 0 || id == 0)
		return NULL;
	size_t i = home(map, id);
	while (map->slots[i].id != 0 && map->slots[i].id != id)
		i = (i + 1) & (map->capacity - 1);
	return &map->slots[i];
}

static bool grow(struct idmap *map)
{
	struct idmap larger = {.capacity = map->capacity ? map->capacity * 2 : 64, .count = map->count};
	larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].id != 0)
			*find(&larger, map->slots[i].id) = map->slots[i];
	free(map->slots);
	*map = larger;
	return true;
}

bool idmap_put(struct idmap *map, uint64_t id, void *value)
{
	if (map->count * 2 >= map->capacity && !grow(map))
		return false;
	struct idmap_slot *slot = find(map, id);
	slot->id = id;
	slot->value = value;
	map->count++;
	return true;
}

void *idmap_get(const struct idmap *map, uint64_t id)
{
	const struct idmap_slot *slot = find(map, id);
	return slot && slot->id == id ? slot->value : NULL;
}

void *idmap_remove(struct idmap *map, uint64_t id)
{
	struct idmap_slot *slot = find(map, id);
	if (!slot || slot->id != id)
		return NULL;
	void *value = slot->value;
	size_t mask = map->capacity - 1, hole = (size_t)(slot - map->slots);
	for (size_t i = (hole + 1) & mask; map->slots[i].id != 0; i = (i + 1) & mask) {
		/* An entry may move up unless its home lies between the hole and itself. */
		if (((i - home(map, map->slots[i].id)) & mask) >= ((i - hole) & mask)) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole].id = 0;
	map->count--;
	return value;
}

void *idmap_take(struct idmap *map)
{
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].id != 0)
			return idmap_remove(map, map->slots[i].id);
	return NULL;
}

void idmap_free(struct idmap *map)
{
	free(map->slots);
	*map = (struct idmap){0};
}
