/*
 * rows_search.h: a search for the shapes that can hold a row, which several files make candidates
 * for.  Shared by those files alone: rows_choice.c, rows_usual.c, rows_staged.c, rows_search.c,
 * rows_shape.c.
 */
#ifndef KILN_DAEMON_PLAN_ROWS_SEARCH_H
#define KILN_DAEMON_PLAN_ROWS_SEARCH_H

#include "rows.h"

struct rows_search {
	const struct rows_form *form;
	const struct rows_need *need;
	const struct kernel_limits *limits;
	uint64_t vectors; /* that a row may touch */
	bool timed;       /* the tables were made from rows of this length */
	struct rows_shape base;
	struct rows_shape *out;
	int count, most;
};

/* Keeps a shape like the base, with so many vectors a thread, slots, rows of a block and blocks of
 * a row, if the kernel and the device have room for it. */
void rows_offer(struct rows_search *search, uint32_t held, uint32_t slots, uint32_t rows,
				uint32_t cluster);
/* Keeps one more shape, unless it is there. */
void rows_keep(struct rows_search *search, const struct rows_shape *shape);
/* Returns the 32-bit words that so many bytes take. */
uint32_t rows_words(uint32_t bytes);
/* Returns the words that a thread has of each vector. */
uint32_t rows_words_held(const struct rows_search *search);
/* Can several blocks share a row, and is it long enough? */
bool rows_clusters_possible(const struct rows_search *search);

/* Dynamic shared memory of a block. */
uint32_t rows_shape_bytes(const struct rows_form *form, const struct rows_need *need,
						  const struct rows_shape *shape);
/* Bytes that each staged row has in shared memory beside its place in a piece. */
uint32_t rows_staged_aside(const struct rows_form *form, const struct rows_need *need, bool gapped);

/* Shapes from tables (rows_usual.c): for any length, and for those of softmax that are in no other
 * table. */
void rows_offer_usual(struct rows_search *search);
void rows_offer_known(struct rows_search *search);
/* Shapes of rows that come by way of shared memory (rows_staged.c). */
void rows_offer_staged(struct rows_search *search);

#endif
