/*
 * quantize_ops.c: the rows of the operators that bring elements to 8 bits and back, and which
 * generic kernels they have.
 */
#include "quantize.h"

static const kiln_dtype wide[] = {KILN_F32, KILN_F16, KILN_BF16};
static const char *const words[] = {"f8e4m3", "f8e5m2", "i8"};
static const kiln_dtype narrow[] = {KILN_F8E4M3, KILN_F8E5M2, KILN_I8};

/* Each pair of types has two: by vectors and by elements; and as many again where scales are given
 * that lie apart. */
static int made(int index, bool back, bool dynamic, struct kernel_problem *out)
{
	static const char *const wide_words[] = {"f32", "f16", "bf16"};
	int a = index % 18 / 6, b = index / 2 % 3;
	const int64_t shape[] = {2, index & 1 ? 3 : 512};
	bool apart = index >= 18;

	if (index >= (dynamic ? 18 : 36))
		return KILN_ENOENT;
	plan_made_tensor(out, 0, back ? narrow[b] : wide[a], 2, shape);
	plan_made_tensor(out, dynamic ? 1 : 2, back ? wide[a] : narrow[b], 2, shape);
	plan_made_tensor(out, dynamic ? 2 : 1, KILN_F32, dynamic || apart, shape);
	if (apart)
		out->tensors[1].stride[0] = 2;
	if (index & 1)
		for (int i = 0; i < 3; i++)
			out->tensors[i].alignment = kernel_dtype_bytes(out->tensors[i].dtype);
	plan_made_word(out, "to", back ? wide_words[a] : words[b]);
	return KILN_OK;
}

static int quantize_generics(int index, struct kernel_problem *out)
{
	return made(index, false, false, out);
}

static int dequantize_generics(int index, struct kernel_problem *out)
{
	return made(index, true, false, out);
}

static int dynamic_quantize_generics(int index, struct kernel_problem *out)
{
	return made(index, false, true, out);
}

/* Each type has two, by vectors and by elements, with residual and without. */
static int norm_quantize_generics(int index, struct kernel_problem *out)
{
	const int64_t shape[] = {2, index & 2 ? 3 : 512};

	if (index >= 12)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, wide[index / 4], 2, shape);
	if (index & 1)
		plan_made_tensor(out, 3, wide[index / 4], 2, shape);
	plan_made_tensor(out, 5, narrow[0], 2, shape);
	plan_made_word(out, "to", words[0]);
	return KILN_OK;
}

static int cast_transpose_generics(int index, struct kernel_problem *out)
{
	const int64_t size = index & 1 ? 17 : 16, shape[] = {2, size, size};
	int a = index / 6, b = index / 2 % 3;

	if (index >= 18)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, wide[a], 3, shape);
	plan_made_tensor(out, 2, narrow[b], 3, shape);
	plan_made_tensor(out, 3, narrow[b], 3, shape);
	plan_made_word(out, "to", words[b]);
	return KILN_OK;
}

static int act_mul_quantize_generics(int index, struct kernel_problem *out)
{
	const int64_t shape[] = {2, index & 1 ? 3 : 512};
	int a = index / 6, b = index / 2 % 3;

	if (index >= 18)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, wide[a], 2, shape);
	plan_made_tensor(out, 1, wide[a], 2, shape);
	plan_made_tensor(out, 3, narrow[b], 2, shape);
	plan_made_word(out, "to", words[b]);
	return KILN_OK;
}

#define TO_NARROW                                                                 \
	{                                                                             \
		"to", KILN_ATTR_STRING, "WORD", "the type of y: f8e4m3, f8e5m2 or i8",    \
			.range = OP_WORD, .words = {"f8e4m3", "f8e5m2", "i8"}, .needed = true \
	}

#define GROUP                                                                                     \
	{                                                                                             \
		"group", KILN_ATTR_INT, "N", "elements of the last dimension that share a scale; 0: all", \
			"0", OP_BETWEEN, 0, 1 << 30,                                                          \
			.text = "how many elements of the last dimension share a scale; 0 (default): all of " \
					"them"                                                                        \
	}

/* scales has a number for each row, the one that is given or found. */
#define NORM_QUANTIZE(op, of, text_of)                                                           \
	{                                                                                            \
		.name = op,                                                                              \
		.operands = {{"x", OP_NORMAL},                                                           \
					 {"gamma", OP_ABOUT_ONE, OP_TRAILING, OP_OWN, OP_OPTIONAL},                  \
					 {"beta", OP_NORMAL, OP_TRAILING, OP_OWN, OP_OPTIONAL},                      \
					 {"residual", OP_NORMAL, .presence = OP_OPTIONAL},                           \
					 {"scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},                  \
					 {"y", .dtype = OP_TO},                                                      \
					 {"scales", .shape = OP_GROUPS, .dtype = OP_COMPUTED, .presence = OP_USUAL}, \
					 {"sum", .presence = OP_OPTIONAL}},                                          \
		.attributes = {TO_NARROW,                                                                \
					   {"eps", KILN_ATTR_REAL, "X", "added to the variance, or mean square",     \
						"1e-5", OP_FROM, .text = "added to the " of " (default 1e-5)"},          \
					   GROUP},                                                                   \
		.summary = text_of, .plan = norm_quantize_plan, .infer = norm_quantize_infer,            \
		.choices = norm_quantize_choices, .generics = norm_quantize_generics,                    \
	}

const struct plan_op plan_ops_quantize[] = {
	{
		.name = "quantize",
		.operands = {{"x", OP_NORMAL},
					 {"scale", OP_ABOUT_ONE, OP_GROUPS, OP_COMPUTED},
					 {"y", .dtype = OP_TO}},
		.attributes = {TO_NARROW},
		.summary = "y = x / scale, which is one number, or one for each row or for each group of "
				   "the last dimension; y saturates",
		.plan = quantize_plan,
		.infer = quantize_infer,
		.choices = quantize_choices,
		.generics = quantize_generics,
	},
	{
		.name = "dequantize",
		.operands = {{"x", OP_BITS},
					 {"scale", OP_ABOUT_ONE, OP_GROUPS, OP_COMPUTED},
					 {"y", .dtype = OP_TO}},
		.attributes = {{"to", KILN_ATTR_STRING, "WORD", "the type of y: f16, bf16 or f32",
						.range = OP_WORD, .words = {"f16", "bf16", "f32"}, .needed = true}},
		.summary = "y = x * scale, with scales as of quantize",
		.plan = quantize_plan,
		.infer = quantize_infer,
		.choices = quantize_choices,
		.generics = dequantize_generics,
	},
	{
		.name = "dynamic_quantize",
		.operands = {{"x", OP_NORMAL},
					 {"y", .dtype = OP_TO},
					 {"scale", .shape = OP_GROUPS, .dtype = OP_COMPUTED, .presence = OP_USUAL}},
		.attributes = {TO_NARROW, GROUP},
		.summary = "y = x / scale, with scale = the largest magnitude of x / that of y's type, for "
				   "each row or for each group of the last dimension; a floor keeps scale above 0",
		.plan = quantize_rows_plan,
		.infer = quantize_infer,
		.choices = quantize_rows_choices,
		.generics = dynamic_quantize_generics,
	},
	{
		.name = "cast_transpose",
		.operands = {{"x", OP_NORMAL},
					 {"scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"y", .dtype = OP_TO},
					 {"transposed", .shape = OP_TRANSPOSED, .dtype = OP_TO, .presence = OP_USUAL}},
		.attributes = {TO_NARROW},
		.summary = "y = x / scale, which is one number, or without scale x itself; transposed is y "
				   "with its last two dimensions swapped; both saturate",
		.plan = cast_transpose_plan,
		.infer = cast_transpose_infer,
		.choices = cast_transpose_choices,
		.generics = cast_transpose_generics,
	},
	{
		.name = "act_mul_quantize",
		.operands = {{"x", OP_NORMAL},
					 {"other", OP_NORMAL, .presence = OP_OPTIONAL},
					 {"scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"y", .shape = OP_HALVED, .dtype = OP_TO},
					 {"scales", .shape = OP_HALVED_GROUPS, .dtype = OP_COMPUTED,
					  .presence = OP_USUAL}},
		.attributes = {TO_NARROW,
					   {"act", KILN_ATTR_STRING, "WORD",
						"the activation: silu, gelu, gelu_tanh or relu", "silu", OP_WORD,
						.words = {"silu", "gelu", "gelu_tanh", "relu"}, .text = "as of act_mul"},
					   GROUP},
		.summary = "y = v / scale with v = act_mul of x and other; without scale each row or group "
				   "has its own, as of dynamic_quantize",
		.plan = act_mul_quantize_plan,
		.infer = act_mul_quantize_infer,
		.choices = act_mul_quantize_choices,
		.generics = act_mul_quantize_generics,
	},
	NORM_QUANTIZE("layer_norm_quantize", "variance",
				  "y = v / scale with v = layer_norm of s = x + residual along the last dimension; "
				  "without scale each row or group has its own, as of dynamic_quantize"),
	NORM_QUANTIZE("rms_norm_quantize", "mean of squares",
				  "y = v / scale with v = rms_norm of s = x + residual along the last dimension; "
				  "without scale each row or group has its own, as of dynamic_quantize"),
	{.name = NULL},
};
