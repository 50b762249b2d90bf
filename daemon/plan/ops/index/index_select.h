/*
 * index_select.h: what the planners of index_select, embedding and take_along_axis share: the
 * request as rows of dst.  Shared by the index_select*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_INDEX_SELECT_H
#define KILN_DAEMON_PLAN_INDEX_SELECT_H

#include "index.h"

#define SELECT_THREADS 256u

enum select_kind { SELECT_GATHER, SELECT_ROWS, SELECT_ELEMENTS };

struct select_problem {
	struct index_problem index;
	enum select_kind kind;
	int64_t unit;          /* GATHER: elements that move together */
	struct rows_form form; /* rows of dst; operands: src, idx, the number among those of an index */
	int64_t axis;          /* elements of src from one index to the next */
	int64_t count;         /* elements of dst */
	uint32_t width;        /* ROWS: bytes that all runs are whole numbers of */
};

/* Everything that is asked of a request; fills in all of out. */
int index_select_check(const struct kernel_problem *problem, struct select_problem *out,
					   char error[KERNEL_ERROR_MAX]);
/* Extents of all operands, with these alignments. */
void index_select_extents(const struct kernel_problem *problem, uint32_t src, uint32_t idx,
						  uint32_t dst, struct kernel_plan *out);
/* The plan whose kernel knows no size; there is something to do. */
void index_select_generic(const struct kernel_problem *problem, const struct select_problem *select,
						  const struct kernel_limits *limits, struct kernel_plan *out);

#endif
