/*
 * server.c: the broker's loop: opens everything, accepts, and on SIGTERM, SIGINT or "stop" drains:
 * no new work, what runs may finish until the deadline, then sessions, children, cache and socket
 * are closed in this order.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/base/child.h"
#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "commands/command.h"
#include "daemon/broker/calls/buffer.h"
#include "daemon/broker/calls/call_about.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/kernels/lookup.h"
#include "listen.h"
#include "peer.h"
#include "rights.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/remote/remote.h"
#include "session_life.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/broker/kernels/tuned.h"
#include "daemon/base/util.h"
#include "waits.h"

#define ACCEPTS_A_TURN 32
#define FILES_LEAST 16

enum server_phase { SERVER_RUNNING, SERVER_DRAINING, SERVER_CLOSING, SERVER_CLOSED };

struct server {
	struct listen_socket socket;
	uv_poll_t poll;
	uv_signal_t term, interrupt, hangup;
	uv_timer_t drain, idle, alone, look, rest;
	uv_async_t relieved; /* descriptors were closed that sessions are held for */
	uint64_t stopped_us, drain_until_us,
		end_until_us; /* end: of the cache; 0: all else is not done yet */
	bool left;        /* the cache did not come to its end */
	bool lost;        /* nobody finds the socket, and that was said */
	bool crowded;     /* nobody is taken in until sockets are closed, and that was said */
	int spare; /* a descriptor to give up when there are none left, so that a peer can be turned
				  away */
	enum server_phase phase;
};

const char *server_path(const struct broker *broker)
{
	return broker->server->socket.path;
}

/* ---- Accepting ---- */

/* Out of descriptors: accept and close, instead of spinning on a socket that stays readable.  False
 * if nobody waited: without a descriptor to give, accept4 says EMFILE before it looks. */
static bool turn_away(struct server *server)
{
	if (server->spare >= 0)
		close(server->spare);
	int fd = accept4(server->socket.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		closer_put_socket(fd);
	server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		util_log(UTIL_WARN, "a client was turned away: %s", strerror(EMFILE));
	return fd >= 0;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_rested(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	struct server *server = broker->server;
	if (server->phase == SERVER_RUNNING)
		uv_poll_start(&server->poll, UV_READABLE, on_connection);
}

/* Nobody can be taken in now, and the socket stays readable. */
static void rest(struct server *server)
{
	uv_poll_stop(&server->poll);
	uv_timer_start(&server->rest, on_rested, PAUSE_SERVER_ACCEPT_MS, 0);
}

/* What strangers send into sockets that are turned away cannot be bounded there: before Linux 6.16
 * it comes with the connection. */
static bool is_crowded(struct server *server)
{
	uint32_t uid;
	bool is_now = closer_is_crowded(&uid);
	if (is_now && !server->crowded)
		util_log(UTIL_WARN,
				 "no new connections are taken until old ones are closed: programs of uid %u have "
				 "sent descriptors there that cannot be closed (sockets that linger, files of a "
				 "file system that does not answer); end those programs",
				 (unsigned)uid);
	else if (!is_now && server->crowded)
		util_log(UTIL_INFO, "new connections are taken again");
	server->crowded = is_now;
	return is_now;
}

/* False: there is nobody else, or nobody can be taken in for a while. */
static bool take_one(struct broker *broker)
{
	struct server *server = broker->server;
	int fd = is_crowded(server)
				 ? -1
				 : accept4(server->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		session_open(broker, fd);
		return true;
	}
	if (!server->crowded && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return errno != EAGAIN;
	if (!server->crowded && (errno == EMFILE || errno == ENFILE) && turn_away(server))
		return true;
	rest(server);
	return false;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct broker *broker = poll->data;
	(void)events;
	for (int i = 0; status == 0 && i < ACCEPTS_A_TURN && take_one(broker); i++)
		;
}

/* Whoever tidies up may remove the socket of a daemon that runs, or its directory: nobody new would
 * find it, and none could take its place. */
void server_look(struct broker *broker)
{
	struct server *server = broker->server;
	char error[KERNEL_ERROR_MAX];
	if (server->phase != SERVER_RUNNING || !listen_is_lost(&server->socket))
		return;
	/* The loop must not watch a descriptor that becomes another socket. */
	uv_poll_stop(&server->poll);
	int status = listen_again(&server->socket, error);
	uv_poll_start(&server->poll, UV_READABLE, on_connection);
	if (status == KILN_OK)
		util_log(UTIL_WARN, "the socket %s was removed; it was made anew", server->socket.path);
	else if (!server->lost)
		util_log(UTIL_WARN, "the socket %s was removed: %s", server->socket.path, error);
	server->lost = status != KILN_OK;
}

static void on_look(uv_timer_t *timer)
{
	server_look(timer->data);
}

#ifdef KILN_TEST_HOOKS
void server_admit_rights(struct broker *broker)
{
	rights_admit(broker->server->socket.fd);
}
#endif

/* ---- Ending ---- */

static bool work_left(const struct broker *broker)
{
	for (const struct session *session = broker->sessions; session; session = session->next)
		if (session->work_count || session->request_count || lane_busy(session))
			return true;
	return job_busy(broker);
}

static void close_handles(struct broker *broker)
{
	struct server *server = broker->server;
	uv_close((uv_handle_t *)&server->term, NULL);
	uv_close((uv_handle_t *)&server->interrupt, NULL);
	uv_close((uv_handle_t *)&server->hangup, NULL);
	uv_close((uv_handle_t *)&server->drain, NULL);
	uv_close((uv_handle_t *)&server->idle, NULL);
	uv_close((uv_handle_t *)&server->alone, NULL);
	uv_close((uv_handle_t *)&server->look, NULL);
	uv_close((uv_handle_t *)&server->rest, NULL);
	closer_detach();
	uv_close((uv_handle_t *)&server->relieved, NULL);
	uv_close((uv_handle_t *)&broker->tiers->timer, NULL);
}

static void close_all(struct broker *broker)
{
	struct server *server = broker->server;
	server->phase = SERVER_CLOSING;
	while (broker->sessions)
		session_close(broker->sessions);
	tiers_stop(broker);
	job_close(broker);
	pool_close(broker);
	devices_close(broker);
}

/* A disk that does not answer is not waited for: whatever it was doing, the database survives that.
 * True: it is done, or left. */
static bool end_store(struct broker *broker)
{
	struct server *server = broker->server;
	if (store_end(broker))
		return true;
	if (!server->end_until_us)
		server->end_until_us =
			util_now_us() + (broker->test.store_deadline_ms
								 ? (uint64_t)broker->test.store_deadline_ms * 1000
								 : DEADLINE_STORE_END_US);
	if (util_now_us() < server->end_until_us)
		return false;
	util_log(UTIL_WARN, "the disk of the cache %s does not answer; it is left as it is",
			 broker->options.cache_dir);
	server->left = true;
	uv_stop(&broker->loop);
	return true;
}

/* Looks again and again: work, sessions and children end in many places. */
static void on_drain(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	struct server *server = broker->server;
	if (server->phase == SERVER_DRAINING && util_now_us() > server->drain_until_us) {
		util_log(UTIL_WARN,
				 "work was still under way after %llu ms (--drain-timeout); it is dropped",
				 (unsigned long long)broker->options.drain_timeout_ms);
		close_all(broker);
	}
	if (server->phase == SERVER_DRAINING && !work_left(broker))
		close_all(broker);
	/* Lookups under way come back to an empty house; children are waited for, so that none is left
	 * behind. */
	if (server->phase == SERVER_CLOSING && !child_count() && remote_finished(broker) &&
		end_store(broker)) {
		server->phase = SERVER_CLOSED;
		remote_close(broker);
		close_handles(broker);
	}
}

/* Never closes by itself: who calls is in the middle of a session, a job or a child. */
static void progress(struct broker *broker)
{
	struct server *server = broker->server;
	if (server->phase == SERVER_DRAINING || server->phase == SERVER_CLOSING)
		uv_timer_start(&server->drain, on_drain, 0, PAUSE_DRAIN_LOOK_MS);
}

void server_stop(struct broker *broker, const char *why)
{
	struct server *server = broker->server;
	if (server->phase != SERVER_RUNNING)
		return;
	util_log(UTIL_INFO, "stopping: %s", why);
	listen_notify("STOPPING=1");
	broker->draining = true;
	server->phase = SERVER_DRAINING;
	server->stopped_us = util_now_us();
	server->drain_until_us = server->stopped_us + broker->options.drain_timeout_ms * 1000;
	uv_close((uv_handle_t *)&server->poll, NULL);
	listen_close(&server->socket);
	/* What nobody waits for is not waited for. */
	tiers_stop(broker);
	lanes_end(broker);
	/* From the loop, for who asked may be in the middle of a callback. */
	uv_timer_start(&server->drain, on_drain, 0, PAUSE_DRAIN_LOOK_MS);
}

void server_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct server *server = broker->server;
	struct wait_note note = {.what = "drain", .of = "", .since_us = server->stopped_us};
	if (server->phase != SERVER_DRAINING)
		return;
	note.left_ms = waits_left(server->drain_until_us, util_now_us());
	waits_say(&note, "what is under way to end, for kilnd stops");
	visit(arg, &note);
}

static void on_signal(uv_signal_t *handle, int number)
{
	server_stop(handle->data, strsignal(number));
}

static void on_idle(uv_timer_t *timer)
{
	server_stop(timer->data, "no client for the time of --idle-exit");
}

/* What many sessions took goes back to the system while there is nobody who would wait for it. */
static void on_alone(uv_timer_t *timer)
{
	(void)timer;
	malloc_trim(0);
}

static void note_sessions(struct broker *broker)
{
	struct server *server = broker->server;
	uint64_t seconds = broker->options.idle_exit_seconds;
	if (server->phase != SERVER_RUNNING)
		return;
	if (broker->session_count)
		uv_timer_stop(&server->alone);
	else
		uv_timer_start(&server->alone, on_alone, PAUSE_SERVER_ALONE_MS, 0);
	if (!seconds)
		return;
	if (broker->session_count)
		uv_timer_stop(&server->idle);
	else
		uv_timer_start(&server->idle, on_idle, seconds * 1000, 0);
}

static bool device_used(const struct broker *broker, const struct device_handle *executor)
{
	const struct session *session = broker->sessions;
	while (session && session->executor != executor)
		session = session->next;
	return session != NULL;
}

static void device_lost(struct broker *broker, struct device_handle *executor, const char *why)
{
	for (struct session *session = broker->sessions; session; session = session->next)
		if (session->executor == executor)
			lane_check(session, why);
}

static bool device_lanes(const struct broker *broker, const struct device_handle *executor,
						 bool *under_way)
{
	bool any = false;
	*under_way = false;
	for (const struct session *session = broker->sessions; session; session = session->next) {
		if (session->executor != executor || !session->lane)
			continue;
		any = true;
		*under_way = *under_way || lane_works(session);
	}
	return any;
}

static void lane_broke(struct broker *broker, const struct device_handle *executor, uint64_t stream,
					   const char *why)
{
	struct session *session = session_find(broker, stream);
	if (session && session->executor == executor) {
		char sentence[KERNEL_ERROR_MAX + 96];
		util_fail(sentence, KERNEL_ERROR_MAX, 0, "session %llu (pid %d): %s; it was ended",
				  (unsigned long long)session->id, session->pid, why);
		const struct fault fault = {.kind = FAULT_LANE,
									.sentence = sentence,
									.handle = executor,
									.uid = session->uid,
									.session = session->id};
		fault_report(broker, &fault, sentence, sizeof(sentence));
		util_log(UTIL_WARN, "%s", sentence);
		broker->counters.protocol_errors++;
		session_end(session);
	}
}

static void device_changed(struct broker *broker, struct device_handle *executor)
{
	struct session *session = broker->sessions;
	while (session) {
		struct session *next = session->next;
		if (session->executor == executor || session->own == executor) {
			buffers_remake(session);
			work_pump(session);
		}
		session = next;
	}
	tier_resume(broker, executor);
	tier_warm(broker, executor);
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
	.progress = progress,
	.device_changed = device_changed,
	.device_lost = device_lost,
	.device_closed = tier_warm_forget,
	.device_used = device_used,
	.device_lanes = device_lanes,
	.lane_broke = lane_broke,
	.lane_used = lane_used,
	.object_refused = job_distrust,
	.cache_opened = tuned_open,
	.cache_idle = cache_idle,
	.describe_call = call_describe,
	.key_of = lookup_key_of,
	.call_promoted = lane_promote,
	.message = serve,
	.sessions_changed = note_sessions,
	.start_misdeed = debug_start_misdeed,
};

/* ---- Starting ---- */

/* From any thread. */
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

/* As nohup does it, so that a daemon outlives the terminal it was started from. */
static bool ignores_hangup(void)
{
	struct sigaction before;
	return sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
}

static int open_loop(struct broker *broker)
{
	struct server *server = broker->server;
	int status = uv_loop_init(&broker->loop);
	if (status < 0)
		return status;
	server->poll.data = server->term.data = server->interrupt.data = server->hangup.data = broker;
	server->drain.data = server->idle.data = server->look.data = server->rest.data = broker;
	server->relieved.data = broker;
	uv_signal_init(&broker->loop, &server->term);
	uv_signal_init(&broker->loop, &server->interrupt);
	uv_signal_init(&broker->loop, &server->hangup);
	uv_timer_init(&broker->loop, &server->drain);
	uv_timer_init(&broker->loop, &server->idle);
	uv_timer_init(&broker->loop, &server->alone);
	uv_timer_init(&broker->loop, &server->look);
	uv_timer_init(&broker->loop, &server->rest);
	uv_async_init(&broker->loop, &server->relieved, on_relieved);
	uv_signal_start(&server->term, on_signal, SIGTERM);
	uv_signal_start(&server->interrupt, on_signal, SIGINT);
	if (!ignores_hangup())
		uv_signal_start(&server->hangup, on_signal, SIGHUP);
	return 0;
}

/* What is missing is said once, or is the end. */
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

static int open_parts(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const char *directory = broker->options.kernel_dir;
	int status = look_at_sandbox(broker, error);
	if (status == KILN_OK)
		status = compile_sources_open(directory[0] ? directory : NULL, &broker->sources, error);
	if (status == KILN_OK)
		status = listen_open(&broker->server->socket, &broker->options, error);
	if (status == KILN_OK && !closer_open(wake, broker->server))
		status =
			util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "no thread can be started (ulimit -u)");
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

static void listen_on(struct broker *broker)
{
	struct server *server = broker->server;
	uv_poll_init(&broker->loop, &server->poll, server->socket.fd);
	uv_poll_start(&server->poll, UV_READABLE, on_connection);
	uv_timer_start(&server->look, on_look, PAUSE_SERVER_LOOK_MS, PAUSE_SERVER_LOOK_MS);
	note_sessions(broker);
	util_log(UTIL_INFO, "kilnd %s serves %s", KILN_VERSION_STRING, server->socket.path);
	listen_notify("READY=1");
}

static void free_broker(struct broker *broker)
{
	listen_close(&broker->server->socket);
	pool_free(broker);
	devices_free(broker);
	tiers_free(broker);
	remote_free(broker);
	store_close(broker);
	tuned_close(broker);
	compile_sources_close(broker->sources);
	operator_tallies_free(&broker->operators);
	usage_log_free(&broker->usage_log);
	map_free(&broker->sessions_by_id);
	map_free(&broker->lookups_by_key);
	close(broker->server->spare);
	uv_loop_close(&broker->loop);
	free(broker->server);
}

/* A zeroed broker gets its options and its loop; false: there can be none. */
static bool begin(struct broker *broker, const struct options *options)
{
	util_log_level = options->log_level;
	broker->events = &events;
	broker->options = *options;
	broker->started_us = util_now_us();
	broker->server = util_alloc(sizeof(*broker->server));
	broker->server->socket.fd = broker->server->socket.lock = -1;
	broker->server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return open_loop(broker) == 0;
}

/* When it fails the loop is still to be run: what was started already ends as after a drain. */
static int open_broker(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	tiers_open(broker);
	int status = open_parts(broker, error);
	if (status == KILN_OK) {
		listen_on(broker);
		return status;
	}
	broker->server->phase = SERVER_CLOSING;
	tiers_stop(broker);
	job_close(broker);
	pool_close(broker);
	devices_close(broker);
	uv_timer_start(&broker->server->drain, on_drain, 0, PAUSE_DRAIN_LOOK_MS);
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

static int run(const struct options *options)
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
	if (!begin(&broker, options)) {
		util_log(UTIL_ERROR, "cannot make an event loop");
		return 1;
	}
	int status = open_broker(&broker, error);
	if (status != KILN_OK)
		util_log(UTIL_ERROR, "%s", error);
	uv_run(&broker.loop, UV_RUN_DEFAULT);
	if (status == KILN_OK)
		util_log(UTIL_INFO, "stopped");
	if (broker.server->left)
		return SERVER_LEFT;
	free_broker(&broker);
	return status == KILN_OK ? 0 : 1;
}

int server_run(const struct options *options)
{
	util_log_begin(DEADLINE_OUTPUT_US);
	int status = run(options);
	util_log_end(DEADLINE_LOG_END_MS);
	return status;
}
