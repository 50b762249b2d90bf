/*
 * command_counters.c: the figures of info: counters and gauges, the equations between them, and the
 * tallies of each session and operator.
 */

#include "command.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/kernels/tier.h"

#define SESSIONS_SHOWN 64 /* of those that are connected */
#define LOOKUPS_SHOWN 64

/* ---- Gauges ---- */

static void add_tally(struct gauges *gauges, const struct tally *tally)
{
	gauges->session_requests += tally->requests;
	gauges->session_launches += tally->launches;
}

static void gather_sessions(struct broker *broker, struct gauges *gauges)
{
	uint64_t launches, copies;
	for (struct session *session = broker->sessions; session; session = session->next) {
		gauges->lane_launching += lane_count(session);
		work_count(session, &launches, &copies);
		gauges->launching += launches;
		gauges->transferring += copies;
		gauges->connected++;
		add_tally(gauges, &session->tally);
	}
	add_tally(gauges, &broker->ended.older);
	for (int i = 0; i < TALLY_SESSIONS_MOST; i++)
		if (broker->ended.rows[i].id)
			add_tally(gauges, &broker->ended.rows[i].tally);
}

static void add_executor(void *arg, const struct handle_stats *stats)
{
	struct gauges *gauges = arg;
	gauges->device_pending += (uint64_t)stats->inflight;
}

static void add_lookup(void *arg, const struct job_lookup *lookup)
{
	struct gauges *gauges = arg;
	*(lookup->step >= JOB_STEP_QUEUED ? &gauges->compiling : &gauges->looking_up) += 1;
}

void command_gauges(struct broker *broker, struct gauges *gauges)
{
	const struct operator_tallies *operators = &broker->operators;
	*gauges = (struct gauges){.waiting = broker->waiting,
							  .operator_requests = operators->others.requests,
							  .operator_launches = operators->others.launches};
	gather_sessions(broker, gauges);
	handle_each(broker, add_executor, gauges);
	job_each(broker, add_lookup, gauges);
	gauges->remote_asking = remote_asking(broker);
	gauges->remote_queued = remote_queued(broker);
	gauges->winner_looking = remote_winner_looking(broker);
	gauges->fault_writing = broker->faults.writing;
	for (int i = 0; i < operators->count; i++) {
		gauges->operator_requests += operators->rows[i]->tally.requests;
		gauges->operator_launches += operators->rows[i]->tally.launches;
	}
}

void command_put_counters(struct wire_out *out, struct broker *broker)
{
	struct gauges gauges;
	command_gauges(broker, &gauges);
	wire_map_begin(out, "counters");
#define PUT_COUNTER(name, text) wire_put_uint(out, #name, broker->counters.name);
	BROKER_COUNTERS(PUT_COUNTER)
#undef PUT_COUNTER
	wire_map_end(out);
	/* These are 0 while nothing is under way. */
	wire_map_begin(out, "busy");
#define PUT_BUSY(name, busy, text) \
	if (busy)                      \
		wire_put_uint(out, #name, gauges.name);
	BROKER_GAUGES(PUT_BUSY)
#undef PUT_BUSY
	wire_map_end(out);
	wire_list_begin(out, "identities");
	for (const struct identity *row = counters_identities; row->name; row++) {
		uint64_t left = 0, right = 0;
		bool known = counters_sides(row->text, &broker->counters, &gauges, &left, &right);
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", row->name);
		wire_put_str(out, "text", row->text);
		wire_put_uint(out, "left", left);
		wire_put_uint(out, "right", right);
		wire_put_bool(out, "holds", known && left == right);
		wire_map_end(out);
	}
	wire_list_end(out);
}

/* ---- Tallies ---- */

static void put_times(struct wire_out *out, const char *name, const struct histogram *times)
{
	wire_map_begin(out, name);
	wire_put_uint(out, "count", times->count);
	wire_put_uint(out, "p50", histogram_quantile(times, 500));
	wire_put_uint(out, "p99", histogram_quantile(times, 990));
	wire_put_uint(out, "max", times->most);
	wire_map_end(out);
}

static void put_tally(struct wire_out *out, const struct tally *tally)
{
#define PUT_COUNTER(name) wire_put_uint(out, #name, tally->name);
	TALLY_COUNTERS(PUT_COUNTER)
#undef PUT_COUNTER
	wire_map_begin(out, "micros");
#define PUT_TIMES(name) put_times(out, #name, &tally->name);
	TALLY_TIMES(PUT_TIMES)
#undef PUT_TIMES
	wire_map_end(out);
}

static void put_operators(struct wire_out *out, const struct broker *broker)
{
	const struct operator_tallies *operators = &broker->operators;
	wire_list_begin(out, "operators");
	for (int i = 0; i <= operators->count; i++) {
		bool last = i == operators->count;
		if (last && operators->count < TALLY_OPERATORS_MOST)
			break;
		wire_map_begin(out, NULL);
		wire_put_str(out, "op", last ? "others" : operators->rows[i]->op);
		put_tally(out, last ? &operators->others : &operators->rows[i]->tally);
		wire_map_end(out);
	}
	wire_list_end(out);
}

/* Begins the map of a session. */
static void put_identity(struct wire_out *out, uint64_t id, uint32_t uid, int32_t pid, bool ended)
{
	wire_map_begin(out, NULL);
	wire_put_uint(out, "id", id);
	wire_put_uint(out, "uid", uid);
	wire_put_int(out, "pid", pid);
	wire_put_bool(out, "ended", ended);
}

static void put_connected(struct wire_out *out, struct session *session)
{
	const struct owned_counts owned = owned_count(session);
	uint64_t in_lane = lane_count(session);
	put_identity(out, session->id, session->uid, session->pid, false);
	wire_put_str(out, "device", session->device ? session->device->info.name : "none");
	wire_put_uint(out, "calls", owned.calls);
	wire_put_uint(out, "buffers", owned.buffers);
	wire_put_uint(out, "held_bytes", owned.held_bytes);
	wire_put_uint(out, "inflight",
				  (uint64_t)(session->work_count + session->request_count) + in_lane);
	put_tally(out, &session->tally);
	shapes_put(session, out);
	wire_map_end(out);
}

static void put_sessions(struct wire_out *out, const struct broker *broker)
{
	const struct ended_sessions *ended = &broker->ended;
	int shown = 0;
	wire_list_begin(out, "sessions");
	for (struct session *session = broker->sessions; session && shown < SESSIONS_SHOWN;
		 session = session->next, shown++)
		put_connected(out, session);
	for (unsigned i = 1; i <= TALLY_SESSIONS_MOST; i++) {
		const struct ended_session *row = &ended->rows[(ended->next - i) % TALLY_SESSIONS_MOST];
		if (!row->id)
			continue;
		put_identity(out, row->id, row->uid, row->pid, true);
		put_tally(out, &row->tally);
		wire_map_end(out);
	}
	wire_list_end(out);
	wire_map_begin(out, "older_sessions");
	put_tally(out, &ended->older);
	wire_map_end(out);
}

struct lookups_out {
	struct wire_out *out;
	int shown;
};

static void put_lookup(void *arg, const struct job_lookup *lookup)
{
	struct lookups_out *lookups = arg;
	struct wire_out *out = lookups->out;
	if (lookups->shown++ >= LOOKUPS_SHOWN)
		return;
	wire_map_begin(out, NULL);
	wire_put_str(out, "key", lookup->key);
	wire_put_str(out, "op", lookup->op);
	wire_put_str(out, "target", lookup->target);
	wire_put_str(out, "state", job_step_names[lookup->step]);
	wire_put_uint(out, "owner", lookup->owner);
	wire_put_int(out, "waiters", lookup->waiters);
	wire_put_uint(out, "age_us", lookup->age_us);
	wire_map_end(out);
}

void command_put_tallies(struct wire_out *out, const struct broker *broker)
{
	struct lookups_out lookups = {out, 0};
	put_operators(out, broker);
	put_sessions(out, broker);
	wire_list_begin(out, "flights");
	job_each(broker, put_lookup, &lookups);
	wire_list_end(out);
}

void command_put_remote(struct wire_out *out, const struct broker *broker)
{
	struct remote_stats stats;
	bool there = remote_stats(broker, &stats);
	wire_map_begin(out, "remote");
	wire_put_str(out, "state", there ? stats.state : "off");
	if (there) {
		wire_put_str(out, "url", stats.url);
		wire_put_str(out, "breaker", stats.breaker);
		wire_put_str(out, "reason", stats.reason);
		wire_put_uint(out, "state_ms", stats.state_ms);
		wire_put_str(out, "seals", stats.seals);
		wire_put_int(out, "trusted", stats.trusted);
		wire_put_uint(out, "queued", stats.queued);
		wire_put_uint(out, "queued_bytes", stats.queued_bytes);
		put_times(out, "ask", stats.ask);
		put_times(out, "write", stats.write);
		put_times(out, "miss", stats.miss);
	}
	wire_map_end(out);
}
