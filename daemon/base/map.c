/* map.c: open addressing with linear probing.  A removed slot is free again when the map grows, or
 * at once where a run of slots ends with it. */
#include "map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A slot has room for the map's longest key.  Most maps have ids, and their slots take a third of
 * what the longest possible key would take. */
struct map_slot {
	size_t bytes; /* 0: never used */
	void *value;  /* NULL with bytes > 0: removed */
	unsigned char key[];
};

static size_t stride_of(const struct map *map)
{
	return sizeof(struct map_slot) + map->width;
}

static struct map_slot *slot_at(const struct map *map, size_t i)
{
	return (struct map_slot *)((char *)map->slots + i * stride_of(map));
}

/* A product for each eight bytes.  Keys are our own ids and digests, so nobody chooses
 * collisions. */
static uint64_t hash_of(const void *key, size_t bytes)
{
	const unsigned char *at = key;
	uint64_t hash = 0, word;
	for (; bytes >= sizeof(word); at += sizeof(word), bytes -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 32;
	}
	for (; bytes > 0; at++, bytes--)
		hash = (hash ^ *at) * 1099511628211u;
	return hash ^ hash >> 29;
}

static struct map_slot *map_find(const struct map *map, const void *key, size_t bytes)
{
	if (!map->capacity)
		return NULL;
	size_t i = hash_of(key, bytes) & (map->capacity - 1);
	struct map_slot *slot;
	while ((slot = slot_at(map, i))->bytes) {
		/* A comparison of constant size, as that of ids, takes no call. */
		if (slot->bytes == bytes &&
			(bytes == sizeof(uint64_t) ? !memcmp(slot->key, key, sizeof(uint64_t))
									   : !memcmp(slot->key, key, bytes)))
			return slot;
		i = (i + 1) & (map->capacity - 1);
	}
	return slot;
}

/* Makes room for one more, and for keys of so many bytes. */
static int map_grow(struct map *map, size_t bytes)
{
	struct map bigger = {.capacity = 16, .width = (bytes + 7) / 8 * 8};
	if (bigger.width < map->width)
		bigger.width = map->width;
	while (bigger.capacity < map->count * 4)
		bigger.capacity *= 2;
	bigger.slots = calloc(bigger.capacity, stride_of(&bigger));
	if (!bigger.slots)
		return -1;
	for (size_t i = 0; i < map->capacity; i++) {
		const struct map_slot *slot = slot_at(map, i);
		if (slot->bytes && slot->value) {
			memcpy(map_find(&bigger, slot->key, slot->bytes), slot, sizeof(*slot) + slot->bytes);
			bigger.count++;
		}
	}
	bigger.used = bigger.count;
	free(map->slots);
	*map = bigger;
	return 0;
}

void *map_get(const struct map *map, const void *key, size_t bytes)
{
	const struct map_slot *slot = map_find(map, key, bytes);
	return slot && slot->bytes ? slot->value : NULL;
}

int map_put(struct map *map, const void *key, size_t bytes, void *value)
{
	if (!bytes || bytes > MAP_KEY_MAX || !value)
		return -1;
	if ((map->used * 4 >= map->capacity * 3 || bytes > map->width) && map_grow(map, bytes) < 0)
		return -1;
	struct map_slot *slot = map_find(map, key, bytes);
	if (!slot->bytes) {
		memcpy(slot->key, key, bytes);
		slot->bytes = bytes;
		map->used++;
	}
	if (!slot->value)
		map->count++;
	slot->value = value;
	return 0;
}

void *map_remove(struct map *map, const void *key, size_t bytes)
{
	struct map_slot *slot = map_find(map, key, bytes);
	if (!slot || !slot->bytes || !slot->value)
		return NULL;
	void *value = slot->value;
	slot->value = NULL;
	map->count--;
	/* Nothing stands behind a slot that was never used, so no search has to go on to it. */
	size_t mask = map->capacity - 1;
	size_t i = (size_t)((char *)slot - (char *)map->slots) / stride_of(map);
	while (!slot_at(map, (i + 1) & mask)->bytes && slot_at(map, i)->bytes &&
		   !slot_at(map, i)->value) {
		slot_at(map, i)->bytes = 0;
		map->used--;
		i = (i - 1) & mask;
	}
	return value;
}

void *map_next(const struct map *map, size_t *cursor)
{
	while (*cursor < map->capacity) {
		const struct map_slot *slot = slot_at(map, (*cursor)++);
		if (slot->bytes && slot->value)
			return slot->value;
	}
	return NULL;
}

void *map_take(struct map *map)
{
	for (size_t i = 0; i < map->capacity; i++) {
		struct map_slot *slot = slot_at(map, map->taken++ & (map->capacity - 1));
		if (slot->bytes && slot->value)
			return map_remove(map, slot->key, slot->bytes);
	}
	return NULL;
}

void map_free(struct map *map)
{
	free(map->slots);
	memset(map, 0, sizeof(*map));
}
