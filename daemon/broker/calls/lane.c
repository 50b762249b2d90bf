/*
 * lane.c: the lane of a session (client/wire/lane_memory.h): makes its memory, hands that to the
 * device process, counts what goes through, and ends it.  The broker never sees the launches.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/broker/devices/events.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "daemon/broker/requests/request.h"
#include "lane_state.h"

/* ---- Making and ending ---- */

static void broker_lane_assert_valid(const struct lane *lane)
{
	(void)lane;
	assert(lane->map && lane->counts && lane->generation);
	assert(lane->memory_fd >= 0 && lane->doorbell_fd >= 0 && lane->client_wake_fd >= 0);
}

static void close_all(struct lane *lane)
{
	if (lane->map)
		munmap(lane->map, sizeof(*lane->map));
	if (lane->counts)
		munmap(lane->counts, sizeof(*lane->counts));
	if (lane->memory_fd >= 0)
		close(lane->memory_fd);
	if (lane->doorbell_fd >= 0)
		close(lane->doorbell_fd);
	if (lane->client_wake_fd >= 0)
		close(lane->client_wake_fd);
	free(lane);
}

/* Returns NULL, with errno, when it fails. */
static void *map_shared(int memory, size_t bytes)
{
	void *map =
		memory < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	return map == MAP_FAILED ? NULL : map;
}

/* others: what the device process gets: its end of the pipe, and the memory that it counts in. */
static struct lane *lane_make(uint32_t spin_us, int others[2])
{
	struct lane *lane = calloc(1, sizeof(*lane));
	int ends[2] = {-1, -1};
	if (!lane)
		return NULL;
	bool linked = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
	lane->client_wake_fd = ends[0];
	others[0] = ends[1];
	others[1] = frame_memfd("kiln-lane-counts", sizeof(*lane->counts));
	lane->memory_fd = frame_memfd("kiln-lane", sizeof(*lane->map));
	lane->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	lane->map = map_shared(lane->memory_fd, sizeof(*lane->map));
	lane->counts = map_shared(others[1], sizeof(*lane->counts));
	if (!lane->map || !lane->counts || lane->doorbell_fd < 0 || !linked) {
		util_log(UTIL_WARN, "no lane can be made: %s; its calls go by message", strerror(errno));
		close_all(lane);
		for (int i = 0; i < 2; i++)
			if (others[i] >= 0)
				close(others[i]);
		return NULL;
	}
	lane->map->header.magic = LANE_MAGIC;
	lane->map->header.version = LANE_VERSION;
	lane->map->header.entries = LANE_ENTRIES;
	lane->map->header.spin_us = spin_us;
	return lane;
}

void lane_refuse(struct session *session, const char *why)
{
	if (session->lane->state == LANE_OPEN)
		session->lane->state = LANE_REFUSED;
	util_log(UTIL_WARN, "session %llu: its calls go by message: %s",
			 (unsigned long long)session->id, why);
}

void lane_answered(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct session *session = arg;
	(void)reply;
	if (status != KILN_OK && status != KILN_EDEVICE && session->lane)
		lane_refuse(session, error);
}

/* Whether the device process may plan for the session: what it plans is what tier_first() has. */
static bool may_plan(const struct session *session)
{
	return tier_policy(session) != OPTIONS_EAGER && !session->on_miss;
}

bool lane_open(struct session *session)
{
	struct device_handle *executor = session->executor;
	struct wire_out message;
	int others[2];
	struct lane *lane = session->lane;
	if (lane)
		return true;
	lane = lane_make((uint32_t)session->broker->options.lane_spin_us, others);
	if (!lane)
		return false;
	const int fds[LANE_EXEC_DESCRIPTORS] = {lane->memory_fd, lane->doorbell_fd, others[0],
											others[1]};
	uint64_t deadline = session->broker->options.launch_timeout_ms;
	uint64_t id = handle_begin(executor, &message, "lane.open");
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "account", session->account);
	wire_put_uint(&message, "deadline", deadline * handle_patience(executor));
	wire_put_uint(&message, "ready", session->broker->options.ready_timeout_ms);
	if (may_plan(session)) {
		lane->map->header.desk = 1;
		lane->desk = LANE_DESK + broker_id(session->broker) * LANE_DESK_CALLS;
		wire_put_uint(&message, "desk", lane->desk);
		wire_put_uint(&message, "notice", tier_first_notice(session));
	}
	int status = handle_send(executor, &message, id, fds, LANE_EXEC_DESCRIPTORS, (uint32_t)deadline,
							 lane_answered, session);
	close(others[0]);
	close(others[1]);
	if (status != KILN_OK) {
		close_all(lane);
		return false;
	}
	lane->generation = handle_generation(executor);
	session->lane = lane;
	lane_grant(session);
	return true;
}

/* ---- Looking into it ---- */

uint64_t lane_count(struct session *session)
{
	struct lane *lane = session->lane;
	struct counters *counters = &session->broker->counters;
	if (!lane)
		return 0;
	/* Read in this order, "taken" covers all that have ended. */
	uint64_t launched = atomic_load(&lane->counts->launched);
	uint64_t failed = atomic_load(&lane->counts->failed);
	uint64_t taken = atomic_load(&lane->counts->taken);
	counters->lane_taken += taken - lane->taken;
	counters->launches += launched - lane->launched;
	counters->lane_launches += launched - lane->launched;
	counters->launch_failures += failed - lane->failed;
	counters->lane_failures += failed - lane->failed;
	session->tally.launches += launched - lane->launched;
	session->tally.launch_failures += failed - lane->failed;
	lane->taken = taken;
	lane->launched = launched;
	lane->failed = failed;
	return taken - launched - failed;
}

int lane_waits(const struct session *session, struct wait_note notes[LANE_NOTES])
{
	const struct lane *lane = session->lane;
	const struct device_handle *executor = session->executor;
	uint64_t deadline_us = session->broker->options.launch_timeout_ms * 1000;
	struct wait_note note = {.left_ms = WAITS_NO_DEADLINE};
	int count = 0;
	if (!lane)
		return 0; /* the session may have no device either */
	note.device = session->device->info.name;
	note.of = "executor";
	note.pid = handle_pid(executor);
	uint64_t ended = atomic_load(&lane->counts->launched) + atomic_load(&lane->counts->failed);
	uint64_t parked = atomic_load(&lane->counts->parked), gated = atomic_load(&lane->counts->gated);
	uint64_t under_way = atomic_load(&lane->counts->taken) - ended - parked;
	if (under_way && under_way <= LANE_ENTRIES) {
		notes[count] = note;
		notes[count].what = "launch";
		notes[count].count = under_way;
		notes[count].since_us = atomic_load(&lane->counts->progress_us);
		notes[count].left_ms = waits_left(
			notes[count].since_us + deadline_us * handle_patience(executor), util_now_us());
		waits_say(&notes[count++], "launches under way on %s", note.device);
	}
	note.since_us = atomic_load(&lane->counts->parked_us);
	if (parked > gated) {
		notes[count] = note;
		notes[count].what = "entry";
		notes[count].count = parked - gated;
		waits_say(&notes[count++], "launches that were submitted before");
	}
	if (gated) {
		note.what = "ready";
		note.of = "client";
		note.pid = session->pid;
		note.count = gated;
		notes[count] = note;
		waits_say(&notes[count++], "its CUDA stream to come by and write a ready word");
	}
	return count;
}

bool lane_works(const struct session *session)
{
	const struct lane *lane = session->lane;
	uint64_t taken = atomic_load(&lane->counts->taken);
	uint64_t ended = atomic_load(&lane->counts->launched) + atomic_load(&lane->counts->failed);
	return taken != ended || atomic_load(&lane->map->header.tail) != taken ||
		   atomic_load(&lane->map->desk.asked) != atomic_load(&lane->map->desk.answered);
}

/* ---- Ending it ---- */

void lane_drop(struct session *session)
{
	session->broker->counters.lane_lost += lane_count(session);
	if (session->lane)
		close_all(session->lane);
	session->lane = NULL;
}

/* Tells the client that its lane is gone, and how the launches under way ended. */
static void tell_lost(struct session *session, int status, const char *why)
{
	struct wire_out out;
	wire_begin(&out, "event", 0);
	out.for_people = true;
	wire_put_str(&out, "what", "lane.lost");
	wire_put_int(&out, "st", status);
	wire_put_str(&out, "err", why);
	reply_send(session, &out, NULL, 0);
}

void lane_check(struct session *session, const char *why)
{
	struct lane *lane = session->lane;
	if (!lane || (handle_is_ready(session->executor) &&
				  lane->generation == handle_generation(session->executor)))
		return;
	bool given = lane->given;
	lane_drop(session);
	if (given)
		tell_lost(session, KILN_EDEVICE, why);
}

static void answer_waiter(struct broker *broker)
{
	struct lanes_end *waiter = &broker->test.lanes_end;
	struct session *found = NULL;
	for (struct session *session = broker->sessions; session; session = session->next) {
		if (lane_busy(session))
			return;
		if (session->id == waiter->session)
			found = session;
	}
	if (found && waiter->request)
		reply_ok(found, waiter->request);
	*waiter = (struct lanes_end){0};
}

static void on_ended(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct session *session = arg;
	bool given = session->lane && session->lane->given;
	(void)status, (void)error, (void)reply;
	lane_drop(session);
	if (given)
		tell_lost(session, KILN_ECANCELED,
				  session->broker->draining ? "kilnd is shutting down"
											: "the call had not started when its lane was closed");
	answer_waiter(session->broker);
	broker_progress(session->broker);
}

void lane_end(struct session *session)
{
	struct lane *lane = session->lane;
	struct wire_out message;
	if (!lane || lane->state == LANE_ENDING)
		return;
	broker_lane_assert_valid(lane);
	lane->state = LANE_ENDING;
	uint64_t id = handle_begin(session->executor, &message, "lane.close");
	wire_put_uint(&message, "stream", session->stream);
	/* lane_check() notices a process that is gone. */
	handle_send(session->executor, &message, id, NULL, 0,
				(uint32_t)session->broker->options.launch_timeout_ms, on_ended, session);
}

bool lanes_end(struct broker *broker)
{
	bool any = false;
	for (struct session *session = broker->sessions; session; session = session->next) {
		lane_end(session);
		any = any || lane_busy(session);
	}
	return any;
}

bool lane_busy(const struct session *session)
{
	return session->lane && session->lane->state == LANE_ENDING;
}
