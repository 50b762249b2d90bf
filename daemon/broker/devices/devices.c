/* devices.c: keeps the list of devices: those that --device names, and the GPUs that the first of
 * them reports. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handle_state.h"
#include "daemon/base/util.h"

struct device_entry *devices_add(struct broker *broker, const char *name)
{
	struct device_entry **link = &broker->devices;
	while (*link) {
		if (!strcmp((*link)->info.name, name))
			return *link;
		link = &(*link)->next;
	}
	struct device_entry *device = util_alloc(sizeof(*device));
	device->broker = broker;
	snprintf(device->info.name, sizeof(device->info.name), "%s", name);
	*link = device;
	return device;
}

int devices_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const struct options_devices *wanted = &broker->options.devices;
	if (wanted->automatic) {
		devices_add(broker, "cuda:0");
		devices_add(broker, "cpu");
	}
	for (int i = 0; i < wanted->count; i++)
		devices_add(broker, wanted->names[i]);
	for (struct device_entry *device = broker->devices; device; device = device->next)
		if (!handle_for(device, (uint32_t)getuid()))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory");
	return KILN_OK;
}

bool device_is_cpu(const struct device_entry *device)
{
	return !strcmp(device->info.name, "cpu");
}

static bool same_limits(const struct kernel_limits *a, const struct kernel_limits *b)
{
	return !strcmp(a->target, b->target) && a->max_threads == b->max_threads &&
		   a->shared_default == b->shared_default && a->shared_optin == b->shared_optin &&
		   a->grid_x == b->grid_x && a->grid_y == b->grid_y && a->grid_z == b->grid_z &&
		   a->multiprocessors == b->multiprocessors && a->warp == b->warp;
}

/* Returns whether the device is another one than before.  Raises its kind when plans and winners of
 * tuning for the old one do not fit it. */
static bool note_change(struct device_entry *device, const struct device_info *info)
{
	const struct device_info *before = &device->info;
	char was[sizeof(device->was)];
	bool other_kind =
		!same_limits(&before->limits, &info->limits) || strcmp(before->model, info->model) != 0;
	if (!before->limits.target[0] || (!other_kind && !strcmp(before->uuid, info->uuid)))
		return false;
	device->kind += other_kind;
	snprintf(was, sizeof(was), "%s, %s%s%s", before->model, before->limits.target,
			 before->uuid[0] ? ", " : "", before->uuid);
	memcpy(device->was, was, sizeof(was));
	util_log(UTIL_WARN, "device %s is another one than before: it was %s and is %s, %s, %s",
			 info->name, was, info->model, info->limits.target, info->uuid);
	return true;
}

bool device_is_present(struct device_entry *device, const struct device_info *info)
{
	if (device->state != DEVICE_PRESENT)
		util_log(UTIL_INFO, "device %s is %s", info->name, info->model);
	bool another = note_change(device, info);
	device->info = *info;
	device->state = DEVICE_PRESENT;
	device->reason[0] = 0;
	return another;
}

void device_is_away(struct device_entry *device, enum device_state state, const char *reason)
{
	/* Another user's process may still have it, or have it again. */
	for (struct device_handle *handle = device->handles; handle; handle = handle->next)
		if (handle->state == HANDLE_READY && !handle->session)
			return;
	if (device->state != state)
		util_log(state == DEVICE_LOST ? UTIL_WARN : UTIL_INFO, "device %s is %s: %s",
				 device->info.name, state == DEVICE_LOST ? "lost" : "not available", reason);
	device->state = state;
	snprintf(device->reason, sizeof(device->reason), "%s", reason);
}

void devices_close(struct broker *broker)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next)
			handle_stop(handle);
}

void devices_free(struct broker *broker)
{
	while (broker->devices) {
		struct device_entry *device = broker->devices;
		broker->devices = device->next;
		while (device->handles) {
			struct device_handle *handle = device->handles;
			device->handles = handle->next;
			handle_free(handle);
		}
		free(device);
	}
}

void handle_each(const struct broker *broker, handle_visit visit, void *arg)
{
	static const char *const phases[] = {"stopped", "waiting", "starting", "ready"};
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next) {
			struct handle_stats stats = {
				.handle = handle,
				.device = device->info.name,
				.state = handle->lost ? "lost" : phases[handle->state],
				.reason = handle->state == HANDLE_STOPPED || handle->lost ? handle->reason : "",
				.uid = handle->uid,
				.session = handle->session,
				.pid = handle->child ? child_pid(handle->child) : 0,
				.inflight = handle->call_count,
				.modules = (int)handle->modules.count,
				.restarts = handle->restarts,
				.scratch_bytes = handle->scratch_bytes,
				.sandbox = handle->sandbox,
				.launchers = handle->launchers,
			};
			visit(arg, &stats);
		}
}

int handle_kill(struct broker *broker, int pid)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next)
			if (handle->child && (!pid || child_pid(handle->child) == pid)) {
				child_kill(handle->child);
				return child_pid(handle->child);
			}
	return 0;
}
