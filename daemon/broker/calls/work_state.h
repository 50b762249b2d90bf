/* work_state.h: what work.c (the queue) and work_send.c (what leaves it) share, and how launches
 * look in messages. */
#ifndef KILN_DAEMON_WORK_STATE_H
#define KILN_DAEMON_WORK_STATE_H

#include <client/wire/lane_memory.h>

#include "graph.h"
#include "lane.h"
#include "raw_launch.h"
#include "work.h"

enum work_kind { WORK_LAUNCH, WORK_COPY, WORK_FREE, WORK_GRAPH };
/* READY: it may go on; WAITS: it stays at the head of the queue; GONE: it was sent, or has ended
 * and was freed. */
enum work_step { WORK_READY, WORK_WAITS, WORK_GONE };

struct work {
	enum work_kind kind;
	uint64_t ticket;
	struct session *session; /* NULL: nobody waits any more */
	bool sent;
	const char *asked; /* the request that it is: "submit" */
	uint64_t since_us;
	uint64_t device; /* kind of the one that it was submitted for: device_entry.kind */
	uint64_t lane_tail, lane_follows; /* entries of the session's lane that it follows */
	struct work *previous, *next;
	/* LAUNCH; GRAPH: of a graph, the part that is looked at */
	struct call *call;
	struct kernel_ref *variant;
	struct kernel_ref *kernel; /* the variant, or its generic one: chosen when it is sent */
	struct raw_launch *raw; /* of a user's kernel, in the session's own process; else the variant's
							   plan says it all */
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	const struct kernel_extent *extents; /* of the plan, or of raw */
	int operand_count;
	uint32_t stream; /* of the client's */
	uint64_t after;
	bool wants_lane;           /* the answer shall say how to do it again without a message */
	bool first;                /* the client does not know the call before the answer */
	uint64_t bound;            /* the call's name in the lane; 0: it has none */
	uint64_t executor_call;    /* its id there, once sent */
	struct job_wait *fetching; /* the kernel, from cache or compiler */
	bool loading;
	uint64_t load_us; /* when that began */
	int load_status;
	bool remade; /* its kernel could not be loaded, and was compiled again */
	char load_error[JOB_ERROR_MAX];
	/* COPY, FREE */
	struct buffer *buffer;
	uint64_t offset, bytes;
	int fd;
	bool to_device;
	bool freeing; /* FREE: the session's own process is asked first */
};

#define FAILED_TICKETS 1024

/* The works of a session. */
struct work_queue {
	struct work *queued, *queued_last; /* not sent to the device process yet, in order */
	struct work *sent;
	int sent_count;
	struct map by_ticket; /* queued and sent */
	bool waiting_ready, pumping, pump_again;
	uint64_t failed[FAILED_TICKETS]; /* tickets that did not succeed, newest overwrite */
	unsigned failed_at;
};

/* The device process that it is for. */
struct device_handle *work_executor(const struct work *work);

/* ---- work.c ---- */

/* It has not ended. */
bool work_pending(const struct session *session, uint64_t ticket);

/* Answers and frees a work that is in one of the lists. */
void work_end(struct work *work, int status, const char *error, uint64_t micros);
/* The executor has it: from the queue to the list of those. */
void work_mark_sent(struct work *work);
/* The end that the executor reports; arg is the work. */
void work_done(void *arg, int status, const char *error, struct wire_in *reply);
/* What a launch is: module, shape, arguments, operands; placed: and where they lie. */
void work_put_launch(struct wire_out *message, const struct work *work, uint64_t module,
					 bool placed);
bool work_ticket_failed(const struct session *session, uint64_t ticket);

/* The order of submission holds over both processes: what is sent must end before this begins. */
bool work_must_let_finish(const struct work *work);

/* ---- lane.c ---- */

/* Sees that the launch, which is about to be sent, may next time come through the lane. */
void lane_bind(struct work *work, uint64_t module);
void lane_bind_graph(struct work *work);
/* Adds to its answer how; the number of descriptors that go along. */
int lane_put(struct work *work, struct wire_out *out, int fds[LANE_DESCRIPTORS]);

/* ---- graph.c ---- */

/* Of work_advance(): the graph is made, or launched. */
enum work_step graph_advance(struct work *work);
/* Members of the answer that tells of a new one. */
void graph_put(const struct call *call, struct wire_out *out);

/* ---- work_send.c ---- */

/* An element of the list of arguments: [0, operand], [1, bytes, value], [2], [3] or bytes. */
void work_put_argument(struct wire_out *message, const struct kernel_arg *arg);
/* Member "scratch", if there is any: [bytes, counters]. */
void work_put_scratch(struct wire_out *message, const struct kernel_scratch *scratch);
/* Of what one launch needs.  WAITS: it is asked for. */
enum work_step work_need_buffer(struct work *work, struct buffer *buffer);
enum work_step work_need_kernel(struct work *work, uint64_t *module);
bool work_writes_all(const struct work_operand *operand, const struct kernel_extent *extent);
/* The entries of the lane that the client had written before this request. */
void work_put_lane(struct wire_out *message, const struct work *work);
enum work_step work_refuse(struct work *work, int status, const char *error);
/* What became of sending it. */
enum work_step work_sent(struct work *work, int status);
/* Sends the work if all it needs is there, else asks for what is missing. */
enum work_step work_advance(struct work *work);

#endif
