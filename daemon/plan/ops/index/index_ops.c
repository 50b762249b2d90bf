/*
 * index_ops.c: the rows of the operators with a list of indices, or an index for each element.
 */
#include "index.h"

#define IDX(like)                         \
	{                                     \
		"idx", OP_INDICES, like, OP_INDEX \
	}
#define BOUNDS                                                                                   \
	{                                                                                            \
		"bounds", KILN_ATTR_STRING, "WORD", "indices out of range: check, clamp or trust",       \
			"check", OP_WORD,                                                                    \
			.words = {"check", "clamp", "trust"},                                                \
			.text =                                                                              \
				"of indices, check (default: 0 is written where one is out of range, and the "   \
				"call ends in KILN_EINDEX), clamp (the nearest element is taken) or trust (all " \
				"are in range)"                                                                  \
	}
#define AXIS(usual)                                                                          \
	{                                                                                        \
		"axis", KILN_ATTR_INT, "N",                                                          \
			"the dimension that is indexed, counted from the end if below 0", usual, OP_AXIS \
	}

const struct plan_op plan_ops_index[] = {
	{
		.name = "index_select",
		.operands = {{"src", OP_BITS}, IDX(OP_LIST), {"dst", .shape = OP_ALONG}},
		.attributes = {AXIS("0"), BOUNDS},
		.summary = "dst[o,k,i] = src[o,idx[k],i], bit for bit: slices along an axis, by a list of "
				   "indices",
		.plan = index_select_plan,
		.infer = index_infer,
		.choices = index_select_choices,
		.generics = index_select_generics,
	},
	{
		.name = "embedding",
		.operands = {{"weight", OP_BITS}, IDX(OP_LIST), {"dst", .shape = OP_ALONG}},
		.attributes = {BOUNDS},
		.summary = "dst[..,i] = weight[idx[..],i], bit for bit: rows of a table, by indices of any "
				   "shape",
		.plan = index_select_plan,
		.infer = index_infer,
		.choices = index_select_choices,
		.generics = index_select_generics,
	},
	{
		.name = "take_along_axis",
		.operands = {{"src", OP_BITS}, IDX(OP_ALONG), {"dst", .shape = OP_ALONG}},
		.attributes = {AXIS("-1"), BOUNDS},
		.summary = "dst[o,k,i] = src[o,idx[o,k,i],i], bit for bit: an index for each element",
		.plan = index_select_plan,
		.infer = index_infer,
		.choices = index_select_choices,
		.generics = take_along_axis_generics,
	},
	{.name = NULL},
};
