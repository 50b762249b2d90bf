/* debug.c: the test-only request, and stop. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "daemon/cache/fault.h"
#include "daemon/pool/pool.h"
#include "daemon/store.h"
#include "daemon/util/util.h"

/* ---- What is done to the cache, on the store's thread ---- */

struct damage {
	struct request request;
	void (*deed)(struct cache *cache, struct damage *damage);
	char key[KERNEL_KEY_HEX];
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void damage_abandon(struct request *request)
{
	(void)request; /* damage_done frees it */
}

static void corrupt(struct cache *cache, struct damage *damage)
{
	damage->status = cache_corrupt(cache, damage->key, damage->error);
}

static void expire(struct cache *cache, struct damage *damage)
{
	(void)damage;
	cache_drop_memory(cache);
}

static void look(struct cache *cache, struct damage *damage)
{
	(void)damage;
	cache_look(cache);
}

static void damage_work(struct cache *cache, void *arg)
{
	struct damage *damage = arg;
	damage->deed(cache, damage);
}

static void damage_done(struct broker *broker, void *arg)
{
	struct damage *damage = arg;
	struct session *session = damage->request.session;
	(void)broker;
	if (session && damage->status != KILN_OK)
		reply_error(session, damage->request.id, damage->status, "%s", damage->error);
	else if (session)
		reply_ok(session, damage->request.id);
	request_close(&damage->request);
	free(damage);
}

static void damage_cache(struct session *session, struct wire_in *message,
						 void (*deed)(struct cache *cache, struct damage *damage))
{
	const char *key = wire_get_str(message, &message->root, "key");
	struct damage *damage = util_alloc(sizeof *damage);
	damage->deed = deed;
	snprintf(damage->key, sizeof damage->key, "%s", key ? key : "");
	if (!request_open(session, wire_id(message), &damage->request, damage_abandon))
		free(damage);
	else if (store_answer(&damage->request, damage_work, damage_done) != KILN_OK)
		damage_done(session->broker, damage);
}

static void fault_store(struct session *session, struct wire_in *message, uint32_t ms)
{
	const msgpack_object *root = &message->root;
	const char *kind = wire_get_str(message, root, "kind");
	if (cache_fault_set(kind ? kind : "", ms, 0, (uint32_t)wire_get_uint(root, "count", 0)))
		reply_ok(session, wire_id(message));
	else
		reply_error(session, wire_id(message), KILN_EINVAL,
					"a disk cannot be \"%.40s\"; it can be none, full, readonly, failing or slow",
					kind ? kind : "");
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

static void put_executor(void *arg, const struct executor_stats *stats)
{
	put_child(arg, "executor", stats->pid, stats->state, stats->device);
}

static void put_worker(void *arg, int pid, const char *state, uint64_t jobs)
{
	(void)jobs;
	put_child(arg, "compiler", pid, state, "");
}

static void list_children(struct session *session, uint64_t id)
{
	struct wire_out out;
	reply_begin(&out, id);
	wire_list_begin(&out, "rows");
	executor_each(session->broker, put_executor, &out);
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
		killed = executor_kill(session->broker, pid);
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

/* Faults that are a time and nothing else; false: it is none of them. */
static bool set_time(struct test_state *test, const char *what, uint32_t ms)
{
	const struct {
		const char *name;
		uint32_t *field;
	} times[] = {
		{"delay-compile", &test->delay_compile_ms},
		{"delay-store", &test->delay_store_ms},
		{"hello-deadline", &test->hello_deadline_ms},
		{"remote-patience", &test->remote_patience_ms},
		{"restart-pause", &test->restart_pause_ms},
		{"store-deadline", &test->store_deadline_ms},
	};
	for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
		if (!strcmp(what, times[i].name)) {
			*times[i].field = ms;
			return true;
		}
	return false;
}

void command_debug(struct session *session, struct wire_in *message, struct frame *frame)
{
	struct test_state *test = &session->broker->test;
	const msgpack_object *root = &message->root;
	const char *what = wire_get_str(message, root, "what");
	uint64_t id = wire_id(message);
	int count = (int)wire_get_int(root, "count", 1);
	uint32_t ms = (uint32_t)wire_get_uint(root, "ms", 0);
	(void)frame;
	if (!what)
		what = "(nothing)";
	if (!strcmp(what, "children")) {
		list_children(session, id);
	} else if (set_time(test, what, ms)) {
		reply_ok(session, id);
	} else if (!strcmp(what, "kill")) {
		kill_child(session, message);
	} else if (!strcmp(what, "drop")) {
		session_end(session);
	} else if (!strcmp(what, "corrupt")) {
		damage_cache(session, message, corrupt);
	} else if (!strcmp(what, "expire")) {
		damage_cache(session, message, expire);
	} else if (!strcmp(what, "delay-launch")) {
		test->delay_launch_ms = ms;
		/* What goes through lanes knows of no delay: it is answered when there is none left. */
		if (ms && lanes_end(session->broker))
			test->lanes_end = (struct lanes_end){session->id, id};
		else
			reply_ok(session, id);
	} else if (!strcmp(what, "store-fault")) {
		fault_store(session, message, ms);
	} else if (!strcmp(what, "look")) {
		server_look(session->broker);
		damage_cache(session, message, look);
	} else if (!strcmp(what, "gain")) {
		test->gain_us = (double)ms * 1000;
		reply_ok(session, id);
	} else if (!strcmp(what, "available-memory")) {
		test->available_bytes = wire_get_uint(root, "bytes", 0);
		reply_ok(session, id);
	} else if (!strcmp(what, "fail-compile")) {
		test->fail_compile = count;
		reply_ok(session, id);
	} else if (!strcmp(what, "hang-compile")) {
		test->hang_compile = count;
		reply_ok(session, id);
	} else if (!strcmp(what, "crash-compile")) {
		test->crash_compile = count;
		reply_ok(session, id);
	} else {
		reply_error(
			session, id, KILN_EINVAL,
			"debug knows no %.40s; it knows children, kill, drop, corrupt, expire, "
			"store-fault, store-deadline, look, "
			"delay-compile, delay-store, delay-launch, hello-deadline, gain, remote-patience, "
			"restart-pause, fail-compile, hang-compile, crash-compile, available-memory",
			what);
	}
}

void command_stop(struct session *session, struct wire_in *message, struct frame *frame)
{
	(void)frame;
	reply_ok(session, wire_id(message));
	server_stop(session->broker, "a client asked for it");
}
