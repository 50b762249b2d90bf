/*
 * permute_ops.c: the row of permute.
 */
#include "permute.h"

const struct plan_op plan_ops_permute[] = {
	{
		.name = "permute",
		.operands = {{"x", OP_BITS}, {"y"}},
		.attributes = {{"perm", KILN_ATTR_INTS, "1,0", "axis k of y is axis perm[k] of x",
						.text = "which dimension of x each dimension of y is", .needed = true}},
		.summary =
			"y = x with its dimensions reordered, bit for bit; x may be strided or broadcast",
		.gains = {{"tile", 1.16, 1.01},
				  {"vector", 1.06, 1.01},
				  {"interleave", 1.14, 1.58},
				  {"shift", 2.99, 2.99},
				  {NULL, 1.2, 1.2}},
		.plan = permute_plan,
		.infer = permute_infer,
		.choices = permute_choices,
		.generics = permute_generics,
	},
	{.name = NULL},
};
