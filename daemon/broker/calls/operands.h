/* operands: which buffers a launch of a prepared call uses, and which variant of the call fits. */
#ifndef KILN_DAEMON_OPERANDS_H
#define KILN_DAEMON_OPERANDS_H

#include <client/wire/wire.h>

#include "call.h"

/* Says whether the problem does without this optional operand. */
bool operand_left_out(const struct kernel_problem *problem, int i);
/* Checks that buffers hold what the plan touches, and that outputs overlap no other operand. */
int operands_check(const struct kernel_plan *plan, const struct work_operand *operands,
				   char error[KERNEL_ERROR_MAX]);
/* Finds the variant of the call for operands that are so aligned, each 1, 2, 4, 8 or 16 bytes, 0
 * where it has no memory; plans anew when none fits.  The caller gets a hold of it. */
int operands_variant(struct session *session, struct call *call,
					 const uint32_t alignments[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
					 char error[KERNEL_ERROR_MAX]);
/* Reads a list of [buffer, offset] and finds the variant for that; the caller gets a hold of it. */
int operands_place(struct session *session, const msgpack_object *list, struct call *call,
				   struct work_operand operands[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
				   char error[KERNEL_ERROR_MAX]);

#endif
