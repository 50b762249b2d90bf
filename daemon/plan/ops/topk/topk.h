/*
 * topk.h: what the files of topk and sort share.
 */
#ifndef KILN_DAEMON_PLAN_TOPK_H
#define KILN_DAEMON_PLAN_TOPK_H

#include "daemon/plan/ops/rows/rows.h"

#define TOPK_COLUMNS_MOST (1 << 30)

enum { TOPK_X, TOPK_VALUES, TOPK_INDICES };

/* The problem as rows of columns. */
struct topk_form {
	struct rows_form rows; /* operand 0: x, 1: values, and indices as these */
	kiln_dtype dtype;
	uint32_t element;
	int64_t k;
	bool greatest;
	uint32_t read; /* bytes that all rows are aligned to and are multiples of, up to 16 */
	uint32_t out;  /* results that may be stored at once */
};

/* How a row is spread over threads; which kernel it is. */
enum topk_kind {
	TOPK_LIST,    /* a part of a warp: each lane keeps the first of its elements */
	TOPK_NETWORK, /* a part of a warp sorts all of them */
	TOPK_SAMPLED, /* a block, which collects what a sample says */
	TOPK_ROWS,    /* a warp or a block, by way of shared memory */
	TOPK_WHOLE,   /* a part of a block, which sorts all of them: generic */
};

struct topk_way {
	enum topk_kind kind;
	uint32_t threads, rows; /* of a block */
	uint32_t vector;        /* elements that are read at once */
	/* LIST, NETWORK */
	uint32_t lanes, each; /* of a row, and entries of a lane */
	/* SAMPLED, ROWS, WHOLE: entries are of so many bytes */
	uint32_t held, sorted, room, entry;
	/* SAMPLED: batches in shared memory, a thread's vectors in the sample, entries of it that are
	 * wanted, and bins in which entries are put in order */
	uint32_t stages, sample, want, bins;
	bool whole;
	bool scratch; /* entries are in scratch memory: a block has too little of its own */
};

#define TOPK_MAX_WAYS 24
#define TOPK_GENERIC_THREADS 256u /* of a block, where the device has so many */

/* Integers of 8 and 16 bits, and bools: only by way of shared memory. */
bool topk_is_small(kiln_dtype dtype);
int topk_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);

/* Finds the form of a problem that was checked. */
void topk_find_form(const struct kernel_problem *problem, struct topk_form *form);
/* The ways of a problem, the first of them the planner's; how many. */
int topk_find_ways(const struct topk_form *form, const struct kernel_limits *limits,
				   struct topk_way ways[TOPK_MAX_WAYS]);
/* The one for any problem, by the generic kernel. */
void topk_generic_way(const struct topk_form *form, const struct kernel_limits *limits,
					  struct topk_way *way);
/* Bytes that a block of SAMPLED or ROWS needs for its entries. */
uint32_t topk_way_bytes(const struct topk_way *way);
/* Unique among the ways of a problem. */
void topk_way_name(const struct topk_way *way, char name[KERNEL_CHOICE_MAX]);

int topk_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int topk_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

#endif
