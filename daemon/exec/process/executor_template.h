/*
 * executor_template: a launch before it has buffers.  The owner of a template (a lane or a graph)
 * holds its kernel.
 */
#ifndef KILN_DAEMON_EXECUTOR_TEMPLATE_H
#define KILN_DAEMON_EXECUTOR_TEMPLATE_H

#include "executor.h"

/* An operand before its place in memory is known. */
struct exec_operand {
	uint64_t bytes; /* from its first element on */
	uint64_t period, width;
	uint32_t alignment, over; /* as in struct kernel_extent */
	bool written;
	char name[16];
};

struct exec_place {
	uint64_t buffer, offset;
	struct exec_buffer *found; /* set by exec_find_buffers(); NULL: no buffer has that number */
};

struct exec_template {
	bool copies;                /* no kernel: copy_bytes from operand 0 to operand 1 */
	struct exec_module *module; /* NULL if it copies, and never otherwise */
	uint32_t grid[3], block[3], shared_bytes;
	struct kernel_arg args[KERNEL_MAX_ARGS];
	int arg_count;
	struct exec_operand operands[KERNEL_MAX_OPERANDS];
	int operand_count;
	struct kernel_scratch scratch;
	struct kernel_report report;
	uint64_t copy_bytes;
	uint32_t granule; /* of checked kernels */
	char op[24];      /* the operator's name: sentences begin with it */
	/* For a lane: */
	uint64_t id, of;       /* the broker's numbers of this, and of the call that it belongs to */
	uint64_t leaving;      /* unbound, but parked entries below this may name it; 0: bound */
	uint64_t notice, left; /* the broker is told of every notice launches; 0: never */
};

/* Reads a launch from map, which is the request's root or a part of it.  Until a kernel's use is
 * counted, *out may name its module only within this request. */
int exec_template_read(struct launcher *launcher, struct exec_request *request,
					   const msgpack_object *map, struct exec_template *out,
					   struct exec_place places[KERNEL_MAX_OPERANDS]);

#endif
