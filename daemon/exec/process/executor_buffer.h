/*
 * executor_buffer: the buffers of the device, by the broker's numbers.
 */
#ifndef KILN_DAEMON_EXECUTOR_BUFFER_H
#define KILN_DAEMON_EXECUTOR_BUFFER_H

#include "executor_template.h"

struct exec_buffer {
	struct device_memory *memory;
	uint64_t bytes;
	uint32_t misaligned; /* of its first byte, from 256: alignment is checked against it */
	bool allocated;      /* here; else imported */
	int uses;            /* flights */
	uint64_t free_id;    /* the request that waits for the last use; 0: none */
	uint64_t owner;      /* the stream of the session that may name it */
	/* Which allocation of another process it lies in (0: none), and where: two buffers may share
	 * memory. */
	uint64_t origin, at;
	struct exec_task task;
};

/* Where a flight or a graph notes the buffers that it holds. */
struct exec_held {
	struct exec_buffer **buffers;
	int *count;
};

void exec_hold_buffer(struct exec_held held, struct exec_buffer *buffer);
/* Ends one use; the last one frees a buffer that leaves, and answers the request. */
void exec_release_buffer(struct exec *executor, struct exec_buffer *buffer);
/* Fills in found. */
void exec_find_buffers(const struct exec *executor, struct exec_place *places, int count);
/* Binds a template to its places: each within its buffer, which owner may name (0: anybody may),
 * and aligned.  held gets the buffers bound so far, also when this fails. */
int exec_bind(const struct exec_template *what, const struct exec_place *places, uint64_t owner,
			  struct exec_held held, struct device_operand *operands, struct device_launch *launch,
			  char error[KERNEL_ERROR_MAX]);

#endif
