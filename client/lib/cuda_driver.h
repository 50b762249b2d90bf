/*
 * cuda_driver.h: the functions of libcuda that libkiln uses, loaded by name when the first one is
 * needed.  It includes cuda.h, so only files of builds with cuda.h include it.
 *
 * cuda.h renames functions to their current version by macros; fields and symbols here follow it.
 */
#ifndef KILN_CLIENT_CUDA_DRIVER_H
#define KILN_CLIENT_CUDA_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#define CUDA_DRIVER_LIST(X)              \
	X(cuGetErrorName)                    \
	X(cuDeviceGet)                       \
	X(cuDeviceGetUuid)                   \
	X(cuDeviceGetAttribute)              \
	X(cuCtxGetCurrent)                   \
	X(cuCtxGetDevice)                    \
	X(cuCtxPushCurrent)                  \
	X(cuCtxPopCurrent)                   \
	X(cuPointerGetAttribute)             \
	X(cuPointerGetAttributes)            \
	X(cuIpcGetMemHandle)                 \
	X(cuMemGetAddressRange)              \
	X(cuMemRetainAllocationHandle)       \
	X(cuMemExportToShareableHandle)      \
	X(cuMemRelease)                      \
	X(cuMemPoolCreate)                   \
	X(cuMemPoolDestroy)                  \
	X(cuMemPoolSetAttribute)             \
	X(cuMemPoolExportToShareableHandle)  \
	X(cuMemPoolExportPointer)            \
	X(cuMemAllocFromPoolAsync)           \
	X(cuMemFreeAsync)                    \
	X(cuMemsetD8Async)                   \
	X(cuMemcpyDtoDAsync)                 \
	X(cuModuleLoadData)                  \
	X(cuModuleUnload)                    \
	X(cuModuleGetFunction)               \
	X(cuFuncGetAttribute)                \
	X(cuFuncSetAttribute)                \
	X(cuStreamSynchronize)               \
	X(cuStreamIsCapturing)               \
	X(cuStreamQuery)                     \
	X(cuStreamGetCtx)                    \
	X(cuStreamGetFlags)                  \
	X(cuThreadExchangeStreamCaptureMode) \
	X(cuMemHostRegister)                 \
	X(cuMemHostGetDevicePointer)         \
	X(cuLaunchKernel)

/* Drivers before 12.0 lack some of these. */
#define CUDA_GRAPH_LIST(X)            \
	X(cuGraphCreate)                  \
	X(cuGraphAddKernelNode)           \
	X(cuGraphInstantiateWithFlags)    \
	X(cuGraphExecKernelNodeSetParams) \
	X(cuGraphLaunch)                  \
	X(cuGraphExecDestroy)             \
	X(cuGraphDestroy)

struct cuda_driver {
#define CUDA_DRIVER_FIELD(name) __typeof__(name) *name;
	CUDA_DRIVER_LIST(CUDA_DRIVER_FIELD)
	CUDA_GRAPH_LIST(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
	bool has_graphs; /* all of CUDA_GRAPH_LIST are there */
	/* cuCtxGetId, of drivers since 12.0; else NULL. */
	CUresult (*context_id)(CUcontext context, unsigned long long *id);
	/* cuStreamBatchMemOp_v2, of drivers since 11.7; else NULL. */
	CUresult (*batch_memory_operations)(CUstream stream, unsigned count,
										CUstreamBatchMemOpParams *operations, unsigned flags);
	/* cuFuncGetParamInfo, of drivers since 12.4; else NULL. */
	CUresult (*parameter)(CUfunction function, size_t index, size_t *offset, size_t *bytes);
};

/* Valid once cuda_driver_load() has returned NULL. */
extern struct cuda_driver cuda;

/* Loads $KILN_LIBCUDA, else libcuda.so.1.  Returns NULL, or the name of what is missing. */
const char *cuda_driver_load(void);
/* "CUDA_ERROR_OUT_OF_MEMORY" */
const char *cuda_driver_error(CUresult result);
/* A number that is unique in this process, whereas addresses of contexts are used again; 0 where
 * the driver has none. */
unsigned long long cuda_context_id(CUcontext context);

#endif
