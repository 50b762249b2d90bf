/*
 * command_call.c: compile and prepare make a plan of a message, and get its kernel.
 */
#include <string.h>

#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/handle.h"
#include "kernel_request.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "planned.h"

/* A problem on its way to a kernel. */
struct call_request {
	struct kernel_request base;
	struct kernel_problem problem;
	int given;                 /* tensors that the request names */
	struct kernel_ref *kernel; /* base.ref or its generic kernel: the one that is resolved */
	bool looking;              /* only the cache is asked for it */
	bool remade;               /* it could not be loaded, and is resolved once more */
	struct device_handle
		*executor; /* that loads a prepared call; NULL: the request only compiles */
	bool local;    /* the caller launches it in its own context: it is kept, and loaded nowhere */
	uint64_t load_us; /* when the load began */
	int64_t object_bytes;
	enum job_origin origin;
	uint64_t device; /* kind of the one that it is planned for */
	/* A call whose kernel is resident is launched at once, on these operands. */
	bool runs;
	bool wants_lane; /* and is bound to the session's lane */
	struct work_operand operands[KERNEL_MAX_OPERANDS];
};

/* Takes over the caller's hold of ref.  NULL: the session has been answered. */
static struct call_request *open_call(struct session *session, uint64_t id, struct kernel_ref *ref)
{
	struct call_request *asking = kernel_request_open(session, id, ref, sizeof(*asking));
	if (!asking)
		return NULL;
	asking->kernel = ref;
	asking->base.noted = true;
	asking->device = session->device ? session->device->kind : 0;
	return asking;
}

static void note_offered(struct session *session, const struct kernel_ref *ref, uint64_t began_us)
{
	struct recent_parts parts = {.origin = job_origin_names[JOB_GENERIC]};
	parts.us[RECENT_PLAN] = session->broker->planned_us;
	recent_add(session,
			   &(struct recent_about){.asked = session->asks,
									  .op = ref->plan.op,
									  .choice = ref->plan.choice,
									  .manifest = ref->manifest,
									  .began_us = began_us},
			   &parts);
}

/* Has the generic kernel launch the first call of a shape: the client does so, through its lane, or
 * else it is launched as answer_launch() does.  Nothing is waited for, so no request is opened; the
 * exact kernel is planned meanwhile. */
static void launch_first(struct session *session, uint64_t id, const struct planned *planned,
						 bool wants_lane, uint64_t began_us)
{
	const struct work_order order = {.first = true, .wants_lane = wants_lane};
	struct kernel_ref *ref = planned->ref;
	char error[KERNEL_ERROR_MAX];
	job_count_resident(session->broker, ref, session, JOB_GENERIC, util_now_us() - began_us);
	struct call *call =
		call_new(session, 0, &planned->problem, planned->given, session->device->kind, ref);
	if (!call) {
		reply_error(session, id, KILN_ENOMEM, "out of memory for a prepared call");
		kernel_drop(ref);
		return;
	}
	uint64_t number = call_id(call);
	call_begin_first(call);
	if (wants_lane && lane_offer(session, id, call, ref, planned->operands)) {
		note_offered(session, ref, began_us);
		call_plan_exact(session, call);
		kernel_drop(ref);
		return;
	}
	int status = work_launch(session, id, call, ref, planned->operands, &order, error);
	if (status != KILN_OK) {
		call_forget(session, number);
		reply_error(session, id, status, "%s", error);
	} else if ((call = call_find(session, number))) { /* the launch may have failed at once */
		call_plan_exact(session, call);
	}
	kernel_drop(ref);
}

/* The device process has planned the first call of a shape and bound it, and maybe launched it. */
static void take_bound(struct session *session, struct wire_in *message, uint64_t number)
{
	const uint64_t id = wire_id(message), began_us = util_now_us();
	char error[KERNEL_ERROR_MAX];
	struct planned planned;
	if (!planned_may_be_told(session, id))
		return;
	if (call_find(session, number) || !lane_may_tell(session, number)) {
		reply_error(session, id, KILN_EINVAL,
					"the desk of this session's lane gives no new call the number %llu",
					(unsigned long long)number);
		return;
	}
	int status = planned_open(session, message, NULL, true, &planned, error);
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		return;
	}
	if (!planned.first)
		(void)tier_open(session, &planned.problem, planned.ref, NULL);
	struct call *call = call_new(session, number, &planned.problem, planned.given,
								 session->device->kind, planned.ref);
	if (!call) {
		reply_error(session, id, KILN_ENOMEM, "out of memory for a prepared call");
		kernel_drop(planned.ref);
		return;
	}
	job_count_resident(session->broker, planned.ref, session, JOB_GENERIC,
					   util_now_us() - began_us);
	note_offered(session, planned.ref, began_us);
	if (planned.first)
		call_begin_first(call);
	lane_bound_itself(session, call);
	if (planned.first)
		call_plan_exact(session, call);
	kernel_drop(planned.ref);
	reply_ok(session, id);
}

/* NULL: the session has been answered, or the call is launched. */
static struct call_request *plan_call(struct session *session, struct wire_in *message,
									  const char *target, bool launched)
{
	char error[KERNEL_ERROR_MAX];
	struct planned planned;
	const uint64_t began_us = util_now_us();
	int status = planned_open(session, message, target, launched, &planned, error);
	if (status != KILN_OK) {
		reply_error(session, wire_id(message), status, "%s", error);
		return NULL;
	}
	const bool wants_lane = wire_get_bool(&message->root, "lane", false);
	if (planned.first) {
		launch_first(session, wire_id(message), &planned, wants_lane, began_us);
		return NULL;
	}
	struct call_request *asking = open_call(session, wire_id(message), planned.ref);
	if (!asking)
		return NULL;
	kernel_problem_copy(&asking->problem, &planned.problem);
	asking->given = planned.given;
	asking->runs = planned.placed && planned.made && wire_get_bool(&message->root, "run", false);
	asking->wants_lane = wants_lane;
	memcpy(asking->operands, planned.operands,
		   sizeof(planned.operands[0]) * (size_t)planned.problem.tensor_count);
	return asking;
}

/* ---- Answers ---- */

static struct call *new_call(struct call_request *asking)
{
	return call_new(asking->base.request.session, 0, &asking->problem, asking->given,
					asking->device, asking->base.ref);
}

static void answer_success(struct call_request *asking, const char *origin)
{
	asking->base.parts.origin = origin;
	asking->base.choice = asking->kernel->plan.choice;
	struct session *session = asking->base.request.session;
	struct wire_out out;
	struct call *call = NULL;
	if ((asking->executor || asking->local) && !(call = new_call(asking))) {
		kernel_request_fail(&asking->base, KILN_ENOMEM, "out of memory for a prepared call", "");
		return;
	}
	reply_begin(&out, asking->base.request.id);
	if (call)
		wire_put_uint(&out, "call", call_id(call));
	wire_put_str(&out, "key", asking->kernel->key);
	wire_put_str(&out, "origin", origin);
	wire_put_str(&out, "text", kernel_text(asking->kernel));
	wire_put_int(&out, "bytes", asking->object_bytes);
	if (asking->executor && asking->base.ref->raw)
		handle_put_params(asking->executor, asking->base.ref->key, &out);
	wire_put_uint(&out, "micros", util_now_us() - asking->base.began_us);
	reply_send(session, &out, NULL, 0);
	kernel_request_end(&asking->base);
}

static void resolve(struct call_request *asking, struct kernel_ref *kernel, bool look);

static void on_call_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct call_request *asking = arg;
	char sentence[KERNEL_ERROR_MAX + 192], label[160];
	kernel_request_arrived(&asking->base);
	/* The cache has dropped a kernel that cannot be loaded. */
	if (status == KILN_ECOMPILE && !asking->remade) {
		asking->remade = true;
		resolve(asking, asking->kernel, false);
		return;
	}
	asking->base.parts.us[RECENT_LOAD] += util_now_us() - asking->load_us;
	if (reply)
		job_note_load(asking->base.request.session, asking->kernel, asking->load_us, reply);
	if (status != KILN_OK && asking->base.ref->raw) {
		snprintf(sentence, sizeof(sentence), "%s cannot be loaded: %s",
				 raw_label(&asking->base.ref->plan, label), error);
		error = sentence;
	}
	/* The next process loads the kernel with the first launch.  A user's kernel is not loaded
	 * again: the process may have died of it. */
	if (status != KILN_OK && (status != KILN_EDEVICE || asking->base.ref->raw))
		kernel_request_fail(&asking->base, status, error, "");
	else
		answer_success(asking, job_origin_names[asking->origin]);
}

/* The generic kernel is compiled if no cache has the exact one, for it will serve other shapes,
 * too.  If that fails, the exact one is compiled. */
static bool try_other(struct call_request *asking, int status)
{
	struct tier *tier = asking->base.ref->tier;
	if (asking->looking)
		resolve(asking, tier->generic, false);
	else if (tier && asking->kernel == tier->generic && status != KILN_EFROZEN)
		resolve(asking, asking->base.ref, false);
	else
		return false;
	return true;
}

static void on_call_answer(void *arg, const struct job_answer *answer)
{
	struct call_request *asking = arg;
	struct device_handle *executor = asking->executor;
	kernel_request_arrived(&asking->base);
	job_answer_note(answer, &asking->base.parts);
	if (answer->status != KILN_OK && try_other(asking, answer->status))
		return;
	if (answer->status != KILN_OK) {
		kernel_request_fail(&asking->base, answer->status, answer->error, answer->log);
		return;
	}
	asking->origin = answer->origin;
	asking->object_bytes = (int64_t)answer->row->object_bytes;
	if (asking->base.ref->tier)
		tier_know(asking->base.broker, asking->kernel, asking->object_bytes);
	if (executor && handle_is_ready(executor)) {
		asking->load_us = util_now_us();
		if (kernel_request_load(&asking->base, executor, answer->row, &asking->kernel->plan,
								on_call_loaded))
			return;
	}
	answer_success(asking, job_origin_names[asking->origin]);
}

/* The answer may come from in here and free the request, so callers do nothing after it. */
static void resolve(struct call_request *asking, struct kernel_ref *kernel, bool look)
{
	struct job_terms terms = job_terms_of(asking->base.request.session);
	/* Nothing runs, so nobody waits for a call: the owner fills the cache. */
	if (!asking->executor && !asking->local && session_is_owner(asking->base.request.session))
		terms.on_miss = OPTIONS_MISS_COMPILE;
	if (look)
		terms.purpose = JOB_LOOK;
	asking->kernel = kernel;
	asking->looking = look;
	if (!job_resolve_kept(asking->base.broker, kernel, &terms, on_call_answer, asking))
		kernel_request_resolve(&asking->base, kernel, &terms, on_call_answer);
}

static void call_ask(struct call_request *asking)
{
	if (asking->base.ref->plan.kind != KERNEL_LAUNCH) {
		asking->base.broker->counters.copies++;
		answer_success(asking, "copy");
		return;
	}
	resolve(asking, asking->base.ref, false);
}

/* Prepares the call and launches it; the end of the launch is the answer.  Only a call whose
 * kernel is there is launched so: the buffers of one that waits for its kernel may be gone by
 * then. */
static void answer_launch(struct call_request *asking)
{
	const struct work_order order = {.first = true, .wants_lane = asking->wants_lane};
	struct session *session = asking->base.request.session;
	struct kernel_ref *ref = kernel_hold(asking->base.ref);
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	uint64_t id = asking->base.request.id;
	char error[KERNEL_ERROR_MAX];
	struct call *call = new_call(asking);
	if (!call) {
		kernel_request_fail(&asking->base, KILN_ENOMEM, "out of memory for a prepared call", "");
		kernel_drop(ref);
		return;
	}
	memcpy(operands, asking->operands, sizeof(operands));
	asking->base.noted = false; /* the launch is */
	kernel_request_end(&asking->base);
	int status = work_launch(session, id, call, ref, operands, &order, error);
	if (status != KILN_OK) {
		call_forget(session, call_id(call));
		reply_error(session, id, status, "%s", error);
	}
	kernel_drop(ref);
}

/* Answers with a kernel that the device process has. */
static void answer_resident(struct call_request *asking, struct kernel_ref *kernel,
							enum job_origin origin)
{
	asking->kernel = kernel;
	job_count_resident(asking->base.broker, kernel, asking->base.request.session, origin,
					   util_now_us() - asking->base.began_us);
	if (asking->runs)
		answer_launch(asking);
	else
		answer_success(asking, job_origin_names[origin]);
}

/* Chooses the kernel of a call that will be launched. */
static void ask_tiers(struct call_request *asking)
{
	bool never = tier_policy(asking->base.request.session) == OPTIONS_NEVER;
	switch (tier_open(asking->base.request.session, &asking->problem, asking->base.ref, NULL)) {
	case TIER_NONE:
		call_ask(asking);
		break;
	case TIER_EXACT:
		answer_resident(asking, asking->base.ref, JOB_HIT);
		break;
	case TIER_GENERIC:
		answer_resident(asking, asking->base.ref->tier->generic, JOB_GENERIC);
		break;
	case TIER_WAIT:
		resolve(asking, never ? asking->base.ref->tier->generic : asking->base.ref, !never);
		break;
	}
}

void serve_prepare(struct session *session, struct wire_in *message)
{
	const uint64_t number = wire_get_uint(&message->root, "bound", 0);
	if (number) {
		take_bound(session, message, number);
		return;
	}
	if (!planned_may_be_kept(session, wire_id(message)))
		return;
	struct call_request *asking = plan_call(session, message, NULL, true);
	if (!asking)
		return;
	asking->executor = session->executor;
	ask_tiers(asking);
}

static void on_raw_ready(void *arg, int status, const char *error)
{
	struct call_request *asking = arg;
	kernel_request_arrived(&asking->base);
	if (status == KILN_OK)
		call_ask(asking);
	else
		kernel_request_fail(&asking->base, status, error, "");
}

void command_ask_raw(struct session *session, uint64_t id, struct kernel_ref *ref,
					 struct device_handle *executor, bool local)
{
	struct call_request *asking = open_call(session, id, ref);
	if (!asking)
		return;
	asking->local = local;
	memcpy(asking->problem.op, ref->plan.op, sizeof(asking->problem.op));
	asking->executor = executor;
	if (executor)
		kernel_request_start(&asking->base, executor, on_raw_ready);
	else
		call_ask(asking);
}

void serve_compile(struct session *session, struct wire_in *message)
{
	struct call_request *asking =
		plan_call(session, message, wire_get_str(message, &message->root, "target"), false);
	if (asking)
		call_ask(asking);
}
