/* launch_encode.c: how messages describe the launch of a planned kernel. */
#include "launch_encode.h"

void launch_put_shape(struct wire_out *message, const struct kernel_plan *plan)
{
	int64_t grid[3], block[3];
	for (int i = 0; i < 3; i++) {
		grid[i] = plan->grid[i];
		block[i] = plan->block[i];
	}
	wire_put_ints(message, "grid", grid, 3);
	wire_put_ints(message, "block", block, 3);
	wire_put_uint(message, "shared", plan->shared_bytes);
}

void launch_put_argument(struct wire_out *message, const struct kernel_arg *arg)
{
	if (arg->kind == KERNEL_ARG_BYTES) {
		wire_put_bin(message, NULL, arg->data, arg->bytes);
		return;
	}
	wire_list_begin(message, NULL);
	switch (arg->kind) {
	case KERNEL_ARG_POINTER:
		wire_put_int(message, NULL, 0);
		wire_put_int(message, NULL, arg->operand);
		break;
	case KERNEL_ARG_SCALAR:
		wire_put_int(message, NULL, 1);
		wire_put_uint(message, NULL, arg->bytes);
		wire_put_uint(message, NULL, arg->value);
		break;
	case KERNEL_ARG_SCRATCH:
		wire_put_int(message, NULL, 2);
		break;
	case KERNEL_ARG_REPORT:
		wire_put_int(message, NULL, 3);
		break;
	case KERNEL_ARG_BYTES:
		break; /* put above: it is no list */
	}
	wire_list_end(message);
}

void launch_put_scratch(struct wire_out *message, const struct kernel_scratch *scratch)
{
	if (!scratch->bytes)
		return;
	wire_list_begin(message, "scratch");
	wire_put_uint(message, NULL, scratch->bytes);
	wire_put_uint(message, NULL, scratch->counters);
	wire_list_end(message);
}
