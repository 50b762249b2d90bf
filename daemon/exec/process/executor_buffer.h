/*
 * executor_buffer: the buffers of the device, by the broker's numbers.
 */
#ifndef KILN_DAEMON_EXECUTOR_BUFFER_H
#define KILN_DAEMON_EXECUTOR_BUFFER_H

#include "executor_template.h"

enum exec_buffer_state { BUFFER_NAMED, BUFFER_LEAVING, BUFFER_FREEING };

/* executor_buffer.c draws its states, and frees it. */
struct exec_buffer {
	enum exec_buffer_state state;
	struct device_memory *memory;
	uint64_t bytes;
	uint32_t misaligned; /* of its first byte, from 256: alignment is checked against it */
	bool allocated;      /* here; else imported */
	_Atomic int uses;    /* by flights and graphs; by exec_free() while it runs */
	uint64_t free_id;    /* from LEAVING on: the request free, which the end answers */
	uint64_t owner;      /* the stream of the session that may name it */
	/* It lies at `at` of this allocation of another process (0: of none): two buffers may share
	 * memory. */
	uint64_t origin, at;
	struct exec_task task;
};

/* The list in which a flight or a graph notes the buffers that it holds. */
struct exec_held {
	struct exec_buffer **buffers;
	int *count;
};

/* ---- The requests ---- */
exec_handler exec_alloc, exec_import, exec_share;
/* Takes the name away at once.  The last use frees the memory, and then the request is answered. */
exec_handler exec_free;

/* ---- Uses ---- */
/* Begins a use, which exec_release_buffer() ends: held must have room. */
void exec_hold_buffer(struct exec_held held, struct exec_buffer *buffer);
/* The last use of a LEAVING buffer frees it. */
void exec_release_buffer(struct launcher *launcher, struct exec_buffer *buffer);
/* Sets found of each place. */
void exec_find_buffers(const struct launcher *launcher, struct exec_place *places, int count);
/* Binds a template to its places: each within its buffer, which owner may name (0: anybody may),
 * and aligned.  held gets the buffers bound so far, also when this fails. */
int exec_bind(const struct exec_template *what, const struct exec_place *places, uint64_t owner,
			  struct exec_held held, struct device_operand *operands, struct device_launch *launch,
			  char error[KERNEL_ERROR_MAX]);

#endif
