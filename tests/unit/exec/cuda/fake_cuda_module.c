/*
 * fake_cuda_module.c: the fake's modules and launches, and what its kernels do.
 */
#include "fake_cuda_state.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_kernels fake_kernels;

/* As the driver has it in a FIFO. */
static int fake_printed, fake_told;
static bool fake_asserted;

void fake_tell(void)
{
	while (fake_told < fake_printed)
		printf("printed %d\n", ++fake_told);
	if (fake_asserted)
		fputs("k.cu:7: void asserts(): block: [1,0,0], thread: [2,0,0] Assertion `n < 4` failed.\n",
			  stderr);
	fake_asserted = false;
}

struct CUfunc_st {
	enum {
		KERNEL_ADD_ONE,
		KERNEL_FILL,
		KERNEL_FAULT,
		KERNEL_TALLY,
		KERNEL_REPORT,
		KERNEL_PRINT,
		KERNEL_ASSERT,
		KERNEL_COUNT,
		KERNEL_TELL,
		KERNEL_IDLE
	} kernel;
	CUcontext context;
};
struct CUmod_st {
	bool idle, text;
	CUcontext context; /* that it was loaded in */
	CUmodule next;
	struct CUfunc_st functions[KERNEL_IDLE + 1];
};
/* ---- Kernels ---- */

static void run_tally(uint8_t *scratch, uint64_t *y, uint64_t bytes, uint64_t counters)
{
	y[0] = (uintptr_t)scratch;
	y[1] = 0;
	for (uint64_t i = 0; i < counters; i++)
		y[1] += scratch[i] != 0;
	memset(scratch + counters, 0xee, bytes - counters);
}

void fake_run_kernel(const struct op *op)
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
		fake_sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
		break;
	case KERNEL_TALLY:
		run_tally((uint8_t *)(uintptr_t)values[0], (uint64_t *)(uintptr_t)values[1], values[2],
				  values[3]);
		break;
	case KERNEL_REPORT:
		*(uint64_t *)(uintptr_t)values[2] = *(uint64_t *)(uintptr_t)values[0];
		*(uint64_t *)(uintptr_t)values[0] += values[1];
		break;
	case KERNEL_PRINT:
		fake_printed++;
		break;
	case KERNEL_ASSERT:
		fake_asserted = true;
		fake_sticky = CUDA_ERROR_ASSERT;
		break;
	case KERNEL_TELL:
		y = (uint32_t *)(uintptr_t)values[0];
		*(volatile uint32_t *)(uintptr_t)values[1] = ++*y;
		break;
	default:
		break;
	}
}

/* ---- Modules and launches ---- */

/* Threads load and launch at once. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUmodule modules;

/* The lock is held. */
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
	pthread_mutex_lock(&lock);
	for (CUmodule module = modules, next; module; module = next) {
		next = module->next;
		if (module->context == context)
			drop_module(module);
	}
	pthread_mutex_unlock(&lock);
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	ENTER();
	bool text = memcmp(image, ".version", 8) == 0, idle = !text && memcmp(image, "FAKE", 4) != 0;
	if (idle && !getenv("KILN_FAKE_CUDA_IMAGES"))
		return CUDA_ERROR_INVALID_IMAGE;
	*out = calloc(1, sizeof(**out));
	(*out)->idle = idle;
	(*out)->text = text;
	(*out)->context = fake_current();
	pthread_mutex_lock(&lock);
	(*out)->next = modules;
	modules = *out;
	fake_live[FAKE_LIVE_MODULES]++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	LOCKED;
	if (module->context != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	drop_module(module);
	pthread_mutex_unlock(&lock);
	return fake_enter(__func__);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
	ENTER();
	static const char *const names[] = {FAKE_ADD_ONE, FAKE_FILL,  FAKE_FAULT, FAKE_TALLY,
										FAKE_REPORT,  FAKE_PRINT, FAKE_ASSERT};
	if (module->idle || module->text) {
		int kernel = module->text ? KERNEL_TELL : KERNEL_IDLE;
		*out = &module->functions[kernel];
		(*out)->kernel = kernel;
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
	*out = attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES       ? fake_kernels.shared_fixed
		   : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? fake_kernels.threads_most
																  : 0;
	return CUDA_SUCCESS;
}

static const size_t param_sizes[][4] = {{8, 8, 4, 0}, {8, 8, 4, 0}, {0, 0, 0, 0},
										{8, 8, 8, 8}, {8, 8, 8, 0}, {0, 0, 0, 0},
										{0, 0, 0, 0}, {0, 0, 0, 0}, {8, 8, 0, 0}};

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	ENTER();
	if (function->kernel == KERNEL_IDLE && index < (size_t)fake_kernels.noted_values) {
		*offset = 8 * index;
		*size = 8;
		return CUDA_SUCCESS;
	}
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
		value + fake_kernels.shared_fixed > 232448)
		return CUDA_ERROR_INVALID_VALUE;
	fake_kernels.shared_granted = value;
	return CUDA_SUCCESS;
}

static CUresult check_launch(const CUDA_KERNEL_NODE_PARAMS *what)
{
	uint64_t threads = (uint64_t)what->blockDimX * what->blockDimY * what->blockDimZ;
	if (what->func->context != fake_current())
		return CUDA_ERROR_INVALID_HANDLE;
	if (!what->gridDimX || !what->gridDimY || !what->gridDimZ || !threads || threads > 1024 ||
		what->gridDimY > 65535 || what->gridDimZ > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (what->sharedMemBytes > 49152 && (int)what->sharedMemBytes > fake_kernels.shared_granted)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static void copy_params(struct op *op, const CUDA_KERNEL_NODE_PARAMS *what)
{
	const int kernel = what->func->kernel;
	op->function = what->func;
	for (int i = 0; i < 4 && kernel != KERNEL_IDLE; i++)
		if (param_sizes[kernel][i])
			memcpy(&op->values[i], what->kernelParams[i], param_sizes[kernel][i]);
}

static void note_launch(const CUDA_KERNEL_NODE_PARAMS *what, CUstream stream)
{
	pthread_mutex_lock(&lock);
	fake_kernels.last_launch =
		(struct fake_launch){.grid = {what->gridDimX, what->gridDimY, what->gridDimZ},
							 .block = {what->blockDimX, what->blockDimY, what->blockDimZ},
							 .shared = what->sharedMemBytes,
							 .stream = stream,
							 .context = what->func->context,
							 .function = what->func};
	for (int i = 0; i < fake_kernels.noted_values && what->func->kernel == KERNEL_IDLE; i++)
		memcpy(&fake_kernels.last_launch.values[i], what->kernelParams[i],
			   sizeof(fake_kernels.last_launch.values[i]));
	pthread_mutex_unlock(&lock);
}

CUresult fake_set_kernel(struct op *op, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult result = check_launch(params);
	if (result != CUDA_SUCCESS)
		return result;
	memset(op->values, 0, sizeof(op->values));
	copy_params(op, params);
	note_launch(params, NULL);
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
						unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
						void **extra)
{
	ENTER();
	(void)extra;
	const CUDA_KERNEL_NODE_PARAMS what = {.func = function,
										  .gridDimX = gx,
										  .gridDimY = gy,
										  .gridDimZ = gz,
										  .blockDimX = bx,
										  .blockDimY = by,
										  .blockDimZ = bz,
										  .sharedMemBytes = shared,
										  .kernelParams = params};
	CUresult result = check_launch(&what);
	if (result != CUDA_SUCCESS)
		return result;
	copy_params(fake_add_op(stream, OP_KERNEL), &what);
	note_launch(&what, stream);
	return CUDA_SUCCESS;
}

void fake_modules_reset(void)
{
	fake_printed = fake_told = 0;
	fake_asserted = false;
	pthread_mutex_lock(&lock);
	while (modules)
		drop_module(modules);
	pthread_mutex_unlock(&lock);
	fake_kernels = (struct fake_kernels){.last_launch = fake_kernels.last_launch};
}
