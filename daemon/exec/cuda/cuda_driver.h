/*
 * cuda_driver: finds the functions of libcuda that the cuda device uses at run time, so that kilnd
 * starts on machines without a GPU.  Knows nothing of devices or memory.
 *
 * cuda.h renames some functions by macro (cuMemcpyHtoDAsync is cuMemcpyHtoDAsync_v2); field and
 * symbol names follow it, so driver->cuMemcpyHtoDAsync is always the version whose type is
 * declared.
 */
#ifndef KILN_DAEMON_CUDA_DRIVER_H
#define KILN_DAEMON_CUDA_DRIVER_H

#include "daemon/plan/kernel.h"
#include <cuda.h>

#define CUDA_DRIVER_LIST(X)                   \
	X(cuInit)                                 \
	X(cuDriverGetVersion)                     \
	X(cuGetErrorName)                         \
	X(cuGetErrorString)                       \
	X(cuDeviceGet)                            \
	X(cuDeviceGetCount)                       \
	X(cuDeviceGetName)                        \
	X(cuDeviceGetUuid)                        \
	X(cuDeviceGetPCIBusId)                    \
	X(cuDeviceTotalMem)                       \
	X(cuDeviceGetAttribute)                   \
	X(cuDevicePrimaryCtxRetain)               \
	X(cuDevicePrimaryCtxRelease)              \
	X(cuCtxSetCurrent)                        \
	X(cuMemGetInfo)                           \
	X(cuMemGetAddressRange)                   \
	X(cuMemPoolCreate)                        \
	X(cuMemPoolDestroy)                       \
	X(cuMemPoolSetAttribute)                  \
	X(cuMemPoolTrimTo)                        \
	X(cuMemPoolGetAccess)                     \
	X(cuMemPoolSetAccess)                     \
	X(cuMemPoolImportFromShareableHandle)     \
	X(cuMemPoolImportPointer)                 \
	X(cuMemAllocFromPoolAsync)                \
	X(cuMemFreeAsync)                         \
	X(cuMemsetD8Async)                        \
	X(cuMemHostAlloc)                         \
	X(cuMemFreeHost)                          \
	X(cuMemHostRegister)                      \
	X(cuMemHostUnregister)                    \
	X(cuIpcOpenMemHandle)                     \
	X(cuIpcCloseMemHandle)                    \
	X(cuMemCreate)                            \
	X(cuMemExportToShareableHandle)           \
	X(cuMemImportFromShareableHandle)         \
	X(cuMemGetAllocationPropertiesFromHandle) \
	X(cuMemGetAllocationGranularity)          \
	X(cuMemAddressReserve)                    \
	X(cuMemAddressFree)                       \
	X(cuMemMap)                               \
	X(cuMemUnmap)                             \
	X(cuMemSetAccess)                         \
	X(cuMemRelease)                           \
	X(cuModuleLoadData)                       \
	X(cuModuleUnload)                         \
	X(cuModuleGetFunction)                    \
	X(cuFuncGetAttribute)                     \
	X(cuFuncSetAttribute)                     \
	X(cuStreamCreate)                         \
	X(cuStreamDestroy)                        \
	X(cuStreamSynchronize)                    \
	X(cuStreamQuery)                          \
	X(cuEventCreate)                          \
	X(cuEventDestroy)                         \
	X(cuEventRecord)                          \
	X(cuEventQuery)                           \
	X(cuEventElapsedTime)                     \
	X(cuLaunchKernel)                         \
	X(cuStreamBeginCapture)                   \
	X(cuStreamEndCapture)                     \
	X(cuGraphInstantiateWithFlags)            \
	X(cuGraphUpload)                          \
	X(cuGraphLaunch)                          \
	X(cuGraphExecDestroy)                     \
	X(cuGraphDestroy)                         \
	X(cuGraphGetRootNodes)                    \
	X(cuGraphExecKernelNodeSetParams)         \
	X(cuMemcpyHtoDAsync)                      \
	X(cuMemcpyDtoHAsync)                      \
	X(cuMemcpyDtoDAsync)

struct cuda_driver {
	void *library;
#define CUDA_DRIVER_FIELD(name) __typeof__(name) *name;
	CUDA_DRIVER_LIST(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
	/* cuFuncGetParamInfo; NULL: the driver is older than 12.4. */
	CUresult (*param_info)(CUfunction function, size_t index, size_t *offset, size_t *size);
	/* cuDeviceGetUuid as it was at first: of the whole GPU, also where that is split.  NULL: the
	 * driver has it no more. */
	CUresult (*whole_uuid)(CUuuid *uuid, CUdevice device);
	/* cuStreamWriteValue32_v2, which works on every GPU; NULL: the driver is older than 11.7. */
	CUresult (*write_value)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags);
	/* cuStreamBatchMemOp_v2; NULL: likewise. */
	CUresult (*write_values)(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params,
							 unsigned flags);
};

/* Loads $KILN_LIBCUDA, else libcuda.so.1 by the loader's path or from the usual places of
 * containers.  KILN_ENOTSUP with a sentence.  The library stays loaded: libcuda does not survive to
 * be unloaded. */
int cuda_driver_open(struct cuda_driver *driver, char error[KERNEL_ERROR_MAX]);

/* Writes "CUDA_ERROR_OUT_OF_MEMORY 2 (out of memory)" to text, also for codes that this driver does
 * not know, and returns text. */
const char *cuda_driver_error(const struct cuda_driver *driver, CUresult result, char text[160]);

#endif
