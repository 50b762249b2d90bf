/*
 * cuda_gpus: says what the GPUs are that this process sees, and finds the one that a name means.
 * Needs no context, and opens no GPU.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_device.h"
#include "daemon/base/util.h"

#include <stdio.h>
#include <string.h>

#define REASON_GPUS 3 /* that a sentence lists */

static uint32_t attribute(const struct device *device, CUdevice handle, CUdevice_attribute which)
{
	int value = 0;
	if (device->cu.cuDeviceGetAttribute(&value, which, handle) != CUDA_SUCCESS || value < 0)
		return 0;
	return (uint32_t)value;
}

static void read_limits(const struct device *device, CUdevice handle, struct kernel_limits *limits)
{
	uint32_t major = attribute(device, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	uint32_t minor = attribute(device, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	snprintf(limits->target, sizeof(limits->target), "sm_%u%u", major % 1000, minor % 1000);
	limits->max_threads = attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	limits->shared_default =
		attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
	limits->shared_optin =
		attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	limits->grid_x = attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
	limits->grid_y = attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
	limits->grid_z = attribute(device, handle, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
	limits->multiprocessors = attribute(device, handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	limits->warp = attribute(device, handle, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
}

/* A part of a GPU in MIG mode has a UUID of its own, which the newer function alone gives. */
static CUresult read_uuid(const struct device *device, CUdevice handle, char text[DEVICE_UUID_TEXT])
{
	CUuuid uuid, whole;
	CUresult result = device->cu.cuDeviceGetUuid(&uuid, handle);
	text[0] = 0;
	if (result != CUDA_SUCCESS)
		return result;
	device_uuid_text(uuid.bytes, text);
	if (device->cu.whole_uuid && device->cu.whole_uuid(&whole, handle) == CUDA_SUCCESS &&
		memcmp(whole.bytes, uuid.bytes, sizeof(uuid.bytes)) != 0)
		memcpy(text, "MIG-", 4);
	return CUDA_SUCCESS;
}

CUresult cuda_describe_gpu(const struct device *device, int ordinal, CUdevice handle,
						   struct device_info *info)
{
	size_t memory = 0;
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cuda:%d", ordinal);
	CUresult result = device->cu.cuDeviceGetName(info->model, (int)sizeof(info->model), handle);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuDeviceTotalMem(&memory, handle);
	if (result == CUDA_SUCCESS)
		result = read_uuid(device, handle, info->uuid);
	if (result != CUDA_SUCCESS)
		return result;
	if (device->cu.cuDeviceGetPCIBusId(info->bus, (int)sizeof(info->bus), handle) != CUDA_SUCCESS)
		info->bus[0] = 0;
	info->model[sizeof(info->model) - 1] = 0;
	info->bus[sizeof(info->bus) - 1] = 0;
	info->memory_bytes = memory;
	read_limits(device, handle, &info->limits);
	return CUDA_SUCCESS;
}

int cuda_list(struct device *device, struct device_info *out, int most)
{
	int count = 0;
	CUdevice handle;
	if (device->cu.cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return 0;
	count = count < most ? count : most;
	for (int i = 0; i < count; i++) {
		/* A GPU that does not say what it is has its number alone. */
		if (device->cu.cuDeviceGet(&handle, i) != CUDA_SUCCESS ||
			cuda_describe_gpu(device, i, handle, &out[i]) != CUDA_SUCCESS) {
			out[i] = (struct device_info){0};
			snprintf(out[i].name, sizeof(out[i].name), "cuda:%d", i);
		}
	}
	return count;
}

/* Writes "cuda:0 GPU-...; cuda:1 GPU-...". */
static void list_uuids(const struct device *device, int count, char *text, size_t size)
{
	size_t used = 0;
	text[0] = 0;
	for (int i = 0; i < count; i++) {
		char uuid[DEVICE_UUID_TEXT] = "";
		CUdevice handle;
		if (i == REASON_GPUS) {
			util_append(text, size, used, " and %d more", count - i);
			return;
		}
		if (device->cu.cuDeviceGet(&handle, i) == CUDA_SUCCESS)
			read_uuid(device, handle, uuid);
		used = util_append(text, size, used, "%scuda:%d %s", i ? ", " : "", i, uuid);
	}
}

int cuda_find_gpu(const struct device *device, const struct device_name *name, int count,
				  int *ordinal, char error[KERNEL_ERROR_MAX])
{
	int matches = 0;
	char all[KERNEL_ERROR_MAX];
	for (int i = 0; name->uuid[0] && i < count; i++) {
		char uuid[DEVICE_UUID_TEXT];
		CUdevice handle;
		if (device->cu.cuDeviceGet(&handle, i) != CUDA_SUCCESS ||
			read_uuid(device, handle, uuid) != CUDA_SUCCESS ||
			!(device_uuid_begins(uuid, name->uuid) || device_uuid_same(uuid, name->uuid)))
			continue;
		*ordinal = i;
		matches++;
	}
	if (matches == 1)
		return KILN_OK;
	*ordinal = name->ordinal;
	if (name->ordinal >= 0 && name->ordinal < count)
		return KILN_OK;
	if (name->ordinal >= 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "there is no device cuda:%d: this machine shows %d GPU%s, from cuda:0 on",
						 name->ordinal, count, count == 1 ? "" : "s");
	list_uuids(device, count, all, sizeof(all));
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP, "%s is %s of the GPUs here: %s",
					 name->uuid, matches ? "the beginning of several" : "none", all);
}

#endif
