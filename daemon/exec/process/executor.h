/*
 * executor: the process that owns one device for one trust domain.  The main thread owns all that
 * struct exec holds; a launcher owns what its sessions launch.  The heart and the wakers have
 * threads of their own.
 *
 *   executor.c           starts, loops, ends
 *   executor_say.c       sends messages to the broker
 *   executor_request.c   the table of requests and the short ones
 *   executor_buffer.c    takes, binds and frees buffers
 *   executor_module.c    kernels
 *   launcher.c           how the main thread stops other threads that launch
 *   launcher_run.c       what those do in a turn, and how the process leaves a broken device
 *   executor_quiet.c     decides when to do tasks that stall the device
 *   executor_launch.c    launches and copies that came by message
 *   executor_pace.c      how long a stream may take over them
 *   executor_template.c  what a launch is before it has buffers
 *   executor_graph.c     launches that are made one piece of work
 *   executor_lane.c      lanes: opens and closes them
 *   executor_lane_call.c the calls that are bound to them
 *   executor_lane_turn.c when they are looked at
 *   executor_desk.c      plans the first call of a shape, and binds it
 *   executor_park.c      takes their entries, parks those that may not start
 *   executor_entry.c     launches an entry and tells its end
 *   executor_mapping.c   the clients' memory that copies go through
 *   executor_trail.c     what it leaves behind of its last calls
 *   executor_account.c   for whom the device was busy
 *   executor_misdeed.c   what tests ask it to do wrong
 *   executor_rights.c    what the process gives up before it serves
 */
#ifndef KILN_DAEMON_EXEC_EXECUTOR_H
#define KILN_DAEMON_EXEC_EXECUTOR_H

#include "client/wire/frame.h"
#include "client/wire/wire.h"
#include "daemon/base/map.h"
#include "daemon/base/misdeed.h"
#include "daemon/exec/exec.h"
#include "daemon/plan/plan.h"
#include "executor_quiet.h"
#include "launcher.h"

#include <pthread.h>

/* The broker keeps stricter limits for each session; these keep a broken broker from hurting. */
#define EXEC_MAX_LANE_FLIGHTS 3072 /* launches of all lanes */
#define EXEC_MAX_FLIGHTS 1024      /* launches and copies that came by message */
#define EXEC_MAX_BUFFERS 65536
#define EXEC_MAX_MODULES 8192
#define EXEC_MAX_GRAPHS 65536
#define EXEC_MAX_MESSAGE (128u << 20)
#define EXEC_MAX_QUEUE (64u << 20)

struct device_done;
struct exec_place;
struct exec_template;

/* A request of the broker, while exec_request_serve() serves it. */
struct exec_request {
	struct wire_in *message;
	const msgpack_object *root; /* of the message */
	uint64_t id, stream;        /* stream: of the session that it is about; 0: of none */
	struct frame *frame;        /* owns the descriptors that no handler takes */
	/* The launch, if a lane has been bound to it and it is read already; NULL: it is not. */
	const struct exec_template *what;
	struct exec_place *places;
	char error[KERNEL_ERROR_MAX];
};

/* Serves one kind of request; the launcher is that of the session.  KILN_OK, or a status and a
 * sentence in request->error. */
typedef int exec_handler(struct launcher *launcher, struct exec_request *request);

/* exec_refuse(request, status, format, ...) writes the sentence and returns the status. */
#define exec_refuse(request, ...) util_fail((request)->error, KERNEL_ERROR_MAX, __VA_ARGS__)

/* Accounts that have work on the device share its time.  The clock is the time that each of them
 * has had; it stands still while the device has no work. */
struct exec_accounts {
	pthread_mutex_t mutex;              /* launchers change all of it */
	uint64_t clock, clock_us;           /* in 1/TRAIL_UNITS us; when it was set */
	uint32_t busy;                      /* accounts with work */
	uint32_t launchers[TRAIL_ACCOUNTS]; /* that have work of the account */
	uint64_t since[TRAIL_ACCOUNTS];     /* the clock up to which a busy one's share is written */
};

struct exec {
	const struct device_ops *ops;
	struct device *device;
	struct device_info info;
	int sock;
	unsigned watched;       /* events for which the main thread waits at the socket */
	pthread_mutex_t saying; /* guards queue: all launchers send messages */
	struct frame_queue queue;
	_Atomic size_t queued; /* queue.count */
	atomic_bool ended;     /* the socket has ended, or is of no use: the process leaves */
	struct map buffers, modules;
	struct map generics;          /* of the modules, by their names */
	uint64_t shapes[PLAN_HASHES]; /* that have exact kernels here */
	struct exec_quiet quiet;
	struct launcher launchers[DEVICE_PARTS_MOST]; /* the first one is the main thread's */
	int launcher_count;
	void *(*launcher_body)(void *launcher); /* of their threads */
	struct map homes;                       /* the launchers of the sessions, by their streams */
	int stops; /* how often launchers_stop() was called, less launchers_go() */
	/* The main thread has something to look at; it sleeps, and a bell wakes it; it wants to hear of
	 * ends; and messages are read next, for which an entry of a lane waits, or which let lanes go
	 * before them. */
	atomic_bool told, sleeps, wants_ends, looks;
	_Atomic uint32_t empty;        /* how often it found no message at the socket */
	uint64_t scratch_told;         /* bytes of scratch memory that the broker knows of */
	_Atomic uint64_t lane_told_us; /* when the broker was last told that lanes get on */
	int cpus;
	bool alone; /* there is one CPU: a process that looks for work keeps others from making it */
	struct heart *heart; /* NULL: the process does not beat */
#ifdef KILN_TEST_HOOKS
	/* enum misdeed: what a test asked it to do wrong, in place of the step misdeed_at */
	_Atomic int misdeed;
	char misdeed_at[16];
#endif
	bool own; /* of one session, which hears what its kernels print */
	struct trail *trail;
	_Atomic uint64_t trail_begun;
	struct exec_accounts accounts;
};

/* Has the main thread look at what has changed.  Any thread may call it. */
void exec_tell(struct exec *executor);

/* ---- executor_say.c ---- */
/* Answers a request.  error: a sentence unless status is KILN_OK.  Any thread may call this, and
 * exec_send(). */
void exec_reply(struct exec *executor, uint64_t id, int status, const char *error);
/* Ends, sends and frees a begun message.  fd (-1: none) goes along and stays the caller's.  If the
 * message cannot be sent or queued, the process leaves. */
void exec_send(struct exec *executor, struct wire_out *message, int fd);
/* Tells the broker what the device is, or why there is none.  held: what the sandbox holds. */
void exec_say_ready(struct exec *executor, int status, const char *error, const char *held);
/* Tells the broker why the process leaves, within DEADLINE_LAST_WORDS_MS.  culprit NULL: no call is
 * known to be the cause. */
void exec_say_fault(struct exec *executor, const struct device_done *culprit);
/* Tells the broker what kernels have printed, if it is a session's own process. */
void exec_say_printed(struct exec *executor);
/* Tells the broker how many bytes of scratch memory there are, if that has changed. */
void exec_say_scratch(struct exec *executor);
/* Starts the thread that tells the broker that the process lives.  NULL: it need not, or cannot. */
struct heart *exec_heart_start(const struct exec_options *options);

/* ---- executor_request.c ---- */
/* Calls the handler of the message's kind and sends its answer.  Both arguments stay the caller's.
 */
void exec_request_serve(struct exec *executor, struct wire_in *message, struct frame *frame);

/* ---- executor_mapping.c ---- */
/* Maps the memfd for one flight, which holds *out until exec_unmap().  The caller keeps fd.
 * ENOMEM, EINVAL and a sentence. */
int exec_map(struct launcher *launcher, int fd, uint64_t bytes, bool writable,
			 struct exec_mapping **out, void **address, char error[KERNEL_ERROR_MAX]);
void exec_unmap(struct launcher *launcher, struct exec_mapping *mapping);
/* Forgets the mapping kept for the next copy. */
void exec_unmap_kept(struct launcher *launcher);

/* ---- executor_trail.c ---- */
/* Maps the broker's memory for the trail and closes fd; 0: there is none.  Without memory
 * executor->trail stays NULL, and the process cannot serve. */
void exec_trail_open(struct exec *executor, int fd);
void exec_trail_close(struct exec *executor);
/* Notes that a call begins; returns its number there. */
uint64_t exec_trail_begin(struct launcher *launcher, uint64_t name, uint64_t stream, uint64_t line);
void exec_trail_end(struct launcher *launcher, uint64_t number, int status);
/* Notes with which call the device broke. */
void exec_trail_blame(struct exec *executor, uint64_t number);

/* ---- executor_account.c ---- */
void exec_account_open(struct exec *executor);
/* Returns the account that a message names; one that it does not have is 0. */
uint32_t exec_account_read(const msgpack_object *root);
/* The launcher has one more piece of work of the account on the device, or one less. */
void exec_account_begin(struct launcher *launcher, uint32_t account);
void exec_account_end(struct launcher *launcher, uint32_t account);
/* Writes the shares of accounts that are busy for long. */
void exec_account_settle(struct launcher *launcher);
/* Returns for how many ms the device may be waited for: patience at most (-1: without limit). */
int exec_account_patience(const struct launcher *launcher, int patience);

/* ---- What may be in flight: a guess, unless the launchers are stopped ---- */
static inline size_t exec_in_flight(const struct exec *executor)
{
	size_t count = 0;
	for (int i = 0; i < executor->launcher_count; i++)
		count += launcher_in_flight(&executor->launchers[i]);
	return count;
}

/* False: the process takes nothing from the socket, because enough is in flight or it holds.  Lanes
 * and messages have room of their own, so neither keeps the other waiting. */
static inline bool exec_may_receive(const struct exec *executor)
{
	size_t count = 0;
	for (int i = 0; i < executor->launcher_count; i++)
		count += atomic_load_explicit(&executor->launchers[i].messages, memory_order_relaxed);
	return count < EXEC_MAX_FLIGHTS && executor->quiet.state != QUIET_HOLDS;
}

static inline bool exec_lanes_have_room(const struct launcher *launcher)
{
	size_t count = atomic_load_explicit(&launcher->lane_flights, memory_order_relaxed);
	return count < EXEC_MAX_LANE_FLIGHTS / (size_t)launcher->executor->launcher_count;
}

/* False: the launcher launches nothing from lanes. */
static inline bool exec_lanes_may_launch(const struct launcher *launcher)
{
	return exec_lanes_have_room(launcher) && launcher->executor->quiet.state != QUIET_HOLDS;
}

/* Returns the device's name of a stream of a session. */
static inline uint64_t exec_stream(uint64_t session_stream, uint64_t number)
{
	return session_stream * KILN_STREAMS + number % KILN_STREAMS;
}

/* ---- executor_misdeed.c ---- */
#ifdef KILN_TEST_HOOKS
exec_handler exec_misdeed_arm;
/* Does the misdeed if a test asked for it in place of this step; true: the step is done with.  id:
 * of the request that the step answers. */
bool exec_misdeed_done(struct launcher *launcher, const char *step, uint64_t id);
static inline bool exec_misdeed(struct launcher *launcher, const char *step, uint64_t id)
{
	return launcher->executor->misdeed != MISDEED_NONE && exec_misdeed_done(launcher, step, id);
}
/* True: a test has all tasks wait until it asks for another misdeed. */
static inline bool exec_misdeed_holds(const struct exec *executor)
{
	return executor->misdeed == MISDEED_HOLD;
}
#else
static inline bool exec_misdeed(struct launcher *launcher, const char *step, uint64_t id)
{
	(void)launcher, (void)step, (void)id;
	return false;
}
static inline bool exec_misdeed_holds(const struct exec *executor)
{
	(void)executor;
	return false;
}
#endif

/* ---- executor_rights.c ---- */
/* Gives up core files and new privileges.  A process that is not wrapped also gets a process group
 * of its own, dies with its parent, and keeps no descriptors but 0 to 2 and sock. */
void exec_give_up_rights(const struct exec_options *options);

#endif
