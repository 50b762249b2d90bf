/*
 * raw: users' kernels.  A source becomes a planned kernel like any other, which owns its texts.
 * Each launch brings the grid, block and arguments that a plan has for other kernels.
 */
#ifndef KILN_DAEMON_RAW_H
#define KILN_DAEMON_RAW_H

#include <client/wire/frame.h>
#include <client/wire/wire.h>

#include "daemon/broker/kernels/job.h"

/* A kernel with block_reduce.cuh of CUB brings 620 headers of 6.6 MiB. */
#define RAW_MAX_SOURCE ((uint64_t)1 << 20)
#define RAW_MAX_TEXTS ((uint64_t)16 << 20)
#define RAW_MAX_HEADERS 2048
#define RAW_MAX_NAME 127 /* of a header: an #include has no longer one (scan_line.name) */
/* Bytes of texts that are held for one session: until a kernel is compiled, short ones longer; and
 * of the names that stay with the kernel. */
#define RAW_MAX_HELD ((uint64_t)256 << 20)
#define RAW_MAX_HELD_BY_ALL ((uint64_t)1 << 30) /* guests have shares: GUEST_SHARES */

/* A copy of the names, macros, options and texts of a request.  Its kernel_ref owns it. */
struct raw_source;
void raw_source_free(struct raw_source *source);

/* Makes a planned kernel of member "raw" and the descriptor, before its texts are read.
 * KILN_OK, or a status with a sentence. */
int raw_open(struct session *session, struct wire_in *message, const struct kernel_limits *limits,
			 struct kernel_ref **out, char error[KERNEL_ERROR_MAX]);
void raw_close_budget(struct session *session);

/* Reads and checks the texts, which completes the kernel.  It takes milliseconds and may run on any
 * thread.  KILN_OK, or a status with a sentence. */
int raw_fill(const struct compile_sources *sources, struct kernel_ref *ref,
			 char error[KERNEL_ERROR_MAX]);

/* Closes the client's descriptor, when raw_fill() has read it. */
void raw_was_read(struct kernel_ref *ref);

/* The kernel is compiled, and the cache has it: long texts are let go.  Should the cache lose it,
 * raw_is_gone() says so, and the client has to bring it again. */
void raw_let_go(struct kernel_ref *ref);
/* So it is with a kernel of the cache whose headers were given to the compiler by name. */
bool raw_is_gone(const struct kernel_ref *ref);
#define RAW_BY_NAME                                                                       \
	"its headers were given to the compiler by name, and the cache keeps none: only the " \
	"program that brought them can have it compiled"

/* Writes the lines of a plan's text that show the user's choices. */
void raw_explain(const struct kernel_ref *ref, char *text, size_t size);

/* "kernel scale<float> of scale.cu" */
const char *raw_label(const struct kernel_plan *plan, char label[160]);

#endif
