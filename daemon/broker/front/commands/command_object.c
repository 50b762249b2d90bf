/*
 * command_object.c: the request "object" gives a prepared call to its program, which launches it in
 * its own context.  The answer has the description of a launch and the compiled kernel, which is
 * found as for a launch here.  A program that says so gets the generic kernel first, and asks again
 * for the exact one, by the number of its launches.
 */
#include <string.h>
#include <unistd.h>

#include "kernel_request.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/launch_encode.h"
#include "daemon/broker/calls/operands.h"
#include "planned.h"

#define LAUNCHES_MOST 1000000000 /* that one request counts */

/* ---- What a launch is ---- */

static void put_operands(struct wire_out *out, const struct kernel_plan *plan)
{
	char name[24];
	wire_list_begin(out, "operands");
	for (int i = 0; i < plan->operand_count; i++) {
		const struct kernel_extent *extent = &plan->extents[i];
		wire_map_begin(out, NULL);
		wire_put_str(out, "n", kernel_operand_name(plan->operands, i, name));
		wire_put_uint(out, "bytes", extent->bytes);
		wire_put_uint(out, "align", extent->alignment ? extent->alignment : 1);
		wire_put_bool(out, "written", extent->written);
		wire_put_uint(out, "over", extent->over);
		wire_put_uint(out, "period", extent->period);
		wire_put_uint(out, "width", extent->width);
		wire_map_end(out);
	}
	wire_list_end(out);
}

static void put_template(struct wire_out *out, const struct kernel_plan *plan)
{
	wire_map_begin(out, "template");
	wire_put_str(out, "kind", planned_kind_name(plan));
	launch_put_shape(out, plan);
	wire_put_uint(out, "copy", plan->copy_bytes);
	launch_put_scratch(out, &plan->scratch);
	wire_list_begin(out, "args");
	for (int i = 0; i < plan->arg_count; i++)
		launch_put_argument(out, &plan->args[i]);
	wire_list_end(out);
	put_operands(out, plan);
	wire_map_end(out);
}

/* A request for a kernel to be launched by the program. */
struct object_request {
	struct kernel_request base; /* ref: the variant */
	struct kernel_ref *kernel;  /* base.ref or its generic kernel: the one that is resolved */
	bool looking;               /* only the cache is asked for it */
	bool takes_generic;         /* the program asks again for a better one */
	bool asks_again;            /* it has the generic kernel */
};

/* The program goes on with the generic kernel. */
static void answer_again(struct object_request *asking)
{
	struct session *session = asking->base.request.session;
	struct wire_out out;
	reply_begin(&out, asking->base.request.id);
	wire_put_uint(&out, "again", tier_again(session, asking->base.ref));
	reply_send(session, &out, NULL, 0);
	kernel_request_end(&asking->base);
}

/* row: NULL for a plan that needs no kernel. */
static void object_answer(struct object_request *asking, const struct cache_row *row)
{
	struct session *session = asking->base.request.session;
	uint64_t id = asking->base.request.id;
	struct wire_out out;
	int fd = row ? frame_sealed("kiln-object", row->object, row->object_bytes) : -1;
	if (row && fd < 0) {
		reply_error(session, id, KILN_ENOMEM, "out of memory for an object of %llu bytes",
					(unsigned long long)row->object_bytes);
		kernel_request_end(&asking->base);
		return;
	}
	asking->base.broker->counters.objects++;
	reply_begin(&out, id);
	wire_put_str(&out, "key", row ? row->key : "");
	wire_put_str(&out, "target", asking->kernel->target);
	wire_put_str(&out, "entry", row ? row->entry : "");
	put_template(&out, &asking->kernel->plan);
	if (asking->takes_generic && asking->kernel != asking->base.ref)
		wire_put_uint(&out, "again", tier_again(session, asking->base.ref));
	reply_send(session, &out, &fd, row ? 1 : 0);
	if (fd >= 0)
		close(fd);
	kernel_request_end(&asking->base);
}

static void object_resolve(struct object_request *asking, struct kernel_ref *kernel, bool look);

/* The generic kernel serves if no cache has the exact one.  If that fails, too, the exact one is
 * compiled. */
static bool object_try_other(struct object_request *asking, const struct job_answer *found)
{
	struct kernel_ref *ref = asking->base.ref;
	if (asking->looking) {
		if (found->status == KILN_ENOENT)
			tier_missed(ref);
		if (asking->asks_again)
			answer_again(asking);
		else
			object_resolve(asking, ref->tier->generic, false);
	} else if (asking->takes_generic && asking->kernel != ref && found->status != KILN_EFROZEN) {
		object_resolve(asking, ref, false);
	} else {
		return false;
	}
	return true;
}

static void on_object_answer(void *arg, const struct job_answer *found)
{
	struct object_request *asking = arg;
	kernel_request_arrived(&asking->base);
	asking->base.noted = true;
	job_answer_note(found, &asking->base.parts);
	if (found->status == KILN_OK) {
		struct broker *broker = asking->base.broker;
		if (asking->base.ref->tier)
			tier_know(broker, asking->kernel, (int64_t)found->row->object_bytes);
		if (asking->takes_generic && asking->kernel != asking->base.ref)
			tier_keep_object(broker, asking->kernel, found->row);
		object_answer(asking, found->row);
		return;
	}
	if (object_try_other(asking, found))
		return;
	reply_error(asking->base.request.session, asking->base.request.id, found->status, "%s",
				found->error);
	kernel_request_end(&asking->base);
}

static void object_resolve(struct object_request *asking, struct kernel_ref *kernel, bool look)
{
	struct job_terms terms = job_terms_of(asking->base.request.session);
	if (look)
		terms.purpose = JOB_LOOK;
	asking->kernel = kernel;
	asking->looking = look;
	kernel_request_resolve(&asking->base, kernel, &terms, on_object_answer);
}

/* ---- Asking ---- */

/* No process of the daemon reads the report of a launch in the program's own context. */
static int check_report(const struct kernel_problem *problem, const struct kernel_plan *plan,
						char error[KERNEL_ERROR_MAX])
{
	if (!plan->report.indices)
		return KILN_OK;
	bool map = plan->report.end == UINT64_MAX;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "%s counts indices that are out of range, and a launch in the caller's own "
					 "context has nobody to tell: prepare it with attribute bounds %s, or use "
					 "kiln_submit()",
					 problem->op, map ? "clamp or zero, and without checked" : "clamp or trust");
}

static int read_alignments(struct wire_in *message, const struct call *call,
						   uint32_t alignments[KERNEL_MAX_OPERANDS], char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = call_problem(call);
	int64_t values[KERNEL_MAX_OPERANDS];
	int given = call_given(call);
	int count = wire_get_ints(&message->root, "alignments", values, KERNEL_MAX_OPERANDS);
	memset(alignments, 0, sizeof(*alignments) * KERNEL_MAX_OPERANDS);
	if (count != given)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%s was prepared for %d operands; alignments of %d were given",
						 problem->op, given, count < 0 ? 0 : count);
	for (int i = 0; i < count; i++) {
		bool left_out = operand_left_out(problem, i);
		if (values[i] < 0 || values[i] > 16 || (values[i] & (values[i] - 1)) != 0 ||
			left_out != (values[i] == 0))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "operand %d is aligned to %lld bytes; it must be %s", i,
							 (long long)values[i], left_out ? "0" : "1, 2, 4, 8 or 16");
		alignments[i] = (uint32_t)values[i];
	}
	return KILN_OK;
}

static int find_variant(struct session *session, struct wire_in *message, struct kernel_ref **out,
						char error[KERNEL_ERROR_MAX])
{
	uint64_t number = wire_get_uint(&message->root, "call", 0);
	struct call *call = call_find(session, number);
	uint32_t alignments[KERNEL_MAX_OPERANDS];
	if (session->broker->draining)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED, "kilnd is shutting down");
	if (!call)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "this session has no prepared call %llu", (unsigned long long)number);
	if (call_kind(call) == CALL_GRAPH)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "the call is a graph, which its device process alone can launch: use "
						 "kiln_submit()");
	if (call_kind(call) == CALL_RAW) {
		*out = call_raw(call);
		return call_check_device(session, call, "the kernel", "prepare it again", error);
	}
	int status = read_alignments(message, call, alignments, error);
	if (status == KILN_OK)
		status = operands_variant(session, call, alignments, out, error);
	return status == KILN_OK ? check_report(call_problem(call), &(*out)->plan, error) : status;
}

static void object_give_generic(struct object_request *asking)
{
	struct session *session = asking->base.request.session;
	struct kernel_ref *generic = asking->base.ref->tier->generic;
	const struct cache_row *row = tier_object(session, generic);
	if (!row) {
		object_resolve(asking, generic, false);
		return;
	}
	asking->kernel = generic;
	job_count_resident(asking->base.broker, generic, session, JOB_GENERIC,
					   util_now_us() - asking->base.began_us);
	object_answer(asking, row);
}

/* launches: of the generic kernel, since the program last said. */
static void object_choose(struct object_request *asking, uint64_t launches)
{
	struct session *session = asking->base.request.session;
	struct kernel_ref *ref = asking->base.ref;
	tier_used(session, ref, launches < LAUNCHES_MOST ? launches : LAUNCHES_MOST);
	enum tier_answer answer = tier_choose_object(session, ref);
	if (answer == TIER_NONE)
		object_resolve(asking, ref, false);
	else if (answer == TIER_EXACT)
		object_resolve(asking, ref, true);
	else if (asking->asks_again)
		answer_again(asking);
	else if (answer == TIER_WAIT)
		object_resolve(asking, ref, true);
	else
		object_give_generic(asking);
}

void serve_object(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	struct kernel_ref *ref = NULL;
	char error[KERNEL_ERROR_MAX];
	int status = find_variant(session, message, &ref, error);
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		kernel_drop(ref);
		return;
	}
	struct object_request *asking = kernel_request_open(session, id, ref, sizeof(*asking));
	if (!asking)
		return;
	asking->kernel = ref;
	asking->takes_generic = wire_get_bool(&message->root, "generic", false);
	asking->asks_again = asking->takes_generic && wire_get(&message->root, "launches");
	if (ref->plan.kind != KERNEL_LAUNCH)
		object_answer(asking, NULL);
	else if (!asking->takes_generic)
		object_resolve(asking, tier_choose_lasting(session, ref), false);
	else
		object_choose(asking, wire_get_uint(&message->root, "launches", 0));
}
