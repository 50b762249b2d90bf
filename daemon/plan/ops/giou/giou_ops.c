/*
 * giou_ops.c: the rows of giou, giou_loss and their backward.
 */
#include "giou.h"

#define PRED             \
	{                    \
		"pred", OP_BOXES \
	}
#define TARGET                                      \
	{                                               \
		"target", OP_TARGETS, OP_LIKE_FIRST, OP_OWN \
	}
#define TARGETS                                  \
	{                                            \
		"target", OP_TARGETS, OP_PER_BOX, OP_OWN \
	}
#define OFFSETS                                                   \
	{                                                             \
		"offsets", OP_OFFSETS, OP_BOUNDARIES, OP_I32, OP_OPTIONAL \
	}
#define CLAMP(full)                                                                          \
	{                                                                                        \
		"clamp", KILN_ATTR_INT, "N", "sides of an intersection are at least 0: 1 or 0", "1", \
			OP_BETWEEN, 0, 1, .text = full                                                   \
	}
#define CLAMP_AS_GIOU CLAMP("as of giou")

const struct plan_op plan_ops_giou[] = {
	{
		.name = "giou",
		.operands = {PRED, TARGET, {"y", .shape = OP_LEADING}},
		.attributes = {CLAMP("1 if sides of the intersection are at least 0 (default), 0 if boxes "
							 "that are apart in both directions count as intersecting")},
		.summary = "y = intersection / union - (enclosing - union) / enclosing of boxes x1, y1, "
				   "x2, y2; 0 where y2 of target is 0",
		.gains = {{NULL, 1.06, 1.06}},
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_generics,
	},
	{
		.name = "giou_backward",
		.operands = {PRED, TARGET, {"dy", OP_NORMAL, OP_LEADING}, {"dpred"}},
		.attributes = {CLAMP_AS_GIOU},
		.summary = "dpred = dy * the derivatives of giou by x1, y1, x2, y2 of pred; 0 where y2 of "
				   "target is 0",
		.gains = {{NULL, 1.11, 1.11}},
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_backward_generics,
	},
	{
		.name = "giou_loss",
		.operands = {PRED,
					 TARGETS,
					 OFFSETS,
					 {"loss", .shape = OP_ONE, .dtype = OP_COMPUTED},
					 {"count", OP_WRITTEN, OP_ONE, OP_I64, OP_OPTIONAL}},
		.attributes = {CLAMP_AS_GIOU},
		.summary = "loss = the sum of giou over the pairs where y2 of target is not 0, divided by "
				   "their count (by 1 if there are none); with offsets, sample s has the targets "
				   "offsets[s] .. offsets[s+1]-1",
		.gains = {{NULL, 1.14, 1.25}},
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_loss_generics,
	},
	{
		.name = "giou_loss_backward",
		.operands = {PRED,
					 TARGETS,
					 OFFSETS,
					 {"count", OP_COUNT, OP_ONE, OP_I64},
					 {"dloss", OP_NORMAL, OP_ONE, OP_COMPUTED},
					 {"dpred"}},
		.attributes = {CLAMP_AS_GIOU},
		.summary = "dpred = dloss / max(count, 1) * the derivatives of giou by x1, y1, x2, y2 of "
				   "pred; 0 where there is no target, or its y2 is 0",
		.gains = {{NULL, 1.24, 1.24}},
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_loss_backward_generics,
	},
	{.name = NULL},
};
