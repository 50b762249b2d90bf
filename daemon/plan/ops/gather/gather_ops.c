/*
 * gather_ops.c: the rows of gather and its backward.
 */
#include "gather.h"

#define IDX                                   \
	{                                         \
		"idx", OP_INDICES, OP_LISTS, OP_INDEX \
	}
#define BOUNDS(full)                                                                       \
	{                                                                                      \
		"bounds", KILN_ATTR_STRING, "WORD", "indices out of range: check, clamp or trust", \
			"check", OP_WORD, .words = {"check", "clamp", "trust"}, .text = full           \
	}

const struct plan_op plan_ops_gather[] = {
	{
		.name = "gather",
		.operands = {{"src", OP_BITS}, IDX, {"dst", .shape = OP_LAST}},
		.attributes = {BOUNDS(
			"of indices, check (default: 0 is written where one is out of range, and the call ends "
			"in KILN_EINDEX), clamp (the nearest element is taken) or trust (all are in range)")},
		.summary = "dst[i,j,k] = src[i,j,idx[j,k]], bit for bit: one list of indices for each j, "
				   "shared by all i",
		.gains = {{NULL, 1.46, 1.46}},
		.plan = gather_plan,
		.infer = gather_infer,
		.choices = gather_choices,
		.generics = gather_generics,
	},
	{
		.name = "gather_backward",
		.operands = {{"ddst", OP_NORMAL}, IDX, {"dsrc", .shape = OP_LAST}},
		.attributes = {BOUNDS(
			"of indices, check (default: one that is out of range names nothing, and the call ends "
			"in KILN_EINDEX), clamp (it names the nearest element) or trust (all are in range)")},
		.summary = "dsrc[i,j,p] = the sum of ddst[i,j,k] over the k with idx[j,k] = p, by rising k",
		.gains = {{NULL, 1.21, 1.21}},
		.plan = gather_backward_plan,
		.infer = gather_backward_infer,
		.choices = gather_backward_choices,
		.generics = gather_backward_generics,
	},
	{.name = NULL},
};
