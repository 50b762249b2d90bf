/*
 * cross_entropy_ops.c: the rows of cross_entropy and its backward.
 */
#include "cross_entropy.h"

#define X              \
	{                  \
		"x", OP_NORMAL \
	}
#define TARGET                                     \
	{                                              \
		"target", OP_INDICES, OP_LEADING, OP_INDEX \
	}

/* clang-format off */
#define ATTRIBUTES                                                                                 \
	{                                                                                              \
		{"reduction", KILN_ATTR_STRING, "WORD", "of the losses of rows: mean, sum or none", "mean", \
			OP_WORD, .words = {"mean", "sum", "none"},                                             \
			.text = "mean (default, over the rows that are not ignored), sum, or none: a loss for each row"}, \
		{"ignore_index", KILN_ATTR_INT, "N", "the target of rows that are left out", "-100",       \
			OP_BETWEEN, INT64_MIN, INT64_MAX},                                                     \
		{"label_smoothing", KILN_ATTR_REAL, "X", "what all classes share of a target, 0 to 1", "0", OP_FROM}, \
		{"lse_square_scale", KILN_ATTR_REAL, "X", "factor of lse * lse in a loss", "0", OP_FINITE}, \
		{"softcap", KILN_ATTR_REAL, "X", "logits are softcap * tanh(x / softcap); 0: x", "0", OP_FROM}, \
	}
/* clang-format on */

const struct plan_op plan_ops_cross_entropy[] = {
	{
		.name = "cross_entropy",
		.operands = {X,
					 TARGET,
					 {"loss", .shape = OP_LOSS, .dtype = OP_COMPUTED},
					 {"lse", OP_WRITTEN, OP_LEADING, OP_COMPUTED, OP_OPTIONAL},
					 {"count", OP_WRITTEN, OP_ONE, OP_I64, OP_OPTIONAL},
					 {"grad", .presence = OP_OPTIONAL}},
		.attributes = ATTRIBUTES,
		.summary = "loss = lse - x[target], lse the logarithm of the sum of exp(x) over the last "
				   "dimension; count: the rows that are not ignored; grad: the derivative of loss "
				   "by x",
		.plan = cross_entropy_plan,
		.infer = cross_entropy_infer,
		.choices = cross_entropy_choices,
		.generics = cross_entropy_generics,
	},
	{
		.name = "cross_entropy_backward",
		.operands = {X,
					 TARGET,
					 {"lse", OP_NORMAL, OP_LEADING, OP_COMPUTED},
					 {"count", OP_COUNT, OP_ONE, OP_I64},
					 {"dloss", OP_NORMAL, OP_LOSS, OP_COMPUTED},
					 {"dx"}},
		.attributes = ATTRIBUTES,
		.summary = "dx = dloss * (exp(x - lse) - 1 at the target) over the last dimension, divided "
				   "by count for the mean; 0 in rows that are ignored",
		.plan = cross_entropy_backward_plan,
		.infer = cross_entropy_infer,
		.choices = cross_entropy_backward_choices,
		.generics = cross_entropy_backward_generics,
	},
	{.name = NULL},
};
