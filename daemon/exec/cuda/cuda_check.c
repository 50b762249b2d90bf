/*
 * cuda_check: compares a launch with what its kernel takes.  The driver does not: it would read
 * beyond the arguments, or start a kernel with half of its parameters.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cubin.h"
#include "cuda_module.h"
#include <pthread.h>

/* Reads the kernel's parameters from its object, or else asks a driver that is new enough. */
static void find_params(struct device *device, struct device_module *module, const void *object,
						size_t bytes, const char *entry)
{
	struct device_kernel *kernel = &module->kernel;
	size_t offset, size;
	kernel->param_count = -1;
	if (cubin_params(object, bytes, entry, kernel) || !device->cu.param_info)
		return;
	int count = 0;
	while (count < KERNEL_MAX_ARGS &&
		   device->cu.param_info(module->function, (size_t)count, &offset, &size) == CUDA_SUCCESS)
		kernel->params[count++] = (uint32_t)size;
	kernel->param_count = count;
}

CUresult cuda_know_kernel(struct device *device, struct device_module *module, const void *object,
						  size_t bytes, const char *entry)
{
	find_params(device, module, object, bytes, entry);
	CUresult result = device->cu.cuFuncGetAttribute(
		&module->shared_fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, module->function);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuFuncGetAttribute(
			&module->max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, module->function);
	return result;
}

void cuda_describe(const struct device_module *module, struct device_kernel *out)
{
	*out = module->kernel;
}

CUresult cuda_grant_shared(struct device *device, struct device_module *module,
						   uint32_t shared_bytes)
{
	static pthread_mutex_t granting = PTHREAD_MUTEX_INITIALIZER;
	CUresult result = CUDA_SUCCESS;
	uint64_t all = (uint64_t)module->shared_fixed + shared_bytes;
	if (all <= device->shared_default || shared_bytes <= module->shared_granted)
		return CUDA_SUCCESS;
	/* Another part may grant more meanwhile, which must not become less. */
	pthread_mutex_lock(&granting);
	if (shared_bytes > module->shared_granted)
		result = device->cu.cuFuncSetAttribute(
			module->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes);
	if (result == CUDA_SUCCESS && shared_bytes > module->shared_granted)
		module->shared_granted = shared_bytes;
	pthread_mutex_unlock(&granting);
	return result;
}

static int check_args(const struct device_launch *launch, char error[KERNEL_ERROR_MAX])
{
	const struct device_kernel *kernel = &launch->module->kernel;
	if (kernel->param_count < 0)
		return KILN_OK;
	if (launch->arg_count != kernel->param_count)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the kernel takes %d arguments and was given %d", kernel->param_count,
						 launch->arg_count);
	for (int i = 0; i < launch->arg_count; i++) {
		const struct kernel_arg *arg = &launch->args[i];
		bool value = arg->kind == KERNEL_ARG_SCALAR || arg->kind == KERNEL_ARG_BYTES;
		uint32_t bytes = value ? arg->bytes : (uint32_t)sizeof(CUdeviceptr);
		if (bytes != kernel->params[i])
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "argument %d of the kernel has %u bytes and was given %u", i,
							 kernel->params[i], bytes);
	}
	return KILN_OK;
}

int cuda_check_launch(struct device *device, const struct device_launch *launch,
					  char error[KERNEL_ERROR_MAX])
{
	struct device_module *module = launch->module;
	uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
	int status = check_args(launch, error);
	if (status != KILN_OK)
		return status;
	if (module->max_threads > 0 && threads > (uint64_t)module->max_threads)
		return util_fail(
			error, KERNEL_ERROR_MAX, KILN_EINVAL,
			"a block of %ux%ux%u threads is more than the %d that the kernel can have, "
			"by its registers or its __launch_bounds__",
			launch->block[0], launch->block[1], launch->block[2], module->max_threads);
	if ((uint64_t)module->shared_fixed + launch->shared_bytes > device->shared_optin)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%u bytes of dynamic shared memory and the kernel's own %d are more than "
						 "the %u of a block",
						 launch->shared_bytes, module->shared_fixed, device->shared_optin);
	CUresult result = cuda_grant_shared(device, module, launch->shared_bytes);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOTSUP, result,
						 "%s does not grant %u bytes of dynamic shared memory", device->name,
						 launch->shared_bytes);
	return KILN_OK;
}

#endif
