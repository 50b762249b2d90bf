/*
 * metrics_rows.c: the table of metrics, and the values of those that are more than counters.  Names
 * of programs and users are labels of at most ACCOUNTS_MOST rows, operators of
 * TALLY_OPERATORS_MOST; no label ever has a key, a path, or a name that a program gave to a kernel.
 */
#include "metrics_rows.h"

#include <string.h>

#include "daemon/broker/calls/call.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/devices/store.h"

/* ---- Metrics that are more than counters ---- */

static void put_build(struct metrics_out *out)
{
	metrics_put_sample(out, 1, "version=\"%s\"", KILN_VERSION_STRING);
}

static void put_start(struct metrics_out *out)
{
	double up_us = (double)(util_now_us() - out->broker->started_us);
	metrics_put_sample(out, (double)util_wall_s() - (double)(int64_t)(up_us / 1e6), "%s", "");
}

static void put_requests_of(struct metrics_out *out, const char *op, const struct tally *tally)
{
	const struct {
		const char *origin;
		uint64_t count;
	} rows[] = {
		{"memory", tally->memory_hits},       {"disk", tally->disk_hits},
		{"remote", tally->remote_hits},       {"shared", tally->shared},
		{"compiled", tally->compiles},        {"generic", tally->generic},
		{"failed", tally->failures},          {"remembered_failure", tally->remembered},
		{"refused_by_policy", tally->frozen},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		metrics_put_sample(out, (double)rows[i].count, "op=\"%s\",origin=\"%s\"", op,
						   rows[i].origin);
}

static void put_requests(struct metrics_out *out)
{
	const struct operator_tallies *operators = &out->broker->operators;
	for (int i = 0; i < operators->count; i++)
		put_requests_of(out, operators->rows[i]->op, &operators->rows[i]->tally);
	if (operators->count == TALLY_OPERATORS_MOST)
		put_requests_of(out, "others", &operators->others);
}

static void put_compile_seconds(struct metrics_out *out)
{
	static const char *const compilers[] = {"nvrtc", "host"};
	for (int i = 0; i < 2; i++)
		metrics_put_histogram(out, &out->broker->compiles[i].micros, out->broker->compiles[i].sum,
							  "compiler", compilers[i]);
}

static void put_compilers(struct metrics_out *out)
{
	struct pool_stats stats;
	pool_stats(out->broker, &stats);
	metrics_put_sample(out, stats.starting, "state=\"starting\"");
	metrics_put_sample(out, stats.idle, "state=\"idle\"");
	metrics_put_sample(out, stats.busy, "state=\"busy\"");
}

static void put_compiler_memory(struct metrics_out *out)
{
	struct pool_stats stats;
	pool_stats(out->broker, &stats);
	metrics_put_sample(out, (double)stats.resident_bytes, "%s", "");
}

static void put_compile_queue(struct metrics_out *out)
{
	struct pool_stats stats;
	pool_stats(out->broker, &stats);
	metrics_put_sample(out, stats.queued - stats.queued_background, "priority=\"call\"");
	metrics_put_sample(out, stats.queued_background, "priority=\"background\"");
}

static void put_cache_kernels(struct metrics_out *out)
{
	const struct cache_stats *stats = store_stats(out->broker);
	metrics_put_sample(out, (double)stats->rows, "place=\"disk\"");
	metrics_put_sample(out, (double)stats->memory_rows, "place=\"memory\"");
}

static void put_cache_bytes(struct metrics_out *out)
{
	const struct cache_stats *stats = store_stats(out->broker);
	metrics_put_sample(out, (double)stats->bytes, "place=\"disk\"");
	metrics_put_sample(out, (double)stats->memory_bytes, "place=\"memory\"");
}

static void put_cache_limit(struct metrics_out *out)
{
	uint64_t most = out->broker->options.cache_bytes;
	if (most)
		metrics_put_sample(out, (double)most, "%s", "");
}

static void put_cache_unsaved(struct metrics_out *out)
{
	metrics_put_sample(out, (double)store_stats(out->broker)->unsaved, "%s", "");
}

static void put_cache_write_failures(struct metrics_out *out)
{
	metrics_put_sample(out, (double)store_stats(out->broker)->write_failures, "%s", "");
}

static void put_device_up(struct metrics_out *out)
{
	for (const struct device_entry *device = out->broker->devices; device; device = device->next)
		metrics_put_sample(out, device->state == DEVICE_PRESENT || device->state == DEVICE_SEEN,
						   "device=\"%s\"", device->info.name);
}

static void put_device_busy(struct metrics_out *out)
{
	for (const struct device_entry *device = out->broker->devices; device; device = device->next)
		metrics_put_sample(out, device->busy_us / 1e6, "device=\"%s\"", device->info.name);
}

/* Adds up the figures of a device's processes. */
struct device_sum {
	const char *device;
	struct metrics_out *out;
	bool wants_memory; /* to add it up takes a look at each buffer */
	struct buffer_sums memory;
	uint64_t ready, kernels, scratch;
};

static void add_up(void *arg, const struct handle_stats *stats)
{
	struct device_sum *sum = arg;
	if (strcmp(stats->device, sum->device) != 0)
		return;
	for (const struct session *session = sum->wants_memory ? sum->out->broker->sessions : NULL;
		 session; session = session->next)
		buffers_add_up(session, stats->handle, &sum->memory);
	sum->ready += !strcmp(stats->state, "ready");
	sum->kernels += (uint64_t)stats->modules;
	sum->scratch += stats->scratch_bytes;
}

static struct device_sum device_sum(struct metrics_out *out, const struct device_entry *device,
									bool wants_memory)
{
	struct device_sum sum = {device->info.name, out, .wants_memory = wants_memory};
	handle_each(out->broker, add_up, &sum);
	return sum;
}

static void put_device_processes(struct metrics_out *out)
{
	for (const struct device_entry *device = out->broker->devices; device; device = device->next)
		metrics_put_sample(out, (double)device_sum(out, device, false).ready, "device=\"%s\"",
						   device->info.name);
}

static void put_device_kernels(struct metrics_out *out)
{
	for (const struct device_entry *device = out->broker->devices; device; device = device->next)
		metrics_put_sample(out, (double)device_sum(out, device, false).kernels, "device=\"%s\"",
						   device->info.name);
}

static void put_device_bytes(struct metrics_out *out)
{
	for (const struct device_entry *device = out->broker->devices; device; device = device->next) {
		const struct device_sum sum = device_sum(out, device, true);
		const char *name = device->info.name;
		metrics_put_sample(out, (double)sum.memory.held, "device=\"%s\",kind=\"held\"", name);
		metrics_put_sample(out, (double)sum.memory.lent, "device=\"%s\",kind=\"lent\"", name);
		metrics_put_sample(out, (double)sum.scratch, "device=\"%s\",kind=\"scratch\"", name);
	}
}

static void put_sessions(struct metrics_out *out)
{
	double sessions[ACCOUNTS_MOST] = {0};
	char labels[96];
	for (const struct session *session = out->broker->sessions; session; session = session->next)
		sessions[session->account] += session->state == SESSION_GREETED;
	for (uint32_t i = 0; i < out->broker->accounts.count; i++)
		metrics_put_sample(out, sessions[i], "%s", metrics_account_labels(out->broker, i, labels));
}

static void put_session_bytes(struct metrics_out *out)
{
	double bytes[ACCOUNTS_MOST] = {0};
	char labels[96];
	for (const struct session *session = out->broker->sessions; session; session = session->next)
		bytes[session->account] += (double)owned_count(session).held_bytes;
	for (uint32_t i = 0; i < out->broker->accounts.count; i++)
		metrics_put_sample(out, bytes[i], "%s", metrics_account_labels(out->broker, i, labels));
}

static void put_session_seconds(struct metrics_out *out)
{
	char labels[96];
	for (uint32_t i = 0; i < out->broker->accounts.count; i++)
		metrics_put_sample(out, out->broker->accounts.rows[i].device_us / 1e6, "%s",
						   metrics_account_labels(out->broker, i, labels));
}

static void put_remote_up(struct metrics_out *out)
{
	struct remote_stats stats;
	if (remote_stats(out->broker, &stats))
		metrics_put_sample(out, !strcmp(stats.state, "connected"), "%s", "");
}

static void put_remote_queued(struct metrics_out *out)
{
	struct remote_stats stats;
	if (remote_stats(out->broker, &stats))
		metrics_put_sample(out, (double)stats.queued_bytes, "%s", "");
}

static void put_contradictions(struct metrics_out *out)
{
	uint64_t left, right;
	int broken = 0;
	for (const struct identity *row = counters_identities; row->name; row++)
		broken +=
			!counters_sides(row->text, &out->values.counters, &out->values.gauges, &left, &right) ||
			left != right;
	metrics_put_sample(out, broken, "%s", "");
}

/* ---- The table ---- */

#define C(label, field)                                                            \
	{                                                                              \
		label, "counters." #field, offsetof(struct metrics_values, counters.field) \
	}
#define G(label, field)                                                      \
	{                                                                        \
		label, "busy." #field, offsetof(struct metrics_values, gauges.field) \
	}
#define SAMPLES(...)                           \
	NULL, NULL, (const struct metric_sample[]) \
	{                                          \
		__VA_ARGS__,                           \
		{                                      \
			NULL, NULL, 0                      \
		}                                      \
	}
#define BY(source, put) source, put, NULL

/* clang-format off */
const struct metric metrics[] = {
	{"kiln_build_info", METRIC_GAUGE, "", "version",
		"1, with the daemon's version.",
		BY("server.version", put_build)},
	{"kiln_start_time_seconds", METRIC_GAUGE, "seconds", "",
		"When the daemon started, since 1970.",
		BY("server.uptime_ms", put_start)},

	{"kiln_requests", METRIC_COUNTER, "", "op, origin",
		"Kernels asked for and answered, by operator and by where the answer came from.",
		BY("operators", put_requests)},
	{"kiln_requests_waiting", METRIC_GAUGE, "", "",
		"Kernels asked for and not answered yet.",
		SAMPLES(G("", waiting))},
	{"kiln_requests_left", METRIC_COUNTER, "", "",
		"Kernels asked for by programs that did not wait for the answer.",
		SAMPLES(C("", left))},
	{"kiln_promotions", METRIC_COUNTER, "", "",
		"Calls whose exact kernel took over from a generic one.",
		SAMPLES(C("", promoted))},

	{"kiln_compiles", METRIC_COUNTER, "", "result",
		"Compiles that have ended.",
		SAMPLES(C("done", jobs_done), C("failed", jobs_failed), C("canceled", canceled))},
	{"kiln_compiles_in_flight", METRIC_GAUGE, "", "",
		"Compiles that are queued or under way.",
		SAMPLES(G("", compiling))},
	{"kiln_compile_queue", METRIC_GAUGE, "", "priority",
		"Compiles without a worker.",
		BY("workers.queued, workers.queued_background", put_compile_queue)},
	{"kiln_compile_seconds", METRIC_HISTOGRAM, "seconds", "compiler",
		"Time of a compile that gave a kernel.",
		BY("only here", put_compile_seconds)},
	{"kiln_compiler_processes", METRIC_GAUGE, "", "state",
		"Compiler workers.",
		BY("workers.starting, workers.idle, workers.busy", put_compilers)},
	{"kiln_compiler_memory_bytes", METRIC_GAUGE, "bytes", "",
		"Memory of all compiler workers, each when it was last idle.",
		BY("workers.resident_bytes", put_compiler_memory)},

	{"kiln_cache_lookups", METRIC_COUNTER, "", "result",
		"Keys looked for in the cache, once for all who ask.",
		SAMPLES(C("hit", lookup_hits), C("remembered_failure", lookup_failures),
			C("remote", lookup_remote), C("compiled", jobs), C("refused_by_policy", lookups_frozen),
			C("left", lookups_left))},
	{"kiln_cache_lookups_in_flight", METRIC_GAUGE, "", "",
		"Keys being looked for.",
		SAMPLES(G("", looking_up))},
	{"kiln_cache_late_lookups", METRIC_COUNTER, "", "",
		"Lookups that the disk kept for too long, which count as misses.",
		SAMPLES(C("", lookups_late))},
	{"kiln_cache_kernels", METRIC_GAUGE, "", "place",
		"Kernels in the cache.",
		BY("cache.rows, cache.memory_rows", put_cache_kernels)},
	{"kiln_cache_bytes", METRIC_GAUGE, "bytes", "place",
		"What the kernels in the cache take.",
		BY("cache.bytes, cache.memory_bytes", put_cache_bytes)},
	{"kiln_cache_limit_bytes", METRIC_GAUGE, "bytes", "",
		"What they may take on the disk; absent without a limit.",
		BY("cache.cap_bytes", put_cache_limit)},
	{"kiln_cache_unsaved_kernels", METRIC_GAUGE, "", "",
		"Kernels that only memory has, because the disk did not take them.",
		BY("cache.unsaved", put_cache_unsaved)},
	{"kiln_cache_write_failures", METRIC_COUNTER, "", "",
		"Writes that the disk did not take.",
		BY("cache.write_failures", put_cache_write_failures)},

	{"kiln_launches", METRIC_COUNTER, "", "path",
		"Calls that ran.",
		SAMPLES(C("message", message_launches), C("lane", lane_launches))},
	{"kiln_launch_failures", METRIC_COUNTER, "", "path",
		"Calls that ended in an error.",
		SAMPLES(C("message", message_failures), C("lane", lane_failures))},
	{"kiln_launches_in_flight", METRIC_GAUGE, "", "path",
		"Calls that have not ended.",
		SAMPLES(G("message", launching), G("lane", lane_launching))},
	{"kiln_launch_holds", METRIC_COUNTER, "", "",
		"Times that launches were held for a load or a close.",
		SAMPLES(C("", holds))},
	{"kiln_copies", METRIC_COUNTER, "", "result",
		"Copies between programs and buffers that have ended.",
		SAMPLES(C("to_device", writes), C("from_device", reads), C("failed", transfers_failed),
			C("lost", transfers_lost))},
	{"kiln_copies_in_flight", METRIC_GAUGE, "", "",
		"Copies that have not ended.",
		SAMPLES(G("", transferring))},

	{"kiln_device_up", METRIC_GAUGE, "", "device",
		"1 while the device is there.",
		BY("kiln devices", put_device_up)},
	{"kiln_device_busy_seconds", METRIC_COUNTER, "seconds", "device",
		"Time in which the device had work, summed over its processes.",
		BY("only here", put_device_busy)},
	{"kiln_device_processes", METRIC_GAUGE, "", "device",
		"Device processes that are ready.",
		BY("executors", put_device_processes)},
	{"kiln_device_kernels", METRIC_GAUGE, "", "device",
		"Kernels that they have loaded.",
		BY("executors.modules", put_device_kernels)},
	{"kiln_device_bytes", METRIC_GAUGE, "bytes", "device, kind",
		"Memory of the device: held for programs, lent by them, scratch for launches.",
		BY("executors.held_bytes, executors.lent_bytes, executors.scratch_bytes", put_device_bytes)},
	{"kiln_device_requests_in_flight", METRIC_GAUGE, "", "",
		"Requests to device processes without an answer.",
		SAMPLES(G("", device_pending))},

	{"kiln_sessions", METRIC_GAUGE, "", "uid, session",
		"Programs that are connected, by user and name.",
		BY("sessions", put_sessions)},
	{"kiln_session_device_seconds", METRIC_COUNTER, "seconds", "uid, session",
		"Time in which devices had their work; where several had some, each has an equal share.",
		BY("only here", put_session_seconds)},
	{"kiln_session_held_bytes", METRIC_GAUGE, "bytes", "uid, session",
		"Memory that the daemon holds for them.",
		BY("sessions.held_bytes", put_session_bytes)},
	{"kiln_connections", METRIC_COUNTER, "", "",
		"Connections that were accepted.",
		SAMPLES(C("", sessions))},
	{"kiln_connections_refused", METRIC_COUNTER, "", "",
		"Connections that were refused.",
		SAMPLES(C("", refused))},
	{"kiln_protocol_errors", METRIC_COUNTER, "", "",
		"Connections that were ended for breaking the protocol.",
		SAMPLES(C("", protocol_errors))},

	{"kiln_process_faults", METRIC_COUNTER, "", "role",
		"Device processes and compiler workers that were lost.",
		SAMPLES(C("device", executor_faults), C("compiler", worker_faults))},
	{"kiln_faults", METRIC_COUNTER, "", "report",
		"Faults, by what became of their report.",
		SAMPLES(C("written", fault_reports), C("repeated", fault_repeats),
			C("failed", fault_failures), C("dropped", fault_dropped))},
	{"kiln_contradictions", METRIC_GAUGE, "", "",
		"Equations between the daemon's figures that do not hold; each is a defect.",
		BY("identities", put_contradictions)},

	{"kiln_remote_up", METRIC_GAUGE, "", "",
		"1 while the second tier is connected; absent without one.",
		BY("remote.state", put_remote_up)},
	{"kiln_remote_asks", METRIC_COUNTER, "", "result",
		"Keys asked of the second tier.",
		SAMPLES(C("hit", lookup_remote), C("miss", remote_misses), C("refused", remote_refused),
			C("failed", remote_failures), C("left", remote_left))},
	{"kiln_remote_skipped", METRIC_COUNTER, "", "",
		"Keys that it was not asked for, being away.",
		SAMPLES(C("", remote_skipped))},
	{"kiln_remote_writes", METRIC_COUNTER, "", "result",
		"Kernels and winners of tuning written to it.",
		SAMPLES(C("written", remote_written), C("failed", remote_write_failures),
			C("dropped", remote_dropped))},
	{"kiln_remote_queued_bytes", METRIC_GAUGE, "bytes", "",
		"Kernels and winners of tuning that wait to be written to it.",
		BY("remote.queued_bytes", put_remote_queued)},
	{"kiln_remote_winners", METRIC_COUNTER, "", "result",
		"Winners of tuning looked for in it.",
		SAMPLES(C("hit", winner_hits), C("miss", winner_misses), C("refused", winner_refused),
			C("failed", winner_failures))},
};
/* clang-format on */

const size_t metrics_count = sizeof(metrics) / sizeof(*metrics);
