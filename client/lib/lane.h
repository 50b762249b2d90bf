/*
 * lane.h: submits calls through memory that the client shares with the device process.
 */
#ifndef KILN_CLIENT_LANE_H
#define KILN_CLIENT_LANE_H

#include "link.h"

struct kiln_call;
struct lane;

/* Calls that are submitted together, under one ticket: each follows the one before it. */
struct submission {
	const kiln_work *works;
	int count;
	unsigned stream;
	kiln_ticket after; /* the ticket that must have succeeded before; 0: none */
	uint64_t follows; /* while `after` is under way in the lane: the number + 1 of its last entry */
	bool again;       /* the program may submit the call again, which should then need no message */
	bool cuda;        /* the calls keep the order of cuda_stream */
	void *cuda_stream;
};

struct lane *lane_new(void); /* NULL without memory */
void lane_free(struct lane *lane);

/* lane_submit() did nothing: the calls have to go by message. */
#define LANE_NOT 1
/* The calls are launched, but the CUDA stream cannot wait for them: the host has to. */
#define LANE_HOST 2
/* Adds the ticket and launches.  KILN_OK, LANE_NOT, LANE_HOST, or a status with a message: then the
 * caller gives the ticket up. */
int lane_submit(struct kiln_client *client, const struct submission *what, uint64_t id);
/* Waits until the entries have ended, or a message came.  KILN_OK, KILN_ETIMEDOUT, KILN_ECONN. */
int lane_wait(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline);
/* Before a message: waits for the entries that the device process may not have launched when the
 * message gets there, for entry follows - 1 (follows 0: none), and with `all` for the entries of
 * all streams but 0. */
int lane_settle(struct kiln_client *client, uint64_t follows, bool all, int64_t deadline);
/* Finishes the tickets of all entries that have ended. */
void lane_collect(struct kiln_client *client);
/* Asks, in a launch by message, for what the call's next launch through the lane needs. */
void lane_ask(struct kiln_call *call, struct request *request, const kiln_operand *operands,
			  int count);
/* Asks for the same in a request that prepares a call and launches it.  Only an open lane is asked
 * for: a program that runs one call does not pay for the making of a lane. */
void lane_ask_new(struct kiln_client *client, struct request *request);
/* Learns from the answer to that. */
void lane_answer_new(struct kiln_call *call, const kiln_tensor *tensors, int count,
					 struct answer *answer);
/* Has the device process plan the call that the request, which has not ended, would prepare.
 * KILN_OK with the number and the way of *call, LANE_NOT, or KILN_ETIMEDOUT with a message. */
int lane_plan(struct kiln_client *client, const struct request *request, const kiln_tensor *tensors,
			  int count, int64_t deadline, struct kiln_call *call);
/* Makes the request tell the daemon of that call, and takes it over; false without memory. */
bool lane_note_planned(struct kiln_call *call, struct request *request);
/* Tells the daemon of the call, if that has to be done.  Call it before any message that names the
 * call, and before calls that are planned later are told: the daemon takes no other order. */
void lane_tell(struct kiln_call *call);
/* Waits until the daemon has said whether it takes the call.  KILN_OK, KILN_ETIMEDOUT, KILN_ECONN.
 */
int lane_await_told(struct kiln_call *call, int64_t deadline);
/* The call is about to be freed. */
void lane_forget_told(struct kiln_call *call);
/* Tells, in a request, which entries were written before it. */
void lane_put_tail(struct kiln_client *client, struct wire_out *out);
/* Learns from the answer to request id. */
void lane_answer(struct kiln_client *client, uint64_t id, struct answer *answer);
/* Closes a lane whose device process is gone: entries that have not ended end in status. */
void lane_lost(struct kiln_client *client, int status, const char *why);
/* Forget the entries of a ticket that nobody waits for any more, or a call or a buffer that is
 * about to be freed. */
void lane_forget(struct kiln_client *client, const struct ticket *ticket);
void lane_forget_call(struct kiln_client *client, const struct kiln_call *call);
void lane_forget_buffer(struct kiln_client *client, const struct kiln_buffer *buffer);
/* Turns the lane off for good, and waits until all entries have ended. */
int lane_stop(struct kiln_client *client, int64_t deadline);
/* A descriptor that polls readable for ends of entries and for messages; or a status with a
 * message. */
int lane_fd(struct lane *lane, int sock);
/* The events to poll that descriptor, or else the socket, for. */
int lane_events(struct lane *lane, int sock, bool writes);
/* The program is about to wait for that descriptor: asks the device process to wake it. */
void lane_watch(struct kiln_client *client);

#endif
