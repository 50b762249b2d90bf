/*
 * call.h: prepared calls.  A call is prepared when the daemon has answered, and is freed once: by
 * its program, or by the thread that was inside the client when the program freed the call.
 */
#ifndef KILN_CLIENT_CALL_H
#define KILN_CLIENT_CALL_H

#include "client/wire/byte_range.h"
#include "link.h"

struct local_ways;

/* One variant of a call, as the lane launches it: for operands that are aligned like this. */
struct call_way {
	uint64_t bound;      /* the variant's name in the lane */
	uint64_t generation; /* of the device process that knows it */
	bool reports;        /* only its end tells whether it succeeds */
	int64_t alignments[KILN_MAX_OPERANDS];
	struct byte_range
		ranges[KILN_MAX_OPERANDS];    /* that it touches, from where the operand begins */
	int64_t overs[KILN_MAX_OPERANDS]; /* 1 + the operand whose place one may have */
	int operand_count;
};
#define CALL_WAYS 4

struct kiln_call {
	struct kiln_client *client;
	struct kiln_call *next; /* in client->orphans */
	uint64_t id;            /* 0: the daemon has made none */
	int tensor_count;
	uint32_t left_out; /* bit i: tensor i */
	bool raw;
	bool own_context; /* raw: no device process has the kernel */
	struct call_way ways[CALL_WAYS];
	int way_count;
	int param_count; /* raw: parameters of the kernel; -1: not known */
	int64_t params[KILN_MAX_RAW_ARGS];
	char origin[16];
	char *plan;
	/* How the daemon is told of a call that the device process planned; NULL: it has been. */
	struct call_told *told;
	bool refused;             /* it has not taken that call */
	struct local_ways *local; /* NULL until the first launch in the program's own context */
};

/* The launch that goes with the preparing of a call. */
struct call_first {
	const kiln_tensor *tensors;
	int count;
	bool ran; /* whether the call has run, too */
};

/* The request that tells the daemon of a call, and waits for its answer once it is posted. */
struct call_told {
	struct question question; /* the first member */
	struct request request;
	bool posted;
};

/* Asks for a call; frees the request in any case.  first NULL: it was not asked to run. */
int call_make(struct kiln_client *client, struct request *request, int64_t deadline,
			  struct call_first *first, struct kiln_call **out);
/* Like kiln_prepare(); forgets the oldest call of kiln_run() where the daemon takes no more calls.
 * ran not NULL: the daemon runs the call at once if it need not wait, and *ran says whether it did.
 */
int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, bool *ran,
				 kiln_call **out);
/* Tells the daemon, without waiting, and frees the handle. */
void call_release(struct kiln_call *call);
/* Frees the handle of a client that is closed, or of the parent of fork(). */
void call_drop(struct kiln_call *call);
/* Releases the call that kiln_run() has kept unused for longest; false: it keeps none. */
bool call_forget_oldest(struct kiln_client *client);

#endif
