/*
 * fault_text.c: writes a report.  Lines of name and value come first, up to an empty line; the
 * parts behind it are for people.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <client/wire/protocol.h>

#include "daemon/broker/broker.h"
#include "daemon/compile/compile.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"
#include "fault.h"

static const char *const kinds[] = {"device", "compiler", "store", "lane"};

static void line(struct util_text *text, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void line(struct util_text *text, const char *name, const char *format, ...)
{
	char value[2 * KERNEL_ERROR_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(value, sizeof(value), format, arguments);
	va_end(arguments);
	plain_clean(value, sizeof(value), PLAIN_LINE);
	util_text_add(text, "%-14s %s\n", name, value);
}

/* ---- The first part ---- */

static void put_what(const struct fault *fault, const char *id, int64_t when, const char *secret,
					 struct util_text *text)
{
	char date[32] = "", said[KERNEL_ERROR_MAX];
	time_t seconds = (time_t)when;
	struct tm parts = {0};
	if (gmtime_r(&seconds, &parts))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC", &parts);
	line(text, "report", "%s", id);
	line(text, "kind", "%s", fault ? kinds[fault->kind] : "none: how things are now");
	if (fault && fault->handle)
		line(text, "device", "%s", handle_device(fault->handle)->info.name);
	line(text, "time", "%s", date);
	if (!fault)
		return;
	/* fault_file_count() overwrites the number in place, so it has columns for a larger one. */
	line(text, "times", "%-10d", 1);
	line(text, "last", "%s", date);
	snprintf(said, sizeof(said), "%s", fault->sentence);
	fault_scrub(said, secret);
	line(text, "said", "%s", said);
	if (fault->output && fault->signal)
		line(text, "process", "%d, ended by signal %d (%s)", fault->pid, fault->signal,
			 strsignal(fault->signal));
	else if (fault->output)
		line(text, "process", "%d, ended with status %d", fault->pid, fault->exit_status);
	line(text, "of uid", "%u%s", fault->uid, fault->uid == getuid() ? ", the daemon's" : "");
	if (fault->session)
		line(text, "of session", "%" PRIu64, fault->session);
}

static void put_driver(struct util_text *text)
{
	char *version = util_read_file("/proc/driver/nvidia/version", 4096, NULL);
	if (version) {
		version[strcspn(version, "\n")] = 0;
		line(text, "driver", "%s", version);
	}
	free(version);
}

static void put_host(const struct broker *broker, struct util_text *text)
{
	struct utsname name;
	char available[16], resident[16];
	uint64_t up = (util_now_us() - broker->started_us) / 1000000;
	uint64_t bytes = util_memory_available("/proc/meminfo", UTIL_OWN_CGROUP, UTIL_CGROUP_MOUNT);
	line(text, "kilnd", "%s, protocol %d, built by %s, %zu bit", KILN_VERSION_STRING,
		 PROTOCOL_VERSION, __VERSION__, 8 * sizeof(void *));
	line(text, "up", "%" PRIu64 " s, pid %d", up, (int)getpid());
	if (uname(&name) == 0)
		line(text, "host", "%s %s %s, %d CPUs for kilnd", name.sysname, name.release, name.machine,
			 util_cpu_count());
	line(text, "memory", "%s available, %s in use by the daemon",
		 bytes == UINT64_MAX ? "unknown" : util_bytes(bytes, available),
		 util_bytes(util_resident_bytes(getpid()), resident));
}

/* ---- Devices and compilers ---- */

static void put_process(void *arg, const struct handle_stats *stats)
{
	struct util_text *text = arg;
	const struct device_info *info = &handle_device(stats->handle)->info;
	util_text_add(text, "  %s, %s, pid %d, uid %u", stats->device, stats->state, stats->pid,
				  stats->uid);
	if (stats->session)
		util_text_add(text, ", of session %" PRIu64 " alone", stats->session);
	if (info->model[0])
		util_text_add(text, ", %s, %s, %" PRIu64 " bytes of memory", info->model,
					  info->limits.target, info->memory_bytes);
	util_text_add(text, "\n");
	util_text_add(text,
				  "    %d requests in flight, %d kernels loaded, started %" PRIu64
				  " times before, scratch %" PRIu64 " bytes, sandbox: %s\n",
				  stats->inflight, stats->modules, stats->restarts, stats->scratch_bytes,
				  stats->sandbox[0] ? stats->sandbox : "none");
}

static void put_worker(void *arg, int pid, const char *state, uint64_t jobs)
{
	util_text_add(arg, "  pid %d, %s, %" PRIu64 " compiles\n", pid, state, jobs);
}

static void put_compilers(const struct broker *broker, struct util_text *text)
{
	const struct compile_toolchains *known = pool_toolchains(broker);
	struct pool_stats stats;
	pool_stats(broker, &stats);
	util_text_add(
		text, "\ncompilers: %d idle, %d busy, %d starting; %d compiles wait; %" PRIu64 " killed\n",
		stats.idle, stats.busy, stats.starting, stats.queued, stats.killed);
	pool_each(broker, put_worker, text);
	util_text_add(text, "  %s\n  %s\n  sandbox: %s\n",
				  known->nvrtc.id[0] ? known->nvrtc.id : known->nvrtc.reason,
				  known->host.id[0] ? known->host.id : known->host.reason,
				  known->sandbox[0] ? known->sandbox : "none");
}

static void put_processes(const struct broker *broker, struct util_text *text)
{
	util_text_add(text, "\ndevice processes\n");
	handle_each(broker, put_process, text);
	/* A damaged cache is reported before the pool is open. */
	if (broker->pool)
		put_compilers(broker, text);
	if (broker->sandbox.lacks[0])
		util_text_add(text, "\nthis host's sandbox lacks %s\n", broker->sandbox.lacks);
}

/* Names what a user compiles, and leaves out its text. */
static void put_job(const struct compile_job *job, struct util_text *text)
{
	if (!job)
		return;
	util_text_add(text, "\nthe compile\n  %s for %s, of %s, %d files, %d of a user's\n",
				  job->instantiation, job->target, job->source, job->file_count, job->user_files);
	for (int i = 0; i < job->option_count; i++)
		util_text_add(text, "  option %s\n", job->options[i]);
}

/* ---- Figures, settings, words ---- */

static void put_figures(const struct broker *broker, struct util_text *text)
{
	const struct cache_stats *cache = store_stats(broker);
	util_text_add(text,
				  "\nsessions %d, kernels in the cache %" PRIu64 ", %" PRIu64
				  " bytes; counters that are not 0\n",
				  broker->session_count, cache->rows, cache->bytes);
#define PUT_COUNTER(name, what)     \
	if (broker->counters.name != 0) \
		util_text_add(text, "  %-24s %" PRIu64 "\n", #name, broker->counters.name);
	BROKER_COUNTERS(PUT_COUNTER)
#undef PUT_COUNTER
}

static void put_words(const char *title, char *words, const char *secret, struct util_text *text)
{
	util_text_add(text, "\n%s\n", title);
	fault_scrub(words, secret);
	for (const char *at = words; *at;) {
		size_t size = strcspn(at, "\n");
		char *shown = plain_copy(at, size, PLAIN_LINE);
		util_text_add(text, "  %s\n", shown ? shown : "");
		free(shown);
		at += size + (at[size] == '\n');
	}
}

struct all_calls {
	struct broker *broker;
	struct util_text *text;
};

static void put_calls(void *arg, const struct handle_stats *stats)
{
	const struct all_calls *all = arg;
	fault_write_calls(all->broker, stats->handle, all->text);
}

void fault_write_text(struct broker *broker, const struct fault *fault, const char *id,
					  int64_t when, struct util_text *text)
{
	const char *secret = broker->options.remote.password;
	char output[OUTPUT_TAIL], log[UTIL_LOG_TAIL];
	put_what(fault, id, when, secret, text);
	put_host(broker, text);
	put_driver(text);
	const char *key = fault && fault->job ? broker->events->key_of(broker, fault->job) : "";
	if (key[0])
		line(text, "kernel", "%s", key);
	if (fault && fault->handle)
		fault_write_keys(broker, fault->handle, text);
	if (fault && fault->handle)
		fault_write_calls(broker, fault->handle, text);
	if (!fault)
		handle_each(broker, put_calls, &(struct all_calls){broker, text});
	if (fault)
		put_job(fault->job, text);
	if (fault && fault->output) {
		snprintf(output, sizeof(output), "%s", fault->output);
		put_words("the end of what the process said on its standard error", output, secret, text);
	}
	util_log_tail(log);
	put_words("the end of the daemon's log", log, secret, text);
	put_processes(broker, text);
	if (broker->store)
		put_figures(broker, text);
	util_text_add(text, "\nsettings\n");
	options_print(&broker->options, text);
}
