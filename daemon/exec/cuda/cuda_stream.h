/*
 * cuda_stream: streams, which own their works.
 *
 *   IDLE  <---(its last work ended)---  ACTIVE
 *    |    ----(it gets work)--------->    |
 *    | (cuda_stream_end)                  | (cuda_stream_end)
 *    v                                    v
 *   freed <---(its last work ended)---  ENDING
 *
 * Invariant: ACTIVE and ENDING streams have running or held work, and the device's list of active
 * streams has exactly these.  cuda_stream_settle() restores that after works have left.
 */
#ifndef KILN_DAEMON_CUDA_STREAM_H
#define KILN_DAEMON_CUDA_STREAM_H

#include "cuda_scratch.h"

enum cuda_stream_state { CUDA_STREAM_IDLE, CUDA_STREAM_ACTIVE, CUDA_STREAM_ENDING };

struct cuda_stream {
	struct cuda_stream *next; /* in its bucket */
	enum cuda_stream_state state;
	uint64_t id;
	CUstream stream;
	struct cuda_queue running; /* the driver has these, in order */
	struct cuda_queue held;    /* wait for their time, for an idle stream, or behind such a work */
	struct cuda_scratch scratch;
	struct cuda_cell *word; /* for marks; NULL until there are untimed launches */
	uint32_t given;         /* untimed launches */
	uint64_t asked_us;      /* when the driver was last asked whether they have ended */
	bool unmarked;          /* in the list of those that need a mark */
	struct cuda_stream *unmarked_next;
	CUdeviceptr done_word; /* of a client, which the next mark also writes; 0: none */
	uint32_t done_value;
	struct cuda_stream *active_next, *active_previous;
};

struct cuda_work;

/* Starts the work, or puts it behind what its stream holds back.  Takes it over in any case. */
int cuda_give(struct device *device, uint64_t stream_id, struct cuda_work *work, uint32_t delay_ms,
			  char error[KERNEL_ERROR_MAX]);
/* Gives a piece of work to the driver. */
int cuda_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work,
			   char error[KERNEL_ERROR_MAX]);
/* True if the first held work waits for nothing but its time. */
bool cuda_stream_ready(const struct cuda_stream *stream);
/* Call when a stream may have run empty: takes it off the active list and frees it if it ended. */
void cuda_stream_settle(struct device *device, struct cuda_stream *stream);
void cuda_streams_close(struct device *device);

/* ---- cuda_mark.c ---- */

/* True: launches of this stream may go without events. */
bool cuda_mark_ready(struct device *device, struct cuda_stream *stream);
/* The stream ends: gives its word back. */
void cuda_mark_drop(struct device *device, struct cuda_stream *stream);
/* Numbers an untimed work that was launched; the next mark stands behind it. */
void cuda_mark_want(struct device *device, struct cuda_stream *stream, struct cuda_work *work);
/* Answers for an untimed work as cuEventQuery does: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or the
 * error. */
CUresult cuda_mark_query(struct device *device, struct cuda_stream *stream,
						 const struct cuda_work *work);

#endif
