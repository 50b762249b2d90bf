/*
 * fake_cuda: a libcuda.so.1 whose GPU is this process's memory, so that the cuda device runs and
 * fails on machines without a GPU.  It knows nothing of Kiln: only the driver's functions and
 * fake_cuda.h.
 *
 * Streams are queues that get on when somebody looks (a query, a synchronization), not before, so a
 * test decides when work ends.  Shared memory is a memfd, so handles and descriptors really cross
 * processes.  $KILN_FAKE_CUDA ("cuInit=100,cuModuleLoadData=209") makes functions fail in processes
 * that a test cannot reach; so does the file $KILN_FAKE_CUDA_FILE, which is read again before each
 * call.  In both "uuid=1,model=1,capability=80,mps=108,memory=64" says what the GPU is.  With
 * $KILN_FAKE_CUDA_IMAGES any image is taken, and its kernels do nothing.  With
 * $KILN_FAKE_CUDA_STREAMS streams get on by themselves (fake_cuda_order.c).
 */
#include "fake_cuda_state.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FUNCTIONS 128

/* A test may look at these, and change them, while another thread calls the driver. */
static struct {
	char name[48];
	int calls, result, left, micros;
} functions[MAX_FUNCTIONS];
static pthread_mutex_t functions_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int held;

int fake_live[FAKE_LIVE_COUNT];
static uint64_t next_mark = 1;
static int shared_granted, shared_fixed, threads_most, noted_values;
static struct fake_launch last_launch;
static CUresult sticky;
static bool environment_read;
static int settings_fd = -1;
static char settings[512]; /* of $KILN_FAKE_CUDA_FILE */

struct CUfunc_st {
	enum {
		KERNEL_ADD_ONE,
		KERNEL_FILL,
		KERNEL_FAULT,
		KERNEL_TALLY,
		KERNEL_REPORT,
		KERNEL_COUNT,
		KERNEL_IDLE
	} kernel;
	CUcontext context;
};
struct CUmod_st {
	bool idle;
	CUcontext context; /* that it was loaded in */
	CUmodule next;
	struct CUfunc_st functions[KERNEL_IDLE + 1];
};
struct CUevent_st {
	uint64_t recorded, reached;
};
struct CUstream_st {
	struct op *head, **tail;
	struct CUgraph_st *capture; /* not NULL: what comes is recorded there */
	bool was_held;              /* with something to do */
};

/* ---- Calls: counted, and made to fail ---- */

static int function_index(const char *name)
{
	size_t length = strlen(name);
	if (length > 3 && strcmp(name + length - 3, "_v2") == 0)
		length -= 3;
	for (int i = 0; i < MAX_FUNCTIONS; i++) {
		if (!functions[i].name[0])
			snprintf(functions[i].name, sizeof(functions[i].name), "%.*s", (int)length, name);
		if (strncmp(functions[i].name, name, length) == 0 && functions[i].name[length] == 0)
			return i;
	}
	return 0;
}

static void fail(const char *function, int result, int count)
{
	int i = function_index(function);
	functions[i].result = result;
	functions[i].left = count;
}

static void control_fail(const char *function, int result, int count)
{
	pthread_mutex_lock(&functions_lock);
	fail(function, result, count);
	pthread_mutex_unlock(&functions_lock);
}

static void control_slow(const char *function, int micros)
{
	pthread_mutex_lock(&functions_lock);
	functions[function_index(function)].micros = micros;
	pthread_mutex_unlock(&functions_lock);
}

static void read_settings(const char *text)
{
	while (text && *text) {
		char name[48];
		int value, used = 0;
		if (sscanf(text, "%47[^=]=%d%n", name, &value, &used) != 2)
			return;
		if (!fake_gpu_set(name, value))
			fail(name, value, -1);
		text += used;
		text += *text == ',';
	}
}

static void read_environment(void)
{
	const char *file = getenv("KILN_FAKE_CUDA_FILE");
	environment_read = true;
	read_settings(getenv("KILN_FAKE_CUDA"));
	settings_fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
}

/* What it says now is all that fails from now on. */
static void read_file(void)
{
	char text[sizeof(settings)];
	ssize_t size = settings_fd >= 0 ? pread(settings_fd, text, sizeof(text) - 1, 0) : -1;
	if (size < 0)
		return;
	text[size] = 0;
	if (strcmp(text, settings) == 0)
		return;
	memcpy(settings, text, sizeof(settings));
	for (int i = 0; i < MAX_FUNCTIONS; i++)
		functions[i].left = 0;
	fake_gpu_usual();
	read_settings(settings);
}

CUresult fake_enter(const char *name)
{
	pthread_mutex_lock(&functions_lock);
	if (!environment_read)
		read_environment();
	read_file();
	int i = function_index(name), micros = functions[i].micros;
	bool fails = functions[i].left != 0;
	CUresult result = fails ? (CUresult)functions[i].result : sticky;
	functions[i].calls++;
	functions[i].left -= functions[i].left > 0;
	pthread_mutex_unlock(&functions_lock);
	if (micros)
		usleep((useconds_t)micros);
	return result;
}

/* ---- Streams and events ---- */

static void run_tally(uint8_t *scratch, uint64_t *y, uint64_t bytes, uint64_t counters)
{
	y[0] = (uintptr_t)scratch;
	y[1] = 0;
	for (uint64_t i = 0; i < counters; i++)
		y[1] += scratch[i] != 0;
	memset(scratch + counters, 0xee, bytes - counters);
}

static void run_kernel(const struct op *op)
{
	const uint64_t *values = op->values;
	uint32_t *y;
	switch (op->function->kernel) {
	case KERNEL_ADD_ONE:
		y = (uint32_t *)(uintptr_t)values[1];
		for (uint32_t i = 0; i < (uint32_t)values[2]; i++)
			y[i] = ((const uint32_t *)(uintptr_t)values[0])[i] + 1;
		break;
	case KERNEL_FILL:
		y = (uint32_t *)(uintptr_t)values[0];
		for (uint32_t i = 0; i < (uint32_t)values[2]; i++)
			y[i] = (uint32_t)values[1];
		break;
	case KERNEL_FAULT:
		sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
		break;
	case KERNEL_TALLY:
		run_tally((uint8_t *)(uintptr_t)values[0], (uint64_t *)(uintptr_t)values[1], values[2],
				  values[3]);
		break;
	case KERNEL_REPORT:
		*(uint64_t *)(uintptr_t)values[2] = *(uint64_t *)(uintptr_t)values[0];
		*(uint64_t *)(uintptr_t)values[0] += values[1];
		break;
	default:
		break;
	}
}

static void advance(struct CUstream_st *stream)
{
	const int how = held;
	if (how != FAKE_HOLD_BUSY)
		stream->was_held = how && stream->head;
	while (stream->head && (!how || (how == FAKE_HOLD_BUSY && !stream->was_held)) &&
		   sticky == CUDA_SUCCESS) {
		struct op *op = stream->head;
		if (op->kind == OP_KERNEL)
			run_kernel(op);
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
	*stream->tail = op;
	stream->tail = &op->next;
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
	ENTER();
	if (fake_runs_itself(stream))
		return fake_synchronize_itself(stream);
	stream = stream_of(stream);
	if (stream->capture)
		return fake_spoil(stream->capture);
	int was = held;
	held = 0; /* a wait that never ends would only hang the test */
	advance(stream);
	held = was;
	return sticky;
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
	return sticky != CUDA_SUCCESS ? sticky : stream->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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
	if (sticky != CUDA_SUCCESS)
		return sticky;
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

/* ---- Modules and launches ---- */

static CUmodule modules;

static void drop_module(CUmodule module)
{
	CUmodule *link = &modules;
	while (*link != module)
		link = &(*link)->next;
	*link = module->next;
	free(module);
	fake_live[FAKE_LIVE_MODULES]--;
}

void fake_drop_modules(CUcontext context)
{
	for (CUmodule module = modules, next; module; module = next) {
		next = module->next;
		if (module->context == context)
			drop_module(module);
	}
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	ENTER();
	bool idle = memcmp(image, "FAKE", 4) != 0;
	if (idle && !getenv("KILN_FAKE_CUDA_IMAGES"))
		return CUDA_ERROR_INVALID_IMAGE;
	*out = calloc(1, sizeof(**out));
	(*out)->idle = idle;
	(*out)->context = fake_current();
	(*out)->next = modules;
	modules = *out;
	fake_live[FAKE_LIVE_MODULES]++;
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	if (module->context != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	drop_module(module);
	return fake_enter(__func__);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	ENTER();
	static const char *const names[] = {FAKE_ADD_ONE, FAKE_FILL, FAKE_FAULT, FAKE_TALLY,
										FAKE_REPORT};
	if (module->idle) {
		*out = &module->functions[KERNEL_IDLE];
		(*out)->kernel = KERNEL_IDLE;
		(*out)->context = module->context;
		return CUDA_SUCCESS;
	}
	for (int i = 0; i < KERNEL_COUNT; i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		module->functions[i].kernel = i;
		*out = &module->functions[i];
		(*out)->context = module->context;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction function)
{
	ENTER();
	(void)function;
	*out = attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES       ? shared_fixed
		   : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? threads_most
																  : 0;
	return CUDA_SUCCESS;
}

static const size_t param_sizes[][4] = {
	{8, 8, 4, 0}, {8, 8, 4, 0}, {0, 0, 0, 0}, {8, 8, 8, 8}, {8, 8, 8, 0}};

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	ENTER();
	if (function->kernel == KERNEL_IDLE || index >= 4 || !param_sizes[function->kernel][index])
		return CUDA_ERROR_INVALID_VALUE;
	*offset = 8 * index;
	*size = param_sizes[function->kernel][index];
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	ENTER();
	(void)function;
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
		value + shared_fixed > 232448)
		return CUDA_ERROR_INVALID_VALUE;
	shared_granted = value;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
						unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
						void **extra)
{
	ENTER();
	(void)extra;
	if (function->context != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t threads = (uint64_t)bx * by * bz;
	if (!gx || !gy || !gz || !threads || threads > 1024 || gy > 65535 || gz > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (shared > 49152 && (int)shared > shared_granted)
		return CUDA_ERROR_INVALID_VALUE;
	struct op *op = fake_add_op(stream, OP_KERNEL);
	op->function = function;
	last_launch = (struct fake_launch){.grid = {gx, gy, gz},
									   .block = {bx, by, bz},
									   .shared = shared,
									   .stream = stream,
									   .context = function->context,
									   .function = function};
	for (int i = 0; i < noted_values && function->kernel == KERNEL_IDLE; i++)
		memcpy(&last_launch.values[i], params[i], sizeof(last_launch.values[i]));
	for (int i = 0; i < 4 && function->kernel != KERNEL_IDLE; i++)
		if (param_sizes[function->kernel][i])
			memcpy(&op->values[i], params[i], param_sizes[function->kernel][i]);
	return CUDA_SUCCESS;
}

/* ---- The context as a whole ---- */

CUresult cuCtxSynchronize(void)
{
	ENTER();
	int was = held;
	held = 0;
	advance_all();
	held = was;
	return sticky != CUDA_SUCCESS ? sticky : fake_synchronize_all();
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

/* ---- The test's side ---- */

static void control_reset(void)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i])
			cuStreamDestroy(streams[i]);
	fake_memory_reset();
	while (modules)
		drop_module(modules);
	memset(functions, 0, sizeof(functions));
	memset(fake_live, 0, sizeof(fake_live));
	held = 0;
	shared_granted = shared_fixed = threads_most = noted_values = 0;
	fake_contexts_reset();
	sticky = CUDA_SUCCESS;
	environment_read = false;
}

static void control_hold(int on)
{
	held = on;
}

static int control_calls(const char *function)
{
	pthread_mutex_lock(&functions_lock);
	int calls = functions[function_index(function)].calls;
	pthread_mutex_unlock(&functions_lock);
	return calls;
}

static int control_live(enum fake_live kind)
{
	return fake_live[kind];
}

static int control_granted(void)
{
	return shared_granted;
}

static void control_static(int bytes)
{
	shared_fixed = bytes;
}

static void control_threads(int most)
{
	threads_most = most;
}

static void control_note(int values)
{
	noted_values = values;
}

static struct fake_launch control_launched(void)
{
	return last_launch;
}

extern const struct fake_cuda_control fake_cuda_control;
__attribute__((visibility("default"))) const struct fake_cuda_control fake_cuda_control = {
	control_reset,    control_fail,       control_hold,    control_calls,
	control_live,     control_granted,    control_static,  fake_memory_span,
	fake_pool_access, control_threads,    control_note,    control_launched,
	fake_context_at,  fake_renew_context, fake_capability, control_slow,
};
