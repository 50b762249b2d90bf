/*
 * driver: see driver.h.
 */
#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef KILN_HAVE_CUDA_H

#include <cuda.h>
#include <dlfcn.h>

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)
#define DRIVER_LIST(X)             \
	X(cuInit)                      \
	X(cuDeviceGet)                 \
	X(cuDeviceGetName)             \
	X(cuDeviceGetAttribute)        \
	X(cuDevicePrimaryCtxRetain)    \
	X(cuCtxSetCurrent)             \
	X(cuGetErrorName)              \
	X(cuMemGetInfo)                \
	X(cuMemAlloc)                  \
	X(cuMemFree)                   \
	X(cuMemcpyHtoD)                \
	X(cuMemcpyDtoH)                \
	X(cuCtxSynchronize)            \
	X(cuMemCreate)                 \
	X(cuMemAddressReserve)         \
	X(cuMemMap)                    \
	X(cuMemSetAccess)              \
	X(cuMemUnmap)                  \
	X(cuMemAddressFree)            \
	X(cuMemRelease)                \
	X(cuStreamCreate)              \
	X(cuStreamSynchronize)         \
	X(cuStreamQuery)               \
	X(cuStreamWriteValue32)        \
	X(cuMemHostAlloc)              \
	X(cuMemPoolCreate)             \
	X(cuDeviceGetDefaultMemPool)   \
	X(cuMemAllocFromPoolAsync)     \
	X(cuMemFreeAsync)              \
	X(cuModuleLoadData)            \
	X(cuModuleUnload)              \
	X(cuModuleGetFunction)         \
	X(cuFuncGetAttribute)          \
	X(cuFuncSetAttribute)          \
	X(cuLaunchKernel)              \
	X(cuMemcpyDtoDAsync)           \
	X(cuMemsetD8Async)             \
	X(cuStreamBeginCapture)        \
	X(cuStreamEndCapture)          \
	X(cuGraphInstantiateWithFlags) \
	X(cuGraphLaunch)               \
	X(cuGraphExecDestroy)          \
	X(cuGraphDestroy)              \
	X(cuEventCreate)               \
	X(cuEventRecord)               \
	X(cuEventElapsedTime)

static struct {
#define FIELD(name) __typeof__(name) *name;
	DRIVER_LIST(FIELD)
} cu;

static char last_error[120];

/* Memory that cuMemFree does not free. */
#define SPECIAL_MOST 16
static struct {
	CUdeviceptr pointer;
	size_t bytes; /* made by cuMemCreate; 0: from a pool */
} special[SPECIAL_MOST];

static CUdevice device;
static CUmemoryPool pools[2];         /* that can be shared; made when they are needed, and kept */
static CUstream stream, other_stream; /* of the pools' allocations, and of what is queued */
static CUevent marks[GPU_MARKS];
static volatile uint32_t *word; /* of host memory, which the GPU writes; NULL until it is needed */
static uint32_t word_value;
#define LOOKS 1000000                    /* at the word, before the driver is asked */
static struct gpu_description described; /* name empty: not yet */

static bool good(CUresult result, const char *what)
{
	const char *name = "?";
	if (result == CUDA_SUCCESS)
		return true;
	cu.cuGetErrorName(result, &name);
	snprintf(last_error, sizeof(last_error), "%s: %s", what, name);
	return false;
}

bool gpu_open(int ordinal, char why[200])
{
	CUcontext context;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		library = dlopen("/usr/local/nvidia/lib64/libcuda.so.1", RTLD_NOW);
	if (!library) {
		snprintf(why, 200, "libcuda.so.1 is not on this machine");
		return false;
	}
#define LOAD(name)                                                       \
	do {                                                                 \
		void *symbol = dlsym(library, NAME_OF(name));                    \
		if (!symbol) {                                                   \
			snprintf(why, 200, "libcuda.so.1 has no %s", NAME_OF(name)); \
			return false;                                                \
		}                                                                \
		memcpy(&cu.name, &symbol, sizeof(symbol));                       \
	} while (0);
	DRIVER_LIST(LOAD)
	if (good(cu.cuInit(0), "cuInit") && good(cu.cuDeviceGet(&device, ordinal), "cuDeviceGet") &&
		good(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") &&
		good(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent"))
		return true;
	snprintf(why, 200, "%s", last_error);
	return false;
}

static int special_place(void)
{
	int place = 0;
	while (place < SPECIAL_MOST && special[place].pointer)
		place++;
	return place;
}

static uint64_t alloc_exportable(uint64_t bytes)
{
	const size_t step = 2u << 20;
	size_t size = (bytes + step - 1) / step * step;
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr pointer = 0;
	int place = special_place();
	if (place == SPECIAL_MOST)
		return 0;
	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	memset(&access, 0, sizeof(access));
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (!good(cu.cuMemCreate(&handle, size, &prop, 0), "cuMemCreate"))
		return 0;
	bool mapped = good(cu.cuMemAddressReserve(&pointer, size, 0, 0, 0), "cuMemAddressReserve") &&
				  good(cu.cuMemMap(pointer, size, 0, handle, 0), "cuMemMap") &&
				  good(cu.cuMemSetAccess(pointer, size, &access, 1), "cuMemSetAccess");
	cu.cuMemRelease(handle);
	if (!mapped)
		return 0;
	special[place].pointer = pointer;
	special[place].bytes = size;
	return pointer;
}

static bool open_pool(int which)
{
	CUmemPoolProps props;
	memset(&props, 0, sizeof(props));
	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	return pools[which] || good(cu.cuMemPoolCreate(&pools[which], &props), "cuMemPoolCreate");
}

static bool open_stream(void)
{
	return stream || good(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* The allocation is complete when the stream is: only then may another process touch it. */
static uint64_t alloc_from_pool(uint64_t bytes, enum gpu_memory kind)
{
	CUdeviceptr pointer = 0;
	CUmemoryPool pool = NULL;
	int place = special_place(), which = kind == GPU_POOL_2;
	if (place == SPECIAL_MOST || !open_stream())
		return 0;
	if (kind == GPU_DEFAULT
			? !good(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool")
			: !open_pool(which))
		return 0;
	pool = pool ? pool : pools[which];
	if (!good(cu.cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream),
			  "cuMemAllocFromPoolAsync") ||
		!good(cu.cuStreamSynchronize(stream), "cuStreamSynchronize"))
		return 0;
	special[place].pointer = pointer;
	special[place].bytes = 0;
	return pointer;
}

uint64_t gpu_alloc(uint64_t bytes, enum gpu_memory kind)
{
	CUdeviceptr pointer = 0;
	if (kind == GPU_EXPORTED)
		return alloc_exportable(bytes);
	if (kind != GPU_MALLOC)
		return alloc_from_pool(bytes, kind);
	return good(cu.cuMemAlloc(&pointer, bytes), "cuMemAlloc") ? pointer : 0;
}

bool gpu_free(uint64_t pointer)
{
	for (int i = 0; i < SPECIAL_MOST; i++) {
		if (!pointer || special[i].pointer != pointer)
			continue;
		special[i].pointer = 0;
		if (special[i].bytes == 0)
			return good(cu.cuMemFreeAsync(pointer, stream), "cuMemFreeAsync") &&
				   good(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
		return good(cu.cuMemUnmap(pointer, special[i].bytes), "cuMemUnmap") &&
			   good(cu.cuMemAddressFree(pointer, special[i].bytes), "cuMemAddressFree");
	}
	return !pointer || good(cu.cuMemFree(pointer), "cuMemFree");
}

bool gpu_used(uint64_t *bytes)
{
	size_t unused = 0, total = 0;
	bool known = good(cu.cuMemGetInfo(&unused, &total), "cuMemGetInfo");
	*bytes = total - unused;
	return known;
}

bool gpu_put(uint64_t pointer, const void *host, uint64_t bytes)
{
	/* The copy of pageable memory may return before the last bytes are on the device, and nothing
	 * orders it against the daemon's process. */
	return bytes == 0 || (good(cu.cuMemcpyHtoD(pointer, host, bytes), "cuMemcpyHtoD") &&
						  good(cu.cuCtxSynchronize(), "cuCtxSynchronize"));
}

bool gpu_get(void *host, uint64_t pointer, uint64_t bytes)
{
	return bytes == 0 || good(cu.cuMemcpyDtoH(host, pointer, bytes), "cuMemcpyDtoH");
}

static bool read_attribute(CUdevice_attribute which, uint32_t *out)
{
	int value = 0;
	bool read = good(cu.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
	*out = (uint32_t)value;
	return read;
}

bool gpu_describe(struct gpu_description *out)
{
	struct gpu_description d = {.name = ""};
	uint32_t major, minor;
	if (!described.name[0]) {
		if (!good(cu.cuDeviceGetName(d.name, sizeof(d.name), device), "cuDeviceGetName") ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &d.max_threads) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &d.shared_default) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
							&d.shared_optin) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &d.grid_x) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &d.grid_y) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &d.grid_z) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &d.multiprocessors) ||
			!read_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, &d.warp))
			return false;
		d.major = (int)major;
		d.minor = (int)minor;
		described = d;
	}
	*out = described;
	return true;
}

bool gpu_load(const void *cubin, const char *entry, uint32_t shared_bytes, struct gpu_kernel *out)
{
	struct gpu_description limits;
	CUmodule module;
	CUfunction function;
	int fixed = 0;
	if (!gpu_describe(&limits) || !good(cu.cuModuleLoadData(&module, cubin), "cuModuleLoadData"))
		return false;
	out->module = module;
	/* Beyond the default, what a kernel has statically counts too. */
	bool loaded = good(cu.cuModuleGetFunction(&function, module, entry), "cuModuleGetFunction") &&
				  good(cu.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function),
					   "cuFuncGetAttribute");
	if (loaded && (uint64_t)fixed + shared_bytes > limits.shared_default)
		loaded =
			good(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
									   (int)shared_bytes),
				 "cuFuncSetAttribute");
	if (!loaded) {
		gpu_unload(out);
		return false;
	}
	out->function = function;
	return true;
}

void gpu_unload(struct gpu_kernel *kernel)
{
	if (kernel->module)
		cu.cuModuleUnload(kernel->module);
	*kernel = (struct gpu_kernel){0};
}

bool gpu_launch(const struct gpu_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
				uint32_t shared_bytes, void **arguments)
{
	return open_stream() &&
		   good(cu.cuLaunchKernel(kernel->function, grid[0], grid[1], grid[2], block[0], block[1],
								  block[2], shared_bytes, stream, arguments, NULL),
				"cuLaunchKernel");
}

bool gpu_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	return bytes == 0 || (open_stream() &&
						  good(cu.cuMemcpyDtoDAsync(to, from, bytes, stream), "cuMemcpyDtoDAsync"));
}

bool gpu_set(uint64_t to, unsigned char value, uint64_t bytes)
{
	return bytes == 0 ||
		   (open_stream() && good(cu.cuMemsetD8Async(to, value, bytes, stream), "cuMemsetD8Async"));
}

void *gpu_stream(void)
{
	return open_stream() ? stream : NULL;
}

void gpu_change_stream(void)
{
	CUstream before = stream;
	stream = other_stream;
	other_stream = before;
}

bool gpu_record(void)
{
	return open_stream() &&
		   good(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
				"cuStreamBeginCapture");
}

bool gpu_recorded(void **graph)
{
	CUgraph list = NULL;
	CUgraphExec exec = NULL;
	if (!good(cu.cuStreamEndCapture(stream, &list), "cuStreamEndCapture"))
		return false;
	bool made = good(cu.cuGraphInstantiateWithFlags(&exec, list, 0), "cuGraphInstantiate");
	cu.cuGraphDestroy(list);
	*graph = exec;
	return made;
}

bool gpu_replay(void *graph)
{
	return good(cu.cuGraphLaunch(graph, stream), "cuGraphLaunch");
}

void gpu_forget(void *graph)
{
	if (graph)
		cu.cuGraphExecDestroy(graph);
}

bool gpu_mark(int mark)
{
	return open_stream() &&
		   (marks[mark] || good(cu.cuEventCreate(&marks[mark], 0), "cuEventCreate")) &&
		   good(cu.cuEventRecord(marks[mark], stream), "cuEventRecord");
}

bool gpu_finish(void)
{
	return open_stream() && good(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

bool gpu_finish_by_word(void)
{
	void *memory = NULL;
	if (!word) {
		if (!good(cu.cuMemHostAlloc(&memory, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP),
				  "cuMemHostAlloc"))
			return false;
		word = memory;
		*word = word_value = 0;
	}
	/* With one address space the host's address is the GPU's, too. */
	if (!open_stream() ||
		!good(cu.cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word, ++word_value, 0),
			  "cuStreamWriteValue32"))
		return false;
	for (unsigned looks = 1; *word != word_value; looks++) {
		/* A GPU that has failed writes nothing. */
		CUresult result = looks % LOOKS == 0 ? cu.cuStreamQuery(stream) : CUDA_ERROR_NOT_READY;
		if (result != CUDA_ERROR_NOT_READY)
			return good(result, "cuStreamQuery") && *word == word_value;
	}
	return true;
}

bool gpu_finish_within(int milliseconds)
{
	CUresult result = open_stream() ? CUDA_ERROR_NOT_READY : CUDA_ERROR_NOT_INITIALIZED;
	const struct timespec pause = {0, 1000000};
	for (int i = 0; i < milliseconds && result == CUDA_ERROR_NOT_READY; i++) {
		result = cu.cuStreamQuery(stream);
		if (result == CUDA_ERROR_NOT_READY)
			nanosleep(&pause, NULL);
	}
	return good(result, "cuStreamQuery, at the deadline,");
}

bool gpu_between(int first, int last, double *micros)
{
	float ms = 0;
	bool known = good(cu.cuEventElapsedTime(&ms, marks[first], marks[last]), "cuEventElapsedTime");
	*micros = (double)ms * 1000;
	return known;
}

const char *gpu_error(void)
{
	return last_error;
}

#else

bool gpu_open(int ordinal, char why[200])
{
	(void)ordinal;
	snprintf(why, 200, "this program was built without cuda.h");
	return false;
}

uint64_t gpu_alloc(uint64_t bytes, enum gpu_memory kind)
{
	(void)bytes, (void)kind;
	return 0;
}

bool gpu_free(uint64_t pointer)
{
	return pointer == 0;
}

bool gpu_used(uint64_t *bytes)
{
	*bytes = 0;
	return false;
}

bool gpu_put(uint64_t pointer, const void *host, uint64_t bytes)
{
	(void)pointer, (void)host;
	return bytes == 0;
}

bool gpu_get(void *host, uint64_t pointer, uint64_t bytes)
{
	(void)pointer, (void)host;
	return bytes == 0;
}

bool gpu_describe(struct gpu_description *out)
{
	(void)out;
	return false;
}

bool gpu_load(const void *cubin, const char *entry, uint32_t shared_bytes, struct gpu_kernel *out)
{
	(void)cubin, (void)entry, (void)shared_bytes, (void)out;
	return false;
}

void gpu_unload(struct gpu_kernel *kernel)
{
	(void)kernel;
}

bool gpu_launch(const struct gpu_kernel *kernel, const uint32_t grid[3], const uint32_t block[3],
				uint32_t shared_bytes, void **arguments)
{
	(void)kernel, (void)grid, (void)block, (void)shared_bytes, (void)arguments;
	return false;
}

bool gpu_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	(void)to, (void)from;
	return bytes == 0;
}

bool gpu_set(uint64_t to, unsigned char value, uint64_t bytes)
{
	(void)to, (void)value;
	return bytes == 0;
}

void *gpu_stream(void)
{
	return NULL;
}

void gpu_change_stream(void)
{
}

bool gpu_record(void)
{
	return false;
}

bool gpu_recorded(void **graph)
{
	(void)graph;
	return false;
}

bool gpu_replay(void *graph)
{
	(void)graph;
	return false;
}

void gpu_forget(void *graph)
{
	(void)graph;
}

bool gpu_mark(int mark)
{
	(void)mark;
	return false;
}

bool gpu_finish(void)
{
	return false;
}

bool gpu_finish_by_word(void)
{
	return false;
}

bool gpu_finish_within(int milliseconds)
{
	(void)milliseconds;
	return false;
}

bool gpu_between(int first, int last, double *micros)
{
	(void)first, (void)last, (void)micros;
	return false;
}

const char *gpu_error(void)
{
	return "built without cuda.h";
}

#endif

bool gpu_driver_is_mapped(void)
{
	char line[512];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps))
		found = found || strstr(line, "libcuda");
	if (maps)
		fclose(maps);
	return found;
}
