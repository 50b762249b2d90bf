/*
 * handle_lost.c: devices that were there and are away.  The handle of a lost device looks for it
 * less and less often.  Between two looks it is STOPPED, and answers at once that the device is
 * lost.
 */
#include "handle_state.h"

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

void handle_say_lost(const struct device_handle *handle, char error[KERNEL_ERROR_MAX])
{
	const struct device_info *info = &handle->device->info;
	char when[64] = "it is being looked for";
	if (uv_is_active((const uv_handle_t *)&handle->timer) && handle->state != HANDLE_STARTING)
		snprintf(when, sizeof(when), "it is looked for again in %llu ms",
				 (unsigned long long)uv_timer_get_due_in(&handle->timer));
	util_fail(error, KERNEL_ERROR_MAX, 0, "%s (%s%s%s) is lost, and %s: %s", info->name,
			  info->model, info->uuid[0] ? ", " : "", info->uuid, when, handle->reason);
}

/* Ends the uid's other processes of the device: a context of theirs would keep the driver from
 * resetting it. */
static void end_own(const struct device_handle *home)
{
	struct device_entry *device = home->device;
	for (struct device_handle *handle = device->handles; handle; handle = handle->next) {
		if (!handle->session || handle->uid != home->uid || handle->state != HANDLE_READY)
			continue;
		util_fail(handle->fault, sizeof(handle->fault), 0, "%s is lost: %s", device->info.name,
				  home->reason);
		child_kill(handle->child);
	}
}

void handle_lose(struct device_handle *handle)
{
	uint32_t wait = handle->lost_ms ? handle->lost_ms * 2 : PAUSE_DEVICE_LOST_FIRST_MS;
	if (!handle->lost && !handle->session)
		end_own(handle);
	handle->lost = true;
	handle->lost_ms = wait < PAUSE_DEVICE_LOST_LAST_MS ? wait : PAUSE_DEVICE_LOST_LAST_MS;
	uv_timer_start(&handle->timer, handle_on_timer, handle->lost_ms, 0);
	device_is_away(handle->device, DEVICE_LOST, handle->reason);
}

void handle_tell_others(struct device_handle *found, bool another)
{
	struct device_entry *device = found->device;
	for (struct device_handle *handle = device->handles; handle; handle = handle->next) {
		if (handle->lost && handle->state == HANDLE_STOPPED)
			uv_timer_start(&handle->timer, handle_on_timer, 0, 0);
		if (!another || handle == found || handle->state != HANDLE_READY)
			continue;
		util_fail(handle->fault, sizeof(handle->fault), 0,
				  "%s is another one than before: it was %s; its device process was ended",
				  device->info.name, device->was);
		child_kill(handle->child);
	}
}
