/*
 * local_launch.h: what the files of launches in the caller's own context share.
 *
 *   local_object.c   asks the daemon what a launch is, and for the compiled kernel
 *   local_module.c   what is loaded in which context; the calls of the driver
 *   local_launch.c   the checks, and which way fits
 */
#ifndef KILN_CLIENT_LOCAL_LAUNCH_H
#define KILN_CLIENT_LOCAL_LAUNCH_H

#include "call.h"

enum local_kind { LOCAL_NOTHING, LOCAL_COPY, LOCAL_KERNEL };

struct local_operand {
	uint64_t bytes; /* that are touched, from its address on; 0: none */
	uint32_t alignment;
	bool written;
	char name[24];
};

struct local_argument {
	enum { LOCAL_POINTER, LOCAL_SCALAR, LOCAL_SCRATCH } kind;
	uint64_t value; /* POINTER: which operand; SCALAR: the bits */
};

/* What a launch is, but for where its operands lie.  Zeroed before it is filled in, so that two can
 * be compared as bytes. */
struct local_template {
	enum local_kind kind;
	uint32_t grid[3], block[3], shared_bytes;
	uint64_t copy_bytes, scratch_bytes, scratch_counters;
	struct local_operand operands[KILN_MAX_OPERANDS];
	struct local_argument arguments[KILN_MAX_RAW_ARGS];
	int operand_count, argument_count;
	char key[65], target[16];
};

/* One variant of a call. */
struct local_way {
	struct local_way *next;
	struct local_template is;
	char *entry;
	void *object; /* mapped, and nobody can change it */
	size_t object_bytes;
	struct local_module *modules; /* one for each context it was launched in */
};

/* The ways of a call: all of them, and those found last by how their operands were aligned. */
#define LOCAL_KNOWN 8
struct local_ways {
	struct local_way *all;
	struct {
		uint64_t alignments; /* four bits an operand: the exponent, or 15: left out */
		struct local_way *way;
	} known[LOCAL_KNOWN];
	unsigned known_count, known_next;
};

/* ---- local_object.c ---- */

/* Asks for the variant at operands that are so aligned (bytes, 0: left out). */
int local_ask(struct kiln_call *call, const int64_t *alignments, struct local_way **out);
/* Frees a way that is in no list and loaded nowhere. */
void local_way_free(struct local_way *way);
/* Unloads and frees what kiln_launch_local() has loaded for the call.  forked: calls no function of
 * the driver. */
void local_forget(struct kiln_call *call, bool forked);

/* ---- local_module.c ---- */

struct local_context {
	void *context;
	unsigned long long id; /* that no context had before; 0 where the driver has none */
};

/* The context that is current in this thread; ENOTSUP or EINVAL with a sentence. */
int local_current(struct local_context *out);
/* Puts one launch on the stream: the operands are known to be fit. */
int local_start(struct local_way *way, const struct local_context *current,
				const kiln_place *operands, int count, void *stream);
/* From all contexts that are still there; forked: the driver is not called. */
void local_unload(struct local_way *way, bool forked);

#endif
