/*
 * cuda_driver: loads libcuda and finds its functions.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_driver.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)

static const struct {
	const char *symbol; /* as cuda.h maps it */
	const char *plain;  /* as this code writes it */
	size_t offset;
} functions[] = {
#define CUDA_DRIVER_ROW(name) {NAME_OF(name), #name, offsetof(struct cuda_driver, name)},
	CUDA_DRIVER_LIST(CUDA_DRIVER_ROW)
#undef CUDA_DRIVER_ROW
};

static void *open_library(char error[KERNEL_ERROR_MAX])
{
	static const char *const usual[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
										"/usr/lib/wsl/lib/libcuda.so.1"};
	const char *named = getenv("KILN_LIBCUDA");
	if (named && *named) {
		void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		const char *why = library ? NULL : dlerror();
		if (!library)
			util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					  "KILN_LIBCUDA names %s, which cannot be loaded: %s", named,
					  why ? why : "no reason given");
		return library;
	}
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
		void *library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
		if (library)
			return library;
	}
	util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
			  "libcuda.so.1 is not on this machine: install the NVIDIA driver, or name the library "
			  "in KILN_LIBCUDA");
	return NULL;
}

int cuda_driver_open(struct cuda_driver *driver, char error[KERNEL_ERROR_MAX])
{
	driver->library = open_library(error);
	if (!driver->library)
		return KILN_ENOTSUP;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *symbol = dlsym(driver->library, functions[i].symbol);
		/* The newer form only refines error codes; drivers before 12.8 have the first alone. */
		if (!symbol && strcmp(functions[i].plain, "cuEventElapsedTime") == 0)
			symbol = dlsym(driver->library, functions[i].plain);
		if (!symbol)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
							 "the NVIDIA driver has no function %s: it is older than CUDA 11.4, "
							 "the oldest that Kiln works with",
							 functions[i].symbol);
		memcpy((char *)driver + functions[i].offset, &symbol, sizeof(symbol));
	}
	void *newer = dlsym(driver->library, "cuFuncGetParamInfo");
	memcpy(&driver->param_info, &newer, sizeof(newer));
	newer = dlsym(driver->library, "cuDeviceGetUuid");
	memcpy(&driver->whole_uuid, &newer, sizeof(newer));
	newer = dlsym(driver->library, "cuStreamWriteValue32_v2");
	memcpy(&driver->write_value, &newer, sizeof(newer));
	newer = dlsym(driver->library, "cuStreamBatchMemOp_v2");
	memcpy(&driver->write_values, &newer, sizeof(newer));
	return KILN_OK;
}

const char *cuda_driver_error(const struct cuda_driver *driver, CUresult result, char text[160])
{
	const char *name = NULL, *what = NULL;
	if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "an error unknown to this driver";
	if (driver->cuGetErrorString(result, &what) != CUDA_SUCCESS || !what)
		what = "no description";
	util_fail(text, 160, 0, "%s %d (%s)", name, (int)result, what);
	return text;
}

#endif
