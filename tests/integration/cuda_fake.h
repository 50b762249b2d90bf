/*
 * cuda_fake.h: the fake CUDA driver in a test's own process, where libkiln finds it, too.
 */
#ifndef KILN_TESTS_CUDA_FAKE_H
#define KILN_TESTS_CUDA_FAKE_H

#include "tests/unit/exec/cuda/fake_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>

static const struct fake_cuda_control *fake;

/* A symbol of the driver; without it the test ends. */
static inline void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (!found)
		exit(1);
	return found;
}

/* Loads the driver from its path, and sets fake; the library stays open. */
static inline void *load_fake(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	if (!library)
		exit(1);
	setenv("KILN_LIBCUDA", path, 1);
	fake = symbol(library, "fake_cuda_control");
	return library;
}

#endif
