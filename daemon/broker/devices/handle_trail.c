/*
 * handle_trail.c: the last calls of a device process, for reports, and its time, for metrics.  The
 * process writes a trail into memory that it shares with the broker (exec/trail.h), and may write
 * nonsense; the broker notes what it asks of the process.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/trace.h"
#include "daemon/exec/trail.h"
#include "handle_state.h"
#include "daemon/base/util.h"

#define PAST_MOST 256     /* calls in a report */
#define CALL_LEAST_NS 100 /* in a trace */
#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

_Static_assert(TRAIL_ACCOUNTS == ACCOUNTS_MOST, "each account has a word in the trail");

/* Returns how much a time has grown; 0 where that is more than can be, as in nonsense. */
static double grown(uint64_t now, uint64_t *counted, double most)
{
	double more = now > *counted ? (double)(now - *counted) : 0;
	*counted = now;
	return more <= most ? more : 0;
}

static void count_busy(struct device_handle *handle)
{
	if (!handle->trail)
		return;
	struct account *accounts = handle->device->broker->accounts.rows;
	uint64_t now = util_now_us();
	double most = (double)(now - handle->counted_us) + PAUSE_ACCOUNT_MS * 2e3;
	handle->counted_us = now;
	handle->device->busy_us += grown(LOAD(handle->trail->busy_us), &handle->busy_us, most);
	for (int i = 0; i < ACCOUNTS_MOST; i++)
		accounts[i].device_us +=
			grown(LOAD(handle->trail->shares[i]), &handle->shares[i], most * TRAIL_UNITS) /
			TRAIL_UNITS;
}

void handles_count_busy(struct broker *broker)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next)
			count_busy(handle);
}

/* How far a reader has read the trail of a device process. */
struct handle_reading {
	uint64_t from;              /* all calls before are read, or were overwritten */
	uint64_t seen[TRAIL_CALLS]; /* number + 1 of the call that was read last at each place */
	unsigned messages;          /* notes of messages whose calls it has read or missed */
	/* For each line of calls, by line % TRAIL_CALLS: the end of the last call that was read, and
	 * the pass in which one of its calls had not ended. */
	uint64_t until_ns[TRAIL_CALLS], held[TRAIL_CALLS], pass;
};

int handle_trail_open(struct device_handle *handle)
{
	int fd = frame_memfd("kiln-trail", sizeof(struct trail));
	void *memory =
		fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct trail), PROT_READ, MAP_SHARED, fd, 0);
	handle_trail_close(handle);
	handle->trail = memory == MAP_FAILED ? NULL : memory;
	handle->counted_us = util_now_us();
	for (int i = 0; i < HANDLE_READERS; i++)
		if (handle->readings[i])
			*handle->readings[i] =
				(struct handle_reading){.messages = handle->next_note[HANDLE_MESSAGE]};
	if (!handle->trail && fd >= 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void handle_trail_close(struct device_handle *handle)
{
	count_busy(handle);
	handle->busy_us = 0;
	memset(handle->shares, 0, sizeof(handle->shares));
	if (handle->trail)
		munmap((void *)handle->trail, sizeof(*handle->trail));
	handle->trail = NULL;
	memset(handle->notes, 0, sizeof(handle->notes));
}

struct handle_about *handle_note(struct device_handle *handle, enum handle_noting which,
								 uint64_t id)
{
	unsigned at = handle->next_note[which]++ % HANDLE_NOTES;
	struct handle_note *note = &handle->notes[which][at];
	*note = (struct handle_note){.id = id};
	return &note->about;
}

const struct handle_about *handle_noted(const struct device_handle *handle,
										enum handle_noting which, uint64_t id)
{
	for (int i = 0; i < HANDLE_NOTES; i++)
		if (handle->notes[which][i].id == id)
			return &handle->notes[which][i].about;
	return NULL;
}

struct handle_about *handle_noted_call(struct device_handle *handle, uint64_t name)
{
	return (struct handle_about *)handle_noted(handle, HANDLE_LANE, name);
}

/* Reads call `number` of the trail; false: the process left nonsense there. */
static bool read_past(const struct trail *trail, uint64_t number, struct handle_past *out)
{
	const struct trail_call *call = &trail->calls[number % TRAIL_CALLS];
	uint64_t now = util_now_us();
	uint64_t began = LOAD(call->began_us), ended = LOAD(call->ended_us);
	*out = (struct handle_past){
		.number = number,
		.name = LOAD(call->name),
		.stream = LOAD(call->stream),
		.line = LOAD(call->line),
		.began_us = began,
		.in_flight = ended == 0,
		.culprit = LOAD(trail->culprit) == number + 1,
		.age_us = now - began,
		.took_us = ended ? ended - began : now - began,
		.status = (int)LOAD(call->status),
	};
	return LOAD(call->number) == number + 1 && began <= now && (!ended || ended >= began) &&
		   ended <= now;
}

void handle_each_past(const struct device_handle *handle, handle_past_visit visit, void *arg)
{
	const struct trail *trail = handle->trail;
	uint64_t begun = trail ? LOAD(trail->begun) : 0;
	struct handle_past past;
	for (uint64_t i = 0; i < begun && i < PAST_MOST; i++)
		if (read_past(trail, begun - 1 - i, &past))
			visit(arg, &past);
}

/* ---- Calls that have ended ---- */

/* Leaves out what is older than the last `most` calls, and returns how many of those it had not
 * read; without messages, whose calls it knows otherwise.  A count that is nonsense adds little. */
static uint64_t leave_out(struct device_handle *handle, struct handle_reading *reading,
						  uint64_t begun, uint64_t most, bool lanes_alone)
{
	uint64_t missed = 0, until = begun - most;
	if (begun <= reading->from || begun - reading->from <= most)
		return 0;
	for (uint64_t number = reading->from; number < until; number++) {
		if (number - reading->from >= TRAIL_CALLS) {
			missed += until - number;
			break;
		}
		missed += reading->seen[number % TRAIL_CALLS] != number + 1;
	}
	reading->from = until;
	const unsigned sent = handle->next_note[HANDLE_MESSAGE] - reading->messages;
	const unsigned messages = sent < missed ? sent : (unsigned)missed;
	reading->messages += messages;
	missed -= lanes_alone ? messages : 0;
	return missed < UINT32_MAX ? missed : UINT32_MAX;
}

/* Visits the calls that have ended, those of a line in their order.  Returns how many it missed. */
static uint64_t read_calls(struct device_handle *handle, enum handle_reader reader, uint64_t most,
						   handle_ended_visit visit, void *arg)
{
	const struct trail *trail = handle->trail;
	struct handle_reading *reading = handle->readings[reader];
	uint64_t begun = trail ? LOAD(trail->begun) : 0;
	uint64_t missed = leave_out(handle, reading, begun, most, reader == HANDLE_RECENT);
	struct handle_past past;
	bool all = true;
	reading->pass++;
	/* Two threads of the process may have stored in the other order than they called. */
	for (uint64_t number = reading->from; number < begun; number++) {
		const struct trail_call *call = &trail->calls[number % TRAIL_CALLS];
		uint64_t *seen = &reading->seen[number % TRAIL_CALLS];
		uint64_t *held = &reading->held[LOAD(call->line) % TRAIL_CALLS];
		if (*seen != number + 1 && *held != reading->pass) {
			if (!read_past(trail, number, &past) || past.in_flight) {
				*held = reading->pass;
			} else {
				*seen = number + 1;
				reading->messages += past.stream == 0;
				visit(arg, handle, &past);
			}
		}
		all = all && *seen == number + 1;
		reading->from += all;
	}
	return missed;
}

uint64_t handles_read(struct broker *broker, enum handle_reader reader, uint64_t most,
					  handle_ended_visit visit, void *arg)
{
	uint64_t missed = 0;
	most = most < TRAIL_CALLS ? most : TRAIL_CALLS;
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next) {
			struct handle_reading **reading = &handle->readings[reader];
			if (*reading) {
				missed += read_calls(handle, reader, most, visit, arg);
			} else if ((*reading = calloc(1, sizeof(**reading)))) {
				(*reading)->from = handle->trail ? LOAD(handle->trail->begun) : 0;
				(*reading)->messages = handle->next_note[HANDLE_MESSAGE];
			}
		}
	return missed;
}

void handles_read_no_more(struct broker *broker, enum handle_reader reader)
{
	for (struct device_entry *device = broker->devices; device; device = device->next)
		for (struct device_handle *handle = device->handles; handle; handle = handle->next) {
			free(handle->readings[reader]);
			handle->readings[reader] = NULL;
		}
}

/* ---- Traces ---- */

static int process_of(const struct device_handle *handle)
{
	return handle->child ? child_pid(handle->child) : 0;
}

/* Adds a call to its line.  The calls of a line run one after another.  A call that was given to
 * the device while the call before it ran began when that call ended. */
static void trace_call(void *arg, struct device_handle *handle, const struct handle_past *past)
{
	struct trace *trace = arg;
	const uint64_t line = past->line, begun_ns = past->began_us * 1000;
	/* A session's number is that of its streams, too. */
	if (!trace_shows(trace, line / KILN_STREAMS))
		return;
	uint64_t *until = &handle->readings[HANDLE_TRACE]->until_ns[line % TRAIL_CALLS];
	const struct handle_about *about =
		handle_noted(handle, past->stream ? HANDLE_LANE : HANDLE_MESSAGE, past->name);
	struct trace_span span = {.begin_ns = begun_ns > *until ? begun_ns : *until,
							  .end_ns = begun_ns + past->took_us * 1000};
	char name[96];
	snprintf(name, sizeof(name), "%s of uid %u (pid %d)", handle->device->info.name, handle->uid,
			 process_of(handle));
	uint64_t process =
		trace_track(trace, 0, handle->generation << 32 | (uint32_t)process_of(handle), name);
	snprintf(name, sizeof(name), "session %llu, stream %llu",
			 (unsigned long long)(line / KILN_STREAMS), (unsigned long long)(line % KILN_STREAMS));
	span.name = about && about->op[0] ? about->op : about && about->copied ? "copy" : "call";
	span.about = about && about->choice[0] ? about->choice : NULL;
	span.flow = past->stream ? 0 : handle_flow(handle, past->name);
	if (span.end_ns < span.begin_ns + CALL_LEAST_NS)
		span.end_ns = span.begin_ns + CALL_LEAST_NS;
	*until = span.end_ns;
	trace_add(trace, trace_track(trace, process, line, name), &span);
}

uint64_t handle_flow(const struct device_handle *handle, uint64_t id)
{
	return (uint64_t)process_of(handle) << 40 ^ id;
}

void handles_trace(struct broker *broker)
{
	if (broker->trace)
		broker->trace->missed +=
			handles_read(broker, HANDLE_TRACE, TRAIL_CALLS, trace_call, broker->trace);
	else
		handles_read_no_more(broker, HANDLE_TRACE);
}

void handle_each_request(const struct device_handle *handle, handle_request_visit visit, void *arg)
{
	uint64_t now = util_now_us();
	for (const struct handle_call *call = handle->first; call; call = call->next)
		visit(arg, call->type, now - call->sent_us, call->deadline_ms);
}
