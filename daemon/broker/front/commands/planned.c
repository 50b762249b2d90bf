/* planned.c: decodes, infers, plans, and looks where the operands lie. */
#include "planned.h"

#include <string.h>

#include "daemon/base/util.h"
#include "daemon/broker/calls/call.h"
#include "daemon/broker/calls/decode.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/operands.h"
#include "daemon/broker/kernels/cli_line.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/plan/plan.h"

const char *planned_kind_name(const struct kernel_plan *plan)
{
	static const char *const names[] = {"nothing", "copy", "launch"};
	return names[plan->kind];
}

int planned_limits(struct session *session, const char *target, struct kernel_limits *limits,
				   const char **model, char error[KERNEL_ERROR_MAX])
{
	*model = "";
	if (session->broker->draining)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED, "kilnd is shutting down");
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

static bool may_add(struct session *session, uint64_t id, uint64_t calls)
{
	const struct options *options = &session->broker->options;
	if (!session->executor)
		reply_error(session, id, KILN_ENOTSUP,
					"this kilnd has no device (--device none); it only compiles");
	else if (calls >= options->max_calls)
		reply_error(session, id, KILN_ELIMIT,
					"this session has %llu prepared calls, the most it may have (--max-calls)",
					(unsigned long long)options->max_calls);
	else
		return true;
	return false;
}

bool planned_may_be_kept(struct session *session, uint64_t id)
{
	return may_add(session, id, owned_count(session).calls + lane_untold(session));
}

bool planned_may_be_told(struct session *session, uint64_t id)
{
	return may_add(session, id, owned_count(session).calls);
}

/* Notes where the operands lie. */
static void place(struct planned *out, struct buffer *const buffers[KERNEL_MAX_OPERANDS],
				  const uint64_t offsets[KERNEL_MAX_OPERANDS])
{
	out->placed = out->made = true;
	for (int i = 0; i < out->problem.tensor_count; i++) {
		out->operands[i] = (struct work_operand){buffers[i], offsets[i]};
		out->placed = out->placed && (buffers[i] || operand_left_out(&out->problem, i));
		out->made = out->made && !(buffers[i] && buffer_is_making(buffers[i]));
	}
}

/* Has the generic kernel launch the call before the exact one is planned, where that may be.  What
 * the generic kernel refuses is planned, and refused with the sentence of the exact kernel. */
static bool take_first(struct session *session, struct planned *out)
{
	char error[KERNEL_ERROR_MAX];
	out->ref = out->placed && out->made ? tier_first(session, &out->problem) : NULL;
	if (out->ref && operands_check(&out->ref->plan, out->operands, error) != KILN_OK) {
		kernel_drop(out->ref);
		out->ref = NULL;
	}
	return out->ref != NULL;
}

int planned_open(struct session *session, struct wire_in *message, const char *target,
				 bool launched, struct planned *out, char error[KERNEL_ERROR_MAX])
{
	struct buffer *buffers[KERNEL_MAX_OPERANDS] = {0};
	uint64_t offsets[KERNEL_MAX_OPERANDS] = {0};
	const char *model;
	int status = planned_limits(session, target, &out->limits, &model, error);
	if (status == KILN_OK)
		status = decode_problem(session, message, &out->problem, buffers, offsets, error);
	out->given = out->problem.tensor_count;
	if (status == KILN_OK)
		status = launched ? plan_required(&out->problem, error) : plan_infer(&out->problem, error);
	if (status != KILN_OK)
		return status;
	place(out, buffers, offsets);
	out->first =
		launched && wire_get_bool(&message->root, "run", false) && take_first(session, out);
	if (out->first)
		return KILN_OK;
	status = job_open(session->broker, &out->problem, &out->limits, model, &out->ref, error);
	if (status != KILN_OK)
		return status;
	/* A session that may not have it compiled is told the command that does. */
	if (session->on_miss)
		out->ref->line = line_of_problem(&out->problem);
	if (out->placed)
		status = operands_check(&out->ref->plan, out->operands, error);
	if (status != KILN_OK) {
		kernel_drop(out->ref);
		out->ref = NULL;
	}
	return status;
}
