/*
 * cpu_launch.h: launches on the cpu device, one after another on stream 1.
 */
#ifndef KILN_TESTS_UNIT_CPU_LAUNCH_H
#define KILN_TESTS_UNIT_CPU_LAUNCH_H

#include "cpu_scene.h"

static struct device_info info;
static uint64_t next_ticket;

static inline void open_device(void)
{
	if (device_cpu.open(NULL, &device, &info, error) != KILN_OK)
		fail_msg("%s", error);
}

static inline void copy(struct device_memory *memory, void *host, uint64_t bytes, bool to_device)
{
	uint64_t ticket = ++next_ticket;
	assert_int_equal(device_cpu.copy(device, 1, ticket, memory, 0, host, bytes, to_device, error),
					 KILN_OK);
	assert_int_equal(wait_done(ticket).status, KILN_OK);
}

struct shape {
	uint32_t grid[3], block[3], shared;
};

/* Operands are passed first, then 4-byte scalars. */
static inline int start(struct device_module *module, struct shape shape, int operand_count,
						struct device_memory *const *operands, int scalar_count,
						const uint32_t *scalars)
{
	struct kernel_arg args[KERNEL_MAX_ARGS];
	struct device_operand bound[KERNEL_MAX_OPERANDS];
	for (int i = 0; i < operand_count; i++) {
		bound[i] = (struct device_operand){operands[i], 0};
		args[i] = (struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = i};
	}
	for (int i = 0; i < scalar_count; i++)
		args[operand_count + i] =
			(struct kernel_arg){.kind = KERNEL_ARG_SCALAR, .bytes = 4, .value = scalars[i]};
	struct device_launch launch = {
		.module = module,
		.shared_bytes = shape.shared,
		.args = args,
		.arg_count = operand_count + scalar_count,
		.operands = bound,
		.operand_count = operand_count,
		.ticket = ++next_ticket,
		.stream = 1,
	};
	memcpy(launch.grid, shape.grid, sizeof(launch.grid));
	memcpy(launch.block, shape.block, sizeof(launch.block));
	return device_cpu.launch(device, &launch, error);
}

static inline void run(struct device_module *module, struct shape shape, int operand_count,
					   struct device_memory *const *operands, int scalar_count,
					   const uint32_t *scalars)
{
	if (start(module, shape, operand_count, operands, scalar_count, scalars) != KILN_OK)
		fail_msg("%s", error);
	struct device_done done = wait_done(next_ticket);
	if (done.status != KILN_OK)
		fail_msg("%s", done.error);
}

static inline int setup(void **state)
{
	(void)state;
	open_device();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	device_cpu.close(device);
	return 0;
}

#endif
