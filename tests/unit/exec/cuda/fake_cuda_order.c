/*
 * fake_cuda_order: streams of the fake GPU (fake_cuda.c) that get on by themselves, in a thread
 * each, as those of a real one do: for tests of the order between such a stream and others.  They
 * take steps of the test's own, copies, and memory operations on registered host memory.
 */
#include "fake_cuda_state.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS 20000
#define SYNCHRONIZE_MS 30000 /* the longest that a real driver's wait may take here */

enum step_kind { STEP_CALL, STEP_COPY, STEP_SET, STEP_WRITE, STEP_WAIT };
struct step {
	struct step *next;
	enum step_kind kind;
	void (*call)(void *arg);
	void *arg, *to;
	const void *from;
	size_t bytes;
	uint32_t value;
};
struct worker {
	struct worker *next;
	pthread_t thread;
	pthread_cond_t moved;
	struct step *head, **tail; /* the head is the one that is run */
	CUcontext context;
	bool is_default, capturing, ending;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct worker *workers;
static atomic_int writes_ended, waits_ended, faults;

/* ---- A stream's thread ---- */

static void run_wait(struct worker *worker, const struct step *step)
{
	_Atomic uint32_t *word = step->to;
	const struct timespec pause = {0, POLL_NS};
	for (;;) {
		if (!fake_is_registered(word, sizeof(*word))) {
			atomic_fetch_add(&faults, 1);
			return;
		}
		if ((int32_t)(atomic_load(word) - step->value) >= 0)
			break;
		pthread_mutex_lock(&lock);
		bool ending = worker->ending;
		pthread_mutex_unlock(&lock);
		if (ending)
			return;
		nanosleep(&pause, NULL);
	}
	atomic_fetch_add(&waits_ended, 1);
}

static void run_step(struct worker *worker, const struct step *step)
{
	switch (step->kind) {
	case STEP_CALL:
		step->call(step->arg);
		break;
	case STEP_COPY:
		memmove(step->to, step->from, step->bytes);
		break;
	case STEP_SET:
		memset(step->to, (int)step->value, step->bytes);
		break;
	case STEP_WRITE:
		if (fake_is_registered(step->to, 4))
			atomic_store((_Atomic uint32_t *)step->to, step->value);
		else
			atomic_fetch_add(&faults, 1);
		atomic_fetch_add(&writes_ended, 1);
		break;
	case STEP_WAIT:
		run_wait(worker, step);
		break;
	}
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	pthread_mutex_lock(&lock);
	while (worker->head || !worker->ending) {
		struct step *step = worker->head;
		if (!step) {
			pthread_cond_wait(&worker->moved, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		run_step(worker, step);
		pthread_mutex_lock(&lock);
		worker->head = step->next;
		if (!worker->head)
			worker->tail = &worker->head;
		free(step);
		pthread_cond_broadcast(&worker->moved);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- Streams, for the driver's functions ---- */

static struct worker *find(const void *stream)
{
	struct worker *worker = workers;
	while (worker && (stream ? worker != stream : !worker->is_default))
		worker = worker->next;
	return worker;
}

bool fake_runs_itself(CUstream stream)
{
	pthread_mutex_lock(&lock);
	bool found = find(stream);
	pthread_mutex_unlock(&lock);
	return found;
}

static bool add_steps(const void *stream, const struct step *steps, int count)
{
	pthread_mutex_lock(&lock);
	struct worker *worker = find(stream);
	for (int i = 0; i < count && worker; i++) {
		struct step *step = malloc(sizeof(*step));
		*step = steps[i];
		step->next = NULL;
		*worker->tail = step;
		worker->tail = &step->next;
	}
	if (worker)
		pthread_cond_broadcast(&worker->moved);
	pthread_mutex_unlock(&lock);
	return worker;
}

void fake_copy_itself(CUstream stream, void *to, const void *from, size_t bytes)
{
	const struct step step = {.kind = STEP_COPY, .to = to, .from = from, .bytes = bytes};
	add_steps(stream, &step, 1);
}

void fake_set_itself(CUstream stream, void *to, unsigned char value, size_t bytes)
{
	const struct step step = {.kind = STEP_SET, .to = to, .value = value, .bytes = bytes};
	add_steps(stream, &step, 1);
}

/* It has come to the end of all that it has, in time. */
static bool wait_for(const void *stream, int timeout_ms)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += timeout_ms / 1000;
	end.tv_nsec += timeout_ms % 1000 * 1000000L;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&lock);
	struct worker *worker = find(stream);
	int late = 0;
	while (worker && worker->head && !late)
		late = pthread_cond_timedwait(&worker->moved, &lock, &end);
	bool ended = worker && !worker->head;
	pthread_mutex_unlock(&lock);
	return ended;
}

static bool is_capturing(CUstream stream)
{
	pthread_mutex_lock(&lock);
	const struct worker *worker = find(stream);
	bool capturing = worker && worker->capturing;
	pthread_mutex_unlock(&lock);
	return capturing;
}

CUresult fake_synchronize_itself(CUstream stream)
{
	if (is_capturing(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return wait_for(stream, SYNCHRONIZE_MS) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

/* A thread's mode; GLOBAL forbids questions while any stream is captured. */
static _Thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool any_is_captured(void)
{
	pthread_mutex_lock(&lock);
	const struct worker *worker = workers;
	while (worker && !worker->capturing)
		worker = worker->next;
	pthread_mutex_unlock(&lock);
	return worker;
}

static void (*query_call)(void *arg);
static void *query_arg;

CUresult fake_query_itself(CUstream stream)
{
	if (query_call)
		query_call(query_arg);
	if (is_capturing(stream) ||
		(capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && any_is_captured())) {
		atomic_fetch_add(&faults, 1);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return wait_for(stream, 0) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult fake_synchronize_all(void)
{
	CUresult result = CUDA_SUCCESS;
	struct worker *all[64];
	int count = 0;
	pthread_mutex_lock(&lock);
	for (struct worker *worker = workers; worker && count < 64; worker = worker->next)
		all[count++] = worker;
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = wait_for(all[i], SYNCHRONIZE_MS) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
	return result;
}

CUresult fake_batch_itself(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *ops)
{
	struct step steps[8];
	if (!count || count > 8 || is_capturing(stream))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		bool write = ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
		CUdeviceptr at = write ? ops[i].writeValue.address : ops[i].waitValue.address;
		if ((!write && (ops[i].operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
						ops[i].waitValue.flags != CU_STREAM_WAIT_VALUE_GEQ)) ||
			!fake_is_registered((void *)(uintptr_t)at, 4))
			return CUDA_ERROR_INVALID_VALUE;
		steps[i] = (struct step){.kind = write ? STEP_WRITE : STEP_WAIT,
								 .to = (void *)(uintptr_t)at,
								 .value = write ? ops[i].writeValue.value : ops[i].waitValue.value};
	}
	return add_steps(stream, steps, (int)count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out)
{
	ENTER();
	bool captures = fake_runs_itself(stream) ? is_capturing(stream)
											 : stream != NULL && *fake_capture(stream) != NULL;
	*out = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	ENTER();
	CUstreamCaptureMode before = capture_mode;
	capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
	ENTER();
	pthread_mutex_lock(&lock);
	const struct worker *worker = find(stream);
	*out = worker ? worker->context : fake_current();
	pthread_mutex_unlock(&lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *out)
{
	ENTER();
	*out = stream ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
	return CUDA_SUCCESS;
}

/* ---- The test's side ---- */

static void *open_stream(void *context, int is_default)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	worker->tail = &worker->head;
	worker->context = context;
	worker->is_default = is_default;
	pthread_cond_init(&worker->moved, NULL);
	pthread_mutex_lock(&lock);
	worker->next = workers;
	workers = worker;
	pthread_mutex_unlock(&lock);
	if (pthread_create(&worker->thread, NULL, work, worker) != 0)
		abort();
	return is_default ? NULL : worker;
}

CUstream fake_self_running(void)
{
	return open_stream(fake_current(), 0);
}

static void close_stream(void *stream)
{
	pthread_mutex_lock(&lock);
	struct worker *worker = find(stream), **link = &workers;
	worker->ending = true;
	pthread_cond_broadcast(&worker->moved);
	pthread_mutex_unlock(&lock);
	pthread_join(worker->thread, NULL);
	pthread_mutex_lock(&lock);
	while (*link != worker)
		link = &(*link)->next;
	*link = worker->next;
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&worker->moved);
	free(worker);
}

static void call_then(void *stream, void (*call)(void *arg), void *arg)
{
	const struct step step = {.kind = STEP_CALL, .call = call, .arg = arg};
	if (!add_steps(stream, &step, 1))
		abort();
}

static int finish(void *stream, int timeout_ms)
{
	return wait_for(stream, timeout_ms);
}

static void capture(void *stream, int on)
{
	pthread_mutex_lock(&lock);
	find(stream)->capturing = on;
	pthread_mutex_unlock(&lock);
}

static void before_query(void (*call)(void *arg), void *arg)
{
	query_call = call;
	query_arg = arg;
}

static int count_writes(void)
{
	return atomic_load(&writes_ended);
}

static int count_waits(void)
{
	return atomic_load(&waits_ended);
}

static int count_faults(void)
{
	return atomic_load(&faults);
}

extern const struct fake_order_control fake_order_control;
__attribute__((visibility("default"))) const struct fake_order_control fake_order_control = {
	open_stream,  close_stream, call_then,   finish,       capture,
	before_query, count_writes, count_waits, count_faults,
};
