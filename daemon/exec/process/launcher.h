/*
 * launcher: what one thread that launches owns: its part of the device, and the lanes, graphs,
 * flights and clocks of its sessions.  A session belongs to one launcher from its first launch to
 * its end, so everything in a stream keeps its order.
 *
 * The first launcher is the main thread's.  The others have threads of their own:
 *
 *   ABSENT --(its first session)--> RUNS <--(a doorbell, a bell, or the time)--- RESTS
 *                                    | ----(nothing flies, nothing to take)-------> ^
 *                                    | ----(the main thread stops it)-------------> |
 *                                    |                                              |
 *                                    +--(its part of the device is broken)--> BROKEN
 *
 * - RUNS: its thread alone uses the launcher.
 * - RESTS: its thread sleeps, or waits for the main thread, which may use the launcher from
 *   launchers_stop() to launchers_go().  The thread leaves the state when nothing is stopped.
 * - BROKEN: the thread does nothing more; the main thread tells the broker and leaves.
 *
 * The main thread serves all requests, and does all tasks that wait for a quiet moment, while it
 * has stopped the others.  So handlers see a process of one thread.  A request that is about the
 * calls of one session stops that session's launcher alone: its handler sees that launcher, and of
 * all else what a launcher sees between stops.  Between stops, a launcher may
 * read the tables of buffers and kernels, count their uses, and send messages.  It hands the rest
 * to the main thread (exec_quiet_hand_over(), launcher_tell()).
 */
#ifndef KILN_DAEMON_LAUNCHER_H
#define KILN_DAEMON_LAUNCHER_H

#include "daemon/base/map.h"
#include "daemon/exec/device.h"
#include "daemon/exec/trail.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct exec;
struct exec_lane;
struct exec_mapping;
struct exec_task;
struct waker;

#define LAUNCHER_ENDS 64 /* that one look at the device takes */

enum launcher_state { LAUNCHER_ABSENT, LAUNCHER_RUNS, LAUNCHER_RESTS, LAUNCHER_BROKEN };

struct launcher {
	struct exec *executor;
	const struct device_ops *ops; /* the executor's */
	struct device *device;        /* its part */
	int epoll;                    /* its doorbells; the main thread's has the socket, too */
	int bell;                     /* an eventfd that wakes its thread */
	struct map flights;           /* launches and copies that came by message */
	struct map graphs;
	struct map lines;      /* streams with flights that came by message */
	uint64_t lines_due_us; /* none of these is overdue before */
	struct exec_lane *lanes;
	struct exec_lane **lane_table; /* by their index; NULL: free */
	uint32_t lane_room;
	/* Written by whoever has the launcher, read by the main thread at any time. */
	_Atomic size_t lane_flights, messages;    /* messages: flights.count */
	uint32_t account_flights[TRAIL_ACCOUNTS]; /* of each account */
	uint64_t settled_us;                      /* when shares were written last */
	struct waker *waker;                      /* started with the first lane; NULL: there is none */
	bool waker_tried;
	/* The time when the turn began, or when its wait ended.  To ask for the time of each launch
	 * would cost as much as all else that this process does for a launch. */
	uint64_t now_us;
	/* The time when the turn began.  A call is overdue by this time, not by now_us: between the
	 * look for ends and the reading of now_us, the system may have stopped this process. */
	uint64_t turn_us;
	uint64_t lane_active_us;   /* the last time that an entry was taken or ended */
	uint64_t overrun_us;       /* until then nobody looks whether entries are overdue */
	uint32_t spin_us;          /* to look for entries before sleeping */
	uint32_t shared_spin_us;   /* as its clients are told */
	uint64_t shared_us;        /* when it was last looked what they are to be told */
	_Atomic uint32_t active;   /* lanes that have launched of late; all launchers read it */
	struct exec_mapping *kept; /* the last mapping: clients use the same memory again and again */
	bool busy;                 /* as its thread has told the heart */

	/* The main thread's: */
	int sessions; /* that belong to this launcher */
	bool touched; /* it has given this launcher something to do, so the thread has to wake */
	bool alone;   /* it has stopped this launcher alone */

	/* A launcher with a thread of its own has these: */
	pthread_t thread;
	pthread_mutex_t mutex; /* guards state */
	pthread_cond_t rested, goes;
	_Atomic int state;  /* enum launcher_state */
	atomic_bool wanted; /* the main thread stops it, or has */
	atomic_bool blocks; /* it waits for the device, and a bell wakes it */
	atomic_bool ending;
	struct exec_task *handed;   /* tasks for the main thread, the last first */
	struct device_done culprit; /* BROKEN: the call that broke the device */
};

/* ---- Any thread, for its own launcher ---- */

static inline size_t launcher_in_flight(const struct launcher *launcher)
{
	return atomic_load_explicit(&launcher->lane_flights, memory_order_relaxed) +
		   atomic_load_explicit(&launcher->messages, memory_order_relaxed);
}

static inline enum launcher_state launcher_state(const struct launcher *launcher)
{
	return (enum launcher_state)atomic_load_explicit(&launcher->state, memory_order_acquire);
}

/* Counts launches of lanes: one thread at a time has the launcher, so this is no atomic addition.
 */
static inline void launcher_count(struct launcher *launcher, int more)
{
	size_t count = atomic_load_explicit(&launcher->lane_flights, memory_order_relaxed);
	atomic_store_explicit(&launcher->lane_flights, count + (size_t)more, memory_order_relaxed);
}

/* True: the main thread waits for this launcher, whose thread ends its turn soon. */
static inline bool launcher_wanted(const struct launcher *launcher)
{
	return atomic_load_explicit(&launcher->wanted, memory_order_relaxed);
}

bool launcher_is_main(const struct launcher *launcher);
/* Has the main thread look at what has changed. */
void launcher_tell(struct launcher *launcher);
/* Sleeps until a bell rings or the time has passed (NULL: for ever).  Meanwhile the main thread may
 * stop the launcher and change anything. */
void launcher_rest(struct launcher *launcher, const struct timespec *time);
/* The thread leaves RUNS, and comes back when the main thread does not stop it. */
void launcher_leave(struct launcher *launcher, enum launcher_state state);
void launcher_enter(struct launcher *launcher);
/* Doorbells and bells have done their work when they woke the thread. */
void launcher_take_rings(const struct launcher *launcher);

/* ---- The main thread ---- */

/* Makes all launchers; count is at most DEVICE_PARTS_MOST, and body what their threads do. */
int launchers_open(struct exec *executor, int count, void *(*body)(void *launcher),
				   char error[KERNEL_ERROR_MAX]);
/* The launchers are stopped, and have nothing in flight. */
void launchers_close(struct exec *executor);
/* Ends the threads of launchers; they are stopped. */
void launchers_end(struct exec *executor);
/* Returns when no other launcher runs.  Calls nest; launchers_go() ends the outermost. */
void launchers_stop(struct exec *executor);
void launchers_go(struct exec *executor);
/* The same for this launcher alone, while nothing is stopped. */
void launcher_stop_alone(struct launcher *launcher);
void launcher_go_alone(struct launcher *launcher);
/* The first half of a stop: asks all to rest. */
void launchers_want(struct exec *executor);
/* The second half.  False: the launcher has run on for so long. */
bool launcher_await_rest(struct launcher *launcher, uint64_t patience_us);
/* NULL: the session has none yet. */
struct launcher *launchers_home(const struct exec *executor, uint64_t stream);
/* Returns the session's launcher, for a request: the launchers are stopped.  begins: the request
 * launches something, so a session that has no launcher yet gets one.  stream 0: the main thread's.
 */
struct launcher *launchers_of(struct exec *executor, uint64_t stream, bool begins);
/* The session has ended. */
void launchers_forget(struct exec *executor, uint64_t stream);
/* Something holds or lets go of all launchers: they have to look. */
void launchers_touch(struct exec *executor);

/* ---- launcher_run.c ---- */

/* The thread of a launcher runs this. */
void *launcher_run(void *launcher);
/* Tells of the ends that a look at the device found, and fails if it is broken or a launch runs too
 * long.  done has room for one end at least. */
void launcher_take_ends(struct launcher *launcher, struct device_done *done, int count,
						bool broken);
/* The main thread looks at what it was told: tasks that were handed over, and a launcher that is
 * BROKEN, which ends the process. */
void launchers_listen(struct exec *executor);

#endif
