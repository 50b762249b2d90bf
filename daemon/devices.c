/* devices.c: the list of devices: what --device names, and the GPUs that the first of them reports.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor_state.h"
#include "util/util.h"

static struct device_entry *add(struct broker *broker, const char *name)
{
	struct device_entry **link = &broker->devices;
	while (*link) {
		if (!strcmp((*link)->info.name, name))
			return *link;
		link = &(*link)->next;
	}
	struct device_entry *device = util_alloc(sizeof *device);
	device->broker = broker;
	snprintf(device->info.name, sizeof device->info.name, "%s", name);
	*link = device;
	return device;
}

int devices_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const struct options_devices *wanted = &broker->options.devices;
	if (wanted->automatic) {
		add(broker, "cuda:0");
		add(broker, "cpu");
	}
	for (int i = 0; i < wanted->count; i++)
		add(broker, wanted->names[i]);
	for (struct device_entry *device = broker->devices; device; device = device->next)
		if (!executor_for(device, (uint32_t)getuid()))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory");
	return KILN_OK;
}

struct device_entry *device_find(struct broker *broker, const char *name)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		if (!strcmp(device->info.name, name))
			return device;
	return NULL;
}

bool device_is_cpu(const struct device_entry *device)
{
	return !strcmp(device->info.name, "cpu");
}

void device_is_present(struct device_entry *device, const struct device_info *info)
{
	struct broker *broker = device->broker;
	char name[sizeof info->name];
	if (device->state != DEVICE_PRESENT)
		util_log(UTIL_INFO, "device %s is %s", device->info.name, info->model);
	device->info = *info;
	device->state = DEVICE_PRESENT;
	device->reason[0] = 0;
	/* The further GPUs are listed now and started when a client names them. */
	if (!broker->options.devices.automatic || strcmp(device->info.name, "cuda:0") != 0)
		return;
	for (int i = 1; i < info->device_count && i < OPTIONS_MAX_DEVICES; i++) {
		snprintf(name, sizeof name, "cuda:%d", i);
		add(broker, name);
	}
}

void device_is_absent(struct device_entry *device, const char *reason)
{
	if (device->state != DEVICE_ABSENT)
		util_log(UTIL_INFO, "device %s is not available: %s", device->info.name, reason);
	device->state = DEVICE_ABSENT;
	snprintf(device->reason, sizeof device->reason, "%s", reason);
}

void devices_close(struct broker *broker)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct executor *executor = device->executors; executor; executor = executor->next)
			executor_stop(executor);
}

void devices_free(struct broker *broker)
{
	while (broker->devices) {
		struct device_entry *device = broker->devices;
		broker->devices = device->next;
		while (device->executors) {
			struct executor *executor = device->executors;
			device->executors = executor->next;
			executor_free(executor);
		}
		free(device);
	}
}

void executor_each(const struct broker *broker, executor_visit visit, void *arg)
{
	static const char *const phases[] = {"stopped", "waiting", "starting", "ready"};
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct executor *executor = device->executors; executor; executor = executor->next) {
			struct executor_stats stats = {
				.executor = executor,
				.device = device->info.name,
				.state = phases[executor->phase],
				.uid = executor->uid,
				.session = executor->session,
				.pid = executor->child ? child_pid(executor->child) : 0,
				.inflight = executor->call_count,
				.modules = (int)executor->modules.count,
				.restarts = executor->restarts,
				.scratch_bytes = executor->scratch_bytes,
				.sandbox = executor->sandbox,
			};
			visit(arg, &stats);
		}
}

int executor_kill(struct broker *broker, int pid)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct executor *executor = device->executors; executor; executor = executor->next)
			if (executor->child && (!pid || child_pid(executor->child) == pid)) {
				child_kill(executor->child);
				return child_pid(executor->child);
			}
	return 0;
}
