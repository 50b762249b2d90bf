/*
 * executor: the device processes, one for each (device, uid), and one more for each session that
 * brings kernels of its own.  Starts them, replaces them, carries
 * requests to them and answers back, knows which kernels they have loaded.  Every request is
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
	DEVICE_PRESENT,
	DEVICE_ABSENT, /* it was never there */
	DEVICE_LOST,   /* it was there, and is looked for again */
};

/* A device of this host, as far as it is known. */
struct device_entry {
	struct broker *broker;
	enum device_state state;
	struct device_info info;       /* name always; the rest once it was PRESENT */
	char reason[KERNEL_ERROR_MAX]; /* ABSENT, LOST: why */
	char was[256];                 /* what it was before it came back as another; "": always this */
	uint64_t kind; /* rises when it comes back as one for which other kernels are to be planned */
	struct device_handle *handles;
	struct device_entry *next;
};

/* Makes the entries that --device names and starts the executors that tell what is there. */
int devices_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
void devices_close(struct broker *broker); /* kills the executors */
void devices_free(struct broker *broker);  /* after the loop has ended */
struct device_entry *device_find(struct broker *broker, const char *name);
bool device_is_cpu(const struct device_entry *device);

/* The executor of a device for a uid; started if it was not. NULL without memory. */
struct device_handle *handle_for(struct device_entry *device, uint32_t uid);
struct device_entry *handle_device(const struct device_handle *handle);
/* One more, of this session alone; handle_end kills it, and whatever it was asked is forgotten or
 * ends as if the process had died. */
struct device_handle *handle_own(struct device_entry *device, uint32_t uid, uint64_t session);
bool handle_is_own(const struct device_handle *handle);
void handle_end(struct device_handle *handle);
/* How many sessions of a uid have one. */
int handle_own_count(const struct broker *broker, uint32_t uid);

/*
 * Calls back when the process is ready, at once if it is; or with the reason when there is no such
 * device or it could not be started.  handle_forget drops all that was asked with arg.
 */
typedef void (*handle_ready)(void *arg, int status, const char *error);
void handle_when_ready(struct device_handle *handle, handle_ready ready, void *arg);
void handle_forget(struct device_handle *handle, void *arg);
/* Of its process; 0: there is none. */
int handle_pid(const struct device_handle *handle);
/* A session that it served is gone: one of another uid than the daemon's ends when it has served
 * none for a while, and is started again for the next. */
void handle_left(struct device_handle *handle);
bool handle_is_ready(const struct device_handle *handle);
/* How many times longer a device process may take for everything: what watches kernels slows them
 * down. */
uint32_t handle_patience(const struct device_handle *handle);
/* Rises with every process: what was loaded or imported under another number is gone. */
uint64_t handle_generation(const struct device_handle *handle);

/*
 * A request: handle_begin starts the message and gives its id, the caller adds members,
 * handle_send sends it. deadline_ms: if nothing at all completes for so long while this is the
 * oldest, the process is killed (0: no deadline). done gets the reply (NULL when there was none)
 * and the sentence of a failure.  A failure of handle_send itself is returned, and done is not
 * called.
 */
typedef void (*handle_done)(void *arg, int status, const char *error, struct wire_in *reply);
uint64_t handle_begin(struct device_handle *handle, struct wire_out *message, const char *type);
int handle_send(struct device_handle *handle, struct wire_out *message, uint64_t id, const int *fds,
				int fd_count, uint32_t deadline_ms, handle_done done, void *arg);
/* Of a request that may wait until nothing runs on the device, and so does not tell that what runs
 * is stuck; it has a deadline of its own. */
int handle_send_waiting(struct device_handle *handle, struct wire_out *message, uint64_t id,
						handle_done done, void *arg);
/* As above for requests whose answer nobody waits for. */
void handle_post(struct device_handle *handle, struct wire_out *message, uint64_t id);
/* In handle_done: descriptor 0 of the reply becomes the caller's; -1 if there is none. */
int handle_take_fd(struct device_handle *handle);
/* The answers to requests made with arg are dropped. */
void handle_disown(struct device_handle *handle, void *arg);

/* It has a lane, of whose work no message tells: from now on the process is asked now and then
 * whether it still answers, while there is such work. */
void handle_look_after(struct device_handle *handle);

/* The module id of a loaded kernel, 0 if it is not loaded in this process. */
uint64_t handle_module(struct device_handle *handle, const char *key);
/* "params" of a loaded kernel: the sizes of its parameters, as far as they are known. */
void handle_put_params(struct device_handle *handle, const char *key, struct wire_out *out);
/* Loads it, joining a load of the same key that is under way. */
int handle_load(struct device_handle *handle, const char *key, const struct cache_row *row,
				uint32_t shared_bytes, handle_done done, void *arg);

/* The same for nobody who waits: done when the device is quiet by itself, or much later. */
int handle_load_lazily(struct device_handle *handle, const char *key, const struct cache_row *row,
					   uint32_t shared_bytes, handle_done done, void *arg);
/* It is never the one that makes room for others. */
void handle_keep(struct device_handle *handle, const char *key);

struct handle_stats {
	const struct device_handle *handle;
	const char *device, *state;
	const char *reason; /* why its device is not there; "": it is */
	uint32_t uid;
	uint64_t session; /* 0: of all of the uid */
	int pid, inflight, modules;
	uint64_t restarts, scratch_bytes;
	const char *sandbox; /* what holds its process; "": not started yet */
};
typedef void (*handle_visit)(void *arg, const struct handle_stats *stats);
void handle_each(const struct broker *broker, handle_visit visit, void *arg);
/* SIGKILL to an executor process: pid, or 0 for any.  The pid, or 0 if there is none. */
int handle_kill(struct broker *broker, int pid);

/* ---- For reports of faults (handle_trail.c) ---- */

/* What a request is about: copied, for the call may be gone when it is asked for. */
struct handle_about {
	uint64_t session;
	int32_t pid;
	char op[24], choice[KERNEL_CHOICE_MAX], key[KERNEL_KEY_HEX]; /* "": none */
	char line[320]; /* of a manifest, cut where it is longer; of a user's kernel its name */
	int64_t grid[3], block[3];
	uint64_t copied; /* bytes */
	int calls;       /* of a graph */
};
/* A place for what a request is about that is sent next, empty; or a call or graph that a lane gets
 * to know by this name. */
enum handle_noting { HANDLE_MESSAGE, HANDLE_LANE, HANDLE_NOTINGS };
struct handle_about *handle_note(struct device_handle *handle, enum handle_noting which,
								 uint64_t id);
/* The note of what a lane knows by this name, to be changed; NULL: there were many since. */
struct handle_about *handle_noted_call(struct device_handle *handle, uint64_t name);
/* NULL: there were many since. */
const struct handle_about *handle_noted(const struct device_handle *handle,
										enum handle_noting which, uint64_t id);

/* A call that the process has begun, as it says itself; any number may be wrong. */
struct handle_past {
	uint64_t number;       /* of those before it */
	uint64_t name, stream; /* exec/trail.h */
	bool in_flight, culprit;
	uint64_t age_us, took_us; /* since it began; until it ended, or now */
	int status;
};
typedef void (*handle_past_visit)(void *arg, const struct handle_past *past);
/* The newest first. */
void handle_each_past(const struct device_handle *handle, handle_past_visit visit, void *arg);
typedef void (*handle_request_visit)(void *arg, const char *type, uint64_t age_us,
									 uint32_t deadline_ms);
/* Those that are not answered, the oldest first. */
void handle_each_request(const struct device_handle *handle, handle_request_visit visit, void *arg);
void handle_waits(const struct broker *broker, waits_visit visit, void *arg);
/* The end of what its process said on its standard error. */
void handle_output(const struct device_handle *handle, char tail[OUTPUT_TAIL]);

/* ---- between executor.c and its parts ---- */

struct handle_wait {
	handle_ready ready;
	void *arg;
	uint64_t since_us;
	struct handle_wait *next;
};

#endif
