/*
 * local_launch.h: what the files of launches in the caller's own context share.
 *
 *   local_object.c   asks the daemon what a launch is, and for the compiled kernel
 *   local_shared.c   loads kernels into contexts, each once for the whole process
 *   local_module.c   finds the module of a way in a context, and launches
 *   local_launch.c   checks the operands, and finds the way that fits
 *   local_raw.c      does the same for kernels of the program's own
 *
 * A call owns its ways (call->local), a way owns its object, and has a reference to a module in
 * each context.  A way is ASKED when the daemon has described it; the first launch in a context
 * takes a module there:
 *
 *   ASKED ---- first launch in a context ----> LOADED ---- local_forget() ----> freed
 *                                               |  ^
 *              the context is gone: its module  +--+  is dropped, and one of the next one taken
 *
 * A copy, or a launch of nothing, stays ASKED.
 */
#ifndef KILN_CLIENT_LOCAL_LAUNCH_H
#define KILN_CLIENT_LOCAL_LAUNCH_H

#include "call.h"

enum local_kind { LOCAL_NOTHING, LOCAL_COPY, LOCAL_KERNEL };

struct local_operand {
	uint64_t bytes; /* that the launch touches, from the address on; 0: none */
	uint32_t alignment;
	bool written;
	char name[24];
};

struct local_argument {
	enum { LOCAL_POINTER, LOCAL_SCALAR, LOCAL_SCRATCH } kind;
	uint64_t value; /* POINTER: which operand; SCALAR: the bits */
};

/* A launch without the addresses of its operands.  It is zeroed before it is filled in, so that
 * memcmp() compares two. */
struct local_template {
	enum local_kind kind;
	uint32_t grid[3], block[3], shared_bytes;
	uint64_t copy_bytes, scratch_bytes, scratch_counters;
	struct local_operand operands[KILN_MAX_OPERANDS];
	struct local_argument arguments[KILN_MAX_RAW_ARGS];
	int operand_count, argument_count;
	char key[65], target[16];
};

enum local_way_state { LOCAL_WAY_ASKED, LOCAL_WAY_LOADED };

/* One variant of a call. */
struct local_way {
	enum local_way_state state;
	struct local_way *next;
	struct local_template is;
	char *entry;
	void *object; /* mapped from a sealed memfd */
	size_t object_bytes;
	bool has_params; /* of a kernel of the program's own that was loaded: */
	int param_count; /* -1: the driver does not say */
	uint32_t params[KILN_MAX_RAW_ARGS];
	struct local_use *uses; /* LOADED: one for each context it was launched in */
};

/* The ways of a call; `known` finds those used last by the alignments of the operands. */
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

/* Asks for the variant for these alignments in bytes (0: the operand is left out).  The way is the
 * caller's. */
int local_ask(struct kiln_call *call, const int64_t *alignments, struct local_way **out);
/* Frees a way that is in no list and loaded nowhere. */
void local_way_free(struct local_way *way);
/* Unloads and frees all ways of the call.  forked: the driver is not called. */
void local_forget(struct kiln_call *call, bool forked);

/* Refuses a call of a device that is no GPU; what: "a call", instead: the function to use then. */
int local_check_device(const kiln_call *call, const char *what, const char *instead);

/* ---- local_module.c ---- */

struct local_use;

struct local_context {
	void *context;
	unsigned long long id; /* unique in this process; 0 where the driver has none */
};

/* The context that is current in this thread; ENOTSUP or EINVAL with a message. */
int local_current(struct local_context *out);
/* Puts one launch on the stream; the caller has checked the operands. */
int local_start(struct local_way *way, const struct local_context *current,
				const kiln_place *operands, int count, void *stream);
/* Loads a kernel of the program's own into the current context if it is not there; the way has its
 * parameters then. */
int local_load(struct local_way *way, const struct local_context *current, struct local_use **out);
/* Puts one launch of it on the stream; values: where each argument lies. */
int local_start_raw(struct local_use *use, const kiln_launch *launch, void **values, void *stream);
/* Drops the way's modules in all contexts.  forked: the driver is not called. */
void local_unload(struct local_way *way, bool forked);

#endif
