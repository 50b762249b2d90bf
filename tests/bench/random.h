/*
 * random.h: problems that no list has, for bench_random.
 */
#ifndef KILN_BENCH_RANDOM_H
#define KILN_BENCH_RANDOM_H

#include "tests/ops/common/cases.h"

/*
 * Draws so many different problems of these operators (a list of words; NULL: of all that are
 * drawn) into an array that the caller frees.  The same seed gives the same problems in the same
 * order; operators left out leave the others as they are.  NULL: no memory, or no operator of
 * these names is drawn.
 */
struct cases_case *random_draw(uint64_t seed, const char *ops, int count);

#endif
