/*
 * cuda: the device row for NVIDIA GPUs, over the driver API.  This file opens a GPU.  It must not
 * know of sessions, plans or the broker.
 *
 * The process is a fresh one that was exec'd: cuInit in a process forked from one that used CUDA
 * answers error 3.
 */
#include "daemon/exec/device.h"

#include "daemon/base/util.h"
#include <string.h>

#ifndef KILN_HAVE_CUDA_H

static int open_without_headers(const struct device_name *name, struct device **out,
								struct device_info *info, char error[KERNEL_ERROR_MAX])
{
	(void)name, (void)out, (void)info;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "this kilnd was built without CUDA headers: configure with "
					 "-DKILN_CUDA_INCLUDE=DIRECTORY of cuda.h and build again");
}

const struct device_ops device_cuda = {.open = open_without_headers};

#else

#include "cuda_cell.h"
#include "cuda_memory.h"
#include "cuda_record.h"
#include "cuda_stream.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Notes what the GPU is, in info and where the other files look. */
static int note_gpu(struct device *device, const struct device_name *name, int ordinal,
					struct device_info *info, char error[KERNEL_ERROR_MAX])
{
	CUresult result = cuda_describe_gpu(device, ordinal, device->handle, info);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EDEVICE, result, "cuda:%d does not say what it is",
						 ordinal);
	/* A GPU that was found by its UUID keeps the number that it is known by. */
	if (name->ordinal >= 0)
		snprintf(info->name, sizeof(info->name), "cuda:%d", name->ordinal);
	memcpy(device->name, info->name, sizeof(device->name) - 1);
	memcpy(device->target, info->limits.target, sizeof(device->target));
	device->shared_default = info->limits.shared_default;
	device->shared_optin = info->limits.shared_optin;
	device->memory_bytes = info->memory_bytes;
	return KILN_OK;
}

/* Returns the remedy for an error of cuInit; "" if there is none. */
static const char *init_remedy(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_SYSTEM_NOT_READY:
		return "; the NVLink fabric is not up: `systemctl status nvidia-fabricmanager`";
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return "; libcuda and the kernel's nvidia module are of different versions: load the "
			   "module again, or restart the machine";
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
		return "; this GPU needs the driver's own libcuda, not one of a compatibility package: "
			   "see LD_LIBRARY_PATH and KILN_LIBCUDA";
	case CUDA_ERROR_UNKNOWN:
		return "; `nvidia-smi` and the Xid lines of `dmesg` tell more";
	default:
		return "";
	}
}

static int start_driver(struct device *device, const struct device_name *name, int *ordinal,
						char error[KERNEL_ERROR_MAX])
{
	int count = 0;
	int status = cuda_driver_open(&device->cu, error);
	if (status < 0)
		return status;
	/* Lazily loaded code takes the context's lock until the queue drains, and with fewer hardware
	 * queues than streams one stream's work waits behind another's. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	CUresult result = device->cu.cuInit(0);
	if (result == CUDA_ERROR_NO_DEVICE)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "the NVIDIA driver is here but sees no GPU: nvidia-smi and "
						 "CUDA_VISIBLE_DEVICES (now %s) tell more",
						 getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
	if (result != CUDA_SUCCESS) {
		cuda_fail(device, error, KILN_ENOTSUP, result, "the NVIDIA driver does not start");
		util_append(error, KERNEL_ERROR_MAX, strlen(error), "%s", init_remedy(result));
		return KILN_ENOTSUP;
	}
	device->cu.cuDriverGetVersion(&device->driver_version);
	result = device->cu.cuDeviceGetCount(&count);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOTSUP, result, "the NVIDIA driver counts no GPUs");
	status = cuda_find_gpu(device, name, count, ordinal, error);
	if (status != KILN_OK)
		return status;
	result = device->cu.cuDeviceGet(&device->handle, *ordinal);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuDevicePrimaryCtxRetain(&device->context, device->handle);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EDEVICE, result, "cuda:%d cannot be opened", *ordinal);
	device->retained = true;
	result = device->cu.cuCtxSetCurrent(device->context);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_EDEVICE, result, "cuda:%d cannot be used", *ordinal);
	return KILN_OK;
}

static void cuda_close(struct device *device)
{
	if (!device)
		return;
	for (int i = device->part_count - 1; i >= 0; i--) {
		cuda_streams_close(device->parts[i]);
		cuda_records_close(device->parts[i]);
		cuda_cells_close(device->parts[i]);
		if (i > 0)
			free(device->parts[i]);
	}
	if (device->retained) {
		cuda_memory_close(device);
		device->cu.cuDevicePrimaryCtxRelease(device->handle);
	}
	if (device->printed > 0)
		close(device->printed);
	free(device);
}

static int cuda_split(struct device *device, int count, struct device **parts,
					  char error[KERNEL_ERROR_MAX])
{
	(void)error;
	for (int i = 1; i < count; i++) {
		struct device *part = util_alloc(sizeof(*part));
		part->cu = device->cu;
		part->handle = device->handle;
		part->context = device->context;
		memcpy(part->name, device->name, sizeof(part->name));
		memcpy(part->target, device->target, sizeof(part->target));
		part->driver_version = device->driver_version;
		part->shared_default = device->shared_default;
		part->shared_optin = device->shared_optin;
		part->memory_bytes = device->memory_bytes;
		part->pool = device->pool;
		part->memory_stream = device->memory_stream;
		device->parts[device->part_count++] = part;
		part->parts[0] = device;
		cuda_records_enter(part);
	}
	for (int i = 1; i < count; i++) {
		memcpy(device->parts[i]->parts, device->parts, sizeof(device->parts));
		device->parts[i]->part_count = count;
	}
	memcpy(parts, device->parts, (size_t)count * sizeof(*parts));
	return KILN_OK;
}

static int cuda_enter(struct device *part, char error[KERNEL_ERROR_MAX])
{
	CUresult result = part->cu.cuCtxSetCurrent(part->context);
	if (result == CUDA_SUCCESS)
		return KILN_OK;
	return cuda_fail(part, error, KILN_EDEVICE, result, "%s cannot be used by another thread",
					 part->name);
}

static int cuda_open(const struct device_name *name, struct device **out, struct device_info *info,
					 char error[KERNEL_ERROR_MAX])
{
	static const struct device_name first = {.ordinal = 0};
	int ordinal = 0;
	struct device *device = util_alloc(sizeof(*device));
	device->parts[device->part_count++] = device;
	name = name ? name : &first;
	int status = start_driver(device, name, &ordinal, error);
	if (status == KILN_OK)
		status = note_gpu(device, name, ordinal, info, error);
	if (status == KILN_OK)
		status = cuda_memory_open(device, error);
	if (status != KILN_OK) {
		cuda_close(device);
		return status;
	}
	cuda_records_open(device);
	*out = device;
	return KILN_OK;
}

const struct device_ops device_cuda = {
	.open = cuda_open,
	.close = cuda_close,
	.list = cuda_list,
	.split = cuda_split,
	.enter = cuda_enter,
	.alloc = cuda_alloc,
	.import = cuda_import,
	.share = cuda_share,
	.share_words = cuda_share_words,
	.unshare_words = cuda_unshare_words,
	.free = cuda_free,
	.stalls = cuda_stalls,
	.load = cuda_load,
	.describe = cuda_describe,
	.unload = cuda_unload,
	.launch = cuda_launch,
	.copy = cuda_copy,
	.flush = cuda_marks_write,
	.cancel = cuda_cancel,
	.stream_end = cuda_stream_end,
	.graph_make = cuda_graph_make,
	.graph_launch = cuda_graph_launch,
	.scratch_bytes = cuda_scratch_bytes,
	.keep_printed = cuda_keep_printed,
	.printed = cuda_printed,
	.graph_free = cuda_graph_free,
	.poll = cuda_poll,
};

#endif
