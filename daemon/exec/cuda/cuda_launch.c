/*
 * cuda_launch: loads modules, checks launches and copies against their buffers, and makes works of
 * them.  It must not know of streams beyond their numbers.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_cell.h"
#include "cuda_memory.h"
#include "cuda_module.h"
#include "cuda_print.h"
#include "cuda_record.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Modules ---- */

static int refuse_object(struct device *device, CUresult result, size_t bytes,
						 char error[KERNEL_ERROR_MAX])
{
	int version = device->driver_version;
	switch ((int)result) {
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
		return cuda_fail(device, error, KILN_ENOTSUP, result,
						 "the driver of %s (CUDA %d.%d, %s) does not take the object of %zu bytes: "
						 "it is older than the compiler, or the object is for another GPU; update "
						 "the driver or name an older NVRTC in KILN_NVRTC",
						 device->name, version / 1000, version % 1000 / 10, device->target, bytes);
	default:
		return cuda_fail(device, error, KILN_EINTERNAL, result,
						 "%s cannot load an object of %zu bytes", device->name, bytes);
	}
}

int cuda_load(struct device *device, const void *object, size_t bytes, const char *entry,
			  uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX])
{
	/* The driver takes no length, so the object must at least have the header that holds one. */
	if (!object || bytes < 64)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE,
						 "an object of %zu bytes is no cubin: it is shorter than its header",
						 bytes);
	if (shared_bytes > INT32_MAX)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%u bytes of shared memory are more than any GPU has", shared_bytes);
	struct device_module *module = util_alloc(sizeof(*module));
	snprintf(module->entry, sizeof(module->entry), "%s", entry);
	module->prints = cuda_prints(object, bytes);
	int status = KILN_OK;
	/* The driver wants the object aligned, and text ended by a zero byte; in a message it is
	 * neither. */
	char *image = malloc(bytes + 1);
	if (!image) {
		free(module);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for an object of %zu bytes", bytes);
	}
	memcpy(image, object, bytes);
	image[bytes] = 0;
	CUresult result = device->cu.cuModuleLoadData(&module->module, image);
	free(image);
	if (result != CUDA_SUCCESS) {
		status = refuse_object(device, result, bytes, error);
		free(module);
		return status;
	}
	result = device->cu.cuModuleGetFunction(&module->function, module->module, entry);
	if (result != CUDA_SUCCESS) {
		status = cuda_fail(device, error, KILN_ECOMPILE, result, "the object has no kernel %.120s",
						   entry);
	} else {
		result = cuda_know_kernel(device, module, object, bytes, entry);
		if (result == CUDA_SUCCESS)
			result = cuda_grant_shared(device, module, shared_bytes);
		if (result != CUDA_SUCCESS)
			status = cuda_fail(device, error, KILN_ENOTSUP, result,
							   "%s does not grant %u bytes of dynamic shared memory", device->name,
							   shared_bytes);
	}
	if (status != KILN_OK) {
		device->cu.cuModuleUnload(module->module);
		free(module);
		return status;
	}
	*out = module;
	return KILN_OK;
}

void cuda_unload(struct device *device, struct device_module *module)
{
	if (!module)
		return;
	cuda_records_drop_module(device, module);
	device->cu.cuModuleUnload(module->module);
	free(module);
}

/* ---- Work ---- */

/* Finds the address of an operand that must have at least so many bytes. */
static int operand_address(const struct device_launch *launch, int operand, uint64_t bytes,
						   CUdeviceptr *out, char error[KERNEL_ERROR_MAX])
{
	if (operand < 0 || operand >= launch->operand_count)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the launch names operand %d and has %d", operand, launch->operand_count);
	const struct device_operand *at = &launch->operands[operand];
	/* An operand that is not touched may have no memory. */
	if (!at->memory && bytes == 0) {
		*out = 0;
		return KILN_OK;
	}
	if (!at->memory)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d has no memory and needs %llu bytes", operand,
						 (unsigned long long)bytes);
	if (at->offset > at->memory->bytes || bytes > at->memory->bytes - at->offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d needs %llu bytes from byte %llu of a buffer of %llu bytes",
						 operand, (unsigned long long)bytes, (unsigned long long)at->offset,
						 (unsigned long long)at->memory->bytes);
	*out = at->memory->base + at->offset;
	return KILN_OK;
}

#define DATA_ALIGNMENT 16u

/* Copies the arguments that do not fit into values. */
static int bind_data(const struct device_launch *launch, struct cuda_work *work,
					 char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = 0;
	for (int i = 0; i < launch->arg_count; i++) {
		if (launch->args[i].kind != KERNEL_ARG_BYTES)
			continue;
		work->data_values |= UINT64_C(1) << i;
		work->values[i] = bytes;
		bytes += (launch->args[i].bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
	}
	if (bytes == 0)
		return KILN_OK;
	work->data = malloc(bytes);
	if (!work->data)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for %llu bytes of arguments", (unsigned long long)bytes);
	for (int i = 0; i < launch->arg_count; i++)
		if (work->data_values >> i & 1)
			memcpy(work->data + work->values[i], launch->args[i].data, launch->args[i].bytes);
	return KILN_OK;
}

static int bind_kernel(struct device *device, const struct device_launch *launch,
					   struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	if (launch->arg_count < 0 || launch->arg_count > KERNEL_MAX_ARGS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a launch has %d arguments, and at most %d are possible",
						 launch->arg_count, KERNEL_MAX_ARGS);
	if (launch->scratch.bytes > KERNEL_SCRATCH_MAX ||
		launch->scratch.counters > launch->scratch.bytes)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%llu bytes of scratch memory, %llu of them counters, are not within %u",
						 (unsigned long long)launch->scratch.bytes,
						 (unsigned long long)launch->scratch.counters, KERNEL_SCRATCH_MAX);
	work->module = launch->module;
	work->shared_bytes = launch->shared_bytes;
	work->scratch = launch->scratch;
	work->report = launch->report;
	memcpy(work->grid, launch->grid, sizeof(work->grid));
	memcpy(work->block, launch->block, sizeof(work->block));
	work->value_count = launch->arg_count;
	for (int i = 0; i < launch->arg_count; i++) {
		const struct kernel_arg *arg = &launch->args[i];
		CUdeviceptr address = 0;
		if (arg->kind == KERNEL_ARG_BYTES)
			continue;
		if (arg->kind == KERNEL_ARG_POINTER) {
			int status = operand_address(launch, arg->operand, 0, &address, error);
			if (status != KILN_OK)
				return status;
		}
		if (arg->kind == KERNEL_ARG_SCRATCH)
			work->scratch_values |= UINT64_C(1) << i;
		if (arg->kind == KERNEL_ARG_REPORT) {
			int status = work->reported ? KILN_OK : cuda_report_give(device, work, error);
			if (status != KILN_OK)
				return status;
			address = (CUdeviceptr)(uintptr_t)&work->reported->value;
		}
		work->values[i] = arg->kind == KERNEL_ARG_SCALAR ? arg->value : address;
	}
	int status = cuda_check_launch(device, launch, error);
	return status == KILN_OK ? bind_data(launch, work, error) : status;
}

int cuda_bind(struct device *device, const struct device_launch *launch, struct cuda_work **out,
			  char error[KERNEL_ERROR_MAX])
{
	if (!launch->copies && !launch->module)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL, "a launch has no kernel");
	struct cuda_work *work =
		cuda_work_new(device, launch->copies ? CUDA_WORK_COPY : CUDA_WORK_KERNEL, launch->ticket);
	int status;
	work->untimed = launch->untimed;
	/* With one address space the host's address is the GPU's, too. */
	work->done_word = (CUdeviceptr)(uintptr_t)launch->done_word;
	work->done_value = launch->done_value;
	work->done_last = launch->done_last;
	if (!launch->copies) {
		status = bind_kernel(device, launch, work, error);
	} else {
		work->bytes = launch->copy_bytes;
		status = operand_address(launch, 0, launch->copy_bytes, &work->from, error);
		if (status == KILN_OK)
			status = operand_address(launch, 1, launch->copy_bytes, &work->to, error);
	}
	if (status != KILN_OK) {
		cuda_work_retire(device, work);
		return status;
	}
	*out = work;
	return KILN_OK;
}

int cuda_launch(struct device *device, const struct device_launch *launch,
				char error[KERNEL_ERROR_MAX])
{
	struct cuda_work *work;
	int status = cuda_bind(device, launch, &work, error);
	if (status != KILN_OK)
		return status;
	return cuda_give(device, launch->stream, work, launch->delay_ms, error);
}

int cuda_copy(struct device *device, uint64_t stream, uint64_t ticket, struct device_memory *memory,
			  uint64_t offset, void *host, uint64_t bytes, bool to_device,
			  char error[KERNEL_ERROR_MAX])
{
	if (offset > memory->bytes || bytes > memory->bytes - offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%llu bytes from byte %llu are beyond a buffer of %llu bytes",
						 (unsigned long long)bytes, (unsigned long long)offset,
						 (unsigned long long)memory->bytes);
	struct cuda_work *work =
		cuda_work_new(device, to_device ? CUDA_WORK_TO_DEVICE : CUDA_WORK_TO_HOST, ticket);
	work->bytes = bytes;
	work->host = host;
	work->from = work->to = memory->base + offset;
	return cuda_give(device, stream, work, 0, error);
}

#endif
