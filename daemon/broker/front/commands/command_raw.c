/*
 * command_raw.c: raw.prepare, raw.compile, raw.explain, raw.submit: users' kernels.
 *
 *   an opening:  ASKING -------------> READING --> answered, or handed to done; freed
 *                (which compilers      (a worker thread reads the texts
 *                are here)             and makes the key)
 *
 *   ASKING --the session ends--> freed
 *   READING --the session ends--> the thread ends its work, or does not begin it; freed
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/calls/raw_launch.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"
#include "planned.h"

/* ---- Prepare and compile ---- */

/* Says whether the session may bring a kernel for the target, or answers: for cpu it is native
 * code. */
static bool may_bring(struct session *session, uint64_t id, const char *target)
{
	if (strcmp(target, "cpu") != 0 || session_is_owner(session))
		return true;
	reply_error(session, id, KILN_EPERM,
				"on device cpu a kernel is native code: only uid %u, whose kilnd this is, may "
				"bring some, and not uid %u",
				(unsigned)getuid(), session->uid);
	return false;
}

/* Goes on with a kernel whose texts have been read, and takes it over. */
typedef void (*opened)(struct session *session, uint64_t id, struct kernel_ref *ref);

/* A kernel whose texts are being read. */
struct opening {
	struct request request;
	struct broker *broker;
	struct kernel_ref *ref;
	opened done;
	enum { OPENING_ASKING, OPENING_READING } state;
	atomic_bool unwanted; /* READING: the session has ended */
	char compiler[sizeof((struct kernel_ref *)0)->compiler];
	struct compile_key key;
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void opening_free(struct opening *opening)
{
	compile_key_free(&opening->key);
	kernel_drop(opening->ref);
	free(opening);
}

static void opening_abandon(struct request *request)
{
	struct opening *opening = (struct opening *)request;
	if (opening->state == OPENING_READING) {
		atomic_store(&opening->unwanted, true);
		return;
	}
	pool_forget(opening->broker, opening);
	opening_free(opening);
}

static void raw_read_work(struct cache *cache, void *arg)
{
	struct opening *opening = arg;
	(void)cache;
	if (atomic_load(&opening->unwanted))
		return;
	opening->status = raw_fill(opening->broker->sources, opening->ref, opening->error);
	if (opening->status == KILN_OK && opening->compiler[0])
		compile_key_make(&opening->ref->job, opening->compiler, &opening->key);
}

static void raw_read_done(struct broker *broker, void *arg)
{
	struct opening *opening = arg;
	struct session *session = opening->request.session;
	uint64_t id = opening->request.id;
	struct kernel_ref *ref = opening->ref;
	(void)broker;
	raw_was_read(ref);
	if (session && opening->status == KILN_OK) {
		if (opening->key.text)
			job_set_key(ref, &opening->key, opening->compiler);
		opening->key.text = NULL;
		session->asks = opening->request.name;
		request_close(&opening->request);
		opening->ref = NULL;
		opening->done(session, id, ref);
	} else if (session) {
		reply_error(session, id, opening->status, "%s", opening->error);
		request_close(&opening->request);
	}
	opening_free(opening);
}

static void read_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct opening *opening = arg;
	struct session *session = opening->request.session;
	(void)toolchains;
	(void)error; /* no compiler: a kernel without a key */
	snprintf(opening->compiler, sizeof(opening->compiler), "%s",
			 job_compiler(opening->broker, opening->ref->target));
	opening->state = OPENING_READING;
	if (store_aside(opening->broker, session_turn(session), raw_read_work, raw_read_done,
					opening) == KILN_OK)
		return;
	reply_error(session, opening->request.id, KILN_ENOMEM, "out of memory for a kernel");
	request_close(&opening->request);
	opening_free(opening);
}

/* Reads the user's kernel of a message and hands it, planned for a target, to done; or refuses
 * it, which is answered. */
static void open_raw(struct session *session, struct wire_in *message, const char *target,
					 opened done)
{
	struct kernel_limits limits;
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	const char *model;
	struct opening *opening = util_alloc(sizeof(*opening));
	int status = planned_limits(session, target, &limits, &model, error);
	bool may = status != KILN_OK || may_bring(session, id, limits.target);
	if (may && status == KILN_OK)
		status = raw_open(session, message, &limits, &opening->ref, error);
	if (may && status != KILN_OK)
		reply_error(session, id, status, "%s", error);
	if (!may || status != KILN_OK ||
		!request_open(session, id, &opening->request, opening_abandon)) {
		opening_free(opening);
		return;
	}
	opening->broker = session->broker;
	opening->done = done;
	pool_when_known(session->broker, read_known, opening);
}

/* Returns the session's own device process; NULL: it is refused, and answered. */
static struct device_handle *own_executor(struct session *session, uint64_t id)
{
	struct broker *broker = session->broker;
	uint64_t most = broker->options.max_own;
	if (session->own)
		return session->own;
	if ((uint64_t)handle_own_count(broker, session->uid) >= most)
		reply_error(session, id, KILN_ELIMIT,
					"%llu sessions of uid %u run kernels of their own, each in a device process of "
					"its own, and that is the most (--max-own)",
					(unsigned long long)most, session->uid);
	else if (!(session->own = handle_own(session->device, session->uid, session->id)))
		reply_error(session, id, KILN_ENOMEM, "out of memory for a device process");
	return session->own;
}

/* The session may have prepared others meanwhile. */
static void prepare_raw_command(struct session *session, uint64_t id, struct kernel_ref *ref)
{
	if (planned_may_be_kept(session, id))
		command_ask_raw(session, id, ref, session->own, false);
	else
		kernel_drop(ref);
}

static void prepare_raw_local(struct session *session, uint64_t id, struct kernel_ref *ref)
{
	if (planned_may_be_kept(session, id))
		command_ask_raw(session, id, ref, NULL, true);
	else
		kernel_drop(ref);
}

void serve_raw_prepare(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	bool local = wire_get_bool(&message->root, "local", false);
	if (planned_may_be_kept(session, id) && may_bring(session, id, session->device->info.name) &&
		(local || own_executor(session, id)))
		open_raw(session, message, NULL, local ? prepare_raw_local : prepare_raw_command);
}

static void compile(struct session *session, uint64_t id, struct kernel_ref *ref)
{
	command_ask_raw(session, id, ref, NULL, false);
}

void serve_raw_compile(struct session *session, struct wire_in *message)
{
	open_raw(session, message, wire_get_str(message, &message->root, "target"), compile);
}

void serve_raw_explain(struct session *session, struct wire_in *message)
{
	const char *target = wire_get_str(message, &message->root, "target");
	open_raw(session, message, target, command_explain_raw);
}

/* ---- Submit ---- */

void serve_raw_submit(struct session *session, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	uint64_t id = wire_id(message), number = wire_get_uint(root, "call", 0);
	uint64_t after = wire_get_uint(root, "after", 0);
	struct call *call = call_find(session, number);
	struct raw_launch *launch = NULL;
	char error[KERNEL_ERROR_MAX];
	int status;
	if (after == id)
		status = util_fail(error, sizeof(error), KILN_EINVAL,
						   "call %llu follows itself; after names an earlier ticket",
						   (unsigned long long)id);
	else if (!call || call_kind(call) != CALL_RAW)
		status = util_fail(error, sizeof(error), KILN_ENOENT,
						   "this session has no user's kernel %llu", (unsigned long long)number);
	else
		status = call_check_device(session, call, "the kernel", "prepare it again", error);
	if (status == KILN_OK && !session->own)
		status =
			util_fail(error, sizeof(error), KILN_EINVAL,
					  "the kernel was prepared for launches in the caller's own context alone");
	if (status == KILN_OK)
		status = raw_launch_open(session, message, &launch, error);
	if (status == KILN_OK)
		status = work_launch_raw(session, id, call, launch, after, error);
	if (status != KILN_OK) {
		free(launch);
		reply_error(session, id, status, "%s", error);
	}
}
