/*
 * executor: what the files of the executor process share.
 *
 *   executor.c          start, the main loop, the end
 *   executor_request.c  the table of requests and the short ones
 *   executor_module.c   kernels
 *   executor_quiet.c    when to do what stalls the device
 *   executor_launch.c   launches and copies: checks, what they hold, their ends
 *   executor_pace.c     how long a stream may take over what came by message
 *   executor_template.c what a launch is before it has buffers
 *   executor_graph.c    launches that are made one piece of work
 *   executor_lane.c     lanes: launches that come through shared memory
 *   executor_entry.c    what becomes of an entry of a lane
 *   executor_mapping.c  the clients' memory that copies go through
 *   executor_trail.c    what it leaves behind of its last calls
 *   executor_misdeed.c    what tests ask it to do wrong
 *   discipline.c        what the process gives up before it serves
 */
#ifndef KILN_DAEMON_EXEC_EXECUTOR_H
#define KILN_DAEMON_EXEC_EXECUTOR_H

#include "client/wire/frame.h"
#include "client/wire/lane_memory.h"
#include "client/wire/wire.h"
#include "daemon/base/misdeed.h"
#include "daemon/exec/exec.h"
#include "daemon/exec/trail.h"
#include "waker.h"
#include "daemon/base/map.h"

#include <sys/types.h>

/* The broker keeps stricter limits for each session; these keep a broken broker from hurting. */
#define EXEC_MAX_LANE_FLIGHTS 3072 /* launches of all lanes */
#define EXEC_MAX_FLIGHTS 1024      /* launches and copies that came by message */
#define EXEC_MAX_BUFFERS 65536
#define EXEC_MAX_MODULES 8192
#define EXEC_MAX_GRAPHS 65536
#define EXEC_MAX_MESSAGE (128u << 20)
#define EXEC_MAX_QUEUE (64u << 20)

struct exec;

/* LAZY: nobody waits for it. */
enum exec_task_kind { EXEC_TASK_LOAD, EXEC_TASK_FREE, EXEC_TASK_LAZY };

/* What waits for a quiet moment; part of what it is about. */
struct exec_task {
	struct exec_task *next;
	enum exec_task_kind kind;
	uint64_t added_us, due_us;
	void (*perform)(struct exec *executor, void *what); /* which may free it */
	void *what;
};

struct exec_quiet {
	uint64_t patience_us;    /* 0: nothing waits */
	struct exec_task *first; /* by the time they are due */
	bool holds;              /* nothing new is launched */
	uint64_t since_us;       /* it holds */
	uint64_t limit_us;       /* and for how long at most */
	uint64_t rest_us;        /* it does not before */
	/* What was in flight when the first task came: of flights with another epoch so many are left,
	 * and when the last of them ended, that had taken drain_us (0: not yet). */
	uint32_t epoch;
	int left;
	uint64_t came_us, drain_us;
};

struct exec_buffer {
	struct device_memory *memory;
	uint64_t bytes;
	uint32_t misaligned; /* of its first byte, from 256: alignment is checked against it */
	bool allocated;      /* here; else imported */
	int uses;            /* flights */
	uint64_t free_id;    /* the request that waits for the last use; 0: none */
	uint64_t owner;      /* the stream of the session that may name it */
	/* Which allocation of another process it lies in (0: none), and where: two buffers may share
	 * memory. */
	uint64_t origin, at;
	struct exec_task task;
};

struct exec_module {
	struct device_module *module; /* NULL: it waits to be loaded */
	int uses;
	uint64_t unload_id;
	struct exec_task task;
};

/* A client's memfd, mapped. */
struct exec_mapping {
	dev_t dev;
	ino_t ino;
	void *address;
	size_t bytes;
	bool writable;
	int uses;
};

/* Work that the device has. */
struct exec_flight {
	uint64_t id;    /* of the request, and the device's ticket */
	uint64_t trail; /* its number there */
	struct exec_module *module;
	struct exec_buffer *buffers[KERNEL_MAX_OPERANDS];
	int buffer_count;
	struct exec_mapping *mapping;
	uint32_t epoch;              /* of exec_quiet, when it began */
	struct exec_made *made;      /* it is a graph; NULL: it is none */
	struct exec_lane *lane;      /* that it came through; NULL: by message */
	_Atomic uint32_t *done_word; /* the device writes done_value there behind it; NULL: nothing */
	uint32_t done_value;
	bool done_last; /* that of a later launch does as well */
	bool untimed;
	/* By message: its stream, those next to it there, and how long nothing may end. */
	struct exec_line *line;
	struct exec_flight *before, *behind;
	uint64_t deadline_us; /* 0: for ever */
};

/* An operand, before it is known where it lies. */
struct exec_operand {
	uint64_t bytes; /* from its first element on */
	uint32_t alignment;
	bool written;
	char name[16];
};

struct exec_place {
	uint64_t buffer, offset;
	struct exec_buffer *found; /* by exec_find_buffers; NULL: there is none of that number */
};

/* A launch without its buffers. */
struct exec_template {
	bool copies;                /* no kernel: copy_bytes from operand 0 to operand 1 */
	struct exec_module *module; /* NULL if it copies, and never otherwise */
	uint32_t grid[3], block[3], shared_bytes;
	struct kernel_arg args[KERNEL_MAX_ARGS];
	int arg_count;
	struct exec_operand operands[KERNEL_MAX_OPERANDS];
	int operand_count;
	struct kernel_scratch scratch;
	struct kernel_report report;
	uint64_t copy_bytes;
	uint32_t granule; /* of checked kernels */
	char op[24];      /* what sentences about it begin with */
	uint64_t id, of;  /* in a lane, the broker's: of this, and of the call that it belongs to */
	uint64_t leaving; /* unbound, but parked entries below this may name it; 0: bound */
	uint64_t notice, left; /* the broker is told of every so many launches; 0: not */
};

struct exec_part {
	struct exec_template what;
	struct exec_place places[KERNEL_MAX_OPERANDS];
};

/* A graph as the broker described it. */
struct exec_graph {
	uint64_t id, owner; /* the stream of the session that may launch it */
	struct exec_part *parts;
	int count;
	struct exec_made *made; /* NULL: it has yet to be made, of the buffers that there are then */
	int holders;            /* its name, and all that were made of it */
	uint64_t leaving;       /* freed, but parked entries below this may name it; 0: it is not */
};

/* Made once of these buffers; those in flight go on when the graph has another. */
struct exec_made {
	struct exec_graph *of;
	struct device_graph *graph;
	struct exec_buffer **buffers; /* each once for every operand */
	int buffer_count;
	int holders; /* the graph, and flights */
};

/* Of a launch from a lane: a graph, or what with places. */
struct exec_start {
	const struct exec_template *what;
	const struct exec_place *places;
	struct exec_graph *graph;
};

/* Tickets of what lanes launch: this, the lane's index, the place; the broker's ids are far below.
 */
#define EXEC_LANE_TICKET ((uint64_t)1 << 63)

enum exec_slot_state { SLOT_FREE, SLOT_PARKED, SLOT_FLYING, SLOT_ENDED };

/* The last entry that was taken from a place of the ring. */
struct exec_slot {
	struct lane_entry entry;
	uint64_t number;
	struct exec_flight flight; /* while it is under way */
	enum exec_slot_state state;
	bool failed;
	bool doomed;       /* the entry that it follows failed */
	bool reports;      /* whether it succeeds is known only when it has ended */
	bool cell_is_good; /* the cell of this place tells of an untimed success */
	char op[24];
	uint64_t parked_us;
	struct exec_slot *next; /* parked behind it */
};

struct exec_parked {
	struct exec_slot *first, *last;
};

struct exec_pace {
	int flights;
	uint64_t progress_us; /* the last end, or the start after which there are flights */
};

struct exec_lane {
	uint64_t id;    /* the stream */
	uint32_t index; /* in the table of lanes */
	struct lane_memory *memory;
	int wake; /* the eventfd by which the client wakes this process */
	int told; /* the end of a pipe by which this process wakes the client */
	struct waker *waker;
	uint64_t head; /* entries taken */
	int flights;
	struct exec_slot slots[LANE_ENTRIES];
	struct exec_parked parking[KILN_STREAMS]; /* by stream */
	int parked, gated;                        /* of these, those that wait for a ready word */
	uint64_t leaving;               /* the least of its calls' and graphs'; 0: none leaves */
	bool gates_asked, gates_shared; /* the device can write done words */
	uint32_t started;               /* launches, up to those that it takes to share them */
	struct lane_counts *counts;
	struct exec_pace paces[KILN_STREAMS]; /* by stream */
	uint64_t deadline_us;
	uint64_t ready_us;    /* the same of ready words; 0: no end */
	uint64_t progress_us; /* not later than that of any stream with flights */
	struct map calls;     /* struct exec_template, by the broker's number */
	bool closing;
	uint64_t close_id; /* the request that waits for its end; 0: none */
	struct exec_task task;
	struct exec_lane *next;
};

struct exec {
	const struct device_ops *ops;
	struct device *device;
	struct device_info info;
	int sock, epoll;
	unsigned watched; /* events the epoll descriptor waits for */
	struct frame_queue queue;
	bool ended; /* the socket has */
	struct map buffers, modules, flights, graphs;
	struct map lines;      /* streams with flights that came by message */
	uint64_t lines_due_us; /* none of them is overdue before */
	struct exec_quiet quiet;
	struct exec_lane *lanes;
	struct waker *waker; /* with the first lane; NULL: there is none */
	bool waker_tried;
	struct exec_lane **lane_table; /* by their index; NULL: free */
	uint32_t lane_room;
	size_t lane_flights;
	/* The time at the turn's beginning and after it has waited: asking for each launch would cost
	 * as much as the rest of what is done for it here. */
	uint64_t now_us;
	uint64_t lane_active_us;
	uint64_t scratch_told; /* bytes of scratch memory that the broker knows of */
	uint64_t lane_told_us; /* when the broker was last told that lanes get on */
	uint32_t spin_us;      /* to look for entries before sleeping */
	int cpus;
	bool alone; /* one CPU is all there is: looking for work would keep others from making it */
	struct heart *heart; /* NULL: it beats not */
#ifdef KILN_TEST_HOOKS
	enum misdeed misdeed; /* what a test asked it to do wrong, in place of the step misdeed_at */
	char misdeed_at[16];
#endif
	struct exec_mapping *kept; /* the last one: clients use one again and again */
	struct trail *trail;
	uint64_t trail_begun;
};

/* ---- executor.c ---- */
/* Answers a request. */
void exec_reply(struct exec *executor, uint64_t id, int status, const char *error);
/* Ends and sends a begun message; fd (-1: none) goes along and stays the caller's. */
void exec_send(struct exec *executor, struct wire_out *message, int fd);

/* ---- executor_request.c ---- */
void exec_request(struct exec *executor, struct wire_in *message, struct frame *frame);
/* One use less; what waited for that is freed and answered. */
void exec_release_buffer(struct exec *executor, struct exec_buffer *buffer);

/* ---- executor_module.c ---- */
int exec_load(struct exec *executor, struct wire_in *message, struct frame *frame,
			  char error[KERNEL_ERROR_MAX]);
int exec_unload(struct exec *executor, struct wire_in *message, struct frame *frame,
				char error[KERNEL_ERROR_MAX]);
/* NULL: there is none that is loaded. */
struct exec_module *exec_find_module(const struct exec *executor, uint64_t id);
void exec_release_module(struct exec *executor, struct exec_module *module);

/* ---- executor_quiet.c ---- */
void exec_quiet_open(struct exec *executor, uint32_t patience_ms);
/* Does all that waits; nothing is in flight. */
void exec_quiet_close(struct exec *executor);
/* Whether freeing this memory, or with NULL what device_ops.stalls says, is to be added as a task;
 * else it is done at once. */
bool exec_quiet_waits(const struct exec *executor, const struct device_memory *memory);
void exec_quiet_add(struct exec *executor, struct exec_task *task, enum exec_task_kind kind);
void exec_quiet_ended(struct exec *executor, const struct exec_flight *flight);
/* Does what can be done; begins and ends holds. */
void exec_quiet_serve(struct exec *executor);
/* How long the device may be waited for, patience at most (-1: no limit). */
int exec_quiet_patience(const struct exec *executor, int patience);
static inline size_t exec_in_flight(const struct exec *executor)
{
	return executor->flights.count + executor->lane_flights;
}

/* Else nothing is taken from the socket: enough is in flight, or it holds.  Lanes, however full,
 * keep no request waiting there, and messages keep no lane waiting: each has room of its own. */
static inline bool exec_may_receive(const struct exec *executor)
{
	return executor->flights.count < EXEC_MAX_FLIGHTS && !executor->quiet.holds;
}

/* Else nothing is launched from lanes. */
static inline bool exec_lanes_may_launch(const struct exec *executor)
{
	return executor->lane_flights < EXEC_MAX_LANE_FLIGHTS && !executor->quiet.holds;
}

/* ---- executor_launch.c ---- */
/* KILN_OK: the device has it, and the answer comes with its end. */
int exec_launch(struct exec *executor, struct wire_in *message, char error[KERNEL_ERROR_MAX]);
int exec_copy(struct exec *executor, struct wire_in *message, struct frame *frame,
			  char error[KERNEL_ERROR_MAX]);
void exec_finish(struct exec *executor, const struct device_done *done);
/* The same of a launch from a lane; its end is told by exec_lane_finish. */
int exec_launch_lane(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot,
					 const struct exec_start *start, char error[KERNEL_ERROR_MAX]);
/* What the flight used is free again. */
void exec_let_go(struct exec *executor, struct exec_flight *flight);
int exec_launch_graph(struct exec *executor, struct wire_in *message, struct frame *frame,
					  char error[KERNEL_ERROR_MAX]);
/* Fills in found. */
void exec_find_buffers(const struct exec *executor, struct exec_place *places, int count);
/* Where buffers that are held are noted. */
struct exec_held {
	struct exec_buffer **buffers;
	int *count;
};
/* A template at its places, found: each within its buffer, which owner may name (0: anybody may),
 * and aligned.  Those bound so far are held, also where it fails. */
int exec_bind(const struct exec_template *what, const struct exec_place *places, uint64_t owner,
			  struct exec_held held, struct device_operand *operands, struct device_launch *launch,
			  char error[KERNEL_ERROR_MAX]);
/* The device's name of a stream of a session. */
uint64_t exec_stream(uint64_t session_stream, uint64_t number);

/* ---- executor_pace.c ---- */
void exec_pace_open(struct exec *executor);
/* The device has it; and it has ended. */
void exec_pace_enter(struct exec *executor, struct exec_flight *flight, uint64_t stream,
					 uint64_t deadline_us);
void exec_pace_leave(struct exec *executor, struct exec_flight *flight);
/* A launch of a lane has ended on this stream. */
void exec_pace_ended(struct exec *executor, uint64_t stream);
/* Since when a launch has kept its stream, of which something ended last at progress_us: now, if
 * the device says that it has not begun. */
uint64_t exec_pace_since(const struct exec *executor, uint64_t ticket, uint64_t progress_us);
/* One that nothing has come of for too long: *culprit says what, for the last words. */
bool exec_pace_overrun(struct exec *executor, struct device_done *culprit);
int exec_pace_patience(const struct exec *executor, int patience);
void exec_pace_sentence(const struct exec *executor, uint64_t deadline_us,
						char error[KERNEL_ERROR_MAX]);

/* ---- executor_template.c ---- */
/* map: the message's root, or a part of it. */
int exec_template_read(struct exec *executor, struct wire_in *message, const msgpack_object *map,
					   struct exec_template *out, struct exec_place places[KERNEL_MAX_OPERANDS],
					   char error[KERNEL_ERROR_MAX]);

/* ---- executor_graph.c ---- */
int exec_graph_new(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX]);
int exec_graph_free(struct exec *executor, struct wire_in *message, struct frame *frame,
					char error[KERNEL_ERROR_MAX]);
/* NULL: there is none of that name that the owner may launch. */
struct exec_graph *exec_graph_find(const struct exec *executor, uint64_t owner, uint64_t id);
/* Held by the caller; made if it has to be. */
int exec_graph_take(struct exec *executor, struct exec_graph *graph, struct exec_made **out,
					char error[KERNEL_ERROR_MAX]);
void exec_made_release(struct exec *executor, struct exec_made *made);
/* The buffer will be elsewhere, or no more: graphs are made anew when they are next launched. */
void exec_graphs_unmake(struct exec *executor, const struct exec_buffer *buffer);
/* Those of an owner, or (0) all. */
void exec_graphs_drop(struct exec *executor, uint64_t owner);
/* Those that leave, and that no entry from parked on names; the least leaving of the rest. */
uint64_t exec_graphs_settle(struct exec *executor, uint64_t owner, uint64_t parked);

/* ---- executor_lane.c ---- */
int exec_lane_open(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX]);
int exec_lane_bind(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX]);
int exec_lane_rebind(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX]);
int exec_lane_unbind(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX]);
int exec_lane_cancel(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX]);
/* Parked entries below this may name what is to go, which then must wait; 0: there are none. */
uint64_t exec_lane_leave(struct exec *executor, uint64_t stream);
/* Nothing more is taken.  When what was has ended, request is answered (0: nobody asked). */
void exec_lane_close(struct exec *executor, uint64_t stream, uint64_t request);
/* Frees a lane that is closing when nothing of it is under way any more. */
void exec_lane_settle(struct exec *executor, struct exec_lane *lane);
/* A message that names a lane follows the entries that its client had put there before.
 * ECANCELED with a sentence if it also follows one that failed. */
int exec_lane_catch_up(struct exec *executor, const struct wire_in *message,
					   char error[KERNEL_ERROR_MAX]);
/* Takes what there is. */
void exec_lanes_serve(struct exec *executor);
/* Whether there is something. */
bool exec_lanes_waiting(const struct exec *executor);
/* How long the device may be waited for: 0 while lanes are looked at, milliseconds, -1. */
int exec_lanes_patience(struct exec *executor);
/* Before and after waiting; false: there is something to take. */
bool exec_lanes_sleep(struct exec *executor);
void exec_lanes_wake(struct exec *executor);
/* Instead of waiting, while there are ready words to be looked at. */
void exec_lanes_nap(struct exec *executor);
/* A launch that nothing has come of for too long: *culprit says what, for the last words. */
bool exec_lanes_overrun(struct exec *executor, struct device_done *culprit);

/* ---- executor_entry.c ---- */
/* Takes the next entry: launches it, parks it or tells why not. */
void exec_lane_take(struct exec *executor, struct exec_lane *lane);
/* Before it is launched: has the device itself write the entry's done word, where that is possible:
 * the client sees that sooner than what this process says when it has heard of the end. */
void exec_lane_announce(struct exec *executor, struct exec_lane *lane, struct exec_slot *slot,
						struct exec_flight *flight);
/* Its place is not that of one under way, which only a client that breaks the rules wants. */
bool exec_lane_has_place(const struct exec_lane *lane);
bool exec_lane_has_room(const struct exec *executor, const struct exec_lane *lane);
/* Launches those parked that may start now. */
void exec_lane_unpark(struct exec *executor, struct exec_lane *lane);
bool exec_lane_may_unpark(const struct exec *executor, const struct exec_lane *lane);
/* The number of the parked entry that was taken first; UINT64_MAX: there is none. */
uint64_t exec_lane_first_parked(const struct exec_lane *lane);
/* Ends one that has not started, and those that follow it, in ECANCELED. */
void exec_lane_cancel_entry(struct exec *executor, struct exec_lane *lane, uint64_t number);
/* The same of all that are parked. */
void exec_lane_drop_parked(struct exec_lane *lane);
/* Of an entry that the device has, by its ticket. */
const struct exec_flight *exec_lane_flight(const struct exec *executor, uint64_t ticket);
/* What an entry that the device had ended in. */
void exec_lane_finish(struct exec *executor, const struct device_done *done);
/* Fills in the cell, and wakes the client if it sleeps. */
void exec_lane_tell(struct exec_lane *lane, uint64_t number, int status, const char *error,
					uint64_t micros);
bool exec_lane_failed(const struct exec_lane *lane, uint64_t number);
/* Its stream. */
uint32_t exec_lane_stream(const struct exec_lane *lane, uint64_t number);

/* ---- executor_mapping.c ---- */
int exec_map(struct exec *executor, int fd, uint64_t bytes, bool writable,
			 struct exec_mapping **out, char error[KERNEL_ERROR_MAX]);
void exec_unmap(struct exec *executor, struct exec_mapping *mapping);
/* Forgets the mapping kept for the next copy. */
void exec_unmap_kept(struct exec *executor);

/* ---- executor_trail.c ---- */
/* fd: of the broker's memory for it, which is closed; 0: there is none.  Without memory
 * executor->trail stays NULL, and the process cannot serve. */
void exec_trail_open(struct exec *executor, int fd);
void exec_trail_close(struct exec *executor);
/* A call begins: its number. */
uint64_t exec_trail_begin(struct exec *executor, uint64_t name, uint64_t stream);
void exec_trail_end(struct exec *executor, uint64_t number, int status);
/* The device broke with this one. */
void exec_trail_blame(struct exec *executor, uint64_t ticket);

/* ---- executor_misdeed.c ---- */
#ifdef KILN_TEST_HOOKS
int exec_misdeed_arm(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX]);
/* Whether the step was to go wrong and is done with; id: of what it answers. */
bool exec_misdeed_done(struct exec *executor, const char *step, uint64_t id);
static inline bool exec_misdeed(struct exec *executor, const char *step, uint64_t id)
{
	return executor->misdeed != MISDEED_NONE && exec_misdeed_done(executor, step, id);
}
/* A test wants no task to be done: each waits until another misdeed is asked for. */
static inline bool exec_misdeed_holds(const struct exec *executor)
{
	return executor->misdeed == MISDEED_HOLD;
}
#else
static inline bool exec_misdeed(struct exec *executor, const char *step, uint64_t id)
{
	(void)executor, (void)step, (void)id;
	return false;
}
static inline bool exec_misdeed_holds(const struct exec *executor)
{
	(void)executor;
	return false;
}
#endif

/* ---- discipline.c ---- */
/* No core files, no new privileges; and unless it is wrapped a process group of its own, death with
 * its parent, no descriptors but 0 to 2 and sock. */
void exec_discipline(const struct exec_options *options);

#endif
