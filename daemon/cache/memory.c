/* memory.c: keeps rows in memory, and forgets the least recently used first. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

struct cache_memory_entry {
	struct cache_row row;
	uint64_t cost;
	bool unsaved;
	struct cache_memory_entry *chain;         /* of the bucket */
	struct cache_memory_entry *newer, *older; /* by use */
};

/* Keys are hashes already: their first three digits spread well. */
static struct cache_memory_entry **bucket(struct cache_memory *memory, const char *key)
{
	unsigned index = 0;
	for (int i = 0; i < 3 && key[i]; i++) {
		unsigned char digit = (unsigned char)key[i];
		index = index * 16 + ((unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10));
	}
	return &memory->buckets[index % MEMORY_BUCKETS];
}

static struct cache_memory_entry **slot(struct cache_memory *memory, const char *key)
{
	struct cache_memory_entry **at = bucket(memory, key);
	while (*at && strcmp((*at)->row.key, key) != 0)
		at = &(*at)->chain;
	return at;
}

static void unlink_use(struct cache_memory *memory, struct cache_memory_entry *entry)
{
	*(entry->newer ? &entry->newer->older : &memory->newest) = entry->older;
	*(entry->older ? &entry->older->newer : &memory->oldest) = entry->newer;
}

static void link_newest(struct cache_memory *memory, struct cache_memory_entry *entry)
{
	entry->newer = NULL;
	entry->older = memory->newest;
	*(memory->newest ? &memory->newest->newer : &memory->oldest) = entry;
	memory->newest = entry;
}

struct cache_row *cache_memory_get(struct cache_memory *memory, const char *key)
{
	struct cache_memory_entry *entry = *slot(memory, key);
	if (!entry)
		return NULL;
	unlink_use(memory, entry);
	link_newest(memory, entry);
	return &entry->row;
}

void cache_memory_remove(struct cache_memory *memory, const char *key)
{
	struct cache_memory_entry **at = slot(memory, key);
	struct cache_memory_entry *entry = *at;
	if (!entry)
		return;
	*at = entry->chain;
	unlink_use(memory, entry);
	memory->bytes -= entry->cost;
	memory->rows--;
	memory->unsaved -= entry->unsaved;
	cache_row_free(&entry->row);
	free(entry);
}

void cache_memory_put(struct cache_memory *memory, const struct cache_row *row)
{
	uint64_t cost = cache_row_cost(row);
	cache_memory_remove(memory, row->key);
	if (cost > memory->cap)
		return;
	while (memory->bytes > memory->cap - cost)
		cache_memory_remove(memory, memory->oldest->row.key);
	struct cache_memory_entry *entry = malloc(sizeof(*entry));
	if (!entry || cache_row_copy(row, true, &entry->row) != KILN_OK) {
		free(entry);
		return;
	}
	struct cache_memory_entry **head = bucket(memory, row->key);
	entry->cost = cost;
	entry->unsaved = false;
	entry->chain = *head;
	*head = entry;
	link_newest(memory, entry);
	memory->bytes += cost;
	memory->rows++;
}

void cache_memory_clear(struct cache_memory *memory)
{
	while (memory->oldest)
		cache_memory_remove(memory, memory->oldest->row.key);
}

void cache_memory_mark(struct cache_memory *memory, const char *key, bool unsaved)
{
	struct cache_memory_entry *entry = key ? *slot(memory, key) : memory->newest;
	for (; entry; entry = key ? NULL : entry->older) {
		memory->unsaved = memory->unsaved - entry->unsaved + unsaved;
		entry->unsaved = unsaved;
	}
}

const struct cache_row *cache_memory_unsaved(const struct cache_memory *memory)
{
	const struct cache_memory_entry *entry = memory->unsaved ? memory->newest : NULL;
	while (entry && !entry->unsaved)
		entry = entry->older;
	return entry ? &entry->row : NULL;
}

const char *cache_memory_find(const struct cache_memory *memory, const char *prefix,
							  const char *except)
{
	size_t size = strlen(prefix);
	for (const struct cache_memory_entry *entry = memory->newest; entry; entry = entry->older)
		if (strncmp(entry->row.key, prefix, size) == 0 && strcmp(entry->row.key, except) != 0)
			return entry->row.key;
	return NULL;
}
