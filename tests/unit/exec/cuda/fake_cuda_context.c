/*
 * fake_cuda_context: what the fake GPU is (fake_cuda.c), and its contexts: the primary one, which
 * is context 0, and another.  Each thread has a current one of its own, and none at first.
 */
#include "fake_cuda_state.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MOST_PUSHED 8

struct CUctx_st {
	unsigned long long id;
};
static struct CUctx_st contexts[FAKE_CONTEXTS];
static unsigned long long last_id;
static pthread_mutex_t id_lock = PTHREAD_MUTEX_INITIALIZER; /* threads ask at once */
/* The properties of the GPU. */
enum { CAPABILITY, UUID, MODEL, PROCESSORS, MEMORY_MIB, GPUS, GONE, MIG, TRAITS };
static const struct {
	const char *name;
	int usual;
} traits[TRAITS] = {
	{"capability", 90}, {"uuid", 0}, {"model", 0}, {"mps", 132}, {"memory", FAKE_MEMORY >> 20},
	{"gpus", 1},        {"gone", 0}, {"mig", 0}};
static int gpu[TRAITS] = {90, 0, 0, 132, FAKE_MEMORY >> 20, 1, 0, 0};
static int used = -1, counted_from; /* the process's GPU; what was gone when it started */
static _Thread_local CUcontext pushed[MOST_PUSHED]; /* the last is current */
static _Thread_local int depth;

/* ---- The driver and the GPU ---- */

int fake_used_gpu(void)
{
	return used;
}

void fake_gpu_usual(void)
{
	for (int i = 0; i < TRAITS; i++)
		gpu[i] = traits[i].usual;
}

bool fake_gpu_set(const char *name, int value)
{
	for (int i = 0; i < TRAITS; i++) {
		if (strcmp(traits[i].name, name) != 0)
			continue;
		gpu[i] = value;
		return true;
	}
	return false;
}

CUresult cuInit(unsigned flags)
{
	ENTER();
	(void)flags;
	counted_from = gpu[GONE];
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *out)
{
	*out = 13000;
	return fake_enter(__func__);
}

CUresult cuGetErrorName(CUresult result, const char **out)
{
	static char text[48];
	switch ((int)result) {
	case CUDA_ERROR_INVALID_VALUE:
		*out = "CUDA_ERROR_INVALID_VALUE";
		break;
	case CUDA_ERROR_OUT_OF_MEMORY:
		*out = "CUDA_ERROR_OUT_OF_MEMORY";
		break;
	case CUDA_ERROR_ILLEGAL_ADDRESS:
		*out = "CUDA_ERROR_ILLEGAL_ADDRESS";
		break;
	case 12345:
		return CUDA_ERROR_INVALID_VALUE;
	default:
		snprintf(text, sizeof(text), "CUDA_ERROR_FAKE_%d", (int)result);
		*out = text;
	}
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **out)
{
	*out = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
												: "as the test wants it";
	return result == (CUresult)12345 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out)
{
	ENTER();
	*out = gpu[GPUS] - counted_from;
	return CUDA_SUCCESS;
}

/* A process uses one of them; only their UUIDs tell them apart. */
CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	ENTER();
	*out = ordinal + counted_from;
	return ordinal >= 0 && ordinal + counted_from < gpu[GPUS] ? CUDA_SUCCESS
															  : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice device)
{
	ENTER();
	(void)device;
	snprintf(out, (size_t)size, gpu[MODEL] ? "Fake GPU %d" : "Fake GPU", gpu[MODEL]);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
	ENTER();
	for (int i = 0; i < 16; i++)
		out->bytes[i] = (char)(i * 17 + gpu[UUID] + device);
	return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
__attribute__((visibility("default"))) CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device);

/* As it was at first: of the whole GPU. */
CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
	CUresult result = cuDeviceGetUuid_v2(out, device);
	out->bytes[15] = (char)(out->bytes[15] + gpu[MIG]);
	return result;
}

CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice device)
{
	ENTER();
	snprintf(out, (size_t)size, "0000:%02x:00.0", 0x18 + device);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *out, CUdevice device)
{
	ENTER();
	(void)device;
	*out = (size_t)gpu[MEMORY_MIB] << 20;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
	ENTER();
	(void)device;
	const int values[][2] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu[CAPABILITY] / 10},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu[CAPABILITY] % 10},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu[PROCESSORS]},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	};
	*out = 0;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		if (values[i][0] == (int)attribute)
			*out = values[i][1];
	return CUDA_SUCCESS;
}

/* ---- Contexts ---- */

CUcontext fake_context(void)
{
	return &contexts[0];
}

CUcontext fake_current(void)
{
	return depth > 0 ? pushed[depth - 1] : NULL;
}

static bool is_context(CUcontext context)
{
	return context >= contexts && context < contexts + FAKE_CONTEXTS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	used = device;
	ENTER();
	fake_live[FAKE_LIVE_CONTEXTS]++;
	*out = &contexts[0];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	LOCKED;
	(void)device;
	fake_live[FAKE_LIVE_CONTEXTS]--;
	return fake_enter(__func__);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER();
	if (context && !is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	depth = depth > 0 ? depth : 1;
	pushed[depth - 1] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	ENTER();
	*out = fake_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
	ENTER();
	if (!is_context(context) || depth == MOST_PUSHED)
		return CUDA_ERROR_INVALID_CONTEXT;
	pushed[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	ENTER();
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (out)
		*out = pushed[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
	ENTER();
	*out = 0;
	return fake_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *out)
{
	ENTER();
	if (!is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&id_lock);
	context->id = context->id ? context->id : ++last_id;
	*out = context->id;
	pthread_mutex_unlock(&id_lock);
	return CUDA_SUCCESS;
}

/* ---- The test's side ---- */

void *fake_context_at(int i)
{
	return &contexts[i];
}

void fake_renew_context(int i)
{
	fake_drop_modules(&contexts[i]);
	contexts[i].id = 0;
}

void fake_capability(int number)
{
	gpu[CAPABILITY] = number;
}

void fake_contexts_reset(void)
{
	depth = 0;
	for (int i = 0; i < FAKE_CONTEXTS; i++)
		contexts[i].id = 0; /* nothing is loaded in them any more */
	fake_gpu_usual();
}
