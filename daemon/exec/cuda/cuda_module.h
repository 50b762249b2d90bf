/*
 * cuda_module: a loaded kernel, and the check that a launch gives it what it takes.
 */
#ifndef KILN_DAEMON_CUDA_MODULE_H
#define KILN_DAEMON_CUDA_MODULE_H

#include "cuda_device.h"

struct device_module {
	CUmodule module;
	CUfunction function;
	char entry[96]; /* for sentences; a longer name is cut */
	struct device_kernel kernel;
	bool prints;      /* it may print, or fail an assertion */
	int shared_fixed; /* bytes of static shared memory */
	_Atomic uint32_t
		shared_granted; /* bytes of dynamic shared memory that the driver has granted */
	int max_threads;    /* of a block; 0: not known */
};

/* Fills in what cuda_check_launch() compares a launch of this new module with. */
CUresult cuda_know_kernel(struct device *device, struct device_module *module, const void *object,
						  size_t bytes, const char *entry);
/* Asks the driver for dynamic shared memory beyond the default.  Static shared memory counts
 * too. */
CUresult cuda_grant_shared(struct device *device, struct device_module *module,
						   uint32_t shared_bytes);
/* Compares arguments, threads and shared memory with the kernel.  KILN_OK or a sentence. */
int cuda_check_launch(struct device *device, const struct device_launch *launch,
					  char error[KERNEL_ERROR_MAX]);

#endif
