/*
 * local_launch.h: what the files of launches in the caller's own context share.
 *
 *   local_object.c   asks the daemon what a launch is, and for the compiled kernel
 *   local_shared.c   loads kernels into contexts, each once for the whole process
 *   local_module.c   finds the module of a way in a context, and launches
 *   local_record.c   launches a kernel that was launched often as a graph of it alone
 *   local_launch.c   checks the operands, and finds the way that fits
 *   local_tier.c     swaps a generic kernel for the exact one, once the daemon has that
 *   local_raw.c      does the same as local_launch.c for kernels of the program's own
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
 *
 * The daemon may describe a way by a generic kernel.  Then the client asks again, by messages that
 * no launch waits for; launches count for the daemon's rule when an exact kernel pays:
 *
 *            so many launches           the exact one       the stream is idle
 *   GENERIC ------------------> ASKING ---------------> FOUND -----------------> REPLACED
 *      ^                         |  |                     |   `better` is loaded
 *      +-- there is none yet ----+  +-- none comes -------+--> LAST
 *
 * A way of an exact kernel is LAST from the start.  A way stays in the list after it was REPLACED,
 * since graphs and other alignments may have it.
 */
#ifndef KILN_CLIENT_LOCAL_LAUNCH_H
#define KILN_CLIENT_LOCAL_LAUNCH_H

#include "call.h"

enum local_kind { LOCAL_NOTHING, LOCAL_COPY, LOCAL_KERNEL };

struct local_operand {
	uint64_t bytes;         /* that the launch touches, from the address on; 0: none */
	uint64_t period, width; /* as of struct byte_range */
	uint32_t alignment;
	int over; /* an operand whose place this one may have, each element its own; -1: none */
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

enum local_tier_state {
	LOCAL_TIER_LAST,
	LOCAL_TIER_GENERIC,
	LOCAL_TIER_ASKING,
	LOCAL_TIER_FOUND,
	LOCAL_TIER_REPLACED,
};

struct local_context {
	void *context;
	unsigned long long id; /* unique in this process; 0 where the driver has none */
};

/* The way to a better kernel. */
struct local_tier {
	enum local_tier_state state;
	struct question question; /* ASKING: the link has it */
	struct kiln_call *call;
	uint64_t alignments;          /* that the way was asked for */
	uint64_t launches;            /* that the daemon has not heard of */
	uint64_t next, most;          /* launches until the client asks; next doubles up to most */
	struct local_way *better;     /* FOUND, REPLACED: in the same list as the way */
	struct local_context of;      /* of the last launch: `better` is loaded there */
	struct local_way *next_found; /* FOUND: in client->local_found */
};

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
	struct local_tier tier;
};

/* Alignments of operands, four bits each: the exponent, or 15 where the operand is left out. */
#define LOCAL_LEFT_OUT 15u

/* The ways of a call; `known` finds those used last by the alignments of the operands. */
#define LOCAL_KNOWN 8
struct local_ways {
	struct local_way *all;
	struct {
		uint64_t alignments;
		struct local_way *way;
	} known[LOCAL_KNOWN];
	unsigned known_count, known_next;
};

/* ---- local_object.c ---- */

/* Asks for the variant for these alignments, and waits for the answer.  The way is the caller's. */
int local_ask(struct kiln_call *call, uint64_t alignments, struct local_way **out);
/* Asks without waiting whether there is a better kernel than this one, and says how often it was
 * launched.  The way's question takes the answer. */
int local_ask_again(struct local_way *way);
/* Makes a way of an answer to either; NULL: it cannot be used, or there is no memory. */
struct local_way *local_read(struct kiln_call *call, uint64_t alignments, struct answer *answer);
/* Frees a way that is in no list and loaded nowhere. */
void local_way_free(struct local_way *way);
/* Takes over the way into the call's list.  One variant may serve several alignments: an equal way
 * that is there is returned, so that the kernel is kept, and loaded, once. */
struct local_way *local_keep(struct local_ways *ways, struct local_way *way);

/* Refuses a call of a device that is no GPU; what: "a call", instead: the function to use then. */
int local_check_device(const kiln_call *call, const char *what, const char *instead);

/* ---- local_tier.c ---- */

/* Chooses the way of a launch, and counts the launch: the way itself, or the better one. */
struct local_way *local_tier_choose(struct local_way *way, const struct local_context *current);
/* Takes in what the daemon has answered, without waiting, and loads better kernels that were found,
 * where the stream is idle or the ways have been patient. */
void local_tier_tend(struct kiln_client *client, const struct local_context *current, void *stream);
/* Unloads and frees all ways of the call.  forked: the driver is not called. */
void local_forget(struct kiln_call *call, bool forked);

/* ---- local_module.c ---- */

struct local_use;

/* The context that is current in this thread; ENOTSUP or EINVAL with a message. */
int local_current(struct local_context *out);
/* Loads the way's kernel into the current context.  KILN_OK; KILN_EAGAIN without a message: the
 * stream captures, or is busy and that matters; or why the kernel cannot be loaded. */
int local_load_later(struct local_way *way, const struct local_context *current, void *stream,
					 bool busy_too);
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
