/*
 * The cuda device over a driver whose GPU is this process's memory (fake_cuda.c): opening it, its
 * memory and its modules: what it asks the driver for, and what it says when the driver refuses.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

static void refuses_without_headers(void **state)
{
	(void)state;
	char error[KERNEL_ERROR_MAX];
	struct device *device = NULL;
	struct device_info info;
	assert_int_equal(device_cuda.open(NULL, &device, &info, error), KILN_ENOTSUP);
	assert_non_null(strstr(error, "built without CUDA headers"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_without_headers)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <fcntl.h>
#include <sys/mman.h>

/* A memory descriptor filled with 32-bit words from first on. */
static int words_fd(uint64_t bytes, uint32_t first)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	uint32_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(words, MAP_FAILED);
	for (uint64_t i = 0; i < bytes / 4; i++)
		words[i] = first + (uint32_t)i;
	munmap(words, bytes);
	return fd;
}

static struct device_import ipc_import(int fd, uint64_t span, uint64_t id, uint64_t offset,
									   uint64_t bytes)
{
	struct device_import what = {.kind = DEVICE_IMPORT_IPC,
								 .buffer_id = id,
								 .pid = getpid(),
								 .fd = -1,
								 .span = span,
								 .offset = offset,
								 .bytes = bytes};
	struct fake_handle handle = {FAKE_HANDLE_MAGIC, getpid(), fd, 0, span};
	memcpy(what.handle, &handle, sizeof(handle));
	return what;
}

/* ---- Opening ---- */

static void names_the_library_it_cannot_load(void **state)
{
	(void)state;
	struct device *other = NULL;
	setenv("KILN_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	int status = device_cuda.open(NULL, &other, &info, error);
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	assert_int_equal(status, KILN_ENOTSUP);
	assert_sentence("/nowhere/libcuda.so.1");
	assert_null(other);
}

static void names_the_function_an_old_driver_lacks(void **state)
{
	(void)state;
	struct device *other = NULL;
	setenv("KILN_LIBCUDA", "libc.so.6", 1);
	int status = device_cuda.open(NULL, &other, &info, error);
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	assert_int_equal(status, KILN_ENOTSUP);
	assert_sentence("has no function cuInit");
}

static void says_why_it_does_not_open(void **state)
{
	(void)state;
	struct device *other = NULL;
	fake->inject("cuInit", 100, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("sees no GPU");
	static const struct {
		int result;
		const char *remedy;
	} refusals[] = {{802, "nvidia-fabricmanager"},   {803, "load the module again"},
					{804, "compatibility package"},  {999, "Xid lines of `dmesg`"},
					{3, "CUDA_ERROR_FAKE_3 3"},      {46, "CUDA_ERROR_FAKE_46 46"},
					{101, "CUDA_ERROR_FAKE_101 101"}};
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		char name[32];
		fake->inject("cuInit", refusals[i].result, 1);
		assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOTSUP);
		snprintf(name, sizeof(name), "CUDA_ERROR_FAKE_%d", refusals[i].result);
		assert_sentence("the NVIDIA driver does not start");
		assert_sentence(name);
		assert_sentence(refusals[i].remedy);
	}
	fake->inject("cuDeviceGetCount", 999, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("the NVIDIA driver counts no GPUs");
	fake->inject("cuDevicePrimaryCtxRetain", 46, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_EDEVICE);
	assert_sentence("cuda:0 cannot be opened: CUDA_ERROR_FAKE_46");
	const struct device_name second = {.ordinal = 1};
	assert_int_equal(device_cuda.open(&second, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("no device cuda:1: this machine shows 1 GPU");
	fake->inject("cuDevicePrimaryCtxRetain", 2, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOMEM);
	assert_sentence("cuda:0 cannot be opened: CUDA_ERROR_OUT_OF_MEMORY 2");
	fake->inject("cuMemPoolCreate", 801, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("no memory pools");
	fake->inject("cuInit", 12345, 1);
	assert_int_equal(device_cuda.open(NULL, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("unknown to this driver 12345");
	assert_null(other);
}

static void says_what_the_gpu_is(void **state)
{
	(void)state;
	assert_string_equal(info.name, "cuda:0");
	assert_string_equal(info.model, "Fake GPU");
	assert_string_equal(info.uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
	assert_int_equal(info.memory_bytes, FAKE_MEMORY);
	assert_string_equal(info.limits.target, "sm_90");
	assert_int_equal(info.limits.max_threads, 1024);
	assert_int_equal(info.limits.shared_default, 49152);
	assert_int_equal(info.limits.shared_optin, 232448);
	assert_int_equal(info.limits.grid_x, 2147483647);
	assert_int_equal(info.limits.grid_y, 65535);
	assert_int_equal(info.limits.grid_z, 65535);
	assert_int_equal(info.limits.multiprocessors, 132);
	assert_int_equal(info.limits.warp, 32);
	assert_string_equal(getenv("CUDA_MODULE_LOADING"), "EAGER");
	assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

/* ---- Memory ---- */

static void allocates_zeroed_memory_from_the_pool(void **state)
{
	(void)state;
	unsigned char bytes[1000], expected[1000];
	struct device_memory *memory = alloc(sizeof(bytes));
	memset(bytes, 0xee, sizeof(bytes));
	memset(expected, 0, sizeof(expected));
	transfer(memory, 0, bytes, sizeof(bytes), false);
	assert_memory_equal(bytes, expected, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		expected[i] = (unsigned char)(i * 7);
	transfer(memory, 100, expected + 100, 900, true);
	transfer(memory, 0, bytes, sizeof(bytes), false);
	memset(expected, 0, 100);
	assert_memory_equal(bytes, expected, sizeof(bytes));
	device_cuda.free(device, memory);
	device_cuda.free(device, NULL);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), 0);
	assert_int_equal(fake->calls("cuMemFree"), 0);
	assert_int_equal(fake->calls("cuMemFreeAsync"), fake->calls("cuMemAllocFromPoolAsync"));
}

/* The pool gives it out again, which is not cleared by being freed. */
static void freed_memory_is_zero_for_the_next(void **state)
{
	(void)state;
	unsigned char bytes[4096], zero[4096] = {0};
	for (int i = 0; i < 4; i++) {
		struct device_memory *memory = alloc(sizeof(bytes));
		transfer(memory, 0, bytes, sizeof(bytes), false);
		assert_memory_equal(bytes, zero, sizeof(bytes));
		memset(bytes, 0xa5, sizeof(bytes));
		transfer(memory, 0, bytes, sizeof(bytes), true);
		device_cuda.free(device, memory);
	}
}

static void gives_empty_buffers(void **state)
{
	(void)state;
	char nothing = 1;
	int calls = fake->calls("cuMemAllocFromPoolAsync");
	struct device_memory *memory = alloc(0);
	transfer(memory, 0, &nothing, 0, false);
	assert_int_equal(device_cuda.copy(device, 1, 2, memory, 0, &nothing, 1, false, error),
					 KILN_EINVAL);
	assert_sentence("1 bytes from byte 0 are beyond a buffer of 0 bytes");
	device_cuda.free(device, memory);
	assert_int_equal(fake->calls("cuMemAllocFromPoolAsync"), calls);
}

static void says_how_much_memory_there_is(void **state)
{
	(void)state;
	struct device_memory *memory = NULL, *half = alloc(FAKE_MEMORY / 2);
	assert_int_equal(device_cuda.alloc(device, FAKE_MEMORY - 4096, &memory, error), KILN_ENOMEM);
	assert_sentence("(268431360 bytes): 128.0 MiB of 256.0 MiB are free");
	assert_int_equal(fake->calls("cuMemPoolTrimTo"), 1);
	assert_int_equal(device_cuda.alloc(device, UINT64_MAX, &memory, error), KILN_ENOMEM);
	assert_sentence("(18446744073709551615 bytes)");
	assert_null(memory);
	fake->inject("cuMemAllocFromPoolAsync", 2, 1);
	memory = alloc(4096); /* the second try, after the pool was trimmed, succeeds */
	assert_int_equal(fake->calls("cuMemPoolTrimTo"), 2);
	device_cuda.free(device, memory);
	device_cuda.free(device, half);
	fake->inject("cuMemsetD8Async", 1, 1);
	assert_int_equal(device_cuda.alloc(device, 64, &memory, error), KILN_EINTERNAL);
	assert_sentence("cannot clear");
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), 0);
}

static void opens_an_allocation_once_for_all_its_buffers(void **state)
{
	(void)state;
	struct device_memory *a = NULL, *b = NULL, *other = NULL;
	int fd = words_fd(8192, 500), second = words_fd(4096, 9000);
	struct device_import what = ipc_import(fd, 8192, 7, 0, 8192);
	assert_int_equal(device_cuda.import(device, &what, &a, error), KILN_OK);
	what = ipc_import(fd, 8192, 7, 400, 4);
	assert_int_equal(device_cuda.import(device, &what, &b, error), KILN_OK);
	what = ipc_import(second, 4096, 8, 4, 8);
	assert_int_equal(device_cuda.import(device, &what, &other, error), KILN_OK);
	assert_int_equal(fake->calls("cuIpcOpenMemHandle"), 2);
	assert_int_equal(first_word(a), 500);
	assert_int_equal(first_word(b), 600);
	assert_int_equal(first_word(other), 9001);
	device_cuda.free(device, a);
	assert_int_equal(fake->calls("cuIpcCloseMemHandle"), 0);
	assert_int_equal(first_word(b), 600);
	device_cuda.free(device, b);
	/* The owner may free its memory as soon as the last release is answered. */
	assert_int_equal(fake->calls("cuIpcCloseMemHandle"), 1);
	device_cuda.free(device, other);
	assert_int_equal(fake->live(FAKE_LIVE_IMPORTS), 0);
	close(fd);
	close(second);
}

static void refuses_handles_it_must_not_open(void **state)
{
	(void)state;
	struct device_memory *memory = NULL, *stale = NULL;
	int fd = words_fd(8192, 0);
	struct device_import what = ipc_import(fd, 8192, 7, 8000, 193);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("(193 bytes from byte 8000) ends beyond its allocation, which has 8192 bytes");
	what.offset = UINT64_MAX;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_int_equal(fake->calls("cuIpcOpenMemHandle"), 0);
	/* The driver's size counts more than the owner's. */
	fake->known_span(4096);
	what = ipc_import(fd, 8192, 7, 4000, 97);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("which has 4096 bytes as the driver knows it");
	assert_int_equal(fake->live(FAKE_LIVE_IMPORTS), 0);
	fake->known_span(0);
	/* The same handle for other memory: its address was freed and given again. */
	what = ipc_import(fd, 8192, 7, 0, 16);
	assert_int_equal(device_cuda.import(device, &what, &stale, error), KILN_OK);
	what = ipc_import(fd, 8192, 9, 0, 16);
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("free the lent buffer before the memory");
	device_cuda.free(device, stale);
	memset(what.handle, 0, sizeof(what.handle));
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("CUDA_ERROR_INVALID_VALUE");
	assert_null(memory);
	close(fd);
}

static void maps_descriptors(void **state)
{
	(void)state;
	struct device_memory *memory = NULL;
	uint64_t bytes = 2 * (uint64_t)FAKE_GRANULARITY;
	int fd = words_fd(bytes, 100);
	struct device_import what = {
		.kind = DEVICE_IMPORT_FD, .fd = fd, .span = bytes, .offset = bytes - 8, .bytes = 8};
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_OK);
	close(fd); /* the device keeps what it needs */
	assert_int_equal(first_word(memory), 100 + bytes / 4 - 2);
	assert_int_equal(fake->live(FAKE_LIVE_HANDLES), 0);
	assert_int_equal(fake->live(FAKE_LIVE_MAPPINGS), 1);
	device_cuda.free(device, memory);
	assert_int_equal(fake->live(FAKE_LIVE_MAPPINGS), 0);
	assert_int_equal(fake->live(FAKE_LIVE_RANGES), 0);
}

static void maps_as_far_as_the_granularity_asks(void **state)
{
	(void)state;
	struct device_memory *memory = NULL;
	int fd = words_fd(FAKE_GRANULARITY, 3);
	struct device_import what = {
		.kind = DEVICE_IMPORT_FD, .fd = fd, .span = 0, .offset = 4096, .bytes = 100};
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_OK);
	assert_int_equal(first_word(memory), 3 + 1024);
	device_cuda.free(device, memory);
	memory = NULL;
	what.bytes = FAKE_GRANULARITY; /* beyond the allocation by 4096 bytes */
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("is the allocation that large");
	what.span = 4000;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("ends beyond its allocation");
	what.span = 1ull << 40;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("an allocation of 1099511627776 bytes cannot be lent");
	what.offset = UINT64_MAX - 1;
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_null(memory);
	close(fd);
	assert_int_equal(fake->live(FAKE_LIVE_HANDLES), 0);
	assert_int_equal(fake->live(FAKE_LIVE_RANGES), 0);
}

/* CUDA_ERROR_UNKNOWN is how the driver refuses some descriptors; the context is well. */
static void a_wrong_descriptor_breaks_nothing(void **state)
{
	(void)state;
	struct device_memory *memory = NULL;
	struct device_done done;
	bool broken = true;
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	struct device_import what = {
		.kind = DEVICE_IMPORT_FD, .fd = pipes[0], .span = FAKE_GRANULARITY, .bytes = 8};
	assert_int_equal(device_cuda.import(device, &what, &memory, error), KILN_EINVAL);
	assert_sentence("cannot import the lent descriptor");
	assert_int_equal(device_cuda.poll(device, -1, 0, &done, 1, &broken), 0);
	assert_false(broken);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- Modules ---- */

static void says_why_an_object_is_refused(void **state)
{
	(void)state;
	struct device_module *module = NULL;
	static const char garbage[128] = "garbage";
	assert_int_equal(
		device_cuda.load(device, garbage, sizeof(garbage), FAKE_FILL, 0, &module, error),
		KILN_ENOTSUP);
	assert_sentence("(CUDA 13.0, sm_90) does not take the object of 128 bytes");
	assert_sentence("update the driver");
	assert_int_equal(device_cuda.load(device, image, 63, FAKE_FILL, 0, &module, error),
					 KILN_ECOMPILE);
	assert_int_equal(device_cuda.load(device, image, sizeof(image), "absent", 0, &module, error),
					 KILN_ECOMPILE);
	assert_sentence("has no kernel absent");
	fake->inject("cuModuleLoadData", 2, 1);
	assert_int_equal(device_cuda.load(device, image, sizeof(image), FAKE_FILL, 0, &module, error),
					 KILN_ENOMEM);
	assert_null(module);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1); /* the device's own */
}

static void asks_for_more_shared_memory_when_it_must(void **state)
{
	(void)state;
	struct device_module *module = NULL;
	assert_int_equal(
		device_cuda.load(device, image, sizeof(image), FAKE_FILL, 49152, &module, error), KILN_OK);
	assert_int_equal(fake->calls("cuFuncSetAttribute"), 0);
	device_cuda.unload(device, module);
	fake->static_shared(1024);
	assert_int_equal(
		device_cuda.load(device, image, sizeof(image), FAKE_FILL, 49152, &module, error), KILN_OK);
	assert_int_equal(fake->granted_shared(), 49152);
	device_cuda.unload(device, module);
	module = NULL;
	assert_int_equal(
		device_cuda.load(device, image, sizeof(image), FAKE_FILL, 232448, &module, error),
		KILN_ENOTSUP);
	assert_sentence("does not grant 232448 bytes");
	assert_null(module);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1); /* the device's own */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(names_the_library_it_cannot_load),
		OPENED(names_the_function_an_old_driver_lacks),
		OPENED(says_why_it_does_not_open),
		OPENED(says_what_the_gpu_is),
		OPENED(allocates_zeroed_memory_from_the_pool),
		OPENED(freed_memory_is_zero_for_the_next),
		OPENED(gives_empty_buffers),
		OPENED(says_how_much_memory_there_is),
		OPENED(opens_an_allocation_once_for_all_its_buffers),
		OPENED(refuses_handles_it_must_not_open),
		OPENED(maps_descriptors),
		OPENED(maps_as_far_as_the_granularity_asks),
		OPENED(a_wrong_descriptor_breaks_nothing),
		OPENED(says_why_an_object_is_refused),
		OPENED(asks_for_more_shared_memory_when_it_must),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
