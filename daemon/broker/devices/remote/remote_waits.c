/* remote_waits.c: notes of waits for the second tier. */
#include "remote_state.h"

#include "daemon/base/util.h"

void remote_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct remote *remote = broker->remote;
	uint64_t now = util_now_us();
	if (!remote)
		return;
	struct wait_note note = {.what = "connect", .of = "redis", .since_us = remote->changed_us};
	if (remote->breaker == REMOTE_HALF_OPEN) {
		note.left_ms = waits_timer_left(&remote->probe);
		waits_say(&note, "an answer to a new connection");
		visit(arg, &note);
	}
	if (!remote->queued)
		return;
	note.what = "write";
	note.count = remote->queued;
	note.since_us = remote_write_since(remote, now);
	note.left_ms = remote->write_due_us == REMOTE_NEVER ? WAITS_NO_DEADLINE
														: waits_left(remote->write_due_us, now);
	waits_say(&note, "kernels and winners to be written there");
	visit(arg, &note);
}
