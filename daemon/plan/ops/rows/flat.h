/*
 * flat.h: operators of which each thread makes a vector of results (kernel_src/common/flat.cuh):
 * how operands are read, and how many threads a block has.
 */
#ifndef KILN_DAEMON_PLAN_FLAT_H
#define KILN_DAEMON_PLAN_FLAT_H

#include "rows.h"

enum flat_way { FLAT_WHOLE, FLAT_SKEWED, FLAT_APART };

/* "whole" in choices, and "FLAT_WHOLE" in kernels. */
const char *flat_way_word(enum flat_way way);
const char *flat_way_name(enum flat_way way);

/* Merges all dimensions that run on in all operands; the fastest of those that remain has the
 * columns, and if none remains all is one row.  Returns how many elements there are. */
int64_t flat_rows(struct rows_form *form, int rank, const int64_t *shape, int operands,
				  const int64_t *const stride[], bool *one);

/* The candidates "WORD 256", by the threads of a block; how many. */
int flat_choices(const char *word, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
/* The threads that a choice names, or the first of them without one, and its name; 0: there is no
 * such candidate. */
uint32_t flat_threads(const char *word, const struct kernel_limits *limits, const char *choice,
					  char name[KERNEL_CHOICE_MAX]);

#endif
