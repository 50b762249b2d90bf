/*
 * events.h: the news that go up from the rooms.  The server fills in one broker_events
 * before it opens anything, so that a room names nothing of those above it.  Every
 * callback runs on the loop, and every member is set.
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
	/* Something ended: a daemon that drains may be done. */
	void (*progress)(struct broker *broker);

	/* ---- A device process ---- */

	/* It is ready, or it is gone: sessions look at what they have queued for it. */
	void (*device_changed)(struct broker *broker, struct device_handle *handle);
	/* It is gone.  Comes before its requests are answered, for their owners may ask for more. */
	void (*device_lost)(struct broker *broker, struct device_handle *handle, const char *why);
	/* Its handle is about to be freed; its requests have been answered. */
	void (*device_closed)(struct broker *broker, struct device_handle *handle);
	/* Whether it serves a session. */
	bool (*device_used)(const struct broker *broker, const struct device_handle *handle);
	/* Whether sessions have lanes to it, and whether something is under way in one of them. */
	bool (*device_lanes)(const struct broker *broker, const struct device_handle *handle,
						 bool *under_way);
	/* It found nonsense in the lane of this stream, which a client wrote. */
	void (*lane_broke)(struct broker *broker, const struct device_handle *handle, uint64_t stream,
					   const char *why);
	/* It ran so many launches that a lane has of this call under the name "bound". */
	void (*lane_used)(struct broker *broker, const struct device_handle *handle, uint64_t stream,
					  uint64_t call, uint64_t bound, uint64_t launches);
	/* It could not load the object of this key: the object is damaged, or the driver is another. */
	void (*object_refused)(struct broker *broker, const char *key, const char *why);

	/* ---- The store ---- */

	/* The cache is open, the loop does not run yet: what is kept in memory may be read. */
	void (*cache_opened)(struct broker *broker, struct cache *cache);
	/* The store has nothing to do.  True: the callback asked for something. */
	bool (*cache_idle)(struct broker *broker);

	/* ---- Kernels and sessions ---- */

	/* A call of the session has its exact kernel from now on. */
	void (*call_promoted)(struct session *session, uint64_t call, const struct kernel_ref *kernel);
	/* A client asks for something. */
	void (*message)(struct session *session, struct wire_in *message, struct frame *frame);
	/* The count of sessions that have a place changed. */
	void (*sessions_changed)(struct broker *broker);

	/* ---- For post-mortems ---- */

	/* A child or the cache failed: fault_report(), which looks at devices, pool and store. */
	void (*fault)(struct broker *broker, const struct fault *fault, char *text, size_t size);

	/* Fills in what a lane launches under this name; false: its session or call is gone. */
	bool (*describe_call)(struct broker *broker, const struct device_handle *handle,
						  uint64_t stream, uint64_t name, struct handle_about *about);
	/* The key that this job makes; "": nobody waits for it. */
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
