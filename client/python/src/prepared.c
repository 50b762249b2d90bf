/*
 * prepared.c: a hash finds the bucket, and the whole key is compared.
 */
#include "prepared.h"

#include <stdlib.h>
#include <string.h>

void key_put_text(struct key *key, const char *text)
{
	size_t bytes = strlen(text), words = (bytes + 7) / 8;
	key_put(key, bytes);
	if (key->count + (int)words <= KEY_WORDS && words > 0) {
		key->words[key->count + (int)words - 1] = 0;
		memcpy(&key->words[key->count], text, bytes);
	}
	key->count += (int)words;
}

void key_finish(struct key *key)
{
	uint64_t hash = (uint64_t)key->count;
	for (int i = 0; i < key->count && i < KEY_WORDS; i++) {
		hash = (hash ^ key->words[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	key->hash = hash;
}

static void unlink_use(struct prepared_table *table, struct prepared *one)
{
	*(one->newer ? &one->newer->older : &table->newest) = one->older;
	*(one->older ? &one->older->newer : &table->oldest) = one->newer;
}

static void link_newest(struct prepared_table *table, struct prepared *one)
{
	one->newer = NULL;
	one->older = table->newest;
	*(one->older ? &one->older->newer : &table->oldest) = one;
	table->newest = one;
}

struct prepared *prepared_find(struct prepared_table *table, const struct key *key)
{
	struct prepared *one = table->buckets[key->hash % PREPARED_BUCKETS];
	while (one && (one->hash != key->hash || one->words != key->count ||
				   memcmp(one->key, key->words, (size_t)key->count * sizeof(key->words[0])) != 0))
		one = one->next;
	if (!one)
		return NULL;
	if (table->newest != one) {
		unlink_use(table, one);
		link_newest(table, one);
	}
	one->refs++;
	return one;
}

struct prepared *prepared_new(const struct key *key, int count)
{
	size_t words = key->count <= KEY_WORDS ? (size_t)key->count : 0;
	struct prepared *one = calloc(1, sizeof(*one) + words * sizeof(uint64_t));
	struct prepared_operand *operands = calloc((size_t)count + 1, sizeof(*operands));
	if (!one || !operands) {
		free(one);
		free(operands);
		PyErr_NoMemory();
		return NULL;
	}
	one->refs = 1;
	one->hash = key->hash;
	one->count = count;
	one->operands = operands;
	one->words = (int)words;
	memcpy(one->key, key->words, words * sizeof(uint64_t));
	return one;
}

/* Takes it out of the table, with the table's reference; NULL if it is not there. */
static struct prepared *take(struct prepared_table *table, struct prepared *one)
{
	struct prepared **at = &table->buckets[one->hash % PREPARED_BUCKETS];
	while (*at && *at != one)
		at = &(*at)->next;
	if (!*at)
		return NULL;
	*at = one->next;
	unlink_use(table, one);
	table->count--;
	return one;
}

void prepared_add(struct prepared_table *table, struct prepared *one)
{
	if (one->words == 0)
		return;
	struct prepared *evicted = table->count >= PREPARED_MOST ? take(table, table->oldest) : NULL;
	struct prepared **bucket = &table->buckets[one->hash % PREPARED_BUCKETS];
	one->next = *bucket;
	*bucket = one;
	link_newest(table, one);
	table->count++;
	one->refs++;
	if (!evicted)
		return;
	/* The driver may wait for what runs before it unloads a kernel. */
	kiln_call *call = evicted->refs == 1 ? evicted->call : NULL;
	if (call) {
		evicted->call = NULL;
		Py_BEGIN_ALLOW_THREADS;
		kiln_call_free(call);
		Py_END_ALLOW_THREADS;
	}
	prepared_unref(evicted);
}

void prepared_remove(struct prepared_table *table, struct prepared *one)
{
	prepared_unref(take(table, one));
}

void prepared_clear(struct prepared_table *table)
{
	while (table->oldest)
		prepared_remove(table, table->oldest);
}

void prepared_unref(struct prepared *one)
{
	if (!one || --one->refs > 0)
		return;
	kiln_call_free(one->call);
	for (int i = 0; i < one->count; i++) {
		Py_XDECREF(one->operands[i].shape);
		Py_XDECREF(one->operands[i].pattern);
	}
	free(one->operands);
	free(one);
}
