/*
 * cuda_error: turns the driver's errors into sentences, and decides which of them end the device.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_device.h"
#include "daemon/base/util.h"

#include <stdarg.h>
#include <stdio.h>

/* Errors after which every later call of the context fails too, and only a new process helps. */
static bool is_sticky(struct device *device, CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case 226: /* CUDA_ERROR_CONTAINED, named by newer headers only */
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK, likewise */
	case 810: /* CUDA_ERROR_MPS_CLIENT_TERMINATED, likewise */
		return true;
	/* A GPU that fell off its bus, or is being reset, gives these answers. */
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_OPERATING_SYSTEM:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case CUDA_ERROR_UNKNOWN: {
		/* The driver answers some wrong arguments so, too: a call that needs none tells. */
		if (!device->memory_stream)
			return false;
		CUresult state = device->cu.cuStreamQuery(device->memory_stream);
		return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
	}
	default:
		return false;
	}
}

/* Returns how to find the access of a kernel that the driver says nothing more about. */
static const char *access_remedy(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
		return "; `kiln run ... --check` names the line of a bad access";
	default:
		return "";
	}
}

int cuda_fail(struct device *device, char error[KERNEL_ERROR_MAX], int status, CUresult result,
			  const char *format, ...)
{
	char what[KERNEL_ERROR_MAX], name[160];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	cuda_driver_error(&device->cu, result, name);
	util_fail(error, KERNEL_ERROR_MAX, status, "%s: %s", what, name);
	if (is_sticky(device, result)) {
		if (!device->broken)
			snprintf(device->broken_why, sizeof(device->broken_why), "%s%s", name,
					 access_remedy(result));
		device->broken = true;
		return KILN_EDEVICE;
	}
	return result == CUDA_ERROR_OUT_OF_MEMORY ? KILN_ENOMEM : status;
}

#endif
