/*
 * rope_ops.c: the rows of rope and rope_kv_store.
 */
#include "rope.h"

#include "daemon/plan/ops/kv_store/kv_store.h"

#define FLAG(name, help, full)                                                \
	{                                                                         \
		name, KILN_ATTR_INT, NULL, help, NULL, OP_BETWEEN, 0, 1, .text = full \
	}

#define INTERLEAVED                                                     \
	FLAG("interleaved", "pairs are neighbours, not of two halves",      \
		 "1 if a pair is two neighbours, 0 if element i goes with i + " \
		 "rotary_dim / 2 (default 0)")
#define START                                                                                      \
	{                                                                                              \
		"start", KILN_ATTR_INT, "N", "position of token 0, without positions", "0", OP_BETWEEN, 0, \
			(int64_t)1 << 53,                                                                      \
			.text = "the position of token 0 where no positions are given (default 0)"             \
	}
#define LAYOUT                                                                                  \
	{                                                                                           \
		"layout", KILN_ATTR_STRING, "WORD", "bshd: [batch, tokens, heads, dim]; bhsd", "bshd",  \
			OP_WORD, .words = {"bshd", "bhsd"},                                                 \
					 .text = "of q and k, bshd (default: [batch, tokens, heads, dim]) or bhsd " \
							 "([batch, heads, tokens, dim]), in both with or without batch"     \
	}

const struct plan_op plan_ops_rope[] = {
	{
		.name = "rope",
		.operands = {{"q", OP_NORMAL},
					 {"cos", OP_NORMAL, OP_ANGLES, OP_OWN},
					 {"sin", OP_NORMAL, OP_ANGLES, OP_OWN},
					 {"k", OP_NORMAL, .presence = OP_OPTIONAL},
					 {"positions", OP_INDICES, OP_TOKENS, OP_INDEX, OP_OPTIONAL},
					 {"q_out"},
					 {"k_out", .shape = OP_LIKE_INPUT, .presence = OP_WITH_INPUT}},
		.attributes = {INTERLEAVED,
					   FLAG("inverse", "rotate back, as the gradient does",
							"1 if the angles are negated, as in the gradient (default 0)"),
					   START,
					   LAYOUT,
					   {"bounds", KILN_ATTR_STRING, "WORD",
						"indices out of range: check, clamp or trust", "check", OP_WORD,
						.words = {"check", "clamp", "trust"},
						.text = "of positions, check (default: the heads of a token become 0 where "
								"one is out of range, and the call ends in KILN_EINDEX), clamp "
								"(the nearest row is taken) or trust (all are in range)"}},
		.summary = "rotary position embedding of q, and of k in the same launch: each pair (a, b) "
				   "of a head becomes (a cos - b sin, b cos + a sin), with the row of cos and sin "
				   "[positions, rotary_dim / 2] that the token's position names; elements from "
				   "rotary_dim on are copied",
		.plan = rope_plan,
		.infer = rope_infer,
		.choices = rope_choices,
		.generics = rope_generics,
	},
	{
		.name = "rope_kv_store",
		.operands = {{"q", OP_NORMAL},
					 {"cos", OP_NORMAL, OP_ANGLES, OP_OWN},
					 {"sin", OP_NORMAL, OP_ANGLES, OP_OWN},
					 {"k", OP_NORMAL},
					 {"v", OP_NORMAL},
					 {"slots", OP_SLOTS, OP_TOKENS, OP_INDEX},
					 {"positions", OP_INDICES, OP_TOKENS, OP_INDEX, OP_OPTIONAL},
					 {"k_scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"v_scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"q_out"},
					 {"k_cache", OP_KEPT, OP_PAGES, OP_OWN},
					 {"v_cache", OP_KEPT, OP_PAGES, OP_OWN}},
		.attributes = {INTERLEAVED,
					   START,
					   LAYOUT,
					   KV_LAYOUT,
					   {"bounds", KILN_ATTR_STRING, "WORD",
						"indices out of range: check, clamp or trust", "check", OP_WORD,
						.words = {"check", "clamp", "trust"},
						.text = "of positions and slots, check (default: a token with a position "
								"out of range has zeros in q_out and is not stored, nor is one "
								"with such a slot, and the call ends in KILN_EINDEX), clamp (the "
								"nearest position is taken) or trust (all are in range)"}},
		.summary = "rope of q and k, and k and v put into the slots of paged caches, in place: "
				   "rope and kv_store in one launch, in which k is rounded once, to the type of "
				   "its cache",
		.plan = rope_kv_plan,
		.infer = rope_kv_infer,
		.choices = rope_kv_choices,
		.generics = rope_kv_generics,
		.report = rope_kv_report,
	},
	{.name = NULL},
};
