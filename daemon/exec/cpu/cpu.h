/*
 * cpu: the device, and the row of functions that make it one.  Each subject has a header with its
 * structs: cpu_memory.h, cpu_module.h, cpu_work.h, cpu_worker.h.
 *
 *   cpu.c         opens, closes and polls
 *   cpu_memory.c  buffers between guard pages
 *   cpu_module.c  objects, by dlopen
 *   cpu_queue.c   streams, and how a launch becomes a work in one
 *   cpu_work.c    makes works, writes why one failed
 *   cpu_scratch.c memory for the length of a launch
 *   cpu_graph.c   launches that follow one another as one work
 *   cpu_worker.c  the host threads that take blocks of works
 *   cpu_block.c   the threads of one block, on fibers (cpu_fiber.c)
 *   cpu_sync.c    barriers and warp collectives
 *   cpu_stall.c   why no thread of a block can go on
 *   cpu_runtime.c the table of functions that kernels call
 *   cpu_print.c   what kernels print
 *   cpu_check.c   what checked kernels may touch
 *   cpu_place.c   lines of their source
 *   cpu_fault.c   signals
 *   cpu_order.c   the order of threads
 *
 * Locking: the device's mutex guards streams, works and ends, also those of its parts.  A worker
 * runs blocks without it.
 */
#ifndef KILN_DAEMON_CPU_H
#define KILN_DAEMON_CPU_H

#include "daemon/exec/device.h"

#include <pthread.h>
#include <stdatomic.h>

#define CPU_MAX_THREADS 1024
#define CPU_WARP 32
#define CPU_SHARED_DEFAULT 49152u
#define CPU_SHARED_OPTIN 166912u
/* The guard on each side of a buffer. */
#define CPU_GUARD_BYTES (1u << 20)

struct cpu_stream;
struct cpu_work;
struct cpu_worker;

struct device {
	/* Each part has these. */
	struct device *whole;               /* the first part, which has all below */
	struct cpu_work *done, **done_tail; /* ended works, until poll() reports and frees them */
	int event_fd;                       /* readable when there are ends */

	struct device *parts[DEVICE_PARTS_MOST];
	int part_count;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct cpu_stream *streams;
	struct cpu_worker **workers;
	int worker_count;
	bool stopping;
	enum device_order order;
	bool given_up;                  /* broken, and all works have been moved to the ends */
	_Atomic uint64_t scratch_bytes; /* held by all streams */
	struct cpu_printed {
		pthread_mutex_t mutex; /* guards the rest */
		size_t used;           /* of text */
		uint64_t cut;          /* bytes that had no room there */
		char text[DEVICE_PRINTED_MOST];
	} printed;
	/* The work whose kernel faulted; the signal handler sets it.  Then the device cannot go on. */
	_Atomic(struct cpu_work *) broken;
};

/* ---- The row: device.h says what each does ---- */

DEVICE_FUNCTION(alloc, cpu_alloc);
DEVICE_FUNCTION(import, cpu_import);
DEVICE_FUNCTION(share, cpu_share);
DEVICE_FUNCTION(free, cpu_free);
DEVICE_FUNCTION(load, cpu_load);
DEVICE_FUNCTION(describe, cpu_describe);
DEVICE_FUNCTION(unload, cpu_unload);
DEVICE_FUNCTION(scratch_bytes, cpu_scratch_bytes);
DEVICE_FUNCTION(printed, cpu_printed);
DEVICE_FUNCTION(split, cpu_split);
DEVICE_FUNCTION(launch, cpu_launch);
DEVICE_FUNCTION(copy, cpu_copy);
DEVICE_FUNCTION(begun_us, cpu_begun_us);
DEVICE_FUNCTION(cancel, cpu_cancel);
DEVICE_FUNCTION(stream_end, cpu_stream_end);
DEVICE_FUNCTION(graph_make, cpu_graph_make);
DEVICE_FUNCTION(graph_launch, cpu_graph_launch);
DEVICE_FUNCTION(graph_free, cpu_graph_free);

/* ---- cpu_worker.c ---- */
/* Makes device->workers; cpu_workers_stop() joins their threads and frees them. */
int cpu_workers_start(struct device *device, int count, char error[KERNEL_ERROR_MAX]);
void cpu_workers_stop(struct device *device);

/* ---- cpu_fault.c ---- */
/* Installs the signal handlers of the process, once. */
int cpu_fault_install(char error[KERNEL_ERROR_MAX]);

#endif
