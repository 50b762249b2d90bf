/*
 * cpu_worker: a host thread that runs one block at a time, and the CUDA threads of that block.
 *
 *   RUNS ---(cpu_barrier)--------> BARRIER ---(all live threads are there)---> RUNS
 *   RUNS ---(cpu_collective)-----> WARP ------(its group is complete)--------> RUNS
 *   RUNS ---(the kernel returns)-> EXITED
 *
 * The worker owns all fibers.  One of them runs; a thread that waits keeps its own; the others are
 * on the free list.
 */
#ifndef KILN_DAEMON_CPU_WORKER_H
#define KILN_DAEMON_CPU_WORKER_H

#include "cpu.h"
#include "cpu_fiber.h"
#include "kernel_src/cpu/abi.cuh"

#define CPU_MAX_WARPS (CPU_MAX_THREADS / CPU_WARP)
#define CPU_STACK_BYTES (256u << 10)
/* The guard before each stack and around shared memory.  It is whole pages on every host, and
 * larger than most frames, because a large frame may step over a small guard. */
#define CPU_REGION_GUARD (64u << 10)
#define CPU_CHECK_RANGES 64

enum cpu_thread_state {
	CPU_THREAD_RUNS, /* the thread runs, or waits in ready for its turn */
	CPU_THREAD_BARRIER,
	CPU_THREAD_WARP,
	CPU_THREAD_EXITED,
};

/* A CUDA thread of the block that runs. */
struct cpu_thread {
	struct kiln_cpu_dim index;
	enum cpu_thread_state state;
	struct cpu_fiber *fiber;
	enum kiln_cpu_barrier barrier; /* BARRIER */
	struct kiln_cpu_call call;     /* WARP */
	unsigned long long result;
	const char *file; /* where it waits */
	int line;
};

struct cpu_fiber {
	struct cpu_context context;
	struct cpu_fiber *next; /* of the free ones */
};

/* A host thread that runs one block at a time. */
struct cpu_worker {
	struct kiln_cpu_state state; /* the first member: kernels pass its address to the device */
	struct device *device;
	pthread_t thread;
	struct cpu_work *work; /* NULL: the worker runs no work */
	void *signal_stack;

	struct cpu_context base;
	struct cpu_fiber *running, *free;
	struct cpu_fiber fibers[CPU_MAX_THREADS];
	unsigned fiber_count;
	/* Two regions with a guard before each part; shared has one behind it, too. */
	uint8_t *stacks, *shared;
	size_t stacks_bytes, shared_bytes;

	struct cpu_thread threads[CPU_MAX_THREADS];
	unsigned thread_count, next_thread, current, live;
	uint16_t ready[CPU_MAX_THREADS];
	unsigned ready_head, ready_count;
	bool start_next; /* the next thread starts although others are ready */
	unsigned order_step, order_first;

	unsigned barrier_waiting, barrier_first; /* how many wait there; the one that came first */
	int barrier_sum;                         /* predicates that are not 0 */
	struct {
		uint32_t live, waiting;
	} warps[CPU_MAX_WARPS];
	struct kiln_cpu_range ranges[CPU_CHECK_RANGES];
};

/* ---- cpu_block.c ---- */
/* Reserves stacks and shared memory, until cpu_block_release(). */
int cpu_block_prepare(struct cpu_worker *worker, char error[KERNEL_ERROR_MAX]);
void cpu_block_release(struct cpu_worker *worker);
/* Runs block number linear of worker->work.  False if it failed; the work then has the sentence. */
bool cpu_block_run(struct cpu_worker *worker, uint64_t linear);
/* The current thread waits until cpu_block_wake(); others run meanwhile. */
void cpu_block_wait(struct cpu_worker *worker);
void cpu_block_wake(struct cpu_worker *worker, unsigned thread);
/* Ends the launch with a sentence about the current block.  Does not return, but is not declared
 * so: AddressSanitizer would look for the stack's bounds, and this stack is not the thread's. */
void cpu_block_fail(struct cpu_worker *worker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Ends the launch with this sentence.  Does not return. */
void cpu_block_leave(struct cpu_worker *worker, const char *sentence);
/* Returns where dynamic shared memory begins for the worker's work. */
void *cpu_block_shared(const struct cpu_worker *worker);

/* ---- cpu_sync.c ---- */
int cpu_barrier(struct kiln_cpu_state *state, enum kiln_cpu_barrier kind, int predicate,
				const char *file, int line);
unsigned long long cpu_collective(struct kiln_cpu_state *state, const struct kiln_cpu_call *call);
/* The current thread has ended: the threads that waited for it alone go on. */
void cpu_sync_exit(struct cpu_worker *worker);
/* No thread can go on: lets converging lanes go, or ends the launch. */
void cpu_sync_stall(struct cpu_worker *worker);

/* ---- cpu_stall.c ---- */
extern const char *const cpu_barrier_names[KILN_CPU_BARRIER_COUNT];
extern const char *const cpu_collective_names[KILN_CPU_COLLECTIVE_COUNT];
/* Ends the launch.  Does not return. */
void cpu_stall_report(struct cpu_worker *worker);

/* ---- cpu_check.c ---- */
/* The worker is about to run blocks of a checked kernel. */
void cpu_check_begin(struct cpu_worker *worker);
/* The worker has run blocks of the work: adds its accesses to the work's. */
void cpu_check_end(struct cpu_worker *worker, struct cpu_work *work);
/* Checked kernels call this by the table of functions. */
void cpu_check(struct kiln_cpu_state *state, const struct kiln_cpu_access *access);

/* ---- cpu_order.c ---- */
/* Chooses the order of the threads of the block that begins. */
void cpu_order_begin(struct cpu_worker *worker, uint64_t block);
/* Returns the thread at place k of the order. */
unsigned cpu_order(const struct cpu_worker *worker, unsigned k);
/* Returns the block at place k. */
uint64_t cpu_order_block(const struct cpu_worker *worker, uint64_t k);

/* ---- cpu_print.c ---- */
/* Kernels call it by the table of functions. */
int cpu_print(struct kiln_cpu_state *state, const char *format, __builtin_va_list values)
	__attribute__((format(printf, 2, 0)));

/* ---- cpu_runtime.c ---- */
extern const struct kiln_cpu_runtime cpu_runtime;

/* ---- cpu_fault.c ---- */
/* Gives the calling thread an alternate stack, and notes that it is this worker. */
int cpu_fault_enter(struct cpu_worker *worker);
void cpu_fault_leave(struct cpu_worker *worker);

#endif
