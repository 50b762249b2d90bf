/*
 * scan.h: operators that make something of each element of a row and all before it
 * (kernel_src/common/scan.cuh): how rows are spread over threads, and the plan.  The operator says
 * what is made.
 */
#ifndef KILN_DAEMON_PLAN_SCAN_H
#define KILN_DAEMON_PLAN_SCAN_H

#include "rows.h"

#define SCAN_MONOID_MAX 64

/* The problem as rows of columns.  Operands stand inputs first; the first is as wide as any. */
struct scan_form {
	struct rows_form rows;
	const char *source;                   /* "ops/NAME.cuh" */
	char monoid[SCAN_MONOID_MAX];         /* the operator's struct in scan.cuh's terms */
	char generic_monoid[SCAN_MONOID_MAX]; /* and that of the generic kernels */
	int inputs, outputs;
	kiln_dtype dtype;
	uint32_t element, vector;
	bool heavy;     /* takes many registers for each element */
	bool costly;    /* computes much for each element */
	bool strided;   /* rows of y lie side by side, and not the elements of a row */
	bool skewed;    /* rows begin between two vectors, equally far beyond one in all operands */
	bool reverse;   /* from the end */
	bool exclusive; /* without the element itself */
};

/* Finds out how rows lie; source, monoids, heavy, costly, reverse and exclusive are the operator's
 * to fill in. */
void scan_find_form(const struct kernel_problem *problem, int inputs, int outputs,
					struct scan_form *form);
int scan_choices(const struct scan_form *form, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
/* As an operator's plan, of a problem with elements. */
int scan_plan(const struct kernel_problem *problem, const struct scan_form *form,
			  const struct kernel_limits *limits, const char *choice, struct kernel_plan *out,
			  char error[KERNEL_ERROR_MAX]);
/* Generic kernel number `layout` of SCAN_LAYOUTS, for all operands of a problem of so many: short
 * rows, long ones by vectors and by elements, and rows side by side. */
#define SCAN_LAYOUTS 4
void scan_made(int layout, int operands, kiln_dtype dtype, struct kernel_problem *out);

#endif
