/*
 * handle_state.h: shared by handle.c (the process), handle_calls.c (requests), handle_waits.c and
 * devices.c.
 *
 *   STOPPED --somebody asks, or looks for a lost device--> STARTING
 *   STARTING --its first message says that it is ready--> READY
 *   STARTING, READY --it ended--> WAITING --the pause is over--> STARTING
 *   STARTING --no device, or START_TRIES ends in a row--> STOPPED
 *   (any) --nobody needs it, or the daemon ends--> STOPPED
 *
 * There is a child in STARTING and READY alone.  Requests are sent in READY alone; all that are
 * unanswered end with the process.  Its generation rises with each process that becomes ready.
 */
#ifndef KILN_DAEMON_HANDLE_STATE_H
#define KILN_DAEMON_HANDLE_STATE_H

#include "daemon/base/child.h"
#include "handle.h"
#include "daemon/base/pulse.h"

enum handle_state {
	HANDLE_STOPPED, /* no process, and none comes until somebody asks or looks for the device */
	HANDLE_WAITING, /* no process; the timer starts the next */
	HANDLE_STARTING,
	HANDLE_READY,
};

#define HANDLE_NOTES 32

struct handle_note {
	uint64_t id; /* of a request; 0: none */
	struct handle_about about;
};

struct trail;

struct handle_call {
	uint64_t id;
	uint32_t deadline_ms;
	bool waits; /* until nothing runs: the device is not kept by it */
	uint64_t sent_us;
	const char *type; /* "launch" */
	handle_done done; /* NULL: nobody waits */
	void *arg;
	struct handle_call *previous, *next;
};

struct device_handle {
	struct device_entry *device;
	uint32_t uid;
	uint64_t session; /* whose alone it is; 0: of all sessions of the uid */
	int open_handles; /* while it is being closed */
	enum handle_state state;
	struct child *child;
	uint64_t generation, restarts, next_call;
	const char *begun; /* the type of the message that is being made */
	bool holds;        /* it launches nothing until what runs has ended */
	bool asked;        /* whether it still answers */
	/* WAITING: backoff; STARTING: deadline; READY: looks at lanes; STOPPED and lost: the next look
	 * for the device */
	uv_timer_t timer;
	uv_timer_t idle;  /* READY, of another uid, for nobody */
	uv_timer_t clock; /* READY with calls: looks at deadlines */
	uint32_t backoff_ms, lost_ms;
	bool lost; /* its device was there and is not: asked for, it answers at once that it is so */
	uint64_t ready_us, ended_us, state_us; /* state_us: since when it is in its phase */
	int failed_starts;
	char reason[KERNEL_ERROR_MAX]; /* STOPPED: why */

	struct handle_wait *waiters;
	struct handle_call *first, *last; /* oldest first */
	struct map calls;                 /* by id */
	int call_count;
	uint64_t progress_us; /* when something last completed */
	struct pulse pulse;
	bool busy;        /* it says so itself: there may be launches of lanes */
	uint64_t overran; /* id of the call that was ended for its deadline */
	char fault[KERNEL_ERROR_MAX];
	char sandbox[SANDBOX_TEXT]; /* what holds its process */
	struct frame *frame;        /* of the reply that is being handed out */

	uint64_t scratch_bytes;    /* that its process holds */
	struct map modules;        /* key -> struct handle_module */
	const struct trail *trail; /* that its process leaves; NULL: it leaves none */
	struct handle_note notes[HANDLE_NOTINGS][HANDLE_NOTES]; /* the newest over the oldest */
	unsigned next_note[HANDLE_NOTINGS];
	uint64_t next_use;
	struct device_handle *next;
};

struct module_wait {
	handle_done done;
	void *arg;
	uint64_t since_us;
	struct module_wait *next;
};

struct handle_module {
	char key[KERNEL_KEY_HEX];
	uint64_t id;
	bool ready, kept;
	uint64_t used; /* rises with every use of any */
	struct device_handle *handle;
	struct module_wait *waiters;
	int64_t *params; /* sizes of its parameters; NULL: not known */
	int param_count;
};

/* handle_calls.c */
uint64_t handle_call_deadline_ms(const struct device_handle *handle,
								 const struct handle_call *call);
void handle_on_message(void *owner, struct wire_in *message, struct frame *frame);
void handle_fail_calls(struct device_handle *handle, const char *why);
void handle_drop_modules(struct device_handle *handle);

/* handle.c */
void handle_on_started(struct device_handle *handle, struct wire_in *message);
void handle_stop(struct device_handle *handle);
void handle_free(struct device_handle *handle);

/* handle_trail.c */
/* Of the process that is started next: a descriptor for it, or -1. */
int handle_trail_open(struct device_handle *handle);
void handle_trail_close(struct device_handle *handle);

/* devices.c */
/* True: another one than before is there. */
bool device_is_present(struct device_entry *device, const struct device_info *info);
void device_is_away(struct device_entry *device, enum device_state state, const char *reason);

#endif
