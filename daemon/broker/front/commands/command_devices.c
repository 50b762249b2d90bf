/*
 * command_devices.c: devices.  The answer waits a moment for devices of which nothing is known yet,
 * and has those looked for again that were not there.
 */
#include <stdlib.h>

#include "command.h"
#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/handle.h"

struct looking {
	struct request request;
	struct broker *broker;
	uv_timer_t timer;
	int asked; /* devices that have not answered, and one while they are being asked */
};

static void put_rows(struct wire_out *out, const struct broker *broker)
{
	static const char *const states[] = {"unknown", "present", "present", "absent", "lost"};
	wire_list_begin(out, "rows");
	for (struct device_entry *device = broker->devices; device; device = device->next) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", device->info.name);
		wire_put_str(out, "kind", device_is_cpu(device) ? "cpu" : "cuda");
		wire_put_str(out, "state", states[device->state]);
		wire_put_str(out, "target", device->info.limits.target);
		wire_put_str(out, "model", device->info.model);
		wire_put_str(out, "uuid", device->info.uuid);
		wire_put_str(out, "bus", device->info.bus);
		wire_put_uint(out, "memory", device->info.memory_bytes);
		wire_put_str(out, "reason", device->reason);
		wire_put_str(out, "was", device->was);
		wire_map_end(out);
	}
	wire_list_end(out);
}

static void on_looking_closed(uv_handle_t *handle)
{
	free(handle->data);
}

/* Nothing calls back any more. */
static void looking_end(struct looking *looking)
{
	for (struct device_entry *device = looking->broker->devices; device; device = device->next)
		if (device->handles)
			handle_forget(device->handles, looking);
	uv_close((uv_handle_t *)&looking->timer, on_looking_closed);
}

static void looking_abandon(struct request *request)
{
	looking_end((struct looking *)request);
}

static void looking_answer(struct looking *looking)
{
	struct session *session = looking->request.session;
	struct wire_out out;
	reply_begin(&out, looking->request.id);
	put_rows(&out, looking->broker);
	request_close(&looking->request);
	looking_end(looking);
	reply_send(session, &out, NULL, 0);
}

static void on_looking_timer(uv_timer_t *timer)
{
	looking_answer(timer->data);
}

static void on_device_looked(void *arg, int status, const char *error)
{
	struct looking *looking = arg;
	(void)status, (void)error;
	if (--looking->asked == 0)
		looking_answer(looking);
}

void serve_devices(struct session *session, struct wire_in *message)
{
	struct broker *broker = session->broker;
	uint64_t id = wire_id(message);
	struct looking *looking = calloc(1, sizeof(*looking));
	if (!looking)
		reply_error(session, id, KILN_ENOMEM, "out of memory");
	if (!looking || !request_open(session, id, &looking->request, looking_abandon)) {
		free(looking);
		return;
	}
	looking->broker = broker;
	looking->timer.data = looking;
	uv_timer_init(&broker->loop, &looking->timer);
	uv_timer_start(&looking->timer, on_looking_timer, DEADLINE_DEVICES_MS, 0);
	looking->asked = 1;
	/* The first handle of a device is that of the daemon's own uid. */
	for (struct device_entry *device = broker->devices; device; device = device->next) {
		bool known = device->state != DEVICE_UNKNOWN && device->state != DEVICE_ABSENT;
		if (known || !device->handles)
			continue;
		looking->asked++;
		handle_when_ready(device->handles, on_device_looked, looking);
	}
	on_device_looked(looking, KILN_OK, NULL);
}
