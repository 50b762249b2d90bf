/*
 * local_shared.h: the kernels that this process has loaded.  All clients and calls that launch one
 * compiled kernel in one context share one module; a mutex guards the list, and launches do not
 * take it.
 *
 *                 the last way that had it is freed
 *   USED ---------------------------------------------------> unloaded, freed
 *     | a launch is captured into a graph
 *     v
 *   KEPT ---- its context is gone, and no way has it ----> freed
 *
 * The driver does not say when a graph ends, so a KEPT module stays as long as its context.  There
 * are never more of them than kernels that were captured.  It includes cuda.h, as cuda_driver.h.
 */
#ifndef KILN_CLIENT_LOCAL_SHARED_H
#define KILN_CLIENT_LOCAL_SHARED_H

#include "cuda_driver.h"
#include "local_launch.h"

enum local_module_state { LOCAL_MODULE_USED, LOCAL_MODULE_KEPT };

struct local_module {
	struct local_module *next;
	enum local_module_state state;
	int refs; /* ways */
	struct local_context of;
	CUmodule module;
	CUfunction function;
	uint32_t shared_bytes; /* dynamic shared memory that was granted; 0: the default */
	CUmemoryPool pool;     /* for scratch memory; NULL until a launch needs some */
	size_t object_bytes;
	char *entry;
	char key[65];
};

/* Finds or loads the way's kernel in the context that is current, with a reference for the way, and
 * grants it the way's shared memory. */
int local_module_take(const struct local_way *way, const struct local_context *current,
					  struct local_module **out);
/* Drops a reference; the last one unloads a module that is USED.  forked: the driver is not called.
 */
void local_module_drop(struct local_module *module, bool forked);
/* Grants it dynamic shared memory; its context is current. */
int local_module_grant(struct local_module *module, uint32_t bytes);
/* A graph may hold the kernel from now on. */
void local_module_keep(struct local_module *module);
/* The module's pool of scratch memory, made when the first way asks. */
int local_module_pool(struct local_module *module, CUmemoryPool *out);
/* Whether a kernel may be loaded now: the stream does not capture, and is idle, or need not be. */
bool local_stream_may_load(CUstream stream, bool busy_too);
/* Sets the message for a result of the driver; returns its status. */
int local_module_fail(CUresult result, const char *function, const char *what);

#endif
