/* operands.c: decodes and checks the operands of a launch, and finds the variant that fits them. */
#include "operands.h"

#include <string.h>

#include "call_state.h"
#include "daemon/base/util.h"
#include "daemon/broker/kernels/cli_line.h"
#include "daemon/broker/kernels/tier.h"

bool operand_left_out(const struct kernel_problem *problem, int i)
{
	return i >= problem->tensor_count || problem->tensors[i].dtype == KILN_DTYPE_NONE;
}

/* Lies an output in the place of the input that it may lie in? */
static bool is_over(const struct kernel_plan *plan, const struct work_operand *operands, int input,
					int output)
{
	return plan->extents[output].over == input + 1 &&
		   operands[input].buffer == operands[output].buffer &&
		   operands[input].offset == operands[output].offset;
}

int operands_check(const struct kernel_plan *plan, const struct work_operand *operands,
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
							 kernel_operand_name(plan->operands, i, name),
							 (unsigned long long)bytes, (unsigned long long)offset,
							 buffer_label(buffer, label), (unsigned long long)buffer->bytes);
	}
	for (int i = 0; i < plan->operand_count; i++)
		for (int k = 0; k < plan->operand_count; k++) {
			if (i == k || !plan->extents[k].written || !operands[i].buffer || !operands[k].buffer ||
				is_over(plan, operands, i, k) ||
				!buffer_overlap(&operands[i], &plan->extents[i], &operands[k], &plan->extents[k]))
				continue;
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "%s and %s overlap in %s; an output may share no byte with another "
							 "operand",
							 kernel_operand_name(plan->operands, i, name),
							 kernel_operand_name(plan->operands, k, other),
							 buffer_label(operands[i].buffer, label));
		}
	return KILN_OK;
}

static int decode_operand(struct session *session, const msgpack_object *pair,
						  const struct call *call, int i, struct work_operand *operand,
						  char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = &call->problem;
	const msgpack_object *id = wire_at(pair, 0), *offset = wire_at(pair, 1);
	bool left_out = operand_left_out(problem, i);
	char name[24];
	if (!id || !offset || id->type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
		offset->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "operand %d is not a pair of buffer and offset", i);
	kernel_operand_name(call->variants[0]->plan.operands, i, name);
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
	if (!operand->buffer || buffer_is_making(operand->buffer))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "%s names buffer %llu, which this session does not have", name,
						 (unsigned long long)id->via.u64);
	return KILN_OK;
}

/* Decodes all operands; those that the call was prepared without have no buffer. */
static int decode_operands(struct session *session, const msgpack_object *list,
						   const struct call *call,
						   struct work_operand operands[KERNEL_MAX_OPERANDS],
						   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_problem *problem = &call->problem;
	int status = KILN_OK;
	memset(operands, 0, sizeof(*operands) * KERNEL_MAX_OPERANDS);
	if (wire_count(list) != (uint32_t)call->given)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%s was prepared for %d operands; %u were given", problem->op, call->given,
						 wire_count(list));
	for (int i = 0; i < call->given && status == KILN_OK; i++)
		status = decode_operand(session, wire_at(list, (uint32_t)i), call, i, &operands[i], error);
	return status;
}

static bool aligned_for(const struct kernel_plan *plan,
						const uint32_t alignments[KERNEL_MAX_OPERANDS])
{
	for (int i = 0; i < plan->operand_count; i++)
		if (alignments[i] && plan->extents[i].bytes && alignments[i] < plan->extents[i].alignment)
			return false;
	return true;
}

/* The device is of another kind than when the call was prepared: it is planned anew. */
static int plan_anew(struct session *session, struct call *call, char error[KERNEL_ERROR_MAX])
{
	const struct device_entry *device = session->device;
	struct kernel_ref *ref;
	int status = job_open(session->broker, &call->problem, &device->info.limits, device->info.model,
						  &ref, error);
	if (status != KILN_OK)
		return status;
	(void)tier_open(session, &call->problem, ref, NULL);
	call->first = false;
	while (call->variant_count > 0)
		kernel_drop(call->variants[--call->variant_count]);
	memset(call->bound, 0, sizeof(call->bound));
	call->variants[call->variant_count++] = ref;
	call->device = device->kind;
	tier_attach(session, call->id, ref);
	return KILN_OK;
}

int operands_variant(struct session *session, struct call *call,
					 const uint32_t alignments[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
					 char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK;
	if (session->device && call->device != session->device->kind)
		status = plan_anew(session, call, error);
	if (status != KILN_OK)
		return status;
	call_settle(session, call);
	for (int i = 0; i < call->variant_count; i++)
		if (aligned_for(&call->variants[i]->plan, alignments)) {
			*out = kernel_hold(call->variants[i]);
			return KILN_OK;
		}
	struct kernel_problem problem;
	kernel_problem_copy(&problem, &call->problem);
	for (int i = 0; i < problem.tensor_count; i++)
		if (alignments[i])
			problem.tensors[i].alignment = alignments[i];
	const struct device_info *info = &session->device->info;
	status = job_open(session->broker, &problem, &info->limits, info->model, out, error);
	if (status != KILN_OK)
		return status;
	if (session->on_miss)
		(*out)->line = line_of_problem(&problem);
	(void)tier_open(session, &problem, *out, NULL);
	if (call->variant_count < CALL_VARIANTS) {
		call->variants[call->variant_count++] = kernel_hold(*out);
		tier_attach(session, call->id, *out);
	}
	return KILN_OK;
}

int operands_place(struct session *session, const msgpack_object *list, struct call *call,
				   struct work_operand operands[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
				   char error[KERNEL_ERROR_MAX])
{
	uint32_t alignments[KERNEL_MAX_OPERANDS];
	int status = decode_operands(session, list, call, operands, error);
	if (status == KILN_OK)
		status = operands_check(&call->variants[0]->plan, operands, error);
	if (status != KILN_OK)
		return status;
	for (int i = 0; i < KERNEL_MAX_OPERANDS; i++)
		alignments[i] =
			operands[i].buffer ? buffer_alignment(operands[i].buffer, operands[i].offset) : 0;
	return operands_variant(session, call, alignments, out, error);
}
