/*
 * executor_pace: the deadlines of launches and copies that came by message.  Each stream has a
 * clock of its own: the progress of others does not excuse a stream that stands still.  A launch is
 * not overdue as long as the device says that it has not begun.  Lanes have clocks of their own
 * (executor_lane_turn.c).
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_flight.h"

#include <inttypes.h>
#include <stdlib.h>

#define NEVER UINT64_MAX

/* A stream and its flights, in their order.  exec_pace_leave() of the last flight frees it. */
struct exec_line {
	uint64_t stream;
	struct exec_flight *first, *last;
	uint64_t progress_us; /* the last end, or the start after which there are flights */
};

void exec_pace_enter(struct launcher *launcher, struct exec_flight *flight, uint64_t deadline_us)
{
	struct exec_line *line = map_get_id(&launcher->lines, flight->stream);
	uint64_t now = util_now_us();
	if (!line) {
		line = calloc(1, sizeof(*line));
		/* Without memory the flight has no clock here; the broker's clock remains. */
		if (!line || map_put_id(&launcher->lines, flight->stream, line) < 0) {
			free(line);
			return;
		}
		line->stream = flight->stream;
		line->progress_us = now;
	}
	flight->line = line;
	flight->deadline_us = deadline_us;
	flight->before = line->last;
	if (line->last)
		line->last->behind = flight;
	else
		line->first = flight;
	line->last = flight;
	if (deadline_us && now + deadline_us < launcher->lines_due_us)
		launcher->lines_due_us = now + deadline_us;
}

void exec_pace_leave(struct launcher *launcher, struct exec_flight *flight)
{
	struct exec_line *line = flight->line;
	if (!line)
		return;
	if (flight->before)
		flight->before->behind = flight->behind;
	else
		line->first = flight->behind;
	if (flight->behind)
		flight->behind->before = flight->before;
	else
		line->last = flight->before;
	flight->line = NULL;
	line->progress_us = util_now_us();
	if (!line->first) {
		map_remove_id(&launcher->lines, line->stream);
		free(line);
		return;
	}
	uint64_t deadline_us = line->first->deadline_us;
	if (deadline_us && line->progress_us + deadline_us < launcher->lines_due_us)
		launcher->lines_due_us = line->progress_us + deadline_us;
}

void exec_pace_ended(struct launcher *launcher, uint64_t stream)
{
	struct exec_line *line = launcher->lines.count ? map_get_id(&launcher->lines, stream) : NULL;
	if (line)
		line->progress_us = launcher->now_us;
}

uint64_t exec_pace_since(const struct launcher *launcher, uint64_t ticket, uint64_t progress_us)
{
	const struct device_ops *ops = launcher->ops;
	uint64_t begun = ops->begun_us ? ops->begun_us(launcher->device, ticket) : progress_us;
	if (!begun)
		return util_now_us();
	return begun > progress_us ? begun : progress_us;
}

/* Returns the overdue flight of the stream.  NULL: there is none, and *due is lowered to when the
 * first one may become overdue. */
static const struct exec_flight *find_overdue(const struct launcher *launcher,
											  struct exec_line *line, uint64_t now, uint64_t *due)
{
	const struct exec_flight *flight = line->first;
	uint64_t deadline = flight->deadline_us, until = line->progress_us + deadline;
	if (deadline && now >= until)
		until = exec_pace_since(launcher, flight->id, line->progress_us) + deadline;
	if (deadline && now >= until)
		return flight;
	if (deadline && until < *due)
		*due = until;
	return NULL;
}

bool exec_pace_overrun(struct launcher *launcher, struct device_done *culprit)
{
	uint64_t due = NEVER;
	struct exec_line *line;
	size_t cursor = 0;
	if (!launcher->lines.count)
		return false;
	uint64_t now = launcher->turn_us;
	if (now < launcher->lines_due_us)
		return false;
	while ((line = map_next(&launcher->lines, &cursor))) {
		const struct exec_flight *flight = find_overdue(launcher, line, now, &due);
		if (!flight)
			continue;
		*culprit = (struct device_done){.ticket = flight->id, .status = KILN_ETIMEDOUT};
		exec_pace_sentence(launcher, flight->deadline_us, culprit->error);
		return true;
	}
	launcher->lines_due_us = due;
	return false;
}

void exec_pace_sentence(const struct launcher *launcher, uint64_t deadline_us,
						char error[KERNEL_ERROR_MAX])
{
	util_fail(error, KERNEL_ERROR_MAX, 0,
			  "nothing completed on %s for %" PRIu64 " ms, the deadline of the call that ran; its "
			  "device process was ended",
			  launcher->executor->info.name, deadline_us / 1000);
}

int exec_pace_patience(const struct launcher *launcher, int patience)
{
	uint64_t due = launcher->lines_due_us;
	if (!launcher->lines.count || patience == 0 || due == NEVER)
		return patience;
	uint64_t now = util_now_us();
	int left = due <= now ? 1 : due - now < 1000000 ? (int)((due - now) / 1000) + 1 : 1000;
	return patience < 0 || left < patience ? left : patience;
}

void exec_pace_open(struct launcher *launcher)
{
	launcher->lines_due_us = NEVER;
}
