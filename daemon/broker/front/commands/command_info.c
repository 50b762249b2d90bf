/* command_info.c: info and ops show the daemon; stop ends it. */
#include <client/wire/protocol.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/front/accept.h"
#include "daemon/broker/front/drain.h"
#include "daemon/broker/front/scrape.h"
#include "daemon/broker/kernels/freeze.h"
#include "daemon/plan/plan.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"

/* ---- The protocol's table ---- */

static void put_requests(struct wire_out *out)
{
	static const struct {
		const char *name, *flags, *arguments, *reply;
	} requests[] = {
#define REQUEST_ROW(name, flags, arguments, reply) {name, flags, arguments, reply},
		PROTOCOL_REQUESTS(REQUEST_ROW)
#undef REQUEST_ROW
	};
	wire_list_begin(out, "requests");
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", requests[i].name);
		wire_put_str(out, "flags", requests[i].flags);
		wire_put_str(out, "arguments", requests[i].arguments);
		wire_put_str(out, "reply", requests[i].reply);
		wire_map_end(out);
	}
	wire_list_end(out);
}

/* ---- info ---- */

static int open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = -1; /* the directory's own */
	if (!directory)
		return -1;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count - 2;
}

struct executors_out {
	const struct broker *broker;
	struct wire_out *out;
};

static void put_executor(void *arg, const struct handle_stats *stats)
{
	struct executors_out *executors = arg;
	struct wire_out *out = executors->out;
	struct buffer_sums memory = {0};
	for (const struct session *session = executors->broker->sessions; session;
		 session = session->next)
		buffers_add_up(session, stats->handle, &memory);
	wire_map_begin(out, NULL);
	wire_put_str(out, "device", stats->device);
	wire_put_str(out, "state", stats->state);
	wire_put_str(out, "reason", stats->reason);
	wire_put_int(out, "pid", stats->pid);
	wire_put_uint(out, "uid", stats->uid);
	wire_put_uint(out, "session", stats->session);
	wire_put_int(out, "inflight", stats->inflight);
	wire_put_int(out, "buffers", memory.buffers);
	wire_put_uint(out, "held_bytes", memory.held);
	wire_put_uint(out, "lent_bytes", memory.lent);
	wire_put_uint(out, "scratch_bytes", stats->scratch_bytes);
	wire_put_int(out, "modules", stats->modules);
	wire_put_uint(out, "restarts", stats->restarts);
	wire_put_str(out, "sandbox", stats->sandbox);
	wire_put_int(out, "launchers", stats->launchers);
	wire_map_end(out);
}

static void put_workers(struct wire_out *out, const struct broker *broker)
{
	struct pool_stats stats;
	const struct compile_toolchains *known = pool_toolchains(broker);
	pool_stats(broker, &stats);
	wire_map_begin(out, "workers");
	wire_put_int(out, "count", stats.workers);
	wire_put_int(out, "starting", stats.starting);
	wire_put_int(out, "idle", stats.idle);
	wire_put_int(out, "busy", stats.busy);
	wire_put_int(out, "queued", stats.queued);
	wire_put_int(out, "queued_background", stats.queued_background);
	wire_put_uint(out, "started", stats.started);
	wire_put_uint(out, "killed", stats.killed);
	wire_put_uint(out, "recycled", stats.recycled);
	wire_put_int(out, "held", stats.held);
	wire_put_uint(out, "memory_waits", stats.memory_waits);
	wire_put_uint(out, "resident_bytes", stats.resident_bytes);
	wire_map_begin(out, "job_bytes");
	wire_put_uint(out, "nvrtc", stats.estimates[0][0]);
	wire_put_uint(out, "nvrtc_own", stats.estimates[0][1]);
	wire_put_uint(out, "host", stats.estimates[1][0]);
	wire_put_uint(out, "host_own", stats.estimates[1][1]);
	wire_map_end(out);
	wire_put_str(out, "nvrtc", known->nvrtc.id[0] ? known->nvrtc.id : known->nvrtc.reason);
	wire_put_str(out, "nvrtc_targets", known->nvrtc.targets);
	wire_put_str(out, "host", known->host.id[0] ? known->host.id : known->host.reason);
	wire_put_str(out, "sandbox", known->sandbox);
	wire_map_end(out);
}

static void put_cache(struct wire_out *out, const struct broker *broker)
{
	const struct cache_stats *stats = store_stats(broker);
	char trouble[KERNEL_ERROR_MAX];
	wire_map_begin(out, "cache");
	wire_put_str(out, "directory", broker->options.cache_dir);
	wire_put_uint(out, "rows", stats->rows);
	wire_put_uint(out, "bytes", stats->bytes);
	wire_put_uint(out, "object_bytes", stats->object_bytes);
	wire_put_uint(out, "disk_bytes", stats->disk_bytes);
	wire_put_uint(out, "cap_bytes", broker->options.cache_bytes);
	wire_put_uint(out, "cap_rows", broker->options.cache_rows);
	wire_put_uint(out, "pinned", stats->pinned);
	wire_put_uint(out, "uses_waiting", stats->waiting);
	wire_put_uint(out, "memory_rows", stats->memory_rows);
	wire_put_uint(out, "memory_bytes", stats->memory_bytes);
	wire_put_uint(out, "quarantined", stats->quarantined);
	wire_put_uint(out, "trimmed", stats->trimmed);
	wire_put_uint(out, "write_failures", stats->write_failures);
	wire_put_uint(out, "failures", stats->failures);
	wire_put_uint(out, "unsaved", stats->unsaved);
	wire_put_uint(out, "set_aside", stats->aside);
	wire_put_uint(out, "set_aside_bytes", stats->aside_bytes);
	wire_put_str(out, "trouble", store_trouble(broker, trouble));
	wire_map_end(out);
}

static void put_session(struct wire_out *out, const struct session *session)
{
	const struct owned_counts owned = owned_count(session);
	wire_map_begin(out, "session");
	wire_put_uint(out, "id", session->id);
	wire_put_uint(out, "uid", session->uid);
	wire_put_uint(out, "buffers", owned.buffers);
	wire_put_uint(out, "calls", owned.calls);
	wire_put_int(out, "inflight", session->work_count + session->request_count);
	wire_put_uint(out, "held_bytes", owned.held_bytes);
	wire_put_str(out, "on_miss", freeze_names[session->on_miss]);
	wire_map_end(out);
}

/* Puts where the log goes, and its level. */
static void put_log(struct wire_out *out, const struct broker *broker)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	char path[PATH_MAX];
	ssize_t size = readlink("/proc/self/fd/2", path, sizeof(path) - 1);
	path[size > 0 ? size : 0] = 0;
	wire_put_str(out, "log", util_log_is_journal() ? "the journal" : path);
	wire_put_str(out, "log_level", names[broker->options.log_level]);
	wire_put_str(out, "metrics", scrape_address(broker));
	wire_put_uint(out, "idle_exit_s", broker->options.idle_exit_seconds);
}

static void put_server(struct wire_out *out, const struct broker *broker)
{
	static const char *const programs[] = {"current", "replaced", "removed"};
	char path[PATH_MAX];
	wire_map_begin(out, "server");
	wire_put_int(out, "pid", getpid());
	wire_put_str(out, "version", KILN_VERSION_STRING);
	wire_put_uint(out, "proto", PROTOCOL_VERSION);
	wire_put_str(out, "build", util_build());
	wire_put_str(out, "program", programs[util_program(path)]);
	wire_put_str(out, "path", path);
	wire_put_uint(out, "uptime_ms", (util_now_us() - broker->started_us) / 1000);
	wire_put_str(out, "socket", accept_path(broker));
	put_log(out, broker);
	wire_put_int(out, "fds", open_descriptors());
	wire_put_int(out, "sessions", broker->session_count);
	wire_put_bool(out, "draining", broker->draining);
	wire_map_end(out);
}

static void put_tiers(struct wire_out *out, struct broker *broker)
{
	static const char *const policies[] = {"lazy", "eager", "never"};
	struct tier_warmth warmth;
	tier_warmth(broker, &warmth);
	wire_map_begin(out, "tiers");
	wire_put_str(out, "specialize", policies[broker->options.specialize]);
	wire_put_uint(out, "generics", warmth.kernels);
	wire_put_uint(out, "resident", warmth.resident);
	wire_put_uint(out, "failed", warmth.failed);
	wire_put_bool(out, "warming", warmth.warming);
	wire_map_end(out);
}

static void put_limits(struct wire_out *out, const struct options *options)
{
	struct limit limits[OPTIONS_LIMITS];
	int count = options_limits(options, limits);
	wire_list_begin(out, "limits");
	for (int i = 0; i < count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", limits[i].name);
		wire_put_str(out, "option", limits[i].option);
		wire_put_uint(out, "value", limits[i].value);
		wire_put_str(out, "unit", limits[i].unit);
		wire_map_end(out);
	}
	wire_list_end(out);
}

static void put_all(struct wire_out *out, struct session *session, bool tallies)
{
	struct broker *broker = session->broker;
	struct executors_out executors = {broker, out};
	put_server(out, broker);
	put_session(out, session);
	command_put_counters(out, broker);
	if (tallies)
		command_put_tallies(out, broker);
	put_tiers(out, broker);
	put_workers(out, broker);
	wire_map_begin(out, "sandbox");
	wire_put_str(out, "mode", options_sandbox(broker->options.sandbox) + strlen("--sandbox="));
	wire_put_str(out, "lacks", broker->sandbox.lacks);
	wire_map_end(out);
	if (broker->options.memcheck) {
		wire_map_begin(out, "checked");
		wire_put_uint(out, "launches", broker->checked.launches);
		wire_put_uint(out, "blocks", broker->checked.blocks);
		wire_put_uint(out, "accesses", broker->checked.accesses);
		wire_map_end(out);
	}
	wire_list_begin(out, "executors");
	handle_each(broker, put_executor, &executors);
	wire_list_end(out);
	put_cache(out, broker);
	command_put_remote(out, broker);
	put_limits(out, &broker->options);
}

void serve_info(struct session *session, struct wire_in *message)
{
	const char *section = wire_get_str(message, &message->root, "section");
	struct wire_out out;
	reply_begin(&out, wire_id(message));
	if (section && !strcmp(section, "requests"))
		put_requests(&out);
	else
		put_all(&out, session, section && !strcmp(section, "all"));
	reply_send(session, &out, NULL, 0);
}

void serve_ops(struct session *session, struct wire_in *message)
{
	struct wire_out out;
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		wire_map_begin(&out, NULL);
		wire_put_str(&out, "name", op->name);
		char operands[KERNEL_OPERANDS_MAX], attributes[OP_ATTRIBUTES_MAX];
		plan_operands(op, operands);
		plan_attributes(op, attributes);
		wire_put_str(&out, "operands", operands);
		wire_put_str(&out, "attributes", attributes);
		wire_put_str(&out, "summary", op->summary);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	reply_send(session, &out, NULL, 0);
}

void serve_stop(struct session *session, struct wire_in *message)
{
	reply_ok(session, wire_id(message));
	drain_begin(session->broker, "a client asked for it");
}
