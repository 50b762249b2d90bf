/*
 * cpu_work: works and streams.
 *
 *   QUEUED ---(a worker takes it)---> STARTED ---(the last worker leaves)---> ENDED ---> freed
 *     |                                 |  ^                                    ^
 *     |                                 +--+ (its graph has more launches)      |
 *     +------------------------(the device is given up)-------------------------+
 *
 * A stream owns its QUEUED and STARTED works; only its first work may be STARTED.  The device owns
 * ENDED works until poll() has reported and freed them.  A graph owns the works that are its steps:
 * they stay QUEUED and are in no stream.
 */
#ifndef KILN_DAEMON_CPU_WORK_H
#define KILN_DAEMON_CPU_WORK_H

#include "cpu.h"
#include "kernel_src/cpu/abi.cuh"

#define CPU_COPY_CHUNK (4u << 20)

enum cpu_work_state { CPU_WORK_QUEUED, CPU_WORK_STARTED, CPU_WORK_ENDED };

/* One launch or copy; or those of a graph, one after another. */
struct cpu_work {
	struct cpu_work *next; /* in its stream, or among the ends */
	struct cpu_stream *stream;
	struct device *part; /* reports its end */
	uint64_t ticket;
	uint64_t delay_us, due_us, start_us, end_us;
	uint64_t total, chunk; /* blocks (or pieces of a copy), and how many a worker takes at once */
	_Atomic uint64_t taken;
	int active; /* workers inside; the mutex guards it */
	enum cpu_work_state state;
	struct device_graph *graph; /* NULL: the work is one launch or copy */
	int step;                   /* of the graph, which the work is now */

	struct device_module *module; /* NULL: a copy */
	struct kiln_cpu_dim grid, block_size;
	uint32_t shared_bytes;
	struct kernel_scratch scratch;
	uint64_t scratch_args; /* bit i: argument i is the scratch memory's address, set at the start */
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

	atomic_flag failing; /* the first one to set it writes status and error */
	_Atomic int status;
	char error[KERNEL_ERROR_MAX];
	const char *fault;           /* the instruction that faulted; NULL: none did */
	uint32_t granule;            /* device_launch's */
	uint64_t blocks, accesses;   /* of a checked kernel, which one worker runs */
	size_t data_bytes;           /* of data[] */
	_Alignas(16) uint8_t data[]; /* arguments that are not in values */
};

struct cpu_stream {
	struct cpu_stream *next;
	uint64_t id;
	struct cpu_work *head, *tail;
	struct device_memory *scratch; /* NULL until a work needs it */
	bool ended;                    /* it goes with its last work, unless it gets more work first */
};

/* ---- cpu_work.c ---- */
/* Makes a QUEUED work; the caller owns it and frees it with free().  NULL with a sentence. */
struct cpu_work *cpu_work_new(uint64_t ticket, size_t data_bytes, char error[KERNEL_ERROR_MAX]);
/* Writes why the work failed.  Any thread may call this; the first call counts, and returns true.
 */
bool cpu_work_fail(struct cpu_work *work, int status, const char *sentence);
/* The same for a fault of the machine at an instruction. */
bool cpu_work_fail_at(struct cpu_work *work, int status, const char *sentence, const char *fault);
/* Checks the states of a stream's works.  The caller has the mutex. */
void cpu_stream_assert_valid(const struct cpu_stream *stream);

/* ---- cpu_queue.c ---- */
/* Makes a work of a launch; it is in no stream, and the caller frees it. */
int cpu_bind(struct device *device, const struct device_launch *launch, struct cpu_work **out,
			 char error[KERNEL_ERROR_MAX]);
/* Frees a stream that has no work and is in no list. */
void cpu_stream_free(struct device *device, struct cpu_stream *stream);
/* Adds a work to its stream, which owns it from then on.  KILN_OK or KILN_ENOMEM (freed). */
int cpu_queue_add(struct device *device, uint64_t stream, struct cpu_work *work,
				  char error[KERNEL_ERROR_MAX]);

/* ---- cpu_scratch.c ---- */
/* Frees the scratch memory of a stream that ends. */
void cpu_scratch_free(struct device *device, struct cpu_stream *stream);
/* The work starts: gives it its memory, or fails it with a sentence. */
void cpu_scratch_give(struct device *device, struct cpu_work *work);
/* The work has ended: fails it if it left counters that are not zero. */
void cpu_scratch_check(struct cpu_work *work);

/* ---- cpu_graph.c ---- */
/* False while another work runs the same graph: one at a time writes what the graph writes. */
bool cpu_graph_free_to_start(const struct cpu_work *work);
void cpu_graph_started(struct cpu_work *work);
/* No worker is in the work any more: true if it goes on with the next launch of its graph. */
bool cpu_graph_next(struct device *device, struct cpu_work *work);
/* The work does not go on: another one may run its graph. */
void cpu_graph_ended(struct device *device, struct cpu_work *work);
/* Puts the number of the launch before the sentence of a work that failed. */
void cpu_graph_blame(struct cpu_work *work);

/* ---- cpu_check.c ---- */
/* The main thread calls this after a fault: puts the line of the source before the sentence, if
 * that can be found. */
void cpu_check_fault(struct cpu_work *work);
static inline bool cpu_is_within(uintptr_t address, uint64_t bytes, const void *begin,
								 uint64_t size)
{
	uint64_t offset = address - (uintptr_t)begin;
	return begin && offset < size && bytes <= size - offset;
}
/* Both append "beyond the end of y, at byte 400 of 400", of an address that is not within those
 * bytes, or of an access that leaves them; they return the new length. */
size_t cpu_describe_end(const char *name, const void *begin, uint64_t bytes, uintptr_t address,
						char *text, size_t size, size_t used);
/* operand: operand_count is scratch memory. */
size_t cpu_describe_operand(const struct cpu_work *work, int operand, uintptr_t address, char *text,
							size_t size, size_t used);

#endif
