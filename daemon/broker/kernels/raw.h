/*
 * raw: users' kernels.  What a client sent of one becomes a planned kernel like any other, with the
 * texts that it owns; a launch carries what a plan would say.
 */
#ifndef KILN_DAEMON_RAW_H
#define KILN_DAEMON_RAW_H

#include "daemon/broker/front/session.h"

#define RAW_MAX_SOURCE ((uint64_t)1 << 20)
#define RAW_MAX_TEXTS ((uint64_t)4 << 20)
#define RAW_MAX_HEADERS 32

/* Names, macros, options and texts of a user's kernel, copied from its request. */
struct raw_source;
void raw_source_free(struct raw_source *source);

/* From member "raw" of the message and its descriptor to a planned kernel, whose texts are not read
 * yet.  KILN_OK, or a status with a sentence. */
int raw_open(struct broker *broker, struct wire_in *message, struct frame *frame,
			 const struct kernel_limits *limits, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX]);

/* Reads and checks the texts, on any thread: that takes milliseconds.  Then the kernel is whole.
 * KILN_OK, or a status with a sentence. */
int raw_fill(const struct compile_sources *sources, struct kernel_ref *ref,
			 char error[KERNEL_ERROR_MAX]);

/* The lines of a plan's text that are a user's choice. */
void raw_explain(const struct kernel_ref *ref, char *text, size_t size);

/* One launch: what a plan says of other kernels. */
struct raw_launch {
	int64_t grid[3], block[3];
	uint32_t shared_bytes, timeout_ms;
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_extent extents[KERNEL_MAX_OPERANDS];
	int operand_count;
	struct kernel_arg args[KERNEL_MAX_ARGS]; /* POINTER and BYTES, whose data is the launch's own */
	int arg_count;
	uint8_t data[];
};

/* From a message to a launch, to be freed.  KILN_OK, or a status with a sentence. */
int raw_launch_open(struct session *session, struct wire_in *message, struct raw_launch **out,
					char error[KERNEL_ERROR_MAX]);
/* "kernel scale<float> of scale.cu" */
const char *raw_label(const struct kernel_plan *plan, char label[160]);

#endif
