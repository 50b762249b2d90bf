/*
 * cuda_ipc.c: lends memory of CUDA: asks the driver what an address is, and how another process can
 * map it.
 *
 * The program's state stays as it was: attributes of a pointer need no context; where a call needs
 * one, the context is pushed and popped again.
 */
#include "buffer.h"
#include "client.h"
#include "error.h"
#include "link.h"

#include <string.h>

#define INSTEAD "use kiln_alloc() with kiln_write() and kiln_read(), or lend cudaMalloc memory"

#ifndef KILN_HAVE_CUDA_H

static int lend(kiln_client *client, uint64_t pointer, uint64_t bytes, const char *name,
				kiln_buffer **out)
{
	(void)client, (void)name, (void)out;
	return error_set(KILN_ENOTSUP,
					 "0x%llx of %llu bytes cannot be lent: this libkiln was built without cuda.h; "
					 "use kiln_alloc() with kiln_write() and kiln_read()",
					 (unsigned long long)pointer, (unsigned long long)bytes);
}

#else

#include "cuda_driver.h"

#include <unistd.h>

/* The driver's answer about an address. */
struct place {
	CUcontext context;
	unsigned type; /* CUmemorytype; 0: the driver does not know the address */
	int managed, ipc, ordinal;
	CUdeviceptr base; /* of the allocation */
	size_t span;
	unsigned long long buffer_id;
	CUmemoryPool pool;
};

static int look_up(uint64_t pointer, struct place *place)
{
	CUpointer_attribute which[] = {
		CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *where[] = {&place->context, &place->type, &place->managed, &place->ipc,
					 &place->ordinal, &place->base, &place->span,    &place->buffer_id};
	memset(place, 0, sizeof(*place));
	CUresult result = cuda.cuPointerGetAttributes((unsigned)(sizeof(which) / sizeof(which[0])),
												  which, where, (CUdeviceptr)pointer);
	if (result == CUDA_ERROR_NOT_INITIALIZED) {
		place->type = 0; /* this process has not used CUDA, so no address is CUDA's */
	} else if (result != CUDA_SUCCESS) {
		return error_set(KILN_ENOTSUP, "0x%llx cannot be lent: cuPointerGetAttributes says %s; %s",
						 (unsigned long long)pointer, cuda_driver_error(result), INSTEAD);
	}
	if (place->type == 0) {
		return error_set(KILN_EINVAL,
						 "0x%llx is no address that CUDA allocated in this process: " INSTEAD,
						 (unsigned long long)pointer);
	}
	if (cuda.cuPointerGetAttribute(&place->pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
								   (CUdeviceptr)pointer) != CUDA_SUCCESS)
		place->pool = NULL;
	return KILN_OK;
}

static int check_range(const struct place *place, uint64_t pointer, uint64_t bytes)
{
	uint64_t offset = pointer - (uint64_t)place->base;
	if (pointer < (uint64_t)place->base || offset > place->span || bytes > place->span - offset) {
		return error_set(KILN_EINVAL,
						 "%llu bytes at 0x%llx are not inside one allocation: it has %zu bytes at "
						 "0x%llx",
						 (unsigned long long)bytes, (unsigned long long)pointer, place->span,
						 (unsigned long long)place->base);
	}
	return KILN_OK;
}

/* Names the GPU by its UUID: the daemon may number GPUs differently. */
static void put_gpu(struct wire_out *out, const struct place *place)
{
	CUdevice device;
	CUuuid uuid;
	if (cuda.cuDeviceGet(&device, place->ordinal) == CUDA_SUCCESS &&
		cuda.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
		wire_put_bin(out, "gpu", uuid.bytes, sizeof(uuid.bytes));
}

static int lend_ipc(kiln_client *client, const struct place *place, uint64_t pointer,
					uint64_t bytes, const char *name, kiln_buffer **out)
{
	CUipcMemHandle handle;
	CUcontext popped;
	struct request request;

	bool pushed = place->context && cuda.cuCtxPushCurrent(place->context) == CUDA_SUCCESS;
	CUresult result = cuda.cuIpcGetMemHandle(&handle, place->base);
	if (pushed)
		(void)cuda.cuCtxPopCurrent(&popped);
	if (result != CUDA_SUCCESS) {
		return error_set(KILN_ENOTSUP,
						 "0x%llx cannot be lent: cuIpcGetMemHandle says %s; use kiln_alloc() with "
						 "kiln_write() and kiln_read()",
						 (unsigned long long)pointer, cuda_driver_error(result));
	}
	link_begin(client, &request, "lend");
	wire_put_str(&request.out, "kind", "ipc");
	wire_put_bin(&request.out, "handle", &handle, sizeof(handle));
	wire_put_uint(&request.out, "bufid", place->buffer_id);
	wire_put_uint(&request.out, "span", place->span);
	put_gpu(&request.out, place);
	return buffer_lend(client, &request, pointer - (uint64_t)place->base, bytes, name, out);
}

/* Memory of cuMemCreate: the attribute's range is the reserved one; the piece that one physical
 * allocation is mapped to counts here. */
static bool find_mapping(uint64_t pointer, struct place *place)
{
	CUdeviceptr base = 0;
	size_t span = 0;
	if (cuda.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
								   (CUdeviceptr)pointer) != CUDA_SUCCESS ||
		cuda.cuPointerGetAttribute(&span, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
								   (CUdeviceptr)pointer) != CUDA_SUCCESS ||
		span == 0)
		return false;
	place->base = base;
	place->span = span;
	return true;
}

static int refuse_vmm(uint64_t pointer, const char *why)
{
	return error_set(KILN_ENOTSUP,
					 "0x%llx cannot be lent: %s; use cudaMalloc (PyTorch: "
					 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False), or kiln_alloc() with "
					 "kiln_write() and kiln_read()",
					 (unsigned long long)pointer, why);
}

/* Most pools cannot be exported; the pool of cudaMallocAsync is one of them. */
static int refuse_pool(uint64_t pointer, const char *function, CUresult result)
{
	return error_set(
		KILN_ENOTSUP,
		"0x%llx cannot be lent: it belongs to a stream-ordered pool that was not made "
		"to be exported, such as that of cudaMallocAsync (%s says %s); use cudaMalloc, "
		"a pool made with handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "
		"cuMemCreate memory with that type, or kiln_alloc() with kiln_write()",
		(unsigned long long)pointer, function, cuda_driver_error(result));
}

/* Another process needs two things for such memory: the pool, as a descriptor, and the place in the
 * pool, as data that is worthless without the pool. */
static int export_pool(const struct place *place, uint64_t pointer, int *fd,
					   CUmemPoolPtrExportData *data)
{
	CUcontext popped;
	bool pushed = place->context && cuda.cuCtxPushCurrent(place->context) == CUDA_SUCCESS;
	const char *function = "cuMemPoolExportToShareableHandle";
	CUresult result = cuda.cuMemPoolExportToShareableHandle(
		fd, place->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result == CUDA_SUCCESS) {
		function = "cuMemPoolExportPointer";
		result = cuda.cuMemPoolExportPointer(data, place->base);
		if (result != CUDA_SUCCESS)
			close(*fd);
	}
	if (pushed)
		(void)cuda.cuCtxPopCurrent(&popped);
	return result == CUDA_SUCCESS ? KILN_OK : refuse_pool(pointer, function, result);
}

static int lend_pool(kiln_client *client, struct place *place, uint64_t pointer, uint64_t bytes,
					 const char *name, kiln_buffer **out)
{
	CUmemPoolPtrExportData data;
	CUdeviceptr base = 0;
	size_t span = 0;
	struct request request;
	int fd = -1;

	/* The attribute's range may be what the pool has reserved; the allocation counts here. */
	if (cuda.cuMemGetAddressRange(&base, &span, (CUdeviceptr)pointer) == CUDA_SUCCESS) {
		place->base = base;
		place->span = span;
	}
	int status = check_range(place, pointer, bytes);
	if (status == KILN_OK)
		status = export_pool(place, pointer, &fd, &data);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "lend");
	request.fd = fd;
	wire_put_str(&request.out, "kind", "pool");
	wire_put_bin(&request.out, "handle", &data, sizeof(data));
	wire_put_uint(&request.out, "bufid", place->buffer_id);
	wire_put_uint(&request.out, "pool", (uint64_t)(uintptr_t)place->pool);
	wire_put_uint(&request.out, "span", place->span);
	put_gpu(&request.out, place);
	status = buffer_lend(client, &request, pointer - (uint64_t)place->base, bytes, name, out);
	close(fd);
	return status;
}

static int lend_descriptor(kiln_client *client, struct place *place, uint64_t pointer,
						   uint64_t bytes, const char *name, kiln_buffer **out)
{
	CUmemGenericAllocationHandle handle;
	struct request request;
	int fd = -1;

	if (!find_mapping(pointer, place))
		return refuse_vmm(pointer, "the driver does not say which allocation it is mapped to");
	uint64_t offset = pointer - (uint64_t)place->base;
	if (offset > place->span || bytes > place->span - offset)
		return refuse_vmm(pointer, "it spans several allocations that are mapped side by side");
	CUresult result = cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pointer);
	if (result != CUDA_SUCCESS)
		return refuse_vmm(pointer, "the driver gives no handle of its allocation");
	result =
		cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	(void)cuda.cuMemRelease(handle);
	if (result != CUDA_SUCCESS || fd < 0) {
		return refuse_vmm(pointer, "it was not made with requestedHandleTypes = "
								   "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
	}
	link_begin(client, &request, "lend");
	request.fd = fd;
	wire_put_str(&request.out, "kind", "fd");
	wire_put_uint(&request.out, "span", place->span);
	put_gpu(&request.out, place);
	int status = buffer_lend(client, &request, offset, bytes, name, out);
	close(fd);
	return status;
}

static int lend(kiln_client *client, uint64_t pointer, uint64_t bytes, const char *name,
				kiln_buffer **out)
{
	struct place place;
	const char *missing = cuda_driver_load();
	if (missing) {
		return error_set(KILN_ENOTSUP,
						 "0x%llx cannot be lent: the CUDA driver of this machine has no %s; use "
						 "kiln_alloc() with kiln_write() and kiln_read()",
						 (unsigned long long)pointer, missing);
	}
	int status = look_up(pointer, &place);
	if (status != KILN_OK)
		return status;
	if (place.managed != 0) {
		return error_set(KILN_ENOTSUP,
						 "0x%llx is managed memory (cudaMallocManaged), which cannot be shared "
						 "between processes: " INSTEAD,
						 (unsigned long long)pointer);
	}
	if (place.type != CU_MEMORYTYPE_DEVICE) {
		return error_set(
			KILN_ENOTSUP,
			"0x%llx is host memory (cudaMallocHost or cudaHostRegister), not memory of "
			"the GPU: " INSTEAD,
			(unsigned long long)pointer);
	}
	if (place.ipc != 0) {
		status = check_range(&place, pointer, bytes);
		return status == KILN_OK ? lend_ipc(client, &place, pointer, bytes, name, out) : status;
	}
	if (place.pool)
		return lend_pool(client, &place, pointer, bytes, name, out);
	return lend_descriptor(client, &place, pointer, bytes, name, out);
}

#endif

static int check_and_lend(kiln_client *client, uint64_t pointer, uint64_t bytes, const char *name,
						  kiln_buffer **out)
{
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; the buffer cannot be returned");
	if (strncmp(client->device, "cuda", 4) != 0) {
		return error_set(KILN_ENOTSUP,
						 "CUDA memory cannot be lent to device %s: connect with device \"cuda:0\", "
						 "or use kiln_alloc() with kiln_write() and kiln_read()",
						 client->device);
	}
	return lend(client, pointer, bytes, name, out);
}

int kiln_lend_cuda(kiln_client *client, uint64_t pointer, uint64_t bytes, const char *name,
				   kiln_buffer **out)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, check_and_lend(client, pointer, bytes, name, out));
}
