/*
 * make.h: how the families of float operators put a case together: operands, attributes,
 * names.  Every case of a list is made by these few, so that the lists are tables.
 */
#ifndef KILN_TESTS_OPS_MAKE_H
#define KILN_TESTS_OPS_MAKE_H

#include "family.h"

#define MAKE_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

struct make_shape {
	int rank;
	int64_t size[KILN_MAX_RANK];
};

/*
 * Widths of rows at which something may change in a kernel: a vector, a warp, a block, what fits
 * registers, shared memory (48, 99, 163, 227 KiB) or a cluster; and their neighbours.
 */
extern const int64_t make_widths[];
extern const int make_width_count;
/* How many rows of such a width a small case has. */
int64_t make_rows(int64_t width);
/* f32, f16, bf16, f64 in turn. */
kiln_dtype make_float(int64_t turn);

/* Operand i, contiguous and filled with NORMAL; the case grows to hold it. */
struct cases_operand *make_input(struct cases_case *c, int i, kiln_dtype dtype,
								 const struct make_shape *shape);
struct cases_operand *make_output(struct cases_case *c, int i, kiln_dtype dtype,
								  const struct make_shape *shape);
/* An output that is written in part. */
struct cases_operand *make_kept(struct cases_case *c, int i, kiln_dtype dtype,
								const struct make_shape *shape);
/* The place of an optional operand that is left out. */
void make_none(struct cases_case *c, int i);
/* Strides of the caller's. */
void make_strided(struct cases_operand *operand, const int64_t *stride);
/* Rows (last dimension) that lie `pitch` elements apart, the other dimensions around them. */
void make_pitch(struct cases_operand *operand, int64_t pitch);

void make_int(struct cases_case *c, const char *name, int64_t value);
void make_real(struct cases_case *c, const char *name, double value);
void make_word(struct cases_case *c, const char *name, const char *value);

/* Names a case when all else is done, and marks it CASES_SLOW if it is large.  operands: their
 * names, "x, mask?, y". */
void make_name(struct cases_case *c, const char *operands);
/*
 * Names a case by all operands, of which operand 1 are indices into dimension `axis` of operand
 * `few`, and marks it where it is slow, by so many elements, or reports indices out of range.
 * looked: is any index looked at?
 */
void make_name_indices(struct cases_case *c, int few, int axis, int64_t slow, bool looked);

/* ---- For random cases ---- */

int64_t make_below(uint64_t *state, int64_t limit);
bool make_chance(uint64_t *state, int one_in);
/* One in two is 1 to 70, the others lie around the sizes of vectors, warps and blocks. */
int64_t make_random_size(uint64_t *state);
/* 1 to `most` dimensions of small sizes, at most 2^14 elements in all; now and then none. */
void make_random_shape(uint64_t *state, int most, struct make_shape *shape);
/* Leaves an operand as it is, or gives it strides, an offset or, an input, unusual contents. */
void make_random_layout(uint64_t *state, struct cases_operand *operand);
double make_random_scale(uint64_t *state);

#endif
