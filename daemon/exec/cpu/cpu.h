/*
 * cpu: what the files of the cpu device share.
 *
 *   cpu.c         the row of functions: open, close, poll
 *   cpu_memory.c  buffers between guard pages       cpu_module.c  objects, by dlopen
 *   cpu_scratch.c memory for the length of a launch
 *   cpu_queue.c   streams, and the workers that take blocks from them
 *   cpu_graph.c   launches that follow one another as one work
 *   cpu_block.c   the threads of one block, on fibers (cpu_fiber.c)
 *   cpu_sync.c    barriers and warp collectives     cpu_stall.c   why nobody can go on
 *   cpu_runtime.c the table of functions kernels call       cpu_fault.c   signals
 *   cpu_check.c   what checked kernels may touch    cpu_place.c   lines of their source
 *   cpu_order.c   the order of threads
 *
 * Locking: the device's mutex guards streams, works and ends.  A worker runs blocks without it.
 */
#ifndef KILN_DAEMON_CPU_H
#define KILN_DAEMON_CPU_H

#include "cpu_fiber.h"
#include "daemon/exec/device.h"
#include "kernel_src/cpu/abi.cuh"

#include <pthread.h>
#include <stdatomic.h>

#define CPU_MAX_THREADS 1024
#define CPU_WARP 32
#define CPU_MAX_WARPS (CPU_MAX_THREADS / CPU_WARP)
#define CPU_SHARED_DEFAULT 49152u
#define CPU_SHARED_OPTIN 166912u
#define CPU_STACK_BYTES (256u << 10)
/* Each stack is two mappings; all of them together stay below vm.max_map_count (65530). */
#define CPU_MAX_WORKERS 24
#define CPU_COPY_CHUNK (4u << 20)
/* Before each stack, and around shared memory: whole pages whatever their size, and more than the
 * frame of most functions, which may step over a smaller guard. */
#define CPU_REGION_GUARD (64u << 10)
/* On both sides of every buffer. */
#define CPU_GUARD_BYTES (1u << 20)
#define CPU_CHECK_RANGES 64
#define CPU_PLACE_MAX 100 /* "scale.cu:12" */

struct device_memory {
	uint8_t *base;
	uint64_t bytes;
	uint8_t *map; /* with the guards */
	size_t map_bytes;
};

struct device_module {
	void *handle;
	int fd; /* kept open: the loader tells objects apart by path, and the path has its number */
	kiln_cpu_entry_function *entry;
	const struct kiln_cpu_module *about;
	uintptr_t image_base, image_begin, image_end; /* of the loaded object */
};

/* One launch or copy; or those of a graph, one after another. */
struct cpu_work {
	struct cpu_work *next;
	struct cpu_stream *stream;
	uint64_t ticket;
	uint64_t delay_us, due_us, start_us, end_us;
	uint64_t total, chunk; /* blocks (of a copy: chunks of it), and how many a worker takes */
	_Atomic uint64_t taken;
	int active; /* workers inside; under the mutex */
	bool started;
	struct device_graph *graph; /* NULL: it is one launch or copy */
	int step;                   /* which of the graph's it is now */

	struct device_module *module; /* NULL: a copy */
	struct kiln_cpu_dim grid, block_size;
	uint32_t shared_bytes;
	struct kernel_scratch scratch;
	uint64_t scratch_args; /* bit i: argument i is its address, known when the work starts */
	struct kernel_report report;
	uint64_t reported; /* the kernel adds to it */
	int arg_count;
	uint64_t values[KERNEL_MAX_ARGS];
	void *args[KERNEL_MAX_ARGS];
	struct {
		uint8_t *base;
		uint64_t bytes;
		char name[16];
	} operands[KERNEL_MAX_OPERANDS + 1]; /* for the sentence after a fault; the last: scratch */
	int operand_count;

	uint8_t *copy_to;
	const uint8_t *copy_from;
	uint64_t copy_bytes;

	atomic_flag failing; /* who sets it first writes status and error */
	_Atomic int status;
	char error[KERNEL_ERROR_MAX];
	const char *fault;           /* the instruction at which the machine found one */
	uint32_t granule;            /* device_launch's */
	uint64_t blocks, accesses;   /* of a checked kernel, which one worker runs */
	size_t data_bytes;           /* that there is room for */
	_Alignas(16) uint8_t data[]; /* arguments that are not in values */
};

struct cpu_stream {
	struct cpu_stream *next;
	uint64_t id;
	struct cpu_work *head, *tail;
	struct device_memory *scratch; /* NULL until a work needs it */
	bool ended;
};

enum cpu_thread_state {
	CPU_THREAD_RUNS, /* or can run */
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
	struct kiln_cpu_state state; /* first: kernels hand it back */
	struct device *device;
	pthread_t thread;
	struct cpu_work *work; /* NULL: runs no kernel */
	void *signal_stack;

	struct cpu_context base;
	struct cpu_fiber *running, *free;
	struct cpu_fiber fibers[CPU_MAX_THREADS];
	unsigned fiber_count;
	/* Regions with a guard before each part of them, and one at the end of shared. */
	uint8_t *stacks, *shared;
	size_t stacks_bytes, shared_bytes;

	struct cpu_thread threads[CPU_MAX_THREADS];
	unsigned thread_count, next_thread, current, live;
	uint16_t ready[CPU_MAX_THREADS];
	unsigned ready_head, ready_count;
	bool start_next; /* the next thread starts although others are ready */
	unsigned order_step, order_first;

	unsigned barrier_waiting, barrier_first; /* first: the thread that came first */
	int barrier_sum;                         /* predicates that are not 0 */
	struct {
		uint32_t live, waiting;
	} warps[CPU_MAX_WARPS];
	struct kiln_cpu_range ranges[CPU_CHECK_RANGES];
};

struct device {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct cpu_stream *streams;
	struct cpu_work *done, **done_tail;
	struct cpu_worker **workers;
	int worker_count;
	bool stopping;
	enum device_order order;
	bool given_up; /* broken, and all that was queued has been moved to the ends */
	int event_fd;
	_Atomic uint64_t scratch_bytes; /* of all streams */
	/* Set by a signal handler: the device cannot go on. */
	_Atomic(struct cpu_work *) broken;
};

/* ---- cpu_memory.c ---- */
int cpu_alloc(struct device *device, uint64_t bytes, struct device_memory **out,
			  char error[KERNEL_ERROR_MAX]);
int cpu_import(struct device *device, const struct device_import *what, struct device_memory **out,
			   char error[KERNEL_ERROR_MAX]);
int cpu_share(struct device *device, struct device_memory *memory, struct device_shared *out,
			  char error[KERNEL_ERROR_MAX]);
void cpu_free(struct device *device, struct device_memory *memory);

/* ---- cpu_scratch.c ---- */
uint64_t cpu_scratch_bytes(const struct device *device);
/* Of a stream that ends. */
void cpu_scratch_free(struct device *device, struct cpu_stream *stream);
/* The work starts: it gets its memory, or fails with a sentence. */
void cpu_scratch_give(struct device *device, struct cpu_work *work);
/* The work has ended: it fails if it left counters that are not zero. */
void cpu_scratch_check(struct cpu_work *work);

/* ---- cpu_module.c ---- */
int cpu_load(struct device *device, const void *object, size_t bytes, const char *entry,
			 uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX]);
void cpu_describe(const struct device_module *module, struct device_kernel *out);
void cpu_unload(struct device *device, struct device_module *module);

/* ---- cpu_queue.c ---- */
struct cpu_work *cpu_work_new(uint64_t ticket, size_t data_bytes, char error[KERNEL_ERROR_MAX]);
/* A launch as a work in no stream. */
int cpu_bind(struct device *device, const struct device_launch *launch, struct cpu_work **out,
			 char error[KERNEL_ERROR_MAX]);
int cpu_launch(struct device *device, const struct device_launch *launch,
			   char error[KERNEL_ERROR_MAX]);
int cpu_copy(struct device *device, uint64_t stream, uint64_t ticket, struct device_memory *memory,
			 uint64_t offset, void *host, uint64_t bytes, bool to_device,
			 char error[KERNEL_ERROR_MAX]);
uint64_t cpu_begun_us(struct device *device, uint64_t ticket);
bool cpu_cancel(struct device *device, const uint64_t *tickets, int count);
void cpu_stream_end(struct device *device, uint64_t stream);
/* One that has no work and is in no list. */
void cpu_stream_free(struct device *device, struct cpu_stream *stream);
/* Adds a work to its stream; owns it from then on.  KILN_OK or KILN_ENOMEM (freed). */
int cpu_queue_add(struct device *device, uint64_t stream, struct cpu_work *work,
				  char error[KERNEL_ERROR_MAX]);

/* ---- cpu_graph.c ---- */
int cpu_graph_make(struct device *device, const struct device_launch *launches, int count,
				   struct device_graph **out, char error[KERNEL_ERROR_MAX]);
int cpu_graph_launch(struct device *device, struct device_graph *graph,
					 const struct device_launch *how, char error[KERNEL_ERROR_MAX]);
void cpu_graph_free(struct device *device, struct device_graph *graph);
/* False while another work runs the same graph: what it writes is written by one at a time. */
bool cpu_graph_free_to_start(const struct cpu_work *work);
void cpu_graph_started(struct cpu_work *work);
/* A work has come to an end that nobody is in: true if it goes on with the next launch of its
 * graph. */
bool cpu_graph_next(struct device *device, struct cpu_work *work);
/* It does not: the graph may be started again. */
void cpu_graph_ended(struct device *device, struct cpu_work *work);
/* A work that failed says in which launch of its graph. */
void cpu_graph_blame(struct cpu_work *work);

/* ---- cpu_worker.c ---- */
int cpu_workers_start(struct device *device, int count, char error[KERNEL_ERROR_MAX]);
void cpu_workers_stop(struct device *device);
/* Writes the work's end once: later calls change nothing.  True for the first. */
bool cpu_work_fail(struct cpu_work *work, int status, const char *sentence);
/* The same of what the machine found at an instruction. */
bool cpu_work_fail_at(struct cpu_work *work, int status, const char *sentence, const char *fault);

/* ---- cpu_block.c ---- */
/* Reserves stacks and shared memory. */
int cpu_block_prepare(struct cpu_worker *worker, char error[KERNEL_ERROR_MAX]);
void cpu_block_release(struct cpu_worker *worker);
/* Runs block number linear of worker->work.  False if it failed; the work then has the sentence. */
bool cpu_block_run(struct cpu_worker *worker, uint64_t linear);
/* For cpu_sync.c: the current thread waits until cpu_block_wake; others run meanwhile. */
void cpu_block_wait(struct cpu_worker *worker);
void cpu_block_wake(struct cpu_worker *worker, unsigned thread);
/* Ends the launch with a sentence about the current block.  Does not return; not declared so,
 * because AddressSanitizer would look for the stack's bounds, and this stack is not the thread's.
 */
void cpu_block_fail(struct cpu_worker *worker, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same with a whole sentence. */
void cpu_block_leave(struct cpu_worker *worker, const char *sentence);
/* Where dynamic shared memory is for the worker's work. */
void *cpu_block_shared(const struct cpu_worker *worker);

/* ---- cpu_sync.c ---- */
int cpu_barrier(struct kiln_cpu_state *state, enum kiln_cpu_barrier kind, int predicate,
				const char *file, int line);
unsigned long long cpu_collective(struct kiln_cpu_state *state, const struct kiln_cpu_call *call);
/* The current thread has ended: what waited only for it goes on. */
void cpu_sync_exit(struct cpu_worker *worker);
/* Nobody can go on: lets converging lanes go, or ends the launch. */
void cpu_sync_stall(struct cpu_worker *worker);
extern const char *const cpu_barrier_names[KILN_CPU_BARRIER_COUNT];
extern const char *const cpu_collective_names[KILN_CPU_COLLECTIVE_COUNT];

/* ---- cpu_stall.c ---- */
/* Does not return. */
void cpu_stall_report(struct cpu_worker *worker);

/* ---- cpu_check.c ---- */
/* The worker is about to run blocks of a checked kernel. */
void cpu_check_begin(struct cpu_worker *worker);
/* It has run some: they are counted. */
void cpu_check_end(struct cpu_worker *worker, struct cpu_work *work);
/* Of the table of functions. */
void cpu_check(struct kiln_cpu_state *state, const struct kiln_cpu_access *access);
/* After a fault of a work, on the main thread: its sentence gets the line, if that can be found. */
void cpu_check_fault(struct cpu_work *work);

/* ---- cpu_place.c ---- */
/* "scale.cu:12" for the instruction before another, with where it was called if that was inlined.
 * False: not known. */
bool cpu_place_find(const struct device_module *module, const void *after, char *place,
					size_t size);

/* ---- cpu_order.c ---- */
/* For the block that begins. */
void cpu_order_begin(struct cpu_worker *worker, uint64_t block);
/* The thread that comes at place k. */
unsigned cpu_order(const struct cpu_worker *worker, unsigned k);
/* The block that comes at this place. */
uint64_t cpu_order_block(const struct cpu_worker *worker, uint64_t k);

/* ---- cpu_runtime.c ---- */
extern const struct kiln_cpu_runtime cpu_runtime;

/* ---- cpu_fault.c ---- */
/* Signal handlers for the process, once. */
int cpu_fault_install(char error[KERNEL_ERROR_MAX]);
/* An alternate stack for the calling worker thread, and who it is. */
int cpu_fault_enter(struct cpu_worker *worker);
void cpu_fault_leave(struct cpu_worker *worker);

#endif
