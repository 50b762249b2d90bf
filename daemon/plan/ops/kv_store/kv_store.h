/*
 * kv_store.h: what the planners of operators that store keys and values into paged caches share:
 * what is asked of caches, slots and scales, and their sizes and strides.
 */
#ifndef KILN_DAEMON_PLAN_KV_STORE_H
#define KILN_DAEMON_PLAN_KV_STORE_H

#include "daemon/plan/ops/rows/rows.h"

/* The attributes that rows have for caches and slots. */
#define KV_LAYOUT                                                                            \
	{                                                                                        \
		"kv_layout", KILN_ATTR_STRING, "WORD",                                               \
			"nhd: caches of [blocks, block_size, heads, dim]; hnd", "nhd", OP_WORD,          \
			.words = {"nhd", "hnd"},                                                         \
			.text = "of the caches, nhd (default: [blocks, block_size, heads, dim]) or hnd " \
					"([blocks, heads, block_size, dim])"                                     \
	}
#define KV_BOUNDS                                                                             \
	{                                                                                         \
		"bounds", KILN_ATTR_STRING, "WORD", "slots out of range: check or trust", "check",    \
			OP_WORD,                                                                          \
			.words = {"check", "trust"},                                                      \
			.text = "of slots, check (default: a token whose slot is out of range is passed " \
					"over, and the call ends in KILN_EINDEX) or trust (all are in range, or " \
					"-1)"                                                                     \
	}

/* The numbers of an operator's operands; [0] of keys, [1] of values. */
struct kv_operands {
	int from[2], slots, scale[2], cache[2];
};

/* Strides of a cache: from block to block, from slot to slot in a block, from head to head. */
struct kv_strides {
	int64_t block, place, head;
};

struct kv_caches {
	kiln_dtype from, to;
	bool copy; /* caches have the type of keys and values */
	int64_t heads, block_size, slots;
	int64_t scale_step[2]; /* from head to head */
	uint32_t slot_bytes;
	enum plan_bounds bounds;
	struct kv_strides strides[2];
};

/* Checks slots, scales and caches against keys and values, whose type the caller has checked.
 * head: the dimension of these that numbers heads. */
int kv_check_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					int head, struct kv_caches *out, char error[KERNEL_ERROR_MAX]);
/* Can vectors of so many bytes be stored in both caches? */
bool kv_stores_vectors(const struct kernel_problem *problem, const struct kv_operands *operands,
					   const struct kv_caches *caches, uint32_t bytes);
/* The arguments of KV_CACHE_PARAMS.  unit: bytes of what the kernel counts as an element. */
void kv_pass_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					const struct kv_caches *caches, uint32_t unit, struct kernel_plan *out);
/* Touches slots, scales and caches.  moved: elements of the caches that are written. */
void kv_touch_caches(const struct kernel_problem *problem, const struct kv_operands *operands,
					 const struct kv_caches *caches, uint32_t store, int64_t moved,
					 struct kernel_plan *out);

/* ---- The row of kv_store (kv_store.c) ---- */

int kv_store_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int kv_store_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int kv_store_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int kv_store_generics(int index, struct kernel_problem *out);

#endif
