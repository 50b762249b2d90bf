/*
 * permute_shift.h: tiles of unaligned rows, as permute_shift_find.c measures them,
 * permute_shift_pick.c chooses them and permute_shift.c plans them.
 */
#ifndef KILN_DAEMON_PLAN_PERMUTE_SHIFT_H
#define KILN_DAEMON_PLAN_PERMUTE_SHIFT_H

#include "permute.h"

#define SHIFT_SLIM_ROWS 512 /* of tiles whose columns are one vector */
#define SHIFT_BYTES 256     /* rows of bytes in a tile */
#define SHIFT_HALF 64       /* rows of halves in the lowest tiles */
#define SHIFT_NARROW 160    /* bytes of all rows, of which a box makes more */

/* A choice of tiles determines these. */
struct shift_shape {
	bool run;            /* all rows of some columns */
	bool skew_x, skew_y; /* vectors straddle */
	uint32_t chunks;     /* of 16 bytes, of a column in shared memory */
	uint32_t bytes;      /* of shared memory */
	uint32_t slots;      /* what a thread does at once while loading */
};

/* The matrix that a shift turns, and whether a tile may take all rows of some columns (*run);
 * false: there is none, and why was added. */
bool permute_shift_find(const struct permute_form *form, struct permute_matrix *matrix, bool *run,
						struct plan_text *why);
/* Are the columns one vector that is aligned, and the rows many?  Eight halves are better off in a
 * box. */
bool permute_shift_is_slim(const struct permute_matrix *matrix, uint32_t element);
/* The usual rows and columns of a tile. */
uint32_t permute_shift_side(uint32_t element);
/* A tile's stores to a column of y begin at a multiple of this, as in the kernel. */
uint32_t permute_shift_align(const struct permute_variant *variant,
							 const struct permute_matrix *matrix, uint32_t element);
struct shift_shape permute_shift_shape(const struct permute_choice *c,
									   const struct permute_matrix *matrix, bool can_run,
									   uint32_t element, uint32_t align);
/* Candidates, the best first. */
void permute_shift_suggest(struct permute_list *list, struct plan_text *why);

#endif
