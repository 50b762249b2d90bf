/*
 * cuda_stream: streams, which own their works.
 *
 *   IDLE  <---(its last work ended)---  ACTIVE
 *    |    ----(it gets work)--------->    |
 *    | (cuda_stream_end)                  | (cuda_stream_end)
 *    v                                    v
 *   freed <---(its last work ended)---  ENDING
 *
 * Invariant: ACTIVE and ENDING streams have running or held work, or one ahead, and the device's
 * list of active streams has exactly these.  cuda_stream_settle() restores that after works have
 * left.
 */
#ifndef KILN_DAEMON_CUDA_STREAM_H
#define KILN_DAEMON_CUDA_STREAM_H

#include "cuda_cell.h"
#include "cuda_scratch.h"

enum cuda_stream_state { CUDA_STREAM_IDLE, CUDA_STREAM_ACTIVE, CUDA_STREAM_ENDING };

struct cuda_stream {
	struct cuda_stream *next; /* in its bucket */
	enum cuda_stream_state state;
	uint64_t id;
	CUstream stream;
	struct cuda_queue running; /* the driver has these, in order */
	struct cuda_queue held;    /* wait for their time, for an idle stream, or behind such a work */
	/* The last launch, if it was recorded.  The driver gets it when the next launch comes, or
	 * together with the kernel that tells the end of this launch and of those before it.  NULL: it
	 * has them all. */
	struct cuda_work *ahead;
	struct cuda_scratch scratch;
	struct cuda_cell *word; /* for marks; NULL until there are untimed launches */
	uint32_t written, told; /* marks, by the driver's write and by a kernel */
	CUdeviceptr counter;    /* of those kernels; 0 until there are recordings */
	uint64_t asked_us;      /* when the driver was last asked whether they have ended */
	bool unmarked;          /* launches need a mark */
	bool listed;            /* among those that may need one */
	struct cuda_stream *unmarked_next;
	CUdeviceptr done_word; /* of a client, which the next mark also writes; 0: none */
	uint32_t done_value;
	struct cuda_stream *active_next, *active_previous;
};

struct cuda_work;

/* Returns where a kernel of the stream writes how many of them have run: the upper half of its
 * word.  With one address space the host's address is the GPU's, too. */
static inline CUdeviceptr cuda_stream_told(const struct cuda_stream *stream)
{
	return (CUdeviceptr)(uintptr_t)&stream->word->value + sizeof(uint32_t);
}

/* Starts the work, or puts it behind what its stream holds back.  Takes it over in any case. */
int cuda_give(struct device *device, uint64_t stream_id, struct cuda_work *work, uint32_t delay_ms,
			  char error[KERNEL_ERROR_MAX]);
/* Gives a piece of work to the driver. */
int cuda_start(struct device *device, struct cuda_stream *stream, struct cuda_work *work,
			   char error[KERNEL_ERROR_MAX]);
/* Gives the launch that the stream has ahead to the driver; tells: with the kernel behind it that
 * tells.  Returns whether it tells.  A launch that the driver does not take is FAILED. */
bool cuda_start_ahead(struct device *device, struct cuda_stream *stream, bool tells);
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
/* Numbers an untimed work that was launched or will be; the next mark stands behind it. */
void cuda_mark_want(struct device *device, struct cuda_stream *stream, struct cuda_work *work);
/* Puts a mark behind all launches of the stream. */
void cuda_mark_now(struct device *device, struct cuda_stream *stream);
/* Answers for an untimed work as cuEventQuery does: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or the
 * error. */
CUresult cuda_mark_query(struct device *device, struct cuda_stream *stream,
						 const struct cuda_work *work);

#endif
