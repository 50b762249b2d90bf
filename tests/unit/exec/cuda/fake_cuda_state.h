/*
 * fake_cuda_state: what the files of the fake share; tests include fake_cuda.h only.
 */
#ifndef KILN_TESTS_FAKE_CUDA_STATE_H
#define KILN_TESTS_FAKE_CUDA_STATE_H

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "fake_cuda.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

extern int fake_live[FAKE_LIVE_COUNT];
extern _Atomic CUresult fake_sticky; /* the fault that every call has after a kernel's */
extern atomic_int fake_held;         /* FAKE_HOLD_*: streams do not get on */

/* Counts the call; the result that a test or an earlier fault wants it to have. */
CUresult fake_enter(const char *name);

/* Several threads of a device process call the driver.  A process whose streams get on by
 * themselves has no such lock: there a call may wait for another thread's. */
int fake_lock(void);
void fake_unlock(const int *locked);
#define LOCKED __attribute__((cleanup(fake_unlock))) const int locked = fake_lock()

#define ENTER()                                    \
	const CUresult entered = fake_enter(__func__); \
	LOCKED;                                        \
	if (entered != CUDA_SUCCESS)                   \
	return (void)locked, entered

/* One thing that a stream has to do. */
enum op_kind { OP_KERNEL, OP_COPY, OP_SET, OP_EVENT, OP_FREE, OP_WORD };
struct op {
	struct op *next;
	enum op_kind kind;
	const struct CUfunc_st *function;
	uint64_t values[4];
	void *to;
	const void *from;
	size_t bytes;
	CUevent event;
	uint64_t mark;
};

/* Sets a property of the GPU: "capability", "uuid", "model", "mps", "memory" (MiB).  False: none of
 * these. */
bool fake_gpu_set(const char *name, int value);
void fake_gpu_usual(void);
int fake_used_gpu(void); /* that this process uses, as it stands on the host; -1: none yet */

CUcontext fake_context(void); /* the primary one */
CUcontext fake_current(void); /* of this thread; NULL: none */
void fake_contexts_reset(void);
/* With the context goes what was loaded in it. */
void fake_drop_modules(CUcontext context);
/* For fake_cuda_control. */
void *fake_context_at(int i);
void fake_renew_context(int i);
void fake_capability(int number);
/* At the end of the stream's queue, or of what it records. */
struct op *fake_add_op(CUstream stream, enum op_kind kind);
/* Where the stream keeps what it records into; NULL: it runs. */
struct CUgraph_st **fake_capture(CUstream stream);
/* True: the stream has work, and frees the address when it gets there. */
bool fake_free_later(CUstream stream, CUdeviceptr at);
void fake_memory_reset(void);
void fake_streams_reset(void);

/* ---- fake_cuda_module.c ---- */

extern struct fake_kernels {
	int shared_granted, shared_fixed, threads_most; /* bytes and threads of all kernels */
	int noted_values;                               /* parameters that last_launch keeps */
	struct fake_launch last_launch;
} fake_kernels;

void fake_run_kernel(const struct op *op);
CUresult fake_set_kernel(struct op *op, const CUDA_KERNEL_NODE_PARAMS *params);
/* Writes what kernels have printed, as the driver does when a stream is waited for. */
void fake_tell(void);
void fake_modules_reset(void);

/* ---- fake_cuda_graph.c ---- */

void fake_graph_add(struct CUgraph_st *graph, struct op *op); /* owns op from then on */
/* A recording stream does not allow this call: the stream loses what it has recorded. */
CUresult fake_spoil(struct CUgraph_st *graph);

/* ---- fake_cuda_memory.c, for the pools ---- */

int fake_memfd(size_t bytes);
/* Part of fd (-1: memory of no file), which stays the caller's. */
CUresult fake_block_at(CUdeviceptr *out, size_t bytes, int fd, uint64_t offset);
CUresult fake_import_at(CUdeviceptr *out, size_t bytes, int fd, uint64_t offset);
CUresult fake_drop_block(CUdeviceptr at);
CUresult fake_drop_import(CUdeviceptr at);
bool fake_is_registered(const void *at, size_t bytes);

/* ---- fake_cuda_order.c: streams that get on by themselves ---- */

bool fake_runs_itself(CUstream stream);
CUstream fake_self_running(void); /* a new one, in the context that is current */
void fake_copy_itself(CUstream stream, void *to, const void *from, size_t bytes);
void fake_set_itself(CUstream stream, void *to, unsigned char value, size_t bytes);
CUresult fake_query_itself(CUstream stream);
CUresult fake_batch_itself(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *ops);
CUresult fake_synchronize_itself(CUstream stream);
CUresult fake_synchronize_all(void);

/* ---- fake_cuda_pool.c ---- */

/* Frees memory of a pool, when the turn of a cuMemFreeAsync() has come. */
CUresult fake_free_now(CUdeviceptr at);
/* NULL: not from a pool. */
CUmemoryPool fake_pool_of(CUdeviceptr base);
void fake_pools_reset(void);
void fake_pool_access(int flags);      /* what the GPU may do with pools */
void fake_memory_span(uint64_t bytes); /* what cuMemGetAddressRange says of imports; 0: the truth */

#endif
