/*
 * handle.c: the handles of devices: found, made and ended, and the callers that wait until one has
 * a process (handle_process.c).
 */
#include "daemon/broker/devices/events.h"
#include "handle_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

static struct device_handle *handle_new(struct device_entry *device, uint32_t uid, uint64_t session)
{
	struct device_handle **link = &device->handles;
	struct device_handle *handle = calloc(1, sizeof(*handle));
	if (!handle)
		return NULL;
	handle->device = device;
	handle->uid = uid;
	handle->session = session;
	handle->timer.data = handle;
	handle->clock.data = handle;
	uv_timer_init(&device->broker->loop, &handle->timer);
	uv_timer_init(&device->broker->loop, &handle->clock);
	uv_timer_init(&device->broker->loop, &handle->idle);
	handle->idle.data = handle;
	pulse_open(&handle->pulse, &device->broker->loop, handle_on_lifeless, handle);
	while (*link)
		link = &(*link)->next;
	*link = handle;
	handle_start(handle);
	return handle;
}

struct device_handle *handle_for(struct device_entry *device, uint32_t uid)
{
	for (struct device_handle *handle = device->handles; handle; handle = handle->next)
		if (handle->uid == uid && !handle->session)
			return handle;
	return handle_new(device, uid, 0);
}

struct device_handle *handle_own(struct device_entry *device, uint32_t uid, uint64_t session)
{
	return handle_new(device, uid, session);
}

int handle_own_count(const struct broker *broker, uint32_t uid)
{
	int count = 0;
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next)
			count += handle->session && handle->uid == uid;
	return count;
}

/* ---- Waiting for its process ---- */

void handle_tell_waiters(struct device_handle *handle, int status, const char *error)
{
	struct handle_wait *waiter;
	while ((waiter = handle->waiters)) {
		handle->waiters = waiter->next;
		waiter->ready(waiter->arg, status, error);
		free(waiter);
	}
}

void handle_when_ready(struct device_handle *handle, handle_ready ready, void *arg)
{
	if (handle->state == HANDLE_READY) {
		ready(arg, KILN_OK, NULL);
		return;
	}
	if (handle->lost) {
		char error[KERNEL_ERROR_MAX];
		handle_say_lost(handle, error);
		ready(arg, KILN_EDEVICE, error);
		return;
	}
	/* A request has an absent device looked for again, unless the last look is recent. */
	if (handle->state == HANDLE_STOPPED) {
		if (util_now_us() - handle->ended_us < PAUSE_DEVICE_ABSENT_US) {
			ready(arg, KILN_ENOTSUP, handle->reason);
			return;
		}
		handle->failed_starts = 0;
		handle_start(handle);
	}
	struct handle_wait *waiter = calloc(1, sizeof(*waiter));
	if (!waiter) {
		ready(arg, KILN_ENOMEM, "out of memory");
		return;
	}
	*waiter = (struct handle_wait){ready, arg, util_now_us(), NULL};
	struct handle_wait **link = &handle->waiters;
	while (*link)
		link = &(*link)->next;
	*link = waiter;
}

void handle_forget(struct device_handle *handle, void *arg)
{
	struct handle_wait **link = &handle->waiters;
	while (*link) {
		struct handle_wait *waiter = *link;
		if (waiter->arg == arg) {
			*link = waiter->next;
			free(waiter);
		} else {
			link = &waiter->next;
		}
	}
}

/* ---- Its fields ---- */

bool handle_is_ready(const struct device_handle *handle)
{
	return handle->state == HANDLE_READY;
}

uint32_t handle_uid(const struct device_handle *handle)
{
	return handle->uid;
}

uint64_t handle_generation(const struct device_handle *handle)
{
	return handle->generation;
}

bool handle_is_own(const struct device_handle *handle)
{
	return handle->session != 0;
}

struct device_entry *handle_device(const struct device_handle *handle)
{
	return handle->device;
}

/* ---- Its end ---- */

/* Ends a process that no session uses, as if it had never started. */
static void on_idle(uv_timer_t *timer)
{
	struct device_handle *handle = timer->data;
	const struct broker *broker = handle->device->broker;
	if (handle->state != HANDLE_READY || broker->events->device_used(broker, handle) ||
		handle->waiters)
		return;
	util_log(UTIL_INFO, "%s: the device process of uid %u is ended: nobody uses it",
			 handle->device->info.name, (unsigned)handle->uid);
	uv_timer_stop(&handle->timer);
	handle_end_process(handle, "nobody uses it");
	handle->ended_us = 0;
	handle->failed_starts = 0;
}

void handle_left(struct device_handle *handle)
{
	const struct broker *broker = handle->device->broker;
	if (!handle->session && handle->uid != getuid() && !broker->events->device_used(broker, handle))
		uv_timer_start(&handle->idle, on_idle,
					   broker_deadline(broker->test.idle_executor_ms, DEADLINE_EXECUTOR_IDLE_MS),
					   0);
}

static void stop(struct device_handle *handle, uv_close_cb closed, const char *why)
{
	uv_timer_stop(&handle->timer);
	uv_timer_stop(&handle->clock);
	uv_close((uv_handle_t *)&handle->timer, closed);
	uv_close((uv_handle_t *)&handle->clock, closed);
	uv_close((uv_handle_t *)&handle->idle, closed);
	handle->pulse.timer.data = handle;
	pulse_close(&handle->pulse, closed);
	handle_end_process(handle, why);
}

void handle_stop(struct device_handle *handle)
{
	stop(handle, NULL, "kilnd is stopping");
}

static void on_handle_closed(uv_handle_t *timer)
{
	struct device_handle *handle = timer->data;
	if (--handle->open_handles == 0)
		handle_free(handle);
}

void handle_end(struct device_handle *handle)
{
	struct device_handle **link = &handle->device->handles;
	while (*link != handle)
		link = &(*link)->next;
	*link = handle->next;
	handle->open_handles = 4;
	stop(handle, on_handle_closed, "its session has ended");
	handle->device->broker->events->device_closed(handle->device->broker, handle);
}

void handle_free(struct device_handle *handle)
{
	while (handle->waiters) {
		struct handle_wait *next = handle->waiters->next;
		free(handle->waiters);
		handle->waiters = next;
	}
	for (int i = 0; i < HANDLE_READERS; i++)
		free(handle->readings[i]);
	free(handle);
}
