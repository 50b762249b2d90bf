/* command_debug.c: the request that breaks things on purpose.  A build without tests has none. */
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "daemon/broker/front/accept.h"
#include "daemon/broker/front/session_life.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/cache/disk_fault.h"
#include "daemon/base/child.h"
#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/base/util.h"

/* ---- What is done to the cache, on the store's thread ---- */

static void corrupt_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	query->status = cache_corrupt(cache, query->key, query->error);
}

static void corrupt(struct session *session, struct wire_in *message)
{
	query_serve(session, message, query_take_key, corrupt_work);
}

static void expire_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	cache_drop_memory(cache);
	query->status = KILN_OK;
}

static void expire(struct session *session, struct wire_in *message)
{
	query_serve(session, message, query_take_key, expire_work);
}

static void look_work(struct cache *cache, void *arg)
{
	struct query *query = arg;
	cache_look(cache);
	query->status = KILN_OK;
}

static void look(struct session *session, struct wire_in *message)
{
	accept_look(session->broker);
	query_serve(session, message, query_take_key, look_work);
}

static void fault_store(struct session *session, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	const char *kind = wire_get_str(message, root, "kind");
	uint32_t ms = (uint32_t)wire_get_uint(root, "ms", 0);
	if (cache_fault_set(kind ? kind : "", ms, 0, (uint32_t)wire_get_uint(root, "count", 0)))
		reply_ok(session, wire_id(message));
	else
		reply_error(session, wire_id(message), KILN_EINVAL,
					"a disk cannot be \"%.*s\"; it can be none, full, readonly, failing or slow",
					PLAIN_CUT(kind ? kind : "", 40));
}

/* ---- children ---- */

static void put_child(struct wire_out *out, const char *role, int pid, const char *state,
					  const char *device)
{
	if (!pid)
		return;
	wire_map_begin(out, NULL);
	wire_put_str(out, "role", role);
	wire_put_int(out, "pid", pid);
	wire_put_str(out, "state", state);
	wire_put_str(out, "device", device);
	wire_map_end(out);
}

static void put_executor(void *arg, const struct handle_stats *stats)
{
	put_child(arg, "executor", stats->pid, stats->state, stats->device);
}

static void put_worker(void *arg, int pid, const char *state, uint64_t jobs)
{
	(void)jobs;
	put_child(arg, "compiler", pid, state, "");
}

static void list_children(struct session *session, struct wire_in *message)
{
	struct wire_out out;
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	handle_each(session->broker, put_executor, &out);
	pool_each(session->broker, put_worker, &out);
	wire_list_end(&out);
	reply_send(session, &out, NULL, 0);
}

static void kill_child(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	const char *role = wire_get_str(message, &message->root, "role");
	int pid = (int)wire_get_int(&message->root, "pid", 0);
	int killed = 0;
	struct wire_out out;
	if (role && !strcmp(role, "executor"))
		killed = handle_kill(session->broker, pid);
	else if (role && !strcmp(role, "compiler"))
		killed = pool_kill(session->broker, pid);
	if (!killed) {
		reply_error(session, id, KILN_ENOENT, "there is no %s process %d to kill",
					role ? role : "(role not given)", pid);
		return;
	}
	reply_begin(&out, id);
	wire_put_int(&out, "pid", killed);
	reply_send(session, &out, NULL, 0);
}

/* ---- What children do wrong ---- */

/* MISDEED_NONE: the message names none, which is answered. */
static enum misdeed take_misdeed(struct session *session, struct wire_in *message)
{
	const char *name = wire_get_str(message, &message->root, "misdeed");
	enum misdeed misdeed = name ? misdeed_named(name) : MISDEED_NONE;
	if (!misdeed)
		reply_error(session, wire_id(message), KILN_EINVAL, "there is no misdeed \"%.*s\"",
					PLAIN_CUT(name ? name : "", 40));
	return misdeed;
}

static void spare_children(struct session *session, struct wire_in *message)
{
	child_spare((int)wire_get_int(&message->root, "count", 1),
				wire_get_uint(&message->root, "ms", DEADLINE_CHILD_END_MS));
	reply_ok(session, wire_id(message));
}

static void fail_start(struct session *session, struct wire_in *message)
{
	const char *role = wire_get_str(message, &message->root, "role");
	bool compiler = role && !strcmp(role, "compiler");
	struct test_state *test = &session->broker->test;
	enum misdeed misdeed = take_misdeed(session, message);
	if (!misdeed)
		return;
	test->start_misdeed[compiler] = misdeed;
	test->starts_left[compiler] = (int)wire_get_int(&message->root, "count", 1);
	reply_ok(session, wire_id(message));
}

const char *debug_start_misdeed(struct broker *broker, bool compiler, char argument[40])
{
	struct test_state *test = &broker->test;
	if (test->starts_left[compiler] <= 0)
		return NULL;
	test->starts_left[compiler]--;
	snprintf(argument, 40, "--test-misdeed=%s", misdeed_name(test->start_misdeed[compiler]));
	return argument;
}

/* A misdeed on its way to a device process. */
struct arming {
	struct request request;
	struct device_handle *executor;
};

static void arming_abandon(struct request *request)
{
	struct arming *arming = (struct arming *)request;
	handle_disown(arming->executor, arming);
	free(arming);
}

static void armed(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct arming *arming = arg;
	struct session *session = arming->request.session;
	(void)reply;
	if (status == KILN_OK)
		reply_ok(session, arming->request.id);
	else
		reply_error(session, arming->request.id, status, "%s", error);
	request_close(&arming->request);
	free(arming);
}

/* Arms the session's own device process or, without "own", that of its device.  The answer waits
 * until that process knows the misdeed: a launch through a lane may overtake a message. */
static void fail_device(struct session *session, struct wire_in *message)
{
	const char *at = wire_get_str(message, &message->root, "at");
	bool own = wire_get(&message->root, "own") != NULL;
	struct device_handle *executor = own ? session->own : session->executor;
	enum misdeed misdeed = take_misdeed(session, message);
	struct wire_out out;
	if (!misdeed)
		return;
	if (!executor || !handle_is_ready(executor)) {
		reply_error(session, wire_id(message), KILN_EDEVICE, "there is no such device process now");
		return;
	}
	struct arming *arming = util_alloc(sizeof(*arming));
	arming->executor = executor;
	if (!request_open(session, wire_id(message), &arming->request, arming_abandon)) {
		free(arming);
		return;
	}
	uint64_t id = handle_begin(executor, &out, "misdeed");
	wire_put_int(&out, "what", (int64_t)misdeed);
	wire_put_str(&out, "at", at ? at : "");
	int status =
		handle_send(executor, &out, id, NULL, 0, DEADLINE_EXECUTOR_START_MS, armed, arming);
	if (status != KILN_OK)
		armed(arming, status, "the device process cannot be told", NULL);
}

/* "hang-compile", of the next jobs; false: it is none of these. */
static bool fail_compile(struct session *session, struct wire_in *message, const char *what)
{
	static const char end[] = "-compile";
	struct test_state *test = &session->broker->test;
	char name[16];
	size_t length = strlen(what), rest = length - strlen(end);
	if (length <= strlen(end) || rest >= sizeof(name) || strcmp(what + rest, end) != 0)
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)rest, what);
	if (!misdeed_named(name))
		return false;
	test->compile_misdeed = misdeed_named(name);
	test->misdeeds_left = (int)wire_get_int(&message->root, "count", 1);
	reply_ok(session, wire_id(message));
	return true;
}

/* ---- Settings ---- */

/* Deadlines and delays: a time and nothing else; false: it is none of them. */
static bool set_time(struct session *session, struct wire_in *message, const char *what)
{
	struct test_state *test = &session->broker->test;
	const struct {
		const char *name;
		_Atomic uint32_t *field;
	} times[] = {
		{"delay-compile", &test->delay_compile_ms},     {"delay-store", &test->delay_store_ms},
		{"hello-deadline", &test->hello_deadline_ms},   {"idle-executor", &test->idle_executor_ms},
		{"start-deadline", &test->start_deadline_ms},   {"call-deadline", &test->call_deadline_ms},
		{"remote-patience", &test->remote_patience_ms}, {"restart-pause", &test->restart_pause_ms},
		{"store-deadline", &test->store_deadline_ms},   {"remote-claim", &test->remote_claim_ms},
		{"remote-look", &test->remote_look_ms},
	};
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (!strcmp(what, times[i].name)) {
			atomic_store(times[i].field, (uint32_t)wire_get_uint(&message->root, "ms", 0));
			reply_ok(session, wire_id(message));
			return true;
		}
	return false;
}

static void set_gain(struct session *session, struct wire_in *message)
{
	session->broker->test.gain_us = (double)wire_get_uint(&message->root, "ms", 0) * 1000;
	reply_ok(session, wire_id(message));
}

static void set_available_memory(struct session *session, struct wire_in *message)
{
	session->broker->test.available_bytes = wire_get_uint(&message->root, "bytes", 0);
	reply_ok(session, wire_id(message));
}

static void crowd_closer(struct session *session, struct wire_in *message)
{
	closer_crowd((int)wire_get_uint(&message->root, "count", 0));
	reply_ok(session, wire_id(message));
}

static void admit_rights(struct session *session, struct wire_in *message)
{
	accept_admit_rights(session->broker);
	reply_ok(session, wire_id(message));
}

/* A lane knows of no delay: the answer waits until no lane is left. */
static void delay_launch(struct session *session, struct wire_in *message)
{
	struct test_state *test = &session->broker->test;
	test->delay_launch_ms = (uint32_t)wire_get_uint(&message->root, "ms", 0);
	if (test->delay_launch_ms && lanes_end(session->broker))
		test->lanes_end = (struct lanes_end){session->id, wire_id(message)};
	else
		reply_ok(session, wire_id(message));
}

static void drop(struct session *session, struct wire_in *message)
{
	(void)message;
	session_end(session);
}

static const struct {
	const char *name;
	command_handler handler;
} deeds[] = {
	{"children", list_children},
	{"kill", kill_child},
	{"drop", drop},
	{"corrupt", corrupt},
	{"expire", expire},
	{"store-fault", fault_store},
	{"look", look},
	{"delay-launch", delay_launch},
	{"gain", set_gain},
	{"fail-start", fail_start},
	{"fail-device", fail_device},
	{"spare-children", spare_children},
	{"available-memory", set_available_memory},
	{"admit-rights", admit_rights},
	{"closer-sockets", crowd_closer},
};

void serve_debug(struct session *session, struct wire_in *message)
{
	const char *what = wire_get_str(message, &message->root, "what");
	what = what ? what : "(nothing)";
	for (size_t i = 0; i < sizeof(deeds) / sizeof(*deeds); i++)
		if (!strcmp(what, deeds[i].name)) {
			deeds[i].handler(session, message);
			return;
		}
	if (!set_time(session, message, what) && !fail_compile(session, message, what))
		reply_error(
			session, wire_id(message), KILN_EINVAL,
			"debug knows no %.*s; it knows children, kill, drop, corrupt, expire, "
			"store-fault, store-deadline, look, delay-compile, delay-store, delay-launch, "
			"hello-deadline, idle-executor, start-deadline, call-deadline, "
			"restart-pause, gain, remote-patience, remote-claim, remote-look, fail-compile, "
			"hang-compile, crash-compile, fail-start, "
			"fail-device, spare-children, available-memory, admit-rights, closer-sockets",
			PLAIN_CUT(what, 40));
}
