/* memory.c: keeps rows in memory, and forgets the least recently used first. */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct cache_memory_entry {
	struct cache_row row;
	atomic_int holders; /* the memory, and rows that were taken */
	uint64_t cost;
	int64_t hits, used; /* of rows given out, which the row does not have yet; used 0: none */
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

static struct cache_memory_entry *use_entry(struct cache_memory *memory, const char *key)
{
	struct cache_memory_entry *entry = *slot(memory, key);
	if (!entry)
		return NULL;
	unlink_use(memory, entry);
	link_newest(memory, entry);
	return entry;
}

const struct cache_row *cache_memory_get(struct cache_memory *memory, const char *key)
{
	pthread_mutex_lock(&memory->lock);
	struct cache_memory_entry *entry = use_entry(memory, key);
	if (entry && entry->used) {
		entry->row.hits += entry->hits;
		entry->row.used = entry->used;
		entry->hits = entry->used = 0;
	}
	pthread_mutex_unlock(&memory->lock);
	return entry ? &entry->row : NULL;
}

static void note_use(struct cache_memory *memory, const char *key, int64_t now)
{
	int i = 0;
	while (i < memory->use_count && strcmp(memory->uses[i].key, key) != 0)
		i++;
	if (i == MEMORY_USES)
		return;
	struct memory_use *use = &memory->uses[i];
	if (i == memory->use_count) {
		memory->use_count++;
		*use = (struct memory_use){.hits = 0};
		memcpy(use->key, key, sizeof(use->key));
	}
	use->hits++;
	use->used = now;
}

static bool give_out(struct cache_memory *memory, const char *key, int64_t now,
					 struct cache_row *out)
{
	struct cache_memory_entry *entry = use_entry(memory, key);
	if (!entry)
		return false;
	entry->hits++;
	entry->used = now;
	atomic_fetch_add_explicit(&entry->holders, 1, memory_order_relaxed);
	*out = entry->row;
	out->hits += entry->hits;
	out->used = now;
	out->kept = entry;
	return true;
}

bool cache_memory_take(struct cache_memory *memory, const char *key, int64_t now,
					   struct cache_row *out)
{
	pthread_mutex_lock(&memory->lock);
	const bool there = give_out(memory, key, now, out);
	pthread_mutex_unlock(&memory->lock);
	return there;
}

bool cache_memory_take_noted(struct cache_memory *memory, const char *key, int64_t now,
							 struct cache_row *out)
{
	if (pthread_mutex_trylock(&memory->lock) != 0)
		return false;
	const bool there = give_out(memory, key, now, out);
	if (there)
		note_use(memory, key, now);
	pthread_mutex_unlock(&memory->lock);
	return there;
}

void cache_memory_drop(struct cache_memory_entry *entry)
{
	if (atomic_fetch_sub_explicit(&entry->holders, 1, memory_order_acq_rel) > 1)
		return;
	cache_row_free(&entry->row);
	free(entry);
}

int cache_memory_uses(struct cache_memory *memory, struct memory_use uses[MEMORY_USES])
{
	pthread_mutex_lock(&memory->lock);
	const int count = memory->use_count;
	memcpy(uses, memory->uses, sizeof(*uses) * (size_t)count);
	memory->use_count = 0;
	pthread_mutex_unlock(&memory->lock);
	return count;
}

static void remove_row(struct cache_memory *memory, const char *key)
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
	cache_memory_drop(entry);
}

void cache_memory_remove(struct cache_memory *memory, const char *key)
{
	pthread_mutex_lock(&memory->lock);
	remove_row(memory, key);
	pthread_mutex_unlock(&memory->lock);
}

/* NULL: the row does not fit. */
static struct cache_memory_entry *copy_row(const struct cache_memory *memory,
										   const struct cache_row *row)
{
	const uint64_t cost = cache_row_cost(row);
	struct cache_memory_entry *entry = cost <= memory->cap ? calloc(1, sizeof(*entry)) : NULL;
	if (!entry || cache_row_copy(row, true, &entry->row) != KILN_OK) {
		free(entry);
		return NULL;
	}
	atomic_init(&entry->holders, 1);
	entry->cost = cost;
	return entry;
}

static void put_entry(struct cache_memory *memory, struct cache_memory_entry *entry)
{
	while (memory->bytes > memory->cap - entry->cost)
		remove_row(memory, memory->oldest->row.key);
	struct cache_memory_entry **head = bucket(memory, entry->row.key);
	entry->chain = *head;
	*head = entry;
	link_newest(memory, entry);
	memory->bytes += entry->cost;
	memory->rows++;
}

void cache_memory_put(struct cache_memory *memory, const struct cache_row *row)
{
	/* An object may be long: it is copied before the lock, at which others do not wait. */
	struct cache_memory_entry *entry = copy_row(memory, row);
	pthread_mutex_lock(&memory->lock);
	remove_row(memory, row->key);
	if (entry)
		put_entry(memory, entry);
	pthread_mutex_unlock(&memory->lock);
}

void cache_memory_clear(struct cache_memory *memory)
{
	pthread_mutex_lock(&memory->lock);
	while (memory->oldest)
		remove_row(memory, memory->oldest->row.key);
	pthread_mutex_unlock(&memory->lock);
}

void cache_memory_mark(struct cache_memory *memory, const char *key, bool unsaved)
{
	pthread_mutex_lock(&memory->lock);
	struct cache_memory_entry *entry = key ? *slot(memory, key) : memory->newest;
	for (; entry; entry = key ? NULL : entry->older) {
		memory->unsaved = memory->unsaved - entry->unsaved + unsaved;
		entry->unsaved = unsaved;
	}
	pthread_mutex_unlock(&memory->lock);
}

const struct cache_row *cache_memory_unsaved(struct cache_memory *memory)
{
	pthread_mutex_lock(&memory->lock);
	const struct cache_memory_entry *entry = memory->unsaved ? memory->newest : NULL;
	while (entry && !entry->unsaved)
		entry = entry->older;
	pthread_mutex_unlock(&memory->lock);
	return entry ? &entry->row : NULL;
}

const char *cache_memory_find(struct cache_memory *memory, const char *prefix, const char *except)
{
	const size_t size = strlen(prefix);
	pthread_mutex_lock(&memory->lock);
	const struct cache_memory_entry *entry = memory->newest;
	while (entry &&
		   (strncmp(entry->row.key, prefix, size) != 0 || strcmp(entry->row.key, except) == 0))
		entry = entry->older;
	pthread_mutex_unlock(&memory->lock);
	return entry ? entry->row.key : NULL;
}
