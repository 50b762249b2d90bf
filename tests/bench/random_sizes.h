/*
 * random_sizes.h: the sizes that problems are drawn with.
 */
#ifndef KILN_BENCH_RANDOM_SIZES_H
#define KILN_BENCH_RANDOM_SIZES_H

#include "tests/ops/common/make.h"

/* As likely in each octave. */
int64_t sizes_between(uint64_t *state, int64_t least, int64_t most);
/* Draws the length of a row: a vocabulary, a hidden state, a head, a sequence; a prime; any. */
int64_t sizes_columns(uint64_t *state);
/* Draws the length that a norm goes over: mostly a hidden state or a head. */
int64_t sizes_hidden(uint64_t *state);
/* Tokens or patches of an image. */
int64_t sizes_sequence(uint64_t *state);
/* A shape of about so many elements and a permutation of it that is none of a layout alone. */
void sizes_permutation(uint64_t *state, int64_t elements, struct make_shape *shape,
					   int64_t perm[KILN_MAX_RANK]);

#endif
