/*
 * fake_cuda: a libcuda.so.1 whose GPU is this process's memory, so that the cuda device runs and
 * fails on machines without a GPU.  It knows nothing of Kiln: only the driver's functions and
 * fake_cuda.h.
 *
 * Streams are queues that get on when somebody looks (a query, a synchronization), not before, so a
 * test decides when work ends.  Shared memory is a memfd, so handles and descriptors really cross
 * processes.  $KILN_FAKE_CUDA ("cuInit=100,cuModuleLoadData=209") makes functions fail in processes
 * that a test cannot reach; so does the file $KILN_FAKE_CUDA_FILE, which is read again before each
 * call.  In both "uuid=1,model=1,capability=80,mps=108,memory=64,gpus=2" says what the GPUs are;
 * "1:cuLaunchKernel=719" holds in processes that use GPU 1 alone, and "cuLaunchKernel=-1" has calls
 * never return.  "gone=1" takes GPU 0 out of all that processes count that start from then on.
 * With $KILN_FAKE_CUDA_IMAGES any image is taken, and its kernels do nothing.  With
 * $KILN_FAKE_CUDA_STREAMS streams get on by themselves (fake_cuda_order.c).
 */
#include "fake_cuda_state.h"
#include <fcntl.h>
#include <pthread.h>
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

int fake_live[FAKE_LIVE_COUNT];
_Atomic CUresult fake_sticky;
atomic_int fake_held;
static bool environment_read;
static int settings_fd = -1;
static char settings[512]; /* of $KILN_FAKE_CUDA_FILE */
static int settings_gpu = -1;

/* ---- One call at a time ---- */

static pthread_mutex_t calls_lock;
static pthread_once_t calls_once = PTHREAD_ONCE_INIT;
static bool calls_locked;

/* A call may make another one. */
static void make_lock(void)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&calls_lock, &attr);
	calls_locked = !getenv("KILN_FAKE_CUDA_STREAMS");
}

int fake_lock(void)
{
	pthread_once(&calls_once, make_lock);
	if (calls_locked)
		pthread_mutex_lock(&calls_lock);
	return calls_locked;
}

void fake_unlock(const int *locked)
{
	if (*locked)
		pthread_mutex_unlock(&calls_lock);
}

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
		int value, used = 0, gpu = -1, prefix = 0;
		if (sscanf(text, "%d:%n", &gpu, &prefix) == 1 && prefix)
			text += prefix;
		if (sscanf(text, "%47[^=]=%d%n", name, &value, &used) != 2)
			return;
		if ((!prefix || gpu == fake_used_gpu()) && !fake_gpu_set(name, value))
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

/* From now on the functions fail that the file names now, and no others. */
static void read_file(void)
{
	char text[sizeof(settings)];
	ssize_t size = settings_fd >= 0 ? pread(settings_fd, text, sizeof(text) - 1, 0) : -1;
	if (size < 0)
		return;
	text[size] = 0;
	if (strcmp(text, settings) == 0 && settings_gpu == fake_used_gpu())
		return;
	settings_gpu = fake_used_gpu();
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
	CUresult result = fails ? (CUresult)functions[i].result : fake_sticky;
	functions[i].calls++;
	functions[i].left -= functions[i].left > 0;
	pthread_mutex_unlock(&functions_lock);
	if (micros)
		usleep((useconds_t)micros);
	while ((int)result < 0)
		pause();
	return result;
}

/* ---- The test's side ---- */

static void control_reset(void)
{
	fake_streams_reset();
	fake_memory_reset();
	fake_modules_reset();
	memset(functions, 0, sizeof(functions));
	memset(fake_live, 0, sizeof(fake_live));
	fake_held = 0;
	fake_contexts_reset();
	fake_sticky = CUDA_SUCCESS;
	environment_read = false;
}

static void control_hold(int on)
{
	fake_held = on;
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
	return fake_kernels.shared_granted;
}

static void control_static(int bytes)
{
	fake_kernels.shared_fixed = bytes;
}

static void control_threads(int most)
{
	fake_kernels.threads_most = most;
}

static void control_note(int values)
{
	fake_kernels.noted_values = values;
}

static struct fake_launch control_launched(void)
{
	return fake_kernels.last_launch;
}

extern const struct fake_cuda_control fake_cuda_control;
__attribute__((visibility("default"))) const struct fake_cuda_control fake_cuda_control = {
	control_reset,    control_fail,       control_hold,    control_calls,
	control_live,     control_granted,    control_static,  fake_memory_span,
	fake_pool_access, control_threads,    control_note,    control_launched,
	fake_context_at,  fake_renew_context, fake_capability, control_slow,
};
