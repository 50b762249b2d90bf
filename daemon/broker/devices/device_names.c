/*
 * device_names.c: finds the device that a name means, and keeps what device processes say of their
 * GPU and of others.  A UUID tells GPUs apart, for numbers change when one goes away.
 */
#include "handle_state.h"
#include "daemon/base/util.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static bool is_called(const struct device_entry *device, const char *name,
					  const struct device_name *read)
{
	const char *uuid = device->info.uuid;
	if (read->ordinal < 0 && read->uuid[0])
		return device_uuid_begins(uuid, read->uuid) || device_uuid_same(uuid, read->uuid) ||
			   !strcmp(device->info.name, name);
	return !strcmp(device->info.name, name);
}

/* Adds "cuda:0 (GPU-...), cpu" to the sentence. */
static void list_devices(const struct broker *broker, const char *name,
						 const struct device_name *read, char *error, size_t size)
{
	const char *between = "";
	for (struct device_entry *device = broker->devices; device; device = device->next) {
		const char *uuid = device->info.uuid;
		if (read && !is_called(device, name, read))
			continue;
		util_append(error, size, strlen(error), "%s%s%s%s%s", between, device->info.name,
					uuid[0] ? " (" : "", uuid, uuid[0] ? ")" : "");
		between = ", ";
	}
}

struct device_entry *device_named(struct broker *broker, const char *name, char *error, size_t size)
{
	struct device_entry *found = NULL;
	struct device_name read;
	int matches = 0;
	device_name_read(name, strlen(name), &read);
	for (struct device_entry *device = broker->devices; device; device = device->next) {
		if (!is_called(device, name, &read))
			continue;
		found = device;
		matches++;
	}
	if (matches == 1)
		return found;
	if (matches > 1) {
		util_fail(error, size, 0, "device \"%s\" is the beginning of several: ", name);
		list_devices(broker, name, &read, error, size);
		util_append(error, size, strlen(error), "; write more of it");
		return NULL;
	}
	util_fail(error, size, 0, "kilnd has no device \"%s\"; it has ", name);
	list_devices(broker, NULL, NULL, error, size);
	if (!broker->devices)
		util_append(error, size, strlen(error), "none (--device none)");
	return NULL;
}

/* ---- What device processes say ---- */

void device_read_info(struct wire_in *message, const msgpack_object *map, struct device_info *out)
{
	const struct {
		const char *name;
		char *text;
		size_t size;
	} texts[] = {{"name", out->name, sizeof(out->name)},
				 {"model", out->model, sizeof(out->model)},
				 {"uuid", out->uuid, sizeof(out->uuid)},
				 {"bus", out->bus, sizeof(out->bus)},
				 {"target", out->limits.target, sizeof(out->limits.target)}};
	struct kernel_limits *limits = &out->limits;
	int64_t grid[3] = {0};
	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		const char *text = wire_get_str(message, map, texts[i].name);
		snprintf(texts[i].text, texts[i].size, "%s", text ? text : "");
	}
	out->memory_bytes = wire_get_uint(map, "memory", 0);
	limits->max_threads = (uint32_t)wire_get_uint(map, "max_threads", 1024);
	limits->shared_default = (uint32_t)wire_get_uint(map, "shared_default", 49152);
	limits->shared_optin = (uint32_t)wire_get_uint(map, "shared_optin", 49152);
	limits->multiprocessors = (uint32_t)wire_get_uint(map, "mps", 1);
	limits->warp = (uint32_t)wire_get_uint(map, "warp", 32);
	wire_get_ints(map, "grid", grid, 3);
	limits->grid_x = (uint32_t)grid[0];
	limits->grid_y = (uint32_t)grid[1];
	limits->grid_z = (uint32_t)grid[2];
}

static struct device_entry *find_uuid(const struct broker *broker, const char *uuid)
{
	struct device_entry *device = broker->devices;
	while (device && !device_uuid_same(device->info.uuid, uuid))
		device = device->next;
	return device;
}

void devices_seen(struct broker *broker, struct wire_in *message)
{
	const msgpack_object *list = wire_get(&message->root, "seen");
	uint32_t count = wire_count(list);
	if (!broker->options.devices.automatic)
		return;
	for (uint32_t i = 0; i < count && i < OPTIONS_MAX_DEVICES; i++) {
		struct device_info info;
		device_read_info(message, wire_at(list, i), &info);
		if (find_uuid(broker, info.uuid))
			continue;
		struct device_entry *device = devices_add(broker, info.name);
		if (!info.uuid[0] || device->handles || device->state != DEVICE_UNKNOWN)
			continue;
		device->info = info;
		device->state = DEVICE_SEEN;
		util_log(UTIL_INFO, "device %s is %s, %s", info.name, info.model, info.uuid);
	}
}

bool device_may_be(const struct device_entry *device, const struct device_info *info, char *reason,
				   size_t size)
{
	for (struct device_entry *other = device->broker->devices; other; other = other->next) {
		if (other == device)
			continue;
		if (device_uuid_same(other->info.uuid, info->uuid))
			util_fail(reason, size, 0, "%s is %s already%s%s", info->uuid, other->info.name,
					  device->info.uuid[0] ? ", and there is no more " : "", device->info.uuid);
		else if (!strcmp(other->info.name, info->name))
			util_fail(reason, size, 0, "%s is %s, and --device names both", device->info.name,
					  info->name);
		else
			continue;
		return false;
	}
	return true;
}
