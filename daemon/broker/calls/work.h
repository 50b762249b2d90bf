/*
 * work: what a session has asked its device to do, in order: launches, copies, frees and graphs.
 * Every function here takes a request over by its number, the ticket, and answers it.
 */
#ifndef KILN_DAEMON_WORK_H
#define KILN_DAEMON_WORK_H

#include "buffer.h"
#include "call.h"

struct raw_launch;

/* Says when a launch may start, and what its client asks besides. */
struct work_order {
	uint32_t stream; /* the client's number of it */
	uint64_t after;  /* ticket that must succeed first; 0: none */
	bool wants_lane; /* the answer shall say how to launch without a message */
	bool first;      /* the answer tells the new call's id; a launch that fails leaves no call */
};
int work_launch(struct session *session, uint64_t ticket, struct call *call,
				struct kernel_ref *variant, const struct work_operand *operands,
				const struct work_order *order, char error[KERNEL_ERROR_MAX]);
/* Launches the call's graph. */
int work_launch_graph(struct session *session, uint64_t ticket, struct call *call,
					  const struct work_order *order, char error[KERNEL_ERROR_MAX]);
/* Answers when the device process has made the graph.  Takes the call over on success; it becomes
 * one of the session's. */
int work_graph(struct session *session, uint64_t ticket, struct call *call,
			   char error[KERNEL_ERROR_MAX]);
/* Launches a user's kernel; takes the launch over on success. */
int work_launch_raw(struct session *session, uint64_t ticket, struct call *call,
					struct raw_launch *launch, uint64_t after, char error[KERNEL_ERROR_MAX]);
/* Takes over fd on success. */
int work_copy(struct session *session, uint64_t ticket, struct buffer *buffer, uint64_t offset,
			  uint64_t bytes, int fd, bool to_device, char error[KERNEL_ERROR_MAX]);
/* Answers with a descriptor of the memory, which other processes can map. */
int work_share(struct session *session, uint64_t id, struct buffer *buffer,
			   char error[KERNEL_ERROR_MAX]);
int work_free(struct session *session, uint64_t id, struct buffer *buffer,
			  char error[KERNEL_ERROR_MAX]);
/* Sends what can be sent. */
void work_pump(struct session *session);
void work_cancel(struct session *session, uint64_t ticket);

/* False without memory. */
bool works_open(struct session *session);
/* The session ends: queued work is dropped, and nobody hears how the rest ends. */
void works_free(struct session *session);
/* Counts what has not ended. */
void work_count(const struct session *session, uint64_t *launches, uint64_t *copies);

#endif
