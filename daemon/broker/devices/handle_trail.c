/*
 * handle_trail.c: what is known of the last calls of a device process: from the trail that it
 * leaves in the broker's memory (exec/trail.h), in which there may be nonsense, and from what was
 * noted of the requests that it was sent.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/exec/trail.h"
#include "handle_state.h"
#include "daemon/base/util.h"

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

int executor_trail_open(struct executor *executor)
{
	int fd = frame_memfd("kiln-trail", sizeof(struct trail));
	void *memory =
		fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct trail), PROT_READ, MAP_SHARED, fd, 0);
	executor_trail_close(executor);
	executor->trail = memory == MAP_FAILED ? NULL : memory;
	if (!executor->trail && fd >= 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void executor_trail_close(struct executor *executor)
{
	if (executor->trail)
		munmap((void *)executor->trail, sizeof(*executor->trail));
	executor->trail = NULL;
	memset(executor->notes, 0, sizeof(executor->notes));
}

struct executor_about *executor_note(struct executor *executor, enum executor_noting which,
									 uint64_t id)
{
	unsigned at = executor->next_note[which]++ % EXECUTOR_NOTES;
	struct executor_note *note = &executor->notes[which][at];
	*note = (struct executor_note){.id = id};
	return &note->about;
}

const struct executor_about *executor_noted(const struct executor *executor,
											enum executor_noting which, uint64_t id)
{
	for (int i = 0; i < EXECUTOR_NOTES; i++)
		if (executor->notes[which][i].id == id)
			return &executor->notes[which][i].about;
	return NULL;
}

struct executor_about *executor_noted_call(struct executor *executor, uint64_t name)
{
	for (int i = 0; i < EXECUTOR_NOTES; i++)
		if (executor->notes[EXECUTOR_LANE][i].id == name)
			return &executor->notes[EXECUTOR_LANE][i].about;
	return NULL;
}

/* False: nothing that can be. */
static bool read_past(const struct trail *trail, uint64_t number, struct executor_past *out)
{
	const struct trail_call *call = &trail->calls[number % TRAIL_CALLS];
	uint64_t now = util_now_us();
	uint64_t began = LOAD(call->began_us), ended = LOAD(call->ended_us);
	*out = (struct executor_past){
		.number = number,
		.name = LOAD(call->name),
		.stream = LOAD(call->stream),
		.in_flight = ended == 0,
		.culprit = LOAD(trail->culprit) == number + 1,
		.age_us = now - began,
		.took_us = ended ? ended - began : now - began,
		.status = (int)LOAD(call->status),
	};
	return LOAD(call->number) == number + 1 && began <= now && (!ended || ended >= began) &&
		   ended <= now;
}

void executor_each_past(const struct executor *executor, executor_past_visit visit, void *arg)
{
	const struct trail *trail = executor->trail;
	uint64_t begun = trail ? LOAD(trail->begun) : 0;
	struct executor_past past;
	for (uint64_t i = 0; i < begun && i < TRAIL_CALLS; i++)
		if (read_past(trail, begun - 1 - i, &past))
			visit(arg, &past);
}

void executor_each_request(const struct executor *executor, executor_request_visit visit, void *arg)
{
	uint64_t now = util_now_us();
	for (const struct executor_call *call = executor->first; call; call = call->next)
		visit(arg, call->type, now - call->sent_us, call->deadline_ms);
}
