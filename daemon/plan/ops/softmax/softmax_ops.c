/*
 * softmax_ops.c: the rows of softmax, log_softmax and their backward.
 */
#include "softmax.h"

/* clang-format off */
#define ATTRIBUTES                                                                                 \
	{                                                                                              \
		{"axis", KILN_ATTR_INT, "N", "the dimension to go along, from the end if below 0", "-1", OP_AXIS},  \
		{"scale", KILN_ATTR_REAL, "X", "factor of x", "1", OP_FINITE},                                        \
	}
/* clang-format on */

const struct plan_op plan_ops_softmax[] = {
	{
		.name = "softmax",
		.operands = {{"x", OP_NORMAL}, {"y"}},
		.attributes = ATTRIBUTES,
		.summary = "y = exp(scale * x) along an axis, divided by its sum",
		.gains = {{"strided-twice", 1.0, 1.0},
				  {"rows", 1.15, 1.15},
				  {"skewed", 2.3, 2.3},
				  {NULL, 1.7, 1.7}},
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_generics,
	},
	{
		.name = "log_softmax",
		.operands = {{"x", OP_NORMAL}, {"y"}},
		.attributes = ATTRIBUTES,
		.summary = "y = scale * x along an axis, less the logarithm of the sum of exp(scale * x)",
		.gains = {{"rows", 1.06, 1.06}, {NULL, 1.85, 1.85}},
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_generics,
	},
	{
		.name = "softmax_backward",
		.operands = {{"y", OP_PROBABILITY}, {"dy", OP_NORMAL}, {"dx"}},
		.attributes = ATTRIBUTES,
		.summary = "dx = scale * y * (dy - sum(dy * y)) along an axis",
		.gains = {{NULL, 1.5, 1.5}},
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_backward_generics,
	},
	{
		.name = "log_softmax_backward",
		.operands = {{"y", OP_LOGARITHM}, {"dy", OP_NORMAL}, {"dx"}},
		.attributes = ATTRIBUTES,
		.summary = "dx = scale * (dy - exp(y) * sum(dy)) along an axis",
		.gains = {{NULL, 1.5, 1.5}},
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_backward_generics,
	},
	{.name = NULL},
};
