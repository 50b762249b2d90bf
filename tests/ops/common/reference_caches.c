/*
 * reference_caches.c: paged caches: where their slots are, and which stay as they were.
 */
#include "reference.h"

#include <string.h>

#define CHUNK 256 /* slots */

/* The dimension of a cache that numbers the slots of a block. */
static int place_of(const struct cases_case *c)
{
	return reference_is(c, "kv_layout", "hnd") ? 2 : 1;
}

int64_t reference_slots(const struct cases_case *c, int cache)
{
	const struct cases_operand *o = &c->operand[cache];

	return o->shape[0] * o->shape[place_of(c)];
}

int64_t reference_slot_at(const struct cases_case *c, int cache, int64_t slot, int64_t head)
{
	const struct cases_operand *o = &c->operand[cache];
	int place = place_of(c);

	return slot / o->shape[place] * o->stride[0] + slot % o->shape[place] * o->stride[place] +
		   head * o->stride[3 - place];
}

int64_t reference_chunks(const struct cases_case *c, int cache)
{
	return (reference_slots(c, cache) + CHUNK - 1) / CHUNK;
}

static void stay(const struct reference *r, int cache, int64_t slot)
{
	const struct cases_operand *o = &r->c->operand[cache];
	unsigned char before[16];

	memset(before, CASES_KEPT, sizeof(before));
	for (int64_t head = 0; head < o->shape[3 - place_of(r->c)]; head++)
		for (int64_t i = 0; i < o->shape[3]; i++)
			reference_bytes(r, cache, reference_slot_at(r->c, cache, slot, head) + i, before);
}

void reference_chunk(const struct reference *r, int cache, int64_t chunk, int64_t tokens,
					 int64_t (*slot_of)(const struct reference *r, int64_t token))
{
	int64_t first = chunk * CHUNK, last = first + CHUNK, slots = reference_slots(r->c, cache);
	bool named[CHUNK] = {false};

	for (int64_t token = 0; token < tokens; token++) {
		int64_t slot = slot_of(r, token);
		if (slot >= first && slot < last)
			named[slot - first] = true;
	}
	for (int64_t slot = first; slot < last && slot < slots; slot++)
		for (int i = cache; i <= cache + 1 && !named[slot - first]; i++)
			stay(r, i, slot);
}
