/*
 * fake_cuda_state: what the two files of the fake share; tests include fake_cuda.h only.
 */
#ifndef KILN_TESTS_FAKE_CUDA_STATE_H
#define KILN_TESTS_FAKE_CUDA_STATE_H

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "fake_cuda.h"

extern int fake_live[FAKE_LIVE_COUNT];

/* Counts the call; the result that a test or an earlier fault wants it to have. */
CUresult fake_enter(const char *name);

#define ENTER()                                  \
	do {                                         \
		CUresult entered = fake_enter(__func__); \
		if (entered != CUDA_SUCCESS)             \
			return entered;                      \
	} while (0)

CUcontext fake_context(void);
void fake_memory_reset(void);
void fake_memory_span(uint64_t bytes); /* what cuMemGetAddressRange says of imports; 0: the truth */

#endif
