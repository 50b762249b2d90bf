/*
 * lane.h: submits through memory that the device process shares, for the other files of libkiln.
 */
#ifndef KILN_CLIENT_LANE_H
#define KILN_CLIENT_LANE_H

#include "link.h"

struct kiln_call;

struct lane *lane_new(void); /* NULL without memory */
void lane_free(struct lane *lane);
/* What is submitted together, under one ticket: each call follows the one before it. */
struct submission {
	const kiln_work *works;
	int count;
	unsigned stream;
	kiln_ticket after; /* what must have succeeded; 0: nothing */
	uint64_t follows;  /* where that is under way in the lane: number + 1 of its last entry */
	bool again;        /* it may be submitted again, and should then need no message */
	bool cuda;         /* in order with cuda_stream */
	void *cuda_stream;
};

/* By message: nothing was done. */
#define LANE_NOT 1
/* It is launched, but the CUDA stream does not wait for it: the host has to. */
#define LANE_HOST 2
/* Launches through the lane under this ticket, which is added.  KILN_OK, LANE_NOT, LANE_HOST, or a
 * status: then the ticket is to be given up. */
int lane_submit(struct kiln_client *client, const struct submission *what, uint64_t id);
/* Waits until these entries have ended, or until something came by message.  KILN_OK,
 * KILN_ETIMEDOUT, KILN_ECONN. */
int lane_wait(struct kiln_client *client, uint64_t first, uint64_t last, int64_t deadline);
/* Before a message: waits for entries that the device process may not have launched when it gets
 * there, for entry follows - 1 (0: none), and where all is set for those of all streams but 0. */
int lane_settle(struct kiln_client *client, uint64_t follows, bool all, int64_t deadline);
/* Finishes the tickets of all that have ended. */
void lane_collect(struct kiln_client *client);
/* Adds to a launch by message that its answer shall say how to come through the lane. */
void lane_ask(struct kiln_call *call, struct request *request, const kiln_operand *operands,
			  int count);
/* Adds which entries a request follows. */
void lane_put_tail(struct kiln_client *client, struct wire_out *out);
/* The answer to request id. */
void lane_answer(struct kiln_client *client, uint64_t id, struct answer *answer);
/* There is no lane any more: what has not ended ends in status. */
void lane_lost(struct kiln_client *client, int status, const char *why);
/* Nobody waits for the ticket's entries any more; a call or a buffer is about to be freed. */
void lane_forget(struct kiln_client *client, const struct ticket *ticket);
void lane_forget_call(struct kiln_client *client, const struct kiln_call *call);
void lane_forget_buffer(struct kiln_client *client, const struct kiln_buffer *buffer);
/* All entries have ended, and there will be no more. */
int lane_stop(struct kiln_client *client, int64_t deadline);
/* The descriptor that tells of ends and of messages, from now on; a status. */
int lane_fd(struct lane *lane, int sock);
/* What to poll it (or else the socket) for. */
int lane_events(struct lane *lane, int sock, bool writes);
/* Before somebody waits for that descriptor. */
void lane_watch(struct kiln_client *client);

#endif
