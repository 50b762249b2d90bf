/*
 * permute.h: the canonical form of a permute, and the variants that may take it.  Shared by the
 * permute_*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_PERMUTE_H
#define KILN_DAEMON_PLAN_PERMUTE_H

#include "internal.h"

/* A byte-wise split of elements and factors of huge sizes add to the rank. */
#define PERMUTE_MAX_DIMS (KILN_MAX_RANK + 12)

struct permute_dim {
	int64_t size;
	int64_t from, to; /* strides in x and y, in elements of the form */
};

/*
 * What is left of a permute when names are gone: the dimensions in y's order, slowest first,
 * without those of size 1, neighbours merged where both sides run on; and the bytes that move as
 * one, which is the widest power of two that the run, the strides and both addresses allow.  Two
 * problems with one form (but for the size of the slowest dimension) are one kernel.
 */
struct permute_form {
	uint32_t element; /* bytes: 1, 2, 4, 8, 16 */
	int rank;
	struct permute_dim dim[PERMUTE_MAX_DIMS];
	int64_t count;             /* elements */
	uint32_t align_x, align_y; /* of the addresses, at most 16 */
	bool huge;                 /* a size is beyond 31 bits */
};

/* max_size: no merge may make a dimension larger. */
void permute_canonical(const struct kernel_problem *problem, const int64_t *perm, int64_t max_size,
					   struct permute_form *form);
/* Makes elements wider and cuts huge dimensions: the last steps, once no copy was found. */
void permute_refine(struct permute_form *form);
/* One contiguous run on both sides. */
bool permute_is_copy(const struct permute_form *form);

/*
 * Variants.  Each fills in the plan and answers true, or answers false with the reason in why.
 * permute_strided takes all.
 */
bool permute_vector(const struct permute_form *form, const struct kernel_limits *limits,
					struct kernel_plan *out, struct plan_text *why);
bool permute_interleave(const struct permute_form *form, const struct kernel_limits *limits,
						struct kernel_plan *out, struct plan_text *why);
bool permute_tile(const struct permute_form *form, const struct kernel_limits *limits,
				  struct kernel_plan *out, struct plan_text *why);
bool permute_strided(const struct permute_form *form, const struct kernel_limits *limits,
					 struct kernel_plan *out, struct plan_text *why);

/* ---- Shared by the variants ---- */

/* The dimension of the smallest stride in x that is not 0; -1 if x is one element. */
int permute_fastest(const struct permute_form *form);
/* "i32" if offsets in both tensors, of all dimensions but `without` (-1: none), are small enough.
 */
const char *permute_offset_type(const struct permute_form *form, int without);
/* The widest vector (bytes) that divides the given run and the strides in x (or y) of the
 * dimensions that are not in `skip`. */
uint32_t permute_width(const struct permute_form *form, bool in_x, int64_t run, uint32_t skip);

enum permute_field { PERMUTE_SIZE, PERMUTE_FROM, PERMUTE_TO };
/* ", List<...>" of the dimensions in mask, fastest in y first. */
void permute_print_list(struct plan_text *text, const struct permute_form *form, uint32_t mask,
						enum permute_field field);

/* The dimensions that are only iterated over: the slowest is a matter of the launch. */
struct permute_batch {
	uint32_t inner; /* mask */
	int outer;      /* -1: none */
	int64_t items;  /* all of them multiplied */
};
void permute_batch(const struct permute_form *form, uint32_t used, struct permute_batch *batch);
/* ", List<sizes>, List<strides in x>, List<strides in y>" of the inner ones */
void permute_print_batch(struct plan_text *text, const struct permute_form *form,
						 const struct permute_batch *batch);
/* x, y, both strides of the outer dimension, and how much work there is. */
void permute_batch_args(struct kernel_plan *out, const struct permute_form *form,
						const struct permute_batch *batch, uint64_t work);

/* Grid and block in x; true if the grid cannot hold so many blocks (or numbers 32 bits). */
bool permute_grid(struct kernel_plan *out, const struct kernel_limits *limits, uint64_t work,
				  uint32_t per_block, uint32_t threads);

#endif
