/*
 * work_state.h: shared by work.c (the queue), work_need.c (what a work needs), work_send.c (its
 * message), work_end.c (its end), graph.c, lane_bind.c and work_waits.c.
 *
 * A work is one launch, copy, free or graph that a client has submitted.  work_add() allocates it,
 * and the session owns it until it is freed or LOST.
 *
 *   QUEUED --job_resolve--> FETCHING --the kernel is there--> LOADING --it is loaded--> QUEUED
 *     |  ^                     |                                                          ^
 *     |  |                     +--it failed------------------------------------------------+
 *     |  +--the own process has freed the buffer-- FREEING <--a free-- QUEUED
 *     |
 *     +--the message leaves--> SENT --the device process answers--> answered and freed
 *
 *   QUEUED, FETCHING, LOADING --refused, canceled, nothing to do--> answered and freed
 *   QUEUED, FETCHING, LOADING, FREEING --the session ends--> freed
 *   SENT --the session ends--> LOST --the device process answers--> freed
 *
 * Invariants: works->queued lists the first four states in the order of submission, works->sent
 * lists SENT; by_ticket finds both.  Only the head of the queue leaves QUEUED, and it leaves the
 * queue only for SENT or its end.  A LOST work has no session; the device process's answer frees
 * it.  Its buffers may be freed: nobody reads its pointers to them.  A work holds its call, variant
 * and (a copy) its descriptor, and owns raw; a free owns its buffer once the name is gone.
 */
#ifndef KILN_DAEMON_WORK_STATE_H
#define KILN_DAEMON_WORK_STATE_H

#include <client/wire/lane_memory.h>

#include "call_state.h"
#include "lane.h"
#include "raw_launch.h"
#include "work.h"

/* One launch of a user's kernel. */
struct raw_launch {
	int64_t grid[3], block[3];
	uint32_t shared_bytes, timeout_ms;
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_extent extents[KERNEL_MAX_OPERANDS];
	int operand_count;
	struct kernel_arg args[KERNEL_MAX_ARGS]; /* POINTER, and BYTES that point into data */
	int arg_count;
	uint8_t data[];
};

enum work_kind { WORK_LAUNCH, WORK_READ, WORK_WRITE, WORK_SHARE, WORK_FREE, WORK_GRAPH };

enum work_state { WORK_QUEUED, WORK_FETCHING, WORK_LOADING, WORK_FREEING, WORK_SENT, WORK_LOST };

/* The result of a step towards the device process. */
enum work_step {
	STEP_READY, /* nothing is missing: take the next step */
	STEP_WAITS, /* something is under way, whose end pumps the queue */
	STEP_SENT,  /* the message has left */
	STEP_ENDED, /* the work is answered and freed: do not touch it */
};

struct work {
	enum work_kind kind;
	enum work_state state;
	uint64_t ticket;
	struct session *session;    /* NULL: LOST */
	const char *asked;          /* name of the request: "submit" */
	uint64_t since_us, sent_us; /* sent_us: SENT, LOST */
	struct recent_parts parts;  /* of its time */
	uint64_t device;            /* kind of the one that it was submitted for: device_entry.kind */
	uint64_t lane_tail, lane_follows; /* entries of the session's lane that it follows */
	struct work *previous, *next;
	/* A launch; a graph has here the part that is looked at. */
	struct work_order order;
	struct call *call;
	struct kernel_ref *variant;
	/* The variant, or its generic kernel, which the variant's tier holds; chosen before it is
	 * fetched. */
	struct kernel_ref *kernel;
	struct raw_launch *raw; /* a user's kernel, for the session's own process; NULL: see variant */
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	const struct kernel_extent *extents; /* of variant's plan, or of raw */
	int operand_count;
	uint64_t bound;            /* the call's name in the lane; 0: none */
	uint64_t executor_call;    /* SENT: its id in the device process */
	bool canceled;             /* SENT: which knows */
	struct job_wait *fetching; /* FETCHING */
	uint64_t load_us;          /* when the load began */
	int load_status;           /* of the last fetch or load */
	char load_error[JOB_ERROR_MAX];
	bool remade; /* its kernel could not be loaded once, and was compiled anew */
	/* A copy, a share or a free. */
	struct buffer *buffer;
	uint64_t offset, bytes;
	int fd; /* a copy's; -1: none */
};

#define FAILED_TICKETS 1024

/* The works of a session. */
struct work_queue {
	struct work *queued, *queued_last; /* not sent to the device process yet, in order */
	struct work *sent;
	int sent_count;
	struct map by_ticket; /* queued and sent */
	bool waiting_ready;   /* a device process is being started */
	enum { PUMP_IDLE, PUMP_RUNNING, PUMP_AGAIN } pump;
	uint64_t
		failed[FAILED_TICKETS]; /* tickets that did not succeed; the newest overwrites the oldest */
	unsigned failed_at;
};

void work_assert_valid(const struct work *work);
/* The device process that the work is for. */
struct device_handle *work_executor(const struct work *work);

/* ---- work.c ---- */

bool work_is_copy(const struct work *work);
/* Says whether the ticket has not ended. */
bool work_pending(const struct session *session, uint64_t ticket);
/* Moves a work from the queue to the list of sent ones. */
void work_mark_sent(struct work *work);
/* Takes a work out of the list that it is in. */
void work_unlink(struct work *work);

/* ---- work_end.c ---- */

/* Answers and frees a work. */
void work_end(struct work *work, int status, const char *error, uint64_t micros);
/* The device process has answered; arg is the work. */
void work_done(void *arg, int status, const char *error, struct wire_in *reply);
bool work_ticket_failed(const struct session *session, uint64_t ticket);

/* ---- lane_bind.c ---- */

/* Binds a launch that is about to be sent: the next one may come through the lane.  True: the
 * device process does not know the call yet, so its message is lane.bind with lane_put_bind(), and
 * lane_bound() follows when that is sent. */
bool lane_bind(struct work *work);
void lane_put_bind(const struct work *work, struct wire_out *message);
void lane_bound(const struct work *work);
void lane_bind_graph(struct work *work);
/* Adds to the answer how to use the lane; returns how many descriptors go along. */
int lane_put(struct work *work, struct wire_out *out, int fds[LANE_DESCRIPTORS]);

/* ---- graph.c ---- */

/* Like work_advance(), for a graph that is made or launched. */
enum work_step graph_advance(struct work *work);
/* Puts the members of the answer for a new graph. */
void graph_put(const struct call *call, struct wire_out *out);

/* ---- work_need.c ---- */

/* Both see that the device process has the buffer, or the kernel. */
enum work_step work_need_buffer(struct work *work, struct buffer *buffer);
enum work_step work_need_kernel(struct work *work, uint64_t *module);

/* ---- work_send.c ---- */

/* Puts module, shape, arguments and operands of a launch; placed: with the operands' places;
 * named: with their names, which a lane keeps. */
void work_put_launch(struct wire_out *message, const struct work *work, uint64_t module,
					 bool placed, bool named);
/* Says whether sent works must end first, for they run elsewhere and the order must hold. */
bool work_must_let_finish(const struct work *work);
bool work_writes_all(const struct work_operand *operand, const struct kernel_extent *extent);
/* Puts which entries of the lane the client had written before this request. */
void work_put_lane(struct wire_out *message, const struct work *work);
/* Answers with an error. */
enum work_step work_refuse(struct work *work, int status, const char *error);
/* The step that follows from the status of sending the message. */
enum work_step work_sent(struct work *work, int status);
/* Sends the head of the queue if all it needs is there, else asks for what is missing. */
enum work_step work_advance(struct work *work);

#endif
