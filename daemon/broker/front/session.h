/*
 * session: one connected client: its messages in, its replies out, and what it owns: buffers,
 * prepared calls, work under way.  Whatever a client does wrong ends here and reaches nobody else.
 */
#ifndef KILN_DAEMON_SESSION_H
#define KILN_DAEMON_SESSION_H

#include <client/wire/frame.h>
#include <client/wire/wire.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/job.h"

#define SESSION_FAILED_TICKETS 1024
#define CALL_VARIANTS 6 /* alignments 1, 2, 4, 8, 16 and one more */

struct making;

enum buffer_kind { BUFFER_HELD, BUFFER_SHARED, BUFFER_LENT_IPC, BUFFER_LENT_FD, BUFFER_LENT_POOL };

/* The device processes that a buffer can be in. */
enum buffer_where { BUFFER_HOME, BUFFER_OWN, BUFFER_PLACES };

struct buffer_place_state {
	uint64_t generation; /* of the process it is in, 0 for nowhere */
	bool placing;
	int status; /* of the last attempt */
	char error[KERNEL_ERROR_MAX];
};

struct buffer {
	uint64_t id; /* also the executors' */
	enum buffer_kind kind;
	uint64_t bytes;
	char name[64];
	/* What an executor needs to import it; kept so that a new process gets it again. */
	unsigned char handle[64];
	uint64_t bufid, pool, span, offset;
	int64_t pid;
	char gpu[DEVICE_UUID_TEXT]; /* that lent or shared memory is on: its UUID; "": not known */
	int fd; /* -1: none; of a HELD one only once it is shared between two processes */
	struct buffer_place_state at[BUFFER_PLACES];
	bool sharing; /* HELD: its process was asked to share it */
	/* HELD: the contents ended with a process, and have been written again up to covered. */
	bool lost;
	bool rewritten; /* while a graph is looked at: an earlier launch of it writes all */
	uint64_t covered;
	struct session *session;
	struct making *making; /* the request that makes it, until it is answered */
};

/* Where an operand of a launch lies; without a buffer it is left out. */
struct work_operand {
	struct buffer *buffer;
	uint64_t offset;
};

/* One launch of a graph, and where it lies; buffers by number, for they may be freed. */
struct graph_part {
	struct kernel_ref *variant;
	struct work_operand operands[KERNEL_MAX_OPERANDS]; /* valid after graph_resolve() */
	uint64_t buffers[KERNEL_MAX_OPERANDS];
	uint64_t module; /* in the device process; while it is sent there */
};

/* Launches that a device process makes one piece of work. */
struct graph {
	uint64_t id; /* also the device process's and the lane's */
	struct session *session;
	uint64_t generation; /* of the device process that was told of it */
	uint64_t lane_tail;  /* entries of the lane that may name it, once the client has freed it */
	int count;
	struct graph_part parts[];
};

/* A variant of a call, in a lane. */
struct call_bound {
	uint64_t id, generation; /* its name there, and the device process that knows it */
};

struct call {
	uint64_t id;
	int holders; /* the session, and works */
	struct kernel_problem problem;
	int given; /* tensors that the client named, and operands that it submits */
	struct kernel_ref *variants[CALL_VARIANTS]; /* for different alignments; [0] as prepared */
	int variant_count;
	struct call_bound bound[CALL_VARIANTS]; /* of the variants */
	struct graph *graph; /* of a call without operands or variants: what it launches */
	uint64_t device;     /* kind of the one that it is planned for: device_entry.kind */
};

/* A request whose answer comes later.  First member of what the command keeps for it. */
struct request {
	struct session *session;
	uint64_t id;
	/* The session is going: stop whatever would call back, and free. */
	void (*abandon)(struct request *request);
	struct request *previous, *next;
	const char *name; /* "prepare" */
	uint64_t since_us;
	const void *doing; /* what waits for it, if it is not the request itself; for waits.c */
};

struct work;
struct shapes;
struct alt_compiler;

/* A session has one of the places of --max-sessions, or a kept one: admit.c. */
enum session_place {
	PLACE_NONE, /* silent: hello has not come */
	PLACE_ORDINARY,
	PLACE_KEPT, /* one of those that are the operator's */
};

struct session {
	struct broker *broker;
	uint64_t id;
	struct tally tally;
	uint64_t stream; /* of this session in its executor */
	int sock;
	uv_poll_t poll;
	int watched;            /* what the poll is started for */
	uv_timer_t hello_timer; /* until hello, and while it is held */
	int open_handles;
	struct frame_closer closer; /* of descriptors that came from this client */
	struct frame_queue queue;
	bool held; /* it is not read until descriptors of its uid are closed */
	uint32_t uid, gid;
	int32_t pid;
	char version[24]; /* of its library */
	bool greeted;
	enum session_place place;
	enum options_miss on_miss; /* the stricter of the daemon's and its own */
	bool background;           /* what it asks for is compiled when nobody else waits */
	bool ending;               /* the socket is shut down: nothing is read or written any more */
	bool closing;
	const char *asks;   /* name of the request that is looked at */
	uint64_t opened_us; /* it was connected */
	uint64_t deaf_us;   /* since then it takes no replies; 0: it has taken all */

	struct device_entry *device; /* NULL: compile only */
	struct device_handle *executor;
	struct lane *lane; /* in executor; NULL: none yet, or none more */
	/* Of the message that is being looked at: the entries of the lane that it follows. */
	uint64_t lane_tail, lane_follows;
	struct alt_compiler
		*alt_compiler;         /* a compiler beside the pool's; NULL: it has asked for none */
	struct device_handle *own; /* for kernels that the session brings; NULL: it has brought none */

	struct map buffers, calls; /* by id */
	uint64_t held_bytes;
	uint64_t graph_calls; /* launches of all graphs */

	struct work *queued, *queued_last; /* not sent to the executor yet, in order */
	struct work *sent;
	int sent_count;
	struct map works; /* queued and sent, by ticket */
	int work_count;
	bool waiting_ready, pumping, pump_again;
	uint64_t failed[SESSION_FAILED_TICKETS]; /* tickets that did not succeed, newest overwrite */
	unsigned failed_at;

	struct request *requests;
	int request_count;
	struct shapes *shapes; /* what they vary in, by operator: tier/shapes.c */
	struct session *previous, *next;
};

/* Takes over a connected socket; a peer that may not connect is told so, and closed. */
void session_open(struct broker *broker, int sock);
/* NULL: it has ended. */
struct session *session_find(const struct broker *broker, uint64_t id);
/* Ends it soon: what is queued for the client is still tried.  Safe from anywhere. */
void session_end(struct session *session);
/* Ends it now: from the loop only (drain). */
void session_close(struct session *session);

/* What its requests for kernels may cost. */
struct job_terms session_terms(struct session *session);
/* Whose turn what it asks for is; NULL: nobody's. */
struct turn_owner session_turn(const struct session *session);
/* It is the daemon's own user, or root. */
bool session_is_owner(const struct session *session);
/* A kernel was loaded, which began at this moment: counted for the session and the operator. */
void session_note_load(struct session *session, struct kernel_ref *ref, uint64_t began_us);

/* Starts the clock of a session that has not said hello. */
void session_await_hello(struct session *session);
/* What its socket is looked at for may have changed. */
void session_watch(struct session *session);

/* ---- Descriptors that clients send (rights.c) ---- */

void rights_open(struct session *session);
/* hello is answered: from now on it may send some. */
void rights_take(struct session *session);
/* True: nothing more is read until descriptors of its uid are closed. */
bool rights_hold(struct session *session);
/* Those that are held look whether they may go on. */
void rights_release(struct broker *broker);

/* ---- Replies ---- */

/* Strings of replies and events are shown to people: plain.h's rule is applied to each. */
void reply_begin(struct wire_out *out, uint64_t id);
void reply_begin_with(struct wire_out *out, uint64_t id, int status);
void reply_send(struct session *session, struct wire_out *out, const int *fds, int fd_count);
void reply_ok(struct session *session, uint64_t id);
void reply_error(struct session *session, uint64_t id, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Registers a later answer; false (and an error reply was sent) when the session has too many. */
bool request_open(struct session *session, uint64_t id, struct request *request,
				  void (*abandon)(struct request *request));
void request_close(struct request *request); /* unlinks; does not free */
/* As store_wait(), for a request that is the first member of what the callbacks get.  When the
 * store is late the request is answered with KILN_ETIMEDOUT, closed and abandoned. */
int request_store(struct request *request, store_work work, store_done done);

/* ---- Decoding (decode.c) ---- */

/*
 * op, tensors and attrs of a message.  buffers[i] / offsets[i]: where tensor i lies (NULL: nowhere,
 * or it is left out); the tensors' alignment follows from it.  KILN_OK, or a status with a
 * sentence.
 */
int decode_problem(struct session *session, struct wire_in *message, struct kernel_problem *problem,
				   struct buffer *buffers[KERNEL_MAX_OPERANDS],
				   uint64_t offsets[KERNEL_MAX_OPERANDS], char error[KERNEL_ERROR_MAX]);
uint32_t buffer_alignment(const struct buffer *buffer, uint64_t offset);
/* Operand i's name in a list as plans have it, "x, mask?, y"; "operand 5" beyond it. */
const char *decode_operand_name(const char *operands, int i, char name[24]);

/* ---- Buffers (buffer.c) ---- */

struct buffer *buffer_new(struct session *session, enum buffer_kind kind, uint64_t bytes,
						  const char *name);
void buffer_delete(struct buffer *buffer); /* of the broker's side only */
struct buffer *buffer_find(struct session *session, uint64_t id);
const char *buffer_label(const struct buffer *buffer, char label[96]); /* "buffer 7 (weights)" */

/* Whether two operands share a byte, also through different buffers that were lent from one
 * allocation. */
bool buffer_overlap(const struct work_operand *a, uint64_t a_bytes, const struct work_operand *b,
					uint64_t b_bytes);

enum buffer_place { BUFFER_PLACED, BUFFER_PLACING, BUFFER_FAILED };
/* Sees that the buffer is in one of the session's executors; when PLACING, work_pump() is called at
 * the end of it.  For OWN no work that uses the buffer may be under way in HOME. */
enum buffer_place buffer_place(struct buffer *buffer, enum buffer_where where);
struct device_handle *buffer_executor(const struct buffer *buffer, enum buffer_where where);
bool buffer_is_in(const struct buffer *buffer, enum buffer_where where);
/* Its placing has ended, well or not: whoever made it is answered (command/memory.c). */
void buffer_made(struct buffer *buffer);
/* The device process is a new one: buffers that were being made when the old one ended go on. */
void session_remake(struct session *session);
/* Tells the executor to free it, without waiting. */
void buffer_release(struct buffer *buffer);

/* ---- Graphs (graph.c) ---- */

/* A call with room for so many launches, which the session counts.  NULL without memory. */
struct call *graph_new(struct session *session, int count);
/* Of call_drop(): the device process is told. */
void graph_free(struct graph *graph);
/* The session is going, and with it all that is its in the device process. */
void graph_orphan(struct call *call);
/* All buffers are there, or ENOENT with a sentence. */
int graph_resolve(struct graph *graph, char error[KERNEL_ERROR_MAX]);

/* ---- Lanes (lane.c) ---- */

/* Adds what went through it to the broker's and the session's counters.  How many calls of it have
 * not ended. */
uint64_t lane_count(struct session *session);
/* Whether something is under way in the session's lane, as far as its client says. */
bool lane_works(const struct session *session);
/* Forgets it; the client is not told. */
void lane_drop(struct session *session);
/* The device process may be another one now: then the client is told why its lane is no more. */
void lane_check(struct session *session, const char *why);
/* Nothing more is taken; when what was has ended, the client is told.  busy: until then. */
void lane_end(struct session *session);
/* Of all sessions; false if there is none. */
bool lanes_end(struct broker *broker);
bool lane_busy(const struct session *session);
/* A variant of the call has another kernel now: what the lane knows of it does, too. */
void lane_rebind(struct session *session, struct call *call, const struct kernel_ref *variant);
/* The call is gone. */
void lane_unbind(struct session *session, const struct call *call);
void lane_cancel(struct session *session, uint64_t number, uint64_t count);

/* ---- Work (work.c) ---- */

/* When a launch may start, and what its client asks besides. */
struct work_order {
	uint32_t stream; /* of the client's */
	uint64_t after;
	bool wants_lane;
	bool first; /* the answer tells of the call, too; a launch that fails leaves none */
};
int work_launch(struct session *session, uint64_t ticket, struct call *call,
				struct kernel_ref *variant, const struct work_operand *operands,
				const struct work_order *order, char error[KERNEL_ERROR_MAX]);
/* The call has a graph. */
int work_launch_graph(struct session *session, uint64_t ticket, struct call *call,
					  const struct work_order *order, char error[KERNEL_ERROR_MAX]);
/* The answer comes when the device process has made it.  Takes the call over on success; it becomes
 * one of the session's. */
int work_graph(struct session *session, uint64_t ticket, struct call *call,
			   char error[KERNEL_ERROR_MAX]);
struct raw_launch;
/* The same of a user's kernel; takes the launch over on success. */
int work_launch_raw(struct session *session, uint64_t ticket, struct call *call,
					struct raw_launch *launch, uint64_t after, char error[KERNEL_ERROR_MAX]);
/* Takes over fd on success. */
int work_copy(struct session *session, uint64_t ticket, struct buffer *buffer, uint64_t offset,
			  uint64_t bytes, int fd, bool to_device, char error[KERNEL_ERROR_MAX]);
int work_free(struct session *session, uint64_t id, struct buffer *buffer,
			  char error[KERNEL_ERROR_MAX]);
void work_pump(struct session *session);
void work_cancel(struct session *session, uint64_t ticket);
void work_abandon(struct session *session); /* the session goes: queued work is dropped */
bool work_pending(const struct session *session, uint64_t ticket);
/* What has not ended. */
void work_count(const struct session *session, uint64_t *launches, uint64_t *copies);

/* EDEVICE, with a sentence: the device is of another kind now than what it was made for. */
int call_check_device(const struct session *session, uint64_t kind, const char *what,
					  const char *remedy, char error[KERNEL_ERROR_MAX]);
struct call *call_hold(struct call *call);
void call_drop(struct call *call);

/* ---- Commands (command/) ---- */

typedef void (*command_handler)(struct session *session, struct wire_in *message,
								struct frame *frame);
/* Dispatches by the table. */
void command_run(struct session *session, struct wire_in *message, struct frame *frame);

/* Of a session's lane: launches under way, entries that wait for a ready word, and for another. */
#define LANE_NOTES 3
int lane_waits(const struct session *session, struct wait_note notes[LANE_NOTES]);

#endif
