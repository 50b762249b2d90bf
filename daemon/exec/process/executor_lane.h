/*
 * executor_lane: lanes, their entries, and the calls that entries name.
 *
 * A lane:
 *
 *   OPEN --(lane.close, end, or nonsense in its memory)--> CLOSING --(nothing flies)--> GONE
 *
 * An entry:
 *
 *   FREE, ENDED --(taken)--> FLYING --(the device is done)-------------------> ENDED
 *        |                     ^                                                 ^
 *        | (it must wait)      | (what it waits for has come)                    |
 *        +-------> PARKED -----+                                                 |
 *                    +--------------(canceled, overdue, or the lane closes)------+
 *
 * Each place of the ring has a slot, which holds the last entry taken from there.  exec_lane_open()
 * makes a lane, free_lane() frees it.
 *
 * Invariants: lane->flights counts the FLYING slots, lane->parked the PARKED ones; streams[] has
 * those of a stream in the order of their numbers.  The process maps memory and counts, and owns
 * both descriptors.  A GONE lane is in no list: its memory is freed at once, or by a task.
 */
#ifndef KILN_DAEMON_EXECUTOR_LANE_H
#define KILN_DAEMON_EXECUTOR_LANE_H

#include "client/wire/lane_memory.h"
#include "executor_flight.h"
#include "executor_template.h"
#include "waker.h"

/* The ticket of an entry: this bit, the lane's index, the place.  The broker's ids are far below.
 */
#define EXEC_LANE_TICKET ((uint64_t)1 << 63)

enum exec_slot_state { SLOT_FREE, SLOT_PARKED, SLOT_FLYING, SLOT_ENDED };

enum exec_lane_state { EXEC_LANE_OPEN, EXEC_LANE_CLOSING, EXEC_LANE_GONE };

/* The last entry that was taken from a place of the ring. */
struct exec_slot {
	struct lane_entry entry;
	uint64_t number;
	struct exec_flight flight; /* FLYING */
	enum exec_slot_state state;
	bool failed;
	bool doomed;  /* the entry that this one follows failed */
	bool reports; /* its kernel counts bad indices, so only its end tells whether it succeeds */
	bool cell_is_good; /* the cell of this place says that an untimed entry succeeded */
	char op[24];
	uint64_t parked_us;
	struct exec_slot *next; /* parked behind it */
};

/* One of the client's streams. */
struct exec_lane_stream {
	struct exec_slot *parked, *last_parked; /* in the order of their numbers */
	int flights;
	uint64_t progress_us; /* the last end, or the start after which there are flights */
};

struct exec_lane {
	uint64_t id; /* the stream */
	uint32_t account;
	enum exec_lane_state state;
	uint32_t index; /* in the table of lanes */
	struct lane_memory *memory;
	int doorbell_fd;    /* the eventfd by which the client wakes this process */
	int client_wake_fd; /* the end of a pipe by which this process wakes the client */
	struct waker *waker;
	uint64_t head;     /* entries taken */
	uint64_t taken_us; /* when the last one was */
	/* Since when the next one names a call that is not bound; 0: it does not.  And executor->empty
	 * then. */
	uint64_t unknown_us;
	uint32_t unknown_empty;
	int flights;
	struct exec_slot slots[LANE_ENTRIES];
	struct exec_lane_stream streams[KILN_STREAMS];
	int parked, gated;              /* of these, those that wait for a ready word */
	uint64_t leaving;               /* the least leaving of its calls and graphs; 0: none leaves */
	bool gates_asked, gates_shared; /* the device can write done words */
	uint32_t started;               /* launches, counted up to SHARE_AFTER */
	struct lane_counts *counts;
	uint64_t deadline_us;
	uint64_t ready_us;    /* how long an entry waits for its ready word; 0: for ever */
	uint64_t progress_us; /* not later than the progress_us of any stream with flights */
	struct map calls;     /* struct exec_template, by the broker's number */
	/* The number of the first call that is bound at the desk (0: there is no desk), how many were,
	 * after how many launches the broker is told, and the client's last asked. */
	uint64_t desk, desk_notice;
	uint32_t desk_calls, desk_asked;
	uint64_t close_id; /* the request that waits for its end; 0: none */
	struct exec_task task;
	struct exec_lane *next;
};

static inline uint32_t exec_lane_place(uint64_t number)
{
	return (uint32_t)(number % LANE_ENTRIES);
}

static inline struct exec_slot *exec_lane_slot(struct exec_lane *lane, uint64_t number)
{
	return &lane->slots[exec_lane_place(number)];
}

static inline uint32_t exec_slot_stream(const struct exec_slot *slot)
{
	return slot->entry.stream % KILN_STREAMS; /* a wrong one is refused when the entry is run */
}

/* This process alone writes lane_counts. */
static inline void exec_lane_count(_Atomic uint64_t *counter)
{
	uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, before + 1, memory_order_release);
}

/* NULL: the stream has no OPEN lane. */
static inline struct exec_lane *exec_lane_find(const struct launcher *launcher, uint64_t stream)
{
	struct exec_lane *lane = launcher->lanes;
	while (lane && (lane->id != stream || lane->state != EXEC_LANE_OPEN))
		lane = lane->next;
	return lane;
}

/* ---- executor_lane.c ---- */
exec_handler exec_lane_open;
/* The lane takes no more entries.  When those taken have ended, it is freed and the request
 * answered (0: nobody asked). */
void exec_lane_close(struct launcher *launcher, uint64_t stream, uint64_t request);
/* The device has ended an entry: tells its client, and frees a closing lane after its last one. */
void exec_lane_finish(struct launcher *launcher, const struct device_done *done);

/* Now and then tells clients how long to spin: that depends on how many launch. */
void exec_lanes_share_spin(struct launcher *launcher);

/* ---- executor_lane_call.c ---- */
exec_handler exec_lane_bind, exec_lane_rebind, exec_lane_unbind;
void exec_lane_drop_call(struct launcher *launcher, struct exec_template *bound);
/* Something that the stream's entries may name is to leave.  Returns the number below which parked
 * entries may name it, so it waits for them; 0: none is parked. */
uint64_t exec_lane_leave(struct launcher *launcher, uint64_t stream);
/* Drops the calls and graphs that leave and that no parked entry names any more. */
void exec_lane_drop_leaving(struct launcher *launcher, struct exec_lane *lane);

/* ---- executor_lane_turn.c ---- */
/* Takes the entries that the client had written before it sent the request.  ECANCELED with a
 * sentence if the request follows one of them that failed. */
exec_handler exec_lane_catch_up;
/* Takes the entries of all lanes, and starts parked ones. */
void exec_lanes_serve(struct launcher *launcher);
exec_waiting exec_lanes_waiting;
/* Returns for how many ms the device may be waited for: 0 while the process looks at lanes, -1: no
 * limit. */
int exec_lanes_patience(struct launcher *launcher);
/* Asks clients to ring for their next entry.  False: there is something to take, so do not wait.
 * exec_lanes_wake() takes that back. */
bool exec_lanes_sleep(struct launcher *launcher);
void exec_lanes_wake(struct launcher *launcher);
/* Sleeps for a moment if nothing moves and entries wait for ready words. */
void exec_lanes_nap(struct launcher *launcher);
/* True if an entry is overdue: *culprit says which, for the last words. */
bool exec_lanes_overrun(struct launcher *launcher, struct device_done *culprit);

/* ---- executor_desk.c ---- */
/* True: the client has laid a problem on the desk. */
bool exec_desk_asked(const struct exec_lane *lane);
void exec_desk_serve(struct launcher *launcher, struct exec_lane *lane);

/* ---- executor_park.c ---- */
/* Takes the next entry: launches it, parks it, or ends it with the reason.  found: the call that it
 * named a moment ago, or NULL. */
void exec_lane_take(struct launcher *launcher, struct exec_lane *lane, struct exec_template *found);
/* False: the next place still holds a PARKED or FLYING entry, so its client has broken the rules.
 */
bool exec_lane_has_place(const struct exec_lane *lane);
bool exec_lane_has_room(const struct launcher *launcher, const struct exec_lane *lane);
/* Launches the parked entries that may start now. */
void exec_lane_unpark(struct launcher *launcher, struct exec_lane *lane);
bool exec_lane_may_unpark(const struct launcher *launcher, const struct exec_lane *lane);
/* Returns the least number of a parked entry; UINT64_MAX: there is none. */
uint64_t exec_lane_first_parked(const struct exec_lane *lane);
/* Ends the entries that the request names and that have not started, and those that follow them, in
 * ECANCELED. */
exec_handler exec_lane_cancel;
/* Ends all parked entries in ECANCELED. */
void exec_lane_drop_parked(struct exec_lane *lane);

/* ---- executor_entry.c ---- */
/* Gives the entry to the device, or ends it with the reason.  found: as for exec_lane_take(). */
void exec_entry_start(struct launcher *launcher, struct exec_lane *lane, struct exec_slot *slot,
					  struct exec_template *found);
/* The device has ended the entry: tells the client. */
void exec_entry_finish(struct launcher *launcher, struct exec_lane *lane,
					   const struct device_done *done);
/* Returns the flight of an entry that the device has, by its ticket. */
const struct exec_flight *exec_lane_flight(const struct launcher *launcher, uint64_t ticket);
/* Ends the entry: fills in its cell, and wakes the client if it sleeps.  error: the sentence of a
 * failure. */
void exec_lane_tell(struct exec_lane *lane, uint64_t number, int status, const char *error,
					uint64_t micros);
/* Wakes the client, if it sleeps. */
void exec_lane_wake_client(struct exec_lane *lane);
/* False also if the slot has another entry meanwhile. */
bool exec_lane_failed(const struct exec_lane *lane, uint64_t number);

#endif
