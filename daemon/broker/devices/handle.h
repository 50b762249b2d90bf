/*
 * handle: the broker's end of a device process.  There is one for each (device, uid), and one more
 * for each session that brings kernels of its own.  A handle starts and replaces its process,
 * carries requests to it and answers back, and knows which kernels it has loaded.  Every request is
 * answered exactly once, also when the process dies.  Knows nothing of sessions and buffers.
 */
#ifndef KILN_DAEMON_HANDLE_H
#define KILN_DAEMON_HANDLE_H

#include <client/wire/wire.h>

#include "daemon/broker/broker.h"
#include "daemon/exec/device.h"
#include "daemon/base/output.h"
#include "wait_note.h"

struct device_handle;

enum device_state {
	DEVICE_UNKNOWN,
	DEVICE_SEEN, /* the driver shows it to another device's process; none has opened it */
	DEVICE_PRESENT,
	DEVICE_ABSENT, /* it was never there */
	DEVICE_LOST,   /* it was there; the broker looks for it again and again */
};

/* A device of this host. */
struct device_entry {
	struct broker *broker;
	enum device_state state;
	struct device_info info;       /* the name; the rest once it was SEEN or PRESENT */
	char reason[KERNEL_ERROR_MAX]; /* ABSENT, LOST: why */
	char was[256];  /* model, target and uuid before it came back as another; or "" */
	uint64_t kind;  /* rises when it comes back as one that needs other plans */
	double busy_us; /* that it had work of device processes, those added up */
	struct device_handle *handles;
	struct device_entry *next;
};

/* Makes the entries that --device names, and starts their processes, which tell what is there.
 * GPUs that the first one sees get entries then.  No entry goes before devices_free(). */
int devices_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
void devices_close(struct broker *broker); /* kills the device processes */
void devices_free(struct broker *broker);  /* after the loop has ended */
/* Finds the device that a name means: its own, or the beginning of its UUID.  NULL: there is none,
 * or there are several, which the sentence lists. */
struct device_entry *device_named(struct broker *broker, const char *name, char *error,
								  size_t size);
bool device_is_cpu(const struct device_entry *device);

/* Returns the handle of a device for a uid, and starts it if there was none.  The device owns it
 * until devices_free(); sessions only point to it.  NULL without memory. */
struct device_handle *handle_for(struct device_entry *device, uint32_t uid);
struct device_entry *handle_device(const struct device_handle *handle);
/* Returns one more handle, for this session alone.  handle_end() kills its process and frees it:
 * requests end as if the process had died, and waits for its start are forgotten. */
struct device_handle *handle_own(struct device_entry *device, uint32_t uid, uint64_t session);
bool handle_is_own(const struct device_handle *handle);
void handle_end(struct device_handle *handle);
/* Returns how many sessions of a uid have one. */
int handle_own_count(const struct broker *broker, uint32_t uid);

/*
 * Calls back when the process is ready, at once if it is; or with a status and the reason when
 * there is no such device, or the process does not start.  handle_forget() drops all that was asked
 * with arg.
 */
typedef void (*handle_ready)(void *arg, int status, const char *error);
void handle_when_ready(struct device_handle *handle, handle_ready ready, void *arg);
void handle_forget(struct device_handle *handle, void *arg);
/* Returns the pid of the process; 0: none. */
int handle_pid(const struct device_handle *handle);
/* Notes that a session has left.  The process of another uid than the daemon's ends when no session
 * has used it for a while; the next session starts it again. */
void handle_left(struct device_handle *handle);
bool handle_is_ready(const struct device_handle *handle);
/* Returns the factor for all deadlines of the process: tools that watch kernels slow them down. */
uint32_t handle_patience(const struct device_handle *handle);
/* Rises with every process: kernels and buffers of another generation are gone. */
uint64_t handle_generation(const struct device_handle *handle);
uint32_t handle_uid(const struct device_handle *handle);

/*
 * A request: handle_begin() starts the message and returns its id, the caller adds members,
 * handle_send() sends it.  When nothing completes for deadline_ms while this request is the oldest,
 * the process is killed (0: no deadline).  done gets the reply, or NULL without one, and the
 * sentence of a failure.  handle_send() returns its own failure, and then never calls done.
 */
typedef void (*handle_done)(void *arg, int status, const char *error, struct wire_in *reply);
uint64_t handle_begin(struct device_handle *handle, struct wire_out *message, const char *type);
int handle_send(struct device_handle *handle, struct wire_out *message, uint64_t id, const int *fds,
				int fd_count, uint32_t deadline_ms, handle_done done, void *arg);
/* Like handle_send(), for a request that may wait until nothing runs on the device: it has a
 * deadline of its own, and is no sign that the device is stuck. */
int handle_send_waiting(struct device_handle *handle, struct wire_out *message, uint64_t id,
						handle_done done, void *arg);
/* Like handle_send(), for a request whose answer interests nobody. */
void handle_post(struct device_handle *handle, struct wire_out *message, uint64_t id);
/* Within a handle_done: gives descriptor 0 of the reply to the caller; -1 without one. */
int handle_take_fd(struct device_handle *handle);
/* Drops the answers to requests that were made with arg. */
void handle_disown(struct device_handle *handle, void *arg);

/* Notes that the process has a lane, whose work no message announces: while there is such work, the
 * broker pings the process now and then. */
void handle_look_after(struct device_handle *handle);

/* Returns the module id of a kernel; 0: this process has not loaded it. */
uint64_t handle_module(struct device_handle *handle, const char *key);
/* Puts member "params", the sizes of a kernel's parameters, if the process has told them. */
void handle_put_params(struct device_handle *handle, const char *key, struct wire_out *out);
/* Loads the kernel of a plan, or joins the load of its key that is under way.  Returns a failure to
 * ask, and then never calls done. */
int handle_load(struct device_handle *handle, const char *key, const struct cache_row *row,
				const struct kernel_plan *plan, handle_done done, void *arg);

/* Like handle_load(), when no client waits: loads once the device is quiet by itself, or much
 * later. */
int handle_load_lazily(struct device_handle *handle, const char *key, const struct cache_row *row,
					   const struct kernel_plan *plan, handle_done done, void *arg);
/* An exact kernel for problems of this plan_problem_hash() is loaded there, which their first calls
 * take. */
void handle_note_shape(struct device_handle *handle, uint64_t shape);
/* Keeps a loaded kernel: it never makes room for others. */
void handle_keep(struct device_handle *handle, const char *key);

struct handle_stats {
	const struct device_handle *handle;
	const char *device, *state;
	const char *reason; /* why the device is not there; "": it is */
	uint32_t uid;
	uint64_t session; /* 0: all sessions of the uid */
	int pid, inflight, modules;
	uint64_t restarts; /* processes that ended by themselves and were followed by another */
	uint64_t scratch_bytes;
	const char *sandbox; /* that holds the process; "": not started yet */
	int launchers;       /* threads that may launch; 0: likewise */
};
typedef void (*handle_visit)(void *arg, const struct handle_stats *stats);
void handle_each(const struct broker *broker, handle_visit visit, void *arg);
/* Sends SIGKILL to a device process: pid, or 0 for any.  Returns the pid, or 0 without one. */
int handle_kill(struct broker *broker, int pid);

/* ---- For reports of faults (handle_trail.c) ---- */

/* A note of a request's subject.  It is a copy, for the call may be gone when a report needs it. */
struct handle_about {
	uint64_t session;
	int32_t pid;
	uint32_t account;
	char op[24], choice[KERNEL_CHOICE_MAX], key[KERNEL_KEY_HEX]; /* "": none */
	char line[320]; /* of a manifest, cut to fit; for a user's kernel its name */
	int64_t grid[3], block[3];
	uint64_t copied; /* bytes */
	int calls;       /* of a graph */
};
/* Notes are kept of requests by their id, and of calls and graphs that a lane knows by a name. */
enum handle_noting { HANDLE_MESSAGE, HANDLE_LANE, HANDLE_NOTINGS };
/* Returns an empty note for this id, in place of the oldest. */
struct handle_about *handle_note(struct device_handle *handle, enum handle_noting which,
								 uint64_t id);
/* Finds a note; NULL: newer ones have replaced it. */
const struct handle_about *handle_noted(const struct device_handle *handle,
										enum handle_noting which, uint64_t id);
/* Finds the note of a lane's name, to be changed. */
struct handle_about *handle_noted_call(struct device_handle *handle, uint64_t name);

/* A call that the process has begun, as the process says: any number may be wrong. */
struct handle_past {
	uint64_t number;                       /* of calls before it */
	uint64_t name, stream, line, began_us; /* exec/trail.h */
	bool in_flight, culprit;
	uint64_t age_us;  /* since it began */
	uint64_t took_us; /* until it ended, or now */
	int status;
};
typedef void (*handle_past_visit)(void *arg, const struct handle_past *past);
/* Visits the calls of the trail, the newest first. */
void handle_each_past(const struct device_handle *handle, handle_past_visit visit, void *arg);
typedef void (*handle_request_visit)(void *arg, const char *type, uint64_t age_us,
									 uint32_t deadline_ms);
/* Visits the requests without an answer, the oldest first. */
void handle_each_request(const struct device_handle *handle, handle_request_visit visit, void *arg);
void handle_waits(const struct broker *broker, waits_visit visit, void *arg);

/* ---- For metrics (handle_trail.c) ---- */

/* Adds what device processes have worked since the last call to devices and accounts. */
void handles_count_busy(struct broker *broker);

/* ---- Calls that have ended (handle_trail.c) ---- */

/* Each reader hears of all of them. */
enum handle_reader { HANDLE_TRACE, HANDLE_RECENT, HANDLE_READERS };
typedef void (*handle_ended_visit)(void *arg, struct device_handle *handle,
								   const struct handle_past *past);
/* Visits the calls that have ended since the last time, of the last `most` of each process; the
 * first time it notes where they begin.  Returns how many it missed; for HANDLE_RECENT, which knows
 * messages' calls from their answers, of those of lanes. */
uint64_t handles_read(struct broker *broker, enum handle_reader reader, uint64_t most,
					  handle_ended_visit visit, void *arg);
/* Forgets how far that reader has read. */
void handles_read_no_more(struct broker *broker, enum handle_reader reader);

/* ---- For traces (handle_trail.c) ---- */

/* Adds the calls that have ended since the last time to broker->trace; without a trace it forgets
 * how far it has read. */
void handles_trace(struct broker *broker);
/* The flow of the request with this id to its span on the device. */
uint64_t handle_flow(const struct device_handle *handle, uint64_t id);

#endif
