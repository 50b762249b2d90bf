/*
 * cuda_scene: what the tests of the cuda device share: a device over the fake driver, opened before
 * every test and looked at after it, and short words for asking things of it.
 */
#ifndef KILN_TESTS_CUDA_SCENE_H
#define KILN_TESTS_CUDA_SCENE_H

#include "daemon/exec/device.h"
#include "daemon/base/util.h"
#include "fake_cuda.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include <dlfcn.h>

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

static inline int setup_all(void **state)
{
	(void)state;
	setenv("KILN_LIBCUDA", KILN_FAKE_CUDA_LIBRARY, 1);
	void *library = dlopen(KILN_FAKE_CUDA_LIBRARY, RTLD_NOW);
	fake = library ? dlsym(library, "fake_cuda_control") : NULL;
	return fake ? 0 : -1;
}

static inline int setup(void **state)
{
	(void)state;
	fake->reset();
	error[0] = 0;
	return device_cuda.open(NULL, &device, &info, error);
}

/* Every test leaves nothing behind at the driver. */
static inline int teardown(void **state)
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

static inline struct device_memory *alloc(uint64_t bytes)
{
	struct device_memory *memory = NULL;
	assert_int_equal(device_cuda.alloc(device, bytes, &memory, error), KILN_OK);
	return memory;
}

static inline struct device_module *load(const char *entry)
{
	struct device_module *module = NULL;
	assert_int_equal(device_cuda.load(device, image, sizeof(image), entry, 0, &module, error),
					 KILN_OK);
	return module;
}

/* Waits for the next end, at most ten seconds. */
static inline struct device_done next_done(void)
{
	struct device_done done;
	bool broken;
	memset(&done, 0, sizeof(done));
	assert_int_equal(device_cuda.poll(device, -1, 10000, &done, 1, &broken), 1);
	assert_false(broken);
	return done;
}

static inline void expect_done(uint64_t ticket)
{
	struct device_done done = next_done();
	assert_int_equal(done.ticket, ticket);
	assert_string_equal(done.error, "");
	assert_int_equal(done.status, KILN_OK);
	assert_in_range(done.micros, 250, 251);
}

static inline void transfer(struct device_memory *memory, uint64_t offset, void *host,
							uint64_t bytes, bool to_device)
{
	assert_int_equal(device_cuda.copy(device, 1, 77, memory, offset, host, bytes, to_device, error),
					 KILN_OK);
	expect_done(77);
}

/* Launches the kernel on a part; `how` has what is not of the kernel: stream, ticket, words. */
static inline int launch_fill_on(struct device *part, struct device_module *fill,
								 struct device_operand where, uint32_t value,
								 struct device_launch how)
{
	const struct kernel_arg args[] = {{KERNEL_ARG_POINTER, 0, 0, 0},
									  {KERNEL_ARG_SCALAR, 0, 8, value},
									  {KERNEL_ARG_SCALAR, 0, 4, 4}};
	how.module = fill;
	how.grid[0] = how.grid[1] = how.grid[2] = how.block[1] = how.block[2] = 1;
	how.block[0] = 32;
	how.args = args;
	how.arg_count = 3;
	how.operands = &where;
	how.operand_count = 1;
	return device_cuda.launch(part, &how, error);
}

static inline int launch_fill(struct device_module *fill, struct device_memory *memory,
							  uint32_t value, uint64_t stream, uint64_t ticket, uint32_t delay_ms)
{
	const struct device_launch how = {.delay_ms = delay_ms, .ticket = ticket, .stream = stream};
	return launch_fill_on(device, fill, (struct device_operand){memory, 0}, value, how);
}

static inline int launch_fault(struct device_module *fault, uint64_t stream, uint64_t ticket)
{
	const struct device_launch launch = {
		.module = fault, .grid = {1, 1, 1}, .block = {1, 1, 1}, .ticket = ticket, .stream = stream};
	return device_cuda.launch(device, &launch, error);
}

static inline uint32_t first_word(struct device_memory *memory)
{
	uint32_t word = 0;
	transfer(memory, 0, &word, sizeof(word), false);
	return word;
}

#define OPENED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
#endif
