/*
 * call.h: prepared calls.
 */
#ifndef KILN_CLIENT_CALL_H
#define KILN_CLIENT_CALL_H

#include "link.h"

struct local_ways;

/* How a call is launched through the lane, at addresses that are so aligned. */
struct call_way {
	uint64_t bound, generation; /* its name there; of the device process that knows it */
	bool reports;               /* whether it succeeds is known only when it has ended */
	int64_t alignments[KILN_MAX_OPERANDS];
	uint64_t extents[KILN_MAX_OPERANDS]; /* bytes that are touched */
	int operand_count;
};
#define CALL_WAYS 4

struct kiln_call {
	struct kiln_client *client;
	struct kiln_call *next; /* in client->orphans */
	uint64_t id;
	int tensor_count;
	uint32_t left_out; /* bit i: tensor i */
	bool raw;
	struct call_way ways[CALL_WAYS];
	int way_count;
	int param_count; /* raw: of the kernel; -1: not known */
	int64_t params[KILN_MAX_RAW_ARGS];
	char origin[16];
	char *plan;
	struct local_ways *local; /* NULL until it is launched in the caller's own context */
};

/* Asks for a call; frees the request in any case.  *ran: it has run, too (NULL: not asked for). */
int call_make(struct kiln_client *client, struct request *request, int64_t deadline, bool *ran,
			  struct kiln_call **out);

/* As kiln_prepare; makes room where the daemon takes no more calls.  ran not NULL: it shall be run
 * at once, if nothing has to be waited for; *ran says whether it was. */
int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, bool *ran,
				 kiln_call **out);

/* Tells the daemon, without waiting, and frees the handle. */
void call_release(struct kiln_call *call);

/* Releases the call that kiln_run() has kept unused for longest; false: it keeps none. */
bool call_forget_oldest(struct kiln_client *client);

#endif
