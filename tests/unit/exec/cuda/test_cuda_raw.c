/*
 * The cuda device and users' kernels, over the fake driver: values of any size, launches that do
 * not fit the kernel, and memory of its own that a second process uses.  The second process is a
 * second device here.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	printf("SKIP: built without CUDA headers; there is no driver to stand in for\n");
	return 77;
}

#else

#include <fcntl.h>

/* ---- Launches ---- */

static struct kernel_arg value_of(const void *data, uint32_t bytes)
{
	return (struct kernel_arg){.kind = KERNEL_ARG_BYTES, .bytes = bytes, .data = data};
}

static struct device_launch launch_of(struct device_module *module, const struct kernel_arg *args,
									  int count, const struct device_operand *operand)
{
	return (struct device_launch){.module = module,
								  .grid = {1, 1, 1},
								  .block = {32, 1, 1},
								  .args = args,
								  .arg_count = count,
								  .operands = operand,
								  .operand_count = 1,
								  .ticket = 1,
								  .stream = 1};
}

/* The caller's copies are gone when the kernel starts. */
static void values_travel_with_the_launch(void **state)
{
	(void)state;
	struct device_module *fill = load(FAKE_FILL);
	struct device_memory *memory = alloc(16);
	const struct device_operand operand = {memory, 0};
	uint64_t value = 7;
	uint32_t count = 3, words[4];
	struct kernel_arg args[] = {
		{.kind = KERNEL_ARG_POINTER}, value_of(&value, 8), value_of(&count, 4)};
	struct device_launch launch = launch_of(fill, args, 3, &operand);
	launch.delay_ms = 20;
	assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
	value = 8;
	count = 4;
	expect_done(1);
	transfer(memory, 0, words, sizeof(words), false);
	assert_int_equal(words[2], 7);
	assert_int_equal(words[3], 0);
	device_cuda.free(device, memory);
	device_cuda.unload(device, fill);
}

static void refused(const struct device_launch *launch, const char *sentence)
{
	assert_int_equal(device_cuda.launch(device, launch, error), KILN_EINVAL);
	assert_sentence(sentence);
}

static void launches_fit_the_kernel(void **state)
{
	(void)state;
	fake->thread_limit(256);
	struct device_module *fill = load(FAKE_FILL);
	struct device_kernel kernel;
	device_cuda.describe(fill, &kernel);
	assert_int_equal(kernel.param_count, 3);
	assert_int_equal(kernel.params[1], 8);
	assert_int_equal(kernel.params[2], 4);
	struct device_memory *memory = alloc(16);
	const struct device_operand operand = {memory, 0};
	uint64_t value = 7;
	uint32_t count = 1;
	struct kernel_arg args[] = {
		{.kind = KERNEL_ARG_POINTER}, value_of(&value, 8), value_of(&count, 4)};
	struct device_launch launch = launch_of(fill, args, 2, &operand);
	refused(&launch, "the kernel takes 3 arguments and was given 2");
	launch.arg_count = 3;
	args[2] = value_of(&value, 8);
	refused(&launch, "argument 2 of the kernel has 4 bytes and was given 8");
	args[2] = value_of(&count, 4);
	launch.block[1] = 9;
	refused(&launch, "a block of 32x9x1 threads is more than the 256 that the kernel can have");
	launch.block[1] = 8;
	launch.shared_bytes = info.limits.shared_optin + 1;
	refused(&launch, "of dynamic shared memory and the kernel's own 0 are more than the 232448");
	/* Beyond the default it is asked for, once. */
	int before = fake->calls("cuFuncSetAttribute");
	launch.shared_bytes = 100000;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(device_cuda.launch(device, &launch, error), KILN_OK);
		expect_done(1);
	}
	assert_int_equal(fake->granted_shared(), 100000);
	assert_int_equal(fake->calls("cuFuncSetAttribute"), before + 1);
	device_cuda.free(device, memory);
	device_cuda.unload(device, fill);
}

/* ---- Memory of two processes ---- */

static struct device_memory *import_into(struct device *second, const struct device_shared *shared,
										 uint64_t bytes)
{
	const struct device_import what = {.kind = DEVICE_IMPORT_FD,
									   .fd = shared->fd,
									   .span = shared->span,
									   .offset = shared->offset,
									   .bytes = bytes};
	struct device_memory *memory = NULL;
	assert_int_equal(device_cuda.import(second, &what, &memory, error), KILN_OK);
	return memory;
}

static void put_word(struct device_memory *memory, uint32_t word)
{
	transfer(memory, 0, &word, sizeof(word), true);
}

static uint32_t word_in(struct device *second, struct device_memory *memory)
{
	struct device *first = device;
	device = second;
	uint32_t word = first_word(memory);
	device = first;
	return word;
}

static void a_second_process_uses_the_same_memory(void **state)
{
	(void)state;
	struct device *second = NULL;
	struct device_info other;
	struct device_shared shared = {.fd = -1};
	assert_int_equal(device_cuda.open(NULL, &second, &other, error), KILN_OK);
	struct device_memory *memory = alloc(5000);
	put_word(memory, 11);
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	assert_int_equal(device_cuda.share(device, memory, &shared, error), KILN_OK);
	/* It moved: what the pool had is given back, and what was in it is there. */
	assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks - 1);
	assert_int_equal(fake->live(FAKE_LIVE_HANDLES), 0);
	assert_int_equal(shared.span, FAKE_GRANULARITY);
	assert_true(fcntl(shared.fd, F_GETFD) >= 0);
	assert_int_equal(first_word(memory), 11);
	struct device_memory *twin = import_into(second, &shared, 5000);
	assert_int_equal(word_in(second, twin), 11);
	put_word(memory, 12);
	assert_int_equal(word_in(second, twin), 12);
	/* The descriptor alone holds it, when the first process has gone. */
	device_cuda.free(second, twin);
	device_cuda.free(device, memory);
	assert_int_equal(fake->live(FAKE_LIVE_MAPPINGS), 0);
	twin = import_into(second, &shared, 5000);
	assert_int_equal(word_in(second, twin), 12);
	device_cuda.free(second, twin);
	close(shared.fd);
	device_cuda.close(second);
}

/* Whatever the driver refuses, the buffer is as it was. */
static void what_cannot_be_shared_stays(void **state)
{
	(void)state;
	static const char *const functions[] = {"cuMemGetAllocationGranularity",
											"cuMemCreate",
											"cuMemAddressReserve",
											"cuMemMap",
											"cuMemSetAccess",
											"cuMemExportToShareableHandle",
											"cuMemcpyDtoDAsync"};
	struct device_memory *memory = alloc(5000);
	struct device_shared shared = {.fd = -1};
	put_word(memory, 11);
	int blocks = fake->live(FAKE_LIVE_BLOCKS);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		fake->inject(functions[i], 801, 1);
		assert_true(device_cuda.share(device, memory, &shared, error) < 0);
		assert_sentence("801");
		assert_int_equal(shared.fd, -1);
		assert_int_equal(fake->live(FAKE_LIVE_BLOCKS), blocks);
		assert_int_equal(fake->live(FAKE_LIVE_HANDLES), 0);
		assert_int_equal(fake->live(FAKE_LIVE_MAPPINGS), 0);
		assert_int_equal(fake->live(FAKE_LIVE_RANGES), 0);
		assert_int_equal(first_word(memory), 11);
	}
	/* Once is enough: the second time it is not the device's own any more. */
	assert_int_equal(device_cuda.share(device, memory, &shared, error), KILN_OK);
	close(shared.fd);
	assert_int_equal(device_cuda.share(device, memory, &shared, error), KILN_EINVAL);
	device_cuda.free(device, memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPENED(values_travel_with_the_launch),
		OPENED(launches_fit_the_kernel),
		OPENED(a_second_process_uses_the_same_memory),
		OPENED(what_cannot_be_shared_stays),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
