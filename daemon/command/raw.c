/*
 * raw.c: raw.prepare, raw.compile, raw.explain, raw.submit: users' kernels.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "daemon/raw.h"
#include "daemon/util/util.h"

/* ---- Prepare and compile ---- */

/* Where it runs on the host it is the daemon's own code. */
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

/* The user's kernel of a message, planned for a target, or NULL: refused, and answered. */
static struct kernel_ref *open_raw(struct session *session, struct wire_in *message,
								   struct frame *frame, const char *target)
{
	struct kernel_limits limits;
	struct kernel_ref *ref = NULL;
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	const char *model;
	int status = command_limits(session, target, &limits, &model, error);
	if (status == KILN_OK && session->broker->draining)
		status = util_fail(error, sizeof error, KILN_ECANCELED, "kilnd is shutting down");
	if (status == KILN_OK && !may_bring(session, id, limits.target))
		return NULL;
	if (status == KILN_OK)
		status = raw_open(session->broker, message, frame, &limits, &ref, error);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
	return status == KILN_OK ? ref : NULL;
}

static void ask(struct session *session, struct wire_in *message, struct frame *frame,
				const char *target, struct executor *executor)
{
	struct kernel_ref *ref = open_raw(session, message, frame, target);
	if (ref)
		command_ask_raw(session, wire_id(message), ref, executor);
}

/* The session's own device process; NULL: refused, and answered. */
static struct executor *own_executor(struct session *session, uint64_t id)
{
	struct broker *broker = session->broker;
	uint64_t most = broker->options.max_own;
	if (session->own)
		return session->own;
	if ((uint64_t)executor_own_count(broker, session->uid) >= most)
		reply_error(session, id, KILN_ELIMIT,
					"%llu sessions of uid %u run kernels of their own, each in a device process of "
					"its own, and that is the most (--max-own)",
					(unsigned long long)most, session->uid);
	else if (!(session->own = executor_own(session->device, session->uid, session->id)))
		reply_error(session, id, KILN_ENOMEM, "out of memory for a device process");
	return session->own;
}

void command_raw_prepare(struct session *session, struct wire_in *message, struct frame *frame)
{
	uint64_t id = wire_id(message);
	struct executor *executor = NULL;
	if (command_may_prepare(session, id) && may_bring(session, id, session->device->info.name))
		executor = own_executor(session, id);
	if (executor)
		ask(session, message, frame, NULL, executor);
}

void command_raw_compile(struct session *session, struct wire_in *message, struct frame *frame)
{
	ask(session, message, frame, wire_get_str(message, &message->root, "target"), NULL);
}

void command_raw_explain(struct session *session, struct wire_in *message, struct frame *frame)
{
	const char *target = wire_get_str(message, &message->root, "target");
	struct kernel_ref *ref = open_raw(session, message, frame, target);
	if (ref)
		command_explain_raw(session, wire_id(message), ref);
}

/* ---- Submit ---- */

void command_raw_submit(struct session *session, struct wire_in *message, struct frame *frame)
{
	const msgpack_object *root = &message->root;
	uint64_t id = wire_id(message), number = wire_get_uint(root, "call", 0);
	uint64_t after = wire_get_uint(root, "after", 0);
	struct call *call = map_get_id(&session->calls, number);
	struct raw_launch *launch = NULL;
	char error[KERNEL_ERROR_MAX];
	int status;
	(void)frame;
	if (after == id)
		status = util_fail(error, sizeof error, KILN_EINVAL,
						   "call %llu follows itself; after names an earlier ticket",
						   (unsigned long long)id);
	else if (!call || call->graph || !call->variants[0]->raw)
		status = util_fail(error, sizeof error, KILN_ENOENT,
						   "this session has no user's kernel %llu", (unsigned long long)number);
	else
		status = call_check_device(session, call->device, "the kernel", "prepare it again", error);
	if (status == KILN_OK)
		status = raw_launch_open(session, message, &launch, error);
	if (status == KILN_OK)
		status = work_launch_raw(session, id, call, launch, after, error);
	if (status != KILN_OK) {
		free(launch);
		reply_error(session, id, status, "%s", error);
	}
}
