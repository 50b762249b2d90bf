/*
 * cuda_device: the open GPU, and the row of functions that make it a device.  Each subject has a
 * header with its structs.
 *
 * A part is a device of its own, in the context and with the memory pool of the first part.  So the
 * driver alone knows of several threads.
 *
 *   cuda.c         opens the GPU, says what it is
 *   cuda_error.c   turns the driver's errors into sentences
 *   cuda_memory.c  buffers: allocated, or imported by descriptor
 *   cuda_share.c   moves memory of its own so that a second process can import it
 *   cuda_import.c  buffers imported by IPC handle, or from another process's pool
 *   cuda_scratch.c memory for the length of a launch
 *   cuda_cell.c    words that the GPU writes and this process reads
 *   cuda_mark.c    the ends of launches that are not timed
 *   cuda_record.c  launches that repeat, recorded as graphs
 *   cuda_launch.c  modules, and works made of launches
 *   cuda_graph.c   launches recorded once and started together
 *   cuda_check.c   what a kernel takes, and whether a launch gives that
 *   cuda_work.c    queues, events, the driver call of each kind of work, counts of kernels
 *   cuda_stream.c  streams, and giving work to the driver
 *   cuda_print.c   what kernels print
 *   cuda_poll.c    waits for work, and ends all of it when the GPU fails
 */
#ifndef KILN_DAEMON_CUDA_DEVICE_H
#define KILN_DAEMON_CUDA_DEVICE_H

#include "cuda_driver.h"
#include "daemon/exec/device.h"

#define CUDA_STREAM_BUCKETS 256

struct cuda_queue {
	struct cuda_work *head, *tail;
};

struct device {
	struct cuda_driver cu;
	CUdevice handle;
	CUcontext context;
	bool retained;
	char name[16];
	char target[KERNEL_TARGET_MAX];
	int driver_version;
	uint32_t shared_default, shared_optin;
	uint64_t memory_bytes;
	_Atomic uint64_t scratch_bytes;          /* held by the streams and graphs of this part */
	struct device *parts[DEVICE_PARTS_MOST]; /* each part knows all */
	int part_count;

	CUmemoryPool pool;
	CUstream memory_stream;
	struct cuda_import *imports;
	struct cuda_pool *pools; /* of other processes */

	struct cuda_stream *streams[CUDA_STREAM_BUCKETS];
	struct cuda_stream *active, *unmarked;
	struct cuda_queue failed; /* the FAILED works, until poll() reports them */
	struct cuda_work *spare_work;
	struct cuda_cell *spare_cells, *cell_pages;
	bool no_marks;                /* the driver has refused to write one */
	CUmodule teller_module;       /* of the first part */
	CUfunction teller;            /* of the first part; NULL: nothing is recorded */
	struct cuda_records *records; /* NULL: nothing is recorded */
	CUevent *spare_events;
	int spare_event_count, spare_event_room;
	_Atomic int running; /* works that the driver has; other threads may look */
	double fraction_us;  /* the part of the device time that no answer has had yet */
	uint64_t now_us;     /* when poll() last looked for ends; also the time of what happens since */
	uint64_t progress_us; /* when a work last began or ended: poll() spins for a while after it */

	int printed;    /* a memfd of what kernels print; 0: nobody keeps it */
	bool unflushed; /* the driver may hold some of it */

	bool broken;
	char broken_why[KERNEL_ERROR_MAX]; /* "CUDA_ERROR_ILLEGAL_ADDRESS 700 (...)" */
};

/* Writes the sentence and behind it the driver's name for the error.  Returns the status that fits:
 * ENOMEM, EDEVICE (the device is broken from now on), or else status. */
int cuda_fail(struct device *device, char error[KERNEL_ERROR_MAX], int status, CUresult result,
			  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- cuda_gpus.c ---- */

/* Fills in info; needs no context. */
CUresult cuda_describe_gpu(const struct device *device, int ordinal, CUdevice handle,
						   struct device_info *info);
/* Finds the driver's number of the GPU that is meant, of so many; or a status and a sentence. */
int cuda_find_gpu(const struct device *device, const struct device_name *name, int count,
				  int *ordinal, char error[KERNEL_ERROR_MAX]);

/* ---- The row: device.h says what each does ---- */

DEVICE_FUNCTION(list, cuda_list);

DEVICE_FUNCTION(alloc, cuda_alloc);
DEVICE_FUNCTION(import, cuda_import);
DEVICE_FUNCTION(share, cuda_share);
DEVICE_FUNCTION(share_words, cuda_share_words);
DEVICE_FUNCTION(unshare_words, cuda_unshare_words);
DEVICE_FUNCTION(free, cuda_free);
DEVICE_FUNCTION(stalls, cuda_stalls);
DEVICE_FUNCTION(load, cuda_load);
DEVICE_FUNCTION(describe, cuda_describe);
DEVICE_FUNCTION(unload, cuda_unload);
DEVICE_FUNCTION(scratch_bytes, cuda_scratch_bytes);
DEVICE_FUNCTION(keep_printed, cuda_keep_printed);
DEVICE_FUNCTION(printed, cuda_printed);
DEVICE_FUNCTION(launch, cuda_launch);
DEVICE_FUNCTION(copy, cuda_copy);
DEVICE_FUNCTION(flush, cuda_marks_write); /* writes a mark behind launches that have none */
DEVICE_FUNCTION(cancel, cuda_cancel);
DEVICE_FUNCTION(stream_end, cuda_stream_end);
DEVICE_FUNCTION(graph_make, cuda_graph_make);
DEVICE_FUNCTION(graph_launch, cuda_graph_launch);
DEVICE_FUNCTION(graph_free, cuda_graph_free);
DEVICE_FUNCTION(poll, cuda_poll);

#endif
