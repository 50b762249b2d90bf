/*
 * lane.c: the broker's part in a session's lane (client/wire/lane_memory.h).  Makes the memory and
 * hands it to the device process and, with the answer to a launch that asks for it, to the client.
 * Says which calls may be launched through it.  The broker never sees the launches that go through.
 *
 *   OPEN --the device process refuses it, or a call--> REFUSED
 *   OPEN, REFUSED --lane_end--> ENDING --all that was taken has ended--> freed
 *   (any) --the session or the device process ends--> freed
 *
 * Only an OPEN lane binds further calls and is given to the client; what a REFUSED one has bound
 * goes on.  A launch binds its call when it is sent: then its kernel is loaded and its buffers are
 * placed.  The lane owns its mappings and descriptors.  `given` says whether the client must be
 * told of its end.
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
#include "work_state.h"

enum lane_state { LANE_OPEN, LANE_REFUSED, LANE_ENDING };

struct lane {
	enum lane_state state;
	bool given; /* the client has its descriptors */
	int memory_fd;
	int doorbell_fd;    /* an eventfd: wakes the device process */
	int client_wake_fd; /* the client's end of a pipe: the device process wakes the client */
	struct lane_memory *map;
	struct lane_counts *counts;
	uint64_t generation;              /* of the device process that has it */
	uint64_t desk;                    /* number of the first call that is bound at its desk; or 0 */
	uint64_t desk_next;               /* of these, from 0, the first that may be told of yet */
	uint64_t desk_told;               /* how many were told of, or given up */
	uint64_t taken, launched, failed; /* counted so far */
	int calls;                        /* that are bound to it */
};

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

/* ---- Ending a lane with launches under way ---- */

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

static void on_lane_answer(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct session *session = arg;
	(void)reply;
	if (status == KILN_OK || status == KILN_EDEVICE || !session->lane)
		return;
	if (session->lane->state == LANE_OPEN)
		session->lane->state = LANE_REFUSED;
	util_log(UTIL_WARN, "session %llu: its calls go by message: %s",
			 (unsigned long long)session->id, error);
}

/* ---- The desk ---- */

uint64_t lane_untold(const struct session *session)
{
	const struct lane *lane = session->lane;
	const uint64_t bound = lane ? atomic_load(&lane->counts->desk_bound) : 0;
	return lane && bound > lane->desk_told ? bound - lane->desk_told : 0;
}

void lane_grant(const struct session *session)
{
	const struct lane *lane = session->lane;
	if (!lane || !lane->desk)
		return;
	const uint64_t calls = owned_count(session).calls;
	const uint64_t most = session->broker->options.max_calls;
	const uint64_t granted = lane->desk_told + (calls < most ? most - calls : 0);
	atomic_store(&lane->counts->desk_most, granted < LANE_DESK_CALLS ? granted : LANE_DESK_CALLS);
}

static bool is_of_desk(const struct lane *lane, uint64_t number)
{
	return lane && lane->state != LANE_ENDING && lane->desk && number >= lane->desk &&
		   number - lane->desk < LANE_DESK_CALLS;
}

/* Calls are told of in the order in which they were bound, so each counts once. */
static bool is_untold(const struct lane *lane, uint64_t number)
{
	const uint64_t place = number - lane->desk;
	return place >= lane->desk_next && place < atomic_load(&lane->counts->desk_bound);
}

static void note_told(struct session *session, uint64_t number)
{
	session->lane->desk_next = number - session->lane->desk + 1;
	session->lane->desk_told++;
	lane_grant(session);
}

bool lane_may_tell(const struct session *session, uint64_t number)
{
	return !is_of_desk(session->lane, number) || is_untold(session->lane, number);
}

/* ---- Binding ---- */

/* Whether the device process may plan for the session: what it plans is what tier_first() has. */
static bool may_plan(const struct session *session)
{
	return tier_policy(session) != OPTIONS_EAGER && !session->on_miss;
}

static bool open_lane(struct session *session)
{
	struct device_handle *executor = session->executor;
	struct wire_out message;
	int others[2];
	struct lane *lane = lane_make((uint32_t)session->broker->options.lane_spin_us, others);
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
							 on_lane_answer, session);
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

static int variant_number(const struct call *call, const struct kernel_ref *variant)
{
	for (int i = 0; i < call->variant_count; i++)
		if (call->variants[i] == variant)
			return i;
	return -1;
}

/* Says whether the launch may be bound, and sees that there is a lane. */
static bool has_lane(const struct work *work)
{
	struct session *session = work->session;
	const struct broker *broker = session->broker;
	if (!work->order.wants_lane || !broker->options.lane_spin_us || broker->options.memcheck ||
		broker->test.delay_launch_ms || broker->draining)
		return false;
	return (session->lane || open_lane(session)) && session->lane->state == LANE_OPEN;
}

void lane_bind_graph(struct work *work)
{
	if (has_lane(work))
		work->bound = work->call->graph->id;
}

/* The variant's place in a lane, if the launch may be bound; NULL: it may not. */
static struct call_bound *place_in_lane(const struct work *work)
{
	const int number = work->raw ? -1 : variant_number(work->call, work->variant);
	/* The planner words the reports of maps, which a lane cannot ask: no map is bound. */
	if (number < 0 || work->variant->plan.report.end == UINT64_MAX || !has_lane(work))
		return NULL;
	return &work->call->bound[number];
}

bool lane_bind(struct work *work)
{
	const struct call_bound *bound = place_in_lane(work);
	if (!bound)
		return false;
	const bool knows = bound->generation == work->session->lane->generation;
	work->bound = knows ? bound->id : broker_id(work->session->broker);
	return !knows;
}

void lane_put_bind(const struct work *work, struct wire_out *message)
{
	struct session *session = work->session;
	const struct call *call = work->call;
	wire_put_uint(message, "call", work->bound);
	wire_put_str(message, "op", call->problem.op);
	wire_put_uint(message, "of", call->id);
	wire_put_uint(message, "notice",
				  call->first ? tier_first_notice(session) : tier_notice(session, work->variant));
}

/* Notes that a variant of the call has this number in the lane, and this kernel there. */
static void note_bound(struct session *session, struct call *call, struct kernel_ref *variant,
					   const struct kernel_ref *kernel, uint64_t number)
{
	call->bound[variant_number(call, variant)] =
		(struct call_bound){number, session->lane->generation, call->first};
	session->lane->calls++;
	struct handle_about *about = handle_note(session->executor, HANDLE_LANE, number);
	about->session = session->id;
	about->pid = session->pid;
	about->account = session->account;
	kernel_describe(about, kernel, variant);
}

void lane_bound(const struct work *work)
{
	note_bound(work->session, work->call, work->variant, work->kernel, work->bound);
}

void lane_bound_itself(struct session *session, struct call *call)
{
	struct kernel_ref *variant = call->variants[0];
	const struct tier *tier = variant->tier;
	if (!is_of_desk(session->lane, call->id))
		return;
	note_told(session, call->id);
	note_bound(session, call, variant, tier ? tier->generic : variant, call->id);
	call->bound[0].early = true;
	if (tier && tier->state == TIER_PROMOTED)
		lane_promote(session, call->id, variant);
}

/* Whether the device process has all operands, with their contents. */
static bool operands_are_there(const struct work *work)
{
	for (int i = 0; i < work->operand_count; i++) {
		const struct buffer *buffer = work->operands[i].buffer;
		if (buffer && (!buffer_is_in(buffer, BUFFER_HOME) || buffer->lost))
			return false;
	}
	return true;
}

bool lane_offer(struct session *session, uint64_t ticket, struct call *call, struct kernel_ref *ref,
				const struct work_operand *operands)
{
	struct device_handle *executor = session->executor;
	struct work work = {.session = session,
						.call = call,
						.kernel = ref,
						.variant = ref,
						.order.wants_lane = true,
						.extents = ref->plan.extents,
						.operand_count = ref->plan.operand_count,
						.fd = -1};
	const uint64_t module = handle_is_ready(executor) ? handle_module(executor, ref->key) : 0;
	struct wire_out message;
	int fds[LANE_DESCRIPTORS];
	memcpy(work.operands, operands, sizeof(*operands) * (size_t)work.operand_count);
	/* The device process may still know calls that the client has released, so half stay free. */
	if (!session->lane || session->lane->calls >= LANE_CALLS / 2 || !module ||
		!operands_are_there(&work) || !lane_bind(&work))
		return false;
	uint64_t id = handle_begin(executor, &message, "lane.bind");
	lane_put_bind(&work, &message);
	work_put_launch(&message, &work, module, false, true);
	if (handle_send(executor, &message, id, NULL, 0,
					(uint32_t)session->broker->options.launch_timeout_ms, on_lane_answer,
					session) != KILN_OK)
		return false;
	lane_bound(&work);
	reply_begin(&message, ticket);
	wire_put_uint(&message, "call", call->id);
	int count = lane_put(&work, &message, fds);
	reply_send(session, &message, fds, count);
	return true;
}

void lane_unbound(struct broker *broker, const struct device_handle *executor, uint64_t stream,
				  const char *why)
{
	struct session *session = session_find(broker, stream);
	if (!session || session->executor != executor || !session->lane)
		return;
	if (session->lane->state == LANE_OPEN)
		session->lane->state = LANE_REFUSED;
	util_log(UTIL_WARN, "session %llu: its calls go by message: %s",
			 (unsigned long long)session->id, why);
}

/* Gives a bound variant this kernel, the variant itself or its generic one.  The message stands
 * behind all launches that were sent before; the lane takes it between two entries. */
static void lane_rebind(struct session *session, struct call *call, int number,
						struct kernel_ref *kernel, uint64_t notice)
{
	struct lane *lane = session->lane;
	struct device_handle *executor = session->executor;
	struct call_bound *bound = &call->bound[number];
	struct work work = {.session = session, .call = call, .fd = -1};
	struct wire_out message;
	if (!lane || lane->state == LANE_ENDING || !handle_is_ready(executor) ||
		bound->generation != lane->generation)
		return;
	uint64_t module = handle_module(executor, kernel->key);
	if (!module)
		return; /* the lane goes on with the kernel that it has */
	work.kernel = work.variant = kernel;
	work.extents = kernel->plan.extents;
	work.operand_count = kernel->plan.operand_count;
	bound->early = false;
	struct handle_about *about = handle_noted_call(executor, bound->id);
	if (about)
		kernel_describe(about, kernel, call->variants[number]);
	uint64_t id = handle_begin(executor, &message, "lane.rebind");
	wire_put_uint(&message, "call", bound->id);
	wire_put_str(&message, "op", call->problem.op);
	wire_put_uint(&message, "of", call->id);
	wire_put_uint(&message, "notice", notice);
	work_put_launch(&message, &work, module, false, true);
	handle_send(executor, &message, id, NULL, 0,
				(uint32_t)session->broker->options.launch_timeout_ms, on_lane_answer, session);
}

/* Puts what the client needs to launch the call without messages. */
int lane_put(struct work *work, struct wire_out *out, int fds[LANE_DESCRIPTORS])
{
	struct session *session = work->session;
	struct lane *lane = session->lane;
	const struct kernel_plan *plan = &work->kernel->plan;
	int count = work->call->graph ? 0 : plan->operand_count;
	int64_t alignments[KERNEL_MAX_OPERANDS], extents[KERNEL_MAX_OPERANDS];
	int64_t overs[KERNEL_MAX_OPERANDS], periods[KERNEL_MAX_OPERANDS], widths[KERNEL_MAX_OPERANDS];
	if (!work->bound || !lane || lane->state != LANE_OPEN)
		return 0;
	for (int i = 0; i < count; i++) {
		alignments[i] = plan->extents[i].alignment ? plan->extents[i].alignment : 1;
		/* The exact kernel, which may be planned later, asks for no more than its problem has. */
		if (work->call->first && plan->extents[i].alignment)
			alignments[i] = work->call->problem.tensors[i].alignment;
		extents[i] = (int64_t)plan->extents[i].bytes;
		overs[i] = plan->extents[i].over;
		periods[i] = (int64_t)plan->extents[i].period;
		widths[i] = (int64_t)plan->extents[i].width;
	}
	wire_put_uint(out, "bound", work->bound);
	wire_put_uint(out, "generation", lane->generation);
	wire_put_bool(out, "reports", !work->call->graph && plan->report.indices > 0);
	wire_put_ints(out, "alignments", alignments, count);
	wire_put_ints(out, "extents", extents, count);
	wire_put_ints(out, "overs", overs, count);
	wire_put_ints(out, "periods", periods, count);
	wire_put_ints(out, "widths", widths, count);
	if (lane->given)
		return 0;
	lane->given = true;
	handle_look_after(session->executor);
	fds[0] = lane->memory_fd;
	fds[1] = lane->doorbell_fd;
	fds[2] = lane->client_wake_fd;
	return LANE_DESCRIPTORS;
}

static void send_unbind(struct session *session, uint64_t number)
{
	struct wire_out message;
	uint64_t id = handle_begin(session->executor, &message, "lane.unbind");
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "call", number);
	/* Entries that the client wrote before it released the call still name it. */
	wire_put_uint(&message, "lane", session->stream);
	wire_put_uint(&message, "tail", session->lane_tail);
	handle_post(session->executor, &message, id);
}

void lane_unbind_number(struct session *session, uint64_t number)
{
	if (!is_of_desk(session->lane, number) || !is_untold(session->lane, number))
		return;
	note_told(session, number);
	if (handle_is_ready(session->executor))
		send_unbind(session, number);
}

void lane_unbind(struct session *session, const struct call *call)
{
	if (call->graph)
		call->graph->lane_tail = session->lane_tail;
	if (!session->lane || session->lane->state == LANE_ENDING ||
		!handle_is_ready(session->executor))
		return;
	for (int i = 0; i < call->variant_count; i++) {
		if (call->bound[i].generation != session->lane->generation)
			continue;
		send_unbind(session, call->bound[i].id);
		session->lane->calls--;
	}
}

void lane_cancel(struct session *session, uint64_t number, uint64_t count)
{
	struct wire_out message;
	if (!session->lane || !handle_is_ready(session->executor))
		return;
	uint64_t id = handle_begin(session->executor, &message, "lane.cancel");
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "number", number);
	wire_put_uint(&message, "count", count);
	wire_put_uint(&message, "lane", session->stream);
	wire_put_uint(&message, "tail", number + count);
	handle_post(session->executor, &message, id);
}

/* Has a call that was bound before its exact kernel was planned told of as often as pays. */
static void settle_notice(struct session *session, struct call *call, int number)
{
	struct kernel_ref *variant = call->variants[number];
	const struct tier *tier = variant->tier;
	if (!call->bound[number].early || call->first)
		return;
	lane_rebind(session, call, number,
				tier && tier->state != TIER_PROMOTED ? tier->generic : variant,
				tier_notice(session, variant));
}

void lane_used(struct broker *broker, const struct device_handle *executor, uint64_t stream,
			   uint64_t call, uint64_t bound, uint64_t launches)
{
	struct session *session = session_find(broker, stream);
	struct call *used = session && session->executor == executor ? call_find(session, call) : NULL;
	for (int i = 0; used && i < used->variant_count; i++)
		if (used->bound[i].id == bound) {
			tier_used(session, used->variants[i], launches);
			settle_notice(session, used, i);
			return;
		}
}

void lane_promote(struct session *session, uint64_t call, const struct kernel_ref *variant)
{
	struct call *promoted = call_find(session, call);
	const int number = promoted ? variant_number(promoted, variant) : -1;
	if (number >= 0)
		lane_rebind(session, promoted, number, promoted->variants[number], 0);
}
