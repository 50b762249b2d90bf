/* handle_waits.c: notes of those who wait for a device process.  They come from the broker's
 * memory, for a process that stands still does not answer. */
#include "handle_state.h"

#include <string.h>

#include "daemon/base/util.h"

static struct wait_note handle_waits_begin(const struct device_handle *handle, const void *owner,
										   const char *what, uint64_t since_us)
{
	return (struct wait_note){
		.owner = owner,
		.what = what,
		.of = "executor",
		.pid = handle->child ? child_pid(handle->child) : 0,
		.device = handle->device->info.name,
		.since_us = since_us,
		.left_ms = WAITS_NO_DEADLINE,
	};
}

int handle_pid(const struct device_handle *handle)
{
	return handle->child ? child_pid(handle->child) : 0;
}

/* ---- Starts ---- */

static void note_start(const struct device_handle *handle, waits_visit visit, void *arg)
{
	const char *name = handle->device->info.name;
	bool starting = handle->state == HANDLE_STARTING;
	for (const struct handle_wait *wait = handle->waiters; wait; wait = wait->next) {
		struct wait_note note = handle_waits_begin(handle, wait->arg, "device", wait->since_us);
		waits_say(&note, "the start of the device process of %s", name);
		if (starting)
			note.left_ms = waits_timer_left(&handle->timer);
		visit(arg, &note);
	}
	if (!starting && handle->state != HANDLE_WAITING)
		return;
	struct wait_note note = handle_waits_begin(handle, NULL, "start", handle->state_us);
	waits_say(&note, "%s of the device process of %s", starting ? "the start" : "the next start",
			  name);
	if (starting)
		note.left_ms = waits_timer_left(&handle->timer);
	visit(arg, &note);
}

/* ---- Requests ---- */

static const struct {
	const char *type, *what, *text;
} kinds[] = {
	{"launch", "launch", "the launch under way on %s"},
	{"lane.bind", "launch", "the launch under way on %s"},
	{"graph.launch", "launch", "the graph under way on %s"},
	{"copy", "transfer", "the copy under way on %s"},
	{"load", "load", "the load of a kernel on %s"},
	{"alloc", "place", "memory on %s"},
	{"import", "place", "lent memory to be brought to %s"},
	{"share", "place", "memory of %s to be shared between two processes"},
	{"free", "free", "the last use of a buffer on %s"},
	{"graph", "graph", "a graph to be made on %s"},
	{"lane.open", "lane", "a lane to be opened on %s"},
	{"lane.close", "lane", "the launches of its lane on %s"},
};

static void handle_waits_describe(const struct device_handle *handle,
								  const struct handle_call *call, bool quiet,
								  struct wait_note *note)
{
	const char *text = "an answer of %s";
	note->what = "device";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].type, call->type)) {
			note->what = kinds[i].what;
			text = kinds[i].text;
		}
	snprintf(note->text, sizeof(note->text), text, handle->device->info.name);
	if (quiet && call->waits && !device_is_cpu(handle->device)) {
		note->what = "quiet";
		util_append(note->text, sizeof(note->text), strlen(note->text),
					", once what runs there has ended");
	}
	if (call->deadline_ms) {
		uint64_t since = call->sent_us > handle->progress_us ? call->sent_us : handle->progress_us;
		note->left_ms =
			waits_left(since + handle_call_deadline_ms(handle, call) * 1000, util_now_us());
	}
}

/* A load has an owner for each wait for its kernel. */
static void note_call(const struct device_handle *handle, const struct handle_call *call,
					  bool quiet, waits_visit visit, void *arg)
{
	if (!call->done)
		return;
	struct wait_note note = handle_waits_begin(handle, call->arg, "", call->sent_us);
	handle_waits_describe(handle, call, quiet, &note);
	if (strcmp(call->type, "load") != 0) {
		visit(arg, &note);
		return;
	}
	const struct handle_module *module = call->arg;
	memcpy(note.key, module->key, sizeof(note.key));
	for (const struct module_wait *wait = module->waiters; wait; wait = wait->next) {
		note.owner = wait->arg;
		note.alone = true; /* it may be for a tier, which no session waits for */
		note.since_us = wait->since_us;
		if (wait->done)
			visit(arg, &note);
	}
}

static void note_calls(const struct device_handle *handle, waits_visit visit, void *arg)
{
	/* Requests that wait for a quiet device say so while something runs there. */
	bool runs = handle->holds;
	for (const struct handle_call *call = handle->first; call && !runs; call = call->next)
		runs = !call->waits &&
			   (!strcmp(call->type, "launch") || !strcmp(call->type, "copy") ||
				!strcmp(call->type, "lane.bind") || !strcmp(call->type, "graph.launch"));
	for (const struct handle_call *call = handle->first; call; call = call->next)
		note_call(handle, call, runs, visit, arg);
}

void handle_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	for (const struct device_entry *device = broker->devices; device; device = device->next)
		for (const struct device_handle *handle = device->handles; handle; handle = handle->next) {
			note_start(handle, visit, arg);
			note_calls(handle, visit, arg);
		}
}
