/* command_call.c: explain, compile, prepare, submit: from a message to a plan, a kernel, a launch.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "plan/plan.h"
#include "pool.h"
#include "store.h"
#include "util/util.h"

static const char *const kind_names[] = {"nothing", "copy", "launch"};

void command_put_plan(struct wire_out *out, const struct kernel_plan *plan)
{
	int64_t grid[3], block[3];
	for (int i = 0; i < 3; i++) {
		grid[i] = plan->grid[i];
		block[i] = plan->block[i];
	}
	wire_map_begin(out, "plan");
	wire_put_str(out, "op", plan->op);
	wire_put_str(out, "kind", kind_names[plan->kind]);
	wire_put_str(out, "variant", plan->variant);
	wire_put_str(out, "choice", plan->choice);
	wire_put_str(out, "source", plan->source);
	wire_put_str(out, "instantiation", plan->instantiation);
	wire_put_ints(out, "grid", grid, 3);
	wire_put_ints(out, "block", block, 3);
	wire_put_uint(out, "shared", plan->shared_bytes);
	wire_put_uint(out, "scratch", plan->scratch.bytes);
	wire_put_uint(out, "bytes_moved", plan->bytes_moved);
	wire_put_str(out, "note", plan->note);
	wire_map_end(out);
}

/* A problem on its way to a kernel, for whichever request. */
struct asking {
	struct request request;
	struct broker *broker;
	struct kernel_problem problem;
	int given; /* tensors of the request */
	struct kernel_limits limits;
	struct kernel_ref *ref;
	struct job_wait *wait;
	uint64_t started_us;
	bool prepares;           /* else it only compiles */
	struct executor *loader; /* while a load is under way */
	int64_t object_bytes;
	enum job_origin origin;
	bool cached, in_store; /* explain */
};

static void asking_free(struct asking *asking)
{
	request_close(&asking->request);
	kernel_drop(asking->ref);
	free(asking);
}

static void asking_abandon(struct request *request)
{
	struct asking *asking = (struct asking *)request;
	if (asking->wait)
		job_leave(asking->broker, asking->wait);
	if (asking->loader)
		executor_disown(asking->loader, asking);
	kernel_drop(asking->ref);
	free(asking);
}

/* The limits to plan for, and the model: the session's device, or a target that may not be here. */
static int limits_for(struct session *session, const char *target, struct kernel_limits *limits,
					  const char **model, char error[KERNEL_ERROR_MAX])
{
	*model = "";
	if (session->device && (!target || !strcmp(target, session->device->info.limits.target))) {
		*limits = session->device->info.limits;
		*model = session->device->info.model;
		return KILN_OK;
	}
	if (!target)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "this kilnd has no device (--device none); name a target such as sm_90");
	return plan_limits_for(target, limits, error);
}

static bool share_a_byte(const struct kernel_plan *plan, const struct work_operand *operands, int i,
						 int k)
{
	return operands[i].buffer && operands[k].buffer &&
		   buffer_overlap(&operands[i], plan->extents[i].bytes, &operands[k],
						  plan->extents[k].bytes);
}

/* Where the tensors lie must hold what the plan touches, and outputs must not overlap anything. */
static int check_operands(const struct kernel_plan *plan, const struct work_operand *operands,
						  char error[KERNEL_ERROR_MAX])
{
	char name[24], other[24], label[96];
	for (int i = 0; i < plan->operand_count; i++) {
		const struct buffer *buffer = operands[i].buffer;
		uint64_t bytes = plan->extents[i].bytes, offset = operands[i].offset;
		if (!buffer)
			continue;
		if (offset > buffer->bytes || bytes > buffer->bytes - offset)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "%s needs %llu bytes at offset %llu of %s, which has %llu bytes",
							 decode_operand_name(plan->op, i, name), (unsigned long long)bytes,
							 (unsigned long long)offset, buffer_label(buffer, label),
							 (unsigned long long)buffer->bytes);
	}
	for (int i = 0; i < plan->operand_count; i++)
		for (int k = 0; k < plan->operand_count; k++) {
			if (i == k || !plan->extents[k].written || !share_a_byte(plan, operands, i, k))
				continue;
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "%s and %s overlap in %s; an output may share no byte with another "
							 "operand",
							 decode_operand_name(plan->op, i, name),
							 decode_operand_name(plan->op, k, other),
							 buffer_label(operands[i].buffer, label));
		}
	return KILN_OK;
}

static bool is_left_out(const struct kernel_problem *problem, int i)
{
	return i >= problem->tensor_count || problem->tensors[i].dtype == KILN_DTYPE_NONE;
}

static struct asking *asking_new(struct session *session, struct wire_in *message,
								 const char *target)
{
	struct buffer *buffers[KERNEL_MAX_OPERANDS] = {0};
	uint64_t offsets[KERNEL_MAX_OPERANDS] = {0};
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	const char *model;
	struct asking *asking = calloc(1, sizeof *asking);
	int status = asking ? limits_for(session, target, &asking->limits, &model, error)
						: util_fail(error, sizeof error, KILN_ENOMEM, "out of memory");
	if (status == KILN_OK && session->broker->draining)
		status = util_fail(error, sizeof error, KILN_ECANCELED, "kilnd is shutting down");
	if (status == KILN_OK)
		status = decode_problem(session, message, &asking->problem, buffers, offsets,
								&asking->given, error);
	if (status == KILN_OK)
		status = job_open(session->broker, &asking->problem, &asking->limits, model, &asking->ref,
						  error);
	if (status == KILN_OK) {
		struct work_operand operands[KERNEL_MAX_OPERANDS];
		bool placed = true;
		for (int i = 0; i < asking->ref->plan.operand_count; i++) {
			operands[i] = (struct work_operand){buffers[i], offsets[i]};
			placed = placed && (buffers[i] || is_left_out(&asking->problem, i));
		}
		if (placed)
			status = check_operands(&asking->ref->plan, operands, error);
	}
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		if (asking)
			kernel_drop(asking->ref);
		free(asking);
		return NULL;
	}
	asking->started_us = util_now_us();
	asking->broker = session->broker;
	if (!request_open(session, id, &asking->request, asking_abandon)) {
		kernel_drop(asking->ref);
		free(asking);
		return NULL;
	}
	return asking;
}

/* ---- Answers ---- */

static void answer_failure(struct asking *asking, int status, const char *error, const char *log)
{
	struct wire_out out;
	wire_begin(&out, "reply", asking->request.id);
	wire_put_int(&out, "st", status);
	wire_put_str(&out, "err", error);
	wire_put_str(&out, "log", log);
	reply_send(asking->request.session, &out, NULL, 0);
	asking_free(asking);
}

static uint64_t new_call(struct asking *asking)
{
	struct session *session = asking->request.session;
	struct call *call = calloc(1, sizeof *call);
	if (!call)
		return 0;
	call->id = broker_id(session->broker);
	call->holders = 1;
	call->problem = asking->problem;
	call->given = asking->given;
	call->variants[call->variant_count++] = kernel_hold(asking->ref);
	if (map_put_id(&session->calls, call->id, call) < 0) {
		call_drop(call);
		return 0;
	}
	return call->id;
}

static void answer_success(struct asking *asking, const char *origin)
{
	struct session *session = asking->request.session;
	struct wire_out out;
	uint64_t call = 0;
	if (asking->prepares && !(call = new_call(asking))) {
		answer_failure(asking, KILN_ENOMEM, "out of memory for a prepared call", "");
		return;
	}
	reply_begin(&out, asking->request.id);
	if (call)
		wire_put_uint(&out, "call", call);
	wire_put_str(&out, "key", asking->ref->key);
	wire_put_str(&out, "origin", origin);
	wire_put_str(&out, "text", asking->ref->explain);
	wire_put_int(&out, "bytes", asking->object_bytes);
	wire_put_uint(&out, "micros", util_now_us() - asking->started_us);
	reply_send(session, &out, NULL, 0);
	asking_free(asking);
}

static void on_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct asking *asking = arg;
	(void)reply;
	asking->loader = NULL;
	/* A process that went away meanwhile loads it again with the first launch. */
	if (status != KILN_OK && status != KILN_EDEVICE)
		answer_failure(asking, status, error, "");
	else
		answer_success(asking, job_origin_names[asking->origin]);
}

static void on_answer(void *arg, const struct job_answer *answer)
{
	struct asking *asking = arg;
	struct executor *executor = asking->request.session->executor;
	asking->wait = NULL;
	if (answer->status != KILN_OK) {
		answer_failure(asking, answer->status, answer->error, answer->log);
		return;
	}
	asking->origin = answer->origin;
	asking->object_bytes = (int64_t)answer->row->object_bytes;
	if (asking->prepares && executor && executor_is_ready(executor)) {
		asking->loader = executor;
		int status = executor_load(executor, answer->row->key, answer->row,
								   asking->ref->plan.shared_bytes, on_loaded, asking);
		if (status == KILN_OK)
			return;
		asking->loader = NULL;
	}
	answer_success(asking, job_origin_names[asking->origin]);
}

static void ask(struct asking *asking)
{
	struct broker *broker = asking->broker;
	if (asking->ref->plan.kind != KERNEL_LAUNCH) {
		broker->counters.copies++;
		answer_success(asking, "copy");
		return;
	}
	asking->wait = job_resolve(broker, asking->ref, true, on_answer, asking);
	if (!asking->wait)
		answer_failure(asking, KILN_ENOMEM, "out of memory for a compile job", "");
}

void command_prepare(struct session *session, struct wire_in *message, struct frame *frame)
{
	const struct options *options = &session->broker->options;
	(void)frame;
	if (!session->executor) {
		reply_error(session, wire_id(message), KILN_ENOTSUP,
					"this kilnd has no device (--device none); it only compiles");
		return;
	}
	if (session->calls.count >= options->max_calls) {
		reply_error(session, wire_id(message), KILN_ELIMIT,
					"this session has %llu prepared calls, the most it may have (--max-calls)",
					(unsigned long long)options->max_calls);
		return;
	}
	struct asking *asking = asking_new(session, message, NULL);
	if (!asking)
		return;
	asking->prepares = true;
	ask(asking);
}

void command_compile(struct session *session, struct wire_in *message, struct frame *frame)
{
	(void)frame;
	struct asking *asking =
		asking_new(session, message, wire_get_str(message, &message->root, "target"));
	if (asking)
		ask(asking);
}

/* ---- explain ---- */

static void explain_work(struct cache *cache, void *arg)
{
	struct asking *asking = arg;
	struct cache_row row = {0};
	char error[KERNEL_ERROR_MAX];
	asking->cached = cache_show(cache, asking->ref->key, &row, error) == KILN_OK;
	cache_row_free(&row);
}

static void explain_done(struct broker *broker, void *arg)
{
	struct asking *asking = arg;
	struct session *session = asking->request.session;
	struct wire_out out;
	(void)broker;
	if (!session) {
		kernel_drop(asking->ref);
		free(asking);
		return;
	}
	reply_begin(&out, asking->request.id);
	command_put_plan(&out, &asking->ref->plan);
	wire_put_str(&out, "text", asking->ref->explain);
	wire_put_str(&out, "target", asking->ref->target);
	wire_put_str(&out, "key", asking->ref->key);
	wire_put_str(&out, "key_text", asking->ref->key_text);
	wire_put_bool(&out, "cached", asking->cached);
	command_put_tuning(&out, asking->ref, &asking->problem, &asking->limits);
	reply_send(session, &out, NULL, 0);
	asking_free(asking);
}

/* While the store's thread holds it, it is only marked; explain_done frees it. */
static void explain_abandon(struct request *request)
{
	struct asking *asking = (struct asking *)request;
	pool_forget(asking->broker, asking);
	if (asking->in_store)
		return;
	kernel_drop(asking->ref);
	free(asking);
}

static void explain_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct asking *asking = arg;
	(void)toolchains;
	(void)error; /* no compiler: a plan without a key */
	if (asking->ref->plan.kind == KERNEL_LAUNCH)
		job_key(asking->broker, asking->ref);
	asking->in_store = asking->ref->key[0] &&
					   store_run(asking->broker, explain_work, explain_done, asking) == KILN_OK;
	if (!asking->in_store)
		explain_done(asking->broker, asking);
}

void command_explain(struct session *session, struct wire_in *message, struct frame *frame)
{
	(void)frame;
	struct asking *asking =
		asking_new(session, message, wire_get_str(message, &message->root, "target"));
	if (!asking)
		return;
	asking->request.abandon = explain_abandon;
	pool_when_known(session->broker, explain_known, asking);
}

/* ---- submit ---- */

static int decode_operand(struct session *session, const msgpack_object *pair,
						  const struct kernel_problem *problem, int i, struct work_operand *operand,
						  char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *id = wire_at(pair, 0), *offset = wire_at(pair, 1);
	bool left_out = is_left_out(problem, i);
	char name[24];
	if (!id || !offset || id->type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
		offset->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "operand %d is not a pair of buffer and offset", i);
	decode_operand_name(problem->op, i, name);
	if (left_out != (id->via.u64 == 0))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 left_out ? "%s: the call was prepared without %s and can have no buffer "
									"for it"
								  : "%s: %s has no buffer",
						 problem->op, name);
	if (left_out)
		return KILN_OK;
	operand->buffer = buffer_find(session, id->via.u64);
	operand->offset = offset->via.u64;
	if (!operand->buffer || operand->buffer->making)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "%s names buffer %llu, which this session does not have", name,
						 (unsigned long long)id->via.u64);
	return KILN_OK;
}

/* Also those that the call was prepared without, which have no buffer. */
static int decode_operands(struct session *session, struct wire_in *message,
						   const struct call *call,
						   struct work_operand operands[KERNEL_MAX_OPERANDS],
						   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = &call->problem;
	const msgpack_object *list = wire_get(&message->root, "operands");
	int status = KILN_OK;
	char name[24];
	memset(operands, 0, sizeof *operands * KERNEL_MAX_OPERANDS);
	if (wire_count(list) != (uint32_t)call->given)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%s was prepared for %d operands; %u were given", problem->op, call->given,
						 wire_count(list));
	for (int i = 0; i < call->given && status == KILN_OK; i++)
		status =
			decode_operand(session, wire_at(list, (uint32_t)i), problem, i, &operands[i], error);
	/* The shape of an output may follow from the inputs, but not where it lies. */
	for (int i = call->given; i < problem->tensor_count && status == KILN_OK; i++)
		if (!is_left_out(problem, i))
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							   "%s: the call was prepared without %s, which it needs to run",
							   problem->op, decode_operand_name(problem->op, i, name));
	return status;
}

static bool aligned_for(const struct kernel_plan *plan, const struct work_operand *operands)
{
	for (int i = 0; i < plan->operand_count; i++)
		if (operands[i].buffer && plan->extents[i].bytes &&
			buffer_alignment(operands[i].buffer, operands[i].offset) < plan->extents[i].alignment)
			return false;
	return true;
}

/* The variant of the call that fits these addresses; planned anew when none does. */
static int choose_variant(struct session *session, struct call *call,
						  const struct work_operand *operands, struct kernel_ref **out,
						  char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < call->variant_count; i++)
		if (aligned_for(&call->variants[i]->plan, operands)) {
			*out = kernel_hold(call->variants[i]);
			return KILN_OK;
		}
	struct kernel_problem problem = call->problem;
	for (int i = 0; i < problem.tensor_count; i++)
		if (operands[i].buffer)
			problem.tensors[i].alignment = buffer_alignment(operands[i].buffer, operands[i].offset);
	const struct device_info *info = &session->device->info;
	int status = job_open(session->broker, &problem, &info->limits, info->model, out, error);
	if (status == KILN_OK && call->variant_count < CALL_VARIANTS)
		call->variants[call->variant_count++] = kernel_hold(*out);
	return status;
}

void command_submit(struct session *session, struct wire_in *message, struct frame *frame)
{
	const msgpack_object *root = &message->root;
	uint64_t id = wire_id(message), number = wire_get_uint(root, "call", 0);
	uint64_t after = wire_get_uint(root, "after", 0);
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_ref *variant = NULL;
	char error[KERNEL_ERROR_MAX];
	struct call *call = map_get_id(&session->calls, number);
	int status;
	(void)frame;
	if (after == id)
		status = util_fail(error, sizeof error, KILN_EINVAL,
						   "call %llu follows itself; after names an earlier ticket",
						   (unsigned long long)id);
	else if (!call)
		status = util_fail(error, sizeof error, KILN_ENOENT,
						   "this session has no prepared call %llu", (unsigned long long)number);
	else
		status = decode_operands(session, message, call, operands, error);
	if (status == KILN_OK)
		status = check_operands(&call->variants[0]->plan, operands, error);
	if (status == KILN_OK)
		status = choose_variant(session, call, operands, &variant, error);
	if (status == KILN_OK)
		status = work_launch(session, id, call, variant, operands, after, error);
	kernel_drop(variant);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
}

void command_release(struct session *session, struct wire_in *message, struct frame *frame)
{
	uint64_t number = wire_get_uint(&message->root, "call", 0);
	struct call *call = map_remove_id(&session->calls, number);
	(void)frame;
	if (!call) {
		reply_error(session, wire_id(message), KILN_ENOENT,
					"this session has no prepared call %llu", (unsigned long long)number);
		return;
	}
	call_drop(call);
	reply_ok(session, wire_id(message));
}

void command_cancel(struct session *session, struct wire_in *message, struct frame *frame)
{
	uint64_t ticket = wire_get_uint(&message->root, "ticket", 0);
	(void)frame;
	if (!ticket) {
		reply_error(session, wire_id(message), KILN_EINVAL, "cancel names no ticket");
		return;
	}
	work_cancel(session, ticket);
	reply_ok(session, wire_id(message));
}
