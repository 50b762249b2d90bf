/*
 * rows_search.c: keeps a candidate for rows if the device has room for it.
 */
#include "rows_search.h"

#include <string.h>

bool rows_clusters_possible(const struct rows_search *search)
{
	return search->need->clusters && rows_clusters(search->form, 8, search->limits) &&
		   search->vectors >= 4096;
}

void rows_keep(struct rows_search *search, const struct rows_shape *shape)
{
	for (int i = 0; i < search->count; i++)
		if (memcmp(&search->out[i], shape, sizeof(*shape)) == 0)
			return;
	if (search->count < search->most)
		search->out[search->count++] = *shape;
}

uint32_t rows_words(uint32_t bytes)
{
	return (bytes + 3) / 4;
}

uint32_t rows_words_held(const struct rows_search *search)
{
	const struct rows_need *need = search->need;
	uint32_t vector = search->base.vector;
	uint32_t words = rows_words(vector * need->element) + rows_words(vector * need->converted);

	return words * need->streams + rows_words(vector * need->beside);
}

void rows_offer(struct rows_search *search, uint32_t held, uint32_t slots, uint32_t rows,
				uint32_t cluster)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;
	uint32_t words = rows_words_held(search);

	shape.held = held;
	shape.slots = slots;
	shape.cluster = cluster;
	shape.size = rows_group(plan_divide_up(search->vectors, cluster), held);
	shape.rows = rows;
	/* A block is whole warps. */
	while (shape.size * shape.rows % 32)
		shape.rows *= 2;
	if (shape.size * shape.rows > search->limits->max_threads ||
		(held - slots) * words > need->registers ||
		(slots && rows_shape_bytes(search->form, need, &shape) + ROWS_SHARED_MEET >
					  search->limits->shared_optin))
		return;
	if (slots && (!need->slots || shape.vector * need->element != 16))
		return;
	/* The registers of a multiprocessor: 64 Ki words.  For clusters the compiler saves them. */
	if ((cluster > 1 && need->converted && held - slots > 6) ||
		((held - slots) * words + 24 + need->around) * shape.size * shape.rows > 65536)
		return;
	rows_keep(search, &shape);
}
