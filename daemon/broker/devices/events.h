/*
 * events.h: carries news up from the rooms.  The server fills in one broker_events before it opens
 * anything, so that a room names nothing of the rooms above it.  Every callback runs on the loop,
 * and every member is set.
 */
#ifndef KILN_DAEMON_BROKER_EVENTS_H
#define KILN_DAEMON_BROKER_EVENTS_H

#include "daemon/broker/broker.h"

struct cache;
struct compile_job;
struct fault;
struct device_handle;
struct handle_about;
struct frame;
struct kernel_ref;
struct session;
struct wire_in;

struct broker_events {
	/* Something ended, so a daemon that drains may be done. */
	void (*progress)(struct broker *broker);

	/* ---- A device process ---- */

	/* It is ready or gone: sessions look at their queued work for it. */
	void (*device_changed)(struct broker *broker, struct device_handle *handle);
	/* It is gone.  Comes before its requests are answered: their owners may ask for more. */
	void (*device_lost)(struct broker *broker, struct device_handle *handle, const char *why);
	/* Its handle is about to be freed; its requests have been answered. */
	void (*device_closed)(struct broker *broker, struct device_handle *handle);
	/* Returns whether it serves a session. */
	bool (*device_used)(const struct broker *broker, const struct device_handle *handle);
	/* Returns whether sessions have lanes to it, and whether one of these has work under way. */
	bool (*device_lanes)(const struct broker *broker, const struct device_handle *handle,
						 bool *under_way);
	/* It found nonsense in the lane of this stream, which a client wrote. */
	void (*lane_broke)(struct broker *broker, const struct device_handle *handle, uint64_t stream,
					   const char *why);
	/* It could not bind a call to the lane of this stream. */
	void (*lane_unbound)(struct broker *broker, const struct device_handle *handle, uint64_t stream,
						 const char *why);
	/* Kernels that a session brought printed this in its own process, and cut bytes more. */
	void (*printed)(struct broker *broker, const struct device_handle *handle, const void *text,
					size_t bytes, uint64_t cut);
	/* It ran so many launches of this call, which the lane knows by the name "bound". */
	void (*lane_used)(struct broker *broker, const struct device_handle *handle, uint64_t stream,
					  uint64_t call, uint64_t bound, uint64_t launches);
	/* It could not load this key's object, which is damaged, or made for another driver. */
	void (*object_refused)(struct broker *broker, const char *key, const char *why);

	/* ---- The store ---- */

	/* The cache is open and the loop does not run yet: tables kept in memory are read now. */
	void (*cache_opened)(struct broker *broker, struct cache *cache);
	/* The store has nothing to do.  Returns whether the callback asked it for something. */
	bool (*cache_idle)(struct broker *broker);

	/* ---- Kernels and sessions ---- */

	/* A call of the session has its exact kernel from now on. */
	void (*call_promoted)(struct session *session, uint64_t call, const struct kernel_ref *kernel);
	/* A client asks for something. */
	void (*message)(struct session *session, struct wire_in *message, struct frame *frame);
	/* The count of sessions that have a place changed. */
	void (*sessions_changed)(struct broker *broker);

	/* ---- For post-mortems ---- */

	/* A child or the cache failed.  fault_report() looks at devices, pool and store. */
	void (*fault)(struct broker *broker, const struct fault *fault, char *text, size_t size);

	/* Fills in the launch that a lane knows by this name; false: its session or call is gone. */
	bool (*describe_call)(struct broker *broker, const struct device_handle *handle,
						  uint64_t stream, uint64_t name, struct handle_about *about);
	/* Returns the key of this job's kernel; "": nobody waits for it. */
	const char *(*key_of)(const struct broker *broker, const struct compile_job *job);

	/* ---- For tests ---- */

	/* An argument such as "--test-misdeed=hang" for a child that starts now; NULL: none. */
	const char *(*start_misdeed)(struct broker *broker, bool compiler, char argument[40]);
};

static inline void broker_progress(struct broker *broker)
{
	broker->events->progress(broker);
}

#endif
