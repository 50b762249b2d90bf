/*
 * norm_ops.c: the rows of layer_norm, rms_norm and their backward.
 */
#include "norm_backward.h"

#define ALONG(name, data)                            \
	{                                                \
		name, data, OP_TRAILING, OP_OWN, OP_OPTIONAL \
	}
#define A_ROW(name, data, presence)                   \
	{                                                 \
		name, data, OP_LEADING, OP_COMPUTED, presence \
	}
#define LIKE_X(name, data, presence)                 \
	{                                                \
		name, data, OP_LIKE_FIRST, OP_SAME, presence \
	}
#define EPS(of)                                                                               \
	{                                                                                         \
		"eps", KILN_ATTR_REAL, "X", "added to the variance, or mean square", "1e-5", OP_FROM, \
			.text = "added to the " of " (default 1e-5)"                                      \
	}
#define AXES                                                                                    \
	{                                                                                           \
		"axes", KILN_ATTR_INT, "N", "how many trailing dimensions are normalized", "1", OP_AXES \
	}

const struct plan_op plan_ops_norm[] = {
	{
		.name = "layer_norm",
		.operands = {{"x", OP_NORMAL},
					 ALONG("gamma", OP_ABOUT_ONE),
					 ALONG("beta", OP_NORMAL),
					 LIKE_X("residual", OP_NORMAL, OP_OPTIONAL),
					 {"y"},
					 A_ROW("mean", OP_WRITTEN, OP_OPTIONAL),
					 A_ROW("rstd", OP_WRITTEN, OP_OPTIONAL),
					 LIKE_X("sum", OP_WRITTEN, OP_OPTIONAL)},
		.attributes = {EPS("variance"), AXES},
		.summary = "y = (s - mean) / sqrt(variance + eps) * gamma + beta over the rows of s = x + "
				   "residual",
		.gains = {{"rows", 1.25, 1.25}, {"wrap", 1.9, 1.9}, {NULL, 2.1, 2.1}},
		.plan = norm_plan,
		.infer = norm_infer,
		.choices = norm_choices,
		.generics = norm_generics,
	},
	{
		.name = "rms_norm",
		.operands = {{"x", OP_NORMAL},
					 ALONG("gamma", OP_ABOUT_ONE),
					 ALONG("beta", OP_NORMAL),
					 LIKE_X("residual", OP_NORMAL, OP_OPTIONAL),
					 {"y"},
					 A_ROW("rstd", OP_WRITTEN, OP_OPTIONAL),
					 LIKE_X("sum", OP_WRITTEN, OP_OPTIONAL)},
		.attributes = {EPS("mean of squares"), AXES},
		.summary =
			"y = s / sqrt(mean of s * s + eps) * gamma + beta over the rows of s = x + residual",
		.gains = {{"rows", 1.2, 1.2}, {NULL, 2.1, 2.1}},
		.plan = norm_plan,
		.infer = norm_infer,
		.choices = norm_choices,
		.generics = norm_generics,
	},
	{
		.name = "layer_norm_backward",
		.operands = {{"x", OP_NORMAL},
					 {"dy", OP_NORMAL},
					 ALONG("gamma", OP_ABOUT_ONE),
					 A_ROW("mean", OP_NORMAL, OP_REQUIRED),
					 A_ROW("rstd", OP_ABOUT_ONE, OP_REQUIRED),
					 LIKE_X("dx", OP_WRITTEN, OP_USUAL),
					 ALONG("dgamma", OP_WRITTEN),
					 ALONG("dbeta", OP_WRITTEN)},
		.attributes = {AXES},
		.summary = "with n = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - mean of g - n "
				   "* mean of g * n), dgamma = sum of dy * n and dbeta = sum of dy over the rows",
		.gains = {{NULL, 2.9, 2.9}},
		.plan = norm_backward_plan,
		.infer = norm_backward_infer,
		.choices = norm_backward_choices,
		.generics = layer_norm_backward_generics,
	},
	{
		.name = "rms_norm_backward",
		.operands = {{"x", OP_NORMAL},
					 {"dy", OP_NORMAL},
					 ALONG("gamma", OP_ABOUT_ONE),
					 A_ROW("rstd", OP_ABOUT_ONE, OP_REQUIRED),
					 LIKE_X("dx", OP_WRITTEN, OP_USUAL),
					 ALONG("dgamma", OP_WRITTEN),
					 ALONG("dbeta", OP_WRITTEN)},
		.attributes = {AXES},
		.summary = "with n = x * rstd and g = dy * gamma: dx = rstd * (g - n * mean of g * n), "
				   "dgamma = sum of dy * n and dbeta = sum of dy over the rows",
		.gains = {{NULL, 3.4, 3.4}},
		.plan = norm_backward_plan,
		.infer = norm_backward_infer,
		.choices = norm_backward_choices,
		.generics = rms_norm_backward_generics,
	},
	{.name = NULL},
};
