/*
 * local.h: what the files of libkiln share.  Nothing here is exported, and nothing outside client/
 * includes it.
 *
 * Layers, each using only those above: error.c (messages), ticket.c (table of submitted calls),
 * link.c (traffic on the socket) and lane.c (launches past it; each calls the other), client.c
 * (connecting, who may enter), the rest (one file for each part of kiln.h).
 */
#ifndef KILN_CLIENT_LOCAL_H
#define KILN_CLIENT_LOCAL_H

#include "client/wire/frame.h"
#include "client/wire/wire.h"

#include <kiln/kiln.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#define LOCAL_REPLY_MAX ((size_t)256 << 20) /* bytes of one message from the daemon */
#define LOCAL_QUEUE_MAX \
	((size_t)8 << 20) /* bytes of submitted calls that the socket did not take */
#define LOCAL_ERROR_MAX 640

/* ---- error.c ---- */

/* Sets this thread's message and returns status. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with the daemon's sentence (NULL: the status's general text) and log (NULL: none). */
int error_set_peer(int status, const char *sentence, const char *log);
/* Of a structure whose first member is its size, and that may be larger than is known here: what
 * stands there is zero, or the program wants what this library has not. */
int error_if_newer(const void *given, size_t known, const char *name);

/* ---- Time ---- */

#define LOCAL_NEVER INT64_MAX
int64_t time_now_ms(void);
/* A deadline from a timeout; negative: LOCAL_NEVER. */
int64_t time_deadline(int timeout_ms);
/* What poll(2) takes: -1 for LOCAL_NEVER, 0 when it has passed. */
int time_left(int64_t deadline);

/* ---- ticket.c: submitted calls, by rising id ---- */

struct ticket {
	uint64_t id;
	bool done;
	bool given_up;  /* nobody's: it stays until it has ended, and is not told of then */
	bool lane;      /* went through the lane, as entries from first on; else by message */
	uint64_t first; /* its parts are numbers from there on */
	int parts, left, failed_part; /* calls of a batch, and how many have not ended */
	uint64_t batch;               /* by message: nobody's ticket, but a part of that one; else 0 */
	int part;
	int status;    /* once done, or of the first part that failed */
	double micros; /* on the device; 0 where it cannot tell */
	char *error;   /* sentence and log of a failure, or NULL */
	char *log;
};

#define TICKET_FAILED 256

struct ticket_table {
	struct ticket *items; /* items[head .. end) are in use, sorted by id */
	size_t head, end, capacity;
	size_t done;                    /* how many of them are finished */
	size_t messages;                /* how many went by message and are not */
	uint64_t failed[TICKET_FAILED]; /* the last that failed: newest overwrite */
	unsigned failed_at;
};

int ticket_add(struct ticket_table *table, uint64_t id);
int ticket_add_lane(struct ticket_table *table, uint64_t id, uint64_t first, int count);
/* By message: a ticket that ends with its parts, which have ids of their own. */
int ticket_add_batch(struct ticket_table *table, uint64_t id, int count);
int ticket_add_part(struct ticket_table *table, uint64_t id, uint64_t batch, int part);
bool ticket_failed(const struct ticket_table *table, uint64_t id);
struct ticket *ticket_find(const struct ticket_table *table, uint64_t id);
/* Marks it finished; takes copies of the texts (either may be NULL). */
void ticket_finish(struct ticket_table *table, struct ticket *ticket, int status, const char *error,
				   const char *log);
/* One of its parts has ended; the last one finishes it. */
void ticket_finish_part(struct ticket_table *table, struct ticket *ticket, int part, int status,
						const char *error, double micros);
/* Finishes all that are not finished. */
void ticket_finish_all(struct ticket_table *table, int status, const char *error);
void ticket_remove(struct ticket_table *table, struct ticket *ticket);
/* Nobody waits for it any more.  A call that went by message stays in the table until it has ended:
 * until then no launch may overtake it. */
void ticket_give_up(struct ticket_table *table, struct ticket *ticket);
void ticket_table_free(struct ticket_table *table);

/* ---- The client ---- */

/* What a reply that came after its deadline obliges us to give back. */
enum undo { UNDO_NOTHING, UNDO_BUFFER, UNDO_CALL };

struct late {
	uint64_t id;
	enum undo undo;
};

struct kiln_client {
	_Atomic unsigned state; /* STATE_*: who is inside, and whether it is being closed */
	atomic_int refs;        /* the handle itself, and each buffer and call made from it */
	_Atomic(struct kiln_call *) orphans; /* freed while another thread was inside */
	pid_t pid;
	const atomic_int *ours; /* 0 in a child of fork(), without asking the system; NULL: ask */
	int sock;
	bool dead; /* nothing more comes or goes; dead_text says why */
	char dead_text[384];
	uint64_t next_id;
	uint64_t max_message; /* that the daemon takes */
	int timeout_ms;       /* KILN_FOREVER: none */
	struct frame_queue queue;
	struct ticket_table tickets;
	struct lane *lane;
	struct signatures *signatures; /* the calls that kiln_run keeps */
	struct late *late;             /* requests given up, whose reply may still come */
	size_t late_count;
	int staging; /* memfd for read and write, or -1 */
	void *staging_map;
	size_t staging_bytes;
	bool debug; /* KILN_DEBUG=wire */
	bool times; /* it has asked how long a call took */
	int64_t born_us;
	char device[32];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

struct kiln_buffer {
	struct kiln_client *client;
	uint64_t id, bytes;
	uint64_t phase;      /* where its first byte lies in an aligned allocation */
	uint64_t generation; /* of the device process that has it, as far as is known; 0: none */
	void *map;           /* KILN_BUFFER_SHARED: the whole memfd; the buffer starts at map_offset */
	size_t map_bytes, map_offset;
	char name[64]; /* for messages: "buffer \"x\"" or "buffer 3" */
};

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

/* ---- link.c: traffic ---- */

struct request {
	struct wire_out out;
	const char *name;
	uint64_t id;
	int fd; /* to send along, or -1 */
	enum undo undo;
};

struct answer {
	struct frame frame;
	struct wire_in in;
};

/* Starts a request; the caller adds its members to request->out. */
void link_begin(struct kiln_client *client, struct request *request, const char *name);
/*
 * Sends the request and waits for its reply.  A reply with a negative "st" becomes that status and
 * this thread's message.  On success *answer is the caller's to free (NULL: not wanted).  Frees the
 * request in any case.
 */
int link_ask(struct kiln_client *client, struct request *request, int64_t deadline,
			 struct answer *answer);
/* Sends or queues the request and does not wait.  Frees it in any case. */
int link_post(struct kiln_client *client, struct request *request, size_t queue_limit);
/* Handles what has arrived, without waiting.  KILN_OK, or KILN_ECONN once the client is dead. */
int link_drain(struct kiln_client *client);
/* Waits until something can be handled, and handles it.  KILN_OK, KILN_ETIMEDOUT (no message is
 * set), KILN_ECONN. */
int link_wait(struct kiln_client *client, int64_t deadline);
void answer_free(struct answer *answer);
/* The message and status of a client whose daemon is gone. */
int link_dead(const struct kiln_client *client);

/* ---- lane.c ---- */

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

/* ---- local_launch.c ---- */

/* Unloads what kiln_launch_local() has loaded for the call; forked: without calling the driver. */
void local_forget(struct kiln_call *call, bool forked);

/* ---- client.c ---- */

/* Enters: KILN_OK (also where the daemon is gone), or EINVAL, EFORK, EBUSY, ECONN with a message.
 */
int client_enter(struct kiln_client *client);
/* The same in two steps: tries, and puts a failure to do so into words. */
int client_try(struct kiln_client *client);
int client_refuse(const struct kiln_client *client, int status);
/* Leaves; returns status.  The client may be gone afterwards. */
int client_leave(struct kiln_client *client, int status);
void client_unref(struct kiln_client *client);
int64_t client_deadline(const struct kiln_client *client);

/* ---- autostart.c ---- */

/* Starts a kilnd on this socket path.  *watch: a descriptor that becomes readable when it ends, or
 * -1.  daemon NULL: found by itself. */
int autostart(const char *path, const char *daemon, int64_t deadline, int *watch);

/* ---- call.c ---- */

/* Adds "tensors" and "attrs"; EINVAL with a message for what cannot be encoded. */
int call_put(struct kiln_client *client, struct wire_out *out, const char *op,
			 const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs, int attr_count);
/* Asks for a call; frees the request in any case.  *ran: it has run, too (NULL: not asked for). */
int call_make(struct kiln_client *client, struct request *request, int64_t deadline, bool *ran,
			  struct kiln_call **out);
/* As kiln_prepare; makes room where the daemon takes no more calls.  ran not NULL: it shall be run
 * at once, if nothing has to be waited for; *ran says whether it was. */
int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, bool *ran,
				 kiln_call **out);
/* again: the call may be submitted again, and should then need no message. */
int call_submit(kiln_call *call, const kiln_operand *operands, int count, kiln_ticket after,
				bool again, kiln_ticket *out);
/* Waits until the ticket, which is in the table, is done.  KILN_ETIMEDOUT sets no message. */
int call_await(kiln_client *client, kiln_ticket id, int64_t deadline);
/* Waits until the ticket is finished and takes its result; KILN_ETIMEDOUT without a message. */
int call_finish(kiln_client *client, kiln_ticket id, int64_t deadline, double *micros);
/* Cancels what is not finished, without waiting, and forgets the ticket. */
void call_give_up(kiln_client *client, struct ticket *ticket);
/* Posts a request whose answer is a ticket's; frees it in any case. */
int call_post(struct kiln_client *client, struct request *request, kiln_ticket after,
			  kiln_ticket *out);
/* ENOENT with a message for a ticket that no call had. */
int call_check_after(const struct kiln_client *client, kiln_ticket after);
/* Whether it is known that what follows this ticket must not be run; and a ticket for that, which
 * has ended. */
bool call_follows_failure(const struct kiln_client *client, kiln_ticket after);
int call_canceled(struct kiln_client *client, kiln_ticket after, kiln_ticket *out);
/* What the call was prepared for, in buffers of its client. */
int call_check_operands(const kiln_call *call, const kiln_operand *operands, int count);
/* The last sentence says of which of several calls it is. */
int call_blame(int status, int i);
void call_put_operands(struct wire_out *out, const kiln_operand *operands, int count);
/* Tells the daemon, without waiting, and frees the handle. */
void call_release(struct kiln_call *call);

/* ---- cuda_order.c: order with a CUDA stream of the caller's ---- */

/* KILN_OK: calls may be submitted in order with this stream.  Before the others. */
int order_check(void *cuda_stream);
/* Whether the gates of these entries, which are not yet written, can be used by this stream. */
bool order_open(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* When they are written: the stream opens the gate of first when it gets there, and goes on when
 * last has ended.  KILN_OK; LANE_HOST; or a status with a message, and the gate stays shut. */
int order_follow(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* Waits on the host for all that the stream has. */
int order_host(void *cuda_stream);

/* ---- run.c ---- */

/* Releases the call that kiln_run has kept unused for longest; false: it keeps none. */
bool run_forget_oldest(struct kiln_client *client);

/* ---- request.c ---- */

/* Adds attributes as members of the map that is open. */
int request_put_attrs(struct wire_out *out, const kiln_attr *attrs, int count);

/* ---- buffer.c ---- */

/* offset: where it begins in the allocation. */
int buffer_lend(struct kiln_client *client, struct request *request, uint64_t offset,
				uint64_t bytes, const char *name, struct kiln_buffer **out);
void buffer_drop_staging(struct kiln_client *client);

/* ---- reply.c ---- */

/* Takes the answer over. */
int reply_make(struct answer *answer, struct kiln_reply **out);

#endif
