/*
 * map_ops.c: the row of map.  Its operands and scalars have the names that a statement gives them.
 */
#include "map.h"

const struct plan_op plan_ops_map[] = {
	{
		.name = "map",
		.operands = {{"inputs", OP_NORMAL, .presence = OP_OPTIONAL}, {"output"}},
		.attributes =
			{{"statement", KILN_ATTR_STRING, "TEXT",
			  "what is computed, \"y[i,j] = x[i,j] * s + b[j]\""},
			 {"names", KILN_ATTR_STRING, "LIST", "of the operands in their order, \"x,b,y\""},
			 {"NAME", KILN_ATTR_REAL, "X", "a scalar of the statement"},
			 {"bounds", KILN_ATTR_STRING, "WORD", "indices out of range: check, clamp or zero",
			  NULL, OP_WORD, .words = {"check", "clamp", "zero"},
			  .text =
				  "of indices, check (default: 0 is read where one is out of range, and the call "
				  "ends in KILN_EINDEX), clamp (the nearest element is read) or zero (0 is read)"},
			 {"checked", KILN_ATTR_INT, NULL,
			  "1 if every access is checked and the first bad one is named", NULL, OP_BETWEEN, 0,
			  1}},
		.summary = "what the statement says, for each element of the operand on its left",
		.gains = {{NULL, 1.0, 1.0}},
		.names = map_names,
		.plan = map_plan,
		.infer = map_infer,
		.choices = map_choices,
		.report = map_report,
	},
	{.name = NULL},
};
