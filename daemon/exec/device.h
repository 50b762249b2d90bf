/*
 * device: what an executor can do, as a row of functions; cuda.c and cpu.c each fill one in.
 * Called from the executor's main thread only, unless said otherwise.  Errors: a kiln_status and
 * one sentence in error.  Knows nothing of sessions, sockets or plans.
 */
#ifndef KILN_DAEMON_DEVICE_H
#define KILN_DAEMON_DEVICE_H

#include "daemon/plan/kernel.h"

struct device;        /* an open device */
struct device_memory; /* a buffer */
struct device_module; /* a loaded object */
struct device_graph;  /* launches that are started together, as often as wanted */

/* "GPU-00112233-4455-..." of the 16 bytes that the driver gives. */
#define DEVICE_UUID_BYTES 16
#define DEVICE_UUID_TEXT 48
void device_uuid_text(const void *uuid, char text[DEVICE_UUID_TEXT]);

struct device_info {
	char name[16];               /* "cpu", "cuda:0" */
	char model[96];              /* "NVIDIA H200", "x86-64 host" */
	char uuid[DEVICE_UUID_TEXT]; /* "GPU-..." or "" */
	uint64_t memory_bytes;
	int device_count; /* devices of this kind visible: lets the broker know of cuda:1.. */
	struct kernel_limits limits;
};

enum device_import_kind { DEVICE_IMPORT_IPC, DEVICE_IMPORT_FD, DEVICE_IMPORT_POOL };

struct device_import {
	enum device_import_kind kind;
	/* IPC: CUipcMemHandle of the allocation; POOL: its CUmemPoolPtrExportData */
	uint8_t handle[64];
	/* IPC, POOL: CU_POINTER_ATTRIBUTE_BUFFER_ID in the exporter, with pid the key of the import
	 * table */
	uint64_t buffer_id;
	uint64_t pool_id; /* POOL: the exporter's own name of the pool; with pid its key */
	int64_t pid;      /* exporter; below 0: the broker's number of one that has no pid here */
	/* FD: memfd (cpu) or exported CUDA allocation; POOL: exported pool; the device duplicates what
	 * it keeps */
	int fd;
	uint64_t span;   /* bytes of the whole allocation */
	uint64_t offset; /* where the buffer begins in it */
	uint64_t bytes;  /* of the buffer */
};

struct device_shared {
	int fd;
	uint64_t span, offset;
};

/* The parameters of a loaded kernel, as the object or the driver tells them. */
struct device_kernel {
	int param_count;                  /* -1: it does not say */
	uint32_t params[KERNEL_MAX_ARGS]; /* bytes; of the first so many */
};

struct device_operand {
	struct device_memory *memory;
	uint64_t offset;  /* bytes */
	uint64_t bytes;   /* that are the kernel's from there on; 0: all that there are */
	const char *name; /* for sentences; NULL: its number is */
};

/* One launch: what a kernel_plan says, bound to memory. */
struct device_launch {
	bool copies;                  /* no kernel: copy_bytes from operand 0 to operand 1 */
	struct device_module *module; /* the kernel; a launch without one is refused */
	uint32_t grid[3], block[3], shared_bytes;
	const struct kernel_arg *args;
	int arg_count;
	const struct device_operand *operands;
	int operand_count;
	/* The device gives scratch memory to SCRATCH arguments when the launch starts.  It is the
	 * stream's own, so launches of other streams never meet in it. */
	struct kernel_scratch scratch;
	/* REPORT arguments get a count of this launch's own; the device reads it when it has ended. */
	struct kernel_report report;
	uint64_t copy_bytes;
	/* Checked kernels: a read may cover the whole aligned granule of so many bytes around an
	 * element of an operand; 0: only the operand's own bytes. */
	uint32_t granule;
	/* The device stores done_value there as soon as the launch has ended.  The word is in memory
	 * given to share_words().  NULL: nothing is stored. */
	_Atomic uint32_t *done_word;
	uint32_t done_value;
	bool done_last;    /* but need not be, where a later launch of the stream is soon told of so */
	bool untimed;      /* nobody asks how long it takes on the device: micros may be 0 */
	uint32_t delay_ms; /* test-only */
	uint64_t ticket;   /* for device_done */
	uint64_t stream;
};

/* The end of a piece of work, which poll() collects. */
struct device_done {
	uint64_t ticket;
	int status; /* KILN_OK, or KILN_EDEVICE ... with a sentence */
	char error[KERNEL_ERROR_MAX];
	uint64_t micros; /* on the device, as far as it can tell; 0 otherwise */
	/* A checked kernel counts its blocks and its accesses to memory. */
	uint64_t blocks, accesses;
	uint64_t reported; /* what the kernel left for the host */
};

/* The order of threads that no barrier orders: by their numbers, backwards, or shuffled. */
enum device_order { DEVICE_NATURAL, DEVICE_REVERSED, DEVICE_SHUFFLED };

struct device_ops {
	int (*open)(int ordinal, struct device **out, struct device_info *info,
				char error[KERNEL_ERROR_MAX]);
	void (*close)(struct device *device);
	/* Call before anything is loaded: kernels will come compiled to be checked, and the threads
	 * of a block run in this order.  NULL: the device cannot. */
	int (*check)(struct device *device, enum device_order order, char error[KERNEL_ERROR_MAX]);

	/* Zeroed memory. */
	int (*alloc)(struct device *device, uint64_t bytes, struct device_memory **out,
				 char error[KERNEL_ERROR_MAX]);
	int (*import)(struct device *device, const struct device_import *what,
				  struct device_memory **out, char error[KERNEL_ERROR_MAX]);
	/* Lets another process import memory of alloc(), by FD with this span and offset.  The
	 * contents may move; nothing queued uses them meanwhile.  The caller closes the descriptor. */
	int (*share)(struct device *device, struct device_memory *memory, struct device_shared *out,
				 char error[KERNEL_ERROR_MAX]);
	/* Registers host memory for done words; false: this device cannot write there by itself.
	 * Both NULL: no device of this kind can. */
	bool (*share_words)(struct device *device, void *address, size_t bytes);
	void (*unshare_words)(struct device *device, void *address);
	/* Nothing queued uses it any more: the executor has seen to that. */
	void (*free)(struct device *device, struct device_memory *memory);
	/* Tells whether to free this memory (NULL: to load, unload and unshare words) waits until
	 * all that runs has ended, and keeps launches from starting meanwhile.  NULL: nothing does. */
	bool (*stalls)(const struct device_memory *memory);

	int (*load)(struct device *device, const void *object, size_t bytes, const char *entry,
				uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX]);
	void (*describe)(const struct device_module *module, struct device_kernel *out);
	void (*unload)(struct device *device, struct device_module *module);

	/* Memory that streams and graphs hold for the length of a launch, in bytes. */
	uint64_t (*scratch_bytes)(const struct device *device);

	/* Queue work on a stream; order within a stream is kept.  A failure here is the answer to that
	 * work. */
	int (*launch)(struct device *device, const struct device_launch *launch,
				  char error[KERNEL_ERROR_MAX]);
	/* Host memory must stay mapped until done.  to_device: host to memory. */
	int (*copy)(struct device *device, uint64_t stream, uint64_t ticket,
				struct device_memory *memory, uint64_t offset, void *host, uint64_t bytes,
				bool to_device, char error[KERNEL_ERROR_MAX]);
	/* The caller launches nothing more for the moment: the ends of launches so far need not wait
	 * for later ones. poll() does the same.  NULL: there is nothing to do. */
	void (*flush)(struct device *device);
	/* If the first ticket has not started: it and the others, which come behind it on its
	 * stream, end in KILN_ECANCELED when their turn comes; returns true.  Else all end as usual. */
	bool (*cancel)(struct device *device, const uint64_t *tickets, int count);
	/* Returns since when the launch of this ticket runs; 0: it has not begun, or is none.  NULL:
	 * the device cannot tell. */
	uint64_t (*begun_us)(struct device *device, uint64_t ticket);
	void (*stream_end)(struct device *device, uint64_t stream);

	/*
	 * Launches, at least one, that follow one another whenever the graph is launched.  Their
	 * descriptions are copied; modules and memory stay the caller's and must outlive the graph.
	 * Their tickets, streams and delays are of no account.  Scratch memory is the graph's own, or
	 * its stream's; launches with a report are refused, for nobody would know whose it is.
	 */
	int (*graph_make)(struct device *device, const struct device_launch *launches, int count,
					  struct device_graph **out, char error[KERNEL_ERROR_MAX]);
	/* Queues the whole graph as one piece of work: one end, in the stream's order.  Reads of
	 * `how` only the fields from done_word on.  Earlier launches of the graph need not have
	 * ended: on several streams, too, it runs once at a time. */
	int (*graph_launch)(struct device *device, struct device_graph *graph,
						const struct device_launch *how, char error[KERNEL_ERROR_MAX]);
	/* Nothing queued uses it any more: the executor has seen to that.  NULL does nothing. */
	void (*graph_free)(struct device *device, struct device_graph *graph);

	/*
	 * Waits up to timeout_ms for wake_fd to become readable or for work to finish (-1: no limit),
	 * and fills in up to max ends.  Returns how many.  A device that cannot go on (sticky CUDA
	 * error) reports KILN_EDEVICE for all it has and sets *broken: the executor tells the broker
	 * and leaves with _exit.
	 */
	int (*poll)(struct device *device, int wake_fd, int timeout_ms, struct device_done *done,
				int max, bool *broken);
};

/* Declares the function that a device has in this member of its row. */
#define DEVICE_FUNCTION(member, name) __typeof__(*((struct device_ops *)0)->member) name

/* Turns a kernel's count of indices that are out of range into the status of its launch: KILN_OK
 * for none, KILN_EINDEX and a sentence. */
int device_report(const struct kernel_report *report, uint64_t count, char error[KERNEL_ERROR_MAX]);

/* Whether these launches can be a graph: KILN_OK or EINVAL, ENOTSUP and a sentence. */
int device_graph_check(const struct device_launch *launches, int count,
					   char error[KERNEL_ERROR_MAX]);
/* Puts "launch 3 of 5: " before the sentence; index counts from 0. */
void device_graph_blame(int index, int count, char error[KERNEL_ERROR_MAX]);

extern const struct device_ops device_cpu;
extern const struct device_ops device_cuda;

#endif
