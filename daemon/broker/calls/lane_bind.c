/*
 * lane_bind.c: which calls may be launched through a session's lane.  A launch binds its call when
 * it is sent: then its kernel is loaded and its buffers are placed.  The answer tells the client
 * how to launch it through the lane.  A bound call has a name there, and changes its kernel there
 * when its tier is promoted.
 */
#include <string.h>

#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "daemon/broker/requests/request.h"
#include "lane_state.h"
#include "work_state.h"

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
	return is_of_desk(session->lane, number) && is_untold(session->lane, number);
}

/* ---- Binding ---- */

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
	return lane_open(session) && session->lane->state == LANE_OPEN;
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

/* The client is answered before the device process has the message, so the session counts them:
 * launches of other sessions wait behind them. */
#define OFFERS_MOST 64

static void on_offered(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct session *session = arg;
	session->offer_count--;
	lane_answered(session, status, error, reply);
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
	if (!session->lane || session->offer_count >= OFFERS_MOST ||
		session->lane->calls >= LANE_CALLS / 2 || !module || !operands_are_there(&work) ||
		!lane_bind(&work))
		return false;
	uint64_t id = handle_begin(executor, &message, "lane.bind");
	lane_put_bind(&work, &message);
	work_put_launch(&message, &work, module, false, true);
	if (handle_send(executor, &message, id, NULL, 0,
					(uint32_t)session->broker->options.launch_timeout_ms, on_offered,
					session) != KILN_OK)
		return false;
	session->offer_count++;
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
	lane_refuse(session, why);
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
				(uint32_t)session->broker->options.launch_timeout_ms, lane_answered, session);
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

static void on_canceled(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct session *session = arg;
	(void)status, (void)error, (void)reply;
	session->cancel_count--;
}

/* A client gets its answer before the device process has taken the message.  So the session counts
 * such messages: launches of other sessions wait behind them. */
bool lane_cancel(struct session *session, uint64_t number, uint64_t count)
{
	const struct options *options = &session->broker->options;
	struct wire_out message;
	if (!session->lane || !handle_is_ready(session->executor))
		return true;
	if ((uint64_t)session->cancel_count >= options->max_inflight)
		return false;
	uint64_t id = handle_begin(session->executor, &message, "lane.cancel");
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "number", number);
	wire_put_uint(&message, "count", count);
	wire_put_uint(&message, "lane", session->stream);
	wire_put_uint(&message, "tail", number + count);
	if (handle_send(session->executor, &message, id, NULL, 0, (uint32_t)options->launch_timeout_ms,
					on_canceled, session) == KILN_OK)
		session->cancel_count++;
	return true;
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
