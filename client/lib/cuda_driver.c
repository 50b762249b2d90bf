/*
 * cuda_driver.c: see cuda_driver.h.
 */
#ifdef KILN_HAVE_CUDA_H

#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NAME(f) #f
#define EXPANDED(f) NAME(f)

struct cuda_driver cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing;

static void load_driver(void)
{
	const char *named = secure_getenv("KILN_LIBCUDA");
	const char *file = named && named[0] != 0 ? named : "libcuda.so.1";
	/* The library is never closed: the program uses it, too. */
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	void *symbol;
	if (!library) {
		missing = file;
		return;
	}
#define LOAD(f)                           \
	symbol = dlsym(library, EXPANDED(f)); \
	if (!symbol)                          \
		missing = EXPANDED(f);            \
	memcpy(&cuda.f, &symbol, sizeof(symbol));
	CUDA_DRIVER_LIST(LOAD)
#undef LOAD
	cuda.has_graphs = true;
#define LOAD(f)                           \
	symbol = dlsym(library, EXPANDED(f)); \
	if (!symbol)                          \
		cuda.has_graphs = false;          \
	memcpy(&cuda.f, &symbol, sizeof(symbol));
	CUDA_GRAPH_LIST(LOAD)
#undef LOAD
	symbol = dlsym(library, "cuCtxGetId");
	memcpy(&cuda.context_id, &symbol, sizeof(symbol));
	symbol = dlsym(library, "cuStreamBatchMemOp_v2");
	memcpy(&cuda.batch_memory_operations, &symbol, sizeof(symbol));
	symbol = dlsym(library, "cuFuncGetParamInfo");
	memcpy(&cuda.parameter, &symbol, sizeof(symbol));
}

const char *cuda_driver_load(void)
{
	pthread_once(&once, load_driver);
	return missing;
}

const char *cuda_driver_error(CUresult result)
{
	const char *name = NULL;
	return cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL ? name
																			  : "an unknown error";
}

unsigned long long cuda_context_id(CUcontext context)
{
	unsigned long long id = 0;
	return cuda.context_id && cuda.context_id(context, &id) == CUDA_SUCCESS ? id : 0;
}

#else

/* ISO C forbids an empty file; without cuda.h there is no driver to load. */
typedef int cuda_driver_is_absent;

#endif
