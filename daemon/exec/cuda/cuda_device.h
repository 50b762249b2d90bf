/*
 * cuda_device: what the files of the cuda device share.  Nobody else includes it.
 *
 *   cuda.c         opening, what the GPU is, errors
 *   cuda_memory.c  buffers: allocated, imported by IPC handle or by descriptor
 *   cuda_share.c   memory of its own for a second process
 *   cuda_pool.c    buffers imported from another process's pool
 *   cuda_scratch.c memory for the length of a launch
 *   cuda_cell.c    words that the GPU writes and this process reads
 *   cuda_report.c  what kernels report to the host
 *   cuda_mark.c    the ends of launches that are not timed
 *   cuda_launch.c  modules, and work as it is asked for
 *   cuda_graph.c   launches recorded once and started together
 *   cuda_check.c   what a kernel takes, and whether a launch gives that
 *   cuda_stream.c  streams, and giving work to the driver
 *   cuda_poll.c    waiting for work, and what happens to it when the GPU fails
 */
#ifndef KILN_DAEMON_CUDA_DEVICE_H
#define KILN_DAEMON_CUDA_DEVICE_H

#include "cuda_driver.h"
#include "daemon/exec/device.h"

#define CUDA_STREAM_BUCKETS 256

enum cuda_memory_kind {
	CUDA_MEMORY_NONE,
	CUDA_MEMORY_POOL,
	CUDA_MEMORY_IPC,
	CUDA_MEMORY_MAPPED,
	CUDA_MEMORY_LENT_POOL
};

struct device_memory {
	enum cuda_memory_kind kind; /* NONE: a buffer of no bytes */
	CUdeviceptr base;           /* the buffer's first byte */
	uint64_t bytes;
	struct cuda_import *import;   /* IPC */
	struct cuda_pointer *pointer; /* LENT_POOL */
	CUdeviceptr mapping;          /* MAPPED: the reserved range */
	size_t mapped;
};

/* One opened allocation of another process; several buffers may lie in it. */
struct cuda_import {
	struct cuda_import *next;
	CUipcMemHandle handle;
	int64_t pid;
	uint64_t buffer_id;
	CUdeviceptr base;
	uint64_t span; /* bytes that may be used: what the exporter says and the driver confirms */
	int users;
};

struct device_module {
	CUmodule module;
	CUfunction function;
	char entry[96]; /* for messages; cut if longer */
	struct device_kernel kernel;
	int shared_fixed;        /* bytes that it has statically */
	uint32_t shared_granted; /* dynamic ones that were asked for */
	int max_threads;         /* of a block; 0: not known */
};

enum cuda_work_kind {
	CUDA_WORK_KERNEL,
	CUDA_WORK_COPY,
	CUDA_WORK_TO_DEVICE,
	CUDA_WORK_TO_HOST,
	CUDA_WORK_GRAPH
};

/* A piece of work, complete in itself: nothing in it points to the caller's descriptions. */
struct cuda_work {
	struct cuda_work *next;
	enum cuda_work_kind kind;
	uint64_t ticket;
	uint64_t due_us;       /* held until then; 0: at once */
	bool canceled;         /* while it was held */
	bool untimed;          /* has no events: its end is known by a mark */
	uint32_t number;       /* untimed: of its stream's */
	CUdeviceptr done_word; /* 0: none */
	uint32_t done_value;
	bool done_last; /* with the next mark, if it is the last before it */
	CUevent begin, end;
	const struct device_graph *graph;
	const struct device_module *module;
	uint32_t grid[3], block[3], shared_bytes;
	uint64_t values[KERNEL_MAX_ARGS];
	int value_count;
	uint64_t data_values; /* bit i: values[i] says where in data the argument is */
	uint8_t *data;
	struct kernel_scratch scratch;
	uint64_t scratch_values; /* bit i: values[i] is its address, known when the work starts */
	struct kernel_report report;
	struct cuda_cell *reported; /* NULL: there is no report */
	CUdeviceptr from, to;
	void *host;
	uint64_t bytes;
	int status; /* of work that failed when its time came */
	char error[KERNEL_ERROR_MAX];
};

/* A word of host memory that the GPU writes, in a cache line of its own. */
struct cuda_cell {
	_Alignas(64) uint64_t value;
	struct cuda_cell *next; /* of the spare ones; of a page's first, the next page */
};

struct cuda_queue {
	struct cuda_work *head, *tail;
};

/* Counters end at base + below, the rest of scratch memory begins there. */
struct cuda_scratch {
	CUdeviceptr base; /* 0 until a launch needs it */
	uint64_t below, above;
	uint64_t spoilt; /* bytes at the end of the counters' part that may not be zero */
};

struct device_graph {
	CUgraphExec exec;
	int count; /* of launches */
	/* All of them use it; the driver sees to it that the graph does not run twice at once. */
	struct cuda_scratch scratch;
};

struct cuda_stream {
	struct cuda_stream *next; /* in its bucket */
	uint64_t id;
	CUstream stream;
	struct cuda_queue running; /* given to the driver, in order */
	struct cuda_queue held;    /* waits for its time, for the stream to be idle, or behind such */
	struct cuda_scratch scratch;
	struct cuda_cell *word; /* NULL until it has launches that are not timed */
	uint32_t given;         /* such launches */
	uint64_t asked_us;      /* when the driver was last asked for their end */
	bool unmarked;          /* in the list of those that need a mark */
	struct cuda_stream *unmarked_next;
	CUdeviceptr done_word; /* to be written with the mark; 0: none */
	uint32_t done_value;
	bool ended;  /* goes when its last work ends */
	bool active; /* has running or held work, and is in the list of those */
	struct cuda_stream *active_next, *active_previous;
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
	uint64_t scratch_bytes; /* of all streams and graphs */

	CUmemoryPool pool;
	CUstream memory_stream;
	struct cuda_import *imports;
	struct cuda_pool *pools; /* of other processes */

	struct cuda_stream *streams[CUDA_STREAM_BUCKETS];
	struct cuda_stream *active, *unmarked;
	struct cuda_queue failed; /* work that could not be started when its time came */
	struct cuda_work *spare_work;
	struct cuda_cell *spare_cells, *cell_pages;
	bool no_marks; /* the driver does not write them */
	CUevent *spare_events;
	int spare_event_count, spare_event_room;
	int running;          /* pieces of work that the driver has */
	double fraction_us;   /* of the time reported so far */
	uint64_t now_us;      /* when it was last looked for ends: the time of all that happens since */
	uint64_t progress_us; /* when work was last given or ended: what the spinning is measured by */

	bool broken;
	char broken_why[200]; /* "CUDA_ERROR_ILLEGAL_ADDRESS 700 (...)" */
};

/* ---- cuda.c ---- */

/* Writes the sentence, ended by the driver's name for the error, and returns the status that fits:
 * ENOMEM, EDEVICE (and the device is broken from now on), else status. */
int cuda_fail(struct device *device, char error[KERNEL_ERROR_MAX], int status, CUresult result,
			  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- cuda_memory.c ---- */

int cuda_memory_open(struct device *device, char error[KERNEL_ERROR_MAX]);
void cuda_memory_close(struct device *device);
int cuda_alloc(struct device *device, uint64_t bytes, struct device_memory **out,
			   char error[KERNEL_ERROR_MAX]);
int cuda_import(struct device *device, const struct device_import *what, struct device_memory **out,
				char error[KERNEL_ERROR_MAX]);
void cuda_free(struct device *device, struct device_memory *memory);
bool cuda_stalls(const struct device_memory *memory);
/* Memory of the device's own pool, for use on the stream; nothing is written to it. */
CUresult cuda_take(struct device *device, CUstream stream, uint64_t bytes, CUdeviceptr *out);
/* EINVAL with a sentence unless the buffer lies within span bytes, as who says. */
int cuda_check_span(const struct device_import *what, uint64_t span, const char *who,
					char error[KERNEL_ERROR_MAX]);

/* Maps the first size bytes of an allocation: kind, base and bytes are the caller's to set. */
int cuda_map_allocation(struct device *device, CUmemGenericAllocationHandle allocation, size_t size,
						struct device_memory *memory, char error[KERNEL_ERROR_MAX]);

/* ---- cuda_share.c ---- */

int cuda_share(struct device *device, struct device_memory *memory, struct device_shared *out,
			   char error[KERNEL_ERROR_MAX]);

/* ---- cuda_check.c ---- */

/* Of a module just loaded: fills in what the launches of its function are checked by. */
CUresult cuda_know_kernel(struct device *device, struct device_module *module, const void *object,
						  size_t bytes, const char *entry);
void cuda_describe(const struct device_module *module, struct device_kernel *out);
/* Dynamic shared memory beyond the default must be asked for; what the kernel has statically counts
 * too. */
CUresult cuda_grant_shared(struct device *device, struct device_module *module,
						   uint32_t shared_bytes);
/* Arguments, threads and shared memory against the kernel.  KILN_OK or a sentence. */
int cuda_check_launch(struct device *device, const struct device_launch *launch,
					  char error[KERNEL_ERROR_MAX]);

/* ---- cuda_pool.c ---- */

/* Fills in where the memory is, and of which kind. */
int cuda_pool_import(struct device *device, const struct device_import *what,
					 struct device_memory *memory, char error[KERNEL_ERROR_MAX]);
/* Returns when the driver has let go of it, at most a second later. */
void cuda_pool_free(struct device *device, struct device_memory *memory);
void cuda_pools_close(struct device *device);

/* ---- cuda_scratch.c ---- */
uint64_t cuda_scratch_bytes(const struct device *device);

/* Just before the work is launched on a stream: what it needs is there, and its values say where.
 */
int cuda_scratch_give(struct device *device, struct cuda_scratch *scratch, CUstream stream,
					  struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
/* Makes it large enough for works that are given it one after another, again and again: what the
 * last of them leave is reckoned with. */
int cuda_scratch_reserve(struct device *device, struct cuda_scratch *scratch, CUstream stream,
						 const struct cuda_queue *works, char error[KERNEL_ERROR_MAX]);
/* Nothing uses it any more. */
void cuda_scratch_free(struct device *device, struct cuda_scratch *scratch);

/* ---- cuda_cell.c ---- */

/* One whose value is 0. */
CUresult cuda_cell_take(struct device *device, struct cuda_cell **out);
void cuda_cell_keep(struct device *device, struct cuda_cell *cell);
void cuda_cells_close(struct device *device);
bool cuda_share_words(struct device *device, void *address, size_t bytes);
void cuda_unshare_words(struct device *device, void *address);

/* ---- cuda_report.c ---- */

/* A count for the work, at zero. */
int cuda_report_give(struct device *device, struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
/* The work has ended: what its kernel reported comes to, as device_report has it. */
int cuda_report_read(const struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
void cuda_report_keep(struct device *device, struct cuda_work *work);

/* ---- cuda_mark.c ---- */

/* Whether launches of this stream may go without events. */
bool cuda_mark_ready(struct device *device, struct cuda_stream *stream);
void cuda_mark_drop(struct device *device, struct cuda_stream *stream);
/* Numbers an untimed work that was launched; the next mark stands behind it. */
void cuda_mark_want(struct device *device, struct cuda_stream *stream, struct cuda_work *work);
/* Behind what was launched since the last time. */
void cuda_marks_write(struct device *device);
/* Of an untimed work, as cuEventQuery: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or what is wrong. */
CUresult cuda_mark_query(struct device *device, struct cuda_stream *stream,
						 const struct cuda_work *work);

/* ---- cuda_launch.c ---- */

int cuda_load(struct device *device, const void *object, size_t bytes, const char *entry,
			  uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX]);
void cuda_unload(struct device *device, struct device_module *module);
/* A launch as a work that can be started, but for its scratch memory. */
int cuda_bind(struct device *device, const struct device_launch *launch, struct cuda_work **out,
			  char error[KERNEL_ERROR_MAX]);
int cuda_launch(struct device *device, const struct device_launch *launch,
				char error[KERNEL_ERROR_MAX]);
int cuda_copy(struct device *device, uint64_t stream, uint64_t ticket, struct device_memory *memory,
			  uint64_t offset, void *host, uint64_t bytes, bool to_device,
			  char error[KERNEL_ERROR_MAX]);

/* ---- cuda_graph.c ---- */

int cuda_graph_make(struct device *device, const struct device_launch *launches, int count,
					struct device_graph **out, char error[KERNEL_ERROR_MAX]);
int cuda_graph_launch(struct device *device, struct device_graph *graph,
					  const struct device_launch *how, char error[KERNEL_ERROR_MAX]);
void cuda_graph_free(struct device *device, struct device_graph *graph);

/* ---- cuda_stream.c ---- */

struct cuda_work *cuda_work_new(struct device *device, enum cuda_work_kind kind, uint64_t ticket);
void cuda_work_retire(struct device *device, struct cuda_work *work);
void cuda_queue_add(struct cuda_queue *queue, struct cuda_work *work);
struct cuda_work *cuda_queue_take(struct cuda_queue *queue); /* NULL when empty */
/* Starts the work, or puts it behind what its stream holds back.  Takes it over in any case. */
bool cuda_cancel(struct device *device, const uint64_t *tickets, int count);
int cuda_give(struct device *device, uint64_t stream_id, struct cuda_work *work, uint32_t delay_ms,
			  char error[KERNEL_ERROR_MAX]);
/* The call of the driver that is the work itself, and the sentence when it fails. */
CUresult cuda_perform(struct device *device, CUstream stream, struct cuda_work *work);
int cuda_perform_failed(struct device *device, const struct cuda_work *work, CUresult result,
						char error[KERNEL_ERROR_MAX]);
/* Gives a piece of work to the driver. */
int cuda_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work,
			   char error[KERNEL_ERROR_MAX]);
/* True if held work could start now but for its time. */
bool cuda_stream_ready(const struct cuda_stream *stream);
/* Call when a stream may have run empty: takes it off the active list and drops it if it ended. */
void cuda_stream_settle(struct device *device, struct cuda_stream *stream);
void cuda_stream_end(struct device *device, uint64_t stream);
void cuda_streams_close(struct device *device);

/* ---- cuda_poll.c ---- */

int cuda_poll(struct device *device, int wake_fd, int timeout_ms, struct device_done *done, int max,
			  bool *broken);

#endif
