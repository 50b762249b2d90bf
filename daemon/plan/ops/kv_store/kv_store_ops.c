/*
 * kv_store_ops.c: the row of kv_store.
 */
#include "kv_store.h"

const struct plan_op plan_ops_kv_store[] = {
	{
		.name = "kv_store",
		.operands = {{"k", OP_NORMAL},
					 {"v", OP_NORMAL},
					 {"slots", OP_SLOTS, OP_TOKENS, OP_INDEX},
					 {"k_scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"v_scale", OP_ABOUT_ONE, OP_ONE, OP_COMPUTED, OP_OPTIONAL},
					 {"k_cache", OP_KEPT, OP_PAGES, OP_OWN},
					 {"v_cache", OP_KEPT, OP_PAGES, OP_OWN}},
		.attributes = {KV_LAYOUT, KV_BOUNDS},
		.summary = "puts k and v [tokens, heads, dim] into the slots of paged caches that the "
				   "tokens name, in place: slot s is place s % block_size of block s / block_size, "
				   "and -1 passes a token over; as they are, or divided by scales, of all or of "
				   "each head, into f8e4m3, f8e5m2 or i8, which saturate",
		.plan = kv_store_plan,
		.infer = kv_store_infer,
		.choices = kv_store_choices,
		.generics = kv_store_generics,
	},
	{.name = NULL},
};
