/*
 * The cuda device over a driver whose GPU is this process's memory (fake_cuda.c): what it asks the
 * driver for, in which order, and what it says when the driver refuses.
 */
#include "daemon/exec/device.h"
#include "daemon/util/util.h"
#include "fake_cuda.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

static void refuses_without_headers(void **state)
{
	(void)state;
	char error[KERNEL_ERROR_MAX];
	struct device *device = NULL;
	struct device_info info;
	assert_int_equal(device_cuda.open(0, &device, &info, error), KILN_ENOTSUP);
	assert_non_null(strstr(error, "built without CUDA headers"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_without_headers)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

static const struct fake_cuda_control *fake;
static struct device *device;
static struct device_info info;
static char error[KERNEL_ERROR_MAX];
static const char image[128] = "FAKE";

#define assert_sentence(part)                                                 \
	do {                                                                      \
		if (!strstr(error, part))                                             \
			fail_msg("the sentence \"%s\" does not say \"%s\"", error, part); \
	} while (0)

static int setup_all(void **state)
{
	(void)state;
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	void *library = dlopen(KILN_FAKE_CUDA_LIBRARY, RTLD_NOW);
	fake = library ? dlsym(library, "fake_cuda_control") : NULL;
	return fake ? 0 : -1;
}

static int setup(void **state)
{
	(void)state;
	fake->reset();
	error[0] = 0;
	return device_cuda.open(0, &device, &info, error);
}

/* Every test leaves nothing behind at the driver. */
static int teardown(void **state)
{
	(void)state;
	device_cuda.close(device);
	device = NULL;
	int left = 0;
	for (int kind = 0; kind < FAKE_LIVE_COUNT; kind++) {
		if (fake->live(kind) != 0)
			print_error("%d objects of kind %d are left\n", fake->live(kind), kind);
		left += fake->live(kind) != 0;
	}
	fake->reset();
	return left;
}

/* ---- Helpers ---- */

static struct device_memory *alloc(uint64_t bytes)
{
	struct device_memory *memory = NULL;
	assert_int_equal(device_cuda.alloc(device, bytes, &memory, error), KILN_OK);
	return memory;
}

static struct device_module *load(const char *entry)
{
	struct device_module *module = NULL;
	assert_int_equal(device_cuda.load(device, image, sizeof image, entry, 0, &module, error),
					 KILN_OK);
	return module;
}

/* Waits for the next end, at most ten seconds. */
static struct device_done next_done(void)
{
	struct device_done done;
	bool broken;
	memset(&done, 0, sizeof done);
	assert_int_equal(device_cuda.poll(device, -1, 10000, &done, 1, &broken), 1);
	assert_false(broken);
	return done;
}

static void expect_done(uint64_t ticket)
{
	struct device_done done = next_done();
	assert_int_equal(done.ticket, ticket);
	assert_string_equal(done.error, "");
	assert_int_equal(done.status, KILN_OK);
	assert_in_range(done.micros, 250, 251);
}

static void transfer(struct device_memory *memory, uint64_t offset, void *host, uint64_t bytes,
					 bool to_device)
{
	assert_int_equal(device_cuda.copy(device, 1, 77, memory, offset, host, bytes, to_device, error),
					 KILN_OK);
	expect_done(77);
}

static int launch_fill(struct device_module *fill, struct device_memory *memory, uint32_t value,
					   uint64_t stream, uint64_t ticket, uint32_t delay_ms)
{
	const struct kernel_arg args[] = {{KERNEL_ARG_POINTER, 0, 0, 0},
									  {KERNEL_ARG_SCALAR, 0, 8, value},
									  {KERNEL_ARG_SCALAR, 0, 4, 4}};
	const struct device_operand operands[] = {{memory, 0}};
	const struct device_launch launch = {.module = fill,
										 .grid = {1, 1, 1},
										 .block = {32, 1, 1},
										 .args = args,
										 .arg_count = 3,
										 .operands = operands,
										 .operand_count = 1,
										 .delay_ms = delay_ms,
										 .ticket = ticket,
										 .stream = stream};
	return device_cuda.launch(device, &launch, error);
}

static int launch_fault(struct device_module *fault, uint64_t stream, uint64_t ticket)
{
	const struct device_launch launch = {
		.module = fault, .grid = {1, 1, 1}, .block = {1, 1, 1}, .ticket = ticket, .stream = stream};
	return device_cuda.launch(device, &launch, error);
}

static uint32_t first_word(struct device_memory *memory)
{
	uint32_t word = 0;
	transfer(memory, 0, &word, sizeof word, false);
	return word;
}

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
	memcpy(what.handle, &handle, sizeof handle);
	return what;
}

/* ---- Opening ---- */

static void names_the_library_it_cannot_load(void **state)
{
	(void)state;
	struct device *other = NULL;
	setenv("KILN_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	int status = device_cuda.open(0, &other, &info, error);
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
	int status = device_cuda.open(0, &other, &info, error);
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	assert_int_equal(status, KILN_ENOTSUP);
	assert_sentence("has no function cuInit");
}

static void says_why_it_does_not_open(void **state)
{
	(void)state;
	struct device *other = NULL;
	fake->inject("cuInit", 100, 1);
	assert_int_equal(device_cuda.open(0, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("sees no GPU");
	fake->inject("cuInit", 803, 1);
	assert_int_equal(device_cuda.open(0, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("CUDA_ERROR_FAKE_803");
	assert_int_equal(device_cuda.open(1, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("no device cuda:1: this machine shows 1 GPU");
	fake->inject("cuDevicePrimaryCtxRetain", 2, 1);
	assert_int_equal(device_cuda.open(0, &other, &info, error), KILN_ENOMEM);
	assert_sentence("cuda:0 cannot be opened: CUDA_ERROR_OUT_OF_MEMORY 2");
	fake->inject("cuMemPoolCreate", 801, 1);
	assert_int_equal(device_cuda.open(0, &other, &info, error), KILN_ENOTSUP);
	assert_sentence("no memory pools");
	fake->inject("cuInit", 12345, 1);
	assert_int_equal(device_cuda.open(0, &other, &info, error), KILN_ENOTSUP);
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
	assert_int_equal(info.device_count, 1);
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
	struct device_memory *memory = alloc(sizeof bytes);
	memset(bytes, 0xee, sizeof bytes);
	memset(expected, 0, sizeof expected);
	transfer(memory, 0, bytes, sizeof bytes, false);
	assert_memory_equal(bytes, expected, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++)
		expected[i] = (unsigned char)(i * 7);
	transfer(memory, 100, expected + 100, 900, true);
	transfer(memory, 0, bytes, sizeof bytes, false);
	memset(expected, 0, 100);
	assert_memory_equal(bytes, expected, sizeof bytes);
	device_cuda.free(device, memory);
	device_cuda.free(device, NULL);
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), 0);
	assert_int_equal(fake->calls("cuMemFree"), 0);
	assert_int_equal(fake->calls("cuMemFreeAsync"), 1);
}

static void gives_empty_buffers(void **state)
{
	(void)state;
	char nothing = 1;
	struct device_memory *memory = alloc(0);
	transfer(memory, 0, &nothing, 0, false);
	assert_int_equal(device_cuda.copy(device, 1, 2, memory, 0, &nothing, 1, false, error),
					 KILN_EINVAL);
	assert_sentence("1 bytes from byte 0 are beyond a buffer of 0 bytes");
	device_cuda.free(device, memory);
	assert_int_equal(fake->calls("cuMemAllocFromPoolAsync"), 0);
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
	/* What the driver knows counts more than what the owner says. */
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
	memset(what.handle, 0, sizeof what.handle);
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
		device_cuda.load(device, garbage, sizeof garbage, FAKE_FILL, 0, &module, error),
		KILN_ENOTSUP);
	assert_sentence("(CUDA 13.0, sm_90) does not take the object of 128 bytes");
	assert_sentence("update the driver");
	assert_int_equal(device_cuda.load(device, image, 63, FAKE_FILL, 0, &module, error),
					 KILN_EINVAL);
	assert_int_equal(device_cuda.load(device, image, sizeof image, "absent", 0, &module, error),
					 KILN_EINTERNAL);
	assert_sentence("has no kernel absent");
	fake->inject("cuModuleLoadData", 2, 1);
	assert_int_equal(device_cuda.load(device, image, sizeof image, FAKE_FILL, 0, &module, error),
					 KILN_ENOMEM);
	assert_null(module);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
}

static void asks_for_more_shared_memory_when_it_must(void **state)
{
	(void)state;
	struct device_module *module = NULL;
	assert_int_equal(
		device_cuda.load(device, image, sizeof image, FAKE_FILL, 49152, &module, error), KILN_OK);
	assert_int_equal(fake->calls("cuFuncSetAttribute"), 0);
	device_cuda.unload(device, module);
	fake->static_shared(1024);
	assert_int_equal(
		device_cuda.load(device, image, sizeof image, FAKE_FILL, 49152, &module, error), KILN_OK);
	assert_int_equal(fake->granted_shared(), 49152);
	device_cuda.unload(device, module);
	module = NULL;
	assert_int_equal(
		device_cuda.load(device, image, sizeof image, FAKE_FILL, 232448, &module, error),
		KILN_ENOTSUP);
	assert_sentence("does not grant 232448 bytes");
	assert_null(module);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
}

/* ---- Work ---- */

static void binds_operands_and_scalars(void **state)
{
	(void)state;
	uint32_t words[8] = {10, 20, 30, 40, 50, 60, 70, 80}, result[8] = {0};
	struct device_memory *memory = alloc(sizeof words);
	struct device_module *add = load(FAKE_ADD_ONE);
	transfer(memory, 0, words, sizeof words, true);
	/* y = the last four words, x = words 1 to 4, the count carries rubbish above its 4 bytes */
	const struct kernel_arg args[] = {{KERNEL_ARG_POINTER, 1, 0, 0},
									  {KERNEL_ARG_POINTER, 0, 0, 0},
									  {KERNEL_ARG_SCALAR, 0, 4, 0xffff000000000003ull}};
	const struct device_operand operands[] = {{memory, 20}, {memory, 4}};
	const struct device_launch launch = {.module = add,
										 .grid = {1, 1, 1},
										 .block = {3, 1, 1},
										 .args = args,
										 .arg_count = 3,
										 .operands = operands,
										 .operand_count = 2,
										 .ticket = 5,
										 .stream = 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	expect_done(5);
	transfer(memory, 0, result, sizeof result, false);
	const uint32_t expected[8] = {10, 20, 30, 40, 50, 21, 31, 41};
	assert_memory_equal(result, expected, sizeof expected);
	device_cuda.unload(device, add);
	device_cuda.free(device, memory);
}

static void copies_between_operands(void **state)
{
	(void)state;
	char text[16] = "0123456789abcde", result[16] = "";
	struct device_memory *a = alloc(16), *b = alloc(16);
	transfer(a, 0, text, 16, true);
	struct device_operand operands[] = {{a, 4}, {b, 8}};
	struct device_launch launch = {
		.operands = operands, .operand_count = 2, .copy_bytes = 8, .ticket = 3, .stream = 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	expect_done(3);
	transfer(b, 0, result, 16, false);
	assert_memory_equal(result,
						"\0\0\0\0\0\0\0\0"
						"456789ab",
						16);
	launch.copy_bytes = 9;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("operand 1 needs 9 bytes from byte 8 of a buffer of 16 bytes");
	operands[0].offset = 17;
	launch.copy_bytes = 0;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	launch.operand_count = 1;
	operands[0].offset = 0;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("names operand 1 and has 1");
	device_cuda.free(device, a);
	device_cuda.free(device, b);
}

static void refuses_launches_that_do_not_fit(void **state)
{
	(void)state;
	struct device_module *fill = load(FAKE_FILL);
	struct kernel_arg args[KERNEL_MAX_ARGS + 1] = {{KERNEL_ARG_POINTER, 0, 0, 0}};
	struct device_launch launch = {.module = fill,
								   .grid = {1, 1, 1},
								   .block = {1, 1, 1},
								   .args = args,
								   .arg_count = KERNEL_MAX_ARGS + 1};
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("has 33 arguments");
	launch.arg_count = 1;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINVAL);
	assert_sentence("names operand 0 and has 0");
	args[0].kind = args[1].kind = args[2].kind = KERNEL_ARG_SCALAR;
	launch.arg_count = 3;
	launch.block[0] = 1025;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_EINTERNAL);
	assert_sentence("does not launch fill with grid 1x1x1, block 1025x1x1");
	fake->inject("cuLaunchKernel", 701, 1);
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_ENOTSUP);
	/* Nothing of this was queued. */
	struct device_done done;
	bool broken;
	assert_int_equal(device_cuda.poll(device, -1, 0, &done, 1, &broken), 0);
	device_cuda.unload(device, fill);
}

static void waits_only_as_long_as_it_may(void **state)
{
	(void)state;
	struct device_done done;
	bool broken;
	int wake[2];
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(pipe(wake), 0);
	fake->hold(1);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 40, 0), KILN_OK);
	assert_int_equal(device_cuda.poll(device, wake[0], 0, &done, 1, &broken), 0);
	uint64_t before = util_now_us();
	assert_int_equal(device_cuda.poll(device, wake[0], 5, &done, 1, &broken), 0);
	assert_in_range(util_now_us() - before, 5000, 5000000);
	assert_int_equal(write(wake[1], "x", 1), 1);
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 0);
	fake->hold(0);
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 1);
	assert_int_equal(done.ticket, 40);
	/* Idle: only the descriptor wakes it. */
	assert_int_equal(device_cuda.poll(device, wake[0], -1, &done, 1, &broken), 0);
	close(wake[0]);
	close(wake[1]);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void keeps_the_order_of_a_stream(void **state)
{
	(void)state;
	enum { COUNT = 500 };
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	struct device_done done[7];
	uint64_t next[2] = {0, 1};
	bool broken;
	for (uint32_t i = 0; i < COUNT; i++)
		assert_int_equal(launch_fill(fill, memory, i, i % 2, i, 0), KILN_OK);
	uint64_t micros = 0;
	for (int got = 0; got < COUNT;) {
		int count = device_cuda.poll(device, -1, 10000, done, 7, &broken);
		assert_in_range(count, 1, 7);
		for (int i = 0; i < count; i++) {
			uint64_t stream = done[i].ticket % 2;
			assert_int_equal(done[i].ticket, next[stream]);
			next[stream] += 2;
			micros += done[i].micros;
		}
		got += count;
	}
	/* 250.5 us each: what is rounded off one answer is in the next. */
	assert_in_range(micros, 250 * COUNT + COUNT / 2 - 1, 250 * COUNT + COUNT / 2 + 1);
	int events = fake->calls("cuEventCreate");
	assert_int_equal(launch_fill(fill, memory, 99, 0, 9999, 0), KILN_OK);
	expect_done(9999);
	assert_int_equal(fake->calls("cuEventCreate"), events);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 3); /* two, and the one for memory */
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void ends_a_stream_after_its_work(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(launch_fill(fill, memory, 1, 8, 1, 0), KILN_OK);
	device_cuda.stream_end(device, 8);
	device_cuda.stream_end(device, 1234);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 2);
	expect_done(1);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 1);
	assert_int_equal(first_word(memory), 1);
	device_cuda.stream_end(device, 1);
	assert_int_equal(fake->live(FAKE_LIVE_STREAMS), 1);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

static void a_delay_holds_its_stream_alone(void **state)
{
	(void)state;
	uint32_t word = 0;
	struct device_memory *memory = alloc(16), *other = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	uint64_t before = util_now_us();
	assert_int_equal(launch_fill(fill, memory, 11, 1, 1, 30), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 12, 1, 2, 0), KILN_OK);
	assert_int_equal(device_cuda.copy(device, 1, 3, memory, 0, &word, 4, false, error), KILN_OK);
	assert_int_equal(launch_fill(fill, other, 13, 2, 4, 0), KILN_OK);
	expect_done(4);
	expect_done(1);
	assert_true(util_now_us() - before >= 30000);
	expect_done(2);
	expect_done(3);
	assert_int_equal(word, 12);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
	device_cuda.free(device, other);
}

static void work_that_fails_when_its_time_comes_is_reported(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL);
	assert_int_equal(launch_fill(fill, memory, 11, 1, 1, 1), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 12, 1, 2, 0), KILN_OK);
	fake->inject("cuLaunchKernel", 1, 1);
	struct device_done done = next_done();
	assert_int_equal(done.ticket, 1);
	assert_int_equal(done.status, KILN_EINTERNAL);
	assert_non_null(strstr(done.error, "does not launch fill"));
	expect_done(2);
	assert_int_equal(first_word(memory), 12);
	device_cuda.unload(device, fill);
	device_cuda.free(device, memory);
}

/* ---- Failure ---- */

static void a_fault_ends_everything_and_names_its_call(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL), *fault = load(FAKE_FAULT);
	struct device_done done[8];
	bool broken = false;
	assert_int_equal(launch_fault(fault, 1, 21), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 22, 0), KILN_OK);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 23, 60000), KILN_OK);
	/* The ends do not fit into one report: broken is said with the last. */
	assert_int_equal(device_cuda.poll(device, -1, 10000, done, 2, &broken), 2);
	assert_false(broken);
	assert_int_equal(device_cuda.poll(device, -1, 10000, done + 2, 6, &broken), 1);
	assert_true(broken);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(done[i].ticket, 21 + i);
		assert_int_equal(done[i].status, KILN_EDEVICE);
		assert_non_null(strstr(done[i].error, "CUDA_ERROR_ILLEGAL_ADDRESS 700"));
		assert_non_null(strstr(done[i].error, "call 21 (fault)"));
	}
	assert_string_equal(done[0].error,
						"cuda:0 failed in call 21 (fault): CUDA_ERROR_ILLEGAL_ADDRESS 700 (an "
						"illegal memory access was encountered)");
	/* Nothing works any more, and nothing waits. */
	assert_int_equal(launch_fill(fill, memory, 1, 1, 24, 0), KILN_EDEVICE);
	assert_int_equal(device_cuda.poll(device, -1, -1, done, 8, &broken), 0);
	assert_true(broken);
	device_cuda.unload(device, fill);
	device_cuda.unload(device, fault);
	device_cuda.free(device, memory);
	device_cuda.close(device);
	setup(NULL); /* what the broken context had is gone with its process */
}

static void a_fault_among_streams_names_all_that_ran(void **state)
{
	(void)state;
	struct device_memory *memory = alloc(16);
	struct device_module *fill = load(FAKE_FILL), *fault = load(FAKE_FAULT);
	struct device_done done[8];
	bool broken = false;
	fake->hold(1);
	assert_int_equal(launch_fill(fill, memory, 1, 1, 31, 0), KILN_OK);
	assert_int_equal(launch_fault(fault, 2, 32), KILN_OK);
	fake->hold(0);
	assert_int_equal(device_cuda.poll(device, -1, 10000, done, 8, &broken), 2);
	assert_true(broken);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(done[i].status, KILN_EDEVICE);
		assert_non_null(strstr(done[i].error, "31 (fill)"));
		assert_non_null(strstr(done[i].error, "32 (fault)"));
	}
	device_cuda.unload(device, fill);
	device_cuda.unload(device, fault);
	device_cuda.free(device, memory);
	device_cuda.close(device);
	setup(NULL);
}

int main(void)
{
#define OPENED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		OPENED(names_the_library_it_cannot_load),
		OPENED(names_the_function_an_old_driver_lacks),
		OPENED(says_why_it_does_not_open),
		OPENED(says_what_the_gpu_is),
		OPENED(allocates_zeroed_memory_from_the_pool),
		OPENED(gives_empty_buffers),
		OPENED(says_how_much_memory_there_is),
		OPENED(opens_an_allocation_once_for_all_its_buffers),
		OPENED(refuses_handles_it_must_not_open),
		OPENED(maps_descriptors),
		OPENED(maps_as_far_as_the_granularity_asks),
		OPENED(a_wrong_descriptor_breaks_nothing),
		OPENED(says_why_an_object_is_refused),
		OPENED(asks_for_more_shared_memory_when_it_must),
		OPENED(binds_operands_and_scalars),
		OPENED(copies_between_operands),
		OPENED(refuses_launches_that_do_not_fit),
		OPENED(waits_only_as_long_as_it_may),
		OPENED(keeps_the_order_of_a_stream),
		OPENED(ends_a_stream_after_its_work),
		OPENED(a_delay_holds_its_stream_alone),
		OPENED(work_that_fails_when_its_time_comes_is_reported),
		OPENED(a_fault_ends_everything_and_names_its_call),
		OPENED(a_fault_among_streams_names_all_that_ran),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
