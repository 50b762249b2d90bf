/*
 * cpu_scene.h: the cpu device as its tests use it: one device, kernels of cpu_kernels.h loaded on
 * it, memory, and ends that are waited for.
 */
#ifndef KILN_TESTS_UNIT_CPU_SCENE_H
#define KILN_TESTS_UNIT_CPU_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu_kernels.h"
#include "daemon/exec/device.h"

#include <stdio.h>
#include <string.h>

static struct device *device;
static char error[KERNEL_ERROR_MAX];

static inline struct device_module *load(const char *instantiation)
{
	struct compile_result result;
	struct device_module *module;
	cpu_kernel_compile(cpu_kernel_text(instantiation), instantiation, &result);
	if (result.status != KILN_OK)
		fail_msg("%s: %s\n%s", instantiation, result.error, result.log ? result.log : "");
	if (device_cpu.load(device, result.object, result.object_bytes, result.entry, 0, &module,
						error) != KILN_OK)
		fail_msg("%s", error);
	compile_result_free(&result);
	return module;
}

static inline struct device_memory *alloc(uint64_t bytes)
{
	struct device_memory *memory;
	if (device_cpu.alloc(device, bytes, &memory, error) != KILN_OK)
		fail_msg("%s", error);
	return memory;
}

/* Waits up to 20 s for one end. */
static inline struct device_done wait_done(uint64_t ticket)
{
	struct device_done done = {0};
	bool broken = false;
	int n = device_cpu.poll(device, -1, 20000, &done, 1, &broken);
	assert_int_equal(n, 1);
	assert_int_equal(done.ticket, ticket);
	return done;
}

/* A copy on a stream of its own. */
static inline void transfer(struct device_memory *memory, void *host, uint64_t bytes,
							bool to_device)
{
	assert_int_equal(device_cpu.copy(device, 99, 9000, memory, 0, host, bytes, to_device, error),
					 KILN_OK);
	assert_int_equal(wait_done(9000).status, KILN_OK);
}

#endif
