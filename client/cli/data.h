/*
 * data.h: random numbers, and elements of any type.
 */
#ifndef KILN_CLI_DATA_H
#define KILN_CLI_DATA_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stdint.h>

/* The next number of the stream that the first *state, its seed, determines. */
uint64_t data_next(uint64_t *state);
/* The element at an address, of a real type or one that masks have. */
double data_real(kiln_dtype dtype, const void *at);
/* Fills with random values: normal for real types, for others any that are valid. */
void data_random(kiln_dtype dtype, void *data, uint64_t bytes, uint64_t seed);
/* Whether two results may both be right: equal bits, or for real types within a loose bound. */
bool data_close(kiln_dtype dtype, const void *a, const void *b, uint64_t bytes);

#endif
