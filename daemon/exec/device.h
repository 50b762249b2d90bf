/*
 * device: what an executor can do, as a row of functions; cuda.c and cpu.c each fill one in.
 * Errors: a kiln_status and one sentence in error.  Knows nothing of sessions, sockets or plans.
 *
 * split() makes parts of a device, so that several threads launch side by side.  One thread at a
 * time uses a part, and different threads may use different parts.  A stream is one part's.
 * Memory and modules are the first part's, which open() made; launches of all parts may use them.
 */
#ifndef KILN_DAEMON_DEVICE_H
#define KILN_DAEMON_DEVICE_H

#include "daemon/plan/kernel.h"

struct device;        /* an open device, or a part of one */
struct device_memory; /* a buffer */
struct device_module; /* a loaded object */
struct device_graph;  /* launches that one call starts together, any number of times */

/* Writes the 16 bytes that the driver gives as nvidia-smi does: "GPU-00112233-4455-...". */
#define DEVICE_UUID_BYTES 16
#define DEVICE_UUID_TEXT 48
void device_uuid_text(const void *uuid, char text[DEVICE_UUID_TEXT]);
/* Tells whether two texts are the same UUID; "GPU-" or "MIG-" before the digits may differ. */
bool device_uuid_same(const char *one, const char *other);
/* Tells whether this is the beginning of a UUID, as nvidia-smi takes it: "GPU-8a3b". */
bool device_uuid_begins(const char *uuid, const char *beginning);

/*
 * The names of a device: "cpu"; "cuda:1", by number; "GPU-8a3b" or "MIG-8a3b", by the beginning of
 * its UUID; "cuda:1/GPU-8a3b...", which is the GPU of this UUID, called cuda:1, or that of the
 * number where the UUID is gone.
 */
#define DEVICE_NAME_TEXT 64
#define DEVICE_ORDINAL_MOST 63
struct device_name {
	bool cpu;
	int ordinal;                 /* -1: none is given */
	char uuid[DEVICE_UUID_TEXT]; /* "": none is given */
};
bool device_name_read(const char *text, size_t size, struct device_name *out);

#define DEVICE_PARTS_MOST 16

struct device_info {
	char name[DEVICE_UUID_TEXT]; /* "cpu", "cuda:0"; until the broker knows its number "GPU-8a3b" */
	char model[96];              /* "NVIDIA H200", "x86-64 host" */
	char uuid[DEVICE_UUID_TEXT]; /* "GPU-...", "MIG-..." or "" */
	char bus[16];                /* "0000:18:00.0", or "" */
	uint64_t memory_bytes;
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

/* The parameters of a loaded kernel, which its object or the driver knows. */
struct device_kernel {
	int param_count;                  /* -1: not known */
	uint32_t params[KERNEL_MAX_ARGS]; /* bytes of each; of the first so many */
};

struct device_operand {
	struct device_memory *memory;
	uint64_t offset;  /* bytes */
	uint64_t bytes;   /* the kernel may touch so many from there on; 0: all of the buffer's */
	const char *name; /* for sentences, which give the number instead of NULL */
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
	/* The device gives scratch memory to SCRATCH arguments when the launch starts.  Each stream has
	 * its own, so launches of two streams never share it. */
	struct kernel_scratch scratch;
	/* REPORT arguments get a count of this launch alone; the device reads it when the launch has
	 * ended. */
	struct kernel_report report;
	uint64_t copy_bytes;
	/* Checked kernels: a read may cover the whole aligned granule of so many bytes around an
	 * element of an operand; 0: only the operand's own bytes. */
	uint32_t granule;
	/* The device stores done_value there as soon as the launch has ended.  The word is in memory
	 * given to share_words().  NULL: nothing is stored. */
	_Atomic uint32_t *done_word;
	uint32_t done_value;
	bool done_last;    /* the store may be left out if a later launch of the stream soon stores */
	bool untimed;      /* nobody asks how long the launch takes on the device: micros may be 0 */
	uint32_t delay_ms; /* it waits so long first; tests alone set this */
	uint64_t ticket;   /* for device_done */
	uint64_t stream;
};

/* How a piece of work ended; poll() fills it in. */
struct device_done {
	uint64_t ticket;
	int status; /* KILN_OK, or KILN_EDEVICE ... with a sentence */
	char error[KERNEL_ERROR_MAX];
	uint64_t micros; /* on the device; 0: not known */
	/* A checked kernel counts its blocks and its accesses to memory. */
	uint64_t blocks, accesses;
	uint64_t reported; /* the count that the kernel left for the host */
	bool culprit;      /* the device broke in this work, or in one of few of which this is one */
};

/* In which order threads run that no barrier orders. */
enum device_order { DEVICE_NATURAL, DEVICE_REVERSED, DEVICE_SHUFFLED };

/* Kernels may print so many bytes until somebody takes them; the rest is cut. */
#define DEVICE_PRINTED_MOST (64u << 10)

struct device_ops {
	/* name: NULL for the first of its kind. */
	int (*open)(const struct device_name *name, struct device **out, struct device_info *info,
				char error[KERNEL_ERROR_MAX]);
	void (*close)(struct device *device); /* with all its parts */
	/* Describes all devices of this kind that the process sees, by number, without opening them;
	 * returns how many, `most` at the most.  NULL: there is this one alone. */
	int (*list)(struct device *device, struct device_info *out, int most);
	/* Makes parts[1] to parts[count - 1]; parts[0] is the device itself, which has no work yet.
	 * NULL: the device has no parts. */
	int (*split)(struct device *device, int count, struct device **parts,
				 char error[KERNEL_ERROR_MAX]);
	/* Any thread but the one that called open() calls this before it uses its part.  NULL: it need
	 * not. */
	int (*enter)(struct device *part, char error[KERNEL_ERROR_MAX]);
	/* From now on kernels are compiled to be checked, and the threads of a block run in this order.
	 * Call it before anything is loaded.  NULL: the device cannot. */
	int (*check)(struct device *device, enum device_order order, char error[KERNEL_ERROR_MAX]);

	/* Allocates zeroed memory; free() frees it, as it frees imported memory. */
	int (*alloc)(struct device *device, uint64_t bytes, struct device_memory **out,
				 char error[KERNEL_ERROR_MAX]);
	int (*import)(struct device *device, const struct device_import *what,
				  struct device_memory **out, char error[KERNEL_ERROR_MAX]);
	/* Lets another process import memory of alloc(), by FD with this span and offset.  The
	 * contents may move, so the caller has nothing queued that uses them.  The caller closes the
	 * descriptor. */
	int (*share)(struct device *device, struct device_memory *memory, struct device_shared *out,
				 char error[KERNEL_ERROR_MAX]);
	/* Registers host memory for done words; false: this device cannot write there by itself.
	 * Both NULL: no device of this kind can. */
	bool (*share_words)(struct device *device, void *address, size_t bytes);
	void (*unshare_words)(struct device *device, void *address);
	/* The caller has nothing queued that uses the memory. */
	void (*free)(struct device *device, struct device_memory *memory);
	/* Tells whether freeing this memory (NULL: loading, unloading and unsharing words) waits until
	 * all that runs has ended, and keeps launches from starting meanwhile.  NULL: nothing does. */
	bool (*stalls)(const struct device_memory *memory);

	/* The object stays the caller's.  unload() frees the module. */
	int (*load)(struct device *device, const void *object, size_t bytes, const char *entry,
				uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX]);
	void (*describe)(const struct device_module *module, struct device_kernel *out);
	void (*unload)(struct device *device, struct device_module *module);

	/* From now on the device keeps what kernels print for printed(), and standard output and error
	 * of the process are its own.  NULL: it keeps that anyway. */
	int (*keep_printed)(struct device *device, char error[KERNEL_ERROR_MAX]);
	/* Takes what kernels have printed, and how many bytes were cut.  Returns its size. */
	size_t (*printed)(struct device *device, char text[DEVICE_PRINTED_MOST], uint64_t *cut);

	/* Returns the bytes of scratch memory that streams and graphs of all parts hold. */
	uint64_t (*scratch_bytes)(const struct device *device);

	/* Both queue work on a stream, which keeps its order.  After a failure poll() reports no end of
	 * that work. */
	int (*launch)(struct device *device, const struct device_launch *launch,
				  char error[KERNEL_ERROR_MAX]);
	/* The caller keeps host mapped until the copy has ended.  to_device: from host to memory. */
	int (*copy)(struct device *device, uint64_t stream, uint64_t ticket,
				struct device_memory *memory, uint64_t offset, void *host, uint64_t bytes,
				bool to_device, char error[KERNEL_ERROR_MAX]);
	/* The caller launches nothing more for the moment, so the device makes the ends of earlier
	 * launches visible now.  poll() does the same.  NULL: there is nothing to do. */
	void (*flush)(struct device *device);
	/* If the first ticket has not started, it and the others, which follow it on its stream, end in
	 * KILN_ECANCELED when their turn comes; returns true.  Else all end as usual. */
	bool (*cancel)(struct device *device, const uint64_t *tickets, int count);
	/* Returns the time at which the launch of this ticket began; 0: it has not begun, or there is
	 * none.  NULL: the device cannot tell. */
	uint64_t (*begun_us)(struct device *device, uint64_t ticket);
	/* Frees the stream, as soon as its work has ended. */
	void (*stream_end)(struct device *device, uint64_t stream);

	/*
	 * Makes a graph of launches, at least one, which follow one another whenever the graph is
	 * launched.  The device copies their descriptions and ignores their tickets, streams and
	 * delays; modules and memory stay the caller's and must outlive the graph.  Scratch memory is
	 * the graph's own, or its stream's.  Launches with a report are refused: one count would be of
	 * all of them.
	 */
	int (*graph_make)(struct device *device, const struct device_launch *launches, int count,
					  struct device_graph **out, char error[KERNEL_ERROR_MAX]);
	/* Queues the whole graph as one piece of work with one end, in the stream's order.  The device
	 * reads only the fields of `how` from done_word on.  Earlier launches of the graph may still
	 * run: the graph runs once at a time, also on several streams. */
	int (*graph_launch)(struct device *device, struct device_graph *graph,
						const struct device_launch *how, char error[KERNEL_ERROR_MAX]);
	/* The caller has nothing queued that uses the graph.  NULL does nothing. */
	void (*graph_free)(struct device *device, struct device_graph *graph);

	/*
	 * Waits up to timeout_ms (-1: no limit) for wake_fd to become readable or for work to end,
	 * fills in up to max ends and returns how many.  A device that cannot go on (sticky CUDA error)
	 * ends all its work in KILN_EDEVICE and sets *broken: then the executor tells the broker and
	 * leaves with _exit.
	 */
	int (*poll)(struct device *device, int wake_fd, int timeout_ms, struct device_done *done,
				int max, bool *broken);
};

/* Declares the function that a device has in this member of its row. */
#define DEVICE_FUNCTION(member, name) __typeof__(*((struct device_ops *)0)->member) name

/* Turns a kernel's count of indices that are out of range into the status of its launch: KILN_OK
 * for none, KILN_EINDEX and a sentence. */
int device_report(const struct kernel_report *report, uint64_t count, char error[KERNEL_ERROR_MAX]);

/* Tells whether these launches can be a graph: KILN_OK, or EINVAL or ENOTSUP and a sentence. */
int device_graph_check(const struct device_launch *launches, int count,
					   char error[KERNEL_ERROR_MAX]);
/* Puts "launch 3 of 5: " before the sentence; index counts from 0. */
void device_graph_blame(int index, int count, char error[KERNEL_ERROR_MAX]);

extern const struct device_ops device_cpu;
extern const struct device_ops device_cuda;

#endif
