/*
 * cases_missing.c: nothing, in the place of families whose own file has not come yet.
 */
#include "cases_build.h"

#define MISSING(family)                                                                       \
	__attribute__((weak)) void cases_add_##family(void)                                       \
	{                                                                                         \
	}                                                                                         \
	__attribute__((weak)) void cases_random_##family(uint64_t *state, struct cases_case *out) \
	{                                                                                         \
		cases_random_permute(state, out);                                                     \
	}

MISSING(softmax)
MISSING(masked_softmax)
MISSING(norm)
MISSING(norm_backward)
