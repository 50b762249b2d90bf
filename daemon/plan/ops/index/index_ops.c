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
#define ADD_BOUNDS                                                                                \
	{                                                                                             \
		"bounds", KILN_ATTR_STRING, "WORD", "indices out of range: check, clamp or trust",        \
			"check", OP_WORD,                                                                     \
			.words = {"check", "clamp", "trust"},                                                 \
			.text = "of indices, check (default: one that is out of range adds nothing, and the " \
					"call ends in KILN_EINDEX), clamp (it names the nearest) or trust (all are "  \
					"in range)"                                                                   \
	}
#define DETERMINISTIC                                                                             \
	{                                                                                             \
		"deterministic", KILN_ATTR_INT, "N", "1: the same bits again; 0: sums in any order", "1", \
			OP_BETWEEN, 0, 1,                                                                     \
			.text = "1 (default) for the same bits again; 0 lets sums be added up in any order, " \
					"those of f16 and bf16 rounded at each addition"                              \
	}
#define PADDING                                                                                   \
	{                                                                                             \
		"padding_idx", KILN_ATTR_INT, "N",                                                        \
			"the row that has no gradient, from the end if below 0", NULL, OP_BETWEEN, INT64_MIN, \
			INT64_MAX                                                                             \
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
		.attributes = {PADDING, BOUNDS},
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
	{
		.name = "index_add",
		.operands = {{"x", OP_NORMAL}, IDX(OP_LIST), {"src", OP_NORMAL, OP_ALONG}, {"y"}},
		.attributes = {AXIS("0"),
					   {"alpha", KILN_ATTR_REAL, "X", "factor of src", "1", OP_FINITE},
					   ADD_BOUNDS,
					   DETERMINISTIC},
		.summary = "y[o,p,i] = x[o,p,i] + alpha * the sum of src[o,k,i] over the k with idx[k] = "
				   "p, by rising k",
		.plan = index_add_plan,
		.infer = index_infer,
		.choices = index_add_choices,
		.generics = index_add_generics,
	},
	{
		.name = "scatter_add",
		.operands = {{"x", OP_NORMAL}, IDX(OP_ALONG), {"src", OP_NORMAL, OP_ALONG}, {"y"}},
		.attributes = {AXIS("-1"), ADD_BOUNDS, DETERMINISTIC},
		.summary = "y[o,p,i] = x[o,p,i] + the sum of src[o,k,i] over the k with idx[o,k,i] = p, by "
				   "rising k",
		.plan = index_add_plan,
		.infer = index_infer,
		.choices = index_add_choices,
		.generics = scatter_add_generics,
	},
	{
		.name = "index_select_backward",
		.operands = {{"ddst", OP_NORMAL}, IDX(OP_LIST), {"dsrc", .shape = OP_ALONG}},
		.attributes = {AXIS("0"), ADD_BOUNDS, DETERMINISTIC},
		.summary = "dsrc[o,p,i] = the sum of ddst[o,k,i] over the k with idx[k] = p, by rising k",
		.plan = index_add_plan,
		.infer = index_infer,
		.choices = index_add_choices,
		.generics = index_select_backward_generics,
	},
	{
		.name = "embedding_backward",
		.operands = {{"ddst", OP_NORMAL}, IDX(OP_LEADING), {"dweight", .shape = OP_ALONG}},
		.attributes = {PADDING, ADD_BOUNDS, DETERMINISTIC},
		.summary =
			"dweight[p,i] = the sum of ddst[..,i] over the places with idx[..] = p, in their "
			"order; 0 in the row of padding_idx",
		.plan = index_add_plan,
		.infer = index_infer,
		.choices = index_add_choices,
		.generics = index_select_backward_generics,
	},
	{.name = NULL},
};
