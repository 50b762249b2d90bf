/*
 * signature.c: a hash finds the bucket, and the whole key is compared before a call counts as
 * found.
 *
 * A key is a row of words in which every part says how long it is, so different arguments never
 * make the same key.  Alignment belongs to the key: the planner chooses another kernel for data
 * that does not lie at a multiple of 16 bytes, and neither kernel may be launched with the other's
 * data.
 */
#include "signature.h"
#include "buffer.h"
#include "call.h"
#include "link.h"

#include <stdlib.h>
#include <string.h>

struct remembered {
	struct remembered *next; /* next in the bucket */
	struct remembered *newer, *older;
	struct kiln_call *call;
	uint64_t hash;
	size_t words;
	uint64_t key[];
};

struct signatures *signatures_new(void)
{
	return calloc(1, sizeof(struct signatures));
}

void signatures_free(struct signatures *table)
{
	free(table);
}

/* ---- Keys ---- */

/* Words beyond the room are counted, too. */
static void put(struct signatures *table, uint64_t word)
{
	if (table->words < SIGNATURE_WORDS)
		table->key[table->words] = word;
	table->words++;
}

static void put_bytes(struct signatures *table, const void *data, size_t bytes)
{
	size_t words = (bytes + 7) / 8;
	size_t room = table->words < SIGNATURE_WORDS ? SIGNATURE_WORDS - table->words : 0;
	if (words > room) {
		table->words = SIGNATURE_WORDS + 1;
		return;
	}
	if (words > 0) {
		table->key[table->words + words - 1] = 0;
		memcpy(&table->key[table->words], data, bytes);
	}
	table->words += words;
}

static void put_text(struct signatures *table, const char *text)
{
	size_t bytes = strlen(text);
	put(table, bytes);
	put_bytes(table, text, bytes);
}

static bool put_tensor(struct signatures *table, const kiln_client *client,
					   const kiln_tensor *tensor)
{
	const kiln_buffer *buffer = tensor->buffer;
	if (tensor->dtype == KILN_DTYPE_NONE) {
		put(table, (uint64_t)tensor->dtype);
		return !buffer;
	}
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK || (buffer && buffer->client != client))
		return false;
	bool strided = tensor->contiguous == 0;
	/* Kernels ask for an alignment of 16 bytes at most. */
	uint64_t place = ((buffer ? buffer->phase : 0) + tensor->offset) | 16,
			 alignment = place & -place;
	put(table, (uint64_t)tensor->dtype);
	put(table, (uint64_t)tensor->rank << 16 | (uint64_t)strided << 8 | alignment);
	put_bytes(table, tensor->shape, (size_t)tensor->rank * sizeof(tensor->shape[0]));
	if (strided)
		put_bytes(table, tensor->stride, (size_t)tensor->rank * sizeof(tensor->stride[0]));
	return true;
}

static bool put_attr(struct signatures *table, const kiln_attr *attr)
{
	uint64_t bits;
	if (!attr->name || attr->name[0] == 0)
		return false;
	put_text(table, attr->name);
	put(table, (uint64_t)attr->kind);
	switch (attr->kind) {
	case KILN_ATTR_INT:
		put(table, (uint64_t)attr->i);
		return true;
	case KILN_ATTR_REAL:
		memcpy(&bits, &attr->f, sizeof(bits));
		put(table, bits);
		return true;
	case KILN_ATTR_INTS:
		if (attr->count < 0 || (attr->count > 0 && !attr->ints))
			return false;
		put(table, (uint64_t)attr->count);
		put_bytes(table, attr->ints, (size_t)attr->count * sizeof(attr->ints[0]));
		return true;
	case KILN_ATTR_STRING:
		if (!attr->s)
			return false;
		put_text(table, attr->s);
		return true;
	default:
		return false;
	}
}

static uint64_t signature_hash_of(const uint64_t *key, size_t words)
{
	uint64_t hash = words;
	for (size_t i = 0; i < words; i++) {
		hash = (hash ^ key[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash;
}

bool signature_ask(struct signatures *table, const kiln_client *client, const char *op,
				   const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
				   int attr_count)
{
	table->words = 0;
	if (!op || op[0] == 0 || tensor_count < 0 || tensor_count > KILN_MAX_OPERANDS ||
		(tensor_count > 0 && !tensors) || attr_count < 0 || attr_count > KILN_MAX_ATTRS ||
		(attr_count > 0 && !attrs))
		return false;
	put_text(table, op);
	put(table, (uint64_t)tensor_count << 32 | (uint64_t)attr_count);
	for (int i = 0; i < tensor_count; i++)
		if (!put_tensor(table, client, &tensors[i]))
			return false;
	for (int i = 0; i < attr_count; i++)
		if (!put_attr(table, &attrs[i]))
			return false;
	if (table->words > SIGNATURE_WORDS)
		return false;
	table->hash = signature_hash_of(table->key, table->words);
	return true;
}

/* ---- The table ---- */

static size_t bytes_of(size_t words)
{
	return sizeof(struct remembered) + words * sizeof(uint64_t);
}

static struct remembered **bucket_of(struct signatures *table, uint64_t hash)
{
	return &table->buckets[hash % SIGNATURE_BUCKETS];
}

static void unlink_use(struct signatures *table, struct remembered *entry)
{
	*(entry->newer ? &entry->newer->older : &table->newest) = entry->older;
	*(entry->older ? &entry->older->newer : &table->oldest) = entry->newer;
}

static void link_newest(struct signatures *table, struct remembered *entry)
{
	entry->newer = NULL;
	entry->older = table->newest;
	*(entry->older ? &entry->older->newer : &table->oldest) = entry;
	table->newest = entry;
}

struct kiln_call *signature_find(struct signatures *table)
{
	struct remembered *entry = *bucket_of(table, table->hash);
	while (entry && (entry->hash != table->hash || entry->words != table->words ||
					 memcmp(entry->key, table->key, table->words * sizeof(table->key[0])) != 0))
		entry = entry->next;
	if (!entry)
		return NULL;
	unlink_use(table, entry);
	link_newest(table, entry);
	return entry->call;
}

bool signature_is_full(const struct signatures *table)
{
	return table->count >= SIGNATURE_CALLS ||
		   table->bytes + bytes_of(table->words) > SIGNATURE_BYTES;
}

bool signature_remember(struct signatures *table, struct kiln_call *call)
{
	struct remembered *entry = malloc(bytes_of(table->words));
	struct remembered **bucket = bucket_of(table, table->hash);
	if (!entry)
		return false;
	entry->call = call;
	entry->hash = table->hash;
	entry->words = table->words;
	memcpy(entry->key, table->key, table->words * sizeof(table->key[0]));
	entry->next = *bucket;
	*bucket = entry;
	link_newest(table, entry);
	table->count++;
	table->bytes += bytes_of(entry->words);
	return true;
}

static struct kiln_call *forget_entry(struct signatures *table, struct remembered *entry)
{
	struct remembered **at = bucket_of(table, entry->hash);
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	unlink_use(table, entry);
	table->count--;
	table->bytes -= bytes_of(entry->words);
	struct kiln_call *call = entry->call;
	free(entry);
	return call;
}

void signature_forget_newest(struct signatures *table)
{
	(void)forget_entry(table, table->newest);
}

struct kiln_call *signature_forget_oldest(struct signatures *table)
{
	return table->oldest ? forget_entry(table, table->oldest) : NULL;
}
