/* decode.c: reads a problem from a message, and finds the buffers that it names. */
#include "decode.h"

#include "buffer_state.h"
#include "daemon/base/util.h"
#include "daemon/plan/decode.h"

int decode_problem(struct session *session, struct wire_in *message, struct kernel_problem *problem,
				   struct buffer *buffers[KERNEL_MAX_OPERANDS],
				   uint64_t offsets[KERNEL_MAX_OPERANDS], char error[KERNEL_ERROR_MAX])
{
	uint64_t numbers[KERNEL_MAX_OPERANDS];
	char number[24];
	int status = plan_decode(message, problem, numbers, offsets, error);
	for (int i = 0; status == KILN_OK && i < problem->tensor_count; i++) {
		buffers[i] = numbers[i] ? buffer_find(session, numbers[i]) : NULL;
		if (numbers[i] && !buffers[i])
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
							 "%s names buffer %llu, which this session does not have",
							 plan_decode_name(plan_find(problem->op), i, number),
							 (unsigned long long)numbers[i]);
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE)
			problem->tensors[i].alignment = buffer_alignment(buffers[i], offsets[i]);
	}
	return status;
}
