/*
 * server.c: the daemon's main: opens every room from the lowest up, runs the loop, and frees what
 * drain.c has closed.  It alone knows which function of an upper room hears the news of a lower
 * one.
 */
#include "server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "accept.h"
#include "commands/command.h"
#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/call_about.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/kernels/lookup.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/broker/kernels/tuned.h"
#include "drain.h"
#include "listen.h"
#include "peer.h"
#include "scrape.h"
#include "session_news.h"

#define FILES_LEAST 16
#define POOL_THREADS 4 /* of libuv, which the two lines of the store share */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* The loop's own handles. */
struct server {
	uv_signal_t term, interrupt, hangup;
	uv_async_t relieved; /* descriptors were closed that peers are held for */
};

static void on_signal(uv_signal_t *handle, int number)
{
	drain_begin(handle->data, strsignal(number));
}

/* Without a database there was nothing to read the winners of tuning from. */
static bool cache_idle(struct broker *broker)
{
	if (tuned_is_read(broker) || store_stats(broker)->trouble[0])
		return false;
	tuned_read(broker);
	return true;
}

static const struct broker_events events = {
	.progress = drain_progress,
	.printed = news_printed,
	.device_changed = news_device_changed,
	.device_lost = news_device_lost,
	.device_closed = tier_warm_forget,
	.device_used = news_device_used,
	.device_lanes = news_device_lanes,
	.lane_broke = news_lane_broke,
	.lane_unbound = lane_unbound,
	.lane_used = lane_used,
	.object_refused = job_distrust,
	.cache_opened = tuned_open,
	.cache_idle = cache_idle,
	.describe_call = call_describe,
	.fault = fault_report,
	.key_of = lookup_key_of,
	.call_promoted = lane_promote,
	.message = serve,
	.sessions_changed = drain_note_sessions,
	.start_misdeed = debug_start_misdeed,
};

/* ---- Starting ---- */

/* Runs on a closer's thread. */
static void wake(void *arg)
{
	struct server *server = arg;
	uv_async_send(&server->relieved);
}

static void on_relieved(uv_async_t *async)
{
	const struct broker *broker = async->data;
	for (struct session *session = broker->sessions; session; session = session->next)
		peer_release(session->peer);
}

static void close_handles(struct broker *broker)
{
	struct server *server = broker->server;
	accept_close(broker);
	scrape_close(broker);
	uv_close((uv_handle_t *)&server->term, NULL);
	uv_close((uv_handle_t *)&server->interrupt, NULL);
	uv_close((uv_handle_t *)&server->hangup, NULL);
	closer_detach();
	uv_close((uv_handle_t *)&server->relieved, NULL);
	tiers_close(broker);
}

static int open_loop(struct broker *broker)
{
	struct server *server = broker->server;
	struct sigaction before;
	int status = uv_loop_init(&broker->loop);
	if (status < 0)
		return status;
	server->term.data = server->interrupt.data = server->hangup.data = broker;
	server->relieved.data = broker;
	uv_signal_init(&broker->loop, &server->term);
	uv_signal_init(&broker->loop, &server->interrupt);
	uv_signal_init(&broker->loop, &server->hangup);
	uv_async_init(&broker->loop, &server->relieved, on_relieved);
	uv_signal_start(&server->term, on_signal, SIGTERM);
	uv_signal_start(&server->interrupt, on_signal, SIGINT);
	/* A SIGHUP that nohup ignores stays ignored: the daemon outlives its terminal. */
	if (sigaction(SIGHUP, NULL, &before) < 0 || before.sa_handler != SIG_IGN)
		uv_signal_start(&server->hangup, on_signal, SIGHUP);
	drain_open(broker, close_handles);
	accept_open(broker);
	return 0;
}

/* Says once what is missing, or refuses to go without it. */
static int look_at_sandbox(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const struct sandbox_host *sandbox = &broker->sandbox;
	enum sandbox_mode mode = broker->options.sandbox;
	sandbox_look(&broker->sandbox);
	if (mode == SANDBOX_REQUIRE && sandbox->lacks[0])
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "--sandbox require: this host lacks %s", sandbox->lacks);
	if (mode == SANDBOX_AUTO && sandbox->lacks[0])
		util_log(UTIL_WARN, "the sandbox lacks %s", sandbox->lacks);
	return KILN_OK;
}

static void wait_at(void *gate)
{
	uv_sem_wait(gate);
}

static void do_nothing(uv_work_t *request)
{
	(void)request;
}

/* libuv starts its threads when it is first given work, and aborts where it cannot: so they start
 * now, after as many others have shown that they can. */
static bool start_pool(uv_loop_t *loop)
{
	static uv_work_t first;
	uv_thread_t threads[POOL_THREADS];
	uv_sem_t gate;
	int started = 0;
	if (uv_sem_init(&gate, 0) != 0)
		return false;
	while (started < POOL_THREADS && uv_thread_create(&threads[started], wait_at, &gate) == 0)
		started++;
	for (int i = 0; i < started; i++)
		uv_sem_post(&gate);
	for (int i = 0; i < started; i++)
		uv_thread_join(&threads[i]);
	uv_sem_destroy(&gate);
	/* One thread, which the variable may ask for, would have a slow disk hold up hashing. */
	return started == POOL_THREADS && setenv("UV_THREADPOOL_SIZE", TEXT(POOL_THREADS), 1) == 0 &&
		   uv_queue_work(loop, &first, do_nothing, NULL) == 0;
}

static int open_parts(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const char *directory = broker->options.kernel_dir;
	int status = look_at_sandbox(broker, error);
	if (status == KILN_OK)
		status = compile_sources_open(directory[0] ? directory : NULL, &broker->sources, error);
	if (status == KILN_OK)
		status = accept_bind(broker, error);
	if (status == KILN_OK)
		status = scrape_open(broker, error);
	if (status == KILN_OK && (!closer_open(wake, broker->server) || !start_pool(&broker->loop)))
		status =
			util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
					  "kilnd cannot start its threads: raise the limits of processes and memory "
					  "(ulimit -u, -v, -d)");
	if (status == KILN_OK)
		status = store_open(broker, error);
	if (status == KILN_OK)
		status = remote_open(broker, error);
	if (status == KILN_OK)
		status = pool_open(broker, error);
	if (status == KILN_OK)
		status = devices_open(broker, error);
	return status;
}

static void free_broker(struct broker *broker)
{
	accept_free(broker);
	pool_free(broker);
	devices_free(broker);
	tiers_free(broker);
	remote_free(broker);
	store_close(broker);
	tuned_close(broker);
	compile_sources_close(broker->sources);
	operator_tallies_free(&broker->operators);
	free(broker->recent);
	usage_log_free(&broker->usage_log);
	map_free(&broker->sessions_by_id);
	map_free(&broker->lookups_by_key);
	uv_loop_close(&broker->loop);
	drain_free(broker);
	free(broker->server);
}

/* Gives a zeroed broker its options and its loop; false: there can be no loop. */
static bool server_begin(struct broker *broker, const struct options *options)
{
	util_log_level = options->log_level;
	util_log_format = options->log_format;
	broker->events = &events;
	broker->options = *options;
	broker->started_us = util_now_us();
	broker->server = util_alloc(sizeof(*broker->server));
	return open_loop(broker) == 0;
}

/* The loop runs after a failure, too: what has started already ends as after a drain. */
static int open_broker(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	tiers_open(broker);
	int status = open_parts(broker, error);
	if (status != KILN_OK) {
		drain_now(broker);
		return status;
	}
	accept_start(broker);
	drain_note_sessions(broker);
	util_log(UTIL_INFO, "kilnd %s serves %s", KILN_VERSION_STRING, accept_path(broker));
	listen_notify("READY=1");
	return status;
}

/* libuv aborts where it cannot make its first pipes. */
static bool may_open_files(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max >= FILES_LEAST)
		return true;
	util_log(UTIL_ERROR,
			 "%llu files may be open here at once, and kilnd does not begin with less than %d: "
			 "raise the limit (ulimit -n)",
			 (unsigned long long)files.rlim_max, FILES_LEAST);
	return false;
}

static int run_until_drained(const struct options *options)
{
	static struct broker broker;
	char error[KERNEL_ERROR_MAX];
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a full quota is an error of write, not the end */
	if (!may_open_files())
		return 1;
	/* Every session, lent buffer and copy under way has a descriptor: the usual soft limit of 1024
	 * is kept for programs that use select(). */
	frame_reserve();
	if (!server_begin(&broker, options)) {
		util_log(UTIL_ERROR, "cannot make an event loop");
		return 1;
	}
	int status = open_broker(&broker, error);
	if (status != KILN_OK)
		util_log(UTIL_ERROR, "%s", error);
	uv_run(&broker.loop, UV_RUN_DEFAULT);
	compile_sweep(); /* workers that were busy were killed */
	if (status == KILN_OK)
		util_log(UTIL_INFO, "stopped");
	if (drain_has_left_disk(&broker))
		return SERVER_LEFT;
	free_broker(&broker);
	return status == KILN_OK ? 0 : 1;
}

int server_run(const struct options *options)
{
	util_log_begin(DEADLINE_OUTPUT_US);
	int status = run_until_drained(options);
	util_log_end(DEADLINE_LOG_END_MS);
	return status;
}
