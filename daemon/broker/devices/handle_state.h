/*
 * handle_state.h: shared by handle.c (the handles), handle_process.c (their processes),
 * handle_calls.c (requests), handle_modules.c (loaded kernels), handle_lost.c, handle_waits.c and
 * devices.c.
 *
 *   STOPPED --a session asks, or the next look for a lost device--> STARTING
 *   STARTING --the process says that it is ready--> READY
 *   STARTING, READY --the process ended--> WAITING --the pause is over--> STARTING
 *   STARTING --no device, or START_TRIES ends in a row--> STOPPED
 *   (any) --nobody needs the process, or the daemon ends--> STOPPED
 *
 * A handle has a child in STARTING and READY alone, and sends requests in READY alone.  Requests
 * without an answer end with the process.  The generation rises with each process that becomes
 * ready.
 */
#ifndef KILN_DAEMON_HANDLE_STATE_H
#define KILN_DAEMON_HANDLE_STATE_H

#include "daemon/base/child.h"
#include "handle.h"
#include "daemon/base/pulse.h"

enum handle_state {
	HANDLE_STOPPED, /* no process, and no start under way */
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
	bool waits; /* runs once nothing else does, so it is never what keeps the device */
	uint64_t sent_us;
	const char *type; /* "launch" */
	handle_done done; /* NULL: its answer interests nobody */
	void *arg;
	struct handle_call *previous, *next;
};

struct device_handle {
	struct device_entry *device;
	uint32_t uid;
	uint64_t session; /* that has the process alone; 0: all sessions of the uid share it */
	int open_handles; /* while it is being closed */
	enum handle_state state;
	struct child *child;
	uint64_t generation, restarts, next_call;
	const char *begun; /* the type of the message that is being made */
	bool holds;        /* the process launches nothing until all that runs has ended */
	bool asked;        /* handle_look() waits for the answer to its ping */
	/* WAITING: the pause; STARTING: the deadline; READY: handle_look(); STOPPED and lost: the next
	 * look for the device. */
	uv_timer_t timer;
	uv_timer_t idle;  /* READY, of another uid: ends the process when no session uses it */
	uv_timer_t clock; /* READY with calls: looks at their deadlines */
	uint32_t backoff_ms, lost_ms;
	bool lost; /* the device was there and is not: handle_when_ready() says so at once */
	uint64_t ready_us, ended_us, state_us; /* state_us: since when in STARTING or WAITING */
	int failed_starts;
	char reason[KERNEL_ERROR_MAX]; /* STOPPED: why */

	struct handle_wait *waiters;
	struct handle_call *first, *last; /* oldest first */
	struct map calls;                 /* by id */
	int call_count;
	int awaited_count;    /* of these, those that somebody waits for */
	uint64_t progress_us; /* when something last completed */
	struct pulse pulse;
	bool busy;        /* the process says so: there may be launches of lanes */
	uint64_t overran; /* id of the call that was ended for its deadline */
	char fault[KERNEL_ERROR_MAX];
	char sandbox[SANDBOX_TEXT]; /* that holds the process */
	int launchers;              /* threads of it that may launch */
	struct frame *frame;        /* of the reply that a handle_done gets; else NULL */

	uint64_t scratch_bytes;    /* that the process holds */
	struct map modules;        /* key -> struct handle_module */
	const struct trail *trail; /* shared with the process; NULL: none */
	/* The part of the trail's times that is counted already, and when it was read last. */
	uint64_t busy_us, shares[ACCOUNTS_MOST], counted_us;
	struct handle_reading *readings[HANDLE_READERS];        /* of the trail; NULL: none */
	struct handle_note notes[HANDLE_NOTINGS][HANDLE_NOTES]; /* rings */
	unsigned next_note[HANDLE_NOTINGS];
	uint64_t next_use;
	struct device_handle *next;
};

/* A handle_when_ready() that has no answer yet. */
struct handle_wait {
	handle_ready ready;
	void *arg;
	uint64_t since_us;
	struct handle_wait *next;
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
	bool ready;    /* loaded; else its load is under way */
	bool kept;     /* never makes room for others */
	uint64_t used; /* number of its last use, of all uses of modules */
	struct device_handle *handle;
	struct module_wait *waiters;
	int64_t *params; /* sizes of the kernel's parameters; NULL: unknown */
	int param_count;
};

/* handle_calls.c */
uint64_t handle_call_deadline_ms(const struct device_handle *handle,
								 const struct handle_call *call);
void handle_on_message(void *owner, struct wire_in *message, struct frame *frame);
void handle_fail_calls(struct device_handle *handle, const char *why);

/* handle_modules.c */
/* Frees the modules of a process that is gone; those under way have ended with their calls. */
void handle_drop_modules(struct device_handle *handle);

/* handle.c */
void handle_stop(struct device_handle *handle);
/* Frees a handle whose timers are closed; devices_free() and the end of handle_end() call it. */
void handle_free(struct device_handle *handle);
/* Answers all that wait until the process is ready. */
void handle_tell_waiters(struct device_handle *handle, int status, const char *error);

/* handle_process.c */
void handle_start(struct device_handle *handle);
void handle_on_started(struct device_handle *handle, struct wire_in *message);
/* Takes the step that is due: starts the process, looks after it, or ends a start that hangs. */
void handle_on_timer(uv_timer_t *timer);
/* The process is busy and gives no sign of life: it is stopped, or the system holds it. */
void handle_on_lifeless(void *owner);
/* Ends the process on purpose: no fault is reported. */
void handle_end_process(struct device_handle *handle, const char *why);

/* handle_lost.c */
/* Writes the sentence in which requests for a lost device end at once: it may never come back. */
void handle_say_lost(const struct device_handle *handle, char error[KERNEL_ERROR_MAX]);
/* Notes that the device of a STOPPED handle is lost, and looks for it again after a pause. */
void handle_lose(struct device_handle *handle);
/* Tells the device's other handles that it is there: those that have lost it look at once.  When it
 * is another device than before, their processes end, whose contexts are on the old one. */
void handle_tell_others(struct device_handle *found, bool another);

/* handle_trail.c */
/* Makes the trail of the process that starts next.  Returns a descriptor for it, which the caller
 * closes, or -1. */
int handle_trail_open(struct device_handle *handle);
void handle_trail_close(struct device_handle *handle);

/* device_names.c */
/* Reads what a process says of a device; what is missing is filled in. */
void device_read_info(struct wire_in *message, const msgpack_object *map, struct device_info *out);
/* With --device auto: makes entries of the GPUs that a process sees. */
void devices_seen(struct broker *broker, struct wire_in *message);
/* Tells whether a process may serve the device with what it has opened, which may be another
 * entry's; or why not. */
bool device_may_be(const struct device_entry *device, const struct device_info *info, char *reason,
				   size_t size);

/* devices.c */
/* Returns the entry of this name, which it makes if there is none. */
struct device_entry *devices_add(struct broker *broker, const char *name);
/* Notes the device that a process found.  Returns whether it is another one than before. */
bool device_is_present(struct device_entry *device, const struct device_info *info);
void device_is_away(struct device_entry *device, enum device_state state, const char *reason);

#endif
