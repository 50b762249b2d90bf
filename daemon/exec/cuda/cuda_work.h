/*
 * cuda_work: pieces of work for the driver.  A work holds copies of the caller's descriptions,
 * because a work behind a delay starts long after the call.
 *
 *   HELD ------(cuda_start)------> RUNNING ------(its event or mark)------> SPARE
 *     |                               |                                       ^
 *     | (canceled, or the driver      | (the GPU failed)                      |
 *     |  does not start it)           v                                       |
 *     +---------------------------> FAILED ------(poll reports it)------------+
 *
 * A stream owns HELD and RUNNING works, in two queues; a HELD one that is recorded may be ahead of
 * the driver, in neither.  The device owns FAILED works, which keep
 * their status and sentence until poll() reports them, and SPARE works, for the next call.  While a
 * graph is recorded, cuda_graph_make() owns its works, which are HELD.
 */
#ifndef KILN_DAEMON_CUDA_WORK_H
#define KILN_DAEMON_CUDA_WORK_H

#include "cuda_device.h"

enum cuda_work_kind {
	CUDA_WORK_KERNEL,
	CUDA_WORK_COPY,
	CUDA_WORK_TO_DEVICE,
	CUDA_WORK_TO_HOST,
	CUDA_WORK_GRAPH
};

enum cuda_work_state { CUDA_WORK_HELD, CUDA_WORK_RUNNING, CUDA_WORK_FAILED, CUDA_WORK_SPARE };

struct cuda_work {
	struct cuda_work *next;
	enum cuda_work_kind kind;
	enum cuda_work_state state;
	uint64_t ticket;
	uint64_t due_us;       /* HELD until then; 0: as soon as the stream allows */
	bool canceled;         /* HELD: it fails when its turn comes */
	bool untimed;          /* it has no events: a mark tells its end */
	uint32_t number;       /* untimed: of the stream's launches */
	CUdeviceptr done_word; /* 0: none */
	uint32_t done_value;
	bool done_last; /* the next mark writes done_word, if this is the last work before it */
	CUevent begin, end;
	const struct device_graph *graph;
	struct cuda_record *record; /* it is launched by this; NULL: as it is */
	const struct device_module *module;
	uint32_t grid[3], block[3], shared_bytes;
	int value_count;
	uint64_t data_values; /* bit i: values[i] is the place of the argument in data */
	uint8_t *data;
	struct kernel_scratch scratch;
	uint64_t scratch_values; /* bit i: values[i] is set to the scratch memory's address */
	struct kernel_report report;
	struct cuda_cell *reported; /* counts indices that are out of range; NULL: none counts */
	CUdeviceptr from, to;
	void *host;
	uint64_t bytes;
	int status;   /* FAILED */
	bool suspect; /* FAILED: it may have made the device fail */
	/* A new work has all above at zero. */
	uint64_t values[KERNEL_MAX_ARGS];
	char error[KERNEL_ERROR_MAX]; /* FAILED */
};

/* Makes a HELD work; never NULL.  cuda_work_retire() ends it. */
struct cuda_work *cuda_work_new(struct device *device, enum cuda_work_kind kind, uint64_t ticket);
/* Makes the work SPARE, with its events and its cell. */
void cuda_work_retire(struct device *device, struct cuda_work *work);
void cuda_queue_add(struct cuda_queue *queue, struct cuda_work *work);
struct cuda_work *cuda_queue_take(struct cuda_queue *queue); /* NULL when empty */
void cuda_queue_retire(struct device *device, struct cuda_queue *queue);
/* Frees spare works and events. */
void cuda_works_close(struct device *device);
/* Takes an event from the spare ones, or makes one. */
CUresult cuda_event_take(struct device *device, CUevent *event);
/* Fills in where the values of a kernel's parameters are. */
void cuda_work_params(struct cuda_work *work, void *params[KERNEL_MAX_ARGS]);
/* Calls the driver function that is the work itself. */
CUresult cuda_perform(struct device *device, CUstream stream, struct cuda_work *work);
/* Writes the sentence for a cuda_perform() that failed. */
int cuda_perform_failed(struct device *device, const struct cuda_work *work, CUresult result,
						char error[KERNEL_ERROR_MAX]);

/* Gives the work a cell for its count, at zero; cuda_report_keep() takes it back. */
int cuda_report_give(struct device *device, struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
/* The work has ended: turns its count into a status, as device_report() does. */
int cuda_report_read(const struct cuda_work *work, char error[KERNEL_ERROR_MAX]);
void cuda_report_keep(struct device *device, struct cuda_work *work);

/* ---- cuda_launch.c ---- */

/* Makes a work of a launch, which the caller owns.  It needs scratch memory before it can start. */
int cuda_bind(struct device *device, const struct device_launch *launch, struct cuda_work **out,
			  char error[KERNEL_ERROR_MAX]);

#endif
