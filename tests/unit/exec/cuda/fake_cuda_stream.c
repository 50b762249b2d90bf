/*
 * fake_cuda_stream.c: the fake's streams, events and copies.  A stream is a queue that gets on when
 * somebody looks.
 */
#include "fake_cuda_state.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_mark = 1;

struct CUevent_st {
	uint64_t recorded, reached;
};
struct CUstream_st {
	struct op *head, **tail;
	struct CUgraph_st *capture; /* not NULL: what comes is recorded there */
	bool was_held;              /* with something to do */
};

/* ---- Queues ---- */

static void advance(struct CUstream_st *stream)
{
	const int how = fake_held;
	if (how != FAKE_HOLD_BUSY)
		stream->was_held = how && stream->head;
	while (stream->head && (!how || (how == FAKE_HOLD_BUSY && !stream->was_held)) &&
		   fake_sticky == CUDA_SUCCESS) {
		struct op *op = stream->head;
		if (op->kind == OP_KERNEL)
			fake_run_kernel(op);
		else if (op->kind == OP_COPY)
			memmove(op->to, op->from, op->bytes);
		else if (op->kind == OP_SET)
			memset(op->to, (int)op->values[0], op->bytes);
		else if (op->kind == OP_FREE)
			fake_free_now((uintptr_t)op->to);
		else if (op->kind == OP_WORD)
			*(volatile uint32_t *)op->to = (uint32_t)op->values[0];
		else
			op->event->reached = op->mark;
		stream->head = op->next;
		if (!stream->head)
			stream->tail = &stream->head;
		free(op);
	}
}

/* All streams, so that a query of an event finds what stands before it. */
#define MAX_STREAMS 256
static struct CUstream_st *streams[MAX_STREAMS];

static struct CUstream_st default_stream = {.tail = &default_stream.head};

static struct CUstream_st *stream_of(CUstream stream)
{
	return stream ? stream : &default_stream;
}

static void advance_all(void)
{
	advance(&default_stream);
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i])
			advance(streams[i]);
}

struct op *fake_add_op(CUstream stream, enum op_kind kind)
{
	struct op *op = calloc(1, sizeof(*op));
	op->kind = kind;
	stream = stream_of(stream);
	if (stream->capture) {
		fake_graph_add(stream->capture, op);
		return op;
	}
	/* Threads launch on the default stream at once. */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	*stream->tail = op;
	stream->tail = &op->next;
	pthread_mutex_unlock(&lock);
	return op;
}

struct CUgraph_st **fake_capture(CUstream stream)
{
	return &stream->capture;
}

bool fake_free_later(CUstream stream, CUdeviceptr at)
{
	if (!stream_of(stream)->head)
		return false;
	fake_add_op(stream, OP_FREE)->to = (void *)(uintptr_t)at;
	return true;
}

/* ---- Streams ---- */

static CUresult add_copy(CUstream stream, void *to, const void *from, size_t bytes)
{
	if (fake_runs_itself(stream)) {
		fake_copy_itself(stream, to, from, bytes);
		return CUDA_SUCCESS;
	}
	struct op *op = fake_add_op(stream, OP_COPY);
	op->to = to;
	op->from = from;
	op->bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	ENTER();
	(void)flags;
	if (getenv("KILN_FAKE_CUDA_STREAMS")) {
		*out = fake_self_running();
		return CUDA_SUCCESS;
	}
	for (int i = 0; i < MAX_STREAMS; i++) {
		if (streams[i])
			continue;
		streams[i] = calloc(1, sizeof(*streams[i]));
		streams[i]->tail = &streams[i]->head;
		fake_live[FAKE_LIVE_STREAMS]++;
		*out = streams[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamDestroy(CUstream stream)
{
	LOCKED;
	for (int i = 0; i < MAX_STREAMS; i++) {
		if (streams[i] != stream)
			continue;
		while (stream->head) {
			struct op *op = stream->head;
			stream->head = op->next;
			if (op->kind == OP_FREE)
				fake_free_now((uintptr_t)op->to);
			free(op);
		}
		if (stream->capture)
			cuGraphDestroy(stream->capture);
		free(stream);
		streams[i] = NULL;
		fake_live[FAKE_LIVE_STREAMS]--;
	}
	return fake_enter(__func__);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	fake_tell();
	ENTER();
	if (fake_runs_itself(stream))
		return fake_synchronize_itself(stream);
	stream = stream_of(stream);
	if (stream->capture)
		return fake_spoil(stream->capture);
	int was = fake_held;
	fake_held = 0; /* a wait that never ends would only hang the test */
	advance(stream);
	fake_held = was;
	return fake_sticky;
}

CUresult cuStreamQuery(CUstream stream)
{
	ENTER();
	if (fake_runs_itself(stream))
		return fake_query_itself(stream);
	stream = stream_of(stream);
	if (stream->capture)
		return fake_spoil(stream->capture);
	advance(stream);
	return fake_sticky != CUDA_SUCCESS ? fake_sticky
		   : stream->head              ? CUDA_ERROR_NOT_READY
									   : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	ENTER();
	(void)flags;
	*out = calloc(1, sizeof(**out));
	fake_live[FAKE_LIVE_EVENTS]++;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	LOCKED;
	free(event);
	fake_live[FAKE_LIVE_EVENTS]--;
	return fake_enter(__func__);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	ENTER();
	struct op *op = fake_add_op(stream, OP_EVENT);
	op->event = event;
	op->mark = event->recorded = next_mark++;
	return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags)
{
	ENTER();
	(void)flags;
	struct op *op = fake_add_op(stream, OP_WORD);
	op->to = (void *)(uintptr_t)to;
	op->values[0] = value;
	return CUDA_SUCCESS;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params,
							unsigned flags)
{
	ENTER();
	(void)flags;
	if (fake_runs_itself(stream))
		return fake_batch_itself(stream, count, params);
	for (unsigned i = 0; i < count; i++)
		if (params[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32)
			return CUDA_ERROR_NOT_SUPPORTED; /* who looks would wait for ever */
	for (unsigned i = 0; i < count; i++) {
		struct op *op = fake_add_op(stream, OP_WORD);
		op->to = (void *)(uintptr_t)params[i].writeValue.address;
		op->values[0] = params[i].writeValue.value;
	}
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
	ENTER();
	advance_all();
	if (fake_sticky != CUDA_SUCCESS)
		return fake_sticky;
	return event->reached == event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	ENTER();
	if (begin->reached != begin->recorded || end->reached != end->recorded)
		return CUDA_ERROR_NOT_READY;
	*ms = 0.2505f;
	return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	ENTER();
	if (fake_runs_itself(stream)) {
		fake_set_itself(stream, (void *)(uintptr_t)to, value, bytes);
		return CUDA_SUCCESS;
	}
	struct op *op = fake_add_op(stream, OP_SET);
	op->to = (void *)(uintptr_t)to;
	op->bytes = bytes;
	op->values[0] = value;
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	ENTER();
	return add_copy(stream, (void *)(uintptr_t)to, from, bytes);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER();
	return add_copy(stream, to, (const void *)(uintptr_t)from, bytes);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	ENTER();
	return add_copy(stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}

/* ---- The context as a whole ---- */

CUresult cuCtxSynchronize(void)
{
	ENTER();
	int was = fake_held;
	fake_held = 0;
	advance_all();
	fake_held = was;
	return fake_sticky != CUDA_SUCCESS ? fake_sticky : fake_synchronize_all();
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	ENTER();
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
	ENTER();
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes)
{
	ENTER();
	memset((void *)(uintptr_t)to, value, bytes);
	return CUDA_SUCCESS;
}

void fake_streams_reset(void)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i])
			cuStreamDestroy(streams[i]);
}
