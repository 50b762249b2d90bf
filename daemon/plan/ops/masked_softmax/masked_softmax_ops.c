/*
 * masked_softmax_ops.c: the rows of masked_softmax and its backward.
 */
#include "masked_softmax.h"

#define MASK                                                      \
	{                                                             \
		"mask", OP_MASK, OP_MASK_SHAPE, OP_MASK_DTYPE, OP_BY_KIND \
	}
#define KIND_HELP "what the mask is: bool, lengths, causal, additive"
#define KEEP_HELP "a bool mask that is not 0 where elements are kept"
#define DIAGONAL_HELP "causal: row q keeps the columns up to q + N"
#define KIND OP_WORD, .words = {"bool", "lengths", "causal", "additive"}
/* No row has more elements; and every one of these is a number in any notation. */
#define FARTHEST ((int64_t)1 << 53)
#define DIAGONAL OP_BETWEEN, -FARTHEST, FARTHEST
#define AS_FORWARD "as of masked_softmax"

const struct plan_op plan_ops_masked_softmax[] = {
	{
		.name = "masked_softmax",
		.operands = {{"x", OP_NORMAL}, MASK, {"y"}},
		.attributes =
			{{"kind", KILN_ATTR_STRING, "bool", KIND_HELP, NULL, KIND,
			  .text = "bool (mask is bool or u8), lengths (i32, one a row), causal (no mask), "
					  "additive (floats)",
			  .needed = true},
			 {"keep", KILN_ATTR_INT, NULL, KEEP_HELP, NULL, OP_BETWEEN, 0, 1,
			  .text = "for kind bool, 1 if what is not 0 is kept (default 0, masked)"},
			 {"empty", KILN_ATTR_STRING, "WORD",
			  "rows with nothing kept become zero, nan or uniform", "zero", OP_WORD,
			  .words = {"zero", "nan", "uniform"},
			  .text = "zero, nan or uniform, what a row becomes that is all masked (default zero)"},
			 {"scale", KILN_ATTR_REAL, "X", "factor of x", "1", OP_FINITE},
			 {"diagonal", KILN_ATTR_INT, "N", DIAGONAL_HELP, "0", DIAGONAL,
			  .text =
				  "for kind causal, column k of query q is kept if k <= q + diagonal (default 0)"}},
		.summary = "softmax of scale * x along the last dimension over the elements that the mask "
				   "leaves, 0 elsewhere",
		.gains = {{NULL, 1.5, 1.5}},
		.plan = masked_softmax_plan,
		.infer = masked_softmax_infer,
		.choices = masked_softmax_choices,
		.generics = masked_softmax_generics,
	},
	{
		.name = "masked_softmax_backward",
		.operands = {{"y", OP_PROBABILITY}, {"dy", OP_NORMAL}, MASK, {"dx"}},
		.attributes =
			{{"kind", KILN_ATTR_STRING, "bool", KIND_HELP, NULL, KIND,
			  .text = "bool, lengths, causal, additive (needs no mask)", .needed = true},
			 {"keep", KILN_ATTR_INT, NULL, KEEP_HELP, NULL, OP_BETWEEN, 0, 1, .text = AS_FORWARD},
			 {"scale", KILN_ATTR_REAL, "X", "factor of x", "1", OP_FINITE, .text = AS_FORWARD},
			 {"diagonal", KILN_ATTR_INT, "N", DIAGONAL_HELP, "0", DIAGONAL, .text = AS_FORWARD}},
		.summary = "dx = scale * y * (dy - sum(dy * y)) over the elements that the mask leaves, 0 "
				   "elsewhere",
		.gains = {{NULL, 1.6, 1.6}},
		.plan = masked_softmax_plan,
		.infer = masked_softmax_infer,
		.choices = masked_softmax_choices,
		.generics = masked_softmax_backward_generics,
	},
	{.name = NULL},
};
